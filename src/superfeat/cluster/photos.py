"""Photos looked at by workers of a cluster, a network in each: the same features, words and codes as on one machine.

Outcomes come in the order of the photos, whoever is ready first. Few photos are under way at a time, so memory does not
grow with the collection. When a worker dies, its photos go to others; one that was alone with a worker when it died is
tried a few times more, and is named if none survives it.
"""

import contextlib
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from superfeat.cluster.connect import connected
from superfeat.config import ExtractConfig
from superfeat.errors import ImageError, SuperfeatError
from superfeat.features import Features
from superfeat.images import Photo, Skipped
from superfeat.index.build import LookedAt, describe_photo
from superfeat.index.vocabulary import Vocabulary

TRIES = 3  # of a photo alone with a worker
BATCH = 4  # photos that a worker gets at a time
QUEUED = 2  # batches for each worker: one that it works at, and the next
AHEAD = 4  # batches for each worker that may be ready before their turn
PAUSE = 0.1  # seconds before a worker that died is asked again whether it is back
START = 300.0  # seconds until workers must have loaded the network
Outcome = TypeVar("Outcome", Features, LookedAt)


class PhotoWorker:
    """What runs in a worker: one network."""

    def __init__(self, weights: str, config: ExtractConfig, device: str) -> None:
        from superfeat.extraction.extract import keep_memory, require_device
        from superfeat.weights import load_network

        require_device(device)
        keep_memory()
        self.network, self.config, self.device = load_network(weights), config, device

    def digest(self) -> str:
        """Of the network, so that workers with another one are noticed."""
        return self.network.digest

    def look(self, photos: list[Photo], vocabulary: Vocabulary | None) -> list[Any]:
        """An outcome for each photo, in their order: features, or words if there is a vocabulary."""
        from superfeat.extraction.extract import extract

        found: list[Any] = []
        with contextlib.suppress(ImageError):  # of all: each of them is among the outcomes
            for features in extract(
                self.network, photos, self.config, workers=1, device=self.device, on_skip=found.append
            ):
                words = None if vocabulary is None else vocabulary.words(features, 1, workers=1)
                found.append(features if words is None else describe_photo(features, words))
        return found


class _Batch(NamedTuple):
    """Photos that are looked at together."""

    first: int  # number of the first of them among all
    photos: list[Photo]
    alone: bool = False  # one that a worker gets when it has nothing else
    tries: int = 0  # workers that died of it


class _UnderWay(NamedTuple):
    worker: int
    batch: _Batch | None  # None: a worker that died is asked whether it is back


class PhotoWorkers:
    """A crew of workers on a cluster (`index.build.Crew`)."""

    def __init__(self, ray: Any, weights: str, config: ExtractConfig, *, workers: int | None, device: str) -> None:
        self._ray = ray
        cores = ray.cluster_resources().get("CPU", 1)
        self.count = workers or max(1, int(cores))
        needs = {"num_gpus": 1} if device.startswith("cuda") else {}
        made = ray.remote(PhotoWorker).options(max_restarts=-1, max_task_retries=0, num_cpus=1, **needs)
        self.actors = [made.remote(weights, config, device) for _ in range(self.count)]
        self._require_started()

    def _require_started(self) -> None:
        refs = [actor.digest.remote() for actor in self.actors]
        ready, late = self._ray.wait(refs, num_returns=len(refs), timeout=START)
        if not ready:
            raise SuperfeatError(f"no worker has begun in {START:.0f} seconds; has the cluster a free core?")
        try:
            digests = set(self._ray.get(ready))
        except self._ray.exceptions.RayError as error:
            reason = str(error).strip().splitlines()[-1]
            raise SuperfeatError(f"a worker of the cluster cannot begin: {reason}") from error
        if len(digests) > 1:
            raise SuperfeatError("machines of the cluster have different networks under this name; copy one to all")
        if late:  # the cluster has fewer free cores than workers were asked for
            started = [actor for actor, ref in zip(self.actors, refs, strict=True) if ref in set(ready)]
            for actor in set(self.actors) - set(started):
                self._ray.kill(actor)
            self.actors, self.count = started, len(started)

    def features(self, photos: Iterable[Photo]) -> Iterator[Features | Skipped]:
        """The features of each photo."""
        return _Round[Features](self._ray, self.actors, None).outcomes(photos)

    def words(self, photos: Iterable[Photo], vocabulary: Vocabulary) -> Iterator[LookedAt | Skipped]:
        """The words of each photo; these alone travel."""
        return _Round[LookedAt](self._ray, self.actors, self._ray.put(vocabulary)).outcomes(photos)

    def close(self) -> None:
        """Ends the workers."""
        for actor in self.actors:
            self._ray.kill(actor)


class _Round(Generic[Outcome]):
    """One way through photos."""

    def __init__(self, ray: Any, actors: Sequence[Any], vocabulary: Any) -> None:
        self._ray, self._actors, self._vocabulary = ray, actors, vocabulary
        self._load = [0] * len(actors)
        self._away: dict[int, float] = {}  # workers that died, and since when
        self._running: dict[Any, _UnderWay] = {}
        self._again: list[_Batch] = []
        self._done: dict[int, Outcome | Skipped] = {}  # by the number of the photo

    def outcomes(self, photos: Iterable[Photo]) -> Iterator[Outcome | Skipped]:
        """One for each photo, in their order."""
        coming, following = _batches(photos), 0
        ahead = AHEAD * BATCH * len(self._actors)
        new = next(coming, None)
        while new is not None or self._running or self._again or self._done:
            self._again = [batch for batch in self._again if not self._start(batch)]
            while new is not None and not self._again and new.first < following + ahead and self._start(new):
                new = next(coming, None)
            if following in self._done:
                yield self._done.pop(following)
                following += 1
            else:
                self._gather()

    def _start(self, batch: _Batch) -> bool:
        """Gives a batch to the worker with the least to do; False if all have enough."""
        shut = {one.worker for one in self._running.values() if one.batch is not None and one.batch.alone}
        most = 1 if batch.alone else QUEUED
        able = [n for n, load in enumerate(self._load) if load < most and n not in shut and n not in self._away]
        if not able:
            return False
        worker = min(able, key=self._load.__getitem__)
        ref = self._actors[worker].look.remote(batch.photos, self._vocabulary)
        self._running[ref] = _UnderWay(worker, batch)
        self._load[worker] += 1
        return True

    def _gather(self) -> None:
        """Waits for one batch."""
        (ref,), _ = self._ray.wait(list(self._running), num_returns=1)
        worker, batch = self._running.pop(ref)
        self._load[worker] -= batch is not None
        try:
            found = self._ray.get(ref)
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause if isinstance(error.cause, Exception) else error from None
        except self._ray.exceptions.RayError:  # the worker, or its machine, is gone
            if batch is not None:
                self._retry(batch)
            self._await(worker, again=batch is None)
        else:
            if batch is None:
                del self._away[worker]
                return
            assert [one.name for one in found] == [photo.name for photo in batch.photos]
            self._done |= dict(enumerate(found, batch.first))

    def _await(self, worker: int, again: bool) -> None:
        """Gives a worker that died nothing before it is back: a photo it never saw is not what it died of."""
        if worker in self._away and not again:
            return
        since = self._away.setdefault(worker, time.monotonic())
        if len(self._away) == len(self._actors) and time.monotonic() > since + START:
            raise SuperfeatError("no worker of the cluster is left; run the same command to go on when there are some")
        time.sleep(PAUSE)
        self._running[self._actors[worker].digest.remote()] = _UnderWay(worker, None)

    def _retry(self, batch: _Batch) -> None:
        """Each photo alone from now on, so that it is known which one it is that workers die of."""
        if not batch.alone:
            self._again += [
                _Batch(number, [photo], alone=True) for number, photo in enumerate(batch.photos, batch.first)
            ]
        elif batch.tries + 1 < TRIES:
            self._again.append(batch._replace(tries=batch.tries + 1))
        else:
            reason = f"{TRIES} workers died while they looked at it"
            self._done[batch.first] = Skipped(batch.photos[0].name, reason)


def _batches(photos: Iterable[Photo]) -> Iterator[_Batch]:
    coming, first = iter(photos), 0
    while some := list(itertools.islice(coming, BATCH)):
        yield _Batch(first, some)
        first += len(some)


@contextlib.contextmanager
def open_workers(
    address: str, *, workers: int | None = None, device: str = "cpu"
) -> Iterator[Callable[[str, ExtractConfig], PhotoWorkers]]:
    """Makes crews of workers on the cluster at `address` ("auto": see `connected`), by default one for each core."""
    with connected(address) as ray, contextlib.ExitStack() as stack:

        def hire(weights: str, config: ExtractConfig) -> PhotoWorkers:
            crew = PhotoWorkers(ray, weights, config, workers=workers, device=device)
            stack.callback(crew.close)
            return crew

        yield hire
