"""Who may come in, and with how much: the check in front of every request, before anything of it is read.

Without a token only this machine's own programs are let in: requests must name this machine as their host (a web
page elsewhere can make its own name lead here) and must not come from another page. With a token it decides alone.
"""

import asyncio
import hmac
import ipaddress
import logging
import time
from collections.abc import Awaitable
from typing import TypeVar
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from superfeat.service.limits import BODY_SECONDS, FORM_BYTES, IDLE_SECONDS, Limits
from superfeat.service.metrics import Metrics
from superfeat.service.problems import Problem, as_response, busy

logger = logging.getLogger("superfeat.service")
PUBLIC = ("/health", "/openapi.json")  # need no token: neither holds anything of the index
FAULT = "something went wrong here; the server's log says what"
HTTP_METHODS = {"GET", "HEAD", "POST", "DELETE", "OPTIONS", "PUT", "PATCH"}  # by name in the metrics; others together
SECURITY = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
Result = TypeVar("Result")


class Gate:
    """Around the application: admits, limits, measures."""

    def __init__(self, app: ASGIApp, limits: Limits, token: str | None, metrics: Metrics) -> None:
        self.app, self.limits, self.token, self.metrics = app, limits, token, metrics
        self.held = 0  # bytes of bodies that may be in memory

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        try:
            await self._admit(scope, receive, answer)
        except Exception:
            logger.exception("%s %s", scope["method"], scope["path"])
            if status:
                raise  # a part of the answer has gone: all that is left is to break off
            await as_response(Problem(500, "internal", FAULT))(scope, receive, answer)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            method = scope["method"] if scope["method"] in HTTP_METHODS else "other"
            self.metrics.count(route, method, status, time.perf_counter() - began)

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        reserved = 0
        try:
            self._require_right(scope, headers)
            reserved = self._reserve(headers)
        except Problem as problem:
            await as_response(problem)(scope, receive, send)
            return
        try:
            await self.app(scope, Meter(receive, reserved), send)
        finally:
            self.held -= reserved

    # -- Who

    def _require_right(self, scope: Scope, headers: Headers) -> None:
        if self.token is None:
            require_local(scope, headers)
        elif not is_public(scope["path"]):
            kind, _, given = headers.get("authorization", "").partition(" ")
            same = hmac.compare_digest(given.encode("latin-1", "replace"), self.token.encode())
            if kind.lower() != "bearer" or not same:
                message = "this needs the token that the service was started with, as Authorization: Bearer TOKEN"
                raise Problem(401, "token_needed", message, {"WWW-Authenticate": "Bearer"})

    # -- How much

    def _reserve(self, headers: Headers) -> int:
        """Room for the body, before it is read: as much as it says it is, or as it may be if it does not say."""
        most = self.limits.max_upload + FORM_BYTES
        length = headers.get("content-length")
        if length is None:
            size = most if "transfer-encoding" in headers else 0
        else:
            size = int(length) if length.isascii() and length.isdigit() else most + 1
        if size > most:
            raise too_large(self.limits)
        if size and self.held + size > self.limits.bodies:
            raise busy("too many photos are being sent at once")
        self.held += size
        return size


class Meter:
    """Counts a body while it is read, and does not wait for ever."""

    def __init__(self, receive: Receive, room: int) -> None:
        self.receive, self.room = receive, room
        self.ended = False
        self.until = time.monotonic() + BODY_SECONDS

    async def __call__(self) -> Message:
        if self.ended:  # what comes now is the news that the client has gone
            return await self.receive()
        message = await _within(self.receive(), min(IDLE_SECONDS, self.until - time.monotonic()))
        if message["type"] == "http.request":
            self.room -= len(message.get("body", b""))
            self.ended = not message.get("more_body", False)
            if self.room < 0:
                raise Problem(413, "too_large", "the request is larger than it said, or than it may be")
        return message


async def _within(coming: Awaitable[Result], seconds: float) -> Result:
    try:
        return await asyncio.wait_for(coming, max(0.0, seconds))
    except asyncio.TimeoutError:
        message = "the request came too slowly; try again with a better connection or a smaller photo"
        raise Problem(408, "too_slow", message, {"Connection": "close"}) from None


def too_large(limits: Limits) -> Problem:
    return Problem(413, "too_large", f"a photo may have {limits.max_upload / 1e6:g} MB; make it smaller")


def is_public(path: str) -> bool:
    """The page itself holds nothing of the index: it asks for the token and then for the rest."""
    return path == "/" or path.startswith("/page/") or path in PUBLIC


def require_local(scope: Scope, headers: Headers) -> None:
    """A request of this machine to this machine, not one that a page elsewhere makes a browser send."""
    host = headers.get("host", "")
    if not names_loopback(host):
        raise Problem(403, "wrong_host", "this service answers on localhost alone; start it with a token for others")
    origin = headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != host:
        raise Problem(403, "wrong_origin", "this request comes from another web page")
    opened = scope["path"] == "/" and scope["method"] == "GET"  # following a link to the page is welcome
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and not opened:
        raise Problem(403, "wrong_origin", "this request comes from another web page")


def names_loopback(host: str) -> bool:
    """Whether a Host header means this machine."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
