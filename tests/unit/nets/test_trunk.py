"""ResNet trunks: torchvision's names and shapes, sizes of maps, and one block against plain loops."""

import numpy as np
import pytest
import torch
from torch import nn

import oracles
from fixtures_recipe import recipe, relative_error
from superfeat.config import TrunkConfig
from superfeat.nets.trunk import DEPTHS, BasicBlock, Bottleneck, ResNet

# Parameters of torchvision's models without their classifier: published totals less those of `fc`. ResNet-10, one block
# per stage, is not among them: its sum was made by hand.
WHOLE = {
    "resnet10": 9_536 + 73_984 + 230_144 + 919_040 + 3_673_088,
    "resnet18": 11_176_512,
    "resnet34": 21_284_672,
    "resnet50": 23_508_032,
    "resnet101": 42_500_160,
}


def count(module: nn.Module) -> int:
    return sum(value.numel() for value in module.parameters())


@pytest.mark.parametrize("arch", list(DEPTHS))
def test_sizes_are_the_published_ones(arch: str) -> None:
    with torch.device("meta"):
        assert count(ResNet(arch, stages=4)) == WHOLE[arch]


def test_the_papers_trunk() -> None:
    with torch.device("meta"):
        settings = TrunkConfig()
        trunk = ResNet(settings.arch, settings.stages)
    assert (count(trunk), trunk.stride, trunk.channels) == (8_543_296, 16, 1024)


def test_names_are_torchvisions() -> None:
    with torch.device("meta"):
        names = list(ResNet("resnet50", stages=2).state_dict())
    assert names[:6] == [
        "conv1.weight",
        *(f"bn1.{kind}" for kind in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")),
    ]
    assert "layer1.0.downsample.0.weight" in names
    assert "layer1.0.downsample.1.running_var" in names
    assert "layer2.3.conv3.weight" in names
    assert "layer2.1.downsample.0.weight" not in names
    assert not any(name.startswith("layer3") for name in names)


@pytest.mark.parametrize("stages", [1, 2, 3, 4])
@pytest.mark.parametrize("size", [(64, 64), (65, 97), (1, 1), (2, 31)])
def test_stride_and_channels_describe_the_map(stages: int, size: tuple[int, int]) -> None:
    trunk = ResNet("resnet18", stages).eval()
    with torch.inference_mode():
        found = trunk(torch.zeros(1, 3, *size))
    assert found.shape == (1, trunk.channels, *(-(-side // trunk.stride) for side in size))


def test_it_ends_in_a_relu() -> None:
    trunk = ResNet("resnet18", 1).eval()
    with torch.inference_mode():
        assert trunk(torch.randn(1, 3, 32, 32)).min() >= 0


def numpy_conv(x: np.ndarray, conv: nn.Conv2d, norm: nn.BatchNorm2d) -> np.ndarray:
    kernel = conv.weight.detach().double().numpy().transpose(2, 3, 1, 0)
    y = oracles.convolve(x, kernel, conv.stride[0], int(conv.padding[0]))
    assert norm.running_mean is not None
    assert norm.running_var is not None
    mean, variance, weight, bias = (
        value.detach().double().numpy() for value in (norm.running_mean, norm.running_var, norm.weight, norm.bias)
    )
    return np.asarray((y - mean) / np.sqrt(variance + 1e-5) * weight + bias)


@pytest.mark.parametrize("kind", [BasicBlock, Bottleneck])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("stride_in_1x1", [False, True])
def test_a_block_by_plain_loops(kind: type[BasicBlock] | type[Bottleneck], stride: int, stride_in_1x1: bool) -> None:
    block = kind(8, 4, stride, stride_in_1x1).eval()
    block.load_state_dict({name: recipe(name, value.shape) for name, value in block.state_dict().items()})
    x = np.random.default_rng(0).standard_normal((7, 9, 8))
    y = np.maximum(numpy_conv(x, block.conv1, block.bn1), 0)
    y = numpy_conv(y, block.conv2, block.bn2)
    if isinstance(block, Bottleneck):
        y = numpy_conv(np.maximum(y, 0), block.conv3, block.bn3)
    assert block.downsample is not None
    conv, norm = block.downsample
    assert isinstance(conv, nn.Conv2d)
    assert isinstance(norm, nn.BatchNorm2d)
    expected = np.maximum(y + numpy_conv(x, conv, norm), 0)
    with torch.inference_mode():
        found = block(torch.from_numpy(x.transpose(2, 0, 1)).float().unsqueeze(0))[0]
    assert relative_error(found, expected.transpose(2, 0, 1)) <= 2e-6


def test_where_the_stride_sits() -> None:
    plain, older = Bottleneck(64, 16, 2, stride_in_1x1=False), Bottleneck(64, 16, 2, stride_in_1x1=True)
    assert (plain.conv1.stride, plain.conv2.stride) == ((1, 1), (2, 2))
    assert (older.conv1.stride, older.conv2.stride) == ((2, 2), (1, 1))


def test_a_block_without_change_of_shape_has_no_shortcut_of_its_own() -> None:
    assert Bottleneck(64, 16, 1, stride_in_1x1=False).downsample is None
    assert BasicBlock(16, 16, 1, stride_in_1x1=False).downsample is None
