"""One vector per photo: trunk -> pooling -> layer, a mean over the scales, and a whitening at the end."""

from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from superfeat.nets.local import Local, LocalNetwork
from superfeat.nets.pooling import NORM_FLOOR, Pooling, unit
from superfeat.nets.trunk import Trunk
from superfeat.nets.whitening import Whitening

SIGNED_POWER, SIGNED_FLOOR = 3.0, 1e-6  # dirtorch's mean over scales


class VectorRules(NamedTuple):
    """What differs between the systems beyond their modules."""

    unit_before_layer: bool = True  # whether the layer is given a vector of length one
    floor: float = NORM_FLOOR  # added to norms; 0 divides by the norm as it is
    scales: Literal["power", "signed"] = "power"  # the mean over scales: with GeM's power, or a signed one with 3


class GlobalNetwork(LocalNetwork):
    """Pixels to one vector of length one. Its `whitening` is applied once, after the mean over the scales."""

    def __init__(
        self,
        trunk: Trunk,
        pooling: Pooling,
        layer: nn.Linear | None,
        whitening: Whitening | None,
        rules: VectorRules = VectorRules(),  # noqa: B008 - an immutable tuple
    ) -> None:
        super().__init__()
        self.trunk = trunk
        self.pooling = pooling
        self.layer = layer
        self.whitening = whitening
        self.rules = rules

    def describe(self, x: Float[Tensor, "batch channels h w"]) -> Local:
        """The vector of one scale, as its only feature; it sees the whole photo."""
        vector = self.vector(x)
        return Local(vector.unsqueeze(1), torch.ones(len(x), 1, device=x.device, dtype=x.dtype), (1, 1), None)

    def vector(self, x: Float[Tensor, "batch channels h w"]) -> Float[Tensor, "batch dim"]:
        """Of a map."""
        pooled = self.pooling(x)
        if self.layer is None:
            return _unit(pooled, self.rules.floor)
        before = _unit(pooled, self.rules.floor) if self.rules.unit_before_layer else pooled
        return _unit(self.layer(before), self.rules.floor)

    @property
    def scale_power(self) -> float:
        """Of the mean over the scales: GeM's own where nothing follows the pooling, else 1."""
        if self.rules.scales == "signed":
            return SIGNED_POWER
        return float(self.pooling.p.detach()) if self.pooling.p is not None and self.layer is None else 1.0

    def combine(self, vectors: Float[Tensor, "scales dim"]) -> Float[Tensor, " out"]:
        """The photo's vector from those of its scales."""
        return combine_scales(vectors, self.scale_power, self.rules.scales == "signed", self.whitening)

    def on(self, trunk: Trunk, whitening: Whitening | None) -> "GlobalNetwork":
        return GlobalNetwork(trunk, self.pooling, self.layer, whitening, self.rules)


def combine_scales(
    vectors: Float[Tensor, "scales dim"], power: float, signed: bool, whitening: Whitening | None
) -> Float[Tensor, " out"]:
    """The mean over the scales, whitened where there is a whitening."""
    together = over_scales(vectors, power, signed)
    return together if whitening is None else _unit(whitening(together), 0.0)


def over_scales(vectors: Float[Tensor, "scales dim"], power: float, signed: bool) -> Float[Tensor, " dim"]:
    """(mean of v^power)^(1/power), of length one. `signed` keeps signs, and nothing smaller than 1e-6 is left then."""
    if signed and len(vectors) > 1:
        return _unit(_signed_power(_signed_power(vectors, power).mean(dim=0), 1 / power), 0.0)
    if power == 1 or signed:
        return _unit(vectors.mean(dim=0), 0.0)
    return _unit(vectors.pow(power).mean(dim=0).pow(1 / power), 0.0)


def _signed_power(x: Float[Tensor, "*batch dim"], power: float) -> Float[Tensor, "*batch dim"]:
    return x.sign() * x.abs().clamp(min=SIGNED_FLOOR).pow(power)


def _unit(x: Float[Tensor, "*batch dim"], floor: float) -> Float[Tensor, "*batch dim"]:
    return unit(x, floor) if floor else nn.functional.normalize(x, dim=-1)
