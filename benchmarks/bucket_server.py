"""The S3 API on this machine, for tests and benchmarks: moto's server in a process of its own."""

import contextlib
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator

PATIENCE = 60  # seconds for a server to start


@contextlib.contextmanager
def s3_server() -> Iterator[str]:
    """The S3 API, in a process of its own on a port of its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            _wait_for(f"{address}/moto-api/", process)
            yield address
        finally:
            process.terminate()


def _wait_for(address: str, process: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        assert process.poll() is None, "the server has ended"
        with contextlib.suppress(OSError), urllib.request.urlopen(address, timeout=PATIENCE):
            return
        time.sleep(0.05)
    raise AssertionError("the server did not start")
