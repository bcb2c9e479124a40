"""SPoC: the mean activation of each channel."""

from superfeat.config import PoolingConfig
from superfeat.methods.vectors import vector_method

SPOC = vector_method("spoc", "SPoC", PoolingConfig("spoc"))
