"""What speaks for a result besides its score: where its words lie, how it looks from its own side, who agrees with it.

docs/calibration.md has the reasons. Each clue grows with how likely a result is right, and none of them depends on how
many matches a collection has.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float64, Int64

from superfeat.rerank.geometry import INLIER, PlacedWords, Verification
from superfeat.rerank.strangers import Crowd

CLUES = ("verified", "inliers", "spread", "back", "support")
PLACE_CLUES = 3  # the first of them rest on places, which not every index has
BROAD = 3.4641  # deviations of an even spread: over the whole photo they come to 1
SUPPORTERS = 20  # first results that may speak for others
# Deviations between which these clues count in a fit: below, strangers have them too; above, nothing is surer.
BACK_COUNTS, SUPPORT_COUNTS = (1.0, 2.5), (1.0, 4.0)
Clues = Float64[np.ndarray, "n 5"]


def place_clues(
    query: PlacedWords | None, photos: Sequence[PlacedWords | None], found: Sequence[Verification | None]
) -> Float64[np.ndarray, "n 3"]:
    """The verified share, the logarithm of the inliers, and how far these spread; zeros where nobody knows."""
    rows = np.zeros((len(found), PLACE_CLUES))
    for row, photo, one in zip(rows, photos, found, strict=True):
        if query is not None and photo is not None and one is not None and one.inliers > 0:
            agreed = (one.weights > 0) & (one.weights >= INLIER * one.weights.max(initial=0))
            reach = min(spread_of(query.places[one.asked], agreed), spread_of(photo.places[one.rows], agreed))
            row[:] = one.verified, np.log1p(one.inliers), reach
    return rows


def shape_clues(clues: Clues) -> Clues:
    """As a fit counts them: the more words agree, the more each further one says, and the other photos' words count
    between two bounds.
    """
    verified, inliers, spread, back, support = np.asarray(clues, np.float64).T
    bounded = (np.clip(one, *ends) - ends[0] for one, ends in ((back, BACK_COUNTS), (support, SUPPORT_COUNTS)))
    return np.column_stack([verified, inliers**2, spread, *bounded])


def spread_of(places: Float64[np.ndarray, "m 4"], agreed: Bool[np.ndarray, "m"]) -> float:
    """How much of a photo these places are spread over, as a length: 0 for one place, 1 for all of it evenly."""
    if agreed.sum() < 2:
        return 0.0
    deviations = places[agreed, :2].std(axis=0)
    return float(min(1.0, BROAD * np.sqrt(deviations[0] * deviations[1])))


def back_of(scores: Float64[np.ndarray, "n"], found: Crowd, query: Crowd, usual: float) -> Float64[np.ndarray, "n"]:
    """How far scores stand above what each found photo has with just any other. The query's own scores may all be
    lower or higher than is usual, as with five words for each feature: that much is taken off.
    """
    return Crowd(found.location + query.location - usual, found.scale).above(scores)


def support_of(
    scores: Float64[np.ndarray, "n"],
    mutual: Float64[np.ndarray, "n first"],
    speakers: Int64[np.ndarray, "first"],
    found: Crowd,
    query: Crowd,
) -> Float64[np.ndarray, "n"]:
    """The best word that another of the first results puts in: one is as good as the weakest of its links, that with
    the query and that with the result, as the two of them see it. `mutual` are the scores of results with the
    `speakers` among them. Photos that are alike whatever is asked have no say.
    """
    theirs = Crowd(found.location[speakers], found.scale[speakers])
    links = np.minimum(found.above(mutual), theirs.above(mutual.T).T)
    links = np.minimum(links, query.above(np.asarray(scores, np.float64)[None, speakers]))
    links[speakers, np.arange(len(speakers))] = -np.inf  # nobody speaks for itself
    return np.asarray(np.maximum(links.max(axis=1, initial=-np.inf), 0.0))
