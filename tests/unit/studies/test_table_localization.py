"""The table of localization: our rows, the paper's beside them, and the scenes that it needs."""

import types
from pathlib import Path
from typing import cast

import pytest

from fixtures_mapping import write_aachen, write_scene
from fixtures_recipe import save_random_network
from superfeat.errors import SuperfeatError
from superfeat.mapping.measure import LocalizationScore
from superfeat.mapping.pose_files import pose_line
from superfeat.studies.reproduce.catalogue import reproduce
from superfeat.studies.reproduce.study import Study
from superfeat.studies.reproduce.table_localization import outcome, run


def test_ours_and_the_papers() -> None:
    scores = [
        LocalizationScore(name, 5, 4, (value, 90.0, 95.0), 1.0, 1.0) for name, value in (("ASMK", 80), ("pooled", 70))
    ]
    made = outcome(scores)
    assert made.rows[0] == ["ours, ASMK", 5, 80, 90.0, 95.0]
    assert made.rows[4] == ["paper, Aachen by day, FIRe", 50, 90.7, 96.5, 99.5]
    assert made.rows[-1] == ["paper, Aachen by night, FIRe", 50, 74.3, 90.1, 98.4]
    assert made.agrees
    assert not outcome([scores[0]._replace(percent=(60.0, 90.0, 95.0)), scores[1]]).agrees


def test_by_day_and_by_night() -> None:
    """ASMK must be as good as pooled vectors in both; a group whose poses nobody knows is left out."""
    scores = [
        LocalizationScore(method, 50, 4, (value, 90.0, 95.0), 1.0, 1.0, light)
        for light, asmk, pooled in (("day", 80.0, 70.0), ("night", 50.0, 60.0))
        for method, value in (("ASMK", asmk), ("pooled", pooled))
    ]
    made = outcome(scores)
    assert made.rows[2] == ["ours, ASMK, night", 50, 50.0, 90.0, 95.0]
    assert made.finding.endswith(
        "80.0 % by day with ASMK at best, 70.0 % pooled; 50.0 % by night with ASMK at best, 60.0 % pooled"
    )
    assert not made.agrees
    unknown = [one._replace(percent=()) if one.group == "night" else one for one in scores]
    assert outcome(unknown).agrees


def test_it_needs_scenes(tmp_path: Path) -> None:
    with pytest.raises(SuperfeatError, match=r"needs aachen-v1\.1 or scenes with poses") as error:
        reproduce("table-localization", tmp_path)
    assert error.value.arguments == ("images",)


def test_aachen_in_the_folder_of_benchmarks(tmp_path: Path) -> None:
    """Without true poses it says where the poses for the server are; with them, it makes the table of what is there."""
    pytest.importorskip("pycolmap")
    true = write_aachen(tmp_path / "data" / "aachen-v1.1")
    network = save_random_network(tmp_path / "tiny", templates=24, whitened_dim=16)
    study = types.SimpleNamespace(
        images=tmp_path / "data",
        work=tmp_path / "work",
        weights=str(network),
        workers=1,
        device="cpu",
        on_progress=lambda what, done, total: None,
    )
    with pytest.raises(SuperfeatError, match=r"send it .*pooled-top50\.txt, or one of the 9 others beside it"):
        run(cast(Study, study))
    assert (tmp_path / "work" / "localization" / "poses" / "ASMK-top20.txt").read_text().startswith("noon.png ")
    given = tmp_path / "data" / "aachen-v1.1" / "queries" / "poses.txt"
    given.write_text("".join(f"{pose_line(name, pose)}\n" for name, pose in true.items()))
    made = run(cast(Study, study))
    assert ["ours, ASMK, night", 50, 100.0, 100.0, 100.0] in made.rows


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
    with pytest.raises(SuperfeatError, match=r"needs aachen-v1\.1 or scenes with poses"):
        run(cast(Study, study))
