"""A run that several files of tests look at, made once, and what a run does meanwhile."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import superfeat.evaluation.stages
from fixtures_evaluate import Case, Palette, finish, paint_random, painted_set
from superfeat.extraction.folder import FeatureWriter
from superfeat.features import Features
from superfeat.images import Photo
from superfeat.index.codebook import Codebook, train_codebook


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Words that one test has learned serve the others."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module", autouse=True)
def _cached(cache: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SUPERFEAT_CACHE", str(cache))
        yield


@pytest.fixture(scope="session")
def case(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Case:
    folder = tmp_path_factory.mktemp("case")
    test, others = painted_set(folder)
    distractors = [Photo(paint_random(folder / "more" / f"{n}.png", 300 + n), f"{n}.png") for n in range(3)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SUPERFEAT_CACHE", str(cache))
        once = finish(test, folder / "once", codebook=others, distractors=distractors)
    return Case(test, others, distractors, once, folder / "once")


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the images whose features are kept from here on."""
    names: list[str] = []
    add = FeatureWriter.add

    def noted(self: FeatureWriter, features: Features, stamp: tuple[int, int]) -> None:
        names.append(features.name)
        add(self, features, stamp)

    monkeypatch.setattr(FeatureWriter, "add", noted)
    return names


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One for each image that goes through the network from here on."""
    images: list[int] = []
    call = Palette.__call__

    def noted(self: Palette, pixels: torch.Tensor) -> Any:
        images.append(1)
        return call(self, pixels)

    monkeypatch.setattr(Palette, "__call__", noted)
    return images


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One for each k-means from here on."""
    calls: list[int] = []
    train = train_codebook

    def noted(*given: Any, **more: Any) -> Codebook:
        calls.append(1)
        return train(*given, **more)

    monkeypatch.setattr(superfeat.evaluation.stages, "train_codebook", noted)
    return calls
