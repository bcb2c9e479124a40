"""superfeat serve: an index as a web page and an HTTP service."""

import contextlib
import json
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from superfeat.cli.accounts import account_for
from superfeat.cli.clusters import cluster_options, open_engine
from superfeat.cli.completion import INDEX_FOLDER, complete_weights
from superfeat.cli.index import index_report, index_result
from superfeat.cli.lines import say
from superfeat.cli.terminal import Told, device_option, json_option, limit_pixels, workers_option
from superfeat.errors import STOPPED, MissingExtraError
from superfeat.service.limits import Limits, parse_size, require_near, require_token

DEFAULT_LIMITS = Limits()


def _size(context: click.Context, parameter: click.Parameter, text: str) -> int:
    return parse_size(text)


@click.command()
@click.argument("index_folder", metavar="INDEX", type=INDEX_FOLDER)
@click.option("--host", default="127.0.0.1", show_default=True, help="Any but this machine's own needs a token.")
@click.option("--port", default=8000, show_default=True, type=click.IntRange(0, 65535), help="0 takes a free one.")
@click.option("--token", envvar="SUPERFEAT_TOKEN", help="What clients must show. [env: SUPERFEAT_TOKEN]")
@click.option(
    "--max-upload",
    default=f"{DEFAULT_LIMITS.max_upload // 10**6}MB",
    show_default=True,
    callback=_size,
    help="Of a photo.",
)
@click.option(
    "--max-pixels", default=DEFAULT_LIMITS.max_pixels, show_default=True, type=click.IntRange(min=1), help="Of a photo."
)
@click.option(
    "--queue", default=DEFAULT_LIMITS.queue, show_default=True, type=click.IntRange(min=1), help="Photos that may wait."
)
@click.option(
    "--watch",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Keep the index up to date with this folder.",
)
@click.option("--read-only", is_flag=True, help="Photos can be neither added nor deleted.")
@click.option("--files", is_flag=True, help="Give files themselves and open them here; for this machine alone.")
@click.option(
    "--weights",
    "-w",
    shell_complete=complete_weights,
    help="The network for photos. [default: what the index was made with]",
)
@cluster_options
@device_option
@workers_option
@json_option
def serve(
    index_folder: Path,
    host: str,
    port: int,
    token: str | None,
    max_upload: int,
    max_pixels: int,
    queue: int,
    watch: tuple[Path, ...],
    read_only: bool,
    files: bool,
    weights: str | None,
    cluster: str | None,
    replicas: int,
    patience: float,
    device: str,
    workers: int | None,
    as_json: bool,
) -> None:
    """Serve INDEX: a web page to search by dropping a photo, and the same as an HTTP API."""
    read_only = read_only or cluster is not None  # shards are changed where their files are
    token, files = require_token(host, token or None), require_near(host, files)
    try:
        from superfeat.service.app import create_app
        from superfeat.service.server import listen, url_of
        from superfeat.service.server import serve as run
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("superfeat"):
            raise
        raise MissingExtraError("serving an index", "serve") from error
    from PIL import Image

    from superfeat.extraction.memory import keep_memory

    if watch:
        from superfeat.index.watch import require_folders

        require_folders(watch)
    keep_memory()
    if Image.MAX_IMAGE_PIXELS and max_pixels > 2 * Image.MAX_IMAGE_PIXELS:
        limit_pixels(max_pixels)  # Pillow's own limit is lower
    opened = open_engine(index_folder, cluster, replicas, patience, weights=weights, device=device, workers=workers)
    engine = click.get_current_context().with_resource(opened)
    if engine.knows_network:
        engine.warm_up()  # what is wrong with it is said now, and the first search need not wait for all this
    limits = Limits(max_upload=max_upload, max_pixels=max_pixels, queue=queue)
    app = create_app(engine, limits, token=token, read_only=read_only, files=files)
    bound = listen(host, port)
    facts: dict[str, Any] = {
        "url": url_of(bound),
        "index": str(index_folder),
        "images": len(engine.index),
        "read_only": read_only,
    }
    facts["watching"] = [str(folder) for folder in watch]
    with _watching(watch, index_folder, {"weights": weights, "device": device, "workers": workers}):
        stopped_by = run(app, bound, lambda: _say(facts, as_json))
    click.echo("superfeat: stopped", err=True)
    if stopped_by == signal.SIGINT:
        raise click.exceptions.Exit(STOPPED)


def _watching(
    folders: Sequence[Path], index_folder: Path, options: Mapping[str, Any]
) -> contextlib.AbstractContextManager[None]:
    """Adds what changes in the folders beside the searches, which see it within a moment."""
    if not folders:
        return contextlib.nullcontext()
    from superfeat.index.make import Indexed
    from superfeat.index.watch import Trouble, WatchEvent, watching

    def tell(event: WatchEvent) -> None:
        if isinstance(event, Trouble):
            say(f"superfeat: {event.reason}; it will be tried again")
        elif isinstance(event, Indexed) and event.changed:
            result = index_result(event)
            for line in (*index_report(result), *account_for(result, verbose=False)):
                say(line)

    return watching(folders, index_folder, tell, **options)


def _say(facts: Told, as_json: bool) -> None:
    """When it answers, not before."""
    if as_json:
        click.echo(json.dumps(facts))
    else:
        click.echo(f"{facts['index']}: {facts['images']} images at {facts['url']} (Ctrl-C stops)")
