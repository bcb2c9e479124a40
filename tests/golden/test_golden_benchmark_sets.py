"""The real lists of ROxford5k and RParis6k, and the reference's evaluation of a made-up one in their layout."""

import math
import shutil
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from superfeat.datasets.benchmarks import read_benchmark
from superfeat.datasets.retrieval_set import Query, RetrievalSet
from superfeat.datasets.revisited import read_revisited
from superfeat.evaluation.metrics import average_precision, mean_average_precision
from superfeat.storage.unpickle import read_pickle

TOLERANCE = 1e-12


@pytest.fixture(scope="module")
def data(shared: Path) -> Path:
    folder = shared.parent / "data"
    if not (folder / "groundtruth").is_dir():
        pytest.skip(f"the published lists are not at {folder}")
    return folder


@pytest.mark.parametrize(("name", "images"), [("roxford5k", 4993), ("rparis6k", 6322)])
def test_the_published_lists(data: Path, name: Literal["roxford5k", "rparis6k"], images: int) -> None:
    file = data / "groundtruth" / f"gnd_{name}.pkl"
    found = read_revisited(file.parent, name)
    assert (found.name, found.protocol, found.files, found.left_out) == (name, "revisited", (file,), 0)
    assert (len(found.photos), len(found.queries)) == (images, 70)
    stored = read_pickle(file)
    assert [photo.name for photo in found.photos] == stored["imlist"]
    assert [query.photo.name for query in found.queries] == stored["qimlist"]
    assert found.photos[-1].path == file.parent / "jpg" / f"{stored['imlist'][-1]}.jpg"
    for query, truth in zip(found.queries, stored["gnd"], strict=True):
        assert query.photo.box == tuple(truth["bbx"])
        assert query.easy == tuple(sorted(truth["easy"]))
        assert query.hard == tuple(sorted(truth["hard"]))
        assert query.junk == tuple(sorted(truth["junk"]))
        assert not set(query.positives) & set(query.junk)
    assert read_benchmark(name, file.parent) == found


@pytest.fixture(scope="module")
def synthetic(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> RetrievalSet:
    folder = tmp_path_factory.mktemp("synthetic")
    shutil.copy(shared / "gnd_synth.pkl", folder / "gnd_roxford5k.pkl")
    return read_revisited(folder, "roxford5k")


def test_the_made_up_list(shared: Path, synthetic: RetrievalSet) -> None:
    assert (len(synthetic.photos), len(synthetic.queries), synthetic.left_out) == (200, 11, 1)
    with np.load(shared / "eval_map.npz") as arrays:
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
def test_the_reference_agrees_on_the_three_grades(shared: Path, synthetic: RetrievalSet, grade: str) -> None:
    with np.load(shared / "eval_map.npz") as arrays:
        ranks, expected, mean = arrays["ranks"], arrays[f"{grade}_aps"], float(arrays[f"{grade}_map"])
    found = [math.nan] * len(expected)
    for query in synthetic.queries:
        number = int(query.photo.name.removeprefix("im_"))
        found[number] = average_precision(ranks[:, number], *judged(query, grade))
    np.testing.assert_allclose(found, expected, atol=TOLERANCE, rtol=0)
    assert abs(mean_average_precision(found) - mean) < TOLERANCE
