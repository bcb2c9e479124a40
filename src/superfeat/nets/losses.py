"""What super-features are trained with: eligible pairs, and the super-feature, decorrelation and global losses.

Pure functions of raw (not normalised) features. None has a loop over pairs; where no pair is eligible, a loss is
exactly zero and still differentiable.
"""

from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

RatioTest = Literal["lowe", "released", "off"]
Hinge = Literal["released", "paper"]
RATIO = 0.9  # tau
DISTANCE_FLOOR = 1e-6  # added to each difference by the released losses


class IdPairs(NamedTuple):
    """Super-feature IDs of the query and of the positive, pair by pair."""

    query: Int[Tensor, "pairs"]
    positive: Int[Tensor, "pairs"]


def match(
    distances: Float[Tensor, "n m"],
    *,
    ratio_test: RatioTest = "lowe",
    ratio: float = RATIO,
    reciprocal: bool = True,
    same_id: bool = True,
) -> IdPairs:
    """Pairs (s, s') that meet the chosen conditions of eq. 7, in the order of the positive's IDs.

    `distances` are those from each s' of the positive to each s of the query. Without `reciprocal`, every s' is paired
    with s of the same ID, or if `same_id` is off as well, with its nearest s. The ratio test (Lowe's, <=, where the
    paper prints >=) compares ||s - s'|| with the distance from s' to the nearest other feature of the query;
    "released" divides by the *number* of the second neighbour, as the released code does.
    """
    ids = torch.arange(len(distances), device=distances.device)
    nearest = distances.argmin(dim=1)
    partner = ids if same_id and not reciprocal else nearest
    good = _passes(distances, partner, ratio_test, ratio)
    if reciprocal:
        good &= distances.argmin(dim=0)[nearest] == ids
    if same_id:
        good &= partner == ids
    return IdPairs(partner[good], ids[good])


@torch.no_grad()
def distances_between(a: Float[Tensor, "n dim"], b: Float[Tensor, "m dim"]) -> Float[Tensor, "n m"]:
    """Between L2-normalised features; by differences, since the expanded square loses the digits of near ones.

    No gradient flows through the choice of pairs.
    """
    mode = "donot_use_mm_for_euclid_dist"
    return torch.cdist(F.normalize(a, dim=-1), F.normalize(b, dim=-1), compute_mode=mode)


def _passes(
    distances: Float[Tensor, "n m"], partner: Int[Tensor, "n"], ratio_test: RatioTest, ratio: float
) -> Bool[Tensor, "n"]:
    """Whether s' and its partner pass the ratio test; a single feature has no second one to be confused with."""
    if ratio_test == "off" or distances.shape[1] < 2:
        return torch.ones_like(partner, dtype=torch.bool)
    chosen = partner.unsqueeze(1)
    first = distances.gather(1, chosen).squeeze(1)
    second = distances.scatter(1, chosen, torch.inf).min(dim=1)
    # 0 / 0, two features alike, is not a number and fails as it should: which of them is meant cannot be told.
    return first / (second.values if ratio_test == "lowe" else second.indices) <= ratio


def eligible_pairs(
    query: Float[Tensor, "n dim"],
    positive: Float[Tensor, "n dim"],
    *,
    ratio_test: RatioTest = "lowe",
    ratio: float = RATIO,
    reciprocal: bool = True,
    same_id: bool = True,
) -> Int[Tensor, "pairs"]:
    """IDs of the query's super-features that have an eligible partner in the positive (eq. 7), pair by pair.

    Under the same-ID rule the partner has the same ID; without it, `match` tells the partners too.
    """
    distances = distances_between(positive, query)
    return match(distances, ratio_test=ratio_test, ratio=ratio, reciprocal=reciprocal, same_id=same_id).query


def superfeature_loss(
    query: Float[Tensor, "n dim"],
    positive: Float[Tensor, "n dim"],
    negatives: Float[Tensor, "images n dim"],
    *,
    margin: float = 1.1,
    weight: float = 0.02,
    ratio_test: RatioTest = "lowe",
    hinge: Hinge = "released",
    ratio: float = RATIO,
    reciprocal: bool = True,
    same_id: bool = True,
) -> Float[Tensor, ""]:
    """Eq. 8: eligible pairs are drawn together, and pushed from the negatives' features of the query's ID."""
    distances = distances_between(positive, query)
    pairs = match(distances, ratio_test=ratio_test, ratio=ratio, reciprocal=reciprocal, same_id=same_id)
    return weight * loss_of_pairs(pairs, query, positive, negatives, margin=margin, hinge=hinge)


def loss_of_pairs(
    pairs: IdPairs,
    query: Float[Tensor, "n dim"],
    positive: Float[Tensor, "n dim"],
    negatives: Float[Tensor, "images n dim"],
    *,
    margin: float,
    hinge: Hinge,
) -> Float[Tensor, ""]:
    """The sum of eq. 8 over given pairs."""
    return contrastive_loss(
        F.normalize(query, dim=-1)[pairs.query],
        F.normalize(positive, dim=-1)[pairs.positive],
        F.normalize(negatives, dim=-1)[:, pairs.query],
        margin=margin,
        hinge=hinge,
    )


def global_loss(
    query: Float[Tensor, " dim"],
    positive: Float[Tensor, " dim"],
    negatives: Float[Tensor, "images dim"],
    *,
    margin: float = 0.8,
    weight: float = 1.0,
    hinge: Hinge = "released",
) -> Float[Tensor, ""]:
    """Eq. 2 on pooled, L2-normalised vectors: what HOW is trained with."""
    return weight * contrastive_loss(
        query.unsqueeze(0), positive.unsqueeze(0), negatives.unsqueeze(1), margin=margin, hinge=hinge
    )


def contrastive_loss(
    query: Float[Tensor, "pairs dim"],
    positive: Float[Tensor, "pairs dim"],
    negatives: Float[Tensor, "images pairs dim"],
    *,
    margin: float,
    hinge: Hinge,
) -> Float[Tensor, ""]:
    """Squared distance to the positive plus a hinge for each negative, summed over the pairs."""
    if hinge == "paper":
        near = (query - positive).square().sum()
        return near + (margin - (query - negatives).square().sum(dim=-1)).relu().sum()
    near = (query - positive + DISTANCE_FLOOR).square().sum()
    distances: Tensor = (query - negatives + DISTANCE_FLOOR).norm(dim=-1)
    return 0.5 * near + 0.5 * (margin - distances).relu().square().sum()


def decorrelation_loss(
    maps: Float[Tensor, "n height width"] | Float[Tensor, "batch n height width"], *, weight: float = 0.1
) -> Float[Tensor, ""]:
    """Eq. 9: the mean cosine between two different attention maps of an image, summed over the images."""
    return weight * attention_correlation(maps).sum()


def attention_correlation(
    maps: Float[Tensor, "n height width"] | Float[Tensor, "batch n height width"],
) -> Float[Tensor, "*batch"]:
    """The mean cosine between two different attention maps, image by image. With a single map it is zero.

    The sum over all i and j is the squared norm of the summed unit maps, so the (n, n) matrix is not needed.
    """
    n = maps.shape[-3]
    unit = F.normalize(maps.flatten(-2), dim=-1)
    every = unit.sum(dim=-2).square().sum(dim=-1)
    own = unit.square().sum(dim=(-2, -1))
    return (every - own) / max(1, n * (n - 1))
