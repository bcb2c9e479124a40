"""Mining over random pools: it equals plain loops, ties included, and keeps its promises."""

from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

import oracles_losses as oracles
from superfeat.datasets.training_set import TrainingSet
from superfeat.errors import DatasetError
from superfeat.images import Photo
from superfeat.training.mining import (
    MINED_AT_ONCE,
    as_tuples,
    count_queries,
    draw_pool,
    draw_queries,
    group_alike,
    hardest_negatives,
    needed_images,
)

MODEST = settings(deadline=None, max_examples=60)


class Pool(NamedTuple):
    queries: np.ndarray
    query_things: np.ndarray
    images: np.ndarray
    things: np.ndarray


@st.composite
def pools(draw: st.DrawFn, whole: bool = True) -> Pool:
    """Vectors of small whole numbers, whose products are exact and often equal; or unit vectors and exact copies."""
    queries, images, dim = draw(st.integers(1, 5)), draw(st.integers(1, 60)), draw(st.integers(1, 5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kinds = draw(st.integers(1, 12))
    if whole:
        vectors = rng.integers(-2, 3, (queries + images, dim)).astype(np.float32)
    else:
        different = rng.standard_normal((queries + images, 16 * dim))
        different /= np.linalg.norm(different, axis=1, keepdims=True)
        copied = rng.integers(0, len(different), len(different))
        vectors = np.where(rng.random((len(different), 1)) < 0.5, different, different[copied]).astype(np.float32)
    return Pool(
        vectors[:queries],
        rng.integers(0, kinds, queries),
        vectors[queries:],
        rng.integers(0, kinds, images),
    )


def expected(pool: Pool, count: int) -> list[list[int] | None]:
    return [
        oracles.hardest_negatives(query, int(own), pool.images, pool.things.tolist(), count)
        for query, own in zip(pool.queries, pool.query_things, strict=True)
    ]


@MODEST
@given(pools(), st.integers(1, 6))
def test_equals_the_oracle_or_says_why_not(pool: Pool, count: int) -> None:
    wanted = expected(pool, count)
    if None in wanted:
        with pytest.raises(DatasetError, match=rf"only \d+ of {count} negatives among {len(pool.images)} images"):
            hardest_negatives(*pool, count)
    else:
        found = hardest_negatives(*pool, count)
        assert found.dtype == np.int64
        assert found.tolist() == wanted


@MODEST
@given(pools(whole=False), st.integers(1, 4))
def test_copies_of_an_image_are_equally_near(pool: Pool, count: int) -> None:
    """Two images with the same vector come in the order of the pool, wherever in it they are."""
    similarity = np.sort(pool.queries.astype(np.float64) @ np.unique(pool.images, axis=0).T.astype(np.float64), axis=1)
    assume(bool((np.diff(similarity, axis=1) > 1e-6).all()))  # of different images; else single precision may decide
    wanted = expected(pool, count)
    if None not in wanted:
        assert hardest_negatives(*pool, count).tolist() == wanted


def test_copies_in_a_large_pool_are_equally_near() -> None:
    """Where a product of matrices is cut into blocks, whose edges may be added up in another order."""
    rng = np.random.default_rng(5)
    query = rng.standard_normal((MINED_AT_ONCE + 1, 128)).astype(np.float32)
    images = np.repeat(rng.standard_normal((1, 128)).astype(np.float32), 500, axis=0)
    found = hardest_negatives(query, np.full(len(query), -1), images, np.arange(500), 5)
    assert found.tolist() == [list(range(5))] * len(query)


@MODEST
@given(pools(), st.integers(1, 6))
def test_never_the_own_thing_and_no_thing_twice(pool: Pool, count: int) -> None:
    try:
        found = hardest_negatives(*pool, count)
    except DatasetError:
        return
    things = pool.things[found]
    assert not (things == pool.query_things[:, None]).any()
    assert all(len(set(row)) == count for row in things.tolist())
    near = np.take_along_axis(pool.queries @ pool.images.T, found, axis=1)
    assert (np.diff(near, axis=1) <= 0).all()


@pytest.mark.parametrize("own", [0, 19, 20, 21, 200])
def test_many_near_images_of_the_own_thing(own: int) -> None:
    """The few that are looked at first do not suffice."""
    images = np.linspace(1, 0, own + 2, dtype=np.float32)[:, None]
    things = np.array([7] * own + [3, 4])
    found = hardest_negatives(np.ones((1, 1), np.float32), np.array([7]), images, things, 1)
    assert found.tolist() == [[own]]


def test_more_queries_than_a_block() -> None:
    """Each query has its own row, in the first block and in the next."""
    count = MINED_AT_ONCE + 3
    images = np.eye(5, dtype=np.float32)
    kinds = np.arange(count) % 5
    found = hardest_negatives(images[kinds], (kinds + 1) % 5, images, np.arange(5), 1)
    assert found[:, 0].tolist() == kinds.tolist()


@pytest.mark.parametrize("images", [0, 1, 300])
def test_too_few_things_is_an_error_with_a_way_out(images: int) -> None:
    pool = np.ones((images, 2), np.float32), np.full(images, 4)
    with pytest.raises(DatasetError) as error:
        hardest_negatives(np.ones((1, 2), np.float32), np.array([1]), *pool, 2)
    message = str(error.value)
    assert f"only {min(1, images)} of 2 negatives among {images} images" in message
    assert "training.pool" in message
    assert "training.negatives" in message
    assert "\n" not in message


@MODEST
@given(st.integers(0, 200), st.integers(1, 250), st.integers(0, 2**16))
@example(10, 10, 0)
@example(10, 11, 0)
def test_the_pool_is_drawn_without_repeats(images: int, count: int, seed: int) -> None:
    found = draw_pool(images, count, np.random.default_rng(seed))
    assert found.dtype == np.int64
    assert len(found) == min(images, count)
    assert (np.diff(found) > 0).all()
    assert set(found.tolist()) <= set(range(images))
    assert np.array_equal(found, draw_pool(images, count, np.random.default_rng(seed)))


def test_every_image_may_be_in_the_pool() -> None:
    random = np.random.default_rng(0)
    counts = np.bincount(np.concatenate([draw_pool(10, 3, random) for _ in range(500)]), minlength=10)
    assert counts.min() > 100  # of 150 on average


@MODEST
@given(st.data())
def test_tuples_are_query_positive_negatives(data: Any) -> None:
    queries, count = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 5))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**16)))
    pairs = rng.integers(0, 1000, (queries, 2))
    pool = draw_pool(1000, 50, rng)
    negatives = rng.integers(0, 50, (queries, count))
    found = as_tuples(pairs, pool, negatives)
    for row, (pair, chosen) in zip(found.tolist(), zip(pairs.tolist(), negatives.tolist(), strict=True), strict=True):
        assert row == [*pair, *(int(pool[number]) for number in chosen)]


@MODEST
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1), st.sets(st.integers(0, 30), min_size=1))
def test_needed_images_are_the_queries_and_the_pool(pairs: list[tuple[int, int]], pool: set[int]) -> None:
    """The positives are not needed: they are given."""
    wanted = sorted({query for query, _ in pairs} | pool)
    for form in (sorted(pool), np.array(sorted(pool))):
        found = needed_images(np.array(pairs), form)
        assert found.dtype == np.int64
        assert found.tolist() == wanted


# --- Queries of an epoch ----------------------------------------------------------------------------------------------


def training_set(things: list[int], pairs: list[tuple[int, int]] | None = None) -> TrainingSet:
    photos = tuple(Photo(Path(f"{number}.jpg"), f"{number}.jpg") for number in range(len(things)))
    return TrainingSet(photos, np.asarray(things), None if pairs is None else np.asarray(pairs).reshape(-1, 2))


@MODEST
@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=25),
    st.integers(0, 40),
    st.floats(0, 1),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.integers(0, 2**16),
)
@example([0, 0, 1, 1], 4, 0.5, 0.0, 0)
@example([0, 1, 2], 8, 1.0, 0.0, 0)
def test_queries_are_pairs_and_photos_with_themselves(
    things: list[int], count: int, synthetic: float, balance: float, seed: int
) -> None:
    found_in = training_set(things)
    found = draw_queries(found_in, count, synthetic, balance, np.random.default_rng(seed))
    assert found.dtype == np.int64
    assert found.shape[1] == 2
    made = [query for query, positive in found.tolist() if query == positive]
    pairs = [query for query, positive in found.tolist() if query != positive]
    assert len(made) == len(set(made)) <= len(things)
    assert len(pairs) == len(set(pairs)) <= found_in.query_count()
    assert abs(len(made) - synthetic * len(found)) <= 0.5 + 1e-9
    assert len(found) <= count
    assert (found_in.things[found[:, 0]] == found_in.things[found[:, 1]]).all()
    again = draw_queries(found_in, count, synthetic, balance, np.random.default_rng(seed))
    assert np.array_equal(found, again)


@pytest.mark.parametrize(
    ("count", "synthetic", "real", "made"),
    [
        (10, 0.4, 6, 4),  # 12 pairs and 24 photos suffice
        (20, 0.4, 12, 8),
        (1000, 0.4, 12, 8),  # 12 pairs are all there are, and 8 is their share
        (1000, 0.75, 8, 24),  # 24 photos are
        (1000, 0.0, 12, 0),
        (1000, 1.0, 0, 24),
        (0, 0.5, 0, 0),
    ],
)
def test_views_have_their_share_of_an_epoch(count: int, synthetic: float, real: int, made: int) -> None:
    found_in = training_set([number // 2 for number in range(24)], [(number, number + 1) for number in range(0, 24, 2)])
    assert count_queries(found_in, count, synthetic) == (real, made)
    found = draw_queries(found_in, count, synthetic, 0.0, np.random.default_rng(3))
    views = found[:, 0] == found[:, 1]
    assert (int((~views).sum()), int(views.sum())) == (real, made)
    assert len({tuple(row) for row in found.tolist()}) == real + made, "none twice"


def test_without_views_the_queries_are_the_drawn_pairs() -> None:
    """To the bit: runs that began before there were views go on as they were."""
    given_pairs = training_set([0, 0, 0, 1, 1], [(0, 1), (1, 2), (3, 4), (2, 0)])
    for found_in in (given_pairs, training_set([0, 0, 0, 1, 1])):
        found = draw_queries(found_in, 3, 0.0, 0.0, np.random.default_rng(7))
        assert np.array_equal(found, found_in.draw_pairs(3, np.random.default_rng(7)))


def test_views_are_spread_over_the_epoch_and_every_photo_is_made_one_of() -> None:
    found_in, random = training_set([number // 2 for number in range(20)]), np.random.default_rng(0)
    places: Counter[int] = Counter()
    photos: Counter[int] = Counter()
    for _ in range(300):
        found = draw_queries(found_in, 10, 0.3, 0.0, random)
        made = np.flatnonzero(found[:, 0] == found[:, 1])
        places.update(made.tolist())
        photos.update(found[made, 0].tolist())
    assert set(places) == set(range(10))
    assert min(places.values()) > 55  # of 90 on average
    assert set(photos) == set(range(20))
    assert min(photos.values()) > 20  # of 45 on average


@pytest.mark.parametrize("pairs", [[(0, other) for other in range(1, 20)] + [(20, 21)], None], ids=["given", "any"])
def test_balance_reaches_the_draw(pairs: list[tuple[int, int]] | None) -> None:
    """One thing with many pairs (or photos), one with one (or two): balanced, either is as likely."""
    found_in = training_set([0] * 20 + [1] * 2, pairs)
    rare = {}
    for balance in (0.0, 1.0):
        random = np.random.default_rng(1)
        rare[balance] = sum(draw_queries(found_in, 1, 0.0, balance, random)[0, 0] >= 20 for _ in range(400))
    assert rare[0.0] < 70 < 150 < rare[1.0] < 250


# --- Groups of pairs that are alike -----------------------------------------------------------------------------------


class Alike(NamedTuple):
    vectors: np.ndarray
    things: np.ndarray
    size: int


@st.composite
def alike(draw: st.DrawFn) -> Alike:
    """Small whole numbers, whose products are exact and often equal."""
    count, dim = draw(st.integers(0, 25)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    vectors = rng.integers(-2, 3, (count, dim)).astype(np.float32)
    return Alike(vectors, rng.integers(0, draw(st.integers(1, 12)), count), draw(st.integers(1, 8)))


@MODEST
@given(alike())
def test_groups_equal_the_oracle(given_: Alike) -> None:
    found = group_alike(*given_)
    assert found.dtype == np.int64
    assert found.tolist() == oracles.group_alike(given_.vectors, given_.things.tolist(), given_.size)
    assert np.array_equal(found, group_alike(*given_))


@MODEST
@given(alike())
def test_groups_keep_their_promises(given_: Alike) -> None:
    """Every pair once; no thing twice in a group while others are left."""
    found = group_alike(*given_).tolist()
    assert sorted(found) == list(range(len(given_.things)))
    for begin in range(0, len(found), given_.size):
        group, left = found[begin : begin + given_.size], found[begin:]
        assert group[0] == min(left), "each group begins with the first that is left"
        things = given_.things[group].tolist()
        assert len(set(things)) == min(len(group), len(set(given_.things[left].tolist())))


def test_those_that_are_alike_come_together() -> None:
    """Three clusters, mixed: each group of four is one of them."""
    rng = np.random.default_rng(0)
    centres = np.eye(3, 8)
    number = rng.permutation(np.repeat(np.arange(3), 4))
    vectors = (centres[number] + 0.05 * rng.standard_normal((12, 8))).astype(np.float32)
    order = group_alike(vectors, np.arange(12), 4)
    assert [len(set(number[order[begin : begin + 4]])) for begin in (0, 4, 8)] == [1, 1, 1]
