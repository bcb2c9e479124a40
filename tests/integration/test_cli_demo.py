"""superfeat demo as a newcomer runs it, and superfeat info without an argument."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from superfeat.cli.demo import SIDE, next_command
from superfeat.config import DEFAULT_PROFILE, DEFAULT_WEIGHTS
from superfeat.engine import Engine, Named

SMALL = 288  # pixels: enough to be found by


def superfeat(*arguments: object, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "superfeat", *map(str, arguments)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=900)


def demo(side: int, folder: Path) -> subprocess.CompletedProcess[str]:
    """The demo in a process of its own, with photos of this size."""
    code = f"import superfeat.cli.demo as demo; demo.SIDE = {side}; from superfeat.__main__ import run; run()"
    command = [sys.executable, "-c", code, "demo", "-o", "try it"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=900)


@pytest.mark.slow
@pytest.mark.parametrize("side", [SMALL, pytest.param(SIDE, marks=pytest.mark.long)])
def test_the_demo_finds_and_says_where_to_look(side: int, tmp_path: Path) -> None:
    """In small, and in the long run as it is, which `make wheel` runs too."""
    first = demo(side, tmp_path)
    assert first.returncode == 0, first.stderr
    page = (tmp_path / "try it" / "results.html").read_text()
    assert str(tmp_path / "try it" / "results.html") in first.stdout
    assert "serve 'try it/index'" in first.stdout
    assert page.count("<details open>") == 6  # two explanations for each of three queries
    assert "the same, " in page

    engine = Engine.open(tmp_path / "try it" / "index")
    names = list(engine.index.names())
    found = [engine.search(Named(name), top=1).hits[0].name for name in names]
    right = sum(Path(name).parent == Path(other).parent for name, other in zip(names, found, strict=True))
    assert right >= 0.7 * len(names)
    assert f"For {right} of {len(names)} photos the best match shows the same landmark." in first.stdout

    again = demo(side, tmp_path)
    assert again.returncode == 0, again.stderr
    assert "0 new, 0 replaced, 40 unchanged" in again.stdout


def test_the_demo_does_not_touch_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    refused = superfeat("demo", "-o", "mine", folder=tmp_path)
    assert refused.returncode == 1
    assert "holds something else; choose another folder with -o" in refused.stderr
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["letter.txt"]


def test_info_says_what_is_used(tmp_path: Path) -> None:
    told: dict[str, Any] = json.loads(superfeat("info", "--json", folder=tmp_path).stdout)
    assert told["weights"]["name"] == DEFAULT_WEIGHTS
    assert told["profile"]["name"] == DEFAULT_PROFILE
    assert told["codebook"]["words"] > 0
    assert Path(told["weights"]["model card"]).is_file()
    shown = superfeat("info", folder=tmp_path).stdout
    for name in ("weights", "codebook", "profile", "--weights", "--codebook", "--profile", "SUPERFEAT_CACHE"):
        assert name in shown


def test_the_last_command_works_with_what_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    index, output = Path("demo/index"), Path("demo")
    assert next_command(index, output).endswith(" serve demo/index")
    for name in [name for name in sys.modules if name.startswith("superfeat.service.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    plain = next_command(index, output)
    assert " search demo/index PHOTO --html demo/found.html" in plain
    assert "(in a browser: pip install 'superfeat[serve]', then " in plain
