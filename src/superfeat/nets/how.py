"""HOW: trunk -> smoothing and whitening at every place."""

from jaxtyping import Float
from torch import Tensor, nn

from superfeat.nets.local import Local, LocalNetwork
from superfeat.nets.trunk import Trunk
from superfeat.nets.whitening import Whitening


class How(LocalNetwork):
    """One local feature per place. Without whitening the smoothed activations are given."""

    recompute_scale = True

    def __init__(self, trunk: Trunk, whitening: Whitening | None) -> None:
        super().__init__()
        self.trunk = trunk
        self.whitening = whitening

    def describe(self, x: Float[Tensor, "batch channels h w"]) -> Local:
        """Local features from the trunk's map. Strength is the norm of the *unsmoothed* activation.

        An average and an affine map can change places: whitening first leaves an eighth of the channels to smooth.
        """
        height, width = x.shape[-2:]
        strengths = x.norm(dim=1).flatten(1)
        if self.whitening is not None:
            x = self.whitening(x.movedim(1, -1)).movedim(-1, 1)
        smooth = nn.functional.avg_pool2d(x, 3, stride=1, padding=1, count_include_pad=False)
        return Local(smooth.flatten(2).transpose(1, 2), strengths, (height, width), None)

    def on(self, trunk: Trunk, whitening: Whitening | None) -> "How":
        return How(trunk, whitening)
