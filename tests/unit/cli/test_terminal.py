"""Errors on the command line: one line, with the options that a verb has for the arguments that would help."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from fixtures_recipe import listen_to_ctrl_c
from superfeat.cli.terminal import VerbGroup, print_result, tree
from superfeat.errors import ConfigError, SuperfeatError


@click.group(cls=VerbGroup)
@click.option("--debug", is_flag=True)
def main(debug: bool) -> None:
    """A program of two verbs, one below another."""


@main.command()
@click.argument("named")
@click.option("--allow-missing", is_flag=True)
@click.option("-w", "--weights")
@click.option("--from", "source")
@click.option("--words", type=int)
@click.option("--set", "assignments", multiple=True)
def look(named: str, **_: object) -> None:
    raise ConfigError("it is dark", arguments=named.split())


@main.group(cls=VerbGroup)
def under() -> None:
    """Verbs below."""


@under.command()
@click.argument("source")
def first(source: str) -> None:
    raise SuperfeatError("it is dark", arguments=["source", "lamp"])


@under.command()
@click.option("--lamp")
def second(lamp: str | None) -> None:
    raise SuperfeatError("it is dark", arguments=["source", "lamp"])


@main.command()
@click.argument("number", type=int)
@click.option("--file")
def touch(number: int, file: str | None) -> None:
    raise OSError(number, os.strerror(number), file) if number else KeyboardInterrupt


def said(*words: str) -> str:
    result = CliRunner().invoke(main, words)
    assert (result.exit_code, result.stdout) == (1, "")
    return result.stderr


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ("", ""),
        ("allow_missing", " (--allow-missing)"),
        ("weights", " (--weights)"),
        ("source", " (--from)"),
        ("words=16", " (--words 16)"),
        ("training.negatives=3", " (--set training.negatives=3)"),
        ("source allow_missing", " (--from, --allow-missing)"),
        ("something else weights", " (--weights)"),
        ("named", ""),
        ("assignments", " (--set)"),
    ],
)
def test_a_hint_names_the_options_of_the_verb(arguments: str, options: str) -> None:
    assert said("look", arguments) == f"superfeat: it is dark{options}\n"


def test_verbs_below() -> None:
    """An argument without a dash is no option, and what another verb takes does not help."""
    assert said("under", "first", "x") == "superfeat: it is dark\n"
    assert said("under", "second") == "superfeat: it is dark (--lamp)\n"


@pytest.mark.parametrize("verb", [["look", "weights"], ["under", "second"]])
def test_debug_shows_the_traceback(verb: list[str]) -> None:
    result = CliRunner().invoke(main, ["--debug", *verb])
    assert isinstance(result.exception, SuperfeatError)
    assert str(result.exception) == "it is dark", "the message knows nothing of options"


@pytest.mark.parametrize(
    ("number", "file", "message"),
    [
        (
            errno.EACCES,
            "/a",
            "cannot use /a: Permission denied; ask its owner for the right to it, or choose another place",
        ),
        (errno.EMFILE, None, "Too many open files"),
        (errno.EISDIR, "a\nb", "cannot use a\\nb: Is a directory"),
    ],
)
def test_what_the_system_refuses_is_one_line(number: int, file: str | None, message: str) -> None:
    more = [] if file is None else ["--file", file]
    assert said("touch", str(number), *more) == f"superfeat: {message}\n"
    assert isinstance(CliRunner().invoke(main, ["--debug", "touch", str(number), *more]).exception, OSError)


def test_a_closed_pipe_is_no_error_to_speak_of() -> None:
    result = CliRunner().invoke(main, ["touch", str(errno.EPIPE)])
    assert (result.exit_code, result.stderr) == (1, "")


def test_ctrl_c_ends_with_130() -> None:
    result = CliRunner().invoke(main, ["touch", "0"])
    assert (result.exit_code, result.stderr.strip().count("\n")) == (130, 0)


def test_json_has_names_as_they_are_and_lines_have_them_written_out(capsys: pytest.CaptureFixture[str]) -> None:
    told = {"name": "a\nb\x1b.jpg"}
    print_result(told, True, tree)
    assert json.loads(capsys.readouterr().out) == told
    print_result(told, False, tree)
    assert capsys.readouterr().out == "name: a\\nb\\x1b.jpg\n"


@pytest.mark.parametrize("module", ["click", "torch"])
def test_ctrl_c_while_modules_are_loaded_is_one_line(module: str, tmp_path: Path) -> None:
    """click is loaded before there is a verb; torch by a verb, and by code that exec() runs: Python marks that."""
    (tmp_path / f"{module}.py").write_text("exec('import os, signal; os.kill(os.getpid(), signal.SIGINT)')")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    command = [sys.executable, "-m", "superfeat", "weights", "show", str(tmp_path)]
    ended = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, preexec_fn=listen_to_ctrl_c
    )
    assert ended.returncode == 130
    assert ended.stderr.strip().startswith("superfeat: stopped")
    assert ended.stderr.strip().count("\n") == 0
