"""A folder of links: in order, each with a name of its own, and other ways where links cannot be made."""

import os
from pathlib import Path

import pytest

from superfeat.errors import StoreError
from superfeat.export.links import LONGEST_NAME, link_photos
from superfeat.export.photos import ExportedPhoto, PhotoSet

HOSTILE = ("two\nlines.jpg", "-rf.jpg", 'it\'s "q".jpg', os.fsdecode(b"no-\xff.jpg"))


def photo(path: Path, data: bytes = b"photo") -> ExportedPhoto:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return ExportedPhoto(path.name, str(path), {})


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_links_in_order_with_names_of_their_own(tmp_path: Path) -> None:
    photos = [photo(tmp_path / folder / "a.jpg", folder.encode()) for folder in "zyxwvutsrqp"]
    linked = link_photos(tmp_path / "out" / "links", [PhotoSet("query", tuple(photos))])
    assert linked == (11, 0, 0, [])
    found = sorted((tmp_path / "out" / "links").iterdir())
    assert [path.name for path in found] == [f"{number:02} a.jpg" for number in range(1, 12)]
    assert [path.read_bytes().decode() for path in found] == list("zyxwvutsrqp")
    assert all(path.is_symlink() for path in found)
    assert names_in(tmp_path / "out") == ["links"]


def test_a_folder_for_each_of_several_sets(tmp_path: Path) -> None:
    one = photo(tmp_path / "a.jpg")
    sets = [PhotoSet("../life/b.jpg", (one,)), PhotoSet("empty", ()), PhotoSet("..", (one, one))]
    assert link_photos(tmp_path / "links", sets).links == 3
    assert names_in(tmp_path / "links") == ["1 .._life_b.jpg", "2 empty", "3 .."]
    assert names_in(tmp_path / "links" / "3 ..") == ["1 a.jpg", "2 a.jpg"]


def test_any_name(tmp_path: Path) -> None:
    photos = [photo(tmp_path / "photos" / name, name.encode(errors="surrogateescape")) for name in HOSTILE]
    photos.append(photo(tmp_path / "photos" / f"{'é' * 125}.jpg"))
    assert link_photos(tmp_path / "links", [PhotoSet("q", tuple(photos))]).links == 5
    found = sorted((tmp_path / "links").iterdir())
    assert [path.resolve().name for path in found] == [one.name for one in photos]
    assert all("\n" not in path.name for path in found)
    assert found[-1].name.endswith("éé.jpg")
    assert len(os.fsencode(found[-1].name)) <= LONGEST_NAME + 2


def test_what_has_no_file_is_named(tmp_path: Path) -> None:
    gone = ExportedPhoto("gone.jpg", str(tmp_path / "gone.jpg"), {})
    linked = link_photos(tmp_path / "links", [PhotoSet("q", (gone, ExportedPhoto("features", None, {})))])
    assert linked == (0, 0, 0, ["gone.jpg", "features"])
    assert names_in(tmp_path / "links") == []


def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    one = PhotoSet("q", (photo(tmp_path / "a.jpg"),))
    (tmp_path / "empty").mkdir()
    assert link_photos(tmp_path / "empty", [one]).links == 1
    with pytest.raises(StoreError, match="holds something already"):
        link_photos(tmp_path / "empty", [one])
    with pytest.raises(StoreError, match="holds something already"):
        link_photos(tmp_path / "a.jpg", [one])
    assert (tmp_path / "a.jpg").read_bytes() == b"photo"


@pytest.mark.parametrize("hard", [True, False])
def test_where_links_cannot_be_made(hard: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(Path, "symlink_to", refuse)
    if not hard:
        monkeypatch.setattr(Path, "hardlink_to", refuse)
    one = photo(tmp_path / "a.jpg")
    assert link_photos(tmp_path / "links", [PhotoSet("q", (one,))]) == (0, int(hard), int(not hard), [])
    made = tmp_path / "links" / "1 a.jpg"
    assert made.read_bytes() == b"photo"
    assert made.samefile(tmp_path / "a.jpg") is hard
