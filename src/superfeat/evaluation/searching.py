"""One way to search a set: its photos in an index under names that no two share, every query, whole rankings."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int64

from superfeat.datasets.retrieval_set import RetrievalSet
from superfeat.errors import DatasetError
from superfeat.extraction.folder import FeatureStore
from superfeat.features import Features, ImageWords
from superfeat.images import Box, Photo
from superfeat.index.build import BATCH
from superfeat.index.entries import Added
from superfeat.index.index import Index
from superfeat.rerank.look import SearchedWith, diffused_order
from superfeat.rerank.order import COMPARED
from superfeat.rerank.strangers import hardly_strangers, measure_strangers, sample_images


class SetRanking(NamedTuple):
    """All images of a set, best first: their numbers, and their scores."""

    numbers: Int64[np.ndarray, "ranked"]
    scores: Float64[np.ndarray, "ranked"]


@dataclasses.dataclass(frozen=True)
class SetNames:
    """Under which names the features of the database and of the queries are kept."""

    database: list[str]
    queries: list[str]

    def photos(self, test: RetrievalSet) -> dict[str, Photo]:
        """All photos that are needed, by these names; a query that is a database photo is not needed twice."""
        found = dict(zip(self.database, test.photos, strict=True))
        for name, query in zip(self.queries, test.queries, strict=True):
            found.setdefault(name, query.photo)
        return found


# -- Names


def numbered(number: int, name: str) -> str:
    """A name that no other number has, whatever the photos are called."""
    return f"{number} {name}"


def own_names(test: RetrievalSet) -> SetNames:
    """Names that no two photos share, whatever the set calls them."""
    database = [numbered(number, photo.name) for number, photo in enumerate(test.photos)]
    looks: dict[tuple[Path, Box | None], str] = {}
    for photo, name in zip(test.photos, database, strict=True):
        looks.setdefault((photo.path, photo.box), name)
    queries = [
        looks.get((query.photo.path, query.photo.box), f"query {numbered(number, query.photo.name)}")
        for number, query in enumerate(test.queries)
    ]
    return SetNames(database, queries)


def names_in(store: FeatureStore, test: RetrievalSet) -> SetNames:
    """The names in a features folder: our own if it is that of a run, else those of the set."""
    own = own_names(test)
    if store.names() & set(own.database):
        return own
    plain = [photo.name for photo in test.photos]
    if len(set(plain)) < len(plain):
        raise DatasetError(f"{test.name} has several photos of one name, so that {store.path} cannot be used for it")
    asked = zip(test.queries, own.queries, strict=True)
    return SetNames(plain, [query.photo.name if query.photo.box is None else name for query, name in asked])


def distractor_names(photos: Sequence[Photo]) -> list[str]:
    """Names that no photo of a set has."""
    return [f"distractor {numbered(number, photo.name)}" for number, photo in enumerate(photos)]


def renamed(photos: Sequence[Photo], names: Sequence[str]) -> list[Photo]:
    """The photos under other names."""
    return [dataclasses.replace(photo, name=name) for photo, name in zip(photos, names, strict=True)]


# -- Into an index, and found there


def add_images(index: Index, images: Iterable[tuple[str, Features]]) -> Iterator[Added]:
    """Adds images under the names given, many to one wait for the disk."""
    return index.add_many(((name, features, None) for name, features in images), batch=BATCH)


def stored_queries(store: FeatureStore, names: SetNames) -> Iterator[Features | None]:
    """The features of each query; None where there are none, as its photo could not be read."""
    known = {entry.name for entry in store.entries}
    for name in names.queries:
        yield store[name] if name in known else None


def search_set(
    index: Index,
    names: Sequence[str],
    asked: Iterable[Features | ImageWords | None],
    workers: int | None = None,
    diffused: bool = False,
) -> Iterator[SetRanking | None]:
    """What each query finds, one whole ranking in memory at a time; None for one without features.

    An image's number is the place of its name among `names`. Equal scores stand in the order of these, whenever an
    image came into the index. With `diffused` the first 400 are ordered by how alike they are, scores stay beside them.
    """
    numbers = _numbers_by_id(index, names)
    floor = _floor(index) if diffused else None
    del names  # there may be a million
    for query in asked:
        if query is None:
            yield None
            continue
        words = index.words_for(query, index.config.search)
        ranking = index.search(words, None, workers=workers)
        found = numbers[ranking.ids]
        order = np.lexsort((found, -ranking.scores))
        if floor is not None:
            searched = SearchedWith(index.snapshot(), words, None, index.config.search)
            places = diffused_order(searched, ranking.ids[order], ranking.scores[order], floor)
            order[:COMPARED] = order[:COMPARED][places]
        yield SetRanking(found[order], ranking.scores[order])


def _floor(index: Index) -> float:
    """How alike two photos of a set are that hardly are strangers. SuperfeatError where all are of too few things."""
    snapshot = index.snapshot()
    return hardly_strangers(measure_strangers(snapshot, sample_images(snapshot), None, index.config.search).null)


def _numbers_by_id(index: Index, names: Sequence[str]) -> Int64[np.ndarray, "ids"]:
    """The number of each image, at the place of its id."""
    number_of = {name: number for number, name in enumerate(names)}
    pairs = [(image, number_of[entry.name]) for image, entry in index.snapshot().images()]
    ids = np.asarray(pairs, np.int64).reshape(-1, 2)
    numbers = np.full(int(ids[:, 0].max(initial=-1)) + 1, -1, np.int64)
    numbers[ids[:, 0]] = ids[:, 1]
    return numbers
