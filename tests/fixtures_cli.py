"""The command line in this process: what it says, and that it refuses in one line."""

import json
from typing import Any

from click.testing import CliRunner, Result

from superfeat.cli import main


def run(*arguments: object, **environment: str) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments], env=environment)


def run_json(*arguments: object) -> Any:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def assert_refused(result: Result, *words: str) -> None:
    """Exit 1, one line on stderr, nothing on stdout."""
    assert result.exit_code == 1, (result.stderr, result.exception)
    assert result.stdout == ""
    assert result.stderr.startswith("superfeat: ")
    assert result.stderr.count("\n") == 1, result.stderr
    for word in words:
        assert word in result.stderr
