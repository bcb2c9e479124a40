"""ASMK arithmetic: residuals, bits, selectivity, sums that are exact, the best images and their ties."""

import math

import numpy as np
import pytest

import oracles
from superfeat.index.kernel import (
    SEGMENT_IMAGES,
    Postings,
    Selectivity,
    accumulate,
    accumulate_real,
    accumulate_weighted,
    aggregate,
    best_images,
    binarise,
    code_bytes,
    hamming,
    normalise_residuals,
    power_selectivity,
    table_selectivity,
)

DIMS = (1, 7, 8, 9, 31, 32, 33, 63, 64, 65, 127, 128, 129, 140)


def whole(n: int, dim: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-3, 4, (n, dim)).astype(np.float32)


# --- residuals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("assignments", [1, 2, 5])
def test_residuals_are_summed_by_word(assignments: int) -> None:
    vectors, centroids = whole(40, 6, 1), whole(7, 6, 2)
    words = np.asarray(oracles.nearest_words(vectors, centroids, assignments), np.int32)
    found, sums = aggregate(vectors, words, centroids)
    expected = oracles.aggregate(vectors, words.tolist(), centroids)
    assert found.dtype == np.int32
    assert sums.dtype == np.float32
    assert found.tolist() == list(expected)
    np.testing.assert_array_equal(sums, list(expected.values()))


def test_residuals_of_nothing() -> None:
    words, sums = aggregate(whole(0, 6), np.empty((0, 5), np.int32), whole(7, 6))
    assert words.shape == (0,)
    assert sums.shape == (0, 6)


def test_the_same_feature_twice_counts_twice() -> None:
    vectors, centroids = whole(1, 6, 1), whole(7, 6, 2)
    _, once = aggregate(vectors, np.asarray([[3]], np.int32), centroids)
    words, twice = aggregate(np.repeat(vectors, 2, axis=0), np.asarray([[3], [3]], np.int32), centroids)
    assert words.tolist() == [3]
    np.testing.assert_array_equal(twice, 2 * once)


def test_the_highest_word() -> None:
    words, _ = aggregate(whole(2, 6), np.asarray([[65535], [0]], np.int32), np.zeros((65536, 6), np.float32))
    assert words.tolist() == [0, 65535]


# --- codes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", DIMS)
def test_a_bit_per_dimension(dim: int) -> None:
    sums = whole(5, dim)
    codes = binarise(sums)
    assert codes.shape == (5, code_bytes(dim))
    assert code_bytes(dim) == math.ceil(dim / 64) * 8
    bits = np.unpackbits(codes, axis=1)
    np.testing.assert_array_equal(bits[:, :dim], [oracles.binarise(row) for row in sums])
    assert not bits[:, dim:].any()


def test_the_first_dimension_is_the_highest_bit() -> None:
    sums = np.full((1, 20), -1, np.float32)
    sums[0, [0, 9]] = 1
    assert binarise(sums)[0].tolist() == [128, 64, 0, 0, 0, 0, 0, 0]


def test_no_residual_gives_no_bit() -> None:
    assert not binarise(np.asarray([[0.0, -0.0, -1e-45]], np.float32)).any()
    assert binarise(np.asarray([[1e-45]], np.float32))[0, 0] == 128


def test_unit_residuals() -> None:
    sums = whole(20, 9) + np.float32(0.5)
    found = normalise_residuals(sums)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, [oracles.normalise(row) for row in sums], rtol=1e-6)


def test_a_residual_of_zero_stays_zero() -> None:
    assert not normalise_residuals(np.zeros((2, 5), np.float32)).any()


def test_long_residuals_have_length_one() -> None:
    found = normalise_residuals(whole(20, 9) * np.float32(1e30) + np.float32(1e30))
    np.testing.assert_allclose(np.square(found.astype(np.float64)).sum(axis=1), 1, rtol=1e-6)


@pytest.mark.parametrize("dim", DIMS)
def test_hamming_distances(dim: int) -> None:
    a, b = whole(4, dim, 1), whole(3, dim, 2)
    expected = [[oracles.hamming(oracles.binarise(x), oracles.binarise(y)) for y in b] for x in a]
    np.testing.assert_array_equal(hamming(binarise(a), binarise(b)), expected)


# --- selectivity ------------------------------------------------------------------------------------------------------


def test_the_papers_table_is_exact() -> None:
    found = power_selectivity(128, 3, 0.0)
    assert found.scale == 1 << 18
    assert found.table.tolist() == [(64 - h) ** 3 if h <= 64 else 0 for h in range(129)]


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize(("alpha", "threshold"), [(1, -1), (2, 0.25), (3, 0), (2.5, -0.5), (0.5, 0), (0, 0), (40, -1)])
def test_selectivity_by_its_definition(dim: int, alpha: float, threshold: float) -> None:
    found = power_selectivity(dim, alpha, threshold)
    similarities = [1 - 2 * h / dim for h in range(dim + 1)]
    expected = [
        oracles.selectivity(u, alpha, threshold) if abs(u) > 1e-12 else float(alpha == 0 and threshold <= 0)
        for u in similarities
    ]
    assert found.table.shape == (dim + 1,)
    np.testing.assert_allclose(found.table / found.scale, expected, rtol=0, atol=2**-40)


def test_whole_powers_have_no_rounding() -> None:
    for dim, alpha in ((100, 3), (33, 4), (1, 7), (2, 40), (140, 2)):
        found = power_selectivity(dim, alpha, -1)
        halves = 2 - dim % 2
        steps = [(dim - 2 * h) // halves for h in range(dim + 1)]
        assert found.scale == (dim // halves) ** alpha
        assert found.table.tolist() == [int(math.copysign(abs(step) ** alpha, step)) for step in steps]


@pytest.mark.parametrize(("dim", "threshold", "last"), [(8, 0.25, 3), (8, 0.2500001, 2), (8, -1, 8), (8, 1, 0)])
def test_the_threshold_itself_counts(dim: int, threshold: float, last: int) -> None:
    table = power_selectivity(dim, 2, threshold).table.tolist()
    assert [h for h, value in enumerate(table) if value] == [h for h in range(last + 1) if 2 * h != dim]


@pytest.mark.parametrize("alpha", [1e5, 1e9, 1e300])
def test_a_large_power_leaves_the_equal_alone(alpha: float) -> None:
    """Taken as a whole number it would never end."""
    found = power_selectivity(128, alpha, 0.0)
    assert (found.table / found.scale).tolist() == [1.0] + [0.0] * 128


def test_any_table() -> None:
    values = np.asarray([3.0, 2.5, 0.1, 0.0, -1.0])
    found = table_selectivity(values)
    assert found.table.dtype == np.int64
    np.testing.assert_allclose(found.table / found.scale, values, rtol=0, atol=3 * 2**-40)
    assert not table_selectivity(np.zeros(4)).table.any()


def test_a_table_of_powers_is_the_power() -> None:
    exact = power_selectivity(16, 3, 0.0)
    given = table_selectivity(exact.table / exact.scale)
    np.testing.assert_allclose(given.table / given.scale, exact.table / exact.scale, rtol=0, atol=2**-40)


# --- sums -------------------------------------------------------------------------------------------------------------


def one_list(codes: np.ndarray) -> Postings:
    """One word, in every image."""
    return Postings(np.asarray([0, len(codes)], np.uint32), np.arange(len(codes)).astype(np.uint16), codes)


def bits(rng: np.random.Generator, n: int, parts: int) -> np.ndarray:
    return rng.integers(0, 1 << 64, (n, parts), dtype=np.uint64)


def random_postings(parts: int, seed: int = 0) -> Postings:
    rng = np.random.default_rng(seed)
    starts, ids = [0], list[int]()
    for _ in range(5):
        mine = np.flatnonzero(rng.random(9) < 0.5)
        ids.extend(mine.tolist())
        starts.append(len(ids))
    codes = bits(rng, len(ids), parts)
    return Postings(np.asarray(starts, np.uint32), np.asarray(ids, np.uint16), codes)


def expected_sums(postings: Postings, words: np.ndarray, codes: np.ndarray, table: list[int]) -> list[int]:
    sums = [0] * SEGMENT_IMAGES
    for word, code in zip(words.tolist(), codes.tolist(), strict=True):
        for place in range(int(postings.starts[word]), int(postings.starts[word + 1])):
            stored = postings.codes[place].tolist()
            distance = sum((int(a) ^ int(b)).bit_count() for a, b in zip(stored, code, strict=True))
            sums[int(postings.ids[place])] += table[distance]
    return sums


@pytest.mark.parametrize("parts", [1, 2, 3])
@pytest.mark.parametrize("alpha", [3, 0.7])
def test_integer_sums(parts: int, alpha: float) -> None:
    postings, dim = random_postings(parts), 64 * parts
    words = np.asarray([0, 2, 3], np.int32)
    codes = bits(np.random.default_rng(1), 3, parts)
    selectivity = power_selectivity(dim, alpha, -1)
    sums = accumulate(postings, words, codes, selectivity)
    assert sums.shape == (SEGMENT_IMAGES,)
    assert sums.tolist() == expected_sums(postings, words, codes, selectivity.table.tolist())
    assert np.count_nonzero(sums) > 3


def test_sums_of_no_words() -> None:
    assert not accumulate(random_postings(2), np.empty(0, np.int32), np.empty((0, 2), np.uint64), papers()).any()


def papers() -> Selectivity:
    return power_selectivity(128, 3, 0.0)


@pytest.mark.parametrize("count", [8191, 8192, 8193, 20_000])
def test_sums_beyond_32_bits(count: int) -> None:
    """8192 equal codes reach 2^31: the sums grow to 64 bits in time."""
    codes = np.zeros((count, 2), np.uint64)
    postings = Postings(np.arange(count + 1, dtype=np.uint32), np.zeros(count, np.uint16), codes)
    sums = accumulate(postings, np.arange(count, dtype=np.int32), codes, papers())
    assert int(sums[0]) == count << 18


def test_sums_down_to_minus_2_31() -> None:
    count = 8192
    postings = Postings(
        np.arange(count + 1, dtype=np.uint32), np.zeros(count, np.uint16), np.zeros((count, 2), np.uint64)
    )
    opposite = np.full((count, 2), np.iinfo(np.uint64).max)
    sums = accumulate(postings, np.arange(count, dtype=np.int32), opposite, power_selectivity(128, 3, -1))
    assert int(sums[0]) == -(count << 18)


@pytest.mark.parametrize("weighted", [False, True])
def test_bits_behind_the_last_dimension_add_nothing(weighted: bool) -> None:
    """Only a damaged file has them; there is no table for the distances that they make."""
    postings = one_list(np.full((3, 1), np.iinfo(np.uint64).max))
    words, codes = np.zeros(1, np.int32), np.zeros((1, 1), np.uint64)
    tables = power_selectivity(5, 3, 0.0), Selectivity(np.full(6, 7), 1.0)
    for selectivity in tables:
        if weighted:
            sums = accumulate_weighted(postings, words, codes, selectivity, np.ones(1))
        else:
            sums = accumulate(postings, words, codes, selectivity)
        assert not sums.any()


def test_weighted_sums() -> None:
    postings = random_postings(2)
    words, weights = np.asarray([0, 2, 3], np.int32), np.asarray([0.25, 3.0, 0.0])
    codes = bits(np.random.default_rng(1), 3, 2)
    selectivity = power_selectivity(128, 3, -1)
    sums = accumulate_weighted(postings, words, codes, selectivity, weights)
    parts = [
        np.asarray(expected_sums(postings, words[i : i + 1], codes[i : i + 1], selectivity.table.tolist()))
        for i in range(3)
    ]
    expected = sum(part / selectivity.scale * weight for part, weight in zip(parts, weights, strict=True))
    np.testing.assert_allclose(sums, expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(("alpha", "threshold"), [(3, 0), (1, -1), (2.5, 0.2)])
def test_real_sums(alpha: float, threshold: float) -> None:
    rng = np.random.default_rng(0)
    stored = normalise_residuals(rng.standard_normal((20, 6)).astype(np.float32))
    query = normalise_residuals(rng.standard_normal((1, 6)).astype(np.float32))
    sums = accumulate_real(one_list(stored), np.zeros(1, np.int32), query, alpha, threshold, np.asarray([2.0]))
    expected = [
        2 * oracles.selectivity(oracles.similarity(query[0].tolist(), row, False), alpha, threshold)
        for row in stored.tolist()
    ]
    np.testing.assert_allclose(sums[:20], expected, rtol=1e-12, atol=1e-15)
    assert not sums[20:].any()


# --- the best images --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("top", [0, 1, 2, 3, 10, 63, 64, 65, 100])
@pytest.mark.parametrize("levels", [1, 2, 5, 1000])
def test_the_best_and_their_ties(top: int, levels: int) -> None:
    for seed in range(10):
        rng = np.random.default_rng(seed)
        sums = np.zeros(SEGMENT_IMAGES, np.int64)
        sums[:64] = rng.integers(-levels, levels, 64)
        wanted = (rng.random(64) < 0.8).astype(np.uint8)
        norms = rng.choice([1.0, 2.0], 64)
        found = best_images(sums, norms, wanted, 4.0, top)
        scores = {image: sums[image] / (4.0 * norms[image]) for image in range(64) if wanted[image]}
        expected = oracles.ranking(scores, top)
        assert found.ids.tolist() == expected
        assert found.scores.tolist() == [scores[image] for image in expected]


@pytest.mark.parametrize("order", [1, -1])
def test_scores_that_rise_or_fall_with_the_id(order: int) -> None:
    sums = np.zeros(SEGMENT_IMAGES)
    sums[:50] = np.arange(50)[::order]
    found = best_images(sums, np.ones(50), np.ones(50, np.uint8), 1.0, 7)
    assert found.scores.tolist() == [49, 48, 47, 46, 45, 44, 43]


def test_nobody_wanted() -> None:
    found = best_images(np.zeros(SEGMENT_IMAGES), np.ones(5), np.zeros(5, np.uint8), 1.0, 3)
    assert len(found.ids) == len(found.scores) == 0
