"""Objects of the web and of elsewhere: who we are, what fails for a while, and what is certainly not there."""

import base64
import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import superfeat.addresses.text as text
from fixtures_archives import photo_bytes, tar_bytes
from superfeat.addresses.address import address_of
from superfeat.addresses.buckets import PAUSES, explain, is_there, look_at, patiently, read_object, read_range
from superfeat.addresses.text import public
from superfeat.errors import ImageError
from superfeat.index.sync import is_gone
from superfeat.sources.listing import list_photos

pytest.importorskip("aiohttp", reason="superfeat[buckets] is not installed")

PHOTO = photo_bytes(1)
FILES = {
    "/list.txt": b"a.png\nmore/0.tar\n",
    "/signed.txt": b"signed.png?sig=sign-ed\nmore/0.tar?sig=sign-ed\n",
    "/a.png": PHOTO,
    "/signed.png": PHOTO,
    "/more/0.tar": tar_bytes({"k.png": PHOTO}),
}
LOGIN = "Basic " + base64.b64encode(b"me:pass-word").decode()


class Web(BaseHTTPRequestHandler):
    """A server that knows neither ranges nor patience with strangers."""

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        known = self.headers.get("Authorization") == LOGIN or query.startswith("sig=sign-ed")
        status = 500 if path == "/broken.png" else 200 if known and path in FILES else 404 if known else 403
        data = FILES[path] if status == 200 else b""
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("ETag", f'"{len(data)}"')
        self.end_headers()
        if self.command == "GET":
            time.sleep(0.6 if query == "sig=sign-ed&wait=1" else 0)
            self.wfile.write(data)


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Its address, without a scheme; secrets that were given to it are forgotten afterwards."""
    monkeypatch.setattr(text, "_given", {})
    monkeypatch.setattr(text, "_logins", {})
    monkeypatch.setattr("superfeat.addresses.buckets.PAUSES", (0.0, 0.0))
    server = ThreadingHTTPServer(("127.0.0.1", 0), Web)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_list_of_the_web_is_read_with_the_password_that_it_was_given_with(host: str) -> None:
    listing = list_photos([f"http://me:pass-word@{host}/list.txt"])
    assert [photo.name for photo in listing.photos] == ["a.png", "more/0.tar/k.png"]
    assert [str(photo.where) for photo in listing.photos] == [f"http://{host}/a.png", f"http://{host}/more/0.tar/k.png"]
    assert [photo.where.read_bytes() for photo in listing.photos] == [PHOTO, PHOTO]
    assert read_range(f"http://{host}/a.png", 5, 7) == PHOTO[5:12], "although the server gives all or nothing"


def test_a_signed_address_is_read_and_shown_without_its_signature(host: str) -> None:
    (photo,) = list_photos([f"http://{host}/signed.png?sig=sign-ed"]).photos
    assert (photo.name, str(photo.where)) == (f"http://{host}/signed.png",) * 2
    assert photo.where.read_bytes() == PHOTO


def test_a_list_of_signed_names(host: str) -> None:
    listing = list_photos([f"http://{host}/signed.txt?sig=sign-ed"])
    assert [photo.name for photo in listing.photos] == ["signed.png", "more/0.tar/k.png"]
    assert [photo.where.read_bytes() for photo in listing.photos] == [PHOTO, PHOTO]
    assert "sign-ed" not in repr(listing)


def test_what_is_refused_or_broken_is_not_gone(host: str) -> None:
    with pytest.raises(PermissionError, match="may not be read with the credentials that were found"):
        look_at(f"http://{host}/a.png")
    with pytest.raises(OSError, match="tried 3 times"):
        look_at(f"http://{host}/broken.png")
    assert not is_gone(f"http://{host}/a.png")
    assert not is_gone(f"http://{host}/broken.png")
    assert is_gone(f"http://me:pass-word@{host}/gone.png")
    assert not is_gone(f"http://me:pass-word@{host}/a.png")


@pytest.mark.parametrize("address", ["local:///etc/a.png", "zip://a.png::file:///etc/a.zip", "dir://::file:///etc"])
def test_no_address_leads_to_files_of_this_machine(address: str) -> None:
    with pytest.raises(ImageError, match="is not read: give a path"):
        list_photos([address])


@pytest.mark.parametrize(
    ("missing", "address", "told"),
    [
        ("fsspec", "s3://bucket/a", "pip install 'superfeat[buckets]'"),
        ("aiohttp", "https://h.example/a", "pip install 'superfeat[buckets]'"),
        ("gcsfs", "gs://bucket/a", "gs:// needs one more package: Please install gcsfs"),
    ],
)
def test_what_to_install(missing: str, address: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ImageError) as raised:
        look_at(address)
    assert told in str(raised.value)


def test_somebody_who_does_not_answer(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("superfeat.addresses.buckets.QUIET_SECONDS", 0.2)
    address = public(f"http://{host}/signed.png?sig=sign-ed&wait=1")
    with pytest.raises(OSError, match=r"no answer in time \(tried 3 times\)"):
        read_range(address, 0, len(PHOTO))


def test_somebody_who_does_not_stop_sending(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("superfeat.addresses.buckets.LARGEST_PHOTO", 1000)
    with pytest.raises(OSError, match="which no photo is"):
        read_object(f"http://{host}/a.png?sig=sign-ed", 0)
    with pytest.raises(OSError, match="which no photo is"):
        read_object("s3://bucket/a.png", 1001)


def test_a_web_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("superfeat.addresses.buckets.PAUSES", ())
    with pytest.raises(ImageError, match=r"cannot list http://127.0.0.1:9/list.txt: ") as raised:
        list_photos(["http://me:pass-word@127.0.0.1:9/list.txt"])
    assert "pass-word" not in str(raised.value)
    assert raised.value.__cause__ is None, "which would say with which password, where tracebacks are shown"


def test_tries_come_after_longer_and_longer_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("superfeat.addresses.buckets.time.sleep", pauses.append)
    tries = iter([OSError("slow down"), TimeoutError(), OSError("ended"), None])

    def work() -> str:
        if (error := next(tries)) is not None:
            raise error
        return "done"

    assert patiently("s3://bucket/a", work) == "done"
    assert pauses == list(PAUSES) == sorted(PAUSES)


@pytest.mark.parametrize("error", [FileNotFoundError(), PermissionError(), ImageError("no package")])
def test_what_will_not_change_is_not_tried_again(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("superfeat.addresses.buckets.time.sleep", lambda _: pytest.fail("waits"))

    def work() -> None:
        raise error

    with pytest.raises(type(error)):
        patiently("s3://bucket/a", work)


def test_reasons_are_one_line_without_secrets() -> None:
    told = explain(ValueError("bad https://me:pass-word@h.example/a?sig=sign-ed\nmore"), "https://h.example/a", 4)
    assert told.strerror == "bad https://h.example/a (tried 4 times)"
    assert explain(TimeoutError(), "s3://b/a").strerror == "no answer in time"


def test_buckets_that_are_there(tmp_path: Path) -> None:
    assert is_there("https://host.example")
    assert is_there("memory://")
    assert not is_there("memory://no-such-bucket")
    assert not is_there("nowhere://bucket")
    with contextlib.suppress(OSError):
        assert not address_of("memory://no-such-bucket/a.png").exists()
