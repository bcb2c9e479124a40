"""An exported network gives what the torch network gives, at any size; a file that is not whole is refused."""

import dataclasses
import functools
import json
import logging
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from superfeat import extract, load_network, save_network
from superfeat.config import (
    AttentionConfig,
    ExtractConfig,
    LitConfig,
    NetworkConfig,
    PoolingConfig,
    TrunkConfig,
)
from superfeat.errors import ImageError, MissingExtraError, StoreError, SuperfeatError, WeightsError
from superfeat.features import Features
from superfeat.nets.local import Local
from superfeat.weights import Network, build_module
from superfeat.weights.int8 import learn_ranges, quantise_onnx
from superfeat.weights.onnx import OnnxModule, OnnxNetwork, export_onnx, load_onnx
from superfeat.weights.sealed import KEY

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

TRUNK = TrunkConfig("resnet18", stages=2)  # stride 8
LIT = LitConfig(templates=16, rounds=3, dim=64)  # torch's Lit folds above 3 * 16 = 48 places
CONFIGS = {
    "fire": NetworkConfig("fire", TRUNK, LIT, 32),
    "fire-gru": NetworkConfig("fire", TRUNK, dataclasses.replace(LIT, update="gru"), 32),
    "fire-bottleneck-raw": NetworkConfig("fire", TrunkConfig("resnet50", 1, True), LIT, None),
    "fire-points": NetworkConfig("fire", TRUNK, LIT, 32, points=2.5),
    "fire-lite": NetworkConfig("fire", TrunkConfig("efficientnet-lite0", 2, neck=24), LIT, 32, points=2.5),
    "how": NetworkConfig("how", TRUNK, None, 32),
    "how-raw": NetworkConfig("how", TRUNK, None, None),
}
HEADS = {
    "delf": NetworkConfig("delf", TRUNK, None, 24, attention=AttentionConfig()),
    "delf-untrained": NetworkConfig("delf", TRUNK, None, None, attention=AttentionConfig(trained=False)),
    "delf-head": NetworkConfig("delf", TRUNK, None, 16, attention=AttentionConfig("head")),
    "delf-slim": NetworkConfig(
        "delf", TrunkConfig("resnet50", 2, layout="slim"), None, None, attention=AttentionConfig("reduced", 24)
    ),
    "delf-keras": NetworkConfig(
        "delf", TrunkConfig("resnet50", 2, layout="keras-half"), None, 16, attention=AttentionConfig("reduced", 24)
    ),
    "delg-keras": NetworkConfig(
        "delg", TrunkConfig("resnet50", 2, layout="keras"), None, None, PoolingConfig("gem", layer=20)
    ),
}
CONFIGS |= HEADS
# 1 place, 2 places, 30 below the threshold, 48 on it, 221 above, a strip, and a size with no common divisor
SIZES = [(1, 1), (5, 9), (33, 47), (64, 48), (97, 131), (16, 300), (101, 53)]
TOLERANCE = 1e-4
Array = Tensor | np.ndarray[Any, Any]


def make_network(name: str, seed: int = 0) -> Network:
    """A network with every parameter and statistic drawn, so that none can be left out of the export unnoticed."""
    torch.manual_seed(seed)
    module = build_module(CONFIGS[name])
    with torch.no_grad():
        for key, value in [*module.named_parameters(), *module.named_buffers()]:
            if value.dim() == 1 and key.endswith(("running_var", "weight")):
                value.uniform_(0.5, 1.5)
            elif value.dim() == 1 or key.startswith("whitening"):
                value.normal_(0, 0.1)
    return Network(module, CONFIGS[name], {"source": "drawn", "seed": seed})


@pytest.fixture(scope="module", params=[name for name in CONFIGS if name not in HEADS])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Network, Network]:
    network = make_network(request.param)
    path = tmp_path_factory.mktemp("onnx") / "network.onnx"
    export_onnx(network, path)
    return network, load_network(path)


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    path = tmp_path / "network.onnx"
    export_onnx(make_network("fire"), path)
    return path


@pytest.fixture
def photos(tmp_path: Path) -> list[Path]:
    """Smooth coloured shapes of different sizes."""
    folder = tmp_path / "photos"
    folder.mkdir()
    draw = np.random.default_rng(5)
    paths = []
    for number, size in enumerate([(96, 80), (70, 110), (121, 65)]):
        coarse = draw.integers(0, 256, (9, 8, 3), dtype=np.uint8)
        paths.append(folder / f"{number}.png")
        Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC).save(paths[-1])
    return paths


def run(network: Network, image: Tensor) -> Local:
    with torch.inference_mode():
        local: Local = network.module(image)
    return local


def distance(ours: Array, theirs: Array) -> float:
    """The largest difference, relative to the largest value."""
    one, other = np.asarray(ours), np.asarray(theirs)
    assert one.shape == other.shape
    return float(abs(one - other).max() / abs(other).max())


@pytest.mark.parametrize("size", SIZES)
def test_export_equals_torch_at_any_size(pair: tuple[Network, Network], size: tuple[int, int]) -> None:
    torch.manual_seed(size[0])
    image = torch.randn(1, 3, *size)
    theirs, ours = run(pair[0], image), run(pair[1], image)
    assert ours.grid == theirs.grid
    assert distance(ours.vectors, theirs.vectors) < TOLERANCE
    assert distance(ours.strengths, theirs.strengths) < TOLERANCE
    assert (ours.maps is None) == (theirs.maps is None)
    if ours.maps is not None and theirs.maps is not None:
        assert distance(ours.maps, theirs.maps) < TOLERANCE


@pytest.mark.parametrize("name", HEADS)
def test_networks_with_attention_and_of_tensorflow(name: str, tmp_path: Path, photos: list[Path]) -> None:
    """DELF with its head, on trunks of torchvision, TF-Slim and Keras: features, places, and what is extracted."""
    network = make_network(name)
    export_onnx(network, tmp_path / "network.onnx")
    loaded = load_network(tmp_path / "network.onnx")
    assert (loaded.stride, loaded.digest, loaded.dim) == (network.stride, network.digest, network.dim)
    for size in ((33, 47), (64, 48), (97, 131), (101, 53)):
        image = torch.randn(1, 3, *size)
        theirs, ours = run(network, image), run(loaded, image)
        assert ours.grid == theirs.grid or network.one_vector
        assert distance(ours.vectors, theirs.vectors) < TOLERANCE
        assert distance(ours.strengths, theirs.strengths) < TOLERANCE
    config = ExtractConfig(features_per_image=10_000, scales=(1.0, 0.7), attention="regions")
    for one, other in zip(extract(loaded, photos, config), extract(network, photos, config), strict=True):
        assert distance(one.vectors, other.vectors) < TOLERANCE or not network.one_vector
        if not network.one_vector:
            for found, expected in zip(in_order_of_place(one), in_order_of_place(other), strict=True):
                assert distance(found, expected) < TOLERANCE


def test_loaded_network_has_the_facts_of_the_exported_one(pair: tuple[Network, Network]) -> None:
    network, loaded = pair
    assert isinstance(loaded, OnnxNetwork)
    assert loaded.config == network.config
    assert loaded.provenance == network.provenance
    assert loaded.digest == network.digest
    assert loaded.dim == network.dim
    assert loaded.normalisation == network.normalisation
    assert loaded.module.recompute_scale == network.module.recompute_scale
    assert loaded.module.precision == "float32"


def in_order_of_place(features: Features) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Scales and IDs, vectors, regions; sorted, because features of nearly equal strength may change places."""
    assert features.regions is not None
    order = np.lexsort((features.ids, features.scales))
    return np.stack((features.scales, features.ids), 1)[order], features.vectors[order], features.regions[order]


def test_extraction_equals_torch(pair: tuple[Network, Network], photos: list[Path]) -> None:
    config = ExtractConfig(features_per_image=10_000, scales=(1.414, 1.0, 0.5), attention="regions")
    theirs = extract(pair[0], photos, config, workers=1)
    ours = extract(pair[1], photos, config, workers=2)
    for one, other in zip(ours, theirs, strict=True):
        places, vectors, regions = in_order_of_place(one)
        expected = in_order_of_place(other)
        assert np.array_equal(places, expected[0])
        assert distance(vectors, expected[1]) < TOLERANCE
        assert distance(regions, expected[2]) < TOLERANCE
        assert distance(one.strengths, other.strengths) < TOLERANCE


def test_rounds_share_their_weights() -> None:
    """A file is as large as its parameters, not six times LIT."""
    network = make_network("fire-gru")
    parameters = sum(value.numel() for value in network.module.parameters())
    with tempfile.TemporaryDirectory() as folder:
        export_onnx(network, Path(folder, "network.onnx"))
        assert Path(folder, "network.onnx").stat().st_size < 4 * parameters + 60_000


def test_file_describes_itself(exported: Path) -> None:
    """What a user without superfeat sees: a valid model with named axes, and our facts as JSON."""
    model = onnx.load(exported)
    onnx.checker.check_model(model, full_check=True)
    shapes = {
        value.name: [axis.dim_param or axis.dim_value for axis in value.type.tensor_type.shape.dim]
        for value in [*model.graph.input, *model.graph.output]
    }
    assert shapes == {
        "image": [1, 3, "height", "width"],
        "vectors": [1, 16, 32],
        "strengths": [1, 16],
        "maps": [1, 16, "map_height", "map_width"],
    }
    facts = {entry.key: entry.value for entry in model.metadata_props}
    assert json.loads(facts[KEY])["network"]["lit"]["templates"] == 16
    assert not [node for node in model.graph.node if node.op_type == "BatchNormalization"]


def test_existing_file_is_kept_unless_asked(exported: Path) -> None:
    before = exported.read_bytes()
    other = make_network("fire", seed=1)
    with pytest.raises(StoreError, match="exists already"):
        export_onnx(other, exported)
    assert exported.read_bytes() == before
    export_onnx(other, exported, overwrite=True)
    assert load_onnx(exported).digest == other.digest
    assert [file.name for file in exported.parent.iterdir()] == [exported.name]


def test_export_is_the_same_every_time(exported: Path, tmp_path: Path) -> None:
    again = tmp_path / "new" / "again.onnx"
    export_onnx(make_network("fire"), again)
    assert again.read_bytes() == exported.read_bytes()


def test_what_cannot_be_exported_is_refused(exported: Path, tmp_path: Path) -> None:
    loaded = load_onnx(exported)
    with pytest.raises(SuperfeatError, match="exported one already"):
        export_onnx(loaded, tmp_path / "again.onnx")
    with pytest.raises(SuperfeatError, match="cannot be saved again"):
        save_network(loaded, tmp_path / "folder")
    with pytest.raises(SuperfeatError, match=r"must end in \.onnx"):
        export_onnx(make_network("how"), tmp_path / "network.bin")

    class Strange(torch.nn.Module):
        trunk = torch.nn.Identity()

    with pytest.raises(SuperfeatError, match="only networks on a ResNet"):
        export_onnx(Network(Strange(), CONFIGS["how"]), tmp_path / "strange.onnx")  # type: ignore[arg-type]


def flip(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: b"not a model" * 100,
        lambda data: data[: len(data) // 2],
        lambda data: data[:-1],
        lambda data: flip(data, len(data) // 2),  # one bit of a weight: still a valid model
        lambda data: flip(data, data.rindex(b"0.485")),  # one bit of the settings
    ],
    ids=["empty", "noise", "half", "last byte", "weight", "settings"],
)
def test_damaged_file_is_refused(exported: Path, damage: Any) -> None:
    exported.write_bytes(damage(exported.read_bytes()))
    with pytest.raises(WeightsError, match=r"damaged|not exported by superfeat") as caught:
        load_network(exported)
    assert "\n" not in str(caught.value)


def test_damage_prints_nothing(exported: Path, capfd: pytest.CaptureFixture[str]) -> None:
    exported.write_bytes(exported.read_bytes()[:1000])
    with pytest.raises(WeightsError):
        load_onnx(exported)
    assert capfd.readouterr() == ("", "")


def test_file_of_another_program_is_refused(exported: Path) -> None:
    model = onnx.load(exported)
    del model.metadata_props[:]
    exported.write_bytes(model.SerializeToString())
    with pytest.raises(WeightsError, match="not exported by superfeat"):
        load_onnx(exported)


@pytest.mark.parametrize("text", ["{", "[]", "3", '{"version": 1}', '{"version": 1, "checksum": "", "bytes": "x"}'])
def test_metadata_that_is_not_ours_is_refused(exported: Path, text: str) -> None:
    model = onnx.load(exported)
    model.metadata_props[0].value = text
    exported.write_bytes(model.SerializeToString())
    with pytest.raises(WeightsError, match="damaged or was changed"):
        load_onnx(exported)


def test_newer_format_asks_for_an_upgrade(exported: Path) -> None:
    model = onnx.load(exported)
    model.metadata_props[0].value = json.dumps({**json.loads(model.metadata_props[0].value), "version": 2})
    exported.write_bytes(model.SerializeToString())
    with pytest.raises(WeightsError, match="upgrade"):
        load_onnx(exported)


def test_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="cannot read"):
        load_onnx(tmp_path / "none.onnx")


@pytest.mark.parametrize("package", ["onnx.helper", "onnxruntime"])
def test_missing_package_names_the_extra(exported: Path, monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    network, target = make_network("how"), exported.with_name("other.onnx")
    act = functools.partial(load_onnx, exported) if package == "onnxruntime" else lambda: export_onnx(network, target)
    with pytest.raises(MissingExtraError, match=r"superfeat\[onnx\]"):
        act()
    assert not target.exists()


@pytest.fixture
def quantised(
    exported: Path,
    photos: list[Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Path:
    """Quantising is quiet, sets up no logging and leaves no file behind but its result."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    handlers = list(logging.root.handlers)
    target = tmp_path / "int8" / "network.onnx"
    unreadable = exported
    quantise_onnx(exported, target, learn_ranges(exported, [unreadable, *photos], images=2))
    assert capfd.readouterr() == ("", "")
    assert logging.root.handlers == handlers
    assert list(temporary.iterdir()) == []
    assert list(target.parent.iterdir()) == [target]
    return target


def test_int8_is_another_network(exported: Path, quantised: Path) -> None:
    network, small = load_onnx(exported), load_onnx(quantised)
    assert small.digest != network.digest
    assert small.config == network.config
    assert small.module.precision == "int8"
    assert small.provenance["int8"] == f"from {network.digest}, calibrated on 2 photos at 480 px"
    assert quantised.stat().st_size < 0.5 * exported.stat().st_size


def test_int8_vectors_are_near_the_float_ones(exported: Path, quantised: Path, photos: list[Path]) -> None:
    config = ExtractConfig(scales=(1.0, 0.5))
    network, small = load_onnx(exported), load_onnx(quantised)
    for theirs, ours in zip(extract(network, photos, config), extract(small, photos, config), strict=True):
        keys = [np.lexsort((features.ids, features.scales)) for features in (ours, theirs)]
        one, other = ours.vectors[keys[0]], theirs.vectors[keys[1]]
        cosine = (one * other).sum(1) / np.linalg.norm(one, axis=1) / np.linalg.norm(other, axis=1)
        assert cosine.min() > 0.9
        assert not np.array_equal(one, other)


def test_int8_touches_the_trunk_alone_and_weights_have_7_bits(quantised: Path) -> None:
    model = onnx.load(quantised)
    makers = {output: node for node in model.graph.node for output in node.output}
    arrays = {array.name: onnx.numpy_helper.to_array(array) for array in model.graph.initializer}
    convolutions = [node for node in model.graph.node if node.op_type == "Conv"]
    weights = [makers[node.input[1]].input[0] for node in convolutions if node.input[1] in makers]
    assert len(weights) == len(convolutions) - 1  # all but the stem
    for weight in weights:
        assert arrays[weight].dtype == np.int8
        assert abs(arrays[weight].astype(int)).max() <= 64
    others = [node for node in model.graph.node if node.op_type in ("Gemm", "MatMul", "LayerNormalization", "Softmax")]
    assert not [name for node in others for name in node.input if makers.get(name, node).op_type == "DequantizeLinear"]


def test_int8_refuses_what_it_cannot_do(exported: Path, quantised: Path, photos: list[Path], tmp_path: Path) -> None:
    with pytest.raises(SuperfeatError, match="int8 already"):
        learn_ranges(quantised, [])
    with pytest.raises(ImageError, match="few dozen ordinary ones"):
        learn_ranges(exported, [tmp_path / "none.jpg"])
    ranges = learn_ranges(exported, photos, images=1)
    with pytest.raises(StoreError, match="exists already"):
        quantise_onnx(exported, quantised, ranges)
    with pytest.raises(SuperfeatError, match="of another network"):
        quantise_onnx(exported, tmp_path / "other.onnx", dataclasses.replace(ranges, network="0" * 64))
    missing = dict(list(ranges.values.items())[1:])
    with pytest.raises(SuperfeatError, match="do not fit the network"):
        quantise_onnx(exported, tmp_path / "other.onnx", dataclasses.replace(ranges, values=missing))
    assert not (tmp_path / "other.onnx").exists()


def test_threads_are_as_asked(exported: Path) -> None:
    for threads in (1, 2):
        module = load_onnx(exported, threads=threads).module
        assert isinstance(module, OnnxModule)
        assert module.session.get_session_options().intra_op_num_threads == threads
