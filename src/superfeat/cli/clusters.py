"""What verbs share that work on a cluster: its address, and an engine whose shards answer from there."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from superfeat.cli.terminal import Command
from superfeat.cluster import PATIENCE
from superfeat.errors import SuperfeatError

if TYPE_CHECKING:
    from superfeat.engine import Engine
    from superfeat.index.lloyd import Assign

AUTO_HELP = "'auto': that of RAY_ADDRESS, or one on this machine."
NEW_SHARDS = 8  # of an index that a cluster makes


def cluster_options(command: Command) -> Command:
    """--cluster, --replicas and --patience of verbs that search."""
    replicas = click.option(
        "--replicas", default=1, show_default=True, type=click.IntRange(min=1), help="Actors for each shard."
    )
    patience = click.option(
        "--patience",
        default=PATIENCE,
        show_default=True,
        type=click.FloatRange(min=0, min_open=True),
        help="Seconds that a question to the shards waits; who has not answered then is left out.",
    )
    return cluster_option("Shards answer from this cluster of Ray's")(replicas(patience(command)))


def cluster_option(purpose: str) -> Callable[[Command], Command]:
    """--cluster alone."""
    return click.option("--cluster", metavar="auto|ADDRESS", help=f"{purpose}; {AUTO_HELP}")


@contextlib.contextmanager
def hire_cluster(
    address: str, output: Path, shards: int | None, workers: int | None, device: str
) -> Iterator[dict[str, Any]]:
    """What `begin_indexing` needs to have photos looked at by a cluster; a new index is made in shards."""
    from superfeat.cluster.photos import open_workers

    new = not (output / "manifest.json").is_file()
    with open_workers(address, workers=workers, device=device) as crew, cluster_assign(address) as assign:
        yield {"crew": crew, "assign": assign, "shards": NEW_SHARDS if new and shards is None else shards}


@contextlib.contextmanager
def cluster_assign(address: str) -> "Iterator[Assign]":
    """k-means by a cluster."""
    from superfeat.cluster.connect import connected
    from superfeat.cluster.words import ClusterAssign

    with connected(address) as ray:
        yield ClusterAssign(ray)


@contextlib.contextmanager
def open_engine(path: Path, cluster: str | None, replicas: int, patience: float, **options: Any) -> "Iterator[Engine]":
    """An index that is asked here, or by its shards on a cluster."""
    from superfeat.engine import Engine

    if cluster is None:
        if replicas > 1:
            raise SuperfeatError("--replicas are of shards on a cluster; name it with --cluster, or leave them out")
        yield Engine.open(path, **options)
        return
    from superfeat.cluster.search import open_far_index

    with open_far_index(path, cluster, replicas=replicas, patience=patience) as index:
        yield Engine(index, **options)
