"""The programs in examples/ are run as they stand, on a few small photos."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFilter

from superfeat import load_network

EXAMPLES = Path(__file__).parents[2] / "examples"
THINGS = 7  # a query and a negative of each of five other things, and one more


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """things/ with a sub-folder for each of some blurred patterns, seen from two places."""
    place = tmp_path_factory.mktemp("examples")
    for number in range(THINGS):
        thing = place / "things" / f"thing{number}"
        thing.mkdir(parents=True)
        pattern = Image.fromarray(np.random.default_rng(number).integers(0, 256, (20, 24, 3), np.uint8))
        scene = pattern.resize((288, 240), Image.Resampling.NEAREST).filter(ImageFilter.GaussianBlur(1))
        for view in range(2):
            scene.crop((32 * view, 16 * view, 224 + 32 * view, 192 + 16 * view)).save(thing / f"view{view}.jpg")
    return place


def run(program: str, *arguments: str, folder: Path) -> str:
    command = [sys.executable, "-W", "error", str(EXAMPLES / program), *arguments]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=600)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.slow
def test_search_a_folder_and_explain_a_match(folder: Path) -> None:
    found = run("search_folder.py", "things", "things/thing3/view0.jpg", folder=folder).splitlines()
    assert len(found) == 5
    names = [line.split()[-1] for line in found]
    assert "thing3/view0.jpg" not in names

    told = run("explain_match.py", "things-index", "things/thing3/view0.jpg", "why.png", folder=folder)
    assert told.startswith(f"{names[0]} has score ")
    with Image.open(folder / "why.png") as picture:
        assert min(picture.size) > 300


@pytest.mark.slow
def test_train_on_pairs(folder: Path) -> None:
    pytest.importorskip("cv2")
    small = ["training.queries=2", "training.max_side=64", "training.tuples_per_step=1"]
    told = run("train_on_pairs.py", "things", "run", *small, folder=folder)
    assert told.startswith(f"{THINGS} pairs, ")
    assert "step 2 of 2: loss " in told
    before, after = load_network("fire-landmarks-3").without_points(), load_network(folder / "run" / "last")
    assert after.config == before.config
    assert after.digest != before.digest


def test_every_example_is_listed() -> None:
    listed = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert all(f"`{program.name} " in listed for program in EXAMPLES.glob("*.py"))
