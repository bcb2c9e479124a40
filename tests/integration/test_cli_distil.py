"""superfeat distil: the verb, stopped by nobody."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from PIL import Image

from fixtures_recipe import noise
from superfeat.cli import main
from superfeat.config import LitConfig, NetworkConfig, TrunkConfig
from superfeat.weights import Network, build_module, load_network, save_network

RECIPE = """
[network.trunk]
arch = "efficientnet-lite0"
stages = 2
neck = 12

[distillation]
least_side = 64
max_side = 64
epochs = 2
batch = 3
held_out = 1
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A recipe, a teacher and photos, one of which is none."""
    (tmp_path / "recipe.toml").write_text(RECIPE)
    config = NetworkConfig("fire", TrunkConfig("resnet10", 2), LitConfig(templates=4, rounds=2, dim=8), 6)
    torch.manual_seed(0)
    module = build_module(config)
    torch.nn.init.normal_(module.whitening.weight)  # type: ignore[union-attr]
    save_network(Network(module, config), tmp_path / "teacher")
    (tmp_path / "photos").mkdir()
    for number in range(7):
        Image.fromarray(np.asarray(noise(64, 48, number))).save(tmp_path / "photos" / f"{number}.png")
    (tmp_path / "photos" / "torn.jpg").write_bytes(b"\xff\xd8\xff")
    return tmp_path


def run(folder: Path, *more: str) -> tuple[int, str, str]:
    inputs = ["distil", str(folder / "recipe.toml"), "--images", str(folder / "photos")]
    options = ["--teacher", str(folder / "teacher"), "-o", str(folder / "run"), "--workers", "1", *more]
    result = CliRunner().invoke(main, [*inputs, *options])
    return result.exit_code, result.stdout, result.stderr


def test_a_run_and_what_is_said_of_it(folder: Path) -> None:
    code, _, said = run(folder)
    assert code == 1
    assert "1 photos cannot be read (torn.jpg" in said
    assert "--skip-unreadable" in said
    code, told, said = run(folder, "--skip-unreadable")
    assert code == 0, said
    assert "epoch 2 of 2: loss" in said
    assert f"use it: superfeat index PHOTOS -o INDEX --weights {folder / 'run'}/last" in told
    assert load_network(folder / "run" / "last").config.trunk.neck == 12
    code, _, said = run(folder, "--skip-unreadable")
    assert code == 1
    assert "resume it" in said
    code, told, _ = run(folder, "--skip-unreadable", "--resume", "--json")
    assert code == 0
    result = json.loads(told)
    assert result["epochs"] == 2
    assert [photo["name"] for photo in result["skipped"]] == ["torn.jpg"]


def test_settings_are_those_of_the_recipe(folder: Path) -> None:
    code, _, said = run(folder, "--skip-unreadable", "--set", "distillation.epoch=3")
    assert code == 1
    assert "unknown setting 'distillation.epoch'; did you mean 'epochs'?" in said
