"""Average precision over random rankings: it equals plain loops, lies between 0 and 1, and moves the right way."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles_datasets
from superfeat.evaluation.metrics import (
    average_precision,
    mean_average_precision,
    ns_score,
    paired_bootstrap,
    positive_ranks,
    precision_recall_curve,
    precisions_at,
    recall_at,
    revisited,
)

MODEST = settings(deadline=None, max_examples=150)
IMAGES = 12
numbers = st.sets(st.integers(-3, IMAGES + 3))  # negative: distractors; beyond: images that the ranking lacks


@st.composite
def rankings(draw: st.DrawFn) -> list[int]:
    """The best places of a ranking, or all of it, or none."""
    order = draw(st.permutations(range(-3, IMAGES)))
    return list(order[: draw(st.integers(0, len(order)))])


def as_array(ranking: list[int]) -> np.ndarray:
    return np.asarray(ranking, np.int64)


@MODEST
@given(rankings(), numbers, numbers)
def test_it_equals_plain_loops(ranking: list[int], positives: set[int], junk: set[int]) -> None:
    found = average_precision(as_array(ranking), positives, junk)
    if positives <= junk:
        assert math.isnan(found)
        return
    assert 0 <= found <= 1
    assert math.isclose(found, oracles_datasets.average_precision(ranking, positives, junk), abs_tol=1e-12)


@MODEST
@given(rankings(), numbers.filter(len))
def test_it_is_the_area_under_the_curve(ranking: list[int], positives: set[int]) -> None:
    area = oracles_datasets.area_under_curve(ranking, positives)
    assert math.isclose(average_precision(as_array(ranking), positives), area, abs_tol=1e-12)


@MODEST
@given(rankings(), numbers.filter(len), numbers)
def test_junk_might_as_well_not_be_there(ranking: list[int], positives: set[int], junk: set[int]) -> None:
    junk -= positives
    without = [image for image in ranking if image not in junk]
    assert average_precision(as_array(ranking), positives, junk) == average_precision(as_array(without), positives)


@MODEST
@given(rankings(), numbers.filter(len), st.integers(0, IMAGES + 2))
def test_a_positive_that_moves_up_never_hurts(ranking: list[int], positives: set[int], place: int) -> None:
    if 0 < place < len(ranking) and ranking[place] in positives:
        better = [*ranking]
        better[place - 1 : place + 1] = better[place], better[place - 1]
        gain = average_precision(as_array(better), positives) - average_precision(as_array(ranking), positives)
        assert gain >= -1e-12


def test_by_hand() -> None:
    ranking = as_array([7, 3, 9, 1])
    assert average_precision(ranking, [7, 3, 9, 1]) == 1
    assert average_precision(ranking, [7]) == 1
    assert average_precision(ranking, [3]) == (0 + 1 / 2) / 2
    assert average_precision(ranking, [3], junk=[7]) == 1
    assert average_precision(ranking, [3, 100]) == (0 + 1 / 2) / 2 / 2, "a positive that was not found"
    assert average_precision(ranking, [3, 3]) == average_precision(ranking, [3]), "named twice is one"
    assert average_precision(as_array([]), [3]) == 0
    assert average_precision(as_array([5, 6]).astype(np.int32), (6,), {5}) == 1


def test_the_mean_leaves_out_queries_without_positives() -> None:
    assert math.isnan(average_precision(as_array([1, 2]), []))
    assert math.isnan(average_precision(as_array([1, 2]), [1], junk=[1]))
    assert mean_average_precision([0.5, math.nan, 1.0]) == 0.75
    assert mean_average_precision(iter([0.25])) == 0.25
    assert math.isnan(mean_average_precision([]))
    assert math.isnan(mean_average_precision([math.nan]))


truths = st.fixed_dictionaries({"easy": numbers, "hard": numbers, "junk": numbers})


@MODEST
@given(st.lists(st.tuples(rankings(), truths), max_size=4))
def test_grades_equal_plain_loops(queries: list[tuple[list[int], dict[str, set[int]]]]) -> None:
    found = revisited([as_array(ranking) for ranking, _ in queries], [truth for _, truth in queries])
    grades = {
        "easy": ("easy", ("junk", "hard")),
        "medium": ("easy hard", ("junk",)),
        "hard": ("hard", ("junk", "easy")),
    }
    for grade, (right, ignored) in grades.items():
        expected = []
        for number, (ranking, truth) in enumerate(queries):
            positives = set().union(*(truth[kind] for kind in right.split()))
            junk = set().union(*(truth[kind] for kind in ignored))
            if positives <= junk:
                assert math.isnan(found[grade].aps[number])
                assert np.isnan(found[grade].prs[number]).all()
                continue
            expected.append(oracles_datasets.average_precision(ranking, positives, junk))
            assert math.isclose(found[grade].aps[number], expected[-1], abs_tol=1e-12)
            for place, depth in enumerate((1, 5, 10)):
                precision = oracles_datasets.precision_at(ranking, positives, junk, depth)
                assert math.isclose(found[grade].prs[number, place], precision, abs_tol=1e-12)
        assert found[grade].queries == len(expected)
        if expected:
            assert math.isclose(found[grade].map, sum(expected) / len(expected), abs_tol=1e-12)
        else:
            assert math.isnan(found[grade].map)
            assert np.isnan(found[grade].mp).all()


@MODEST
@given(rankings(), numbers.filter(len), st.integers(0, 20))
def test_recall_and_curve_equal_plain_loops(ranking: list[int], positives: set[int], depth: int) -> None:
    ranks, wanted = positive_ranks(as_array(ranking), positives)
    assert recall_at(ranks, wanted, depth) == len(positives & set(ranking[:depth])) / len(positives)
    levels = np.linspace(0, 1, 11)
    curve = precision_recall_curve(ranks, wanted, levels)
    expected = [oracles_datasets.interpolated_precision(ranking, positives, level) for level in levels.tolist()]
    np.testing.assert_allclose(curve, expected, atol=1e-12)
    assert (np.diff(curve) <= 1e-12).all()


def test_rankings_and_truth_must_fit() -> None:
    with pytest.raises(ValueError, match="1 rankings for 2 queries"):
        revisited([as_array([1])], [{}, {}])


def test_a_list_that_is_not_there_is_empty() -> None:
    found = revisited([as_array([2, 1])], [{"hard": [1]}])
    assert found["hard"].map == 0.25
    assert math.isnan(found["easy"].map)


def test_a_positive_that_is_named_twice_counts_once() -> None:
    ranks, wanted = positive_ranks(as_array([3, 1, 3, 3, 2]), [3, 2, 2])
    assert (ranks.tolist(), wanted) == ([0, 4], 2)
    assert average_precision(as_array([3, 3, 3]), [3]) == 1


def test_precision_by_hand() -> None:
    assert precisions_at(np.array([0, 2]), 3, (1, 5, 10)) == [1.0, 2 / 3, 2 / 3]
    assert precisions_at(np.array([], np.int64), 3, (1, 5)) == [0.0, 0.0]
    assert np.isnan(precisions_at(np.array([], np.int64), 0, (1, 5))).all()


def test_the_score_of_ukbench() -> None:
    rankings = [as_array([0, 1, 2, 3]), as_array([1, 9, 8, 0, 2]), as_array([5])]
    assert ns_score(rankings, [range(4), range(4), range(4)]) == (4 + 2 + 0) / 3
    assert math.isnan(ns_score([], []))


@MODEST
@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=30))
def test_the_bootstrap_holds_its_mean(pairs: list[tuple[float, float]]) -> None:
    first, second = np.asarray(pairs).T
    found = paired_bootstrap(first, second, rounds=300)
    assert found["low"] - 1e-12 <= found["high"]
    assert math.isclose(found["difference"], (second - first).mean(), abs_tol=1e-12)
    assert 0 < found["p"] <= 1
    assert paired_bootstrap(first, first, rounds=300)["p"] == 1
    assert found == paired_bootstrap(first, second, rounds=300), "a seed is a seed"


def test_what_the_bootstrap_calls_significant() -> None:
    random = np.random.default_rng(1)
    base = random.random(100)
    assert paired_bootstrap(base, base + 0.05 + 0.01 * random.standard_normal(100))["p"] < 0.001
    assert paired_bootstrap(base, base + 0.2 * random.standard_normal(100))["p"] > 0.01
    with_gap = base.copy()
    with_gap[3] = np.nan
    assert paired_bootstrap(base, with_gap)["difference"] == 0
    with pytest.raises(ValueError, match="no query"):
        paired_bootstrap(np.array([np.nan]), np.array([1.0]))


def test_the_bootstrap_is_right_about_normal_errors() -> None:
    """Its interval holds the true difference about 95 times in 100."""
    random = np.random.default_rng(2)
    held = 0
    for _ in range(200):
        gains = 0.1 + random.standard_normal(60)
        found = paired_bootstrap(np.zeros(60), gains, rounds=500, seed=int(random.integers(1 << 30)))
        held += found["low"] <= 0.1 <= found["high"]
    assert 180 <= held <= 199
