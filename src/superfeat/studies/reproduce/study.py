"""What all tables and figures share: the photos, trained variants and their scores, each made once and kept."""

import dataclasses
import hashlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from jaxtyping import Float64

from superfeat.config import EvaluateConfig, ExtractConfig, Recipe
from superfeat.datasets.benchmarks import read_benchmark
from superfeat.datasets.folders import read_folders
from superfeat.datasets.retrieval_set import RetrievalSet, each_photo_in_turn
from superfeat.datasets.sfm120k import read_sfm120k
from superfeat.datasets.training_set import TrainingSet
from superfeat.drawn import draw_folder
from superfeat.errors import SuperfeatError
from superfeat.evaluation.judge import GradeScores
from superfeat.evaluation.metrics import paired_bootstrap
from superfeat.evaluation.run import Evaluated, open_run, run_protocol
from superfeat.extraction.extract import extract
from superfeat.extraction.folder import photo_stamp
from superfeat.features import Features
from superfeat.images import Photo
from superfeat.index.codebook import Codebook
from superfeat.settings import Changes, as_dict, overlay
from superfeat.storage.store import as_json, write_json
from superfeat.studies.analyses import Run
from superfeat.studies.reproduce.sizes import Size
from superfeat.training.pretrain import pretrain
from superfeat.training.records import LogLine
from superfeat.training.train import train
from superfeat.weights import Network, load_network

OnProgress = Callable[[str, int, int], None]
DIGITS = 10  # of a digest that names a folder


@dataclasses.dataclass(frozen=True)
class Trained:
    """A variant that was trained: its folder, and the lines of its log."""

    path: Path
    log: tuple[LogLine, ...]

    @property
    def network(self) -> Network:
        return load_network(self.path / "last")

    def epochs(self, measure: str) -> list[Any]:
        """A measure of each epoch."""
        return [cast(Any, record)[measure] for record in self.log if record["event"] == "epoch"]


class Gain(NamedTuple):
    """A difference of mAP, in points, and where it lies in 95 of 100 draws of the queries."""

    points: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.points:+.1f} mAP (95 % from {self.low:+.1f} to {self.high:+.1f})"


class Study:
    """A work folder with photos, networks and scores; whatever is there is used and not made again."""

    def __init__(
        self,
        size: Size,
        work: Path,
        *,
        images: Path | None = None,
        imagenet: Path | None = None,
        weights: str | None = None,
        workers: int | None = None,
        device: str = "cpu",
        on_progress: OnProgress = lambda what, done, total: None,
    ) -> None:
        self.size, self.work = size, work.resolve()
        self.workers, self.device, self.on_progress = workers, device, on_progress
        self._imagenet, self._weights = imagenet, weights
        self.images, self.weights = images, weights
        self.training_set, self.tests = self._read_photos(images)
        self._photos = _digest(self.training_set)

    def _read_photos(self, images: Path | None) -> tuple[TrainingSet, list[RetrievalSet]]:
        if self.size.tests:
            if images is None:
                raise SuperfeatError(
                    f"size {self.size.name} needs images: the folder with SfM-120k, {', '.join(self.size.tests[1:])} "
                    "in their published layouts (docs/protocols.md); size mini draws its own landmarks",
                    arguments=["images", "size=mini"],
                )
            return read_sfm120k(images), [read_benchmark(name, images) for name in self.size.tests]
        data = self.size.recipe.data
        if images is None:
            images = self.work / "drawn"
            files = draw_folder(images, things=data.things, views=data.views, max_side=data.side)
            for done, _ in enumerate(files, 1):
                self.on_progress("drawing landmarks", done, data.things * data.views)
        rest, held = read_folders(images).hold_out(data.hold_out, self.size.recipe.training.seed)
        return rest, [each_photo_in_turn(held, "held out")]

    @property
    def queries(self) -> list[Photo]:
        """The photos that analyses look at."""
        return [query.photo for query in self.analysed.queries]

    @property
    def analysed(self) -> RetrievalSet:
        """The test set that figures are about: the second one (ROxford), or the only one."""
        return self.tests[min(1, len(self.tests) - 1)]

    @property
    def run(self) -> Run:
        """How analyses are run."""
        return Run(self.workers, self.device)

    def extract(self, network: Network, config: ExtractConfig) -> Iterator[Features]:
        """The features of the photos that analyses look at."""
        return extract(network, self.queries, config, workers=self.workers, device=self.device)

    @property
    def columns(self) -> list[str]:
        """What `maps` measures: one name per test set and grade, as the paper's tables have them."""
        return [name for test in self.tests for name in _columns(test)]

    # -- Training

    def train(self, changes: Changes | None = None, *, how: bool = False) -> Trained:
        """The variant of the recipe with these changes, trained or taken from the work folder."""
        recipe = overlay(self.size.recipe, self.size.how) if how else self.size.recipe
        recipe = overlay(recipe, changes or {})
        start = self._start(recipe, how)
        recipe = overlay(recipe, {"pretraining.first": False})
        facts = [as_dict(recipe), load_network(start).digest, self._photos]
        recipe = overlay(recipe, {"weights": str(start)})
        folder = self._folder("how" if how else "fire", facts)
        if not (folder / "done.json").is_file():
            resume = (folder / "run.json").is_file()
            for event in train(
                recipe, self.training_set, folder, resume=resume, workers=self.workers, device=self.device
            ):
                self.on_progress(f"training {folder.name}: {event.stage}", event.done, event.total)
            write_json(folder / "done.json", as_json(as_dict(recipe)))
        return Trained(folder, tuple(_read_log(folder)))

    def pretraining_log(self) -> list[LogLine]:
        """The log of the pretraining that the plain training begins with."""
        log = _read_log(self._start(self.size.recipe, how=False).parent)
        if not any("top1" in record for record in log):
            raise SuperfeatError(
                "the given weights have no log of their pretraining beside them: leave them out", arguments=["weights"]
            )
        return log

    def _start(self, recipe: Recipe, how: bool) -> Path:
        """The pretrained network that a variant begins with: the given one if it fits, or one made here."""
        wanted = overlay(self.size.recipe, {"pretraining.seed": recipe.pretraining.seed})
        if not how:
            same = {key: getattr(recipe.network.lit, key) for key in ("templates", "rounds", "dim", "update")}
            wanted = overlay(wanted, {"network.lit": same, "training.template_scale": recipe.training.template_scale})
        if self._weights is not None and (how or wanted.network == self.size.recipe.network):
            return Path(self._weights)
        photos = self.training_set
        if self.size.tests:
            if self._imagenet is None:
                raise SuperfeatError(
                    "this variant begins with its own pretraining on ImageNet: give its folder, with one sub-folder "
                    "per class, or weights for those that begin with the paper's network",
                    arguments=["imagenet", "weights"],
                )
            photos = read_folders(self._imagenet)
        digest = self._photos if photos is self.training_set else _digest(photos)
        facts = [as_dict(wanted.network), as_dict(wanted.pretraining), wanted.training.template_scale, digest]
        folder = self._folder("pretrained", facts)
        if not (folder / "done.json").is_file():
            for event in pretrain(wanted, photos, folder, resume=True, workers=self.workers, device=self.device):
                self.on_progress(f"pretraining {folder.name}", event.done, event.total)
            write_json(folder / "done.json", as_json(facts))
        return folder / "best"

    def _folder(self, kind: str, facts: Sequence[Any]) -> Path:
        text = json.dumps(as_json(facts), sort_keys=True)
        return self.work / "networks" / f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:DIGITS]}"

    # -- Scores

    def evaluate(self, trained: Trained, test: RetrievalSet, changes: Changes | None = None) -> Evaluated:
        """A protocol run of a trained variant, with the size's settings and these changes."""
        config: EvaluateConfig = overlay(self.size.evaluation, changes or {})
        digest = hashlib.sha256(json.dumps(as_json(as_dict(config)), sort_keys=True).encode()).hexdigest()
        output = trained.path / "evaluations" / f"{test.name.replace(' ', '-')}-{digest[:DIGITS]}"
        return self.protocol(trained.network, test, output, config)

    def protocol(
        self,
        network: Network,
        test: RetrievalSet,
        output: Path,
        config: EvaluateConfig,
        words: Codebook | None = None,
    ) -> Evaluated:
        """A protocol run of any network; words that are not given are learned from the training photos."""
        if (output / "scores.json").is_file():
            return open_run(output)
        order = np.random.default_rng(0).permutation(len(self.training_set.photos))
        photos = [self.training_set.photos[number] for number in order]
        for step in run_protocol(
            network, test, output, config, codebook=words or photos, workers=self.workers, device=self.device
        ):
            if isinstance(step, Evaluated):
                return step
            self.on_progress(f"scoring {output.name}: {step.stage}", step.done, step.total)
        raise AssertionError("an evaluation ends with its scores")

    def grades(self, test: RetrievalSet) -> list[str]:
        """The grades that `columns` has of a set."""
        return [_grade(name) for name in _columns(test)]

    def maps(self, trained: Trained, changes: Changes | None = None) -> list[float]:
        """mAP in percent, in the order of `columns`."""
        scored = [(test, self.evaluate(trained, test, changes).scores["grades"]) for test in self.tests]
        return [map_of(grades[_grade(name)]) for test, grades in scored for name in _columns(test)]

    def gain(self, first: Trained, second: Trained) -> Gain:
        """How much better the second finds, over the queries of all tests (Medium where there are grades)."""
        before, after = (
            np.concatenate([self._precisions(trained, test) for test in self.tests]) for trained in (first, second)
        )
        found = paired_bootstrap(before, after)
        return Gain(found["difference"], found["low"], found["high"])

    def _precisions(self, trained: Trained, test: RetrievalSet) -> Float64[np.ndarray, "queries"]:
        grade = "medium" if test.protocol == "revisited" else "all"
        values = [query["ap"][grade] for query in self.evaluate(trained, test).scores["queries"]]
        return np.asarray([np.nan if value is None else value for value in values])


def map_of(scores: GradeScores) -> float:
    """mAP in percent; NaN where no query has a right answer."""
    return math.nan if scores["map"] is None else scores["map"]


def _digest(photos: TrainingSet) -> str:
    """Of names, things, pairs, and the sizes of the files: other photos under the same names are others."""
    sizes = [photo_stamp(photo.where)[0] for photo in photos.photos]
    return hashlib.sha256(f"{photos.digest()} {sizes}".encode()).hexdigest()


def _read_log(folder: Path) -> list[LogLine]:
    file = folder / "log.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    return [json.loads(line) for line in lines]


def _columns(test: RetrievalSet) -> list[str]:
    name = test.name.replace("-", "_").replace(" ", "_")
    if test.protocol == "revisited":
        short = {"roxford5k": "roxford", "rparis6k": "rparis"}.get(name, name)
        return [f"{short}_medium", f"{short}_hard"]
    return [{"retrieval_SfM_120k_val_eccv2020": "sfm120k_val"}.get(name, name)]


def _grade(column: str) -> str:
    return next((grade for grade in ("medium", "hard") if column.endswith(f"_{grade}")), "all")
