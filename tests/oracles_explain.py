"""Slow twins of the attribution: plain loops from docs/explain.md. Nothing here is of the package."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from oracles import aggregate, binarise, nearest_words, normalise, selectivity, similarity

Numbers = npt.NDArray[Any]
CANCELLED = 1e-3


def word_scores(
    query: Mapping[int, Sequence[float]],
    found: Mapping[int, Sequence[float]],
    binary: bool,
    alpha: float,
    threshold: float,
    weights: Sequence[float],
) -> dict[int, float]:
    """What each shared word adds to the score."""
    norms = [math.sqrt(sum(weights[word] for word in words)) or 1.0 for words in (query, found)]
    return {
        word: weights[word] * selectivity(similarity(code, found[word], binary), alpha, threshold) / math.prod(norms)
        for word, code in sorted(query.items())
        if word in found
    }


def feature_shares(vectors: Numbers, centroids: Numbers, assignments: int, binary: bool) -> dict[int, dict[int, float]]:
    """For each word the share of each of its features: <r, b> / <s, b>."""
    assigned = nearest_words(vectors, centroids, assignments)
    shares: dict[int, dict[int, float]] = {}
    for word, total in aggregate(vectors, assigned, centroids).items():
        code = [2 * bit - 1 for bit in binarise(total)] if binary else normalise(total)
        along = {}
        for feature, mine in enumerate(assigned):
            if word in mine:
                residual = np.asarray(vectors[feature], np.float64) - np.asarray(centroids[word], np.float64)
                along[feature] = sum(float(r) * b for r, b in zip(residual, code, strict=True))
        whole = sum(along.values())
        if abs(whole) <= CANCELLED * sum(abs(value) for value in along.values()):
            shares[word] = {feature: 1 / len(along) for feature in along}
        else:
            shares[word] = {feature: value / whole for feature, value in along.items()}
    return shares


def pair_scores(
    scores: Mapping[int, float], query: Mapping[int, Mapping[int, float]], found: Mapping[int, Mapping[int, float]]
) -> dict[tuple[int, int], float]:
    """What each pair of features adds to the score, in those words that add something."""
    pairs: dict[tuple[int, int], float] = {}
    for word, score in scores.items():
        for mine, one in query[word].items():
            for theirs, other in found[word].items():
                if score != 0:
                    pairs[mine, theirs] = pairs.get((mine, theirs), 0.0) + score * one * other
    return pairs


def spread(maps: Sequence[Numbers], weights: Sequence[float], height: int, width: int) -> list[list[float]]:
    """Every cell over every pixel, by the part of the cell that the pixel covers."""
    canvas = [[0.0] * width for _ in range(height)]
    for one, weight in zip(maps, weights, strict=True):
        rows, columns = one.shape
        for y in range(height):
            for x in range(width):
                for row in range(rows):
                    for column in range(columns):
                        part = _common(row, rows, y, height) * _common(column, columns, x, width)
                        canvas[y][x] += weight * float(one[row, column]) / float(one.sum(dtype=np.float64)) * part
    return canvas


def _common(cell: int, cells: int, pixel: int, pixels: int) -> float:
    """The part of a cell that lies in a pixel, along one side of the image."""
    length = min((cell + 1) / cells, (pixel + 1) / pixels) - max(cell / cells, pixel / pixels)
    return max(0.0, length) * cells
