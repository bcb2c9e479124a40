"""Photos in archives and elsewhere, through the command line: indexed, kept in step, found, explained."""

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from fixtures_archives import pack, photo_bytes, tar_bytes, zip_bytes
from fixtures_cli import assert_refused, run, run_json
from fixtures_recipe import network_with_words
from superfeat import Index

SMALL = ("--set", "max_side=64", "--set", "scales=[1.0]")
PHOTOS = {f"{seed:03}.png": photo_bytes(seed) for seed in range(4)}
SHARD = {name: data for key, photo in PHOTOS.items() for name, data in ((key, photo), (f"{key[:3]}.json", b"{}"))}


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return network_with_words(tmp_path_factory.mktemp("network"))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def index(network: Path, here: Path) -> Callable[..., Any]:
    """Runs `superfeat index ... -o i --json`."""
    return lambda *arguments: run_json(
        "index", *arguments, "-o", "i", *(() if Path("i").exists() else ("-w", network, *SMALL))
    )


@pytest.fixture
def bucket() -> Iterator[Any]:
    """A file system in memory, with a bucket that is empty again afterwards."""
    system = fsspec.filesystem("memory")
    yield system
    if system.exists("/bucket"):
        system.rm("/bucket", recursive=True)


def words(path: str = "i") -> dict[str, bytes]:
    """What the index holds of each photo, by the last part of its name."""
    index = Index.open(path)
    return {name.rpartition("/")[2]: index.words_of(name).codes.tobytes() for name in index.names()}


def counts(result: Any) -> tuple[int, ...]:
    return tuple(result[kind] for kind in ("new", "replaced", "moved", "copied", "same"))


def test_shards_are_indexed_as_the_folder_of_their_photos_is(
    index: Callable[..., Any], network: Path, bucket: Any
) -> None:
    """The same words and codes, whether photos lie in a folder, a tar, a zip, or any of these in a bucket."""
    Path("plain").mkdir()
    for name, data in PHOTOS.items():
        Path("plain", name).write_bytes(data)
    index("plain")
    expected = words()
    for name, data in PHOTOS.items():
        bucket.pipe(f"/bucket/plain/{name}", data)
    bucket.pipe("/bucket/shards/00000.tar", tar_bytes(SHARD))
    pack(Path("shards/00000.tar"), SHARD)
    pack(Path("some.zip"), PHOTOS)
    for source in ("shards", "some.zip", "memory://bucket/plain", "memory://bucket/shards"):
        shutil.rmtree("i")
        assert counts(index(source)) == (4, 0, 0, 0, 0), source
        assert counts(index(source)) == (0, 0, 0, 0, 4), source
        assert words() == expected, source
    assert sorted(Index.open("i").names()) == [f"00000.tar/{name}" for name in PHOTOS]


def test_an_index_follows_a_shard(index: Callable[..., Any]) -> None:
    shard = Path("shards/00000.tar")
    pack(shard, PHOTOS)
    index("shards")
    changed = {**PHOTOS, "001.png": photo_bytes(11), "009.png": photo_bytes(9)}
    del changed["003.png"]
    pack(shard, changed)
    os.utime(shard, ns=(1, 1))
    without = index("shards")
    assert counts(without) == (1, 1, 0, 0, 2)
    assert without["gone"] == ["00000.tar/003.png"]
    assert index("shards", "--sync")["dropped"] == ["00000.tar/003.png"]
    shutil.copy(shard, "shards/00001.tar")
    assert index("shards")["copied"] == 4
    shard.unlink()
    assert len(index("shards", "--sync")["dropped"]) == 4


def test_photos_that_were_packed_are_moved_not_extracted_again(index: Callable[..., Any]) -> None:
    Path("photos").mkdir()
    for name, data in PHOTOS.items():
        Path("photos", name).write_bytes(data)
    index("photos")
    before = Index.open("i").snapshot().ids().tolist()
    for path in list(Path("photos").iterdir()):
        path.unlink()
    pack(Path("photos/all.zip"), PHOTOS)
    assert counts(index("photos", "--sync")) == (0, 0, 4, 0, 0)
    assert Index.open("i").snapshot().ids().tolist() == before


def test_nothing_is_dropped_from_an_archive_that_cannot_be_read_whole(index: Callable[..., Any]) -> None:
    data = tar_bytes(PHOTOS)
    Path("shards").mkdir()
    Path("shards/0.tar").write_bytes(data)
    index("shards")
    Path("shards/0.tar").write_bytes(data[: len(data) // 2])
    result = run("index", "shards", "-o", "i", "--sync", "--json")
    assert result.exit_code == 1
    assert result.stdout, result.stderr
    told = json.loads(result.stdout)
    assert told["dropped"] == told["gone"] == []
    assert told["unlisted"][0]["name"] == "0.tar"
    assert len(Index.open("i")) == 4


def test_an_index_follows_a_bucket(index: Callable[..., Any], bucket: Any) -> None:
    bucket.pipe("/bucket/p/a.png", photo_bytes(1))
    bucket.pipe("/bucket/p/b.png", photo_bytes(2))
    index("memory://bucket/p")
    bucket.pipe("/bucket/p/a.png", photo_bytes(3))
    bucket.rm("/bucket/p/b.png")
    bucket.pipe("/bucket/p/c.png", photo_bytes(4))
    result = index("memory://bucket/p", "--sync")
    assert (counts(result), result["dropped"]) == ((1, 1, 0, 0, 0), ["b.png"])
    bucket.pipe("/bucket/other.png", photo_bytes(5))
    bucket.rm("/bucket/p", recursive=True)
    assert sorted(index("memory://bucket/p", "--sync")["dropped"]) == ["a.png", "c.png"]


def test_nothing_is_dropped_when_the_bucket_itself_is_not_there(index: Callable[..., Any], bucket: Any) -> None:
    bucket.pipe("/bucket/p/a.png", photo_bytes(1))
    index("memory://bucket/p")
    bucket.rm("/bucket", recursive=True)
    result = index("memory://bucket/p", "--sync")
    assert result["dropped"] == []
    assert result["unsure"] == [{"name": "a.png", "reason": "memory://bucket is not connected"}]


def test_extract_reads_shards_too(network: Path, here: Path) -> None:
    pack(Path("0.tar"), SHARD)
    command = ("extract", "0.tar", "-o", "f", "-w", network, *SMALL)
    assert (run_json(*command)["images"], run_json(*command)["new"]) == (4, 0)


def test_what_is_wrong_with_an_archive_is_said_and_the_rest_is_indexed(index: Callable[..., Any]) -> None:
    pack(Path("0.tar"), {"../out.png": b"x", "no.png": b"no photo", "good.png": PHOTOS["000.png"], "in.zip": b""})
    result = index("0.tar")
    assert result["images"] == 1
    assert [one["name"] for one in result["skipped"]] == ["0.tar/no.png"]
    assert {one["name"] for one in result["left_out"]} == {"0.tar/../out.png", "0.tar/in.zip"}


def test_found_and_explained_where_they_are(index: Callable[..., Any]) -> None:
    pack(Path("0.zip"), PHOTOS)
    index("0.zip")
    found = run_json("search", "i", "0.zip/001.png", "--top", 2, "--html", "page.html")
    hits = found["results"][0]["hits"]
    assert [hit["gone"] for hit in hits] == [False, False]
    page = Path("page.html").read_text(encoding="utf-8")
    assert page.count("data:image/jpeg") >= 3
    assert "file://" not in page
    assert run("explain", "i", "0.zip/001.png", "0.zip/002.png", "-o", "why.png").exit_code == 0
    assert run("search", "i", str(Path("0.zip/003.png").absolute())).exit_code == 0
    matched = run_json("search", "i", "0.zip/001.png", "--verify", "matcher")["results"][0]["hits"]
    assert all(hit["matched"] is not None for hit in matched), "a second look reads them too"
    Path("0.zip").unlink()
    gone = run("search", "i", "0.zip/001.png")
    assert "no longer there" in gone.stdout


def test_a_secret_is_neither_told_nor_stored(index: Callable[..., Any], network: Path, bucket: Any) -> None:
    bucket.pipe("/bucket/p/a.png", photo_bytes(1))
    bucket.pipe("/bucket/p/bad.png", b"no photo")
    bucket.pipe("/bucket/p/s.zip", zip_bytes({"b.png": photo_bytes(2)}))
    given = "memory://me:pass-word@bucket/p"
    told = json.dumps(index(given))
    Path("list.txt").write_text(f"{given}/a.png?X-Amz-Signature=sign-ed\n{given}/gone.png?sig=sign-ed\n")
    for source in ("list.txt", "memory://me:pass-word@bucket/none"):
        result = run("index", source, "-o", "i", "--sync")
        told += result.output + result.stderr
    told += run("search", "i", f"{given}/a.png?X-Amz-Signature=sign-ed", "--html", "page.html").output
    told += run("extract", "list.txt", "-o", "features", "-w", network, *SMALL, "--verbose").output
    assert "memory://bucket/none" in told
    written = [*Path("i").rglob("*"), *Path("features").rglob("*"), Path("page.html")]
    stored = [path.read_bytes() for path in written if path.is_file()]
    for secret in ("pass-word", "sign-ed"):
        assert secret not in told
        assert not any(secret.encode() in data for data in stored)


def test_what_to_install_is_said_in_one_line(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    monkeypatch.delitem(sys.modules["fsspec.registry"]._registry, "s3", raising=False)
    result = run("index", "s3://bucket/photos", "-o", "i")
    assert_refused(result, "reading s3:// addresses needs an optional part: pip install 'superfeat[buckets]'")
