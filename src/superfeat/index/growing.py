"""An inverted file in memory that grows: postings in, the best images out. Nothing is written to disk."""

import dataclasses
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from jaxtyping import Int32, Int64

from superfeat.config import SearchConfig
from superfeat.errors import SuperfeatError
from superfeat.features import ImageWords
from superfeat.index.kernel import SEGMENT_IMAGES, Best
from superfeat.index.names import Image
from superfeat.index.segments import Layout, Segment, build_segment, join_segments
from superfeat.index.snapshot import Snapshot


class Entries(NamedTuple):
    """Postings in any order: the image, the word and the code of each."""

    images: Int64[np.ndarray, "postings"]
    words: Int32[np.ndarray, "postings"]
    codes: np.ndarray  # rows as the layout has them


@dataclasses.dataclass(eq=False)
class GrowingLists:
    """Segments in memory. Ids have no gaps: an image that was passed over is there, without words."""

    layout: Layout
    segments: tuple[Segment, ...] = ()

    @classmethod
    def of_snapshot(cls, snapshot: Snapshot) -> "GrowingLists":
        """The images of an index, where they lie; SuperfeatError if some have been deleted, or lie in shards."""
        if snapshot.interleaved:
            raise SuperfeatError("the index is in shards; make one of them with: superfeat merge SHARDS -o INDEX")
        if not all(mask.all() for mask in snapshot.alive):
            raise SuperfeatError("the index holds deleted images; remove them with: superfeat compact INDEX")
        return cls(snapshot.layout, snapshot.segments)

    @property
    def next_id(self) -> int:
        return int(self.segments[-1].images[-1]) + 1 if self.segments else 0

    def snapshot(self) -> Snapshot:
        """The images as they are now."""
        return Snapshot(self.layout, self.segments, tuple(np.ones(len(one), np.bool_) for one in self.segments))

    def sizes(self) -> Int64[np.ndarray, "images"]:
        """How many postings each image has, in the order of ids."""
        return np.concatenate([np.empty(0, np.int64), *(one.sizes.astype(np.int64) for one in self.segments)])

    def best(self, query: ImageWords, config: SearchConfig, top: int | None = None) -> Best:
        """Ids and scores, best first; equal scores by id."""
        return self.snapshot().best(query, config, top=top)

    def add(self, entries: Entries, first: int | None = None) -> None:
        """Takes postings in. `first` is the lowest id there is, where that is not an image's own (negative ids)."""
        if not len(entries.images):
            return
        begin = self.next_id if self.segments else min(0, int(entries.images.min()) if first is None else first)
        if int(entries.images.min()) < begin:  # of an image that is there already, or before it: all is sorted anew
            entries = _concatenate([self.entries(), entries])
            begin = min(int(self.segments[0].images[0]) if self.segments else 0, int(entries.images.min()))
            self.segments = ()
        order = np.argsort(entries.images, kind="stable")
        for segment in self._built(Entries(*(part[order] for part in entries)), begin):
            self._append(segment)

    def _built(self, entries: Entries, begin: int) -> Iterable[Segment]:
        """Segments of images from `begin` on; entries are sorted by image."""
        end = int(entries.images[-1]) + 1
        for low in range(begin, end, SEGMENT_IMAGES):
            high = min(low + SEGMENT_IMAGES, end)
            bounds = np.searchsorted(entries.images, np.arange(low, high + 1))
            contents = [
                (entries.words[one:other], entries.codes[one:other])
                for one, other in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
            ]
            rows = [Image(str(number), 0, {}) for number in range(low, high)]
            yield build_segment(self.layout, range(low, high), rows, contents)

    def _append(self, segment: Segment) -> None:
        """Joined with what is not much larger, so that there are few segments and each posting moves seldom."""
        kept = [*self.segments, segment]
        while len(kept) > 1 and len(kept[-2]) <= 2 * len(kept[-1]) and len(kept[-2]) + len(kept[-1]) <= SEGMENT_IMAGES:
            pair = kept[-2:]
            kept[-2:] = [join_segments(pair, [np.ones(len(one), np.bool_) for one in pair])]
        self.segments = tuple(kept)

    def entries(self) -> Entries:
        """All postings, by word in each segment."""
        return _concatenate([_empty(self.layout), *(_entries(one) for one in self.segments)])

    def words_of(self, image: int, codebook: str) -> ImageWords:
        """The words of an image, as those of that codebook."""
        words = self.snapshot().words_of(image)
        if words is None:
            raise SuperfeatError(f"there is no image {image}; ids go from 0 to {self.next_id - 1}")
        return dataclasses.replace(words, codebook=codebook)

    def list_of(self, word: int) -> Entries:
        """The postings of a word."""
        parts = [_empty(self.layout)]
        for one in self.segments:
            part = slice(int(one.postings.starts[word]), int(one.postings.starts[word + 1]))
            images = one.images[one.postings.ids[part]]
            parts.append(Entries(images, np.full(len(images), word, np.int32), _stored(one, part)))
        return _concatenate(parts)


def _empty(layout: Layout) -> Entries:
    width, kind = layout.code_shape
    return Entries(np.empty(0, np.int64), np.empty(0, np.int32), np.empty((0, width), kind))


def _entries(segment: Segment) -> Entries:
    starts = segment.postings.starts.astype(np.int64)
    counts = starts[1:] - starts[:-1]
    words = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    return Entries(segment.images[segment.postings.ids], words, _stored(segment, slice(None)))


def _stored(segment: Segment, part: slice) -> np.ndarray:
    codes = np.ascontiguousarray(segment.postings.codes[part])
    return codes.view(np.uint8) if segment.layout.binary else codes


def _concatenate(parts: list[Entries]) -> Entries:
    return Entries(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def growing_lists(words: int, dim: int, binary: bool, codebook: str = "") -> GrowingLists:
    """Empty lists for codes of `dim` dimensions."""
    return GrowingLists(Layout(words, dim, binary, codebook))
