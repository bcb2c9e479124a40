"""The order of the first results after a second look. Arrays in, arrays out; each way can be taken by itself.

geometry: by the score, and by how much of it agrees on one transform. expand: by a wider query, with the words that
verified photos have where the query is. diffuse: by how alike the first results are to each other.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float64, Int64

from superfeat.features import ImageWords
from superfeat.index.kernel import binarise, normalise_residuals
from superfeat.rerank.geometry import PlacedWords, Transform, Verification

Rerank = Literal["geometry", "expand", "diffuse", "off"]
RERANKS: tuple[Rerank, ...] = ("geometry", "expand", "diffuse", "off")
DEFAULT_RERANK: Rerank = "diffuse"  # docs/verification.md has the measurements
FIRST = 100  # results that are looked at again
LEAST_VERIFIED, LEAST_INLIERS = 0.25, 32  # of a photo that a query is widened with: strangers hardly have so many
MOST_EXPANDED = 5  # photos that a query is widened with
OWN_VOTES = 3.0  # of the query's own code of a word; a photo has as many as its verified share, from 0 to 1
COMPARED = 400  # results that diffusion compares with each other
NEIGHBOURS = 20  # of a photo that diffusion goes to
DIFFUSED = 0.85  # how much of a photo's worth is that of its neighbours


# -- Geometry


def agreed_scores(scores: Float64[np.ndarray, "n"], found: Sequence[Verification | None]) -> Float64[np.ndarray, "n"]:
    """Scores that agreement makes larger, up to twice; without places they stay as they are."""
    agreement = [0.0 if one is None else max(0.0, one.agreement) for one in found]
    return np.asarray(np.asarray(scores, np.float64) * (1 + np.asarray(agreement)))


def descending(values: Float64[np.ndarray, "n"]) -> Int64[np.ndarray, "n"]:
    """Places from the largest value on; equal ones in the order that they have."""
    return np.argsort(-np.asarray(values, np.float64), kind="stable").astype(np.int64)


# -- A wider query


def is_verified(one: Verification | None) -> bool:
    """Whether so much agrees that a query may be widened with it."""
    return one is not None and one.verified >= LEAST_VERIFIED and one.inliers >= LEAST_INLIERS


def expand_query(
    query: ImageWords, photos: Sequence[PlacedWords], found: Sequence[Verification], dim: int
) -> ImageWords:
    """The query with the words that photos have inside of its outline, each word's code by the votes of all."""
    parts, votes = [query], [np.full(len(query), OWN_VOTES)]
    for photo, one in zip(photos, found, strict=True):
        assert one.transform is not None, "only verified photos widen a query"
        inside = _inside(photo, one.transform)
        parts.append(ImageWords(photo.image.words[inside], photo.image.codes[inside], query.codebook))
        votes.append(np.full(int(inside.sum()), one.verified))
    words, owners = np.unique(np.concatenate([part.words for part in parts]), return_inverse=True)
    sums = np.zeros((len(words), dim))
    np.add.at(sums, owners, np.concatenate([_signs(part, dim) for part in parts]) * np.concatenate(votes)[:, None])
    binary = query.codes.dtype == np.uint8
    codes = binarise(sums.astype(np.float32)) if binary else normalise_residuals(sums.astype(np.float32))
    return ImageWords(words.astype(np.int32), codes, query.codebook, network=query.network)


def _signs(image: ImageWords, dim: int) -> Float64[np.ndarray, "m dim"]:
    """Codes as numbers: 1 and -1, or the residuals themselves."""
    if image.codes.dtype != np.uint8:
        return np.asarray(image.codes, np.float64)
    return 2.0 * np.unpackbits(image.codes, axis=1)[:, :dim] - 1


def _inside(photo: PlacedWords, transform: Transform) -> Bool[np.ndarray, "m"]:
    """Which words of a photo lie where the query's outline is in it."""
    matrix = np.asarray(transform)
    back = np.linalg.solve(matrix[:, :2], (photo.places[:, :2] - matrix[:, 2]).T)
    return np.asarray(((back >= 0) & (back <= 1)).all(axis=0))


# -- Diffusion


def diffuse(
    scores: Float64[np.ndarray, "n"], similarities: Float64[np.ndarray, "n n"], floor: float
) -> Float64[np.ndarray, "n"]:
    """What photos are worth if each takes most of it from those that it is most like, and they from theirs.

    f = (1 - d) y + d W f, with W the similarities of mutual neighbours, as shares of each photo's sum. What is less
    alike than `floor` is no neighbour: strangers are always somewhat alike. A photo without neighbours keeps its score.
    """
    alike = np.where(similarities >= floor, np.maximum(similarities, 0.0), 0.0)
    np.fill_diagonal(alike, 0.0)
    rows = np.arange(len(alike))[:, None]
    near = np.zeros(alike.shape, np.bool_)
    near[rows, np.argsort(-alike, axis=1, kind="stable")[:, :NEIGHBOURS]] = True
    kept = np.where(near & near.T, alike, 0.0)  # each must be near the other: a photo of everything ties nothing
    sums = kept.sum(axis=1)
    shares = kept / np.where(sums > 0, sums, 1.0)[:, None]
    own = np.asarray(scores, np.float64) * np.where(sums > 0, 1 - DIFFUSED, 1.0)
    return np.linalg.solve(np.eye(len(alike)) - DIFFUSED * shares, own)
