"""What comes with superfeat is whole, fits together, is small, and says where it comes from."""

import json
from pathlib import Path

import pytest

from superfeat.config import CALIBRATION, DEFAULT_WEIGHTS, SearchConfig
from superfeat.index.build import take_calibration
from superfeat.index.codebook import Codebook
from superfeat.index.index import Index
from superfeat.probability.model import Calibration
from superfeat.storage.store import read_json
from superfeat.weights import Network, carried_calibration, carried_codebook, load_network, save_network
from superfeat.weights.named import SHIPPED_FOLDER, shipped_names

MOST_BYTES = 40_000_000


def test_the_default_is_shipped() -> None:
    assert DEFAULT_WEIGHTS in shipped_names()


@pytest.mark.parametrize("name", shipped_names())
def test_network_codebook_and_calibration_fit_together(name: str) -> None:
    """A student has the codebook of its teacher, and a calibration of its own."""
    words = carried_codebook(name)
    assert words is not None
    network, codebook = load_network(name), Codebook.open(words)
    assert network.dim == codebook.dim
    calibration = Calibration.from_dict(read_json(SHIPPED_FOLDER / name / CALIBRATION))
    assert (calibration.origin.network, calibration.origin.codebook) == (network.digest, codebook.digest)
    search = SearchConfig()
    assert (calibration.origin.alpha, calibration.origin.threshold) == (search.alpha, search.threshold)


@pytest.mark.parametrize("name", shipped_names())
def test_small_and_explained(name: str) -> None:
    assert sum(file.stat().st_size for file in (SHIPPED_FOLDER / name).rglob("*") if file.is_file()) <= MOST_BYTES
    card = (SHIPPED_FOLDER / name / "README.md").read_text()
    facts = json.loads((SHIPPED_FOLDER / name / "config.json").read_text())
    command = "superfeat distil" if "teacher" in facts["provenance"] else "superfeat train"
    for needed in (facts["digest"], "Licence", "Data", command, "seed", "val_landmarks"):
        assert needed in card, needed


def test_a_student_takes_the_codebook_of_a_teacher_that_is_shipped(tmp_path: Path, tiny_network: Network) -> None:
    """But not its calibration, which is of the teacher's scores: a student may bring its own."""
    teacher = load_network(DEFAULT_WEIGHTS)
    for name, digest in (("student", teacher.digest), ("stranger", "0" * 64)):
        save_network(Network(tiny_network.module, tiny_network.config, {"teacher": digest}), tmp_path / name)
    assert carried_codebook(tmp_path / "student") == SHIPPED_FOLDER / DEFAULT_WEIGHTS / "codebook"
    assert carried_codebook(tmp_path / "stranger") is None
    theirs, student = SHIPPED_FOLDER / DEFAULT_WEIGHTS / "codebook", tmp_path / "student"
    words = Codebook.open(theirs)
    for number, (network, taken) in enumerate(((teacher.digest, True), (tiny_network.digest, False))):
        index = Index.create(tmp_path / f"index{number}", words, network=network)
        take_calibration(
            index, SHIPPED_FOLDER / DEFAULT_WEIGHTS / "codebook", carried_calibration(tmp_path / "student")
        )
        assert (index.path / CALIBRATION).exists() == taken
    facts = read_json(SHIPPED_FOLDER / DEFAULT_WEIGHTS / CALIBRATION)
    facts["origin"]["network"] = tiny_network.digest
    (student / CALIBRATION).write_text(json.dumps(facts))
    take_calibration(index, theirs, carried_calibration(student))
    assert read_json(index.path / CALIBRATION) == facts


@pytest.mark.parametrize("name", shipped_names())
def test_ranges_for_int8_come_with_it(name: str) -> None:
    network = load_network(name)
    assert network.ranges is not None
    assert network.ranges.network == network.digest
