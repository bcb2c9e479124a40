"""DELF and DELG: local features that a small head selects by attention, made narrower by PCA or by an autoencoder."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from superfeat.nets.local import Local, LocalNetwork
from superfeat.nets.trunk import Trunk
from superfeat.nets.whitening import Whitening

HIDDEN = 512  # channels inside the head
Source = Literal["map", "reduced", "head"]


class AttentionHead(nn.Module):
    """How much each place counts: 1x1 to 512, batch-norm, ReLU, 1x1 to one, softplus."""

    def __init__(self, channels: int, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, HIDDEN, 1)
        self.bn = nn.BatchNorm2d(HIDDEN, eps=epsilon)
        self.conv2 = nn.Conv2d(HIDDEN, 1, 1)

    def inside(self, x: Float[Tensor, "batch channels h w"]) -> Float[Tensor, "batch hidden h w"]:
        """Before the ReLU."""
        found: Tensor = self.bn(self.conv1(x))
        return found

    def forward(self, x: Float[Tensor, "batch channels h w"]) -> Float[Tensor, "batch h w"]:
        return nn.functional.softplus(self.conv2(self.inside(x).relu()))[:, 0]


class Autoencoder(nn.Module):
    """To a few channels, linearly, and back with a ReLU: what is in between is DELG's local feature."""

    def __init__(self, channels: int, reduced: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, reduced, 1)
        self.conv2 = nn.Conv2d(reduced, channels, 1)

    def forward(self, x: Float[Tensor, "batch channels h w"]) -> Float[Tensor, "batch reduced h w"]:
        reduced: Tensor = self.conv1(x)
        return reduced

    def expand(self, reduced: Float[Tensor, "batch reduced h w"]) -> Float[Tensor, "batch channels h w"]:
        """Back again."""
        return torch.relu(self.conv2(reduced))


class Delf(LocalNetwork):
    """A feature of length one for each place, as strong as the attention that it gets.

    Without a head the norm of a feature stands in for attention. `source` says what a feature is: the place of the map
    (then a whitening, which may be a plain PCA, makes it narrower), the autoencoder's, or what the head has inside.
    """

    def __init__(
        self,
        trunk: Trunk,
        attention: AttentionHead | None,
        autoencoder: Autoencoder | None,
        whitening: Whitening | None,
        source: Source = "map",
    ) -> None:
        super().__init__()
        self.trunk = trunk
        self.attention = attention
        self.autoencoder = autoencoder
        self.whitening = whitening
        self.source: Source = source

    def describe(self, x: Float[Tensor, "batch channels h w"]) -> Local:
        height, width = x.shape[-2:]
        strengths = x.norm(dim=1) if self.attention is None else self.attention(x)
        features = self._features(x).flatten(2).transpose(1, 2)
        vectors = nn.functional.normalize(features, dim=-1)
        if self.whitening is not None:
            vectors = nn.functional.normalize(self.whitening(vectors), dim=-1)
        return Local(vectors, strengths.flatten(1), (height, width), None)

    def _features(self, x: Float[Tensor, "batch channels h w"]) -> Float[Tensor, "batch dim h w"]:
        if self.source == "reduced":
            assert self.autoencoder is not None
            found: Tensor = self.autoencoder(x)
            return found
        if self.source == "head":
            assert self.attention is not None
            return self.attention.inside(x)
        return x

    def on(self, trunk: Trunk, whitening: Whitening | None) -> "Delf":
        return Delf(trunk, self.attention, self.autoencoder, whitening, self.source)


def attended(
    attention: Float[Tensor, "batch h w"], features: Float[Tensor, "batch channels h w"]
) -> Float[Tensor, "batch channels"]:
    """What the head is trained with: the mean of attention x feature of length one."""
    unit = nn.functional.normalize(features, dim=1)
    return (attention.unsqueeze(1) * unit).mean(dim=(-2, -1))
