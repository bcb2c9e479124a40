"""GeM (cirtorch): a mean with a learned power; with a layer behind it, or with a whitening learned from pairs."""

from superfeat.config import PoolingConfig
from superfeat.methods.vectors import vector_method

GEM = vector_method("gem", "GeM", PoolingConfig("gem"))
