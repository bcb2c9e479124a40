"""Percent of queries localized against the number of photos retrieved, all scenes in one database, CPU-seconds beside.

    superfeat extract SCENES -o FEATURES      # once: the network that comes with superfeat
    python -m benchmarks.localization SCENES -o WORK --features fire=FEATURES --exhaustive --json OUT.json

SCENES holds folders with `images` and `poses.json`. Each `--features NAME=FOLDER` is one way of retrieval, by ASMK
with the codebook that comes with superfeat where the features are of its network, else with one learned from the map's
photos (`NAME=FOLDER:CODEBOOK` names one); and by pooled vectors, as NAME-pooled. The map is made of the true poses,
once. A run that was stopped goes on, and does not match again what was matched. --every, --first and --queries measure
a part.
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


def subset(scenes: LocalizationSet, every: int, first: int | None, most: int | None) -> LocalizationSet:
    """One query in so many; of each scene only the first photos by name, and only so many queries, evenly spread."""
    photos, queries = [], []
    for scene in sorted(scenes.metres):
        mine = [
            [one for one in listed.photos if listed.frames[one.name] == scene]
            for listed in (scenes.photos, scenes.queries)
        ]
        kept = {one.name for one in sorted([*mine[0], *mine[1]], key=lambda one: one.name)[:first]}
        photos += [one for one in mine[0] if one.name in kept]
        asked = [one for one in mine[1] if one.name in kept][::every]
        count = len(asked) if most is None else min(most, len(asked))
        queries += [asked[number] for number in np.linspace(0, len(asked) - 1, count).round().astype(int)]
    return dataclasses.replace(
        scenes,
        photos=dataclasses.replace(scenes.photos, photos=photos),
        queries=dataclasses.replace(scenes.queries, photos=queries),
    )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenes", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--features", action="append", default=[], metavar="NAME=FOLDER[:CODEBOOK]")
    parser.add_argument("--exhaustive", action="store_true")
    parser.add_argument("--tops", type=int, nargs="+", default=list(TOPS))
    parser.add_argument("--every", type=int, default=1, help="take one query in so many")
    parser.add_argument("--first", type=int, help="only so many photos of each scene, the first by name")
    parser.add_argument("--queries", type=int, help="at most so many queries of each scene, evenly spread")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args(arguments)
    scenes = subset(read_scenes(chosen.scenes), chosen.every, chosen.first, chosen.queries)
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
    facts |= {"first": chosen.first, "queries_of_a_scene": chosen.queries}
    text = json.dumps({"cores": os.cpu_count(), **facts, "scores": scores}, indent=2)
    print(text)
    if chosen.json:
        chosen.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
