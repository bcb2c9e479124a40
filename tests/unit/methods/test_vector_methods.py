"""Methods with one vector per photo, from photos on: extract, index, search, evaluate, ONNX."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

import superfeat
from superfeat import Engine, ExtractConfig, Network, extract, save_network
from superfeat.config import NetworkConfig, PoolingConfig, TrunkConfig
from superfeat.errors import SuperfeatError
from superfeat.evaluation.evaluate import evaluate
from superfeat.extraction.extract import extract_to
from superfeat.extraction.folder import FeatureStore
from superfeat.index.make import index_features
from superfeat.methods import METHODS, profile_for
from superfeat.weights import build_module
from superfeat.weights.onnx import export_onnx, load_onnx

SMALL = ExtractConfig(max_side=48, scales=(1.0, 0.5))
VECTORS = [name for name, method in METHODS.items() if method.one_vector]


def small_network(name: str, whitened: int | None = None) -> Network:
    torch.manual_seed(1)
    known = METHODS[name].network.pooling
    assert known is not None
    pooling = dataclasses.replace(known, layer=known.layer and 16)
    config = NetworkConfig(name, TrunkConfig("resnet10", stages=2), None, whitened, pooling)
    module = build_module(config)
    if module.whitening is not None:
        torch.nn.init.normal_(module.whitening.weight)
    for part in ("soa4", "soa5"):
        if hasattr(module.trunk, part):
            torch.nn.init.normal_(getattr(module.trunk, part).v.weight)
    return Network(module, config)


@pytest.mark.parametrize("name", VECTORS)
@pytest.mark.parametrize("whitened", [None, 8])
def test_an_export_gives_the_same(tmp_path: Path, photo_folder: Path, name: str, whitened: int | None) -> None:
    pytest.importorskip("onnxruntime", reason="needs the extra onnx")
    network = small_network(name, whitened)
    if name == "rmac":
        with pytest.raises(SuperfeatError, match="R-MAC cannot be exported"):
            export_onnx(network, tmp_path / "network.onnx")
        return
    export_onnx(network, tmp_path / "network.onnx")
    exported = load_onnx(tmp_path / "network.onnx")
    (plain,) = extract(network, [photo_folder / "a.png"], SMALL, workers=1)
    (found,) = extract(exported, [photo_folder / "a.png"], SMALL, workers=1)
    assert found.vectors.shape == plain.vectors.shape == (1, network.dim)
    np.testing.assert_allclose(found.vectors, plain.vectors, atol=2e-5)
    assert np.linalg.norm(found.vectors) == pytest.approx(1, abs=1e-5)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_network(small_network("gem"), tmp_path / "gem")
    return tmp_path / "gem"


def test_photos_to_answers(tmp_path: Path, photo_folder: Path, folder: Path) -> None:
    done = superfeat.index_photos(
        photo_folder, tmp_path / "index", weights=str(folder), settings={"max_side": 48}, kernel="int8"
    )
    index = done.open()
    assert index.config.kernel == "int8"
    assert index.facts["extract"]["scales"] == list(profile_for("gem").scales)
    engine = Engine.open(tmp_path / "index")
    answer = engine.search(photo_folder / "a.png", top=2)
    assert len(answer) >= 1
    part = engine.search(photo_folder / "a.png", box=(0.0, 0.0, 0.5, 0.5), top=2)
    assert part[0].score <= 1
    with pytest.raises(SuperfeatError, match="one vector per photo, so that a score has no parts"):
        engine.explain(photo_folder / "a.png", answer[0])


def test_a_features_folder_becomes_an_index(tmp_path: Path, photo_folder: Path) -> None:
    for _ in extract_to(tmp_path / "features", small_network("mac"), photo_folder, SMALL, workers=1):
        pass
    assert FeatureStore(tmp_path / "features").manifest["dim"] == 128
    work = index_features(tmp_path / "features", tmp_path / "index", kernel="float16")
    index = work.result().open()
    assert index.config.kernel == "float16"
    assert len(index) == len(FeatureStore(tmp_path / "features"))


def test_kernels_and_words_that_do_not_fit(tmp_path: Path, photo_folder: Path, folder: Path) -> None:
    with pytest.raises(SuperfeatError, match="the kernel binary is for local features"):
        superfeat.index_photos(photo_folder, tmp_path / "a", weights=str(folder), kernel="binary")
    with pytest.raises(SuperfeatError, match="has no words: leave the codebook out"):
        superfeat.index_photos(photo_folder, tmp_path / "a", weights=str(folder), codebook="own")
    with pytest.raises(SuperfeatError, match="the kernel int8 is for networks with one vector"):
        superfeat.index_photos(photo_folder, tmp_path / "a", kernel="int8")
    assert not (tmp_path / "a").exists()


def test_a_protocol_run(tmp_path: Path, folder: Path) -> None:
    from PIL import Image

    from fixtures_recipe import noise

    for thing in range(3):
        (tmp_path / "things" / f"t{thing}").mkdir(parents=True)
        for view in range(2):
            mixed = 0.9 * noise(40, 32, thing) + 0.1 * noise(40, 32, 50 + 2 * thing + view)
            Image.fromarray(mixed.astype(np.uint8)).save(tmp_path / "things" / f"t{thing}" / f"{view}.png")
    found = evaluate(tmp_path / "things", tmp_path / "run", weights=folder, settings={"extract.max_side": 40}).result()
    (values,) = (grade for grade in found.scores["grades"].values())
    assert values["map"] is not None
    assert found.card["memory"]["bytes_per_image"] == pytest.approx(128 * 4 + 2)
    words = (tmp_path / "run" / "card.txt").read_text()
    assert "One vector per image (float32, 128 dimensions" in words
    changes = {"extract.max_side": 40, "index.search.expansion": {"images": 2, "alpha": 2.0}, "index.kernel": "float16"}
    evaluate(tmp_path / "things", tmp_path / "expanded", weights=folder, settings=changes).result()
    assert "after expansion by 2 images" in (tmp_path / "expanded" / "card.txt").read_text()


def test_pooling_settings_are_checked() -> None:
    for wrong in ({"p": 0.0}, {"levels": 0}, {"layer": 0}):
        with pytest.raises(SuperfeatError, match="pooling"):
            PoolingConfig(**wrong)
    with pytest.raises(SuperfeatError, match="'gem' needs \\[pooling\\]"):
        NetworkConfig("gem", lit=None)
    with pytest.raises(SuperfeatError, match="'how' takes no \\[pooling\\]"):
        NetworkConfig("how", lit=None, pooling=PoolingConfig())
