"""Where a score comes from: exact sums over shared words, over pairs of features, over pixels. Arrays in, arrays out.

A score is a sum over the words that two images share. The residual of a word is the sum of its features' residuals,
so along its code each feature has a share, and a pair of features has the product of two shares. Shares have signs:
a feature that points away from the code of its word has a negative one, and the others of that word more than 100 %.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int32, Int64, UInt8

from superfeat.features import ImageWords
from superfeat.index.kernel import Selectivity

# Residuals that cancel out to less than this give a code that none of them speaks for: they share it evenly. It also
# keeps products of two shares below a million, so that sums over pairs keep ten digits.
CANCELLED = 1e-3
CANDIDATES = 1024  # strongest pairs among which groups are looked for
LEAST_GROUP = 0.01  # of what the candidates add up to
SAME = 1 - 1e-9  # sums of the same scores: rounding must not choose between them

Compare = Callable[[np.ndarray, np.ndarray], Float64[np.ndarray, "shared"]]


# -- Words: what each adds to the score


class WordScores(NamedTuple):
    """The words that two images share, ascending; what each adds to the score; its row in the one and in the other."""

    words: Int32[np.ndarray, "shared"]
    scores: Float64[np.ndarray, "shared"]
    query: Int64[np.ndarray, "shared"]
    found: Int64[np.ndarray, "shared"]


def word_scores(
    query: ImageWords, found: ImageWords, compare: Compare, weights: Float64[np.ndarray, "words"] | None = None
) -> WordScores:
    """What each shared word adds to the score that a search gives. `weights` (IDF) are of all words of the codebook."""
    words, mine, theirs = np.intersect1d(query.words, found.words, assume_unique=True, return_indices=True)
    values = compare(query.codes[mine], found.codes[theirs])
    if weights is None:
        norm = math.sqrt(max(len(query), 1)) * math.sqrt(max(len(found), 1))
    else:
        values = values * weights[words]
        norm = _norm(weights[query.words]) * _norm(weights[found.words])
    return WordScores(words.astype(np.int32), values / norm, mine.astype(np.int64), theirs.astype(np.int64))


def _norm(weights: Float64[np.ndarray, "m"]) -> float:
    total = float(weights.sum())
    return math.sqrt(total) if total > 0 else 1.0


def compare_binary(
    a: UInt8[np.ndarray, "shared bytes"], b: UInt8[np.ndarray, "shared bytes"], selectivity: Selectivity
) -> Float64[np.ndarray, "shared"]:
    """The selectivity of two codes of bits, row by row."""
    distances = np.bitwise_count(a ^ b).sum(axis=1, dtype=np.int64)
    return np.asarray(selectivity.table[distances] / selectivity.scale)


def compare_real(
    a: Float32[np.ndarray, "shared dim"], b: Float32[np.ndarray, "shared dim"], alpha: float, threshold: float
) -> Float64[np.ndarray, "shared"]:
    """u^alpha for the cosine u of two residuals where it reaches the threshold, row by row."""
    products = a.astype(np.float64) * b.astype(np.float64)
    # One after the other, as the kernel adds: a cosine on the threshold must fall to the same side of it.
    cosines = np.cumsum(products, axis=1)[:, -1]
    powers = np.abs(cosines) ** alpha
    return np.asarray(np.where(cosines >= threshold, np.where(cosines >= 0, powers, -powers), 0.0))


# -- Features: their shares in a word, and pairs of them


class Shares(NamedTuple):
    """For each feature in each of its words: the row of the word, the feature, its share. A row's shares sum to 1."""

    rows: Int64[np.ndarray, "n"]
    features: Int64[np.ndarray, "n"]
    shares: Float64[np.ndarray, "n"]


def feature_shares(
    vectors: Float32[np.ndarray, "features dim"],
    assigned: Int32[np.ndarray, "features k"],
    centroids: Float32[np.ndarray, "words dim"],
    words: Int32[np.ndarray, "shared"],
    codes: np.ndarray,
) -> Shares:
    """The shares of an image's features in some of its words (ascending), each with its code.

    <r, b> / <s, b> for a feature's residual r, the word's residual s and its code b, whose bits are +1 and -1.
    """
    kept = np.isin(assigned, words)
    features = np.nonzero(kept)[0]
    rows = np.searchsorted(words, assigned[kept])
    residuals = vectors[features].astype(np.float64) - centroids[words[rows]]
    along = (residuals * _directions(codes, vectors.shape[1])[rows]).sum(axis=1)
    totals, sizes = (np.bincount(rows, values, len(words))[rows] for values in (along, np.abs(along)))
    even = np.abs(totals) <= CANCELLED * sizes
    shares = np.where(even, 1 / np.bincount(rows, minlength=len(words))[rows], along / np.where(even, 1, totals))
    return Shares(rows.astype(np.int64), features.astype(np.int64), shares)


def _directions(codes: np.ndarray, dim: int) -> Float64[np.ndarray, "shared dim"]:
    if codes.dtype == np.uint8:
        return np.unpackbits(codes, axis=1)[:, :dim] * 2.0 - 1.0
    return codes.astype(np.float64)


class PairScores(NamedTuple):
    """Pairs of a query's feature and a found image's feature, and what each adds to the score; strongest first."""

    query: Int64[np.ndarray, "pairs"]
    found: Int64[np.ndarray, "pairs"]
    scores: Float64[np.ndarray, "pairs"]


def pair_scores(scores: Float64[np.ndarray, "shared"], query: Shares, found: Shares) -> PairScores:
    """Of all pairs that meet in a word which adds to the score: their products of shares, summed over their words."""
    some = scores[query.rows] != 0
    order = np.argsort(found.rows, kind="stable")
    counts = np.bincount(found.rows, minlength=len(scores))
    partners = counts[query.rows[some]]  # of each feature of the query, in each of its words
    mine = np.repeat(np.flatnonzero(some), partners)
    firsts = (np.cumsum(counts) - counts)[query.rows[mine]]
    within = np.arange(len(mine)) - np.repeat(np.cumsum(partners) - partners, partners)
    theirs = order[firsts + within]
    products = scores[query.rows[mine]] * query.shares[mine] * found.shares[theirs]
    width = int(found.features.max(initial=-1)) + 1
    keys, places = np.unique(query.features[mine] * width + found.features[theirs], return_inverse=True)
    sums = np.bincount(places, products, len(keys))
    best = np.argsort(-sums, kind="stable")  # equal ones in the order of the features
    return PairScores(keys[best] // max(width, 1), keys[best] % max(width, 1), sums[best])


# -- Pixels


def spread(
    maps: Sequence[np.ndarray], weights: Float64[np.ndarray, "maps"], height: int, width: int
) -> Float64[np.ndarray, "height width"]:
    """Attention maps of any grids, each with its weight as its mass, over height x width pixels.

    Each cell's mass is spread evenly over the part of the image that it covers, so the pixels sum to the weights.
    """
    canvas = np.zeros((height, width))
    numbered = sorted(((one.shape, number) for number, one in enumerate(maps) if weights[number] != 0))
    for (rows, columns), group in itertools.groupby(numbered, key=lambda one: one[0]):
        numbers = [number for _, number in group]
        stack = np.stack([maps[number] for number in numbers]).astype(np.float64)
        masses = weights[numbers] / stack.sum(axis=(1, 2))
        canvas += overlaps(rows, height) @ np.tensordot(masses, stack, 1) @ overlaps(columns, width).T
    return canvas


def overlaps(cells: int, pixels: int) -> Float64[np.ndarray, "pixels cells"]:
    """Which part of each of `cells` lies in each of `pixels`, both cutting one length into equal parts."""
    # In units of 1 / (cells * pixels) all edges are whole numbers, so the parts of a cell sum to one.
    cell, pixel = np.arange(cells) * pixels, np.arange(pixels)[:, None] * cells
    common = np.minimum(cell + pixels, pixel + cells) - np.maximum(cell, pixel)
    return np.asarray(np.maximum(common, 0) / pixels)


# -- Groups of pairs that are near each other in both images


def group_pairs(
    query: Float64[np.ndarray, "pairs 2"],
    found: Float64[np.ndarray, "pairs 2"],
    scores: Float64[np.ndarray, "pairs"],
    radius: float,
    most: int,
) -> Int64[np.ndarray, "pairs"]:
    """The number of each pair's group, or -1: at most `most` groups around seeds, each within `radius` in both images.

    A seed is the strong pair with the most score around it that no earlier seed has; a pair joins its nearest seed.
    """
    groups = np.full(len(scores), -1, np.int64)
    seeds = list(itertools.islice(_seeds(query, found, scores, radius), most))
    if seeds:
        far = _distances(query, found, np.asarray(seeds))
        groups = np.where(far.min(axis=0) <= radius, far.argmin(axis=0), -1).astype(np.int64)
    return groups


def _seeds(
    query: Float64[np.ndarray, "pairs 2"],
    found: Float64[np.ndarray, "pairs 2"],
    scores: Float64[np.ndarray, "pairs"],
    radius: float,
) -> Iterator[int]:
    """Pairs, the one with the most around it first; what one has around it does not count for the next."""
    strong = np.argsort(-scores, kind="stable")[:CANDIDATES]
    strong = strong[scores[strong] > 0]
    near: Bool[np.ndarray, "strong strong"] = _distances(query[strong], found[strong], np.arange(len(strong))) <= radius
    left = scores[strong]
    least = LEAST_GROUP * left.sum()
    while left.any():
        around = near @ left
        best = int(np.flatnonzero(around >= SAME * around.max())[0])
        if around[best] < least:
            return
        yield int(strong[best])
        left = np.where(near[best], 0.0, left)


def _distances(
    query: Float64[np.ndarray, "pairs 2"], found: Float64[np.ndarray, "pairs 2"], seeds: Int64[np.ndarray, "seeds"]
) -> Float64[np.ndarray, "seeds pairs"]:
    """From each seed to each pair: in the image in which they are farther apart."""
    apart = [np.linalg.norm(places[None] - places[seeds][:, None], axis=2) for places in (query, found)]
    return np.asarray(np.maximum(*apart))
