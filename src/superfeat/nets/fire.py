"""FIRe: trunk -> LIT -> whitening."""

from jaxtyping import Float
from torch import Tensor

from superfeat.nets.lit import Lit
from superfeat.nets.lit_forms import FoldedLit, FusedLit
from superfeat.nets.local import Local, LocalNetwork, strength
from superfeat.nets.trunk import Trunk
from superfeat.nets.whitening import Whitening


class Fire(LocalNetwork):
    """Super-features of an image. Without whitening the raw LIT outputs are given.

    The released implementation resizes by the given factor, not by the ratio of the rounded sizes.
    """

    def __init__(self, trunk: Trunk, lit: Lit, whitening: Whitening | None) -> None:
        super().__init__()
        self.trunk = trunk
        self.lit = lit
        self.whitening = whitening

    def describe(self, x: Float[Tensor, "batch channels h w"]) -> Local:
        """Local features from the trunk's map."""
        raw, maps = self.lit(x)
        height, width = x.shape[-2:]
        vectors = raw if self.whitening is None else self.whitening(raw)
        return Local(vectors, strength(raw), (height, width), maps)

    def on(self, trunk: Trunk, whitening: Whitening | None) -> "Fire":
        return Fire(trunk, self.lit, whitening)

    def fused(self, trunk: Trunk) -> "Fire":
        return Fire(trunk, FusedLit(self.lit), self.whitening)  # type: ignore[arg-type]

    def folded(self) -> "Fire":
        return Fire(self.trunk, FoldedLit(self.lit), self.whitening)  # type: ignore[arg-type]
