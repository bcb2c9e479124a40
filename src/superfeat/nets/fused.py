"""Networks for fast inference on a CPU: the same numbers to rounding, for a good deal less work.

Trunk: batch-norms are folded into the convolutions, tensors stay channels-last, and each convolution adds the
shortcut and applies its ReLU while its output is still in cache. These are the oneDNN operators that torch's own
compiler emits; called directly they need no compilation and take any image size.
What comes after the trunk has its own form for inference: LocalNetwork.fused.
"""

import copy
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from superfeat.nets.efficientnet import EfficientNetLite
from superfeat.nets.fused_lite import FusedEfficientNetLite
from superfeat.nets.local import LocalNetwork
from superfeat.nets.trunk import BasicBlock, Bottleneck, ResNet


class FusedConvolution(nn.Module):
    """Convolution + batch-norm [+ shortcut] [+ ReLU] as one operator."""

    def __init__(self, conv: nn.Conv2d, norm: nn.BatchNorm2d, relu: bool = True) -> None:
        super().__init__()
        weight, self.bias = fold_batch_norm(conv, norm)
        self.geometry: tuple[Any, ...] = (conv.padding, conv.stride, conv.dilation, conv.groups)
        self.activation = "relu" if relu else "none"
        # Not packed ahead: a packing suits some image sizes only, and undoing it costs more than packing each time.
        self.weight = weight.to(memory_format=torch.channels_last)

    def forward(self, x: Float[Tensor, "batch inputs height width"]) -> Float[Tensor, "batch outputs h w"]:
        result: Tensor = torch.ops.mkldnn._convolution_pointwise(
            x, self.weight, self.bias, *self.geometry, self.activation, [], None
        )
        return result

    def add_to(
        self, shortcut: Float[Tensor, "batch outputs h w"], x: Float[Tensor, "batch inputs height width"]
    ) -> Float[Tensor, "batch outputs h w"]:
        """relu(shortcut + convolution(x)), written over `shortcut`."""
        result: Tensor = torch.ops.mkldnn._convolution_pointwise_.binary(
            shortcut, x, self.weight, self.bias, *self.geometry, "add", 1.0, "relu", [], None
        )
        return result


def fold_batch_norm(
    conv: nn.Conv2d, norm: nn.BatchNorm2d
) -> tuple[Float[Tensor, "outputs inputs height width"], Float[Tensor, "outputs"]]:
    """Weight and bias of the convolution that equals `conv` followed by `norm` with its frozen statistics."""
    assert norm.running_var is not None
    assert norm.running_mean is not None
    gain = norm.weight.double() / (norm.running_var.double() + norm.eps).sqrt()
    weight = conv.weight.double() * gain[:, None, None, None]
    bias = norm.bias.double() - norm.running_mean.double() * gain
    return weight.float().detach(), bias.float().detach()


class FusedBlock(nn.Module):
    """A residual block whose last convolution adds the shortcut in place."""

    def __init__(self, block: BasicBlock | Bottleneck) -> None:
        super().__init__()
        pairs = [(block.conv1, block.bn1), (block.conv2, block.bn2)]
        if isinstance(block, Bottleneck):
            pairs.append((block.conv3, block.bn3))
        self.path = nn.Sequential(*(FusedConvolution(conv, norm) for conv, norm in pairs[:-1]))
        self.last = FusedConvolution(*pairs[-1])
        self.shortcut: FusedConvolution | None = None
        if block.downsample is not None:
            conv, norm = block.downsample
            assert isinstance(conv, nn.Conv2d)
            assert isinstance(norm, nn.BatchNorm2d)
            self.shortcut = FusedConvolution(conv, norm, relu=False)

    def forward(self, x: Float[Tensor, "batch inputs height width"]) -> Float[Tensor, "batch outputs h w"]:
        """Writes over `x` when the block has no shortcut of its own."""
        inside = self.path(x)
        return self.last.add_to(x if self.shortcut is None else self.shortcut(x), inside)


class FusedResNet(nn.Module):
    """The same trunk as the given ResNet, for inference only."""

    def __init__(self, trunk: ResNet) -> None:
        super().__init__()
        self.stride = trunk.stride
        self.channels = trunk.channels
        self.normalisation = trunk.normalisation
        self.stem = FusedConvolution(trunk.conv1, trunk.bn1)
        self.maxpool = copy.deepcopy(trunk.maxpool)
        self.blocks = nn.Sequential(*(FusedBlock(block) for block in trunk.blocks()))

    def forward(self, images: Float[Tensor, "batch 3 height width"]) -> Float[Tensor, "batch channels h w"]:
        x = self.maxpool(self.stem(images.contiguous(memory_format=torch.channels_last)))
        result: Tensor = self.blocks(x)
        return result


FUSED: dict[type[nn.Module], Callable[[Any], Any]] = {ResNet: FusedResNet, EfficientNetLite: FusedEfficientNetLite}


def can_fuse(trunk: nn.Module) -> bool:
    """Whether this build of torch has the fused operators and the trunk is one that they cover."""
    parameters = next(trunk.parameters(), None)
    return (
        type(trunk) in FUSED
        and parameters is not None
        and parameters.device.type == "cpu"
        and parameters.dtype == torch.float32
        and torch.backends.mkldnn.is_available()
        and hasattr(torch.ops.mkldnn, "_convolution_pointwise_")
    )


class Bf16Trunk(nn.Module):
    """A fused ResNet with weights and maps in 16 bits: about 5 % off, and faster where the processor has bf16."""

    def __init__(self, trunk: FusedResNet) -> None:
        super().__init__()
        self.trunk = copy.deepcopy(trunk)
        for part in self.trunk.modules():
            if isinstance(part, FusedConvolution):
                part.weight, part.bias = part.weight.bfloat16(), part.bias.bfloat16()

    def forward(self, images: Float[Tensor, "batch 3 height width"]) -> Float[Tensor, "batch channels h w"]:
        result: Tensor = self.trunk(images.bfloat16()).float()
        return result


@torch.no_grad()
def for_inference(network: LocalNetwork) -> LocalNetwork:
    """The network with its trunk fused where that is possible; the original is left as it was."""
    if not can_fuse(network.trunk):  # type: ignore[arg-type]
        return network.eval()
    return network.fused(FUSED[type(network.trunk)](network.trunk)).eval()  # type: ignore[index]
