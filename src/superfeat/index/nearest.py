"""The exact nearest centroids of many vectors, at the speed of 8-bit sums.

Nearness of x to c is x.c - |c|^2 / 2. Both are rounded to 7 bits, x = x' + e and c = c' + f with known |e| and |f|, so
x'.c' is off by at most |x'||f| + |e||c|. One pass of whole-number products gives every centroid an upper bound; the few
whose bound reaches the k-th best so far are measured in float64. So the answer is that of float64 distances
(equal ones go to the lower number) on every machine and with any number of threads, and no BLAS is involved.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float32, Float64, Int8, Int32

from superfeat.index.kernel import compiled
from superfeat.index.products import LANES, ROWS, byte_products
from superfeat.threads import run_all

BLOCK = 192  # vectors that share a scale: they stay in the first cache
SHARE = 4 * BLOCK  # vectors of one task
LARGEST_INTEGER = 63  # of 7 bits with sign
OFFSET = 64  # makes a vector's values unsigned, as the instruction wants them
DEVIATIONS = 4.0  # centroids' values further out are cut off, which their error norms account for
SMALLEST_REACH = 1e-36  # reach of values, so that a float32 can hold the scale
NEVER = np.int32(np.iinfo(np.int32).min)
SLACK = 1 + 1e-5  # of the bounds, for the rounding in computing them


class Centroids(NamedTuple):
    """What is worked out once per codebook."""

    exact: Float32[np.ndarray, "words dim"]
    packed: Int8[np.ndarray, "values"]  # 16 words side by side, four dimensions of each in turn
    scale: float
    half_squares: Float64[np.ndarray, "padded"]
    norms: Float64[np.ndarray, "padded"]
    error_norms: Float64[np.ndarray, "padded"]
    offsets: Float64[np.ndarray, "padded"]  # what OFFSET adds to each product


def prepare(centroids: Float32[np.ndarray, "words dim"]) -> Centroids:
    """Rounds and lays out the centroids for `nearest`."""
    words, dim = centroids.shape
    exact = np.ascontiguousarray(centroids, np.float32)
    scale = _scale(exact, DEVIATIONS)
    rounded = np.zeros((-(-words // LANES) * LANES, -(-dim // 8) * 8), np.int8)
    rounded[:words, :dim] = _round(exact, scale)
    packed = rounded.reshape(len(rounded) // LANES, LANES, rounded.shape[1] // 4, 4).transpose(0, 2, 1, 3)
    padding = (0, len(rounded) - words)
    norms = np.sqrt(np.einsum("ij,ij->i", exact, exact, dtype=np.float64))
    errors = exact - rounded[:words, :dim] / scale
    error_norms = np.sqrt(np.einsum("ij,ij->i", errors, errors, dtype=np.float64))
    return Centroids(
        exact,
        np.ascontiguousarray(packed).ravel(),
        scale,
        np.pad(norms**2 / 2, padding),
        np.pad(norms, padding),
        np.pad(error_norms, padding),
        OFFSET * rounded.sum(axis=1, dtype=np.float64),
    )


def _scale(values: Float32[np.ndarray, "n dim"], deviations: float = math.inf) -> float:
    """Steps per unit, such that values up to so many standard deviations fit into 7 bits."""
    largest = max(float(values.max(initial=0.0)), -float(values.min(initial=0.0)))
    squares = float(np.einsum("ij,ij->", values, values, dtype=np.float64))  # without a copy of 64 bits
    deviation = math.sqrt(squares / values.size) if values.size else 0.0
    reach = (largest if deviations == math.inf else min(largest, deviations * deviation)) or 1.0
    return LARGEST_INTEGER / max(reach, SMALLEST_REACH)


def _round(values: Float32[np.ndarray, "n dim"], scale: float) -> Int8[np.ndarray, "n dim"]:
    return np.clip(np.rint(values * scale), -LARGEST_INTEGER, LARGEST_INTEGER).astype(np.int8)


def nearest(
    vectors: Float32[np.ndarray, "n dim"], centroids: Centroids, count: int, workers: int = 1
) -> Int32[np.ndarray, "n k"]:
    """The numbers of the `count` nearest centroids of each vector, nearest first; fewer if there are fewer."""
    words = np.empty((len(vectors), min(count, len(centroids.exact))), np.int32)
    order = np.argsort(np.abs(vectors).max(axis=1, initial=0), kind="stable")  # vectors of a block share a scale
    shares = [slice(first, first + SHARE) for first in range(0, len(vectors), SHARE)]
    if len(shares) == 1 and workers > 1:  # one image: a part for each worker
        step = -(-len(vectors) // workers)
        shares = [slice(first, first + step) for first in range(0, len(vectors), step)]

    def work(share: slice) -> None:
        for block in _blocks(share, len(vectors)):
            rows = order[block]
            words[rows] = _nearest_block(np.ascontiguousarray(vectors[rows], np.float32), centroids, words.shape[1])

    run_all(work, shares, workers)
    return words


def _blocks(share: slice, length: int) -> Iterator[slice]:
    end = min(share.stop, length)
    return (slice(first, min(first + BLOCK, end)) for first in range(share.start, end, BLOCK))


def _nearest_block(vectors: Float32[np.ndarray, "n dim"], centroids: Centroids, count: int) -> Int32[np.ndarray, "n k"]:
    largest = float(centroids.norms.max(initial=0.0)) ** 2
    scale = min(_scale(vectors), (1 << 28) / (centroids.scale * max(largest, 1e-30)))  # so that 32 bits are enough
    rounded = _round(vectors, scale)
    padded = np.full((-(-len(vectors) // ROWS) * ROWS, len(centroids.packed) // len(centroids.norms)), OFFSET, np.uint8)
    padded[: len(vectors), : vectors.shape[1]] = rounded.astype(np.int16) + OFFSET
    lengths = SLACK * np.sqrt(np.square(rounded / scale).sum(axis=1))
    errors = SLACK * np.sqrt(np.square(vectors - rounded / scale).sum(axis=1))
    unit = scale * centroids.scale
    bias = _bias(unit, lengths.max(), errors.max(), *centroids[3:])
    bias[len(centroids.exact) :] = NEVER
    found = np.empty((len(vectors), count), np.int32)
    squares = np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64)
    spare = np.stack((unit * (lengths.max() - lengths), unit * (errors.max() - errors), squares), axis=1)
    _search(
        padded,
        centroids.packed,
        bias,
        unit,
        vectors,
        centroids.exact,
        spare,
        centroids.error_norms,
        centroids.norms,
        found,
    )
    return found


@compiled
def _bias(
    unit: Any, length: Any, error: Any, half_squares: Any, norms: Any, error_norms: Any, offsets: Any
) -> Any:  # pragma: no cover
    """What is added to each product: it makes an upper bound of nearness out of it, for every vector of the block."""
    bias = np.empty(len(norms), np.int32)
    for word in range(len(bias)):
        most = unit * (length * error_norms[word] + error * norms[word])
        bias[word] = np.int32(np.floor(most - unit * half_squares[word] - offsets[word])) + np.int32(2)
    return bias


@compiled
def _search(
    points: Any,
    packed: Any,
    bias: Any,
    unit: Any,
    vectors: Any,
    exact: Any,
    spare: Any,
    error_norms: Any,
    norms: Any,
    found: Any,
) -> None:  # pragma: no cover
    """Every centroid whose upper bound reaches the k-th best so far is measured, and takes its place if nearer."""
    n = len(found)
    eights = points.shape[1] // 8
    limits, own_limits = np.full(len(points), NEVER, np.int32), np.full(n, -np.inf)
    limits[n:] = np.int32(2147483647)
    distances = np.full(found.shape, np.inf)
    least = error_norms[: len(exact)].min(), norms[: len(exact)].min()
    tile = np.empty((ROWS, LANES), np.int32)
    for word in range(0, len(bias), LANES):
        for first in range(0, len(points), ROWS):
            hits = byte_products(points, first, packed, word * eights * 8, eights, bias, word, limits, tile)
            if hits:
                for row in range(ROWS):
                    if hits & (1 << row):
                        point = first + row
                        limits[point] = _measure(
                            word,
                            tile[row],
                            limits[point],
                            unit,
                            vectors[point],
                            exact,
                            spare[point],
                            error_norms,
                            norms,
                            least,
                            own_limits[point : point + 1],
                            distances[point],
                            found[point],
                        )


@compiled
def _measure(
    first: Any,
    uppers: Any,
    limit: Any,
    unit: Any,
    vector: Any,
    exact: Any,
    spare: Any,
    error_norms: Any,
    norms: Any,
    least: Any,
    own_limit: Any,
    distances: Any,
    found: Any,
) -> Any:  # pragma: no cover
    """Measures the candidates among 16 centroids; returns the limit that the next ones must exceed.

    `spare` says by how much the vector's own bound is lower than that of its block, per error and norm of a centroid,
    and the square of the vector.
    """
    for lane in range(LANES):
        word = first + lane
        if uppers[lane] <= limit:
            continue
        if uppers[lane] - spare[0] * error_norms[word] - spare[1] * norms[word] <= own_limit[0]:
            continue
        distance = _distance(vector, exact[word])
        if _insert(np.int32(word), distance, distances, found):
            nearness = (spare[2] - distances[-1]) / 2
            own_limit[0] = np.floor(unit * nearness) - 2
            limit = np.int32(max(own_limit[0] + np.floor(spare[0] * least[0] + spare[1] * least[1]), NEVER))
    return limit


@compiled
def _distance(a: Any, b: Any) -> float:  # pragma: no cover
    """Squared, in float64; four sums, so that the processor need not wait for one addition to begin the next."""
    s0 = s1 = s2 = s3 = 0.0
    whole = len(a) // 4 * 4
    for axis in range(0, whole, 4):
        s0 += (np.float64(a[axis]) - np.float64(b[axis])) ** 2
        s1 += (np.float64(a[axis + 1]) - np.float64(b[axis + 1])) ** 2
        s2 += (np.float64(a[axis + 2]) - np.float64(b[axis + 2])) ** 2
        s3 += (np.float64(a[axis + 3]) - np.float64(b[axis + 3])) ** 2
    for axis in range(whole, len(a)):
        s0 += (np.float64(a[axis]) - np.float64(b[axis])) ** 2
    return (s0 + s1) + (s2 + s3)


@compiled
def _insert(word: Any, distance: Any, distances: Any, found: Any) -> bool:  # pragma: no cover
    """Puts a word in its place among the nearest. Words come in rising order, so an equal one never displaces."""
    place = len(found) - 1
    if distance >= distances[place]:
        return False
    while place > 0 and distances[place - 1] > distance:
        distances[place], found[place] = distances[place - 1], found[place - 1]
        place -= 1
    distances[place], found[place] = distance, word
    return bool(distances[-1] < np.inf)
