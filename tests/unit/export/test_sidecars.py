"""Keywords in XMP sidecars: valid, added once, and what other programs wrote stays theirs."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from superfeat.errors import StoreError, SuperfeatError
from superfeat.export.photos import ExportedPhoto
from superfeat.export.sidecars import DC, RDF, write_sidecars

FOREIGN = """<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>
<x:xmpmeta xmlns:x="adobe:ns:meta/" x:xmptk="Other 1.0"><!-- kept -->
<r:RDF xmlns:r="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
<r:Description r:about="" xmlns:xmp="http://ns.adobe.com/xap/1.0/" xmp:Rating="5"><xmp:Label>Blue &amp; red</xmp:Label>
{subject}</r:Description></r:RDF></x:xmpmeta>
<?xpacket end="w"?>"""
SUBJECT = '<k:subject xmlns:k="http://purl.org/dc/elements/1.1/"><r:Bag><r:li>sea</r:li></r:Bag></k:subject>'


@pytest.fixture
def photo(tmp_path: Path) -> ExportedPhoto:
    (tmp_path / "a.jpg").write_bytes(b"photo")
    return ExportedPhoto("a.jpg", str(tmp_path / "a.jpg"), {})


def keywords(sidecar: Path) -> list[str | None]:
    """As another reader of XML finds them."""
    root = ElementTree.fromstring(sidecar.read_bytes())
    (bag,) = root.findall(f".//{{{RDF}}}Description/{{{DC}}}subject/{{{RDF}}}Bag")
    return [item.text for item in bag.findall(f"{{{RDF}}}li")]


def test_a_new_sidecar(photo: ExportedPhoto, tmp_path: Path) -> None:
    tagged = write_sidecars({'Tom & "Jerry" <3 é': [photo]})
    sidecar = tmp_path / "a.jpg.xmp"
    assert tagged == ([sidecar], [], [], [])
    assert keywords(sidecar) == ['Tom & "Jerry" <3 é']
    assert (tmp_path / "a.jpg").read_bytes() == b"photo"


def test_our_own_sidecar_gets_more(photo: ExportedPhoto, tmp_path: Path) -> None:
    sidecar = tmp_path / "a.jpg.xmp"
    write_sidecars({"tower": [photo]})
    before = sidecar.read_bytes()
    assert write_sidecars({" tower ": [photo]}).same == [sidecar]
    assert sidecar.read_bytes() == before
    assert write_sidecars({"tower": [photo], "1 & 2": [photo], "3": [photo, photo]}).merged == [sidecar]
    assert keywords(sidecar) == ["tower", "1 & 2", "3"]


def test_several_keywords_of_a_new_sidecar(photo: ExportedPhoto, tmp_path: Path) -> None:
    assert write_sidecars({"tower": [photo], "Paris": [photo]}).new == [tmp_path / "a.jpg.xmp"]
    assert keywords(tmp_path / "a.jpg.xmp") == ["tower", "Paris"]


def test_the_sidecar_of_another_program_stops_all(photo: ExportedPhoto, tmp_path: Path) -> None:
    (tmp_path / "b.jpg").write_bytes(b"photo")
    other = ExportedPhoto("b.jpg", str(tmp_path / "b.jpg"), {})
    foreign = tmp_path / "b.jpg.xmp"
    foreign.write_text(FOREIGN.format(subject=""))
    with pytest.raises(StoreError, match="of another program; nothing was written") as raised:
        write_sidecars({"tower": [photo, other]})
    assert raised.value.arguments == ("merge_sidecars",)
    assert foreign.read_text() == FOREIGN.format(subject="")
    assert not (tmp_path / "a.jpg.xmp").exists()


@pytest.mark.parametrize(("subject", "expected"), [("", ["tower"]), (SUBJECT, ["sea", "tower"])])
def test_with_leave_it_is_added_to(subject: str, expected: list[str], photo: ExportedPhoto, tmp_path: Path) -> None:
    sidecar = tmp_path / "a.jpg.xmp"
    sidecar.write_text(FOREIGN.format(subject=subject), encoding="utf-8")
    assert write_sidecars({"tower": [photo]}, merge=True).merged == [sidecar]
    assert keywords(sidecar) == expected
    text = sidecar.read_text(encoding="utf-8")
    for kept in ("<!-- kept -->", 'xmp:Rating="5"', "Blue &amp; red", 'x:xmptk="Other 1.0"', '<?xpacket end="w"?>'):
        assert kept in text
    assert write_sidecars({"tower": [photo]}).same == [sidecar]  # nothing to write, nothing to allow


def test_a_sidecar_without_any_description(photo: ExportedPhoto, tmp_path: Path) -> None:
    sidecar = tmp_path / "a.jpg.xmp"
    sidecar.write_text(f'<r:RDF xmlns:r="{RDF}" xmlns:rdf="other:"/>')
    write_sidecars({"tower": [photo]}, merge=True)
    assert keywords(sidecar) == ["tower"]


@pytest.mark.parametrize(
    ("contents", "reason"),
    [
        ("not XML", "no XMP that can be read"),
        ("<a/>", "has no rdf:RDF"),
        ('<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>', "declares types of its own"),
        (" " * ((16 << 20) + 1), "larger than"),
    ],
    ids=["text", "xml", "entities", "large"],
)
def test_what_is_no_sidecar_is_left_alone(contents: str, reason: str, photo: ExportedPhoto, tmp_path: Path) -> None:
    (tmp_path / "a.jpg.xmp").write_text(contents)
    with pytest.raises(StoreError, match=reason):
        write_sidecars({"tower": [photo]}, merge=True)
    assert (tmp_path / "a.jpg.xmp").read_text() == contents


def test_a_sidecar_behind_a_link_stays_behind_it(photo: ExportedPhoto, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    write_sidecars({"sea": [photo]})
    (tmp_path / "a.jpg.xmp").rename(tmp_path / "store" / "a.xmp")
    (tmp_path / "a.jpg.xmp").symlink_to(tmp_path / "store" / "a.xmp")
    write_sidecars({"tower": [photo]})
    assert (tmp_path / "a.jpg.xmp").is_symlink()
    assert keywords(tmp_path / "store" / "a.xmp") == ["sea", "tower"]


def test_what_has_no_file_is_named(tmp_path: Path) -> None:
    gone = ExportedPhoto("gone", str(tmp_path / "gone.jpg"), {})
    assert write_sidecars({"tower": [gone, ExportedPhoto("features", None, {})]}).missing == ["gone", "features"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("keyword", ["", "  ", "two\nlines", "\x00", "\x1b[31m"])
def test_what_is_no_keyword(keyword: str, photo: ExportedPhoto, tmp_path: Path) -> None:
    with pytest.raises(SuperfeatError, match="is no keyword"):
        write_sidecars({keyword: [photo]})
    assert not (tmp_path / "a.jpg.xmp").exists()
