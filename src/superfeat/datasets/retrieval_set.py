"""What searching is judged by: a database of photos, and queries with the numbers of the right answers."""

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from PIL import Image

from superfeat.datasets.training_set import TrainingSet, below
from superfeat.errors import DatasetError
from superfeat.images import REFUSED_FORMATS, Box, Photo, register_heif

POSITIVE_KEYS = ("pos", "easy", "hard")
Protocol = Literal["plain", "revisited", "ukbench"]


@dataclasses.dataclass(frozen=True)
class Query:
    """A photo to search with, the numbers of the database photos that are right, and of those not judged."""

    photo: Photo
    positives: tuple[int, ...]
    junk: tuple[int, ...] = ()  # neither right nor wrong: taken out of the ranking
    hard: tuple[int, ...] = ()  # those of the positives that a graded set calls hard; the others are easy

    @property
    def easy(self) -> tuple[int, ...]:
        """The positives that are not hard."""
        return tuple(sorted(set(self.positives) - set(self.hard)))


@dataclasses.dataclass(frozen=True)
class RetrievalSet:
    """A database, the queries that are asked of it, and how the answers are judged.

    `plain` is mean average precision; `revisited` has the grades Easy, Medium and Hard; `ukbench` counts the right
    ones among the first four.
    """

    name: str
    photos: tuple[Photo, ...]
    queries: tuple[Query, ...]
    protocol: Protocol = "plain"
    files: tuple[Path, ...] = ()  # that say what is asked, for the record
    as_stored: bool = False  # whether its images are read as stored, as a published protocol says, or turned upright
    left_out: int = 0  # queries without a positive


def with_positives(
    name: str,
    photos: Iterable[Photo],
    queries: Iterable[Query],
    protocol: Protocol = "plain",
    files: Iterable[Path] = (),
    *,
    as_stored: bool = True,
) -> RetrievalSet:
    """A retrieval set of the queries that have a positive; DatasetError if none has."""
    asked = list(queries)
    kept = tuple(query for query in asked if query.positives)
    if not kept:
        raise DatasetError(f"{name}: none of its {len(asked)} queries has a positive, so there is nothing to measure")
    return RetrievalSet(name, tuple(photos), kept, protocol, tuple(files), as_stored, len(asked) - len(kept))


def each_photo_in_turn(training_set: TrainingSet, name: str) -> RetrievalSet:
    """Every image of a thing with two or more is a query, its other images are the positives, itself is junk."""
    members: dict[int, list[int]] = {}
    for image, thing in enumerate(training_set.things.tolist()):
        members.setdefault(thing, []).append(image)
    queries = (
        Query(photo, tuple(other for other in members[thing] if other != image), (image,))
        for image, (photo, thing) in enumerate(zip(training_set.photos, training_set.things.tolist(), strict=True))
    )
    return with_positives(name, training_set.photos, queries, as_stored=False)


def read_gnd_json(path: str | Path, images: str | Path) -> RetrievalSet:
    """Reads `db`, paths below `images`, and `queries`: `img`, `pos` or `easy` and `hard`, `junk`, `bbox_rel`, `self`.

    Easy and hard are both positive; where all queries have them, the set is judged by grades. The query's own photo
    (`self`) is junk.
    """
    path, images = Path(path), Path(images)
    if not images.is_dir():
        raise DatasetError(f"there is no folder {images}: give the one that the paths in {path} begin from")
    contents = _read_json(path)
    database = [Photo(images / name, name) for name in _names(contents.get("db"), f"{path}: 'db'")]
    asked = contents.get("queries")
    if not isinstance(asked, list) or not all(isinstance(query, dict) for query in asked):
        raise DatasetError(f"{path}: 'queries' must be a list of objects with 'img' and 'pos'")
    queries = [
        _query(query, images, len(database), f"{path}: query {number}") for number, query in enumerate(asked, start=1)
    ]
    name = contents.get("name")
    graded: Protocol = "revisited" if all("easy" in query and "hard" in query for query in asked) else "plain"
    return with_positives(name if isinstance(name, str) and name else path.stem, database, queries, graded, [path])


def _read_json(path: Path) -> dict[str, Any]:
    try:
        contents = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise DatasetError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:  # bad JSON and bad UTF-8 are ValueErrors
        raise DatasetError(f"{path} is not JSON ({error}); it must hold an object with 'db' and 'queries'") from error
    if not isinstance(contents, dict):
        raise DatasetError(f"{path} holds no object: it must have 'db' (paths) and 'queries'")
    return contents


def _names(values: Any, what: str) -> list[str]:
    """Paths below the folder of images, none of which leads out of it."""
    if not isinstance(values, list) or not values:
        raise DatasetError(f"{what} must be a list of paths of photos")
    return [below(value, what) for value in values]


def _query(query: Mapping[str, Any], images: Path, size: int, what: str) -> Query:
    name = below(query.get("img"), f"{what}: 'img'")
    if not any(key in query for key in POSITIVE_KEYS):
        raise DatasetError(f"{what} has neither 'pos' nor 'easy' and 'hard'")
    positives = {image for key in POSITIVE_KEYS for image in _numbers(query.get(key, []), size, f"{what}: '{key}'")}
    junk = set(_numbers(query.get("junk", []), size, f"{what}: 'junk'"))
    if query.get("self") is not None:
        own = set(_numbers([query["self"]], size, f"{what}: 'self'"))
        positives -= own
        junk |= own
    if both := positives & junk:
        raise DatasetError(f"{what}: photo {min(both)} is both a positive and junk: take it out of one")
    box = _box(query["bbox_rel"], images / name, what) if query.get("bbox_rel") is not None else None
    hard = positives & set(query.get("hard", []))
    return Query(Photo(images / name, name, box), tuple(sorted(positives)), tuple(sorted(junk)), tuple(sorted(hard)))


def _numbers(values: Any, size: int, what: str) -> list[int]:
    if not isinstance(values, list):
        raise DatasetError(f"{what} must be a list of numbers of photos in 'db'")
    for value in values:
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < size:
            raise DatasetError(f"{what} holds {value!r}, but 'db' has {size} photos, numbered from 0")
    return values


def _box(fractions: Any, path: Path, what: str) -> Box:
    """From fractions of the stored image to its pixels."""
    numbers = isinstance(fractions, list) and len(fractions) == 4 and all(_is_fraction(edge) for edge in fractions)
    if not numbers or not (fractions[0] < fractions[2] and fractions[1] < fractions[3]):
        raise DatasetError(
            f"{what}: 'bbox_rel' is {fractions}; it must be x1 < x2 and y1 < y2 from 0 to 1: x1, y1, x2, y2"
        )
    width, height = _stored_size(path, what)
    left, upper, right, lower = np.asarray(fractions, np.float64) * (width, height, width, height)
    return float(left), float(upper), float(right), float(lower)


def _is_fraction(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and 0 <= value <= 1


def _stored_size(path: Path, what: str) -> tuple[int, int]:
    """Width and height as stored, from the header alone."""
    register_heif()
    Image.init()
    try:
        with Image.open(path, formats=[name for name in Image.OPEN if name not in REFUSED_FORMATS]) as image:
            return image.size
    except Exception as error:  # decoders of rare formats raise all sorts of things on damaged files
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise DatasetError(f"{what}: its box needs the size of {path}, which cannot be read ({reason})") from error
