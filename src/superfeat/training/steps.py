"""One step: how its images are looked at, and the gradient of its tuples, each by itself or with shared negatives."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from superfeat.config import LossConfig, TrainingConfig
from superfeat.threads import in_order
from superfeat.training.inputs import Inputs, Showing, one_thread
from superfeat.training.objective import (
    MEASURES,
    Describe,
    OneImage,
    Shared,
    TupleResult,
    describe_one,
    differentiate,
    differentiate_one,
    step_loss,
)
from superfeat.training.ranks import Ranks

SHOWINGS = 4  # what a random generator is for; the trainer has 1 to 3


class StepGradient(NamedTuple):
    """The summed gradient of this rank's part of a step in float64, the measures of its tuples, seconds of reading."""

    total: list[Tensor]
    measures: Float64[Tensor, "tuples measures"]
    reading: float


def draw_showings(
    tuples: Int64[np.ndarray, "tuples images"], config: TrainingConfig, epoch: int, step: int
) -> list[list[Showing]]:
    """How each image of a step is shown, by the seed, the epoch and the step alone.

    Where the negatives are those of the pool, each image is flipped by itself, as the paper has it; pairs that are
    each other's negatives are flipped together. The positive of a pair of one photo is a view made of it.
    """
    random = np.random.default_rng((config.seed, SHOWINGS, epoch, step))
    side = None if config.least_side is None else int(random.integers(config.least_side, config.max_side + 1))
    flips = random.random(tuples.shape) < config.flip
    if config.negatives_from == "step":
        flips = np.repeat(flips[:, :1], tuples.shape[1], axis=1)
    showings = []
    for row, (images, flipped) in enumerate(zip(tuples.tolist(), flips.tolist(), strict=True)):
        seed = (config.seed, SHOWINGS, epoch, step, row)
        made = images[0] == images[1]
        showings.append(
            [Showing(flip, side, seed if made and slot == 1 else None) for slot, flip in enumerate(flipped)]
        )
    return showings


class Stepper:
    """What the steps of a run have in common: the network as a function, its inputs, and who computes."""

    def __init__(
        self,
        describe: Describe,
        parameters: Sequence[Tensor],
        inputs: Inputs,
        losses: LossConfig,
        recompute: bool,
        ranks: Ranks,
        workers: int,
        device: str,
    ) -> None:
        self.describe, self.parameters, self.inputs = describe, list(parameters), inputs
        self.losses, self.recompute, self.ranks, self.device = losses, recompute, ranks, device
        self.workers = workers if device == "cpu" else 1

    def run(self, work: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[Any]:
        """Each task on one thread, results in order."""
        return in_order(work, tasks, self.workers, one_thread)

    def zeros(self) -> list[Tensor]:
        return [torch.zeros_like(parameter, dtype=torch.float64) for parameter in self.parameters]

    def each_alone(
        self, tuples: Int64[np.ndarray, "tuples images"], showings: Sequence[Sequence[Showing]], width: int
    ) -> StepGradient:
        """Tuples with negatives of their own: each is one task."""
        own = self.ranks.share(len(tuples))
        total, measures = self.zeros(), torch.zeros(len(tuples), width, dtype=torch.float64)
        reading = np.zeros(len(tuples))

        def work(number: int) -> TupleResult:
            began = time.monotonic()
            images = [
                self.inputs(int(image), showing)
                for image, showing in zip(tuples[number], showings[number], strict=True)
            ]
            reading[number] = time.monotonic() - began
            images = [image.to(self.device) for image in images]
            return differentiate(self.describe, images, self.parameters, self.losses, self.recompute)

        for number, result in zip(own, self.run(work, own), strict=True):
            for sum_, part in zip(total, result.gradient, strict=True):
                sum_ += part
            measures[number] = result.measures
        return StepGradient(total, measures, float(reading.sum()))

    def shared_negatives(
        self,
        pairs: Int64[np.ndarray, "pairs 2"],
        showings: Sequence[Sequence[Showing]],
        things: Int64[np.ndarray, "pairs"],
        width: int,
    ) -> StepGradient:
        """Pairs whose negatives are each other's images: each image is one task, forth and back.

        Ranks exchange what images need of each other, and each goes back through its own images only. `recompute` goes
        forth without any graph, and once more on the way back.
        """
        numbers, all_showings = pairs.ravel(), [showing for row in showings for showing in row]
        own = self.ranks.share(len(numbers))
        reading = np.zeros(len(numbers))
        seen: dict[int, Tensor] = {}

        def forth(number: int) -> OneImage:
            began = time.monotonic()
            image = self.inputs(int(numbers[number]), all_showings[number])
            reading[number] = time.monotonic() - began
            image = image.to(self.device)
            if self.recompute:
                seen[number] = image
            with torch.set_grad_enabled(not self.recompute):
                return describe_one(self.describe, image, self.losses)

        images = dict(zip(own, self.run(forth, own), strict=True))
        like = next(iter(images.values())) if images else forth(0)  # a rank without images needs the shapes too
        shared = self._exchange(images, like.shared, len(numbers))
        loss, measures = step_loss(shared, np.repeat(things, 2), self.losses)
        parts = shared.parts()
        directions = torch.autograd.grad(loss, parts) if parts else ()

        def back(number: int) -> Sequence[Tensor]:
            image = images.pop(number)
            if self.recompute:
                image = describe_one(self.describe, seen.pop(number), self.losses)
            return differentiate_one(image, [part[number : number + 1] for part in directions], self.parameters)

        total = self.zeros()
        measures = self._with_own(measures, images, len(pairs), width)
        for gradient in self.run(back, own):
            for sum_, part in zip(total, gradient, strict=True):
                sum_ += part
        return StepGradient(total, measures, float(reading.sum()))

    def _exchange(self, images: dict[int, OneImage], like: Shared, count: int) -> Shared:
        """Every image's part of `Shared`, as leaves: other ranks' images too."""
        leaves: list[Tensor | None] = []
        for place, part in enumerate(like):
            if part is None:
                leaves.append(None)
                continue
            every = part.new_zeros((count, *part.shape[1:])).detach()
            for number, image in images.items():
                every[number] = image.shared[place][0].detach()  # type: ignore[index]
            self.ranks.sum([every])
            leaves.append(every.requires_grad_())
        return Shared(*leaves)

    def _with_own(
        self, measures: Float64[Tensor, "pairs measures"], images: dict[int, OneImage], pairs: int, width: int
    ) -> Float64[Tensor, "pairs width"]:
        """Adds what each image has alone. Of several ranks only the first tells what all of them know."""
        found = torch.zeros(pairs, width, dtype=torch.float64)
        if self.ranks.first:
            found[:, : measures.shape[1]] = measures
        for number, image in images.items():
            for name, value in (("loss", image.own.item()), ("decorrelation", image.own.item())):
                found[number // 2, MEASURES.index(name)] += value
            found[number // 2, MEASURES.index("correlation")] += image.correlation / 2
        return found
