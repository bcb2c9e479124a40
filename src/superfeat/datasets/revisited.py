"""ROxford5k and RParis6k with their published lists, and the million distractors that can be added to either."""

import contextlib
import gc
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from superfeat.datasets.retrieval_set import Query, RetrievalSet, with_positives
from superfeat.datasets.training_set import require_entries, require_inside, whole_numbers
from superfeat.errors import DatasetError
from superfeat.images import Box, Photo
from superfeat.storage.unpickle import read_pickle

KEYS = ("imlist", "qimlist", "gnd")
TRUTH_KEYS = ("bbx", "easy", "hard")  # and perhaps junk
DISTRACTORS = "revisitop1m"
IN_NO_NAME = r"/\\:\x00-\x1f\x7f\ud800-\udfff"  # in no name: what parts a path, and what no file system or screen takes
PART = rf"\.*[^\s.{IN_NO_NAME}][^{IN_NO_NAME}]*"  # not of dots alone, which would lead elsewhere
FILE_NAME = re.compile(PART)
FILE_PATH = re.compile(f"{PART}(?:/{PART})*")
SHOWN_CHARACTERS = 80


def read_revisited(root: str | Path, name: Literal["roxford5k", "rparis6k"]) -> RetrievalSet:
    """The lists of gnd_{name}.pkl, with the images in jpg/ beside it, which are not looked for.

    Easy and hard images are positives. One that is junk too is junk, and one that is easy and hard is hard.
    """
    file = find_file(Path(root), name, f"gnd_{name}.pkl")
    contents = require_entries(read_pickle(file), KEYS, str(file))
    database, asked = (_file_names(contents[key], f"{file}: '{key}'") for key in ("imlist", "qimlist"))
    if len(set(database)) < len(database):
        raise DatasetError(f"{file}: 'imlist' holds an image twice; the file is damaged: fetch it again")
    truths = contents["gnd"]
    if not isinstance(truths, (list, tuple)) or len(truths) != len(asked):
        raise DatasetError(f"{file}: 'gnd' must be a list with one entry for each of the {len(asked)} queries")
    folder = file.parent / "jpg"
    photos = [Photo(folder / f"{image}.jpg", image) for image in database]
    queries = []
    for number, (image, truth) in enumerate(zip(asked, truths, strict=True)):
        what = f"{file}: 'gnd' of query {number}"
        entries = require_entries(truth, TRUTH_KEYS, what)
        photo = Photo(folder / f"{image}.jpg", image, read_box(entries["bbx"], f"{what}: 'bbx'"))
        queries.append(_query(photo, entries, len(photos), what))
    return with_positives(name, photos, queries, "revisited", [file])


def read_distractors(root: str | Path) -> tuple[Photo, ...]:
    """The images that revisitop1m.txt names, one a line, below jpg/ beside it. They are not looked for.

    A name without an ending is that of a .jpg file.
    """
    file = find_file(Path(root), DISTRACTORS, f"{DISTRACTORS}.txt")
    folder = file.parent / "jpg"
    names: dict[str, str] = {}  # of the file -> in the list
    try:
        with file.open(encoding="utf-8-sig") as lines:
            for number, line in enumerate(lines, start=1):
                if not (name := line.strip()):
                    continue
                if not FILE_PATH.fullmatch(name):
                    raise _no_name(name, f"line {number} of {file}")
                image = name if "." in name[name.rfind("/") + 1 :] else f"{name}.jpg"
                if image in names:
                    raise DatasetError(f"line {number} of {file} names {image[:SHOWN_CHARACTERS]} again: keep one line")
                names[image] = name
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"cannot read {file}: {error}; it must be UTF-8 text with one image name a line") from error
    if not names:
        raise DatasetError(f"{file} names no images; it must have one name a line: fetch it again")
    with _no_collection():
        return tuple(Photo(folder / image, name) for image, name in names.items())


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Keeps the garbage collector from going through a million new objects again and again: half of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def places(root: Path, name: str) -> tuple[Path, Path, Path]:
    """Where the files of a benchmark may lie: the folder itself, one of the benchmark's name, and cirtorch's."""
    return root, root / name, root / "test" / name


def find_file(root: Path, name: str, file: str) -> Path:
    """A list of the benchmark `name`, wherever it may lie."""
    for place in places(root, name):
        if (place / file).is_file():
            return place / file
    first, *others = places(root, name)
    raise DatasetError(
        f"there is no {file} at {first}, {' or '.join(map(str, others))}: put the published file there, "
        "with the images below jpg/ beside it"
    )


def file_name(value: Any, what: str) -> str:
    """The name of an image, which leads out of no folder; DatasetError for anything else."""
    if not isinstance(value, str) or not FILE_NAME.fullmatch(value):
        raise _no_name(value, what)
    return str(value)


def read_box(values: Any, what: str) -> Box:
    """Left, upper, right, lower from a list or array of four numbers."""
    given = values.tolist() if isinstance(values, np.ndarray) else values
    edges = [_edge(value) for value in given] if isinstance(given, (list, tuple)) and len(given) == 4 else [math.nan]
    if not all(map(math.isfinite, edges)) or not (edges[0] < edges[2] and edges[1] < edges[3]):
        raise DatasetError(f"{what} must be a box: four numbers x1, y1, x2, y2 with x1 < x2 and y1 < y2, in pixels")
    left, upper, right, lower = edges
    return left, upper, right, lower


def _edge(value: Any) -> float:
    """A number of any kind; NaN for what is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _no_name(value: Any, what: str) -> DatasetError:
    # What is no text is not shown: a small file can hold lists whose printed form fills the memory.
    shown = repr(value[:SHOWN_CHARACTERS]) if isinstance(value, str) else f"something of type {type(value).__name__}"
    return DatasetError(f"{what} holds {shown}, which is no name of an image; the file is damaged: fetch it again")


def _file_names(values: Any, what: str) -> list[str]:
    if isinstance(values, np.ndarray) and values.ndim == 1:
        values = values.tolist()
    if not isinstance(values, (list, tuple)) or not values:
        raise DatasetError(f"{what} must be a list of image names; the file is damaged or of another kind")
    return [file_name(value, what) for value in values]


def _query(photo: Photo, truth: Mapping[str, Any], size: int, what: str) -> Query:
    easy, hard, junk = (_images(truth.get(key, ()), size, f"{what}: '{key}'") for key in ("easy", "hard", "junk"))
    positives = (easy | hard) - junk
    return Query(photo, tuple(sorted(positives)), tuple(sorted(junk)), tuple(sorted(hard & positives)))


def _images(values: Any, size: int, what: str) -> set[int]:
    """Numbers of images of the database, from a list or array."""
    numbers = whole_numbers(values, what)
    require_inside(numbers, size, what)
    return set(numbers.tolist())
