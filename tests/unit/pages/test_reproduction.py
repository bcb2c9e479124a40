"""What was measured again, on disk: numbers that any reader of JSON and CSV takes, a picture, a page that escapes."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from superfeat.figures import Panel, Picture, Series
from superfeat.pages.reproduction import write_reproduced, write_reproduction_page
from superfeat.studies.reproduce.catalogue import Reproduced
from superfeat.studies.reproduce.outcome import Outcome, Paper

pytest.importorskip("matplotlib")
PAPER: Paper = {
    "title": "Losses & <rules>",
    "claim": "more is better",
    "columns": ["loss", "map"],
    "rows": [["a", 60.0]],
}
PANEL = Panel("ours", "x", "y", [Series("ours", (1.0, 2.0), (3.0, 4.0))])
BARS = Panel("ours", "", "mAP", [Series("ours", ("a", "b"), (3.0, 4.0))])
PIXELS = np.random.default_rng(0).integers(0, 256, (24, 32, 3), np.uint8)


def found(name: str = "table-2", paper: Paper = PAPER, **drawn: Any) -> Reproduced:
    outcome = Outcome(["loss", "map"], [["a", 50.0], ["b", float("nan")]], 'it is 50 "here"', True, **drawn)
    return Reproduced(name, outcome, paper, 1.234)


def test_numbers(tmp_path: Path) -> None:
    record = write_reproduced(found(panels=[PANEL]), tmp_path / "deep" / "table-2", "superfeat reproduce table-2")
    kept = json.loads((tmp_path / "deep" / "table-2" / "numbers.json").read_text(), parse_constant=pytest.fail)
    assert kept == record
    assert record["ours"] == {"columns": ["loss", "map"], "rows": [["a", 50.0], ["b", None]]}
    assert (record["command"], record["seconds"], record["paper"]) == ("superfeat reproduce table-2", 1.2, PAPER)
    with (tmp_path / "deep" / "table-2" / "numbers.csv").open(newline="") as file:
        assert list(csv.reader(file)) == [
            ["source", "loss", "map"],
            ["ours", "a", "50.0"],
            ["ours", "b", "nan"],
            ["source", "loss", "map"],
            ["paper", "a", "60.0"],
        ]


@pytest.mark.parametrize(
    "drawn",
    [
        {"panels": [PANEL]},
        {"panels": [BARS], "bars": True},
        {"matrices": [("all", np.eye(4))]},
        {"photos": [[Picture(PIXELS)]], "photo_titles": (["a"], ["photo"])},
    ],
    ids=["curves", "bars", "matrices", "photos"],
)
def test_whatever_it_is_there_is_a_picture(drawn: dict[str, Any], tmp_path: Path) -> None:
    write_reproduced(found(**drawn), tmp_path, "")
    with Image.open(tmp_path / "picture.png") as picture:
        assert len(np.unique(np.asarray(picture.convert("L")))) > 10, "something is drawn"


def test_a_paper_without_a_table(tmp_path: Path) -> None:
    write_reproduced(found(paper={"title": "t", "claim": "c"}, panels=[PANEL]), tmp_path, "")
    assert (tmp_path / "numbers.csv").read_text().splitlines()[-1] == "ours,b,nan"


def test_the_page_has_what_is_there(tmp_path: Path) -> None:
    """In the order of the paper, escaped."""
    for name in ("figure-scales", "table-2"):
        write_reproduced(found(name, panels=[PANEL]), tmp_path / name, f"superfeat reproduce {name} -o 'a & b'")
    assert write_reproduction_page(tmp_path) == tmp_path / "index.html"
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert page.index('id="table-2"') < page.index('id="figure-scales"')
    assert page.count("<section") == 2
    assert "Losses &amp; &lt;rules&gt;" in page
    assert "<rules>" not in page
    assert "a &amp; b" in page
    assert page.count("As in the paper.") == 2
