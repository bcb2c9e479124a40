"""Photos looked at by ONNX Runtime and numpy: as torch does it, to rounding; and the exports that are kept for it."""

import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image

from fixtures_disk import Disk
from fixtures_recipe import noise, recipe_network
from superfeat.config import AttentionConfig, ExtractConfig, LitConfig, NetworkConfig, TrunkConfig
from superfeat.errors import ConfigError, WeightsError
from superfeat.extraction import kept, scaling, without_torch
from superfeat.extraction.decode import read_for
from superfeat.extraction.extract import extract_image
from superfeat.extraction.without_torch import MANNERS, Onlooker
from superfeat.features import Features
from superfeat.methods import METHODS
from superfeat.nets.local import Local
from superfeat.weights import Network, save_network
from superfeat.weights.onnx import export_onnx

TOLERANCE = 1e-4  # relative to the largest value
POINTS = NetworkConfig(
    "fire", TrunkConfig("resnet18", 1), LitConfig(templates=8, rounds=2, dim=16), whitened_dim=6, points=1.5
)


@pytest.fixture(autouse=True)
def _on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As it is for users, with a cache of its own."""
    monkeypatch.delenv(kept.SWITCH, raising=False)
    monkeypatch.setenv("SUPERFEAT_CACHE", str(tmp_path / "cache"))


@pytest.fixture(params=["fire", "how", "points"])
def network(request: pytest.FixtureRequest, tiny_network: Network, tiny_how: Network) -> Network:
    if request.param == "points":
        return recipe_network(POINTS)
    return tiny_network if request.param == "fire" else tiny_how


@given(
    st.tuples(st.integers(1, 40), st.integers(1, 40)),
    st.sampled_from([2.0, 1.414, 1.0, 0.707, 0.5, 0.353, 0.25]),
    st.booleans(),
)
@example((2, 3), 1.414, False)
@settings(max_examples=60, deadline=None)
def test_sizes_and_pixels_of_a_scale_are_those_of_torch(size: tuple[int, int], scale: float, recompute: bool) -> None:
    image = np.random.default_rng(sum(size)).standard_normal((3, *size)).astype(np.float32)
    if min(int(side * scale) for side in size) < 1:
        return
    expected = scaling.resize(torch.from_numpy(image)[None], scale, recompute)[0].numpy()
    found = without_torch.resize(image, scale, recompute=recompute)
    assert found.shape == expected.shape
    assert found.dtype == np.float32
    assert abs(found - expected).max() < 1e-4


@pytest.mark.parametrize("grid", [(1, 1), (3, 5), (7, 2)])
def test_regions_are_those_of_torch(grid: tuple[int, int]) -> None:
    maps = np.random.default_rng(0).random((4, *grid)).astype(np.float32)
    maps /= maps.sum(axis=(1, 2), keepdims=True)
    for given_maps in (maps, None):
        there = None if given_maps is None else torch.from_numpy(given_maps)[None]
        local = Local(torch.zeros(1, 4, 1), torch.zeros(1, 4), grid, there)
        expected = scaling.find_regions(local).numpy()
        assert abs(without_torch.find_regions(grid, given_maps) - expected).max() < 1e-5


def test_what_is_said_of_methods_is_what_they_are() -> None:
    for name, manner in MANNERS.items():
        method = METHODS[name]
        assert manner == (method.module.recompute_scale, method.relative_strengths)
        assert not method.one_vector
        assert not method.round_sizes


def by_place(features: Features) -> np.ndarray:
    """Features of nearly equal strength may change places."""
    return np.lexsort((features.ids, features.scales))


@pytest.mark.parametrize("attention", ["none", "regions", "maps"])
def test_features_are_those_of_torch(network: Network, attention: str, tmp_path: Path) -> None:
    photo = tmp_path / "photo.png"
    Image.fromarray(noise(70, 97, 1)).save(photo)
    config = ExtractConfig(max_side=80, scales=(1.414, 1.0, 0.5, 0.005), attention=attention)  # type: ignore[arg-type]
    export_onnx(network, tmp_path / "network.onnx")
    found = Onlooker.open(tmp_path / "network.onnx").look(read_for(config, photo), config, name="it", workers=2)
    expected = extract_image(network, photo, config, name="it", workers=1)
    assert (found.name, found.image_size, found.network) == ("it", expected.image_size, network.digest)
    ours, theirs = by_place(found), by_place(expected)
    assert np.array_equal(found.ids[ours], expected.ids[theirs])
    assert np.array_equal(found.scales[ours], expected.scales[theirs])
    for name in ("vectors", "strengths") + (() if attention == "none" else ("regions",)):
        one, other = getattr(found, name)[ours], getattr(expected, name)[theirs]
        assert abs(one - other).max() < TOLERANCE * abs(other).max(), name
    assert (found.maps is None) == (expected.maps is None) == (attention != "maps")
    if found.maps is not None and expected.maps is not None:
        for mine, other in zip(ours, theirs, strict=True):
            assert abs(found.maps[mine] - expected.maps[other]).max() < TOLERANCE


def test_a_photo_too_small_for_every_scale_has_no_features(tiny_network: Network, tmp_path: Path) -> None:
    Image.fromarray(noise(2, 2, 1)).save(tmp_path / "photo.png")
    config = ExtractConfig(scales=(0.25,), attention="regions")
    export_onnx(tiny_network, tmp_path / "network.onnx")
    found = Onlooker.open(tmp_path / "network.onnx").look(read_for(config, tmp_path / "photo.png"), config)
    assert found.vectors.shape == (0, 6)


def test_other_methods_and_trunks_are_left_to_torch(tmp_path: Path) -> None:
    trunk = TrunkConfig("resnet18", 1)
    delf = recipe_network(NetworkConfig("delf", trunk, None, whitened_dim=6, attention=AttentionConfig()))
    export_onnx(delf, tmp_path / "delf.onnx")
    with pytest.raises(WeightsError, match="torch"):
        Onlooker.open(tmp_path / "delf.onnx")
    assert kept.open_exported(str(tmp_path / "delf.onnx"), None) is None
    assert not kept.keep_export(delf)


def test_an_export_is_made_once_and_found_by_its_digest(tiny_network: Network, tmp_path: Path) -> None:
    assert kept.open_kept(tiny_network.digest) is None
    assert kept.keep_export(tiny_network)
    path = kept.kept_path(tiny_network.digest)
    before = path.stat().st_mtime_ns
    assert kept.keep_export(tiny_network)
    assert path.stat().st_mtime_ns == before
    found = kept.open_kept(tiny_network.digest)
    assert found is not None
    assert found.digest == tiny_network.digest
    save_network(tiny_network, tmp_path / "network")
    by_file = kept.open_exported(str(tmp_path / "network"), None)
    assert by_file is not None
    assert by_file.digest == tiny_network.digest
    assert kept.open_exported("no such weights", None) is None
    assert kept.open_exported("no such weights", tiny_network.digest) is not None, "the index says which it is"


def test_a_damaged_export_is_removed_and_made_again(tiny_network: Network) -> None:
    assert kept.keep_export(tiny_network)
    path = kept.kept_path(tiny_network.digest)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert kept.open_kept(tiny_network.digest) is None
    assert not path.exists()
    assert kept.keep_export(tiny_network)
    assert path.read_bytes() == whole


def test_the_environment_says_torch(tiny_network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    assert kept.keep_export(tiny_network)
    monkeypatch.setenv(kept.SWITCH, "torch")
    assert kept.open_kept(tiny_network.digest) is None
    monkeypatch.setenv(kept.SWITCH, "tensorflow")
    with pytest.raises(ConfigError, match="it must be auto or torch"):
        kept.open_kept(tiny_network.digest)


def test_a_full_disk_or_none_is_no_error(tiny_network: Network, monkeypatch: pytest.MonkeyPatch, disk: Disk) -> None:
    monkeypatch.setenv("SUPERFEAT_CACHE", str(disk.path / "cache"))
    disk.fill(2)
    assert not kept.keep_export(tiny_network)
    assert not list(disk.path.rglob("*.onnx"))
    disk.free()
    assert kept.keep_export(tiny_network)
    monkeypatch.setenv("SUPERFEAT_CACHE", "/proc/cache")  # which nobody can make
    assert not kept.keep_export(tiny_network)


def test_the_oldest_exports_go(tiny_network: Network) -> None:
    folder = kept.kept_path("x").parent
    folder.mkdir(parents=True)
    for number in range(kept.MOST_KEPT):
        (folder / f"{number}.onnx").write_bytes(b"")
        os.utime(folder / f"{number}.onnx", (number, number))
    assert kept.keep_export(tiny_network)
    names = {path.stem for path in folder.glob("*.onnx")}
    assert names == {*map(str, range(1, kept.MOST_KEPT)), tiny_network.digest}


def test_points_can_be_left_out(tmp_path: Path) -> None:
    """A network without its points keeps its digest and has other features: what is kept is the network with them."""
    network = recipe_network(POINTS)
    Image.fromarray(noise(60, 60, 2)).save(tmp_path / "photo.png")
    config = dataclasses.replace(ExtractConfig(), scales=(1.0,))
    assert kept.keep_export(network)
    found = kept.open_kept(network.digest)
    assert found is not None
    both = found.look(read_for(config, tmp_path / "photo.png"), config)
    bare = extract_image(network.without_points(), tmp_path / "photo.png", config, workers=1)
    assert len(both) > len(bare) == 8
