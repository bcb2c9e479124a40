"""The living index: add, delete, compact, merge, search. Killed at any moment it holds what was acknowledged.

Small changes are records in a journal, safe when the call returns. A full journal becomes a segment, small segments
are joined, and the manifest that names them is replaced as a whole. docs/formats.md describes every byte.
"""

import collections
import contextlib
import functools
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from superfeat.config import IndexConfig, SearchConfig
from superfeat.errors import StoreError, SuperfeatError
from superfeat.features import Features, ImageWords, Meta, Ranking
from superfeat.index.codebook import Codebook
from superfeat.index.contents import require_free_names
from superfeat.index.disk import Disk, Held
from superfeat.index.entries import Added, IndexedImage
from superfeat.index.journal import AddFacts, Note, Record
from superfeat.index.labels import merge_labels, verify_labels
from superfeat.index.manifest import IndexFacts, IndexInfo
from superfeat.index.names import Image, key_of, require_json, require_name
from superfeat.index.partial import collect_missing, doubt
from superfeat.index.segments import content_digest, require_words
from superfeat.index.shards import disk_at
from superfeat.index.snapshot import Snapshot
from superfeat.index.vocabulary import Vocabulary
from superfeat.index.writer import create_folder
from superfeat.settings import overlay
from superfeat.storage.store import as_json
from superfeat.threads import all_cores, run_all

Indexable = Features | np.ndarray | ImageWords
QueryLike = Indexable | str


class Index:
    """An inverted file of images on disk.

    One process writes at a time; any number may read, each with the images that there were when it opened the index
    (`refresh` brings it up to date). Methods may be called from several threads.
    """

    def __init__(self, disk: Disk, contents: Held) -> None:
        self.path = disk.path
        self._disk, self._contents = disk, contents
        self._thread_lock = threading.RLock()
        self._writing = False

    # -- Make, open, describe

    @classmethod
    def create(
        cls,
        path: str | Path,
        codebook: Codebook,
        config: IndexConfig = IndexConfig(),  # noqa: B008 - frozen
        *,
        network: str | None = None,
        facts: IndexFacts | None = None,
    ) -> "Index":
        """A new, empty index in a folder of its own. `network` is a digest; by default the codebook's.

        `facts` travel with the index: how its features were made.
        """
        folder = Path(path)
        create_folder(folder, codebook, config, network or codebook.network, facts or {})
        return cls.open(folder)

    @classmethod
    def open(cls, path: str | Path) -> "Index":
        """Opens an index, or a folder of shards, for searching and changing."""
        disk = disk_at(Path(path))
        return cls(disk, disk.load())

    def stamp(self) -> list[tuple[str, int, int]]:
        """Name, size and time of the files that every change touches, by whatever process."""
        return self._disk.stamp()

    def refresh(self) -> None:
        """Takes in what other processes have changed."""
        with self._thread_lock:
            self._contents = self._disk.load(self._contents)

    @functools.cached_property
    def codebook(self) -> Codebook:
        """The words; they travel with the index."""
        codebook = self._disk.codebook()
        if codebook.digest != self._contents.layout.codebook:
            raise StoreError(f"{self.path / 'codebook'} is not the codebook that this index was made with")
        return codebook

    @property
    def network(self) -> str | None:
        """Digest of the network whose features are indexed; None as long as nobody said."""
        return self._contents.manifest["network"]

    @property
    def config(self) -> IndexConfig:
        """The settings it was made with."""
        return overlay(IndexConfig(), self._contents.manifest["settings"])

    @property
    def facts(self) -> IndexFacts:
        """What was said when it was made of how its features are made."""
        return self._contents.manifest["facts"].copy()

    @property
    def next_id(self) -> int:
        """The id that the next image will have."""
        return self._contents.next_id

    def __len__(self) -> int:
        return len(self._contents)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and bool(self._contents.find([name]))

    def names(self) -> Iterator[str]:
        """Of all images, in the order of their ids."""
        return (image.name for _, image in self.snapshot().images())

    def meta(self, names: Sequence[str]) -> dict[str, dict[str, Any]]:
        """What was noted with those of these images that there are, by name."""
        return {name: as_json(image.meta) for name, (_, image) in self._contents.find(names).items()}

    def id(self, name: str) -> int:
        """The id of an image: it stays the same as long as the image is not replaced, whatever it is called."""
        return self._require(name)[0]

    def find(self, field: Literal["path", "digest"], values: Sequence[str]) -> dict[str, list[IndexedImage]]:
        """The images whose file lies at one of these paths, or has one of these digests, by value."""
        found: dict[str, list[IndexedImage]] = {}
        wanted = set(values)
        for image, one in self._contents.find_keys([key_of(field, value) for value in wanted]).items():
            if one.meta.get(field) in wanted:
                found.setdefault(one.meta[field], []).append(IndexedImage(image, one.name, one.meta))
        return found

    def _require(self, name: str) -> tuple[int, Image]:
        with collect_missing() as missing:
            found = self._contents.find([name])
        if name not in found:
            raise SuperfeatError(f"{self.path} has no image called {name}{doubt(missing)}")
        return found[name]

    def info(self) -> IndexInfo:
        """Counts, sizes, and how it was made."""
        return self._disk.describe(self._contents)

    def verify(self) -> Iterator[str]:
        """Reads everything and compares it with its checksums; yields each file found whole."""
        contents = self._disk.load()
        try:
            yield from self._disk.verify(contents)
            yield from verify_labels(self.path)
        except StoreError as error:
            if self._disk.is_current(contents):
                raise
            raise StoreError(f"{self.path} was changed while it was being verified; verify it again") from error

    # -- Images in and out

    def snapshot(self) -> Snapshot:
        """The images as they are now: a view that later changes do not touch."""
        return self._contents.snapshot()

    def words_of(self, name: str) -> ImageWords:
        """The words and codes of an indexed image."""
        return self.words_for(name, self.config.search)

    def query(self, features: Features | np.ndarray, assignments: int | None = None) -> ImageWords:
        """Features as the index sees them, each assigned to its nearest words (as many as a query takes)."""
        count = self.config.search.assignments if assignments is None else assignments
        self._require_network(features.network if isinstance(features, Features) else None)
        return self.vocabulary().words(features, count)

    def vocabulary(self) -> Vocabulary:
        """What makes words of features."""
        return Vocabulary(self.codebook, self._contents.layout)

    def _require_network(self, network: str | None) -> None:
        if network is not None and self.network is not None and network != self.network:
            raise SuperfeatError(
                f"these features come from another network ({network[:12]}…) than those in {self.path} "
                f"({self.network[:12]}…); extract them with the same weights"
            )

    def add(self, name: str, features: Indexable, meta: Meta | None = None) -> Added:
        """Adds an image, safe on disk when this returns. The same again changes nothing; another one replaces it."""
        (added,) = self.add_many([(name, features, meta)])
        return added

    def add_many(self, images: Iterable[tuple[str, Indexable, Meta | None]], *, batch: int = 1) -> Iterator[Added]:
        """Adds images, yielding each once it is safe; `batch` of them share one wait for the disk."""
        waiting: dict[str, tuple[Indexable, Meta]] = {}
        with self.writing():
            for name, features, meta in images:
                if name in waiting:
                    yield from self._flush(waiting, batch > 1)
                waiting[require_name(name)] = features, require_json(name, meta)
                if len(waiting) >= batch:
                    yield from self._flush(waiting, batch > 1)
            yield from self._flush(waiting, batch > 1)

    def _record(
        self,
        name: str,
        features: Indexable,
        meta: Meta,
        found: tuple[int, Image] | None,
        image: int,
    ) -> tuple[Record | None, Added]:
        """What the journal will say, or nothing if the image is there already."""
        words = features if isinstance(features, ImageWords) else self.query(features, assignments=1)
        self._require_network(words.network)
        words = require_words(words, self._contents.layout, f"the words of {name}")
        content = content_digest(words)
        if found is not None and (found[1].content, found[1].meta) == (content, meta):
            return None, Added(name, found[0], "same")
        facts: AddFacts = {"add": name, "id": image, "content": content}
        if meta:
            facts["meta"] = meta
        if found is not None:
            facts["replaces"] = [found[0]]
        self._note_network(words.network)
        record = Record(facts, words.words, words.codes)
        return record, Added(name, image, "new" if found is None else "replaced")

    def _note_network(self, network: str | None) -> None:
        """The first features that say where they come from decide for the whole index."""
        if self.network is None and network is not None:
            self._contents.note_network(self.path, network)

    def _flush(self, waiting: dict[str, tuple[Indexable, Meta]], bulk: bool) -> Iterator[Added]:
        """Writes what is waiting."""
        found = self._contents.find(list(waiting))
        records: list[Record] = []
        done: list[Added] = []
        for name, (features, meta) in waiting.items():
            image = self._contents.next_id + len(records)
            record, added = self._record(name, features, meta, found.get(name), image)
            records += [] if record is None else [record]
            done.append(added)
        if records:
            self._contents = self._disk.write(self._contents, records, bulk)
        waiting.clear()
        yield from done

    def note(self, notes: Sequence[Note]) -> None:
        """Gives images other names, or notes other things with them, all at once; they stay the same images.

        What a note does not speak of stays as it was. SuperfeatError if two images would have one name.
        """
        with self.writing():
            safe = [Note(one.id, require_name(one.name), require_json(one.name, one.changes)) for one in notes]
            require_free_names(self._contents.find, self.path, safe)
            if safe:
                self._contents = self._disk.write(self._contents, [Record({"notes": safe})], bulk=False)

    def delete(self, names: str | Iterable[str]) -> int:
        """Deletes images, all of them or, if one is not there, none; returns how many. `compact` frees their space."""
        wanted = [names] if isinstance(names, str) else list(dict.fromkeys(names))
        with self.writing():
            found = self._contents.find(wanted)
            ids = [found[name][0] if name in found else self._require(name)[0] for name in wanted]
            if ids:
                self._contents = self._disk.write(self._contents, [Record({"delete": ids})], bulk=False)
        return len(wanted)

    def compact(self) -> None:
        """Rewrites what holds deleted images and joins small segments; of a deleted image no byte is left."""
        with self.writing():
            for contents in self._disk.compact(self._contents):
                self._contents = contents

    def merge(self, *others: "Index") -> int:
        """Takes in the images of other indexes with the same codebook: all, or none if one of them cannot be.

        An image of the same photo replaces ours; another photo of the same name gets a longer one.
        """
        for other in others:
            if other._contents.layout != self._contents.layout:
                raise SuperfeatError(
                    f"{other.path} has another codebook or kernel than {self.path}; they cannot be merged"
                )
            self._require_network(other.network)
            others[0]._require_network(other.network)
            collections.deque(other.verify(), maxlen=0)  # damage must not get new checksums
        with self.writing():
            snapshots = [other.snapshot() for other in others]
            self._contents = self._disk.merge(self._contents, snapshots)
            for other in others:
                self._note_network(other.network)
                merge_labels(self.path, other.path)
        return sum(map(len, snapshots))

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Keeps other writers out; many changes inside one `with` need not take the lock each time."""
        with self._thread_lock, contextlib.ExitStack() as stack:
            if not self._writing:
                stack.enter_context(self._disk.locked())
                if not self._disk.is_current(self._contents):
                    self.refresh()
                self._contents = self._disk.tidy(self._contents)
                self._writing = True
                stack.callback(setattr, self, "_writing", False)
            try:
                yield
            except Exception:
                with contextlib.suppress(SuperfeatError):
                    self.refresh()  # what is in memory may be ahead of the disk
                raise

    # -- Search

    def search(
        self,
        query: QueryLike,
        top: int | None = 100,
        *,
        only: Iterable[str] | None = None,
        config: SearchConfig | None = None,
        table: np.ndarray | None = None,
        workers: int | None = None,
    ) -> Ranking:
        """The `top` images (None: all) for features, an (n, dim) array, or the name of an indexed image.

        `only` limits the search to these names. `config` and `table` (a value for each Hamming distance) take the
        place of the index's own settings for this search.
        """
        config = config or self.config.search
        snapshot = self.snapshot()
        masks = None if only is None else snapshot.masks(self._ids(snapshot, list(only)))
        words = self.words_for(query, config, snapshot)
        return snapshot.search(words, config, top=top, only=masks, table=table, workers=workers or all_cores())

    def search_many(
        self,
        queries: Sequence[QueryLike],
        top: int | None = 100,
        *,
        config: SearchConfig | None = None,
        workers: int | None = None,
    ) -> list[Ranking]:
        """One ranking per query, all over the same images; the queries are shared out over the cores."""
        config = config or self.config.search
        snapshot = self.snapshot()
        words = [self.words_for(query, config, snapshot) for query in queries]
        if snapshot.layout.vectors is not None and config.expansion is None:
            return snapshot.nearest_many(words, top, workers or all_cores())
        found: list[Ranking | None] = [None] * len(queries)

        def work(number: int) -> None:
            found[number] = snapshot.search(words[number], config, top=top)

        run_all(work, list(range(len(queries))), workers or all_cores())
        return [ranking for ranking in found if ranking is not None]

    def scores(self, query: QueryLike, names: Sequence[str], *, config: SearchConfig | None = None) -> np.ndarray:
        """The scores of these images, in this order."""
        ranking = self.search(query, None, only=names, config=config)
        by_name = dict(zip(ranking.names, ranking.scores.tolist(), strict=True))
        return np.asarray([by_name[name] for name in names], np.float64)

    def words_for(self, query: QueryLike, config: SearchConfig, snapshot: Snapshot | None = None) -> ImageWords:
        """What a query is searched with: an indexed image by the words that are stored of it, one per feature."""
        if isinstance(query, str):
            snapshot = snapshot or self.snapshot()
            words = snapshot.words_of(self._ids(snapshot, [query])[0])
            if words is None:  # its name is there and its words are not
                raise StoreError(f"{self.path} is damaged: {query} has no words; check it with: superfeat verify")
            return words
        return query if isinstance(query, ImageWords) else self.query(query, config.assignments)

    def _ids(self, snapshot: Snapshot, names: Sequence[str]) -> list[int]:
        with collect_missing() as missing:
            ids = snapshot.find(names)
        for name in names:
            if name not in ids:
                raise SuperfeatError(f"{self.path} has no image called {name}{doubt(missing)}")
        return [ids[name] for name in names]
