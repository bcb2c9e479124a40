"""What people said of results: yes, this shows the same thing, or no. A small file of its own beside the index.

`labels/said.jsonl` begins with a line that names its format. Every other line is the CRC-32 of a JSON object, a space,
and the object. It is written with one sync, and counts once it is whole: what a killed writer left behind the last
whole line is cut off by the next. A photo is known by the digest of its bytes, so that moving it, merging or
compacting an index changes nothing; one whose bytes the index does not know goes by its name.
"""

import base64
import contextlib
import functools
import json
import threading
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import numpy as np

from superfeat.errors import StoreError
from superfeat.features import ImageWords, Meta
from superfeat.index.places import Region
from superfeat.storage.records import as_record
from superfeat.storage.store import explained, require_version, sync, write_file, writer_lock

FOLDER, FILE = "labels", "said.jsonl"
FORMAT, VERSION = "superfeat-labels", 1
_LOCK = threading.Lock()


class Searched(NamedTuple):
    """What was searched with: a photo, or a part of it."""

    photo: str
    box: Region | None = None


class Label(NamedTuple):
    """Whether a photo that was found shows the same thing; None takes back what was said."""

    searched: Searched
    found: str
    same: bool | None


class Said(NamedTuple):
    """All answers that hold, and the words of queries that the index itself does not have."""

    labels: dict[tuple[Searched, str], bool]
    words: dict[Searched, ImageWords]

    def counts(self) -> tuple[int, int]:
        """How many times yes, and no."""
        yes = sum(self.labels.values())
        return yes, len(self.labels) - yes


class _Answer(TypedDict):
    photo: str
    box: list[float] | None
    found: str
    same: bool | None


class _Words(TypedDict):
    photo: str
    box: list[float] | None
    words: str
    codes: str
    kind: str  # of the codes
    codebook: str


def photo_mark(name: str, meta: Meta) -> str:
    """By what a label knows an indexed photo."""
    digest = meta.get("digest")
    return digest if isinstance(digest, str) else f"name {name}"


def read_labels(index: Path) -> Said:
    """All that was said; not to be changed. StoreError if the file is damaged."""
    path = index / FOLDER / FILE
    with contextlib.suppress(OSError):
        facts = path.stat()
        return _remembered(path, facts.st_size, facts.st_mtime_ns)
    return Said({}, {})


@functools.lru_cache(maxsize=4)
def _remembered(path: Path, size: int, changed: int) -> Said:
    """Read once while it does not change: every answer to a search asks for it."""
    return _read_all(path)


def _read_all(path: Path) -> Said:
    said = Said({}, {})
    for fields in _read(path)[0]:
        _take(said, fields, path)
    return said


def _take(said: Said, fields: Any, path: Path) -> None:
    box = fields.get("box") if isinstance(fields, dict) else None
    if isinstance(fields, dict) and "words" in fields:
        kept = as_record(_Words, fields, path)
        words = np.frombuffer(base64.b64decode(kept["words"]), "<i4")
        codes = np.frombuffer(base64.b64decode(kept["codes"]), kept["kind"])
        codes = codes.reshape(len(words), len(codes) // max(1, len(words)))
        said.words[_searched(kept["photo"], box)] = ImageWords(words, codes, kept["codebook"])
        return
    answer = as_record(_Answer, fields, path)
    key = _searched(answer["photo"], box), answer["found"]
    said.labels.pop(key, None)
    if answer["same"] is not None:
        said.labels[key] = answer["same"]


def _searched(photo: str, box: Sequence[float] | None) -> Searched:
    if box is None:
        return Searched(photo)
    left, top, width, height = box
    return Searched(photo, (left, top, width, height))


def write_labels(index: Path, labels: Sequence[Label], words: ImageWords | None = None) -> None:
    """Notes what was said, safe on disk when this returns.

    `words` are those of the query, where it is no photo of the index or a part of one: once noted, they need not be
    given again.
    """
    lines: list[dict[str, object]] = []
    if words is not None and labels:
        lines.append({**_plain(labels[0].searched), **_plain_words(words)})
    lines += [{**_plain(one.searched), "found": one.found, "same": one.same} for one in labels]
    _append(index, [json.dumps(line).encode() for line in lines])


def _plain(searched: Searched) -> dict[str, object]:
    return {"photo": searched.photo, "box": None if searched.box is None else list(searched.box)}


def _plain_words(image: ImageWords) -> dict[str, object]:
    words, codes = np.ascontiguousarray(image.words, "<i4"), np.ascontiguousarray(image.codes)
    texts = {"words": base64.b64encode(words.tobytes()).decode(), "codes": base64.b64encode(codes.tobytes()).decode()}
    return {**texts, "kind": codes.dtype.str, "codebook": image.codebook}


def merge_labels(index: Path, other: Path) -> None:
    """Takes in what was said in another index, after what was said here."""
    _append(index, [json.dumps(fields).encode() for fields in _read(other / FOLDER / FILE)[0]])


def verify_labels(index: Path) -> Iterator[str]:
    """Reads all labels; yields the name of their file if there is one."""
    if (index / FOLDER / FILE).is_file():
        _read_all(index / FOLDER / FILE)
        yield f"{FOLDER}/{FILE}"


# -- Bytes


def _append(index: Path, texts: Sequence[bytes]) -> None:
    if not texts:
        return
    folder = index / FOLDER
    path = folder / FILE
    with explained(folder):
        folder.mkdir(exist_ok=True)
    with _LOCK, writer_lock(folder):  # a lock of its own: labels are given while photos are brought in
        if not path.is_file():
            write_file(path, json.dumps({"format": FORMAT, "version": VERSION}).encode() + b"\n")
        end = _read(path)[1]
        with explained(path), path.open("r+b") as file:
            file.truncate(end)
            file.seek(end)
            file.write(b"".join(b"%08x %s\n" % (zlib.crc32(text), text) for text in texts))
            sync(file)


def _read(path: Path) -> tuple[list[Any], int]:
    """The objects of all whole lines, and where these end; of a file that is not there nothing."""
    with explained(path, "read"), contextlib.suppress(FileNotFoundError):
        data = path.read_bytes()
        return _parse(data, path)
    return [], 0


def _parse(data: bytes, path: Path) -> tuple[list[Any], int]:
    head, found, rest = data.partition(b"\n")
    try:
        facts = json.loads(head) if found else None
    except ValueError:
        facts = None
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise StoreError(f"{path} is damaged: it does not begin as a file of labels; restore it from a copy")
    require_version(facts, VERSION, path)
    whole, newline, _ = rest.rpartition(b"\n")  # behind it: what a killed writer left
    lines = whole.split(b"\n") if newline else []
    return [_object(line, number, path) for number, line in enumerate(lines, 2)], len(head) + 1 + len(whole + newline)


def _object(line: bytes, number: int, path: Path) -> Any:
    mark, _, text = line.partition(b" ")
    if mark != b"%08x" % zlib.crc32(text):
        raise StoreError(f"{path} is damaged in line {number}; restore it from a copy, or take the line out")
    return json.loads(text)
