"""The photos of the index as they may leave it: decoded and drawn anew, at limited sizes, without their EXIF.

Only a file that is the one that was indexed is read: a regular file, with the size and time of change that the index
noted, whose recorded path leads through no link; what lies in an archive or elsewhere must have the very bytes that
were indexed. So neither a link nor another file that is put in its place later,
nor anything that a name or a number in a request says, leads to a file that was not indexed.
"""

import hashlib
import io
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
from PIL import Image

from superfeat.addresses.address import Address, address_of
from superfeat.addresses.archives import LARGEST_PHOTO
from superfeat.addresses.text import is_remote
from superfeat.errors import ImageError
from superfeat.features import Meta
from superfeat.found.photos import photo_key
from superfeat.images import read_image, register_heif
from superfeat.index.index import Index
from superfeat.recent import Recent
from superfeat.service.limits import RENDERED_BYTES, Limits
from superfeat.service.problems import Problem, no_such_photo

# What strangers may send: the formats of cameras, phones and browsers. Decoders of rare formats see fewer strangers.
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "MPO", "HEIF", "AVIF")
QUALITY = 85
LARGEST_FILE = LARGEST_PHOTO  # bytes of an indexed file that is read to be shown
FLAGS = ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY")  # not every system has all
OPEN_FLAGS = os.O_RDONLY | sum(getattr(os, name, 0) for name in FLAGS)


class Known(NamedTuple):
    """An image of the index and what was noted with it."""

    id: int
    name: str
    meta: Meta


class Rendered(NamedTuple):
    """A JPEG and the mark by which a browser knows whether it has it already."""

    data: bytes
    tag: str


class Gallery:
    """Finds the photos of an index, and draws them."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self._rendered: Recent[bytes] = Recent(1 << 16, RENDERED_BYTES)

    def find(self, image: int) -> Known:
        """The image with this id."""
        name = self.index.snapshot().name_of(image)
        if name is None:
            raise no_such_photo(image)
        return self.named(name, image)

    def named(self, name: str, image: int | None = None) -> Known:
        """The image of this name, and with this id if one is given: its name may have gone to another one since."""
        found = self.index.meta([name]).get(name)
        known = None if found is None else Known(self.index.id(name), name, found)
        if known is None or image not in (None, known.id):
            raise no_such_photo(image if image is not None else shown(name))
        return known

    def named_ids(self, ids: Sequence[int]) -> list[tuple[int, str]]:
        """Those of these images that are there, with their names."""
        snapshot = self.index.snapshot()
        return [(image, name) for image in ids if (name := snapshot.name_of(image)) is not None]

    def paths(self, names: Sequence[str]) -> dict[str, str]:
        """Where the files of these images lie, by name, of those of which it is known."""
        metas = self.index.meta(names)
        return {name: shown(str(meta["path"])) for name, meta in metas.items() if isinstance(meta.get("path"), str)}

    def draw(self, image: int, side: int) -> bytes:
        """A JPEG of this photo that is not kept."""
        return draw_jpeg(self.read(self.find(image)), side)

    def render(self, image: int, side: int) -> Rendered:
        """A JPEG of this photo, `side` pixels along its longer side at most."""
        known = self.find(image)
        key = hashlib.blake2b(repr((known.id, known.meta.get("stamp"), side)).encode(), digest_size=12).hexdigest()
        data = self._rendered.get(key)
        if data is None or not is_remote(known.meta.get("path")):  # nobody is asked for each glance at a page
            with self.open(known) as file:
                if data is None:
                    data = draw_jpeg(file.read(LARGEST_FILE), side)
                    self._rendered.put(key, data, len(data))
        return Rendered(data, f'"{key}"')

    def read(self, known: Known) -> bytes:
        """The file of an indexed photo, if it is still the one that was indexed."""
        with self.open(known) as file:
            return file.read(LARGEST_FILE)

    def open(self, known: Known) -> IO[bytes]:
        """The same, not read yet."""
        return open_indexed(known)


def shown(name: str) -> str:
    """A name as text that can be sent: file names may hold bytes that are no letters."""
    return name.encode(errors="surrogateescape").decode(errors="replace")


def open_indexed(known: Known) -> IO[bytes]:
    """The file of an indexed photo, opened and then looked at, so that it cannot be exchanged in between."""
    path = known.meta.get("path")
    if not isinstance(path, str) or not (is_remote(path) or Path(path).is_absolute()):
        raise Problem(410, "no_file", f"the index does not know where the photo {shown(known.name)} lies")
    where = address_of(path)
    if isinstance(where, Address):
        return _open_elsewhere(where, known)
    try:
        handle = os.open(path, OPEN_FLAGS)
    except OSError as error:
        raise Problem(410, "file_gone", f"the file of {shown(known.name)} is not where it was indexed") from error
    file = os.fdopen(handle, "rb")
    try:
        _require_indexed(Path(path), os.fstat(handle), known)
    except BaseException:
        file.close()
        raise
    return file


def _open_elsewhere(where: Address, known: Known) -> io.BytesIO:
    """A photo that is no file of its own, if its bytes are those that were indexed: wherever they come from now."""
    try:
        data = where.read_bytes()
    except (OSError, ImageError) as error:
        raise Problem(410, "file_gone", f"{shown(known.name)} cannot be read where it was indexed") from error
    if photo_key(data) != known.meta.get("digest"):
        raise Problem(410, "file_changed", f"{shown(known.name)} has changed since it was indexed")
    return io.BytesIO(data)


def _require_indexed(path: Path, found: os.stat_result, known: Known) -> None:
    changed = not stat.S_ISREG(found.st_mode) or [found.st_size, found.st_mtime_ns] != known.meta.get("stamp")
    if changed or found.st_size > LARGEST_FILE:
        raise Problem(410, "file_changed", f"the file of {shown(known.name)} has changed since it was indexed")
    if os.path.realpath(path) != str(path) or not _is_at(found, path):
        raise Problem(410, "file_linked", f"the file of {shown(known.name)} lies behind a link; index it again")


def _is_at(found: os.stat_result, path: Path) -> bool:
    try:
        return os.path.samestat(found, path.lstat())
    except OSError:
        return False


def draw_jpeg(data: bytes, side: int) -> bytes:
    """Decoded and drawn anew: pixels alone pass, no EXIF, no other hidden contents."""
    return as_jpeg(Image.fromarray(np.asarray(read_image(data, max_side=side, draft=True))))


def as_jpeg(picture: Image.Image) -> bytes:
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=QUALITY, optimize=True)
    return file.getvalue()


def require_photo(data: bytes, limits: Limits) -> None:
    """A Problem unless a stranger's bytes begin like a photo of a known kind and an allowed size. Decodes nothing."""
    if len(data) > limits.max_upload:
        raise Problem(413, "too_large", f"a photo may have {limits.max_upload} bytes; this one has {len(data)}")
    width, height = _measure(data)
    if width * height > limits.max_pixels:
        raise Problem(
            413, "too_many_pixels", f"a photo may have {limits.max_pixels} pixels; this one is {width} x {height}"
        )


def _measure(data: bytes) -> tuple[int, int]:
    if not data:
        raise Problem(422, "not_a_photo", "the photo is empty")
    register_heif()
    Image.init()
    try:
        with Image.open(io.BytesIO(data), formats=[name for name in FORMATS if name in Image.OPEN]) as image:
            return image.size
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise Problem(413, "too_many_pixels", f"too many pixels: {error}") from error
    except Exception as error:  # decoders of damaged files raise all sorts of things
        raise Problem(415, "not_a_photo", "this is not a photo that can be read: send a JPEG, PNG or WebP") from error


def readable(data: bytes) -> None:
    """A Problem unless the whole photo can be decoded: what is stored must be searchable."""
    try:
        read_image(data, max_side=64)
    except ImageError as error:
        raise Problem(422, "not_a_photo", f"this photo cannot be read: {error}") from error
