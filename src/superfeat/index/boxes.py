"""Photos with boxes into an index (R-ASMK): an image is the mean of its whole and of each box, each seen on its own.

Boxes come from a file (of a detector, say) or from where attention lies. A box is left, top, right, bottom as fractions
of the upright photo.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import UInt8

from superfeat.config import ExtractConfig
from superfeat.errors import DatasetError, SuperfeatError
from superfeat.extraction.decode import read_for
from superfeat.features import Features, ImageWords
from superfeat.images import Photo
from superfeat.index.index import Index
from superfeat.index.places import enclose
from superfeat.index.regional import regional_words

if TYPE_CHECKING:
    from superfeat.weights import Network

ATTENTION = "attention"  # in place of a file of boxes
LEAST_SCORE = 0.1  # of a detected box
BoxOf = tuple[float, float, float, float]  # left, top, right, bottom as fractions
Boxes = Mapping[str, Sequence[BoxOf]]  # by the names of photos


def read_boxes(path: str | Path) -> dict[str, list[BoxOf]]:
    """A JSON file: {"photo.jpg": [[left, top, right, bottom], [left, top, right, bottom, score], …]}.

    Boxes of a score below 0.1 are left out. DatasetError for one that is no box, or lies outside of its photo.
    """
    try:
        read: Any = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DatasetError(f"cannot read the boxes in {path}: {error}") from error
    if not isinstance(read, dict) or not all(isinstance(boxes, list) for boxes in read.values()):
        raise DatasetError(f'{path} holds no boxes: write {{"photo.jpg": [[left, top, right, bottom, score]]}}')
    return {name: _checked(boxes, name, path) for name, boxes in read.items()}


def _checked(boxes: Sequence[Any], name: str, path: str | Path) -> list[BoxOf]:
    found: list[BoxOf] = []
    for box in boxes:
        numbers = isinstance(box, list) and all(isinstance(value, (int, float)) for value in box)
        if not numbers or len(box) not in (4, 5):
            raise DatasetError(f"{path}: {box!r} of {name} is no box; it must be [left, top, right, bottom, score]")
        left, top, right, bottom = (float(value) for value in box[:4])
        if not (0 <= left < right <= 1 and 0 <= top < bottom <= 1):
            raise DatasetError(
                f"{path}: the box {box} of {name} lies outside of the photo, or is empty; its values are fractions of "
                "width and height from 0 to 1, left before right and top before bottom"
            )
        if len(box) == 4 or box[4] >= LEAST_SCORE:
            found.append((left, top, right, bottom))
    return found


def attention_box(features: Features) -> list[BoxOf]:
    """A box of our own: the part of the photo where most of the attention lies; none if it is nearly all of it."""
    if features.regions is None or not len(features):
        return []
    region = enclose(features.regions.astype(np.float64), features.strengths.astype(np.float64))
    if region is None or region[2] * region[3] > 0.9:
        return []
    left, top, width, height = region
    return [(left, top, min(1.0, left + width), min(1.0, top + height))]


class PhotoRegions(NamedTuple):
    """Which parts of photos are looked at on their own: boxes by the names of photos; None: where attention lies.

    Search an index of such photos with SearchConfig(assignments=1, norm="none") for the scores of the paper.
    """

    boxes: Boxes | None = None

    @classmethod
    def read(cls, source: str | Path) -> "PhotoRegions":
        """The boxes of a file, or "attention"."""
        return cls(None if str(source) == ATTENTION else read_boxes(source))

    @property
    def kind(self) -> str:
        """As an index notes it."""
        return ATTENTION if self.boxes is None else "file"

    def require_known(self, names: Collection[str]) -> None:
        """DatasetError if there are boxes, and none of these photos has one."""
        if self.boxes and not any(name in self.boxes for name in names):
            asked, there = next(iter(self.boxes)), next(iter(names), "nothing")
            raise DatasetError(f"no photo has a box: the boxes are of photos like {asked}, and these are like {there}")

    def words(
        self,
        index: Index,
        network: "Network",
        photo: Photo,
        whole: Features,
        config: ExtractConfig,
        workers: int | None,
    ) -> ImageWords:
        """A photo with these features as the mean of its whole and of its boxes. ImageError if it cannot be read."""
        from superfeat.extraction.extract import extract_pixels

        if network.one_vector:
            raise SuperfeatError("boxes are aggregated over words: take a network of local features")
        chosen = attention_box(whole) if self.boxes is None else self.boxes.get(photo.name, [])
        pixels = read_for(config, photo.where, photo.box).pixels if chosen else None
        parts = [] if pixels is None else [crop(pixels, box) for box in chosen]
        looked = [extract_pixels(network, part, config, name=photo.name, workers=workers) for part in parts]
        return regional_words(index, [whole, *looked])


def crop(pixels: UInt8[np.ndarray, "height width 3"], box: BoxOf) -> UInt8[np.ndarray, "h w 3"]:
    """The part of a photo in a box, one pixel at least."""
    height, width = pixels.shape[:2]
    left, top, right, bottom = box
    rows = slice(min(int(top * height), height - 1), max(int(top * height) + 1, round(bottom * height)))
    columns = slice(min(int(left * width), width - 1), max(int(left * width) + 1, round(right * width)))
    return np.ascontiguousarray(pixels[rows, columns])
