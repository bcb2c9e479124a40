"""Tables of photos: every row, names byte by byte."""

import csv
import io
import json
import os
from pathlib import Path

import pytest

from superfeat.errors import SuperfeatError
from superfeat.export.photos import ExportedPhoto, PhotoSet
from superfeat.export.table import write_table

BROKEN = os.fsdecode(b"no-\xff-letters.jpg")
SETS = [
    PhotoSet("one", (ExportedPhoto("a.jpg", "/p/a.jpg", {"score": 0.5}), ExportedPhoto('q"1,\n.jpg', None, {}))),
    PhotoSet("=two", (ExportedPhoto(BROKEN, f"/p/{BROKEN}", {"score": 1.0, "probability": None}),)),
]


def test_csv(tmp_path: Path) -> None:
    assert write_table(tmp_path / "table.csv", SETS) == 3
    data = (tmp_path / "table.csv").read_bytes()
    assert b"/p/no-\xff-letters.jpg" in data
    rows = list(csv.DictReader(io.StringIO(data.decode(errors="surrogateescape"), newline="")))
    assert rows == [
        {"set": "one", "name": "a.jpg", "path": "/p/a.jpg", "score": "0.5", "probability": ""},
        {"set": "one", "name": 'q"1,\n.jpg', "path": "", "score": "", "probability": ""},
        {"set": "=two", "name": BROKEN, "path": f"/p/{BROKEN}", "score": "1.0", "probability": ""},
    ]


def test_json(tmp_path: Path) -> None:
    assert write_table(tmp_path / "table.JSON", SETS) == 3
    assert json.loads((tmp_path / "table.JSON").read_text())[2] == {
        "set": "=two",
        "name": BROKEN,
        "path": f"/p/{BROKEN}",
        "score": 1.0,
        "probability": None,
    }


def test_nothing(tmp_path: Path) -> None:
    assert write_table(tmp_path / "table.csv", []) == 0
    assert (tmp_path / "table.csv").read_text() == "set,name,path\n"


def test_another_ending(tmp_path: Path) -> None:
    with pytest.raises(SuperfeatError, match=r"end it in \.csv or \.json"):
        write_table(tmp_path / "table.xlsx", SETS)
    assert list(tmp_path.iterdir()) == []
