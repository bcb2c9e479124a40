"""What the routes share: the engine, its photos, and the lanes in which work waits."""

import functools
from typing import Annotated, NamedTuple

from fastapi import Depends, Request

from superfeat.engine import Answer, Engine
from superfeat.explain.explain import Explanation
from superfeat.features import Features
from superfeat.index.places import Region
from superfeat.service.answers import PhotoChoice
from superfeat.service.lanes import Lane
from superfeat.service.limits import MOST_READERS, Limits
from superfeat.service.metrics import Metrics
from superfeat.service.photos import Gallery, Known, require_photo
from superfeat.service.problems import Problem
from superfeat.service.queries import Queries
from superfeat.service.uploads import Uploads
from superfeat.service.watch import Watch
from superfeat.threads import all_cores

LEAST_READERS = 2


class Question(NamedTuple):
    """What is asked with: an indexed photo, or the bytes of one that was sent and the id it is remembered by."""

    photo: str | bytes
    known: Known | None = None
    query: str | None = None


class Service:
    """One index that is served."""

    def __init__(self, engine: Engine, limits: Limits, *, token: str | None, read_only: bool) -> None:
        self.engine, self.limits, self.token, self.read_only = engine, limits, token, read_only
        self.gallery, self.queries = Gallery(engine.index), Queries(limits)
        self.watch = Watch(engine.index)
        self.uploads = Uploads(engine, self.watch)
        # The network looks at one photo at a time, with all cores. Everything else has threads of its own: a search
        # by an indexed photo does not wait for it.
        self.looking = Lane("network", 1, limits.queue, "too many photos are waiting to be looked at")
        readers = max(LEAST_READERS, all_cores())
        self.reading = Lane("reading", readers, MOST_READERS, "too many requests are waiting")
        self.metrics = Metrics()
        for lane in (self.looking, self.reading):
            waiting = functools.partial(_waiting, lane)
            self.metrics.watch(f"superfeat_{lane.name}_waiting", f"Requests that wait for {lane.name}.", waiting)
        self.metrics.watch("superfeat_images", "Images in the index.", lambda: len(engine.index))
        self.metrics.watch("superfeat_kept_queries", "Uploads remembered.", lambda: len(self.queries.kept))
        self.metrics.watch("superfeat_kept_query_bytes", "Their bytes.", lambda: self.queries.kept.held)

    def close(self) -> None:
        """Waits for what is running."""
        self.looking.close()
        self.reading.close()

    # -- Questions

    async def question(self, asked: PhotoChoice, sent: bytes | None = None) -> Question:
        """What is asked with; a Problem unless it is exactly one thing."""
        given = [value for value in (asked.image, asked.name, asked.query, sent) if value is not None]
        if len(given) != 1:
            raise Problem(422, "invalid", "give exactly one of: photo, image, name, query")
        if sent is not None:
            await self.reading.run(functools.partial(require_photo, sent, self.limits))
            return Question(sent, query=self.queries.keep(sent))
        if asked.query is not None:
            return Question(self.queries.get(asked.query), query=asked.query)
        known = await self.reading.run(functools.partial(self._find, asked))
        return Question(known.name, known)

    def _find(self, asked: PhotoChoice) -> Known:
        return self.gallery.find(asked.image) if asked.image is not None else self.gallery.named(asked.name or "")

    async def search(self, question: Question, box: Region | None, top: int, request: Request) -> Answer:
        """The network alone waits in its lane; the index is searched beside it."""
        engine = self.engine
        if isinstance(question.photo, bytes):
            features = await self._look(question.photo, question.query or "", request)
            return await self.reading.run(lambda: engine.search(features, box=box, top=top))
        if box is None:
            return await self.reading.run(lambda: engine.search(question.photo, top=top))
        work = functools.partial(self._search_part, question, box, top)
        return await self.looking.run(work, gone=request.is_disconnected)

    async def _look(self, photo: bytes, query: str, request: Request) -> Features:
        """A box on a photo that was looked at a moment ago does not wait for those of others."""
        features = self.engine.seen(query)
        if features is None:
            look = functools.partial(self.engine.features, photo)
            features = await self.looking.run(look, gone=request.is_disconnected)
        return features

    def _search_part(self, question: Question, box: Region, top: int) -> Answer:
        self._require_file(question)
        return self.engine.search(question.photo, box=box, top=top)

    def explain(self, question: Question, found: Known, box: Region | None) -> Explanation:
        """Needs the network for both photos, unless it has just seen them."""
        self._require_file(question)
        self.gallery.open(found).close()
        return self.engine.explain(question.photo, found.name, box=box)

    def _require_file(self, question: Question) -> None:
        """The engine reads the file of an indexed photo by its path: here it is made sure that it is the one."""
        if question.known is not None:
            self.gallery.open(question.known).close()

    def bytes_of(self, question: Question) -> bytes:
        """The photo that is asked with."""
        return (
            question.photo
            if isinstance(question.photo, bytes)
            else self.gallery.read(self.gallery.named(question.photo))
        )


def _waiting(lane: Lane) -> float:
    return lane.waiting


async def service_of(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


Here = Annotated[Service, Depends(service_of)]
