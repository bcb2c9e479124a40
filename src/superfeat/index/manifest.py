"""What an index says of itself: the file that names its parts, and that is replaced as a whole by every change."""

import dataclasses
import json
import zlib
from pathlib import Path
from typing import Literal, TypedDict

from superfeat.errors import StoreError
from superfeat.settings import Values
from superfeat.storage.records import as_record
from superfeat.storage.store import MEND, read_json, write_json

FORMAT = "superfeat-index"
VERSION = 2
VECTORS_VERSION = 3  # of an index of vectors: one that knows words alone must not read it
READABLE = (1, 2, 3)  # 1 had no notes in its journal, and no gaps between ids; it becomes 2 with the first
MANIFEST = "manifest.json"


class IndexFacts(TypedDict, total=False):
    """How the features of an index are made, as far as its maker said so."""

    extract: Values  # settings of ExtractConfig
    weights: str  # name or path of the network
    boxes: str  # where an image is the mean of its boxes: "file" or "attention"


class FileFacts(TypedDict):
    """Of a file of a segment."""

    bytes: int
    crc32: int


class SegmentFacts(TypedDict):
    """What the manifest says of a segment."""

    folder: str
    images: int
    postings: int
    first: int  # id of the first image
    files: dict[str, FileFacts]


class DeadFacts(TypedDict):
    """The file that lists the dead images of the segments."""

    file: str
    count: int
    crc32: int


class Manifest(TypedDict):
    """As docs/formats.md describes it, without its checksum."""

    format: str
    version: int
    made: str  # tells it from another one that is made later at the same place
    words: int
    dim: int
    kernel: Literal["binary", "real", "float32", "float16", "int8"]
    codebook: str  # digest
    network: str | None  # digest
    settings: Values  # of IndexConfig
    facts: IndexFacts
    segments: list[SegmentFacts]
    dead: DeadFacts | None
    journal: str
    next_id: int
    next_file: int


@dataclasses.dataclass(frozen=True)
class IndexInfo:
    """Counts, sizes, and how an index was made."""

    format: str
    version: int
    kernel: str
    words: int
    dim: int
    images: int
    deleted: int
    segments: int
    in_journal: int
    postings: int
    words_per_image: float
    bytes: int
    bytes_per_posting: float
    settings: Values  # of IndexConfig
    facts: IndexFacts
    network: str | None  # digest
    codebook: str  # digest
    shards: list[int] | None = None  # images of each, of a collection in shards


def read_manifest(path: Path) -> Manifest:
    """What an index says of itself."""
    file = path / MANIFEST
    if not file.is_file():
        if path.is_file() or (path.is_dir() and any(path.iterdir())):
            raise StoreError(f"{path} is not an index: it has no {MANIFEST}; name the folder of one")
        raise StoreError(f"{path} is not an index; make one with: superfeat index PHOTOS -o {path}")
    manifest = read_json(file)
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise StoreError(f"{path} is not an index: its {MANIFEST} is of something else; choose another folder")
    if manifest.get("version") not in READABLE:
        raise StoreError(
            f"{path} has format version {manifest.get('version')}; this superfeat reads {VERSION}: upgrade it"
        )
    if manifest.pop("crc32", None) != zlib.crc32(json.dumps(manifest, sort_keys=True).encode()):
        raise StoreError(f"{file} is damaged: its checksum is not the one it was written with; {MEND}")
    return as_record(Manifest, manifest, file)


def write_manifest(path: Path, manifest: Manifest) -> None:
    """Replaces what an index says of itself: the one moment at which a change happens."""
    checksum = zlib.crc32(json.dumps(manifest, sort_keys=True).encode())
    write_json(path / MANIFEST, {**manifest, "crc32": checksum})
