"""ResNets as TensorFlow's two libraries build them; parameter names are torchvision's, sizes and strides are theirs.

TF-Slim (the published DELF and DELG files): a block strides in the 3x3 of its *last* unit, where the shortcut takes
every second place; so the third block has stride 32. Keras (the training code of later years): as Caffe's, with a stem
that pads as TensorFlow's "SAME" does.
"""

from jaxtyping import Float
from torch import Tensor, nn

from superfeat.nets.trunk import Bottleneck, Normalisation, ResNet

TF_PIXELS = Normalisation((128 / 255,) * 3, (128 / 255,) * 3)
NEVER = float("-inf")


def same_padding(size: int, kernel: int, stride: int) -> tuple[int, int]:
    """Before and after, such that the output has size / stride places, rounded up; an odd one goes to the end."""
    total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    return total // 2, total - total // 2


def pad_same(x: Float[Tensor, "batch channels h w"], kernel: int, stride: int, value: float) -> Tensor:
    """The map with TensorFlow's "SAME" padding around it."""
    height, width = x.shape[-2:]
    return nn.functional.pad(
        x, (*same_padding(width, kernel, stride), *same_padding(height, kernel, stride)), value=value
    )


class EverySecond(nn.Module):
    """A shortcut that takes every second place."""

    def forward(self, x: Float[Tensor, "batch channels h w"]) -> Float[Tensor, "batch channels half_h half_w"]:
        return x[:, :, ::2, ::2]


class SlimResNet(ResNet):
    """TF-Slim's ResNet v1."""

    def __init__(self, arch: str, stages: int, normalisation: Normalisation = TF_PIXELS) -> None:
        super().__init__(arch, stages, normalisation=normalisation)
        self.stride = 2 ** (min(stages, 3) + 2)
        self.maxpool = nn.MaxPool2d(3, 2)
        for number, name in enumerate(self.stage_names, 1):
            units = [unit for unit in self.get_submodule(name).children() if isinstance(unit, Bottleneck)]
            units[0].conv2.stride = (1, 1)
            assert units[0].downsample is not None
            units[0].downsample[0].stride = (1, 1)  # type: ignore[assignment]
            if number < 4:
                units[-1].conv2.stride = (2, 2)
                units[-1].downsample = EverySecond()  # type: ignore[assignment]

    def forward(self, images: Float[Tensor, "batch 3 height width"]) -> Float[Tensor, "batch channels h w"]:
        x: Tensor = self.bn1(self.conv1(images)).relu()
        x = self.maxpool(pad_same(x, 3, 2, NEVER))
        for block in self.blocks():
            x = block(x)
        return x


class KerasResNet(ResNet):
    """The ResNet of TensorFlow's later training code; `subsample` takes every second place of its map."""

    def __init__(
        self, arch: str, stages: int, normalisation: Normalisation = TF_PIXELS, *, subsample: bool = False
    ) -> None:
        super().__init__(arch, stages, stride_in_1x1=True, normalisation=normalisation)
        self.conv1.padding = (0, 0)
        self.maxpool = nn.MaxPool2d(3, 2)
        self.subsample = subsample
        self.stride *= 2 if subsample else 1

    def forward(self, images: Float[Tensor, "batch 3 height width"]) -> Float[Tensor, "batch channels h w"]:
        x: Tensor = self.maxpool(self.bn1(self.conv1(pad_same(images, 7, 2, 0.0))).relu())
        for block in self.blocks():
            x = block(x)
        return x[:, :, ::2, ::2] if self.subsample else x
