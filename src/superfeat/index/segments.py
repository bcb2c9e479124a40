"""A segment: up to 65536 images as word-sorted postings. Built in memory, written once, then mapped and only read."""

import contextlib
import dataclasses
import hashlib
import itertools
import mmap
import os
import shutil
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float64, Int32, Int64, UInt32

from superfeat.errors import StoreError, SuperfeatError
from superfeat.features import ImageWords
from superfeat.index.kernel import SEGMENT_IMAGES, Postings, code_bytes
from superfeat.index.manifest import FileFacts, SegmentFacts
from superfeat.index.names import Image, MemoryNames, Names, NotedNames, write_names
from superfeat.index.postings import check_ids, check_starts, find_many, find_postings, join_postings, sort_postings
from superfeat.index.vectors import Rounded, round_rows
from superfeat.storage.store import MappedArray, explained, map_array, read_array, sync, sync_folder

NAMES = "names.sqlite"
ROUNDED = {"rounded": "|i1", "steps": "<f4", "errors": "<f4"}  # files of vectors in 8 bits
SEGMENT_BYTES = 1 << 30  # of the codes: what building one needs in memory
DTYPES = {"starts": "<u4", "ids": "<u2", "images": "<i8", "sizes": "<u4"}
READ_AT_ONCE = 1 << 24
SLOW_SEARCH, SLOW_POSTING = 2e-3, 30e-9  # seconds; slower than this, and pages had to come from the disk


@dataclasses.dataclass(frozen=True)
class Layout:
    """What all segments of an index have in common."""

    words: int
    dim: int
    binary: bool
    codebook: str  # digest
    vectors: str | None = None  # of images that are one vector each: how it is stored (VECTOR_KERNELS)

    @property
    def code_shape(self) -> tuple[int, str]:
        """Values per code, and their type on disk."""
        if self.vectors == "float16":
            return self.dim, "<f2"
        return (code_bytes(self.dim), "|u1") if self.binary else (self.dim, "<f4")

    @property
    def posting_bytes(self) -> int:
        width, kind = self.code_shape
        return width * np.dtype(kind).itemsize + 2

    @property
    def most_postings(self) -> int:
        return min(SEGMENT_BYTES // self.posting_bytes, (1 << 32) - 1)

    def for_scan(self, codes: np.ndarray) -> np.ndarray:
        """Codes as the kernel reads them: whole 64-bit words."""
        if self.vectors == "float16":
            return np.ascontiguousarray(codes).view(np.uint16)
        return np.ascontiguousarray(codes).view(np.uint64) if self.binary else codes

    def as_stored(self, codes: np.ndarray) -> np.ndarray:
        """Such codes as they are on disk."""
        return codes.view(self.code_shape[1]) if self.binary or self.vectors == "float16" else codes


class Pages:
    """Reads lists ahead where they are on disk and not in memory, which the time of the last search tells."""

    def __init__(self, *arrays: MappedArray) -> None:
        self._arrays = [one for one in arrays if len(one.array) and hasattr(one.map, "madvise")]
        self._cold = True

    @contextlib.contextmanager
    def reading(self, firsts: UInt32[np.ndarray, "m"], ends: UInt32[np.ndarray, "m"]) -> Iterator[None]:
        """Asks for all these postings at once before they are read: far less waiting than for each list in turn."""
        if self._cold:
            for one in self._arrays:
                width = one.array.strides[0]
                begins = one.begin + firsts.astype(np.int64) * width
                begins -= begins % mmap.PAGESIZE
                lengths = one.begin + ends.astype(np.int64) * width - begins
                some = ends > firsts
                for begin, length in zip(begins[some].tolist(), lengths[some].tolist(), strict=True):
                    one.map.madvise(mmap.MADV_WILLNEED, begin, length)
        began = time.perf_counter()  # asking takes longer than reading where lists are short and in memory
        yield
        self._cold = time.perf_counter() - began > SLOW_SEARCH + SLOW_POSTING * int((ends - firsts).sum())


@dataclasses.dataclass(frozen=True, eq=False)
class Segment:
    """`images` holds the stable ids of its images, ascending; `sizes` how many words each has."""

    layout: Layout
    postings: Postings
    images: Int64[np.ndarray, "images"]
    sizes: UInt32[np.ndarray, "images"]
    names: Names | MemoryNames | NotedNames
    folder: str | None = None  # its number on disk; None while it is only in memory
    pages: Pages | None = None  # of ids and codes, if they are mapped
    rounded: Rounded | None = None  # of vectors that are looked at in 8 bits first
    norms: Float64[np.ndarray, "images"] = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "norms", np.sqrt(np.maximum(self.sizes, 1)))
        if self.layout.vectors == "int8" and self.rounded is None:
            object.__setattr__(self, "rounded", round_rows(self.postings.codes))

    def __len__(self) -> int:
        return len(self.images)

    def as_written(self) -> "Segment":
        """Itself without the notes of the journal."""
        return dataclasses.replace(self, names=self.names.base) if isinstance(self.names, NotedNames) else self

    def reading(self, words: Int32[np.ndarray, "m"]) -> contextlib.AbstractContextManager[None]:
        """To be held while the lists of these words are read."""
        starts = self.postings.starts
        return self.pages.reading(starts[words], starts[words + 1]) if self.pages else contextlib.nullcontext()

    def words_of(self, number: int) -> ImageWords:
        """The words and codes of one of its images."""
        return self._stored(*find_postings(self.postings, number))

    def words_of_many(self, numbers: Int64[np.ndarray, "n"]) -> list[ImageWords]:
        """The same of several, each named once."""
        found = find_many(self.postings, numbers, self.sizes[numbers].astype(np.int64))
        return [self._stored(*one) for one in found]

    def _stored(self, words: Int32[np.ndarray, "m"], places: Int64[np.ndarray, "m"]) -> ImageWords:
        codes = np.ascontiguousarray(self.postings.codes[places])
        return ImageWords(words, self.layout.as_stored(codes), self.layout.codebook)


def require_words(image: ImageWords, layout: Layout, what: str) -> ImageWords:
    """An image's words and codes as the kernel reads them without looking, or an error that says what is wrong."""
    width, kind = layout.code_shape
    words, codes = np.asarray(image.words), np.asarray(image.codes)
    if image.codebook != layout.codebook:
        raise SuperfeatError(
            f"{what} are of another codebook ({image.codebook[:12]}…) than the index's "
            f"({layout.codebook[:12]}…); assign its features with this index"
        )
    if layout.vectors is not None and len(words) != 1:
        raise SuperfeatError(
            f"{what} are {len(words)}; an image of this index has one vector: extract it with its network"
        )
    rising = words.ndim == 1 and words.dtype.kind in "iu" and bool((np.diff(words) > 0).all())
    if not rising or (len(words) and not 0 <= words[0] <= words[-1] < layout.words):
        raise SuperfeatError(f"{what} must be rising numbers from 0 to {layout.words - 1}")
    if codes.dtype != np.dtype(kind) or codes.shape != (len(words), width):
        raise SuperfeatError(
            f"the codes of {what} must be {np.dtype(kind)} {(len(words), width)}, not {codes.dtype} {codes.shape}"
        )
    spare = np.unpackbits(codes, axis=1)[:, layout.dim :] if layout.binary else ~np.isfinite(codes)
    if spare.any():
        raise SuperfeatError(f"the codes of {what} are not codes of {layout.dim} dimensions")
    return dataclasses.replace(image, words=words.astype(np.int32), codes=codes)


def content_digest(image: ImageWords) -> int:
    """A digest of words and codes, as a signed 64-bit number."""
    digest = hashlib.blake2b(np.asarray(image.words, "<i4").tobytes(), digest_size=8)
    digest.update(np.ascontiguousarray(image.codes).tobytes())
    return int.from_bytes(digest.digest(), "little", signed=True)


def build_segment(
    layout: Layout, ids: Sequence[int], images: Sequence[Image], contents: Sequence[tuple[np.ndarray, np.ndarray]]
) -> Segment:
    """From the words and codes of each image."""
    assert len(ids) <= SEGMENT_IMAGES
    sizes = np.asarray([len(words) for words, _ in contents], np.int64)
    width, kind = layout.code_shape
    words = np.concatenate([words for words, _ in contents] or [np.empty(0, np.int32)])
    codes = np.concatenate([codes for _, codes in contents] or [np.empty((0, width), kind)])
    postings = sort_postings(words.astype(np.int32), sizes, layout.for_scan(codes), layout.words)
    return Segment(layout, postings, np.asarray(ids, np.int64), sizes.astype(np.uint32), MemoryNames(list(images)))


def join_segments(parts: Sequence[Segment], kept: Sequence[Bool[np.ndarray, "_"]]) -> Segment:
    """One segment of the kept images, in the order given; of the others nothing remains."""
    postings = join_postings([part.postings for part in parts], kept)
    images = np.concatenate([part.images[keep] for part, keep in zip(parts, kept, strict=True)])
    sizes = np.concatenate([part.sizes[keep] for part, keep in zip(parts, kept, strict=True)])
    rows = [list(itertools.compress(part.names, keep)) for part, keep in zip(parts, kept, strict=True)]
    names = MemoryNames(list(itertools.chain.from_iterable(rows)))
    return Segment(parts[0].layout, postings, images, sizes, names)


def write_segment(segment: Segment, folder: Path) -> SegmentFacts:
    """Writes and syncs a segment's folder; returns what the manifest says of it."""
    arrays = {
        "starts": segment.postings.starts,
        "ids": segment.postings.ids,
        "codes": segment.layout.as_stored(segment.postings.codes),
        "images": segment.images,
        "sizes": segment.sizes,
    }
    if segment.rounded is not None:
        arrays |= dict(zip(ROUNDED, segment.rounded, strict=True))
    with explained(folder):
        folder.mkdir(parents=True)
        for name, array in arrays.items():
            with (folder / f"{name}.npy").open("wb") as file:
                np.save(file, array)
                sync(file)
        names = _write_names(segment, folder)
        files = {f"{name}.npy": _file_facts(folder / f"{name}.npy") for name in arrays}
    return {
        "folder": folder.name,
        "images": len(segment),
        "postings": len(segment.postings.ids),
        "first": int(segment.images[0]) if len(segment) else 0,
        "files": dict(sorted({**files, NAMES: names}.items())),
    }


def write_renamed(segment: Segment, before: Path, facts: SegmentFacts, folder: Path) -> SegmentFacts:
    """A segment on disk with other names: its arrays are linked into a new folder, or copied where links are not."""
    with explained(folder):
        folder.mkdir(parents=True)
        for name in facts["files"]:
            if name != NAMES:
                _link(before / name, folder / name)
        names = _write_names(segment, folder)
    return {**facts, "folder": folder.name, "files": {**facts["files"], NAMES: names}}


def _link(source: Path, target: Path) -> None:
    try:
        target.hardlink_to(source)
    except OSError:
        shutil.copyfile(source, target)
        with target.open("rb") as file:
            os.fsync(file.fileno())


def _write_names(segment: Segment, folder: Path) -> FileFacts:
    """The names of a segment, the last of its files; all of them are safe then."""
    write_names(folder / NAMES, segment.names)
    with (folder / NAMES).open("rb") as file:
        os.fsync(file.fileno())
    sync_folder(folder)
    sync_folder(folder.parent)
    return _file_facts(folder / NAMES)


def _file_facts(path: Path) -> FileFacts:
    return {"bytes": path.stat().st_size, "crc32": checksum(path)}


def checksum(path: Path) -> int:
    """CRC-32 of a file."""
    total = 0
    with path.open("rb") as file:
        while block := file.read(READ_AT_ONCE):
            total = zlib.crc32(block, total)
    return total


def open_segment(layout: Layout, path: Path, facts: SegmentFacts) -> Segment:
    """Maps a segment. Sizes and the small arrays are checked here, the large ones by `verify_segment`."""
    for name, file in facts["files"].items():
        with explained(path / name, "read"):
            size = (path / name).stat().st_size
        if size != file["bytes"]:
            raise StoreError(f"{path / name} is damaged: it has {size} bytes, not {file['bytes']}")
    width, kind = layout.code_shape
    small = {name: read_array(path / f"{name}.npy", DTYPES[name]) for name in ("starts", "images", "sizes")}
    ids, codes = map_array(path / "ids.npy", DTYPES["ids"]), map_array(path / "codes.npy", kind)
    images, postings = facts["images"], facts["postings"]
    shapes = [array.shape for array in (small["starts"], small["images"], small["sizes"], ids.array, codes.array)]
    if shapes != [(layout.words + 1,), (images,), (images,), (postings,), (postings, width)]:
        raise StoreError(f"{path} is damaged: its arrays do not have the shapes that the manifest says")
    wrong = check_starts(small["starts"], postings)
    if wrong is None and bool((np.diff(small["images"]) <= 0).any()):
        wrong = "its images are not in order"
    if wrong is not None:
        raise StoreError(f"{path} is damaged: {wrong}; run superfeat verify")
    names = Names(path / NAMES, images)
    lists = Postings(small["starts"], ids.array, layout.for_scan(codes.array))
    rounded = _open_rounded(path, images, width) if layout.vectors == "int8" else None
    return Segment(layout, lists, small["images"], small["sizes"], names, path.name, Pages(ids, codes), rounded)


def _open_rounded(path: Path, images: int, width: int) -> Rounded:
    found = Rounded(*(map_array(path / f"{name}.npy", kind).array for name, kind in ROUNDED.items()))
    if [array.shape for array in found] != [(images, width), (images,), (images,)]:
        raise StoreError(f"{path} is damaged: its 8-bit vectors do not have the shapes that the manifest says")
    return found


def verify_segment(segment: Segment, path: Path, facts: SegmentFacts) -> Iterable[str]:
    """Yields the name of each file found whole; StoreError at the first that is not."""
    for name, file in facts["files"].items():
        with explained(path / name, "read"):
            if checksum(path / name) != file["crc32"]:
                raise StoreError(f"{path / name} is damaged: its checksum is not the one it was written with")
        yield name
    wrong = check_ids(segment.postings, segment.sizes)
    if wrong is not None:
        raise StoreError(f"{path} is damaged: {wrong}")
