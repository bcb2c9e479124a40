"""The stages of a protocol run, each to be gone on with: features, codebook, index, search."""

import dataclasses
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Float64

from superfeat.config import EvaluateConfig
from superfeat.datasets.retrieval_set import RetrievalSet
from superfeat.errors import StoreError
from superfeat.evaluation.judge import GradedRanking, grade_ranking, grades_of
from superfeat.evaluation.local import LocalStage
from superfeat.evaluation.searching import SetNames, distractor_names, own_names, renamed, search_set, stored_queries
from superfeat.extraction.extract import extract_to, pool_to
from superfeat.extraction.folder import FeatureStore, photo_stamp, stored_names
from superfeat.images import Photo, Skipped
from superfeat.index.build import add_features, add_photos, feature_facts
from superfeat.index.codebook import Codebook, Round, train_codebook, words_for
from superfeat.index.index import Index
from superfeat.settings import as_dict
from superfeat.storage.cache import cache_folder
from superfeat.storage.store import explained
from superfeat.threads import all_cores
from superfeat.weights import Network

VECTORS_AT_ONCE, QUERIES_AT_ONCE = 1 << 16, 16  # global vectors, and queries, compared at once


class Step(NamedTuple):
    """How far a stage is: `done` of `total`."""

    stage: str
    done: int
    total: int


def extract_set(
    network: Network, test: RetrievalSet, folder: Path, config: EvaluateConfig, workers: int | None, device: str
) -> Iterator[Step]:
    """Features of the database and of the queries that are not in it, in one features folder."""
    wanted = own_names(test).photos(test)
    photos = renamed(list(wanted.values()), list(wanted))
    write = pool_to if config.method == "pooled" else extract_to
    there = len(stored_names(folder))
    if there:
        _require_unchanged(FeatureStore(folder), wanted)
    outcomes = write(folder, network, photos, config.extract, workers=workers, device=device)
    for done, _ in enumerate(outcomes, there + 1):
        yield Step("features", done, len(photos))


def _require_unchanged(store: FeatureStore, photos: dict[str, Photo]) -> None:
    changed = [
        entry.name
        for entry in store.entries
        if entry.name in photos and photo_stamp(photos[entry.name].path) not in (entry.stamp, (0, 0))
    ]
    if changed:
        raise StoreError(
            f"{len(changed)} photos have changed since their features were extracted (the first is "
            f"{photos[changed[0]].path}); choose another folder, or remove {store.path} to extract them again"
        )


# -- The codebook, cached by content


def codebook_key(network: Network, photos: Sequence[Photo], config: EvaluateConfig) -> str:
    """A digest of all that decides the words: the network, the settings, the photos' names and bytes."""
    single = dataclasses.replace(config.extract, scales=(1.0,))
    facts = [network.digest, as_dict(single), as_dict(config.codebook), config.codebook_images]
    total = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for photo in photos[: config.codebook_images]:
        with explained(photo.path, "read"):
            total.update(hashlib.sha256(photo.path.read_bytes()).digest())
        total.update(f"{photo.name} {photo.box}\n".encode("utf-8", "surrogateescape"))
    return total.hexdigest()


def learn_codebook(
    network: Network,
    photos: Sequence[Photo],
    config: EvaluateConfig,
    workers: int | None,
    device: str,
    on_round: Callable[[Round], None] | None = None,
) -> Iterator[Step | Codebook]:
    """k-means on the scale-1 features of the photos; at the end the codebook, which the cache keeps."""
    chosen = list(photos[: config.codebook_images])
    folder = cache_folder() / "codebooks" / codebook_key(network, chosen, config)
    if not (folder / "codebook").is_dir():
        single = dataclasses.replace(config.extract, scales=(1.0,))
        outcomes = extract_to(folder / "features", network, chosen, single, workers=workers, device=device)
        for done, _ in enumerate(outcomes, len(stored_names(folder / "features")) + 1):
            yield Step("codebook features", done, len(chosen))
        store = FeatureStore(folder / "features")
        words = words_for(sum(entry.count for entry in store.entries), config.codebook.words)
        codebook = train_codebook(
            store,
            config.codebook,
            words=words,
            work=folder / "k-means",
            workers=workers or all_cores(),
            on_progress=on_round,
        )
        codebook.facts["images"] = len(store)
        codebook.save(folder / "codebook")
    for part in ("features", "k-means"):
        shutil.rmtree(folder / part, ignore_errors=True)
    yield Codebook.open(folder / "codebook")


# -- The index


def build_index(
    network: Network | None,
    store: FeatureStore,
    names: SetNames,
    distractors: Sequence[Photo],
    codebook: Codebook,
    folder: Path,
    config: EvaluateConfig,
    workers: int | None,
    device: str,
) -> Iterator[Step | Skipped]:
    """Adds the database, then the distractors, whose features are not kept: memory holds a few images at a time.

    Only distractors need the network.
    """
    index = (
        Index.open(folder)
        if folder.exists()
        else Index.create(folder, codebook, config.index, facts=feature_facts(store))
    )
    if index.codebook.digest != codebook.digest:
        raise StoreError(
            f"{folder} was made with another codebook ({index.codebook.digest[:12]}, not {codebook.digest[:12]}); "
            "choose another folder for the evaluation, or remove this one"
        )
    total = len(names.database) + len(distractors)
    for done, _ in enumerate(add_features(index, store, only=set(names.database)), len(index) + 1):
        yield Step("index", done, total)
    if distractors:
        assert network is not None
        others = renamed(distractors, distractor_names(distractors))
        outcomes = add_photos(index, network, others, config.extract, workers=workers, device=device)
        for done, outcome in enumerate(outcomes, len(index) + 1):
            if isinstance(outcome, Skipped):
                yield outcome
            yield Step("index", done, total)


# -- Search


def search_index(
    folder: Path,
    store: FeatureStore,
    names: SetNames,
    test: RetrievalSet,
    distractors: Sequence[Photo],
    local: LocalStage | None,
    workers: int | None,
    diffused: bool,
) -> Iterator[GradedRanking | None]:
    """The answer to each query, one whole ranking in memory at a time; None where its photo could not be read.

    Equal scores stand in the order of the set, whenever an image came into the index. `local` orders the first anew,
    and so does diffusion.
    """
    index, asked = Index.open(folder), stored_queries(store, names)
    found = search_set(index, [*names.database, *distractor_names(distractors)], asked, workers, diffused)
    grades = grades_of(test)
    for number, (query, one) in enumerate(zip(test.queries, found, strict=True)):
        if one is None:
            yield None
        else:
            yield grade_ranking(query, grades, *one) if local is None else local.order(number, query, grades, one)


def search_pooled(
    store: FeatureStore, names: SetNames, more: FeatureStore | None, test: RetrievalSet, distractors: Sequence[Photo]
) -> Iterator[GradedRanking | None]:
    """The same by global vectors: cosine similarity with every image, equal ones in the order of their numbers."""
    sources = [(store, names.database)] + ([] if more is None else [(more, distractor_names(distractors))])
    rows: list[np.ndarray] = []
    numbers: list[int] = []
    first = 0
    for place, kept in sources:
        known = {entry.name for entry in place.entries}
        numbers += [first + number for number, name in enumerate(kept) if name in known]
        rows += [place[name].vectors[0] for name in kept if name in known]
        first += len(kept)
    vectors = np.stack(rows) if rows else np.empty((0, store.manifest["dim"]), np.float32)
    del rows
    places = np.asarray(numbers, np.int64)
    grades = grades_of(test)
    asked = list(zip(test.queries, stored_queries(store, names), strict=True))
    for begin in range(0, len(asked), QUERIES_AT_ONCE):
        part = asked[begin : begin + QUERIES_AT_ONCE]
        cosines = iter(_cosines([one.vectors[0] for _, one in part if one is not None], vectors))
        for query, one in part:
            if one is None:
                yield None
                continue
            scores = next(cosines)
            order = np.argsort(-scores, kind="stable")
            yield grade_ranking(query, grades, places[order], scores[order])


def _cosines(
    asked: Sequence[Float32[np.ndarray, " dim"]], vectors: Float32[np.ndarray, "images dim"]
) -> Float64[np.ndarray, "queries images"]:
    """In double precision, a block of images at a time."""
    queries = np.stack(asked).astype(np.float64) if asked else np.empty((0, vectors.shape[1]))
    blocks = [
        queries @ vectors[begin : begin + VECTORS_AT_ONCE].T.astype(np.float64)
        for begin in range(0, len(vectors), VECTORS_AT_ONCE)
    ]
    return np.concatenate([np.empty((len(queries), 0)), *blocks], axis=1)
