"""What an index holds now: its segments, which of their images are dead, and the images still in the journal."""

import collections
import contextlib
import dataclasses
import threading
import zlib
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Int64

from superfeat.config import VECTOR_KERNELS
from superfeat.errors import StoreError, SuperfeatError
from superfeat.index.codebook import Codebook
from superfeat.index.journal import AddFacts, Note, Record, read_journal
from superfeat.index.kernel import SEGMENT_IMAGES
from superfeat.index.manifest import MANIFEST, VERSION, IndexInfo, Manifest, read_manifest, write_manifest
from superfeat.index.names import Image, NotedNames, keys_of
from superfeat.index.places import decode_places
from superfeat.index.segments import Layout, Segment, build_segment, open_segment, verify_segment
from superfeat.index.snapshot import Snapshot
from superfeat.storage.store import folder_bytes, read_array

SEGMENTS = "segments"
JOURNAL_BYTES = 1 << 27  # also of deletions alone: what every opening reads
NAMES_BYTES = 1 << 14  # of the smallest file of names
SMALL, MIDDLE, FAN = 1024, 8192, 8  # images: eight small segments become a middle one, eight of those a full one


class Contents:
    """Loaded from disk, and kept in step with every record that is written to the journal.

    Its own methods alone change it; all else that happens to an index is written to disk and loaded from there.
    """

    def __init__(self, path: Path, manifest: Manifest, before: "Contents | None" = None) -> None:
        self.manifest = manifest
        same = before is not None and before.manifest["made"] == manifest["made"]
        known = {segment.folder: segment for segment in before.segments} if before is not None and same else {}
        kernel = manifest["kernel"]
        self.layout = Layout(
            manifest["words"],
            manifest["dim"],
            kernel == "binary",
            manifest["codebook"],
            kernel if kernel in VECTOR_KERNELS else None,
        )
        self.next_id = manifest["next_id"]
        self.segments: list[Segment] = []
        for facts in manifest["segments"]:
            opened = known.get(facts["folder"]) or open_segment(self.layout, path / SEGMENTS / facts["folder"], facts)
            self.segments.append(opened.as_written())
        self.alive = self._read_alive(path)
        self.tail: list[tuple[int, Image, np.ndarray, np.ndarray]] = []
        self.tail_alive: list[bool] = []
        self.tail_postings = 0
        self._tail_numbers: dict[str, int] = {}
        self._tail_places: dict[int, int] = {}  # by id
        self._tail_keys: dict[int, list[int]] = {}
        self.notes = 0  # of the journal
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
        self._rewrite(path, {**self.manifest, "network": network})

    def upgrade(self, path: Path) -> None:
        """Makes the index one that may have notes in its journal."""
        if self.manifest["version"] < VERSION:
            self._rewrite(path, {**self.manifest, "version": VERSION})

    def _rewrite(self, path: Path, manifest: Manifest) -> None:
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
            self._note_tail(len(self.tail), image)
            self._tail_places[facts["id"]] = len(self.tail)
            self.tail.append((facts["id"], image, record.words, record.codes))
            self.tail_alive.append(True)
            self.tail_postings += len(record.words)
            self.next_id = max(self.next_id, facts["id"] + 1)
        elif "notes" in facts:
            self._take_notes([Note(*note) for note in facts["notes"]])
        else:
            self._kill(facts["delete"])

    def _note_tail(self, place: int, image: Image) -> None:
        """By what an image of the journal is found."""
        self._tail_numbers[image.name] = place
        for key in keys_of(image.meta):
            places = self._tail_keys.setdefault(key, [])
            if place not in places:
                places.append(place)

    def _place_of(self, image: int) -> tuple[int, int] | None:
        """Segment and number within it of the image with that id, living or not."""
        for place, segment in enumerate(self.segments):
            number = int(np.searchsorted(segment.images, image))
            if number < len(segment) and segment.images[number] == image:
                return place, number
        return None

    def _take_notes(self, notes: Sequence[Note]) -> None:
        """Images that are gone already are passed over, as deletions do."""
        self.notes += len(notes)
        by_segment: dict[int, dict[int, Image]] = {}
        for note in notes:
            place = self._tail_places.get(note.id)
            if place is not None:
                image, before, words, codes = self.tail[place]
                self.tail[place] = image, _noted(before, note), words, codes
            elif (found := self._place_of(note.id)) is not None:
                before = self.segments[found[0]].names.images_of([found[1]])[found[1]]
                by_segment.setdefault(found[0], {})[found[1]] = _noted(before, note)
        for note in notes:  # when all old names are free: two images may change theirs with each other
            if (place := self._tail_places.get(note.id)) is not None:
                self._note_tail(place, self.tail[place][1])
        for place, changed in by_segment.items():
            segment = self.segments[place]
            self.segments[place] = dataclasses.replace(segment, names=NotedNames.of(segment.names, changed))

    def _kill(self, ids: Iterable[int]) -> None:
        """Images that are gone already are passed over: a journal may speak of those that a join has removed."""
        dead = np.asarray(list(ids), np.int64)
        if not len(dead):
            return
        for image in self._tail_places.keys() & dead.tolist():
            self.tail_alive[self._tail_places[image]] = False
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
                if place is not None and self.tail_alive[place] and self.tail[place][1].name == name:
                    found[name] = self.tail[place][:2]
        return found

    def holds(self, image: int) -> bool:
        """Whether an image with that id is here, living or not."""
        return image in self._tail_places or self._place_of(image) is not None

    def find_keys(self, keys: Sequence[int]) -> dict[int, Image]:
        """The living images that have one of these keys, by id."""
        found: dict[int, Image] = {}
        with self._lock:
            for segment, mask in zip(self.segments, self.alive, strict=True):
                for number, image in segment.names.find_keys(keys).items():
                    if mask[number]:
                        found[int(segment.images[number])] = image
            places = {place for key in keys for place in self._tail_keys.get(key, ()) if self.tail_alive[place]}
            found |= dict(self.tail[place][:2] for place in sorted(places))
        return found

    def living_records(self) -> list[Record]:
        """What the journal would say if it had never held more than its living images."""
        records = []
        for (number, image, words, codes), living in zip(self.tail, self.tail_alive, strict=True):
            if living:
                facts: AddFacts = {"add": image.name, "id": number, "content": image.content}
                if image.meta:
                    facts["meta"] = image.meta
                records.append(Record(facts, words, codes))
        return records

    def is_best_as_journal(self) -> bool:
        """Whether its images take less room in the journal than in a segment, which has a table of all words."""
        postings = sum(len(entry[2]) for entry, living in zip(self.tail, self.tail_alive, strict=True) if living)
        return not self.segments and 2 * postings < 4 * self.layout.words + NAMES_BYTES

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
        return len(self.tail) >= images or self.notes >= MIDDLE or large


def require_free_names(
    find: Callable[[Sequence[str]], dict[str, tuple[int, Image]]], path: Path, notes: Sequence[Note]
) -> None:
    """SuperfeatError if two living images would have one name."""
    names = collections.Counter(note.name for note in notes)
    changing = {note.id for note in notes}
    taken = [name for name, (image, _) in find(list(names)).items() if image not in changing]
    taken += [name for name, count in names.items() if count > 1]
    if taken:
        raise SuperfeatError(f"{path} has an image called {taken[0]} already; choose another name")


def _noted(image: Image, note: Note) -> Image:
    return image._replace(name=note.name, meta={**image.meta, **note.changes})


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


def verify_contents(path: Path, contents: Contents) -> Iterator[str]:
    """Reads everything and compares it with its checksums; yields each file found whole."""
    if Codebook.open(path / "codebook").digest != contents.layout.codebook:
        raise StoreError(f"{path / 'codebook'} is not the codebook that this index was made with")
    yield "codebook"
    for segment, facts in zip(contents.segments, contents.manifest["segments"], strict=True):
        folder = path / SEGMENTS / facts["folder"]
        yield from (f"{facts['folder']}/{name}" for name in verify_segment(segment, folder, facts))
    names = [image.name for _, image in contents.snapshot().images()]
    if len(set(names)) != len(names):
        raise StoreError(f"{path} is damaged: two images have the same name")
    verify_places(path, contents.snapshot())
    yield contents.manifest["journal"]


def verify_places(path: Path, snapshot: Snapshot) -> None:
    """StoreError if what is noted of where an image's words lie does not fit these words."""
    for segment, mask in zip(snapshot.segments, snapshot.alive, strict=True):
        for image, size, living in zip(segment.names, segment.sizes.tolist(), mask.tolist(), strict=True):
            places = image.meta.get("places")
            if living and places is not None and decode_places(places, size) is None:
                raise StoreError(
                    f"{path} is damaged: the places of {image.name} do not fit its {size} words; remove it with "
                    "superfeat delete and index its photo again, or it is never verified"
                )


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
    living = sum(int(part.sizes[mask].sum()) for part, mask in zip(contents.segments, contents.alive, strict=True))
    living += sum(len(entry[2]) for entry, alive in zip(contents.tail, contents.tail_alive, strict=True) if alive)
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
        words_per_image=round(living / max(1, images), 1),
        bytes=size,
        bytes_per_posting=round(size / max(1, postings), 2),
        settings=manifest["settings"],
        facts=manifest["facts"].copy(),
        network=manifest["network"],
        codebook=manifest["codebook"],
    )
