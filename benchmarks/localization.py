"""Percent of queries localized against the number of photos retrieved, all scenes in one database, CPU-seconds beside.

    superfeat extract SCENES -o FEATURES      # once: the network that comes with superfeat
    python -m benchmarks.localization SCENES -o WORK --features fire=FEATURES --exhaustive --json OUT.json

SCENES holds folders with `images` and `poses.json`. Each `--features NAME=FOLDER` is one way of retrieval, by ASMK
with the codebook that comes with superfeat where the features are of its network, else with one learned from the map's
photos (`NAME=FOLDER:CODEBOOK` names one); and by pooled vectors, as NAME-pooled. The map is made of the true poses,
once. A run that was stopped goes on; --every measures a part of the queries.
"""

import argparse
import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from superfeat.config import CodebookConfig, SearchConfig
from superfeat.extraction.extract import pool_features
from superfeat.extraction.folder import FeatureStore
from superfeat.index.codebook import Codebook, train_codebook, words_for
from superfeat.index.index import Index
from superfeat.mapping.image_lists import ListedPhotos
from superfeat.mapping.measure import TOPS, measure_localization
from superfeat.mapping.scenes import LocalizationSet, read_scenes
from superfeat.weights.named import SHIPPED_FOLDER


def by_file(store: FeatureStore, photos: ListedPhotos, root: Path) -> list[str]:
    """The names that photos have in a features folder of `root`, where they are listed by path below it."""
    return [photo.path.relative_to(root).as_posix() for photo in photos.photos]


def codebook_for(store: FeatureStore, names: list[str], given: str | None) -> Codebook:
    """The one that is named, or comes with the network, or is learned from the photos of the map."""
    if given:
        return Codebook.open(given)
    network = store[names[0]].network
    for folder in sorted(SHIPPED_FOLDER.glob("*/codebook")):
        shipped = Codebook.open(folder)
        if shipped.network == network:
            return shipped
    count = sum(len(store[name].vectors) for name in names)
    return train_codebook((store[name] for name in names), CodebookConfig(words=words_for(count // 4, 16384)))


def similarities(scenes: LocalizationSet, root: Path, name: str, features: str, work: Path) -> dict[str, np.ndarray]:
    """Of queries and photos, by ASMK and by pooled vectors."""
    folder, _, codebook = features.partition(":")
    store = FeatureStore(folder)
    photos, queries = by_file(store, scenes.photos, root), by_file(store, scenes.queries, root)
    if not (work / f"index-{name}" / "manifest.json").is_file():
        index = Index.create(work / f"index-{name}", codebook_for(store, photos, codebook or None))
        for _ in index.add_many(((photo, store[photo], None) for photo in photos), batch=64):
            pass
    index = Index.open(work / f"index-{name}")
    places = {photo: number for number, photo in enumerate(photos)}
    asmk = np.zeros((len(queries), len(photos)))
    for number, query in enumerate(queries):
        ranking = index.search(store[query], None, config=SearchConfig())
        asmk[number, [places[found] for found in ranking.names]] = ranking.scores
    pooled = [np.concatenate([pool_features(store[one]).vectors for one in some]) for some in (queries, photos)]
    return {name: asmk, f"{name}-pooled": pooled[0].astype(np.float64) @ pooled[1].T.astype(np.float64)}


def subset(scenes: LocalizationSet, every: int) -> LocalizationSet:
    """One query in so many."""
    kept = dataclasses.replace(scenes.queries, photos=scenes.queries.photos[::every])
    return dataclasses.replace(scenes, queries=kept)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenes", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--features", action="append", default=[], metavar="NAME=FOLDER[:CODEBOOK]")
    parser.add_argument("--exhaustive", action="store_true")
    parser.add_argument("--tops", type=int, nargs="+", default=list(TOPS))
    parser.add_argument("--every", type=int, default=1, help="take one query in so many")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args(arguments)
    scenes = subset(read_scenes(chosen.scenes), chosen.every)
    chosen.output.mkdir(parents=True, exist_ok=True)
    methods: dict[str, np.ndarray] = {}
    for given in chosen.features:
        name, _, folder = given.partition("=")
        methods |= similarities(scenes, chosen.scenes, name, folder, chosen.output)
    work = measure_localization(scenes, chosen.output, methods, tops=chosen.tops, exhaustive=chosen.exhaustive)
    scores: list[dict[str, Any]] = [one._asdict() for one in work.result()]
    facts = {"photos": len(scenes.photos.photos), "queries": len(scenes.queries.photos), "every": chosen.every}
    text = json.dumps({"cores": os.cpu_count(), **facts, "scores": scores}, indent=2)
    print(text)
    if chosen.json:
        chosen.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
