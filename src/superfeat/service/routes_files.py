"""The files of photos themselves, on a service of this machine that was started to give them."""

import functools
import mimetypes
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

from fastapi import APIRouter, Response
from fastapi.responses import StreamingResponse

from superfeat.addresses.address import Address, address_of
from superfeat.service.answers import ERRORS, FileAnswer
from superfeat.service.desktop import opening, revealing, run_first
from superfeat.service.photos import Known, shown
from superfeat.service.problems import Problem
from superfeat.service.routes_images import Id
from superfeat.service.state import Here, Service

routes = APIRouter(prefix="/images", responses=ERRORS)
ANY = "application/octet-stream"
FILE: dict[int | str, dict[str, Any]] = {200: {"content": {ANY: {}}, "description": "The file, byte for byte."}}
SENT_AT_ONCE = 1 << 18


@routes.get("/{image}/file", response_class=Response, responses=FILE)
async def original(image: Id, service: Here) -> Response:
    """The file itself, with all that is in it."""
    known = await _find(image, service)
    file = await service.reading.run(functools.partial(service.gallery.open, known))
    name = quote(Path(str(known.meta["path"])).name, errors="surrogateescape")
    headers = {
        "Content-Length": str(file.seek(0, os.SEEK_END)),
        "Content-Disposition": f"inline; filename*=UTF-8''{name}",
    }
    file.seek(0)
    return StreamingResponse(_parts(file), media_type=kind_of(known.name), headers=headers)


def kind_of(name: str) -> str:
    """As what a browser may show it: as a photo, or not at all."""
    kind = mimetypes.guess_type(name)[0] or ANY
    return kind if kind.startswith("image/") and "svg" not in kind else ANY


def _parts(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while part := file.read(SENT_AT_ONCE):
            yield part


@routes.post("/{image}/open")
async def open_file(image: Id, service: Here) -> FileAnswer:
    """Opens the file on the machine of the service, with the program that opens such files there."""
    return await _show(image, service, opening)


@routes.post("/{image}/reveal")
async def reveal_file(image: Id, service: Here) -> FileAnswer:
    """Shows the file in its folder on the machine of the service."""
    return await _show(image, service, revealing)


async def _show(image: int, service: Service, commands: Callable[[Path], list[list[str]]]) -> FileAnswer:
    known = await _find(image, service)
    path = address_of(str(known.meta.get("path")))
    if isinstance(path, Address):
        raise Problem(410, "no_file", f"{shown(known.name)} is no file of its own: it lies in an archive or elsewhere")

    def show() -> None:
        service.gallery.open(known).close()  # it is there, and the one that was indexed
        run_first(commands(path))

    await service.reading.run(show)
    return FileAnswer(id=image, name=shown(known.name), path=shown(str(path)))


async def _find(image: int, service: Service) -> Known:
    if not service.files:
        raise Problem(403, "no_files", "this service was not started to give files themselves")
    return await service.reading.run(functools.partial(service.gallery.find, image))
