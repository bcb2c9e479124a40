"""The journal of an index: what was added and deleted since the last segment. An operation counts once it is here.

A file begins with 8 bytes of magic and the number of bytes known to be safe; then come records: length, CRC-32,
payload. The number is written after each sync. So a record cut short behind that mark was never acknowledged
and is dropped, while anything missing or changed before it is damage and is reported.
"""

import json
import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, NamedTuple, TypedDict, final

import numpy as np

from superfeat.errors import StoreError
from superfeat.features import Meta
from superfeat.storage.store import MEND, explained, sync, sync_folder

MAGIC = b"SFJRNL01"
HEADER = struct.Struct("<8sQ")
RECORD = struct.Struct("<II")
LENGTH = struct.Struct("<I")


class _Added(TypedDict):
    add: str  # its name
    id: int
    content: int  # a digest of its words and codes


@final
class AddFacts(_Added, total=False):
    """An image was added, and took the place of others."""

    meta: Meta
    replaces: list[int]


@final
class DeleteFacts(TypedDict):
    """Images were deleted."""

    delete: list[int]


class Note(NamedTuple):
    """What is said of an image from now on: its name, and what changes in what is noted with it."""

    id: int
    name: str
    changes: Meta


@final
class NoteFacts(TypedDict):
    """Images got another name, or something else is noted with them; they stay the same images."""

    notes: list[Note]


class Record(NamedTuple):
    """`facts` say what happened; an added image brings its words and codes."""

    facts: AddFacts | DeleteFacts | NoteFacts
    words: np.ndarray | None = None
    codes: np.ndarray | None = None


def encode(record: Record) -> bytes:
    facts = json.dumps(record.facts).encode()
    payload = LENGTH.pack(len(facts)) + facts
    if record.words is not None and record.codes is not None:
        payload += np.asarray(record.words, "<i4").tobytes() + np.ascontiguousarray(record.codes).tobytes()
    return RECORD.pack(len(payload), zlib.crc32(payload)) + payload


def _decode(payload: bytes, width: int, kind: str) -> Record:
    (length,) = LENGTH.unpack_from(payload)
    facts = json.loads(payload[4 : 4 + length])
    rest = memoryview(payload)[4 + length :]
    if "add" not in facts:
        return Record(facts)
    count = len(rest) // (4 + width * np.dtype(kind).itemsize)
    words = np.frombuffer(rest[: 4 * count], "<i4")
    return Record(facts, words, np.frombuffer(rest[4 * count :], kind).reshape(count, width))


def new_journal(path: Path) -> None:
    """An empty journal, synced."""
    with explained(path), path.open("wb") as file:
        file.write(HEADER.pack(MAGIC, HEADER.size))
        sync(file)
        sync_folder(path.parent)


def read_journal(path: Path, width: int, kind: str) -> tuple[list[Record], int]:
    """All whole records and where they end."""
    if not path.is_file():
        raise StoreError(f"{path} is missing, and with it what was added last; {MEND}")
    with explained(path, "read"), path.open("rb") as file:
        head = file.read(HEADER.size)  # before the rest, which only grows
        rest = head + file.read()
    if len(head) < HEADER.size or not head.startswith(MAGIC):
        raise StoreError(f"{path} is damaged: it is not a journal; {MEND}")
    safe = HEADER.unpack(head)[1]
    records, end = [], HEADER.size
    for payload in _payloads(rest, end):
        try:
            records.append(_decode(payload, width, kind))
        except (ValueError, struct.error) as error:
            raise StoreError(f"{path} is damaged at byte {end}: {error}; {MEND}") from error
        end += RECORD.size + len(payload)
    if end < safe:
        raise StoreError(f"{path} is damaged at byte {end}: {safe} bytes were safe once; {MEND}")
    return records, end


def _payloads(data: bytes, place: int) -> Iterator[bytes]:
    while place + RECORD.size <= len(data):
        length, crc = RECORD.unpack_from(data, place)
        payload = data[place + RECORD.size : place + RECORD.size + length]
        if length == 0 or len(payload) < length or zlib.crc32(payload) != crc:
            return
        yield payload
        place += RECORD.size + length


def append(path: Path, end: int, records: Iterable[Record]) -> int:
    """Writes records behind `end` and returns the new end; when it returns they survive a kill and a power cut."""
    data = b"".join(encode(record) for record in records)
    with explained(path), path.open("r+b", buffering=0) as file:
        try:
            file.truncate(end)  # what a killed writer left
            file.seek(end)
            _write_all(file, data)
            os.fsync(file.fileno())
        except OSError:
            file.truncate(end)
            raise
        file.seek(len(MAGIC))
        _write_all(file, struct.pack("<Q", end + len(data)))
    return end + len(data)


def _write_all(file: IO[bytes], data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]
