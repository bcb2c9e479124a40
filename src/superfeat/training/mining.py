"""Hard negatives: for each query the nearest images of other things, by pooled vectors."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float32, Int64

from superfeat.datasets.training_set import TrainingSet
from superfeat.errors import DatasetError

MINED_AT_ONCE = 256  # queries compared at once


def hardest_negatives(
    queries: Float32[np.ndarray, "queries dim"],
    query_things: Int64[np.ndarray, "queries"],
    pool: Float32[np.ndarray, "pool dim"],
    pool_things: Int64[np.ndarray, "pool"],
    count: int,
) -> Int64[np.ndarray, "queries count"]:
    """For each query the `count` nearest of the pool (by numbers into it), nearest first: never of the query's own
    thing, and at most one of each other thing. Equally near ones in the order of the pool."""
    chosen = np.empty((len(queries), count), np.int64)
    wide = pool.T.astype(np.float64)
    for begin in range(0, len(queries), MINED_AT_ONCE):
        # In float64, then rounded: equal images are equally near, whatever order a product is summed in.
        similarity = (queries[begin : begin + MINED_AT_ONCE].astype(np.float64) @ wide).astype(np.float32)
        for row, order in enumerate(np.argsort(-similarity, axis=1, kind="stable"), begin):
            chosen[row] = _one_per_thing(order, pool_things[order], int(query_things[row]), count)
    return chosen


def _one_per_thing(
    order: Int64[np.ndarray, "pool"], things: Int64[np.ndarray, "pool"], own: int, count: int
) -> Int64[np.ndarray, "count"]:
    """The first of each thing but `own`, in order. Looks at the nearest few first: they nearly always suffice."""
    for look in (20 * count, len(order)):
        _, first = np.unique(things[:look], return_index=True)
        first = np.sort(first)
        first = first[things[first] != own][:count]
        if len(first) == count:
            nearest: np.ndarray = order[first]
            return nearest
    raise DatasetError(
        f"a query found only {len(first)} of {count} negatives among {len(order)} images: "
        "each must show another thing; raise training.pool, lower training.negatives, or add things"
    )


def count_queries(training_set: TrainingSet, count: int, synthetic: float) -> tuple[int, int]:
    """How many pairs, and how many photos with views made of them, an epoch of at most `count` queries has.

    Where there are too few of either the other is fewer too: the share stays.
    """
    pairs, photos = training_set.query_count(), len(training_set.photos)
    total = float(count)
    if synthetic < 1:
        total = min(total, pairs / (1 - synthetic))
    if synthetic > 0:
        total = min(total, photos / synthetic)
    made = min(round(round(total) * synthetic), photos)
    return min(round(total) - made, pairs), made


def draw_queries(
    training_set: TrainingSet, count: int, synthetic: float, balance: float, random: np.random.Generator
) -> Int64[np.ndarray, "queries 2"]:
    """An epoch's pairs (query, positive), in random order. A pair of a photo with itself stands for two views made of
    it; `synthetic` is their share."""
    real, made = count_queries(training_set, count, synthetic)
    pairs = training_set.draw_pairs(real, random, balance)
    views = random.permutation(len(training_set.photos))[:made].astype(np.int64)
    every = np.concatenate((pairs, np.stack((views, views), axis=1)))
    return every[random.permutation(len(every))] if made else every


def group_alike(
    vectors: Float32[np.ndarray, "pairs dim"], things: Int64[np.ndarray, "pairs"], size: int
) -> Int64[np.ndarray, "pairs"]:
    """An order of the pairs in which each `size` of them are alike: a pair, then those nearest to it of other things.

    Each group begins with the first pair that no group has. A thing stands once in a group while others are left.
    """
    left = np.arange(len(vectors))
    order: list[int] = []
    while len(left):
        similarity = (vectors[left].astype(np.float64) @ vectors[left[0]].astype(np.float64)).astype(np.float32)
        near = left[np.argsort(-similarity, kind="stable")]
        near = np.concatenate((left[:1], near[near != left[0]]))
        _, first = np.unique(things[near], return_index=True)
        once = np.zeros(len(near), bool)
        once[first] = True
        group = np.concatenate((near[once], near[~once]))[:size]
        order += group.tolist()
        left = left[~np.isin(left, group)]
    return np.asarray(order, np.int64)


def draw_pool(images: int, count: int, random: np.random.Generator) -> Int64[np.ndarray, "pool"]:
    """`count` different images (all of them, if there are fewer), in order of number."""
    return np.sort(random.permutation(images)[:count]).astype(np.int64)


def as_tuples(
    pairs: Int64[np.ndarray, "queries 2"], pool: Int64[np.ndarray, "pool"], negatives: Int64[np.ndarray, "queries n"]
) -> Int64[np.ndarray, "queries images"]:
    """Rows of image numbers: query, positive, negatives."""
    return np.concatenate((pairs, pool[negatives]), axis=1)


def needed_images(pairs: Int64[np.ndarray, "queries 2"], pool: Sequence[int] | np.ndarray) -> Int64[np.ndarray, "n"]:
    """The images whose pooled vectors mining needs, each once."""
    return np.unique(np.concatenate((pairs[:, 0], np.asarray(pool, np.int64))))
