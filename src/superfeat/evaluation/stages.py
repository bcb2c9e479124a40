"""The stages of a protocol run, each to be gone on with: features, codebook, index, search."""

import collections
import dataclasses
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Float64

from superfeat.codebook import Codebook, Round, train_codebook, words_for
from superfeat.config import EvaluateConfig, as_dict
from superfeat.datasets.retrieval_set import RetrievalSet
from superfeat.errors import DatasetError
from superfeat.evaluation.judge import Answer, answer, grades_of
from superfeat.extraction import extract_to, pool_to
from superfeat.feature_store import FeatureStore
from superfeat.features import Features
from superfeat.images import Box, Photo, Skipped
from superfeat.index import Index
from superfeat.indexing import feature_facts, index_features, index_photos
from superfeat.store import explained
from superfeat.threads import all_cores
from superfeat.weights import Network
from superfeat.weights.named import cache_folder

ROWS, QUERIES = 1 << 16, 16  # global vectors, and queries, compared at once
DISTRACTOR = "distractor/"  # how their names begin in an index, so that none is taken for a photo of the set


class Step(NamedTuple):
    """How far a stage is: `done` of `total`."""

    stage: str
    done: int
    total: int


def unique_names(photos: Sequence[Photo]) -> list[Photo]:
    """The photos under names of their own: one that stands twice gets its number."""
    counts = collections.Counter(photo.name for photo in photos)
    return [
        photo if counts[photo.name] == 1 else dataclasses.replace(photo, name=f"{photo.name}#{number}")
        for number, photo in enumerate(photos)
    ]


def query_names(test: RetrievalSet) -> list[str]:
    """Where the features of each query are: under a database photo's name if it is one, else under its own."""
    looks: dict[tuple[Path, Box | None], str] = {
        (photo.path, photo.box): photo.name for photo in unique_names(test.photos)
    }
    return [
        looks.get((query.photo.path, query.photo.box), f"query {number}: {query.photo.name}")
        for number, query in enumerate(test.queries)
    ]


def extract_set(
    network: Network, test: RetrievalSet, folder: Path, config: EvaluateConfig, workers: int | None, device: str
) -> Iterator[Step]:
    """Features of the database and of the queries that are not in it, in one features folder."""
    photos = unique_names(test.photos)
    known = {photo.name for photo in photos}
    photos += [
        dataclasses.replace(query.photo, name=name)
        for query, name in zip(test.queries, query_names(test), strict=True)
        if name not in known
    ]
    write = pool_to if config.method == "pooled" else extract_to
    there = len(FeatureStore(folder).names()) if (folder / "manifest.json").is_file() else 0
    outcomes = write(folder, network, photos, config.extract, workers=workers, device=device)
    for done, _ in enumerate(outcomes, there + 1):
        yield Step("features", done, len(photos))


# -- The codebook, cached by content


def codebook_key(network: Network, photos: Sequence[Photo], config: EvaluateConfig) -> str:
    """A digest of all that decides the words: the network, the settings, the photos' names and bytes."""
    single = dataclasses.replace(config.extract, scales=(1.0,))
    facts = [network.digest, as_dict(single), as_dict(config.codebook), config.codebook_images]
    total = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for photo in photos[: config.codebook_images]:
        with explained(photo.path, "read"):
            total.update(hashlib.sha256(photo.path.read_bytes()).digest())
        total.update(f"{photo.name} {photo.box}\n".encode())
    return total.hexdigest()


def learn_codebook(
    network: Network, photos: Sequence[Photo], config: EvaluateConfig, workers: int | None, device: str,
    on_round: Callable[[Round], None] | None = None,
) -> Iterator[Step | Codebook]:  # fmt: skip
    """k-means on the scale-1 features of the photos; at the end the codebook, which the cache keeps."""
    chosen = list(photos[: config.codebook_images])
    if not chosen:
        raise DatasetError("the codebook needs photos: give --codebook-images, photos of other things, or --codebook")
    folder = cache_folder() / "codebooks" / codebook_key(network, chosen, config)
    if not (folder / "codebook").is_dir():
        single = dataclasses.replace(config.extract, scales=(1.0,))
        outcomes = extract_to(folder / "features", network, chosen, single, workers=workers, device=device)
        for done, _ in enumerate(outcomes, 1):
            yield Step("codebook features", done, len(chosen))
        store = FeatureStore(folder / "features")
        found = sum(entry.count for entry in store.entries)
        words = words_for(found, config.codebook.words)
        codebook = train_codebook(
            store, config.codebook, words=words, work=folder / "k-means", workers=workers or all_cores(),
            on_progress=on_round,
        )  # fmt: skip
        codebook.facts["images"] = len(store)
        codebook.save(folder / "codebook")
        for part in ("features", "k-means"):
            shutil.rmtree(folder / part, ignore_errors=True)
    yield Codebook.open(folder / "codebook")


# -- The index


def build_index(
    network: Network | None, store: FeatureStore, test: RetrievalSet, distractors: Sequence[Photo], codebook: Codebook,
    folder: Path, config: EvaluateConfig, workers: int | None, device: str,
) -> Iterator[Step | Skipped]:  # fmt: skip
    """Adds the database, then the distractors, whose features are not kept: memory holds a few images at a time.

    Only distractors need the network.
    """
    index = Index.open(folder) if folder.exists() else _create(folder, codebook, config, store)
    total = len(test.photos) + len(distractors)
    database = {photo.name for photo in unique_names(test.photos)}
    there = len(index)
    for done, _ in enumerate(index_features(index, store, only=database), there + 1):
        yield Step("index", done, total)
    others = [dataclasses.replace(photo, name=DISTRACTOR + photo.name) for photo in distractors]
    if others:
        assert network is not None
        there = len(index)
        outcomes = index_photos(index, network, others, config.extract, workers=workers, device=device)
        for done, outcome in enumerate(outcomes, there + 1):
            if isinstance(outcome, Skipped):
                yield outcome
            yield Step("index", done, total)


def _create(folder: Path, codebook: Codebook, config: EvaluateConfig, store: FeatureStore) -> Index:
    return Index.create(folder, codebook, config.index, facts=feature_facts(store))


# -- Search


def search_index(
    folder: Path, store: FeatureStore, test: RetrievalSet, distractors: Sequence[Photo], workers: int | None
) -> Iterator[Answer | None]:
    """The answer to each query, one whole ranking in memory at a time; None where its photo could not be read."""
    index = Index.open(folder)
    numbers = {photo.name: number for number, photo in enumerate(unique_names(test.photos))}
    numbers |= {DISTRACTOR + photo.name: number for number, photo in enumerate(distractors, len(test.photos))}
    number_of_id = {image: numbers[name] for image, name in _ids(index)}
    lookup = np.full(max(number_of_id, default=-1) + 1, -1, np.int64)
    lookup[list(number_of_id)] = list(number_of_id.values())
    del numbers, number_of_id
    grades = grades_of(test)
    for query, features in zip(test.queries, _queries(store, test), strict=True):
        if features is None:
            yield None
            continue
        ranking = index.search(features, None, workers=workers)
        yield answer(query, grades, lookup[ranking.ids], ranking.scores)


def _ids(index: Index) -> Iterator[tuple[int, str]]:
    return ((image, entry.name) for image, entry in index.snapshot().images())


def _queries(store: FeatureStore, test: RetrievalSet) -> Iterator[Features | None]:
    known = {entry.name for entry in store.entries}
    for name in query_names(test):
        yield store[name] if name in known else None


def search_pooled(
    store: FeatureStore, more: FeatureStore | None, test: RetrievalSet, distractors: Sequence[Photo]
) -> Iterator[Answer | None]:
    """The same by global vectors: cosine similarity with every image, equal ones in the order of their numbers."""
    known = {entry.name for entry in store.entries}
    named = [
        (number, store, photo.name) for number, photo in enumerate(unique_names(test.photos)) if photo.name in known
    ]
    if more is not None:
        there = {entry.name for entry in more.entries}
        own = len(test.photos)
        named += [(own + number, more, photo.name) for number, photo in enumerate(distractors) if photo.name in there]
    numbers = np.asarray([number for number, _, _ in named], np.int64)
    vectors = np.empty((len(named), int(store.manifest["dim"])), np.float32)
    for row, (_, place, name) in enumerate(named):
        vectors[row] = place[name].vectors[0]
    grades = grades_of(test)
    asked = list(zip(test.queries, _queries(store, test), strict=True))
    for begin in range(0, len(asked), QUERIES):
        part = asked[begin : begin + QUERIES]
        cosines = iter(_cosines([one.vectors[0] for _, one in part if one is not None], vectors))
        for query, one in part:
            if one is None:
                yield None
                continue
            scores = next(cosines)
            order = np.argsort(-scores, kind="stable")
            yield answer(query, grades, numbers[order], scores[order])


def _cosines(
    asked: Sequence[Float32[np.ndarray, " dim"]], vectors: Float32[np.ndarray, "images dim"]
) -> Float64[np.ndarray, "queries images"]:
    """In double precision, a block of images at a time."""
    queries = np.stack(asked).astype(np.float64) if asked else np.empty((0, vectors.shape[1]))
    blocks = [queries @ vectors[begin : begin + ROWS].T.astype(np.float64) for begin in range(0, len(vectors), ROWS)]
    return np.concatenate([np.empty((len(queries), 0)), *blocks], axis=1)
