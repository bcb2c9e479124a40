"""A photo that was found, as it is told, shown in a notebook, and saved."""

from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import NamedTuple

import numpy as np

from superfeat.errors import ImageError
from superfeat.found.document import embed, save_shown
from superfeat.images import read_image
from superfeat.index.places import Region
from superfeat.rerank.geometry import WHOLE, Outline, Transform, outline_of

THUMBNAIL = 180  # pixels of the longer side, in a notebook
FIGURE = "display:inline-block;vertical-align:top;margin:4px;font:12px sans-serif;overflow-wrap:anywhere"
SPOT = "position:absolute;box-sizing:border-box;border:2px solid #fff;outline:1px solid #d55e00"


class FoundPhoto(NamedTuple):
    """A photo that was found."""

    name: str
    id: int
    score: float
    probability: float | None  # that it shows the same thing; None without a calibration
    region: Region | None  # where in it the match lies; None if the index does not know
    path: str | None  # where its file lay when it was indexed
    gone: bool = False  # the file is no longer there
    copy_of: str | None = None  # the query, or a better or equal hit, with the very same bytes
    verified: float | None = None  # share of the score whose words lie as in the query; None if nobody knows
    transform: Transform | None = None  # that they agree on: from fractions of the query to fractions of this photo
    matched: int | None = None  # matches of keypoints that agree on one transform; None if they were not matched
    certain: bool = False  # they are more than strangers have

    def __repr__(self) -> str:
        return f"<FoundPhoto {self.name!r}: {', '.join(self._facts())}>"

    def _facts(self) -> Iterable[str]:
        if self.probability is not None:
            yield f"{self.probability:.1%}"
        yield f"score {self.score:.4f}"
        if self.verified is not None:
            yield f"{self.verified:.0%} verified"
        if self.matched is not None:
            yield f"{self.matched} matches{', certain' if self.certain else ''}"
        if self.gone:
            yield "its file is no longer there"
        if self.copy_of is not None:
            yield f"a copy of {self.copy_of}"

    def _repr_html_(self) -> str:
        return figure(self.pixels(THUMBNAIL), [self.name, *self._facts()], THUMBNAIL, self.region)

    def outline(self, box: Region = WHOLE) -> Outline | None:
        """Where the corners of the query, or of a box in it, lie in this photo, by the transform."""
        return None if self.transform is None else outline_of(self.transform, box)

    def pixels(self, side: int) -> np.ndarray | None:
        """Its photo, upright, `side` pixels along the longer side at most; None if its file cannot be read."""
        try:
            return None if self.path is None else read_image(self.path, max_side=side, draft=True)
        except ImageError:
            return None

    def save(self, path: str | Path) -> None:
        """As a page (.html) or for programs (.json)."""
        save_shown(path, f"superfeat: {self.name}", self._repr_html_(), self._asdict())


class IndexedPhoto(NamedTuple):
    """A photo of the index, and where its file lay when it was indexed."""

    name: str
    id: int
    path: str | None


def figure(pixels: np.ndarray | None, lines: Iterable[str], side: int, region: Region | None = None) -> str:
    """A photo with a few lines of text as a piece of HTML that needs no style but its own; a region is outlined."""
    texts = [escape(line.encode(errors="replace").decode()) for line in lines]
    shown, spot = "", ""
    if region is not None:
        left, top, width, height = (100 * value for value in region)
        spot = f'<i style="{SPOT};left:{left:.1f}%;top:{top:.1f}%;width:{width:.1f}%;height:{height:.1f}%"></i>'
    if pixels is not None:
        photo = f'<img alt="{texts[0]}" src="{embed(pixels, side)}" style="display:block;max-width:100%">'
        shown = f'<div style="position:relative;display:inline-block">{photo}{spot}</div>'
    return f'<figure style="{FIGURE};width:{side}px">{shown}<figcaption>{"<br>".join(texts)}</figcaption></figure>'
