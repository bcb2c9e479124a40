"""Features on disk: plain .npy arrays that grow image by image, and a journal that says which images are whole.

docs/formats.md describes every byte. An image counts once its line is in the journal; whatever a killed process left
behind that line is cut off by the next writer, which goes on from there.
"""

import contextlib
import dataclasses
import io
import json
import mmap
import os
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, TypedDict

import numpy as np

from superfeat.addresses.address import Where
from superfeat.errors import StoreError
from superfeat.features import Features
from superfeat.images import Skipped
from superfeat.settings import Values
from superfeat.storage.records import as_record
from superfeat.storage.store import differences, explained, read_json, sync, sync_folder, write_json, writer_lock

FORMAT = "superfeat-features"
VERSION = 1
UNSEEN = (0, 0)  # the stamp of a photo that cannot be seen
HEADER_BYTES = 128  # of every .npy file here, so that its shape can be rewritten in place
DTYPES = {"vectors": "<f4", "strengths": "<f4", "scales": "<f4", "ids": "<i4", "regions": "<f4"}


class FeatureFacts(TypedDict, total=False):
    """How features are made, as far as their maker says so."""

    network: Values  # its settings, and its `digest`
    extract: Values  # settings of ExtractConfig
    pooled: bool  # one global vector per image


class Begun(FeatureFacts):
    """What a features folder is from the first image on."""

    format: str
    version: int
    dim: int
    regions: bool


class FeaturesManifest(Begun, total=False):
    """manifest.json of a features folder; the counts are there when it is complete."""

    images: int
    skipped: int
    features: int
    complete: bool


@dataclasses.dataclass(frozen=True)
class Entry:
    """One line of the journal: an image and its rows, or why it was skipped."""

    name: str
    stamp: tuple[int, int]  # size and time of change (ns) of the photo, to notice another one under the same name
    first: int = 0
    count: int = 0
    size: tuple[int, int] | None = None  # width, height as extracted
    crc32: int = 0
    skipped: str | None = None

    def to_line(self) -> bytes:
        facts = {key: value for key, value in dataclasses.asdict(self).items() if value is not None}
        return (json.dumps(facts, sort_keys=True) + "\n").encode()

    @classmethod
    def from_line(cls, line: bytes) -> "Entry":
        facts = json.loads(line)
        for key in ("stamp", "size"):
            if key in facts:
                facts[key] = tuple(facts[key])
        return cls(**facts)


def photo_stamp(path: Where) -> tuple[int, int]:
    """Size and time of change of a photo, or what stands for a time where it lies; zeros if it cannot be seen."""
    try:
        status = path.stat()
    except OSError:
        return UNSEEN
    return status.st_size, status.st_mtime_ns


class FeatureStore:
    """Read access to a features folder, finished or not: a consistent snapshot of the images that were whole."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.manifest = _read_manifest(self.path)
        journal = _read_journal(self.path)
        self.entries = [entry for entry in journal if entry.skipped is None]
        self.skipped = [entry for entry in journal if entry.skipped is not None]
        rows = _rows(self.entries)
        self._arrays = {
            name: _map_array(self.path, name, rows, width) for name, width in _widths(self.manifest).items()
        }
        self._by_name = {entry.name: entry for entry in self.entries}
        self.network: str | None = self.manifest.get("network", {}).get("digest")

    def __len__(self) -> int:
        return len(self.entries)

    def names(self) -> set[str]:
        """Of all images that need not be done again, the skipped ones included."""
        return {entry.name for entry in (*self.entries, *self.skipped)}

    def __iter__(self) -> Iterator[Features]:
        return (self._features(entry) for entry in self.entries)

    def __getitem__(self, name: str) -> Features:
        """The features of one image."""
        if name not in self._by_name:
            raise StoreError(f"{self.path} has no image called {name}")
        return self._features(self._by_name[name])

    def _features(self, entry: Entry) -> Features:
        rows = slice(entry.first, entry.first + entry.count)
        arrays: dict[str, Any] = {key: _copy_rows(array, rows) for key, array in self._arrays.items()}
        return Features(name=entry.name, image_size=entry.size, network=self.network, **arrays)

    def verify(self) -> None:
        """Reads everything and compares the checksums; StoreError at the first image that is not as it was written."""
        for entry in self.entries:
            if _checksum(self._features(entry).arrays()) != entry.crc32:
                raise StoreError(f"{self.path}: the features of {entry.name} are damaged; extract them again")


def stored_names(path: Path) -> set[str]:
    """Names of the images that an extraction into this folder need not do again; none if it is not there yet."""
    return FeatureStore(path).names() if (path / "manifest.json").is_file() else set()


class FeatureWriter:
    """Adds images to a features folder, new or half done."""

    def __init__(self, path: Path, manifest: Begun, files: Mapping[str, IO[bytes]], entries: list[Entry]) -> None:
        self.path = path
        self.entries = {entry.name: entry for entry in entries}
        self._manifest = manifest
        self._files = files
        self._rows = _rows(entries)

    def has(self, name: str, stamp: tuple[int, int]) -> bool:
        """Whether the image is done: extracted, or skipped and not changed since."""
        entry = self.entries.get(name)
        return entry is not None and (entry.skipped is None or entry.stamp == stamp)

    def add(self, features: Features, stamp: tuple[int, int]) -> None:
        """Writes an image; when this returns it survives a kill and a power cut."""
        with explained(self.path):
            arrays = features.arrays()
            for name, array in arrays.items():
                self._files[name].write(np.ascontiguousarray(array, DTYPES[name]).tobytes())
                sync(self._files[name])
            size = features.image_size
            entry = Entry(features.name, stamp, self._rows, len(features), size, _checksum(arrays))
            self._append(entry)
            self._rows += len(features)

    def skip(self, skipped: Skipped, stamp: tuple[int, int]) -> None:
        """Notes a photo that could not be read, so that it is not tried again until it changes."""
        with explained(self.path):
            self._append(Entry(skipped.name, stamp, skipped=skipped.reason))

    def finish(self) -> None:
        """Writes the final shapes and counts."""
        with explained(self.path):
            for name, width in _widths(self._manifest).items():
                file = self._files[name]
                file.seek(0)
                file.write(_npy_header(name, self._rows, width))
                file.seek(0, os.SEEK_END)
                sync(file)
        done = [entry for entry in self.entries.values() if entry.skipped is None]
        manifest: FeaturesManifest = {
            **self._manifest,
            "images": len(done),
            "skipped": len(self.entries) - len(done),
            "features": self._rows,
            "complete": True,
        }
        write_json(self.path / "manifest.json", manifest)

    def _append(self, entry: Entry) -> None:
        self._files["journal"].write(entry.to_line())
        sync(self._files["journal"])
        self.entries[entry.name] = entry


@contextlib.contextmanager
def feature_writer(path: str | Path, facts: FeatureFacts, dim: int, regions: bool) -> Iterator[FeatureWriter]:
    """Opens a features folder for writing; made by the same network and settings, it is gone on with."""
    folder = Path(path)
    with explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
    manifest: Begun = {"format": FORMAT, "version": VERSION, "dim": dim, "regions": regions, **facts}
    with writer_lock(folder), contextlib.ExitStack() as stack:
        if (folder / "manifest.json").exists():
            _require_same(folder, _read_manifest(folder), manifest)
        elif any(not file.name.startswith(".") for file in folder.iterdir()):
            raise StoreError(f"{folder} holds other files; choose a new folder for the features")
        write_json(folder / "manifest.json", {**manifest, "complete": False})
        entries = _read_journal(folder)
        rows = _rows(entries)
        with explained(folder):
            files = {
                name: stack.enter_context(_open_array(folder, name, rows, width))
                for name, width in _widths(manifest).items()
            }
            files["journal"] = stack.enter_context(_open_journal(folder, entries))
            sync_folder(folder)
        yield FeatureWriter(folder, manifest, files, entries)


def _rows(entries: list[Entry]) -> int:
    """Rows in use: up to the end of the last image. (One written twice leaves its first rows unused.)"""
    return max((entry.first + entry.count for entry in entries), default=0)


def _widths(manifest: Begun) -> dict[str, int | None]:
    """The arrays of a features folder and the width of a row (None: one number)."""
    widths = {"vectors": manifest["dim"], "strengths": None, "scales": None, "ids": None}
    return {**widths, "regions": 4} if manifest["regions"] else widths


def _require_same(folder: Path, old: FeaturesManifest, new: Begun) -> None:
    different = differences(old, new)
    if different:
        raise StoreError(
            f"{folder} was made with other settings ({different}); choose another folder, or remove it to start again"
        )


def _read_manifest(folder: Path) -> FeaturesManifest:
    path = folder / "manifest.json"
    if not path.is_file():
        raise StoreError(f"{folder} is not a features folder: it has no manifest.json")
    manifest = read_json(path)
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise StoreError(f"{folder} is not a features folder")
    if manifest.get("version") != VERSION:
        raise StoreError(
            f"{folder} has format version {manifest.get('version')}; this superfeat reads {VERSION}: upgrade it"
        )
    if not isinstance(manifest.get("dim"), int) or not isinstance(manifest.get("regions"), bool):
        raise StoreError(f"{path} is damaged: it does not say how wide its arrays are")
    return as_record(FeaturesManifest, manifest, path)


def _read_journal(folder: Path) -> list[Entry]:
    """The whole lines of the journal; a later line for a name replaces an earlier one."""
    path = folder / "images.jsonl"
    if not path.exists():
        return []
    with explained(path, "read"):
        lines = path.read_bytes().split(b"\n")[:-1]  # what follows the last line break was cut off by a kill
    entries: dict[str, Entry] = {}
    for number, line in enumerate(lines, 1):
        try:
            entry = Entry.from_line(line)
        except (ValueError, TypeError) as error:
            raise StoreError(f"{path} is damaged at line {number}: {error}; extract again into a new folder") from error
        entries[entry.name] = entry
    return list(entries.values())


def _open_journal(folder: Path, entries: list[Entry]) -> IO[bytes]:
    path = folder / "images.jsonl"
    file = path.open("r+b" if path.exists() else "w+b")
    whole = file.read().rfind(b"\n") + 1
    file.truncate(whole)
    file.seek(whole)
    return file


def _open_array(folder: Path, name: str, rows: int, width: int | None) -> IO[bytes]:
    """The array's file, cut to `rows` and ready to append."""
    path = folder / f"{name}.npy"
    end = HEADER_BYTES + rows * (width or 1) * np.dtype(DTYPES[name]).itemsize
    if rows == 0:  # also where a writer was killed while it made its files
        path.write_bytes(_npy_header(name, 0, width))
    if not path.exists() or path.stat().st_size < end:
        raise StoreError(f"{path} is shorter than its journal says; extract again into a new folder")
    file = path.open("r+b")
    file.truncate(end)
    file.seek(end)
    return file


def _npy_header(name: str, rows: int, width: int | None) -> bytes:
    """A .npy header of fixed length, so that numpy.load opens the file and we can rewrite it in place."""
    shape = (rows,) if width is None else (rows, width)
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": DTYPES[name], "fortran_order": False, "shape": shape})
    header = buffer.getvalue()
    assert len(header) == HEADER_BYTES
    return header


def _map_array(folder: Path, name: str, rows: int, width: int | None) -> np.ndarray:
    path = folder / f"{name}.npy"
    shape = (rows,) if width is None else (rows, width)
    if rows == 0:
        return np.empty(shape, DTYPES[name])
    with explained(path, "read"):
        if path.stat().st_size < HEADER_BYTES + int(np.prod(shape)) * np.dtype(DTYPES[name]).itemsize:
            raise StoreError(f"{path} is shorter than its journal says; extract again into a new folder")
        return np.memmap(path, DTYPES[name], "r", HEADER_BYTES, shape)


def _copy_rows(array: np.ndarray, rows: slice) -> np.ndarray:
    """Rows in memory of their own. The pages that they came from are let go, or a pass over all images would come to
    count as memory of this process."""
    values = np.array(array[rows])
    pages = getattr(array, "_mmap", None)
    if pages is not None and hasattr(mmap, "MADV_DONTNEED"):
        pages.madvise(mmap.MADV_DONTNEED)
    return values


def _checksum(arrays: Mapping[str, np.ndarray]) -> int:
    total = 0
    for name in DTYPES:
        if name in arrays:
            total = zlib.crc32(np.ascontiguousarray(arrays[name], DTYPES[name]).tobytes(), total)
    return total
