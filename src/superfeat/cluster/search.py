"""A shard in an actor of its own, or in several: the whole is asked through them, and goes on without those that died.

Ray starts the actors, carries the questions and starts an actor anew when it has died; a question that an actor cannot
answer goes to its replica, and if there is none the shard is left out.
"""

import contextlib
import itertools
import os
import resource
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from superfeat.cluster import PATIENCE
from superfeat.cluster.connect import connected
from superfeat.config import SearchConfig
from superfeat.errors import SuperfeatError
from superfeat.index.far import far_index
from superfeat.index.index import Index
from superfeat.index.part import ShardPart
from superfeat.index.shards import ShardFolders, is_sharded

START = 120.0  # seconds until actors must have opened their shards
AT_ONCE = 4  # questions that an actor answers at the same time


class Process(NamedTuple):
    """Where a shard is read, and how much memory that takes."""

    shard: int
    replica: int
    pid: int
    peak_bytes: int


class ShardActor(ShardPart):
    """What runs in the actor."""

    def warm(self) -> None:
        """A search for an image that it has: what is loaded at the first search is loaded then."""
        for image, words in self.words_of(self.ids()[:1].tolist()).items():
            self.search(words, SearchConfig(), 1, [image], None, None)

    def process(self) -> tuple[int, int]:
        """Its number, and the most memory that it has had."""
        unit = 1 if sys.platform == "darwin" else 1024
        return os.getpid(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


class ShardActors:
    """The actors of a folder of shards: `replicas` of each."""

    def __init__(self, ray: Any, path: Path, replicas: int, patience: float) -> None:
        self._ray, self._patience = ray, patience
        self._turns = itertools.count()
        self.replicas, self.shards = replicas, ShardFolders(path).names()
        made = ray.remote(ShardActor).options(
            max_restarts=-1, max_task_retries=0, max_concurrency=AT_ONCE, num_cpus=0, scheduling_strategy="SPREAD"
        )
        place = str(path.resolve())
        self._actors = [[made.remote(place, name) for _ in range(replicas)] for name in self.shards]
        self._require_started(path)

    def _require_started(self, path: Path) -> None:
        rows = zip(self.shards, self._actors, strict=True)
        refs = {actor.warm.remote(): name for name, row in rows for actor in row}
        ready, late = self._ray.wait(list(refs), num_returns=len(refs), timeout=START)
        for ref in late:
            raise SuperfeatError(f"{path}: shard {refs[ref]} does not answer after {START:.0f} seconds")
        for ref in ready:
            try:
                self._ray.get(ref)
            except self._ray.exceptions.RayError as error:
                reason = str(error).strip().splitlines()[-1]
                raise SuperfeatError(f"{path}: shard {refs[ref]} cannot be read: {reason}") from error

    def ask(self, method: str, *arguments: Any, shards: Sequence[int] | None = None) -> dict[int, Any]:
        """Each shard by one of its actors; by the next one if that does not answer."""
        todo = list(range(len(self.shards)) if shards is None else shards)
        answers: dict[int, Any] = {}
        first = next(self._turns)
        for turn in range(self.replicas):
            replica = (first + turn) % self.replicas
            refs = {self._call(shard, replica, method, arguments): shard for shard in todo}
            answers |= self._gather(refs)
            todo = [shard for shard in todo if shard not in answers]
            if not todo:
                break
        return answers

    def _call(self, shard: int, replica: int, method: str, arguments: Sequence[Any]) -> Any:
        return getattr(self._actors[shard][replica], method).remote(*arguments)

    def _gather(self, refs: dict[Any, int]) -> dict[int, Any]:
        """The answers that come in time; what a shard refuses is refused."""
        ready, _ = self._ray.wait(list(refs), num_returns=len(refs), timeout=self._patience / self.replicas)
        answers: dict[int, Any] = {}
        for ref in ready:
            try:
                answers[refs[ref]] = self._ray.get(ref)
            except self._ray.exceptions.RayTaskError as error:
                raise error.cause if isinstance(error.cause, Exception) else error from None
            except self._ray.exceptions.RayError:  # the actor, or its machine, is gone
                continue
        return answers

    def share(self, value: Any) -> Any:
        """Put once where all actors of a machine can read it."""
        return self._ray.put(value)

    def processes(self) -> list[Process]:
        """Of all actors that answer."""
        found = []
        for shard, row in enumerate(self._actors):
            for replica, actor in enumerate(row):
                with contextlib.suppress(self._ray.exceptions.RayError):
                    facts = self._ray.get(actor.process.remote(), timeout=self._patience)
                    found.append(Process(shard, replica, *facts))
        return found

    def close(self) -> None:
        """Ends the actors."""
        for row in self._actors:
            for actor in row:
                self._ray.kill(actor)


@contextlib.contextmanager
def open_actors(
    path: str | Path, address: str, *, replicas: int = 1, patience: float = PATIENCE
) -> Iterator[ShardActors]:
    """The shards of a folder in actors of the cluster at `address` ("auto": of this machine)."""
    folder = Path(path)
    if not is_sharded(folder):
        raise SuperfeatError(
            f"{folder} is not in shards, which a cluster needs; make some: superfeat shard {folder} -n 8 -o SHARDS"
        )
    if replicas < 1:
        raise SuperfeatError(f"each shard needs 1 actor or more, not {replicas}")
    with connected(address) as ray:
        actors = ShardActors(ray, folder, replicas, patience)
        try:
            yield actors
        finally:
            actors.close()


@contextlib.contextmanager
def open_far_index(path: str | Path, address: str, *, replicas: int = 1, patience: float = PATIENCE) -> Iterator[Index]:
    """The same as an index that is searched as any other; it is read, not changed."""
    with open_actors(path, address, replicas=replicas, patience=patience) as actors:
        yield far_index(path, actors)
