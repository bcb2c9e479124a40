"""What is certainly gone, and what may be on a disk that is not connected."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from fixtures_index import CODEBOOK, vectors
from superfeat.index.index import Index
from superfeat.index.sync import Disks, Missing, is_gone, missing_photos


@pytest.fixture
def index(tmp_path: Path) -> Index:
    return Index.create(tmp_path / "index", CODEBOOK)


def hold(index: Index, mount: str | None, *paths: Path) -> None:
    for number, path in enumerate(paths):
        meta = {"path": str(path)} if mount is None else {"path": str(path), "mount": mount}
        index.add(path.name, vectors(number, 3), meta)


def missing(index: Index, *folders: Path, seen: Sequence[Path] = ()) -> Missing:
    return missing_photos(index, folders, seen)


def test_only_what_lay_in_these_folders_and_is_not_there(index: Index, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "here.jpg").touch()
    hold(index, "/", *(tmp_path / name for name in ("a/here.jpg", "a/gone.jpg", "b/other.jpg")))
    assert missing(index, tmp_path / "a") == (["gone.jpg"], [])
    assert missing(index, tmp_path / "a", tmp_path / "b") == (["gone.jpg", "other.jpg"], [])
    assert missing(index) == ([], [])


def test_photos_of_a_disk_that_is_not_connected_are_kept(index: Index, tmp_path: Path) -> None:
    (tmp_path / "media" / "other disk").mkdir(parents=True)
    disk = str(tmp_path / "media" / "disk")
    hold(index, disk, tmp_path / "media" / "disk" / "photos" / "1.jpg")
    assert missing(index, tmp_path / "media") == ([], [("1.jpg", f"{disk} is not connected")])


def test_a_folder_on_a_connected_disk_may_be_empty(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "disk" / "inbox").mkdir(parents=True)
    monkeypatch.setattr(os.path, "ismount", lambda path: Path(path) == tmp_path / "disk")
    path = tmp_path / "disk" / "inbox" / "1.jpg"
    assert Disks().mount_of(path) == str(tmp_path / "disk")
    hold(index, Disks().mount_of(path), path)
    assert missing(index, tmp_path / "disk" / "inbox") == (["1.jpg"], [])


def test_where_no_disk_was_noted_an_empty_folder_may_be_one(index: Index, tmp_path: Path) -> None:
    (tmp_path / "inbox").mkdir()
    hold(index, None, tmp_path / "inbox" / "1.jpg", tmp_path / "inbox" / "deep" / "2.jpg")
    kept = missing(index, tmp_path / "inbox")
    assert kept.gone == []
    assert [one.name for one in kept.unsure] == ["1.jpg", "2.jpg"]
    assert "is its disk connected?" in kept.unsure[0].reason
    (tmp_path / "inbox" / "another.jpg").touch()
    assert missing(index, tmp_path / "inbox") == (["1.jpg", "2.jpg"], [])


def test_a_folder_that_cannot_be_listed_tells_nothing(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "closed").mkdir()
    hold(index, "/", tmp_path / "closed" / "1.jpg")
    scandir = os.scandir

    def refuse(path: str | Path) -> object:
        if Path(path) == tmp_path / "closed":
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    kept = missing(index, tmp_path)
    assert kept == ([], [("1.jpg", f"{tmp_path / 'closed'} cannot be listed: Permission denied")])


def test_what_may_not_be_looked_at_may_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    assert is_gone(tmp_path / "nothing")
    assert is_gone(tmp_path / "file" / "below")
    assert not is_gone(tmp_path / "file")

    def refuse(*_: object, **__: object) -> object:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "stat", refuse)
    assert not is_gone(tmp_path / "nothing")
