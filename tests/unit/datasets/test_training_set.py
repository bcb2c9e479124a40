"""Training sets: drawing without repeats, parts numbered afresh, held-out things, and refusals that say what to do."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from superfeat.datasets.training_set import (
    TrainingSet,
    below,
    from_labels,
    is_file,
    missing_images,
    missing_photos,
    whole_numbers,
)
from superfeat.errors import DatasetError
from superfeat.images import Photo

MODEST = settings(deadline=None, max_examples=100)


def photos_of(count: int) -> tuple[Photo, ...]:
    return tuple(Photo(Path("photos") / f"{number}.jpg", f"{number}.jpg") for number in range(count))


def made(things: list[int], pairs: list[tuple[int, int]] | None = None) -> TrainingSet:
    array = None if pairs is None else np.asarray(pairs, np.int64).reshape(-1, 2)
    return TrainingSet(photos_of(len(things)), np.asarray(things, np.int64), array)


Parts = tuple[list[int], list[tuple[int, int]] | None]


@st.composite
def parts(draw: st.DrawFn, smallest: int = 0) -> Parts:
    """Few things with strange numbers, some of one image, with or without pairs (of themselves and repeated too)."""
    numbers = draw(st.lists(st.sampled_from([-4, 0, 1, 7, 1000]), min_size=smallest, max_size=14))
    inside = [(a, b) for a, one in enumerate(numbers) for b, other in enumerate(numbers) if one == other]
    return numbers, draw(st.none() | st.lists(st.sampled_from(inside), max_size=12)) if inside else None


def by_name(found: TrainingSet) -> dict[str, int]:
    return {photo.name: thing for photo, thing in zip(found.photos, found.things.tolist(), strict=True)}


def pair_names(found: TrainingSet) -> list[tuple[str, str]]:
    assert found.pairs is not None
    return [(found.photos[query].name, found.photos[positive].name) for query, positive in found.pairs]


# --- what it holds ----------------------------------------------------------------------------------------------------


def test_arrays_are_copied_and_cannot_be_changed() -> None:
    things = np.array([5, 5, 6])
    found = TrainingSet(photos_of(3), things, np.array([[0, 1]]))
    things[0] = 6
    assert found.things.tolist() == [5, 5, 6]
    assert found.pairs is not None
    for array in (found.things, found.pairs):
        assert array.dtype == np.int64
        with pytest.raises(ValueError, match="read-only"):
            array[:] = 0


def test_pairs_of_a_photo_with_itself_are_dropped() -> None:
    found = made([0, 0, 1], [(0, 1), (2, 2), (1, 0), (0, 0)])
    assert pair_names(found) == [("0.jpg", "1.jpg"), ("1.jpg", "0.jpg")]
    assert found.notes == ("2 pairs whose query is their positive were dropped",)
    assert made([0, 0], [(0, 1), (1, 1)]).notes == ("1 pair whose query is its positive was dropped",)


def test_a_pair_twice_is_one_and_the_order_stays() -> None:
    found = made([0, 0, 0], [(2, 1), (0, 1), (2, 1), (1, 2)])
    assert pair_names(found) == [("2.jpg", "1.jpg"), ("0.jpg", "1.jpg"), ("1.jpg", "2.jpg")]
    assert found.notes == ("1 pair given before was dropped",)
    assert made([0, 0], [(0, 1)]).notes == ()


def test_notes_are_kept_before_our_own() -> None:
    found = TrainingSet(photos_of(2), np.array([0, 0]), np.array([[0, 0]]), ("first",))
    assert found.notes == ("first", "1 pair whose query is its positive was dropped")
    assert found.subset([0]).notes == found.notes, "nothing is noted twice"


def test_pairs_of_two_things_are_refused() -> None:
    with pytest.raises(DatasetError, match=r"0\.jpg and 2\.jpg are given as a pair .* \(2 such pairs\): make them one"):
        made([3, 3, 4], [(0, 1), (0, 2), (2, 1)])


@pytest.mark.parametrize("pair", [(0, 2), (-1, 0), (0, 2**40)])
def test_pairs_outside_are_refused(pair: tuple[int, int]) -> None:
    with pytest.raises(DatasetError, match=r"a pair names image .*, but the 2 images are numbered from 0"):
        made([0, 0], [(0, 1), pair])


def test_a_thing_for_each_photo() -> None:
    for things in ([0], [0, 0, 0], []):
        with pytest.raises(
            DatasetError, match=f"there are 2 photos, but things for {len(things)}: give each photo one"
        ):
            TrainingSet(photos_of(2), np.asarray(things, np.int64), None)


def test_whole_numbers() -> None:
    assert whole_numbers([], "x").dtype == np.int64
    assert whole_numbers([], "x", (-1, 2)).shape == (0, 2)
    assert whole_numbers(np.array([3], np.uint8), "x").tolist() == [3]
    assert whole_numbers(np.array([2**63 - 1], np.uint64), "x").tolist() == [2**63 - 1]
    mixed = ([1, None], [1, "a"], [1j], [True], [1.0], [[0], [1, 2]], [[0, 1]])
    for wrong in (np.array([2**63], np.uint64), [10**30], 5, None, {}, {"a": 1}, "12", b"ab", *mixed):
        with pytest.raises(DatasetError, match=r"^x must be"):
            whole_numbers(wrong, "x")
    for flat in ([0, 1], [[0, 1, 1]], [[0.0, 1.0]], "01", [[0], [0, 1]]):
        with pytest.raises(DatasetError, match=r"^x must be"):
            whole_numbers(flat, "x", (-1, 2))


# --- drawing ----------------------------------------------------------------------------------------------------------


@MODEST
@given(parts(), st.integers(0, 20), st.integers(0, 2**32))
def test_drawn_pairs(parts_of: Parts, count: int, seed: int) -> None:
    found = made(*parts_of)
    drawn = found.draw_pairs(count, np.random.default_rng(seed))
    assert drawn.dtype == np.int64
    assert drawn.shape == (min(count, found.query_count()), 2)
    assert (drawn[:, 0] != drawn[:, 1]).all()
    assert (found.things[drawn[:, 0]] == found.things[drawn[:, 1]]).all()
    rows = [tuple(row) for row in drawn.tolist()]
    assert len(set(rows)) == len(rows)
    if found.pairs is None:
        assert len({query for query, _ in rows}) == len(rows)
    else:
        assert set(rows) <= {tuple(row) for row in found.pairs.tolist()}
    np.testing.assert_array_equal(drawn, found.draw_pairs(count, np.random.default_rng(seed)))


@MODEST
@given(parts())
def test_query_count(drawn: Parts) -> None:
    found = made(*drawn)
    images = Counter(found.things.tolist())
    if found.pairs is None:
        assert found.query_count() == sum(images[thing] > 1 for thing in found.things.tolist())
    else:
        assert found.query_count() == len(found.pairs)


def test_all_pairs_are_drawn_and_every_other_image_is_a_positive_sometimes() -> None:
    found = made([9, 2, 9, 2, 9, 5])
    random = np.random.default_rng(0)
    counts = Counter(tuple(row) for _ in range(300) for row in found.draw_pairs(99, random).tolist())
    assert set(counts) == {(0, 2), (0, 4), (2, 0), (2, 4), (4, 0), (4, 2), (1, 3), (3, 1)}
    assert counts[1, 3] == counts[3, 1] == 300
    assert all(110 < counts[pair] < 190 for pair in set(counts) - {(1, 3), (3, 1)})


def test_draws_go_on_with_the_generator() -> None:
    found = made([0] * 50)
    random = np.random.default_rng(1)
    first, second = found.draw_pairs(10, random), found.draw_pairs(10, random)
    assert not np.array_equal(first, second)


def test_given_pairs_are_drawn_in_random_order() -> None:
    found = made([0] * 40, [(query, query + 1) for query in range(39)])
    drawn = found.draw_pairs(39, np.random.default_rng(0))
    assert sorted(drawn.tolist()) == found.pairs.tolist()  # type: ignore[union-attr]
    assert drawn[:, 0].tolist() != list(range(39))


@pytest.mark.parametrize("balance", [0.0, 0.5, 1.0])
def test_balance_makes_things_as_likely_as_it_says(balance: float) -> None:
    """A thing with n pairs has the weight n^(1 - balance): with 1, every thing is as likely as any other."""
    sizes = {0: 1, 1: 4, 2: 20}
    things = [thing for thing, count in sizes.items() for _ in range(count + 1)]
    starts = {thing: things.index(thing) for thing in sizes}
    found = made(things, [(starts[thing], starts[thing] + 1 + n) for thing in sizes for n in range(sizes[thing])])
    random, draws = np.random.default_rng(3), 3000
    counts = Counter(int(found.things[found.draw_pairs(1, random, balance)[0, 0]]) for _ in range(draws))
    total = sum(count ** (1 - balance) for count in sizes.values())
    for thing, count in sizes.items():
        share = count ** (1 - balance) / total
        assert abs(counts[thing] - draws * share) < 4 * (draws * share * (1 - share)) ** 0.5, thing


@pytest.mark.parametrize("balance", [0.0, 0.5, 1.0])
def test_balance_without_pairs(balance: float) -> None:
    """A thing with n photos has the weight n^(1 - balance); one with a single photo is never asked."""
    sizes = {0: 2, 1: 5, 2: 20, 3: 1}
    found = made([thing for thing, count in sizes.items() for _ in range(count)])
    random, draws = np.random.default_rng(3), 3000
    counts = Counter(int(found.things[found.draw_pairs(1, random, balance)[0, 0]]) for _ in range(draws))
    assert counts.keys() == {0, 1, 2}
    total = sum(sizes[thing] ** (1 - balance) for thing in counts)
    for thing in counts:
        share = sizes[thing] ** (1 - balance) / total
        assert abs(counts[thing] - draws * share) < 4 * (draws * share * (1 - share)) ** 0.5, thing


def test_balanced_pairs_of_one_thing_are_equally_likely() -> None:
    found = made([0] * 5 + [1, 1], [(0, 1), (1, 2), (2, 3), (3, 4), (5, 6)])
    random = np.random.default_rng(4)
    counts = Counter(tuple(found.draw_pairs(1, random, 1.0)[0].tolist()) for _ in range(1600))
    assert all(140 < counts[pair] < 260 for pair in ((0, 1), (1, 2), (2, 3), (3, 4)))  # of 200
    assert 700 < counts[5, 6] < 900


@MODEST
@given(parts(), st.integers(0, 20), st.sampled_from([0.1, 1.0]), st.integers(0, 2**32))
def test_balanced_pairs_are_drawn_without_repeats(parts_of: Parts, count: int, balance: float, seed: int) -> None:
    found = made(*parts_of)
    drawn = found.draw_pairs(count, np.random.default_rng(seed), balance)
    assert drawn.dtype == np.int64
    assert drawn.shape == (min(count, found.query_count()), 2)
    assert len({tuple(row) for row in drawn.tolist()}) == len(drawn)
    if found.pairs is not None:
        assert {tuple(row) for row in drawn.tolist()} <= {tuple(row) for row in found.pairs.tolist()}
    np.testing.assert_array_equal(drawn, found.draw_pairs(count, np.random.default_rng(seed), balance))


def test_no_balance_is_the_draw_as_it_was() -> None:
    found = made([0] * 6 + [1] * 3, [(0, 1), (0, 2), (3, 4), (6, 7), (7, 8)])
    drawn, balanced = found.draw_pairs(3, np.random.default_rng(2)), found.draw_pairs(3, np.random.default_rng(2), 0.0)
    np.testing.assert_array_equal(drawn, balanced)


# --- parts ------------------------------------------------------------------------------------------------------------


def test_a_part_is_numbered_afresh() -> None:
    found = made([7, 3, 7, 5, 3], [(0, 2), (4, 1), (2, 0)]).subset([7, 3])
    assert [photo.name for photo in found.photos] == ["0.jpg", "1.jpg", "2.jpg", "4.jpg"]
    assert found.things.tolist() == [1, 0, 1, 0]
    assert found.pairs is not None
    assert found.pairs.tolist() == [[0, 2], [3, 1], [2, 0]]
    assert found.subset([0]).pairs.tolist() == [[1, 0]]  # type: ignore[union-attr]


@MODEST
@given(parts(), st.data())
def test_parts(drawn: Parts, data: st.DataObject) -> None:
    found = made(*drawn)
    known = sorted(set(found.things.tolist()))
    wanted = data.draw(st.lists(st.sampled_from(known))) if known else []
    part = found.subset(wanted)
    old, new = by_name(found), by_name(part)
    assert list(new) == [name for name, thing in old.items() if thing in wanted]
    assert set(new.values()) == set(range(len(set(wanted))))
    assert len({(old[name], new[name]) for name in new}) == len(set(wanted)), "one new number for each old one"
    assert (part.pairs is None) == (found.pairs is None)
    if found.pairs is not None:
        assert pair_names(part) == [pair for pair in pair_names(found) if pair[0] in new]
    again = part.subset(range(len(set(wanted))))
    assert by_name(again) == new


def test_a_part_of_nothing_and_of_what_is_not_there() -> None:
    found = made([7, 7], [(0, 1)])
    empty = found.subset([])
    assert (empty.photos, empty.things.shape, empty.query_count()) == ((), (0,), 0)
    assert empty.draw_pairs(5, np.random.default_rng(0)).shape == (0, 2)
    assert made([7, 7]).subset(()).draw_pairs(5, np.random.default_rng(0)).shape == (0, 2)
    with pytest.raises(DatasetError, match=r"there is no thing 8: choose among the 1 there are"):
        found.subset([7, 8])


# --- held-out things --------------------------------------------------------------------------------------------------


def can_be_queried(found: TrainingSet) -> set[int]:
    if found.pairs is not None:
        return {int(found.things[query]) for query, _ in found.pairs}
    return {thing for thing, count in Counter(found.things.tolist()).items() if count > 1}


@MODEST
@given(parts(smallest=2), st.floats(0.01, 0.99), st.integers(0, 5), st.randoms())
def test_held_out_things(drawn: Parts, fraction: float, seed: int, shuffler: Any) -> None:
    found = made(*drawn)
    eligible = can_be_queried(found)
    if len(eligible) < 2:
        with pytest.raises(DatasetError, match=r"can be queried, and one must remain .* hold out 0"):
            found.hold_out(fraction, seed)
        return
    rest, held = found.hold_out(fraction, seed)
    old = by_name(found)
    things = [{old[photo.name] for photo in part.photos} for part in (rest, held)]
    assert not things[0] & things[1]
    assert things[0] | things[1] == set(old.values())
    assert len(rest.photos) + len(held.photos) == len(found.photos)
    assert things[1] <= eligible
    assert 1 <= len(things[1]) < len(eligible)
    assert abs(len(things[1]) - fraction * len(eligible)) <= 1
    assert can_be_queried(held) == set(held.things.tolist())
    assert rest.query_count() + held.query_count() == found.query_count()
    assert rest.query_count() > 0
    again = shuffled(found, shuffler).hold_out(fraction, seed)[1]
    assert {photo.name for photo in again.photos} == {photo.name for photo in held.photos}


def shuffled(found: TrainingSet, shuffler: Any) -> TrainingSet:
    """The same photos in another order, their things under other numbers."""
    order = list(range(len(found.photos)))
    shuffler.shuffle(order)
    place = {image: number for number, image in enumerate(order)}
    pairs = None
    if found.pairs is not None:
        pairs = np.asarray([[place[image] for image in row] for row in found.pairs.tolist()], np.int64)[::-1]
    photos = tuple(found.photos[image] for image in order)
    return TrainingSet(photos, 50 - 3 * found.things[order], pairs)


def test_the_seed_chooses() -> None:
    found = made([image // 2 for image in range(200)])
    held = [{photo.name for photo in found.hold_out(0.2, seed)[1].photos} for seed in (0, 0, 1)]
    assert held[0] == held[1] != held[2]
    assert len(held[0]) == 40
    assert held[0] != {f"{number}.jpg" for number in range(40)}


def test_nothing_held_out() -> None:
    found = made([0, 0], [(0, 1)])
    rest, held = found.hold_out(0, 0)
    assert rest is found
    assert held.photos == ()


@pytest.mark.parametrize("fraction", [-0.1, 1, 1.5, float("nan"), float("inf")])
def test_fractions_that_are_none(fraction: float) -> None:
    with pytest.raises(DatasetError, match=r"cannot hold out .* give a fraction from 0 to below 1"):
        made([0, 0, 1, 1]).hold_out(fraction, 0)


def test_names_that_no_encoding_has() -> None:
    photos = tuple(Photo(Path(name), name) for name in ("\udcff/a.jpg", "\udcff/b.jpg", "é/a.jpg", "é/b.jpg"))
    rest, held = TrainingSet(photos, np.array([0, 0, 1, 1]), None).hold_out(0.5, 0)
    assert (len(rest.photos), len(held.photos)) == (2, 2)


# --- refusals ---------------------------------------------------------------------------------------------------------


def require_tuples(found: TrainingSet, negatives: int) -> None:
    """What a tuple of query, positive and negatives needs."""
    found.require_pairs()
    found.require_negatives(negatives)


@pytest.mark.parametrize(
    ("things", "pairs", "negatives", "message"),
    [
        ([], None, 1, "there are no photos to train on: give a folder"),
        ([1, 2, 3], None, 1, "no thing has two images, so no query has a positive (3 photos): add a second photo"),
        ([1, 1, 2], [], 1, "there is no pair of query and positive to train on: give pairs, or leave them out"),
        (
            [1, 1, 2, 3],
            None,
            5,
            "each query needs 5 negatives of 5 different other things, but there are only 3 things: "
            "add things, or set training.negatives to 2",
        ),
        ([1, 1], None, 1, "each query needs a negative of another thing, but there is only 1 thing: add things"),
    ],
)
def test_what_cannot_be_trained_on(
    things: list[int], pairs: list[tuple[int, int]] | None, negatives: int, message: str
) -> None:
    with pytest.raises(DatasetError) as raised:
        require_tuples(made(things, pairs), negatives)
    assert str(raised.value).startswith(message)
    assert "\n" not in str(raised.value)


def test_what_can_be_trained_on() -> None:
    require_tuples(made([1, 1, 2, 3]), 2)
    require_tuples(made([1, 1, 2, 3], [(0, 1)]), 2)
    require_tuples(made([1, 1]), 0)


# --- from labels ------------------------------------------------------------------------------------------------------


def test_labels_are_numbered_by_name() -> None:
    found = from_labels(photos_of(5), ["b", "a", "b", "ü", "a"], None, "table")
    assert found.things.tolist() == [1, 0, 1, 2, 0]
    assert found.notes == ("1 thing has one image and serves as negatives only: ü",)


def test_things_of_one_image_are_listed() -> None:
    found = from_labels(photos_of(7), ["a", "b", "c", "d", "e", "f", "f"], None, "table", ["before"])
    assert found.notes == ("before", "5 things have one image each and serve as negatives only: a, b, c, ...")


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["a", "a"], "t has only one thing (a), so that no query has a negative: add photos of other things"),
        (["a", "b"], "t has no thing with two images, so that no query has a positive (one image each: a, b): add a"),
    ],
)
def test_labels_that_make_no_tuples(labels: list[str], message: str) -> None:
    with pytest.raises(DatasetError, match=re.escape(message)):
        from_labels(photos_of(2), labels, None, "t")


def test_pairs_that_all_fall_away() -> None:
    with pytest.raises(DatasetError, match="t has no pair of two different photos: give pairs, or leave the list"):
        from_labels(photos_of(3), ["a", "a", "b"], np.array([[1, 1]]), "t")


# --- files ------------------------------------------------------------------------------------------------------------


def test_missing_images(tmp_path: Path) -> None:
    (tmp_path / "there.jpg").write_bytes(b"x")
    (tmp_path / "folder.jpg").mkdir()
    (tmp_path / "dangling.jpg").symlink_to(tmp_path / "nowhere")
    names = ["there.jpg", "folder.jpg", "dangling.jpg", "x" * 300, "there.jpg/below", "nul\0"]
    photos = tuple(Photo(tmp_path / name, name) for name in names)
    found = TrainingSet(photos, np.zeros(len(photos), np.int64), None)
    assert missing_images(found) == names[1:]
    assert missing_images(found, limit=2) == names[1:3]
    assert missing_images(found, limit=0) == missing_photos([]) == []


def test_a_folder_that_may_not_be_entered(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "is_file", fail)
    assert is_file(Path("a")) is False


@pytest.mark.parametrize("name", ["../a.jpg", "a/../../b", "/etc/passwd", "..", "..\\a.jpg", "a\\..\\..\\b", "\\a"])
def test_names_that_lead_out(name: str) -> None:
    with pytest.raises(DatasetError, match="paths must be relative to the folder of images and stay inside it"):
        below(name, "x")


@pytest.mark.parametrize("name", ["", " ", None, 5, "a\0b", ["a"]])
def test_names_that_are_none(name: Any) -> None:
    with pytest.raises(DatasetError, match=r"^x holds .*, which is no path of a photo"):
        below(name, "x")


def test_names_that_stay_inside() -> None:
    for name in ("a.jpg", "a/b c/..d.jpg", "ü/…", "a..b"):
        assert below(name, "x") == name
