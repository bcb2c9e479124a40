"""A collection in shards: a folder of living indexes that together answer as one, bit for bit.

Ids are those of the whole, so equal scores rank as in one index. A new image goes to the shard that a digest of its
name says, one that is replaced stays where it is, and an image is looked for in all shards: how images are split never
matters to an answer. Whatever changes images of several shards at once is noted in `across.json` before, and taken
from there by readers and by the next writer if this one was killed.
"""

import contextlib
import dataclasses
import hashlib
import json
import shutil
import time
import uuid
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import numpy as np

from superfeat.errors import StoreError, SuperfeatError
from superfeat.index.codebook import Codebook
from superfeat.index.contents import Contents, load_contents
from superfeat.index.disk import Disk, Folder, Stamp, stamp_of
from superfeat.index.journal import AddFacts, DeleteFacts, NoteFacts, Record
from superfeat.index.manifest import MANIFEST, IndexInfo, Manifest
from superfeat.index.names import Image
from superfeat.index.segments import Layout
from superfeat.index.snapshot import Snapshot
from superfeat.storage.records import as_record
from superfeat.storage.store import MEND, explained, read_json, require_version, write_json, writer_lock
from superfeat.threads import run_all

FORMAT, VERSION = "superfeat-shards", 1
ACROSS = "across.json"
SHARD = "{:06}"
LOADS, WAIT = 50, 0.02  # tries to read while shards change together, and seconds between them


class ShardsManifest(TypedDict):
    """manifest.json of a folder of shards, without its checksum."""

    format: str
    version: int
    made: str
    shards: list[str]  # their folders
    next_shard: int


class Across(NamedTuple):
    """A change of several shards: its number, and what is to be written to each. Nothing once that is done."""

    serial: int
    records: dict[str, DeleteFacts | NoteFacts]


def shard_of(name: str, count: int) -> int:
    """To which of so many shards a new image of that name goes: the same on every machine."""
    digest = hashlib.blake2b(name.encode(errors="surrogateescape"), digest_size=8).digest()
    return int.from_bytes(digest, "little") % count


def new_manifest(shards: Sequence[str], next_shard: int) -> ShardsManifest:
    """Of shards in these folders."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "made": uuid.uuid4().hex,
        "shards": list(shards),
        "next_shard": next_shard,
    }


def write_shards_manifest(path: Path, manifest: ShardsManifest) -> None:
    """Says which shards there are: the one moment at which others take their place."""
    _write_checked(path / MANIFEST, {**manifest})


def read_shards_manifest(path: Path) -> ShardsManifest:
    """Which shards there are."""
    return as_record(ShardsManifest, _read_checked(path / MANIFEST), path / MANIFEST)


def _read_across(path: Path) -> Across:
    if not (path / ACROSS).is_file():
        return Across(0, {})
    facts = _read_checked(path / ACROSS)
    return Across(facts["serial"], facts["records"])


def _write_across(path: Path, across: Across) -> None:
    _write_checked(path / ACROSS, {"version": VERSION, "serial": across.serial, "records": across.records})


def _write_checked(file: Path, values: dict[str, object]) -> None:
    write_json(file, {**values, "crc32": zlib.crc32(json.dumps(values, sort_keys=True).encode())})


def _read_checked(file: Path) -> Any:
    values = read_json(file)
    require_version(values, VERSION, file)
    if values.pop("crc32", None) != zlib.crc32(json.dumps(values, sort_keys=True).encode()):
        raise StoreError(f"{file} is damaged: its checksum is not the one it was written with; {MEND}")
    return values


class ShardedContents:
    """What the shards hold, as one."""

    def __init__(self, shards: ShardsManifest, serial: int, parts: Sequence[Contents]) -> None:
        self.shards, self.serial, self.parts = shards, serial, tuple(parts)
        self._joined: tuple[tuple[Snapshot, ...], Snapshot] | None = None

    @property
    def manifest(self) -> Manifest:
        known = [part.manifest for part in self.parts if part.manifest["network"] is not None]
        return (known or [self.parts[0].manifest])[0]

    @property
    def layout(self) -> Layout:
        return self.parts[0].layout

    @property
    def next_id(self) -> int:
        return max(part.next_id for part in self.parts)

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def find(self, names: Sequence[str]) -> dict[str, tuple[int, Image]]:
        """The living images of these names."""
        return {name: one for part in self.parts for name, one in part.find(names).items()}

    def find_keys(self, keys: Sequence[int]) -> dict[int, Image]:
        """The living images that have one of these keys, by id, in the order of ids."""
        return dict(sorted((image, one) for part in self.parts for image, one in part.find_keys(keys).items()))

    def snapshot(self) -> Snapshot:
        """The segments of all shards, searched as those of one index are."""
        parts = tuple(part.snapshot() for part in self.parts)
        joined = self._joined
        if joined is None or any(one is not other for one, other in zip(joined[0], parts, strict=True)):
            segments = tuple(segment for part in parts for segment in part.segments)
            joined = parts, Snapshot(self.layout, segments, tuple(mask for part in parts for mask in part.alive))
            self._joined = joined
        return joined[1]

    def note_network(self, path: Path, network: str) -> None:
        """Says which network the features come from, in every shard."""
        for folder, part in zip(self.shards["shards"], self.parts, strict=True):
            part.note_network(path / folder, network)

    def owner(self, image: int) -> int:
        """The shard that holds the image with that id."""
        return next(place for place, part in enumerate(self.parts) if part.holds(image))

    def place_for(self, facts: AddFacts) -> int:
        """The shard to which an image goes."""
        before = facts.get("replaces")
        return self.owner(before[0]) if before else shard_of(facts["add"], len(self.parts))

    def split(self, facts: DeleteFacts | NoteFacts) -> dict[int, DeleteFacts | NoteFacts]:
        """What is to be said to each shard."""
        found: dict[int, DeleteFacts | NoteFacts] = {}
        if "delete" in facts:
            ids = np.asarray(facts["delete"], np.int64)
            owners = np.asarray([self.owner(image) for image in ids.tolist()])
            for place in np.unique(owners).tolist():
                found[place] = {"delete": ids[owners == place].tolist()}
            return found
        places = [self.owner(note.id) for note in facts["notes"]]
        for place in sorted(set(places)):
            notes = [note for note, owner in zip(facts["notes"], places, strict=True) if owner == place]
            found[place] = {"notes": notes}
        return found


class ShardFolders:
    """The folder of an index that is in shards; a change goes to each shard as it would to an index of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def folders(self, contents: ShardedContents) -> list[Folder]:
        """Of the shards."""
        return [Folder(self.path / name) for name in contents.shards["shards"]]

    def load(self, before: ShardedContents | None = None) -> ShardedContents:
        known = {} if before is None else dict(zip(before.shards["shards"], before.parts, strict=True))
        for attempt in range(LOADS):
            state = read_shards_manifest(self.path), _read_across(self.path)
            failed: StoreError | None = None
            try:
                parts = [load_contents(self.path / name, known.get(name)) for name in state[0]["shards"]]
            except StoreError as error:
                failed = error
            if (read_shards_manifest(self.path), _read_across(self.path)) == state or attempt == LOADS - 1:
                break
            time.sleep(WAIT)
        if failed is not None:
            raise failed
        shards, across = state
        self._require_alike(parts)
        for name, facts in across.records.items():  # of a writer that is at it, or was killed
            part = parts[shards["shards"].index(name)]
            part.take([Record(facts)], part.end)
        return ShardedContents(shards, across.serial, parts)

    def _require_alike(self, parts: Sequence[Contents]) -> None:
        networks = {part.manifest["network"] for part in parts} - {None}
        if len({part.layout for part in parts}) != 1 or len(networks) > 1:
            raise StoreError(
                f"{self.path} is damaged: its shards were not made with one codebook, kernel and network; {MEND}"
            )

    def codebook(self) -> Codebook:
        return Codebook.open(self.path / self.names()[0] / "codebook")

    def stamp(self) -> Stamp:
        own = stamp_of(self.path, [self.path / MANIFEST, self.path / ACROSS])
        return own + [one for name in self.names() for one in stamp_shard(self.path, name)]

    def names(self) -> list[str]:
        """The folders of the shards, as the manifest says now."""
        return read_shards_manifest(self.path)["shards"]

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Each shard is locked too: it is an index that somebody may have opened by itself."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(writer_lock(self.path))
            for name in self.names():
                stack.enter_context(writer_lock(self.path / name))
            yield

    def is_current(self, contents: ShardedContents) -> bool:
        if read_shards_manifest(self.path) != contents.shards or _read_across(self.path).serial != contents.serial:
            return False
        pairs = zip(self.folders(contents), contents.parts, strict=True)
        return all(folder.is_current(part) for folder, part in pairs)

    def tidy(self, contents: ShardedContents) -> ShardedContents:
        across = _read_across(self.path)
        if across.records:
            places = [contents.shards["shards"].index(name) for name in across.records]
            todo = dict(zip(places, ([Record(facts)] for facts in across.records.values()), strict=True))
            contents = self._write(contents, todo, bulk=False)
            _write_across(self.path, Across(across.serial, {}))
        for folder, part in zip(self.folders(contents), contents.parts, strict=True):
            folder.tidy(part)
        with explained(self.path):
            for entry in self.path.iterdir():
                if entry.name.startswith(".") and entry.is_file() and entry.name.endswith(".partial"):
                    entry.unlink(missing_ok=True)
                elif entry.name.strip(".").split(".")[0].isdigit() and entry.name not in contents.shards["shards"]:
                    shutil.rmtree(entry)
        return contents

    def write(self, contents: ShardedContents, records: Sequence[Record], bulk: bool) -> ShardedContents:
        for record in records:
            if "add" not in record.facts:
                contents = self._write_across(contents, contents.split(record.facts))
        adds: dict[int, list[Record]] = {}
        for record in records:
            if "add" in record.facts:
                adds.setdefault(contents.place_for(record.facts), []).append(record)
        return self._write(contents, adds, bulk)

    def _write_across(self, contents: ShardedContents, facts: dict[int, DeleteFacts | NoteFacts]) -> ShardedContents:
        """All shards or none."""
        todo = {place: [Record(one)] for place, one in facts.items()}
        if len(facts) <= 1:
            return self._write(contents, todo, bulk=False)
        names, serial = contents.shards["shards"], contents.serial + 1
        _write_across(self.path, Across(serial, {names[place]: one for place, one in facts.items()}))
        after = self._write(contents, todo, bulk=False)
        _write_across(self.path, Across(serial, {}))
        return ShardedContents(after.shards, serial, after.parts)

    def _write(self, contents: ShardedContents, todo: dict[int, list[Record]], bulk: bool) -> ShardedContents:
        folders, parts = self.folders(contents), list(contents.parts)

        def work(place: int) -> None:
            parts[place] = folders[place].write(parts[place], todo[place], bulk)

        run_all(work, sorted(todo), len(todo))
        return ShardedContents(contents.shards, contents.serial, parts)

    def compact(self, contents: ShardedContents) -> Iterator[ShardedContents]:
        parts = list(contents.parts)
        for place, folder in enumerate(self.folders(contents)):
            for part in folder.compact(parts[place]):
                parts[place] = part
                yield ShardedContents(contents.shards, contents.serial, parts)

    def merge(self, contents: ShardedContents, snapshots: Sequence[Snapshot]) -> ShardedContents:
        raise SuperfeatError(
            f"{self.path} is in shards and takes in photos, not indexes; make one index of all, and shards of that: "
            "superfeat merge, then superfeat shard"
        )

    def verify(self, contents: ShardedContents) -> Iterator[str]:
        yield MANIFEST
        for folder, part in zip(self.folders(contents), contents.parts, strict=True):
            yield from (f"{folder.path.name}/{file}" for file in folder.verify(part))
        images = list(contents.snapshot().images())
        if len({image for image, _ in images}) < len(images) or len({one.name for _, one in images}) < len(images):
            raise StoreError(f"{self.path} is damaged: an image is in two shards; {MEND}")

    def describe(self, contents: ShardedContents) -> IndexInfo:
        parts = [folder.describe(part) for folder, part in zip(self.folders(contents), contents.parts, strict=True)]
        counts = {
            name: sum(getattr(part, name) for part in parts)
            for name in ("images", "deleted", "segments", "in_journal", "postings", "bytes")
        }
        view = contents.snapshot()
        words = sum(int(one.sizes[mask].sum()) for one, mask in zip(view.segments, view.alive, strict=True))
        return dataclasses.replace(
            parts[0],
            format=FORMAT,
            version=VERSION,
            network=contents.manifest["network"],
            words_per_image=round(words / max(1, counts["images"]), 1),
            bytes_per_posting=round(counts["bytes"] / max(1, counts["postings"]), 2),
            shards=[part.images for part in parts],
            **counts,
        )


def load_shard(path: Path, shard: str, before: Contents | None = None) -> tuple[Contents, int]:
    """One shard of a folder by itself, and the last change of several shards that it has seen."""
    for _ in range(LOADS):
        across = _read_across(path)
        contents = load_contents(path / shard, before)
        if _read_across(path) == across:
            break
        time.sleep(WAIT)
    if shard in across.records:
        contents.take([Record(across.records[shard])], contents.end)
    return contents, across.serial


def stamp_shard(path: Path, shard: str) -> Stamp:
    """Name, size and time of the files of a shard that every change touches."""
    return stamp_of(path, [path / shard / MANIFEST, *(path / shard).glob("journal-*")])


def is_sharded(path: Path) -> bool:
    """Whether a folder says that it is one of shards."""
    if not (path / MANIFEST).is_file():
        return False
    manifest = read_json(path / MANIFEST)
    return isinstance(manifest, dict) and manifest.get("format") == FORMAT


def disk_at(path: Path) -> Disk:
    """The folder of an index, in shards or not."""
    return ShardFolders(path) if is_sharded(path) else Folder(path)
