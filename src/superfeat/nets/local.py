"""What every method gives for one scale of an image, and its pooling into one global vector."""

import abc
from collections.abc import Sequence
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor, nn

from superfeat.nets.trunk import Trunk
from superfeat.nets.whitening import Whitening

STRENGTH_FLOOR = 1e-10


class Local(NamedTuple):
    """Local features of a batch of images at one scale.

    `maps` are attention maps, each summing to one over the places; None where each feature *is* one place of the
    (height, width) `grid`, in row order. `pooled` is a global vector of other features than these, where there is one.
    """

    vectors: Float[Tensor, "batch n dim"]
    strengths: Float[Tensor, "batch n"]
    grid: tuple[int, int]
    maps: Float[Tensor, "batch n height width"] | None
    pooled: Float[Tensor, "batch dim"] | None = None


class LocalNetwork(nn.Module, abc.ABC):
    """Images -> local features: a trunk, then what a method makes of its map. Without whitening they are raw."""

    recompute_scale = False  # whether the scale of a resized image is the ratio of the rounded sizes
    trunk: Trunk
    whitening: Whitening | None

    def forward(self, images: Float[Tensor, "batch 3 height width"]) -> Local:
        return self.describe(self.trunk(images))

    @abc.abstractmethod
    def describe(self, x: Float[Tensor, "batch channels h w"]) -> Local:
        """Local features from the trunk's map."""

    @abc.abstractmethod
    def on(self, trunk: Trunk, whitening: Whitening | None) -> "LocalNetwork":
        """The same on another trunk and with another whitening; what is in between is shared."""

    def fused(self, trunk: Trunk) -> "LocalNetwork":
        """For inference on a fused trunk: the same numbers to rounding, for less work."""
        return self.on(trunk, self.whitening)

    def folded(self) -> "LocalNetwork":
        """For training: the same gradients to rounding, for less work."""
        return self


def strength(x: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch"]:
    """L2 norm with a finite gradient at zero: what "strongest" means."""
    return (x.square().sum(dim=-1) + STRENGTH_FLOOR).sqrt()


def pool(scales: Sequence[Local]) -> Float[Tensor, "batch dim"]:
    """The global vector (eq. 1): the L2-normalised sum of strength x whitened feature, over all given scales."""
    total = sum((local.strengths.unsqueeze(1) @ local.vectors).squeeze(1) for local in scales)
    assert isinstance(total, Tensor), "pool needs at least one scale"
    return nn.functional.normalize(total, dim=-1)
