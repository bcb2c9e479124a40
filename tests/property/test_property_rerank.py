"""Verification against plain loops, and what must hold of any photos."""

import math

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

import oracles_rerank as oracle
from superfeat.config import SearchConfig
from superfeat.features import ImageWords
from superfeat.index.segments import Layout
from superfeat.index.snapshot import Snapshot
from superfeat.rerank.geometry import PlacedWords, Verification, turn, verify_photos
from superfeat.rerank.verify import Correspondences, find_agreements

MODEST = settings(deadline=None, max_examples=60)
LAYOUT = Layout(words=4096, dim=128, binary=True, codebook="words")
EXACT = 1e-9


def some_places(rng: np.random.Generator, count: int) -> np.ndarray:
    return np.concatenate((rng.uniform(0, 1, (count, 2)), rng.uniform(0.01, 0.2, (count, 2))), axis=1)


def a_photo(rng: np.random.Generator, count: int, size: tuple[float, float] = (640, 480)) -> PlacedWords:
    words = np.sort(rng.choice(LAYOUT.words, count, replace=False)).astype(np.int32)
    codes = rng.integers(0, 256, (count, 16), dtype=np.uint8)
    return PlacedWords(ImageWords(words, codes, "words"), some_places(rng, count), size)


def verify(query: PlacedWords, *photos: PlacedWords, workers: int = 1, turned: bool = False) -> list[Verification]:
    snapshot = Snapshot.in_memory(LAYOUT, [photo.image for photo in photos])
    return verify_photos(snapshot, query, list(photos), SearchConfig(), workers=workers, turned=turned)


def part_of(photo: PlacedWords, box: tuple[float, float, float, float]) -> PlacedWords:
    """What is in a box of the photo, as a photo of its own."""
    left, top, width, height = box
    inside = (np.abs(photo.places[:, 0] - left - width / 2) <= width / 2) & (
        np.abs(photo.places[:, 1] - top - height / 2) <= height / 2
    )
    places = (photo.places[inside] - (left, top, 0, 0)) / (width, height, width, height)
    image = ImageWords(photo.image.words[inside], photo.image.codes[inside], "words")
    return PlacedWords(image, places, (photo.size[0] * width, photo.size[1] * height))


@MODEST
@given(st.integers(0, 2**32 - 1), st.integers(0, 30), st.floats(0, 1))  # plain loops over many take long
@example(0, 70, 0.4)
@example(1, 65, 0.9)
def test_it_finds_what_plain_loops_find(seed: int, count: int, moved: float) -> None:
    rng = np.random.default_rng(seed)
    query, found = some_places(rng, count), some_places(rng, count)
    together = rng.random(count) < moved
    found[together, :2] = query[together, :2] * 0.7 + 0.1 + rng.normal(0, 0.02, (int(together.sum()), 2))
    shares = rng.exponential(1, count)
    fast = find_agreements(Correspondences(np.asarray([0, count]), shares, query, found))
    weights, transform, chance = oracle.find_agreement(shares.tolist(), query.tolist(), found.tolist())
    assert np.allclose(fast.weights, weights, atol=1e-7)
    assert np.allclose(fast.transforms[0].ravel(), transform or [0] * 6, atol=1e-7)
    assert math.isclose(fast.chances[0], chance, abs_tol=1e-9)


@MODEST
@given(st.integers(0, 2**32 - 1), st.integers(20, 150))
def test_a_photo_agrees_with_itself(seed: int, count: int) -> None:
    photo = a_photo(np.random.default_rng(seed), count)
    (found,) = verify(photo, photo)
    assert found.verified == 1
    assert found.inliers == count
    assert found.transform is not None
    assert np.allclose(found.transform, [[1, 0, 0], [0, 1, 0]], atol=1e-6)


@MODEST
@given(st.integers(0, 2**32 - 1), st.integers(0, 3), st.booleans())
def test_a_turned_photo_agrees_where_turns_are_tried(seed: int, turns: int, part: bool) -> None:
    """The corners of the query lie in the found photo where the turn brings them."""
    query = a_photo(np.random.default_rng(seed), 60)
    whole = turn(query, turns)
    assert whole.size == (query.size if turns % 2 == 0 else query.size[::-1])
    photo = part_of(whole, (0.1, 0.1, 0.8, 0.8)) if part else whole
    (found,) = verify(query, photo, turned=True)
    assert found.verified > 0.9
    assert found.transform is not None
    corners = np.asarray([(0.0, 0.0, 1.0), (1.0, 0.0, 1.0), (0.3, 0.8, 1.0)])
    expected = corners[:, :2]
    for _ in range(turns):
        expected = np.column_stack([1 - expected[:, 1], expected[:, 0]])
    expected = (expected - 0.1) / 0.8 if part else expected
    np.testing.assert_allclose(corners @ np.asarray(found.transform).T, expected, atol=0.08)
    (upright,) = verify(query, photo)
    assert upright.agreement <= found.agreement


@MODEST
@given(
    st.integers(0, 2**32 - 1),
    st.tuples(st.floats(0, 0.5), st.floats(0, 0.5), st.floats(0.5, 1), st.floats(0.5, 1)),
    st.tuples(st.floats(0, 0.5), st.floats(0, 0.5), st.floats(0.5, 1), st.floats(0.5, 1)),
)
def test_a_part_of_a_photo_agrees_with_the_photo_and_with_another_part(
    seed: int, one: tuple[float, float, float, float], other: tuple[float, float, float, float]
) -> None:
    """Shifted, scaled and cropped, in photos of other shapes."""
    whole = a_photo(np.random.default_rng(seed), 150)
    query, photos = part_of(whole, one), [whole, part_of(whole, other)]
    for box, found in zip(((0.0, 0.0, 1.0, 1.0), other), verify(query, *photos), strict=True):
        if len(found.shares) < 8:
            continue
        assert found.verified > 0.999
        expected = [[one[2] / box[2], 0, (one[0] - box[0]) / box[2]], [0, one[3] / box[3], (one[1] - box[1]) / box[3]]]
        assert found.transform is not None
        assert np.allclose(found.transform, expected, atol=0.05)


@MODEST
@given(st.integers(0, 2**32 - 1), st.integers(0, 60), st.integers(0, 60), st.floats(0, 1))
def test_the_verified_and_the_unverified_part_add_up_to_the_score(seed: int, a: int, b: int, same: float) -> None:
    rng = np.random.default_rng(seed)
    query, photo = a_photo(rng, a), a_photo(rng, b)
    common = np.flatnonzero(rng.random(min(a, b)) < same)
    words = np.sort(np.concatenate((photo.image.words[common], np.setdiff1d(query.image.words, photo.image.words)))[:a])
    query = PlacedWords(ImageWords(words, query.image.codes[: len(words)], "words"), query.places[: len(words)], (3, 4))
    (found,) = verify(query, photo)
    snapshot = Snapshot.in_memory(LAYOUT, [photo.image])
    score = snapshot.search(query.image, SearchConfig()).scores[0]
    agreed = math.fsum(found.shares * found.weights)
    assert abs(agreed + math.fsum(found.shares * (1 - found.weights)) - score) < EXACT
    assert abs(found.verified * score - agreed) < EXACT
    assert ((found.weights >= 0) & (found.weights <= 1)).all()


def test_photos_of_nothing_in_common_are_not_verified() -> None:
    """They share words, as photos do, in places that have nothing to do with each other."""
    rng = np.random.default_rng(0)
    query = a_photo(rng, 400)
    photos = []
    for _ in range(60):
        other = a_photo(rng, 200)
        shared = np.sort(rng.choice(400, 80, replace=False))
        image = ImageWords(query.image.words[shared], rng.integers(0, 256, (80, 16), dtype=np.uint8), "words")
        photos.append(PlacedWords(image, other.places[:80], (480, 640)))
    shares = [found.verified for found in verify(query, *photos)]
    assert np.mean(shares) < 0.03
    assert max(shares) < 0.1


def test_any_number_of_threads_gives_the_same() -> None:
    rng = np.random.default_rng(1)
    query = a_photo(rng, 300)
    photos = [part_of(query, (x / 60, 0, 0.5, 1)) for x in range(30)] + [a_photo(rng, 200) for _ in range(30)]
    alone = verify(query, *photos)
    for workers in (2, 5):
        for one, other in zip(alone, verify(query, *photos, workers=workers), strict=True):
            assert one[:4] == other[:4]
            assert np.array_equal(one.weights, other.weights)
    assert [one[:4] for one in verify(query, *photos[::-1])] == [one[:4] for one in alone[::-1]]
