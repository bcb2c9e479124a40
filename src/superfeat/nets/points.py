"""Points: the strongest places of the trunk's map as features of their own, beside super-features."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from superfeat.nets.local import Local, LocalNetwork, pool
from superfeat.nets.trunk import Trunk
from superfeat.nets.whitening import Whitening

APART = 1.5  # added to each dimension of a point: points and super-features are of one space, and share no word


class Points(nn.Module):
    """Places as HOW has them, the strongest `per_side` x sqrt(places) of them. Without whitening they are raw.

    They cost next to nothing, the map being there; each has a place of its own, which the vague regions of
    super-features lack.
    """

    def __init__(self, whitening: Whitening | None, per_side: float) -> None:
        super().__init__()
        self.whitening = whitening
        self.per_side = per_side

    def forward(self, x: Float[Tensor, "batch channels h w"]) -> Local:
        """The points of the trunk's map, strongest first; the attention of each is its place alone."""
        batch, _, height, width = x.shape
        places = height * width
        strengths, every = self.everywhere(x)
        best = strengths.topk(how_many(self.per_side, places), dim=1)
        vectors = every.gather(1, best.indices.unsqueeze(-1).expand(-1, -1, every.shape[-1]))
        maps = torch.zeros(batch, best.indices.shape[1], places, device=x.device, dtype=x.dtype)
        maps.scatter_(2, best.indices.unsqueeze(-1), 1.0)
        return Local(vectors, best.values, (height, width), maps.unflatten(2, (height, width)))

    def pool(self, x: Float[Tensor, "batch channels h w"]) -> Float[Tensor, "batch dim"]:
        """HOW's global vector, of all places: what points are trained by."""
        strengths, every = self.everywhere(x)
        full = torch.promote_types(every.dtype, torch.float32)
        return pool([Local(every.to(full) - APART, strengths.to(full), (x.shape[2], x.shape[3]), None)])

    def everywhere(
        self, x: Float[Tensor, "batch channels h w"]
    ) -> tuple[Float[Tensor, "batch places"], Float[Tensor, "batch places dim"]]:
        """The strength of every place, and its smoothed vector."""
        strengths = x.norm(dim=1).flatten(1)
        if self.whitening is not None:
            x = self.whitening(x.movedim(1, -1)).movedim(-1, 1)
        smooth = nn.functional.avg_pool2d(x, 3, stride=1, padding=1, count_include_pad=False)
        return strengths, smooth.flatten(2).transpose(1, 2)


def how_many(per_side: float, places: int) -> int:
    """Points of a map with so many places."""
    return max(1, min(places, math.floor(per_side * math.sqrt(places))))


def joined(superfeatures: Local, points: Local) -> Local:
    """Both, the super-features first."""
    assert superfeatures.maps is not None
    assert points.maps is not None
    return Local(
        torch.cat((superfeatures.vectors, points.vectors), dim=1),
        torch.cat((superfeatures.strengths, points.strengths), dim=1),
        superfeatures.grid,
        torch.cat((superfeatures.maps, points.maps), dim=1),
    )


class PointNetwork(LocalNetwork):
    """The points of a trunk alone, raw: what their whitening is learned from."""

    def __init__(self, trunk: Trunk, per_side: float) -> None:
        super().__init__()
        self.trunk, self.whitening = trunk, None
        self.points = Points(None, per_side)

    def describe(self, x: Float[Tensor, "batch channels h w"]) -> Local:
        """Raw points of the trunk's map."""
        found: Local = self.points(x)
        return found

    def on(self, trunk: Trunk, whitening: Whitening | None) -> "PointNetwork":
        return PointNetwork(trunk, self.points.per_side)
