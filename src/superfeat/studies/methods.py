"""Which method to take: several of them on the same photos, by the same protocol, with what each costs."""

import dataclasses
import re
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64

from superfeat.config import DEFAULT_WEIGHTS, EvaluateConfig
from superfeat.datasets.benchmarks import read_benchmark
from superfeat.datasets.retrieval_set import RetrievalSet
from superfeat.errors import SuperfeatError
from superfeat.evaluation.evaluate import Measured, evaluate
from superfeat.evaluation.metrics import paired_bootstrap
from superfeat.extraction.extract import extract
from superfeat.figures import Panel, Series
from superfeat.methods import METHODS, method_of
from superfeat.settings import Changes
from superfeat.weights import Network, load_network, save_network
from superfeat.work import Work

TIMED_PHOTOS = 8
DRAWS = 10000
SURE = 0.05  # a difference with less chance of being none counts
UNSAFE = re.compile(r"[^\w.-]+")


class Contender(NamedTuple):
    """A method to compare: what it is called, its weights, and what to build on them if they are a trunk."""

    label: str
    weights: str
    method: str | None = None


class Standing(NamedTuple):
    """What a method came to."""

    label: str
    method: str
    map: float  # mean over the queries, Hard where the set has it
    low: float  # of 95 in 100 draws of the queries
    high: float
    grade: str
    milliseconds: float  # of a photo, from file to features, on one core
    cpu_seconds: float  # of a photo
    bytes_per_photo: float
    run: str


@dataclasses.dataclass(frozen=True)
class Compared:
    """The table, best first, and which to take."""

    dataset: str
    rows: tuple[Standing, ...]
    advice: str

    def panels(self) -> list[Panel]:
        """mAP against bytes and against CPU-seconds per photo."""
        return [
            Panel(f"{self.dataset}: {what}", what, "mAP (%)", [_point(row, field) for row in self.rows], log_x=True)
            for what, field in (("bytes per photo", "bytes_per_photo"), ("CPU-seconds per photo", "cpu_seconds"))
        ]


class ComparisonStep(NamedTuple):
    """How far the comparison is: which method, which stage, `done` of `total`."""

    label: str
    stage: str
    done: int
    total: int


def _point(row: Standing, field: str) -> Series:
    return Series(row.label, [float(getattr(row, field))], [row.map], error=[(row.high - row.low) / 2])


def read_contender(text: str) -> Contender:
    """`gem=imagenet-resnet50` builds a method on a trunk; weights alone are what they are."""
    head, equals, rest = text.partition("=")
    if equals and head in METHODS:
        return Contender(f"{method_of(head).title} ({Path(rest).name})", rest, head)
    if equals and rest:
        return Contender(head, rest)
    return Contender(Path(text).name, text)


def default_contenders() -> list[Contender]:
    """The network that comes with superfeat, and two that need no training on the ImageNet trunk."""
    trunk = "imagenet-resnet50"
    return [Contender("FIRe", DEFAULT_WEIGHTS), *(read_contender(f"{name}={trunk}") for name in ("gem", "rmac"))]


def compare_methods(
    dataset: str | Path | RetrievalSet,
    output: str | Path,
    contenders: Sequence[Contender] = (),
    *,
    images: str | Path | None = None,
    profile: str | None = None,
    settings: Changes | None = None,
    codebook_images: Sequence[str | Path] = (),
    workers: int | None = None,
) -> Work[ComparisonStep, Compared]:
    """Measures each method on the set, in a folder of its own below `output`; a run that was stopped goes on.

    `dataset` is what `evaluate` takes; `settings` are of EvaluateConfig, the same for all. Words of methods of local
    features that bring none are learned from `codebook_images`.
    """
    chosen = list(contenders) or default_contenders()
    if len({one.label for one in chosen}) < len(chosen):
        raise SuperfeatError("two methods have the same name; call them differently: NAME=WEIGHTS")

    def steps() -> Generator[ComparisonStep, None, Compared]:
        test = (
            dataset
            if isinstance(dataset, RetrievalSet)
            else read_benchmark(str(dataset), None if images is None else Path(images))
        )
        found: list[tuple[Contender, Measured, tuple[float, float]]] = []
        for one in chosen:
            folder = Path(output) / UNSAFE.sub("-", one.label).strip("-")
            work = evaluate(
                test,
                folder,
                weights=_ready(one, folder),
                profile=profile,
                settings=settings,
                codebook_images=() if _brings_words(one) else codebook_images,
                workers=workers,
            )
            for step in work:
                yield ComparisonStep(one.label, step.stage, step.done, step.total)
            measured = work.result()
            found.append((one, measured, time_photos(measured.network, test, measured.config)))
            yield ComparisonStep(one.label, "timing", TIMED_PHOTOS, TIMED_PHOTOS)
        return judged(test.name, found)

    return Work(steps())


def _ready(one: Contender, folder: Path) -> Path | str:
    """Weights that `evaluate` can load: a method on a trunk is written beside its run first."""
    if one.method is None:
        return one.weights
    made = folder.with_name(f"{folder.name}.network")
    if not (made / "config.json").is_file():
        save_network(load_network(one.weights, method=one.method), made)
    return made


def _brings_words(one: Contender) -> bool:
    from superfeat.weights import carried_codebook

    return one.method is None and carried_codebook(one.weights) is not None


def time_photos(network: Network, test: RetrievalSet, config: EvaluateConfig) -> tuple[float, float]:
    """Seconds and CPU-seconds of a photo on one core, the first one not counted."""
    photos = [photo for photo in test.photos if photo.path.is_file()][: TIMED_PHOTOS + 1]
    began = cpu = None
    for number, _ in enumerate(extract(network, photos, config.extract, workers=1, on_skip=lambda skipped: None)):
        if number == 0:
            began, cpu = time.perf_counter(), time.process_time()
    if began is None or cpu is None or len(photos) < 2:
        return float("nan"), float("nan")
    return (time.perf_counter() - began) / (len(photos) - 1), (time.process_time() - cpu) / (len(photos) - 1)


def judged(name: str, found: Sequence[tuple[Contender, Measured, tuple[float, float]]]) -> Compared:
    """The table and the advice from finished runs on the same queries."""
    rows, precisions = [], {}
    for one, measured, (seconds, cpu) in found:
        grade = "hard" if "hard" in measured.scores["grades"] else next(iter(measured.scores["grades"]))
        values = [query["ap"][grade] for query in measured.scores["queries"]]
        precision = np.asarray([np.nan if value is None else value for value in values], np.float64)
        mean, low, high = interval(precision)
        memory = measured.card["memory"]["bytes_per_image"]
        title = method_of(measured.network.config.method).title
        rows.append(
            Standing(one.label, title, mean, low, high, grade, 1000 * seconds, cpu, float(memory), str(measured.run))
        )
        precisions[one.label] = precision
    rows.sort(key=lambda row: -row.map)
    return Compared(name, tuple(rows), advise(rows, precisions))


def interval(precisions: Float64[np.ndarray, " queries"], seed: int = 0) -> tuple[float, float, float]:
    """The mean, and where it lies in 95 of 100 draws of the queries."""
    known = precisions[~np.isnan(precisions)]
    if not len(known):
        return float("nan"), float("nan"), float("nan")
    draws = np.random.default_rng(seed).integers(0, len(known), (DRAWS // 10, len(known)))
    low, high = np.quantile(known[draws].mean(axis=1), (0.025, 0.975))
    return float(known.mean()), float(low), float(high)


def advise(rows: Sequence[Standing], precisions: dict[str, Float64[np.ndarray, " queries"]]) -> str:
    """Which to take: the best, or the cheapest of those that are not surely worse."""
    best = rows[0]
    close = [best]
    for row in rows[1:]:
        test = paired_bootstrap(precisions[row.label], precisions[best.label])
        if test["p"] >= SURE:
            close.append(row)
    if len(close) == 1:
        second = f"; the next, {rows[1].label}, has {rows[1].map:.1f}" if len(rows) > 1 else ""
        return f"Take {best.label}: it finds most here ({best.map:.1f} mAP{second}), and that is no chance."
    cheap = min(close, key=lambda row: (row.cpu_seconds, row.bytes_per_photo))
    names = ", ".join(row.label for row in close)
    if cheap is best:
        return f"Take {best.label}: it is the quickest of those that find most here ({names} do not surely differ)."
    return (
        f"Take {cheap.label}: {names} do not surely differ on these queries, and it is the quickest of them "
        f"({cheap.cpu_seconds:.2f} CPU-seconds a photo, {best.label} takes {best.cpu_seconds:.2f})."
    )


def table_lines(compared: Compared) -> list[str]:
    """The table as text."""
    width = max(len(row.label) for row in compared.rows)
    head = f"{'':{width}}  {'mAP':>5}  {'95 %':>13}  {'ms':>6}  {'CPU-s':>6}  {'bytes':>8}"
    lines = [f"{compared.dataset} ({compared.rows[0].grade}), per photo:", head]
    for row in compared.rows:
        spread = f"{row.low:5.1f} to {row.high:5.1f}"
        cost = f"{row.milliseconds:6.0f}  {row.cpu_seconds:6.2f}  {row.bytes_per_photo:8.0f}"
        lines.append(f"{row.label:{width}}  {row.map:5.1f}  {spread}  {cost}")
    return [*lines, compared.advice]
