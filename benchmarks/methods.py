"""The systems of the paper's tables on the three validation sets: one table of mAP, bytes and CPU-seconds per photo.

    python -m benchmarks.methods extract --data DATA --work WORK      (GeM and R-MAC: one pass of the trunk for both)
    python -m benchmarks.methods measure --data DATA --work WORK --json benchmarks/results/methods.json
    python -m benchmarks.methods draw benchmarks/results/methods.json -o docs/pictures/methods.png

DATA is the folder with gnd/ and photos/ and train.json. The trunk is the ImageNet ResNet-50 of `superfeat weights get`;
FIRe is the network that comes with superfeat. `extract` can be stopped and goes on; what `measure` finds is not done
again. Photos are limited to --size pixels for all methods alike; each takes the scales of its own paper.
"""

import argparse
import contextlib
import dataclasses
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from superfeat.config import CodebookConfig, ExtractConfig
from superfeat.datasets.retrieval_set import RetrievalSet, read_gnd_json
from superfeat.evaluation.evaluate import Measured, evaluate
from superfeat.evaluation.judge import grades_of, lists_of
from superfeat.evaluation.metrics import average_precision
from superfeat.evaluation.searching import own_names, renamed
from superfeat.extraction.decode import decode
from superfeat.extraction.folder import FeatureStore, FeatureWriter, feature_writer, photo_stamp
from superfeat.extraction.scaling import resize
from superfeat.features import Features
from superfeat.figures import Panel, Series
from superfeat.geometry.keypoints import find_keypoints
from superfeat.images import Photo, Skipped, normalise, read_image
from superfeat.index.codebook import train_codebook
from superfeat.index.regional import vlad
from superfeat.methods.vectors import DOWN
from superfeat.nets.fused import for_inference
from superfeat.pages.plots import draw_curves
from superfeat.settings import as_dict, overlay
from superfeat.studies.methods import interval, time_photos
from superfeat.training.whiten import fit_whitening, learned_from_pairs
from superfeat.weights import Network, load_network, save_network

SETS = ("terrassa12", "rparis6k_mini_ext", "val_landmarks")
TRUNK = "imagenet-resnet50"
VECTORS = ("gem", "rmac")
SIZE = 320
LEARNING_PHOTOS, WORDS = 350, 8192
LOCAL_SCALES = (1.0, 0.707, 0.5, 0.353)


def sets_of(data: Path, names: Sequence[str]) -> dict[str, RetrievalSet]:
    return {name: read_gnd_json(data / "gnd" / f"{name}.json", data) for name in names}


def train_photos(data: Path) -> list[Photo]:
    """The photos of the verified pairs of train.json."""
    pairs = json.loads((data / "train.json").read_text())["pairs"]
    return [Photo(data / name, name) for name in sorted({name for pair in pairs for name in pair[:2]})]


def settings(size: int, test: RetrievalSet | None) -> ExtractConfig:
    return ExtractConfig(max_side=size, scales=DOWN, upright=test is None or not test.as_stored)


def extract(data: Path, work: Path, size: int, names: Sequence[str], most: int | None) -> None:
    """Features folders of all poolings, from one pass of the trunk over each photo."""
    torch.set_num_threads(1)
    networks = {method: load_network(TRUNK, method=method) for method in VECTORS}
    tests: dict[str, RetrievalSet | None] = {"train": None, **sets_of(data, names)}
    order = [*names[:2], "train", *names[2:]]
    for name in order:
        test = tests[name]
        if test is None:
            photos = train_photos(data)
        else:
            wanted = own_names(test).photos(test)
            photos = renamed(list(wanted.values()), list(wanted))
        _extract_photos(networks, photos[:most], settings(size, test), work, name)


def _extract_photos(
    networks: dict[str, Network], photos: Sequence[Photo], config: ExtractConfig, work: Path, name: str
) -> None:
    first = networks[VECTORS[0]]
    trunk = for_inference(first.module).trunk
    began = time.process_time()
    with contextlib.ExitStack() as stack:
        writers = {
            method: stack.enter_context(_writer(work / f"{name}-{method}", network, config))
            for method, network in networks.items()
        }
        for number, photo in enumerate(photos):
            stamp = photo_stamp(photo.path)
            if all(writer.has(photo.name, stamp) for writer in writers.values()):
                continue
            outcome = decode(photo, config)
            if isinstance(outcome, Skipped):
                for writer in writers.values():
                    writer.skip(outcome, stamp)
                continue
            for method, vector in _vectors(networks, trunk, outcome.pixels, config):
                one, size = np.ones(1, np.float32), (outcome.pixels.shape[1], outcome.pixels.shape[0])
                found = Features(photo.name, vector[None], one, one, np.zeros(1, np.int32), image_size=size)
                if not writers[method].has(photo.name, stamp):
                    writers[method].add(found, stamp)
            if number % 50 == 0:
                print(f"{name}: {number} of {len(photos)}, {time.process_time() - began:.0f} CPU-seconds", flush=True)
        for writer in writers.values():
            writer.finish()


def _writer(path: Path, network: Network, config: ExtractConfig) -> contextlib.AbstractContextManager[FeatureWriter]:
    facts = {"network": {"digest": network.digest, **as_dict(network.config)}, "extract": as_dict(config)}
    return feature_writer(path, json.loads(json.dumps(facts)), network.dim, regions=False)


@torch.inference_mode()
def _vectors(
    networks: dict[str, Network], trunk: object, pixels: np.ndarray, config: ExtractConfig
) -> Iterator[tuple[str, np.ndarray]]:
    first = networks[VECTORS[0]]
    image = torch.from_numpy(normalise(pixels, *first.normalisation)).unsqueeze(0)
    maps = [trunk(resize(image, scale, recompute=False)) for scale in config.scales]  # type: ignore[operator]
    for method, network in networks.items():
        yield method, network.combine(torch.cat([network.module.describe(one).vectors[0] for one in maps]).numpy())


# -- The table


@dataclasses.dataclass(frozen=True)
class Row:
    """A method on one set."""

    method: str
    set: str
    map: float
    low: float
    high: float
    grade: str
    bytes_per_photo: float
    cpu_seconds: float | None


def measure(data: Path, work: Path, size: int, names: Sequence[str]) -> list[Row]:
    """Every method on every set, as far as its features are there; what is missing is said."""
    rows: list[Row] = []
    for name, test in sets_of(data, names).items():
        for label, network, features in _vector_runs(data, work, name):
            rows.append(_vector_row(label, network, features, test, name, work, size))
        rows += _local_rows(data, work, name, test, size)
        rows.append(_sift_vlad(data, name, test, size, work))
    return rows


def _vector_runs(data: Path, work: Path, name: str) -> Iterator[tuple[str, Network, Path]]:
    for method in VECTORS:
        network, features = load_network(TRUNK, method=method), work / f"{name}-{method}"
        if not _whole(features):
            print(f"{features} is not finished; run `extract` again", flush=True)
            continue
        yield {"gem": "GeM", "rmac": "R-MAC"}[method], network, features
        learned = work / f"train-{method}"
        if method == "gem" and _whole(learned):
            yield "GeM + whitening learned on train.json", *_whitened(network, data, learned, features, work, name)


def _whole(features: Path) -> bool:
    return (features / "manifest.json").is_file() and bool(FeatureStore(features).manifest.get("complete"))


def _whitened(
    network: Network, data: Path, learned: Path, features: Path, work: Path, name: str
) -> tuple[Network, Path]:
    """The network with Lw, and the same vectors whitened: the whitening comes last, so nothing is extracted again."""
    vectors = {one.name: one.vectors[0] for one in FeatureStore(learned)}
    pairs = [(pair[0], pair[1]) for pair in json.loads((data / "train.json").read_text())["pairs"]]
    made = learned_from_pairs(network, vectors, pairs, None)
    folder, store = work / f"{name}-gem-lw", FeatureStore(features)
    with _writer(folder, made, overlay(ExtractConfig(), store.manifest["extract"])) as writer:
        for entry, one in zip(store.entries, store, strict=True):
            if not writer.has(entry.name, entry.stamp):
                writer.add(dataclasses.replace(one, vectors=made.combine(one.vectors)[None]), entry.stamp)
        writer.finish()
    return made, folder


def _vector_row(
    label: str, network: Network, features: Path, test: RetrievalSet, name: str, work: Path, size: int
) -> Row:
    kept = work / f"{features.name}.network"
    if not kept.is_dir():
        save_network(network, kept)
    changes = {"extract": as_dict(settings(size, test))}
    run = evaluate(test, work / f"{features.name}.run", weights=kept, settings=changes, features=features)
    return _row(label, name, run.result())


def _local_rows(data: Path, work: Path, name: str, test: RetrievalSet, size: int) -> list[Row]:
    """FIRe as it comes, and HOW and DELF on the plain trunk; whitening and words are learned from train.json."""
    changes = {"extract.max_side": size}
    rows = [_row("FIRe (shipped)", name, evaluate(test, work / f"{name}-fire.run", settings=changes).result())]
    photos = train_photos(data)[:LEARNING_PHOTOS]
    for method, label in (("how", "HOW, not trained"), ("delf", "DELF-like + ASMK, not trained")):
        folder = work / f"{method}.network"
        if not folder.is_dir():
            save_network(fit_whitening(load_network(TRUNK, method=method), photos, max_side=size), folder)
        words = {"codebook.words": WORDS, "codebook.rounds": 8, "extract.scales": LOCAL_SCALES}
        work_ = evaluate(
            test,
            work / f"{name}-{method}.run",
            weights=folder,
            settings={**changes, **words},
            codebook_images=[photo.path for photo in photos],
        )
        rows.append(_row(label, name, work_.result()))
    return rows


def _row(label: str, name: str, found: Measured) -> Row:
    grade = "hard" if "hard" in found.scores["grades"] else next(iter(found.scores["grades"]))
    values = [query["ap"][grade] for query in found.scores["queries"]]
    mean, low, high = interval(np.asarray([np.nan if value is None else value for value in values]))
    _, cpu = time_photos(found.network, found.test, found.config)
    return Row(label, name, mean, low, high, grade, float(found.card["memory"]["bytes_per_image"]), cpu)


def _sift_vlad(data: Path, name: str, test: RetrievalSet, size: int, work: Path) -> Row:
    """A floor without a network: SIFT, 256 words of train.json's photos, VLAD, cosine."""
    began, seen = time.process_time(), 0
    sample = [_sift(photo, size) for photo in train_photos(data)[:200]]
    codebook = train_codebook([one for one in sample if len(one)], CodebookConfig(words=256, rounds=8))
    vectors: dict[tuple[Path, object], np.ndarray] = {}
    for photo in [*test.photos, *(query.photo for query in test.queries)]:
        key = photo.path, photo.box
        if key not in vectors:
            vectors[key] = vlad(codebook, [_sift(photo, size)]).astype(np.float32)
            seen += 1
    cpu = (time.process_time() - began) / max(1, seen)
    rows = np.stack([vectors[photo.path, photo.box] for photo in test.photos])
    precisions, grade = [], "hard" if "hard" in grades_of(test) else "all"
    for query in test.queries:
        scores = rows @ vectors[query.photo.path, query.photo.box]
        precisions.append(100 * average_precision(np.argsort(-scores, kind="stable"), *lists_of(query, grade)))
    mean, low, high = interval(np.asarray(precisions))
    return Row("SIFT-VLAD", name, mean, low, high, grade, float(rows.shape[1] * 4), cpu)


def _sift(photo: Photo, size: int) -> np.ndarray:
    pixels = read_image(photo.path, max_side=size, box=photo.box)
    return find_keypoints(pixels, "sift").vectors


def write(rows: Sequence[Row], path: Path | None) -> None:
    """The means over the sets, best first."""
    table = []
    for label in dict.fromkeys(row.method for row in rows):
        own = [row for row in rows if row.method == label]
        mean = float(np.mean([row.map for row in own]))
        table.append({"method": label, "mean_map": round(mean, 1), "sets": [dataclasses.asdict(row) for row in own]})
    table.sort(key=lambda one: -float(one["mean_map"]))  # type: ignore[arg-type]
    text = json.dumps(table, indent=2)
    print(text)
    if path is not None:
        path.write_text(text + "\n", encoding="utf-8")


def draw(source: Path, output: Path) -> None:
    """mAP against bytes and against CPU-seconds per photo."""
    table = json.loads(source.read_text())
    panels = []
    for field, what in (("bytes_per_photo", "bytes per photo"), ("cpu_seconds", "CPU-seconds per photo")):
        lines = [
            Series(one["method"], [float(np.mean([row[field] for row in one["sets"]]))], [one["mean_map"]])
            for one in table
        ]
        panels.append(Panel("mean of the validation sets", what, "mAP (%)", lines, log_x=True))
    draw_curves(panels, output)


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("extract", "measure"):
        one = verbs.add_parser(verb)
        one.add_argument("--data", type=Path, required=True)
        one.add_argument("--work", type=Path, required=True)
        one.add_argument("--size", type=int, default=SIZE)
        one.add_argument("--sets", nargs="+", default=list(SETS))
        one.add_argument("--most", type=int, help="So many photos of each set, for a smoke run.")
        one.add_argument("--json", type=Path)
    drawn = verbs.add_parser("draw")
    drawn.add_argument("source", type=Path)
    drawn.add_argument("--output", "-o", type=Path, required=True)
    options = parser.parse_args(given)
    if options.verb == "extract":
        extract(options.data, options.work, options.size, options.sets, options.most)
    elif options.verb == "measure":
        write(measure(options.data, options.work, options.size, options.sets), options.json)
    else:
        draw(options.source, options.output)


if __name__ == "__main__":
    main()
