"""Where photos lie, and that all of them open alike."""

import os
from pathlib import Path

import fsspec
import pytest

import superfeat.addresses.address as addresses
from fixtures_archives import pack, photo_bytes, tar_bytes
from superfeat.addresses.address import Address, address_of, seems_gone
from superfeat.errors import ImageError
from superfeat.extraction.folder import photo_stamp
from superfeat.images import Photo, read_header, read_image, stored_size
from superfeat.sources.listing import list_photos


def test_what_a_text_names(tmp_path: Path) -> None:
    pack(tmp_path / "a.tar", {"x/0.jpg": b"0"})
    (tmp_path / "folder.tar").mkdir()
    assert address_of("photos/a.jpg") == Path("photos/a.jpg")
    assert address_of("file:///photos/a.jpg") == Path("/photos/a.jpg")
    assert address_of(tmp_path / "a.tar") == tmp_path / "a.tar"
    assert address_of(tmp_path / "a.tar" / "x" / "0.jpg") == Address(str(tmp_path / "a.tar"), "x/0.jpg")
    assert address_of(tmp_path / "folder.tar" / "0.jpg") == tmp_path / "folder.tar" / "0.jpg"
    assert address_of("s3://bucket/a.zip/x.jpg") == Address("s3://bucket/a.zip", "x.jpg")
    assert str(address_of("https://me:word@h.example/a.jpg?sig=1")) == "https://h.example/a.jpg"
    assert address_of(Address("s3://bucket/a")) == Address("s3://bucket/a")


@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_a_photo_is_the_same_wherever_it_lies(kind: str, tmp_path: Path) -> None:
    data = photo_bytes(1, (20, 30))
    path = pack(tmp_path / f"a.{kind}", {"k.png": data})
    fsspec.filesystem("memory").pipe(f"/same/a.{kind}", path.read_bytes())
    fsspec.filesystem("memory").pipe("/same/k.png", data)
    for where in (f"{path}/k.png", f"memory://same/a.{kind}/k.png", "memory://same/k.png"):
        address = address_of(where)
        assert isinstance(address, Address)
        assert address.read_bytes() == data
        assert stored_size(where) == (30, 20)
        assert read_header(address).size == (30, 20)
        assert (read_image(where) == read_image(data)).all()
        assert photo_stamp(address)[0] == len(data)
        assert (address.name, address.suffix, address.exists()) == ("k.png", ".png", True)


def test_a_torn_photo_in_an_archive_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    pack(tmp_path / "a.zip", {"k.jpg": photo_bytes(1, (256, 256), "JPEG")[:-40]})
    notes: list[str] = []
    assert read_image(f"{tmp_path}/a.zip/k.jpg", on_note=notes.append).shape == (256, 256, 3)
    assert notes


def test_what_is_not_there(tmp_path: Path) -> None:
    pack(tmp_path / "a.tar", {"k.png": b"1"})
    (tmp_path / "bad.tar").write_bytes(tar_bytes({"k.png": b"1"})[:700])
    for missing in (f"{tmp_path}/a.tar/x.png", f"{tmp_path}/gone.tar/k.png", "memory://nothing/k.png"):
        with pytest.raises(FileNotFoundError):
            address_of(missing).stat()
        assert photo_stamp(address_of(missing)) == (0, 0)
    with pytest.raises(OSError, match="damaged") as raised:
        address_of(f"{tmp_path}/bad.tar/x.png").stat()
    assert not isinstance(raised.value, FileNotFoundError), "it may be in the part that cannot be read"
    with pytest.raises(ImageError, match="no such member"):
        read_image(f"{tmp_path}/a.tar/x.png")


def test_what_seems_gone_without_asking_anybody(tmp_path: Path) -> None:
    pack(tmp_path / "a.tar", {"k.png": b"1"})
    there = [f"{tmp_path}/a.tar/k.png", f"{tmp_path}/a.tar/x.png", str(tmp_path), "s3://nobody-asks/a.png"]
    assert not any(map(seems_gone, there))
    assert seems_gone(f"{tmp_path}/b.tar/k.png")
    assert seems_gone(f"{tmp_path}/b.png")


def test_an_archive_that_was_rewritten_is_read_anew(tmp_path: Path) -> None:
    path = pack(tmp_path / "a.tar", {"k.png": b"1"})
    before = address_of(f"{path}/k.png")
    assert photo_stamp(before)[0] == 1
    assert before.read_bytes() == b"1"
    pack(path, {"0.png": b"0", "k.png": b"2"})
    os.utime(path, ns=(1, 1))
    after = address_of(f"{path}/k.png")
    assert after.read_bytes() == b"2"
    assert photo_stamp(before) != photo_stamp(after)


def test_what_was_listed_is_read_without_looking_for_it_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = pack(tmp_path / "a.tar", {"k.png": b"1", "l.png": b"2"})
    first, second = (photo.where for photo in list_photos([path]).photos)
    with monkeypatch.context() as patch:
        patch.setattr(addresses, "directory_of", lambda *_: pytest.fail("looks for members"))
        assert first.read_bytes() == b"1"
    pack(path, {"0.png": b"0", "k.png": b"x", "l.png": b"3"})
    os.utime(path, ns=(1, 1))
    assert second.read_bytes() == b"3", "the archive is another one now"


def test_an_archive_elsewhere_is_asked_for_once_in_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    system = fsspec.filesystem("memory")
    system.pipe("/asked/a.tar", tar_bytes({"k.png": b"1"}))
    monkeypatch.setattr(addresses, "_seen", {})
    assert address_of("memory://asked/a.tar/k.png").read_bytes() == b"1"
    system.pipe("/asked/a.tar", tar_bytes({"k.png": b"2"}))
    assert address_of("memory://asked/a.tar/k.png").read_bytes() == b"1"
    monkeypatch.setattr(addresses, "BELIEVED_SECONDS", -1.0)
    assert address_of("memory://asked/a.tar/k.png").read_bytes() == b"2"


def test_a_photo_that_must_be_a_file_says_so(tmp_path: Path) -> None:
    assert Photo(tmp_path, "a").path == tmp_path
    with pytest.raises(ImageError, match=r"s3://bucket/a.jpg is no file of its own, as this needs: copy it"):
        _ = Photo(Address("s3://bucket/a.jpg"), "a").path
