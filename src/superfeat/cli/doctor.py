"""superfeat doctor: what is installed, what this machine offers, and why something is slow."""

import dataclasses
from collections.abc import Iterable
from pathlib import Path

import click

from superfeat.cli.completion import INDEX_FOLDER
from superfeat.cli.lines import say
from superfeat.cli.terminal import Told, json_option, print_result

MARKS = {"ok": " ", "note": "-", "problem": "!"}


@click.command()
@click.argument("index_folder", metavar="[INDEX]", required=False, type=INDEX_FOLDER)
@json_option
@click.pass_context
def doctor(ctx: click.Context, index_folder: Path | None, as_json: bool) -> None:
    """Say what is installed, what this machine offers, what is wrong with INDEX, and why something may be slow.

    Ends with 1 if something is broken without which superfeat does not work.
    """
    from superfeat.doctor import advise, examine

    checks = list(examine(index_folder))
    broken = [check for check in checks if check.state == "problem"]
    result = {
        "usable": not broken,
        "checks": [dataclasses.asdict(check) for check in checks],
        "advice": advise(checks),
    }
    print_result(result, as_json, _report)
    for check in broken:
        say(f"superfeat: {check.advice or f'{check.name}: {check.text}'}")
    if broken:
        ctx.exit(1)


def _report(result: Told) -> Iterable[str]:
    width = max(len(check["name"]) for check in result["checks"])
    for check in result["checks"]:
        yield f"{MARKS[check['state']]} {check['name']:{width}}  {check['text']}"
    yield ""
    if not result["advice"]:
        yield "Nothing here makes superfeat slow."
        return
    yield "What to do, the most important first:"
    for number, advice in enumerate(result["advice"], 1):
        yield f"{number:3}. {advice}"
