"""EfficientNet-Lite for fast inference on a CPU: each convolution and what follows it in one operator."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from superfeat.nets.efficientnet import CEILING, EfficientNetLite, LiteBlock


class FusedLiteConvolution(nn.Module):
    """Convolution [+ activation] as one oneDNN operator, on channels-last tensors."""

    def __init__(self, conv: nn.Conv2d, activation: str = "none") -> None:
        super().__init__()
        assert conv.bias is not None
        self.weight = conv.weight.detach().to(memory_format=torch.channels_last)
        self.bias = conv.bias.detach()
        self.geometry: tuple[Any, ...] = (conv.padding, conv.stride, conv.dilation, conv.groups)
        # The activation's name, its numbers, and which form of it where it has several
        self.activation: tuple[Any, ...] = (activation, [0.0, CEILING] if activation == "hardtanh" else [], "")

    def forward(self, x: Float[Tensor, "batch inputs height width"]) -> Float[Tensor, "batch outputs h w"]:
        result: Tensor = torch.ops.mkldnn._convolution_pointwise(
            x, self.weight, self.bias, *self.geometry, *self.activation
        )
        return result

    def add_to(
        self, shortcut: Float[Tensor, "batch outputs h w"], x: Float[Tensor, "batch inputs height width"]
    ) -> Float[Tensor, "batch outputs h w"]:
        """shortcut + convolution(x), written over `shortcut`."""
        result: Tensor = torch.ops.mkldnn._convolution_pointwise_.binary(
            shortcut, x, self.weight, self.bias, *self.geometry, "add", 1.0, None, [], None
        )
        return result


class FusedLiteBlock(nn.Module):
    """A block that writes over its input where it is added to it."""

    def __init__(self, block: LiteBlock) -> None:
        super().__init__()
        inside = [part for part in (block.expand, block.depthwise) if part is not None]
        self.path = nn.Sequential(*(FusedLiteConvolution(conv, "hardtanh") for conv in inside))
        self.project, self.residual = FusedLiteConvolution(block.project), block.residual

    def forward(self, x: Float[Tensor, "batch inputs height width"]) -> Float[Tensor, "batch outputs h w"]:
        inside = self.path(x)
        result: Tensor = self.project.add_to(x, inside) if self.residual else self.project(inside)
        return result


class FusedEfficientNetLite(nn.Module):
    """The same trunk as the given one, for inference only."""

    def __init__(self, trunk: EfficientNetLite) -> None:
        super().__init__()
        self.stride, self.channels, self.normalisation = trunk.stride, trunk.channels, trunk.normalisation
        self.stem = FusedLiteConvolution(trunk.stem, "hardtanh")
        self.blocks = nn.Sequential(*(FusedLiteBlock(block) for block in trunk.blocks))  # type: ignore[arg-type]
        self.neck: nn.Module = nn.Identity()
        if trunk.neck is not None:
            expand = FusedLiteConvolution(trunk.neck.expand, "hardtanh")
            self.neck = nn.Sequential(expand, FusedLiteConvolution(trunk.neck.project))

    def forward(self, images: Float[Tensor, "batch 3 height width"]) -> Float[Tensor, "batch channels h w"]:
        x: Tensor = self.neck(self.blocks(self.stem(images.contiguous(memory_format=torch.channels_last))))
        return x


class FusedStages(nn.Module):
    """The first stages of such a trunk alone, for inference only."""

    def __init__(self, trunk: EfficientNetLite, stages: int) -> None:
        super().__init__()
        self.stem = FusedLiteConvolution(trunk.stem, "hardtanh")
        self.blocks = nn.Sequential(*(FusedLiteBlock(block) for block in trunk.first(stages)))

    def forward(self, images: Float[Tensor, "batch 3 height width"]) -> Float[Tensor, "batch channels h w"]:
        x: Tensor = self.blocks(self.stem(images.contiguous(memory_format=torch.channels_last)))
        return x
