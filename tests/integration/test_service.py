"""The service as its clients meet it: over real connections to a server that runs beside the test."""

import contextlib
import io
import json
import os
import shutil
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
from PIL import Image

from fixtures_disk import Disk
from fixtures_recipe import listen_to_ctrl_c
from fixtures_service import PHOTOS, WAIT, Served, encoded, error_of, make_index, pattern, serving, state_of
from superfeat.cli import main
from superfeat.extraction.extract import extract_image
from superfeat.index.index import Index
from superfeat.service import photos as photos_module
from superfeat.service.limits import Limits, parse_size
from superfeat.service.uploads import FOLDER, plain_name

TOKEN = "a-token-of-twenty-letters"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index that tests only read; those that change it copy it."""
    return make_index(tmp_path_factory.mktemp("served"))


@pytest.fixture
def index(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "index"))


@pytest.fixture
def served(index: Path) -> Iterator[Served]:
    with serving(index) as service:
        yield service


@pytest.fixture(scope="module")
def reader(made: Path) -> Iterator[Served]:
    """A service that no test changes."""
    with serving(made, read_only=True) as service:
        yield service


def photo(seed: int, **options: Any) -> bytes:
    return encoded(pattern(seed), quality=95, **options)


def ids(served: Served) -> dict[str, int]:
    page = served.client.get("/images", params={"limit": 200}).json()
    return {one["name"]: one["id"] for one in page["photos"]}


# -- Search


def test_an_uploaded_photo_finds_itself(reader: Served) -> None:
    answer = reader.search(photo(3), top=4).json()
    best = answer["hits"][0]
    assert best["name"] == "3.jpg"
    assert best["id"] == ids(reader)["3.jpg"]
    assert best["image"] == f"/images/{best['id']}"
    assert best["thumbnail"] == f"/images/{best['id']}/thumbnail"
    assert len(answer["hits"]) == 4
    assert [hit["score"] for hit in answer["hits"]] == sorted((hit["score"] for hit in answer["hits"]), reverse=True)
    assert all(0 <= value <= 1 for value in best["region"])
    assert answer["query"]["size"] == [128, 96]
    assert answer["query"]["features"] > 0
    assert len(answer["query"]["query"]) == 32


def test_the_answer_is_the_engines(reader: Served) -> None:
    expected = reader.engine.search(photo(2), top=PHOTOS)
    hits = reader.search(photo(2), top=PHOTOS).json()["hits"]
    assert [(hit["id"], hit["score"]) for hit in hits] == [(hit.id, hit.score) for hit in expected.hits]


@pytest.mark.parametrize("field", ["name", "image"])
def test_search_by_an_indexed_photo(reader: Served, field: str) -> None:
    value = "2.jpg" if field == "name" else ids(reader)["2.jpg"]
    answer = reader.search(**{field: value}).json()
    assert answer["hits"][0]["name"] == "2.jpg"
    assert answer["hits"][0]["score"] == pytest.approx(1)
    assert answer["query"]["name"] == "2.jpg"
    assert answer["query"]["features"] == 0


def test_a_box_on_an_upload_does_not_need_the_upload_again(reader: Served) -> None:
    whole = reader.search(photo(4)).json()
    part = reader.search(query=whole["query"]["query"], box="0,0,0.6,1").json()
    assert part["query"]["query"] == whole["query"]["query"]
    assert part["query"]["box"] == [0, 0, 0.6, 1]
    assert 0 < part["query"]["features"] < whole["query"]["features"]
    expected = reader.engine.search(photo(4), box=(0, 0, 0.6, 1)).hits
    assert [(hit["name"], hit["score"]) for hit in part["hits"]] == [(hit.name, hit.score) for hit in expected]
    shown = reader.client.get(f"/queries/{whole['query']['query']}")
    assert shown.headers["content-type"] == "image/jpeg"


def test_a_box_on_an_indexed_photo(reader: Served) -> None:
    expected = reader.engine.search("1.jpg", box=(0.1, 0.1, 0.8, 0.8)).hits
    assert reader.found(name="1.jpg", box="0.1,0.1,0.8,0.8") == [hit.name for hit in expected]


def test_an_upload_that_is_no_longer_remembered(reader: Served) -> None:
    assert error_of(reader.search(query="0" * 32)) == (410, "query_expired")
    assert error_of(reader.client.get(f"/queries/{'0' * 32}")) == (410, "query_expired")


def test_remembered_uploads_are_bounded(made: Path) -> None:
    size = len(photo(0))
    with serving(made, Limits(max_upload=size + 2000), read_only=True) as few:
        keys = [few.search(photo(seed)).json()["query"]["query"] for seed in range(8)]
        assert few.service.queries.kept.held <= 4 * (size + 2000)
        assert few.search(query=keys[-1]).status_code == 200
        assert error_of(few.search(query=keys[0])) == (410, "query_expired")


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({}, 422, "invalid"),
        ({"name": "1.jpg", "image": "1"}, 422, "invalid"),
        ({"name": "nothing.jpg"}, 404, "no_such_photo"),
        ({"image": "999"}, 404, "no_such_photo"),
        ({"image": "-1"}, 422, "invalid"),
        ({"image": str(2**63)}, 422, "invalid"),
        ({"image": "x"}, 422, "invalid"),
        ({"query": "../../etc/passwd"}, 422, "invalid"),
        ({"name": "1.jpg", "top": "0"}, 422, "invalid"),
        ({"name": "1.jpg", "top": "100000"}, 422, "invalid"),
        ({"name": "1.jpg", "box": "1,2,3"}, 422, "invalid"),
        ({"name": "1.jpg", "box": "2,2,1,1"}, 422, "invalid"),
        ({"name": "1.jpg", "box": "0,0,nan,1"}, 422, "invalid"),
        ({"name": "1.jpg", "box": "0,0,e,1"}, 422, "invalid"),
        ({"name": "1.jpg", "box": "0,0,0,1"}, 422, "invalid"),
        ({"name": "1.jpg", "box": "0.5,0.5,0.0001,0.0001"}, 422, "refused"),
        ({"name": "1.jpg", "tpo": "3"}, 422, "invalid"),
    ],
)
def test_questions_that_cannot_be_answered(reader: Served, fields: dict[str, str], status: int, code: str) -> None:
    assert error_of(reader.search(**fields)) == (status, code)


def test_errors_of_the_framework_have_the_same_shape(reader: Served) -> None:
    assert error_of(reader.client.get("/nothing")) == (404, "not_found")
    assert error_of(reader.client.put("/images")) == (405, "method_not_allowed")
    assert error_of(reader.client.get("/images/x")) == (422, "invalid")


def test_an_index_of_features_alone_searches_by_its_images(tmp_path: Path, made: Path) -> None:
    """No network, no photos: what can be done is done, and the rest is said."""
    old = Index.open(made)
    bare = Index.create(tmp_path / "bare", old.codebook)
    for name in old.names():
        bare.add(name, old.query(old.codebook.centroids[:4]).codes.view("u1").astype("f4").repeat(8, 1)[:, :16])
    with serving(tmp_path / "bare") as served:
        assert len(served.found(name="1.jpg")) == PHOTOS
        assert error_of(served.search(photo(1))) == (422, "refused")
        assert error_of(served.client.get("/images/0")) == (410, "no_file")


# -- Photos


def test_photos_are_listed_in_pages(reader: Served) -> None:
    first = reader.client.get("/images", params={"limit": 4}).json()
    rest = reader.client.get("/images", params={"limit": 4, "offset": 4}).json()
    assert first["images"] == rest["images"] == PHOTOS
    assert [one["name"] for one in first["photos"] + rest["photos"]] == list(reader.index.names())
    assert reader.client.get("/images", params={"offset": 10**9}).json()["photos"] == []
    assert error_of(reader.client.get("/images", params={"limit": 0})) == (422, "invalid")


def test_photos_and_thumbnails_are_small_and_drawn_anew(served: Served, tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # lies on its side
    exif.get_ifd(0x8825)[2] = (48.0, 51.0, 29.0)  # where it was taken
    data = encoded(pattern(9, 1800, 1200), exif=exif)
    added = served.add(data, "gps.jpg").json()
    for path, size in ((added["image"], (853, 1280)), (added["thumbnail"], (213, 320))):
        response = served.client.get(path)
        assert response.headers["content-type"] == "image/jpeg"
        assert response.headers["x-content-type-options"] == "nosniff"
        shown = Image.open(io.BytesIO(response.content))
        assert shown.size == size
        assert not shown.getexif()
        assert b"Exif" not in response.content


def test_a_browser_keeps_what_has_not_changed(reader: Served) -> None:
    first = reader.client.get("/images/0")
    again = reader.client.get("/images/0", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert "no-cache" in first.headers["cache-control"]
    assert "private" in first.headers["cache-control"]


@pytest.mark.parametrize("path", ["/images/999", "/images/999/thumbnail"])
def test_a_photo_that_is_not_there(reader: Served, path: str) -> None:
    assert error_of(reader.client.get(path)) == (404, "no_such_photo")


# -- Adding and deleting


def test_a_photo_that_is_added_is_found_and_one_that_is_deleted_is_not(served: Served) -> None:
    added = served.add(photo(77), "new.jpg")
    assert added.status_code == 201
    assert added.json()["outcome"] == "new"
    assert added.json()["images"] == PHOTOS + 1
    assert served.found(photo(77), top=1) == ["new.jpg"]
    stored = list((served.index.path / FOLDER).iterdir())
    assert [file.read_bytes() for file in stored] == [photo(77)]
    gone = served.client.delete(added.json()["image"])
    assert gone.json() == {"id": added.json()["id"], "name": "new.jpg", "images": PHOTOS}
    assert "new.jpg" not in served.found(photo(77))
    assert list((served.index.path / FOLDER).iterdir()) == []
    assert error_of(served.client.delete(added.json()["image"])) == (404, "no_such_photo")
    assert len(Index.open(served.index.path)) == PHOTOS


def test_a_name_is_taken_until_it_is_replaced(served: Served) -> None:
    first = served.add(photo(77), "new.jpg").json()
    assert error_of(served.add(photo(78), "new.jpg")) == (409, "name_taken")
    same = served.add(photo(77), "new.jpg", replace="true").json()
    assert (same["outcome"], same["id"]) == ("same", first["id"])
    other = served.add(photo(78), "new.jpg", replace="true").json()
    assert other["outcome"] == "replaced"
    assert other["id"] != first["id"]
    assert [file.read_bytes() for file in (served.index.path / FOLDER).iterdir()] == [photo(78)]
    assert error_of(served.client.get(first["image"])) == (404, "no_such_photo")


def test_the_files_of_indexed_folders_are_never_deleted(served: Served, made: Path) -> None:
    before = state_of(made.parent / "photos")
    numbers = ids(served)
    assert served.client.delete(f"/images/{numbers['2.jpg']}").status_code == 200
    assert served.add(photo(80), "3.jpg", replace="true").json()["outcome"] == "replaced"
    assert served.client.delete(f"/images/{ids(served)['3.jpg']}").status_code == 200
    assert state_of(made.parent / "photos") == before
    assert "2.jpg" not in served.names()


def test_names_of_uploads_are_made_plain(served: Served) -> None:
    added = served.add(photo(77), "x.jpg", name="../../etc/pass wd\x00.jpg").json()
    assert added["name"] == "pass wd_.jpg"
    (stored,) = (served.index.path / FOLDER).iterdir()
    assert stored.name.endswith("-pass wd_.jpg")


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ("a.jpg", "a.jpg"),
        ("C:\\photos\\Käfer & Co.JPG", "Käfer _ Co.JPG"),
        ("..", "photo"),
        ("/", "photo"),
        (".hidden", "hidden"),
        ("a/b\nc.png", "b_c.png"),
        ("y" * 300 + ".jpeg", "y" * 95 + ".jpeg"),
        ("ü" * 300 + ".jpeg", "ü" * 87 + ".jpeg"),
        ("-rf", "-rf"),
    ],
)
def test_plain_names(given: str, made: str) -> None:
    assert plain_name(given) == made
    assert plain_name(made) == made


def test_a_read_only_service_changes_nothing(reader: Served, made: Path) -> None:
    before = state_of(made)
    assert error_of(reader.add(photo(77), "new.jpg")) == (403, "read_only")
    assert error_of(reader.client.delete("/images/0")) == (403, "read_only")
    assert state_of(made) == before


def test_what_a_crash_left_is_swept_at_the_next_start(index: Path) -> None:
    with serving(index) as served:
        served.add(photo(77), "kept.jpg")
    folder = index / FOLDER
    (folder / "0123456789abcdef-lost.jpg").write_bytes(b"written, but never indexed")
    (folder / "note.txt").write_text("not ours")
    with serving(index) as served:
        assert served.found(photo(77), top=1) == ["kept.jpg"]
    assert sorted(file.name.partition("-")[2] or file.name for file in folder.iterdir()) == ["kept.jpg", "note.txt"]


def test_a_full_disk_loses_nothing(made: Path, disk: Disk) -> None:
    index = Path(shutil.copytree(made, disk.path / "index"))
    with serving(index) as served:
        disk.fill(1)
        assert error_of(served.add(photo(77), "new.jpg")) == (507, "disk_full")
        assert len(served.names()) == PHOTOS
        assert list((index / FOLDER).glob("*")) == []
        disk.free()
        assert served.add(photo(77), "new.jpg").status_code == 201


def test_an_index_that_another_process_writes(served: Served) -> None:
    holding = (
        "import sys; from superfeat.index.index import Index\n"
        "with Index.open(sys.argv[1]).writing(): print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", holding, str(served.index.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == "held\n"
        refused = served.add(photo(77), "new.jpg")
        assert error_of(refused) == (503, "busy")
        assert refused.headers["retry-after"]
        assert served.found(name="1.jpg")[0] == "1.jpg"
        other.stdin.close()
    assert served.add(photo(77), "new.jpg").status_code == 201


def test_what_another_process_adds_is_seen(served: Served) -> None:
    other = Index.open(served.index.path)
    other.add("theirs.jpg", other.codebook.centroids[:3] + 0.5)
    served.service.watch.check()
    assert "theirs.jpg" in served.names()
    served.add(photo(77), "ours.jpg")
    contents = served.index._contents
    served.service.watch.check()
    assert served.index._contents is contents  # what it did itself it does not read again


# -- Only files that were indexed


@pytest.fixture
def loose(tmp_path: Path) -> Path:
    """An index whose photos the test may change."""
    return make_index(tmp_path / "loose", photos=3)


def test_a_changed_file_is_not_shown(loose: Path) -> None:
    secret = encoded(pattern(500))
    with serving(loose) as served:
        assert served.client.get("/images/0").status_code == 200
        (loose.parent / "photos" / "0.jpg").write_bytes(secret)
        for response in (served.client.get("/images/0"), served.client.get("/images/0/thumbnail")):
            assert error_of(response) == (410, "file_changed")
        assert error_of(served.search(image=0, box="0,0,1,1")) == (410, "file_changed")
        assert error_of(served.client.get("/explain", params={"image": 1, "found": 0})) == (410, "file_changed")
        assert served.search(image=0).status_code == 200  # its words are stored


def test_a_file_that_is_gone(loose: Path) -> None:
    with serving(loose) as served:
        (loose.parent / "photos" / "0.jpg").unlink()
        assert error_of(served.client.get("/images/0")) == (410, "file_gone")


@pytest.mark.parametrize("level", ["file", "folder"])
def test_links_lead_nowhere(loose: Path, tmp_path: Path, level: str) -> None:
    """Even to a file of the same size and time, which an attacker could prepare."""
    photos = loose.parent / "photos"
    name = "0.jpg" if level == "file" else "more/2.jpg"
    with serving(loose) as served:
        image = ids(served)[name]
        assert served.client.get(f"/images/{image}").status_code == 200
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        secret, path = elsewhere / Path(name).name, photos / name
        status = path.stat()
        secret.write_bytes(encoded(pattern(501))[: status.st_size].ljust(status.st_size, b"\0"))
        os.utime(secret, ns=(status.st_atime_ns, status.st_mtime_ns))
        if level == "file":
            path.unlink()
            path.symlink_to(secret)
        else:
            shutil.rmtree(photos / "more")
            (photos / "more").symlink_to(elsewhere)
        response = served.client.get(f"/images/{image}/thumbnail")
        assert error_of(response) in {(410, "file_gone"), (410, "file_linked")}


def test_a_pipe_in_the_place_of_a_photo_does_not_hang(loose: Path) -> None:
    path = loose.parent / "photos" / "0.jpg"
    with serving(loose) as served:
        path.unlink()
        os.mkfifo(path)
        assert error_of(served.client.get("/images/0")) == (410, "file_changed")


# -- Explanations


@pytest.mark.parametrize("box", [None, "0,0,1,0.7"])
def test_an_explanation(reader: Served, box: str | None) -> None:
    query = reader.search(photo(4)).json()["query"]["query"]
    wanted: dict[str, Any] = {"query": query, "found": ids(reader)["4.jpg"]}
    wanted |= {} if box is None else {"box": box}
    answer = reader.client.get("/explain", params=wanted).json()
    score = reader.search(query=query, **({} if box is None else {"box": box})).json()["hits"][0]["score"]
    assert answer["score"] == pytest.approx(score)
    assert answer["found"]["name"] == "4.jpg"
    assert sum(region["share"] for region in answer["regions"]) + answer["rest"] == pytest.approx(1)
    picture = reader.client.get(answer["picture"])
    assert picture.headers["content-type"] == "image/jpeg"
    assert Image.open(io.BytesIO(picture.content)).width == 1200


def test_an_explanation_of_two_indexed_photos(reader: Served) -> None:
    answer = reader.client.get("/explain", params={"name": "1.jpg", "found": 2})
    assert answer.status_code == 200
    assert error_of(reader.client.get("/explain", params={"name": "1.jpg", "found": 999})) == (404, "no_such_photo")
    assert error_of(reader.client.get("/explain", params={"found": 1})) == (422, "invalid")


# -- What it says of itself


def test_info_says_what_may_be_sent_and_not_where_it_lies(reader: Served, made: Path) -> None:
    facts = reader.client.get("/info").json()
    assert facts["images"] == PHOTOS
    assert facts["read_only"] is True
    assert facts["max_upload"] == Limits().max_upload
    assert str(made.parent) not in json.dumps(facts)


def test_health_and_metrics(reader: Served) -> None:
    assert reader.client.get("/health").json() == {"status": "ok"}
    reader.search(name="1.jpg")
    text = reader.client.get("/metrics").text
    assert 'superfeat_requests_total{method="POST",route="/search",status="200"}' in text
    assert f"superfeat_images {PHOTOS:.1f}" in text
    assert "superfeat_network_waiting 0.0" in text
    assert "process_resident_memory_bytes" in text


def test_metrics_do_not_grow_with_what_clients_make_up(reader: Served) -> None:
    for number in range(3):
        reader.client.get(f"/made-up-{number}")
        reader.client.request(f"MADE{number}", "/images")
    text = reader.client.get("/metrics").text
    assert "made-up" not in text
    assert "MADE" not in text


def test_the_description(reader: Served) -> None:
    schema = reader.client.get("/openapi.json").json()
    assert set(schema["paths"]) == {
        "/search",
        "/explain",
        "/explain/picture",
        "/queries/{query}",
        "/images",
        "/images/{image}",
        "/images/{image}/thumbnail",
        "/info",
        "/health",
        "/metrics",
    }
    for path in schema["paths"].values():
        for operation in path.values():
            assert operation["responses"]["4XX"]["content"]["application/json"]["schema"]["$ref"].endswith(
                "ErrorAnswer"
            )
            assert "422" not in operation["responses"]


def test_a_fault_of_ours_is_told_without_its_details(
    made: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(made, read_only=True) as served:
        with monkeypatch.context() as broken:
            broken.setattr(served.engine, "search", lambda *_, **__: 1 / 0)
            response = served.search(name="1.jpg")
        assert error_of(response) == (500, "internal")
        assert "division" not in response.text
        assert "division by zero" in caplog.text
        assert response.headers["x-content-type-options"] == "nosniff"
        assert (
            'superfeat_requests_total{method="POST",route="/search",status="500"} 1.0'
            in served.client.get("/metrics").text
        )
        assert served.search(name="1.jpg").status_code == 200


def test_every_answer_is_guarded(reader: Served) -> None:
    for path in ("/", "/info", "/nothing", "/images/0"):
        headers = reader.client.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "'unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "access-control-allow-origin" not in headers


# -- Who may ask


def test_a_token_is_needed_for_all_but_the_empty_page(made: Path) -> None:
    with serving(made, token=TOKEN, read_only=True) as served:
        assert served.search(name="1.jpg").status_code == 200
        stranger = httpx.Client(base_url=served.url, trust_env=False)
        with stranger:
            for path in ("/info", "/images", "/images/0", "/images/0/thumbnail", "/metrics", "/explain?found=1"):
                refused = stranger.get(path)
                assert error_of(refused) == (401, "token_needed")
                assert refused.headers["www-authenticate"] == "Bearer"
            assert error_of(stranger.post("/search", data={"name": "1.jpg"})) == (401, "token_needed")
            assert error_of(stranger.delete("/images/0")) == (401, "token_needed")
            for wrong in ("Bearer wrong", f"bearer{TOKEN}", "Bearer", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer é"):
                response = stranger.get("/info", headers={b"Authorization": wrong.encode("latin-1")})
                assert error_of(response) == (401, "token_needed")
            for path in ("/", "/page/app.js", "/health", "/openapi.json"):
                assert stranger.get(path).status_code == 200
            assert stranger.get("/openapi.json").json()["security"] == [{"token": []}]
            assert stranger.get("/info", headers={"Authorization": f"bearer {TOKEN}"}).status_code == 200
            named = stranger.get("/info", headers={"Authorization": f"Bearer {TOKEN}", "Host": "photos.example"})
            assert named.status_code == 200  # behind a proxy; the token decides


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "localhost.evil", "10.0.0.1", "[::2]"])
def test_other_host_names_are_refused_without_a_token(reader: Served, host: str) -> None:
    assert error_of(reader.client.get("/info", headers={"Host": host})) == (403, "wrong_host")


@pytest.mark.parametrize("host", ["localhost", "localhost:1234", "127.0.0.1", "[::1]:80", "127.1.2.3"])
def test_names_of_this_machine_are_not(reader: Served, host: str) -> None:
    assert reader.client.get("/info", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_other_web_pages_cannot_use_a_visitors_browser(served: Served, headers: dict[str, str]) -> None:
    before = state_of(served.index.path)
    files = {"photo": ("new.jpg", photo(77))}
    assert error_of(served.client.post("/images", files=files, headers=headers)) == (403, "wrong_origin")
    assert error_of(served.client.delete("/images/0", headers=headers)) == (403, "wrong_origin")
    assert error_of(served.client.get("/images/0", headers=headers)) == (403, "wrong_origin")
    assert state_of(served.index.path) == before


def test_a_link_to_the_page_may_be_followed(reader: Served) -> None:
    assert reader.client.get("/", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 200


# -- Much at once


class Blocked:
    """Stands in the place of the network: looks at a photo when it is let go."""

    def __init__(self, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go, self.entered = threading.Event(), threading.Semaphore(0)
        real = served.engine.features

        def features(source: Any) -> Any:
            self.entered.release()
            assert self.go.wait(WAIT)
            return real(source)

        monkeypatch.setattr(served.engine, "features", features)


def test_what_does_not_fit_is_sent_away_and_the_rest_goes_on(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(made, Limits(queue=2), read_only=True) as served, ThreadPoolExecutor(8) as pool:
        blocked = Blocked(served, monkeypatch)
        running = [pool.submit(served.search, photo(seed)) for seed in range(3)]
        assert blocked.entered.acquire(timeout=WAIT)
        while served.service.looking.inside < 3:
            time.sleep(0.01)
        refused = served.search(photo(5))
        assert error_of(refused) == (503, "busy")
        assert int(refused.headers["retry-after"]) > 0
        assert served.found(name="1.jpg")[0] == "1.jpg"  # does not wait for the network
        assert served.client.get("/images/0").status_code == 200
        assert "superfeat_network_waiting 2.0" in served.client.get("/metrics").text
        blocked.go.set()
        assert [one.result(WAIT).status_code for one in running] == [200, 200, 200]
        assert served.search(photo(5)).status_code == 200


def test_a_box_on_a_photo_that_was_just_seen_does_not_wait(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(made, read_only=True) as served, ThreadPoolExecutor(1) as pool:
        query = served.search(photo(4)).json()["query"]["query"]
        blocked = Blocked(served, monkeypatch)
        other = pool.submit(served.search, photo(1))
        assert blocked.entered.acquire(timeout=WAIT)
        assert served.search(query=query, box="0,0,1,0.9").status_code == 200
        assert served.search(photo(4)).status_code == 200
        blocked.go.set()
        assert other.result(WAIT).status_code == 200


def test_an_upload_is_looked_at_once(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[bytes] = []

    def counted(network: Any, data: bytes, *arguments: Any, **options: Any) -> Any:
        looked.append(data)
        return extract_image(network, data, *arguments, **options)

    monkeypatch.setattr("superfeat.extraction.extract.extract_image", counted)
    with serving(made, read_only=True) as served:
        answer = served.search(photo(4)).json()
        asked = {"query": answer["query"]["query"], "found": answer["hits"][0]["id"]}
        assert served.client.get("/explain", params=asked).status_code == 200
        assert served.client.get("/explain/picture", params=asked).status_code == 200
        assert served.search(query=asked["query"], box="0,0,1,0.9").status_code == 200
        assert served.search(photo(4)).status_code == 200
    assert looked.count(photo(4)) == 1


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
        first = pool.submit(served.search, photo(0))
        assert blocked.entered.acquire(timeout=WAIT)
        with httpx.Client(base_url=served.url, trust_env=False, timeout=0.3) as hasty, pytest.raises(httpx.ReadTimeout):
            hasty.post("/search", files={"photo": photo(1)})
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
            pool.submit(served.search, photo(n % 4)) if n % 2 else pool.submit(served.search, name=f"{n % 5}.jpg")
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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_service_finishes_what_it_has_begun(index: Path, number: int) -> None:
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
        assert process.returncode == 0
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
        assert served.found(photo(78), top=1) == ["78.jpg"]


def test_the_load_test_still_runs(made: Path, tmp_path: Path) -> None:
    """benchmarks/service.py, small: what it checks holds; its timings are not looked at."""
    small = ["--searches", "24", "--clients", "4", "--images", "8", "--overload", "8"]
    service.main([*small, "--weights", str(made.parent / "network"), "--json", str(tmp_path / "out.json")])
    result = json.loads((tmp_path / "out.json").read_text())
    assert sum(one["count"] for one in result["latency_ms"].values()) == 24
    assert result["errors"] == result["writes"]["lost"] == 0
    assert result["overload"]["answered"] > 0


def test_pixels_alone_leave(reader: Served) -> None:
    """The one way out for photos is a decoder and an encoder."""
    assert photos_module.draw_jpeg(photo(1), 64) != photo(1)
    original = (reader.index.path.parent / "photos" / "1.jpg").read_bytes()
    assert reader.client.get(f"/images/{ids(reader)['1.jpg']}").content != original
