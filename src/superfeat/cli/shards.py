"""superfeat shard, rebalance: a collection in several indexes that answer as one."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from superfeat.cli.completion import INDEX_FOLDER
from superfeat.cli.lines import Progress
from superfeat.cli.terminal import json_option, print_result, tree

if TYPE_CHECKING:
    from superfeat.index.index import Index
    from superfeat.index.splitting import Splitting
    from superfeat.work import Work

folder = click.Path(path_type=Path)


@click.command()
@click.argument("index_folder", metavar="INDEX", type=INDEX_FOLDER)
@click.option("--shards", "-n", "count", required=True, type=int, help="How many.")
@click.option("--output", "-o", required=True, type=folder, help="A new folder for them.")
@json_option
def shard(index_folder: Path, count: int, output: Path, as_json: bool) -> None:
    """Split INDEX into shards: a folder that every verb takes for an index, with the same answers.

    INDEX stays as it is. `superfeat merge SHARDS -o INDEX` is the way back.
    """
    from superfeat.index.index import Index
    from superfeat.index.splitting import begin_sharding

    print_shards(begin_sharding(Index.open(index_folder), count, output), as_json)


@click.command()
@click.argument("shards", metavar="SHARDS", type=INDEX_FOLDER)
@click.option("--shards", "-n", "count", type=int, help="How many. [default: as many as there are]")
@json_option
def rebalance(shards: Path, count: int | None, as_json: bool) -> None:
    """Write SHARDS anew: of equal size, without deleted images, and as many as you like.

    The old shards go when the new ones are there: it needs as much space again.
    """
    from superfeat.index.splitting import begin_rebalancing

    print_shards(begin_rebalancing(shards, count), as_json)


def print_shards(work: "Work[Splitting, Index]", as_json: bool) -> None:
    """Does the work, and says how many images are where."""
    progress = Progress("writing", None, unit="images")
    for event in work:
        progress.total = event.total
        progress.at(event.done)
    progress.done()
    index = work.result()
    facts = index.info()
    told = {} if facts.shards is None else {"shards": facts.shards}
    print_result({"index": str(index.path), "images": facts.images, **told, "bytes": facts.bytes}, as_json, tree)
