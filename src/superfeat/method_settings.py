"""Settings of methods beside FIRe and HOW: one vector per photo, attention over local features."""

import dataclasses
from typing import Literal

from superfeat.settings import require

VECTOR_METHODS = ("mac", "spoc", "rmac", "gem", "apgem", "solar", "delg")  # one vector per photo
ATTENTION_METHODS = ("delf",)
METHOD_NAMES = ("fire", "how", *VECTOR_METHODS, *ATTENTION_METHODS)
VECTOR_KERNELS = ("float32", "float16", "int8")  # how an index stores such vectors


@dataclasses.dataclass(frozen=True)
class PoolingConfig:
    """How a map becomes one vector, and the layer that follows."""

    kind: Literal["mac", "spoc", "gem", "rmac"] = "gem"
    p: float = 3.0  # GeM's power, with which training begins
    levels: int = 3  # sizes of R-MAC's squares
    layer: int | None = None  # outputs of a fully connected layer behind the pooling; None: there is none

    def __post_init__(self) -> None:
        require(self.p > 0, "pooling.p", self.p, "above 0")
        require(self.levels >= 1, "pooling.levels", self.levels, "1 or more")
        require(self.layer is None or self.layer >= 1, "pooling.layer", self.layer, "1 or more")


@dataclasses.dataclass(frozen=True)
class AttentionConfig:
    """DELF's local features, and DELG's: what they are, and what says how much each counts."""

    source: Literal["map", "reduced", "head"] = "map"  # the trunk's places, an autoencoder's, or the head's own
    reduced: int = 128  # dimensions that the autoencoder gives
    trained: bool = True  # whether there is a head for attention; without one the norm of a feature stands in for it
    epsilon: float = 1e-5  # of the head's batch-norm

    def __post_init__(self) -> None:
        require(self.reduced >= 1, "attention.reduced", self.reduced, "1 or more")
        require(self.epsilon > 0, "attention.epsilon", self.epsilon, "above 0")
        require(self.trained or self.source != "head", "attention.trained", False, "true where features are the head's")


@dataclasses.dataclass(frozen=True)
class ExpansionConfig:
    """alpha query expansion: the query together with its nearest images, each weighted by similarity^alpha."""

    images: int = 10
    alpha: float = 3.0

    def __post_init__(self) -> None:
        require(self.images >= 1, "search.expansion.images", self.images, "1 or more")
        require(self.alpha >= 0, "search.expansion.alpha", self.alpha, "0 or more")
