"""What every method gives for one scale of an image, and its pooling into one global vector."""

from collections.abc import Sequence
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor, nn

STRENGTH_FLOOR = 1e-10


class Local(NamedTuple):
    """Local features of a batch of images at one scale.

    `maps` are attention maps, each summing to one over the places; None where each feature *is* one place of the
    (height, width) `grid`, in row order.
    """

    vectors: Float[Tensor, "batch n dim"]
    strengths: Float[Tensor, "batch n"]
    grid: tuple[int, int]
    maps: Float[Tensor, "batch n height width"] | None


def strength(x: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch"]:
    """L2 norm with a finite gradient at zero: what "strongest" means."""
    return (x.square().sum(dim=-1) + STRENGTH_FLOOR).sqrt()


def pool(scales: Sequence[Local]) -> Float[Tensor, "batch dim"]:
    """The global vector (eq. 1): the L2-normalised sum of strength x whitened feature, over all given scales."""
    total = sum((local.strengths.unsqueeze(1) @ local.vectors).squeeze(1) for local in scales)
    assert isinstance(total, Tensor), "pool needs at least one scale"
    return nn.functional.normalize(total, dim=-1)
