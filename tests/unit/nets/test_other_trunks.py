"""A trunk is an interface: anything with a stride, channels and a normalisation can stand in a ResNet's place."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from superfeat.nets.fire import Fire
from superfeat.nets.fused import can_fuse, for_inference
from superfeat.nets.how import How
from superfeat.nets.lit import Lit
from superfeat.nets.trunk import Normalisation
from superfeat.nets.whitening import Whitening


class PatchTrunk(nn.Module):
    """As a ViT sees an image: patches of 14 x 14 pixels, projected."""

    stride = 14
    channels = 24
    normalisation = Normalisation((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Conv2d(3, self.channels, self.stride, self.stride)

    def forward(self, images: Float[Tensor, "batch 3 height width"]) -> Float[Tensor, "batch channels h w"]:
        projected: Tensor = self.project(images)
        return projected


def test_fire_and_how_on_patches() -> None:
    torch.manual_seed(0)
    trunk = PatchTrunk()
    images = torch.randn(2, 3, 70, 98)
    fire = Fire(trunk, Lit(trunk.channels, templates=6, rounds=2, dim=16), Whitening(16, 4))
    local = fire(images)
    assert (local.vectors.shape, local.grid) == ((2, 6, 4), (5, 7))
    assert local.maps is not None
    torch.testing.assert_close(local.maps.sum(dim=(2, 3)), torch.ones(2, 6))
    assert How(trunk, None)(images).vectors.shape == (2, 35, 24)


def test_a_trunk_that_cannot_be_fused_runs_as_it_is() -> None:
    network = How(PatchTrunk(), None)
    assert not can_fuse(network.trunk)  # type: ignore[arg-type]
    assert for_inference(network) is network
