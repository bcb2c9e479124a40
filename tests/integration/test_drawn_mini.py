"""The recipe `drawn-mini`: shrunk in CI, whole in `make test-long`."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import superfeat
from superfeat.cli import main

SHRUNK = (
    "data.things=10",
    "data.views=3",
    "data.side=64",
    "pretraining.epochs=1",
    "pretraining.side=48",
    "pretraining.batch=8",
    "training.epochs=1",
    "training.queries=4",
    "training.max_side=64",
    "validation.extract.max_side=64",
    "validation.codebook.words=64",
)


def train(run: Path, *settings: str) -> dict[str, Any]:
    """Trains by the recipe; what the command prints as JSON."""
    arguments = ["train", "drawn-mini", "-o", str(run), "--json"]
    for setting in settings:
        arguments += ["--set", setting]
    result = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    printed: dict[str, Any] = json.loads(result.stdout)
    return printed


def records(run: Path, event: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [line for line in lines if line["event"] == event]


@pytest.mark.slow
def test_the_recipe_runs_in_small(tmp_path: Path) -> None:
    printed = train(tmp_path / "run", *SHRUNK)
    assert printed["epochs"] == 1
    assert [record["epoch"] for record in records(tmp_path / "run", "validation")] == [0, 1]
    assert len(records(tmp_path / "run" / "pretraining", "epoch")) == 1
    assert len(list((tmp_path / "run-drawn").glob("*/*.jpg"))) == 30
    network = superfeat.load_network(tmp_path / "run" / "best")
    assert network.dim == 64
    assert network.provenance["ratio_test"] == "lowe"


@pytest.mark.long
def test_training_finds_more_of_held_out_landmarks(tmp_path: Path) -> None:
    """The claim of docs/training.md, whole: about ten minutes on two cores."""
    train(tmp_path / "untrained", "pretraining.first=false", "training.epochs=0")
    (tmp_path / "untrained-drawn").rename(tmp_path / "trained-drawn")
    train(tmp_path / "trained")
    (before,) = records(tmp_path / "untrained", "validation")
    after = records(tmp_path / "trained", "validation")
    assert max(record["map"] for record in after) > 2 * before["map"]
