"""ASMK arithmetic: aggregate residuals per word, binarise, compare, select, accumulate, rank. Arrays in, arrays out.

Posting lists are given as three arrays: `starts` (one more than words), `ids` (16-bit image numbers within a
segment, ascending in each list) and `codes`. Sums are integers where the selectivity is a table over distances, so
they do not depend on the order of addition. Every score array has room for all 65536 ids, so that no damaged file can
make a loop write outside of it.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numba
import numpy as np
from jaxtyping import Float32, Float64, Int, Int32, Int64, UInt8, UInt16, UInt32, UInt64
from numba import types
from numba.extending import intrinsic

SEGMENT_IMAGES = 1 << 16
EPSILON = 1e-6  # of the real kernel's normalisation
PLACE_BITS = 32  # of a number that holds a level of scores and a place
FRACTION_BITS = 40  # of selectivities that are not exact integers
Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Machine code at first use, kept on disk for the next process where there is a place for it; frees the GIL."""
    try:
        made: Function = numba.njit(nogil=True, cache=True)(function)
    except RuntimeError:  # neither the package's folder nor the user's cache can be written
        made = numba.njit(nogil=True)(function)
    return made


@intrinsic  # type: ignore[untyped-decorator]
def _ones(typing_context: Any, value: Any) -> Any:
    """The number of set bits of a 64-bit integer: one instruction."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


# -- An image: its features -> its words and their residuals


def aggregate(
    vectors: Float32[np.ndarray, "n dim"], words: Int32[np.ndarray, "n k"], centroids: Float32[np.ndarray, "words dim"]
) -> tuple[Int32[np.ndarray, "m"], Float32[np.ndarray, "m dim"]]:
    """Distinct words, ascending, and in each the sum of (feature - centroid) over the features that go to it."""
    keys = (words.ravel().astype(np.int64) << 32) | np.arange(words.size)  # by word, then by feature
    keys.sort()
    count = _count_words(keys)
    found, sums = np.empty(count, np.int32), np.empty((count, vectors.shape[1]), np.float32)
    _sum_residuals(vectors, keys, max(words.shape[1], 1), centroids, found, sums)
    return found, sums


@compiled
def _count_words(keys: Any) -> int:  # pragma: no cover
    count = min(len(keys), 1)
    for position in range(1, len(keys)):
        count += keys[position] >> 32 != keys[position - 1] >> 32
    return count


@compiled
def _sum_residuals(
    vectors: Any, keys: Any, assignments: Any, centroids: Any, found: Any, sums: Any
) -> None:  # pragma: no cover
    count, last = 0, -1
    for position in range(len(keys)):
        word = keys[position] >> 32
        if word != last:
            found[count], sums[count] = word, 0
            count, last = count + 1, word
        total, centroid = sums[count - 1], centroids[word]
        vector = vectors[(keys[position] & 0xFFFFFFFF) // assignments]
        for axis in range(len(total)):
            total[axis] += vector[axis] - centroid[axis]


def code_bytes(dim: int) -> int:
    """Bytes of a binary code: a bit per dimension, in whole 64-bit words."""
    return (dim + 63) // 64 * 8


def binarise(sums: Float32[np.ndarray, "m dim"]) -> UInt8[np.ndarray, "m bytes"]:
    """A bit per dimension, set where the residual is above zero. The first dimension is the highest bit of byte 0."""
    bits = np.packbits(sums > 0, axis=1)
    width = code_bytes(sums.shape[1])
    return bits if bits.shape[1] == width else np.pad(bits, ((0, 0), (0, width - bits.shape[1])))


def normalise_residuals(sums: Float32[np.ndarray, "m dim"]) -> Float32[np.ndarray, "m dim"]:
    """The codes of the real-valued kernel: residuals of length one."""
    norms = np.sqrt(np.square(sums, dtype=np.float64).sum(axis=1, keepdims=True))
    return np.asarray(sums / (norms + EPSILON), np.float32)


def hamming(a: UInt8[np.ndarray, "m bytes"], b: UInt8[np.ndarray, "n bytes"]) -> Int64[np.ndarray, "m n"]:
    """How many bits differ, all pairs."""
    return np.asarray(np.bitwise_count(a[:, None, :] ^ b[None, :, :]).sum(axis=2, dtype=np.int64))


# -- Selectivity


class Selectivity(NamedTuple):
    """What a pair of codes at Hamming distance h adds to a score: `table[h] / scale`, in whole numbers."""

    table: Int64[np.ndarray, "distances"]
    scale: float


@functools.lru_cache(maxsize=64)
def power_selectivity(dim: int, alpha: float, threshold: float) -> Selectivity:
    """u^alpha where u = 1 - 2 h / dim reaches the threshold, else 0; negative u keeps its sign.

    Whole powers are exact: u = (dim - 2h) / dim. Others are rounded to 2^-40.
    """
    halves = 2 if dim % 2 == 0 else 1
    steps = [(dim - 2 * distance) // halves for distance in range(dim + 1)]
    whole = dim // halves
    kept = [step / whole >= threshold for step in steps]
    if alpha * math.log2(whole) < FRACTION_BITS and alpha == int(alpha):
        scale: int = whole ** int(alpha)
        values = [int(math.copysign(abs(step) ** int(alpha), step)) for step in steps]
    else:
        scale = 1 << FRACTION_BITS
        values = [round(math.copysign(abs(step / whole) ** alpha, step) * scale) for step in steps]
    table = [value if keep else 0 for value, keep in zip(values, kept, strict=True)]
    return Selectivity(np.asarray(table, np.int64), float(scale))


def table_selectivity(values: Float64[np.ndarray, "distances"]) -> Selectivity:
    """Any table over the distances 0 to dim, falling or level, rounded to 2^-40 of its largest value."""
    largest = float(np.abs(values).max(initial=0.0)) or 1.0
    scale = float(1 << FRACTION_BITS) / largest
    return Selectivity(np.round(np.asarray(values, np.float64) * scale).astype(np.int64), scale)


# -- Search: posting lists -> sums -> the best images


class Postings(NamedTuple):
    """The lists of one segment; codes are 64-bit words (binary) or float32 rows (real)."""

    starts: UInt32[np.ndarray, "words_1"]
    ids: UInt16[np.ndarray, "postings"]
    codes: UInt64[np.ndarray, "postings parts"] | Float32[np.ndarray, "postings dim"]


def _every_distance(table: np.ndarray, codes: UInt64[np.ndarray, "m parts"]) -> np.ndarray:
    """The table, and 0 for the distances that only the damaged padding of a code can have."""
    return np.pad(table, (0, 64 * codes.shape[1] + 1 - len(table)))


def accumulate(
    postings: Postings,
    words: Int32[np.ndarray, "m"],
    codes: UInt64[np.ndarray, "m parts"],
    selectivity: Selectivity,
) -> Int[np.ndarray, "ids"]:
    """For each id of the segment the sum of table[distance] over the words that it shares with the query."""
    largest = int(np.abs(selectivity.table).max(initial=0))
    narrow = largest * max(len(words), 1) < 1 << 31  # half the memory to write to, where it cannot overflow
    kind = np.int32 if narrow else np.int64
    sums = np.zeros(SEGMENT_IMAGES, kind)
    _accumulate(*postings, words, codes, _every_distance(selectivity.table.astype(kind), codes), sums)
    return sums


@compiled
def _accumulate(
    starts: Any, ids: Any, stored: Any, words: Any, codes: Any, table: Any, sums: Any
) -> None:  # pragma: no cover
    parts = codes.shape[1]
    for number in range(len(words)):
        begin, end = starts[words[number]], starts[words[number] + 1]
        if parts == 2:  # 128 bits, the usual length, without an inner loop
            high, low = codes[number, 0], codes[number, 1]
            for place in range(begin, end):
                distance = _ones(stored[place, 0] ^ high) + _ones(stored[place, 1] ^ low)
                sums[ids[place]] += table[distance]
        else:
            for place in range(begin, end):
                distance = np.uint64(0)
                for part in range(parts):
                    distance += _ones(stored[place, part] ^ codes[number, part])
                sums[ids[place]] += table[distance]


def accumulate_many(
    postings: Postings,
    words: Int32[np.ndarray, "m"],
    codes: UInt64[np.ndarray, "m parts"],
    ends: Int64[np.ndarray, "queries"],
    selectivity: Selectivity,
    images: int,
) -> Int64[np.ndarray, "queries images"]:
    """The same for many queries, whose words follow each other up to `ends`, in the lists of a few images in memory."""
    sums = np.zeros((len(ends), images), np.int64)
    _accumulate_many(*postings, words, codes, ends, _every_distance(selectivity.table, codes), sums)
    return sums


@compiled
def _accumulate_many(
    starts: Any, ids: Any, stored: Any, words: Any, codes: Any, ends: Any, table: Any, sums: Any
) -> None:  # pragma: no cover
    first = 0
    for query in range(len(ends)):
        row = sums[query]
        for number in range(first, ends[query]):
            for place in range(starts[words[number]], starts[words[number] + 1]):
                distance = np.uint64(0)
                for part in range(codes.shape[1]):
                    distance += _ones(stored[place, part] ^ codes[number, part])
                row[ids[place]] += table[distance]
        first = ends[query]


def accumulate_pairs(
    postings: Postings,
    words: Int32[np.ndarray, "m"],
    ends: Int64[np.ndarray, "images"],
    selectivity: Selectivity,
) -> Int64[np.ndarray, "images images"]:
    """The same of a few images in memory with each other, whose own words follow each other: each pair once."""
    sums = np.zeros((len(ends), len(ends)), np.int64)
    _accumulate_pairs(*postings, words, ends, _every_distance(selectivity.table, postings.codes), sums)
    return np.asarray(sums + np.triu(sums, 1).T)


@compiled
def _accumulate_pairs(
    starts: Any, ids: Any, stored: Any, words: Any, ends: Any, table: Any, sums: Any
) -> None:  # pragma: no cover
    """Ids rise in each list, so an image's own place in it is the first that no image before it has taken."""
    mine, first = starts[:-1].copy(), 0
    for image in range(len(ends)):
        row = sums[image]
        for number in range(first, ends[image]):
            own = mine[words[number]]
            mine[words[number]] += 1
            for place in range(own, starts[words[number] + 1]):
                distance = np.uint64(0)
                for part in range(stored.shape[1]):
                    distance += _ones(stored[place, part] ^ stored[own, part])
                row[ids[place]] += table[distance]
        first = ends[image]


def accumulate_weighted(
    postings: Postings,
    words: Int32[np.ndarray, "m"],
    codes: UInt64[np.ndarray, "m parts"],
    selectivity: Selectivity,
    weights: Float64[np.ndarray, "m"],
) -> Float64[np.ndarray, "ids"]:
    """The same with a weight per word (IDF), in the order of the words: the same bits however images are split."""
    sums = np.zeros(SEGMENT_IMAGES)
    table = _every_distance(selectivity.table / selectivity.scale, codes)
    _accumulate_weighted(*postings, words, codes, table, weights, sums)
    return sums


@compiled
def _accumulate_weighted(
    starts: Any, ids: Any, stored: Any, words: Any, codes: Any, table: Any, weights: Any, sums: Any
) -> None:  # pragma: no cover
    for number in range(len(words)):
        for place in range(starts[words[number]], starts[words[number] + 1]):
            distance = np.uint64(0)
            for part in range(codes.shape[1]):
                distance += _ones(stored[place, part] ^ codes[number, part])
            sums[ids[place]] += weights[number] * table[distance]


def accumulate_real(
    postings: Postings,
    words: Int32[np.ndarray, "m"],
    codes: Float32[np.ndarray, "m dim"],
    alpha: float,
    threshold: float,
    weights: Float64[np.ndarray, "m"],
) -> Float64[np.ndarray, "ids"]:
    """The real-valued kernel: weight * u^alpha for u = cosine of the residuals where it reaches the threshold."""
    sums = np.zeros(SEGMENT_IMAGES)
    _accumulate_real(*postings, words, codes, float(alpha), float(threshold), weights, sums)
    return sums


@compiled
def _accumulate_real(
    starts: Any, ids: Any, stored: Any, words: Any, codes: Any, alpha: Any, threshold: Any, weights: Any, sums: Any
) -> None:  # pragma: no cover
    for number in range(len(words)):
        for place in range(starts[words[number]], starts[words[number] + 1]):
            cosine = 0.0
            for axis in range(codes.shape[1]):
                cosine += np.float64(stored[place, axis]) * np.float64(codes[number, axis])
            if cosine >= threshold:
                power = abs(cosine) ** alpha
                sums[ids[place]] += weights[number] * (power if cosine >= 0 else -power)


class Best(NamedTuple):
    """The best images of a segment, best first."""

    ids: Int64[np.ndarray, "k"]
    scores: Float64[np.ndarray, "k"]


def best_images(
    sums: Int[np.ndarray, "ids"] | Float64[np.ndarray, "ids"],
    norms: Float64[np.ndarray, "images"],
    wanted: UInt8[np.ndarray, "images"],
    scale: float,
    top: int,
) -> Best:
    """The `top` images by sum / scale / norm among those `wanted`; equal scores rank by id."""
    if top >= len(norms):
        ids = np.flatnonzero(wanted)
        scores = sums[ids] / (scale * norms[ids])
        order = descending(scores)
        return Best(ids[order], scores[order])
    scores, ids = np.empty(top), np.empty(top, np.int64)
    count = _select(sums, norms, wanted, scale, scores, ids)
    order = np.lexsort((ids[:count], -scores[:count]))
    return Best(ids[:count][order], scores[:count][order])


def descending(scores: Float64[np.ndarray, "n"]) -> Int64[np.ndarray, "n"]:
    """The order of descending scores, equal ones by place: two sorts of plain numbers, quicker than a stable one."""
    order = np.argsort(-scores)
    ordered = scores[order]
    level = np.zeros(len(order), np.int64)
    np.cumsum(ordered[1:] != ordered[:-1], out=level[1:])
    key = level << PLACE_BITS | order
    key.sort()
    return key & ((1 << PLACE_BITS) - 1)


@compiled
def _select(sums: Any, norms: Any, wanted: Any, scale: Any, scores: Any, ids: Any) -> int:  # pragma: no cover
    """A heap whose root is the worst image kept. Ids come in ascending order, so an equal score never displaces."""
    top, count = len(scores), 0
    if top == 0:
        return 0
    for image in range(len(norms)):
        if not wanted[image]:
            continue
        score = sums[image] / (scale * norms[image])
        if count < top:
            child = count
            count += 1
            while child > 0:
                parent = (child - 1) // 2
                if scores[parent] < score or (scores[parent] == score and ids[parent] > image):
                    break
                scores[child], ids[child] = scores[parent], ids[parent]
                child = parent
            scores[child], ids[child] = score, image
        elif score > scores[0]:
            place = 0
            while True:
                child = 2 * place + 1
                if child >= top:
                    break
                right = child + 1
                if right < top and (
                    scores[right] < scores[child] or (scores[right] == scores[child] and ids[right] > ids[child])
                ):
                    child = right
                if scores[child] > score or (scores[child] == score and ids[child] < image):
                    break
                scores[place], ids[place] = scores[child], ids[child]
                place = child
            scores[place], ids[place] = score, image
    return count
