"""Other people's parameter names: each released form is recognised, and what does not fit is named."""

import collections
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fixtures_recipe import MEAN_STD, released_checkpoint, released_name, released_state
from superfeat import load_network
from superfeat.config import LitConfig, NetworkConfig, TrunkConfig
from superfeat.errors import SuperfeatError, WeightsError
from superfeat.nets.trunk import DEPTHS, ResNet
from superfeat.weights import build_module
from superfeat.weights.layouts import fit, recognise

TRUNK = TrunkConfig("resnet18", 1)
FIRE = NetworkConfig("fire", TRUNK, LitConfig(templates=4, rounds=3, dim=8), whitened_dim=6)
HOW = NetworkConfig("how", TRUNK, None, whitened_dim=6)
FIRE_PARAMETERS = {"architecture": "resnet18", "lit": {"T": 3, "N": 4, "dim": 8}, "runtime": {"mean_std": MEAN_STD}}


def state_of(config: NetworkConfig) -> dict[str, Tensor]:
    return released_state(build_module(config))


def assert_loaded(path: Path, config: NetworkConfig, state: dict[str, Tensor]) -> None:
    network = load_network(path)
    assert network.config == config
    for name, value in network.module.state_dict().items():
        assert torch.equal(value, state[released_name(name)].reshape(value.shape)), name


# --- the released forms -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("zipped", [True, False])
def test_fire(zipped: bool, tmp_path: Path) -> None:
    state = state_of(FIRE)
    contents = released_checkpoint(state, "fire/2021", FIRE_PARAMETERS)
    torch.save(contents, tmp_path / "fire.pth", _use_new_zipfile_serialization=zipped)
    assert_loaded(tmp_path / "fire.pth", FIRE, state)
    assert load_network(tmp_path / "fire.pth").provenance == {"source": "fire.pth", "kind": "released FIRe checkpoint"}


def test_fire_without_its_parameters_has_the_papers_rounds(tmp_path: Path) -> None:
    state = state_of(FIRE)
    contents = released_checkpoint(state, "fire/2021", {})
    del contents["net_params"]
    torch.save(contents, tmp_path / "fire.pth")
    lit = LitConfig(templates=4, rounds=6, dim=8)
    assert_loaded(tmp_path / "fire.pth", NetworkConfig("fire", TRUNK, lit, whitened_dim=6), state)


@pytest.mark.parametrize("parameters", [None, {}, {"lit": {}}, {"runtime": None}, {"runtime": {}}, "text", 3])
def test_fire_with_other_parameters(parameters: Any, tmp_path: Path) -> None:
    state = state_of(FIRE)
    torch.save({"state_dict": state, "net_params": parameters}, tmp_path / "fire.pth")
    assert_loaded(
        tmp_path / "fire.pth", NetworkConfig("fire", TRUNK, LitConfig(templates=4, dim=8), whitened_dim=6), state
    )


def test_fire_trained_on_imagenet(tmp_path: Path) -> None:
    """No whitening yet, and a classifier that is left behind."""
    bare = NetworkConfig("fire", TRUNK, FIRE.lit, whitened_dim=None)
    state = state_of(bare)
    extra = {
        "fc.weight": torch.ones(3, 8),
        "fc.bias": torch.ones(3),
        "fc2.0.weight": torch.ones(3, 3),
        "fc_bn.running_mean": torch.ones(3),
    }
    torch.save(released_checkpoint({**state, **extra}, "fire/2021", FIRE_PARAMETERS), tmp_path / "imagenet.pth")
    assert_loaded(tmp_path / "imagenet.pth", bare, state)
    assert load_network(tmp_path / "imagenet.pth").dim == 8


@pytest.mark.parametrize("zipped", [True, False])
def test_how(zipped: bool, tmp_path: Path) -> None:
    state = state_of(HOW)
    parameters = {"architecture": "resnet18", "smoothing": {"kernel_size": 3}, "runtime": {"mean_std": MEAN_STD}}
    contents = released_checkpoint(state, "how/2020", parameters)
    torch.save(contents, tmp_path / "how.pth", _use_new_zipfile_serialization=zipped)
    assert_loaded(tmp_path / "how.pth", HOW, state)
    assert load_network(tmp_path / "how.pth").provenance["kind"] == "released HOW checkpoint"


def test_how_in_its_older_form(tmp_path: Path) -> None:
    """`whiten.*`, and no net_params."""
    state = state_of(HOW)
    older = {re.sub("^dim_reduction", "whiten", name): value for name, value in state.items()}
    assert older.keys() != state.keys()
    torch.save({"state_dict": older, "epoch": 1}, tmp_path / "how.pth")
    assert_loaded(tmp_path / "how.pth", HOW, state)


def test_the_whole_resnet18_of_how(tmp_path: Path) -> None:
    config = NetworkConfig("how", TrunkConfig("resnet18", 4), None, whitened_dim=6)
    torch.save({"state_dict": state_of(config)}, tmp_path / "how.pth")
    assert load_network(tmp_path / "how.pth").config == config


def test_pixel_statistics_are_taken_from_the_checkpoint(tmp_path: Path) -> None:
    statistics = [[0.1, 0.2, 0.3], [0.5, 0.6, 0.7]]
    contents = released_checkpoint(state_of(HOW), "how/2020", {"runtime": {"mean_std": statistics}})
    torch.save(contents, tmp_path / "how.pth")
    network = load_network(tmp_path / "how.pth")
    assert network.normalisation == (tuple(statistics[0]), tuple(statistics[1]))


@pytest.mark.parametrize("prefix", ["module.", "backbone.", "module.model.", "module.module."])
def test_wrapper_prefixes(prefix: str, tmp_path: Path) -> None:
    state = state_of(FIRE)
    torch.save(
        {"state_dict": {prefix + name: value for name, value in state.items()}, "net_params": FIRE_PARAMETERS},
        tmp_path / "p.pth",
    )
    assert_loaded(tmp_path / "p.pth", FIRE, state)


# --- trunks -----------------------------------------------------------------------------------------------------------


def meta_state(arch: str, stages: int = 4) -> dict[str, Tensor]:
    with torch.device("meta"):
        return ResNet(arch, stages).state_dict()


@pytest.mark.parametrize("arch", list(DEPTHS))
@pytest.mark.parametrize("wrapping", ["bare", "state_dict", "model", "module.", "backbone."])
def test_trunks_are_recognised(arch: str, wrapping: str) -> None:
    tensors = {**meta_state(arch), "fc.weight": torch.empty(0), "fc.bias": torch.empty(0)}
    contents: dict[str, Any] = dict(tensors)
    if wrapping in ("state_dict", "model"):
        contents = {wrapping: tensors, "epoch": 3}
    elif wrapping.endswith("."):
        contents = {wrapping + name: value for name, value in tensors.items()}
    foreign = recognise(contents, "file")
    assert foreign.config == NetworkConfig("how", TrunkConfig(arch, 3), None, whitened_dim=None)  # type: ignore[arg-type]
    with torch.device("meta"):
        assert len(fit(foreign, build_module(foreign.config).state_dict(), "file")) > 0


def test_a_torchvision_trunk_is_used_up_to_its_third_stage(tmp_path: Path) -> None:
    whole = ResNet("resnet18", 4)
    state = {**whole.state_dict(), "fc.weight": torch.zeros(1000, 512), "fc.bias": torch.zeros(1000)}
    torch.save(state, tmp_path / "resnet18.pth")
    network = load_network(tmp_path / "resnet18.pth")
    assert network.config == NetworkConfig("how", TrunkConfig("resnet18", 3), None, whitened_dim=None)
    assert network.dim == 256
    for name, value in network.module.trunk.state_dict().items():  # type: ignore[attr-defined]
        assert torch.equal(value, state[name])


def test_a_trunk_may_be_shorter(tmp_path: Path) -> None:
    torch.save(ResNet("resnet18", 2).state_dict(), tmp_path / "short.pth")
    assert load_network(tmp_path / "short.pth").config.trunk == TrunkConfig("resnet18", 2)


def test_counters_of_batches_may_be_missing(tmp_path: Path) -> None:
    state = {name: value for name, value in ResNet("resnet18", 1).state_dict().items() if "num_batches" not in name}
    torch.save(state, tmp_path / "old.pth")
    assert load_network(tmp_path / "old.pth").config.trunk.stages == 1


def test_half_precision_is_widened(tmp_path: Path) -> None:
    torch.save({name: value.half() for name, value in state_of(HOW).items()}, tmp_path / "half.pth")
    assert {value.dtype for value in load_network(tmp_path / "half.pth").module.parameters()} == {torch.float32}


# --- what does not fit ------------------------------------------------------------------------------------------------


def refusal(state: dict[str, Any], tmp_path: Path) -> str:
    torch.save({"state_dict": state, "net_params": FIRE_PARAMETERS}, tmp_path / "bad.pth")
    with pytest.raises(WeightsError) as error:
        load_network(tmp_path / "bad.pth")
    assert str(tmp_path / "bad.pth") in str(error.value)
    return str(error.value)


def test_missing_parameters_are_named(tmp_path: Path) -> None:
    state = state_of(FIRE)
    del state["lit.mlp.0.weight"]
    message = refusal(state, tmp_path)
    assert "does not fit (released FIRe checkpoint)" in message
    assert "1 missing: lit.mlp.0.weight" in message


def test_the_nearest_name_is_named(tmp_path: Path) -> None:
    state = state_of(FIRE)
    state["lit.norm_input.weight"] = state.pop("lit.norm_inputs.weight")
    message = refusal(state, tmp_path)
    assert "lit.norm_inputs.weight (nearest in the file: lit.norm_input.weight)" in message
    assert "1 unexpected: lit.norm_input.weight" in message


def test_wrong_shapes_are_named(tmp_path: Path) -> None:
    state = state_of(FIRE)
    state["lit.project_k.weight"] = torch.zeros(8, 63)
    assert "1 of the wrong shape: lit.project_k.weight is (8, 63), not (8, 64)" in refusal(state, tmp_path)


def test_unexpected_parameters_are_named(tmp_path: Path) -> None:
    state = {**state_of(FIRE), "gem.p": torch.ones(1)}
    assert "1 unexpected: gem.p" in refusal(state, tmp_path)


def test_long_lists_are_cut(tmp_path: Path) -> None:
    state = {name: value for name, value in state_of(FIRE).items() if "running" not in name}
    message = refusal(state, tmp_path)
    assert re.search(r"\d\d missing: [^,]+, [^,]+, [^,]+, …", message)


def test_a_network_that_is_no_resnet(tmp_path: Path) -> None:
    message = refusal({"stem.weight": torch.ones(2), "head.bias": torch.ones(2)}, tmp_path)
    assert "none of the layouts known here" in message
    assert "its first entries are stem.weight, head.bias" in message


@pytest.mark.parametrize("blocks", [(5,), (2, 3), (9, 9, 9)])
def test_a_resnet_of_other_depths(blocks: tuple[int, ...], tmp_path: Path) -> None:
    names = [f"layer{stage}.{block}.conv1.weight" for stage, depth in enumerate(blocks, 1) for block in range(depth)]
    state = {"conv1.weight": torch.ones(2), **dict.fromkeys(names, torch.ones(2))}
    assert f"has {'x'.join(map(str, blocks))} residual blocks, which is none of resnet10" in refusal(state, tmp_path)


@pytest.mark.parametrize(
    "contents",
    [
        {},
        [],
        None,
        3,
        "text",
        {"state_dict": {}},
        {"state_dict": None},
        {"epoch": 3, "net_params": {}},
        {"state_dict": {"a": [1]}},
    ],
)
def test_files_without_parameters(contents: Any, tmp_path: Path) -> None:
    torch.save(contents, tmp_path / "empty.pth")
    with pytest.raises(WeightsError, match="holds no parameters; expected a state dict"):
        load_network(tmp_path / "empty.pth")


def changed(**entries: Any) -> dict[str, Any]:
    return {**state_of(FIRE), **{name.replace("__", "."): value for name, value in entries.items()}}


GARBAGE: dict[str, Any] = {
    "templates of two dimensions": {"state_dict": changed(lit__templates_init=torch.ones(4, 8))},
    "templates of no dimension": {"state_dict": changed(lit__templates_init=torch.tensor(1.0))},
    "no templates": {"state_dict": changed(lit__templates_init=torch.ones(1, 0, 8))},
    "whitening of no dimension": {"state_dict": changed(dim_reduction__weight=torch.tensor(1.0))},
    "no whitening rows": {"state_dict": changed(dim_reduction__weight=torch.ones(0, 8, 1, 1))},
    "rounds as text": {"state_dict": changed(), "net_params": {"lit": {"T": "six"}}},
    "no rounds": {"state_dict": changed(), "net_params": {"lit": {"T": 0}}},
    "lit parameters as a list": {"state_dict": changed(), "net_params": {"lit": [6]}},
    "pixel statistics as a number": {"state_dict": changed(), "net_params": {"runtime": {"mean_std": 5}}},
    "pixel statistics of two channels": {
        "state_dict": changed(),
        "net_params": {"runtime": {"mean_std": [[0.5, 0.5], [0.5, 0.5]]}},
    },
    "pixel statistics as text": {
        "state_dict": changed(),
        "net_params": {"runtime": {"mean_std": [["a"] * 3, ["b"] * 3]}},
    },
    "numbers as names": {"state_dict": {1: torch.ones(2), None: torch.ones(2)}},
}


@pytest.mark.parametrize("case", list(GARBAGE))
def test_garbage_is_a_word_and_no_traceback(case: str, tmp_path: Path) -> None:
    torch.save(GARBAGE[case], tmp_path / "garbage.pth")
    with pytest.raises(SuperfeatError):
        load_network(tmp_path / "garbage.pth")


class Shadowing(collections.OrderedDict[str, Any]):
    """Pickles as an OrderedDict with attributes of its own, which hide its methods once it is read."""

    def __reduce__(self) -> Any:
        shadows = dict.fromkeys(("get", "items", "keys", "values", "__iter__"), 5)
        return collections.OrderedDict, (list(self.items()),), shadows


def test_a_dict_that_hides_its_methods(tmp_path: Path) -> None:
    torch.save(Shadowing(state_dict=Shadowing(changed())), tmp_path / "hiding.pth")
    try:
        network = load_network(tmp_path / "hiding.pth")
    except SuperfeatError:
        return
    assert network.config.lit == LitConfig(templates=4, dim=8)


def test_a_checkpoint_inside_itself() -> None:
    contents: dict[str, Any] = collections.OrderedDict()
    contents["state_dict"] = contents
    with pytest.raises(WeightsError):
        recognise(contents, "file")
