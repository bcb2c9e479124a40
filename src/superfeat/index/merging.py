"""Images of other indexes on their way into ours: what they are called here, and which of ours they replace.

Two images are one photo if they have one file, or one name and nothing that tells them apart: of one of them no file is
known, or both files hold the same bytes. Then theirs takes the place of ours, unless it is the very same. Images of one
name that are two photos are both kept, theirs under a longer name.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from jaxtyping import Bool

from superfeat.addresses.address import address_of
from superfeat.images import Photo
from superfeat.index.contents import Contents
from superfeat.index.names import Image, MemoryNames, key_of
from superfeat.index.segments import Segment, join_segments
from superfeat.index.snapshot import Snapshot
from superfeat.sources.listing import longer_names


class Merging:
    """One merge: nothing is changed by it, `segments` and `replaced` are what is to be changed."""

    def __init__(self, contents: Contents) -> None:
        self._contents = contents
        self._next_id = contents.next_id
        self._named: dict[str, tuple[int, Image]] = {}  # theirs that are taken so far
        self._placed: dict[str, tuple[int, Image]] = {}
        self.replaced: set[int] = set()  # ids of ours, and of theirs that later ones replace

    def segments(self, snapshots: Iterable[Snapshot]) -> Iterator[Segment]:
        """Theirs, with ids that follow ours and the names that they get here."""
        for snapshot in snapshots:
            for segment, mask in zip(snapshot.segments, snapshot.alive, strict=True):
                if (taken := self._take(segment, mask)) is not None:
                    yield taken

    def _take(self, segment: Segment, mask: Bool[np.ndarray, "images"]) -> Segment | None:
        numbers = np.flatnonzero(mask).tolist()
        living = segment.names.images_of(numbers)
        ours = self._ours([living[number] for number in numbers])
        kept = np.zeros(len(mask), np.bool_)
        names: list[Image] = []
        first = self._next_id
        for number in numbers:
            twins = self._twins(living[number], ours)
            if any(_is_very_same(living[number], twin) for twin in twins.values()):
                continue
            self.replaced.update(twins)
            names.append(self._named_here(living[number]))
            kept[number] = True
        if not names:
            return None
        joined = join_segments([segment], [kept])
        ids = np.arange(first, first + len(names), dtype=np.int64)
        return Segment(joined.layout, joined.postings, ids, joined.sizes, MemoryNames(names))

    def _ours(self, images: Sequence[Image]) -> dict[str, list[tuple[int, Image]]]:
        """Our images that have a name, or a file, of these, by both."""
        keys = [key_of("path", image.meta["path"]) for image in images if _has_path(image)]
        found: dict[str, list[tuple[int, Image]]] = {}
        for name, one in self._contents.find([image.name for image in images]).items():
            found.setdefault(_by_name(name), []).append(one)
        for one in self._contents.find_keys(keys).items():
            if _has_path(one[1]):
                found.setdefault(one[1].meta["path"], []).append(one)
        return found

    def _twins(self, image: Image, ours: Mapping[str, Sequence[tuple[int, Image]]]) -> dict[int, Image]:
        """The images, of ours and of those taken, that are the same photo as this one."""
        path = str(image.meta.get("path"))
        taken = [self._named.get(image.name), self._placed.get(path)]
        known = [*ours.get(_by_name(image.name), ()), *ours.get(path, ()), *(one for one in taken if one is not None)]
        return {number: one for number, one in known if number not in self.replaced and _is_same_photo(image, one)}

    def _named_here(self, image: Image) -> Image:
        """Theirs under a name that is free."""
        name = image.name
        if _has_path(image):
            photo = Photo(address_of(image.meta["path"]), image.name)
            name = next(name for name in longer_names(photo) if not self._is_taken(name))
        named = image._replace(name=name)
        slim = named._replace(meta={key: named.meta[key] for key in ("path", "digest") if key in named.meta})
        self._named[name] = self._next_id, slim
        if _has_path(slim):
            self._placed[slim.meta["path"]] = self._next_id, slim
        self._next_id += 1
        return named

    def _is_taken(self, name: str) -> bool:
        ours, theirs = self._contents.find([name]).get(name), self._named.get(name)
        return any(one is not None and one[0] not in self.replaced for one in (ours, theirs))


def _by_name(name: str) -> str:
    """A key that no path is, for paths are absolute."""
    return f"name {name}"


def _has_path(image: Image) -> bool:
    return isinstance(image.meta.get("path"), str)


def _is_same_photo(one: Image, other: Image) -> bool:
    if _has_path(one) and _has_path(other):
        if one.meta["path"] == other.meta["path"]:
            return True
        digests = one.meta.get("digest"), other.meta.get("digest")
        return one.name == other.name and digests[0] is not None and digests[0] == digests[1]
    return one.name == other.name


def _is_very_same(one: Image, other: Image) -> bool:
    facts = [(image.meta.get("path"), image.meta.get("digest"), image.content) for image in (one, other)]
    return facts[0] == facts[1] and None not in facts[0]
