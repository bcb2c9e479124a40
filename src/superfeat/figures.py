"""What a figure shows, before it is drawn."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, UInt8


@dataclasses.dataclass(frozen=True)
class Series:
    """A line, or one bar in each group. `paper` marks what the paper reports."""

    name: str
    x: Sequence[float | str]
    y: Sequence[float]
    error: Sequence[float] | None = None
    paper: bool = False

    @property
    def label(self) -> str:
        """The name, which says where it is the paper's."""
        return self.name if not self.paper or "paper" in self.name.lower() else f"{self.name} (paper)"


@dataclasses.dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    log_x: bool = False
    note: str = ""
    y_limits: tuple[float, float] | None = None


@dataclasses.dataclass(frozen=True)
class Picture:
    """A photo, and where a network looks in it, if that is to be shown."""

    pixels: UInt8[np.ndarray, "height width 3"]
    attention: Float[np.ndarray, "rows columns"] | None = None
    caption: str = ""
