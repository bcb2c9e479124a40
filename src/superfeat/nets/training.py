"""Networks as they are trained: batch-norm statistics and whitening stay as they are.

With fixed statistics a batch-norm is a factor and a shift per channel. They go into the weights of the convolution
before it, inside the graph, so that the gradients are the same and the maps are passed over once less each way.
"""

import contextlib
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from superfeat.nets.efficientnet import EfficientNetLite
from superfeat.nets.fused import FusedBlock, FusedConvolution, can_fuse
from superfeat.nets.local import Local, LocalNetwork
from superfeat.nets.trunk import BasicBlock, Bottleneck, ResNet


def for_training(
    network: LocalNetwork,
    *,
    maps: bool = False,
    precision: str = "float32",
    frozen_stages: int = 0,
    stored: bool = False,
) -> Callable[[Tensor], Local]:
    """The network as a function of a batch of images, or of the trunk's maps of them, with a graph for gradients.

    The first `frozen_stages` stages are taken as they are now, without a graph: see `freeze_stages`. With `stored` it
    is a function of their maps.
    """
    trunk = network.trunk
    fused = frozen_stages and not stored and can_fuse(trunk)  # type: ignore[arg-type]
    frozen = FrozenStages(trunk, frozen_stages) if fused else None  # type: ignore[arg-type]
    cheap = network.folded()

    def describe(x: Tensor) -> Local:
        halved = torch.autocast(x.device.type, torch.bfloat16) if precision == "bf16" else contextlib.nullcontext()
        with halved:
            if maps:
                return cheap.describe(x)
            if stored:
                return cheap.describe(run_behind(trunk, x, frozen_stages))  # type: ignore[arg-type]
            folded = type(trunk) is ResNet and x.device.type == "cpu"
            return cheap.describe(run_folded(trunk, x, frozen) if folded else trunk(x))  # type: ignore[arg-type]

    return describe


def freeze_stages(trunk: nn.Module, stages: int) -> None:
    """Takes the gradient from everything up to this stage; 0 freezes nothing."""
    if stages and isinstance(trunk, EfficientNetLite):
        for part in (trunk.stem, *trunk.first(stages)):
            part.requires_grad_(False)
    if stages and isinstance(trunk, ResNet):
        for part in (trunk.conv1, trunk.bn1, *(trunk.get_submodule(name) for name in trunk.stage_names[:stages])):
            part.requires_grad_(False)


class FrozenStages:
    """The first stages of a trunk, fused as for inference."""

    @torch.no_grad()
    def __init__(self, trunk: ResNet, stages: int) -> None:
        blocks = [block for name in trunk.stage_names[:stages] for block in trunk.get_submodule(name).children()]
        self.stem, self.maxpool = FusedConvolution(trunk.conv1, trunk.bn1), trunk.maxpool
        self.blocks = [FusedBlock(block) for block in blocks]  # type: ignore[arg-type]

    @torch.no_grad()
    def __call__(self, images: Float[Tensor, "batch 3 height width"]) -> Float[Tensor, "batch channels h w"]:
        x: Tensor = self.maxpool(self.stem(images.contiguous(memory_format=torch.channels_last)))
        for block in self.blocks:
            x = block(x)
        return x


def run_folded(
    trunk: ResNet, images: Float[Tensor, "batch 3 height width"], frozen: FrozenStages | None = None
) -> Float[Tensor, "batch channels h w"]:
    """The trunk with its batch-norms folded, channels last; what is frozen is run as for inference."""
    if frozen is not None:
        x, done = frozen(images), len(frozen.blocks)
    else:
        x = _convolve(trunk.conv1, trunk.bn1, images.contiguous(memory_format=torch.channels_last))
        x, done = trunk.maxpool(x), 0
    return _run_blocks(trunk, x, done)


def stage_maps(trunk: ResNet, stages: int, device: str = "cpu") -> Callable[[Tensor], Tensor]:
    """The first stages of a trunk as they are now, without a graph: images -> maps for `run_behind`."""
    if device == "cpu" and can_fuse(trunk):
        return FrozenStages(trunk, stages)

    @torch.no_grad()
    def run(images: Float[Tensor, "batch 3 height width"]) -> Float[Tensor, "batch channels h w"]:
        x: Tensor = trunk.maxpool(trunk.bn1(trunk.conv1(images)).relu())
        for name in trunk.stage_names[:stages]:
            x = trunk.get_submodule(name)(x)
        return x

    return run


def run_behind(
    trunk: ResNet, x: Float[Tensor, "batch inputs height width"], stages: int
) -> Float[Tensor, "batch channels h w"]:
    """The trunk behind its first stages, on a map of these."""
    done = sum(len(list(trunk.get_submodule(name).children())) for name in trunk.stage_names[:stages])
    return _run_blocks(trunk, x.contiguous(memory_format=torch.channels_last), done)


def _run_blocks(
    trunk: ResNet, x: Float[Tensor, "batch inputs height width"], done: int
) -> Float[Tensor, "batch channels h w"]:
    for block in trunk.blocks()[done:]:
        x = _run_block(block, x)
    return x


def _run_block(
    block: BasicBlock | Bottleneck, x: Float[Tensor, "batch inputs height width"]
) -> Float[Tensor, "batch outputs h w"]:
    shortcut = x
    if block.downsample is not None:
        conv, norm = block.downsample
        shortcut = _convolve(conv, norm, x, relu=False)  # type: ignore[arg-type]
    y = _convolve(block.conv1, block.bn1, x)
    if isinstance(block, BasicBlock):
        return _convolve(block.conv2, block.bn2, y, shortcut)
    return _convolve(block.conv3, block.bn3, _convolve(block.conv2, block.bn2, y), shortcut)


def _convolve(
    conv: nn.Conv2d,
    norm: nn.BatchNorm2d,
    x: Float[Tensor, "batch inputs height width"],
    shortcut: Float[Tensor, "batch outputs h w"] | None = None,
    relu: bool = True,
) -> Float[Tensor, "batch outputs h w"]:
    """relu(norm(conv(x)) + shortcut) with one convolution. A 1x1 is a product of two matrices."""
    assert norm.running_var is not None
    assert norm.running_mean is not None
    gain = norm.weight * (norm.running_var + norm.eps).rsqrt()
    bias = norm.bias - norm.running_mean * gain
    weight = conv.weight * gain[:, None, None, None]
    if conv.kernel_size == (1, 1):
        strided = x[:, :, :: conv.stride[0], :: conv.stride[1]]
        y = nn.functional.linear(strided.movedim(1, -1), weight.flatten(1), bias)
    else:
        weight = weight.contiguous(memory_format=torch.channels_last)
        y = nn.functional.conv2d(x, weight, bias, conv.stride, conv.padding).movedim(1, -1)
    if shortcut is not None:
        y = y + shortcut.movedim(1, -1)
    return (y.relu() if relu else y).movedim(-1, 1)
