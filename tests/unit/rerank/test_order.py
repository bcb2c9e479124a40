"""The orders after a second look, against plain loops, and what must hold of them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles_rerank as oracle
from superfeat.features import ImageWords
from superfeat.rerank import order
from superfeat.rerank.geometry import PlacedWords, Verification, outline_of

MODEST = settings(deadline=None, max_examples=40)
SAME = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0))
NO_ROWS, NO_SHARES = np.empty(0, np.int64), np.empty(0)


def verification(agreement: float, verified: float = 0.5, inliers: int = 40) -> Verification:
    return Verification(verified, agreement, inliers, SAME, NO_ROWS, NO_SHARES, NO_SHARES, NO_ROWS)


def some_words(rng: np.random.Generator, count: int, words: int = 40) -> PlacedWords:
    chosen = np.sort(rng.choice(words, count, replace=False)).astype(np.int32)
    image = ImageWords(chosen, rng.integers(0, 256, (count, 16), dtype=np.uint8), "words")
    return PlacedWords(image, rng.uniform(-0.2, 1.2, (count, 4)), (4, 3))


def signs(image: ImageWords) -> dict[int, list[int]]:
    bits = np.unpackbits(image.codes, axis=1).astype(int)
    return {int(word): (2 * row - 1).tolist() for word, row in zip(image.words, bits, strict=True)}


def test_what_agrees_more_comes_first_and_nothing_is_lost() -> None:
    scores = np.asarray([0.4, 0.3, 0.29, 0.1])
    found = [None, verification(-2.0), verification(0.5), verification(1.0)]
    assert order.agreed_scores(scores, found).tolist() == [0.4, 0.3, 0.29 * 1.5, 0.2]
    assert order.descending(order.agreed_scores(scores, found)).tolist() == [2, 0, 1, 3]
    assert order.descending(np.asarray([1.0, 1.0, 2.0])).tolist() == [2, 0, 1]


@MODEST
@given(st.integers(0, 2**32 - 1), st.integers(0, 14))
def test_diffusion_is_what_plain_loops_come_to(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    scores, similarities = rng.random(count), rng.uniform(-0.1, 1, (count, count))
    similarities = (similarities + similarities.T) / 2
    floor = float(rng.uniform(0, 0.8))
    slow = oracle.diffused(scores.tolist(), similarities.tolist(), order.NEIGHBOURS, floor, order.DIFFUSED)
    assert np.allclose(order.diffuse(scores, similarities, floor), slow, atol=1e-9)


def test_diffusion_among_strangers_keeps_the_order() -> None:
    scores = np.asarray([0.5, 0.4, 0.3])
    assert np.array_equal(order.diffuse(scores, np.eye(3), 0.0), scores)
    alike = np.asarray([[1.0, 0.1, 0.1], [0.1, 1.0, 0.5], [0.1, 0.5, 1.0]])
    found = order.diffuse(scores, alike, 0.2)  # the last two are of one thing, the first is a stranger to both
    assert found[0] == scores[0]
    lent = order.DIFFUSED
    assert found.tolist() == pytest.approx([0.5, (0.4 + lent * 0.3) / (1 + lent), (0.3 + lent * 0.4) / (1 + lent)])


@MODEST
@given(st.integers(0, 2**32 - 1), st.integers(0, 20), st.integers(0, 3))
def test_a_wider_query_is_what_plain_loops_come_to(seed: int, count: int, photos: int) -> None:
    rng = np.random.default_rng(seed)
    query, others = some_words(rng, count).image, [some_words(rng, 15) for _ in range(photos)]
    found = [verification(1.0, verified=float(rng.random())) for _ in others]
    wider = order.expand_query(query, others, found, 128)
    inside = [((one.places[:, :2] >= 0) & (one.places[:, :2] <= 1)).all(axis=1) for one in others]
    parts = [
        (signs(ImageWords(one.image.words[kept], one.image.codes[kept], "words")), each.verified)
        for one, kept, each in zip(others, inside, found, strict=True)
    ]
    assert signs(wider) == oracle.expanded(signs(query), parts, order.OWN_VOTES)


def test_only_what_is_well_verified_widens_a_query() -> None:
    assert order.is_verified(verification(1.0))
    assert not order.is_verified(None)
    assert not order.is_verified(verification(1.0, inliers=order.LEAST_INLIERS - 1))
    assert not order.is_verified(verification(1.0, verified=order.LEAST_VERIFIED - 0.01))


def test_the_outline_is_that_of_the_query_or_of_its_box() -> None:
    assert outline_of(SAME) == ((0, 0), (1, 0), (1, 1), (0, 1))
    moved = ((0.5, 0.0, 0.25), (0.0, 0.5, 0.5))
    assert outline_of(moved, (0.0, 0.0, 0.5, 1.0)) == ((0.25, 0.5), (0.5, 0.5), (0.5, 1.0), (0.25, 1.0))
