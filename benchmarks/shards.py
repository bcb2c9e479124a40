"""What shards cost: one index, its shards on threads, and its shards in actors of a cluster, taking turns.

    python -m benchmarks.shards -o FOLDER --images 10000     # small
    python -m benchmarks.shards -o FOLDER                    # 1 048 576 images in 8 shards, about 18 GB in FOLDER

Answers must be equal to the last bit. FOLDER is kept for the next run; FOLDER/index is that of `search.py million`.
"""

import argparse
import dataclasses
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.search import MILLION, TOP, WORDS, WORDS_PER_IMAGE, WORDS_PER_QUERY, Collection, build_million
from superfeat import ImageWords, Index
from superfeat.cluster.connect import own_cluster
from superfeat.cluster.search import open_actors
from superfeat.config import SearchConfig
from superfeat.features import Ranking
from superfeat.index.far import far_index
from superfeat.index.splitting import begin_sharding
from superfeat.threads import all_cores

STORE = 200 << 20  # bytes of shared memory for Ray
Search = Callable[[ImageWords], Ranking]


def make(folder: Path, collection: Collection, images: int, shards: int) -> tuple[Index, Index]:
    """Both, made if they are not there."""
    index = build_million(collection, folder / "index", images)
    index.compact()
    if not (folder / "shards" / "manifest.json").is_file():
        for event in (work := begin_sharding(index, shards, folder / "shards")):
            print(f"{event.done} of {event.total} images in shards", file=sys.stderr, flush=True)
        work.result()
    return index, Index.open(folder / "shards")


def times(ways: dict[str, Search], queries: Sequence[ImageWords], rounds: int) -> dict[str, list[float]]:
    """Seconds of each query in each way, in turns; SystemExit if two ways answer differently."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(rounds + 1):
        for number, query in enumerate(queries):
            answers = {}
            for name, search in ways.items():
                begin = time.perf_counter()
                found = search(query)
                taken[name] += [time.perf_counter() - begin] if turn else []  # the first turn warms up
                answers[name] = found.names, found.scores.tobytes(), found.ids.tobytes()
            if len(set(answers.values())) != 1:
                raise SystemExit(f"query {number} has different answers: {list(answers)}")
    return taken


def summary(seconds: Sequence[float]) -> dict[str, float]:
    return {"median_ms": round(1e3 * float(np.median(seconds)), 2), "p99_ms": round(1e3 * percentile(seconds), 2)}


def percentile(seconds: Sequence[float], share: float = 99) -> float:
    return float(np.percentile(seconds, share))


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    collection = Collection(arguments.words, arguments.words_per_image)
    whole, split = make(arguments.output, collection, arguments.images, arguments.shards)
    digest, config, cores = whole.codebook.digest, SearchConfig(), all_cores()
    queries = [collection.query(number, arguments.query_words) for number in range(arguments.queries)]
    queries = [dataclasses.replace(query, codebook=digest) for query in queries]
    with own_cluster(cores, object_store_memory=STORE), open_actors(split.path, "auto") as actors:
        timed = TimedActors(actors)
        far = far_index(split.path, timed)
        ways: dict[str, Search] = {
            "one index, one thread": lambda query: whole.snapshot().search(query, config, top=TOP),
            "one index": lambda query: whole.snapshot().search(query, config, top=TOP, workers=cores),
            "shards on threads": lambda query: split.snapshot().search(query, config, top=TOP, workers=cores),
            "shards in actors": lambda query: timed.search(far, query, config),
        }
        taken = times(ways, queries, arguments.rounds)
        merging = timed.merging[len(queries) :]  # the first turn warms up
        idle = [timed_ask(actors) for _ in range(50)]
        memory = [one.peak_bytes for one in actors.processes()]
    medians = {name: float(np.median(seconds)) for name, seconds in taken.items()}
    return {
        "images": len(whole),
        "shards": split.info().shards,
        "equal_answers": len(queries),
        "ways": {name: summary(seconds) for name, seconds in taken.items()},
        "actors_over_one_index": round(medians["shards in actors"] / medians["one index"], 2),
        "merging_ms": round(1e3 * float(np.median(merging)), 2),
        "asking_idle_actors_ms": round(1e3 * float(np.median(idle)), 2),
        "peak_MB_per_actor": [round(size / 1e6) for size in memory],
    }


class TimedActors:
    """Actors that note how long a search takes besides asking them: to prepare it, and to merge the answers."""

    def __init__(self, actors: Any) -> None:
        self.actors, self.asking, self.merging = actors, 0.0, list[float]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.actors, name)

    def ask(self, *arguments: Any, **more: Any) -> Any:
        begin = time.perf_counter()
        try:
            return self.actors.ask(*arguments, **more)
        finally:
            self.asking += time.perf_counter() - begin

    def search(self, far: Index, query: ImageWords, config: SearchConfig) -> Ranking:
        begin, self.asking = time.perf_counter(), 0.0
        found = far.snapshot().search(query, config, top=TOP)
        self.merging.append(time.perf_counter() - begin - self.asking)
        return found


def timed_ask(actors: Any) -> float:
    """Seconds until all actors have answered something that they need not look for."""
    begin = time.perf_counter()
    actors.ask("facts")
    return time.perf_counter() - begin


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--images", type=int, default=MILLION)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--words", type=int, default=WORDS)
    parser.add_argument("--words-per-image", type=int, default=WORDS_PER_IMAGE)
    parser.add_argument("--query-words", type=int, default=WORDS_PER_QUERY)
    parser.add_argument("--queries", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args(arguments)
    text = json.dumps({"cores": os.cpu_count(), **measure(chosen)}, indent=2)
    print(text)
    if chosen.json:
        chosen.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
