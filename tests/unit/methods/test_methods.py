"""The registry of methods: each builds, describes and exports; a new one is one new entry."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

import superfeat.methods
from superfeat import ExtractConfig, Network, extract, load_network, save_network
from superfeat.config import LitConfig, NetworkConfig, TrunkConfig
from superfeat.errors import ConfigError
from superfeat.methods import METHODS, method_of
from superfeat.methods.how import HOW
from superfeat.nets.how import How
from superfeat.nets.local import Local, LocalNetwork
from superfeat.weights import build_module
from superfeat.weights.network import raw_dim

TRUNK = TrunkConfig("resnet10", stages=1)


def small(name: str) -> NetworkConfig:
    lit = LitConfig(templates=6, rounds=2, dim=8) if name == "fire" else None
    known = METHODS.get(name, HOW).network
    pooling = known.pooling and dataclasses.replace(known.pooling, layer=known.pooling.layer and 16)
    trunk = TRUNK if pooling is None else dataclasses.replace(TRUNK, stages=2)
    return NetworkConfig(name, trunk, lit, 4, pooling, known.attention)


@pytest.mark.parametrize("name", METHODS)
def test_each_builds_what_its_settings_say(name: str) -> None:
    module = build_module(small(name))
    assert isinstance(module, LocalNetwork)
    assert isinstance(module, method_of(name).module)
    local = module(torch.randn(1, 3, 32, 48))
    if method_of(name).one_vector:
        assert local.vectors.shape[:2] == (1, 1)
        vector = module.combine(local.vectors[0])  # type: ignore[operator]
        assert vector.shape == (4,)
    else:
        assert local.vectors.shape[2] == 4
    assert local.strengths.shape == local.vectors.shape[:2]
    raw = module.on(module.trunk, None)(torch.randn(1, 3, 32, 48))
    assert raw.vectors.shape[2] == raw_dim(small(name), module.trunk.channels)


@pytest.mark.parametrize("name", METHODS)
def test_its_forms_give_the_same(name: str) -> None:
    torch.manual_seed(0)
    module = build_module(small(name))
    image = torch.randn(1, 3, 32, 48)
    with torch.inference_mode():
        plain = module(image)
        for form in (module.folded(), module.fused(module.trunk)):
            torch.testing.assert_close(form(image).vectors, plain.vectors, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", METHODS)
def test_its_settings_are_laid_over_its_own(name: str) -> None:
    assert method_of(name).network.method == name
    assert (method_of(name).network.lit is not None) == (name == "fire")


def test_an_unknown_method() -> None:
    with pytest.raises(ConfigError, match="unknown method 'fir'; did you mean 'fire'"):
        method_of("fir")


class Loud(How):
    """HOW whose strengths are squared: a method nobody has."""

    def describe(self, x: torch.Tensor) -> Local:
        local = super().describe(x)
        return local._replace(strengths=local.strengths.square())

    def on(self, trunk: Any, whitening: Any) -> "Loud":
        return Loud(trunk, whitening)


def test_a_new_method_is_one_entry(tmp_path: Path, photo_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Built, saved, loaded and extracted with, without a word about it anywhere else."""
    loud = dataclasses.replace(
        HOW,
        name="loud",
        title="LOUD",
        network=NetworkConfig("loud", lit=None, whitened_dim=None),
        build=lambda config, trunk, whitening: Loud(trunk, whitening),
        module=Loud,
        relative_strengths=False,
    )
    monkeypatch.setitem(superfeat.methods.METHODS, "loud", loud)
    config = small("loud")
    torch.manual_seed(0)
    save_network(Network(build_module(config), config), tmp_path / "loud")
    network = load_network(tmp_path / "loud")
    assert isinstance(network.module, Loud)
    assert "LOUD" in (tmp_path / "loud" / "README.md").read_text()
    (found,) = extract(network, [photo_folder / "a.png"], ExtractConfig(max_side=48, scales=(1.0,)), workers=1)
    quiet = Network(How(network.module.trunk, network.module.whitening), small("how"))
    (expected,) = extract(quiet, [photo_folder / "a.png"], ExtractConfig(max_side=48, scales=(1.0,)), workers=1)
    assert found.vectors.tolist() == expected.vectors.tolist()
    assert found.strengths[0] > 1 or found.strengths[0] != expected.strengths[0]
