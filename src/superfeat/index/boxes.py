"""Photos with boxes into an index (R-ASMK): an image is the mean of its whole and of each box, each seen on its own.

Boxes come from a file (of a detector, say) or from where attention lies. A box is left, top, right, bottom as fractions
of the upright photo.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import UInt8

from superfeat.config import ExtractConfig
from superfeat.errors import DatasetError, SuperfeatError
from superfeat.extraction.decode import decode
from superfeat.features import Features, ImageWords
from superfeat.images import Photo, Skipped
from superfeat.index.entries import Added
from superfeat.index.identity import Register
from superfeat.index.index import Index
from superfeat.index.places import enclose
from superfeat.index.regional import regional_words

if TYPE_CHECKING:
    from superfeat.weights import Network

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


def add_photos_with_boxes(
    index: Index,
    network: "Network",
    photos: Iterable[Photo],
    config: ExtractConfig,
    boxes: Boxes | None = None,
    *,
    workers: int | None = None,
) -> Iterator[Added | Skipped]:
    """Adds each photo as the mean of its whole and of its boxes; without `boxes` of where its attention lies.

    Search such an index with SearchConfig(assignments=1, norm="none") for the scores of the paper.
    """
    from superfeat.extraction.extract import extract_pixels

    if network.one_vector:
        raise SuperfeatError("boxes are aggregated over words: take a network of local features")
    register = Register(index)

    def words_of(pixels: UInt8[np.ndarray, "height width 3"], name: str) -> ImageWords:
        whole = extract_pixels(network, pixels, config, name=name, workers=workers)
        chosen = attention_box(whole) if boxes is None else boxes.get(name, [])
        parts = [extract_pixels(network, crop(pixels, box), config, name=name, workers=workers) for box in chosen]
        return regional_words(index, [whole, *parts])

    for photo in photos:
        decoded = decode(photo, config)
        if isinstance(decoded, Skipped):
            yield decoded
        else:
            yield index.add(photo.name, words_of(decoded.pixels, photo.name), register.facts(photo))


def crop(pixels: UInt8[np.ndarray, "height width 3"], box: BoxOf) -> UInt8[np.ndarray, "h w 3"]:
    """The part of a photo in a box, one pixel at least."""
    height, width = pixels.shape[:2]
    left, top, right, bottom = box
    rows = slice(min(int(top * height), height - 1), max(int(top * height) + 1, round(bottom * height)))
    columns = slice(min(int(left * width), width - 1), max(int(left * width) + 1, round(right * width)))
    return np.ascontiguousarray(pixels[rows, columns])
