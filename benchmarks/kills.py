"""kill -9, at random: of actors that hold shards while searches go on, and of workers while photos are indexed.

    python -m benchmarks.kills search -o FOLDER --kills 50   # FOLDER/shards is made by `python -m benchmarks.shards`
    python -m benchmarks.kills index --kills 50

Wanted: no wrong answer, every partial answer labelled as one, no photo lost or taken twice; seconds until whole.
"""

import argparse
import dataclasses
import json
import os
import random
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from benchmarks.search import TOP, WORDS_PER_QUERY, Collection
from superfeat import Index
from superfeat.cluster import photos as cluster_photos
from superfeat.cluster.connect import own_cluster
from superfeat.cluster.search import open_actors
from superfeat.config import LitConfig, NetworkConfig, SearchConfig, TrunkConfig
from superfeat.features import Ranking
from superfeat.index.far import far_index
from superfeat.index.make import begin_indexing
from superfeat.index.partial import collect_missing
from superfeat.threads import all_cores
from superfeat.weights import Network, build_module, save_network

STORE = 200 << 20


def is_part_of(found: Ranking, wanted: dict[str, float]) -> bool:
    """Whether each image has the score that it has in a whole answer, and they are in order."""
    falling = bool((np.diff(found.scores) <= 0).all())
    return falling and all(wanted.get(name) == score for name, score in zip(found.names, found.scores, strict=True))


def kill_actors(folder: Path, kills: int, replicas: int, words: int | None) -> dict[str, Any]:
    """Searches while actors die."""
    config, chance = SearchConfig(), random.Random(0)
    split = Index.open(folder / "shards")
    collection = Collection(*([words, 20] if words else []))
    queries = [collection.query(number, min(WORDS_PER_QUERY, collection.words // 4)) for number in range(10)]
    queries = [dataclasses.replace(query, codebook=split.codebook.digest) for query in queries]
    whole = [split.search(query, None) for query in queries]
    scores = [dict(zip(one.names, one.scores.tolist(), strict=True)) for one in whole]
    told = {"searches": 0, "partial": 0, "wrong": 0, "unlabelled": 0}
    until_whole: list[float] = []
    started = own_cluster(all_cores(), object_store_memory=STORE)
    with started, open_actors(split.path, "auto", replicas=replicas) as actors:
        index = far_index(split.path, actors)
        for _ in range(kills):
            processes = actors.processes()
            os.kill(chance.choice(processes).pid, signal.SIGKILL)
            began = time.monotonic()
            while True:
                number = chance.randrange(len(queries))
                with collect_missing() as missing:
                    found = index.search(queries[number], TOP, config=config)
                wanted = whole[number]
                same = found.names == wanted.names[:TOP] and found.scores.tobytes() == wanted.scores[:TOP].tobytes()
                told["searches"] += 1
                told["partial"] += bool(missing)
                told["unlabelled"] += not missing and not same
                told["wrong"] += not is_part_of(found, scores[number])
                back = len(actors.processes()) == len(processes)
                if not missing and back:
                    until_whole.append(time.monotonic() - began)
                    break
    seconds = {"median": round(float(np.median(until_whole)), 2), "most": round(max(until_whole), 2)}
    return {"kills": kills, "replicas": replicas, **told, "seconds_until_whole": seconds}


def draw_photos(folder: Path, count: int) -> None:
    folder.mkdir()
    for number in range(count):
        pixels = np.random.default_rng(number).integers(0, 256, (9, 12, 3), np.uint8)
        Image.fromarray(pixels).resize((160, 120), Image.Resampling.BICUBIC).save(folder / f"{number:04}.png")


def save_small_network(path: Path) -> None:
    """FIRe with random weights on a part of ResNet-18: photos take milliseconds."""
    torch.manual_seed(0)
    config = NetworkConfig("fire", TrunkConfig("resnet18", 2), LitConfig(templates=24, rounds=2, dim=16), 16)
    save_network(Network(build_module(config), config), path)


def marking(folder: Path) -> type[cluster_photos.PhotoWorker]:
    """Workers that say which process they are."""

    class Marked(cluster_photos.PhotoWorker):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            (folder / str(os.getpid())).touch()

    return Marked


def kill_workers(kills: int, count: int) -> dict[str, Any]:
    """Indexing while workers die."""
    chance, killed = random.Random(0), 0
    with tempfile.TemporaryDirectory(prefix="superfeat-") as name, own_cluster(all_cores(), object_store_memory=STORE):
        folder = Path(name)
        (folder / "pids").mkdir()
        draw_photos(folder / "photos", count)
        save_small_network(folder / "network")
        options: dict[str, Any] = {"weights": folder / "network", "settings": {"max_side": 160}, "workers": 1}
        plain = begin_indexing(folder / "photos", folder / "plain", **options).result().open()
        cluster_photos.PhotoWorker = marking(folder / "pids")  # type: ignore[misc]
        with cluster_photos.open_workers("auto") as crew:
            options |= {"crew": crew, "shards": 4, "codebook": plain.codebook}
            work = begin_indexing(folder / "photos", folder / "index", **options)
            for _ in work:
                marks = [int(mark.name) for mark in (folder / "pids").iterdir()]
                if killed < kills and marks and chance.random() < 2 * kills / count:
                    victim = chance.choice(marks)
                    (folder / "pids" / str(victim)).unlink()
                    os.kill(victim, signal.SIGKILL)
                    killed += 1
            done = work.result()
        made = done.open()
        same = [made.words_of(one).codes.tobytes() == plain.words_of(one).codes.tobytes() for one in plain.names()]
        return {
            "photos": count,
            "kills": killed,
            "indexed": len(made),
            "lost": len(set(plain.names()) - set(made.names())),
            "twice": len(list(made.names())) - len(set(made.names())),
            "equal_words": sum(same),
            "blamed": [one.name for one in done.skipped],
        }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["search", "index"])
    parser.add_argument("-o", "--output", type=Path, help="the folder of benchmarks.shards")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--words", type=int, help="as benchmarks.shards had them")
    parser.add_argument("--photos", type=int, default=400)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args(arguments)
    if chosen.part == "search":
        if chosen.output is None:
            parser.error("-o FOLDER is missing: the one that benchmarks.shards has made")
        result = kill_actors(chosen.output, chosen.kills, chosen.replicas, chosen.words)
    else:
        result = kill_workers(chosen.kills, chosen.photos)
    text = json.dumps(result, indent=2)
    print(text)
    if chosen.json:
        chosen.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
