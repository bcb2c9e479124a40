"""The site: builds without a broken link, holds every document and public name, and its commands are real ones."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

import superfeat
from superfeat.cli import main

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


@pytest.mark.slow
def test_the_site_builds_without_a_broken_link(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="mkdocs is not installed: pip install 'superfeat[docs]'")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True, check=False, timeout=600)
    assert built.returncode == 0, built.stderr
    reference = (tmp_path / "site" / "api.html").read_text(encoding="utf-8")
    for name in ("superfeat.Engine.search", "superfeat.index_photos", "superfeat.Index.create"):
        assert f'id="{name}"' in reference
    for page in (tmp_path / "site").glob("*.html"):
        loaded = re.findall(r'<(?:script|link|img)[^>]*(?:src|href)="(https?://[^"]+)"', page.read_text())
        assert not loaded, f"{page.name} loads {loaded[0]} from another machine"


def test_the_reference_has_every_public_name() -> None:
    listed = set(re.findall(r"^::: superfeat\.(\w+)$", (DOCS / "api.md").read_text(encoding="utf-8"), re.MULTILINE))
    assert listed == set(superfeat.__all__) - {"__version__"}, "docs/api.md and superfeat.__all__ differ"


def commands() -> list[str]:
    return re.findall(r"`superfeat ([^`]+)`", (DOCS / "howto.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize("line", commands())
def test_commands_of_the_how_to_index_are_accepted(line: str) -> None:
    """Parsed, not run: arguments and options are those of the verb."""
    verb, arguments = verb_of(shlex.split(line))
    verb.make_context(str(verb.name), arguments).close()


def test_the_how_to_index_has_every_verb() -> None:
    assert {shlex.split(line)[0] for line in commands()} == set(main.commands)


def verb_of(words: list[str]) -> tuple[click.Command, list[str]]:
    verb: click.Command = main
    while isinstance(verb, click.Group):
        verb, words = verb.commands[words[0]], words[1:]
    return verb, words
