"""superfeat duplicates: which photos of an index show the same thing, and which are copies."""

from collections.abc import Iterable
from pathlib import Path

import click

from superfeat.cli.completion import INDEX_FOLDER
from superfeat.cli.terminal import Progress, Told, json_option, print_result, workers_option


@click.command()
@click.argument("index_folder", metavar="INDEX", type=INDEX_FOLDER)
@click.option(
    "--least",
    type=click.FloatRange(min=0, max=1, min_open=True),
    metavar="PROBABILITY",
    help="That two photos show the same thing; in an index without a calibration, their similarity.",
)
@workers_option
@json_option
def duplicates(index_folder: Path, least: float | None, workers: int | None, as_json: bool) -> None:
    """Group the photos of INDEX that show the same thing, and tell copies of one photo from other photos of it."""
    from superfeat.duplicates import Group, find_duplicates, least_likeness
    from superfeat.engine import Engine

    engine = Engine.open(index_folder)
    least = least or least_likeness(engine.index, engine.calibration)
    groups: list[Group] = []
    progress = Progress("comparing", len(engine.index))
    for outcome in find_duplicates(engine.index, engine.calibration, least=least, workers=workers):
        if isinstance(outcome, Group):
            groups.append(outcome)
        else:
            progress.at(outcome.done)
    progress.done()
    result = {
        "index": str(index_folder),
        "images": len(engine.index),
        "likeness": "similarity" if engine.calibration is None else "probability",
        "least": least,
        "groups": [
            {"kind": group.kind, "likeness": group.likeness, "images": [one._asdict() for one in group.members]}
            for group in groups
        ],
    }
    print_result(result, as_json, _report)


def _report(result: Told) -> Iterable[str]:
    groups = result["groups"]
    grouped = sum(len(group["images"]) for group in groups)
    copies = sum(group["kind"] == "copies" for group in groups)
    found = f"{grouped} of {result['images']} photos in {len(groups)} groups"
    yield f"{result['index']}: {found}, {copies} of these all copies of one photo"
    yield f"({result['likeness']} at least {result['least']:g}; photos with the same letter are copies)"
    for number, group in enumerate(groups, 1):
        yield ""
        yield f"{number}. {group['kind']}: {len(group['images'])} photos, {result['likeness']} {group['likeness']:.2f}"
        for image in group["images"]:
            yield f"   {image['likeness']:.2f}  {_mark(image['copies'], group['kind'])}  {image['name']}"


def _mark(copies: int | None, kind: str) -> str:
    """A letter for each set of copies inside of a larger group."""
    if kind == "copies" or copies is None:
        return " "
    return chr(ord("A") + copies) if copies < 26 else str(copies)
