"""EfficientNet-Lite: a trunk with a fraction of a ResNet-50's work.

Batch-norms are folded into the convolutions when weights are read: they would be frozen anyway. Convolutions are
padded alike on both sides, so that a place of the map lies where the same place of a ResNet's map lies.
"""

from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor, nn

from superfeat.nets.trunk import Normalisation

CEILING = 6.0  # of the activations


class Repeated(NamedTuple):
    """Blocks of one shape, one after the other; the stride is that of the first."""

    blocks: int
    kernel: int
    stride: int
    expansion: int
    channels: int


# The blocks of each of four stages, as a ResNet's are counted: a stage ends where the next halves the map.
LITE_STAGES: dict[str, tuple[tuple[Repeated, ...], ...]] = {
    "efficientnet-lite0": (
        (Repeated(1, 3, 1, 1, 16), Repeated(2, 3, 2, 6, 24)),
        (Repeated(2, 5, 2, 6, 40),),
        (Repeated(3, 3, 2, 6, 80), Repeated(3, 5, 1, 6, 112)),
        (Repeated(4, 5, 2, 6, 192), Repeated(1, 3, 1, 6, 320)),
    )
}
STEM_CHANNELS = 32
NECK_EXPANSION = 6


class LiteBlock(nn.Module):
    """Expand by 1x1, filter each channel by itself, project back by 1x1; added to its input where the shapes agree."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        width = inputs * expansion
        self.expand = nn.Conv2d(inputs, width, 1) if expansion > 1 else None
        self.depthwise = nn.Conv2d(width, width, kernel, stride, kernel // 2, groups=width)
        self.project = nn.Conv2d(width, outputs, 1)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Float[Tensor, "batch inputs height width"]) -> Float[Tensor, "batch outputs h w"]:
        y: Tensor = x if self.expand is None else self.expand(x).clamp(0, CEILING)
        y = self.project(self.depthwise(y).clamp(0, CEILING))
        return x + y if self.residual else y


class Neck(nn.Module):
    """Expand as the next block would, and project to the channels of the map: what is there is spread out."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.expand = nn.Conv2d(inputs, NECK_EXPANSION * inputs, 1)
        self.project = nn.Conv2d(NECK_EXPANSION * inputs, outputs, 1)

    def forward(self, x: Float[Tensor, "batch inputs h w"]) -> Float[Tensor, "batch outputs h w"]:
        y: Tensor = self.project(self.expand(x).clamp(0, CEILING))
        return y


class EfficientNetLite(nn.Module):
    """An EfficientNet-Lite without its classifier, cut after `stages` of its four stages; then its neck, if any."""

    def __init__(
        self,
        arch: str,
        stages: int,
        neck: int | None = None,
        normalisation: Normalisation = Normalisation(),  # noqa: B008 - an immutable tuple
    ) -> None:
        super().__init__()
        self.stride = 2 ** (stages + 1)
        self.normalisation = normalisation
        self.stem = nn.Conv2d(3, STEM_CHANNELS, 3, 2, 1)
        blocks, inputs = [], STEM_CHANNELS
        self.ends: list[int] = []  # blocks up to the end of each stage
        for stage in LITE_STAGES[arch][:stages]:
            for part in stage:
                for number in range(part.blocks):
                    stride = part.stride if number == 0 else 1
                    blocks.append(LiteBlock(inputs, part.channels, part.kernel, stride, part.expansion))
                    inputs = part.channels
            self.ends.append(len(blocks))
        self.blocks = nn.Sequential(*blocks)
        self.neck = None if neck is None else Neck(inputs, neck)
        self.channels = neck or inputs
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
                assert module.bias is not None
                nn.init.zeros_(module.bias)

    def first(self, stages: int) -> list[LiteBlock]:
        """The blocks of so many stages."""
        return list(self.blocks)[: self.ends[stages - 1] if stages else 0]  # type: ignore[return-value]

    def forward(self, images: Float[Tensor, "batch 3 height width"]) -> Float[Tensor, "batch channels h w"]:
        return self.behind(0, self.stem(images).clamp(0, CEILING))

    def behind(self, stages: int, x: Float[Tensor, "batch inputs height width"]) -> Float[Tensor, "batch channels h w"]:
        """What follows so many stages, from their map; behind none of them from the stem's."""
        x = self.before_neck(stages, x)
        return x if self.neck is None else self.neck(x)

    def before_neck(
        self, stages: int, x: Float[Tensor, "batch inputs height width"]
    ) -> Float[Tensor, "batch outputs h w"]:
        """The same without the neck."""
        found: Tensor = self.blocks[len(self.first(stages)) :](x)
        return found
