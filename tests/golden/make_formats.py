"""Makes one small artefact of every kind, in the formats as they are now, and what reading them must give.

    python tests/golden/make_formats.py NEW_FOLDER

tests/golden/data/formats-1 was made by it and is never made again: it stands for the files that people have. When a
format gets another version, make a new folder beside it.
"""

import dataclasses
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fixtures_recipe import noise, recipe_network
from superfeat.config import (
    CodebookConfig,
    EvaluateConfig,
    ExtractConfig,
    IndexConfig,
    LitConfig,
    LossConfig,
    NetworkConfig,
    Recipe,
    SearchConfig,
    TrainingConfig,
    TrunkConfig,
    ValidationConfig,
)
from superfeat.datasets.folders import read_folders
from superfeat.datasets.retrieval_set import RetrievalSet, each_photo_in_turn
from superfeat.datasets.training_set import TrainingSet
from superfeat.evaluation.run import Evaluated, run_protocol
from superfeat.extraction.extract import extract_to
from superfeat.extraction.folder import FeatureStore
from superfeat.index.codebook import Codebook, train_codebook
from superfeat.index.index import Index
from superfeat.probability.apply import judge_ranking
from superfeat.probability.comparing import origin_of
from superfeat.probability.model import Calibration
from superfeat.rerank.strangers import Null
from superfeat.storage.store import write_json
from superfeat.training.train import train
from superfeat.weights import Network, load_network, save_network

THINGS, VIEWS = 4, 3
LIT = LitConfig(templates=8, rounds=2, dim=8)
NETWORK = NetworkConfig("fire", TrunkConfig("resnet10", stages=1), LIT, whitened_dim=8)
EXTRACT = ExtractConfig(features_per_image=10, max_side=40, scales=(1.0, 0.5), attention="regions")
EVALUATE = EvaluateConfig(
    extract=EXTRACT, codebook=CodebookConfig(words=8, rounds=2), index=IndexConfig(search=SearchConfig(assignments=3))
)
RECIPE = Recipe(
    network=dataclasses.replace(NETWORK, whitened_dim=6),
    training=TrainingConfig(
        epochs=2,
        queries=4,
        tuples_per_step=2,
        negatives=2,
        pool=8,
        learning_rate=1e-3,
        max_side=40,
        frozen_stages=1,
        whitening_images=8,
    ),
    losses=LossConfig(ratio_test="off"),
    validation=ValidationConfig(
        every=1, codebook=CodebookConfig(words=8, rounds=2), codebook_images=6, extract=EXTRACT
    ),
)
STOPPED_AFTER = 3  # steps of 4


def draw_things(folder: Path) -> TrainingSet:
    """Noise, and under it one pattern for each thing."""
    for thing in range(THINGS):
        (folder / f"thing{thing}").mkdir(parents=True)
        for view in range(VIEWS):
            mixed = 0.6 * noise(40, 32, thing) + 0.4 * noise(40, 32, 100 + 10 * thing + view)
            Image.fromarray(mixed.astype(np.uint8)).save(folder / f"thing{thing}" / f"{view}.png")
    return read_folders(folder)


def benchmark(photos: TrainingSet) -> RetrievalSet:
    whole = each_photo_in_turn(photos, "things")
    return dataclasses.replace(whole, queries=whole.queries[::2])


def picture() -> torch.Tensor:
    """What a network is shown: a ramp, the same everywhere."""
    return torch.linspace(-1, 1, 3 * 40 * 32).reshape(1, 3, 40, 32)


# -- Each kind; every function returns what a reader must find


def make_network(path: Path) -> dict[str, Any]:
    save_network(recipe_network(NETWORK), path, half=True)
    network = load_network(path)
    with torch.inference_mode():
        local = network.module(picture())
    return {"digest": network.digest, "vector": local.vectors[0, 0].tolist(), "strengths": local.strengths[0].tolist()}


def make_features(path: Path, network: Network, photos: TrainingSet) -> dict[str, Any]:
    for _ in extract_to(path, network, photos.photos, EXTRACT, workers=1):
        pass
    store = FeatureStore(path)
    first = next(iter(store))
    assert first.regions is not None
    return {
        "names": [entry.name for entry in store.entries],
        "counts": [entry.count for entry in store.entries],
        "network": network.digest,
        "strengths": first.strengths.tolist(),
        "ids": first.ids.tolist(),
        "scales": first.scales.tolist(),
        "region": first.regions[0].tolist(),
        "vector": first.vectors[0].tolist(),
    }


def make_codebook(path: Path, store: FeatureStore) -> dict[str, Any]:
    train_codebook(store, EVALUATE.codebook, workers=1).save(path)
    codebook = Codebook.open(path)
    vectors = next(iter(store)).vectors
    return {"digest": codebook.digest, "network": codebook.network, "assigned": codebook.assign(vectors, 2).tolist()}


def make_index(path: Path, store: FeatureStore, codebook: Codebook, work: Path) -> dict[str, Any]:
    """Two segments, a file of dead images, and a journal that adds, replaces and deletes."""
    entries = list(store)
    index = Index.create(path, codebook, EVALUATE.index, facts={"extract": store.manifest["extract"]})
    for image in entries[:6]:
        index.add(image.name, image, {"thing": image.name.split("/")[0]})
    index.compact()
    index.delete(entries[1].name)
    other = Index.create(work / "other", codebook, EVALUATE.index)
    for image in entries[6:9]:
        other.add(image.name, image)
    index.merge(other)
    index.add("thing0/0.png", entries[2].vectors, {"thing": "another view"})
    for image in entries[9:]:
        index.add(image.name, image)
    index.delete([entries[7].name, entries[10].name])
    calibration = Calibration(-1.5, 1.25, -0.1, Null(-2.0, 0.5, 40), origin_of(index))
    write_json(path / "calibration.json", calibration.to_dict())
    index = Index.open(path)
    ranking, probabilities = judge_ranking(index, "thing3/0.png", calibration, workers=1)
    assert probabilities is not None
    words = index.words_of("thing3/0.png")
    told = ("images", "deleted", "segments", "in_journal", "postings", "kernel", "words", "dim", "codebook", "network")
    return {
        "info": {key: getattr(index.info(), key) for key in told},
        "names": list(index.names()),
        "ids": [index.id(name) for name in index.names()],
        "meta": index.meta(["thing0/0.png", "thing0/2.png"]),
        "words": words.words.tolist(),
        "codes": words.codes.tolist(),
        "ranking": [[hit.name, hit.score] for hit in ranking],
        "asked": [[hit.name, hit.score] for hit in index.search(entries[7].vectors, 4)],
        "probabilities": probabilities.tolist(),
    }


def make_run(path: Path, photos: TrainingSet) -> dict[str, Any]:
    """Stopped in the second epoch. `last` is left out: it has the form of `best`."""
    seen: list[str] = []
    test = benchmark(photos)
    for event in train(
        RECIPE, photos, path, validation=test, workers=1, stop=lambda: seen.count("step") == STOPPED_AFTER
    ):
        seen.append(event.stage)
    for name in ("last", "tensorboard"):
        shutil.rmtree(path / name, ignore_errors=True)
    records = read_log(path)
    resumed = shutil.copytree(path, "resumed")
    for _ in train(RECIPE, photos, resumed, validation=test, resume=True, workers=1):
        pass
    return {
        "best": load_network(path / "best").digest,
        "events": [record["event"] for record in records],
        "losses": [record["loss"] for record in records if record["event"] == "step"],
        "last_loss": [record["loss"] for record in read_log(Path(resumed)) if record["event"] == "step"][-1],
    }


def read_log(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]


def make_evaluation(path: Path, network: Network, codebook: Codebook, photos: TrainingSet) -> dict[str, Any]:
    *_, done = run_protocol(network, benchmark(photos), path, EVALUATE, codebook=codebook, workers=1)
    assert isinstance(done, Evaluated)
    Index.open(path / "index").compact()  # a journal alone would leave an empty folder, which git does not keep
    numbers, scores = (np.load(path / "rankings" / f"{name}.npy") for name in ("numbers", "scores"))
    return {
        "map": done.scores["grades"]["all"]["map"],
        "aps": [query["ap"]["all"] for query in done.scores["queries"]],
        "network": done.card["network"]["digest"],
        "numbers": numbers[0].tolist(),
        "scores": scores[0].tolist(),
    }


def make(path: Path) -> None:
    """Photos have relative paths, so that no file tells where it was made."""
    path = path.resolve()
    path.mkdir(parents=True)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        photos = draw_things(Path("things"))
        expected: dict[str, Any] = {"network": make_network(path / "network")}
        network = load_network(path / "network")
        expected["features"] = make_features(path / "features", network, photos)
        store = FeatureStore(path / "features")
        expected["codebook"] = make_codebook(path / "codebook", store)
        codebook = Codebook.open(path / "codebook")
        expected["index"] = make_index(path / "index", store, codebook, Path("work"))
        expected["run"] = make_run(path / "run", photos)
        expected["evaluation"] = make_evaluation(path / "evaluation", network, codebook, photos)
    write_json(path / "expected.json", expected)
    for lock in path.rglob(".lock"):
        lock.unlink()


if __name__ == "__main__":
    make(Path(sys.argv[1]))
