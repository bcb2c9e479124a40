"""Photos of the same thing and copies in a small index: which groups, in which order, and what is refused."""

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from superfeat.config import IndexConfig, SearchConfig
from superfeat.duplicates.find import (
    NEIGHBOURS,
    Group,
    Links,
    Looked,
    find_copies,
    find_duplicates,
    group_images,
    join_groups,
    with_same_files,
)
from superfeat.errors import SuperfeatError
from superfeat.index.codebook import Codebook
from superfeat.index.index import Index
from superfeat.probability.apply import judge_ranking
from superfeat.probability.model import Calibration, Origin
from superfeat.rerank.strangers import Null

DIM, WORDS, FEATURES = 128, 32, 24
COPIES = 0.6  # the similarity of copies in the tests of links
CODEBOOK = Codebook(5 * np.random.default_rng(0).standard_normal((WORDS, DIM)).astype(np.float32))
COPY, VIEW = 0.1, 0.8  # noise of another copy, and of another view of a thing


def photo(thing: int, view: int = 0, copy: int = 0) -> np.ndarray:
    """Features near some words of a thing, seen differently in each view and a little differently in each copy."""

    def noise(*seed: int) -> np.ndarray:
        return np.random.default_rng(seed).standard_normal((FEATURES, DIM))

    words = np.random.default_rng(thing).permutation(WORDS)[:FEATURES]
    seen = noise(1, thing) + VIEW * noise(2, thing, view) + COPY * noise(3, thing, view, copy) * (copy > 0)
    return np.asarray(CODEBOOK.centroids[words] + seen, np.float32)


@pytest.fixture(params=["binary", "real"])
def index(request: pytest.FixtureRequest, tmp_path: Path) -> Index:
    """Three views of thing 0, one of them twice more; thing 1 twice; things 2 to 5 once."""
    made = Index.create(tmp_path / "index", CODEBOOK, IndexConfig(kernel=request.param))
    for name, features in {
        "2": photo(2),
        "0 a": photo(0, 1),
        "1": photo(1),
        "0 b": photo(0, 2),
        "0 b copy": photo(0, 2, 1),
        "3": photo(3),
        "1 copy": photo(1, 0, 1),
        "0 c": photo(0, 3),
        "0 b copy 2": photo(0, 2, 2),
        "4": photo(4),
        "5": photo(5),
    }.items():
        made.add(name, features)
    return made


def groups_in(
    index: Index,
    least: float | None = None,
    *,
    calibration: Calibration | None = None,
    neighbours: int = NEIGHBOURS,
    workers: int | None = None,
) -> list[Group]:
    outcomes = find_duplicates(index, calibration, least=least, neighbours=neighbours, workers=workers)
    return [one for one in outcomes if isinstance(one, Group)]


def names_in(groups: Sequence[Group]) -> list[list[str]]:
    return [[member.name for member in group.members] for group in groups]


def test_things_and_copies(index: Index) -> None:
    thing, copies = groups_in(index)
    assert [member.name for member in thing.members] == ["0 a", "0 b", "0 b copy", "0 b copy 2", "0 c"]
    assert [member.copies for member in thing.members] == [None, 0, 0, 0, None]
    assert thing.kind == "same thing"
    assert [member.name for member in copies.members] == ["1", "1 copy"]
    assert [member.copies for member in copies.members] == [0, 0]
    assert copies.kind == "copies"
    assert [member.id for member in copies.members] == [index.id("1"), index.id("1 copy")]


def test_likeness_is_the_mean_over_links(index: Index) -> None:
    thing, copies = groups_in(index)
    score = index.search("1", only=["1 copy"]).scores[0]
    assert copies.likeness == pytest.approx(score)
    assert [member.likeness for member in copies.members] == pytest.approx([score, score])
    others = ["0 b", "0 b copy", "0 b copy 2", "0 c"]
    assert thing.members[0].likeness == pytest.approx(index.scores("0 a", others).mean())
    assert thing.likeness < copies.likeness


def test_progress_comes_before_groups(index: Index) -> None:
    outcomes = list(find_duplicates(index))
    looked = [one for one in outcomes if isinstance(one, Looked)]
    assert looked == [Looked(done, 11) for done in range(1, 12)]
    assert outcomes[: len(looked)] == looked


def test_what_does_not_change_the_answer(index: Index) -> None:
    """Threads, segments, and images that have come and gone; ids differ, so only names are compared."""
    expected = groups_in(index)
    assert groups_in(index, workers=1) == groups_in(index, workers=3) == expected
    index.compact()
    assert groups_in(index) == expected
    index.add("gone", photo(0, 2))
    index.delete("gone")
    assert groups_in(index) == expected
    assert groups_in(Index.open(index.path)) == expected


def test_an_index_that_changes_meanwhile(index: Index) -> None:
    """What was there at the beginning counts."""
    expected = groups_in(index)
    outcomes = find_duplicates(index)
    next(outcomes)
    index.add("late", photo(1))
    index.delete("0 c")
    index.compact()
    assert [one for one in outcomes if isinstance(one, Group)] == expected


def test_a_higher_least_gives_smaller_groups(index: Index) -> None:
    assert names_in(groups_in(index, 0.5)) == [["0 b", "0 b copy", "0 b copy 2"], ["1", "1 copy"]]
    assert groups_in(index, 1.0) == []


def test_largest_first_then_likeliest(tmp_path: Path) -> None:
    index = Index.create(tmp_path / "index", CODEBOOK)
    for thing, copies in ((0, (0, 1)), (1, (0, 0)), (2, (0, 1, 2))):
        for number, copy in enumerate(copies):
            index.add(f"{thing}{'abc'[number]}", photo(thing, 0, copy))
    assert names_in(groups_in(index)) == [["2a", "2b", "2c"], ["1a", "1b"], ["0a", "0b"]]


def test_equal_groups_come_in_the_order_of_ids(tmp_path: Path) -> None:
    index = Index.create(tmp_path / "index", CODEBOOK)
    for name, thing in (("d", 7), ("b", 3), ("a", 7), ("c", 3)):
        index.add(name, photo(thing))
    assert names_in(groups_in(index)) == [["d", "a"], ["b", "c"]]


def test_more_copies_than_neighbours(tmp_path: Path) -> None:
    """Every list is full, and an image need not even find itself."""
    index = Index.create(tmp_path / "index", CODEBOOK)
    for number in range(9):
        index.add(str(number), photo(0))
    (group,) = groups_in(index, neighbours=4)
    assert len(group.members) == 9
    assert group.kind == "copies"


def test_nothing_to_compare(tmp_path: Path) -> None:
    index = Index.create(tmp_path / "index", CODEBOOK)
    assert list(find_duplicates(index)) == []
    index.add("empty", np.empty((0, DIM), np.float32))
    index.add("empty too", np.empty((0, DIM), np.float32))
    index.add("one", photo(1))
    assert groups_in(index) == []


def test_with_a_calibration_likeness_is_a_probability(tmp_path: Path) -> None:
    index = Index.create(tmp_path / "index", CODEBOOK)
    for name, features in {"a": photo(0), "a view": photo(0, 1), "a copy": photo(0, 0, 1), "b": photo(1)}.items():
        index.add(name, features)
    origin = Origin(None, None, "binary", 3.0, 0.0)
    calibration = Calibration(-6.0, 2.0, 0.0, Null(float(np.log(0.005)), 0.5, 1e6), origin)
    (group,) = groups_in(index, calibration=calibration)
    assert [(member.name, member.copies) for member in group.members] == [("a", 0), ("a copy", 0), ("a view", None)]

    def chance(query: str, name: str) -> float:
        ranking, chances = judge_ranking(index, query, calibration, top=4)
        assert chances is not None
        return float(chances[ranking.names.index(name)])

    both = [min(chance("a copy", name), chance(name, "a copy")) for name in ("a", "a view")]
    assert group.members[1].likeness == pytest.approx(np.mean(both))
    assert groups_in(index, 1.0, calibration=calibration) == []


def test_a_calibration_of_something_else_is_refused(index: Index) -> None:
    origin = Origin(None, None, "binary", 2.0, 0.0)
    calibration = Calibration(-6.0, 2.0, 0.0, Null(-5.0, 1.0, 10.0), origin)
    with pytest.raises(SuperfeatError, match="calibration is for the kernel"):
        groups_in(index, calibration=calibration)


def test_settings_of_the_index_are_used(tmp_path: Path) -> None:
    """With another selectivity scores differ, and so do groups."""
    for alpha, expected in ((0.0, 2), (20.0, 0)):
        config = IndexConfig(search=SearchConfig(alpha=alpha))
        index = Index.create(tmp_path / f"{alpha}", CODEBOOK, config)
        index.add("a", photo(0, 1))
        index.add("b", photo(0, 2))
        assert sum(len(group.members) for group in groups_in(index)) == expected


@pytest.mark.parametrize(("least", "neighbours"), [(0.0, 5), (-1.0, 5), (1.1, 5), (float("nan"), 5), (0.5, 0)])
def test_settings_that_cannot_be(index: Index, least: float, neighbours: int) -> None:
    with pytest.raises(SuperfeatError, match="must be above 0"):
        list(find_duplicates(index, least=least, neighbours=neighbours))


# -- Copies alone


def test_copies_alone(index: Index) -> None:
    """No other views of a thing, and the same copies as in the groups of things."""
    groups = [one for one in find_copies(index) if isinstance(one, Group)]
    assert names_in(groups) == [["0 b", "0 b copy", "0 b copy 2"], ["1", "1 copy"]]
    assert {group.kind for group in groups} == {"copies"}
    assert [one for one in find_copies(index, least=1.0) if isinstance(one, Group)] == []
    with pytest.raises(SuperfeatError, match="must be above 0"):
        find_copies(index, least=2.0)


def test_files_of_the_same_bytes_are_copies_whatever_was_seen_in_them(tmp_path: Path) -> None:
    index = Index.create(tmp_path / "index", CODEBOOK)
    for name, digest in (("blank", "d1"), ("other blank", "d2"), ("blank again", "d1"), ("no digest", None)):
        index.add(name, np.empty((0, DIM), np.float32), {} if digest is None else {"digest": digest})
    for found in (find_copies(index), find_duplicates(index)):
        (group,) = [one for one in found if isinstance(one, Group)]
        assert [(one.name, one.likeness, one.copies) for one in group.members] == [
            ("blank", 1.0, 0),
            ("blank again", 1.0, 0),
        ]


# -- From links to groups


def links(*rows: tuple[int, int, float] | tuple[int, int, float, float]) -> Links:
    first, second, likeness, *more = zip(*rows, strict=True) if rows else ((), (), ())
    similarity = more[0] if more else [0.0] * len(rows)
    return Links(
        np.asarray(first, np.int64),
        np.asarray(second, np.int64),
        np.asarray(likeness, np.float64),
        np.asarray(similarity, np.float64),
    )


def test_no_links_no_groups() -> None:
    assert list(group_images(links(), COPIES)) == []
    assert join_groups([(3,), (5,)], links()) == [[0], [1]]


def test_the_likeliest_are_joined_first() -> None:
    """1 is like 0 and like 2, which are not alike, and 3 is like 2: 1 goes where it is likeliest."""
    rows = [(0, 1, 0.6), (1, 2, 0.9), (2, 3, 0.8), (1, 3, 0.8)]
    assert list(group_images(links(*rows), COPIES)) == [((1,), (2,), (3,))]


def test_a_photo_of_two_things() -> None:
    """0 shows the thing of 1, 2, 3 and that of 4, 5, 6."""
    rows = [(1, 2, 0.9), (1, 3, 0.9), (2, 3, 0.9), (4, 5, 0.8), (4, 6, 0.8), (5, 6, 0.8)]
    rows += [(0, image, 0.7) for image in range(1, 7)]
    assert sorted(group_images(links(*rows), COPIES)) == [((0,), (1,), (2,), (3,)), ((4,), (5,), (6,))]


def test_one_photo_does_not_drag_its_neighbour_along() -> None:
    """0 and 9 are the likeliest pair, but 9 is like none of those that 0 is like."""
    crowd = [(first, second, 0.8) for first in range(1, 8) for second in range(first + 1, 8)]
    rows = [(0, 9, 0.95), *((0, image, 0.9) for image in range(1, 8)), *crowd]
    groups = [{image for some in sets for image in some} for sets in group_images(links(*rows), COPIES)]
    assert all(not (9 in group and group & set(range(1, 8))) for group in groups)


def test_copies_are_sets_inside_of_groups() -> None:
    high, low = COPIES, COPIES - 0.01
    rows = [(0, 1, 0.9, high), (0, 2, 0.9, low), (1, 2, 0.9, low), (2, 3, 0.9, 1.0), (0, 3, 0.9, 0.1), (1, 3, 0.9, 0.1)]
    assert list(group_images(links(*rows), COPIES)) == [((0, 1), (2, 3))]


def test_groups_that_are_given_are_kept() -> None:
    """The copies 0 and 1 stay together whatever links them."""
    assert join_groups([(0, 1), (2,), (3,)], links((0, 2, 0.9), (1, 2, 0.9), (1, 3, 0.2))) == [[2], [0, 1]]


def test_links_of_the_same_files() -> None:
    """A pair that was found already is there once, and certain."""
    found = with_same_files(links((0, 1, 0.7, 0.2), (0, 2, 0.8, 0.9)), ["x", "y", "x", "x", None], 1)
    rows = zip(found.first, found.second, found.likeness, found.similarity, strict=True)
    assert sorted(rows) == [(0, 1, 0.7, 0.2), (0, 2, 1.0, 1.0), (2, 3, 1.0, 1.0)]


def test_one_weak_link_joins_no_two_groups() -> None:
    """Where several pairs could be linked and one is, it must be a strong one; two weak ones are enough."""
    pair, weak, strong = (0, 1, 0.95), (1, 2, 0.6), (1, 2, 0.93)
    assert join_groups([(0,), (1,), (2,)], links(pair, weak), sure=0.9) == [[2], [0, 1]]
    assert join_groups([(0,), (1,), (2,)], links(pair, strong), sure=0.9) == [[0, 1, 2]]
    assert join_groups([(0,), (1,), (2,)], links(pair, weak, (0, 2, 0.6)), sure=0.9) == [[0, 1, 2]]
    assert join_groups([(1,), (2,)], links(weak), sure=0.9) == [[0, 1]]  # of two photos there is but one pair


def test_two_things_that_look_alike_stay_apart() -> None:
    """All pairs of two groups are linked, but no link is sure; with a sure one in nine they are one thing."""
    inside = [
        (first, second, 0.95) for group in (range(3), range(3, 6)) for first, second in itertools.combinations(group, 2)
    ]
    across = [(first, second, 0.7) for first in range(3) for second in range(3, 6)]
    singles = [(image,) for image in range(6)]
    assert join_groups(singles, links(*inside, *across), sure=0.9) == [[0, 1, 2], [3, 4, 5]]
    assert join_groups(singles, links(*inside, *across[1:], (0, 3, 0.92)), sure=0.9) == [[0, 1, 2, 3, 4, 5]]
    assert join_groups(singles, links(*inside, *across)) == [[0, 1, 2, 3, 4, 5]]  # nobody knows what is sure
