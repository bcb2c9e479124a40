"""Which photo is which. A photo is its file: where it lies, and what is in it; its name is what people read.

A file that is where it was and has not changed is known. One that turns up elsewhere with the same bytes has been moved
if its old place is certainly empty or holds something else now, and is a copy if not. Either way nothing is extracted
again, and a photo that was moved stays the same image of the index, whatever it is called.
"""

import hashlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from superfeat.addresses.address import Where, address_of
from superfeat.extraction.folder import photo_stamp
from superfeat.features import Meta
from superfeat.images import Photo
from superfeat.index.entries import Added, IndexedImage
from superfeat.index.index import Index
from superfeat.index.journal import Note
from superfeat.index.sync import Disks, is_gone
from superfeat.sources.listing import longer_names
from superfeat.storage.store import as_json

DIGEST_BYTES = 16
READ_AT_ONCE = 1 << 20
LOOKED_UP_AT_ONCE = 4096


class Sorted(NamedTuple):
    """Photos by what their path alone tells."""

    same: list[tuple[Photo, IndexedImage]]  # where they were, with the same size and time
    changed: list[Photo]  # the index has an image of this path
    new: list[Photo]


def file_digest(path: Where) -> str | None:
    """A digest of a file's bytes; None if it cannot be read."""
    total = hashlib.blake2b(digest_size=DIGEST_BYTES)
    try:
        with path.open("rb") as file:
            while block := file.read(READ_AT_ONCE):
                total.update(block)
    except OSError:
        return None
    return total.hexdigest()


class Register:
    """The images of an index as files, while photos are brought in."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self._digests: dict[tuple[Where, tuple[int, int]], str | None] = {}
        self._displaced: dict[int, IndexedImage] = {}  # images whose place holds another photo now, as they were
        self._promised: set[str] = set()  # names of photos that are on their way in
        self._disks = Disks()

    def digest(self, path: Where) -> str | None:
        """Of a file as it is now; read once while it does not change."""
        key = path, photo_stamp(path)
        if key not in self._digests:
            self._digests[key] = file_digest(path)
        return self._digests[key]

    def facts(self, photo: Photo) -> Meta:
        """What is noted of the file of a photo."""
        path = photo.where.resolve()
        where = {"path": str(path), "mount": self._disks.mount_of(path)}
        facts: Meta = as_json({"stamp": photo_stamp(path), **where, "digest": self.digest(path)})
        return facts

    def sort(self, photos: Sequence[Photo]) -> Sorted:
        """Which files the index knows; none of them is opened."""
        found = Sorted([], [], [])
        for first in range(0, len(photos), LOOKED_UP_AT_ONCE):
            some = {str(photo.where.resolve()): photo for photo in photos[first : first + LOOKED_UP_AT_ONCE]}
            known = self.index.find("path", list(some))
            for path, photo in some.items():
                entries = known.get(path, [])
                stamp = list(photo_stamp(photo.where))
                same = [entry for entry in entries if entry.meta.get("stamp") == stamp]
                if same:
                    found.same.append((photo, same[0]))
                    self._displace(entries, besides=same[0])
                elif entries:
                    found.changed.append(photo)
                    self._displace(entries, besides=entries[0])
                else:
                    found.new.append(photo)
        return found

    def settle(self, photo: Photo, *, copies: bool = True) -> Added | None:
        """What becomes of a photo if the index knows its bytes; None if it has to be looked at.

        Without `copies` also if it is a copy of another one: that would take the place of an image that may turn up.
        """
        where = photo.where.resolve()
        path, digest = str(where), self.digest(where)
        if digest is None:
            return None
        here = self.index.find("path", [path]).get(path, [])
        same = [entry for entry in here if entry.meta.get("digest") == digest]
        if same:
            self._displaced.pop(same[0].id, None)
            self._displace(here, besides=same[0])
            self.index.note([Note(same[0].id, same[0].name, self.facts(photo))])
            return Added(same[0].name, same[0].id, "same")
        alike = self.index.find("digest", [digest]).get(digest, [])
        for entry in (*alike, *self._known_by_name(photo)):
            if self._has_left(entry):
                return self._move(entry, photo, here)
        return self._copy(alike[0], photo, here) if alike and copies else None

    def _known_by_name(self, photo: Photo) -> list[IndexedImage]:
        """The image of an older superfeat, of which no digest is noted, with the name, size and time of this photo."""
        meta = self.index.meta([photo.name]).get(photo.name, {})
        if "path" in meta and "digest" not in meta and meta.get("stamp") == list(photo_stamp(photo.where)):
            return [IndexedImage(self.index.id(photo.name), photo.name, meta)]
        return []

    def name_for(self, photo: Photo) -> str:
        """The name of the image at its path, or a new one that no other image has."""
        path = str(photo.where.resolve())
        here = self.index.find("path", [path]).get(path, [])
        name = here[0].name if here else self._free_name(photo)
        self._promised.add(name)
        return name

    def drop_displaced(self) -> list[Added]:
        """Deletes the images whose place was taken and that turned up nowhere else, and says what they were called."""
        dropped: list[Added] = []
        for before in self._displaced.values():
            path = str(before.meta["path"])
            now = [entry for entry in self.index.find("path", [path]).get(path, []) if entry.id == before.id]
            self.index.delete([entry.name for entry in now])
            dropped += [Added(before.name, before.id, "dropped") for _ in now]
        self._displaced.clear()
        return dropped

    def outdated(self, known: Sequence[tuple[Photo, IndexedImage]]) -> list[tuple[Photo, IndexedImage]]:
        """Those of which less is noted, or another disk, than there is to say now."""
        return [
            (photo, entry)
            for photo, entry in known
            if "digest" not in entry.meta or entry.meta.get("mount") != self._disks.mount_of(photo.where.resolve())
        ]

    def note_facts(self, known: Sequence[tuple[Photo, IndexedImage]]) -> Iterator[int]:
        """Notes what there is to say of the files of these images; yields how many are done."""
        for first in range(0, len(known), LOOKED_UP_AT_ONCE):
            notes: list[Note] = []
            for done, (photo, entry) in enumerate(known[first : first + LOOKED_UP_AT_ONCE], first + 1):
                facts = self.facts(photo) if "digest" not in entry.meta else None
                moved = {"mount": self._disks.mount_of(photo.where.resolve())}
                notes.append(Note(entry.id, entry.name, moved if facts is None or facts["digest"] is None else facts))
                yield done
            self.index.note(notes)

    def _has_left(self, entry: IndexedImage) -> bool:
        """Whether the file of an image is certainly not where it was, or holds other bytes now."""
        path = address_of(str(entry.meta.get("path", "")))
        if is_gone(path):
            return self._disks.doubt(entry.meta) is None
        if list(photo_stamp(path)) == entry.meta.get("stamp"):
            return False
        return self.digest(path) not in (None, entry.meta.get("digest"))

    def _move(self, entry: IndexedImage, photo: Photo, here: Sequence[IndexedImage]) -> Added:
        """The image is at the photo's place now; one that was there goes on under its name until it is found."""
        self._displaced.pop(entry.id, None)
        self._displace(here)
        name = here[0].name if here else self._free_name(photo, entry.name)
        notes = [Note(entry.id, name, self.facts(photo))]
        if here:
            notes.append(Note(here[0].id, entry.name, {}))
        self.index.note(notes)
        return Added(name, entry.id, "moved")

    def _copy(self, entry: IndexedImage, photo: Photo, here: Sequence[IndexedImage]) -> Added:
        """Another image with the words of one that has the same bytes."""
        words = self.index.words_of(entry.name)
        name = here[0].name if here else self._free_name(photo)
        added = self.index.add(name, words, {**entry.meta, **self.facts(photo)})
        return added._replace(outcome="copied") if added.outcome == "new" else added

    def _displace(self, entries: Sequence[IndexedImage], besides: IndexedImage | None = None) -> None:
        for entry in entries:
            if besides is None or entry.id != besides.id:
                self._displaced.setdefault(entry.id, entry)

    def _free_name(self, photo: Photo, own: str | None = None) -> str:
        """The shortest name that no other image has, or is going to have; its own is free."""
        for name in longer_names(photo):
            if name == own or (name not in self._promised and name not in self.index):
                return name
        raise AssertionError("unreachable")
