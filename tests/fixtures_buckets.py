"""A bucket on this machine, and the ways in which what lies between may fail."""

import collections
import contextlib
import dataclasses
import http.client
import itertools
import threading
import time
from collections.abc import Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from benchmarks.bucket_server import PATIENCE

PASSED_ON = ("content-type", "etag", "last-modified", "content-range", "accept-ranges", "content-length")


@dataclasses.dataclass
class Proxy:
    """What lies between us and a server: it hands requests on, unless a fault is planned for what they ask for."""

    target: str
    address: str = ""
    faults: dict[str, Iterator[str]] = dataclasses.field(default_factory=dict)
    asked: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)

    def plan(self, part: str, faults: Iterable[str]) -> None:
        """The next reads of addresses with this part fail like this, one after the other."""
        self.faults[part] = iter(faults)

    def always(self, part: str, fault: str) -> None:
        self.faults[part] = itertools.repeat(fault)

    def fault_for(self, path: str) -> str:
        found = next((part for part in self.faults if part in path), None)
        self.asked[path.partition("?")[0]] += 1
        return "none" if found is None else next(self.faults[found], "none")


@contextlib.contextmanager
def faulty_proxy(target: str) -> Iterator[Proxy]:
    proxy = Proxy(target)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length)
            fault = proxy.fault_for(self.path) if self.command in ("GET", "HEAD") else "none"
            if fault == "reset":
                self.close_connection = True
                return
            if fault == "busy":
                self.answer(503, {}, b"<Error><Code>SlowDown</Code></Error>", fault)
                return
            connection = http.client.HTTPConnection(proxy.target.removeprefix("http://"), timeout=PATIENCE)
            connection.request(self.command, self.path, body or None, dict(self.headers))
            reply = connection.getresponse()
            headers = {name: value for name, value in reply.getheaders() if name.lower() in PASSED_ON}
            self.answer(reply.status, headers, reply.read(), fault)
            connection.close()

        def answer(self, status: int, headers: dict[str, str], data: bytes, fault: str) -> None:
            self.send_response(status)
            for name, value in {**headers, **({} if self.command == "HEAD" else {"Content-Length": len(data)})}.items():
                self.send_header(name, str(value))
            self.end_headers()
            if self.command == "HEAD":
                return
            if fault == "cut":
                self.wfile.write(data[: len(data) // 2])
                self.close_connection = True
            elif fault == "slow":
                for place in range(0, len(data), max(1, len(data) // 4)):
                    self.wfile.write(data[place : place + max(1, len(data) // 4)])
                    self.wfile.flush()
                    time.sleep(0.05)
            elif fault == "stalled":
                self.wfile.write(data[:10])
                self.wfile.flush()
                time.sleep(2.5)
                self.close_connection = True
            else:
                self.wfile.write(data)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do  # noqa: N815 - the names of http.server

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    proxy.address = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
