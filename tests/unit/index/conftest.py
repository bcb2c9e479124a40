"""Indexes of both kernels, and small segments."""

import os
from pathlib import Path

import pytest

from fixtures_index import CODEBOOK, vectors
from superfeat.config import IndexConfig
from superfeat.index import contents
from superfeat.index.index import Index


@pytest.fixture(params=["binary", "real"])
def kernel(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def index(kernel: str, tmp_path: Path) -> Index:
    return Index.create(tmp_path / "index", CODEBOOK, IndexConfig(kernel=kernel))  # type: ignore[arg-type]


@pytest.fixture
def binary(tmp_path: Path) -> Index:
    return Index.create(tmp_path / "binary", CODEBOOK)


@pytest.fixture
def real(tmp_path: Path) -> Index:
    return Index.create(tmp_path / "real", CODEBOOK, IndexConfig(kernel="real"))


@pytest.fixture
def filled(index: Index) -> Index:
    for seed in range(9):
        index.add(f"n{seed}", vectors(seed))
    return index


@pytest.fixture
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few images fill a segment, and nothing waits for the disk."""
    monkeypatch.setattr(contents, "SMALL", 4)
    monkeypatch.setattr(contents, "MIDDLE", 12)
    monkeypatch.setattr(contents, "FAN", 3)
    monkeypatch.setattr(os, "fsync", lambda _: None)
