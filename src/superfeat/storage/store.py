"""Crash-safe files: written beside and renamed, synced before they are named, locked while written."""

import contextlib
import errno
import json
import mmap
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from superfeat.errors import StoreError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


MEND = "restore the folder from a copy, or make it again"  # what to do about damage


@contextlib.contextmanager
def explained(path: Path, doing: str = "write") -> Iterator[None]:
    """Turns the system's errors into ours, with the next step."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreError(
                f"the disk is full: cannot {doing} {path}; nothing finished is lost, free space and run again"
            ) from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            step = (
                "ask its owner for the right to read it" if doing == "read" else "choose a folder that you may write to"
            )
            raise StoreError(f"cannot {doing} {path}: {error.strerror}; {step}") from error
        raise StoreError(f"cannot {doing} {path}: {error.strerror or error}") from error


def sync(file: IO[Any]) -> None:
    """Makes what was written survive a power cut."""
    file.flush()
    os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder survive a power cut (where the system lets folders be synced)."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write_file(path: Path, data: bytes) -> None:
    """Replaces a file as a whole: readers see the old or the new one, never a part."""
    with explained(path):
        beside = path.with_name(f".{path.name}.{os.getpid()}.partial")
        try:
            with beside.open("wb") as file:
                file.write(data)
                sync(file)
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
        sync_folder(path.parent)


def write_json(path: Path, value: Any) -> None:
    """Replaces a JSON file as a whole."""
    write_file(path, (json.dumps(value, indent=2, sort_keys=True) + "\n").encode())


def read_json(path: Path) -> Any:
    """The contents of a JSON file, or a StoreError."""
    with explained(path, "read"):
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise StoreError(f"{path} is damaged: {error}; {MEND}") from error


def require_version(facts: Any, known: int, path: Path) -> None:
    """StoreError where a file is of a format version that this superfeat does not read."""
    found = facts.get("version") if isinstance(facts, Mapping) else None
    if str(found) != str(known):
        raise StoreError(f"{path} has format version {found}; this superfeat reads {known}: upgrade it")


def as_json(value: Any) -> Any:
    """The value as it will be when it has been written to a JSON file and read again."""
    return json.loads(json.dumps(value))


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """In words, the first few settings of `new` that `old` does not have; empty if there are none."""
    found = list(_differences(old, new, ""))
    return ", ".join(found[:3]) + (", …" if len(found) > 3 else "")


def _differences(old: Mapping[str, Any], new: Mapping[str, Any], where: str) -> Iterator[str]:
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            yield from _differences(before, value, f"{where}{key}.")
        elif before != value:
            yield f"{where}{key} was {before}, not {value}"


def read_array(path: Path, dtype: str) -> np.ndarray:
    """A .npy file of the expected type, or a StoreError."""
    with explained(path, "read"), _damage_named(path):
        return _require_type(np.load(path, allow_pickle=False), path, dtype)


class MappedArray(NamedTuple):
    """An array whose pages come when they are used, the map behind it, and where in it the values begin."""

    array: np.ndarray
    map: mmap.mmap
    begin: int


def map_array(path: Path, dtype: str) -> MappedArray:
    """The same without reading it."""
    with explained(path, "read"), path.open("rb") as file, _damage_named(path):
        np.lib.format.read_magic(file)
        shape, fortran, kind = np.lib.format.read_array_header_1_0(file)
        begin = file.tell()
        pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        values = np.frombuffer(pages, np.uint8, offset=begin) if len(pages) > begin else np.empty(0, np.uint8)
        array = values.view(kind).reshape(shape, order="F" if fortran else "C")
    return MappedArray(_require_type(array, path, dtype), pages, begin)


@contextlib.contextmanager
def _damage_named(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, StoreError):
        raise
    except Exception as error:  # numpy's reader of headers fails in many ways
        raise StoreError(f"{path} is damaged: {error}") from error


def _require_type(array: np.ndarray, path: Path, dtype: str) -> np.ndarray:
    if array.dtype != np.dtype(dtype):
        raise StoreError(f"{path} is damaged: its values are {array.dtype}, not {np.dtype(dtype)}")
    return array


def write_folder(path: Path, files: Mapping[str, bytes], *, overwrite: bool = False) -> None:
    """Writes a folder of files, some of them in a folder inside, as a whole; an existing one is kept unless
    `overwrite`."""
    require_replaceable(path, [name for name in files if name.endswith(".json")] or list(files), overwrite)
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".partial", dir=path.parent))
        try:
            beside.chmod(0o777 & ~umask())
            for name, data in files.items():
                (beside / name).parent.mkdir(exist_ok=True)
                with (beside / name).open("wb") as file:
                    file.write(data)
                    sync(file)
            for folder in {(beside / name).parent for name in files} | {beside}:
                sync_folder(folder)
            _swap(beside, path)
        finally:
            shutil.rmtree(beside, ignore_errors=True)
        sync_folder(path.parent)


def require_replaceable(path: Path, marks: Sequence[str], overwrite: bool) -> None:
    """StoreError unless `path` is free, or is to be overwritten and holds one of `marks`, as all of its kind do."""
    if not path.exists():
        return
    if not any((path / mark).is_file() for mark in marks) and not (path.is_dir() and not any(path.iterdir())):
        raise StoreError(f"{path} exists already and is something else; choose another name")
    if not overwrite:
        raise StoreError(f"{path} exists already; choose another name or ask to overwrite it", arguments=["overwrite"])


def _swap(new: Path, path: Path) -> None:
    """Puts `new` in the place of `path`; what was there is moved away first and put back if that fails."""
    if not path.exists():
        new.rename(path)
        return
    old = path.with_name(f".{path.name}.{os.getpid()}.old")
    path.rename(old)
    try:
        new.rename(path)
    except OSError:
        old.rename(path)
        raise
    shutil.rmtree(old) if old.is_dir() else old.unlink()


def umask() -> int:
    """The permissions that new files of this process do not get."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


@contextlib.contextmanager
def writer_lock(folder: Path) -> Iterator[None]:
    """One writer at a time; the lock goes with the process, however it ends."""
    with explained(folder):
        file = (folder / ".lock").open("a+")
    with file:
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StoreError(
                    f"{folder} is being written by another process; wait for it to end, or stop it"
                ) from None
        yield


def folder_bytes(path: Path) -> int:
    """Of all files below a folder; those that a writer removes meanwhile do not count."""
    total = 0
    for folder, _, files in os.walk(path):
        for name in files:
            with contextlib.suppress(FileNotFoundError):
                total += Path(folder, name).stat().st_size
    return total
