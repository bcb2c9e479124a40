"""FIRe: trunk -> LIT -> whitening; and, where wanted, points of the trunk's map beside super-features."""

from jaxtyping import Float
from torch import Tensor

from superfeat.nets.lit import Lit
from superfeat.nets.lit_forms import FoldedLit, FusedLit
from superfeat.nets.local import Local, LocalNetwork, strength
from superfeat.nets.points import Points, joined
from superfeat.nets.trunk import Trunk
from superfeat.nets.whitening import Whitening


class Fire(LocalNetwork):
    """Super-features of an image. Without whitening the raw LIT outputs are given.

    The released implementation resizes by the given factor, not by the ratio of the rounded sizes.
    """

    def __init__(self, trunk: Trunk, lit: Lit, whitening: Whitening | None, points: Points | None = None) -> None:
        super().__init__()
        self.trunk = trunk
        self.lit = lit
        self.whitening = whitening
        self.points = points

    def describe(self, x: Float[Tensor, "batch channels h w"]) -> Local:
        """Local features from the trunk's map."""
        found = self.superfeatures(x)
        return found if self.points is None else joined(found, self.points(x))

    def superfeatures(self, x: Float[Tensor, "batch channels h w"]) -> Local:
        """Without points."""
        raw, maps = self.lit(x)
        height, width = x.shape[-2:]
        vectors = raw if self.whitening is None else self.whitening(raw)
        return Local(vectors, strength(raw), (height, width), maps)

    def on(self, trunk: Trunk, whitening: Whitening | None) -> "Fire":
        """Without points, whose whitening is learned when all else is."""
        return Fire(trunk, self.lit, whitening)

    def fused(self, trunk: Trunk) -> "Fire":
        return Fire(trunk, FusedLit(self.lit), self.whitening, self.points)  # type: ignore[arg-type]

    def folded(self) -> "Fire":
        return TrainedFire(self.trunk, FoldedLit(self.lit), self.whitening, self.points)  # type: ignore[arg-type]


class TrainedFire(Fire):
    """Super-features alone, and the global vector of the points, where there are some."""

    def describe(self, x: Float[Tensor, "batch channels h w"]) -> Local:
        """Local features from the trunk's map."""
        found = self.superfeatures(x)
        return found if self.points is None else found._replace(pooled=self.points.pool(x))
