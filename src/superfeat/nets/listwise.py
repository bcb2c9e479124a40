"""Average precision as something that can be learned (AP-GeM): similarities are put softly into bins."""

import torch
from jaxtyping import Float
from torch import Tensor

BINS = 25
ENOUGH = 1e-16  # so that an empty bin divides nothing by nothing


def bin_average_precision(
    scores: Float[Tensor, "queries images"], labels: Float[Tensor, "queries images"], bins: int = BINS
) -> Float[Tensor, " queries"]:
    """The average precision of each query, its similarities shared out over bins from 1 down to 0.

    A bin is a triangle as wide as two steps; the first takes all that is above, the last all that is below.
    """
    centres = torch.linspace(1, 0, bins, dtype=scores.dtype, device=scores.device)
    slope, place = bins - 1, scores.unsqueeze(1)
    rising = slope * place + (1 - slope * centres).reshape(1, -1, 1)
    falling = (1 + slope * centres).reshape(1, -1, 1) - slope * place
    level = torch.ones_like(rising[:, :1])
    falling = torch.cat((level, falling[:, 1:]), dim=1)
    rising = torch.cat((rising[:, :-1], level), dim=1)
    shares = torch.minimum(rising, falling).clamp(min=0)
    right = (shares * labels.unsqueeze(1)).sum(dim=2)
    every = shares.sum(dim=2)
    precision = right.cumsum(dim=1) / (every.cumsum(dim=1) + ENOUGH)
    return (precision * right / right.sum(dim=1, keepdim=True)).sum(dim=1)
