"""Keywords beside each photo, in an XMP sidecar, which programs for photos read: photo.jpg.xmp for photo.jpg.

The photo itself is not touched. A sidecar of another program is left alone, or gets the keywords and keeps all else.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple
from xml.dom import minidom
from xml.parsers import expat
from xml.sax.saxutils import escape

import superfeat
from superfeat.errors import StoreError, SuperfeatError
from superfeat.export.photos import ExportedPhoto
from superfeat.storage.store import explained, write_file

ENDING = ".xmp"
LARGEST = 16 << 20  # bytes of a sidecar that is read
RDF, DC, X = "http://www.w3.org/1999/02/22-rdf-syntax-ns#", "http://purl.org/dc/elements/1.1/", "adobe:ns:meta/"
OURS = "superfeat"  # who wrote a sidecar says so in x:xmptk
NEW = f"""<?xml version="1.0" encoding="UTF-8"?>
<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>
<x:xmpmeta xmlns:x="{X}" x:xmptk="{OURS} {superfeat.__version__}">
 <rdf:RDF xmlns:rdf="{RDF}">
  <rdf:Description rdf:about="" xmlns:dc="{DC}">
   <dc:subject>
    <rdf:Bag>%s
    </rdf:Bag>
   </dc:subject>
  </rdf:Description>
 </rdf:RDF>
</x:xmpmeta>
<?xpacket end="w"?>
"""


class Tagged(NamedTuple):
    """The sidecars that were made, that got keywords beside what they held, and that had them already.

    `missing` are names of photos whose file is not there.
    """

    new: list[Path]
    merged: list[Path]
    same: list[Path]
    missing: list[str]


def write_sidecars(tags: Mapping[str, Iterable[ExportedPhoto]], *, merge: bool = False) -> Tagged:
    """Notes keywords (dc:subject) in the sidecars of photos: for each keyword, its photos.

    A sidecar that another program wrote stops it before anything is written, unless `merge` allows adding to it.
    """
    tagged = Tagged([], [], [], [])
    changes: dict[Path, bytes] = {}
    foreign: list[Path] = []
    for sidecar, keywords in _collect(tags, tagged.missing).items():
        if not sidecar.exists():
            changes[sidecar] = (NEW % "".join(f"\n     <rdf:li>{escape(word)}</rdf:li>" for word in keywords)).encode()
            tagged.new.append(sidecar)
            continue
        found = _read(sidecar)
        missing = [word for word in keywords if word not in _keywords(found)]
        (tagged.merged if missing else tagged.same).append(sidecar)
        if missing:
            foreign += [] if merge or _is_ours(found) else [sidecar]
            changes[sidecar] = _with_keywords(found, missing)
    _require_allowed(foreign)
    for path, data in changes.items():
        write_file(path, data)
    return tagged


def _collect(tags: Mapping[str, Iterable[ExportedPhoto]], missing: list[str]) -> dict[Path, list[str]]:
    """The keywords of each sidecar; photos whose file is not there are noted."""
    wanted: dict[Path, list[str]] = {}
    for keyword, photos in tags.items():
        word = require_keyword(keyword)
        for photo in photos:
            if (file := photo.file()) is None:
                missing.append(photo.name)
            else:
                wanted.setdefault(file.with_name(file.name + ENDING).resolve(), []).append(word)
    return {sidecar: list(dict.fromkeys(keywords)) for sidecar, keywords in wanted.items()}


def require_keyword(text: str) -> str:
    """A keyword, if it can be written into XML and is one line."""
    keyword = text.strip()
    if not keyword or not keyword.isprintable():
        raise SuperfeatError(f"{text!r} is no keyword: it must be one line of letters, and not empty")
    return keyword


def _require_allowed(foreign: list[Path]) -> None:
    if foreign:
        others = f" and {len(foreign) - 1} others are" if len(foreign) > 1 else " is"
        raise StoreError(
            f"{foreign[0]}{others} of another program; nothing was written: allow that keywords are added to them",
            arguments=["merge_sidecars"],
        )


def _read(path: Path) -> minidom.Document:
    """A sidecar, without declarations of types, in which a stranger can hide endless text."""

    def refuse(*_: object) -> None:
        raise StoreError(f"{path} declares types of its own, which XMP does not; move it away")

    with explained(path, "read"), path.open("rb") as file:
        data = file.read(LARGEST + 1)
    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = refuse
    try:
        if len(data) > LARGEST:
            raise StoreError(f"{path} is larger than {LARGEST} bytes: no sidecar; move it away")
        parser.Parse(data, True)
        found = minidom.parseString(data)
    except expat.ExpatError as error:
        raise StoreError(f"{path} is no XMP that can be read: {error}; repair it or move it away") from error
    if not found.getElementsByTagNameNS(RDF, "RDF"):
        raise StoreError(f"{path} is no XMP: it has no rdf:RDF; move it away")
    return found


def _is_ours(found: minidom.Document) -> bool:
    root = found.documentElement
    return root is not None and root.getAttributeNS(X, "xmptk").startswith(OURS)


def _keywords(found: minidom.Document) -> set[str]:
    subjects = found.getElementsByTagNameNS(DC, "subject")
    return {_text(item) for subject in subjects for item in subject.getElementsByTagNameNS(RDF, "li")}


def _text(element: minidom.Element) -> str:
    return "".join(child.data for child in element.childNodes if isinstance(child, minidom.Text)).strip()


def _with_keywords(found: minidom.Document, keywords: Iterable[str]) -> bytes:
    """The same with some keywords more; all else stays."""
    bag = _child(found, _child(found, _description(found), DC, "dc:subject"), RDF, "rdf:Bag")
    for keyword in keywords:
        _add(found, bag, RDF, "rdf:li").appendChild(found.createTextNode(keyword))
    return bytes(found.toxml(encoding="UTF-8")) + b"\n"


def _description(found: minidom.Document) -> minidom.Element:
    """The part that has keywords already, or else the first."""
    parts = found.getElementsByTagNameNS(RDF, "Description")
    with_subject = [part for part in parts if part.getElementsByTagNameNS(DC, "subject")]
    if with_subject or parts:
        return (with_subject or parts)[0]
    part = _add(found, found.getElementsByTagNameNS(RDF, "RDF")[0], RDF, "rdf:Description")
    part.setAttributeNS(RDF, "rdf:about", "")
    return part


def _child(found: minidom.Document, parent: minidom.Element, space: str, name: str) -> minidom.Element:
    """An element of this name inside of another, made if there is none."""
    inside = parent.getElementsByTagNameNS(space, name.split(":")[1])
    return inside[0] if inside else _add(found, parent, space, name)


def _add(found: minidom.Document, parent: minidom.Element, space: str, name: str) -> minidom.Element:
    """A new element, which says itself what its prefix means: in this file it may mean something else."""
    element = found.createElementNS(space, name)
    element.setAttribute(f"xmlns:{name.split(':')[0]}", space)
    parent.appendChild(element)
    return element
