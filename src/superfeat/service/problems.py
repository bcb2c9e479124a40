"""One shape for everything that goes wrong: {"error": {"code": ..., "message": ...}}."""

import errno
import logging
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.routing import Match

from superfeat.errors import ImageError, StoreError, SuperfeatError
from superfeat.service.limits import RETRY_SECONDS

logger = logging.getLogger("superfeat.service")
SENTENCES = {
    404: "there is nothing at this address; /openapi.json lists what there is",
    405: "this address does not take this method; /openapi.json lists what there is",
}
VALUES_SHOWN = 3  # wrong values that one message names


class Problem(HTTPException):
    """An answer that is an error. The message is a sentence for people; programs look at the code."""

    def __init__(self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status, message, dict(headers or {}))
        self.code = code


def busy(message: str) -> Problem:
    """Come again."""
    return Problem(503, "busy", f"{message}; try again in a moment", {"Retry-After": str(RETRY_SECONDS)})


def no_such_photo(which: object) -> Problem:
    return Problem(404, "no_such_photo", f"there is no photo {which} in the index")


def as_response(error: HTTPException) -> JSONResponse:
    """Errors of the framework have no code: they get the name of their status."""
    code = error.code if isinstance(error, Problem) else HTTPStatus(error.status_code).name.lower()
    message = str(error.detail) if isinstance(error, Problem) else SENTENCES.get(error.status_code, str(error.detail))
    body = {"error": {"code": code, "message": message}}
    return JSONResponse(body, error.status_code, dict(error.headers or {}))


def explain_errors(app: FastAPI) -> None:
    """Gives every error its shape; those that nobody foresaw get theirs in the gate."""
    app.add_exception_handler(HTTPException, _framework)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(SuperfeatError, _refused)


async def _framework(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    response = as_response(error)
    if error.status_code == 405:  # the framework names the methods of the first route that fits, not of all
        response.headers["Allow"] = ", ".join(sorted(_methods(request)))
    return response


def _methods(request: Request) -> set[str]:
    """What this address takes."""
    fitting = (route for route in request.app.routes if route.matches(request.scope)[0] != Match.NONE)
    return {method for route in fitting for method in getattr(route, "methods", None) or ()}


async def _invalid(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    return as_response(Problem(422, "invalid", describe_invalid(error.errors())))


def describe_invalid(errors: Sequence[Any]) -> str:
    """The first few wrong values, by name."""
    parts = []
    for one in errors[:VALUES_SHOWN]:
        names = [str(part) for part in one.get("loc", ()) if part not in ("body", "query", "path")]
        reason = str(one.get("msg", "wrong value")).removeprefix("Value error, ")
        parts.append(": ".join(filter(None, (".".join(names), reason))))
    more = f" (and {len(errors) - VALUES_SHOWN} more)" if len(errors) > VALUES_SHOWN else ""
    return "; ".join(parts) + more


async def _refused(request: Request, error: Exception) -> JSONResponse:
    """What superfeat refuses. Where things lie on the server's disk is for its log, not for its clients."""
    if isinstance(error, StoreError):
        logger.warning("%s %s: %s", request.method, request.url.path, error)
        return as_response(_storage(error))
    if isinstance(error, ImageError):
        return as_response(Problem(422, "not_a_photo", f"this photo cannot be read: {error}"))
    folder = str(request.app.state.service.engine.index.path)
    return as_response(Problem(422, "refused", str(error).replace(folder, "the index")))


def _storage(error: StoreError) -> Problem:
    if isinstance(error.__cause__, OSError) and error.__cause__.errno in (errno.ENOSPC, errno.EDQUOT):
        return Problem(507, "disk_full", "the server's disk is full; nothing was changed")
    if "is being written by another process" in str(error):
        return busy("another program is changing the index")
    return Problem(500, "storage", "the index could not be read or written; the server's log says why")
