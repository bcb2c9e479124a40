"""The service shows photos that lie in archives and elsewhere as it shows files, and only those that were indexed."""

import io
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from PIL import Image

import superfeat.addresses.address as addresses
from fixtures_archives import pack, photo_bytes, tar_bytes
from fixtures_service import CONFIG, Served, error_of, serving
from superfeat.index.build import add_photos
from superfeat.index.index import Index
from superfeat.recent import Recent
from superfeat.sources.listing import list_photos
from superfeat.weights import load_network


@pytest.fixture
def packed(made: Path, tmp_path: Path) -> Iterator[tuple[Path, Path, Any]]:
    """The index with a photo that also lies in a tar and another one that also lies in a bucket: copies, by number."""
    index = Index.open(shutil.copytree(made, tmp_path / "index"))
    photos = made.parent / "photos"
    shard = pack(tmp_path / "0.tar", {"first.jpg": (photos / "0.jpg").read_bytes()})
    bucket = fsspec.filesystem("memory")
    bucket.pipe("/served/1.jpg", (photos / "1.jpg").read_bytes())
    listed = list_photos([shard, "memory://served"]).photos
    network = load_network(str(index.facts["weights"]))
    assert [one.outcome for one in add_photos(index, network, listed, CONFIG, workers=1)] == ["copied", "copied"]  # type: ignore[union-attr]
    yield index.path, shard, bucket
    bucket.rm("/served", recursive=True)


@pytest.fixture
def service(packed: tuple[Path, Path, Any]) -> Iterator[Served]:
    with serving(packed[0], files=True) as one:
        yield one


def test_they_are_shown_given_and_explained(service: Served, made: Path) -> None:
    for image, original in ((6, "0.jpg"), (7, "1.jpg")):
        full = service.client.get(f"/images/{image}/full").content
        with Image.open(io.BytesIO(full)) as shown:
            assert (shown.format, shown.size) == ("JPEG", (200, 150))
        assert service.client.get(f"/images/{image}/thumbnail").status_code == 200
        data = (made.parent / "photos" / original).read_bytes()
        answer = service.client.get(f"/images/{image}/file")
        assert (answer.content, answer.headers["content-length"]) == (data, str(len(data)))
        assert service.client.get(f"/explain/picture?image={image}&found=2").status_code == 200
        for action in ("open", "reveal"):
            assert error_of(service.client.post(f"/images/{image}/{action}")) == (410, "no_file")
    hits = {hit["id"]: hit for hit in service.search(image=0).json()["hits"]}
    assert hits[6]["copy_of"] == "0.jpg"
    assert not hits[6]["gone"]


def test_other_bytes_in_their_place_are_not_given(
    service: Served, packed: tuple[Path, Path, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, shard, bucket = packed
    monkeypatch.setattr(addresses, "_bytes", Recent(0))
    shard.write_bytes(tar_bytes({"first.jpg": photo_bytes(99)}))
    os.utime(shard, ns=(1, 1))
    bucket.pipe("/served/1.jpg", photo_bytes(99))
    for image in (6, 7):
        assert error_of(service.client.get(f"/images/{image}/file")) == (410, "file_changed")
        assert error_of(service.client.get(f"/images/{image}/full")) == (410, "file_changed")
    shard.unlink()
    bucket.pipe("/served/other.jpg", b"")
    bucket.rm("/served/1.jpg")
    for image in (6, 7):
        assert error_of(service.client.get(f"/images/{image}/file")) == (410, "file_gone")


def test_a_page_asks_a_bucket_once_for_each_picture(
    service: Served, packed: tuple[Path, Path, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = service.client.get("/images/7/thumbnail")
    monkeypatch.setattr(addresses.Address, "read_bytes", lambda _: pytest.fail("asks again"))
    assert service.client.get("/images/7/thumbnail").content == first.content
