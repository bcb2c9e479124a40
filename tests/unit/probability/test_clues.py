"""What speaks for a result besides its score."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from superfeat.features import ImageWords
from superfeat.probability.clues import place_clues, spread_of, support_of
from superfeat.probability.fit import pad_results
from superfeat.rerank.geometry import PlacedWords, Verification
from superfeat.rerank.strangers import Null, back_evidence, evidence

MODEST = settings(deadline=None, max_examples=40)


@MODEST
@given(st.integers(0, 2**32 - 1), st.integers(0, 8), st.integers(0, 6))
def test_support_is_the_best_of_the_weaker_links(seed: int, count: int, first: int) -> None:
    rng = np.random.default_rng(seed)
    above, speakers = rng.normal(2, 3, count), np.sort(rng.permutation(count)[:first])
    mutual = rng.normal(2, 3, (count, len(speakers)))
    slow = [
        max([0.0, *(min(mutual[row][k], above[s]) for k, s in enumerate(speakers) if s != row)]) for row in range(count)
    ]
    assert support_of(above, mutual, speakers).tolist() == slow


def test_spread_is_a_length_from_none_to_all() -> None:
    rng = np.random.default_rng(0)
    even = rng.random((4000, 4))
    every = np.ones(4000, np.bool_)
    assert abs(spread_of(even, every) - 1) < 0.03
    assert abs(spread_of(even / 2, every) - 0.5) < 0.02
    assert spread_of(even, np.arange(4000) == 7) == 0


def test_places_give_three_clues_and_zeros_where_nobody_knows() -> None:
    image = ImageWords(np.arange(4, dtype=np.int32), np.zeros((4, 16), np.uint8), "words")
    photo = PlacedWords(image, np.asarray([[0, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0], [1, 1, 0, 0]], np.float64), (1, 1))
    rows, shares = np.arange(4), np.full(4, 0.25)
    one = Verification(0.75, 0.8, 3, None, rows, shares, np.asarray([1.0, 1.0, 1.0, 0.0]), rows)
    clues = place_clues(photo, [photo, None, photo], [one, one, None])
    assert clues[0, :2].tolist() == [0.75, np.log1p(3)]
    assert clues[0, 2] > 0.9
    assert not clues[1:].any()
    assert not place_clues(None, [photo], [one]).any()


def test_from_the_other_side_a_query_that_scores_low_with_everybody_is_no_worse() -> None:
    collection, found = Null(-4.0, 0.5, 10), Null(-3.5, 0.4, 10)
    score = np.asarray([0.05])
    assert back_evidence(score, found, collection, collection) == evidence(score, found)
    lower = back_evidence(score / 3, found, Null(-4.0 - np.log(3), 0.5, 10), collection)
    assert np.allclose(lower, evidence(score, found))


def test_strangers_that_stand_for_many_more_score_as_more_of_the_same() -> None:
    """Exponential tails: the best of a hundred times as many lie log(100) of their excess higher."""
    rng = np.random.default_rng(0)
    scores = np.exp(rng.exponential(0.3, 30_000) - 5)
    labels = np.zeros(30_000, np.bool_)
    labels[:5] = True
    rows = np.arange(30_000)
    best = [
        np.log(np.sort(pad_results(rows, scores, labels, 300_000, np.random.default_rng(seed))[1])[-20:]).mean()
        for seed in range(40)
    ]
    real = np.log(np.sort(np.exp(rng.exponential(0.3, (20, 300_000)) - 5), axis=1)[:, -20:]).mean()
    assert abs(np.mean(best) - real) < 0.2
    padded = pad_results(rows, scores, labels, 300_000, rng)
    assert padded[2].sum() == 5
    assert pad_results(rows[:20], scores[:20], labels[:20], 300_000, rng)[0].tolist() == rows[:20].tolist()
