"""Settings of pretraining."""

import dataclasses
from typing import Literal

from superfeat.settings import require


@dataclasses.dataclass(frozen=True)
class PretrainConfig:
    """Classification of trunk + LIT + head (Appendix, "Pretraining the backbone together with LIT")."""

    first: bool = False  # whether `train` begins with it, on the same photos
    epochs: int = 80
    batch: int = 256
    chunk: int = 32  # images that share batch-norm statistics and a thread; the gradient is the whole batch's
    learning_rate: float = 0.01
    step_epochs: int = 20  # the learning rate is divided by 10 every so many epochs
    optimiser: Literal["sgd", "adam"] = "sgd"
    momentum: float = 0.9  # of SGD
    weight_decay: float = 1e-4
    decorrelation: float = 0.1
    hidden: int = 2048  # width of the head
    dropout: float = 0.5
    side: int = 224  # of the square crops
    smallest_crop: float = 0.25  # share of the photo's area that a crop has at least
    parts: Literal["all", "lit"] = "all"  # "lit": on cached maps of a frozen trunk
    crops: int = 1  # per image, cached where the trunk is frozen
    hold_out: float = 0.1  # share of each class's images that validates
    seed: int = 0

    def __post_init__(self) -> None:
        least = {"epochs": 1, "batch": 2, "chunk": 2, "step_epochs": 1, "hidden": 1, "side": 32, "crops": 1, "seed": 0}
        for name, value in least.items():
            require(getattr(self, name) >= value, f"pretraining.{name}", getattr(self, name), f"{value} or more")
        require(self.learning_rate > 0, "pretraining.learning_rate", self.learning_rate, "above 0")
        for name in ("momentum", "dropout", "hold_out"):
            require(0 <= getattr(self, name) < 1, f"pretraining.{name}", getattr(self, name), "at least 0, below 1")
        require(0 < self.smallest_crop <= 1, "pretraining.smallest_crop", self.smallest_crop, "above 0, at most 1")
        for name in ("weight_decay", "decorrelation"):
            require(getattr(self, name) >= 0, f"pretraining.{name}", getattr(self, name), "0 or more")
