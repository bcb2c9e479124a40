"""Pairs as the files of mapping programs, one row after the other, whole or not at all."""

import csv
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from superfeat.errors import SuperfeatError
from superfeat.mapping.rows import Pair
from superfeat.storage.store import explained, sync

PairFormat = Literal["hloc", "kapture", "colmap", "mast3r", "csv"]
FORMATS: tuple[PairFormat, ...] = get_args(PairFormat)
COLUMNS = ("first", "second", "score", "probability", "matches", "verified")


class _Layout(NamedTuple):
    head: tuple[str, ...]
    row: Callable[[Pair], str]
    forbidden: str  # what separates names


def _two_names(pair: Pair) -> str:
    return f"{pair.first} {pair.second}"


def _scored(pair: Pair) -> str:
    return f"{pair.first}, {pair.second}, {pair.score:.6g}"


def _cells(pair: Pair) -> str:
    return ",".join("" if value is None else _quoted(value) for value in pair)


def _quoted(value: str | float) -> str:
    if not isinstance(value, str):
        return f"{value:.6g}"
    return '"' + value.replace('"', '""') + '"' if set(value) & set(',"\n\r') else value


KAPTURE_COLUMNS = "# query_image, map_image, score"
LAYOUTS: dict[PairFormat, _Layout] = {
    "hloc": _Layout((), _two_names, " \t\n\r"),
    "colmap": _Layout((), _two_names, " \t\n\r"),
    "kapture": _Layout(("# kapture format: 1.1", KAPTURE_COLUMNS), _scored, ",\n\r"),
    "mast3r": _Layout((KAPTURE_COLUMNS,), _scored, ",\n\r"),  # read by kapture's tables
    "csv": _Layout((",".join(COLUMNS),), _cells, "\0"),
}


def write_pairs_file(path: Path, pairs: Iterable[Pair], kind: PairFormat) -> int:
    """Writes pairs as they come; returns how many. A file that is there is replaced when all is written."""
    layout, count = LAYOUTS[kind], 0
    beside = path.with_name(f".{path.name}.{os.getpid()}.partial")
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with beside.open("w", encoding="utf-8", newline="\n") as file:
                file.writelines(f"{line}\n" for line in layout.head)
                for pair in pairs:
                    _require_names(pair, layout, kind)
                    file.write(layout.row(pair) + "\n")
                    count += 1
                sync(file)
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
    return count


def _require_names(pair: Pair, layout: _Layout, kind: PairFormat) -> None:
    for name in (pair.first, pair.second):
        if set(name) & set(layout.forbidden):
            raise SuperfeatError(
                f"{name!r} has a character that separates names in files of {kind}; rename the photo, or write csv"
            )


def read_pairs_file(path: Path) -> Iterator[tuple[str, str]]:
    """The names of a file of any of these formats."""
    with explained(path, "read"):
        lines = path.read_text(encoding="utf-8").splitlines()
    tabled = bool(lines) and lines[0] == ",".join(COLUMNS)
    for number, line in enumerate(lines[1:] if tabled else lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        parts = next(csv.reader([line])) if tabled else line.split(",") if "," in line else line.split()
        if len(parts) < 2:
            raise SuperfeatError(f"{path}, line {number}: {line!r} does not name two photos; write two names per line")
        yield parts[0].strip(), parts[1].strip()
