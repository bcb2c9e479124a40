"""Average precision as something that can be learned (AP-GeM): similarities are put softly into bins."""

import torch
from jaxtyping import Float
from torch import Tensor

BINS = 25
ENOUGH = 1e-16  # so that an empty bin divides nothing by nothing
SMALL = 1e-8  # the same where ties are counted
FARTHEST = 2.001  # a little above 2, so that the distance of a vector to itself has a gradient

Scores = Float[Tensor, "queries images"]


def bin_average_precision(scores: Scores, labels: Scores, bins: int = BINS) -> Float[Tensor, " queries"]:
    """The average precision of each query, its similarities shared out over bins from 1 down to 0."""
    return _precision(*_counts(scores, labels, bins))


def _precision(right: Float[Tensor, "queries bins"], every: Float[Tensor, "queries bins"]) -> Float[Tensor, " queries"]:
    precision = right.cumsum(dim=1) / (every.cumsum(dim=1) + ENOUGH)
    return (precision * right / right.sum(dim=1, keepdim=True)).sum(dim=1)


def distance_average_precision(scores: Scores, labels: Scores, bins: int = BINS) -> Float[Tensor, " queries"]:
    """The same with bins of equal steps of distance, from 0 to 1, in place of similarity."""
    return _precision(*_counts(-(FARTHEST - 2 * scores).sqrt(), labels, bins, first=0.0))


def tie_average_precision(
    scores: Scores, labels: Scores, bins: int = BINS, simplified: bool = False
) -> Float[Tensor, " queries"]:
    """The mean over all orders of images that share a bin, in closed form; or simplified, the middle of each bin."""
    right, every = _counts(scores, labels, bins)
    upto, right_upto = every.cumsum(dim=1), right.cumsum(dim=1)
    before, right_before = upto - every, right_upto - right
    if simplified:
        each = right * (right_upto + right_before + 1) / (upto + before + 1)
    else:
        ratio = (right - 1).clamp(min=0) / ((every - 1).clamp(min=0) + SMALL)
        rest = (right_before + 1 - ratio * (before + 1)) * ((upto + 1) / (before + 1)).log()
        each = right * (every * ratio + rest) / (every + SMALL)
    return (each / labels.sum(dim=1, keepdim=True)).sum(dim=1)


def _counts(
    scores: Scores, labels: Scores, bins: int, first: float = 1.0
) -> tuple[Float[Tensor, "queries bins"], Float[Tensor, "queries bins"]]:
    """How many right images, and how many of all, each bin has, from `first` down by one.

    A bin is a triangle as wide as two steps; the first takes all that is above, the last all that is below.
    """
    centres = torch.linspace(first, first - 1, bins, dtype=scores.dtype, device=scores.device)
    slope, place = bins - 1, scores.unsqueeze(1)
    rising = slope * place + (1 - slope * centres).reshape(1, -1, 1)
    falling = (1 + slope * centres).reshape(1, -1, 1) - slope * place
    level = torch.ones_like(rising[:, :1])
    falling = torch.cat((level, falling[:, 1:]), dim=1)
    rising = torch.cat((rising[:, :-1], level), dim=1)
    shares = torch.minimum(rising, falling).clamp(min=0)
    return (shares * labels.unsqueeze(1)).sum(dim=2), shares.sum(dim=2)
