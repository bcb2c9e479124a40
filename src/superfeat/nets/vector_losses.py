"""What SOLAR and DELG train their vectors with: triplets, second-order similarity, and classes with a margin."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

ARC_SCALE, ARC_MARGIN = 45.25, 0.1  # of DELG
TRIPLET_MARGIN = 1.25  # of SOLAR

Ones = Float[Tensor, "tuples dim"]
Many = Float[Tensor, "tuples negatives dim"]


def triplet_loss(queries: Ones, positives: Ones, negatives: Many, margin: float = TRIPLET_MARGIN) -> Float[Tensor, ""]:
    """Positives nearer than negatives by the margin, in squared distances: the sum of a tuple, their mean."""
    near = _squares(queries, positives.unsqueeze(1))
    return (near - _squares(queries, negatives) + margin).clamp(min=0).sum() / len(queries)


def second_order_loss(queries: Ones, positives: Ones, negatives: Many) -> Float[Tensor, ""]:
    """Query and positive as far from each negative: the length of all differences, over the number of tuples."""
    different = _squares(queries, negatives) - _squares(positives, negatives)
    return different.square().sum().sqrt() / len(queries)


def _squares(ones: Ones, many: Many) -> Float[Tensor, "tuples negatives"]:
    return (ones.unsqueeze(1) - many).square().sum(dim=2)


def arcface_logits(
    vectors: Float[Tensor, "batch dim"],
    classes: Float[Tensor, "classes dim"],
    labels: Int[Tensor, " batch"] | None = None,
    *,
    scale: float = ARC_SCALE,
    margin: float = ARC_MARGIN,
) -> Float[Tensor, "batch classes"]:
    """Cosines with each class, times a scale; with labels the right class is further away by an angle.

    Where that would go past the opposite of the class, the cosine stays what it is.
    """
    cosines = F.normalize(vectors, dim=1) @ F.normalize(classes, dim=1).T
    if labels is None:
        return scale * cosines
    rows = torch.arange(len(labels), device=labels.device)
    right = cosines[rows, labels]
    angle = right.clamp(-1, 1).acos()
    moved = torch.where(angle <= math.pi - margin, (angle + margin).cos(), right)
    return scale * cosines.index_put((rows, labels), moved)
