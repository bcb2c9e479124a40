"""Settings: defaults are the paper's, and anything unknown or impossible stops with a word on what to do."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from superfeat.config import (
    PROFILES,
    DataConfig,
    ExtractConfig,
    LitConfig,
    NetworkConfig,
    Recipe,
    SearchConfig,
    TrainingConfig,
    TrunkConfig,
)
from superfeat.errors import ConfigError
from superfeat.settings import as_dict, overlay, parse_assignment, read_toml


def test_the_defaults_are_the_papers() -> None:
    network, extract = NetworkConfig(), ExtractConfig()
    assert (network.method, network.trunk.arch, network.trunk.stages, network.whitened_dim) == (
        "fire",
        "resnet50",
        3,
        128,
    )
    assert network.lit == LitConfig(templates=256, rounds=6, dim=1024, update="residual", frozen_templates=False)
    assert (extract.features_per_image, extract.max_side, extract.upright, extract.attention) == (
        1000,
        1024,
        True,
        "none",
    )
    assert extract.scales == (2.0, 1.414, 1.0, 0.707, 0.5, 0.353, 0.25)
    assert ExtractConfig.profile("paper") == extract


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_sid": 5}, "unknown setting 'max_sid'; did you mean 'max_side'?"),
        ({"scale": [1.0]}, "unknown setting 'scale'; did you mean 'scales'?"),
        ({"zzz": 1}, "unknown setting 'zzz'; known are attention, draft, features_per_image"),
        ({"max_side.x": 1}, "setting 'max_side' is a single value and has no parts"),
        ({"max_side": {"x": 1}}, "setting 'max_side' is a single value and has no parts"),
    ],
)
def test_unknown_settings_stop(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        overlay(ExtractConfig(), changes)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize("changes", [{"lit.roundz": 3}, {"lit": {"roundz": 3}}])
def test_unknown_parts_are_named_with_their_group(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"unknown setting 'lit\.roundz'; did you mean 'rounds'\?"):
        overlay(NetworkConfig(), changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"lit.rounds": 3, "trunk.arch": "resnet18"},
        {"lit": {"rounds": 3}, "trunk": {"arch": "resnet18"}},
        {"lit.rounds": 3, "trunk": {"arch": "resnet18"}},
    ],
)
def test_dotted_and_nested_overlays_are_the_same(changes: dict[str, Any]) -> None:
    found = overlay(NetworkConfig(), changes)
    assert found == NetworkConfig(trunk=TrunkConfig("resnet18"), lit=LitConfig(rounds=3))


def test_dotted_and_nested_parts_of_one_group_add_up() -> None:
    found = overlay(NetworkConfig(), {"lit": {"rounds": 2}, "lit.dim": 64})
    assert found.lit == LitConfig(rounds=2, dim=64)


@pytest.mark.parametrize("changes", [{"lit": None, "lit.rounds": 3}, {"whitened_dim": 5, "whitened_dim.x": 3}])
def test_a_value_and_its_parts_contradict(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        overlay(NetworkConfig(), changes)


def test_a_group_may_be_absent_or_brought_back() -> None:
    how = overlay(NetworkConfig(), {"method": "how", "lit": None})
    assert how.lit is None
    assert overlay(how, {"method": "fire", "lit.rounds": 2}).lit == LitConfig(rounds=2)


def test_the_original_is_left_as_it_was() -> None:
    before = ExtractConfig()
    assert overlay(before, {"max_side": 640}) == dataclasses.replace(before, max_side=640)
    assert before == ExtractConfig()
    assert overlay(before, {}) == before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_side": "large"}, "setting 'max_side' is 'large'; it must be a value of type int"),
        ({"max_side": 640.0}, "type int"),
        ({"max_side": True}, "type int"),
        ({"max_side": 15}, "16 or more"),
        ({"features_per_image": 0}, "1 or more"),
        ({"upright": 1}, "type bool"),
        ({"upright": "yes"}, "type bool"),
        ({"scales": 1.0}, "a list of numbers"),
        ({"scales": "1.0"}, "a list of numbers"),
        ({"scales": []}, "one or more numbers"),
        ({"scales": [1.0, 1.0]}, "each scale once"),
        ({"scales": [0.0]}, "above 0"),
        ({"scales": [-1.0]}, "above 0"),
        ({"scales": [9]}, "up to 8"),
        ({"scales": [float("nan")]}, "above 0"),
        ({"scales": ["a"]}, "type float"),
        ({"scales": [True]}, "type float"),
        ({"attention": "all"}, "'none' or 'regions' or 'maps'"),
        ({"attention": None}, "'none' or 'regions' or 'maps'"),
        ({"attention": ["maps"]}, "'none' or 'regions' or 'maps'"),
    ],
)
def test_wrong_types_and_values(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        overlay(ExtractConfig(), changes)
    assert message in str(error.value)
    assert next(iter(changes)) in str(error.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trunk.stages": 5}, "1 to 4"),
        ({"trunk.arch": "vgg"}, "'resnet18' or 'resnet34'"),
        ({"trunk.mean": [0.5, 0.5]}, "3 numbers"),
        ({"trunk": "resnet50"}, "name one of its parts"),
        ({"lit": 3}, "name one of its parts"),
        ({"lit.rounds": 0}, "1 or more"),
        ({"lit.dim": 1}, "2 or more"),
        ({"lit.update": "lstm"}, "'residual' or 'gru'"),
        ({"whitened_dim": 0}, "1 or more"),
        ({"method": "how"}, "takes no"),
        ({"lit": None}, "needs"),
    ],
)
def test_impossible_networks(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        overlay(NetworkConfig(), changes)
    assert message in str(error.value)


def test_the_cheaper_tuples_are_off_unless_asked_for() -> None:
    """What the paper does not have changes nothing by itself."""
    training, data = TrainingConfig(), DataConfig()
    assert (training.negatives_from, training.schedule, training.warm_up) == ("pool", "decay", 0)
    assert (training.trunk_rate, training.average, training.least_side, training.frozen_stages) == (1.0, 0.0, None, 0)
    assert (data.synthetic_views, data.balance) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"negatives_from": "batch"}, "'pool' or 'step'"),
        ({"negatives_from": "step", "tuples_per_step": 1}, "2 or more where negatives are those of the step"),
        ({"schedule": "linear"}, "'decay' or 'cosine'"),
        ({"warm_up": -1}, "0 or more"),
        ({"warm_up": 0.5}, "type int"),
        ({"frozen_stages": -1}, "0 or more"),
        ({"trunk_rate": 0}, "above 0; training.frozen_stages freezes"),
        ({"trunk_rate": -0.1}, "above 0"),
        ({"trunk_rate": float("nan")}, "above 0"),
        ({"average": 1}, "0 or more, and below 1"),
        ({"average": -0.1}, "0 or more, and below 1"),
        ({"average": float("nan")}, "0 or more, and below 1"),
        ({"least_side": 15}, "16 to training.max_side (1024)"),
        ({"least_side": 1025}, "16 to training.max_side (1024)"),
        ({"least_side": 65, "max_side": 64}, "16 to training.max_side (64)"),
        ({"least_side": 64.0}, "type int"),
        ({"least_side": 64, "parts": "lit"}, "left out where maps are stored"),
    ],
)
def test_impossible_trainings(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        overlay(TrainingConfig(), changes)
    assert message in str(error.value)
    assert any(name in str(error.value) for name in changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"negatives_from": "step", "tuples_per_step": 2},
        {"tuples_per_step": 1},
        {"schedule": "cosine", "warm_up": 500},
        {"average": 0.999, "trunk_rate": 0.1, "frozen_stages": 2},
        {"trunk_rate": 2.0},
        {"least_side": 16},
        {"least_side": 1024},
        {"least_side": None, "parts": "lit"},
    ],
    ids=str,
)
def test_possible_trainings(changes: dict[str, Any]) -> None:
    found = overlay(TrainingConfig(), changes)
    assert found == dataclasses.replace(TrainingConfig(), **changes)


@pytest.mark.parametrize("name", ["synthetic_views", "balance"])
def test_shares_of_the_data(name: str) -> None:
    for share in (0.0, 0.25, 1.0):
        assert getattr(overlay(DataConfig(), {name: share}), name) == share
    for share in (-0.01, 1.01, float("nan")):
        with pytest.raises(ConfigError, match=rf"setting 'data\.{name}' is .*; it must be between 0 and 1"):
            overlay(DataConfig(), {name: share})


def test_views_need_photos_and_not_stored_maps() -> None:
    """A map of the photo as it is cannot be seen from elsewhere."""
    assert overlay(Recipe(), {"data.synthetic_views": 0.5}).data.synthetic_views == 0.5
    with pytest.raises(ConfigError, match=r"'data\.synthetic_views' is 0\.5; it must be 0 where maps are stored"):
        overlay(Recipe(), {"data.synthetic_views": 0.5, "training.parts": "lit"})


def test_a_pixel_deviation_of_zero_is_impossible() -> None:
    with pytest.raises(ConfigError):
        TrunkConfig(std=(0.0, 0.2, 0.2))


def test_whole_numbers_are_good_for_floats() -> None:
    found = overlay(ExtractConfig(), {"scales": [2, 1, 0.5]})
    assert found.scales == (2.0, 1.0, 0.5)
    assert all(type(scale) is float for scale in found.scales)


def test_profiles() -> None:
    assert set(PROFILES) == {"paper", "fast", "quick", "large"}
    quick, fast, large = (ExtractConfig.profile(name) for name in ("quick", "fast", "large"))
    assert dataclasses.replace(large, max_side=fast.max_side) == fast
    assert dataclasses.replace(quick, max_side=fast.max_side) == fast
    assert large.max_side > fast.max_side > quick.max_side
    assert fast.max_side < ExtractConfig().max_side
    assert len(fast.scales) <= len(ExtractConfig().scales)
    with pytest.raises(ConfigError, match="unknown profile 'fats'; did you mean 'fast'"):
        ExtractConfig.profile("fats")


def test_toml(tmp_path: Path) -> None:
    file = tmp_path / "network.toml"
    file.write_text('whitened_dim = 64\n[lit]\nrounds = 3\nupdate = "gru"\n[trunk]\nmean = [0, 0.5, 1]\n')
    found = overlay(NetworkConfig(), read_toml(file))
    assert (found.whitened_dim, found.trunk.mean) == (64, (0.0, 0.5, 1.0))
    assert found.lit == LitConfig(rounds=3, update="gru")


@pytest.mark.parametrize("text", [b"rounds = ", b"\xff\xfe", b"a = 1\na = 2\n"])
def test_unreadable_toml(tmp_path: Path, text: bytes) -> None:
    file = tmp_path / "broken.toml"
    file.write_bytes(text)
    with pytest.raises(ConfigError, match=r"cannot read the settings in .*broken.toml"):
        read_toml(file)


def test_missing_toml(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the settings"):
        read_toml(tmp_path / "absent.toml")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("lit.rounds=3", ("lit.rounds", 3)),
        ("scales=[1.0, 0.5]", ("scales", [1.0, 0.5])),
        ("upright=false", ("upright", False)),
        ("attention=maps", ("attention", "maps")),
        ('attention="maps"', ("attention", "maps")),
        (" max_side = 640", ("max_side", 640)),
        ("name=", ("name", "")),
        ("name=a=b", ("name", "a=b")),
    ],
)
def test_assignments(text: str, expected: tuple[str, Any]) -> None:
    assert parse_assignment(text) == expected


@pytest.mark.parametrize("text", ["rounds", "=3", " =3", ""])
def test_what_is_no_assignment(text: str) -> None:
    with pytest.raises(ConfigError, match="write name=value"):
        parse_assignment(text)


@pytest.mark.parametrize(
    "settings", [NetworkConfig(), NetworkConfig("how", lit=None), ExtractConfig(), PROFILES["fast"]]
)
def test_settings_survive_json(settings: Any) -> None:
    plain = json.loads(json.dumps(as_dict(settings)))
    base = NetworkConfig("how", lit=None) if isinstance(settings, NetworkConfig) else ExtractConfig(max_side=99)
    if plain.get("method") == "fire":
        base = NetworkConfig()
    assert overlay(base, plain) == settings


def test_settings_cannot_be_changed_in_place() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        ExtractConfig().max_side = 3  # type: ignore[misc]


def test_recipes_survive_json() -> None:
    """As a run writes its own down, to be resumed."""
    training = {"negatives_from": "step", "schedule": "cosine", "warm_up": 9, "least_side": 320, "average": 0.99}
    changed = overlay(Recipe(), {"training": training, "data": {"synthetic_views": 0.3, "balance": 0.5}})
    assert overlay(Recipe(), json.loads(json.dumps(as_dict(changed)))) == changed


def test_what_may_be_left_out_is_left_out_by_name() -> None:
    fast = ExtractConfig.profile("fast")
    assert fast.features_per_scale is not None
    assert overlay(fast, dict([parse_assignment("features_per_scale=none")])).features_per_scale is None
    with pytest.raises(ConfigError, match="'max_side' is 'none'"):
        overlay(fast, dict([parse_assignment("max_side=none")]))
    assert overlay(SearchConfig(), dict([parse_assignment("norm=none")])).norm == "none"  # where that is a value
