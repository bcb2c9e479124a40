"""The photos of the index: list, see, add, delete."""

import functools
from typing import Annotated, Any

from fastapi import APIRouter, Form, Path, Query, Request, Response

from superfeat.service.answers import (
    ERRORS,
    JPEG,
    LARGEST_ID,
    AddAnswer,
    AddForm,
    DeleteAnswer,
    PageQuery,
    PhotoPage,
    photo_facts,
)
from superfeat.service.limits import FULL, THUMBNAIL, VIEW
from superfeat.service.photos import require_photo, shown
from superfeat.service.problems import Problem
from superfeat.service.state import Here, Service
from superfeat.service.uploads import plain_name

routes = APIRouter(prefix="/images", responses=ERRORS)
Id = Annotated[int, Path(ge=0, le=LARGEST_ID)]
SEEN: dict[int | str, dict[str, Any]] = {
    **JPEG,
    304: {"description": "The browser has it already."},
}


@routes.get("")
async def page_of_photos(page: Annotated[PageQuery, Query()], service: Here) -> PhotoPage:
    """Some of the indexed photos, in the order in which they were added."""

    def choose() -> dict[str, Any]:
        chosen = service.catalogue.choose(page.wanted())
        ids = chosen.ids[page.offset : page.offset + page.limit].tolist()
        photos = service.facts_of(service.gallery.named_ids(ids))
        return {"images": len(chosen.ids), "unread": chosen.unread, "offset": page.offset, "photos": photos}

    return PhotoPage.model_validate(await service.reading.run(choose))


@routes.get("/{image}", response_class=Response, responses=SEEN)
async def see_photo(image: Id, request: Request, service: Here) -> Response:
    """A photo, 1280 pixels along its longer side at most, without its EXIF."""
    return await _send(image, VIEW, request, service)


@routes.get("/{image}/thumbnail", response_class=Response, responses=SEEN)
async def see_thumbnail(image: Id, request: Request, service: Here) -> Response:
    """The same in 320 pixels."""
    return await _send(image, THUMBNAIL, request, service)


@routes.get("/{image}/full", response_class=Response, responses=JPEG)
async def see_full(image: Id, service: Here) -> Response:
    """The same in its own size, 8192 pixels at most; drawn anew as well, without its EXIF."""
    data = await service.reading.run(functools.partial(service.gallery.draw, image, FULL))
    return Response(data, media_type="image/jpeg", headers={"Cache-Control": "private, no-cache"})


async def _send(image: int, side: int, request: Request, service: Service) -> Response:
    rendered = await service.reading.run(functools.partial(service.gallery.render, image, side))
    headers = {"ETag": rendered.tag, "Cache-Control": "private, no-cache"}
    if rendered.tag in [tag.strip() for tag in request.headers.get("if-none-match", "").split(",")]:
        return Response(status_code=304, headers=headers)
    return Response(rendered.data, media_type="image/jpeg", headers=headers)


@routes.post("", status_code=201)
async def add_photo(form: Annotated[AddForm, Form(media_type="multipart/form-data")], service: Here) -> AddAnswer:
    """Stores a photo and adds it to the index; it can be found when this answers."""
    _require_writable(service)
    data = await form.photo.read()
    name = plain_name(form.name or form.photo.filename or "")
    await service.reading.run(functools.partial(require_photo, data, service.limits))
    added = await service.looking.run(lambda: service.uploads.add(data, name, replace=form.replace))
    facts = {"outcome": added.outcome, "images": len(service.engine.index)}
    return AddAnswer.model_validate({**photo_facts(added.id, added.name), **facts})


@routes.delete("/{image}")
async def delete_photo(image: Id, service: Here) -> DeleteAnswer:
    """Takes a photo out of the index. Its file is deleted only if it was added through the service."""
    _require_writable(service)
    known = await service.reading.run(functools.partial(service.gallery.find, image))
    await service.looking.run(lambda: service.uploads.delete(service.gallery.find(image)))
    return DeleteAnswer(id=image, name=shown(known.name), images=len(service.engine.index))


def _require_writable(service: Service) -> None:
    if service.read_only:
        raise Problem(403, "read_only", "this service was started to be read only; photos cannot be added or deleted")
