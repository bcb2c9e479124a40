"""Networks for fast inference on a CPU: the same numbers to rounding, for a good deal less work.

Trunk: batch-norms are folded into the convolutions, tensors stay channels-last, and each convolution adds the
shortcut and applies its ReLU while its output is still in cache. These are the oneDNN operators that torch's own
compiler emits; called directly they need no compilation and take any image size.
LIT: what does not depend on the image is multiplied out once (see FusedLit).
"""

import copy
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from superfeat.nets.fire import Fire
from superfeat.nets.how import How
from superfeat.nets.lit import ATTENTION_FLOOR, Lit
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


class FusedLit(nn.Module):
    """LIT with the query and key projections multiplied out: logits = x' S^T LN(Q)^T for one matrix S = Wq^T Wk.

    A small map has S applied to its places, once; a large one to the templates, in each round. Likewise the values.
    """

    scorer: Tensor

    def __init__(self, lit: Lit) -> None:
        super().__init__()
        self.lit = lit
        scorer = lit.query.weight.double().T @ lit.key.weight.double() / lit.templates.shape[-1] ** 0.5
        self.register_buffer("scorer", scorer.float().detach(), persistent=False)  # (dim, inputs)

    def forward(
        self, x: Float[Tensor, "batch inputs height width"]
    ) -> tuple[Float[Tensor, "batch templates dim"], Float[Tensor, "batch templates height width"]]:
        lit = self.lit
        height, width = x.shape[-2:]
        places = lit.norm_inputs(x.flatten(2).transpose(1, 2))
        small = height * width <= lit.rounds * len(lit.templates)
        keys, values = (places @ self.scorer.T, lit.value(places)) if small else (places, places)
        state = lit.templates.expand(len(x), -1, -1)
        for _ in range(lit.rounds):
            query = lit.norm_templates(state)
            query = query if small else query @ self.scorer
            alpha = (keys @ query.transpose(1, 2)).softmax(dim=-1).add_(ATTENTION_FLOOR)
            total = alpha.sum(dim=1, keepdim=True).transpose(1, 2)  # dividing what is gathered is cheaper than alpha
            gathered = alpha.transpose(1, 2) @ values / total
            state = lit.update(state, gathered if small else lit.value(gathered))
        return state, (alpha.transpose(1, 2) / total).unflatten(2, (height, width))


def can_fuse(trunk: nn.Module) -> bool:
    """Whether this build of torch has the fused operators and the trunk is one that they cover."""
    parameters = next(trunk.parameters(), None)
    return (
        type(trunk) is ResNet
        and parameters is not None
        and parameters.device.type == "cpu"
        and parameters.dtype == torch.float32
        and torch.backends.mkldnn.is_available()
        and hasattr(torch.ops.mkldnn, "_convolution_pointwise_")
    )


@torch.no_grad()
def for_inference(network: Fire | How) -> Fire | How:
    """The network with its trunk fused where that is possible; the original is left as it was."""
    if not can_fuse(network.trunk):  # type: ignore[arg-type]
        return network.eval()
    fused = FusedResNet(network.trunk)  # type: ignore[arg-type]
    if isinstance(network, How):
        return How(fused, network.whitening).eval()
    return Fire(fused, FusedLit(network.lit), network.whitening).eval()  # type: ignore[arg-type]
