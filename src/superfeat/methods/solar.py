"""SOLAR: GeM and a layer, on a trunk whose places look at each other (second-order attention)."""

from superfeat.config import PoolingConfig, TrunkConfig
from superfeat.methods.vectors import BOTH, vector_method
from superfeat.nets.second_order import AttendedResNet
from superfeat.nets.trunk import Normalisation, Trunk


def _trunk(config: TrunkConfig) -> Trunk:
    normalisation = Normalisation(config.mean, config.std)
    return AttendedResNet(config.arch, config.stages, config.stride_in_1x1, normalisation)


SOLAR = vector_method(
    "solar",
    "GeM + SOLAR",
    PoolingConfig("gem", layer=2048),
    scales=BOTH,
    trunk=_trunk,
    arch=TrunkConfig("resnet101", stages=4),
)
