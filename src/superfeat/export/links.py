"""Sets of photos as a folder of links, to look through with any program; the photos stay where they are."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from superfeat.errors import StoreError
from superfeat.export.photos import PhotoSet
from superfeat.storage.store import explained, umask

LONGEST_NAME = 200  # bytes: file systems take 255


class Linked(NamedTuple):
    """How many photos are in the folder, by what they are there; and the names of those whose file is not there."""

    links: int
    hard_links: int  # where there can be no links: the same file under another name
    copies: int  # where there can be no hard links either
    missing: list[str]


def link_photos(folder: Path, sets: Sequence[PhotoSet]) -> Linked:
    """Makes a folder with a link to each photo, numbered in their order; a folder for each set if there are several.

    The folder must be new or empty, and is there as a whole or not at all.
    """
    with explained(folder):
        if os.path.lexists(folder) and (not folder.is_dir() or any(folder.iterdir())):
            raise StoreError(f"{folder} holds something already; choose another name")
        folder.absolute().parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".partial", dir=folder.absolute().parent))
        try:
            beside.chmod(0o777 & ~umask())
            linked = _fill(beside, sets)
            beside.replace(folder)
        finally:
            shutil.rmtree(beside, ignore_errors=True)
    return linked


def _fill(folder: Path, sets: Sequence[PhotoSet]) -> Linked:
    counts = dict.fromkeys(WAYS, 0)
    missing: list[str] = []
    for number, one in enumerate(sets, 1):
        inner = folder / _numbered(number, len(sets), one.title) if len(sets) > 1 else folder
        inner.mkdir(exist_ok=True)
        for place, photo in enumerate(one.photos, 1):
            if (file := photo.file()) is None:
                missing.append(photo.name)
            else:
                counts[_bring(file, inner / _numbered(place, len(one.photos), file.name))] += 1
    return Linked(counts["links"], counts["hard_links"], counts["copies"], missing)


def _numbered(number: int, count: int, name: str) -> str:
    """A name that no other has in its folder, and that sorts in order; its end, which tells the kind, is kept."""
    plain = "".join("_" if letter == "/" or not letter.isprintable() else letter for letter in name)
    while len(os.fsencode(plain)) > LONGEST_NAME:
        plain = plain[1:]
    return f"{number:0{len(str(count))}} {plain}"


def _link(path: Path, target: Path) -> None:
    target.symlink_to(path.absolute())


def _hard_link(path: Path, target: Path) -> None:
    target.hardlink_to(path)


def _copy(path: Path, target: Path) -> None:
    shutil.copy2(path, target)


WAYS: dict[str, Callable[[Path, Path], None]] = {"links": _link, "hard_links": _hard_link, "copies": _copy}


def _bring(path: Path, target: Path) -> str:
    """The first way that this file system takes."""
    *first, last = WAYS.items()
    for name, way in first:
        with contextlib.suppress(OSError, NotImplementedError):
            way(path, target)
            return name
    last[1](path, target)
    return last[0]
