"""POST /search, GET /explain, GET /queries/{query}."""

import functools
import time
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Form, Path, Query, Request, Response

from superfeat.engine import ExplainedMatch, FoundPhoto, IndexedPhoto
from superfeat.found.explanation import Captions, draw_explanation
from superfeat.images import read_image
from superfeat.service.answers import (
    ERRORS,
    JPEG,
    ExplainAnswer,
    ExplainQuery,
    QueryId,
    SearchAnswer,
    SearchForm,
    photo_facts,
)
from superfeat.service.limits import PICTURE, VIEW
from superfeat.service.photos import Known, as_jpeg, draw_jpeg, shown
from superfeat.service.state import Here, Question, Service

UNSEARCHED = "X-Superfeat-Unsearched"
routes = APIRouter(responses=ERRORS)


@routes.post("/search")
async def search(
    form: Annotated[SearchForm, Form(media_type="multipart/form-data")],
    request: Request,
    response: Response,
    service: Here,
) -> SearchAnswer:
    """The indexed photos that show the same thing as a photo, or as the part of it in a box; best first.

    Where a part of the collection could not be searched, the header X-Superfeat-Unsearched says its share.
    """
    began = time.perf_counter()
    box = form.region()
    question = await service.question(form, await form.photo.read() if form.photo is not None else None)
    answer = await service.search(question, box, form.top, form.rerank, request)
    itself = None if answer.itself is None else indexed_facts(answer.itself, with_path=service.files)
    facts = {**asked_facts(question), "size": answer.size, "features": answer.features, "box": box, "itself": itself}
    said = await service.reading.run(lambda: service.said(question, box, answer))
    hits = [{**hit_facts(hit, with_path=service.files), "said": said.get(hit.id)} for hit in answer.hits]
    seconds = round(time.perf_counter() - began, 4)
    order = None if answer.reordered is None else answer.reordered._asdict()
    share = round(answer.unsearched, 4)
    if answer.missing:
        response.headers[UNSEARCHED] = str(share)
    told = {"query": facts, "hits": hits, "reordered": order, "unsearched": share, "seconds": seconds}
    return SearchAnswer.model_validate(told)


def asked_facts(question: Question) -> dict[str, Any]:
    known = question.known
    image, name = (known.id, shown(known.name)) if known is not None else (None, None)
    return {"query": question.query, "image": image, "name": name}


def indexed_facts(photo: IndexedPhoto | FoundPhoto, *, with_path: bool) -> dict[str, Any]:
    path = shown(photo.path) if with_path and photo.path is not None else None
    return photo_facts(photo.id, shown(photo.name), path)


def hit_facts(hit: FoundPhoto, *, with_path: bool) -> dict[str, Any]:
    region = None if hit.region is None else [round(value, 4) for value in hit.region]
    facts: dict[str, Any] = {"score": hit.score, "probability": hit.probability, "region": region, "gone": hit.gone}
    corners = hit.outline()
    outline = None if corners is None else [(round(x, 4), round(y, 4)) for x, y in corners]
    verified = None if hit.verified is None else round(hit.verified, 4)
    copied = None if hit.copy_of is None else shown(hit.copy_of)
    facts |= {"verified": verified, "outline": outline, "copy_of": copied}
    return {**indexed_facts(hit, with_path=with_path), **facts}


@routes.get("/explain")
async def explain(asked: Annotated[ExplainQuery, Query()], request: Request, service: Here) -> ExplainAnswer:
    """Where the score of a found photo comes from: the regions that match, and their shares."""
    explained = await _explain(asked, request, service)
    found, picture = explained.found, f"/explain/picture?{request.url.query}"
    known = explained.question.known
    facts = {
        **explained.explanation.as_dict(),
        "found": photo_facts(found.id, shown(found.name)),
        "query_name": None if known is None else shown(known.name),
        "probability": explained.probability,
        "picture": picture,
    }
    return ExplainAnswer.model_validate(facts)


@routes.get("/explain/picture", response_class=Response, responses=JPEG)
async def picture(asked: Annotated[ExplainQuery, Query()], request: Request, service: Here) -> Response:
    """The same as a picture: both photos, and what matches in them."""
    explained = await _explain(asked, request, service)
    jpeg = await service.reading.run(functools.partial(_draw, service, explained))
    return Response(jpeg, media_type="image/jpeg")


class Explained(NamedTuple):
    """Both photos and what they have in common."""

    question: Question
    found: Known
    explanation: ExplainedMatch
    probability: float | None


async def _explain(asked: ExplainQuery, request: Request, service: Service) -> Explained:
    await request.body()  # there is none, but only after it the news that the client has gone can come
    box = asked.region()
    question = await service.question(asked)
    found = await service.reading.run(functools.partial(service.gallery.find, asked.found))
    work = functools.partial(service.explain, question, found, box)
    explanation = await service.looking.run(work, gone=request.is_disconnected)
    chance = await service.reading.run(functools.partial(service.judge, question, found, box))
    return Explained(question, found, explanation, chance)


def _draw(service: Service, explained: Explained) -> bytes:
    sides = (service.bytes_of(explained.question), service.gallery.read(explained.found))
    query, found = (read_image(data, max_side=PICTURE, draft=True) for data in sides)
    asked = explained.question.known
    captions = Captions(
        "the photo you sent" if asked is None else shown(asked.name), shown(explained.found.name), explained.probability
    )
    arrangement = explained.explanation.arrangement
    picture = draw_explanation(
        explained.explanation, query, found, captions=captions, arrangement=arrangement, width=PICTURE
    )
    return as_jpeg(picture)


@routes.get("/queries/{query}", response_class=Response, responses=JPEG)
async def uploaded(query: Annotated[QueryId, Path()], service: Here) -> Response:
    """An uploaded query as it may be shown; for as long as it is remembered."""
    data = service.queries.get(query)
    jpeg = await service.reading.run(lambda: draw_jpeg(data, VIEW))
    return Response(jpeg, media_type="image/jpeg", headers={"Cache-Control": "private, max-age=3600"})
