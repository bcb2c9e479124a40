"""SOLAR's second-order attention: every place of a map looks at every other one."""

from jaxtyping import Float
from torch import Tensor, nn

from superfeat.nets.trunk import Normalisation, ResNet


class SecondOrderAttention(nn.Module):
    """x + v(softmax(f(x)^T g(x) / sqrt(inner)) h(x)); a new one changes nothing, as v begins at zero."""

    def __init__(self, channels: int, inner: int) -> None:
        super().__init__()
        self.f = nn.Sequential(nn.Conv2d(channels, inner, 1), nn.BatchNorm2d(inner), nn.ReLU())
        self.g = nn.Sequential(nn.Conv2d(channels, inner, 1), nn.BatchNorm2d(inner), nn.ReLU())
        self.h = nn.Conv2d(channels, inner, 1)
        self.v = nn.Conv2d(inner, channels, 1)
        nn.init.zeros_(self.v.weight)
        nn.init.zeros_(self.v.bias)  # type: ignore[arg-type]

    def attention(self, x: Float[Tensor, "batch channels h w"]) -> Float[Tensor, "batch places places"]:
        """Row i: how much place i takes from each place."""
        f, g = self.f(x).flatten(2), self.g(x).flatten(2)
        found: Tensor = (f.transpose(1, 2) @ g / f.shape[1] ** 0.5).softmax(dim=-1)
        return found

    def forward(self, x: Float[Tensor, "batch channels h w"]) -> Float[Tensor, "batch channels h w"]:
        gathered = self.attention(x) @ self.h(x).flatten(2).transpose(1, 2)
        result: Tensor = x + self.v(gathered.transpose(1, 2).unflatten(2, x.shape[-2:]))
        return result


class AttendedResNet(ResNet):
    """A whole ResNet with second-order attention after its third and its fourth stage."""

    def __init__(
        self,
        arch: str,
        stages: int,
        stride_in_1x1: bool = False,
        normalisation: Normalisation = Normalisation(),  # noqa: B008 - an immutable tuple
    ) -> None:
        super().__init__(arch, stages, stride_in_1x1, normalisation)
        self.soa4 = SecondOrderAttention(self.channels // 2, self.channels // 8)
        self.soa5 = SecondOrderAttention(self.channels, self.channels // 2)

    def attention_after(self, stage: str) -> SecondOrderAttention | None:
        """What follows the stage of this name."""
        return {self.stage_names[-2]: self.soa4, self.stage_names[-1]: self.soa5}.get(stage)

    def attention_behind(self, block: nn.Module) -> SecondOrderAttention | None:
        """What follows this block, the last one of a stage."""
        for stage in self.stage_names:
            if list(self.get_submodule(stage).children())[-1] is block:
                return self.attention_after(stage)
        return None

    def forward(self, images: Float[Tensor, "batch 3 height width"]) -> Float[Tensor, "batch channels h w"]:
        x: Tensor = self.maxpool(self.bn1(self.conv1(images)).relu())
        for stage in self.stage_names:
            x = self.get_submodule(stage)(x)
            attend = self.attention_after(stage)
            x = x if attend is None else attend(x)
        return x
