"""An index for all files, and services over it."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures_service import Served, make_index, serving


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index that tests only read; those that change it copy it."""
    return make_index(tmp_path_factory.mktemp("served"))


@pytest.fixture
def index(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "index"))


@pytest.fixture
def served(index: Path) -> Iterator[Served]:
    with serving(index) as service:
        yield service


@pytest.fixture(scope="module")
def reader(made: Path) -> Iterator[Served]:
    """A service that no test changes."""
    with serving(made, read_only=True) as service:
        yield service
