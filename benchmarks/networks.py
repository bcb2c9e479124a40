"""Networks, each with its profile and its words, on the same validation sets: mAP, words, CPU-seconds, differences.

    python -m benchmarks.networks extract --weights NETWORK --data DATA --features WORK/a [--set max_side=480 ...]
    python -m benchmarks.networks compare WORK/a=CODEBOOK WORK/b=CODEBOOK ... --data DATA [--together] --json FILE
    python -m benchmarks.networks compare WORK/small+WORK/a=CODEBOOK WORK/a=CODEBOOK --data DATA   # asymmetric
    python -m benchmarks.networks time NETWORK [NETWORK:max_side=480,scales=[1.414,1.0] ...] --photos FOLDER
    python -m benchmarks.networks draw COMPARED.json TIMED.json --points a=NETWORK b=NETWORK:max_side=480 -o FILE.png

`extract` begins with the profile `fast` and keeps where features lie, so that benchmarks.verification and
benchmarks.calibration can use the folder too; it can be stopped and goes on. `a+b` asks the photos of b with the
queries of a, whose words must be the same: a network that learned from b's; with `a+b//c` every second photo has the
features of c. `a@100,0.5` keeps of each scale of a the strongest 100 super-features and half of the points, and
`a=CODEBOOK:assignments=12` is searched with other settings. `compare` judges each set by itself, or with --together the
photos of all sets in one database: Hard where a set has it, paired bootstrap against the last one named, of each set
and of the mean of the sets. `time` lets the networks take turns with each photo, on one thread.
`draw` shows mAP against CPU-seconds, a line for each network and precision; its points name what was compared and what
was timed.
"""

import argparse
import dataclasses
import json
import re
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.labelled_sets import read_set
from superfeat.config import ExtractConfig, SearchConfig
from superfeat.datasets.retrieval_set import Query
from superfeat.evaluation.metrics import average_precision, paired_bootstrap
from superfeat.evaluation.searching import names_in, numbered, search_set, stored_queries
from superfeat.extraction.extract import extract as extract_features
from superfeat.extraction.extract import keep_memory
from superfeat.extraction.folder import FeatureStore
from superfeat.features import Features
from superfeat.index.codebook import Codebook
from superfeat.probability.comparing import Labelled, index_sets
from superfeat.settings import overlay, parse_assignment
from superfeat.sources.listing import list_photos
from superfeat.weights import load_network

SETS = ("terrassa12", "rparis6k_mini_ext", "val_landmarks")
MIXED = "//"  # between two folders of features
CHOSEN = "@"  # before what is kept of each scale
TEMPLATES = 256  # numbers below are of super-features, others of points
BYTES_PER_WORD = 18  # a posting; names and places come on top
DRAWS = 10_000


class Judged(NamedTuple):
    """What a network finds: the AP of each query of each set, and words per photo."""

    precisions: dict[str, np.ndarray]
    words: dict[str, float]

    @property
    def means(self) -> dict[str, float]:
        return {name: 100 * float(np.nanmean(values)) for name, values in self.precisions.items()}

    @property
    def mean(self) -> float:
        return statistics.mean(self.means.values())


def extract(args: argparse.Namespace) -> None:
    for name in args.sets:
        read_set(name, args)


# -- mAP


def compare(args: argparse.Namespace) -> None:
    found = {}
    for text in args.networks:
        folders, _, words_and_settings = text.partition("=")
        codebook, _, settings = words_and_settings.partition(":")
        asking, _, asked = folders.partition("+")
        labelled = [read_all(folder, args) for folder in (asked or asking, asking)]
        groups = list(zip(*labelled, strict=True))
        words = Codebook(Codebook.open(Path(codebook)).centroids)  # of any network: a student, int8
        search = overlay(SearchConfig(), read_settings(settings))
        name = f"{title(folders)}:{settings}" if settings else title(folders)
        found[name] = judge(words, [groups] if args.together else [[one] for one in groups], search)
        print(json.dumps({"network": name, **summary(found[name])}), flush=True)
    *others, last = found
    differences = [{"first": name, "second": last, **difference(found[name], found[last])} for name in others]
    for one in differences:
        print(json.dumps(one))
    if args.json:
        rows = [{"network": name, **summary(one)} for name, one in found.items()]
        facts = {"together": args.together, "networks": rows, "differences": differences}
        args.json.write_text(json.dumps(facts, indent=1) + "\n")


def title(folders: str) -> str:
    return "+".join(MIXED.join(Path(one).name for one in folder.split(MIXED)) for folder in folders.split("+"))


def read_all(features: str, args: argparse.Namespace) -> list[Labelled]:
    folder, _, second = features.partition(MIXED)
    folder, _, choice = folder.partition(CHOSEN)
    args.features = Path(folder)
    found = [read_set(name, args) for name in args.sets]
    if choice:
        return [one._replace(store=Chosen(one.store.path, *map(float, choice.split(",")))) for one in found]
    if not second:
        return found
    return [one._replace(store=Mixed(one.store.path, Path(second) / one.test.name)) for one in found]


class Mixed(FeatureStore):
    """A features folder, every second image of which comes from another one."""

    def __init__(self, path: Path, other: Path) -> None:
        super().__init__(path)
        self.other = FeatureStore(other)
        self.theirs = {entry.name for entry in self.entries[::2]}

    def __getitem__(self, name: str) -> Features:
        return self.other[name] if name in self.theirs else super().__getitem__(name)


class Chosen(FeatureStore):
    """A features folder of which fewer features are taken: of each scale the strongest."""

    def __init__(self, path: Path, superfeatures: float, points: float) -> None:
        super().__init__(path)
        self.superfeatures = round(superfeatures)
        self.points = points  # as a share

    def __getitem__(self, name: str) -> Features:
        return strongest_of_scales(super().__getitem__(name), self.superfeatures, self.points)


def strongest_of_scales(features: Features, superfeatures: int, points: float) -> Features:
    """So many super-features of each scale, and this share of its points."""
    kept = []
    order = np.argsort(-features.strengths, kind="stable")
    for scale in np.unique(features.scales):
        own = order[features.scales[order] == scale]
        point = features.ids[own] >= TEMPLATES
        kept += [own[~point][:superfeatures], own[point][: round(points * point.sum())]]
    rows = np.sort(np.concatenate(kept))
    return dataclasses.replace(features, **{field: array[rows] for field, array in features.arrays().items()})


def unsigned(asked: Iterable[Features | None]) -> Iterator[Features | None]:
    """Without the name of their network, which an index would compare with its own."""
    return (one and dataclasses.replace(one, network=None) for one in asked)


def judge(codebook: Codebook, groups: Sequence[Sequence[tuple[Labelled, Labelled]]], search: SearchConfig) -> Judged:
    """Each group of sets is one database; of each set the features that are asked, and those that ask."""
    judged = Judged({}, {})
    for group in groups:
        with tempfile.TemporaryDirectory() as folder:
            index = index_sets(Path(folder, "index"), codebook, [one for one, _ in group], search)
            names = [numbered(place, name) for place, (one, _) in enumerate(group) for name in one.images()]
            number_of = {name: number for number, name in enumerate(names)}
            for place, (one, asking) in enumerate(group):
                own = names_in(one.store, one.test)
                rows = [number_of.get(numbered(place, name), -1) for name in own.database]
                rankings = search_set(index, names, unsigned(stored_queries(asking.store, own)))
                judged.precisions[one.test.name] = np.asarray(
                    [
                        np.nan if ranking is None else precision(query, ranking.numbers, rows)
                        for query, ranking in zip(one.test.queries, rankings, strict=True)
                    ]
                )
                judged.words[one.test.name] = index.info().words_per_image
    return judged


def precision(query: Query, ranking: np.ndarray, rows: Sequence[int]) -> float:
    """AP of the Hard ones where there are some, the easy ones left out; `rows` are the numbers in the index."""
    wanted = set(query.hard or query.positives)
    junk = {*query.junk, *(set(query.positives) - wanted)}
    moved = [{rows[number] for number in numbers if rows[number] >= 0} for numbers in (wanted, junk)]
    return average_precision(ranking, *moved)


def summary(found: Judged) -> dict[str, Any]:
    words = statistics.mean(found.words.values())
    return {
        "mean": round(found.mean, 2),
        **{name: round(value, 2) for name, value in found.means.items()},
        "words": round(words, 1),
        "bytes": round(BYTES_PER_WORD * words),
    }


def difference(first: Judged, second: Judged) -> dict[str, Any]:
    """In points of mAP with 95 % intervals; for the mean, queries are drawn anew within each set."""
    parts: dict[str, Any] = {}
    draws = []
    for name, before in first.precisions.items():
        after = second.precisions[name]
        test = paired_bootstrap(100 * before, 100 * after)
        parts[name] = {key: round(test[key], 2) for key in ("difference", "low", "high")}
        gains = (after - before)[~np.isnan(after - before)]
        draws.append(gains[np.random.default_rng(0).integers(0, len(gains), (DRAWS, len(gains)))].mean(axis=1))
    low, high = 100 * np.percentile(np.mean(draws, axis=0), (2.5, 97.5))
    mean = {"difference": second.mean - first.mean, "low": low, "high": high}
    return {"mean": {key: round(float(value), 2) for key, value in mean.items()}, **parts}


# -- CPU-seconds


def measure_time(args: argparse.Namespace) -> None:
    keep_memory()  # as the command line does
    contenders = {text: contender(text) for text in args.networks}
    photos = list_photos([str(args.photos)]).photos[: args.count]
    spent: dict[str, list[float]] = {text: [] for text in contenders}
    for photo in photos:
        for text, (network, config) in contenders.items():
            began = time.process_time()
            for _ in extract_features(network, [photo], config, workers=1):
                pass
            spent[text].append(time.process_time() - began)
    base = statistics.median(spent[args.networks[0]][1:])
    facts = {
        text: {"cpu_seconds": round(statistics.median(values[1:]), 3), "ratio": statistics.median(values[1:]) / base}
        for text, values in spent.items()
    }
    print(json.dumps(facts, indent=1))
    if args.json:
        args.json.write_text(json.dumps({"photos": len(photos), "networks": facts}, indent=1) + "\n")


def draw(args: argparse.Namespace) -> None:
    """mAP against CPU-seconds: a line for each network and precision."""
    from superfeat.pages.plots import Panel, Series, draw_curves

    means = {row["network"]: row["mean"] for row in json.loads(args.compared.read_text())["networks"]}
    ratios = {text: facts["ratio"] for text, facts in json.loads(args.timed.read_text())["networks"].items()}
    lines: dict[str, list[tuple[float, float]]] = {}
    for text in args.points:
        folder, _, timed = text.partition("=")
        name = timed.partition(":")[0] + (", int8" if "precision=int8" in timed else "")
        lines.setdefault(name, []).append((ratios[timed], means[folder]))
    series = []
    for name, points in lines.items():
        shares, found = zip(*sorted(points), strict=True)
        series.append(Series(name, shares, found))
    title = "What is found for how much work"
    draw_curves([Panel(title, "CPU-seconds per photo, as a share of the first's", "mAP", series)], args.output)


def contender(text: str) -> tuple[Any, ExtractConfig]:
    """NETWORK, or NETWORK:setting=value,setting=value with settings of the extraction."""
    name, _, changes = text.partition(":")
    return load_network(name), overlay(ExtractConfig.profile("fast"), read_settings(changes))


def read_settings(text: str) -> dict[str, Any]:
    """setting=value,setting=value, where a value may be a list."""
    return dict(parse_assignment(part) for part in re.split(r",(?=[a-z_]+=)", text) if part)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    for name, work in (("extract", extract), ("compare", compare)):
        verb = verbs.add_parser(name)
        verb.set_defaults(work=work, weights=None, set=[])
        verb.add_argument("--data", type=Path, required=True, help="the folder with gnd/SET.json and the photos")
        verb.add_argument("--sets", nargs="+", default=list(SETS))
        if work is extract:
            verb.add_argument("--weights", required=True)
            verb.add_argument("--features", type=Path, required=True)
            verb.add_argument("--set", action="append", default=[], help="of the extraction, e.g. max_side=480")
        else:
            verb.add_argument("networks", nargs="+", metavar="FEATURES=CODEBOOK[:SETTINGS]")
            verb.add_argument("--together", action="store_true")
            verb.add_argument("--json", type=Path)
    verb = verbs.add_parser("time")
    verb.set_defaults(work=measure_time)
    verb.add_argument("networks", nargs="+", metavar="NETWORK[:SETTINGS]")
    verb.add_argument("--photos", type=Path, required=True)
    verb.add_argument("--count", type=int, default=21, help="photos; the first is not counted")
    verb.add_argument("--json", type=Path)
    verb = verbs.add_parser("draw")
    verb.set_defaults(work=draw)
    verb.add_argument("compared", type=Path)
    verb.add_argument("timed", type=Path)
    verb.add_argument("--points", nargs="+", required=True, metavar="FEATURES=NETWORK[:SETTINGS]")
    verb.add_argument("-o", "--output", type=Path, required=True)
    args = parser.parse_args(arguments)
    args.work(args)


if __name__ == "__main__":
    main()
