"""One shard by itself, wherever it lies: it answers what the whole asks, in plain values that travel."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Float64, Int64

from superfeat.config import SearchConfig
from superfeat.features import ImageWords
from superfeat.index.disk import Stamp
from superfeat.index.kernel import Best
from superfeat.index.manifest import Manifest
from superfeat.index.names import Image
from superfeat.index.segments import Layout
from superfeat.index.shards import load_shard, stamp_shard
from superfeat.index.snapshot import Snapshot, WordCounts


class PartFacts(NamedTuple):
    """What the whole must know of a shard."""

    shard: str
    images: int
    next_id: int
    layout: Layout
    manifest: Manifest
    serial: int  # of the last change of several shards that it has seen
    postings: int


class PartBest(NamedTuple):
    """The best images of a shard; names are there where few images were asked for."""

    ids: Int64[np.ndarray, "n"]
    scores: Float64[np.ndarray, "n"]
    names: list[str] | None


class ShardPart:
    """A shard of the folder `path`, opened to be read."""

    def __init__(self, path: str, shard: str) -> None:
        self._path, self._shard = Path(path), shard
        self._contents, self._serial = load_shard(self._path, shard)
        self._weighted: tuple[int, Snapshot, Snapshot] | None = None  # with the words of the whole, as it was then

    def facts(self) -> PartFacts:
        """Of the shard as it was read last."""
        contents = self._contents
        postings = sum(len(one.postings.ids) for one in contents.segments) + contents.tail_postings
        size = len(contents), contents.next_id
        return PartFacts(self._shard, *size, contents.layout, contents.manifest, self._serial, postings)

    def refresh(self) -> PartFacts:
        """Takes in what has changed on disk."""
        self._contents, self._serial = load_shard(self._path, self._shard, self._contents)
        return self.facts()

    def stamp(self) -> Stamp:
        """Of the files that every change touches."""
        return stamp_shard(self._path, self._shard)

    def find(self, names: Sequence[str]) -> dict[str, tuple[int, Image]]:
        return self._contents.find(names)

    def find_keys(self, keys: Sequence[int]) -> dict[int, Image]:
        return self._contents.find_keys(keys)

    def ids(self) -> Int64[np.ndarray, "n"]:
        return self._contents.snapshot().ids()

    def spread_ids(self, count: int) -> Int64[np.ndarray, "n"]:
        return self._contents.snapshot().spread_ids(count)

    def images(self) -> list[tuple[int, Image]]:
        return list(self._contents.snapshot().images())

    def words_of(self, ids: Sequence[int]) -> dict[int, ImageWords]:
        """Of those of these images that are here."""
        found = self._contents.snapshot().words_of_many(ids)
        return {image: words for image, words in zip(ids, found, strict=True) if words is not None}

    def names_of(self, ids: Sequence[int]) -> dict[int, str]:
        snapshot = self._contents.snapshot()
        here = [image for image in ids if snapshot.locate(image) is not None]
        return dict(zip(here, snapshot.names(here), strict=True))

    def count_words(self) -> WordCounts:
        return self._contents.snapshot().count_words()

    def search(
        self,
        query: ImageWords,
        config: SearchConfig,
        top: int | None,
        only: Sequence[int] | None,
        table: np.ndarray | None,
        whole: WordCounts | None,
    ) -> PartBest:
        """The best images here; `whole` is what IDF counts."""
        snapshot = self._contents.snapshot() if whole is None else self._weigh(whole)
        masks = None if only is None else snapshot.masks(only)
        return _found(snapshot, snapshot.best(query, config, top=top, only=masks, table=table), top)

    def nearest(self, vector: Float32[np.ndarray, " dim"], top: int | None, only: Sequence[int] | None) -> PartBest:
        """The same for a vector."""
        snapshot = self._contents.snapshot()
        masks = snapshot.alive if only is None else snapshot.masks(only)
        return _found(snapshot, snapshot.nearest(vector, top, masks), top)

    def _weigh(self, whole: WordCounts) -> Snapshot:
        """Norms are worked out once for each state of the collection."""
        snapshot, mark = self._contents.snapshot(), hash((whole.images, whole.words.tobytes()))
        if self._weighted is None or self._weighted[0] != mark or self._weighted[1] is not snapshot:
            self._weighted = mark, snapshot, dataclasses.replace(snapshot, whole=whole)
        return self._weighted[2]


def _found(snapshot: Snapshot, best: Best, top: int | None) -> PartBest:
    return PartBest(best.ids, best.scores, None if top is None else snapshot.names(best.ids))
