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

from superfeat.mapping.measure import TOPS, measure_localization
from superfeat.mapping.retrieval import similarities
from superfeat.mapping.scenes import LocalizationSet, read_scenes


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
        name, _, place = given.partition("=")
        folder, _, codebook = place.partition(":")
        index = chosen.output / f"index-{name}"
        methods[name], methods[f"{name}-pooled"] = similarities(scenes, folder, index, codebook or None)
    work = measure_localization(scenes, chosen.output, methods, tops=chosen.tops, exhaustive=chosen.exhaustive)
    scores: list[dict[str, Any]] = [one._asdict() for one in work.result()]
    facts = {"photos": len(scenes.photos.photos), "queries": len(scenes.queries.photos), "every": chosen.every}
    text = json.dumps({"cores": os.cpu_count(), **facts, "scores": scores}, indent=2)
    print(text)
    if chosen.json:
        chosen.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
