"""What comes with superfeat is whole, fits together, is small, and says where it comes from."""

import json

import pytest

from superfeat.config import CALIBRATION, DEFAULT_WEIGHTS, SearchConfig
from superfeat.index.codebook import Codebook
from superfeat.probability.model import Calibration
from superfeat.storage.store import read_json
from superfeat.weights import load_network
from superfeat.weights.named import SHIPPED_FOLDER, shipped_names

MOST_BYTES = 40_000_000


def test_the_default_is_shipped() -> None:
    assert DEFAULT_WEIGHTS in shipped_names()


@pytest.mark.parametrize("name", shipped_names())
def test_network_codebook_and_calibration_fit_together(name: str) -> None:
    network, codebook = load_network(name), Codebook.open(SHIPPED_FOLDER / name / "codebook")
    calibration = Calibration.from_dict(read_json(SHIPPED_FOLDER / name / CALIBRATION))
    assert network.dim == codebook.dim
    assert (calibration.origin.network, calibration.origin.codebook) == (network.digest, codebook.digest)
    search = SearchConfig()
    assert (calibration.origin.alpha, calibration.origin.threshold) == (search.alpha, search.threshold)


@pytest.mark.parametrize("name", shipped_names())
def test_small_and_explained(name: str) -> None:
    assert sum(file.stat().st_size for file in (SHIPPED_FOLDER / name).rglob("*") if file.is_file()) <= MOST_BYTES
    card = (SHIPPED_FOLDER / name / "README.md").read_text()
    digest = json.loads((SHIPPED_FOLDER / name / "config.json").read_text())["digest"]
    for needed in (digest, "Licence", "Data", "superfeat train", "seed", "val_landmarks"):
        assert needed in card, needed
