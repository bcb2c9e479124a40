"""The benchmark of verification still runs, on two small sets that are made up. Its timings are not looked at."""

import json
from pathlib import Path

import numpy as np
import pytest
from benchmarks import verification

from superfeat.extraction.folder import feature_writer
from superfeat.features import Features
from superfeat.index.codebook import Codebook
from superfeat.probability.model import Calibration

THINGS, VIEWS, COUNT, DIM = 12, 3, 30, 64
CODEBOOK = Codebook(5 * np.random.default_rng(0).standard_normal((300, DIM)).astype(np.float32))


def view(name: str, thing: int, number: int) -> Features:
    """Most words of a thing where they belong, shifted a little, and some that are anybody's."""
    rng, own = np.random.default_rng((thing, number)), np.random.default_rng(thing)
    words, places = own.choice(300, COUNT, replace=False), own.random((COUNT, 2))
    strange = rng.random(COUNT) < 0.3 + 0.1 * number
    words = np.where(strange, rng.integers(0, 300, COUNT), words)
    places = np.where(strange[:, None], rng.random((COUNT, 2)), 0.9 * places + 0.02 * number)
    vectors = (CODEBOOK.centroids[words] + own.standard_normal((COUNT, DIM))).astype(np.float32)
    regions = np.concatenate((places, np.full((COUNT, 2), 0.05)), axis=1).astype(np.float32)
    ones = np.ones(COUNT, np.float32)
    return Features(name, vectors, ones, ones, np.arange(COUNT, dtype=np.int32), regions, image_size=(640, 480))


@pytest.fixture
def given(tmp_path: Path) -> list[str]:
    """Two sets with features, and a codebook."""
    CODEBOOK.save(tmp_path / "codebook")
    (tmp_path / "gnd").mkdir()
    for part, name in enumerate(("one", "other")):
        names = [f"{name}/{thing}/{number}.jpg" for thing in range(THINGS) for number in range(VIEWS)]
        queries = [
            {"img": photo, "self": row, "pos": [first + n for n in range(VIEWS) if first + n != row]}
            for row, photo in enumerate(names)
            for first in [row - row % VIEWS]
        ]
        (tmp_path / "gnd" / f"{name}.json").write_text(json.dumps({"name": name, "db": names, "queries": queries}))
        facts = {"network": {"digest": "network"}, "extract": {"attention": "regions"}}
        with feature_writer(tmp_path / "features" / name, facts, DIM, regions=True) as writer:  # type: ignore[arg-type]
            for row, photo in enumerate(names):
                writer.add(view(photo, 100 * part + row // VIEWS, row % VIEWS), (1, 1))
            writer.finish()
    sets = ["--sets", "one", "other", "--codebook", str(tmp_path / "codebook")]
    return [*sets, "--data", str(tmp_path), "--features", str(tmp_path / "features"), "--json", str(tmp_path / "out")]


def test_orders_are_measured_against_none(given: list[str], tmp_path: Path) -> None:
    verification.main(["rerank", *given])
    found = json.loads((tmp_path / "out").read_text())
    assert set(found["one"]) == set(verification.METHODS)
    assert found["one"]["off"]["gain"]["difference"] == 0
    assert all(0 < one["map"] <= 100 for one in found["other"].values())


def test_a_calibration_with_clues_is_fitted_judged_and_used(given: list[str], tmp_path: Path) -> None:
    written = tmp_path / "calibration.json"
    verification.main(["probability", *given, "--ship", "one", "other", "--write", str(written)])
    found = json.loads((tmp_path / "out").read_text())
    assert {"drawn: one", "whole: one", "drawn: other", "whole: other"} == set(found)
    assert found["whole: one"]["clues"]["log_loss"] < found["whole: one"]["always"]
    fitted = Calibration.from_dict(json.loads(written.read_text()))
    assert fitted.weights is not None
    assert fitted.largest == max(verification.SIZES[:4] + verification.SIZES[5:])
    verification.main(["duplicates", *given, "--calibration", str(written)])
    groups = json.loads((tmp_path / "out").read_text())
    assert groups["one"]["precision"] > 0.9
    assert groups["one"]["recall"] > 0.3


def test_time_is_measured_without_and_with(tmp_path: Path) -> None:
    small = ["--images", "300", "--words", "256", "--words-per-image", "20", "--rounds", "1"]
    verification.main(["time", *small, "--json", str(tmp_path / "out.json")])
    assert set(json.loads((tmp_path / "out.json").read_text())["milliseconds"]) == {"without", "with"}
