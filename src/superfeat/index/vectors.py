"""The exact nearest of many vectors that lie on disk: a quick pass with error bounds, then float64 for what remains.

A segment of one-vector images holds a row for each image. The quick pass reads the rows as they are (float32, float16)
or as 8-bit roundings with a step per row; what it may be off by is known, so whatever cannot be excluded is measured
again in float64. So the answer is that of float64 products of the stored vectors, whatever the quick pass is.
"""

from typing import Any, NamedTuple

import numba
import numpy as np
from jaxtyping import Bool, Float32, Float64, Int8, Int64
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from superfeat.errors import SuperfeatError
from superfeat.features import ImageWords
from superfeat.index.kernel import Best, compiled

LARGEST = 127  # of a value in 8 bits
UNIT_ROUNDING = 2.0**-24  # of float32
SLACK = 1 + 1e-6  # of bounds, for the rounding in computing them
LONGEST = 1 + 1e-3  # of a stored vector: float16 rounds a unit vector's values
QUERIES_AT_ONCE = 64  # that share one reading of all rows
ROWS_AT_ONCE = 1 << 12  # of a product of matrices
Rows = np.ndarray  # (images, dim) float32, or uint16: the bits of float16


class Rounded(NamedTuple):
    """Rows as steps of a size of their own, and how far off they are."""

    values: Int8[np.ndarray, "images dim"]
    steps: Float32[np.ndarray, "images"]
    errors: Float32[np.ndarray, "images"]  # norms of the differences, rounded up


def round_rows(rows: Float32[np.ndarray, "images dim"]) -> Rounded:
    """8-bit roundings of float32 rows."""
    values = np.empty(rows.shape, np.int8)
    steps, errors = np.empty(len(rows), np.float32), np.empty(len(rows), np.float32)
    for begin in range(0, len(rows), ROWS_AT_ONCE):
        part = slice(begin, begin + ROWS_AT_ONCE)
        some = np.asarray(rows[part], np.float64)
        step = np.maximum(np.abs(some).max(axis=1, initial=0) / LARGEST, np.finfo(np.float32).tiny).astype(np.float32)
        values[part] = np.clip(np.rint(some / step[:, None]), -LARGEST, LARGEST)
        off = np.linalg.norm(some - values[part] * step[:, None].astype(np.float64), axis=1)
        steps[part], errors[part] = step, np.nextafter((off * SLACK).astype(np.float32), np.float32(np.inf))
    return Rounded(values, steps, errors)


def as_row(vector: Float32[np.ndarray, " dim"], kind: str) -> np.ndarray:
    """A vector of length one (or zero, if it is) as it is stored, (1, dim)."""
    wide = np.asarray(vector, np.float64)
    norm = float(np.linalg.norm(wide))
    return (wide / norm if norm > 0 else wide)[None].astype("<f2" if kind == "float16" else "<f4")


def as_vector(vectors: Float32[np.ndarray, "n dim"], kind: str, codebook: str, network: str | None) -> ImageWords:
    """An image that is one vector: the only code of the only word."""
    if len(vectors) != 1:
        raise SuperfeatError(
            f"this index holds one vector per photo, and these features are {len(vectors)}: they come from a network "
            "of local features; use the network that the index was made with"
        )
    return ImageWords(np.zeros(1, np.int32), as_row(vectors[0], kind), codebook, None, network)


class Limit:
    """The score that an image must reach to be among the best of all segments, as far as it is known."""

    def __init__(self) -> None:
        self.score = -np.inf

    def raise_to(self, score: float) -> None:
        self.score = max(self.score, score)


def best_rows(
    rows: Rows,
    rounded: Rounded | None,
    query: Float32[np.ndarray, " dim"],
    wanted: Bool[np.ndarray, "images"],
    top: int,
    limit: Limit,
) -> Best:
    """The `top` of the wanted rows by their product with the query; equal ones rank by number."""
    if top >= int(wanted.sum()):
        return _measured(rows, query, np.flatnonzero(wanted), top)
    if rounded is None:
        found = np.empty(len(rows), np.float32)
        (_scan_half if rows.dtype == np.uint16 else _scan)(rows, query, np.arange(len(rows)), found)
        return choose(rows, query, found, rounding_bound(query), wanted, top, limit)
    about, off = _about_rounded(rounded, query)
    left = np.flatnonzero(_possible(about, off, wanted, top, limit))
    found = np.full(len(rows), -np.inf, np.float32)
    again = np.empty(len(left), np.float32)
    _scan(rows, query, left, again)
    found[left] = again
    return choose(rows, query, found, rounding_bound(query), np.isfinite(found), top, limit)


def choose(
    rows: Rows,
    query: Float32[np.ndarray, " dim"],
    about: Float32[np.ndarray, "images"],
    off: float | Float32[np.ndarray, "images"],
    wanted: Bool[np.ndarray, "images"],
    top: int,
    limit: Limit,
) -> Best:
    """Measures all that may be among the best, given what each is about and how far off that may be."""
    return _measured(rows, query, np.flatnonzero(_possible(about, off, wanted, top, limit)), top)


def _possible(
    about: Float32[np.ndarray, "images"],
    off: float | Float32[np.ndarray, "images"],
    wanted: Bool[np.ndarray, "images"],
    top: int,
    limit: Limit,
) -> Bool[np.ndarray, "images"]:
    """Those that may be among the best; the limit rises to what the last of them has at least."""
    if 0 < top < int(wanted.sum()):
        least = np.where(wanted, about - off, -np.inf)
        limit.raise_to(float(np.partition(least, len(least) - top)[len(least) - top]))
    return np.asarray(wanted & (about + off >= limit.score) & (top > 0))


def _measured(rows: Rows, query: Float32[np.ndarray, " dim"], numbers: Int64[np.ndarray, " n"], top: int) -> Best:
    scores = np.empty(len(numbers))
    measure = _measure_half if rows.dtype == np.uint16 else _measure
    measure(rows, query.astype(np.float64), numbers, scores)
    order = np.lexsort((numbers, -scores))[:top]
    return Best(numbers[order], scores[order])


def rounding_bound(query: Float32[np.ndarray, " dim"]) -> float:
    """How far a sum of float32 products with a unit row can be off, in whatever order they are added."""
    return 2 * len(query) * UNIT_ROUNDING * LONGEST * float(np.linalg.norm(query))


def _about_rounded(
    rounded: Rounded, query: Float32[np.ndarray, " dim"]
) -> tuple[Float32[np.ndarray, "images"], Float32[np.ndarray, "images"]]:
    """q.c = q'.c' + q'.f + e.c for roundings q', c' with the errors e, f: off by at most |q'||f| + |e||c|."""
    small = round_rows(query[None])
    found = np.empty(len(rounded.values), np.float32)
    _scan_rounded(rounded.values, rounded.steps * small.steps[0], small.values[0].astype(np.int16), found)
    length = SLACK * (float(np.linalg.norm(query)) + float(small.errors[0]))
    off = length * rounded.errors + float(small.errors[0]) * LONGEST + 4 * UNIT_ROUNDING
    return found, (off * SLACK).astype(np.float32)


def products(rows: Rows, queries: Float32[np.ndarray, "queries dim"]) -> Float32[np.ndarray, "queries images"]:
    """All products of many queries, by matrices: each row is read once for all of them."""
    found = np.empty((len(queries), len(rows)), np.float32)
    for begin in range(0, len(rows), ROWS_AT_ONCE):
        part = rows[begin : begin + ROWS_AT_ONCE]
        plain = part.view(np.float16).astype(np.float32) if part.dtype == np.uint16 else part
        np.matmul(queries, plain.T, out=found[:, begin : begin + len(part)])
    return found


# -- The loops


def _quick(function: Any) -> Any:
    """Machine code that may add in any order: what it may be off by is accounted for."""
    try:
        return numba.njit(nogil=True, cache=True, fastmath=True)(function)
    except RuntimeError:  # no place for a cache
        return numba.njit(nogil=True, fastmath=True)(function)


@intrinsic  # type: ignore[untyped-decorator]
def _from_half(typing_context: Any, bits: Any) -> Any:
    """The float32 that 16 bits stand for: one instruction for eight of them."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fpext(builder.bitcast(arguments[0], ir.HalfType()), ir.FloatType())

    return types.float32(types.uint16), generate


@_quick
def _scan(rows: Any, query: Any, numbers: Any, found: Any) -> None:  # pragma: no cover
    for place in range(len(numbers)):
        number, total = numbers[place], np.float32(0)
        for axis in range(len(query)):
            total += rows[number, axis] * query[axis]
        found[place] = total


@_quick
def _scan_half(rows: Any, query: Any, numbers: Any, found: Any) -> None:  # pragma: no cover
    for place in range(len(numbers)):
        number, total = numbers[place], np.float32(0)
        for axis in range(len(query)):
            total += _from_half(rows[number, axis]) * query[axis]
        found[place] = total


@_quick
def _scan_rounded(values: Any, steps: Any, query: Any, found: Any) -> None:  # pragma: no cover
    for number in range(len(values)):
        total = np.int32(0)
        for axis in range(len(query)):
            total = np.int32(total + np.int32(np.int16(values[number, axis])) * np.int32(query[axis]))
        found[number] = np.float32(total) * steps[number]


@compiled
def _measure(rows: Any, query: Any, numbers: Any, scores: Any) -> None:  # pragma: no cover
    for place in range(len(numbers)):
        row, s0, s1, s2, s3 = rows[numbers[place]], 0.0, 0.0, 0.0, 0.0
        whole = len(query) // 4 * 4
        for axis in range(0, whole, 4):  # four sums, so that no addition waits for the one before
            s0 += np.float64(row[axis]) * query[axis]
            s1 += np.float64(row[axis + 1]) * query[axis + 1]
            s2 += np.float64(row[axis + 2]) * query[axis + 2]
            s3 += np.float64(row[axis + 3]) * query[axis + 3]
        for axis in range(whole, len(query)):
            s0 += np.float64(row[axis]) * query[axis]
        scores[place] = (s0 + s1) + (s2 + s3)


@compiled
def _measure_half(rows: Any, query: Any, numbers: Any, scores: Any) -> None:  # pragma: no cover
    for place in range(len(numbers)):
        row, total = rows[numbers[place]], 0.0
        for axis in range(len(query)):
            total += np.float64(_from_half(row[axis])) * query[axis]
        scores[place] = total


def expand_query(
    query: Float32[np.ndarray, " dim"],
    found: Float32[np.ndarray, "images dim"],
    scores: Float64[np.ndarray, "images"],
    alpha: float,
) -> Float32[np.ndarray, " dim"]:
    """alpha-QE: the query and what it found, each weighted by similarity^alpha, summed, of length one."""
    weights = np.maximum(scores, 0.0) ** alpha
    total = query.astype(np.float64) + weights @ found.astype(np.float64)
    norm = float(np.linalg.norm(total))
    return np.asarray(total / norm if norm > 0 else total, np.float32)
