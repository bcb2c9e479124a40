"""The sizes of `superfeat reproduce` with a tiny network, the command, and what it leaves."""

import collections
import contextlib
import dataclasses
import html.parser
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner, Result

from superfeat.cli import main
from superfeat.pages import plots
from superfeat.settings import as_dict, overlay
from superfeat.storage.store import as_json, read_json
from superfeat.studies.reproduce import catalogue, sizes
from superfeat.studies.reproduce.outcome import Outcome
from superfeat.studies.reproduce.sizes import Size
from superfeat.studies.reproduce.study import Study
from superfeat.weights import load_network

LIT = {"templates": 6, "rounds": 2, "dim": 16}
PRETRAINING = {"epochs": 1, "side": 32, "batch": 8, "chunk": 4, "hidden": 8, "hold_out": 0.34}
TRAINING = {"epochs": 1, "queries": 4, "max_side": 48, "whitening_images": 10, "negatives": 2, "tuples_per_step": 2}
EVALUATION = {
    "extract": {"max_side": 48, "features_per_image": 8, "scales": (1.0, 0.707)},
    "codebook.words": 8,
    "codebook_images": 8,
}
ASKED: dict[str, Any] = {
    "templates": (4, 6),
    "rounds": (1, 2),
    "negatives": (1, 2),
    "feature_counts": (4, 8),
    "single_counts": (3, 6),
}
FOLDER = 'out & <b> "it\'s"'  # a name that HTML and a shell take for something else


def tiny(name: str) -> Size:
    """The size of this name with a tiny network; its tests are kept."""
    whole = SIZES[name]
    network = {"whitened_dim": 8, "lit": LIT, "trunk": {"arch": "resnet10", "stages": 1}}
    recipe = overlay(whole.recipe, {"network": network, "pretraining": PRETRAINING, "training": TRAINING})
    recipe = overlay(recipe, {"data": {"things": 8, "views": 3, "side": 64}})
    how = {**whole.how, "training": {"flip": 0.0}}
    evaluation = overlay(whole.evaluation, EVALUATION)
    return dataclasses.replace(whole, recipe=recipe, how=how, evaluation=evaluation, neighbours=(1, 3), **ASKED)


SIZES = {name: sizes.read_size(name) for name in ("mini", "paper")}
TINY = tiny("mini")


@contextlib.contextmanager
def small(folder: Path) -> Iterator[None]:
    """Both sizes are tiny, and the codebooks' cache is in this folder.

    Pictures are coarse and nothing waits for the disk, which other tests look at: that halves the time.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SUPERFEAT_CACHE", str(folder / "cache"))
        patch.setattr(catalogue, "read_size", tiny)
        patch.setattr(plots, "DPI", 40)
        patch.setattr(os, "fsync", lambda file: None)
        yield


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["reproduce", *map(str, arguments)])


def require_error(result: Result, *texts: str, code: int = 1) -> None:
    """One line that says this, and no traceback."""
    assert result.exit_code == code, result.output
    assert isinstance(result.exception, SystemExit)
    for text in texts:
        assert text in result.stderr
    if code == 1:
        assert len(result.stderr.strip().splitlines()) == 1


class Made(NamedTuple):
    """What `reproduce all` made: the folder, the result that it printed, the outcomes, and the study."""

    folder: Path
    printed: dict[str, Any]
    outcomes: dict[str, Outcome]
    study: Study


def strictly(text: str) -> Any:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    return json.loads(text, parse_constant=refuse)


class Links(html.parser.HTMLParser):
    """Notes what a page refers to, and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.tags: collections.Counter[str] = collections.Counter()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.targets += [str(value) for key, value in attrs if key in ("src", "href")]

    def handle_data(self, data: str) -> None:
        self.text += data


def trained_with(made: Made, changes: Mapping[str, Any] | None = None, *, how: bool = False) -> Path:
    """The one network whose run.json has exactly the settings that these changes make."""
    base = overlay(TINY.recipe, TINY.how) if how else TINY.recipe
    wanted = as_json(as_dict(overlay(overlay(base, changes or {}), {"pretraining.first": False})))
    found = [
        file.parent
        for file in (made.study.work / "networks").glob("*/run.json")
        if (recipe := read_json(file).get("recipe")) is not None and {**recipe, "weights": None} == wanted
    ]
    assert len(found) == 1
    return found[0]


def evaluation_of(network: Path, changes: Mapping[str, Any] | None = None) -> Path:
    settings = as_json(as_dict(overlay(TINY.evaluation, changes or {})))
    [found] = [
        file.parent for file in (network / "evaluations").glob("*/run.json") if read_json(file)["settings"] == settings
    ]
    assert read_json(found / "run.json")["network"] == load_network(network / "last").digest
    return found


def score(network: Path, changes: Mapping[str, Any] | None = None) -> float:
    return float(read_json(evaluation_of(network, changes) / "scores.json")["grades"]["all"]["map"])


def last_epoch(network: Path) -> dict[str, Any]:
    lines = (network / "log.jsonl").read_text(encoding="utf-8").splitlines()
    return next(record for record in map(json.loads, reversed(lines)) if record["event"] == "epoch")
