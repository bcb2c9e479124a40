"""A round of k-means: points to their nearest words, wherever that is worked out, and words to the means of points.

The nearest words are exact and do not depend on the machine; points are summed in one place and one order. So whoever
finds the words, the centroids are the same bits.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from jaxtyping import Float32, Int32, Int64

from superfeat.index.kernel import compiled
from superfeat.index.nearest import nearest, prepare

POINTS_AT_ONCE = 1 << 16  # between two progress reports
SPLIT = 1 / 1024  # how far the two halves of a split word move apart, as a share of its values

Vectors = Float32[np.ndarray, "n dim"]
Owners = Int32[np.ndarray, "points"]
# The nearest word of each point, block after block (`point_blocks`), in their order: by whoever, on whatever machine.
Assign = Callable[[Vectors, Vectors], Iterator[Owners]]


def point_blocks(points: Vectors) -> Iterator[Vectors]:
    """The points, many at a time."""
    for first in range(0, len(points), POINTS_AT_ONCE):
        yield np.ascontiguousarray(points[first : first + POINTS_AT_ONCE])


def nearest_words(block: Vectors, centroids: Vectors, workers: int = 1) -> Owners:
    """The nearest word of each point: exact, and so the same everywhere."""
    return nearest(block, prepare(centroids), 1, workers)[:, 0]


def assign_here(points: Vectors, centroids: Vectors, workers: int) -> Iterator[Owners]:
    """By this machine."""
    prepared = prepare(centroids)
    for block in point_blocks(points):
        yield nearest(block, prepared, 1, workers)[:, 0]


@compiled
def add_points(points: Any, owners: Any, centroids: Any, sums: Any, counts: Any) -> float:  # pragma: no cover
    """Adds each point to its word's sum, in order; returns the sum of squared distances."""
    total = 0.0
    for point in range(len(points)):
        word = owners[point]
        counts[word] += 1
        for axis in range(points.shape[1]):
            value = np.float64(points[point, axis])
            sums[word, axis] += value
            total += (value - np.float64(centroids[word, axis])) ** 2
    return total


def imbalance(counts: Int64[np.ndarray, "words"]) -> float:
    """1 when all words have equally many points; how many times dearer a search is than with equal words."""
    return float(len(counts) * np.square(counts.astype(np.float64)).sum() / max(counts.sum(), 1) ** 2)


def move_words(centroids: Vectors, sums: np.ndarray, counts: Int64[np.ndarray, "words"]) -> Vectors:
    """Each word to the mean of its points; a word without points takes half of the largest remaining one."""
    moved = centroids.copy()
    filled = counts > 0
    moved[filled] = (sums[filled] / counts[filled, None]).astype(np.float32)
    left = counts.copy()
    signs = np.where(np.arange(centroids.shape[1]) % 2 == 0, 1 + SPLIT, 1 - SPLIT).astype(np.float32)
    for word in np.flatnonzero(~filled):
        largest = int(left.argmax())
        moved[word], moved[largest] = moved[largest] * signs, moved[largest] * (2 - signs)
        left[word] = left[largest] // 2
        left[largest] -= left[word]
    return moved
