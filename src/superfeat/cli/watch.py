"""superfeat watch: an index that follows its folders."""

import json
from pathlib import Path
from typing import Any

import click

from superfeat.cli.accounts import account_for
from superfeat.cli.index import index_report, index_result, photo_options, show_event
from superfeat.cli.lines import Follow, printable, say
from superfeat.cli.terminal import json_option, limit_pixels
from superfeat.config import DEFAULT_QUIET
from superfeat.settings import parse_assignment


@click.command()
@click.argument("folders", nargs=-1, required=True, metavar="FOLDER...", type=click.Path(path_type=Path))
@photo_options
@click.option(
    "--quiet",
    default=DEFAULT_QUIET,
    show_default=True,
    type=click.FloatRange(min=0.1),
    metavar="SECONDS",
    help="How long files must hold still before they are indexed.",
)
@json_option
def watch(
    folders: tuple[Path, ...],
    output: Path,
    weights: str | None,
    profile: str | None,
    assignments: tuple[str, ...],
    exclude: tuple[str, ...],
    device: str,
    max_pixels: int | None,
    workers: int | None,
    quiet: float,
    as_json: bool,
) -> None:
    """Keep an index of the photos in FOLDER... up to date until Ctrl-C: what comes, changes, moves and goes.

    With --json each update is a line. Killed at any moment it loses nothing: the same command goes on.
    """
    from superfeat.extraction.extract import keep_memory
    from superfeat.index.make import Indexed
    from superfeat.index.watch import Trouble, watch_photos

    keep_memory()
    limit_pixels(max_pixels)
    chosen: dict[str, Any] = {"weights": weights, "profile": profile, "device": device, "workers": workers}
    chosen["settings"] = dict(parse_assignment(text) for text in assignments)
    follow = Follow()
    for event in watch_photos(folders, output, exclude=exclude, quiet=quiet, **chosen):
        if isinstance(event, Trouble):
            say(f"superfeat: {event.reason}; it will be tried again")
        elif isinstance(event, Indexed):
            follow.end()
            result = index_result(event)
            lines = [*index_report(result), *account_for(result, verbose=False)]
            click.echo(json.dumps(result) if as_json else "\n".join(map(printable, lines)))
        else:
            show_event(follow, event)
