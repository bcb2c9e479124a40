"""Recipes: what ships reads and is the paper's, and anything else says in one line what is wrong with it."""

import dataclasses
import fnmatch
import itertools
import json
import re
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from superfeat.config import (
    CodebookConfig,
    DataConfig,
    ExtractConfig,
    LitConfig,
    LossConfig,
    PretrainConfig,
    Recipe,
    SearchConfig,
    TrainingConfig,
    TrunkConfig,
)
from superfeat.errors import ConfigError
from superfeat.recipes import read_recipe, recipe_names
from superfeat.settings import as_dict, overlay, read_toml

PROJECT = Path(__file__).resolve().parents[3]


def refused(source: str | Path, *assignments: str) -> str:
    """The one line that a recipe is refused with."""
    with pytest.raises(ConfigError) as error:
        read_recipe(source, assignments)
    message = str(error.value)
    assert "\n" not in message
    return message


# --- What ships -------------------------------------------------------------------------------------------------------


def test_the_shipped_recipes() -> None:
    assert {"drawn-mini", "fire-folder", "fire-sfm120k", "how-sfm120k"} <= set(recipe_names())
    assert recipe_names() == sorted(recipe_names())


@pytest.mark.parametrize("name", recipe_names())
def test_every_shipped_recipe_reads(name: str) -> None:
    recipe = read_recipe(name)
    assert isinstance(recipe, Recipe)
    assert (recipe.network.lit is None) == (recipe.network.method != "fire")


@pytest.mark.parametrize("name", recipe_names())
def test_every_shipped_recipe_survives_being_written_down(name: str) -> None:
    """A run keeps its recipe as plain values, and must find the same again."""
    recipe = read_recipe(name)
    plain = as_dict(recipe)
    assert overlay(Recipe(network=recipe.network, training=recipe.training, losses=recipe.losses), plain) == recipe


@pytest.mark.parametrize("name", recipe_names())
def test_every_shipped_recipe_says_what_it_is(name: str) -> None:
    text = (resources.files("superfeat.recipes") / f"{name}.toml").read_text(encoding="utf-8")
    assert text.startswith("# ")


@pytest.mark.parametrize("name", recipe_names())
def test_recipes_that_a_recipe_speaks_of_exist(name: str) -> None:
    """A comment that tells the user to run another recipe must name one that is there."""
    words = (resources.files("superfeat.recipes") / f"{name}.toml").read_text(encoding="utf-8").split()
    for verb, named in itertools.pairwise(words):
        if verb in ("train", "pretrain") and "-" in named:
            assert named.rstrip(".,:;)") in recipe_names()


def test_the_recipes_are_part_of_the_package() -> None:
    """A wheel holds only the files that pyproject.toml names: without them an installed superfeat has no recipe."""
    data = read_toml(PROJECT / "pyproject.toml")["tool"]["setuptools"]["package-data"]
    patterns = [
        *data.get("superfeat.recipes", []),
        *data.get("*", []),
        *(pattern.removeprefix("recipes/") for pattern in data.get("superfeat", []) if pattern.startswith("recipes/")),
    ]
    for name in recipe_names():
        assert any(fnmatch.fnmatch(f"{name}.toml", pattern) for pattern in patterns)


# --- The paper's ------------------------------------------------------------------------------------------------------

# METHOD.md, sections 1, 2, 4, 5 and 6, one by one.
PAPER = {
    "network.method": "fire",
    "network.whitened_dim": 128,
    "network.trunk.arch": "resnet50",
    "network.trunk.stages": 3,
    "network.trunk.mean": (0.485, 0.456, 0.406),
    "network.trunk.std": (0.229, 0.224, 0.225),
    "network.lit.templates": 256,
    "network.lit.rounds": 6,
    "network.lit.dim": 1024,
    "network.lit.update": "residual",
    "network.lit.frozen_templates": False,
    "data.kind": "sfm120k",
    "training.epochs": 200,
    "training.queries": 2000,
    "training.tuples_per_step": 5,
    "training.negatives": 5,
    "training.pool": 20000,
    "training.learning_rate": 3e-5,
    "training.decay": 0.99,
    "training.weight_decay": 1e-4,
    "training.flip": 0.5,
    "training.max_side": 1024,
    "training.parts": "all",
    "training.precision": "float32",
    "training.whitening_images": 5000,
    "losses.superfeature": 0.02,
    "losses.decorrelation": 0.1,
    "losses.pooled": 0.0,
    "losses.margin": 1.1,
    "losses.hinge": "released",
    "losses.ratio_test": "lowe",
    "losses.ratio": 0.9,
    "losses.reciprocal": True,
    "losses.same_id": True,
    "validation.every": 5,
    "validation.codebook.words": 65536,
    "validation.codebook.rounds": 10,
    "validation.codebook.points_per_word": 256,
    "validation.codebook_images": 20000,
    "validation.extract.features_per_image": 1000,
    "validation.extract.max_side": 1024,
    "validation.extract.scales": (2.0, 1.414, 1.0, 0.707, 0.5, 0.353, 0.25),
    "validation.search.assignments": 5,
    "validation.search.alpha": 3.0,
    "validation.search.threshold": 0.0,
    "validation.search.idf": False,
    "pretraining.first": False,
    "pretraining.epochs": 80,
    "pretraining.learning_rate": 0.01,
    "pretraining.step_epochs": 20,
    "pretraining.decorrelation": 0.1,
}
HOW = {
    "network.method": "how",
    "network.lit": None,
    "network.whitened_dim": 128,
    "network.trunk.arch": "resnet50",
    "network.trunk.stages": 3,
    "data.kind": "sfm120k",
    "training.epochs": 20,
    "training.queries": 2000,
    "training.tuples_per_step": 5,
    "training.negatives": 5,
    "training.pool": 20000,
    "training.learning_rate": 1e-6,
    "training.flip": 0.0,
    "training.max_side": 1024,
    "losses.superfeature": 0.0,
    "losses.decorrelation": 0.0,
    "losses.pooled": 1.0,
    "losses.pooled_margin": 0.8,
}


def setting(recipe: Recipe, dotted: str) -> Any:
    value: Any = recipe
    for name in dotted.split("."):
        value = getattr(value, name)
    return value


@pytest.mark.parametrize("name", PAPER)
def test_fire_sfm120k_is_the_papers(name: str) -> None:
    assert setting(read_recipe("fire-sfm120k"), name) == PAPER[name]


def test_400_steps_an_epoch() -> None:
    training = read_recipe("fire-sfm120k").training
    assert training.queries / training.tuples_per_step == 400


def test_the_defaults_are_the_papers_too() -> None:
    """A default is written once: the recipe says it again, for the reader, and must say the same."""
    recipe = read_recipe("fire-sfm120k")
    assert recipe == Recipe(weights=recipe.weights, data=DataConfig(kind="sfm120k"))


@pytest.mark.parametrize("name", HOW)
def test_how_sfm120k_is_its_papers(name: str) -> None:
    assert setting(read_recipe("how-sfm120k"), name) == HOW[name]


DOCUMENT = PROJECT / "docs" / "training.md"
BEYOND = {
    *(f"training.{name}" for name in ("negatives_from", "frozen_stages", "least_side", "schedule", "warm_up")),
    *("training.trunk_rate", "training.average", "data.synthetic_views", "data.balance", "losses.decorrelated"),
    "training.stored_maps",
}


def test_the_document_says_what_is_off_by_default() -> None:
    rows = re.findall(r"^\| `([a-z_.]+)` \| (`[^`]+`|left out) \|", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE)
    assert {name for name, _ in rows} == BEYOND
    for name, default in rows:
        expected = None if default == "left out" else json.loads(default.strip("`"))
        assert setting(Recipe(), name) == expected, name


# --- Changes ----------------------------------------------------------------------------------------------------------


def test_settings_are_laid_over() -> None:
    before = read_recipe("fire-sfm120k")
    changes = ("training.negatives=10", "losses.ratio_test=released", "network.lit.rounds = 3", "losses.same_id=false")
    found = read_recipe("fire-sfm120k", changes)
    assert found.training == dataclasses.replace(before.training, negatives=10)
    assert found.losses == dataclasses.replace(before.losses, ratio_test="released", same_id=False)
    assert found.network.lit == LitConfig(rounds=3)
    assert (found.data, found.validation, found.pretraining) == (before.data, before.validation, before.pretraining)


@pytest.mark.parametrize(
    ("change", "name", "value"),
    [
        ("weights=here/net.pth", "weights", "here/net.pth"),
        ("training.learning_rate=1e-4", "training.learning_rate", 1e-4),
        ("training.flip=0", "training.flip", 0.0),
        ("training.recompute=true", "training.recompute", True),
        ("training.precision=bf16", "training.precision", "bf16"),
        ('data.kind="drawn"', "data.kind", "drawn"),
        ("validation.extract.scales=[1.0, 0.5]", "validation.extract.scales", (1.0, 0.5)),
        ("validation.codebook={words = 64}", "validation.codebook.words", 64),
        ("validation.every=0", "validation.every", 0),
        ("training.epochs=0", "training.epochs", 0),
        ("losses.hinge=paper", "losses.hinge", "paper"),
    ],
)
def test_every_kind_of_value(change: str, name: str, value: Any) -> None:
    assert setting(read_recipe("fire-sfm120k", [change]), name) == value


def test_the_last_of_two_changes_wins() -> None:
    assert read_recipe("fire-folder", ["training.epochs=3", "training.epochs=4"]).training.epochs == 4


def test_changes_come_after_the_file(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("[training]\nepochs = 7\nnegatives = 2\n")
    training = read_recipe(tmp_path / "mine.toml", ["training.epochs=9"]).training
    assert (training.epochs, training.negatives) == (9, 2)


# --- A recipe of one's own --------------------------------------------------------------------------------------------


def test_an_empty_file_is_the_paper(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("")
    assert read_recipe(tmp_path / "mine.toml") == Recipe()


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(
        'weights = "net"\n'
        "network.whitened_dim = 64\n"
        "[network.trunk]\narch = 'resnet18'\n"
        "[losses]\nratio_test = 'released'\n"
        "[validation]\ncodebook = { words = 100 }\nsearch = { idf = true }\n"
    )
    expected = overlay(
        Recipe(),
        {
            "weights": "net",
            "network.whitened_dim": 64,
            "network.trunk.arch": "resnet18",
            "losses.ratio_test": "released",
            "validation.codebook.words": 100,
            "validation.search.idf": True,
        },
    )
    assert read_recipe(tmp_path / "mine.toml") == expected
    assert read_recipe(str(tmp_path / "mine.toml")) == expected
    assert expected.network.trunk == TrunkConfig("resnet18")
    assert expected.validation.search == SearchConfig(idf=True)
    assert expected.validation.codebook == CodebookConfig(words=100)


def test_how_of_ones_own_needs_no_word_on_losses(tmp_path: Path) -> None:
    (tmp_path / "how.toml").write_text("[network]\nmethod = 'how'\n[network.trunk]\narch = 'resnet18'\nstages = 4\n")
    recipe = read_recipe(tmp_path / "how.toml", ["training.learning_rate=5e-6"])
    assert recipe.network.lit is None
    assert recipe.losses == LossConfig(superfeature=0, decorrelation=0, pooled=1)
    assert recipe.training == TrainingConfig(learning_rate=5e-6)


def test_how_keeps_the_losses_that_are_given(tmp_path: Path) -> None:
    (tmp_path / "how.toml").write_text("network.method = 'how'\n[losses]\npooled = 0.5\npooled_margin = 0.7\n")
    losses = read_recipe(tmp_path / "how.toml").losses
    assert (losses.superfeature, losses.decorrelation, losses.pooled, losses.pooled_margin) == (0, 0, 0.5, 0.7)


def test_a_file_comes_before_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fire-folder").write_text("[training]\nepochs = 1\n")
    monkeypatch.chdir(tmp_path)
    assert read_recipe("fire-folder").training.epochs == 1


# --- What is refused --------------------------------------------------------------------------------------------------


def test_an_unknown_recipe() -> None:
    message = refused("fire-sfm12k")
    assert message.startswith("no recipe 'fire-sfm12k'")
    assert message.endswith("did you mean 'fire-sfm120k'?")
    for name in recipe_names():
        assert name in refused("zzz")


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    assert str(tmp_path / "no.toml") in refused(tmp_path / "no.toml")
    assert "give a TOML file" in refused(tmp_path)


@pytest.mark.parametrize("content", [b"[training\nepochs = 3", b"epochs = = 3", b"\xff\xfe"])
def test_a_damaged_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "mine.toml").write_bytes(content)
    assert refused(tmp_path / "mine.toml").startswith(f"cannot read the settings in {tmp_path / 'mine.toml'}: ")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("trainig.epochs=3", "unknown setting 'trainig'; did you mean 'training'?"),
        ("training.epoch=3", "unknown setting 'training.epoch'; did you mean 'epochs'?"),
        ("losses.ratiotest=off", "unknown setting 'losses.ratiotest'; did you mean 'ratio_test'?"),
        ("network.lit.round=3", "unknown setting 'network.lit.round'; did you mean 'rounds'?"),
        ("validation.codebook.word=3", "unknown setting 'validation.codebook.word'; did you mean 'words'?"),
        ("training.epochs.x=3", "setting 'training.epochs' is a single value and has no parts"),
        ("training=3", "setting 'training' is a group of settings"),
        ("training.epochs", "'training.epochs' is not a setting; write name=value"),
        ("=3", "'=3' is not a setting; write name=value"),
    ],
)
def test_unknown_settings(change: str, message: str) -> None:
    assert refused("fire-sfm120k", change).startswith(message)


def test_unknown_settings_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("[training]\nnegative = 3\n")
    assert refused(tmp_path / "mine.toml") == "unknown setting 'training.negative'; did you mean 'negatives'?"
    (tmp_path / "mine.toml").write_text("network = 'how'\n")
    assert refused(tmp_path / "mine.toml").startswith("setting 'network' is a group of settings")


@pytest.mark.parametrize(
    ("change", "allowed"),
    [
        ("data.kind=photos", "'folders' or 'labelled' or 'sfm120k' or 'drawn'"),
        ("data.hold_out=1", "0 or more, and below 1"),
        ("data.hold_out=-0.1", "0 or more, and below 1"),
        ("data.things=1", "2 or more"),
        ("data.views=1", "2 or more"),
        ("data.side=15", "16 or more"),
        ("training.epochs=-1", "0 or more"),
        ("training.epochs=2.5", "type int"),
        ("training.epochs=true", "type int"),
        ("training.queries=0", "1 or more"),
        ("training.tuples_per_step=0", "1 or more"),
        ("training.negatives=0", "1 or more"),
        ("training.pool=0", "1 or more"),
        ("training.max_side=15", "16 or more"),
        ("training.whitening_images=0", "1 or more"),
        ("training.seed=-1", "0 or more"),
        ("training.learning_rate=0", "above 0"),
        ("training.learning_rate=-1", "above 0"),
        ("training.learning_rate=nan", "above 0"),
        ("training.learning_rate=fast", "type float"),
        ("training.decay=0", "above 0 and at most 1"),
        ("training.decay=1.1", "above 0 and at most 1"),
        ("training.weight_decay=-1", "0 or more"),
        ("training.flip=1.5", "between 0 and 1"),
        ("training.flip=-0.5", "between 0 and 1"),
        ("training.parts=trunk", "'all' or 'lit'"),
        ("training.stored_maps=true", "unless training.frozen_stages is above 0"),
        ("training.precision=float16", "'float32' or 'bf16'"),
        ("training.recompute=1", "type bool"),
        ("losses.superfeature=-1", "0 or more"),
        ("losses.decorrelation=-1", "0 or more"),
        ("losses.pooled=-1", "0 or more"),
        ("losses.pooled=nan", "0 or more"),
        ("losses.margin=0", "above 0"),
        ("losses.pooled_margin=0", "above 0"),
        ("losses.ratio=0", "above 0"),
        ("losses.hinge=official", "'released' or 'paper'"),
        ("losses.ratio_test=on", "'lowe' or 'released' or 'off'"),
        ("losses.same_id=no", "type bool"),
        ("validation.every=-1", "0 or more"),
        ("validation.codebook_images=0", "1 or more"),
        ("validation.codebook.words=0", "1 or more"),
        ("validation.extract.max_side=1", "16 or more"),
        ("validation.search.alpha=-1", "0 or more"),
        ("pretraining.epochs=0", "1 or more"),
        ("pretraining.batch=1", "2 or more"),
        ("pretraining.step_epochs=0", "1 or more"),
        ("pretraining.hidden=0", "1 or more"),
        ("pretraining.side=31", "32 or more"),
        ("pretraining.crops=0", "1 or more"),
        ("pretraining.seed=-1", "0 or more"),
        ("pretraining.learning_rate=0", "above 0"),
        ("pretraining.momentum=1", "at least 0, below 1"),
        ("pretraining.dropout=1", "at least 0, below 1"),
        ("pretraining.hold_out=-0.1", "at least 0, below 1"),
        ("pretraining.smallest_crop=0", "above 0, at most 1"),
        ("pretraining.weight_decay=-1", "0 or more"),
        ("pretraining.decorrelation=-1", "0 or more"),
        ("pretraining.optimiser=lamb", "'sgd' or 'adam'"),
        ("network.trunk.stages=5", "1 to 4"),
        ("network.whitened_dim=0", "1 or more"),
        ("network.lit.dim=1", "2 or more"),
    ],
)
def test_impossible_values(change: str, allowed: str) -> None:
    """Value, reason and what is allowed; named as the user wrote it, or within its group."""
    message = refused("fire-sfm120k", change)
    name, _, value = change.partition("=")
    assert message.startswith("setting '")
    assert name.endswith(message.split("'")[1])
    assert allowed in message
    assert value.rstrip("0").rstrip(".") in message or value == "true"


@pytest.mark.parametrize(
    "change",
    [
        "training.learning_rate=inf",
        "training.weight_decay=inf",
        "losses.superfeature=inf",
        "losses.decorrelation=inf",
        "losses.margin=inf",
        "pretraining.learning_rate=inf",
    ],
)
def test_infinity_is_no_setting(change: str) -> None:
    """TOML can write it; a loss or a step of that size can only give numbers that are none."""
    assert change.partition("=")[0] in refused("fire-sfm120k", change)


def test_losses_that_contradict() -> None:
    nothing = ("losses.superfeature=0", "losses.decorrelation=0")
    assert refused("fire-sfm120k", *nothing).startswith("all three losses have weight 0")
    assert read_recipe("fire-sfm120k", [*nothing, "losses.pooled=1"]).losses.pooled == 1


def test_how_and_fire_do_not_mix(tmp_path: Path) -> None:
    assert refused("fire-sfm120k", "network.method=how") == "method 'how' takes no [lit] settings"
    assert refused("how-sfm120k", "network.method=fire") == "method 'fire' needs [lit] settings"
    assert refused("how-sfm120k", "network.lit.rounds=3") == "method 'how' takes no [lit] settings"
    assert refused("how-sfm120k", "losses.superfeature=0.02").startswith("HOW has no super-features")
    assert refused("how-sfm120k", "losses.decorrelation=0.1").startswith("HOW has no super-features")
    assert refused("how-sfm120k", "losses.pooled=0").startswith("all three losses have weight 0")
    message = refused("how-sfm120k", "training.parts=lit")
    assert message == "setting 'training.parts' is 'lit'; it must be 'all' for HOW"
    (tmp_path / "how.toml").write_text("network.method = 'how'\nlosses.superfeature = 0.1\n")
    assert refused(tmp_path / "how.toml").startswith("HOW has no super-features")


def test_training_needs_a_whitening() -> None:
    with pytest.raises(ConfigError, match=r"network\.whitened_dim, for example 128"):
        overlay(Recipe(), {"network.whitened_dim": None})


def test_unused_defaults_are_the_methods() -> None:
    """Where METHOD.md has no number, the recipe has the default of its stage."""
    recipe = read_recipe("fire-sfm120k")
    assert recipe.validation.extract == ExtractConfig()
    assert recipe.pretraining == PretrainConfig()
