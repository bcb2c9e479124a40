"""How an engine looks at photos: with torch, with what is kept of the network, with int8 of the same network."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fixtures_recipe import network_with_words, noise, save_noise
from superfeat.engine import Engine
from superfeat.errors import SuperfeatError
from superfeat.extraction.kept import SWITCH, keep_export, kept_path
from superfeat.index.make import index_photos
from superfeat.weights import load_network
from superfeat.weights.int8 import learn_ranges, quantise_onnx
from superfeat.weights.onnx import export_onnx

SETTINGS = {"max_side": 96, "scales": (1.0, 0.5)}


@pytest.fixture(autouse=True)
def _cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SUPERFEAT_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def network(tmp_path: Path) -> Path:
    return network_with_words(tmp_path / "network")


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return save_noise(tmp_path / "photos", 5)


@pytest.fixture
def query(tmp_path: Path) -> Path:
    Image.fromarray(noise(80, 90, 9)).save(tmp_path / "query.png")
    return tmp_path / "query.png"


@pytest.fixture
def index(network: Path, photos: Path, tmp_path: Path) -> Path:
    return index_photos(photos, tmp_path / "index", weights=network, settings=SETTINGS, workers=1).path


def scores(engine: Engine, query: Path) -> dict[str, float]:
    return {hit.name: hit.score for hit in engine.search(query)}


def test_what_is_kept_of_the_network_answers_alike(
    index: Path, network: Path, query: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = scores(Engine.open(index), query)
    assert not kept_path("x").parent.exists(), "the environment says torch"
    monkeypatch.delenv(SWITCH)
    first = Engine.open(index)
    assert scores(first, query) == expected
    first.keep_network()
    for weights in (None, str(network)):
        engine = Engine.open(index, weights=weights)
        engine.warm_up()
        assert scores(engine, query) == pytest.approx(expected, abs=1e-6)
        assert "network" not in vars(engine._sight), "nothing was loaded with torch"
        engine.keep_network()
    shutil.rmtree(network)
    assert scores(Engine.open(index), query) == pytest.approx(expected, abs=1e-6), "the network itself has gone"


def test_another_network_is_refused_though_it_is_kept(
    index: Path, query: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(SWITCH)
    network = load_network(network_with_words(tmp_path / "other"))
    network.module.state_dict()["trunk.conv1.weight"].add_(0.01)
    changed = type(network)(network.module, network.config)
    export_onnx(changed, tmp_path / "changed.onnx")
    assert keep_export(changed)
    with pytest.raises(SuperfeatError, match="another network"):
        Engine.open(index, weights=str(tmp_path / "changed.onnx")).search(query)


@pytest.mark.parametrize("engine", ["auto", "torch"])
def test_int8_of_its_network_asks_an_index_and_does_not_add_to_it(
    engine: str, index: Path, network: Path, photos: Path, query: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SWITCH, engine)
    export_onnx(load_network(network), tmp_path / "plain.onnx")
    plain = tmp_path / "plain.onnx"
    quantise_onnx(plain, tmp_path / "int8.onnx", learn_ranges(plain, sorted(photos.iterdir()), images=3))
    exact, quick = Engine.open(index), Engine.open(index, weights=str(tmp_path / "int8.onnx"))
    assert scores(quick, query) == pytest.approx(scores(exact, query), abs=0.2)
    assert not np.array_equal(quick.features(query).vectors, exact.features(query).vectors)
    with pytest.raises(SuperfeatError, match="can only search"):
        quick.add("new.png", query)
    made = index_photos(photos, tmp_path / "small", weights=tmp_path / "int8.onnx", settings=SETTINGS, codebook="own")
    assert scores(Engine.open(made.path), query), "an index of int8 photos is asked with int8"
