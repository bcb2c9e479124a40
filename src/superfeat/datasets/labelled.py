"""A training set from a table: a CSV file that names the thing of each image, as Google Landmarks v2 has it."""

import contextlib
import csv
import dataclasses
import difflib
import unicodedata
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

import numpy as np
from jaxtyping import Int64

from superfeat.datasets.training_set import TrainingSet, below, from_labels, is_file, listed
from superfeat.errors import DatasetError
from superfeat.images import Photo, image_endings

IMAGE_COLUMNS = ("image", "path", "id")
THING_COLUMNS = ("thing", "landmark_id", "label")
LIST_COLUMN = "images"  # of GLDv2-clean: all ids of a thing in one cell
LEFT_OUT = -1
LONGEST_CELL = 2**31 - 1


@dataclasses.dataclass(frozen=True, eq=False)
class PairRows:
    """Rows of (query, positive), and how many rows named an image that was left out."""

    rows: Int64[np.ndarray, "pairs 2"]
    left_out: int


def read_labelled(
    labels: str | Path, images: str | Path, pairs: str | Path | None = None, *, allow_missing: bool = False
) -> TrainingSet:
    """Images below `images` with the thing of each from a CSV file: `image,thing`, `id,landmark_id` and the like.

    Missing image files are refused, or left out with a note if `allow_missing`.
    """
    labels, images = Path(labels), Path(images)
    if not images.is_dir():
        raise DatasetError(f"there is no folder {images}: give the one that holds the images of {labels}")
    label_of, notes = read_labels(labels)
    endings = image_endings()
    found = {name: _find(_candidates(images, name, endings)) for name in label_of}
    missing = [name for name, path in found.items() if path is None]
    if missing and (not allow_missing or len(missing) == len(found)):
        raise DatasetError(
            f"{len(missing)} of the {len(found)} images of {labels} are missing ({listed(missing)}); the first was "
            f"looked for at {' and '.join(str(path) for path in _candidates(images, missing[0], endings))}: "
            "fetch them, or allow missing images to train without"
        )
    if missing:
        notes.append(f"images of {labels.name} that are missing and were left out: {len(missing)} ({listed(missing)})")
    number_of = _number_files(found, label_of, labels)
    photos = [Photo(path, path.relative_to(images).as_posix()) for path in number_of]
    things = {number_of[path]: label_of[name] for name, path in found.items() if path is not None}
    rows = None
    if pairs is not None:
        known = {name: LEFT_OUT if path is None else number_of[path] for name, path in found.items()}
        read = read_pairs(Path(pairs), {photo.name: number for number, photo in enumerate(photos)} | known)
        rows = read.rows
        notes += [f"pairs with a missing image that were left out: {read.left_out}"] if read.left_out else []
    return from_labels(photos, list(things.values()), rows, str(labels), notes)


def _number_files(found: Mapping[str, Path | None], label_of: Mapping[str, str], labels: Path) -> dict[Path, int]:
    """A number for each file; two names of one file must agree on what it shows."""
    name_of: dict[Path, str] = {}
    for name, path in found.items():
        if path is None:
            continue
        first = name_of.setdefault(path, name)
        if label_of[first] != label_of[name]:
            raise DatasetError(
                f"{labels} says that {first} shows {label_of[first]} and that {name} shows {label_of[name]}, "
                f"but both are {path}: keep one"
            )
    return {path: number for number, path in enumerate(name_of)}


def read_labels(labels: Path) -> tuple[dict[str, str], list[str]]:
    """The thing of each image in the order of the file; the same line twice is one."""
    label_of: dict[str, str] = {}
    named = 0
    with contextlib.closing(_labelled_rows(labels)) as rows:
        for line, names, thing in rows:
            for name in names:
                name = below(name.strip().replace("\\", "/"), f"line {line} of {labels}")
                if label_of.setdefault(name, thing) != thing:
                    raise DatasetError(
                        f"line {line} of {labels} says that {name} shows {thing}, "
                        f"an earlier one that it shows {label_of[name]}: keep one"
                    )
                named += 1
    if not label_of:
        raise DatasetError(f"{labels} names no images: write one line with the image and its thing for each")
    repeated = named - len(label_of)
    return label_of, [f"images that {labels.name} names more than once: {repeated}"] if repeated else []


def _labelled_rows(labels: Path) -> Generator[tuple[int, list[str], str], None, None]:
    """Line, images and thing of each row."""
    with _table(labels) as reader:
        header = reader.fieldnames or ()
        image = next((name for name in (*IMAGE_COLUMNS, LIST_COLUMN) if name in header), None)
        thing = next((name for name in THING_COLUMNS if name in header), None)
        if image is None or thing is None:
            raise DatasetError(
                f"{labels} has the columns {', '.join(header) or '(none)'}, but needs one of "
                f"{', '.join(IMAGE_COLUMNS)} and one of {', '.join(THING_COLUMNS)} (or landmark_id,images)"
            )
        for row in reader:
            cells = [_cell(row, column, reader.line_num, labels) for column in (image, thing)]
            yield reader.line_num, cells[0].split() if image == LIST_COLUMN else cells[:1], cells[1].strip()


def _candidates(images: Path, name: str, endings: Collection[str]) -> list[Path]:
    """Where the image of this name may lie."""
    plain = [images / name]
    if Path(name).suffix.lower() in endings:
        return plain
    short = PurePosixPath(name).name
    folders = [images / short[0] / short[1] / short[2] / f"{short}.jpg"] if len(short) >= 3 and short == name else []
    return [*plain, images / f"{name}.jpg", *folders]


def _find(candidates: Sequence[Path]) -> Path | None:
    return next((path for path in candidates if is_file(path)), None)


def read_pairs(path: Path, numbers: Mapping[str, int]) -> PairRows:
    """Image numbers of a CSV file with the columns `query` and `positive`; rows with a left-out image are counted."""
    plain = {_plain(name): number for name, number in numbers.items()}
    rows: list[list[int]] = []
    with _table(path) as reader:
        header = reader.fieldnames or ()
        if "query" not in header or "positive" not in header:
            raise DatasetError(
                f"{path} has the columns {', '.join(header) or '(none)'}, but needs a first line with query,positive"
            )
        for row in reader:
            row_numbers = []
            for column in ("query", "positive"):
                name = _cell(row, column, reader.line_num, path)
                number = numbers.get(name, plain.get(_plain(name)))
                if number is None:
                    raise DatasetError(
                        f"line {reader.line_num} of {path}: there is no photo {name!r}; {_suggestion(name, numbers)}"
                    )
                row_numbers.append(number)
            rows.append(row_numbers)
    if not rows:
        raise DatasetError(f"{path} holds no pairs: write one line with query,positive for each, or take the file away")
    given = np.asarray(rows, np.int64)
    kept = given[(given != LEFT_OUT).all(axis=1)]
    return PairRows(kept, len(given) - len(kept))


def _plain(name: str) -> str:
    """One spelling for a path that Windows, macOS and people write in several."""
    return unicodedata.normalize("NFC", PurePosixPath(name.strip().replace("\\", "/")).as_posix())


def _suggestion(name: str, numbers: Mapping[str, int]) -> str:
    last = PurePosixPath(_plain(name)).name
    same = next((known for known in numbers if PurePosixPath(known).name == last), None)
    near = [same] if same else difflib.get_close_matches(_plain(name), list(numbers), n=1)
    return f"did you mean {near[0]!r}?" if near else "names are relative to the folder of photos"


@contextlib.contextmanager
def _table(path: Path) -> Iterator["csv.DictReader[str]"]:
    """A CSV file with a header, in UTF-8 with or without a mark; errors in one line."""
    limit = csv.field_size_limit(LONGEST_CELL)  # GLDv2-clean has cells of hundreds of kilobytes
    reader = None
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            reader.fieldnames = [name.strip() for name in reader.fieldnames or ()]
            yield reader
    except OSError as error:
        raise DatasetError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise DatasetError(f"{path} is not UTF-8 text: save it as 'CSV UTF-8'") from error
    except csv.Error as error:
        raise DatasetError(f"line {reader.reader.line_num if reader else 1} of {path} is no CSV: {error}") from error
    finally:
        csv.field_size_limit(limit)


def _cell(row: Mapping[str, str | None], column: str, line: int, path: Path) -> str:
    value = row[column]
    if value is None or not value.strip():
        raise DatasetError(f"line {line} of {path} has no {column}: fill it in, or take the line out")
    return value
