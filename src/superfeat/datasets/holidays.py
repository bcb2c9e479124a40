"""INRIA Holidays: the name of an image says which group it belongs to, and whether it is the query."""

import re
from collections.abc import Iterable
from pathlib import Path

from superfeat.datasets.retrieval_set import Query, RetrievalSet, with_positives
from superfeat.datasets.revisited import places
from superfeat.errors import DatasetError
from superfeat.images import Photo

NAME = "holidays"
FILE = re.compile(r"([0-9]{6})\.jpg")
GROUP = 100  # numbers of one group; the query's is the first


def read_holidays(root: str | Path) -> RetrievalSet:
    """100000.jpg asks for 100001.jpg, 100002.jpg and so on, and is junk itself."""
    root = Path(root)
    photos = find_numbered(_candidates(root), FILE)
    if not photos:
        raise DatasetError(
            f"there are no images 100000.jpg, 100001.jpg and so on at {root} or {root / 'jpg'}: unpack the published "
            "jpg1 and jpg2 there"
        )
    groups: dict[int, list[int]] = {}
    for place, number in enumerate(photos):
        groups.setdefault(number // GROUP, []).append(place)
    ordered = list(photos.values())
    queries = []
    for group, (first, *others) in groups.items():
        if group * GROUP not in photos:
            path = ordered[first].path
            raise DatasetError(
                f"{path} has no query: put {path.with_name(f'{group * GROUP:06}.jpg')} there, or take its group away"
            )
        queries.append(Query(ordered[first], tuple(others), (first,)))
    return with_positives(NAME, ordered, queries)


def _candidates(root: Path) -> Iterable[tuple[Path, ...]]:
    """Folders that may hold the images, the two archives in one or in two."""
    for place in reversed(places(root, NAME)):
        for folder in (place, place / "jpg"):
            yield (folder,)
            yield folder / "jpg1", folder / "jpg2"


def find_numbered(candidates: Iterable[tuple[Path, ...]], file: re.Pattern[str]) -> dict[int, Photo]:
    """The files whose name fits, by the number in it and in its order, of the first folders that have any."""
    return next((found for folders in candidates if (found := _numbered(folders, file))), {})


def _numbered(folders: tuple[Path, ...], file: re.Pattern[str]) -> dict[int, Photo]:
    found: dict[int, Photo] = {}
    for folder in folders:
        try:
            paths = list(folder.iterdir()) if folder.is_dir() else []
        except OSError as error:
            raise DatasetError(f"cannot list {folder}: {error.strerror or error}") from error
        for path in paths:
            match = file.fullmatch(path.name)
            if match is None or not path.is_file():
                continue
            first = found.setdefault(int(match[1]), Photo(path, path.stem)).path
            if first != path:
                raise DatasetError(f"{path} and {first} have the same name: take one away")
    return dict(sorted(found.items()))
