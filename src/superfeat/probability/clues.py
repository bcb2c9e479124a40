"""What speaks for a result besides its score: which words lie as in the query, how it looks from its own side, and who
agrees with it.

docs/calibration.md has the reasons. Each clue grows with how likely a result is right. Two of them are measured among
the photos that are nearest to the query, as if these were the whole collection: what is said of a thing is then the
same in a small collection and in one where there are many other things besides.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float64, Int64

from superfeat.config import SearchConfig
from superfeat.index.snapshot import Snapshot
from superfeat.rerank.geometry import PlacedWords, Verification, verify_photos
from superfeat.rerank.strangers import Crowd

CLUES = ("inliers", "back", "near", "support", "witness")
NEAREST = 256  # photos most like the query, among which `near` and `support` are measured
SUPPORTERS = 20  # first results that may speak for others
WITNESSES, LEAST_SEEN = 5, 14  # of them may say where words lie, and need so many themselves: strangers have fewer
# What a clue counts between: below, strangers have it too; above, nothing is surer.
COUNTS = {"back": (1.0, 3.0), "near": (0.5, 3.0), "support": (2.0, 3.5), "witness": (2.3, 3.7)}
Clues = Float64[np.ndarray, "n 5"]


def inliers_of(found: Sequence[Verification | None]) -> Float64[np.ndarray, "n"]:
    """The logarithm of one more than the words that agree; 0 where nobody knows."""
    return np.log1p(np.asarray([0 if one is None else one.inliers for one in found], np.float64))


def inliers_with(
    snapshot: Snapshot,
    query: PlacedWords | None,
    photos: Sequence[PlacedWords | None],
    config: SearchConfig,
    workers: int = 1,
) -> Float64[np.ndarray, "n"]:
    """The same of photos that are verified for it; 0 where nobody knows where words lie."""
    found: list[Verification | None] = [None] * len(photos)
    if query is not None:
        known = [place for place, photo in enumerate(photos) if photo is not None]
        some = [photo for photo in photos if photo is not None]
        verified = verify_photos(snapshot, query, some, config, workers=workers)
        for place, one in zip(known, verified, strict=True):
            found[place] = one
    return inliers_of(found)


def shape_clues(clues: Clues) -> Clues:
    """As a fit counts them: the more words agree, the more each further one says; the others count between bounds."""
    inliers, *others = np.asarray(clues, np.float64).T
    bounded = (np.clip(one, *COUNTS[name]) - COUNTS[name][0] for name, one in zip(CLUES[1:], others, strict=True))
    return np.column_stack([inliers**2, *bounded])


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
    return best_word(links, speakers)


def choose_witnesses(
    inliers: Float64[np.ndarray, "n"], speakers: Int64[np.ndarray, "first"]
) -> Int64[np.ndarray, "witnesses"]:
    """The places of those first results of which most words agree with the query, if so many do."""
    seen = speakers[inliers[speakers] > np.log1p(LEAST_SEEN - 0.5)]
    return np.asarray(seen[np.argsort(-inliers[seen], kind="stable")][:WITNESSES], np.int64)


def witness_of(
    inliers: Float64[np.ndarray, "n"],
    mutual: Float64[np.ndarray, "n witnesses"],
    witnesses: Int64[np.ndarray, "witnesses"],
) -> Float64[np.ndarray, "n"]:
    """The same of words that agree: what a witness has of them with the query, or with the result if that is less."""
    return best_word(np.minimum(mutual, inliers[None, witnesses]), witnesses)


def best_word(words: Float64[np.ndarray, "n first"], speakers: Int64[np.ndarray, "first"]) -> Float64[np.ndarray, "n"]:
    """The best of what is said of each result, 0 at least; nobody speaks for itself."""
    said = np.array(words, np.float64)
    said[speakers, np.arange(len(speakers))] = -np.inf
    return np.asarray(np.maximum(said.max(axis=1, initial=-np.inf), 0.0))
