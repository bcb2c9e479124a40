"""Yes or no to a result: noted in the index, for probabilities of one's own."""

import functools
from typing import Annotated

from fastapi import APIRouter, Form, Request

from superfeat.index.labels import read_labels
from superfeat.labels import ANSWERS, label
from superfeat.service.answers import ERRORS, LabelAnswer, LabelCounts, LabelForm
from superfeat.service.problems import Problem
from superfeat.service.state import Here, Service

routes = APIRouter(prefix="/labels", responses=ERRORS)


@routes.get("")
async def count_labels(service: Here) -> LabelCounts:
    """How many times people said yes, and no."""
    return await service.reading.run(lambda: _count(service))


@routes.post("", status_code=201)
async def say(
    form: Annotated[LabelForm, Form(media_type="multipart/form-data")], request: Request, service: Here
) -> LabelAnswer:
    """Whether a photo that was found shows the same thing as what was searched with; the last word counts."""
    if service.read_only:
        raise Problem(403, "read_only", "this service was started to be read only; nothing can be noted")
    if any(value == "" for value in (await request.form()).values()):  # the framework takes those as not given
        raise Problem(422, "invalid", "a field is empty; leave it out")
    box = form.region()
    question = await service.question(form)
    found = await service.reading.run(functools.partial(service.gallery.find, form.found))
    same = ANSWERS[form.same]
    work = functools.partial(label, service.engine, question.photo, found.name, same, box=box)
    ready = await service.reading.run(functools.partial(service.ready, question, box))
    await (service.reading if ready else service.looking).run(work, gone=request.is_disconnected)
    counts = await service.reading.run(lambda: _count(service))
    return LabelAnswer(found=found.id, same=same, yes=counts.yes, no=counts.no)


def _count(service: Service) -> LabelCounts:
    yes, no = read_labels(service.engine.index.path).counts()
    return LabelCounts(yes=yes, no=no)
