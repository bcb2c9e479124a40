"""Networks on disk: what is saved is what is loaded, and damage is noticed."""

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fixtures_recipe import recipe_network
from superfeat import Network, load_network, save_network
from superfeat.config import LitConfig, NetworkConfig, TrunkConfig
from superfeat.errors import StoreError, SuperfeatError, WeightsError
from superfeat.nets.fire import Fire
from superfeat.nets.how import How
from superfeat.weights import build_module

TRUNK = TrunkConfig("resnet18", 1, mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6))
CONFIGS = {
    "fire": NetworkConfig("fire", TRUNK, LitConfig(templates=4, rounds=2, dim=8), whitened_dim=6),
    "fire, raw": NetworkConfig("fire", TRUNK, LitConfig(templates=4, rounds=2, dim=8), whitened_dim=None),
    "fire, gru": NetworkConfig("fire", TRUNK, LitConfig(templates=4, dim=8, update="gru", frozen_templates=True), 6),
    "how": NetworkConfig("how", TRUNK, None, whitened_dim=6),
    "how, raw": NetworkConfig("how", TrunkConfig("resnet50", 1, stride_in_1x1=True), None, whitened_dim=None),
}


@pytest.fixture
def saved(tiny_network: Network, tmp_path: Path) -> Path:
    save_network(tiny_network, tmp_path / "network")
    return tmp_path / "network"


@pytest.mark.parametrize("name", list(CONFIGS))
def test_what_is_saved_is_loaded(name: str, tmp_path: Path) -> None:
    network = recipe_network(CONFIGS[name])
    save_network(network, tmp_path / "network")
    found = load_network(tmp_path / "network")
    assert found.config == network.config
    assert found.provenance == {"source": "recipe"}
    assert found.digest == network.digest
    assert not found.module.training
    before = network.module.state_dict()
    assert all(torch.equal(value, before[key]) for key, value in found.module.state_dict().items())


def test_the_files_of_a_network(saved: Path, tiny_network: Network) -> None:
    assert sorted(file.name for file in saved.iterdir()) == ["README.md", "config.json", "model.safetensors"]
    facts = json.loads((saved / "config.json").read_text())
    assert (facts["format"], facts["version"]) == ("superfeat-network", 1)
    assert facts["digest"] == tiny_network.digest
    assert facts["network"]["lit"] == {
        "templates": 8,
        "rounds": 3,
        "dim": 16,
        "update": "residual",
        "frozen_templates": False,
    }
    card = (saved / "README.md").read_text()
    for fact in (
        "FIRe",
        "resnet18, 1 of 4 stages",
        "8 templates of 16 dimensions",
        "6 dimensions, whitened",
        tiny_network.digest,
        "recipe",
    ):
        assert fact in card


@pytest.mark.parametrize("name", list(CONFIGS))
def test_every_kind_of_network_has_a_card(name: str, tmp_path: Path) -> None:
    save_network(Network(build_module(CONFIGS[name]), CONFIGS[name]), tmp_path / "network")
    card = (tmp_path / "network" / "README.md").read_text()
    assert ("HOW" if name.startswith("how") else "FIRe") in card
    assert "not recorded" in card
    assert ("raw" in card) == ("raw" in name)


def test_half(tiny_network: Network, tmp_path: Path) -> None:
    save_network(tiny_network, tmp_path / "half", half=True)
    save_network(tiny_network, tmp_path / "full")
    size = {name: (tmp_path / name / "model.safetensors").stat().st_size for name in ("half", "full")}
    assert size["half"] < 0.55 * size["full"]
    found = load_network(tmp_path / "half")
    before = tiny_network.module.state_dict()
    for key, value in found.module.state_dict().items():
        assert value.dtype == before[key].dtype
        matrix = value.is_floating_point() and value.ndim > 1
        assert torch.equal(value, before[key].half().to(value.dtype) if matrix else before[key])
    save_network(found, tmp_path / "again", half=True)
    again = load_network(tmp_path / "again")
    assert again.digest == found.digest != tiny_network.digest


def test_half_does_not_lose_what_lies_beyond_16_bits(tiny_network: Network, tmp_path: Path) -> None:
    """Variances of a Keras trunk, whose pixels go from 0 to 255, do; so may a weight."""
    module = copy.deepcopy(tiny_network.module)
    assert isinstance(module, torch.nn.Module)
    state = module.state_dict()
    variance = next(name for name in state if name.endswith("running_var"))
    matrix = next(name for name, value in state.items() if value.ndim > 1)
    state[variance][0], state[matrix].view(-1)[0] = 83614.734375, 1e6
    save_network(Network(module, tiny_network.config, {}), tmp_path / "half", half=True)
    found = load_network(tmp_path / "half").module
    assert isinstance(found, torch.nn.Module)
    assert torch.equal(found.state_dict()[variance], state[variance])
    assert torch.equal(found.state_dict()[matrix], state[matrix])


def test_any_of_its_paths_will_do(saved: Path, tiny_network: Network) -> None:
    for path in (saved, str(saved), saved / "model.safetensors"):
        assert load_network(path).digest == tiny_network.digest


def test_the_digest_is_of_settings_and_parameters(tiny_network: Network) -> None:
    same = Network(tiny_network.module, tiny_network.config, {"source": "elsewhere"})
    assert same.digest == tiny_network.digest
    assert len(same.digest) == 64
    other = build_module(tiny_network.config)
    other.load_state_dict(tiny_network.module.state_dict())
    assert Network(other, tiny_network.config).digest == tiny_network.digest
    with torch.no_grad():
        other.trunk.conv1.weight[0, 0, 0, 0] += 1e-3  # type: ignore[attr-defined]
    assert Network(other, tiny_network.config).digest != tiny_network.digest
    gru = NetworkConfig("fire", tiny_network.config.trunk, LitConfig(templates=8, rounds=4, dim=16), whitened_dim=6)
    assert Network(tiny_network.module, gru).digest != tiny_network.digest


def test_the_digest_is_the_same_in_every_version(tiny_network: Network) -> None:
    """Saved networks and features folders hold it: if this changes, what users have is refused as damaged."""
    assert tiny_network.digest == "61ab3da160cc8a31369bf2cc6b21427a04459da95500dff2821653a09f0b98c9"


def test_a_counter_of_batches_does_not_count(tiny_network: Network) -> None:
    other = build_module(tiny_network.config)
    other.load_state_dict(tiny_network.module.state_dict())
    other.trunk.bn1.num_batches_tracked.fill_(99)  # type: ignore[attr-defined]
    assert Network(other, tiny_network.config).digest == tiny_network.digest


def test_dimensions() -> None:
    dims = {name: Network(build_module(config), config).dim for name, config in CONFIGS.items()}
    assert dims == {"fire": 6, "fire, raw": 8, "fire, gru": 6, "how": 6, "how, raw": 256}
    kinds = {name: type(build_module(config)) for name, config in CONFIGS.items()}
    assert kinds == {"fire": Fire, "fire, raw": Fire, "fire, gru": Fire, "how": How, "how, raw": How}


def test_an_existing_folder_is_kept(saved: Path, tiny_how: Network) -> None:
    before = {file.name: file.read_bytes() for file in saved.iterdir()}
    with pytest.raises(StoreError, match="exists already; choose another name or ask to overwrite"):
        save_network(tiny_how, saved)
    assert {file.name: file.read_bytes() for file in saved.iterdir()} == before
    save_network(tiny_how, saved, overwrite=True)
    assert load_network(saved).digest == tiny_how.digest
    assert [file.name for file in saved.parent.iterdir()] == ["network"], "nothing is left beside it"


# --- damage -----------------------------------------------------------------------------------------------------------


def test_a_flipped_byte_anywhere_is_noticed(saved: Path) -> None:
    file = saved / "model.safetensors"
    whole = file.read_bytes()
    header = int.from_bytes(whole[:8], "little")
    counters = [
        (8 + header + start, 8 + header + end)
        for name, facts in json.loads(whole[8 : 8 + header]).items()
        if name.endswith("num_batches_tracked")
        for start, end in [facts["data_offsets"]]
    ]
    rng = np.random.default_rng(0)
    chosen = [*range(8), *rng.integers(8, 8 + header, 20), *rng.integers(8 + header, len(whole), 20), len(whole) - 1]
    for place in chosen:
        if any(start <= place < end for start, end in counters):
            continue
        damaged = bytearray(whole)
        damaged[place] ^= 0x10
        file.write_bytes(damaged)
        with pytest.raises(WeightsError):
            load_network(saved)
    file.write_bytes(whole)
    load_network(saved)


@pytest.mark.parametrize("length", [0, 4, 8, 100, -1])
def test_a_file_cut_off(length: int, saved: Path) -> None:
    file = saved / "model.safetensors"
    file.write_bytes(file.read_bytes()[:length])
    with pytest.raises(WeightsError, match=r"damaged or incomplete .*copy or convert it again"):
        load_network(saved)


def test_missing_parameters(saved: Path) -> None:
    (saved / "model.safetensors").unlink()
    with pytest.raises(WeightsError, match="damaged or incomplete"):
        load_network(saved)


def edit(saved: Path, change: dict[str, Any]) -> None:
    facts = json.loads((saved / "config.json").read_text())
    (saved / "config.json").write_text(json.dumps({**facts, **change}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "format version 2; this superfeat reads 1: upgrade it"),
        ({"version": None}, "format version None"),
        ({"format": "other"}, "does not describe a superfeat network"),
        ({"digest": "0" * 64}, "is damaged: its parameters are not those that were saved"),
        ({"network": {"method": "fire", "lit": {"roundz": 3}}}, "did you mean 'rounds'"),
        ({"network": {"method": "nothing"}}, "known are apgem, delf"),
    ],
)
def test_a_config_that_is_not_ours(change: dict[str, Any], message: str, saved: Path) -> None:
    edit(saved, change)
    with pytest.raises(WeightsError) as error:
        load_network(saved)
    assert message in str(error.value)


@pytest.mark.parametrize("network", [None, 3, [], "fire", {"lit": 5}, {"method": ["fire"]}])
def test_settings_of_the_wrong_kind(network: Any, saved: Path) -> None:
    edit(saved, {"network": network})
    with pytest.raises(WeightsError):
        load_network(saved)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "3", "null", '{"format": "superfeat-network", "version": 1}', "\ufffd\x00"]
)
def test_a_config_that_is_no_object(text: str, saved: Path) -> None:
    (saved / "config.json").write_text(text)
    with pytest.raises(WeightsError):
        load_network(saved)


def test_settings_that_do_not_fit_the_parameters(saved: Path) -> None:
    facts = json.loads((saved / "config.json").read_text())
    facts["network"]["lit"]["templates"] = 9
    (saved / "config.json").write_text(json.dumps(facts))
    with pytest.raises(WeightsError, match=r"1 of the wrong shape: lit\.templates is \(8, 16\), not \(9, 16\)"):
        load_network(saved)


def test_other_settings_are_noticed(saved: Path) -> None:
    facts = json.loads((saved / "config.json").read_text())
    facts["network"]["lit"]["rounds"] = 9
    (saved / "config.json").write_text(json.dumps(facts))
    with pytest.raises(WeightsError, match="damaged"):
        load_network(saved)


# --- where to look ----------------------------------------------------------------------------------------------------


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(
        WeightsError, match=r"no weights at .*absent: give a file, a folder, or one of the names .*imagenet-resnet50"
    ):
        load_network(tmp_path / "absent")


def test_a_folder_of_something_else(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"a folder without config.json"):
        load_network(tmp_path)


def test_a_foreign_safetensors_file(tiny_network: Network, tmp_path: Path) -> None:
    import safetensors.torch

    trunk = {
        name.removeprefix("trunk."): value
        for name, value in tiny_network.module.state_dict().items()
        if name.startswith("trunk.")
    }
    safetensors.torch.save_file(trunk, tmp_path / "resnet18.safetensors")
    assert load_network(tmp_path / "resnet18.safetensors").config == NetworkConfig(
        "how", TrunkConfig("resnet18", 1), None, None
    )


def test_names_that_have_not_been_brought(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUPERFEAT_CACHE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(WeightsError, match="not here yet; bring them with: superfeat weights get imagenet-resnet50"):
        load_network("imagenet-resnet50")


def test_an_exported_network_cannot_be_saved(tiny_network: Network, tmp_path: Path) -> None:
    exported = Network(lambda images: images, tiny_network.config)  # type: ignore[arg-type]
    with pytest.raises(SuperfeatError, match="cannot be saved again"):
        save_network(exported, tmp_path / "network")
    assert not (tmp_path / "network").exists()
