"""Labelled photos compared with each other: scores, where their words lie, and what is right."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Float64, Int8, Int64

from superfeat.config import IndexConfig, SearchConfig
from superfeat.datasets.retrieval_set import RetrievalSet
from superfeat.errors import DatasetError, SuperfeatError
from superfeat.evaluation.searching import add_images, names_in, numbered, search_set, stored_queries
from superfeat.extraction.folder import FeatureStore
from superfeat.features import ImageWords
from superfeat.index.codebook import Codebook
from superfeat.index.index import Index
from superfeat.index.pairs import score_pairs
from superfeat.index.snapshot import Snapshot
from superfeat.probability.clues import inliers_with
from superfeat.probability.model import Origin
from superfeat.rerank.geometry import PlacedWords, place_features, place_stored

MOST_LABELLED, MOST_OF_ONE = 2000, 100  # photos of an index, and of one thing, that are compared with each other
VERIFIED = 200  # best images of a search that are verified; those behind them have no clues


class Labelled(NamedTuple):
    """A set of photos with queries and their right answers, and the features of all of them."""

    test: RetrievalSet
    store: FeatureStore

    def images(self) -> list[str]:
        """The names of those photos of its database that there are features of."""
        known = {entry.name for entry in self.store.entries}
        return [name for name in names_in(self.store, self.test).database if name in known]


@dataclasses.dataclass(frozen=True, eq=False)
class Comparisons:
    """Scores of labelled searches with all images, and of these with each other. Each query searches twice: with one
    word per feature, as an indexed photo does, and with several, as a new photo does.
    """

    pairs: Float64[np.ndarray, "images images"]
    scores: Float64[np.ndarray, "searches images"]
    labels: Int8[np.ndarray, "searches images"]  # 1 right, 0 wrong, -1 not judged
    things: Int64[np.ndarray, "searches"]  # searches for one thing have one number
    search_sets: Int64[np.ndarray, "searches"]
    image_sets: Int64[np.ndarray, "images"]
    inliers: Float32[np.ndarray, "searches images"] | None = None  # as the clue counts them; None if nobody knows
    mutual: "MutualInliers | None" = None


class MutualInliers:
    """Which words of images lie alike in two of them, found out when it is asked for."""

    def __init__(self, snapshot: Snapshot, photos: Sequence[PlacedWords | None], config: SearchConfig) -> None:
        self._snapshot, self._photos, self._config = snapshot, photos, config
        self._known: dict[tuple[int, int], float] = {}

    def between(self, one: int, others: Sequence[int]) -> Float64[np.ndarray, "n"]:
        """The clue `inliers` of others, if this image were the query."""
        new = [other for other in dict.fromkeys(others) if (one, other) not in self._known]
        photos = [self._photos[other] for other in new]
        found = inliers_with(self._snapshot, self._photos[one], photos, self._config).tolist()
        self._known.update(zip(((one, other) for other in new), found, strict=True))
        return np.asarray([self._known[one, other] for other in others], np.float64)


# -- An index and its user's labels


def compare_index(index: Index, thing_of: Mapping[str, str], *, seed: int = 0) -> Comparisons:
    """Labelled photos of an index, searched for with their stored words. A thing with one photo is searched for by
    nobody; the others must not find it.
    """
    names_of: dict[str, list[str]] = {}
    for name, thing in thing_of.items():
        names_of.setdefault(thing, []).append(name)
    groups = list(names_of.values())
    if sum(len(group) > 1 for group in groups) < 2:
        raise DatasetError(
            f"the labels name {len(thing_of)} photos of the index: give at least two things with two photos each"
        )
    order = np.random.default_rng(seed).permutation(len(groups)).tolist()
    order.sort(key=lambda number: len(groups[number]) < 2)  # those that can be searched for first
    chosen = [(number, name) for number in order for name in groups[number][:MOST_OF_ONE]][:MOST_LABELLED]
    names = [name for _, name in chosen]
    things, metas = np.asarray([number for number, _ in chosen], np.int64), index.meta(names)
    photos = [place_stored(index.words_of(name), metas.get(name, {})) for name in names]
    return _compare_stored(index, names, things, np.zeros(len(names), np.int64), photos)


def _compare_stored(
    index: Index,
    names: Sequence[str],
    things: Int64[np.ndarray, "images"],
    sets: Int64[np.ndarray, "images"],
    photos: Sequence[PlacedWords | None],
) -> Comparisons:
    """Each of these photos that shows the same thing as another searches among all of them, by its stored words."""
    same = things[:, None] == things
    searches = np.flatnonzero(same.sum(axis=1) > 1)
    labels = same[searches].astype(np.int8)
    labels[np.arange(len(searches)), searches] = -1  # itself
    snapshot, config = index.snapshot(), index.config.search
    pairs = score_pairs(snapshot, [index.words_of(name) for name in names], config)
    asked = [photos[search] for search in searches.tolist()]
    inliers = compare_inliers(snapshot, asked, photos, pairs[searches], config)
    mutual = MutualInliers(snapshot, photos, config)
    return Comparisons(pairs, pairs[searches], labels, things[searches], sets[searches], sets, inliers, mutual)


def compare_inliers(
    snapshot: Snapshot,
    asked: Sequence[PlacedWords | None],
    photos: Sequence[PlacedWords | None],
    scores: Float64[np.ndarray, "searches images"],
    config: SearchConfig,
) -> Float32[np.ndarray, "searches images"] | None:
    """How many words of the best images of each search agree with it; None if no places are known."""
    if not any(asked) or not any(photos):
        return None
    found = np.zeros(scores.shape, np.float32)
    for search, query in enumerate(asked):
        best = np.argsort(-scores[search], kind="stable")[:VERIFIED].tolist()
        found[search, best] = inliers_with(snapshot, query, [photos[row] for row in best], config)
    return found


def origin_of(index: Index) -> Origin:
    """What decides the scores of an index."""
    search = index.config.search
    if search.idf:
        raise SuperfeatError(f"{index.path} searches with idf, for which there are no calibrations")
    return Origin(index.network, index.snapshot().layout.codebook, index.config.kernel, search.alpha, search.threshold)


# -- Photos -> scores


def index_sets(
    path: str | Path,
    codebook: Codebook,
    labelled: Sequence[Labelled],
    search: SearchConfig = SearchConfig(),  # noqa: B008 - frozen
) -> Index:
    """One index of all the photos that can be found, and how it is searched."""
    index = Index.create(path, codebook, IndexConfig(search=search))
    for number, one in enumerate(labelled):
        names = one.images()
        if not names:
            raise DatasetError(f"{one.store.path} has no features of the photos of {one.test.name}")
        for _ in add_images(index, ((numbered(number, name), one.store[name]) for name in names)):
            pass
    return index


def compare_sets(index: Index, labelled: Sequence[Labelled]) -> Comparisons:
    """All scores of an index of these sets. What one set shows must not be in another: its photos count as wrong."""
    set_of = {numbered(number, name): number for number, one in enumerate(labelled) for name in one.images()}
    rows = {name: row for row, name in enumerate(set_of)}
    asked, placed, labels, sets = [], [], [], []
    for number, one in enumerate(labelled):
        for words, where, judged in _searches(index, number, one, rows):
            asked.append(words)
            placed.append(where)
            labels.append(judged)
            sets.append(number)
    if not asked:
        raise DatasetError(f"none of the queries of {labelled[0].test.name} has features")
    scores = np.zeros((len(asked), len(rows)))
    for row, found in zip(scores, search_set(index, list(rows), asked), strict=True):
        assert found is not None
        row[found.numbers] = found.scores
    judged = np.stack(labels)
    pairs = score_pairs(index.snapshot(), [index.words_of(name) for name in rows], index.config.search)
    image_sets = np.asarray(list(set_of.values()), np.int64)
    photos = list(_placed(index, labelled))
    snapshot, config = index.snapshot(), index.config.search
    inliers = compare_inliers(snapshot, placed, photos, scores, config)
    things, mutual = group_searches(judged), MutualInliers(snapshot, photos, config)
    return Comparisons(pairs, scores, judged, things, np.asarray(sets, np.int64), image_sets, inliers, mutual)


def compare_photos(index: Index, labelled: Sequence[Labelled], shown: Sequence[Mapping[str, str]]) -> Comparisons:
    """The same, but with the photos of the sets as searches, as they come; `shown` names what each of a set shows."""
    names, things, sets = [], [], []
    for number, (one, thing_of) in enumerate(zip(labelled, shown, strict=True)):
        for name in one.images():
            names.append(numbered(number, name))
            things.append((number, thing_of[name]))
            sets.append(number)
    numbers = {thing: number for number, thing in enumerate(dict.fromkeys(things))}
    found = np.asarray([numbers[thing] for thing in things], np.int64)
    return _compare_stored(index, names, found, np.asarray(sets, np.int64), list(_placed(index, labelled)))


def _placed(index: Index, labelled: Sequence[Labelled]) -> Iterator[PlacedWords | None]:
    """The words of all images and where they lie, in the order of the comparisons."""
    for one in labelled:
        for name in one.images():
            features = one.store[name]
            yield place_features(index.query(features, 1), features)


def _searches(
    index: Index, number: int, labelled: Labelled, rows: Mapping[str, int]
) -> Iterator[tuple[ImageWords, PlacedWords | None, Int8[np.ndarray, "images"]]]:
    """Each query twice, where its words lie, and what every image is to it."""
    test, store = labelled
    names = names_in(store, test)
    places = [rows.get(numbered(number, name)) for name in names.database]
    for query, name, features in zip(test.queries, names.queries, stored_queries(store, names), strict=True):
        if features is None:
            continue
        judged = np.zeros(len(rows), np.int8)
        own = [image for image, other in enumerate(names.database) if other == name]
        for value, images in ((1, query.positives), (-1, (*query.junk, *own))):
            judged[[place for image in images if (place := places[image]) is not None]] = value
        for assignments in (1, index.config.search.assignments):
            words = index.query(features, assignments)
            yield words, place_features(words, features), judged


def group_searches(labels: Int8[np.ndarray, "searches images"]) -> Int64[np.ndarray, "searches"]:
    """A number for each thing: searches are for one if an image is right, or not judged, in both."""
    things = np.arange(len(labels))
    owner: dict[int, int] = {}
    for search, judged in enumerate(labels):
        for image in np.flatnonzero(judged).tolist():
            other = things[owner.setdefault(image, search)]
            things[things == max(other, things[search])] = min(other, things[search])
    return np.unique(things, return_inverse=True)[1].astype(np.int64)
