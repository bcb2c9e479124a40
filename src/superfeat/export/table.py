"""Sets of photos as a table: CSV for spreadsheets, JSON for programs."""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from superfeat.errors import SuperfeatError
from superfeat.export.photos import Fact, PhotoSet
from superfeat.storage.store import write_file

ENDINGS = (".csv", ".json")


def write_table(path: Path, sets: Sequence[PhotoSet]) -> int:
    """Writes a row for each photo, as the ending of `path` says; returns how many.

    Names and paths are written as they are, byte by byte in CSV; what a spreadsheet might take for a formula too.
    """
    rows = list(_rows(sets))
    if path.suffix.lower() == ".json":
        write_file(path, (json.dumps(rows, indent=2) + "\n").encode())
    elif path.suffix.lower() == ".csv":
        write_file(path, _as_csv(rows))
    else:
        raise SuperfeatError(f"{path} does not say what kind of table it is to be: end it in {' or '.join(ENDINGS)}")
    return len(rows)


def _rows(sets: Iterable[PhotoSet]) -> Iterator[dict[str, Fact]]:
    for one in sets:
        for photo in one.photos:
            yield {"set": one.title, "name": photo.name, "path": photo.path, **photo.facts}


def _as_csv(rows: Sequence[dict[str, Fact]]) -> bytes:
    columns = list(dict.fromkeys(column for row in rows for column in row)) or ["set", "name", "path"]
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode(errors="surrogateescape")
