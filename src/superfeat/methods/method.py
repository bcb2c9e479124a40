"""What a method is: how its network is built from settings, what its features are, how it is exported."""

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol

from superfeat.config import NetworkConfig, TrunkConfig
from superfeat.nets.efficientnet import EfficientNetLite
from superfeat.nets.local import LocalNetwork
from superfeat.nets.tensorflow_trunks import KerasResNet, SlimResNet
from superfeat.nets.trunk import Normalisation, ResNet, Trunk
from superfeat.nets.whitening import Whitening
from superfeat.settings import Changes

Shapes = dict[str, list[int | str]]  # of the outputs of an exported network


class Graph(Protocol):
    """An ONNX graph under construction: each call adds nodes and gives the name of their output."""

    def add(self, kind: str, *inputs: Any, name: str = "", **attributes: Any) -> str: ...
    def affine(self, x: str, layer: Any) -> str: ...
    def norm(self, x: str, layer: Any) -> str: ...
    def relu(self, x: str) -> str: ...
    def strongest(self, x: str, count: str) -> tuple[str, str]: ...  # the largest values of a row, and where they are


def plain_trunk(config: TrunkConfig) -> Trunk:
    """The trunk of these settings."""
    normalisation = Normalisation(config.mean, config.std)
    if config.arch.startswith("efficientnet"):
        return EfficientNetLite(config.arch, config.stages, config.neck, normalisation)
    if config.layout == "slim":
        return SlimResNet(config.arch, config.stages, normalisation)
    if config.layout is not None:
        return KerasResNet(config.arch, config.stages, normalisation, subsample=config.layout == "keras-half")
    return ResNet(config.arch, config.stages, config.stride_in_1x1, normalisation)


def trunk_stride(config: TrunkConfig) -> int:
    """Pixels from one place of the trunk's map to the next, without building it."""
    if config.layout == "slim":
        return int(2 ** (min(config.stages, 3) + 2))
    return int(2 ** (config.stages + 1)) * (2 if config.layout == "keras-half" else 1)


@dataclasses.dataclass(frozen=True)
class Method:
    """One method of the paper's tables."""

    name: str  # in settings
    title: str  # for people
    network: NetworkConfig  # what its settings are laid over
    build: Callable[[NetworkConfig, Trunk, Whitening | None], LocalNetwork]
    raw_dim: Callable[[NetworkConfig, int], int]  # of a feature before whitening, from settings and trunk channels
    module: type[LocalNetwork]
    export: Callable[[Graph, Any, str], Shapes]  # adds what comes after the trunk to an ONNX graph
    learned: tuple[str, ...] = ()  # parts beside the trunk that training begins with where weights have them
    relative_strengths: bool = False  # divided by the largest of an image, as the released code does; order is the same
    trunk: Callable[[TrunkConfig], Trunk] = plain_trunk
    scales: tuple[float, ...] | None = None  # of its paper, where they are not the profile's
    one_vector: bool = False  # per photo, instead of local features
    round_sizes: bool = False  # of scaled photos (half to even), instead of cutting them off
    recipe: Changes = dataclasses.field(default_factory=dict)  # what its recipes are laid over
