"""Which photo is which: one index after another state of the files, without a network."""

import shutil
from pathlib import Path

import pytest

from fixtures_index import CODEBOOK, vectors
from superfeat.features import Meta
from superfeat.images import Photo
from superfeat.index.entries import Added
from superfeat.index.identity import Register
from superfeat.index.index import Index


@pytest.fixture
def index(tmp_path: Path) -> Index:
    (tmp_path / "photos").mkdir()
    return Index.create(tmp_path / "index", CODEBOOK)


def photo(index: Index, name: str, content: str | None = None) -> Photo:
    path = index.path.parent / "photos" / name
    if content is not None:
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
    return Photo(path, name)


def bring_in(index: Index, one: Photo, **changes: object) -> int:
    facts: Meta = {**Register(index).facts(one), **changes}
    facts = {key: value for key, value in facts.items() if value is not None}
    return index.add(one.name, vectors(len(index), 3), facts).id


def test_a_photo_that_took_the_place_of_another_is_moved_and_the_other_is_dropped(index: Index) -> None:
    a, b = photo(index, "a.jpg", "one"), photo(index, "b.jpg", "another")
    ids = [bring_in(index, a), bring_in(index, b)]
    a.path.replace(b.path)
    register = Register(index)
    assert [one.name for one in register.sort([b]).changed] == ["b.jpg"]
    assert register.settle(b, copies=False) == Added("b.jpg", ids[0], "moved")
    assert register.drop_displaced() == [Added("b.jpg", ids[1], "dropped")]
    assert [(image, one.name) for image, one in index.snapshot().images()] == [(ids[0], "b.jpg")]


def test_a_copy_waits_until_it_is_known_where_the_photo_in_its_place_went(index: Index) -> None:
    a, b = photo(index, "a.jpg", "one"), photo(index, "b.jpg", "another")
    ids = [bring_in(index, a), bring_in(index, b)]
    moved = photo(index, "moved.jpg")
    a.path.rename(moved.path)
    shutil.copy(b.path, a.path)
    register = Register(index)
    assert register.sort([a, b, moved]).changed == [a]
    assert register.settle(a, copies=False) is None
    assert register.settle(moved) == Added("moved.jpg", ids[0], "moved")
    copied = register.settle(a)
    assert copied is not None
    assert (copied.name, copied.outcome) == ("a.jpg", "copied")


def test_a_photo_on_a_disk_that_is_not_connected_is_not_moved(index: Index) -> None:
    away, here = photo(index, "away.jpg", "one"), photo(index, "here.jpg", "one")
    bring_in(index, away, mount="/no/such/disk")
    away.path.unlink()
    settled = Register(index).settle(here)
    assert settled is not None
    assert settled.outcome == "copied"
    assert sorted(index.names()) == ["away.jpg", "here.jpg"]


def test_images_of_an_older_superfeat_are_known_by_path_and_then_by_their_bytes(index: Index) -> None:
    one = photo(index, "a.jpg", "one")
    image = bring_in(index, one, digest=None, mount=None)
    register = Register(index)
    same = register.sort([one]).same
    assert [entry.id for _, entry in same] == [image]
    assert list(register.note_facts(register.outdated(same))) == [1]
    assert index.meta(["a.jpg"])["a.jpg"].keys() >= {"digest", "mount"}
    assert Register(index).outdated(Register(index).sort([one]).same) == []
    other = photo(index, "b.jpg")
    one.path.rename(other.path)
    assert Register(index).settle(other) == Added("b.jpg", image, "moved")


def test_the_folder_of_an_older_index_may_have_moved(index: Index) -> None:
    one = photo(index, "a.jpg", "one")
    image = bring_in(index, one, digest=None, mount=None)
    (index.path.parent / "photos").rename(index.path.parent / "elsewhere")
    now = Photo(index.path.parent / "elsewhere" / "a.jpg", "a.jpg")
    assert Register(index).settle(now) == Added("a.jpg", image, "moved")


def test_two_images_of_one_file_become_one(index: Index) -> None:
    one = photo(index, "a.jpg", "one")
    first = bring_in(index, one)
    second = bring_in(index, Photo(one.path, "photos/a.jpg"))
    assert first != second
    register = Register(index)
    assert [entry.id for _, entry in register.sort([one]).same] == [first]
    assert register.drop_displaced() == [Added("photos/a.jpg", second, "dropped")]
    assert list(index.names()) == ["a.jpg"]
