"""Yes or no to a result: said by people, kept in the index, and what probabilities are fitted to."""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from superfeat.engine import Engine, Named, PhotoLike, photo_key
from superfeat.engine.asked import region_of
from superfeat.errors import DatasetError, SuperfeatError
from superfeat.found.photos import as_file
from superfeat.index.labels import Label, Searched, photo_mark, read_labels, write_labels
from superfeat.index.places import Region

COLUMNS = ("query", "found", "same")
ANSWERS = {"yes": True, "no": False, "true": True, "false": False, "1": True, "0": False, "forget": None}


class Answered(NamedTuple):
    """One line of a table of labels."""

    query: str
    found: str
    same: bool | None


def label(engine: Engine, query: PhotoLike, found: str, same: bool | None, *, box: Region | None = None) -> Label:
    """Notes whether the indexed photo `found` shows the same thing as the query; None takes back what was said.

    A query that is not in the index, or a part of a photo, is looked at by the network, and its words are kept.
    """
    searched = mark_query(engine, query, box)
    said = Label(searched, mark_photo(engine, found), same)
    kept = searched.box is None and engine.recognise(query) is not None
    if not kept and searched not in read_labels(engine.index.path).words:
        write_labels(engine.index.path, [said], engine.ask(query, box=box).words)
    else:
        write_labels(engine.index.path, [said])
    return said


def mark_query(engine: Engine, query: PhotoLike, box: Region | None) -> Searched:
    """By what labels know this query."""
    region = None if box is None else region_of(box)
    itself = engine.recognise(query)
    if itself is not None:
        return Searched(photo_mark(itself.name, itself.meta), region)
    file = as_file(query)
    assert not isinstance(file, Named)  # those are recognised
    return Searched(photo_key(file if isinstance(file, bytes) else file.read_bytes()), region)


def mark_photo(engine: Engine, name: str) -> str:
    """By what labels know the photo of this name."""
    engine.index.id(name)
    return photo_mark(name, engine.index.meta([name])[name])


def read_answers(path: Path) -> Iterator[Answered]:
    """The lines of a CSV with the columns query, found and same (yes or no). DatasetError says what is wrong."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = csv.DictReader(file)
        if not set(COLUMNS) <= set(rows.fieldnames or ()):
            raise DatasetError(
                f"{path} needs the columns {', '.join(COLUMNS)}, and has {', '.join(rows.fieldnames or ())}"
            )
        for row in rows:
            answer = str(row["same"]).strip().lower()
            if answer not in ANSWERS or not row["query"] or not row["found"]:
                raise DatasetError(f"{path}, line {rows.line_num}: same is {row['same']!r}; it must be yes or no")
            yield Answered(row["query"], row["found"], ANSWERS[answer])


def label_from(engine: Engine, path: Path) -> int:
    """Notes all answers of a CSV about photos of the index, or, if one is not there, none; returns how many."""
    answers = list(read_answers(path))
    labels = []
    for one in answers:
        try:
            query, found = engine.name_of(one.query), engine.name_of(one.found)
        except SuperfeatError as error:
            raise DatasetError(f"{path}: {error}; nothing was taken") from error
        labels.append(Label(mark_query(engine, Named(query), None), mark_photo(engine, found), one.same))
    write_labels(engine.index.path, labels)
    return len(labels)
