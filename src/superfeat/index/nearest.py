"""The exact nearest centroids of many vectors, at the speed of 8-bit sums.

Nearness of x to c is x.c - |c|^2 / 2. Both are rounded to 7 bits, x = x' + e and c = c' + f with known |e| and |f|, so
x'.c' is off by at most |x'||f| + |e||c|. One pass of whole-number products gives every centroid an upper bound; the few
whose bound reaches the k-th best so far are measured in float64. So the answer is that of float64 distances
(equal ones go to the lower number) on every machine and with any number of threads, and no BLAS is involved.

A network with points puts them apart from its super-features, by as much in each dimension. So along the diagonal the
words of the two lie on two sides of a gap, and hardly a vector is nearer to a word of the other side than the gap is
wide: it meets its own side first, and of the other one those words alone that may be nearer along the diagonal. Each
side is rounded from its own mean.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Float32, Float64, Int8, Int32

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
GAP = 4.0  # between two sides: standard deviations of the words of a side
LEAST_SIDE = 4 * LANES  # words of a side
ROUNDING = 2.0**-23  # of a subtraction in 32 bits, as a share of what comes out


class Sides(NamedTuple):
    """Words in the order in which they lie along the diagonal, where a gap parts them into two sides."""

    order: Int32[np.ndarray, "words"]  # their numbers; as they are given where there is no gap
    along: Float64[np.ndarray, "words"]
    first: int  # words of the first side; all where there is no gap


class Centroids(NamedTuple):
    """What is worked out once per codebook. Words are in the order of their sides."""

    exact: Float32[np.ndarray, "words dim"]
    packed: Int8[np.ndarray, "values"]  # 16 words side by side, four dimensions of each in turn
    scale: float
    half_squares: Float64[np.ndarray, "padded"]
    norms: Float64[np.ndarray, "padded"]
    error_norms: Float64[np.ndarray, "padded"]
    offsets: Float64[np.ndarray, "padded"]  # what OFFSET adds to each product
    sides: Sides
    means: Float32[np.ndarray, "2 dim"] | None  # of each side: it is rounded from there, distances do not change


def prepare(centroids: Float32[np.ndarray, "words dim"]) -> Centroids:
    """Rounds and lays out the centroids for `nearest`."""
    words, dim = centroids.shape
    sides = find_sides(centroids)
    exact = np.ascontiguousarray(centroids, np.float32)
    moved, means, lost = exact, None, 0.0
    if sides.first < words:
        exact = exact[sides.order]
        moved, lost = exact.copy(), ROUNDING
        halves = (moved[: sides.first], moved[sides.first :])
        means = np.stack([half.mean(axis=0) for half in halves])
        for half, mean in zip(halves, means, strict=True):
            half -= mean
    scale = _scale(moved, DEVIATIONS)
    rounded = np.zeros((-(-words // LANES) * LANES, -(-dim // 8) * 8), np.int8)
    rounded[:words, :dim] = _round(moved, scale)
    packed = rounded.reshape(len(rounded) // LANES, LANES, rounded.shape[1] // 4, 4).transpose(0, 2, 1, 3)
    padding = (0, len(rounded) - words)
    norms = np.sqrt(np.einsum("ij,ij->i", moved, moved, dtype=np.float64))
    errors = moved - rounded[:words, :dim] / scale
    error_norms = np.sqrt(np.einsum("ij,ij->i", errors, errors, dtype=np.float64)) + lost * norms
    return Centroids(
        exact,
        np.ascontiguousarray(packed).ravel(),
        scale,
        np.pad((1 - 4 * lost) * norms**2 / 2, padding),
        np.pad(norms, padding),
        np.pad(error_norms, padding),
        OFFSET * rounded.sum(axis=1, dtype=np.float64),
        sides,
        means,
    )


def find_sides(centroids: Float32[np.ndarray, "words dim"]) -> Sides:
    """The two sides of the widest gap along the diagonal, if it is wide."""
    along = along_diagonal(centroids)
    order = np.argsort(along, kind="stable").astype(np.int32)
    rising = along[order]
    inner = np.diff(rising)[LEAST_SIDE - 1 : len(rising) - LEAST_SIDE]
    if len(inner):
        first = LEAST_SIDE + int(inner.argmax())
        spread = max(float(side.std()) for side in (rising[:first], rising[first:]))
        if inner.max() > GAP * spread:
            return Sides(order, rising, first)
    return Sides(np.arange(len(along), dtype=np.int32), along, len(along))


def along_diagonal(vectors: Float32[np.ndarray, "n dim"]) -> Float64[np.ndarray, " n"]:
    """How far vectors lie along the direction in which all dimensions grow alike; no two are nearer than these are."""
    return np.asarray(vectors.sum(axis=1, dtype=np.float64) / math.sqrt(max(vectors.shape[1], 1)))


def _scale(values: Float[np.ndarray, "n dim"], deviations: float = math.inf) -> float:
    """Steps per unit, such that values up to so many standard deviations fit into 7 bits."""
    largest = max(float(values.max(initial=0.0)), -float(values.min(initial=0.0)))
    squares = float(np.einsum("ij,ij->", values, values, dtype=np.float64))  # without a copy of 64 bits
    deviation = math.sqrt(squares / values.size) if values.size else 0.0
    reach = (largest if deviations == math.inf else min(largest, deviations * deviation)) or 1.0
    return LARGEST_INTEGER / max(reach, SMALLEST_REACH)


def _round(values: Float[np.ndarray, "n dim"], scale: float) -> Int8[np.ndarray, "n dim"]:
    return np.clip(np.rint(values * scale), -LARGEST_INTEGER, LARGEST_INTEGER).astype(np.int8)


def nearest(
    vectors: Float32[np.ndarray, "n dim"], centroids: Centroids, count: int, workers: int = 1
) -> Int32[np.ndarray, "n k"]:
    """The numbers of the `count` nearest centroids of each vector, nearest first; fewer if there are fewer."""
    words, sides = len(centroids.exact), centroids.sides
    met = _Meeting(centroids, vectors, min(count, words))
    order = np.argsort(np.abs(vectors).max(axis=1, initial=0), kind="stable")  # vectors of a block share a scale
    if sides.first == words:
        met.meet([(rows, 0, words) for rows in _shares(order, workers)], workers)
        return met.found
    along, (low, high) = along_diagonal(vectors), sides.along[sides.first - 1 : sides.first + 1]
    second = along > (low + high) / 2
    own = [(rows, 0, sides.first) for rows in _shares(order[~second[order]], workers)]
    own += [(rows, sides.first, words) for rows in _shares(order[second[order]], workers)]
    met.meet(own, workers)
    reach = SLACK * np.sqrt(met.distances[:, -1]) + (SLACK - 1) * (np.abs(along) + np.abs(sides.along).max())
    met.meet(list(_beyond(along, reach, second, sides, workers)), workers)
    return met.found


Part = tuple[np.ndarray, int, int]  # rows of vectors, and the first and the last but one of the words that they meet


def _beyond(
    along: Float64[np.ndarray, "n"],
    reach: Float64[np.ndarray, "n"],
    second: Bool[np.ndarray, "n"],
    sides: Sides,
    workers: int,
) -> Iterator[Part]:
    """Vectors that reach beyond the gap, and the words there that they reach."""
    words = len(sides.along)
    for other, ends in ((False, along + reach), (True, reach - along)):
        edge = -sides.along[sides.first - 1] if other else sides.along[sides.first]
        rows = np.flatnonzero((second == other) & (ends >= edge))
        rows = rows[np.argsort(ends[rows], kind="stable")]  # so that vectors of a block reach alike
        for share in _shares(rows, workers):
            for begin in range(0, len(share), BLOCK):
                block = share[begin : begin + BLOCK]
                most = ends[block].max()
                if other:
                    yield block, int(np.searchsorted(sides.along, -most, "left")), sides.first
                else:
                    yield block, sides.first, min(int(np.searchsorted(sides.along, most, "right")), words)


def _shares(rows: np.ndarray, workers: int) -> list[np.ndarray]:
    """The vectors of one task each; of one image a part for each worker."""
    step = SHARE if len(rows) > SHARE or workers == 1 else max(-(-len(rows) // workers), 1)
    return [rows[first : first + step] for first in range(0, len(rows), step)]


class _Meeting:
    """The nearest words that each vector has met so far."""

    def __init__(self, centroids: Centroids, vectors: Float32[np.ndarray, "n dim"], count: int) -> None:
        self.centroids, self.vectors = centroids, vectors
        self.found = np.full((len(vectors), count), -1, np.int32)
        self.distances = np.full(self.found.shape, np.inf)

    def meet(self, parts: list[Part], workers: int) -> None:
        """Compares vectors with words; no vector is in two parts."""

        def work(part: Part) -> None:
            rows, begin, end = part
            for first in range(0, len(rows), BLOCK):
                block = rows[first : first + BLOCK]
                found, distances = self.found[block], self.distances[block]
                vectors = np.ascontiguousarray(self.vectors[block], np.float32)
                _nearest_block(vectors, self.centroids, begin, end, found, distances)
                self.found[block], self.distances[block] = found, distances

        run_all(work, parts, workers)


def _nearest_block(
    vectors: Float32[np.ndarray, "n dim"],
    centroids: Centroids,
    begin: int,
    end: int,
    found: Int32[np.ndarray, "n k"],
    distances: Float64[np.ndarray, "n k"],
) -> None:
    """Puts the words from `begin` to `end` that are nearer in their places among those that were found before."""
    largest = float(centroids.norms.max(initial=0.0)) ** 2
    moved: Float[np.ndarray, "n dim"] = vectors
    if centroids.means is not None:
        moved = vectors.astype(np.float64) - centroids.means[int(begin >= centroids.sides.first)]
    scale = min(_scale(moved), (1 << 28) / (centroids.scale * max(largest, 1e-30)))  # so that 32 bits are enough
    rounded = _round(moved, scale)
    padded = np.full((-(-len(vectors) // ROWS) * ROWS, len(centroids.packed) // len(centroids.norms)), OFFSET, np.uint8)
    padded[: len(vectors), : vectors.shape[1]] = rounded.astype(np.int16) + OFFSET
    lengths = SLACK * np.sqrt(np.square(rounded / scale).sum(axis=1))
    errors = SLACK * np.sqrt(np.square(moved - rounded / scale).sum(axis=1))
    unit = scale * centroids.scale
    bias = _bias(unit, lengths.max(), errors.max(), *centroids[3:7])
    bias[len(centroids.exact) :] = NEVER
    squares = np.einsum("ij,ij->i", moved, moved, dtype=np.float64)
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
        centroids.sides.order,
        found,
        distances,
        (begin, end),
    )


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
    numbers: Any,
    found: Any,
    distances: Any,
    part: Any,
) -> None:  # pragma: no cover
    """Every centroid whose upper bound reaches the k-th best so far is measured, and takes its place if nearer."""
    n = len(found)
    eights = points.shape[1] // 8
    limits, own_limits = np.full(len(points), NEVER, np.int32), np.full(n, -np.inf)
    limits[n:] = np.int32(2147483647)
    least = error_norms[: len(exact)].min(), norms[: len(exact)].min()
    for point in range(n):
        if distances[point, -1] < np.inf:
            limits[point] = _limit(unit, spare[point], least, distances[point], own_limits[point : point + 1])
    tile = np.empty((ROWS, LANES), np.int32)
    for word in range(part[0] // LANES * LANES, part[1], LANES):
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
                            numbers,
                            part,
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
    numbers: Any,
    part: Any,
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
        if uppers[lane] <= limit or word < part[0] or word >= part[1]:
            continue
        if uppers[lane] - spare[0] * error_norms[word] - spare[1] * norms[word] <= own_limit[0]:
            continue
        distance = _distance(vector, exact[word])
        if _insert(numbers[word], distance, distances, found):
            limit = _limit(unit, spare, least, distances, own_limit)
    return limit


@compiled
def _limit(unit: Any, spare: Any, least: Any, distances: Any, own_limit: Any) -> Any:  # pragma: no cover
    """What the next bounds must exceed, those of the block; and of the vector itself, which is put into `own_limit`."""
    nearness = (spare[2] - distances[-1]) / 2
    own_limit[0] = np.floor(unit * nearness) - 2
    return np.int32(max(own_limit[0] + np.floor(spare[0] * least[0] + spare[1] * least[1]), NEVER))


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
    """Puts a word in its place among the nearest; of equal ones the lower number comes first."""
    place = len(found) - 1
    if distance > distances[place] or (distance == distances[place] and word > found[place]):
        return False
    while place > 0 and (
        distances[place - 1] > distance or (distances[place - 1] == distance and found[place - 1] > word)
    ):
        distances[place], found[place] = distances[place - 1], found[place - 1]
        place -= 1
    distances[place], found[place] = distance, word
    return bool(distances[-1] < np.inf)
