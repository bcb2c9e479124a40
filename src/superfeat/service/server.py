"""Listening: one socket, bounded connections, timeouts for slow ones, a graceful stop."""

import asyncio
import json
import signal
import socket
import threading
from collections.abc import Callable
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from superfeat.errors import SuperfeatError
from superfeat.service.limits import (
    HEAD_BYTES,
    HEAD_SECONDS,
    IDLE_SECONDS,
    LINGER_SECONDS,
    MOST_CONNECTIONS,
    RETRY_SECONDS,
    STOP_SECONDS,
)

NOT_HTTP = f"this is not a request that can be read, or its head is longer than {HEAD_BYTES >> 10} KB"
FULL = "too many connections are open; try again in a moment"


class Connection(H11Protocol):
    """A connection that waits for a client only so long, and answers broken requests in our shape."""

    _timer: asyncio.TimerHandle | None = None
    _waits: str | None = None  # what for
    _paused = False  # the client does not take what it asked for
    _refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            self._refuse("503 Service Unavailable", "busy", FULL, f"retry-after: {RETRY_SECONDS}")
        self._review()

    def connection_lost(self, exc: Exception | None) -> None:
        self._wait(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self._refused:
            super().data_received(data)

    def handle_events(self) -> None:
        super().handle_events()
        self._review()

    def on_response_complete(self) -> None:
        if not self._paused:
            self._wait(None)
        super().on_response_complete()
        self._review()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._paused = True
        self._review()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._paused = False
        self._review()

    def send_400_response(self, msg: str) -> None:
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._refuse("400 Bad Request", "bad_request", NOT_HTTP)
        else:
            self.transport.abort()

    def _refuse(self, status: str, code: str, message: str, *headers: str) -> None:
        """What the client goes on sending is read for a moment: closing on it would take the answer away from it."""
        self._refused = True
        self.transport.write(_plain_answer(status, code, message, *headers))

    def _review(self) -> None:
        answering = self.cycle is not None and not self.cycle.response_complete
        if self.transport.is_closing():
            self._wait(None)
        elif self._refused:
            self._wait("the end", LINGER_SECONDS)
        elif self._paused:
            self._wait("the client", IDLE_SECONDS)
        else:
            self._wait(None if answering else "a head", HEAD_SECONDS)

    def _wait(self, what: str | None, seconds: float = 0) -> None:
        """Gives the connection up unless something else is waited for by then."""
        if what == self._waits and what is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._waits, self._timer = what, None
        if what is not None:
            self._timer = self.loop.call_later(seconds, self.transport.abort)


def _plain_answer(status: str, code: str, message: str, *headers: str) -> bytes:
    body = json.dumps({"error": {"code": code, "message": message}})
    lines = [f"HTTP/1.1 {status}", "content-type: application/json", f"content-length: {len(body)}", *headers]
    return ("\r\n".join([*lines, "connection: close", "", ""]) + body).encode()


def listen(host: str, port: int) -> socket.socket:
    """A socket that is bound; SuperfeatError says why it cannot be. Port 0 takes a free one."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=family, backlog=MOST_CONNECTIONS)
    except OSError as error:
        reason = error.strerror or str(error)
        raise SuperfeatError(
            f"cannot listen at {host}, port {port}: {reason}; choose another port", arguments=["port"]
        ) from error


def url_of(bound: socket.socket) -> str:
    """Where a browser finds it."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def serve(app: ASGIApp, bound: socket.socket, on_ready: Callable[[], None] | None = None) -> int | None:
    """Until Ctrl-C or SIGTERM; then what has begun is finished, within a while. The signal that it was, if any."""
    server = Server(app)
    server.on_ready = on_ready
    kept: dict[int, Any] = {}
    came: list[int] = []

    def note(number: int, _frame: object) -> None:
        came.append(number)

    if threading.current_thread() is threading.main_thread():
        # uvicorn stops at the first signal and raises it again when it has stopped: that one is to end nothing.
        kept = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        server.run(sockets=[bound])
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
    return came[0] if came else None


class Server(uvicorn.Server):
    """uvicorn with our connections, quiet but for warnings."""

    on_ready: Callable[[], None] | None = None

    def __init__(self, app: ASGIApp) -> None:
        config = uvicorn.Config(
            app,
            http=Connection,
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            h11_max_incomplete_event_size=HEAD_BYTES,
            timeout_graceful_shutdown=STOP_SECONDS,
        )
        super().__init__(config)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and self.on_ready is not None:
            self.on_ready()
