"""Keras ResNets: the loaded trunk computes what Keras's own definition says, from its old and its new names."""

import io
import json
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import oracles
from fixtures_recipe import noise, relative_error
from superfeat import load_network
from superfeat.config import NetworkConfig, TrunkConfig
from superfeat.errors import MissingExtraError, WeightsError
from superfeat.images import normalise
from superfeat.weights.keras import is_keras

DEPTHS = (3, 4)  # two stages of ResNet-50: with a stride, and small enough
Layers = dict[str, dict[str, np.ndarray]]


def keras_layers(new: bool, seed: int = 0, bias: bool = True) -> Layers:
    """Random weights under Keras's names; statistics and biases large enough to matter."""
    rng = np.random.default_rng(seed)
    layers: Layers = {}

    def add(names: tuple[str, str], size: int, inputs: int, outputs: int) -> None:
        kernel = rng.standard_normal((size, size, inputs, outputs)) * np.sqrt(2 / (size * size * inputs))
        layers[names[0]] = {"kernel": kernel.astype(np.float32)}
        if bias:
            layers[names[0]]["bias"] = rng.standard_normal(outputs).astype(np.float32)
        layers[names[1]] = {
            "gamma": (1 + 0.1 * rng.standard_normal(outputs)).astype(np.float32),
            "beta": rng.standard_normal(outputs).astype(np.float32),
            "moving_mean": rng.standard_normal(outputs).astype(np.float32),
            "moving_variance": (0.002 + rng.random(outputs)).astype(np.float32),
        }

    add(("conv1_conv", "conv1_bn") if new else ("conv1", "bn_conv1"), 7, 3, 64)
    inputs = 64
    for stage, depth in enumerate(DEPTHS, 2):
        width = 64 * 2 ** (stage - 2)
        for block in range(depth):
            if block == 0:
                add(oracles.keras_names(new, stage, block, 0), 1, inputs, 4 * width)
            add(oracles.keras_names(new, stage, block, 1), 1, inputs, width)
            add(oracles.keras_names(new, stage, block, 2), 3, width, width)
            add(oracles.keras_names(new, stage, block, 3), 1, width, 4 * width)
            inputs = 4 * width
    layers["fc1000"] = {"kernel": np.zeros((8, 2), np.float32), "bias": np.zeros(2, np.float32)}
    return layers


def tfjs_files(layers: Layers, shards: int = 3, scope: str = "") -> dict[str, bytes]:
    """model.json and its shards, as tensorflowjs_converter writes them."""
    entries, data = [], b""
    for layer, values in layers.items():
        for kind, array in values.items():
            entries.append({"name": f"{scope}{layer}/{kind}", "shape": list(array.shape), "dtype": "float32"})
            data += array.astype("<f4").tobytes()
    cuts = np.linspace(0, len(data), shards + 1).astype(int)
    paths = [f"group1-shard{number + 1}of{shards}" for number in range(shards)]
    model = {"modelTopology": {}, "weightsManifest": [{"paths": paths, "weights": entries}]}
    files = {path: data[cuts[number] : cuts[number + 1]] for number, path in enumerate(paths)}
    return {"model.json": json.dumps(model).encode(), **files}


def write_folder(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def write_tarball(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


def check(path: Path, layers: Layers, new: bool) -> None:
    network = load_network(path)
    expected_config = TrunkConfig(
        "resnet50", 2, True, (123.68 / 255, 116.779 / 255, 103.939 / 255), (1 / 255, 1 / 255, 1 / 255)
    )
    assert network.config == NetworkConfig("how", expected_config, None, None)
    assert network.provenance["kind"] == "Keras trunk"
    pixels = noise(33, 47)
    with torch.inference_mode():
        found = network.module.trunk(torch.from_numpy(normalise(pixels, *network.normalisation)).unsqueeze(0))[0]
    expected = oracles.keras_trunk(layers, pixels, DEPTHS, new)
    assert found.shape == expected.shape
    assert relative_error(found, expected) <= 5e-6


@pytest.mark.parametrize("new", [False, True], ids=["old names", "new names"])
@pytest.mark.parametrize("form", ["folder", "model.json", "tarball"])
def test_the_trunk_computes_what_keras_defines(new: bool, form: str, tmp_path: Path) -> None:
    layers = keras_layers(new)
    files = tfjs_files(layers)
    if form == "tarball":
        path = write_tarball(
            tmp_path / "package.tgz", {f"package/models/ResNet50/{name}": data for name, data in files.items()}
        )
    else:
        path = write_folder(tmp_path / "model", files) / ("model.json" if form == "model.json" else "")
    check(path, layers, new)


def test_names_inside_a_scope(tmp_path: Path) -> None:
    layers = keras_layers(new=False)
    check(write_folder(tmp_path / "model", tfjs_files(layers, scope="resnet50/")), layers, new=False)


def test_convolutions_without_bias(tmp_path: Path) -> None:
    bare = keras_layers(new=True, bias=False)
    with_zeros = {
        name: {**values, "bias": np.zeros(values["kernel"].shape[3], np.float32)}
        if "kernel" in values and name != "fc1000"
        else values
        for name, values in bare.items()
    }
    path = write_folder(tmp_path / "model", tfjs_files(bare))
    check(path, with_zeros, new=True)


def test_of_several_models_in_a_package_the_resnet_is_taken(tmp_path: Path) -> None:
    layers = keras_layers(new=False)
    files = {f"package/ResNet50/{name}": data for name, data in tfjs_files(layers).items()}
    files["package/Another/model.json"] = b"{}"
    check(write_tarball(tmp_path / "package.tar.gz", files), layers, new=False)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.h5", True),
        ("a.HDF5", True),
        ("a.tgz", True),
        ("a.tar.gz", True),
        ("model.json", True),
        ("a.pth", False),
        ("a.safetensors", False),
    ],
)
def test_what_looks_like_keras(name: str, expected: bool, tmp_path: Path) -> None:
    assert is_keras(tmp_path / name) is expected
    assert is_keras(tmp_path) is False
    (tmp_path / "model.json").write_text("{}")
    assert is_keras(tmp_path) is True


# --- damaged files ----------------------------------------------------------------------------------------------------


def manifest(*entries: Any, paths: Any = ()) -> bytes:
    return json.dumps({"weightsManifest": [{"paths": list(paths), "weights": list(entries)}]}).encode()


def entry(name: Any, shape: Any, dtype: str = "float32") -> dict[str, Any]:
    return {"name": name, "shape": shape, "dtype": dtype}


@pytest.mark.parametrize(
    "model",
    [
        b"",
        b"not json",
        b"[]",
        b"{}",
        b'{"weightsManifest": 3}',
        b'{"weightsManifest": [{}]}',
        manifest(),
        manifest(paths=["absent"]),
        manifest(paths=[3]),
        manifest(entry("conv1/kernel", [2])),
        manifest(entry("conv1/kernel", [0])),
        manifest(entry("conv1/kernel", [-1])),
        manifest(entry("conv1/kernel", ["a"])),
        manifest(entry("conv1/kernel", [0], "string")),
        manifest(entry(5, [0])),
    ],
    ids=range(15),
)
def test_damaged_manifests(model: bytes, tmp_path: Path) -> None:
    path = write_folder(tmp_path / "model", {"model.json": model})
    with pytest.raises(WeightsError) as error:
        load_network(path)
    assert str(path) in str(error.value)


def test_a_shard_that_is_cut_off(tmp_path: Path) -> None:
    files = tfjs_files(keras_layers(new=False))
    files["group1-shard3of3"] = files["group1-shard3of3"][:-8]
    with pytest.raises(WeightsError, match=r"not a complete TensorFlow.js model"):
        load_network(write_folder(tmp_path / "model", files))


def test_a_shard_that_is_missing(tmp_path: Path) -> None:
    files = tfjs_files(keras_layers(new=False))
    del files["group1-shard2of3"]
    with pytest.raises(WeightsError, match=r"not a complete TensorFlow.js model"):
        load_network(write_folder(tmp_path / "model", files))
    with pytest.raises(WeightsError, match=r"not a complete TensorFlow.js model"):
        load_network(write_tarball(tmp_path / "p.tgz", {f"p/{name}": data for name, data in files.items()}))


def test_shards_are_never_looked_for_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(bytes(8))
    path = write_folder(tmp_path / "model", {"model.json": manifest(entry("conv1/bias", [2]), paths=["../secret"])})
    with pytest.raises(WeightsError, match=r"not a complete TensorFlow.js model"):
        load_network(path)


def test_quantised_weights_are_refused(tmp_path: Path) -> None:
    """One byte for each value, to be scaled: a form that is not read here."""
    files = tfjs_files(keras_layers(new=False), shards=1)
    model: dict[str, Any] = json.loads(files["model.json"])
    for weight in model["weightsManifest"][0]["weights"]:
        weight["quantization"] = {"dtype": "uint8", "min": -1.0, "scale": 0.01}
    quantised = {"model.json": json.dumps(model).encode(), "group1-shard1of1": files["group1-shard1of1"][::4]}
    with pytest.raises(WeightsError):
        load_network(write_folder(tmp_path / "model", quantised))


def test_missing_layers_are_named(tmp_path: Path) -> None:
    layers = keras_layers(new=False)
    del layers["bn2b_branch2b"]
    with pytest.raises(WeightsError, match=r"4 missing: layer1\.1\.bn2\.weight"):
        load_network(write_folder(tmp_path / "model", tfjs_files(layers)))


@pytest.mark.parametrize("data", [b"", b"not a tarball at all", b"\x1f\x8b\x08\x00broken"])
def test_damaged_tarballs(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "p.tgz").write_bytes(data)
    with pytest.raises(WeightsError):
        load_network(tmp_path / "p.tgz")


def test_a_tarball_cut_off(tmp_path: Path) -> None:
    path = write_tarball(
        tmp_path / "p.tgz", {f"p/{name}": data for name, data in tfjs_files(keras_layers(new=False)).items()}
    )
    path.write_bytes(path.read_bytes()[:100_000])
    with pytest.raises(WeightsError, match="damaged or incomplete"):
        load_network(path)


def test_a_tarball_of_something_else(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"holds no model.json"):
        load_network(write_tarball(tmp_path / "p.tgz", {"package/readme": b"hello"}))


def test_nothing_is_unpacked(tmp_path: Path) -> None:
    layers = keras_layers(new=False)
    files = {f"p/{name}": data for name, data in tfjs_files(layers).items()}
    path = write_tarball(tmp_path / "p.tgz", {"../escaped": b"x", "/tmp/absolute-escape": b"x", **files})
    check(path, layers, new=False)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["p.tgz"]


# --- .h5 --------------------------------------------------------------------------------------------------------------


def test_h5_needs_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    (tmp_path / "a.h5").write_bytes(b"x")
    with pytest.raises(MissingExtraError, match=r"superfeat\[keras\]"):
        load_network(tmp_path / "a.h5")


@pytest.mark.parametrize("new", [False, True], ids=["old names", "new names"])
def test_h5(new: bool, tmp_path: Path) -> None:
    h5py: Any = pytest.importorskip("h5py")
    layers = keras_layers(new)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for layer, values in layers.items():
            for kind, array in values.items():
                file[f"{layer}/{layer}/{kind}:0"] = array
    check(tmp_path / "a.h5", layers, new)


def test_a_damaged_h5(tmp_path: Path) -> None:
    pytest.importorskip("h5py")
    (tmp_path / "a.h5").write_bytes(b"not hdf5")
    with pytest.raises(WeightsError, match=r"not a readable .h5 file"):
        load_network(tmp_path / "a.h5")
