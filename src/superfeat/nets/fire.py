"""FIRe: trunk -> LIT -> whitening."""

from jaxtyping import Float
from torch import Tensor, nn

from superfeat.nets.lit import Lit
from superfeat.nets.local import Local, strength
from superfeat.nets.trunk import Trunk
from superfeat.nets.whitening import Whitening


class Fire(nn.Module):
    """Super-features of an image. Without whitening the raw LIT outputs are given."""

    recompute_scale = False  # the released implementation resizes by the given factor, not by the rounded sizes' ratio

    def __init__(self, trunk: Trunk, lit: Lit, whitening: Whitening | None) -> None:
        super().__init__()
        self.trunk = trunk
        self.lit = lit
        self.whitening = whitening

    def forward(self, images: Float[Tensor, "batch 3 height width"]) -> Local:
        return self.describe(self.trunk(images))

    def describe(self, x: Float[Tensor, "batch channels h w"]) -> Local:
        """Local features from the trunk's map."""
        raw, maps = self.lit(x)
        height, width = x.shape[-2:]
        vectors = raw if self.whitening is None else self.whitening(raw)
        return Local(vectors, strength(raw), (height, width), maps)
