"""R-MAC: the MAC vectors of squares of several sizes, summed."""

from superfeat.config import PoolingConfig
from superfeat.methods.vectors import vector_method

RMAC = vector_method("rmac", "R-MAC", PoolingConfig("rmac"))
