"""Average precision over random rankings: it equals plain loops, lies between 0 and 1, and moves the right way."""

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles_datasets
from superfeat.metrics import average_precision, mean_average_precision

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
