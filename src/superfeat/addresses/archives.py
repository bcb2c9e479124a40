"""Archives whose members are read where they are: tar (WebDataset, img2dataset) and zip. Nothing is unpacked.

A directory of an archive says where in it each member lies. Archives of strangers may hold anything: links, names that
lead out of the archive, members that unpack to more than a photo can be. These are named, and the rest is read.
"""

import contextlib
import hashlib
import io
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import IO, NamedTuple

Stamp = tuple[int, int]  # size in bytes, and a number that is another one when the bytes are: a time or a digest
ReadRange = Callable[[int, int], bytes]  # so many bytes from there on, fewer only at the end

LARGEST_PHOTO = 512 << 20  # bytes of a file that is read as a photo
READ_AHEAD = 4 << 20  # bytes of an archive that are read at once to find its members
LOCAL_HEADER, LOCAL_EXTRA = 30, 1024  # bytes of a zip member's own header, and room for what may follow its name
ENCRYPTED = 0x1  # in the flags of a zip member
BLOCK = tarfile.BLOCKSIZE
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # Python unpacks all of the others at once, whatever that comes to

LINK, NO_FILE, SPARSE = "a link in an archive", "neither file nor folder in an archive", "a sparse file in an archive"
LEADS_OUT = "its name leads out of the archive"
LOCKED = "encrypted: unpack it"
TOO_LARGE = f"larger than {LARGEST_PHOTO >> 20} MB, which no photo is"
NO_METHOD = "compressed in another way than by deflate: pack it anew"
OUTSIDE = "it does not lie in its archive, which is damaged"
LATER = "a later member of the archive has the same name"


class ArchiveMember(NamedTuple):
    """Where the bytes of a member lie."""

    name: str
    stamp: Stamp
    archive: Stamp  # as it was when the member was found
    start: int  # of its bytes in a tar, of its header in a zip
    info: zipfile.ZipInfo | None = None  # of a zip


class Refused(NamedTuple):
    """A member that is not read, and why."""

    name: str
    reason: str


class ArchiveDirectory(NamedTuple):
    """The members of an archive that can be read, those that cannot, and what is wrong with the archive itself."""

    members: dict[str, ArchiveMember]
    refused: list[Refused]
    damage: str | None = None


class RangeFile(io.RawIOBase):
    """A file that is read by ranges, none of which keeps anything open."""

    def __init__(self, read: ReadRange, size: int) -> None:
        self._read, self._size, self._place = read, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._place = max(0, offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._size}[whence])
        return self._place

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]  # any writable buffer
        wanted = min(len(buffer), self._size - self._place)
        if wanted <= 0:
            return 0
        data = self._read(self._place, wanted)
        buffer[: len(data)] = data
        self._place += len(data)
        return len(data)


class HeaderFile(io.BufferedReader):
    """The same read ahead, for headers alone: one that says that it is larger than any photo is not believed."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > LARGEST_PHOTO:
            raise tarfile.ReadError(f"a header of {size} bytes")
        return super().read(size)


def read_directory(name: str, read: ReadRange, stamp: Stamp) -> ArchiveDirectory:
    """What is in an archive that was seen with this stamp. OSError if it cannot be read."""
    file = HeaderFile(RangeFile(read, stamp[0]), READ_AHEAD)
    found = ArchiveDirectory({}, [])
    entries = _zip_entries(file, stamp) if name.lower().endswith(".zip") else _tar_entries(file, stamp)
    try:
        for entry in entries:
            if isinstance(entry, Refused):
                found.refused.append(entry)
                continue
            if entry.name in found.members:
                found.refused.append(Refused(entry.name, LATER))
            found.members[entry.name] = entry
    except (tarfile.TarError, zipfile.BadZipFile, NotImplementedError, ValueError, EOFError, zlib.error) as error:
        return found._replace(damage=f"the archive is damaged: {error}")
    return found


def read_member(member: ArchiveMember, read: ReadRange) -> bytes:
    """The bytes of a member. OSError if it is damaged."""
    if member.info is None:
        data = read(member.start, member.stamp[0])
    else:
        with _bad_members_explained():
            data = _unpack(member.info, member.start, read)
    if len(data) != member.stamp[0]:
        raise OSError(f"the archive ends after {len(data)} of its {member.stamp[0]} bytes")
    return data


@contextlib.contextmanager
def _bad_members_explained() -> Iterator[None]:
    try:
        yield
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError) as error:
        raise OSError(f"damaged in its archive: {error}") from error


def _unpack(info: zipfile.ZipInfo, start: int, read: ReadRange) -> bytes:
    """Its own header is behind which its bytes begin; that may hold more than the directory says."""
    packed = read(start, LOCAL_HEADER + len(info.orig_filename.encode()) + LOCAL_EXTRA + info.compress_size)
    if packed[:4] != zipfile.stringFileHeader:  # type: ignore[attr-defined]  # "PK\3\4"
        raise zipfile.BadZipFile("there is no member where the directory says")
    lengths = [int.from_bytes(packed[place : place + 2], "little") for place in (26, 28)]
    begin = LOCAL_HEADER + sum(lengths)
    body = packed[begin : begin + info.compress_size]
    if len(body) < info.compress_size:
        body = read(start + begin, info.compress_size)
    with zipfile.ZipExtFile(io.BytesIO(body), "r", info) as file:
        return file.read(info.file_size)


def _tar_entries(file: IO[bytes], stamp: Stamp) -> Iterator[ArchiveMember | Refused]:
    """Members in their order. All of a tar that was rewritten is looked at: it says of its bytes only how many."""
    with tarfile.open(fileobj=file, mode="r:") as tar:
        while (info := tar.next()) is not None:
            tar.members.clear()  # type: ignore[attr-defined]  # it would hold every header
            if info.isdir():
                continue
            reason = LINK if info.issym() or info.islnk() else NO_FILE if not info.isfile() else None
            reason = reason or (SPARSE if info.issparse() else _refusal(info.name, info.size))
            if reason is not None:
                yield Refused(info.name, reason)
            else:
                mark = _mark(stamp, info.offset_data, info.mtime)
                yield ArchiveMember(_plain(info.name), (info.size, mark), stamp, info.offset_data)
        _require_end(file, tar.offset, stamp[0])


def _require_end(file: IO[bytes], offset: int, size: int) -> None:
    """Python takes whatever is no header for the end; the end is a block of zeros, or of nothing."""
    file.seek(offset)
    if any(file.read(BLOCK)) or offset > size:
        raise tarfile.ReadError(f"what follows byte {min(offset, size)} is no member")


def _zip_entries(file: IO[bytes], stamp: Stamp) -> Iterator[ArchiveMember | Refused]:
    with zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            if info.is_dir():
                continue
            link = (info.external_attr >> 28) == 0xA  # of Unix, in the upper half: S_IFLNK
            largest = max(info.file_size, info.compress_size)
            reason = LINK if link else LOCKED if info.flag_bits & ENCRYPTED else _refusal(info.filename, largest)
            if reason is None and info.compress_type not in METHODS:
                reason = NO_METHOD
            if reason is None and not 0 <= info.header_offset <= stamp[0] - info.compress_size:
                reason = OUTSIDE
            if reason is not None:
                yield Refused(info.filename, reason)
            else:
                mark = _mark(info.CRC, info.date_time)
                yield ArchiveMember(_plain(info.filename), (info.file_size, mark), stamp, info.header_offset, info)


def _refusal(name: str, size: int) -> str | None:
    if PurePosixPath(name).is_absolute() or ".." in name.replace("\\", "/").split("/") or "\0" in name:
        return LEADS_OUT
    return TOO_LARGE if size > LARGEST_PHOTO else None


def _plain(name: str) -> str:
    """Tars write './key.jpg' too."""
    return PurePosixPath(name).as_posix()


def _mark(*facts: object) -> int:
    return mark_of(repr(facts))


def mark_of(text: str) -> int:
    """A number for a text, as large as a time in nanoseconds."""
    return int.from_bytes(hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=7).digest(), "little")
