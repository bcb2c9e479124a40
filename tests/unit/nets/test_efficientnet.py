"""EfficientNet-Lite: its blocks by plain loops, its map where a ResNet's lies, its fused form with the same numbers."""

import numpy as np
import pytest
import torch

import oracles_distillation
from fixtures_recipe import relative_error
from superfeat.nets.efficientnet import EfficientNetLite, LiteBlock
from superfeat.nets.fused import Bf16Trunk, FusedResNet, can_fuse
from superfeat.nets.fused_lite import FusedEfficientNetLite, FusedStages
from superfeat.nets.training import freeze_stages
from superfeat.nets.trunk import ResNet

LITE0 = "efficientnet-lite0"


def seeded(stages: int, neck: int | None = None) -> EfficientNetLite:
    torch.manual_seed(0)
    trunk = EfficientNetLite(LITE0, stages, neck).eval()
    with torch.no_grad():
        for name, value in trunk.named_parameters():
            if name.endswith("bias"):
                value.normal_(0.5, 0.5)
    return trunk


def pixels(height: int, width: int, batch: int = 1) -> torch.Tensor:
    return torch.randn(batch, 3, height, width, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    ("inputs", "outputs", "kernel", "stride", "expansion"),
    [(4, 4, 3, 1, 6), (4, 5, 3, 1, 1), (4, 4, 5, 2, 6), (3, 5, 5, 2, 1), (4, 4, 5, 1, 6)],
)
def test_a_block_by_plain_loops(inputs: int, outputs: int, kernel: int, stride: int, expansion: int) -> None:
    torch.manual_seed(0)
    block = LiteBlock(inputs, outputs, kernel, stride, expansion)
    x = np.random.default_rng(0).standard_normal((9, 7, inputs)) * 3
    parts = {name: part for name, part in block.named_children() if isinstance(part, torch.nn.Conv2d)}
    biases = {name: part.bias.detach().double().numpy() for name, part in parts.items() if part.bias is not None}
    weights = {name: part.weight.detach().double().numpy() for name, part in parts.items()}
    expand = weights["expand"][:, :, 0, 0].T if "expand" in weights else None
    depthwise = weights["depthwise"][:, 0].transpose(1, 2, 0)
    project = weights["project"][:, :, 0, 0].T
    wanted = oracles_distillation.lite_block(x, expand, depthwise, project, biases, stride)
    with torch.inference_mode():
        found = block(torch.from_numpy(x.transpose(2, 0, 1)).float().unsqueeze(0))[0]
    assert relative_error(found, wanted.transpose(2, 0, 1)) <= 1e-5


@pytest.mark.parametrize("stages", [1, 2, 3, 4])
@pytest.mark.parametrize("size", [(1, 1), (33, 47), (64, 96), (97, 31)])
def test_its_map_has_the_places_of_a_resnets(stages: int, size: tuple[int, int]) -> None:
    small, large = EfficientNetLite(LITE0, stages), ResNet("resnet10", stages).eval()
    with torch.inference_mode():
        found = small(pixels(*size))
        assert found.shape[2:] == large(pixels(*size)).shape[2:]
    assert (small.stride, small.channels) == (large.stride, found.shape[1])


@pytest.mark.parametrize("make", [lambda: EfficientNetLite(LITE0, 2), lambda: ResNet("resnet18", 2).eval()])
def test_its_places_lie_where_a_resnets_lie(make: object) -> None:
    """Flipped photos of 8 n + 1 pixels have flipped maps: places lie at 0, 8, 16, … in both."""
    torch.manual_seed(0)
    trunk = make()  # type: ignore[operator]
    with torch.no_grad():
        for module in trunk.modules():
            if isinstance(module, torch.nn.Conv2d):
                module.weight.copy_((module.weight + module.weight.flip(3)) / 2)
    image = pixels(33, 65)
    with torch.inference_mode():
        torch.testing.assert_close(trunk(image.flip(3)), trunk(image).flip(3), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("neck", [None, 16])
@pytest.mark.parametrize("size", [(1, 1), (2, 3), (33, 47), (97, 31)])
def test_fused_it_gives_the_same_numbers(neck: int | None, size: tuple[int, int]) -> None:
    trunk = seeded(3, neck)
    assert can_fuse(trunk)
    images = pixels(*size, batch=2).contiguous(memory_format=torch.channels_last)
    before = images.clone()
    with torch.inference_mode():
        assert relative_error(FusedEfficientNetLite(trunk)(images), trunk(images)) <= 5e-6
    assert torch.equal(images, before)


@pytest.mark.parametrize("stages", [0, 1, 2, 3])
def test_what_follows_frozen_stages(stages: int) -> None:
    trunk = seeded(3, 16)
    with torch.inference_mode():
        found = trunk.behind(stages, FusedStages(trunk, stages)(pixels(64, 48)))
        assert relative_error(found, trunk(pixels(64, 48))) <= 5e-6


def test_frozen_stages_have_no_gradient() -> None:
    trunk = seeded(3, 16)
    freeze_stages(trunk, 1)
    frozen = {name for name, value in trunk.named_parameters() if not value.requires_grad}
    assert {name.split(".")[0] for name in frozen} == {"stem", "blocks"}
    assert {int(name.split(".")[1]) for name in frozen if name.startswith("blocks")} == {0, 1, 2}


def test_a_trunk_in_16_bits_is_near() -> None:
    torch.manual_seed(0)
    trunk = FusedResNet(ResNet("resnet18", 2).eval())
    with torch.inference_mode():
        wanted = trunk(pixels(64, 64))
        found = Bf16Trunk(trunk)(pixels(64, 64))
        assert found.dtype == torch.float32
        assert 1e-6 < relative_error(found, wanted) <= 0.05
        assert torch.equal(trunk(pixels(64, 64)), wanted), "the original is as it was"
