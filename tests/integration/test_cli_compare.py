"""superfeat compare, weights convert --method and weights whiten --pairs, from the command line."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from PIL import Image

from fixtures_recipe import noise
from superfeat.cli import main
from superfeat.config import NetworkConfig, PoolingConfig, TrunkConfig
from superfeat.weights import build_module


@pytest.fixture
def things(tmp_path: Path) -> Path:
    for thing in range(3):
        (tmp_path / "things" / f"t{thing}").mkdir(parents=True)
        for view in range(2):
            mixed = 0.8 * noise(64, 48, thing) + 0.2 * noise(64, 48, 90 + 2 * thing + view)
            Image.fromarray(mixed.astype(np.uint8)).save(tmp_path / "things" / f"t{thing}" / f"{view}.png")
    return tmp_path / "things"


@pytest.fixture
def trunk(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    module = build_module(NetworkConfig("gem", TrunkConfig("resnet10", stages=4), None, None, PoolingConfig()))
    state = {name.removeprefix("trunk."): value for name, value in module.state_dict().items() if "trunk." in name}
    torch.save(state, tmp_path / "trunk.pth")
    return tmp_path / "trunk.pth"


def run(*arguments: str | Path) -> str:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_which_method_to_take(tmp_path: Path, things: Path, trunk: Path) -> None:
    settings = ("--set", "extract.max_side=48", "--workers", "1")
    told = json.loads(
        run("compare", things, f"gem={trunk}", f"mac={trunk}", "-o", tmp_path / "out", *settings, "--json")
    )
    assert {row["method"] for row in told["methods"]} == {"GeM", "MAC"}
    assert told["advice"].startswith("Take ")
    assert Path(told["picture"]).is_file()
    shown = run("compare", things, f"gem={trunk}", f"mac={trunk}", "-o", tmp_path / "out", *settings)
    assert "mAP" in shown
    assert "Take " in shown, "which one may differ: it depends on the time that each took"


def test_a_whitening_learned_from_pairs(tmp_path: Path, things: Path, trunk: Path) -> None:
    run("weights", "convert", trunk, "--method", "gem", "-o", tmp_path / "gem")
    (tmp_path / "pairs.csv").write_text("query,positive\n" + "".join(f"t{n}/0.png,t{n}/1.png\n" for n in range(3)))
    options = ("--pairs", tmp_path / "pairs.csv", "--dim", "4", "--max-side", "48", "--workers", "1", "--json")
    told = json.loads(run("weights", "whiten", tmp_path / "gem", things, "-o", tmp_path / "lw", *options))
    assert told["dim"] == 4
    assert "3 pairs of 6 photos" in told["provenance"]["whitening"]
    told = json.loads(
        run("index", things, "-o", tmp_path / "index", "-w", tmp_path / "lw", "--set", "max_side=48", "--json")
    )
    assert told["images"] == 6
    (tmp_path / "bad.csv").write_text("query,positive\nt0/0.png,nowhere.png\n")
    result = CliRunner().invoke(
        main,
        [
            "weights",
            "whiten",
            str(tmp_path / "gem"),
            str(things),
            "-o",
            str(tmp_path / "x"),
            "--pairs",
            str(tmp_path / "bad.csv"),
        ],
    )
    assert result.exit_code == 1
    assert "there is no photo 'nowhere.png'" in result.output
