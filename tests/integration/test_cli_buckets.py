"""Photos in a real S3 API on this machine: as in a folder; and reads that are slow, fail or end early."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from benchmarks.bucket_server import s3_server

import superfeat.addresses.address as addresses
from fixtures_archives import photo_bytes, tar_bytes, zip_bytes
from fixtures_buckets import Proxy, faulty_proxy
from fixtures_cli import run, run_json
from fixtures_recipe import network_with_words
from superfeat import Index
from superfeat.addresses.address import address_of
from superfeat.recent import Recent

pytest.importorskip("s3fs", reason="superfeat[buckets] is not installed")
pytest.importorskip("moto", reason="moto[server] is not installed")

SMALL = ("--set", "max_side=64", "--set", "scales=[1.0]")
PHOTOS = {f"{seed:03}.png": photo_bytes(seed) for seed in range(4)}
QUICKLY = {"retries": {"max_attempts": 0}}


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    with s3_server() as address:
        yield address


@pytest.fixture
def proxy(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """The way to the server, as the SDK is told of it: in the environment, and in fsspec's own settings."""
    with faulty_proxy(server) as between:
        monkeypatch.setenv("SUPERFEAT_CACHE", str(tmp_path / "cache"))
        monkeypatch.setenv("AWS_ENDPOINT_URL", between.address)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "an-access-key")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-secret-key")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        settings = {"config_kwargs": QUICKLY, "default_block_size": 1 << 20}
        monkeypatch.setitem(fsspec.config.conf, "s3", settings)
        monkeypatch.setattr("s3fs.S3FileSystem.retries", 1)
        monkeypatch.setattr("s3fs.S3FileSystem.read_timeout", 1)
        monkeypatch.setattr("superfeat.addresses.buckets.PAUSES", (0.01, 0.02, 0.04))
        for memory in ("_seen", "_directories", "_bytes", "_failed"):
            monkeypatch.setattr(addresses, memory, {} if memory == "_seen" else Recent(100, 1 << 20))
        yield between
        fsspec.filesystem("s3").clear_instance_cache()


@pytest.fixture
def bucket(proxy: Proxy) -> Iterator[Any]:
    system = fsspec.filesystem("s3", use_listings_cache=False)
    system.mkdir("bucket")
    yield system
    proxy.faults.clear()
    system.rm("bucket", recursive=True)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return network_with_words(tmp_path_factory.mktemp("network"))


@pytest.fixture
def index(network: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Runs `superfeat index ... -o i --json`."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: run_json(
        "index", *arguments, "-o", "i", *(() if Path("i").exists() else ("-w", network, *SMALL))
    )


def test_a_bucket_is_indexed_as_the_folder_of_its_photos_is(index: Callable[..., Any], bucket: Any) -> None:
    for name, data in PHOTOS.items():
        bucket.pipe(f"bucket/plain/{name}", data)
        Path("plain").mkdir(exist_ok=True)
        Path("plain", name).write_bytes(data)
    bucket.pipe("bucket/shards/0.tar", tar_bytes({name: PHOTOS[name] for name in ("000.png", "001.png")}))
    bucket.pipe("bucket/shards/1.zip", zip_bytes({name: PHOTOS[name] for name in ("002.png", "003.png")}))
    index("plain")
    plain = Index.open("i")
    expected = {name: plain.words_of(name).codes.tobytes() for name in plain.names()}
    assert index("s3://bucket/plain")["copied"] == 4
    Path("i").rename("first")
    assert index("s3://bucket/shards")["new"] == 4
    found = Index.open("i")
    assert {name[6:]: found.words_of(name).codes.tobytes() for name in found.names()} == expected
    assert sorted(found.names()) == ["0.tar/000.png", "0.tar/001.png", "1.zip/002.png", "1.zip/003.png"]
    again = run_json("search", "i", "s3://bucket/plain/002.png")
    assert again["results"][0]["itself"]["path"] == "s3://bucket/shards/1.zip/002.png"


def test_an_index_follows_a_bucket_by_its_etags(index: Callable[..., Any], bucket: Any, proxy: Proxy) -> None:
    for name, data in PHOTOS.items():
        bucket.pipe(f"bucket/p/{name}", data)
    index("s3://bucket/p")
    proxy.asked.clear()
    assert index("s3://bucket/p")["same"] == 4
    assert not any(path.endswith(".png") for path in proxy.asked), "nothing is read that has not changed"
    bucket.pipe("bucket/p/000.png", photo_bytes(10))
    bucket.rm("bucket/p/003.png")
    result = index("s3://bucket/p", "--sync")
    assert (result["replaced"], result["same"], result["dropped"]) == (1, 2, ["003.png"])


@pytest.mark.parametrize("fault", ["busy", "cut", "reset", "slow", "stalled"])
def test_reads_that_fail_for_a_while_lose_nothing(
    fault: str, index: Callable[..., Any], bucket: Any, proxy: Proxy
) -> None:
    bucket.pipe("bucket/p/a.png", PHOTOS["000.png"])
    bucket.pipe("bucket/p/0.tar", tar_bytes({"b.png": PHOTOS["001.png"]}))
    proxy.plan("p/a.png", [fault])
    proxy.plan("p/0.tar", [fault])
    result = index("s3://bucket/p")
    assert (result["new"], result["skipped"], result["unlisted"]) == (2, [], [])


@pytest.mark.parametrize("fault", ["busy", "cut", "reset"])
def test_what_fails_for_good_is_named_and_comes_in_later(
    fault: str, index: Callable[..., Any], bucket: Any, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, data in PHOTOS.items():
        bucket.pipe(f"bucket/p/{name}", data)
    index_before = ["000.png", "001.png", "003.png"]
    proxy.always("p/002.png", fault)
    result = index("s3://bucket/p", "--sync")
    assert [one["name"] for one in result["skipped"]] == ["002.png"]
    assert "tried 4 times" in result["skipped"][0]["reason"]
    assert sorted(Index.open("i").names()) == index_before
    proxy.faults.clear()
    monkeypatch.setattr(addresses, "FAILED_SECONDS", 0.0)
    result = index("s3://bucket/p", "--sync")
    assert (result["new"], result["same"], result["skipped"]) == (1, 3, [])


def test_extract_goes_on_with_what_was_out_of_reach(
    network: Path, bucket: Any, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, data in PHOTOS.items():
        bucket.pipe(f"bucket/p/{name}", data)
    proxy.always("p/002.png", "reset")
    command = ("extract", "s3://bucket/p", "-o", tmp_path / "f", "-w", network, *SMALL)
    first = run_json(*command)
    assert (first["new"], [one["name"] for one in first["skipped"]]) == (3, ["002.png"])
    proxy.faults.clear()
    monkeypatch.setattr(addresses, "FAILED_SECONDS", 0.0)
    second = run_json(*command)
    assert (second["new"], second["images"], second["skipped"], second["changed"]) == (1, 4, [], [])


def test_a_shard_that_cannot_be_read_is_named_and_nothing_of_it_is_dropped(
    index: Callable[..., Any], bucket: Any, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.pipe("bucket/p/0.tar", tar_bytes({"a.png": PHOTOS["000.png"]}))
    bucket.pipe("bucket/p/1.tar", tar_bytes({"b.png": PHOTOS["001.png"]}))
    index("s3://bucket/p")
    monkeypatch.setattr(addresses, "_directories", Recent(100))
    monkeypatch.setenv("SUPERFEAT_CACHE", "empty")
    proxy.always("p/1.tar", "cut")
    result = run("index", "s3://bucket/p", "-o", "i", "--sync", "--json")
    assert result.exit_code == 1
    assert '"name": "1.tar"' in result.stdout
    assert sorted(Index.open("i").names()) == ["0.tar/a.png", "1.tar/b.png"]


def test_a_shard_that_has_not_changed_is_not_read_again(
    index: Callable[..., Any], bucket: Any, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.pipe("bucket/p/0.tar", tar_bytes(PHOTOS))
    bucket.pipe("bucket/p/1.tar", tar_bytes({"b.png": photo_bytes(5)}))
    index("s3://bucket/p")
    bucket.pipe("bucket/p/1.tar", tar_bytes({"c.png": photo_bytes(6)}))
    monkeypatch.setattr(addresses, "_directories", Recent(100))  # as in another process
    proxy.asked.clear()
    result = index("s3://bucket/p", "--sync")
    assert (result["same"], result["new"], result["dropped"]) == (4, 1, ["1.tar/b.png"])
    assert [path for path in proxy.asked if path.endswith("0.tar")] == []


def test_a_server_that_is_not_there_drops_nothing(index: Callable[..., Any], bucket: Any, proxy: Proxy) -> None:
    bucket.pipe("bucket/p/a.png", PHOTOS["000.png"])
    index("s3://bucket/p")
    proxy.always("", "reset")
    result = run("index", "s3://bucket/p", "-o", "i", "--sync")
    assert result.exit_code == 1
    assert "cannot list s3://bucket/p" in result.stderr
    assert len(Index.open("i")) == 1


def test_keys_are_neither_told_nor_stored(index: Callable[..., Any], bucket: Any, proxy: Proxy) -> None:
    bucket.pipe("bucket/p/a.png", PHOTOS["000.png"])
    bucket.pipe("bucket/p/b.png", PHOTOS["001.png"])
    proxy.always("p/b.png", "busy")
    told = str(index("s3://bucket/p"))
    told += run("--debug", "index", "s3://bucket/gone", "-o", "i").output
    stored = [path.read_bytes() for path in Path("i").rglob("*") if path.is_file()]
    for secret in ("an-access-key", "a-secret-key"):
        assert secret not in told
        assert not any(secret.encode() in data for data in stored)


def test_a_member_is_read_by_its_range_alone(bucket: Any, proxy: Proxy, index: Callable[..., Any]) -> None:
    bucket.pipe("bucket/0.zip", zip_bytes(PHOTOS))
    assert address_of("s3://bucket/0.zip/003.png").read_bytes() == PHOTOS["003.png"]
    proxy.asked.clear()
    assert address_of("s3://bucket/0.zip/001.png").read_bytes() == PHOTOS["001.png"]
    assert sum(proxy.asked.values()) == 1
