"""Errors on the command line: one line, with the options that a verb has for the arguments that would help."""

import click
import pytest
from click.testing import CliRunner

from superfeat.cli.terminal import VerbGroup
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
