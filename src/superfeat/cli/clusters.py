"""What verbs share that work on a cluster: its address, and an engine whose shards answer from there."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from superfeat.cli.terminal import Command
from superfeat.errors import SuperfeatError

if TYPE_CHECKING:
    from superfeat.engine import Engine

CLUSTER_HELP = "Shards answer from this cluster of Ray's; 'auto': that of RAY_ADDRESS, or one on this machine."


def cluster_options(command: Command) -> Command:
    """--cluster and --replicas of verbs that search."""
    replicas = click.option(
        "--replicas", default=1, show_default=True, type=click.IntRange(min=1), help="Actors for each shard."
    )
    return click.option("--cluster", metavar="auto|ADDRESS", help=CLUSTER_HELP)(replicas(command))


@contextlib.contextmanager
def open_engine(path: Path, cluster: str | None, replicas: int, **options: Any) -> "Iterator[Engine]":
    """An index that is asked here, or by its shards on a cluster."""
    from superfeat.engine import Engine

    if cluster is None:
        if replicas > 1:
            raise SuperfeatError("--replicas are of shards on a cluster; name it with --cluster, or leave them out")
        yield Engine.open(path, **options)
        return
    from superfeat.cluster.search import open_far_index

    with open_far_index(path, cluster, replicas=replicas) as index:
        yield Engine(index, **options)
