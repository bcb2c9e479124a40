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
        """Super-features and the attention maps of the last round; each map sums to one over the places.

        Projections are applied where they are cheapest, which changes no result: to the places of a small map, once,
        or to the templates, in each round.
        """
        height, width = x.shape[-2:]
        places = self.norm_inputs(x.flatten(2).transpose(1, 2))  # (batch, places, inputs)
        small = height * width <= self.rounds * len(self.templates)
        keys, values = (self.key(places) @ self.query.weight, self.value(places)) if small else (places, places)
        state = self.templates.expand(len(x), -1, -1)
        for _ in range(self.rounds):
            query = self.norm_templates(state) / state.shape[-1] ** 0.5
            alpha, total = self._attend(keys, query if small else self.query(query) @ self.key.weight)
            gathered = alpha.transpose(1, 2) @ values / total
            state = self.update(state, gathered if small else self.value(gathered))
        return state, (alpha.transpose(1, 2) / total).unflatten(2, (height, width))

    def _attend(
        self, keys: Float[Tensor, "batch places width"], query: Float[Tensor, "batch templates width"]
    ) -> tuple[Float[Tensor, "batch places templates"], Float[Tensor, "batch templates 1"]]:
        """Attention alpha (eq. 4) before its L1 norm over the places, and that norm: softmax over the templates at each
        place. Dividing what is gathered is cheaper than dividing alpha."""
        alpha = (keys @ query.transpose(1, 2)).softmax(dim=-1) + ATTENTION_FLOOR
        return alpha, alpha.sum(dim=1).unsqueeze(-1)

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
