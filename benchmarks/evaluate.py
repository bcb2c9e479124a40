"""A full protocol run as the number of images grows: wall time and peak memory of each stage, on synthetic features.

Features are drawn: every image has `--features` of 128 dimensions around a few of 4096 centres; ten images share a
thing. They are written to a features folder as extraction would, then codebook, index, search and scoring run as in
`superfeat evaluate`, each size in a process of its own.

    python -m benchmarks.evaluate --json benchmarks/results/evaluate.json
"""

import argparse
import json
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from superfeat.config import CodebookConfig, EvaluateConfig
from superfeat.datasets.retrieval_set import Query, RetrievalSet
from superfeat.evaluation.judge import GradedRanking, judge
from superfeat.evaluation.searching import names_in
from superfeat.evaluation.stages import Step, build_index, search_index
from superfeat.extraction.folder import FeatureStore, feature_writer
from superfeat.features import Features
from superfeat.images import Photo
from superfeat.index.codebook import train_codebook
from superfeat.settings import as_dict, overlay
from superfeat.storage.store import as_json

DIM, CENTRES, IMAGES_PER_THING = 128, 4096, 10
CODEBOOK_IMAGES = 500


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, nargs="+", default=[1000, 5000, 20000])
    parser.add_argument("--queries", type=int, default=70)
    parser.add_argument("--features", type=int, default=400, help="per image")
    parser.add_argument("--words", type=int, default=2048)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args(arguments)
    rows = []
    for images in args.images:
        rows.append(in_process(images, args.queries, args.features, args.words))
        print(json.dumps(rows[-1]), flush=True)
    if args.json:
        args.json.write_text(
            json.dumps({"features": args.features, "words": args.words, "rows": rows}, indent=1) + "\n"
        )


def in_process(*arguments: int) -> dict[str, Any]:
    """In a process of its own, so that its peak of memory is its own."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_work, args=(there, *arguments))
    process.start()
    there.close()
    try:
        found: dict[str, Any] = here.recv()
    finally:
        process.join()
    return found


def _work(pipe: Connection, images: int, queries: int, features: int, words: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        pipe.send(measure(Path(folder), images, queries, features, words))


def measure(folder: Path, images: int, queries: int, features: int, words: int) -> dict[str, Any]:
    """Seconds of each stage, the peak of memory before and after, and the score, which must be that of drawn things."""
    random = np.random.default_rng(0)
    centres = random.standard_normal((CENTRES, DIM), np.float32)
    config = overlay(EvaluateConfig(), {"extract": {"features_per_image": features}})
    photos = [Photo(Path(f"{number}.jpg"), str(number)) for number in range(images)]
    asked = [Query(photos[n], tuple(_mates(n, images)), (n,)) for n in range(0, images, max(1, images // queries))][
        :queries
    ]
    test = RetrievalSet("synthetic", tuple(photos), tuple(asked))
    seconds: dict[str, float] = {}
    began = time.monotonic()
    facts = as_json({"extract": as_dict(config.extract)})
    with feature_writer(folder / "features", facts, DIM, regions=False) as writer:
        for one in _features(images, features, centres, random):
            writer.add(one, (0, 0))
        writer.finish()
    seconds["writing features"], began = time.monotonic() - began, time.monotonic()
    before = peak()
    store = FeatureStore(folder / "features")
    sample = (store[str(number)] for number in range(min(images, CODEBOOK_IMAGES)))
    codebook = train_codebook(sample, CodebookConfig(words=words, rounds=5))
    seconds["codebook"], began = time.monotonic() - began, time.monotonic()
    names = names_in(store, test)
    steps = build_index(None, store, names, (), codebook, folder / "index", config, None, "cpu")
    done = sum(isinstance(step, Step) for step in steps)
    assert done == images
    seconds["index"], began = time.monotonic() - began, time.monotonic()
    answers = [
        found
        for found in search_index(folder / "index", store, names, test, (), None, None, False)
        if found is not None
    ]
    seconds["search"], began = time.monotonic() - began, time.monotonic()
    assert all(isinstance(one, GradedRanking) for one in answers)
    scores = judge(test, answers)
    seconds["score"] = time.monotonic() - began
    return {
        "images": images,
        "seconds": {stage: round(value, 2) for stage, value in seconds.items()},
        "seconds_per_1000_images": round(1000 * (seconds["index"] + seconds["search"]) / images, 2),
        "peak_mb_before": before,
        "peak_mb": peak(),
        "features_mb": round(images * features * DIM * 4 / 1e6),
        "map": scores["grades"]["all"]["map"],
    }


def _mates(number: int, images: int) -> list[int]:
    first = number - number % IMAGES_PER_THING
    return [other for other in range(first, min(first + IMAGES_PER_THING, images)) if other != number]


def _features(images: int, count: int, centres: np.ndarray, random: np.random.Generator) -> Iterator[Features]:
    """Half of an image's features lie near places that its thing has, half anywhere."""
    for number in range(images):
        if number % IMAGES_PER_THING == 0:
            thing = centres[random.integers(0, len(centres), count)] + 0.5 * random.standard_normal((count, DIM))
        own = centres[random.integers(0, len(centres), count)] + 0.5 * random.standard_normal((count, DIM))
        seen = np.where(np.arange(count)[:, None] < count // 2, thing, own)
        vectors = (seen + 0.3 * random.standard_normal((count, DIM))).astype(np.float32)
        ones = np.ones(count, np.float32)
        yield Features(str(number), vectors, ones, ones, np.arange(count, dtype=np.int32))


def peak() -> int:
    """The most memory that this process has had, in MB."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


if __name__ == "__main__":
    main()
