"""Photos and a run that several files of tests look at, each made once."""

from pathlib import Path

import pytest

from fixtures_cli import run
from fixtures_cli_train import RECIPE, draw_things


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """tiny.toml, photos/, others/."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "tiny.toml").write_text(RECIPE)
    draw_things(folder / "photos", things=6, views=3)
    draw_things(folder / "others", things=3, views=2, seed=500)
    return folder


@pytest.fixture(scope="session")
def once(data: Path) -> Path:
    """A run that nothing disturbed."""
    done = run("train", data / "tiny.toml", "--images", data / "photos", "-o", data / "once")
    assert done.exit_code == 0, done.stderr
    return data / "once"
