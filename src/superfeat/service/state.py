"""What the routes share: the engine, its photos, and the lanes in which work waits."""

import functools
from collections.abc import Iterable
from typing import Annotated, Any, NamedTuple

from fastapi import Depends, Request

from superfeat.engine import Answer, Asked, Engine, ExplainedMatch, Named
from superfeat.index.labels import photo_mark, read_labels
from superfeat.index.places import Region
from superfeat.labels import mark_query
from superfeat.rerank.order import Rerank
from superfeat.service.albums import Albums
from superfeat.service.answers import PhotoChoice, photo_facts
from superfeat.service.catalogue import Catalogue
from superfeat.service.lanes import Lane
from superfeat.service.limits import MOST_READERS, Limits
from superfeat.service.metrics import Metrics
from superfeat.service.photos import Gallery, Known, require_photo, shown
from superfeat.service.problems import Problem
from superfeat.service.queries import Queries
from superfeat.service.uploads import Uploads
from superfeat.service.watch import Watch
from superfeat.threads import all_cores

LEAST_READERS = 2


class Question(NamedTuple):
    """What is asked with: an indexed photo, or the bytes of one that was sent and the id it is remembered by."""

    photo: Named | bytes
    known: Known | None = None
    query: str | None = None


class Service:
    """One index that is served."""

    def __init__(
        self, engine: Engine, limits: Limits, *, token: str | None, read_only: bool, files: bool = False
    ) -> None:
        self.engine, self.limits, self.token = engine, limits, token
        self.read_only, self.files = read_only, files
        self.gallery, self.queries = Gallery(engine.index), Queries(limits)
        self.watch = Watch(engine.index)
        self.uploads = Uploads(engine, self.watch)
        self.albums = Albums(engine, self._is_searched)
        self.catalogue = Catalogue(self.gallery, self._is_searched)
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
        self.albums.background.close()
        self.catalogue.background.close()
        self.looking.close()
        self.reading.close()

    def _is_searched(self) -> bool:
        """Whether requests are under way, which long work gives way to."""
        return self.looking.inside + self.reading.inside > 0

    def facts_of(self, photos: Iterable[tuple[int, str]]) -> list[dict[str, Any]]:
        """Photos for an answer, with the day they were taken where it is known."""
        some = list(photos)
        paths = self.gallery.paths([name for _, name in some]) if self.files else {}
        return [
            {**photo_facts(image, shown(name), paths.get(name)), "taken": self.catalogue.day_of(image)}
            for image, name in some
        ]

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
        return Question(Named(known.name), known)

    def _find(self, asked: PhotoChoice) -> Known:
        return self.gallery.find(asked.image) if asked.image is not None else self.gallery.named(asked.name or "")

    async def search(
        self, question: Question, box: Region | None, top: int, rerank: Rerank, request: Request
    ) -> Answer:
        """The network alone waits in its lane; the index is searched beside it."""
        ready = await self.reading.run(functools.partial(self.ready, question, box))
        look = functools.partial(self._ask, question, box)
        asked = await (self.reading.run(look) if ready else self.looking.run(look, gone=request.is_disconnected))
        return await self.reading.run(functools.partial(self.engine.answer, asked, top=top, rerank=rerank))

    def ready(self, question: Question, box: Region | None) -> bool:
        """Whether the network need not look: at a photo of the index, or at one that was looked at a moment ago."""
        known = box is None and self.engine.recognise(question.photo) is not None
        return known or self.engine.seen(question.query or "") is not None

    def _ask(self, question: Question, box: Region | None) -> Asked:
        if box is not None:
            self._require_file(question)
        return self.engine.ask(question.photo, box=box)

    def explain(self, question: Question, found: Known, box: Region | None) -> ExplainedMatch:
        """Needs the network for both photos, unless it has just seen them."""
        self._require_file(question)
        self.gallery.open(found).close()
        return self.engine.explain(question.photo, found.name, box=box)

    def judge(self, question: Question, found: Known, box: Region | None) -> float | None:
        """The probability of one photo. What is asked with was looked at a moment ago: this does not wait."""
        hit = self.engine.hit_of(question.photo, found.name, box=box)
        return None if hit is None else hit.probability

    def said(self, question: Question, box: Region | None, answer: Answer) -> dict[int, bool]:
        """What people said of these results, by the ids of the photos that were found."""
        labels = read_labels(self.engine.index.path).labels
        if not labels:
            return {}
        asked = mark_query(self.engine, question.photo, box)
        metas = self.engine.index.meta([hit.name for hit in answer.hits])
        marks = {hit.id: photo_mark(hit.name, metas.get(hit.name, {})) for hit in answer.hits}
        return {image: labels[asked, mark] for image, mark in marks.items() if (asked, mark) in labels}

    def _require_file(self, question: Question) -> None:
        """The engine reads the file of an indexed photo by its path: here it is made sure that it is the one."""
        if question.known is not None:
            self.gallery.open(question.known).close()

    def bytes_of(self, question: Question) -> bytes:
        """The photo that is asked with."""
        return (
            question.photo
            if isinstance(question.photo, bytes)
            else self.gallery.read(self.gallery.named(question.photo.name))
        )


def _waiting(lane: Lane) -> float:
    return lane.waiting


async def service_of(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


Here = Annotated[Service, Depends(service_of)]
