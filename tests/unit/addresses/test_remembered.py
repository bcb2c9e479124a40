"""What is in archives elsewhere is found out once."""

from pathlib import Path

import fsspec
import pytest

import superfeat.addresses.address as addresses
from fixtures_archives import tar_bytes, zip_bytes
from superfeat.addresses.address import address_of, directory_of
from superfeat.addresses.remembered import recall
from superfeat.recent import Recent


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SUPERFEAT_CACHE", str(tmp_path / "cache"))
    forget(monkeypatch)
    return tmp_path / "cache" / "archives"


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """As another process would begin."""
    monkeypatch.setattr(addresses, "_directories", Recent(8))
    monkeypatch.setattr(addresses, "_seen", {})


def test_a_directory_comes_back_as_it_was(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsspec.filesystem("memory").pipe("/kept/a.tar", tar_bytes({"é.png": b"1", "../b.png": b"2"}))
    first = directory_of("memory://kept/a.tar")
    forget(monkeypatch)
    monkeypatch.setattr(addresses, "read_directory", lambda *_: pytest.fail("reads it again"))
    assert directory_of("memory://kept/a.tar") == first
    assert address_of("memory://kept/a.tar/é.png").read_bytes() == b"1"


def test_one_that_has_changed_is_read_and_takes_its_place(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system = fsspec.filesystem("memory")
    for content in (b"1", b"2"):
        system.pipe("/kept/b.tar", tar_bytes({"a.png": content}))
        forget(monkeypatch)
        assert address_of("memory://kept/b.tar/a.png").read_bytes() == content
    assert len(list(cache.iterdir())) == 1


def test_what_is_damaged_or_cannot_be_written_is_done_without(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsspec.filesystem("memory").pipe("/kept/c.tar", tar_bytes({"a.png": b"1"}))
    found = directory_of("memory://kept/c.tar")
    (file,) = cache.iterdir()
    for damaged in (file.read_bytes()[:-9], b"", b"no gzip"):
        file.write_bytes(damaged)
        assert recall("memory://kept/c.tar", found.members["a.png"].archive) is None
    monkeypatch.setenv("SUPERFEAT_CACHE", str(file))  # no folder can be below it
    forget(monkeypatch)
    assert directory_of("memory://kept/c.tar") == found


def test_nothing_is_kept_of_zips_of_files_here_and_of_damaged_ones(cache: Path, tmp_path: Path) -> None:
    system = fsspec.filesystem("memory")
    system.pipe("/kept/d.zip", zip_bytes({"a.png": b"1"}))
    system.pipe("/kept/e.tar", tar_bytes({"a.png": b"1"})[:700])
    (tmp_path / "f.tar").write_bytes(tar_bytes({"a.png": b"1"}))
    for archive in ("memory://kept/d.zip", "memory://kept/e.tar", str(tmp_path / "f.tar")):
        directory_of(archive)
    assert not cache.exists()
