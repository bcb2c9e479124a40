"""superfeat label as a user meets it: yes and no to results, and probabilities fitted to them."""

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from PIL import Image

from fixtures_recipe import save_random_network
from fixtures_service import pattern
from superfeat.cli import main
from superfeat.engine import Engine, Named
from superfeat.index.index import Index
from superfeat.index.labels import FILE, FOLDER, read_labels

THINGS, VIEWS = 5, 3


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def run_json(*arguments: object) -> Any:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """photos/, each thing a little shifted and brighter in each view; network/ and index/."""
    folder = tmp_path_factory.mktemp("label")
    for thing in range(THINGS):
        (folder / "photos" / str(thing)).mkdir(parents=True)
        for view in range(VIEWS):
            photo = pattern(thing).crop((4 * view, 3 * view, 200 - 4 * view, 150 - 2 * view))
            lighter = Image.fromarray(np.minimum(np.asarray(photo, np.uint16) + 8 * view, 255).astype(np.uint8))
            lighter.save(folder / "photos" / str(thing) / f"{view}.jpg", quality=90)
    save_random_network(folder / "network", templates=24, whitened_dim=16)
    result = run("index", folder / "photos", "-o", folder / "index", "-w", folder / "network", "--set", "max_side=128")
    assert result.exit_code == 0, result.stderr
    return folder


@pytest.fixture
def index(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made / "index", tmp_path / "index"))


def answers(things: int = THINGS) -> list[tuple[str, str, str]]:
    """For the first view of each thing: yes to its others, no to the first views of other things."""
    rows = []
    for thing in range(things):
        rows += [(f"{thing}/0.jpg", f"{thing}/{view}.jpg", "yes") for view in range(1, VIEWS)]
        rows += [(f"{thing}/0.jpg", f"{other}/0.jpg", "no") for other in range(things) if other != thing]
    return rows


def write_table(path: Path, rows: list[tuple[str, str, str]], header: str = "query,found,same") -> Path:
    with path.open("w", newline="") as file:
        file.write(header + "\n")
        csv.writer(file).writerows(rows)
    return path


def test_answers_make_probabilities_of_ones_own(index: Path, tmp_path: Path) -> None:
    """From a table and by hand; too few are refused with a number, enough are fitted, and searches say so."""
    said = run_json("label", index, "0/0.jpg", "0/1.jpg", "yes")
    assert (said["yes"], said["no"], said["needed"]) == (1, 0, "needed are 9 more yes and 10 more no")
    refused = run("calibrate", index)
    assert refused.exit_code == 1
    assert "has 1 yes and 0 no to results, on 1 things: needed are 9 more yes and 10 more no" in refused.stderr
    assert run_json("label", index, "--csv", write_table(tmp_path / "said.csv", answers()))["taken"] == len(answers())
    result = run("label", index)
    assert "10 yes and 20 no on 5 things" in result.stdout
    assert "enough for probabilities of your own" in result.stdout
    fitted = run_json("calibrate", index)
    assert (fitted["yes"], fitted["no"], fitted["things"], fitted["pairs"]) == (10, 20, 5, 30)
    assert fitted["after"]["brier"] < 0.25  # each thing judged by a fit without it
    hits = {hit.name: hit.probability or 0 for hit in Engine.open(index).search(Named("0/0.jpg")).hits}
    assert hits["0/1.jpg"] > hits["1/0.jpg"]
    assert "10 yes and 20 no to results of 5 things" in run("calibrate", index, "--dry-run").stdout
    assert run_json("calibrate", index, "--reset") == {"index": str(index), "reset": True, "calibrated": False}


def test_labels_survive_what_happens_to_an_index(index: Path, made: Path, tmp_path: Path) -> None:
    """Photos are known by their bytes: deleting others, compacting and merging change nothing."""
    for found, answer in (("0/1.jpg", "yes"), ("1/0.jpg", "no"), ("2/0.jpg", "no")):
        assert run("label", index, made / "photos/0/0.jpg", found, answer).exit_code == 0
    assert run("delete", index, "2/0.jpg").exit_code == 0
    assert run("compact", index).exit_code == 0
    counts = run_json("label", index)
    assert (counts["yes"], counts["no"], counts["gone"]) == (1, 1, 1)
    other = Path(shutil.copytree(made / "index", tmp_path / "other"))
    assert run("merge", other, index).exit_code == 0
    counts = run_json("label", other)
    assert (counts["yes"], counts["no"], counts["gone"]) == (1, 2, 0)
    verified = run("verify", other)
    assert verified.exit_code == 0
    with (other / FOLDER / FILE).open("r+b") as file:
        file.seek(60)
        file.write(b"!")
    assert "damaged in line 2" in run("verify", other).stderr


def test_a_photo_that_is_not_in_the_index_is_asked_with(index: Path, tmp_path: Path) -> None:
    """Its words are kept with the first answer, once."""
    pattern(0).resize((180, 140)).save(tmp_path / "mine.png")
    for found in ("0/0.jpg", "0/1.jpg"):
        assert run_json("label", index, tmp_path / "mine.png", found, "yes")["taken"] == 1
    assert run_json("label", index)["yes"] == 2
    lines = (index / FOLDER / FILE).read_text().splitlines()
    assert [("words" in line, '"same": true' in line) for line in lines[1:]] == [
        (True, False),
        (False, True),
        (False, True),
    ]
    (kept,) = read_labels(index).words.values()
    engine = Engine.open(index)
    expected = engine.index.query(engine.features(tmp_path / "mine.png"))
    assert np.array_equal(kept.words, expected.words)
    assert np.array_equal(kept.codes, expected.codes)


def test_an_answer_is_taken_back(index: Path) -> None:
    assert run_json("label", index, "0/0.jpg", "1/0.jpg", "no")["no"] == 1
    assert run_json("label", index, "0/0.jpg", "1/0.jpg", "forget")["no"] == 0


@pytest.mark.parametrize(
    ("rows", "header", "message"),
    [
        ([("0/0.jpg", "nowhere.jpg", "yes")], "query,found,same", "no image called nowhere.jpg"),
        ([("0/0.jpg", "0/1.jpg", "perhaps")], "query,found,same", "line 2: same is 'perhaps'; it must be yes or no"),
        ([("0/0.jpg", "0/1.jpg", "yes")], "image,thing,x", "needs the columns query, found, same"),
    ],
)
def test_a_table_is_taken_whole_or_not_at_all(
    index: Path, tmp_path: Path, rows: list[tuple[str, str, str]], header: str, message: str
) -> None:
    table = write_table(tmp_path / "said.csv", [*answers(1), *rows] if "same" in header else rows, header)
    result = run("label", index, "--csv", table)
    assert result.exit_code == 1
    assert message.replace("line 2", f"line {len(answers(1)) + 2}") in result.stderr
    assert not (index / FOLDER).exists()


def test_how_it_is_called(index: Path) -> None:
    assert run("label", index, "0/0.jpg", "0/1.jpg").exit_code == 2
    assert run("label", index, "0/0.jpg", "0/1.jpg", "perhaps").exit_code == 2
    assert "no image called x.jpg" in run("label", index, "x.jpg", "0/1.jpg", "yes").stderr
    assert Index.open(index).path.is_dir()
