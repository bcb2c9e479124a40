"""MAC: the largest activation of each channel."""

from superfeat.config import PoolingConfig
from superfeat.methods.vectors import vector_method

MAC = vector_method("mac", "MAC", PoolingConfig("mac"))
