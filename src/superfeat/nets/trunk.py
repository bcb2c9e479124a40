"""Convolutional trunks. Parameter names and shapes are torchvision's, so that its files load as they are."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


class Normalisation(NamedTuple):
    """(pixel - mean) / std for RGB pixels in 0..1."""

    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD


@runtime_checkable
class Trunk(Protocol):
    """What LIT and the methods need of a trunk: any module with these can stand in a ResNet's place.

    `stride` is the side in pixels of one place of the map, `channels` the depth of the map.
    """

    stride: int
    channels: int
    normalisation: Normalisation

    def __call__(self, images: Float[Tensor, "batch 3 height width"]) -> Float[Tensor, "batch channels h w"]: ...


class BasicBlock(nn.Module):
    """Two 3x3 convolutions (ResNet-10, 18 and 34)."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int, stride_in_1x1: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = _shortcut(inputs, width, stride)

    def forward(self, x: Float[Tensor, "batch inputs height width"]) -> Float[Tensor, "batch outputs h w"]:
        y = self.bn1(self.conv1(x)).relu()
        y = self.bn2(self.conv2(y))
        return torch.relu(y + (x if self.downsample is None else self.downsample(x)))


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 convolutions (ResNet-50 and 101). A stage's stride sits in the 3x3, or in the first 1x1
    as Caffe's and Keras's weights have it."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int, stride_in_1x1: bool) -> None:
        super().__init__()
        outputs = width * self.expansion
        self.conv1 = nn.Conv2d(inputs, width, 1, stride if stride_in_1x1 else 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1 if stride_in_1x1 else stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.downsample = _shortcut(inputs, outputs, stride)

    def forward(self, x: Float[Tensor, "batch inputs height width"]) -> Float[Tensor, "batch outputs h w"]:
        y = self.bn1(self.conv1(x)).relu()
        y = self.bn2(self.conv2(y)).relu()
        y = self.bn3(self.conv3(y))
        return torch.relu(y + (x if self.downsample is None else self.downsample(x)))


def _shortcut(inputs: int, outputs: int, stride: int) -> nn.Sequential | None:
    if stride == 1 and inputs == outputs:
        return None
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))


DEPTHS: dict[str, tuple[type[BasicBlock] | type[Bottleneck], tuple[int, int, int, int]]] = {
    "resnet10": (BasicBlock, (1, 1, 1, 1)),
    "resnet18": (BasicBlock, (2, 2, 2, 2)),
    "resnet34": (BasicBlock, (3, 4, 6, 3)),
    "resnet50": (Bottleneck, (3, 4, 6, 3)),
    "resnet101": (Bottleneck, (3, 4, 23, 3)),
}


class ResNet(nn.Module):
    """A ResNet without its classifier, cut after `stages` of its four stages."""

    def __init__(
        self,
        arch: str,
        stages: int,
        stride_in_1x1: bool = False,
        normalisation: Normalisation = Normalisation(),  # noqa: B008 - an immutable tuple
    ) -> None:
        super().__init__()
        block, depths = DEPTHS[arch]
        self.stride = 2 ** (stages + 1)
        self.channels = 64 * 2 ** (stages - 1) * block.expansion
        self.normalisation = normalisation
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.stage_names = [f"layer{number}" for number in range(1, stages + 1)]
        inputs = 64
        for number, name in enumerate(self.stage_names):
            width = 64 * 2**number
            strides = [1 if number == 0 else 2] + [1] * (depths[number] - 1)
            blocks = []
            for stride in strides:
                blocks.append(block(inputs, width, stride, stride_in_1x1))
                inputs = width * block.expansion
            self.add_module(name, nn.Sequential(*blocks))
        self._init_weights()

    def _init_weights(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def blocks(self) -> Sequence[BasicBlock | Bottleneck]:
        """All residual blocks, first to last."""
        return [block for name in self.stage_names for block in self.get_submodule(name).children()]  # type: ignore[misc]

    def forward(self, images: Float[Tensor, "batch 3 height width"]) -> Float[Tensor, "batch channels h w"]:
        x: Tensor = self.maxpool(self.bn1(self.conv1(images)).relu())
        for block in self.blocks():
            x = block(x)
        return x
