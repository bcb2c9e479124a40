"""Where a photo lies: in a file of its own, in an archive, in a bucket. `address_of` finds out, and all open alike."""

import collections
import dataclasses
import errno
import functools
import io
import os
import threading
import time
from pathlib import Path, PurePosixPath
from typing import Literal, NamedTuple

from superfeat.addresses.archives import (
    ArchiveDirectory,
    ArchiveMember,
    ReadRange,
    Stamp,
    read_directory,
    read_member,
)
from superfeat.addresses.buckets import look_at, read_object, read_range
from superfeat.addresses.remembered import recall, remember
from superfeat.addresses.text import LOCAL, is_remote, public, split_member
from superfeat.recent import Recent

DIRECTORIES_KEPT = 64  # of archives: a kilobyte or less per member
BELIEVED_SECONDS = 30.0  # for which an archive elsewhere is taken to be as it was seen
BYTES_KEPT = 64 << 20  # of photos that were just read from elsewhere: each is digested and then decoded
FAILED_SECONDS = 60.0  # for which a photo that could not be read, however often that was tried, is not asked for again

_directories: Recent[ArchiveDirectory] = Recent(DIRECTORIES_KEPT)
_bytes: Recent[bytes] = Recent(1 << 10, BYTES_KEPT)
_failed: Recent[tuple[float, OSError]] = Recent(1 << 10)  # and when
_seen: dict[str, tuple[float, Stamp]] = {}  # archives elsewhere, and when they were looked at
_reading: collections.defaultdict[str, threading.Lock] = collections.defaultdict(threading.Lock)  # archives, each once


class PhotoStat(NamedTuple):
    """What there is to know of a photo without reading it, by the names that files have for it."""

    st_size: int
    st_mtime_ns: int  # of what is no file: a number that changes when its bytes do

    @property
    def st_mtime(self) -> float:
        return self.st_mtime_ns / 1e9


@dataclasses.dataclass(frozen=True)
class Address:
    """A photo that is no file of its own, with the methods of a Path that reading takes."""

    container: str  # a file or an object, without secrets: the photo itself, or the archive that it is in
    member: str | None = None
    seen: Stamp | None = dataclasses.field(default=None, compare=False)  # by whoever listed it
    listed: ArchiveMember | None = dataclasses.field(default=None, compare=False, repr=False)  # by the same

    def __str__(self) -> str:
        return self.container if self.member is None else f"{self.container}/{self.member}"

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(part for part in str(self).split("/") if part)

    @property
    def name(self) -> str:
        return self.parts[-1]

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.name.partition("?")[0]).suffix

    @property
    def is_remote(self) -> bool:
        """Whether it lies on another machine."""
        return is_remote(self.container)

    def as_posix(self) -> str:
        return str(self)

    def resolve(self) -> "Address":
        return self

    def absolute(self) -> "Address":
        return self

    def is_symlink(self) -> bool:
        return False

    def is_file(self) -> bool:
        return self.exists()

    def exists(self) -> bool:
        try:
            self.stat()
        except OSError:
            return False
        return True

    def stat(self) -> PhotoStat:
        """As it was listed, or as it is when it is first asked for; an OSError as of a file."""
        found = self._looked
        if isinstance(found, OSError):
            raise found
        return PhotoStat(*found)

    @functools.cached_property
    def _looked(self) -> Stamp | OSError:
        """Once: whoever wants to know again makes a new address."""
        try:
            return self.seen or (look_at(self.container) if self.member is None else self._found().stamp)
        except OSError as error:
            return error

    def read_bytes(self) -> bytes:
        """All of the photo; an OSError as of a file."""
        if not self.is_remote:
            return self._read()
        key = f"{self}\0{self.stat()}"
        data, failed = _bytes.get(key), _failed.get(key)
        if data is not None:
            return data
        if failed is not None and time.monotonic() - failed[0] < FAILED_SECONDS:
            raise failed[1]
        try:
            data = self._read()
        except OSError as error:
            _failed.put(key, (time.monotonic(), error))
            raise
        _bytes.put(key, data, len(data))
        return data

    def _read(self) -> bytes:
        if self.member is None:
            return read_object(self.container, self.stat().st_size)
        return read_member(self._found(), _within(self.container, stamp_of(self.container)[0]))

    def open(self, mode: Literal["rb"] = "rb") -> io.BytesIO:
        return io.BytesIO(self.read_bytes())

    def _found(self) -> ArchiveMember:
        """The member in its archive as that is now: where it was listed, if the archive has not changed since."""
        if self.listed is not None and self.listed.archive == stamp_of(self.container):
            return self.listed
        directory = directory_of(self.container)
        member = directory.members.get(str(self.member))
        if member is not None:
            return member
        if directory.damage is not None:
            raise OSError(errno.EIO, directory.damage, str(self))
        raise FileNotFoundError(errno.ENOENT, "no such member of the archive", str(self))


Where = Path | Address


def address_of(given: str | os.PathLike[str] | Address) -> Where:
    """Where a photo lies that is given by its path or its address; nothing is opened."""
    if isinstance(given, Address):
        return given
    text = os.fspath(given)
    if is_remote(text):
        text = public(text)
        inside = split_member(text)
        return Address(text) if inside is None else Address(*inside)
    path = Path(text[len(LOCAL) :] if text.lower().startswith(LOCAL) else text)
    inside = split_member(str(path))
    if inside is None or Path(inside[0]).is_dir():
        return path
    return Address(str(Path(inside[0]).resolve()), inside[1])


def seems_gone(path: str) -> bool:
    """Whether a photo is not there, as far as that is known without opening an archive or asking another machine."""
    where = address_of(path)
    if isinstance(where, Address):
        where = Path(where.container)
    try:
        return not is_remote(path) and not where.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False


def reader_of(container: str) -> ReadRange:
    """How parts of a file, or of an object, are read."""
    if is_remote(container):
        return functools.partial(read_range, container)

    def read(start: int, length: int) -> bytes:
        with Path(container).open("rb") as file:
            file.seek(start)
            return file.read(length)

    return read


def stamp_of(container: str) -> Stamp:
    """Of an archive; one that lies elsewhere is not asked for each of its members."""
    if not is_remote(container):
        status = Path(container).stat()
        return status.st_size, status.st_mtime_ns
    when, stamp = _seen.get(container, (0.0, (0, 0)))
    if not when or time.monotonic() - when > BELIEVED_SECONDS:
        stamp = look_at(container)
        _seen[container] = time.monotonic(), stamp
    return stamp


def directory_of(container: str, seen: Stamp | None = None) -> ArchiveDirectory:
    """The members of an archive, read once while it does not change. OSError if it cannot be read."""
    stamp = seen or stamp_of(container)
    if seen is not None:
        _seen[container] = time.monotonic(), seen
    key = f"{container}\0{stamp}"
    with _reading[container]:
        directory = _directories.get(key)
        if directory is None:
            directory = _look_into(container, stamp)
            if directory.damage is None or not is_remote(container):
                _directories.put(key, directory)
    return directory


def _look_into(container: str, stamp: Stamp) -> ArchiveDirectory:
    name = container.partition("?")[0]
    long = is_remote(container) and name.lower().endswith(".tar") and stamp[1] != 0  # the end of a zip tells all
    directory = recall(container, stamp) if long else None
    if directory is None:
        directory = read_directory(name, _within(container, stamp[0]), stamp)
        if long and directory.damage is None:
            remember(container, stamp, directory)
    return directory


def _within(container: str, size: int) -> ReadRange:
    """Reads no further than the end: objects refuse ranges beyond it."""
    read = reader_of(container)
    return lambda start, length: read(start, max(0, min(length, size - start)))
