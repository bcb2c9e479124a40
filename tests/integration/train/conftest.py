"""Runs that several files of tests look at, each made once."""

from pathlib import Path

import pytest

from fixtures_train import RECIPE, Things, draw_things, finish, unvalidated
from superfeat.config import Recipe
from superfeat.datasets.folders import read_folders
from superfeat.datasets.retrieval_set import each_photo_in_turn
from superfeat.recipes import read_recipe


@pytest.fixture(scope="session")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    file = tmp_path_factory.mktemp("recipe") / "tiny.toml"
    file.write_text(RECIPE)
    return read_recipe(file)


@pytest.fixture(scope="session")
def things(tmp_path_factory: pytest.TempPathFactory) -> Things:
    folder = tmp_path_factory.mktemp("things")
    draw_things(folder / "train", things=6, views=3, seed=0)
    draw_things(folder / "validation", things=3, views=3, seed=500)
    validation = each_photo_in_turn(read_folders(folder / "validation"), "validation")
    return Things(folder, read_folders(folder / "train"), validation)


@pytest.fixture(scope="session")
def once(recipe: Recipe, things: Things, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing disturbed."""
    run = tmp_path_factory.mktemp("once") / "run"
    finish(recipe, things, run, validation=things.validation)
    return run


@pytest.fixture(scope="session")
def plain(recipe: Recipe, things: Things, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same without validation, which is what takes the time."""
    run = tmp_path_factory.mktemp("plain") / "run"
    finish(unvalidated(recipe), things, run)
    return run
