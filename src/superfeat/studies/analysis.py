"""What an analysis came to: its numbers, as its JSON file holds them, and what is drawn of it.

A number is rounded, and None where there is none: JSON knows no NaN.
"""

import dataclasses
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from superfeat.figures import Panel, Picture
from superfeat.images import Skipped
from superfeat.settings import Values


class Analysing(NamedTuple):
    """How far an analysis is: `done` of `total` photos in this pass over them."""

    stage: Literal["ids", "maps", "correlation", "features"]
    done: int
    total: int


# -- Numbers


@dataclasses.dataclass(frozen=True)
class Look:
    """Where a super-feature looks; places are shares of the photo's width and height."""

    strength: float | None
    x: float | None
    y: float | None
    spread_x: float | None
    spread_y: float | None


@dataclasses.dataclass(frozen=True)
class LooksOfIds:
    """In one photo, by ID."""

    name: str
    ids: dict[str, Look]


@dataclasses.dataclass(frozen=True)
class LooksOverScales:
    """Of one ID in one photo, by scale."""

    name: str
    id: int
    scales: dict[str, Look]


@dataclasses.dataclass(frozen=True)
class NamedLook:
    """A photo in which an ID is strong, and where it looks there."""

    name: str
    strength: float | None
    x: float | None
    y: float | None
    spread_x: float | None
    spread_y: float | None


@dataclasses.dataclass(frozen=True)
class LooksOfId:
    """The photos in which an ID is strongest; the mean cosine between its vectors in these, and in all."""

    id: int
    cosine: float | None
    cosine_of_all: float | None
    photos: Sequence[NamedLook]


@dataclasses.dataclass(frozen=True)
class Alike:
    """Two IDs, and the cosine between their maps."""

    ids: tuple[int, int]
    cosine: float | None


@dataclasses.dataclass(frozen=True)
class AttentionNumbers:
    """Of kind attention."""

    ids: Sequence[int]
    photos: Sequence[LooksOfIds]


@dataclasses.dataclass(frozen=True)
class ScaleAttentionNumbers:
    """Of kind attention-scales."""

    ids: Sequence[int]
    photos: Sequence[LooksOverScales]


@dataclasses.dataclass(frozen=True)
class IdNumbers:
    """Of kind ids."""

    ids: Sequence[LooksOfId]


@dataclasses.dataclass(frozen=True)
class CorrelationNumbers:
    """Of kind correlation: the mean over all pairs, and the pairs that are most alike."""

    mean: float | None
    most_alike: Sequence[Alike]


@dataclasses.dataclass(frozen=True)
class RedundancyNumbers:
    """Of kind redundancy: the mean cosine to the nearest, for each of `counts`."""

    counts: Sequence[int]
    cosines: Sequence[float | None]


@dataclasses.dataclass(frozen=True)
class ScaleNumbers:
    """Of kind scales: `selected` features of a photo, and three measures of each scale."""

    scales: Sequence[float]
    selected: int
    share_of_the_selected: Sequence[float | None]
    share_selected: Sequence[float | None]
    features: Sequence[float | None]


@dataclasses.dataclass(frozen=True)
class WordNumbers:
    """Of kind words: how many a photo has, for each of `counts`."""

    counts: Sequence[int]
    words: Sequence[float]
    codebook_words: int


Numbers = (
    AttentionNumbers
    | ScaleAttentionNumbers
    | IdNumbers
    | CorrelationNumbers
    | RedundancyNumbers
    | ScaleNumbers
    | WordNumbers
)


# -- What is drawn


@dataclasses.dataclass(frozen=True)
class Curves:
    """Lines."""

    panels: Sequence[Panel]


@dataclasses.dataclass(frozen=True)
class Bars:
    """Panels side by side."""

    panels: Sequence[Panel]


@dataclasses.dataclass(frozen=True)
class Matrix:
    """Correlations as colours."""

    title: str
    values: Float[np.ndarray, "n n"]
    note: str


@dataclasses.dataclass(frozen=True)
class PhotoRows:
    """Rows of photos; None leaves a place empty."""

    rows: Sequence[Sequence[Picture | None]]
    row_titles: Sequence[str] = ()
    column_titles: Sequence[str] = ()


Figure = Curves | Bars | Matrix | PhotoRows


@dataclasses.dataclass(frozen=True)
class Finding:
    """What a kind of analysis found, in words, numbers and a figure."""

    title: str
    caption: str
    numbers: Numbers
    figure: Figure


@dataclasses.dataclass(frozen=True)
class Analysis:
    """What was found in so many `images`, by which `network`, with which settings; and the photos that were skipped."""

    kind: str
    found: Finding
    images: int
    network: Values  # its digest and its configuration
    extract: Values  # the settings, but for those that the kind decides itself
    skipped: Sequence[Skipped]
