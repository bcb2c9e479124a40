"""The web page: a handful of files, read once. Nothing else of the disk can be asked for."""

import hashlib
from importlib import resources
from typing import NamedTuple

from fastapi import APIRouter, FastAPI, Request, Response

from superfeat.service.problems import Problem

TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
START = "index.html"


class File(NamedTuple):
    """As it is sent."""

    data: bytes
    kind: str
    tag: str


def read_page() -> dict[str, File]:
    """The files by name."""
    files = {}
    for file in resources.files("superfeat.service").joinpath("page").iterdir():
        kind = TYPES.get(file.name.rpartition(".")[2])
        if kind is not None:
            data = file.read_bytes()
            tag = f'"{hashlib.blake2b(data, digest_size=12).hexdigest()}"'
            files[file.name] = File(data, f"{kind}; charset=utf-8", tag)
    return files


def add_page(app: FastAPI) -> None:
    """Not part of the API, and so not of its description."""
    files, routes = read_page(), APIRouter(include_in_schema=False)

    async def start(request: Request) -> Response:
        return _send(files[START], request)

    async def part(name: str, request: Request) -> Response:
        if name not in files:
            raise Problem(404, "not_found", "the page has no such part")
        return _send(files[name], request)

    routes.add_api_route("/", start)
    routes.add_api_route("/page/{name}", part)
    app.include_router(routes)


def _send(file: File, request: Request) -> Response:
    headers = {"ETag": file.tag, "Cache-Control": "no-cache"}
    if request.headers.get("if-none-match") == file.tag:
        return Response(status_code=304, headers=headers)
    return Response(file.data, media_type=file.kind, headers=headers)
