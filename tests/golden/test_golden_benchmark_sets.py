"""The reference's evaluation of a made-up list in the layout of ROxford5k and RParis6k."""

import math
import shutil
from pathlib import Path

import numpy as np
import pytest

from superfeat.datasets.retrieval_set import Query, RetrievalSet
from superfeat.datasets.revisited import read_revisited
from superfeat.evaluation.metrics import average_precision, mean_average_precision

TOLERANCE = 1e-12


@pytest.fixture(scope="module")
def synthetic(golden: Path, tmp_path_factory: pytest.TempPathFactory) -> RetrievalSet:
    folder = tmp_path_factory.mktemp("synthetic")
    shutil.copy(golden / "gnd_synth.pkl", folder / "gnd_roxford5k.pkl")
    return read_revisited(folder, "roxford5k")


def test_the_made_up_list(golden: Path, synthetic: RetrievalSet) -> None:
    assert (len(synthetic.photos), len(synthetic.queries), synthetic.left_out) == (200, 11, 1)
    with np.load(golden / "eval_map.npz") as arrays:
        for query in synthetic.queries:
            number = int(query.photo.name.removeprefix("im_"))
            assert query.photo.box == (10.0, 20.0, 110.5, 220.5)
            assert query.easy == tuple(sorted(arrays[f"gnd{number}_easy"].tolist()))
            assert query.hard == tuple(sorted(arrays[f"gnd{number}_hard"].tolist()))
            assert query.junk == tuple(sorted(arrays[f"gnd{number}_junk"].tolist()))


def judged(query: Query, grade: str) -> tuple[set[int], set[int]]:
    """Positives and junk of METHOD 7."""
    easy, hard, junk = set(query.easy), set(query.hard), set(query.junk)
    return {"E": (easy, junk | hard), "M": (easy | hard, junk), "H": (hard, junk | easy)}[grade]


@pytest.mark.parametrize("grade", ["E", "M", "H"])
def test_the_reference_agrees_on_the_three_grades(golden: Path, synthetic: RetrievalSet, grade: str) -> None:
    with np.load(golden / "eval_map.npz") as arrays:
        ranks, expected, mean = arrays["ranks"], arrays[f"{grade}_aps"], float(arrays[f"{grade}_map"])
    found = [math.nan] * len(expected)
    for query in synthetic.queries:
        number = int(query.photo.name.removeprefix("im_"))
        found[number] = average_precision(ranks[:, number], *judged(query, grade))
    np.testing.assert_allclose(found, expected, atol=TOLERANCE, rtol=0)
    assert abs(mean_average_precision(found) - mean) < TOLERANCE
