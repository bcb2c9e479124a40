"""What a hundred million photos would cost: a model fitted to small collections, checked on a larger one, simulated.

    python -m benchmarks.scale -o FOLDER --images 10000 20000        # small
    python -m benchmarks.scale -o FOLDER --images 10000 100000 1000000   # an index of 1 M images, 8 GB in FOLDER

Time of a search in one shard is a + b x postings read, fitted to all sizes but the largest, which it must foretell. How
much one search differs from that, as a ratio, is kept; at 10^8 photos each of N shards draws its own, and an answer
takes as long as the slowest. Postings follow from the words: synthetic, drawn as `search.py` draws them.
"""

import argparse
import dataclasses
import json
import os
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.search import TOP, WORDS, WORDS_PER_IMAGE, WORDS_PER_QUERY, Collection, build_million, timed
from superfeat import ImageWords, Index
from superfeat.config import SearchConfig

TARGET = 10**8
POSTING_BYTES = 18
HIT_BYTES = 150  # of a hit on its way: id, score, name
DRAWS = 20_000  # simulated searches


class Sample(NamedTuple):
    """One search of so many images."""

    images: int
    postings: int
    seconds: float


def searches(index: Index, queries: list[ImageWords], rounds: int) -> list[Sample]:
    """With one thread, as in an actor; the first round warms up."""
    snapshot, config = index.snapshot(), SearchConfig()
    lengths = np.sum([np.diff(one.postings.starts.astype(np.int64)) for one in snapshot.segments], axis=0)
    found = []
    for turn in range(rounds + 1):
        for query in queries:
            begin = time.perf_counter()
            snapshot.search(query, config, top=TOP)
            taken = time.perf_counter() - begin
            if turn:
                found.append(Sample(len(snapshot), int(lengths[query.words].sum()), taken))
    return found


def fit(samples: list[Sample]) -> tuple[float, float]:
    """Seconds of a search, and of a posting: by medians of each size, as a line with no negative part."""
    sizes = sorted({one.images for one in samples})
    points = [
        (
            float(np.median([one.postings for one in samples if one.images == size])),
            float(np.median([one.seconds for one in samples if one.images == size])),
        )
        for size in sizes
    ]
    if len(points) == 1:
        return 0.0, points[0][1] / points[0][0]
    slope, start = np.polyfit([p for p, _ in points], [s for _, s in points], 1)
    return max(0.0, float(start)), float(slope)


def simulate(
    model: tuple[float, float], ratios: np.ndarray, per_image: float, images: int, shards: int, transport: float
) -> dict[str, Any]:
    """An answer of `shards` shards, one core each: as slow as the slowest."""
    random = np.random.default_rng(0)
    base = model[0] + model[1] * per_image * images / shards
    slowest = np.asarray([random.choice(ratios, shards).max() for _ in range(DRAWS)]) * base
    answer = slowest + transport * (1 + shards / 64)
    return {
        "shards": shards,
        "images_per_shard": images // shards,
        "median_ms": round(1e3 * float(np.median(answer)), 1),
        "p99_ms": round(1e3 * float(np.percentile(answer, 99)), 1),
        "one_shard_ms": round(1e3 * base, 1),
        "core_seconds_per_query": round(base * shards, 2),
        "network_KB_per_query": round(shards * (TOP * HIT_BYTES + WORDS_PER_QUERY * 20) / 1e3),
        "GB_per_shard": round(images / shards * WORDS_PER_IMAGE * POSTING_BYTES / 1e9, 1),
    }


def measure(chosen: argparse.Namespace) -> dict[str, Any]:
    collection = Collection(chosen.words, chosen.words_per_image)
    samples: list[Sample] = []
    build: list[float] = []
    for images in sorted(chosen.images):
        before = len(Index.open(chosen.output)) if (chosen.output / "manifest.json").is_file() else 0
        seconds = timed(lambda images=images: build_million(collection, chosen.output, images))  # type: ignore[misc]
        index = Index.open(chosen.output)
        index.compact()
        build += [seconds / (len(index) - before)] if len(index) > before else []
        digest = index.codebook.digest
        queries = [collection.query(number, chosen.query_words) for number in range(chosen.queries)]
        samples += searches(index, [dataclasses.replace(one, codebook=digest) for one in queries], chosen.rounds)
    sizes = sorted({one.images for one in samples})
    largest = sizes[-1]
    model = fit([one for one in samples if one.images < largest] or samples)
    last = [one for one in samples if one.images == largest]
    foretold = np.asarray([model[0] + model[1] * one.postings for one in last])
    ratios = np.asarray([one.seconds for one in last]) / np.median([one.seconds for one in last])
    per_image = float(np.mean([one.postings / one.images for one in samples]))
    return {
        "measured": [{"images": size, "median_ms": _median(samples, size)} for size in sizes],
        "model": {"ms_per_search": round(1e3 * model[0], 3), "ns_per_posting": round(1e9 * model[1], 3)},
        "postings_read_per_image": round(per_image, 2),
        "foretold_over_measured": round(float(np.median(foretold) / np.median([one.seconds for one in last])), 3),
        "slowest_of_measured_over_median": round(float(ratios.max()), 2),
        "indexing_ms_per_image_without_network": round(1e3 * float(np.median(build)), 3) if build else None,
        "core_hours_per_million_photos": round(1e6 * chosen.extraction / 3600),
        "at": {
            "images": TARGET,
            "TB": round(TARGET * WORDS_PER_IMAGE * POSTING_BYTES / 1e12, 2),
            "answers": [
                simulate(model, ratios, per_image, TARGET, shards, chosen.transport / 1e3)
                for shards in (32, 96, 256, 1024)
            ],
        },
    }


def _median(samples: list[Sample], images: int) -> float:
    return round(1e3 * float(np.median([one.seconds for one in samples if one.images == images])), 2)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder of the index")
    parser.add_argument("--images", type=int, nargs="+", default=[10**4, 10**5, 10**6])
    parser.add_argument("--words", type=int, default=WORDS)
    parser.add_argument("--words-per-image", type=int, default=WORDS_PER_IMAGE)
    parser.add_argument("--query-words", type=int, default=WORDS_PER_QUERY)
    parser.add_argument("--queries", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--transport", type=float, default=4.0, help="ms to ask idle actors (benchmarks.shards)")
    parser.add_argument("--extraction", type=float, default=0.925, help="CPU-seconds of a photo (networks.py time)")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args(arguments)
    text = json.dumps({"cores": os.cpu_count(), **measure(chosen)}, indent=2)
    print(text)
    if chosen.json:
        chosen.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
