"""The journal: what was acknowledged is there, what was cut short is not, and anything else is damage."""

import errno
import os
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest

from superfeat.errors import StoreError
from superfeat.index import journal
from superfeat.index.journal import HEADER, MAGIC, Record, append, encode, new_journal, read_journal

SHAPES = {"binary": (16, "|u1"), "real": (7, "<f4")}


def record(number: int, count: int, kernel: str = "binary") -> Record:
    width, kind = SHAPES[kernel]
    random = np.random.default_rng(number)
    words = np.sort(random.choice(100, count, replace=False)).astype(np.int32)
    codes = (random.standard_normal((count, width)) * 100).astype(kind)
    return Record({"add": f"n{number}", "id": number, "content": -5}, words, codes)


def same(a: Record, b: Record) -> bool:
    arrays = [(a.words, b.words), (a.codes, b.codes)]
    return a.facts == b.facts and all(
        (x is None and y is None) or (x is not None and y is not None and x.dtype == y.dtype and np.array_equal(x, y))
        for x, y in arrays
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    new_journal(tmp_path / "journal-000000")
    return tmp_path / "journal-000000"


@pytest.mark.parametrize("kernel", ["binary", "real"])
def test_records_come_back(kernel: str, path: Path) -> None:
    written = [
        record(0, 5, kernel),
        Record({"delete": [0, 2**40]}),
        record(1, 0, kernel),
        Record(
            {"add": "\udcff\0\n", "id": 2, "content": 0, "meta": {"a": 1}, "replaces": [1]}, *record(2, 99, kernel)[1:]
        ),
    ]
    end = HEADER.size
    for one in written[:2]:
        end = append(path, end, [one])
        assert end == path.stat().st_size
    end = append(path, end, written[2:])
    found, found_end = read_journal(path, *SHAPES[kernel])
    assert found_end == end == path.stat().st_size
    assert len(found) == 4
    assert all(map(same, found, written))


def test_an_empty_journal(path: Path) -> None:
    assert path.read_bytes() == MAGIC + (16).to_bytes(8, "little")
    assert read_journal(path, *SHAPES["binary"]) == ([], 16)
    assert append(path, 16, []) == 16


def test_the_bytes_are_as_documented(path: Path) -> None:
    append(path, HEADER.size, [Record({"delete": [3]}), Record({"add": "a", "id": 0, "content": 0}, *record(0, 1)[1:])])
    data = path.read_bytes()
    assert int.from_bytes(data[8:16], "little") == len(data)
    length = int.from_bytes(data[16:20], "little")
    payload = data[24 : 24 + length]
    assert payload == (15).to_bytes(4, "little") + b'{"delete": [3]}'
    assert int.from_bytes(data[20:24], "little") == zlib.crc32(payload)
    second = data[24 + length + 8 :]
    words, codes = record(0, 1)[1:]
    assert words is not None
    assert codes is not None
    assert (
        second
        == (35).to_bytes(4, "little") + b'{"add": "a", "id": 0, "content": 0}' + words.tobytes() + codes.tobytes()
    )


@pytest.mark.parametrize("extra", [record(1, 3), Record({"delete": [0]})])
def test_a_record_cut_short_at_any_byte_was_never_acknowledged(extra: Record, path: Path, tmp_path: Path) -> None:
    """It is dropped, the next writer writes over it, and nothing of it remains."""
    end = append(path, HEADER.size, [record(0, 3)])
    whole = path.read_bytes()
    data = encode(extra)
    for length in range(len(data) + 1):
        torn = tmp_path / "torn"
        torn.write_bytes(whole + data[:length])
        found, found_end = read_journal(torn, *SHAPES["binary"])
        complete = length == len(data)
        assert (len(found), found_end) == ((2, end + length) if complete else (1, end))
        after = append(torn, end, [Record({"delete": [9]})])
        assert after == torn.stat().st_size
        assert [one.facts for one in read_journal(torn, *SHAPES["binary"])[0]] == [found[0].facts, {"delete": [9]}]


def test_zeros_or_noise_behind_the_end_are_dropped(path: Path) -> None:
    """A power cut can leave the length of a file without its contents."""
    end = append(path, HEADER.size, [record(0, 3)])
    whole = path.read_bytes()
    for rest in (bytes(5000), b"\xff" * 50, os.urandom(3000)):
        path.write_bytes(whole + rest)
        found, found_end = read_journal(path, *SHAPES["binary"])
        assert (len(found), found_end) == (1, end)


def test_an_acknowledged_record_cut_short_is_damage(path: Path, tmp_path: Path) -> None:
    end = append(path, HEADER.size, [record(0, 3)])
    append(path, end, [Record({"delete": [0]})])
    whole = path.read_bytes()
    for length in range(len(whole)):
        (tmp_path / "cut").write_bytes(whole[:length])
        with pytest.raises(StoreError, match=r"cut is damaged") as error:
            read_journal(tmp_path / "cut", *SHAPES["binary"])
        if length >= HEADER.size:
            at = end if length >= end else HEADER.size
            assert (
                f"at byte {at}: {len(whole)} bytes were safe once; restore the folder from a copy, or make it again"
                in str(error.value)
            )


def test_a_flipped_bit_in_an_acknowledged_record_is_damage(path: Path, tmp_path: Path) -> None:
    end = append(path, HEADER.size, [record(0, 2)])
    append(path, end, [Record({"delete": [0]})])
    whole = path.read_bytes()
    for place in [*range(8), *range(16, len(whole))]:  # the mark in between is no part of any record
        for bit in range(8):
            damaged = bytearray(whole)
            damaged[place] ^= 1 << bit
            (tmp_path / "flipped").write_bytes(damaged)
            with pytest.raises(StoreError, match="flipped is damaged"):
                read_journal(tmp_path / "flipped", *SHAPES["binary"])


@pytest.mark.parametrize("bit", range(64))
def test_a_flipped_bit_in_the_mark_loses_nothing(bit: int, path: Path) -> None:
    end = append(path, HEADER.size, [record(0, 2)])
    data = bytearray(path.read_bytes())
    data[8 + bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)
    if int.from_bytes(data[8:16], "little") > end:
        with pytest.raises(StoreError, match="is damaged"):
            read_journal(path, *SHAPES["binary"])
    else:
        assert read_journal(path, *SHAPES["binary"])[1] == end


@pytest.mark.parametrize(
    "payload",
    [b"abc", b"\x02\0\0\0{", b'\x0b\0\0\0{"add": "a"', b'\x0c\0\0\0{"add": "a"}' + bytes(21)],
)
def test_a_record_that_makes_no_sense_is_damage(payload: bytes, path: Path) -> None:
    """Its checksum is right, so a program wrote it that was not this one."""
    data = len(payload).to_bytes(4, "little") + zlib.crc32(payload).to_bytes(4, "little") + payload
    path.write_bytes(MAGIC + (16 + len(data)).to_bytes(8, "little") + data)
    with pytest.raises(StoreError, match="is damaged"):
        read_journal(path, *SHAPES["binary"])


@pytest.mark.parametrize("data", [b"", b"SFJRNL0", b"SFJRNL01\x10", b"SFJRNL02" + bytes(8), b"\0" * 100])
def test_what_is_no_journal(data: bytes, path: Path) -> None:
    path.write_bytes(data)
    with pytest.raises(StoreError, match="is damaged: it is not a journal"):
        read_journal(path, *SHAPES["binary"])
    path.unlink()
    with pytest.raises(StoreError, match="journal-000000 is missing"):
        read_journal(path, *SHAPES["binary"])


def failing_at(monkeypatch: pytest.MonkeyPatch, where: str, code: int) -> None:
    def fail(*_: Any) -> None:
        raise OSError(code, os.strerror(code))

    if where == "fsync":
        monkeypatch.setattr(os, "fsync", fail)
        return
    write: Callable[[IO[bytes], bytes], None] = journal._write_all

    def half(file: IO[bytes], data: bytes) -> None:
        if where == "mark" and len(data) != 8:
            write(file, data)
            return
        file.write(data[: len(data) // 2] if where == "write" else b"")
        fail()

    monkeypatch.setattr(journal, "_write_all", half)


@pytest.mark.parametrize("where", ["write", "fsync", "mark"])
@pytest.mark.parametrize(("code", "message"), [(errno.ENOSPC, "the disk is full"), (errno.EIO, "Input/output error")])
def test_a_write_that_fails_takes_nothing_with_it(
    where: str, code: int, message: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = append(path, HEADER.size, [record(0, 3)])
    before = path.read_bytes()
    with monkeypatch.context() as patch:
        failing_at(patch, where, code)
        with pytest.raises(StoreError, match=message):
            append(path, end, [record(1, 3)])
    if where != "mark":
        assert path.read_bytes() == before
    after = append(path, end, [record(2, 4)])
    found, found_end = read_journal(path, *SHAPES["binary"])
    assert [one.facts for one in found] == [record(0, 3).facts, record(2, 4).facts]
    assert found_end == after


def test_short_writes_are_gone_on_with(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow:
        def __init__(self) -> None:
            self.data = b""

        def write(self, data: memoryview) -> int:
            self.data += bytes(data[:3])
            return min(3, len(data))

    slow = Slow()
    journal._write_all(slow, b"0123456789")  # type: ignore[arg-type]
    assert slow.data == b"0123456789"


def test_the_mark_comes_after_the_sync(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a power cut could leave a mark for a record that is not there."""
    marks: list[int] = []
    sync = os.fsync

    def watched(handle: int) -> None:
        marks.append(int.from_bytes(path.read_bytes()[8:16], "little"))
        sync(handle)

    monkeypatch.setattr(os, "fsync", watched)
    end = append(path, HEADER.size, [record(0, 3)])
    append(path, end, [record(1, 3)])
    assert marks == [HEADER.size, end]


def test_a_copy_reads_the_same(path: Path, tmp_path: Path) -> None:
    append(path, HEADER.size, [record(number, number) for number in range(5)])
    shutil.copy(path, tmp_path / "copy")
    a, b = read_journal(path, *SHAPES["binary"]), read_journal(tmp_path / "copy", *SHAPES["binary"])
    assert a[1] == b[1]
    assert all(map(same, a[0], b[0]))
