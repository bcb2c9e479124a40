"""Posting lists as arrays: sort postings by word, join lists of several segments, look an image up, check them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Int32, Int64, UInt32

from superfeat.index.kernel import Postings, compiled

POSTINGS_PER_SEARCH = 1_000_000  # that are gone through in the time of one binary search in every list


def sort_postings(
    words: Int32[np.ndarray, "postings"], sizes: Int64[np.ndarray, "images"], codes: np.ndarray, word_count: int
) -> Postings:
    """Lists by word, from the words and codes of one image after the other (`sizes` postings each)."""
    starts = np.zeros(word_count + 1, np.uint32)
    np.cumsum(np.bincount(words, minlength=word_count), out=starts[1:])
    ids, sorted_codes = np.empty(len(words), np.uint16), np.empty_like(codes)
    _place(words, sizes, codes, starts.copy(), ids, sorted_codes)
    return Postings(starts, ids, sorted_codes)


@compiled
def _place(words: Any, sizes: Any, codes: Any, free: Any, ids: Any, sorted_codes: Any) -> None:  # pragma: no cover
    position = 0
    for image in range(len(sizes)):
        for _ in range(sizes[image]):
            place = free[words[position]]
            free[words[position]] += np.uint32(1)
            ids[place] = image
            for part in range(codes.shape[1]):
                sorted_codes[place, part] = codes[position, part]
            position += 1


def join_postings(parts: Sequence[Postings], kept: Sequence[Bool[np.ndarray, "_"]]) -> Postings:
    """The lists of the kept images of several segments, one after the other, numbered anew without gaps."""
    counts = [_count_kept(part.starts, part.ids, _for_any_id(keep)) for part, keep in zip(parts, kept, strict=True)]
    starts = np.zeros(len(parts[0].starts), np.uint32)
    np.cumsum(np.sum(counts, axis=0), out=starts[1:])
    total = int(starts[-1])
    ids, codes = np.empty(total, np.uint16), np.empty((total, parts[0].codes.shape[1]), parts[0].codes.dtype)
    free, first = starts.copy(), 0
    for part, keep in zip(parts, kept, strict=True):
        numbers = np.zeros(1 << 16, np.uint16)
        numbers[: len(keep)][keep] = np.arange(first, first + int(keep.sum()), dtype=np.int64).astype(np.uint16)
        _join(part.starts, part.ids, part.codes, _for_any_id(keep), numbers, free, ids, codes)
        first += int(keep.sum())
    return Postings(starts, ids, codes)


def _for_any_id(keep: Bool[np.ndarray, "images"]) -> Bool[np.ndarray, "ids"]:
    padded = np.zeros(1 << 16, np.bool_)
    padded[: len(keep)] = keep
    return padded


@compiled
def _count_kept(starts: Any, ids: Any, keep: Any) -> Any:  # pragma: no cover
    counts = np.zeros(len(starts) - 1, np.int64)
    for word in range(len(starts) - 1):
        for place in range(starts[word], starts[word + 1]):
            counts[word] += keep[ids[place]]
    return counts


@compiled
def _join(
    starts: Any, ids: Any, codes: Any, keep: Any, numbers: Any, free: Any, new_ids: Any, new_codes: Any
) -> None:  # pragma: no cover
    for word in range(len(starts) - 1):
        for place in range(starts[word], starts[word + 1]):
            if keep[ids[place]]:
                new = free[word]
                free[word] += np.uint32(1)
                new_ids[new] = numbers[ids[place]]
                for part in range(codes.shape[1]):
                    new_codes[new, part] = codes[place, part]


def count_images(postings: Postings, keep: Bool[np.ndarray, "images"]) -> Int64[np.ndarray, "words"]:
    """In how many of the kept images each word is."""
    return np.asarray(_count_kept(postings.starts, postings.ids, _for_any_id(keep)))


def find_postings(postings: Postings, image: int) -> tuple[Int32[np.ndarray, "m"], Int64[np.ndarray, "m"]]:
    """The words of one image and the places of its postings: a binary search in every list, no bytes of its own."""
    words, places = _find(postings.starts, postings.ids, image)
    return words, places


@compiled
def _find(starts: Any, ids: Any, image: Any) -> Any:  # pragma: no cover
    words, places = np.empty(len(starts) - 1, np.int32), np.empty(len(starts) - 1, np.int64)
    count = 0
    for word in range(len(starts) - 1):
        low, high = np.int64(starts[word]), np.int64(starts[word + 1])
        end = high
        while low < high:
            middle = (low + high) // 2
            if ids[middle] < image:
                low = middle + 1
            else:
                high = middle
        if low < end and ids[low] == image:
            words[count], places[count] = word, low
            count += 1
    return words[:count].copy(), places[:count].copy()


def find_many(
    postings: Postings, images: Int64[np.ndarray, "n"], sizes: Int64[np.ndarray, "n"]
) -> list[tuple[Int32[np.ndarray, "m"], Int64[np.ndarray, "m"]]]:
    """The same of several images that have so many words: by one way through all postings, if that is shorter."""
    if len(postings.ids) > POSTINGS_PER_SEARCH * len(images):
        return [find_postings(postings, int(image)) for image in images]
    slots, bounds = np.full(1 << 16, -1, np.int32), np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    slots[images] = np.arange(len(images), dtype=np.int32)
    words, places = np.empty(int(bounds[-1]), np.int32), np.empty(int(bounds[-1]), np.int64)
    ends = bounds[:-1].copy()
    _find_many(postings.starts, postings.ids, slots, bounds, ends, words, places)
    parts = [slice(first, end) for first, end in zip(bounds.tolist(), ends.tolist(), strict=False)]
    return [(words[part], places[part]) for part in parts]


@compiled
def _find_many(
    starts: Any, ids: Any, slots: Any, bounds: Any, ends: Any, words: Any, places: Any
) -> None:  # pragma: no cover
    for word in range(len(starts) - 1):
        for place in range(starts[word], starts[word + 1]):
            slot = slots[ids[place]]
            if slot >= 0 and ends[slot] < bounds[slot + 1]:  # a damaged segment must not write elsewhere
                words[ends[slot]] = word
                places[ends[slot]] = place
                ends[slot] += 1


def weight_sums(postings: Postings, weights: np.ndarray, images: int) -> np.ndarray:
    """Per image the sum of its words' weights (what its norm is the root of, with IDF)."""
    sums = np.zeros(1 << 16)
    _add_weights(postings.starts, postings.ids, weights, sums)
    return sums[:images]


@compiled
def _add_weights(starts: Any, ids: Any, weights: Any, sums: Any) -> None:  # pragma: no cover
    for word in range(len(starts) - 1):
        for place in range(starts[word], starts[word + 1]):
            sums[ids[place]] += weights[word]


def check_starts(starts: UInt32[np.ndarray, "words_1"], postings: int) -> str | None:
    """What makes the lists' boundaries unusable, or None."""
    if len(starts) == 0 or starts[0] != 0 or starts[-1] != postings or bool((starts[1:] < starts[:-1]).any()):
        return "its lists overlap or leave gaps"
    return None


def check_ids(postings: Postings, sizes: UInt32[np.ndarray, "images"]) -> str | None:
    """What is wrong with the ids, or None: ascending in each list, and as many per image as it has words."""
    starts, ids = postings.starts, postings.ids
    if len(ids) and int(ids.max()) >= len(sizes):
        return "a posting names an image that is not there"
    if not bool((np.bincount(ids, minlength=len(sizes)) == sizes).all()):
        return "an image has more or fewer postings than words"
    rising = np.diff(ids.astype(np.int32)) > 0
    inner = starts[(starts > 0) & (starts < len(ids))].astype(np.int64) - 1
    rising[inner] = True
    return None if bool(rising.all()) else "a list is not in the order of its images"
