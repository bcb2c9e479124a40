"""Attribution on numbers that can be done by hand."""

import functools

import numpy as np
import pytest

from superfeat.explain.attribution import (
    Shares,
    compare_binary,
    compare_real,
    feature_shares,
    group_pairs,
    overlaps,
    pair_scores,
    spread,
    word_scores,
)
from superfeat.features import ImageWords
from superfeat.index.kernel import power_selectivity, table_selectivity

CENTROIDS = np.asarray([[0, 0], [10, 0], [0, 10]], np.float32)
ALL = np.arange(3, dtype=np.int32)


def bits(*rows: str) -> np.ndarray:
    """'1100' -> a code of 64 bits."""
    return np.asarray([[int(row.ljust(64, "0")[at : at + 8], 2) for at in range(0, 64, 8)] for row in rows], np.uint8)


def image(words: list[int], codes: np.ndarray) -> ImageWords:
    return ImageWords(np.asarray(words, np.int32), codes, "digest")


# -- Words


def test_each_shared_word_adds_its_selectivity_over_both_norms() -> None:
    query = image([1, 4, 7, 9], bits("1100", "1111", "1010", "0000"))
    found = image([4, 9], bits("1110", "0001"))
    compare = functools.partial(compare_binary, selectivity=power_selectivity(4, 3.0, 0.0))
    scores = word_scores(query, found, compare)
    assert scores.words.tolist() == [4, 9]
    assert (scores.query.tolist(), scores.found.tolist()) == ([1, 3], [0, 1])
    np.testing.assert_allclose(scores.scores, [0.5**3 / np.sqrt(8)] * 2, rtol=1e-15)


def test_weights_are_in_the_norms_of_all_words() -> None:
    query, found = image([0, 1], bits("11", "11")), image([1, 2], bits("11", "11"))
    compare = functools.partial(compare_binary, selectivity=power_selectivity(2, 1.0, 0.0))
    weights = np.asarray([5.0, 4.0, 12.0])
    np.testing.assert_allclose(word_scores(query, found, compare, weights).scores, [4 / (3 * 4)], rtol=1e-15)
    np.testing.assert_array_equal(word_scores(query, found, compare, np.zeros(3)).scores, [0.0])


def test_a_table_of_selectivities() -> None:
    values = np.asarray([2.0, 1.0, -0.5])
    compared = compare_binary(bits("11", "11", "11"), bits("11", "10", "00"), table_selectivity(values))
    np.testing.assert_allclose(compared, values, rtol=1e-11)


def test_real_codes_keep_the_sign_of_their_cosine() -> None:
    a = np.asarray([[1, 0], [1, 0], [0.6, 0.8], [1, 0]], np.float32)
    b = np.asarray([[1, 0], [-1, 0], [0.8, 0.6], [0, 1]], np.float32)
    np.testing.assert_allclose(compare_real(a, b, 2.0, -1.0), [1, -1, 0.96**2, 0], rtol=1e-6)
    np.testing.assert_allclose(compare_real(a, b, 0.0, 0.0), [1, 0, 1, 1], rtol=1e-6)
    np.testing.assert_allclose(compare_real(a, b, 1.0, 0.97), [1, 0, 0, 0], rtol=1e-6)


# -- Features


def test_shares_along_a_code_of_bits() -> None:
    """Residuals (3, 1) and (1, -2) sum to (4, -1), whose code is (+1, -1): 2 and 3 of 5."""
    vectors = np.asarray([[3, 1], [1, -2], [10, 5]], np.float32)
    assigned = np.asarray([[0], [0], [1]], np.int32)
    shares = feature_shares(vectors, assigned, CENTROIDS, ALL[:2], bits("10", "01"))
    assert (shares.rows.tolist(), shares.features.tolist()) == ([0, 0, 1], [0, 1, 2])
    np.testing.assert_allclose(shares.shares, [0.4, 0.6, 1.0], rtol=1e-15)


def test_shares_along_a_real_code() -> None:
    """Residuals (3, 1) and (1, -2) sum to (4, -1): along it 11 and 6 of 17."""
    vectors = np.asarray([[3, 1], [1, -2]], np.float32)
    code = np.asarray([[4, -1]], np.float32)
    shares = feature_shares(vectors, np.zeros((2, 1), np.int32), CENTROIDS, ALL[:1], code)
    np.testing.assert_allclose(shares.shares, [11 / 17, 6 / 17], rtol=1e-15)


def test_a_feature_that_speaks_against_the_code_has_a_negative_share() -> None:
    vectors = np.asarray([[3, 3], [-1, -1]], np.float32)
    shares = feature_shares(vectors, np.zeros((2, 1), np.int32), CENTROIDS, ALL[:1], bits("11"))
    np.testing.assert_allclose(shares.shares, [1.5, -0.5], rtol=1e-15)


@pytest.mark.parametrize("vectors", [[[0, 0], [0, 0]], [[3, 1], [-3, -1]]])
def test_residuals_of_nothing_are_shared_evenly(vectors: list[list[float]]) -> None:
    rows, assigned = np.asarray(vectors, np.float32), np.zeros((2, 1), np.int32)
    for code in (bits("00"), np.zeros((1, 2), np.float32)):
        assert feature_shares(rows, assigned, CENTROIDS, ALL[:1], code).shares.tolist() == [0.5, 0.5]


def test_a_feature_has_a_share_in_each_of_its_words() -> None:
    vectors = np.asarray([[4, 4]], np.float32)
    assigned = np.asarray([[2, 0, 1]], np.int32)
    shares = feature_shares(vectors, assigned, CENTROIDS, ALL[1:], bits("01", "10"))
    assert sorted(zip(*(part.tolist() for part in shares), strict=True)) == [(0, 0, 1.0), (1, 0, 1.0)]


def test_pairs_are_products_of_shares_summed_over_words() -> None:
    mine = Shares(np.asarray([0, 0, 1, 2]), np.asarray([5, 2, 5, 9]), np.asarray([0.25, 0.75, 1.0, 1.0]))
    theirs = Shares(np.asarray([2, 1, 0, 0]), np.asarray([0, 1, 1, 3]), np.asarray([1.0, 1.0, 1.5, -0.5]))
    pairs = pair_scores(np.asarray([0.4, 0.2, 0.0]), mine, theirs)
    found = list(zip(pairs.query.tolist(), pairs.found.tolist(), strict=True))
    assert found == [(2, 1), (5, 1), (5, 3), (2, 3)]  # the word of (9, 0) adds nothing
    np.testing.assert_allclose(pairs.scores, [0.45, 0.15 + 0.2, -0.05, -0.15], rtol=1e-14)


# -- Pixels


def test_overlaps_of_cells_and_pixels() -> None:
    np.testing.assert_array_equal(overlaps(2, 4), [[0.5, 0], [0.5, 0], [0, 0.5], [0, 0.5]])
    np.testing.assert_array_equal(overlaps(4, 2), [[1, 1, 0, 0], [0, 0, 1, 1]])
    np.testing.assert_allclose(overlaps(2, 3), [[2 / 3, 0], [1 / 3, 1 / 3], [0, 2 / 3]], rtol=1e-15)


def test_maps_of_several_grids_on_one_canvas() -> None:
    maps = [np.asarray([[1, 0]], np.float32), np.asarray([[0], [2]], np.float32)]
    canvas = spread(maps, np.asarray([3.0, -1.0]), 2, 2)
    np.testing.assert_array_equal(canvas, [[1.5, 0], [1.0, -0.5]])
    np.testing.assert_array_equal(spread([], np.empty(0), 2, 3), np.zeros((2, 3)))


# -- Groups


def test_pairs_near_each_other_in_both_images_are_a_group() -> None:
    query = np.asarray([[0.1, 0.1], [0.12, 0.1], [0.1, 0.11], [0.8, 0.8], [0.5, 0.5]])
    found = np.asarray([[0.7, 0.2], [0.7, 0.21], [0.2, 0.9], [0.3, 0.3], [0.5, 0.5]])
    scores = np.asarray([3.0, 2.0, 1.0, 4.0, -9.0])
    assert group_pairs(query, found, scores, 0.1, 6).tolist() == [0, 0, 2, 1, -1]
    assert group_pairs(query, found, scores, 0.1, 1).tolist() == [0, 0, -1, -1, -1]
    assert group_pairs(query, found, scores, 2.0, 6).tolist() == [0] * 5
    assert group_pairs(query, found, -np.abs(scores), 0.1, 6).tolist() == [-1] * 5


def test_a_pair_joins_the_nearest_seed() -> None:
    places = np.asarray([[0.0, 0.0], [0.3, 0.0], [0.18, 0.0], [0.3, 0.0]])
    scores = np.asarray([3.0, 1.5, -0.1, 1.0])
    assert group_pairs(places, places, scores, 0.2, 2).tolist() == [0, 1, 1, 1]
