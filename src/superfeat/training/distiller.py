"""The loop of distillation, and all that it keeps between two steps.

Everything random follows from the seed and the epoch, and each lesson is one task on one thread: neither the number of
workers nor an interruption changes what is learned (on a CPU).
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, cast

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from superfeat.config import DistilConfig, Recipe
from superfeat.errors import SuperfeatError
from superfeat.images import Photo
from superfeat.nets.distillation import compare, look
from superfeat.nets.efficientnet import EfficientNetLite
from superfeat.nets.fire import Fire
from superfeat.nets.fused_lite import FusedStages
from superfeat.nets.training import freeze_stages
from superfeat.threads import in_order
from superfeat.training.distil_judge import judge
from superfeat.training.distil_start import StudentStart, build_student, solve_student
from superfeat.training.inputs import one_thread
from superfeat.training.lessons import Lessons
from superfeat.training.records import LogFacts
from superfeat.training.run import (
    CHECKPOINT_SECONDS,
    Event,
    Position,
    RunFolder,
    optimiser_state,
    restore_optimiser,
)
from superfeat.weights import Network, build_module
from superfeat.weights.facts import TAUGHT_BY

ORDER, HELD = 20, 21  # what a random generator is for
MEASURES = ("loss", "places", "superfeatures", "points")


class LessonResult(NamedTuple):
    """The gradient of one lesson's part of the loss, and its measures."""

    gradient: tuple[Tensor, ...]
    measures: Float64[Tensor, "measures"]


class Distiller:
    """The state of a run between two steps: the student, its optimiser and the position."""

    def __init__(
        self,
        recipe: Recipe,
        config: DistilConfig,
        teacher: Network,
        photos: Sequence[Photo],
        folder: RunFolder,
        workers: int,
    ) -> None:
        self.recipe, self.config, self.teacher, self.folder, self.workers = recipe, config, teacher, folder, workers
        order = np.random.default_rng((config.seed, HELD)).permutation(len(photos))
        self.held = [photos[number] for number in order[: config.held_out]]
        self.photos = [photos[number] for number in order[config.held_out :][: config.photos]]
        self.steps = max(1, config.lessons * len(self.photos) // config.batch)  # of an epoch
        self.stop: Callable[[], bool] = lambda: False
        self.checkpoint_seconds, self.saved = CHECKPOINT_SECONDS, time.monotonic()
        self.position = Position()
        self.totals = torch.zeros(len(MEASURES), dtype=torch.float64)  # measures summed over the epoch's steps

    # -- Begin, or go on

    def begin(self, given: StudentStart | None) -> Iterator[Event]:
        """The lessons, the student and the optimiser: from the checkpoint, or from the start."""
        before = self.folder.load_checkpoint()
        self.folder.cut_log(0 if before is None else before[0].log_bytes)
        student, config = build_student(self.recipe, self.teacher, given), self.config
        trunk = student.module.trunk
        assert isinstance(trunk, EfficientNetLite)
        count = config.lessons * len(self.photos)
        folder = self.folder.path / "lessons"
        self.lessons = Lessons(folder, self.photos, count, config, student, self.teacher)
        for done in self.lessons.store(FusedStages(trunk, config.frozen_stages), self.workers):
            yield Event("lessons", done, count)
        if before is not None:
            self.position, tensors = before
            student.module.load_state_dict(_below(tensors, "network/"))
            self._adopt(Network(student.module, student.config, self.position.provenance))
            restore_optimiser(self.optimiser, self.parameters, tensors)
            self.average |= _below(tensors, "average/")
            self.totals = tensors["totals"]
            return
        if given is None or not given.learned:
            yield Event("start", 0, min(config.start_lessons, count))
            solve_student(student, self.lessons, config)
        self._adopt(Network(student.module, student.config, student.provenance))
        self.position.provenance = dict(student.provenance)
        yield self._judged()
        self._save()

    def _adopt(self, student: Network) -> None:
        self.student, module, config = student, student.module, self.config
        assert isinstance(module, Fire)
        if module.points is not None:
            module.points.requires_grad_(True)  # it was learned from another map
        freeze_stages(module.trunk, config.frozen_stages)  # type: ignore[arg-type]
        self.fire, self.trunk = module, cast(EfficientNetLite, module.trunk)
        self.parameters = {name: value for name, value in module.named_parameters() if value.requires_grad}
        trunk = [value for name, value in self.parameters.items() if name.startswith("trunk.blocks.")]
        rest = [value for name, value in self.parameters.items() if not name.startswith("trunk.blocks.")]
        groups = [{"params": trunk, "share": config.trunk_rate}, {"params": rest, "share": 1.0}]
        self.optimiser = torch.optim.Adam([group for group in groups if group["params"]], foreach=False)
        self.average = {name: value.detach().clone() for name, value in self.parameters.items()}

    def _save(self) -> None:
        self.saved = time.monotonic()
        tensors = {f"network/{name}": value for name, value in self.student.module.state_dict().items()}
        tensors |= optimiser_state(self.optimiser, self.parameters)
        if self.config.average:
            tensors |= {f"average/{name}": value for name, value in self.average.items()}
        self.folder.save_checkpoint(self.position, {**tensors, "totals": self.totals})

    # -- The loop

    def run(self) -> Iterator[Event]:
        """Epochs from where the run is to its end."""
        while self.position.epoch < self.config.epochs:
            for event in self._epoch():
                yield event
                if self.stop():
                    self._save()
                    yield Event("stopped", self.position.epoch, self.config.epochs)
                    return
            self.position.epoch += 1
            self.position.step = 0
            yield self._judged()
            self._save()
        yield Event("end", self.config.epochs, self.config.epochs)

    def _epoch(self) -> Iterator[Event]:
        config, epoch = self.config, self.position.epoch
        order = np.random.default_rng((config.seed, ORDER, epoch)).permutation(len(self.lessons))
        while self.position.step < self.steps:
            rate = learning_rate(config, self.position.steps, config.epochs * self.steps)
            for group in self.optimiser.param_groups:
                group["lr"] = rate * group["share"]
            chosen = order[self.position.step * config.batch :][: config.batch]
            record = self._step(chosen.tolist())
            self.position.step += 1
            self.position.steps += 1
            self.folder.log(
                {"event": "step", "step": self.position.steps, "epoch": epoch, "learning_rate": rate, **record}
            )
            if time.monotonic() - self.saved > self.checkpoint_seconds:
                self._save()
            yield Event("step", self.position.step, self.steps, record)

    def _step(self, chosen: Sequence[int]) -> LogFacts:
        """One step of the optimiser: the gradient is the mean over the lessons."""
        began = time.monotonic()
        values = list(self.parameters.values())
        total = [torch.zeros_like(value, dtype=torch.float64) for value in values]
        measures = torch.zeros(len(MEASURES), dtype=torch.float64)
        for result in in_order(self._differentiate, chosen, self.workers, one_thread):
            for sum_, part in zip(total, result.gradient, strict=True):
                sum_ += part
            measures += result.measures
        measures /= len(chosen)
        if not torch.isfinite(measures).all():
            raise SuperfeatError(
                f"the loss is no longer a number in step {self.position.steps + 1}; begin again with a smaller "
                "distillation.learning_rate"
            )
        for parameter, gradient in zip(values, total, strict=True):
            parameter.grad = (gradient / len(chosen)).to(parameter.dtype)
        self.optimiser.step()
        if self.config.average:
            kept = min(self.config.average, (1 + self.position.steps) / (10 + self.position.steps))
            for name, value in self.parameters.items():
                self.average[name].lerp_(value.detach(), 1 - kept)
        self.totals += measures
        return {**_summary(measures), "seconds": {"step": round(time.monotonic() - began, 4)}}

    def _differentiate(self, number: int) -> LessonResult:
        config, lesson = self.config, self.lessons(number)
        losses = compare(look(self.fire, self.trunk.behind(config.frozen_stages, lesson.x)), lesson.seen)
        loss = config.places * losses.places + config.superfeatures * losses.superfeatures
        loss = loss + config.points * losses.points
        measures = torch.tensor([loss.item(), *(part.item() for part in losses)], dtype=torch.float64)
        return LessonResult(torch.autograd.grad(loss, list(self.parameters.values())), measures)

    # -- What has been learned

    def _judged(self) -> Event:
        """The end of an epoch, or of none: the student is compared with its teacher, and saved."""
        record = _summary(self.totals / self.steps) if self.position.epoch else cast(LogFacts, {})
        self.totals.zero_()
        snapshot = self._snapshot()
        record |= judge(snapshot, self.teacher, self.config.teacher, self.held, self.config.max_side, self.workers)
        self.folder.log({"event": "epoch", "step": self.position.steps, "epoch": self.position.epoch, **record})
        self.folder.save_network(snapshot, "last")
        return Event("epoch", self.position.epoch, self.config.epochs, record)

    def _snapshot(self) -> Network:
        """The student as it is now: a Network never changes."""
        module = build_module(self.student.config)
        averaged = self.average if self.config.average else {}
        module.load_state_dict({**self.student.module.state_dict(), **averaged})
        done = f"{self.position.epoch} epochs of {len(self.lessons)} lessons, {self.position.steps} steps"
        taught = {TAUGHT_BY: self.teacher.digest, "distillation": done}
        return Network(module, self.student.config, {**self.student.provenance, **taught})


def learning_rate(config: DistilConfig, done: int, steps: int) -> float:
    """Of the step after `done` of all `steps`: a rise, then half a cosine down to 0."""
    rising = min(1.0, (done + 1) / config.warm_up) if config.warm_up else 1.0
    return rising * config.learning_rate * 0.5 * (1 + math.cos(math.pi * done / steps))


def _summary(measures: Float64[Tensor, "measures"]) -> LogFacts:
    return cast(LogFacts, {name: round(value, 6) for name, value in zip(MEASURES, measures.tolist(), strict=True)})


def _below(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
