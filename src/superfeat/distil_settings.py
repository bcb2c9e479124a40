"""Settings of distillation: a network that learns to give what another one gives."""

import dataclasses
from typing import Literal

from superfeat.settings import require


@dataclasses.dataclass(frozen=True)
class DistilConfig:
    """How a student learns from its teacher, on any photos, without labels."""

    teacher: str | None = None  # None: the network that is used where nobody says
    photos: int = 5000  # that it learns from, drawn at random; all there are, if fewer
    lessons: int = 1  # of each photo: at so many sizes
    least_side: int = 160  # the longest side of a lesson is drawn between the two, small ones more often
    max_side: int = 352
    epochs: int = 10
    batch: int = 8  # lessons of a step
    learning_rate: float = 1e-3  # of the first step after the warm-up; it falls to 0 along a cosine
    warm_up: int = 50  # steps
    trunk_rate: float = 0.5  # of the trunk without its neck, as a share of the learning rate
    average: float = 0.99  # of the weights over the steps: how much of the average stays each step; 0 is none
    frozen_stages: int = 1  # of the trunk, from the pixels on; their maps are stored
    places: float = 0.5  # weights of the losses: what LIT reads at each place,
    superfeatures: float = 1.0  # the super-features themselves,
    points: float = 0.5  # and the points
    precision: Literal["float32", "bf16"] = "float32"  # of the teacher's trunk
    start_lessons: int = 1000  # from which the first projections are solved for
    held_out: int = 64  # photos that judge and do not train
    seed: int = 0

    def __post_init__(self) -> None:
        least = {"photos": 1, "lessons": 1, "least_side": 64, "max_side": self.least_side, "epochs": 1, "batch": 1}
        least |= {"warm_up": 0, "frozen_stages": 1, "start_lessons": 1, "held_out": 0, "seed": 0}
        for name, value in least.items():
            require(getattr(self, name) >= value, f"distillation.{name}", getattr(self, name), f"{value} or more")
        for name in ("learning_rate", "trunk_rate"):
            require(getattr(self, name) > 0, f"distillation.{name}", getattr(self, name), "above 0")
        for name in ("places", "superfeatures", "points"):
            require(getattr(self, name) >= 0, f"distillation.{name}", getattr(self, name), "0 or more")
        require(0 <= self.average < 1, "distillation.average", self.average, "0 or more, and below 1")
