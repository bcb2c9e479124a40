"""Oxford5k and Paris6k as first published: text files of good, ok and junk images for each query."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from superfeat.datasets.retrieval_set import Query, RetrievalSet, with_positives
from superfeat.datasets.revisited import file_name, places, read_box
from superfeat.errors import DatasetError
from superfeat.images import Box, Photo
from superfeat.sources.listing import list_photos

Name = Literal["oxford5k", "paris6k"]
TRUTH_FOLDERS: dict[Name, tuple[str, ...]] = {
    "oxford5k": ("", "gt", "groundtruth", "gt_files_170407"),
    "paris6k": ("", "gt", "groundtruth", "paris_120310"),
}
IMAGE_FOLDERS: dict[Name, tuple[str, ...]] = {
    "oxford5k": ("jpg", "oxbuild_images", "images"),
    "paris6k": ("jpg", "paris", "images"),
}
QUERY_END = "_query.txt"
LISTS = ("good", "ok", "junk")
PREFIX = "oxc1_"  # before the names of Oxford's queries


def read_oxford(root: str | Path, name: Name) -> RetrievalSet:
    """Good and ok images are positives, the query's own among them as the lists have it; all images are the database.

    An image that is junk and good or ok is junk.
    """
    root = Path(root)
    asked = _find_queries(root, name)
    folder, photos = _find_images(root, name)
    numbers = {photo.name: number for number, photo in enumerate(photos)}
    queries, files = [], []
    for file in asked:
        image, box = _read_query(file)
        lists = [file.with_name(file.name.removesuffix(QUERY_END) + f"_{kind}.txt") for kind in LISTS]
        good, ok, junk = ({_number(line, numbers, one, folder) for line in _read_lines(one)} for one in lists)
        own = photos[_number(image, numbers, file, folder)]
        queries.append(Query(Photo(own.path, image, box), tuple(sorted((good | ok) - junk)), tuple(sorted(junk))))
        files += [file, *lists]
    return with_positives(name, photos, queries, "plain", files)


def _find_queries(root: Path, name: Name) -> list[Path]:
    """The files of the queries, in order of name."""
    folders = [place / folder for place in reversed(places(root, name)) for folder in TRUTH_FOLDERS[name]]
    for folder in folders:
        if found := sorted(file for file in folder.glob(f"*{QUERY_END}") if not file.name.startswith(".")):
            return found
    raise DatasetError(
        f"there are no *{QUERY_END} files of {name} at {root} or in {', '.join(TRUTH_FOLDERS[name][1:])} below it: "
        "unpack the published ground truth there"
    )


def _find_images(root: Path, name: Name) -> tuple[Path, list[Photo]]:
    """The folder that holds the images, and all of them, in order of name."""
    own = places(root, name)
    folders = [place / folder for place in reversed(own) for folder in IMAGE_FOLDERS[name]] + [*own[1:]]
    if any(root.glob("*.jpg")):  # otherwise it may hold other benchmarks, each in a folder of its own
        folders.append(root)
    for folder in folders:
        if folder.is_dir() and (photos := _list_jpegs(folder)):
            return folder, photos
    raise DatasetError(
        f"there are no .jpg images of {name} below {' or '.join(str(root / end) for end in IMAGE_FOLDERS[name])}: "
        "unpack the published images there"
    )


def _list_jpegs(folder: Path) -> list[Photo]:
    """All .jpg files below the folder by their name alone, for Paris has a sub-folder for each landmark."""
    found: dict[str, Path] = {}
    for photo in list_photos([folder]).photos:
        if photo.path.suffix.lower() != ".jpg":
            continue
        first = found.setdefault(photo.path.stem, photo.path)
        if first != photo.path:
            raise DatasetError(f"{photo.path} and {first} have the same name: take one away")
    return [Photo(found[name], name) for name in sorted(found)]


def _read_query(file: Path) -> tuple[str, Box]:
    """`oxc1_all_souls_000013 136.5 34.1 648.5 955.7`: the image and the box in it."""
    lines = [line.split() for line in _read_lines(file)]
    if len(lines) != 1 or len(lines[0]) != 5:
        raise DatasetError(f"{file} must be one line with an image and the four numbers of a box: fetch it again")
    image, *edges = lines[0]
    try:
        box = read_box([float(edge) for edge in edges], str(file))
    except ValueError as error:
        raise DatasetError(f"{file}: the box must be four numbers ({error}): fetch it again") from error
    return file_name(image.removeprefix(PREFIX), str(file)), box


def _read_lines(file: Path) -> list[str]:
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no UTF-8 text"
        raise DatasetError(f"cannot read {file}: {reason}; unpack the published ground truth again") from error
    return [line.strip() for line in text.split("\n") if line.strip()]


def _number(name: str, numbers: Mapping[str, int], file: Path, folder: Path) -> int:
    """The number of an image that a list names."""
    if name not in numbers:
        name = file_name(name, str(file))
        raise DatasetError(f"{file} names {name}, but there is no {name}.jpg below {folder}: put it there")
    return numbers[name]
