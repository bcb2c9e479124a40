"""What to keep of a photo: retrieval quality against bytes and CPU-seconds, on the three validation sets.

Features of every scale are extracted once per network and size; any choice among them is then judged from these: which
scales, how many features of each or over all, how many words. mAP of binary ASMK, Hard where a set has it; the mean of
the sets decides.

    python -m benchmarks.profiles extract --network NETWORK --size 640 --scales 1 0.707 0.5 0.353 --work WORK/how640 \\
        --data DATA --codebook-images FOLDER_OR_LIST
    python -m benchmarks.profiles measure WORK/how640 [WORK/...] --data DATA --json benchmarks/results/profiles.json
    python -m benchmarks.profiles compare WORK/a@CHOICE WORK/b@CHOICE --data DATA        (paired bootstrap)
    python -m benchmarks.profiles draw benchmarks/results/profiles.json -o docs/pictures/profiles.png

A CHOICE is a number of features over all scales ("1000"), or of each scale from the finest on ("300,200,100"), with
"/16384" for another number of words than 8192. With --codebook a codebook that is there serves all choices; `compare`
takes one for each side too.
"""

import argparse
import dataclasses
import itertools
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import superfeat
from superfeat.datasets.retrieval_set import RetrievalSet, read_gnd_json
from superfeat.evaluation.metrics import average_precision, paired_bootstrap
from superfeat.features import Features
from superfeat.images import Photo
from superfeat.sources.listing import list_photos

SETS = ("terrassa12", "rparis6k_mini_ext", "val_landmarks")
CHOICES = ("2000", "1000", "600", "300", "150")
KEPT_PER_SCALE = 1500
CODEBOOK_IMAGES = 400
WORDS, ROUNDS = 8192, 8
BYTES_PER_WORD = 18  # a posting; names and places come on top, the same for all


@dataclasses.dataclass(frozen=True)
class Choice:
    """How many features are kept, over all scales or of each, and how many words there are."""

    counts: tuple[int, ...]
    words: int = WORDS

    @classmethod
    def parse(cls, text: str) -> "Choice":
        counts, _, words = text.partition("/")
        return cls(tuple(int(count) for count in counts.split(",")), int(words or WORDS))

    def keep(self, strengths: np.ndarray, scales: np.ndarray) -> np.ndarray:
        """Numbers of the features that are kept."""
        order = np.argsort(-strengths, kind="stable")
        if len(self.counts) == 1:
            return order[: self.counts[0]]
        sizes = np.unique(scales)[::-1]
        parts = [order[scales[order] == size][:count] for size, count in zip(sizes, self.counts, strict=False)]
        return np.concatenate(parts)


@dataclasses.dataclass(frozen=True)
class Judged:
    """What a choice comes to: words per photo, and the AP of each query, Hard where the set has it."""

    words: float
    precisions: dict[str, list[float]]
    medium: dict[str, float]

    @property
    def means(self) -> dict[str, float]:
        return {name: 100 * float(np.mean(values)) for name, values in self.precisions.items()}

    @property
    def mean(self) -> float:
        return float(np.mean(list(self.means.values())))


def read_sets(data: Path, names: Sequence[str]) -> list[RetrievalSet]:
    return [read_gnd_json(data / "gnd" / f"{name}.json", data) for name in names]


# -- Features of everything, once


def extract(args: argparse.Namespace) -> None:
    network = superfeat.load_network(args.network)
    learned = list_photos(args.codebook_images).photos if args.codebook_images else []
    chosen = np.random.default_rng(0).permutation(len(learned))[: args.codebook_count]
    photos = {str(learned[number].path): learned[number].path for number in chosen}
    codebook = list(photos)
    for test in read_sets(args.data, args.sets):
        photos |= {str(photo.path): photo.path for photo in test.photos}
        photos |= {str(query.photo.path): query.photo.path for query in test.queries}
    config = superfeat.ExtractConfig(1 << 30, max_side=args.size, scales=tuple(args.scales))
    named = [Photo(path, name) for name, path in photos.items()]
    parts: dict[str, list[np.ndarray]] = {"vectors": [], "strengths": [], "scales": []}
    sizes, names, began = [], [], time.process_time()
    for features in superfeat.extract(network, named, config, workers=args.workers):
        kept = np.concatenate(
            [np.flatnonzero(features.scales == s)[:KEPT_PER_SCALE] for s in np.unique(features.scales)]
        )
        for name, values in parts.items():
            found = getattr(features, name)[kept]
            values.append(found.astype(np.float16) if name == "vectors" else found)
        sizes.append(len(kept))
        names.append(features.name)
        if len(names) % 100 == 0:
            print(f"{len(names)} of {len(photos)}", flush=True)
    args.work.mkdir(parents=True, exist_ok=True)
    for name, values in parts.items():
        np.save(args.work / f"{name}.npy", np.concatenate(values))
    facts = {
        "network": network.digest,
        "method": network.config.method,
        "size": args.size,
        "scales": list(args.scales),
        "cpu_seconds_per_photo": round((time.process_time() - began) / len(names), 3),
        "sizes": sizes,
        "names": names,
        "codebook": codebook,
    }
    (args.work / "facts.json").write_text(json.dumps(facts))


class Extracted:
    """The features that `extract` kept, photo by photo."""

    def __init__(self, folder: Path) -> None:
        self.facts: dict[str, Any] = json.loads((folder / "facts.json").read_text())
        self.arrays = [np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("vectors", "strengths", "scales")]
        ends = list(itertools.accumulate(self.facts["sizes"]))
        begins = [0, *ends[:-1]]
        self.rows = {name: slice(*row) for name, *row in zip(self.facts["names"], begins, ends, strict=True)}

    def features(self, path: str, choice: Choice, name: str = "") -> Features:
        vectors, strengths, scales = (np.asarray(array[self.rows[path]]) for array in self.arrays)
        kept = choice.keep(strengths, scales)
        ids = np.zeros(len(kept), np.int32)
        return Features(name, vectors[kept].astype(np.float32), strengths[kept], scales[kept], ids)


# -- Judge choices


def learn(extracted: Extracted, choice: Choice, paths: Sequence[str]) -> superfeat.Codebook:
    """Words from what the choice keeps of these photos."""
    samples = [extracted.features(path, choice).vectors for path in paths]
    words = min(choice.words, sum(map(len, samples)) // 4)
    return superfeat.train_codebook(samples, superfeat.CodebookConfig(words=words, rounds=ROUNDS))


def judge(
    extracted: Extracted, choice: Choice, tests: Sequence[RetrievalSet], codebook: superfeat.Codebook | None = None
) -> Judged:
    codebook = codebook or learn(extracted, choice, extracted.facts["codebook"])
    precisions: dict[str, list[float]] = {}
    medium: dict[str, float] = {}
    counts = []
    for test in tests:
        with tempfile.TemporaryDirectory() as folder:
            index = superfeat.Index.create(Path(folder, "index"), codebook)
            images = (
                (str(n), extracted.features(str(photo.path), choice, str(n)), None)
                for n, photo in enumerate(test.photos)
            )
            for _ in index.add_many(images, batch=256):
                pass
            queries = [extracted.features(str(query.photo.path), choice) for query in test.queries]
            rankings = [ranking.ids for ranking in index.search_many(queries, top=None)]
            counts.append(index.info().words_per_image)
        whole = list(_precisions(test, rankings, hard=False))
        medium[test.name] = 100 * float(np.mean(whole))
        precisions[test.name] = list(_precisions(test, rankings, hard=True)) or whole
    return Judged(float(np.mean(counts)), precisions, medium)


def _precisions(test: RetrievalSet, rankings: Sequence[np.ndarray], hard: bool) -> Iterator[float]:
    """AP of each query, or of its Hard positives with the Easy ones left out."""
    for query, ranking in zip(test.queries, rankings, strict=True):
        if not hard:
            yield average_precision(ranking, query.positives, query.junk)
        elif query.hard:
            easy = set(query.positives) - set(query.hard)
            yield average_precision(ranking, query.hard, {*query.junk, *easy})


def measure(args: argparse.Namespace) -> None:
    tests = read_sets(args.data, args.sets)
    rows = []
    for folder in args.work:
        extracted = Extracted(folder)
        facts = {name: extracted.facts[name] for name in ("network", "method", "size", "scales")}
        for text in args.choices:
            found = judge(extracted, Choice.parse(text), tests, args.codebook)
            row = {
                **facts,
                "work": folder.name,
                "choice": text,
                "mean": round(found.mean, 2),
                "cpu_seconds": extracted.facts["cpu_seconds_per_photo"],
                "words": round(found.words, 1),
                "bytes": round(BYTES_PER_WORD * found.words),
                **{name: round(value, 2) for name, value in found.means.items()},
                **{f"{name} medium": round(value, 2) for name, value in found.medium.items()},
            }
            rows.append(row)
            print(json.dumps(row), flush=True)
            if args.json:
                args.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n")


def compare(args: argparse.Namespace) -> None:
    """The second against the first: queries are drawn again within each set, and the means of the sets averaged."""
    tests = read_sets(args.data, args.sets)
    found = []
    for text, codebook in ((args.first, args.first_codebook), (args.second, args.second_codebook)):
        folder, _, choice = text.rpartition("@")
        found.append(judge(Extracted(Path(folder)), Choice.parse(choice), tests, codebook or args.codebook))
    draws = []
    for name in found[0].precisions:
        a, b = (np.asarray(one.precisions[name]) for one in found)
        random = np.random.default_rng(0)
        rows = random.integers(0, len(a), (10000, len(a)))
        draws.append((b - a)[rows].mean(axis=1))
        print(name, json.dumps(paired_bootstrap(a, b)))
    difference = 100 * np.mean(draws, axis=0)
    low, high = np.percentile(difference, (2.5, 97.5))
    result = {
        "first": args.first,
        "second": args.second,
        "means": [round(one.mean, 2) for one in found],
        "words": [round(one.words, 1) for one in found],
        "difference": round(found[1].mean - found[0].mean, 2),
        "low": round(float(low), 2),
        "high": round(float(high), 2),
    }
    print(json.dumps(result))
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n")


def draw(args: argparse.Namespace) -> None:
    """Two panels: the mean against bytes, and against CPU-seconds."""
    from superfeat.pages.plots import Panel, Series, draw_curves

    rows = json.loads(args.file.read_text())["rows"]
    works = list(dict.fromkeys(row["work"] for row in rows))
    panels = []
    for axis, label in (("bytes", "bytes of a photo's words"), ("cpu_seconds", "CPU-seconds per photo")):
        series = []
        for work in works:
            points = sorted((row[axis], row["mean"]) for row in rows if row["work"] == work)
            series.append(Series(work, [x for x, _ in points], [y for _, y in points]))
        panels.append(Panel(f"Mean of the sets against {label}", label, "mAP", series))
    draw_curves(panels, args.output)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    for verb in (extract, measure, compare):
        one = verbs.add_parser(verb.__name__)
        one.set_defaults(run=verb)
        one.add_argument("--data", type=Path, required=True, help="folder with photos/ and gnd/")
        one.add_argument("--sets", nargs="+", default=list(SETS))
        if verb is extract:
            one.add_argument("--network", required=True)
            one.add_argument("--work", type=Path, required=True)
            one.add_argument("--size", type=int, required=True)
            one.add_argument("--scales", type=float, nargs="+", required=True)
            one.add_argument("--codebook-images", nargs="+", default=[])
            one.add_argument("--codebook-count", type=int, default=CODEBOOK_IMAGES, help="how many of them, at random")
            one.add_argument("--workers", type=int)
            continue
        one.add_argument("--json", type=Path)
        one.add_argument("--codebook", type=superfeat.Codebook.open)
        if verb is measure:
            one.add_argument("work", type=Path, nargs="+")
            one.add_argument("--choices", nargs="+", default=list(CHOICES))
        else:
            one.add_argument("first")
            one.add_argument("second")
            for side in ("first", "second"):
                one.add_argument(f"--{side}-codebook", type=superfeat.Codebook.open, help="for that side alone")
    one = verbs.add_parser("draw")
    one.set_defaults(run=draw)
    one.add_argument("file", type=Path)
    one.add_argument("--output", "-o", type=Path, required=True)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
