"""What an index holds now: its segments, which of their images are dead, and the images still in the journal."""

import contextlib
import threading
import zlib
from collections.abc import Container, Iterable, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Int64

from superfeat.errors import StoreError
from superfeat.index.journal import Record, read_journal
from superfeat.index.kernel import SEGMENT_IMAGES
from superfeat.index.manifest import MANIFEST, IndexInfo, Manifest, read_manifest, write_manifest
from superfeat.index.names import Image
from superfeat.index.segments import Layout, Segment, build_segment, open_segment
from superfeat.index.snapshot import Snapshot
from superfeat.storage.store import folder_bytes, read_array

SEGMENTS = "segments"
JOURNAL_BYTES = 1 << 27  # also of deletions alone: what every opening reads
SMALL, MIDDLE, FAN = 1024, 8192, 8  # images: eight small segments become a middle one, eight of those a full one


class Contents:
    """Loaded from disk, and kept in step with every record that is written to the journal.

    Its own methods alone change it; all else that happens to an index is written to disk and loaded from there.
    """

    def __init__(self, path: Path, manifest: Manifest, before: "Contents | None" = None) -> None:
        self.manifest = manifest
        same = before is not None and before.manifest["made"] == manifest["made"]
        known = {segment.folder: segment for segment in before.segments} if before is not None and same else {}
        self.layout = Layout(manifest["words"], manifest["dim"], manifest["kernel"] == "binary", manifest["codebook"])
        self.next_id = manifest["next_id"]
        self.segments: list[Segment] = []
        for facts in manifest["segments"]:
            opened = known.get(facts["folder"])
            self.segments.append(opened or open_segment(self.layout, path / SEGMENTS / facts["folder"], facts))
        self.alive = self._read_alive(path)
        self.tail: list[tuple[int, Image, np.ndarray, np.ndarray]] = []
        self.tail_alive: list[bool] = []
        self.tail_postings = 0
        self._tail_numbers: dict[str, int] = {}
        self._snapshot: Snapshot | None = None
        self._lock = threading.RLock()
        self.take(*read_journal(path / manifest["journal"], *self.layout.code_shape))

    def _read_alive(self, path: Path) -> list[Bool[np.ndarray, "images"]]:
        alive = [np.ones(len(segment), np.bool_) for segment in self.segments]
        facts = self.manifest["dead"]
        if facts is not None:
            dead = read_array(path / facts["file"], "<i8")
            if zlib.crc32(dead.tobytes()) != facts["crc32"]:
                raise StoreError(f"{path / facts['file']} is damaged: its checksum is not the one it was written with")
            for segment, mask in zip(self.segments, alive, strict=True):
                mask[np.isin(segment.images, dead, assume_unique=True)] = False
        return alive

    def __len__(self) -> int:
        with self._lock:
            return sum(int(mask.sum()) for mask in self.alive) + sum(self.tail_alive)

    def dead(self, folders: Container[str | None], besides: Sequence[int] = ()) -> Int64[np.ndarray, "n"]:
        """Ids of the dead images that these segments hold, and of those of `besides`, which are to die."""
        pairs = zip(self.segments, self.alive, strict=True)
        parts = [
            segment.images[~mask | np.isin(segment.images, np.asarray(besides, np.int64))]
            for segment, mask in pairs
            if segment.folder in folders
        ]
        return np.concatenate([*parts, np.empty(0, np.int64)])

    def note_network(self, path: Path, network: str) -> None:
        """Says which network the features come from."""
        manifest: Manifest = {**self.manifest, "network": network}
        write_manifest(path, manifest)
        self.manifest = manifest

    def take(self, records: Iterable[Record], end: int) -> None:
        """Brings in records that are safe in the journal, which ends at `end` now."""
        with self._lock:
            for record in records:
                self._apply(record)
            self.end = end
            self._snapshot = None

    def _apply(self, record: Record) -> None:
        facts = record.facts
        if "add" in facts:
            assert record.words is not None
            assert record.codes is not None
            image = Image(facts["add"], facts["content"], facts.get("meta", {}))
            self._kill(facts.get("replaces", []))
            self._tail_numbers[image.name] = len(self.tail)
            self.tail.append((facts["id"], image, record.words, record.codes))
            self.tail_alive.append(True)
            self.tail_postings += len(record.words)
            self.next_id = facts["id"] + 1
        else:
            self._kill(facts["delete"])

    def _kill(self, ids: Iterable[int]) -> None:
        """Images that are gone already are passed over: a journal may speak of those that a join has removed."""
        dead = np.asarray(list(ids), np.int64)
        if not len(dead):
            return
        first = self.tail[0][0] if self.tail else self.next_id
        for image in dead[dead >= first].tolist():
            self.tail_alive[image - first] = False
        for place, segment in enumerate(self.segments):
            numbers = np.minimum(np.searchsorted(segment.images, dead), len(segment) - 1)
            numbers = numbers[segment.images[numbers] == dead]
            if len(numbers):
                mask = self.alive[place].copy()  # snapshots keep the old one
                mask[numbers] = False
                self.alive[place] = mask

    def find(self, names: Sequence[str]) -> dict[str, tuple[int, Image]]:
        """The living images of these names."""
        found: dict[str, tuple[int, Image]] = {}
        with self._lock:
            for segment, mask in zip(self.segments, self.alive, strict=True):
                for number, image in segment.names.find(names).items():
                    if mask[number]:
                        found[image.name] = int(segment.images[number]), image
            for name in names:
                place = self._tail_numbers.get(name)
                if place is not None and self.tail_alive[place]:
                    found[name] = self.tail[place][:2]
        return found

    def tail_segment(self) -> Segment | None:
        """The living images of the journal as a segment in memory."""
        kept = [entry for entry, living in zip(self.tail, self.tail_alive, strict=True) if living]
        if not kept:
            return None
        ids, images, words, codes = zip(*kept, strict=True)
        return build_segment(self.layout, ids, images, list(zip(words, codes, strict=True)))

    def snapshot(self) -> Snapshot:
        """A view that later changes do not touch."""
        with self._lock:
            if self._snapshot is None:
                tail = self.tail_segment()
                segments, alive = list(self.segments), list(self.alive)
                if tail is not None:
                    segments.append(tail)
                    alive.append(np.ones(len(tail), np.bool_))
                self._snapshot = Snapshot(self.layout, tuple(segments), tuple(alive))
            return self._snapshot

    def most_at_once(self) -> tuple[int, int]:
        """Images and postings that may be added before looking whether the journal is full."""
        return MIDDLE, self.layout.most_postings // 4

    def tail_is_full(self, bulk: bool) -> bool:
        """Whether the journal should become a segment."""
        images = MIDDLE if bulk else SMALL
        large = self.tail_postings >= self.layout.most_postings // 2 or self.end >= JOURNAL_BYTES
        return len(self.tail) >= images or large


def load_contents(path: Path, before: Contents | None = None) -> Contents:
    """Reads an index, again if a writer replaced its files in between; segments of `before` stay open."""
    for attempt in range(10):
        manifest = read_manifest(path)
        try:
            return Contents(path, manifest, before)
        except StoreError:
            with contextlib.suppress(StoreError):
                if read_manifest(path) != manifest and attempt < 9:
                    continue
            raise
        except (KeyError, TypeError, AttributeError) as error:
            raise StoreError(f"{path / MANIFEST} is damaged: {error!r}") from error
    raise AssertionError("unreachable")


# -- Which segments to join


def next_join(segments: Sequence[Segment], alive: Sequence[np.ndarray], layout: Layout) -> slice | None:
    """The last eight segments of the same size, if there are so many; small segments cost time in every search."""
    sizes = [_tier(int(mask.sum())) for mask in alive]
    for tier in (0, 1):
        run = 0
        while run < len(sizes) and sizes[-1 - run] <= tier:
            run += 1
        group = slice(len(sizes) - run, len(sizes))
        if run >= FAN and fits(segments[group], alive[group], layout):
            return group
    return None


def _tier(images: int) -> int:
    return 0 if images <= SMALL else 1 if images <= MIDDLE else 2


def fits(segments: Sequence[Segment], alive: Sequence[np.ndarray], layout: Layout) -> bool:
    """Whether they can be one segment."""
    images = sum(int(mask.sum()) for mask in alive)
    postings = sum(int(segment.sizes[mask].sum()) for segment, mask in zip(segments, alive, strict=True))
    return images <= SEGMENT_IMAGES and postings <= layout.most_postings


def compact_groups(segments: Sequence[Segment], alive: Sequence[np.ndarray], layout: Layout) -> list[slice]:
    """Runs of neighbouring segments that together make one; a group of one whole segment stays as it is."""
    groups: list[slice] = []
    first = 0
    for end in range(1, len(segments) + 1):
        if end == len(segments) or not fits(segments[first : end + 1], alive[first : end + 1], layout):
            groups.append(slice(first, end))
            first = end
    return groups


def describe(contents: Contents, path: Path) -> IndexInfo:
    """What there is to know of an index from outside."""
    manifest = contents.manifest
    postings = sum(len(segment.postings.ids) for segment in contents.segments) + contents.tail_postings
    images = len(contents)
    stored = sum(map(len, contents.segments)) + len(contents.tail)
    size = folder_bytes(path)
    return IndexInfo(
        format=manifest["format"],
        version=manifest["version"],
        kernel=manifest["kernel"],
        words=manifest["words"],
        dim=manifest["dim"],
        images=images,
        deleted=stored - images,
        segments=len(contents.segments),
        in_journal=len(contents.tail),
        postings=postings,
        words_per_image=round(postings / max(1, stored), 1),
        bytes=size,
        bytes_per_posting=round(size / max(1, postings), 2),
        settings=manifest["settings"],
        facts=manifest["facts"].copy(),
        network=manifest["network"],
        codebook=manifest["codebook"],
    )
