"""The files of photos themselves: only of a service that was started to give them, and only those that were indexed."""

import io
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from fixtures_service import Served, error_of, serving


@pytest.fixture(scope="module")
def near(made: Path) -> Iterator[Served]:
    with serving(made, read_only=True, files=True) as service:
        yield service


def test_without_the_flag_nobody_gets_a_file_or_learns_where_it_lies(reader: Served, made: Path) -> None:
    assert reader.client.get("/info").json()["files"] is False
    assert error_of(reader.client.get("/images/0/file")) == (403, "no_files")
    for action in ("open", "reveal"):
        assert error_of(reader.client.post(f"/images/0/{action}")) == (403, "no_files")
    answers = [reader.search(image=0), reader.client.get("/images"), reader.client.get("/explain?image=0&found=1")]
    assert all(str(made.parent) not in answer.text for answer in answers)


def test_the_file_itself(near: Served) -> None:
    assert near.client.get("/info").json()["files"] is True
    listed = near.client.get("/images").json()["photos"][0]
    found = near.search(image=1).json()
    assert found["query"]["itself"]["path"] == near.index.meta(["1.jpg"])["1.jpg"]["path"]
    assert listed["path"] in {hit["path"] for hit in found["hits"]}
    answer = near.client.get(f"/images/{listed['id']}/file")
    assert answer.content == Path(listed["path"]).read_bytes()
    assert answer.headers["content-type"] == "image/jpeg"
    assert answer.headers["content-disposition"] == f"inline; filename*=UTF-8''{Path(listed['path']).name}"
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_full_size_is_drawn_anew(reader: Served) -> None:
    data = reader.client.get("/images/0/full").content
    with Image.open(io.BytesIO(data)) as image:
        assert (image.format, image.size) == ("JPEG", (200, 150))
        assert not image.getexif()
    assert data != Path(reader.index.meta(["0.jpg"])["0.jpg"]["path"]).read_bytes()


def test_another_page_cannot_make_a_browser_open_files(near: Served) -> None:
    for header in ({"Origin": "http://elsewhere.example"}, {"Sec-Fetch-Site": "cross-site"}):
        assert error_of(near.client.post("/images/0/open", headers=header)) == (403, "wrong_origin")
    assert error_of(near.client.get("/images/0/file", headers={"Host": "elsewhere.example"})) == (403, "wrong_host")


def test_a_file_that_is_another_one_now_is_not_given(made: Path, tmp_path: Path) -> None:
    from superfeat.index.index import Index

    index = Index.open(shutil.copytree(made, tmp_path / "index"))
    path = Path(index.meta(["0.jpg"])["0.jpg"]["path"])
    with serving(index.path, files=True) as service:
        before = path.stat()
        try:
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
            assert error_of(service.client.get("/images/0/file")) == (410, "file_changed")
            assert error_of(service.client.post("/images/0/open")) == (410, "file_changed")
        finally:
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_machine_without_a_desktop_says_so(near: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert error_of(near.client.post("/images/0/reveal")) == (501, "no_desktop")
