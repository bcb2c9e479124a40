"""LIT, the Local feature Integration Transformer: a map of local features -> an ordered set of super-features."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

ATTENTION_FLOOR = 1e-8  # added to every responsibility before the sum over places
ATTENTION_GAIN = 1.7  # of new query and key projections: logits begin with a deviation of about 3


class Lit(nn.Module):
    """Iterative attention (eq. 3-6). The position of an output is its super-feature ID.

    `update = "gru"` replaces the residual connection around the attention (Appendix, "update function").
    """

    def __init__(
        self,
        inputs: int,
        templates: int,
        rounds: int,
        dim: int,
        update: Literal["residual", "gru"] = "residual",
        frozen_templates: bool = False,
    ) -> None:
        super().__init__()
        self.rounds = rounds
        self.templates = nn.Parameter(torch.randn(templates, dim), requires_grad=not frozen_templates)
        self.query = nn.Linear(dim, dim, bias=False)
        self.key = nn.Linear(inputs, dim, bias=False)
        self.value = nn.Linear(inputs, dim, bias=False)
        self.norm_inputs = nn.LayerNorm(inputs)
        self.norm_templates = nn.LayerNorm(dim)
        self.norm_mlp = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, dim // 2), nn.ReLU(), nn.Linear(dim // 2, dim))
        self.gru = nn.GRUCell(dim, dim) if update == "gru" else None
        # A new module looks at different places from template to template; with torch's own weights nearly the same.
        for projection, gain in ((self.query, ATTENTION_GAIN), (self.key, ATTENTION_GAIN), (self.value, 1.0)):
            nn.init.normal_(projection.weight, std=gain / projection.in_features**0.5)

    def forward(
        self, x: Float[Tensor, "batch inputs height width"]
    ) -> tuple[Float[Tensor, "batch templates dim"], Float[Tensor, "batch templates height width"]]:
        """Super-features and the attention maps of the last round; each map sums to one over the places."""
        height, width = x.shape[-2:]
        places = self.norm_inputs(x.flatten(2).transpose(1, 2))  # (batch, places, inputs)
        # Forming keys and values costs places x inputs x dim; without them each round costs templates x inputs x dim.
        # Same algebra, so take the cheaper one.
        cheaper_folded = height * width > self.rounds * len(self.templates)
        keys, values = (None, None) if cheaper_folded else (self.key(places), self.value(places))
        state = self.templates.expand(len(x), -1, -1)
        for _ in range(self.rounds):
            attention, gathered = self._attend(state, places, keys, values)
            state = self.update(state, gathered)
        return state, attention.transpose(1, 2).unflatten(2, (height, width))

    def _attend(
        self,
        state: Float[Tensor, "batch templates dim"],
        places: Float[Tensor, "batch places inputs"],
        keys: Float[Tensor, "batch places dim"] | None,
        values: Float[Tensor, "batch places dim"] | None,
    ) -> tuple[Float[Tensor, "batch places templates"], Float[Tensor, "batch templates dim"]]:
        """Attention alpha (eq. 4): softmax over the templates at each place, then L1 over the places; and V alpha."""
        query = self.query(self.norm_templates(state)) / state.shape[-1] ** 0.5
        if keys is None:
            keys, query = places, query @ self.key.weight
        logits = keys @ query.transpose(1, 2)
        alpha = logits.softmax(dim=-1) + ATTENTION_FLOOR
        alpha = alpha / alpha.sum(dim=1, keepdim=True)
        if values is None:
            return alpha, self.value(alpha.transpose(1, 2) @ places)
        return alpha, alpha.transpose(1, 2) @ values

    def update(
        self, state: Float[Tensor, "batch templates dim"], gathered: Float[Tensor, "batch templates dim"]
    ) -> Float[Tensor, "batch templates dim"]:
        """Eq. 5: add what was gathered (or let a GRU decide), then a residual MLP."""
        if self.gru is None:
            state = state + gathered
        else:
            state = self.gru(gathered.flatten(0, 1), state.flatten(0, 1)).view_as(gathered)
        result: Tensor = state + self.mlp(self.norm_mlp(state))
        return result
