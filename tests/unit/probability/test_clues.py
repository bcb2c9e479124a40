"""What speaks for a result besides its score."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles_calibration as oracle
from superfeat.probability.clues import (
    CLUES,
    back_of,
    choose_witnesses,
    inliers_of,
    shape_clues,
    support_of,
    witness_of,
)
from superfeat.probability.fit import growth_of
from superfeat.rerank.geometry import Verification
from superfeat.rerank.strangers import Crowd, Null, meet_crowd

MODEST = settings(deadline=None, max_examples=40)


def random_crowd(rng: np.random.Generator, count: int) -> Crowd:
    return Crowd(rng.normal(-6, 1, count), rng.uniform(0.3, 2, count))


def above(score: float, crowd: Crowd, row: int) -> float:
    return float((np.log(score) - crowd.location[row]) / crowd.scale[row])


@MODEST
@given(st.integers(0, 2**32 - 1), st.integers(0, 8), st.integers(0, 6))
def test_support_is_the_best_of_the_weakest_links(seed: int, count: int, first: int) -> None:
    rng = np.random.default_rng(seed)
    scores, speakers = np.exp(rng.normal(-4, 2, count)), np.sort(rng.permutation(count)[:first])
    mutual = np.exp(rng.normal(-4, 2, (count, len(speakers))))
    found, query = random_crowd(rng, count), random_crowd(rng, 1)

    def link(row: int, column: int, speaker: int) -> float:
        both = above(mutual[row, column], found, row), above(mutual[row, column], found, speaker)
        return min(*both, above(scores[speaker], query, 0))

    slow = [
        max([0.0, *(link(row, column, s) for column, s in enumerate(speakers.tolist()) if s != row)])
        for row in range(count)
    ]
    assert np.allclose(support_of(scores, mutual, speakers, found, query), slow, rtol=1e-12)


@MODEST
@given(st.integers(0, 2**32 - 1), st.integers(0, 12))
def test_a_crowd_is_the_lower_half_of_all_scores_beside_what_is_known(seed: int, sample: int) -> None:
    rng = np.random.default_rng(seed)
    scores = np.exp(rng.normal(-6, 2, (5, sample))) * (rng.random((5, sample)) < 0.7)
    background = Null(-8.0, 1.5, 20)
    crowd = meet_crowd(scores, background)
    for row, location, scale in zip(scores, crowd.location, crowd.scale, strict=True):
        logs = np.log(row[row > 0])
        lower, middle = np.quantile(logs, (0.25, 0.5)) if len(logs) else (0.0, 0.0)
        own = len(logs) / (len(logs) + 20)
        assert np.isclose(location, own * middle - (1 - own) * 8)
        assert np.isclose(scale, max(0.3, own * (middle - lower) / 0.6745 + (1 - own) * 1.5))


@MODEST
@given(st.integers(0, 2**32 - 1), st.integers(0, 8))
def test_shapes_equal_plain_loops_and_never_fall(seed: int, count: int) -> None:
    clues = np.random.default_rng(seed).uniform(-2, 6, (count, len(CLUES)))
    clues[:, 0] = np.abs(clues[:, 0])  # a logarithm of one and more
    slow = [oracle.shaped_clues(one) for one in clues.tolist()]
    np.testing.assert_allclose(shape_clues(clues), np.reshape(slow, (count, len(CLUES))))
    assert (shape_clues(clues + 0.5) >= shape_clues(clues)).all()


def test_photos_that_are_alike_whatever_is_asked_have_no_say() -> None:
    """Frames on a wall: each is as like any other as any. Of twenty photos of one thing each stands out from 80."""
    rng = np.random.default_rng(0)
    wall = np.exp(rng.normal(-4, 0.5, (101, 101)))
    wall = np.sqrt(wall * wall.T)
    things = np.where(np.add.outer(np.arange(101) // 21, -(np.arange(101) // 21)) == 0, wall, wall * np.exp(-4))
    support = {}
    for name, pairs in (("wall", wall), ("things", things)):
        first = 1 + np.argsort(-pairs[0, 1:])[:20]
        query, found = (meet_crowd(pairs[rows][:, 1:], Null(-8.0, 1.2, 20)) for rows in ([0], first))
        mutual = pairs[np.ix_(first, first)]
        support[name] = support_of(pairs[0, first], mutual, np.arange(20), found, query)
    assert np.median(support["wall"]) < 3
    assert support["things"].min() > 4


@MODEST
@given(st.integers(0, 2**32 - 1), st.integers(0, 12), st.integers(0, 12))
def test_a_witness_says_the_less_of_what_it_shares_with_both(seed: int, count: int, first: int) -> None:
    rng = np.random.default_rng(seed)
    inliers, mutual = (np.log1p(rng.integers(0, 60, shape)) for shape in (count, (count, count)))
    speakers = np.sort(rng.permutation(count)[:first])
    witnesses = choose_witnesses(inliers, speakers)
    said = witness_of(inliers, mutual[witnesses].T, witnesses)
    assert np.allclose(said, oracle.witness(inliers.tolist(), mutual.tolist(), speakers.tolist()), rtol=1e-12)


def test_witnesses_are_the_few_with_whom_most_words_agree() -> None:
    inliers = np.log1p([13, 14, 40, 20, 30, 25, 50, 60])
    assert choose_witnesses(inliers, np.arange(7)).tolist() == [6, 2, 4, 5, 3]
    assert choose_witnesses(inliers, np.arange(2)).tolist() == [1]
    assert not len(choose_witnesses(inliers, np.arange(1)))


def test_inliers_are_logarithms_and_zeros_where_nobody_knows() -> None:
    rows, shares = np.arange(4), np.full(4, 0.25)
    one = Verification(0.75, 0.8, 3, None, rows, shares, np.asarray([1.0, 1.0, 1.0, 0.0]), rows)
    assert inliers_of([one, None]).tolist() == [np.log1p(3), 0.0]
    assert inliers_of([]).shape == (0,)


def test_from_the_other_side_a_query_that_scores_low_with_everybody_is_no_worse() -> None:
    found, usual = random_crowd(np.random.default_rng(0), 3), -4.0
    scores = np.asarray([0.05, 0.01, 0.2])
    query = Crowd(np.asarray([usual]), np.asarray([1.0]))
    assert np.array_equal(back_of(scores, found, query, usual), found.above(scores))
    lower = Crowd(query.location - np.log(3), query.scale)
    assert np.allclose(back_of(scores / 3, found, lower, usual), found.above(scores))


def test_strangers_of_a_larger_collection_score_higher() -> None:
    """Exponential tails: the best of a hundred times as many lie log(100) of their excess higher, all of them."""
    rng = np.random.default_rng(0)
    scores = np.exp(rng.exponential(0.3, 3_000) - 5)
    grown = np.sort(np.log(scores * growth_of(scores, 100)))[-50:]
    real = np.sort(rng.exponential(0.3, (20, 300_000)) - 5, axis=1)[:, -50:].mean(axis=0)
    assert np.abs(grown - real).max() < 0.5
    assert abs((grown - real).mean()) < 0.35, "a scale from 90 of them"
    assert growth_of(scores, 1) == 1
    assert growth_of(scores[:40], 100) == 1, "too few show how strangers score"
    assert growth_of(np.zeros(100), 100) == 1
