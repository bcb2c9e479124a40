"""superfeat calibrate as a user meets it: labels in, probabilities in later searches."""

import csv
import json
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from PIL import Image

from fixtures_recipe import save_random_network
from fixtures_service import pattern, state_of
from superfeat.cli import main as superfeat
from superfeat.cli.calibrate import calibrate
from superfeat.cli.terminal import VerbGroup
from superfeat.engine import Engine, Named
from superfeat.index.index import Index
from superfeat.probability.model import Calibration

THINGS, VIEWS, ALONE = 6, 3, 4
MAIN = VerbGroup(commands=[calibrate])


def run(*arguments: object) -> Result:
    return CliRunner().invoke(MAIN, ["calibrate", *map(str, arguments)])


def run_json(*arguments: object) -> Any:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """photos/, each thing a little shifted and brighter in each view; network/ and index/."""
    folder = tmp_path_factory.mktemp("calibrate")
    for thing in range(THINGS + ALONE):
        (folder / "photos" / str(thing)).mkdir(parents=True)
        for view in range(VIEWS if thing < THINGS else 1):
            photo = pattern(thing).crop((4 * view, 3 * view, 200 - 4 * view, 150 - 2 * view))
            lighter = Image.fromarray(np.minimum(np.asarray(photo, np.uint16) + 8 * view, 255).astype(np.uint8))
            lighter.save(folder / "photos" / str(thing) / f"{view}.jpg", quality=90)
    save_random_network(folder / "network", templates=24, whitened_dim=16)
    arguments = ["index", folder / "photos", "-o", folder / "index", "-w", folder / "network", "--set", "max_side=128"]
    result = CliRunner().invoke(superfeat, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.stderr
    return folder


@pytest.fixture
def index(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made / "index", tmp_path / "index")
    return tmp_path / "index"


def write_labels(path: Path, names: Iterable[str], header: str = "image,thing") -> Path:
    with path.open("w", newline="") as file:
        file.write(header + "\n")
        csv.writer(file).writerows((name, Path(name).parent.name) for name in names)
    return path


@pytest.fixture
def labels(index: Path, tmp_path: Path) -> Path:
    return write_labels(tmp_path / "labels.csv", Index.open(index).names())


def chances(index: Path) -> dict[str, float | None]:
    return {hit.name: hit.probability for hit in Engine.open(index).search(Named("0/0.jpg"), top=50).hits}


def test_later_searches_have_the_new_probabilities(index: Path, labels: Path) -> None:
    assert set(chances(index).values()) == {None}
    found = run_json(index, labels)
    assert (found["labelled"], found["things"]) == (THINGS * VIEWS + ALONE, THINGS + ALONE)
    assert found["missing"] == []
    assert found["before"] is None
    assert found["written"] is True
    assert sum(one["results"] for one in found["after"]["bins"]) == found["pairs"] > 0
    assert found["after"]["brier"] < found["right"] * (1 - found["right"]), "better than always saying the share"
    assert Engine.open(index).calibration == Calibration.from_dict(found["calibration"])
    said = chances(index)
    same = [chance for name, chance in said.items() if name.startswith("0/") and chance is not None]
    others = [chance for name, chance in said.items() if not name.startswith("0/") and chance is not None]
    assert len(same) == VIEWS - 1  # all but the query
    assert min(same) > max(others)


def test_no_photo_and_no_network_is_needed(made: Path, index: Path, labels: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("superfeat.weights.load_network", None)
    monkeypatch.setattr("superfeat.images.read_image", None)
    assert run(index, labels).exit_code == 0


def test_a_second_fit_begins_where_the_first_did(index: Path, labels: Path) -> None:
    first, second = run_json(index, labels), run_json(index, labels)
    assert second == first, "and not from its own answer"


def test_an_index_that_brings_a_calibration(index: Path, labels: Path) -> None:
    first = run_json(index, labels)
    shipped = first["calibration"]
    (index / "calibration.shipped.json").unlink()  # as if the network had brought it
    found = run_json(index, labels)
    assert found["before"]["brier"] == pytest.approx(found["after"]["brier"], abs=1e-3)
    assert found["calibration"]["background"] == shipped["background"]
    back = run_json(index, "--reset")
    assert (back["reset"], back["calibrated"]) == (True, True)
    assert json.loads((index / "calibration.json").read_text()) == shipped


def test_a_dry_run_changes_nothing(index: Path, labels: Path, tmp_path: Path) -> None:
    before = state_of(index)
    found = run_json(index, labels, "--dry-run", "--plot", tmp_path / "reliability.png")
    assert found["written"] is False
    assert state_of(index) == before
    with Image.open(tmp_path / "reliability.png") as picture:
        assert min(picture.size) > 300
    assert {key: value for key, value in run_json(index, labels).items() if key != "written"} == {
        key: value for key, value in found.items() if key != "written"
    }


def test_going_back(index: Path, labels: Path) -> None:
    before = state_of(index)
    assert run(index, labels).exit_code == 0
    result = run(index, "--reset")
    assert result.stdout == f"{index} has no calibration, as it came\n"
    assert state_of(index) == before
    assert run(index, "--reset").stdout.endswith("there was nothing to go back from\n")


def test_photos_without_label_are_not_judged(index: Path, tmp_path: Path) -> None:
    names = [name for name in Index.open(index).names() if name[0] in "0123"]
    found = run_json(index, write_labels(tmp_path / "some.csv", names))
    assert (found["labelled"], found["things"]) == (4 * VIEWS, 4)
    largest = 4 * VIEWS - 1
    asked = 2 * 4 * VIEWS  # each as a query from elsewhere and as a photo of the collection
    assert found["pairs"] <= asked * (10 + largest)


def test_names_as_other_tables_have_them(index: Path, tmp_path: Path) -> None:
    names = [name.removesuffix(".jpg") for name in Index.open(index).names()]
    found = run_json(index, write_labels(tmp_path / "gld.csv", [*names, "9/absent"], "id,landmark_id"), "--dry-run")
    assert found["labelled"] == len(names)
    assert found["missing"] == ["9/absent"]


def test_the_report(index: Path, labels: Path) -> None:
    with labels.open("a") as file:
        file.write("9/absent.jpg,9\n")
    lines = run(index, labels).stdout.splitlines()
    assert lines[0] == f"{index}: {THINGS * VIEWS + ALONE} labelled photos of {THINGS + ALONE} things"
    assert lines[1] == "  not in the index: 1 (9/absent.jpg)"
    assert lines[3] == "  before  no calibration"
    assert lines[4].startswith("  after   Brier 0.")
    assert lines[5] == "written: searches use it from now on"
    assert run(index, labels, "--dry-run").stdout.splitlines()[-1] == "nothing was written (--dry-run)"


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("image,thing\nabsent.jpg,1\n", "has none of the 1 photos that .* names, such as absent.jpg"),
        ("image,thing\n0/0.jpg,0\n0/1.jpg,0\n1/0.jpg,1\n", "give at least two things with two photos each"),
        ("image,thing\n", "names no images"),
        ("photo,what\na,b\n", "has the columns photo, what, but needs one of image"),
        ("image,thing\n0/0.jpg,0\n0/0.jpg,1\n", "an earlier one that it shows 0: keep one"),
    ],
)
def test_labels_that_are_of_no_use(index: Path, tmp_path: Path, rows: str, message: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(rows)
    before = state_of(index)
    result = run(index, path)
    assert (result.exit_code, result.stdout) == (1, "")
    assert len(result.stderr.splitlines()) == 1
    assert re.search(message, result.stderr), result.stderr
    assert state_of(index) == before


@pytest.mark.parametrize("more", [["labels.csv", "--reset"], ["--reset", "--dry-run"], ["--reset", "--plot", "a.png"]])
def test_what_cannot_be_asked(index: Path, more: list[str]) -> None:
    result = run(index, *more)
    assert result.exit_code == 2
    assert "give --reset alone" in result.stderr


def test_what_is_no_index(tmp_path: Path, labels: Path) -> None:
    result = run(tmp_path / "nothing", labels)
    assert (result.exit_code, len(result.stderr.splitlines())) == (1, 1)
