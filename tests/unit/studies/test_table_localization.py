"""The table of localization: our rows, the paper's beside them, and the scenes that it needs."""

import types
from pathlib import Path
from typing import cast

import pytest

from fixtures_mapping import write_scene
from fixtures_recipe import save_random_network
from superfeat.errors import SuperfeatError
from superfeat.mapping.measure import LocalizationScore
from superfeat.studies.reproduce.catalogue import reproduce
from superfeat.studies.reproduce.study import Study
from superfeat.studies.reproduce.table_localization import outcome, run


def test_ours_and_the_papers() -> None:
    scores = [
        LocalizationScore(name, 5, 4, (value, 90.0, 95.0), 1.0, 1.0) for name, value in (("ASMK", 80), ("pooled", 70))
    ]
    made = outcome(scores)
    assert made.rows[0] == ["ours, ASMK", 5, 80, 90.0, 95.0]
    assert made.rows[-1] == ["paper, Aachen by day, FIRe", 50, 90.7, 96.5, 99.5]
    assert made.agrees
    assert not outcome([scores[0]._replace(percent=(60.0, 90.0, 95.0)), scores[1]]).agrees


def test_it_needs_scenes(tmp_path: Path) -> None:
    with pytest.raises(SuperfeatError, match="needs scenes with poses") as error:
        reproduce("table-localization", tmp_path)
    assert error.value.arguments == ("images",)


def test_measured_on_a_painted_wall(tmp_path: Path) -> None:
    pytest.importorskip("pycolmap")
    write_scene(tmp_path / "scenes" / "wall", 3)
    network = save_random_network(tmp_path / "tiny", templates=24, whitened_dim=16)
    told: list[str] = []
    study = types.SimpleNamespace(
        images=tmp_path / "scenes",
        work=tmp_path / "work",
        weights=str(network),
        workers=1,
        device="cpu",
        on_progress=lambda what, done, total: told.append(what),
    )
    made = run(cast(Study, study))
    assert [row[:2] for row in made.rows[:2]] == [["ours, ASMK", 1], ["ours, ASMK", 5]]
    assert made.rows[4][4] == 100.0  # every photo of the map was retrieved
    assert {"extracting", "points", "matching", "localizing"} <= set(told)
    study.images = None
    with pytest.raises(SuperfeatError, match="needs scenes with poses"):
        run(cast(Study, study))
