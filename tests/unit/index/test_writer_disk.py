"""How an index changes on disk: full disks, read-only disks, errors of the system at any call."""

import contextlib
import errno
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fixtures_index import QUERY, attempt, codes, holds, make, vectors
from superfeat.errors import StoreError
from superfeat.index.index import Index

pytestmark = pytest.mark.usefixtures("small_segments")
NOTE = {"note": "x" * 6000}  # so that a few images fill a small disk


def require_whole(path: Path, *wanted: dict[str, bytes]) -> dict[str, bytes]:
    """Opens, verifies, searches, and holds one of these."""
    index = Index.open(path)
    assert list(index.verify())
    found = holds(index)
    assert found in wanted
    ranking = index.search(QUERY, None)
    assert sorted(ranking.names) == sorted(found)
    return found


def leavings(path: Path) -> set[str]:
    """What is there and not named by the manifest."""
    manifest = json.loads((path / "manifest.json").read_text())
    named = {"manifest.json", "codebook", "segments", ".lock", manifest["journal"]}
    named |= {manifest["dead"]["file"]} if manifest["dead"] else set()
    segments = {facts["folder"] for facts in manifest["segments"]}
    return ({file.name for file in path.iterdir()} - named) | (
        {folder.name for folder in (path / "segments").iterdir()} - segments
    )


# -- A full disk


class Disk:
    """A small file system in memory; `leave` fills it up to so many pages."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def run(self, *command: str) -> None:
        done = subprocess.run([*command, str(self.path)], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"a file system of its own is needed: {done.stderr.strip()}")

    def leave(self, pages: int) -> None:
        self.free()
        room = os.statvfs(self.path)
        with (self.path / "ballast").open("wb") as file:
            file.write(bytes(max(0, room.f_bavail - pages) * room.f_frsize))
        assert os.statvfs(self.path).f_bavail == pages

    def free(self) -> None:
        (self.path / "ballast").unlink(missing_ok=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    if shutil.which("mount") is None:
        pytest.skip("there is no mount command")
    path = tmp_path / "disk"
    path.mkdir()
    made = Disk(path)
    made.run("mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs")
    try:
        yield made
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def test_a_disk_that_fills_up(disk: Disk) -> None:
    """As it happens to a user: images until there is no room, more room, the rest of the images."""
    index = make(disk.path / "index")
    acknowledged: dict[str, bytes] = {}

    def fill() -> None:
        for seed in range(1000):
            index.add(f"n{seed}", vectors(seed), NOTE)
            acknowledged[f"n{seed}"] = codes(seed)

    with pytest.raises(StoreError, match=r"the disk is full: cannot write .*; nothing finished is lost, free space"):
        fill()
    assert 10 < len(acknowledged) < 100
    last = f"n{len(acknowledged)}"
    flight = {last: codes(len(acknowledged))}
    require_whole(disk.path / "index", acknowledged, acknowledged | flight)
    assert holds(index) in (acknowledged, acknowledged | flight)
    disk.run("mount", "-o", "remount,size=8m")
    assert index.add(last, vectors(len(acknowledged)), NOTE).outcome in ("new", "same")
    index.compact()
    require_whole(disk.path / "index", acknowledged | flight)


Change = Callable[[Index], object]
CHANGES: dict[str, tuple[Change, dict[str, int | None]]] = {
    "add": (lambda index: index.add("n10", vectors(30), NOTE), {"n10": 30}),
    "seal": (lambda index: index.add("n20", vectors(20), NOTE), {"n20": 20}),
    "delete": (lambda index: index.delete(["n3", "n9"]), {"n3": None, "n9": None}),
    "compact": (lambda index: index.compact(), {}),
}


def changed(before: dict[str, bytes], what: dict[str, int | None]) -> dict[str, bytes]:
    after = {name: value for name, value in before.items() if name not in what}
    return after | {name: codes(seed) for name, seed in what.items() if seed is not None}


@pytest.mark.parametrize("name", CHANGES)
def test_whatever_room_is_left(name: str, disk: Disk) -> None:
    """Each change, with no page free, one page, two, and so on until it goes through."""
    change, what = CHANGES[name]
    images = 15 if name == "seal" else 14  # four to a segment
    refused = 0
    for pages in range(0, 60, 2):
        index = make(disk.path / f"index{pages}", range(images))
        index.delete(["n1", "n5"])
        before = holds(index)
        disk.leave(pages)
        error = attempt(change, index)
        assert error.startswith("the disk is full: cannot write ") or not error
        refused += bool(error)
        acceptable = [before, changed(before, what)] if error else [changed(before, what)]
        assert holds(index) in acceptable
        assert leavings(index.path) == set()  # so a full disk has its space back at once
        require_whole(disk.path / f"index{pages}", *acceptable)
        disk.free()
        if not error and pages > 2 * refused + 3:
            break
        error = attempt(change, index)
        assert "has no image called" in error or not error  # deleted already
        index.compact()
        require_whole(disk.path / f"index{pages}", changed(before, what))
        assert index.info().deleted == 0
        assert sorted(path.name for path in disk.path.iterdir()) == [f"index{pages}"]
        shutil.rmtree(disk.path / f"index{pages}")
    else:
        pytest.fail("it never went through")
    assert refused > 0 or name == "delete"  # whose record is smaller than the page that it is in


def test_no_room_for_a_new_index(disk: Disk) -> None:
    for pages in range(30):
        disk.leave(pages)
        with contextlib.suppress(StoreError):
            make(disk.path / "index")
            break
        with pytest.raises(StoreError, match=r"the disk is full: cannot write .*index"):
            make(disk.path / "index")
        assert [file.name for file in disk.path.iterdir()] == ["ballast"]
    disk.free()
    assert 3 < pages < 29
    require_whole(disk.path / "index", {})


def test_a_read_only_disk(disk: Disk) -> None:
    index = make(disk.path / "index", range(10))
    before = holds(index)
    wanted = index.search(QUERY, 5)
    disk.run("mount", "-o", "remount,ro")
    for opened in (index, Index.open(disk.path / "index")):
        assert opened.search(QUERY, 5).names == wanted.names
        assert list(opened.verify())
        assert opened.info().images == 10
        changes: tuple[Change, ...] = (
            lambda index: index.add("more", QUERY),
            lambda index: index.delete("n1"),
            lambda index: index.compact(),
            lambda index: index.merge(index),
        )
        for change in changes:
            with pytest.raises(StoreError, match=r"cannot write .*index.*: Read-only file system; choose a folder"):
                change(opened)
        assert holds(opened) == before
    with pytest.raises(StoreError, match="Read-only file system; choose a folder that you may write to"):
        make(disk.path / "another")
    disk.run("mount", "-o", "remount,rw")
    index.add("more", QUERY)
    assert len(Index.open(disk.path / "index")) == 11


# -- Errors of the system at any call


class Faults:
    """Raises an error at the call number `left` of those that change the disk; -1 for never."""

    NAMES = ("fsync", "replace", "rename", "mkdir")

    def __init__(self, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
        self.left, self.code, self.calls = -1, code, 0
        for name in self.NAMES:
            monkeypatch.setattr(os, name, self.guard(getattr(os, name)))

    def guard(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            self.calls += 1
            self.left -= 1
            if self.left == -1:
                raise OSError(self.code, os.strerror(self.code))
            return function(*arguments, **options)

        return call


EVERY = pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.long)])


@EVERY
@pytest.mark.parametrize("name", CHANGES)
def test_an_error_at_any_call_loses_nothing(
    name: str, step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index at hand goes on after it, and so does one opened anew; nothing acknowledged is missing in either."""
    change, what = CHANGES[name]
    faults = Faults(monkeypatch, errno.ENOSPC)
    made = make(tmp_path / "made", range(15 if name == "seal" else 14))
    made.delete(["n1", "n5"])
    before = holds(made)
    for number in range(0, 100, step):
        path = Path(shutil.copytree(made.path, tmp_path / f"{number}"))
        index = Index.open(path)
        after = changed(before, what)
        faults.left = number
        error = attempt(change, index)
        if not error:
            assert faults.left >= 0
            break
        assert "the disk is full" in error
        assert holds(index) in (before, after)
        require_whole(path, before, after)
        index.add("later", vectors(31))
        now = holds(index)
        assert now in (before | {"later": codes(31)}, after | {"later": codes(31)})
        require_whole(path, now)
        index.compact()
        require_whole(path, now)
        shutil.rmtree(path)
    assert number > 0
    assert number < 98


@EVERY
def test_an_error_at_any_call_of_a_merge(step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Images of the same name are ours or theirs, never gone."""
    faults = Faults(monkeypatch, errno.ENOSPC)
    made, other = make(tmp_path / "made", range(10)), make(tmp_path / "other")
    for seed in range(3, 12):
        other.add(f"n{seed}", vectors(seed + 20))
    choices = [{codes(seed)} for seed in range(3)] + [{codes(seed), codes(seed + 20)} for seed in range(3, 10)]
    for number in range(0, 200, step):
        ours = Path(shutil.copytree(made.path, tmp_path / f"ours{number}"))
        index = Index.open(ours)
        faults.left = number
        error = attempt(index.merge, other)
        if not error:
            assert faults.left >= 0
            break
        assert "the disk is full" in error
        for found in (holds(index), holds(Index.open(ours))):
            for seed, choice in enumerate(choices):
                assert found.get(f"n{seed}") in choice, f"n{seed} after call {number}"
        for seed in range(4):
            index.add(f"later{seed}", vectors(30 + seed))
        for found in (holds(index), holds(Index.open(ours))):
            for seed, choice in enumerate(choices):
                assert found.get(f"n{seed}") in choice, f"n{seed} after call {number} and more images"
        index.merge(other)
        final = holds(Index.open(ours))
        assert final == {
            **{f"n{s}": codes(s) for s in range(3)},
            **{f"n{s}": codes(s + 20) for s in range(3, 12)},
            **{f"later{s}": codes(30 + s) for s in range(4)},
        }
        assert list(index.verify())
    assert 5 < number < 190


@EVERY
def test_an_error_inside_one_piece_of_writing(step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock is kept between the changes, so nothing is read again; still nothing acknowledged is lost."""
    faults = Faults(monkeypatch, errno.EIO)
    for number in range(0, 200, step):
        path = tmp_path / f"i{number}"
        index = make(path)
        acknowledged: dict[str, bytes] = {}
        uncertain: dict[str, bytes] = {}
        faults.left = number
        with index.writing():
            for seed in range(14):
                name = f"n{seed}"
                try:
                    index.add(name, vectors(seed))
                except StoreError:
                    uncertain[name] = codes(seed)
                else:
                    acknowledged[name] = codes(seed)
        found = holds(Index.open(path))
        assert acknowledged.items() <= found.items() <= (acknowledged | uncertain).items(), number
        assert acknowledged.items() <= holds(index).items()
        index.add("n0", vectors(0))
        assert acknowledged.items() <= holds(Index.open(path)).items()
        assert list(index.verify())
        if faults.left >= 0:
            break
        assert uncertain
        shutil.rmtree(path)
    assert 10 < number < 190


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES])
def test_a_folder_that_may_not_be_written(code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading needs no permission to write: every open for writing fails here, every other one works."""
    make(tmp_path / "index", range(6))
    real = Path.open

    def guarded(self: Path, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        if set(mode) & set("wa+x"):
            raise OSError(code, os.strerror(code), str(self))
        return real(self, mode, *arguments, **options)

    monkeypatch.setattr(Path, "open", guarded)
    index = Index.open(tmp_path / "index")
    assert len(index.search(QUERY, None)) == 6
    assert list(index.verify())
    index.refresh()
    for change in (lambda: index.add("more", QUERY), lambda: index.delete("n1"), index.compact):
        with pytest.raises(StoreError, match=r"cannot write .*index.*; choose a folder that you may write to"):
            change()
    assert len(index) == 6


def test_errors_of_the_caller_stay_what_they_are(tmp_path: Path) -> None:
    """A photo that is not there is no fault of the index, and is not reported as one."""
    index = make(tmp_path / "index")

    def images() -> Iterator[tuple[str, np.ndarray, None]]:
        yield "a", QUERY, None
        raise FileNotFoundError(errno.ENOENT, "No such file", "photo.jpg")

    with pytest.raises(FileNotFoundError, match=r"photo\.jpg"):
        list(index.add_many(images()))
    assert list(index.names()) == ["a"]
    with pytest.raises(PermissionError), index.writing():
        raise PermissionError(errno.EACCES, "not yours", "album")
    index.add("b", QUERY)
    assert len(Index.open(tmp_path / "index")) == 2


def test_leavings_are_swept_and_nothing_else(tmp_path: Path) -> None:
    index = make(tmp_path / "index", range(10))
    path = index.path
    before = sorted(str(file) for file in path.rglob("*"))
    (path / "journal-999999").write_bytes(b"left")
    (path / "dead-999999.npy").write_bytes(b"left")
    (path / ".manifest.json.123.partial").write_bytes(b"left")
    (path / "segments" / "999999").mkdir()
    (path / "segments" / "999999" / "codes.npy").write_bytes(b"left")
    (path / "README").write_text("mine")
    assert holds(Index.open(path)) == holds(index)
    with index.writing():
        pass
    assert sorted(str(file) for file in path.rglob("*")) == sorted([*before, str(path / "README")])
    assert list(index.verify())
