"""Members of archives are read where they are; what is wrong with one is said, and the rest is read."""

import io
import struct
import tarfile
import zipfile
from collections.abc import Callable, Mapping

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

import superfeat.addresses.archives as archives
from fixtures_archives import add_member, tar_bytes, zip_bytes
from superfeat.addresses.archives import (
    LATER,
    LEADS_OUT,
    LINK,
    LOCKED,
    NO_FILE,
    NO_METHOD,
    TOO_LARGE,
    ArchiveDirectory,
    read_directory,
    read_member,
)

PACKERS = {"a.tar": tar_bytes, "a.zip": zip_bytes}
NAMES = st.text("ab/.é \n", min_size=1, max_size=8).filter(
    lambda name: all(part.strip(".") for part in name.split("/"))
)


def reader(data: bytes) -> Callable[[int, int], bytes]:
    return lambda start, length: data[start : start + length]


def directory(data: bytes, name: str = "a.tar", mark: int = 0) -> ArchiveDirectory:
    return read_directory(name, reader(data), (len(data), mark))


def contents(data: bytes, name: str = "a.tar") -> dict[str, bytes]:
    return {key: read_member(member, reader(data)) for key, member in directory(data, name).members.items()}


@settings(max_examples=30, deadline=None)
@given(members=st.dictionaries(NAMES, st.binary(max_size=2000), max_size=5), kind=st.sampled_from(sorted(PACKERS)))
def test_every_member_comes_back(members: Mapping[str, bytes], kind: str) -> None:
    assert contents(PACKERS[kind](members), kind) == dict(members)


@settings(max_examples=40, deadline=None)
@given(data=st.data(), kind=st.sampled_from(sorted(PACKERS)))
def test_a_cut_archive_loses_nothing_silently(data: st.DataObject, kind: str) -> None:
    """Whatever is still whole is read; if anything is not there, that is said."""
    members = {f"{number}.jpg": bytes([number]) * 700 for number in range(4)}
    whole = PACKERS[kind](members)
    cut = whole[: data.draw(st.integers(1, len(whole) - 1))]
    found = directory(cut, kind)
    read: dict[str, bytes] = {}
    for name, member in found.members.items():
        try:
            read[name] = read_member(member, reader(cut))
        except OSError:
            continue
    assert all(members[name] == content for name, content in read.items())
    assert read == members or found.damage is not None or len(found.members) == len(members)


def test_a_broken_header_in_the_middle_is_no_end() -> None:
    data = bytearray(tar_bytes({"a.jpg": b"1", "b.jpg": b"2", "c.jpg": b"3"}))
    data[1024 + 150] ^= 1  # in the checksum of the second
    found = directory(bytes(data))
    assert list(found.members) == ["a.jpg"]
    assert found.damage == "the archive is damaged: what follows byte 1024 is no member"


@pytest.mark.parametrize("name", PACKERS)
@pytest.mark.parametrize("data", [b"", b"no archive", bytes(512)[:-1] + b"x"])
def test_what_is_no_archive(name: str, data: bytes) -> None:
    found = directory(data, name)
    assert not found.members
    assert str(found.damage).startswith("the archive is damaged: ")


def test_links_and_devices_of_a_tar() -> None:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for name, kind in [("s.jpg", tarfile.SYMTYPE), ("h.jpg", tarfile.LNKTYPE), ("p.jpg", tarfile.FIFOTYPE)]:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "/etc/passwd"
            tar.addfile(info)
        add_member(tar, "good.jpg", b"1")
    found = directory(file.getvalue())
    assert found.refused == [("s.jpg", LINK), ("h.jpg", LINK), ("p.jpg", NO_FILE)]
    assert list(found.members) == ["good.jpg"]


@pytest.mark.parametrize("kind", PACKERS)
def test_names_that_lead_out(kind: str) -> None:
    bad = ["/etc/a.jpg", "../a.jpg", "x/../../a.jpg", "x\\..\\a.jpg"]
    found = directory(PACKERS[kind]({**dict.fromkeys(bad, b"1"), "./x/good..jpg": b"2"}), kind)
    assert [one.reason for one in found.refused] == [LEADS_OUT] * len(bad)
    assert list(found.members) == ["x/good..jpg"]


def test_a_link_an_encrypted_and_a_strangely_packed_member_of_a_zip() -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        link = zipfile.ZipInfo("link.jpg")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
        archive.writestr("locked.jpg", b"1")
        archive.writestr("strange.jpg", b"1", zipfile.ZIP_BZIP2)
        archive.writestr("good.jpg", b"1")
    data = bytearray(file.getvalue())
    entry = data.index(b"PK\1\2", data.index(b"PK\1\2") + 4)
    data[entry + 8] |= 1  # the flag of encryption
    assert directory(bytes(data), "a.zip").refused == [
        ("link.jpg", LINK),
        ("locked.jpg", LOCKED),
        ("strange.jpg", NO_METHOD),
    ]
    assert contents(bytes(data), "a.zip") == {"good.jpg": b"1"}


@pytest.mark.parametrize("kind", PACKERS)
def test_a_member_that_no_photo_can_be(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "LARGEST_PHOTO", 1 << 20)
    found = directory(PACKERS[kind]({"bomb.png": bytes(1 + (1 << 20)), "a.png": bytes(1 << 20)}), kind)
    assert found.refused == [("bomb.png", TOO_LARGE)]
    assert list(found.members) == ["a.png"]


def test_a_zip_that_lies_of_its_sizes_unpacks_no_more_than_it_says() -> None:
    data = bytearray(zip_bytes({"a.png": bytes(1 << 20)}))
    entry = data.index(b"PK\1\2")
    data[entry + 24 : entry + 28] = struct.pack("<I", 100)  # the size that it has unpacked
    found = directory(bytes(data), "a.zip")
    with pytest.raises(OSError, match="damaged in its archive: Bad CRC-32"):
        read_member(found.members["a.png"], reader(bytes(data)))


def test_a_header_that_claims_to_be_larger_than_any_photo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "LARGEST_PHOTO", 1 << 10)
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
        add_member(tar, 5000 * "é", b"1")
    assert "a header of" in str(directory(file.getvalue()).damage)


@pytest.mark.parametrize("kind", PACKERS)
def test_of_two_members_of_one_name_the_later_counts(kind: str) -> None:
    file = io.BytesIO()
    if kind == "a.tar":
        with tarfile.open(fileobj=file, mode="w") as tar:
            add_member(tar, "a.jpg", b"1")
            add_member(tar, "a.jpg", b"2")
    else:
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("a.jpg", b"1")
        with zipfile.ZipFile(file, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("a.jpg", b"2")
    assert directory(file.getvalue(), kind).refused == [("a.jpg", LATER)]
    assert contents(file.getvalue(), kind) == {"a.jpg": b"2"}


def test_changes_are_noticed() -> None:
    """A tar says nothing of its bytes, so that all of one that was rewritten may have changed; a zip has checksums."""
    before, after = tar_bytes({"a.jpg": b"1"}), tar_bytes({"a.jpg": b"2"})
    assert directory(before, mark=1).members["a.jpg"].stamp != directory(after, mark=2).members["a.jpg"].stamp
    before, after = zip_bytes({"a.jpg": b"1"}), zip_bytes({"a.jpg": b"2"})
    assert directory(before, "a.zip").members["a.jpg"].stamp != directory(after, "a.zip").members["a.jpg"].stamp
    more = zip_bytes({"0.jpg": b"0", "a.jpg": b"1"})
    assert directory(before, "a.zip", 1).members["a.jpg"].stamp == directory(more, "a.zip", 2).members["a.jpg"].stamp


def test_few_reads_find_all_members() -> None:
    data = tar_bytes({f"{number}.jpg": bytes(3000) for number in range(300)})
    ranges: list[int] = []

    def read(start: int, length: int) -> bytes:
        ranges.append(length)
        return data[start : start + length]

    assert len(read_directory("a.tar", read, (len(data), 0)).members) == 300
    assert len(ranges) <= 3
