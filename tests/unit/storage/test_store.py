"""Crash-safe files: whole or not at all, one writer at a time, and the system's errors as ours."""

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from superfeat.errors import StoreError
from superfeat.storage.store import explained, read_json, write_file, write_folder, write_json, writer_lock


def failing(code: int) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(code, os.strerror(code))

    return fail


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    write_file(file, b"first")
    write_file(file, b"second")
    assert file.read_bytes() == b"second"
    assert names(tmp_path) == ["a.json"]


@pytest.mark.parametrize("where", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.json"
    write_file(file, b"first")
    if where == "fsync":
        monkeypatch.setattr(os, "fsync", failing(errno.ENOSPC))
    else:
        monkeypatch.setattr(Path, "replace", failing(errno.ENOSPC))
    with pytest.raises(
        StoreError, match=r"the disk is full: cannot write .*a.json; nothing finished is lost, free space and run again"
    ):
        write_file(file, b"second")
    assert file.read_bytes() == b"first"
    assert names(tmp_path) == ["a.json"]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (errno.ENOSPC, "the disk is full"),
        (errno.EDQUOT, "the disk is full"),
        (errno.EACCES, "choose a folder that you may write to"),
        (errno.EROFS, "choose a folder that you may write to"),
        (errno.EIO, "cannot write .*: Input/output error"),
    ],
)
def test_errors_of_the_system(code: int, message: str, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=message) as error, explained(tmp_path):
        failing(code)()
    assert isinstance(error.value.__cause__, OSError)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="No such file"):
        write_file(tmp_path / "absent" / "a.json", b"x")


def test_json(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"b": [1, 2], "a": None})
    assert (tmp_path / "a.json").read_text() == '{\n  "a": null,\n  "b": [\n    1,\n    2\n  ]\n}\n'
    assert read_json(tmp_path / "a.json") == {"b": [1, 2], "a": None}
    with pytest.raises(StoreError, match=r"cannot read .*absent.json"):
        read_json(tmp_path / "absent.json")


@pytest.mark.parametrize("data", [b"", b"{", b"\xff\xfe", b'{"a": 1} more'])
def test_damaged_json(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(data)
    with pytest.raises(StoreError, match="is damaged"):
        read_json(tmp_path / "a.json")


def test_a_folder_is_written_as_a_whole(tmp_path: Path) -> None:
    write_folder(tmp_path / "deep" / "down", {"a": b"1", "b": b"2"})
    assert {file.name: file.read_bytes() for file in (tmp_path / "deep" / "down").iterdir()} == {"a": b"1", "b": b"2"}
    assert names(tmp_path / "deep") == ["down"]


def test_an_existing_folder_is_kept_or_replaced(tmp_path: Path) -> None:
    write_folder(tmp_path / "folder", {"a": b"1", "old": b"x"})
    with pytest.raises(StoreError, match="exists already; choose another name or ask to overwrite it"):
        write_folder(tmp_path / "folder", {"a": b"2"})
    assert names(tmp_path / "folder") == ["a", "old"]
    write_folder(tmp_path / "folder", {"a": b"2"}, overwrite=True)
    assert names(tmp_path / "folder") == ["a"]
    assert names(tmp_path) == ["folder"]


@pytest.mark.parametrize("overwrite", [False, True])
def test_what_is_something_else_is_never_overwritten(overwrite: bool, tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").write_bytes(b"a file")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "README.md").write_bytes(b"mine")
    for name in ("photo.jpg", "photos"):
        with pytest.raises(StoreError, match="exists already and is something else; choose another name") as error:
            write_folder(tmp_path / name, {"a.json": b"1", "README.md": b"2"}, overwrite=overwrite)
        assert error.value.arguments == ()
    assert (tmp_path / "photos" / "README.md").read_bytes() == b"mine"


def test_an_empty_folder_may_be_filled(tmp_path: Path) -> None:
    (tmp_path / "name").mkdir()
    with pytest.raises(StoreError, match="exists already") as error:
        write_folder(tmp_path / "name", {"a": b"1"})
    assert error.value.arguments == ("overwrite",)
    write_folder(tmp_path / "name", {"a": b"1"}, overwrite=True)
    assert names(tmp_path / "name") == ["a"]


@pytest.mark.parametrize(
    ("doing", "step"),
    [("read", "ask its owner for the right to read it"), ("write", "choose a folder that you may write")],
)
def test_who_may_not_is_told_what_to_do(doing: str, step: str, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=f"cannot {doing} .*: Permission denied; {step}"), explained(tmp_path, doing):
        raise PermissionError(errno.EACCES, "Permission denied")


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_that_fails_half_way_leaves_nothing(
    overwrite: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if overwrite:
        write_folder(tmp_path / "folder", {"a": b"old"})
    calls: list[int] = []

    def second_fails(handle: int) -> None:
        calls.append(handle)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "fsync", second_fails)
    with pytest.raises(StoreError, match="the disk is full"):
        write_folder(tmp_path / "folder", {"a": b"1", "b": b"2"}, overwrite=overwrite)
    assert names(tmp_path) == (["folder"] if overwrite else [])
    if overwrite:
        assert (tmp_path / "folder" / "a").read_bytes() == b"old"


def test_a_swap_that_fails_puts_the_old_folder_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_folder(tmp_path / "folder", {"a": b"old"})
    rename, calls = Path.rename, []

    def second_fails(self: Path, target: Path) -> Path:
        calls.append(target)
        if len(calls) == 2:
            raise OSError(errno.EIO, "broken")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", second_fails)
    with pytest.raises(StoreError, match="broken"):
        write_folder(tmp_path / "folder", {"a": b"new"}, overwrite=True)
    assert (tmp_path / "folder" / "a").read_bytes() == b"old"
    assert names(tmp_path) == ["folder"]


def test_folders_have_the_users_permissions(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_folder(tmp_path / "folder", {"a": b"1"})
    finally:
        os.umask(before)
    assert (tmp_path / "folder").stat().st_mode & 0o777 == 0o750


LOCKER = """
import sys
from pathlib import Path
from superfeat.errors import StoreError
from superfeat.storage.store import writer_lock
try:
    with writer_lock(Path(sys.argv[1])):
        print("locked", flush=True)
        sys.stdin.readline()
except StoreError as error:
    print(error, flush=True)
"""


def start_locker(folder: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", LOCKER, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def first_line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    with start_locker(tmp_path) as other:
        assert first_line(other) == "locked\n"
        with (
            pytest.raises(StoreError, match="is being written by another process; wait for it to end, or stop it"),
            writer_lock(tmp_path),
        ):
            pass
        other.kill()
        other.wait()
        with writer_lock(tmp_path), start_locker(tmp_path) as third:
            assert "is being written by another process" in first_line(third)
    with writer_lock(tmp_path):
        assert names(tmp_path) == [".lock"]


def test_the_lock_goes_with_an_error(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), writer_lock(tmp_path):
        raise ZeroDivisionError
    with writer_lock(tmp_path):
        assert (tmp_path / ".lock").exists()
