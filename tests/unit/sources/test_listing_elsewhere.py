"""Archives and addresses among the sources of photos."""

from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from fixtures_archives import pack, tar_bytes, zip_bytes
from superfeat.addresses.address import Address
from superfeat.errors import ImageError
from superfeat.images import Photo
from superfeat.sources.listing import holds_photos, list_photos, nothing_there
from superfeat.sources.reasons import (
    EXCLUDED_BY_PATTERN,
    HIDDEN,
    LISTED_ELSEWHERE,
    NAMED_AS_ARCHIVE,
    NESTED,
    NO_PHOTO,
    PACKED,
)

SHARD = {"000.jpg": b"0", "000.json": b"{}", "000.txt": b"words", "001.jpg": b"1"}  # as img2dataset writes it


def names(*sources: str | Path) -> list[str]:
    return [photo.name for photo in list_photos(sources).photos]


@pytest.fixture
def bucket() -> Iterator[str]:
    """Objects in memory: photos, a shard, a zip, a list."""
    system = fsspec.filesystem("memory")
    system.pipe("/bucket/photos/a.jpg", b"a")
    system.pipe("/bucket/photos/more/b.jpg", b"b")
    system.pipe("/bucket/photos/more/.hidden/c.jpg", b"c")
    system.pipe("/bucket/photos/shard.tar", tar_bytes(SHARD))
    system.pipe("/bucket/photos/some.zip", zip_bytes({"x/y.png": b"y"}))
    yield "memory://bucket/photos"
    system.rm("/bucket", recursive=True)


def test_archives_in_a_folder_are_like_folders(tmp_path: Path) -> None:
    pack(tmp_path / "sub" / "shard.tar", SHARD)
    pack(
        tmp_path / "some.zip", {"x/y.png": b"1", "inner.tar": b"", "__MACOSX/y.png": b"", ".z/a.png": b"", "z.tgz": b""}
    )
    (tmp_path / "whole.tar.gz").write_bytes(b"x")
    listing = list_photos([tmp_path])
    assert [photo.name for photo in listing.photos] == [
        "some.zip/x/y.png",
        "sub/shard.tar/000.jpg",
        "sub/shard.tar/001.jpg",
    ]
    assert listing.photos[0] == Photo(Address(str(tmp_path / "some.zip"), "x/y.png"), "some.zip/x/y.png")
    assert listing.photos[0].where.read_bytes() == b"1"
    assert listing.left_out == [
        ("some.zip/.z/a.png", HIDDEN),
        ("some.zip/__MACOSX/y.png", EXCLUDED_BY_PATTERN),
        ("some.zip/inner.tar", NESTED),
        ("some.zip/z.tgz", NESTED),
        ("sub/shard.tar/000.json", NO_PHOTO),
        ("sub/shard.tar/000.txt", NO_PHOTO),
        ("whole.tar.gz", PACKED),
    ]


def test_names_of_members_do_not_depend_on_how_the_archive_is_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack(tmp_path / "shard.tar", SHARD)
    (tmp_path / "list.txt").write_text("shard.tar\n")
    (tmp_path / "members.txt").write_text("shard.tar/000.jpg\nshard.tar/001.jpg\n")
    monkeypatch.chdir(tmp_path)
    expected = ["shard.tar/000.jpg", "shard.tar/001.jpg"]
    for source in (tmp_path, tmp_path / "shard.tar", "shard.tar", "list.txt", "members.txt", "*.tar"):
        assert names(source) == expected, source
    assert names("shard.tar/001.jpg") == expected[1:]
    assert names("shard.tar", "list.txt") == expected, "each photo once"


def test_two_shards_of_one_name(tmp_path: Path) -> None:
    pack(tmp_path / "a" / "shard.tar", {"0.jpg": b"0"})
    pack(tmp_path / "b" / "shard.tar", {"0.jpg": b"0"})
    assert names(tmp_path / "a" / "shard.tar", tmp_path / "b" / "shard.tar") == ["shard.tar/0.jpg", "b/shard.tar/0.jpg"]


def test_archives_are_excluded_like_folders(tmp_path: Path) -> None:
    pack(tmp_path / "shard.tar", {"private/0.jpg": b"0", "1.jpg": b"1"})
    pack(tmp_path / "old.tar", SHARD)
    listing = list_photos([tmp_path], exclude=["old*", "private"])
    assert [photo.name for photo in listing.photos] == ["shard.tar/1.jpg"]
    assert listing.left_out == [("old.tar", EXCLUDED_BY_PATTERN), ("shard.tar/private/0.jpg", EXCLUDED_BY_PATTERN)]


def test_an_archive_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.zip").write_bytes(b"no zip")
    (tmp_path / "cut.tar").write_bytes(tar_bytes({"0.jpg": b"0", "1.jpg": b"1"})[:1200])
    listing = list_photos([tmp_path])
    assert [photo.name for photo in listing.photos] == ["cut.tar/0.jpg"]
    assert [one.name for one in listing.unlisted] == ["bad.zip", "cut.tar"]
    assert all("damaged" in one.reason for one in listing.unlisted)


def test_a_folder_that_is_called_as_an_archive(tmp_path: Path) -> None:
    (tmp_path / "odd.tar").mkdir()
    (tmp_path / "odd.tar" / "a.jpg").write_bytes(b"x")
    assert list_photos([tmp_path]).photos == [Photo(tmp_path / "odd.tar" / "a.jpg", "odd.tar/a.jpg")]
    assert names(tmp_path / "odd.tar") == ["a.jpg"]


def test_a_packed_archive_by_itself(tmp_path: Path) -> None:
    (tmp_path / "a.tar.gz").write_bytes(b"x")
    with pytest.raises(ImageError, match=r"a.tar.gz is compressed as a whole.*make it a .tar"):
        list_photos([tmp_path / "a.tar.gz"])


def test_a_prefix_is_like_a_folder(bucket: str) -> None:
    listing = list_photos([bucket])
    assert [photo.name for photo in listing.photos] == [
        "a.jpg",
        "more/b.jpg",
        "shard.tar/000.jpg",
        "shard.tar/001.jpg",
        "some.zip/x/y.png",
    ]
    assert ("more/.hidden/c.jpg", HIDDEN) in listing.left_out
    assert [photo.where.read_bytes() for photo in listing.photos] == [b"a", b"b", b"0", b"1", b"y"]
    assert str(listing.photos[2].where) == f"{bucket}/shard.tar/000.jpg"


def test_single_objects_archives_patterns_and_lists_elsewhere(bucket: str) -> None:
    fsspec.filesystem("memory").pipe(
        "/bucket/list.txt",
        f"photos/a.jpg\nphotos/shard.tar\n{bucket}/some.zip/x/y.png\n/etc/x.jpg\nfile:///x.jpg".encode(),
    )
    assert names(f"{bucket}/a.jpg") == [f"{bucket}/a.jpg"]
    assert names(f"{bucket}/shard.tar") == ["shard.tar/000.jpg", "shard.tar/001.jpg"]
    assert names(f"{bucket}/shard.tar/001.jpg") == [f"{bucket}/shard.tar/001.jpg"]
    assert names(f"{bucket}/*/*.jpg") == ["more/b.jpg"]
    listing = list_photos(["memory://bucket/list.txt"])
    expected = ["photos/a.jpg", "photos/shard.tar/000.jpg", "photos/shard.tar/001.jpg", f"{bucket}/some.zip/x/y.png"]
    assert [photo.name for photo in listing.photos] == expected
    assert [(one.name, one.reason) for one in listing.left_out[-2:]] == [
        ("/etc/x.jpg", LISTED_ELSEWHERE),
        ("file:///x.jpg", LISTED_ELSEWHERE),
    ]


def test_a_prefix_with_brackets_in_its_name(bucket: str) -> None:
    fsspec.filesystem("memory").pipe("/bucket/[2024] summer/a.jpg", b"a")
    assert names("memory://bucket/[2024] summer") == ["a.jpg"]


def test_a_list_here_of_what_lies_elsewhere(bucket: str, tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"here")
    (tmp_path / "list.txt").write_text(f"a.jpg\n{bucket}/a.jpg\n{bucket}/shard.tar\n{bucket}/gone.jpg\n")
    listing = list_photos([tmp_path / "list.txt"])
    assert [photo.name for photo in listing.photos] == [
        "a.jpg",
        f"{bucket}/a.jpg",
        f"{bucket}/shard.tar/000.jpg",
        f"{bucket}/shard.tar/001.jpg",
        f"{bucket}/gone.jpg",
    ]
    assert [photo.where.exists() for photo in listing.photos] == [True, True, True, True, False]


def test_several_sources_keep_their_names_apart(bucket: str, tmp_path: Path) -> None:
    pack(tmp_path / "shard.tar", SHARD)
    found = names(bucket, tmp_path / "shard.tar")
    assert found[0] == f"{bucket}/a.jpg"
    assert found[-1] == "shard.tar/001.jpg"


def test_an_object_below_one_that_is_called_as_an_archive(bucket: str) -> None:
    fsspec.filesystem("memory").pipe("/bucket/photos/odd.tar/a.jpg", b"x")
    assert ("odd.tar/a.jpg", NAMED_AS_ARCHIVE) in list_photos([bucket]).left_out


def test_what_is_not_there_and_what_nobody_reads(bucket: str) -> None:
    with pytest.raises(ImageError, match="cannot list memory://bucket/none: no such object"):
        list_photos(["memory://bucket/none"])
    with pytest.raises(ImageError, match="nobody knows how to read nowhere:// addresses"):
        list_photos(["nowhere://bucket/none"])
    assert "word" not in nothing_there(["https://me:word@host.example/x"], list_photos([f"{bucket}/none*.jpg"]))


def test_which_sources_hold_photos(bucket: str, tmp_path: Path) -> None:
    pack(tmp_path / "a.tar", {})
    assert all(map(holds_photos, [str(tmp_path), f"{tmp_path}/a.tar", bucket, f"{bucket}/shard.tar"]))
    assert not any(map(holds_photos, [f"{tmp_path}/b.tar", f"{bucket}/*.jpg", "s3://b/list.txt", "https://h/a.jpg"]))
