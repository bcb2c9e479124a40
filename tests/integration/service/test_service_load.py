"""The service with much to do at once, and the command that runs it."""

import contextlib
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from benchmarks import service
from click.testing import CliRunner, Result

from fixtures_recipe import listen_to_ctrl_c
from fixtures_service import PHOTOS, WAIT, Served, error_of, photo, serving
from superfeat.cli import main
from superfeat.extraction.extract import extract_image
from superfeat.index.index import Index
from superfeat.service.limits import Limits, parse_size

# -- Much at once

NEW = 50  # photos from this seed on are not in the index: the network has to look at them


class Blocked:
    """Stands in the place of the network: looks at a photo when it is let go."""

    def __init__(self, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go, self.entered = threading.Event(), threading.Semaphore(0)
        real = served.engine._look

        def look(key: str, data: bytes) -> Any:
            self.entered.release()
            assert self.go.wait(WAIT)
            return real(key, data)

        monkeypatch.setattr(served.engine, "_look", look)


def test_what_does_not_fit_is_sent_away_and_the_rest_goes_on(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(made, Limits(queue=2), read_only=True) as served, ThreadPoolExecutor(8) as pool:
        blocked = Blocked(served, monkeypatch)
        running = [pool.submit(served.search, photo(NEW + seed)) for seed in range(3)]
        assert blocked.entered.acquire(timeout=WAIT)
        while served.service.looking.inside < 3:
            time.sleep(0.01)
        refused = served.search(photo(NEW + 5))
        assert error_of(refused) == (503, "busy")
        assert int(refused.headers["retry-after"]) > 0
        assert served.found(name="1.jpg")[0] == "1.jpg"  # does not wait for the network
        assert served.client.get("/images/0").status_code == 200
        assert "superfeat_network_waiting 2.0" in served.client.get("/metrics").text
        blocked.go.set()
        assert [one.result(WAIT).status_code for one in running] == [200, 200, 200]
        assert served.search(photo(NEW + 5)).status_code == 200


def test_a_box_on_a_photo_that_was_just_seen_does_not_wait(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(made, read_only=True) as served, ThreadPoolExecutor(1) as pool:
        query = served.search(photo(NEW + 4)).json()["query"]["query"]
        blocked = Blocked(served, monkeypatch)
        other = pool.submit(served.search, photo(NEW + 1))
        assert blocked.entered.acquire(timeout=WAIT)
        assert served.search(query=query, box="0,0,1,0.9").status_code == 200
        assert served.search(photo(NEW + 4)).status_code == 200
        blocked.go.set()
        assert other.result(WAIT).status_code == 200


def test_an_upload_is_looked_at_once(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[bytes] = []

    def counted(network: Any, data: bytes, *arguments: Any, **options: Any) -> Any:
        looked.append(data)
        return extract_image(network, data, *arguments, **options)

    monkeypatch.setattr("superfeat.extraction.extract.extract_image", counted)
    with serving(made, read_only=True) as served:
        answer = served.search(photo(NEW + 4)).json()
        asked = {"query": answer["query"]["query"], "found": answer["hits"][0]["id"]}
        assert served.client.get("/explain", params=asked).status_code == 200
        assert served.client.get("/explain/picture", params=asked).status_code == 200
        assert served.search(query=asked["query"], box="0,0,1,0.9").status_code == 200
        assert served.search(photo(NEW + 4)).status_code == 200
    assert looked.count(photo(NEW + 4)) == 1


def test_reads_go_on_while_a_photo_is_added(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    entered, go = threading.Event(), threading.Event()
    real = served.engine.add

    def add(name: str, path: Path) -> Any:
        entered.set()
        assert go.wait(WAIT)
        return real(name, path)

    monkeypatch.setattr(served.engine, "add", add)
    with ThreadPoolExecutor(1) as pool:
        adding = pool.submit(served.add, photo(77), "new.jpg")
        assert entered.wait(WAIT)
        assert served.found(name="1.jpg")[0] == "1.jpg"
        assert served.client.get("/images/0/thumbnail").status_code == 200
        assert len(served.names()) == PHOTOS
        go.set()
        assert adding.result(WAIT).status_code == 201
    assert len(served.names()) == PHOTOS + 1


def test_work_whose_client_has_gone_is_dropped(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(made, read_only=True) as served, ThreadPoolExecutor(2) as pool:
        blocked = Blocked(served, monkeypatch)
        first = pool.submit(served.search, photo(NEW))
        assert blocked.entered.acquire(timeout=WAIT)
        with httpx.Client(base_url=served.url, trust_env=False, timeout=0.3) as hasty, pytest.raises(httpx.ReadTimeout):
            hasty.post("/search", files={"photo": photo(NEW + 1)})
        while served.service.looking.inside < 2:
            time.sleep(0.01)
        blocked.go.set()
        assert first.result(WAIT).status_code == 200
        while served.service.looking.inside:
            time.sleep(0.01)
        assert not blocked.entered.acquire(blocking=False)


def test_bodies_in_memory_are_bounded(made: Path) -> None:
    """Each request holds as much as it says it sends, from before it is read until it is answered or has gone."""
    limits = Limits(max_upload=10**6)
    most = limits.bodies // limits.max_upload
    head = (
        "POST /search HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=b\r\n"
        f"Content-Length: {limits.max_upload}\r\nExpect: 100-continue\r\n\r\n"
    ).encode()
    with serving(made, limits, read_only=True) as served, contextlib.ExitStack() as stack:
        for _ in range(most):
            connection = stack.enter_context(socket.create_connection(served.address, timeout=WAIT))
            connection.sendall(head)
            assert connection.recv(1000).startswith(b"HTTP/1.1 100")
        assert b'"busy"' in served.send_raw(head.replace(b"Expect: 100-continue", b"Connection: close"))
        assert served.found(name="1.jpg")[0] == "1.jpg"  # a small body still fits
        stack.close()
        while served.search(photo(1)).status_code == 503:
            time.sleep(0.01)
        assert served.search(photo(1)).status_code == 200


def test_many_clients_and_a_writer(served: Served) -> None:
    """The long version is benchmarks/service.py."""
    with ThreadPoolExecutor(8) as pool:
        searches = [
            pool.submit(served.search, photo(NEW + n % 4)) if n % 2 else pool.submit(served.search, name=f"{n % 5}.jpg")
            for n in range(60)
        ]
        for number in range(4):
            assert served.add(photo(100 + number), f"new{number}.jpg").status_code == 201
        assert {one.result(WAIT).status_code for one in searches} == {200}
    assert len(served.names()) == PHOTOS + 4
    assert list(served.index.verify())


# -- The command


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments], env={"SUPERFEAT_TOKEN": ""})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["{index}", "--host", "0.0.0.0"], "needs a token"),
        (["{index}", "--host", "::"], "needs a token"),
        (["{index}", "--host", "0.0.0.0", "--token", "short"], "16 or more"),
        (["{index}", "--token", "short"], "16 or more"),
        (["{index}", "--host", "no.such.host.invalid"], "is not known"),
        (["{index}", "--max-upload", "much"], "is not a size"),
        (["{index}/nowhere"], "is not an index"),
        (["{index}", "--port", "{port}"], "choose another port (--port)"),
        (["{index}", "--weights", "nothing-like-this"], "nothing-like-this"),
        (["{index}", "--watch", "{index}/nowhere"], "only folders can be watched"),
    ],
)
def test_what_cannot_be_served_is_said_in_one_line(
    made: Path, reader: Served, arguments: list[str], words: str
) -> None:
    places = {"index": made, "port": reader.address[1]}
    result = run("serve", *(text.format(**places) for text in arguments))
    assert result.exit_code == 1
    assert words in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_without_its_extra_it_says_so(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("superfeat.service.")]:
        if name != "superfeat.service.limits":
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    result = run("serve", made)
    assert result.exit_code == 1
    assert result.stderr == "superfeat: serving an index needs an optional part: pip install 'superfeat[serve]'\n"


@pytest.mark.parametrize(
    ("text", "size"), [("20MB", 20_000_000), ("1.5 kb", 1500), ("7", 7), ("2MiB", 2 << 20), ("1GB", 10**9)]
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


SERVE = [sys.executable, "-m", "superfeat", "serve", "--port", "0", "--json"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_stopped_service_finishes_what_it_has_begun(index: Path, number: int, code: int) -> None:
    with subprocess.Popen(
        [*SERVE, str(index)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=listen_to_ctrl_c
    ) as process:
        assert process.stdout is not None
        started = json.loads(process.stdout.readline())
        assert started["images"] == PHOTOS
        body = photo(77)
        with httpx.Client(base_url=started["url"], timeout=WAIT, trust_env=False) as client:

            def slowly() -> Iterator[bytes]:
                yield HEAD + body[:100]
                process.send_signal(number)
                yield body[100:] + TAIL

            response = client.post(
                "/images", content=slowly(), headers={"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
            )
            assert response.status_code == 201
        _, said = process.communicate(timeout=WAIT)
        assert process.returncode == code
        assert said == "superfeat: stopped\n"
    assert "late.jpg" in Index.open(index)


BOUNDARY = "----photo"
HEAD = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="photo"; filename="late.jpg"\r\n\r\n'.encode()
TAIL = f"\r\n--{BOUNDARY}--\r\n".encode()


def test_a_killed_service_keeps_what_it_acknowledged(index: Path) -> None:
    with subprocess.Popen([*SERVE, str(index)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        with httpx.Client(base_url=url, timeout=WAIT, trust_env=False) as client:
            for seed in (77, 78):
                assert client.post("/images", files={"photo": (f"{seed}.jpg", photo(seed))}).status_code == 201
        process.kill()
    with serving(index) as served:
        assert {"77.jpg", "78.jpg"} <= set(served.names())
        assert served.found(photo(78))[0] == "78.jpg"


def test_the_load_test_still_runs(made: Path, tmp_path: Path) -> None:
    """benchmarks/service.py, small: what it checks holds; its timings are not looked at."""
    small = ["--searches", "24", "--clients", "4", "--images", "8", "--overload", "8"]
    service.main([*small, "--weights", str(made.parent / "network"), "--json", str(tmp_path / "out.json")])
    result = json.loads((tmp_path / "out.json").read_text())
    assert sum(one["count"] for one in result["latency_ms"].values()) == 24
    assert result["errors"] == result["writes"]["lost"] == 0
    assert result["overload"]["answered"] > 0
