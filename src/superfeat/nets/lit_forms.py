"""LIT in other forms that give the same: multiplied out for inference, and for training."""

from jaxtyping import Float
from torch import Tensor, nn

from superfeat.nets.lit import ATTENTION_FLOOR, Lit


class FusedLit(nn.Module):
    """LIT with the query and key projections multiplied out: logits = x' S^T LN(Q)^T for one matrix S = Wq^T Wk.

    S is applied to the places of the map, once, or to the templates, in each round; likewise the values: whichever is
    less work.
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
        small = self.fewer_on_places(height * width)
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

    def fewer_on_places(self, places: int) -> bool:
        """Whether places x inputs x dim once, and places x dim x templates each round, are fewer products than
        templates x inputs x dim and places x inputs x templates each round. Keys and values need the same.
        """
        dim, inputs = self.scorer.shape
        templates, rounds = len(self.lit.templates), self.lit.rounds
        on_places = places * dim * (inputs + rounds * templates)
        return on_places <= rounds * templates * inputs * (dim + places)


class FoldedLit(nn.Module):
    """LIT with its query projection applied to the places of a small map, once, and not to the templates each round."""

    def __init__(self, lit: Lit) -> None:
        super().__init__()
        self.lit = lit

    def forward(
        self, x: Float[Tensor, "batch inputs height width"]
    ) -> tuple[Float[Tensor, "batch templates dim"], Float[Tensor, "batch templates height width"]]:
        lit = self.lit
        height, width = x.shape[-2:]
        if height * width > lit.rounds * len(lit.templates):
            found: tuple[Tensor, Tensor] = lit(x)
            return found
        places = lit.norm_inputs(x.flatten(2).transpose(1, 2))
        keys, values = lit.key(places) @ lit.query.weight, lit.value(places)
        state = lit.templates.expand(len(x), -1, -1)
        for _ in range(lit.rounds):
            query = lit.norm_templates(state) / state.shape[-1] ** 0.5
            alpha = (keys @ query.transpose(1, 2)).softmax(dim=-1) + ATTENTION_FLOOR
            total = alpha.sum(dim=1).unsqueeze(-1)  # dividing what is gathered is cheaper than alpha
            state = lit.update(state, alpha.transpose(1, 2) @ values / total)
        return state, (alpha.transpose(1, 2) / total).unflatten(2, (height, width))
