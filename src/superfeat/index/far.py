"""An index whose shards answer from elsewhere: it asks all of them, and joins what they say without changing a bit.

Who asks is an `Asker`: it knows where the shards are and how long to wait. A shard that does not answer is left out,
noted as missing (`partial`), and counted in the size of the collection all the same.
"""

import contextlib
import dataclasses
import heapq
import operator
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, Protocol

import numpy as np
from jaxtyping import Float32, Int64

from superfeat.config import SearchConfig
from superfeat.errors import SuperfeatError
from superfeat.features import ImageWords, Ranking
from superfeat.index.codebook import Codebook
from superfeat.index.disk import Stamp
from superfeat.index.index import Index
from superfeat.index.journal import Record
from superfeat.index.kernel import Best
from superfeat.index.manifest import IndexInfo, Manifest
from superfeat.index.names import Image
from superfeat.index.part import PartBest, PartFacts
from superfeat.index.partial import MissingPart, collect_missing, note_missing
from superfeat.index.segments import Layout
from superfeat.index.shards import FORMAT, VERSION, ShardFolders
from superfeat.index.snapshot import Only, Snapshot, Weights, WordCounts, spread, word_weights
from superfeat.recent import Recent
from superfeat.storage.store import folder_bytes

REFRESHES = 20  # tries to see all shards after the same change
REMEMBERED = 1 << 14  # images of the last answers, of which it is known where they are


class Asker(Protocol):
    """Puts questions to shards, all at the same time."""

    def ask(self, method: str, *arguments: Any, shards: Sequence[int] | None = None) -> dict[int, Any]:
        """What those shards that answer in time say (`ShardPart`), by their number; all are asked if none is named."""

    def share(self, value: Any) -> Any:
        """A value that many questions will have as an argument, as it is to be given then."""


class FarContents:
    """What the shards hold, as far as it is asked."""

    def __init__(self, asker: Asker, facts: Sequence[PartFacts]) -> None:
        self._asker, self.facts = asker, tuple(facts)
        self._snapshot = FarSnapshot(self.layout, (), (), far=self)

    @property
    def manifest(self) -> Manifest:
        known = [one.manifest for one in self.facts if one.manifest["network"] is not None]
        return (known or [self.facts[0].manifest])[0]

    @property
    def layout(self) -> Layout:
        return self.facts[0].layout

    @property
    def next_id(self) -> int:
        return max(one.next_id for one in self.facts)

    def __len__(self) -> int:
        return sum(one.images for one in self.facts)

    def ask(self, method: str, *arguments: Any, shards: Sequence[int] | None = None) -> dict[int, Any]:
        """Answers by shard; those that are missing are noted."""
        asked = range(len(self.facts)) if shards is None else shards
        answers = self._asker.ask(method, *arguments, shards=list(asked))
        silent = [self.facts[number] for number in asked if number not in answers]
        note_missing(MissingPart(one.shard, one.images) for one in silent)
        return dict(sorted(answers.items()))

    def share(self, value: Any) -> Any:
        return self._asker.share(value)

    def find(self, names: Sequence[str]) -> dict[str, tuple[int, Image]]:
        """The living images of these names."""
        return {name: one for part in self.ask("find", list(names)).values() for name, one in part.items()}

    def find_keys(self, keys: Sequence[int]) -> dict[int, Image]:
        """The living images that have one of these keys, by id, in the order of ids."""
        parts = self.ask("find_keys", list(keys)).values()
        return dict(sorted((image, one) for part in parts for image, one in part.items()))

    def snapshot(self) -> "FarSnapshot":
        return self._snapshot

    def note_network(self, path: Path, network: str) -> None:
        refuse(path)


@dataclasses.dataclass(frozen=True, eq=False)
class FarSnapshot(Snapshot):
    """A snapshot that has no segments: whatever is asked of it, the shards are asked."""

    far: FarContents = dataclasses.field(kw_only=True)
    _where: "Recent[tuple[int, str]]" = dataclasses.field(init=False, default_factory=lambda: Recent(REMEMBERED))
    _counted: list[tuple[WordCounts, Any]] = dataclasses.field(init=False, default_factory=list)

    def __len__(self) -> int:
        return len(self.far)

    @property
    def interleaved(self) -> bool:
        return True

    def ids(self) -> Int64[np.ndarray, "images"]:
        return np.sort(np.concatenate([np.empty(0, np.int64), *self.far.ask("ids").values()]))

    def spread_ids(self, count: int) -> Int64[np.ndarray, "n"]:
        return spread(np.concatenate([np.empty(0, np.int64), *self.far.ask("spread_ids", count).values()]), count)

    def images(self) -> Iterator[tuple[int, Image]]:
        return heapq.merge(*self.far.ask("images").values(), key=operator.itemgetter(0))

    def find(self, names: Sequence[str]) -> dict[str, int]:
        return {name: image for name, (image, _) in self.far.find(names).items()}

    def locate(self, image: int) -> tuple[int, int] | None:
        raise NotImplementedError("only a shard knows where in it an image lies")

    def words_of(self, image: int) -> ImageWords | None:
        return self.words_of_many([image])[0]

    def words_of_many(self, images: Sequence[int], workers: int = 1) -> list[ImageWords | None]:
        """Shards look at the same time, each by itself; `workers` are of an index on this machine."""
        found = self._of_shards("words_of", images)
        return [found.get(image) for image in images]

    def name_of(self, image: int) -> str | None:
        known = self._where.get(str(image))
        return known[1] if known is not None else self._of_shards("names_of", [image]).get(image)

    def names(self, ids: Sequence[int] | Int64[np.ndarray, "n"]) -> list[str]:
        wanted = [int(image) for image in ids]
        known = {image: where[1] for image in wanted if (where := self._where.get(str(image))) is not None}
        known |= self._of_shards("names_of", [image for image in wanted if image not in known])
        return [known.get(image, "") for image in wanted]

    def _of_shards(self, method: str, images: Sequence[int]) -> dict[int, Any]:
        """Of images whose shard is known that one is asked, of the others all."""
        places: dict[int | None, list[int]] = {}
        for image in images:
            known = self._where.get(str(image))
            places.setdefault(None if known is None else known[0], []).append(image)
        found: dict[int, Any] = {}
        for place, some in places.items():
            for part in self.far.ask(method, some, shards=None if place is None else [place]).values():
                found |= part
        return found

    def score_of(self, image: int, query: ImageWords, config: SearchConfig) -> float | None:
        found = self.best(query, config, only=self.masks([image]))
        return float(found.scores[0]) if len(found.scores) else None

    def masks(self, ids: Sequence[int]) -> Sequence[Only]:
        """The ids themselves: each shard looks which of them it has."""
        return [np.asarray(ids, np.int64)]

    def _within(self, only: Sequence[Only] | None) -> Sequence[Only]:
        return [] if only is None else only

    def _search_words(
        self,
        query: ImageWords,
        config: SearchConfig,
        top: int | None,
        masks: Sequence[Only],
        table: np.ndarray | None,
        workers: int,
    ) -> Best:
        self._selectivity(config, table)  # which refuses what is wrong with it
        whole = self._whole()[1] if config.idf else None
        return self._merge("search", query, config, top, _wanted(masks), table, whole, top=top)

    def nearest(
        self, vector: Float32[np.ndarray, " dim"], top: int | None, masks: Sequence[Only], workers: int = 1
    ) -> Best:
        return self._merge("nearest", vector, top, _wanted(masks), top=top)

    def nearest_many(self, queries: Sequence[ImageWords], top: int | None, workers: int) -> list[Ranking]:
        return [self.search(one, SearchConfig(), top=top) for one in queries]

    def _merge(self, method: str, *arguments: Any, top: int | None) -> Best:
        """The best of all shards: equal scores by id, as in one index."""
        found: dict[int, PartBest] = self.far.ask(method, *arguments)
        if not found:
            return Best(np.empty(0, np.int64), np.empty(0))
        scores = np.concatenate([one.scores for one in found.values()])
        ids = np.concatenate([one.ids for one in found.values()])
        order = np.lexsort((ids, -scores))[:top]
        best = set(ids[order].tolist()) if top is not None else set()
        for shard, one in found.items():
            for image, name in zip(one.ids.tolist(), one.names or [], strict=False):
                if image in best:
                    self._where.put(str(image), (shard, name))
        return Best(ids[order], scores[order])

    @property
    def weights(self) -> Weights:
        return Weights(word_weights(self._whole()[0]), [])

    def count_words(self) -> WordCounts:
        parts: list[WordCounts] = list(self.far.ask("count_words").values())
        counts = sum((one.words for one in parts), np.zeros(self.layout.words, np.int64))
        return WordCounts(sum(one.images for one in parts), counts)

    def _whole(self) -> tuple[WordCounts, Any]:
        """Words of the whole collection, and what stands for them in a question; counted once."""
        if self._counted:
            return self._counted[0]
        with collect_missing() as missing:
            counts = self.count_words()
        shared = counts, self.far.share(counts)
        if not missing:
            self._counted.append(shared)
        return shared


def _wanted(masks: Sequence[Only]) -> list[int] | None:
    return masks[0].tolist() if masks else None


def refuse(path: Path) -> NoReturn:
    """Changes go to the files, not through the shards that answer."""
    raise SuperfeatError(
        f"{path} is only read here; change it where its files are, and what is running takes that in by itself"
    )


class FarDisk:
    """The shards of a folder, which others read."""

    def __init__(self, path: Path, asker: Asker) -> None:
        self.path, self._asker = path, asker

    def load(self, before: FarContents | None = None) -> FarContents:
        """SuperfeatError if a shard that was never seen does not answer; of others the last news are taken."""
        known: Mapping[int, PartFacts] = {} if before is None else dict(enumerate(before.facts))
        names = ShardFolders(self.path).names()
        for _ in range(REFRESHES):
            answers: dict[int, PartFacts] = self._asker.ask("refresh")
            if len({one.serial for one in answers.values()}) <= 1:  # all have seen the same changes of several shards
                break
        facts = {**known, **answers}
        missing = [name for number, name in enumerate(names) if number not in facts]
        if missing:
            raise SuperfeatError(f"{self.path}: shard {missing[0]} does not answer; is it readable on every machine?")
        if [facts[number].shard for number in sorted(facts)] != names:
            raise SuperfeatError(f"{self.path} has other shards than before (superfeat rebalance): open it again")
        return FarContents(self._asker, [facts[number] for number in range(len(names))])

    def codebook(self) -> Codebook:
        return ShardFolders(self.path).codebook()

    def stamp(self) -> Stamp:
        return ShardFolders(self.path).stamp()

    def locked(self) -> contextlib.AbstractContextManager[None]:
        refuse(self.path)

    def is_current(self, contents: FarContents) -> bool:
        return True

    def tidy(self, contents: FarContents) -> FarContents:
        return contents

    def write(self, contents: FarContents, records: Sequence[Record], bulk: bool) -> FarContents:
        refuse(self.path)

    def compact(self, contents: FarContents) -> Iterator[FarContents]:
        refuse(self.path)

    def merge(self, contents: FarContents, snapshots: Sequence[Snapshot]) -> FarContents:
        refuse(self.path)

    def verify(self, contents: FarContents) -> Iterator[str]:
        """The files, here."""
        disk = ShardFolders(self.path)
        return disk.verify(disk.load())

    def describe(self, contents: FarContents) -> IndexInfo:
        first, facts = contents.manifest, contents.facts
        postings, size = sum(one.postings for one in facts), folder_bytes(self.path)
        return IndexInfo(
            FORMAT,
            VERSION,
            first["kernel"],
            first["words"],
            first["dim"],
            len(contents),
            deleted=0,
            segments=0,
            in_journal=0,
            postings=postings,
            words_per_image=round(postings / max(1, len(contents)), 1),
            bytes=size,
            bytes_per_posting=round(size / max(1, postings), 2),
            settings=first["settings"],
            facts=first["facts"].copy(),
            network=first["network"],
            codebook=first["codebook"],
            shards=[one.images for one in facts],
        )


def far_index(path: str | Path, asker: Asker) -> Index:
    """The index of a folder of shards that `asker` knows to ask."""
    disk = FarDisk(Path(path), asker)
    return Index(disk, disk.load())
