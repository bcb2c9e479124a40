"""One study for all files: the command line measures everything once, and the tests look at what it left."""

import collections
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fixtures_reproduce import FOLDER, TINY, Made, run, small
from superfeat.studies.reproduce import catalogue, study
from superfeat.studies.reproduce.catalogue import Reproduced
from superfeat.studies.reproduce.outcome import Outcome
from superfeat.studies.reproduce.study import Study


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for all tests."""
    return tmp_path_factory.mktemp("reproduce")


@pytest.fixture(scope="module", autouse=True)
def _small(place: Path) -> Iterator[None]:
    with small(place):
        yield


@pytest.fixture(scope="session")
def made(place: Path) -> Made:
    output = place / FOLDER
    outcomes: dict[str, Outcome] = {}
    measure = catalogue.measure

    def remember(name: str, with_study: Study) -> Reproduced:
        found = measure(name, with_study)
        outcomes[name] = found.outcome
        return found

    with small(place), pytest.MonkeyPatch.context() as patch:
        patch.setattr(catalogue, "measure", remember)
        result = run("all", "-o", output, "--workers", "1", "--json")
        assert result.exit_code == 0, result.output
        study = Study(TINY, output / "work-mini", workers=1)
    return Made(output / "mini", json.loads(result.stdout), outcomes, study)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> collections.Counter[str]:
    """How often something is trained, pretrained or drawn, and what evaluations do."""
    counts: collections.Counter[str] = collections.Counter()

    def counted(name: str) -> None:
        original = getattr(study, name)

        def call(*arguments: Any, **options: Any) -> Iterator[Any]:
            counts[name] += 1
            for step in original(*arguments, **options):
                counts[f"{name}: {getattr(step, 'stage', 'end')}"] += 1
                yield step

        monkeypatch.setattr(study, name, call)

    for name in ("train", "pretrain", "run_protocol"):
        counted(name)
    return counts
