"""Lessons: what the teacher sees in each photo, and the map of the student's frozen stages; computed once, stored."""

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from superfeat.config import DistilConfig
from superfeat.images import Photo
from superfeat.nets.distillation import Insight, look
from superfeat.nets.fire import Fire
from superfeat.nets.fused import Bf16Trunk, FusedResNet
from superfeat.training.inputs import MapInputs, PhotoInputs, Showing, store_maps
from superfeat.weights import Network

PART = 250  # lessons of a file: what an interruption costs at most
SIDES = 30  # what a random generator is for


class Lesson(NamedTuple):
    """One photo at one size."""

    x: Tensor  # (1, channels, height, width): the student's frozen stages' map, or its pixels
    seen: Insight  # by the teacher


class Lessons:
    """Lessons of photos in a folder; number k is photo k % photos, at a size that the seed and k decide."""

    def __init__(
        self,
        folder: Path,
        photos: Sequence[Photo],
        count: int,
        config: DistilConfig,
        student: Network,
        teacher: Network,
    ) -> None:
        self.folder, self.count, self.config = folder, count, config
        self.photos = PhotoInputs(photos, config.max_side, teacher.normalisation)
        self.teacher, self.student = teacher, student
        self.parts: list[MapInputs] = []

    def __len__(self) -> int:
        return self.count

    def store(self, frozen: Callable[[Tensor], Tensor], workers: int) -> Iterator[int]:
        """Computes what is not there yet; yields how many are done. `frozen` are the student's first stages."""
        see = _seer(self.teacher, self.config.precision)
        pixels = _Repainted(self.teacher, self.student)
        for begin in range(0, self.count, PART):
            size = min(PART, self.count - begin)

            def compute(image: Tensor) -> Tensor:
                with torch.no_grad():
                    return pack(frozen(pixels(image)), see(image))

            def read(number: int, begin: int = begin) -> Tensor:
                return self.photos((begin + number) % len(self.photos.photos), self._showing(begin + number))

            facts = {"begin": begin, "lessons": size}
            folder = self.folder / f"{begin:06d}"
            yield from (begin + done for done in store_maps(folder, facts, compute, read, size, workers))
            self.parts.append(MapInputs(folder))

    def _showing(self, number: int) -> Showing:
        config = self.config
        random = np.random.default_rng((config.seed, SIDES, number))
        side = round(math.exp(random.uniform(math.log(config.least_side), math.log(config.max_side))))
        return Showing(flip=bool(random.random() < 0.5), side=side)

    def __call__(self, number: int) -> Lesson:
        return unpack(self.parts[number // PART](number % PART).flatten(), self.teacher)


class _Repainted:
    """Pixels as one network wants them -> as another does."""

    def __init__(self, source: Network, target: Network) -> None:
        old, new = ([torch.tensor(part).view(3, 1, 1) for part in one.normalisation] for one in (source, target))
        self.gain = old[1] / new[1]
        self.shift = (old[0] - new[0]) / new[1]

    def __call__(self, image: Tensor) -> Tensor:
        return image * self.gain + self.shift


def _seer(teacher: Network, precision: str) -> Callable[[Tensor], Insight]:
    fire, trunk = teacher.module, teacher.fast.trunk  # type: ignore[attr-defined]
    assert isinstance(fire, Fire)
    if precision == "bf16" and isinstance(trunk, FusedResNet):
        trunk = Bf16Trunk(trunk)
    return lambda image: look(fire, trunk(image))


def pack(x: Tensor, seen: Insight) -> Tensor:
    """One row (1, 1, 1, n): channels, height and width of the map, how many places, and all values."""
    parts = [part for part in seen if part is not None]
    head = torch.tensor([*x.shape[1:], seen.keys.shape[1]], dtype=torch.float32)
    return torch.cat([head, x.flatten(), *(part.flatten() for part in parts)]).view(1, 1, 1, -1)


def unpack(row: Tensor, teacher: Network) -> Lesson:
    """What `pack` was given, rounded to 16 bits."""
    config = teacher.config
    assert config.lit is not None
    channels, height, width, places = (int(value) for value in row[:4])
    dim, templates, whitened = config.lit.dim, config.lit.templates, config.whitened_dim or config.lit.dim
    shapes: list[tuple[int, ...]] = [(channels, height, width), (places, dim), (places, dim)]
    shapes += [(templates, whitened), (templates,)]
    if config.points is not None:
        shapes += [(places, whitened), (places,)]
    sizes = [math.prod(shape) for shape in shapes]
    x, *seen = (part.view(1, *shape) for part, shape in zip(row[4:].split(sizes), shapes, strict=True))
    return Lesson(x, Insight(*seen, *([None] * (6 - len(seen)))))
