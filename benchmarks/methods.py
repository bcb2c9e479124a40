"""The systems of the paper's tables on the three validation sets: one table of mAP, bytes and CPU-seconds per photo.

    python -m benchmarks.methods extract --data DATA --work WORK      (GeM and R-MAC: one pass of the trunk for both)
    python -m benchmarks.methods measure --data DATA --work WORK --json benchmarks/results/methods.json
    python -m benchmarks.methods measure --only fire --data DATA --work WORK --json benchmarks/results/methods.json
    python -m benchmarks.methods draw benchmarks/results/methods.json -o docs/pictures/methods.png

DATA is the folder with gnd/ and photos/ and train.json. The trunk is the ImageNet ResNet-50 of `superfeat weights get`;
FIRe is the network that comes with superfeat: its row alone takes some minutes, and the others stay. `extract` can be
stopped and goes on; what `measure` finds is not done again. Photos are limited to --size pixels for all methods alike;
GeM and R-MAC take the scales of their paper, HOW and DELF four from 1 down, FIRe those of its profile.
"""

import argparse
import dataclasses
import functools
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.method_vectors import TRUNK, extract, sets_of, settings, train_photos, writer_for
from superfeat.config import DEFAULT_WEIGHTS, CodebookConfig, ExtractConfig
from superfeat.datasets.retrieval_set import RetrievalSet
from superfeat.evaluation.evaluate import Measured, evaluate
from superfeat.evaluation.judge import grades_of, lists_of
from superfeat.evaluation.metrics import average_precision
from superfeat.extraction.folder import FeatureStore
from superfeat.figures import Panel, Series
from superfeat.geometry.keypoints import find_keypoints
from superfeat.images import Photo, read_image
from superfeat.index.codebook import Codebook, train_codebook
from superfeat.index.regional import vlad
from superfeat.pages.plots import draw_curves
from superfeat.settings import as_dict, overlay
from superfeat.studies.methods import interval, time_photos
from superfeat.training.whiten import fit_whitening, learned_from_pairs
from superfeat.weights import Network, load_network, save_network

SETS = ("terrassa12", "rparis6k_mini_ext", "val_landmarks")
SIZE = 320
LEARNING_PHOTOS, WORDS, SIFT_WORDS = 350, 8192, 256
WHITENED = 512  # dimensions that 993 pairs can be asked for
LOCAL_SCALES = (1.0, 0.707, 0.5, 0.353)


# -- The table


@dataclasses.dataclass(frozen=True)
class Row:
    """A method on one set; `ap` of each query."""

    set: str
    grade: str
    map: float
    low: float
    high: float
    ap: list[float]
    bytes_per_photo: float
    cpu_seconds: float


@dataclasses.dataclass(frozen=True)
class Place:
    """Where things lie, and how large photos are."""

    data: Path
    work: Path
    size: int

    @functools.cached_property
    def learning(self) -> list[Photo]:
        """Photos of train.json from which whitenings and words are learned, spread over all of them."""
        photos = train_photos(self.data)
        return photos[:: max(1, len(photos) // LEARNING_PHOTOS)][:LEARNING_PHOTOS]

    def network(self, name: str, make: Callable[[], Network]) -> Path:
        """A network that is made once."""
        folder = self.work / f"{name}.network"
        if not folder.is_dir():
            save_network(make(), folder)
        return folder


def _vector(place: Place, test: RetrievalSet, name: str, method: str) -> Row:
    """A method of one vector, by what `extract` has stored."""
    features = place.work / f"{name}-{method}"
    _require_whole(features)
    weights = place.network(method, lambda: load_network(TRUNK, method=method))
    return _stored(place, test, name, weights, features)


def _whitened(place: Place, test: RetrievalSet, name: str) -> Row:
    """GeM with Lw. The whitening comes last, so stored vectors are whitened, and nothing is extracted again."""
    source, learned = place.work / f"{name}-gem", place.work / "train-gem"
    _require_whole(source)
    _require_whole(learned)

    def make() -> Network:
        vectors = {one.name: one.vectors[0] for one in FeatureStore(learned)}
        pairs = [(pair[0], pair[1]) for pair in json.loads((place.data / "train.json").read_text())["pairs"]]
        return learned_from_pairs(load_network(TRUNK, method="gem"), vectors, pairs, WHITENED)

    weights = place.network(f"gem-lw{WHITENED}", make)
    network, folder, store = load_network(weights), place.work / f"{name}-gem-lw{WHITENED}", FeatureStore(source)
    with writer_for(folder, network, overlay(ExtractConfig(), store.manifest["extract"])) as writer:
        for entry, one in zip(store.entries, store, strict=True):
            if not writer.has(entry.name, entry.stamp):
                writer.add(dataclasses.replace(one, vectors=network.combine(one.vectors.copy())[None]), entry.stamp)
        writer.finish()
    return _stored(place, test, name, weights, folder)


def _require_whole(features: Path) -> None:
    if not (features / "manifest.json").is_file() or not FeatureStore(features).manifest.get("complete"):
        raise SystemExit(f"{features} is not finished; run `extract` again")


def _stored(place: Place, test: RetrievalSet, name: str, weights: Path, features: Path) -> Row:
    changes = {"extract": as_dict(settings(place.size, test))}
    run = evaluate(
        test, place.work / f"{features.name}.run", weights=weights, settings=changes, features=features, workers=1
    )
    return _row(name, run.result())


def _local(place: Place, test: RetrievalSet, name: str, method: str) -> Row:
    """HOW or DELF on the plain trunk; whitening and words are learned from train.json."""

    def make() -> Network:
        return fit_whitening(load_network(TRUNK, method=method), place.learning, max_side=place.size, workers=1)

    words = {"codebook.words": WORDS, "codebook.rounds": 8, "extract.scales": LOCAL_SCALES}
    run = evaluate(
        test,
        place.work / f"{name}-{method}.run",
        weights=place.network(method, make),
        settings={"extract.max_side": place.size, **words},
        codebook_images=[photo.path for photo in place.learning],
        workers=1,
    )
    return _row(name, run.result())


def _fire(place: Place, test: RetrievalSet, name: str) -> Row:
    """As it comes with superfeat, with its own words, in a folder of the network's name."""
    changes = {"extract.max_side": place.size}
    run = evaluate(test, place.work / f"{name}-{DEFAULT_WEIGHTS}.run", settings=changes, workers=1)
    return _row(name, run.result())


def _row(name: str, found: Measured) -> Row:
    grade = "hard" if "hard" in found.scores["grades"] else next(iter(found.scores["grades"]))
    values = [query["ap"][grade] for query in found.scores["queries"]]
    _, cpu = time_photos(found.network, found.test, found.config)
    return _judged(name, grade, values, float(found.card["memory"]["bytes_per_image"]), cpu)


def _judged(name: str, grade: str, values: Sequence[float | None], size: float, cpu: float) -> Row:
    ap = [round(value, 2) for value in values if value is not None]
    mean, low, high = interval(np.asarray(ap))
    return Row(name, grade, round(mean, 2), round(low, 2), round(high, 2), ap, size, round(cpu, 4))


def _sift_vlad(place: Place, test: RetrievalSet, name: str) -> Row:
    """A floor without a network: SIFT, 256 words of train.json's photos, VLAD, cosine."""
    folder = place.work / "sift.codebook"
    if not folder.is_dir():
        sample = [_sift(photo, place.size) for photo in place.learning]
        train_codebook([one for one in sample if len(one)], CodebookConfig(words=SIFT_WORDS, rounds=8)).save(folder)
    codebook = Codebook.open(folder)
    vectors: dict[tuple[Path, object], np.ndarray] = {}
    began = time.process_time()
    for photo in [*test.photos, *(query.photo for query in test.queries)]:
        key = photo.path, photo.box
        if key not in vectors:
            found = _sift(photo, place.size, upright=not test.as_stored)
            vectors[key] = vlad(codebook, [found]).astype(np.float32)
    cpu = (time.process_time() - began) / len(vectors)
    rows = np.stack([vectors[photo.path, photo.box] for photo in test.photos])
    grades = grades_of(test)
    grade = "hard" if "hard" in grades else next(iter(grades))
    precisions: list[float | None] = []
    for query in test.queries:
        scores = rows @ vectors[query.photo.path, query.photo.box]
        precision = average_precision(np.argsort(-scores, kind="stable"), *lists_of(query, grade))
        precisions.append(None if np.isnan(precision) else 100 * precision)
    return _judged(name, grade, precisions, float(rows.shape[1] * 4), cpu)


def _sift(photo: Photo, size: int, upright: bool = True) -> np.ndarray:
    pixels = read_image(photo.path, max_side=size, box=photo.box, upright=upright)
    return find_keypoints(pixels, "sift").vectors


MEASURES: dict[str, tuple[str, Callable[[Place, RetrievalSet, str], Row]]] = {
    "sift": ("SIFT-VLAD", _sift_vlad),
    "rmac": ("R-MAC, not trained", functools.partial(_vector, method="rmac")),
    "gem": ("GeM, not trained", functools.partial(_vector, method="gem")),
    "gem-lw": ("GeM + whitening learned from pairs", _whitened),
    "delf": ("DELF-like + ASMK, not trained", functools.partial(_local, method="delf")),
    "how": ("HOW, not trained", functools.partial(_local, method="how")),
    "fire": ("FIRe, as it comes", _fire),
}


def measure(place: Place, names: Sequence[str], keys: Sequence[str], again: bool, output: Path | None) -> None:
    """Each method on each set; rows that are there are kept, and the table is written after each new one."""
    for name, test in sets_of(place.data, names).items():
        for key in keys:
            stored = _row_file(place, key, name)
            if not stored.is_file() or again:
                row = MEASURES[key][1](place, test, name)
                stored.parent.mkdir(parents=True, exist_ok=True)
                stored.write_text(json.dumps(dataclasses.asdict(row)))
                print(f"{MEASURES[key][0]} on {name}: {row.map:.1f} ({row.low:.1f} to {row.high:.1f})", flush=True)
                if output is not None:
                    write(place, names, keys, output)
    if output is not None:
        write(place, names, keys, output)


def _row_file(place: Place, key: str, name: str) -> Path:
    return place.work / "rows" / f"{DEFAULT_WEIGHTS if key == 'fire' else key}-{name}.json"


def write(place: Place, names: Sequence[str], keys: Sequence[str], output: Path) -> None:
    """The table, best first. Methods that are not asked for stay in it as they are."""
    table = {one["key"]: one for one in (json.loads(output.read_text())["methods"] if output.is_file() else [])}
    for key in keys:
        files = [_row_file(place, key, name) for name in names]
        rows = [Row(**json.loads(file.read_text())) for file in files if file.is_file()]
        if rows:
            table[key] = _summary(key, rows)
    ranked = sorted(table.values(), key=lambda one: (-len(one["sets"]), -one["mean"]))
    text = json.dumps({"size": place.size, "methods": ranked}, indent=1)
    output.write_text(text + "\n", encoding="utf-8")


def _summary(key: str, rows: Sequence[Row]) -> dict[str, Any]:
    """The mean over the sets; its interval draws the queries of each set anew."""
    random = np.random.default_rng(0)
    draws = [np.asarray(row.ap)[random.integers(0, len(row.ap), (2000, len(row.ap)))].mean(axis=1) for row in rows]
    low, high = np.quantile(np.mean(draws, axis=0), (0.025, 0.975))
    kept = [{name: value for name, value in dataclasses.asdict(row).items() if name != "ap"} for row in rows]
    return {
        "key": key,
        "method": MEASURES[key][0],
        "network": DEFAULT_WEIGHTS if key == "fire" else None if key == "sift" else TRUNK,
        "mean": round(float(np.mean([row.map for row in rows])), 1),
        "low": round(float(low), 1),
        "high": round(float(high), 1),
        "bytes_per_photo": round(float(np.mean([row.bytes_per_photo for row in rows]))),
        "cpu_seconds": round(float(np.median([row.cpu_seconds for row in rows])), 3),
        "sets": kept,
    }


def _complete(source: Path) -> list[dict[str, Any]]:
    """The methods that were measured on as many sets as any: means over others cannot be compared."""
    methods = json.loads(source.read_text())["methods"]
    most = max(len(one["sets"]) for one in methods)
    return sorted((one for one in methods if len(one["sets"]) == most), key=lambda one: -one["mean"])


def table_lines(source: Path) -> list[str]:
    """The table as Markdown."""
    methods = _complete(source)
    names = [f"{row['set']}{' (Hard)' if row['grade'] == 'hard' else ''}" for row in methods[0]["sets"]]
    names = names if len(names) == 1 else ["mean", *names]
    heads = ["method", *names, "bytes per photo", "CPU-seconds per photo"]
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for one in methods:
        shown = [f"{row['map']:.1f} ({row['low']:.0f} to {row['high']:.0f})" for row in one["sets"]]
        network = f" (`{one['network']}`)" if one["key"] == "fire" else ""
        if len(shown) > 1:
            shown.insert(0, f"**{one['mean']:.1f}** ({one['low']:.1f} to {one['high']:.1f})")
        cost = f"{one['bytes_per_photo']:,} | {one['cpu_seconds']:.2f}"
        lines.append(f"| {one['method']}{network} | {' | '.join(shown)} | {cost} |")
    return lines


def draw(source: Path, output: Path) -> None:
    """mAP against bytes and against CPU-seconds per photo; prints the table as Markdown."""
    methods = _complete(source)
    names = [row["set"] for row in methods[0]["sets"]]
    title, panels = names[0] if len(names) == 1 else f"mean of {len(names)} sets", []
    for field, what in (("bytes_per_photo", "bytes per photo"), ("cpu_seconds", "CPU-seconds per photo")):
        lines = [
            Series(one["method"], [one[field]], [one["mean"]], error=[(one["high"] - one["low"]) / 2])
            for one in methods
        ]
        panels.append(Panel(title, what, "mAP (%)", lines, log_x=True))
    draw_curves(panels, output)
    print("\n".join(table_lines(source)))


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    extracting, measuring, drawing = (verbs.add_parser(verb) for verb in ("extract", "measure", "draw"))
    for one in (extracting, measuring):
        one.add_argument("--data", type=Path, required=True)
        one.add_argument("--work", type=Path, required=True)
        one.add_argument("--size", type=int, default=SIZE)
    extracting.add_argument("--sets", nargs="+", default=["train", *SETS])
    measuring.add_argument("--sets", nargs="+", default=list(SETS))
    extracting.add_argument("--most", type=int, help="So many photos of each set, for a smoke run.")
    measuring.add_argument("--only", nargs="+", choices=list(MEASURES), default=list(MEASURES))
    measuring.add_argument("--again", action="store_true", help="Also rows that are there.")
    measuring.add_argument("--json", type=Path)
    drawing.add_argument("source", type=Path)
    drawing.add_argument("--output", "-o", type=Path, required=True)
    options = parser.parse_args(given)
    if options.verb == "extract":
        extract(options.data, options.work, options.size, options.sets, options.most)
    elif options.verb == "measure":
        place = Place(options.data.resolve(), options.work, options.size)
        measure(place, options.sets, options.only, options.again, options.json)
    else:
        draw(options.source, options.output)


if __name__ == "__main__":
    main()
