"""Posting lists: sorted by word, joined, looked up, checked."""

import itertools

import numpy as np
import pytest

from superfeat.index import postings
from superfeat.index.kernel import Postings
from superfeat.index.postings import (
    check_ids,
    check_starts,
    count_images,
    find_postings,
    join_postings,
    sort_postings,
    weight_sums,
)

WORDS = 6
IMAGES = [[0, 2, 5], [], [2], [1, 2, 5]]  # word 3 and 4 are empty, image 1 too


def build(images: list[list[int]], first_code: int = 0) -> Postings:
    words = np.asarray([word for image in images for word in image], np.int32)
    sizes = np.asarray([len(image) for image in images], np.int64)
    codes = np.arange(first_code, first_code + 2 * len(words), dtype=np.uint64).reshape(-1, 2)
    return sort_postings(words, sizes, codes, WORDS)


def lists(postings: Postings) -> list[list[tuple[int, list[int]]]]:
    """For each word the images and their codes."""
    starts = postings.starts.tolist()
    return [
        [(int(postings.ids[place]), postings.codes[place].tolist()) for place in range(begin, end)]
        for begin, end in itertools.pairwise(starts)
    ]


def test_sorted_by_word_and_then_by_image() -> None:
    postings = build(IMAGES)
    assert [array.dtype for array in postings] == [np.uint32, np.uint16, np.uint64]
    assert lists(postings) == [
        [(0, [0, 1])],
        [(3, [8, 9])],
        [(0, [2, 3]), (2, [6, 7]), (3, [10, 11])],
        [],
        [],
        [(0, [4, 5]), (3, [12, 13])],
    ]


@pytest.mark.parametrize("images", [[], [[]], [[], []]])
def test_nothing_to_sort(images: list[list[int]]) -> None:
    postings = build(images)
    assert postings.starts.tolist() == [0] * (WORDS + 1)
    assert postings.ids.shape == (0,)
    assert postings.codes.shape == (0, 2)


def test_real_codes_are_sorted_too() -> None:
    codes = np.asarray([[0.5, 1], [2, 3], [4, 5]], np.float32)
    postings = sort_postings(np.asarray([2, 4, 2], np.int32), np.asarray([2, 1]), codes, WORDS)
    assert postings.codes.dtype == np.float32
    np.testing.assert_array_equal(postings.codes, codes[[0, 2, 1]])


def test_joined_without_the_dead() -> None:
    second = [[2, 4], [0, 2]]
    joined = join_postings(
        [build(IMAGES), build(second, 100)], [np.array([True, True, False, True]), np.array([False, True])]
    )
    expected = build([IMAGES[0], IMAGES[1], IMAGES[3], second[1]])
    assert [[image for image, _ in part] for part in lists(joined)] == [
        [image for image, _ in part] for part in lists(expected)
    ]
    assert lists(joined)[0] == [(0, [0, 1]), (3, [104, 105])]
    assert lists(joined)[2] == [(0, [2, 3]), (2, [10, 11]), (3, [106, 107])]


def test_joined_with_nobody_left() -> None:
    joined = join_postings([build(IMAGES)], [np.zeros(4, np.bool_)])
    assert joined.starts.tolist() == [0] * (WORDS + 1)
    assert len(joined.ids) == 0


def test_one_part_and_all_kept_is_the_same() -> None:
    postings = build(IMAGES)
    for ours, theirs in zip(join_postings([postings], [np.ones(4, np.bool_)]), postings, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_segment_full_to_the_last_id() -> None:
    sizes = np.ones(1 << 16, np.int64)
    words = np.arange(1 << 16).astype(np.int32) % WORDS
    postings = sort_postings(words, sizes, np.arange(1 << 16, dtype=np.uint64)[:, None], WORDS)
    assert check_ids(postings, sizes.astype(np.uint32)) is None
    np.testing.assert_array_equal(postings.codes[:, 0], postings.ids)
    keep = np.ones(1 << 16, np.bool_)
    np.testing.assert_array_equal(join_postings([postings], [keep]).ids, postings.ids)
    assert find_postings(postings, 65535)[0].tolist() == [65535 % WORDS]


def test_the_postings_of_an_image() -> None:
    postings = build(IMAGES)
    for image, expected in enumerate(IMAGES):
        words, places = find_postings(postings, image)
        assert words.dtype == np.int32
        assert words.tolist() == expected
        assert (postings.ids[places] == image).all()
    assert find_postings(postings, 4)[0].tolist() == []


def test_images_of_each_word() -> None:
    postings = build(IMAGES)
    assert count_images(postings, np.ones(4, np.bool_)).tolist() == [1, 1, 3, 0, 0, 2]
    assert count_images(postings, np.array([False, True, True, True])).tolist() == [0, 1, 2, 0, 0, 1]


def test_weights_of_each_image() -> None:
    sums = weight_sums(build(IMAGES), np.asarray([1.0, 2, 4, 8, 16, 32]), 4)
    assert sums.tolist() == [37, 0, 4, 38]


# --- checks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("starts", [[], [0, 1, 3], [1, 2, 4], [0, 3, 2, 4], [0, 5, 4]])
def test_bad_boundaries(starts: list[int]) -> None:
    assert check_starts(np.asarray(starts, np.uint32), 4) == "its lists overlap or leave gaps"


@pytest.mark.parametrize("starts", [[0, 4], [0, 0, 4, 4], [0, 1, 2, 4]])
def test_good_boundaries(starts: list[int]) -> None:
    assert check_starts(np.asarray(starts, np.uint32), 4) is None


def test_good_ids() -> None:
    assert check_ids(build(IMAGES), np.asarray([3, 0, 1, 3], np.uint32)) is None
    assert check_ids(build([]), np.asarray([], np.uint32)) is None
    assert check_ids(build([[]]), np.asarray([0], np.uint32)) is None


def test_bad_ids() -> None:
    postings, sizes = build(IMAGES), np.asarray([3, 0, 1, 3], np.uint32)
    changed = postings.ids.copy()
    changed[2:5] = [0, 3, 2]
    assert check_ids(postings._replace(ids=changed), sizes) == "a list is not in the order of its images"
    changed[2:5] = [0, 0, 3]
    wrong = check_ids(postings._replace(ids=changed), np.asarray([4, 0, 0, 3], np.uint32))
    assert wrong == "a list is not in the order of its images"
    changed[2:5] = [0, 1, 3]
    assert check_ids(postings._replace(ids=changed), sizes) == "an image has more or fewer postings than words"
    changed[2:5] = [0, 2, 4]
    assert check_ids(postings._replace(ids=changed), sizes) == "a posting names an image that is not there"


@pytest.mark.parametrize("one_way", [True, False])
def test_several_images_are_found_as_one_by_one(one_way: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postings, "POSTINGS_PER_SEARCH", 1_000_000 if one_way else 0)
    rng = np.random.default_rng(0)
    sizes = rng.integers(0, 9, 30)
    words = np.concatenate([np.sort(rng.choice(40, size, replace=False)) for size in sizes]).astype(np.int32)
    made = postings.sort_postings(words, sizes, np.zeros((len(words), 2), np.uint64), 40)
    images = np.asarray([29, 3, 17, 0])
    for image, (found, places) in zip(images, postings.find_many(made, images, sizes[images]), strict=True):
        alone = postings.find_postings(made, int(image))
        assert np.array_equal(found, alone[0])
        assert np.array_equal(places, alone[1])


def test_an_image_that_claims_fewer_words_than_it_has_gets_no_more() -> None:
    made = postings.sort_postings(np.asarray([1, 2, 3], np.int32), np.asarray([3]), np.zeros((3, 2), np.uint64), 4)
    ((found, places),) = postings.find_many(made, np.asarray([0]), np.asarray([2]))
    assert found.tolist() == [1, 2]
    assert len(places) == 2
