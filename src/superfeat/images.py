"""Photos: list them, decode them, turn them upright, crop, limit, normalise."""

import contextlib
import dataclasses
import datetime
import io
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from jaxtyping import Float32, UInt8
from PIL import ExifTags, Image, ImageOps, JpegImagePlugin, UnidentifiedImageError

from superfeat.addresses.address import Address, Where, address_of
from superfeat.errors import ImageError

Box = tuple[float, float, float, float]  # left, upper, right, lower in stored pixels

# EPS is handed to an outside program, WMF to the operating system: neither is ever run on a stranger's file.
REFUSED_FORMATS = frozenset({"EPS", "WMF"})
DATES_TAKEN = (ExifTags.Base.DateTimeOriginal, ExifTags.Base.DateTimeDigitized)
LARGEST_DRAFT = 1 << 30  # pixels of a JPEG that is shrunk while it is decoded: some ten seconds
JPEG_START, JPEG_END, GREY = b"\xff\xd8\xff", b"\xff\xd9", 128
TORN = "image file is truncated"  # what Pillow says
MOST_MISSING = 0.1  # of the rows of a torn JPEG
NEEDS_HEIF = "HEIC needs one more package: pip install 'superfeat[heif]'"
HEIF_BRANDS = frozenset({b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"})  # ISO/IEC 23008-12
WHITE = (255, 255, 255, 255)
# What white may be where the mode does not tell: 32-bit integers and floats have no one convention.
INTEGER_WHITES = (255.0, 65535.0)
FLOAT_WHITES = (1.0, 255.0, 65535.0)


@dataclasses.dataclass(frozen=True)
class Photo:
    """Where an image lies, what it is called, and which part of it is meant."""

    where: Where
    name: str
    box: Box | None = None

    @property
    def path(self) -> Path:
        """Its file, for whatever takes nothing but files. ImageError if it has none of its own."""
        if isinstance(self.where, Address):
            raise ImageError(f"{self.where} is no file of its own, as this needs: copy it into a folder")
        return self.where


@dataclasses.dataclass(frozen=True)
class Skipped:
    """A photo that could not be read, and why."""

    name: str
    reason: str


def none_read(reasons: Sequence[Skipped]) -> ImageError:
    """What there is to say if all photos were skipped."""
    first = f"{reasons[0].name}: {reasons[0].reason}"
    return ImageError(f"none of the {len(reasons)} photos could be read (the first is {first})")


def image_endings() -> set[str]:
    """File endings ('.jpg') of all formats that can be decoded here."""
    register_heif()
    return {
        ending
        for ending, name in Image.registered_extensions().items()
        if name in Image.OPEN and name not in REFUSED_FORMATS
    }


def register_heif() -> bool:
    """Lets Pillow read HEIF if its plug-in is installed (superfeat[heif]); tells whether it is."""
    try:
        import pillow_heif
    except ImportError:
        return False
    pillow_heif.register_heif_opener()
    return True


def read_image(
    source: str | Where | bytes,
    *,
    max_side: int | None = None,
    upright: bool = True,
    box: Box | None = None,
    draft: bool = False,
    bilinear: bool = False,
    on_note: Callable[[str], None] | None = None,
) -> UInt8[np.ndarray, "height width 3"]:
    """Decodes a photo, from a file or from its bytes, to RGB, crops it, and shrinks it to `max_side` (never enlarges).

    ImageError if it cannot. `on_note` is told of a JPEG that lacks its last bytes and is read as far as it goes.
    It is shrunk by Lanczos, or by a triangle if `bilinear`, as DELG does it. A box is in stored pixels; its crop is
    limited in proportion, to max_side * its longest side / the whole's.
    """

    def read(image: Image.Image) -> UInt8[np.ndarray, "h w 3"]:
        side = max_side
        pixels = to_rgb(_upright(image) if upright and box is None else image)
        if box is not None:
            whole = max(pixels.size)
            pixels = _crop(pixels, box)
            side = max_side and max(1, int(max_side * max(box[2] - box[0], box[3] - box[1]) / whole))
        if side:
            pixels.thumbnail((side, side), Image.Resampling.BILINEAR if bilinear else Image.Resampling.LANCZOS)
        return np.asarray(pixels)

    fitting = max_side if box is None else None
    with _bad_photos_explained():
        try:
            with _open(source) as image:
                _shrink_while_decoding(image, fitting, draft)
                return read(image)
        except OSError as error:
            if TORN not in str(error) or (mended := _mend(source)) is None:
                raise
            with _open(mended) as image:
                _shrink_while_decoding(image, fitting, draft)
                if _missing_share(image) > MOST_MISSING:
                    raise
                if on_note is not None:
                    on_note("its last bytes are missing; it was read as far as it goes")
                return read(image)


def _shrink_while_decoding(image: Image.Image, side: int | None, wanted: bool) -> None:
    """Lets the JPEG decoder shrink a photo where that is wanted or needed. ImageError if it is too large even so."""
    width, height = image.size
    large = _above_limit(width * height)
    if side is not None and (wanted or large):
        image.draft("RGB", (2 * side, 2 * side))  # keeps twice the size, so that Lanczos still decides
    # A progressive JPEG is held whole in memory, however small its pixels come out.
    streamed = width * height <= LARGEST_DRAFT and not image.info.get("progressive")
    if large and (not streamed or _above_limit(image.width * image.height)):
        raise ImageError(f"too many pixels: {width} x {height}; if that is right, allow more", arguments=["max_pixels"])


def _above_limit(pixels: int) -> bool:
    return Image.MAX_IMAGE_PIXELS is not None and pixels > 2 * Image.MAX_IMAGE_PIXELS  # as Pillow has it


def _mend(source: str | Where | bytes) -> bytes | None:
    """A torn JPEG with the mark of an end, so that the decoder goes on with grey; None of another format."""
    data = source if isinstance(source, bytes) else address_of(source).read_bytes()
    return data + JPEG_END if data.startswith(JPEG_START) else None


def _missing_share(image: Image.Image) -> float:
    """How much of a mended JPEG is the grey that stands for what is not there: whole rows, at the end."""
    grey = (np.asarray(image.convert("L")) == GREY).all(axis=1)
    return float(np.argmin(grey[::-1]) / len(grey)) if not grey.all() else 1.0


def pixel_file(pixels: Image.Image | np.ndarray) -> Path | bytes:
    """A file of just these pixels, upright; of an image whose pixels were not loaded yet, the file it was opened from.

    ImageError if they are none: an array is (height, width), (height, width, 3) or (height, width, 4) of uint8.
    """
    if isinstance(pixels, np.ndarray):
        kind = pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] in (3, 4))
        if not kind or pixels.dtype != np.uint8 or not pixels.size:
            raise ImageError(
                f"an array of {pixels.dtype} {pixels.shape} is no photo: give (height, width, 3) of uint8, 0 to 255"
            )
        image = Image.fromarray(pixels)
    elif getattr(pixels, "tile", None) and getattr(pixels, "filename", ""):
        return Path(pixels.filename)  # type: ignore[attr-defined]  # of an ImageFile
    else:
        image = pixels
    with _bad_photos_explained():
        buffer = io.BytesIO()
        to_rgb(_upright(image)).save(buffer, "BMP")
        return buffer.getvalue()


def limit(pixels: UInt8[np.ndarray, "height width 3"], side: int) -> UInt8[np.ndarray, "h w 3"]:
    """Shrinks pixels to a longest side, as `read_image` does; never enlarges."""
    if max(pixels.shape[:2]) <= side:
        return pixels
    image = Image.fromarray(pixels)
    image.thumbnail((side, side), Image.Resampling.LANCZOS)
    return np.asarray(image)


@contextlib.contextmanager
def _bad_photos_explained() -> Iterator[None]:
    """Turns whatever decoders raise into an ImageError that says what is wrong with the photo."""
    try:
        yield
    except ImageError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        found = re.search(r"\d+", str(error))
        size = f": {int(found.group()) / 1e6:.0f} million" if found else ""
        raise ImageError(f"too many pixels{size}; if that is right, allow more", arguments=["max_pixels"]) from error
    except (MemoryError, OverflowError) as error:
        raise ImageError("too large to decode in this machine's memory") from error
    except UnidentifiedImageError as error:
        raise ImageError("not an image, or a format that Pillow cannot read") from error
    except OSError as error:
        raise ImageError(error.strerror or str(error)) from error
    except Exception as error:  # decoders of rare formats raise all sorts of things on damaged files
        raise ImageError(f"damaged image ({type(error).__name__}: {error})") from error


class PhotoHeader(NamedTuple):
    """What a photo tells without being decoded."""

    size: tuple[int, int]  # width and height, upright
    taken: datetime.datetime | None  # when, by the clock of its camera


def read_header(source: str | Where | bytes | IO[bytes]) -> PhotoHeader:
    """Size and date of a photo, or of a file that is open. ImageError if they cannot be read."""
    with _bad_photos_explained(), _open(source) as image:
        width, height = image.size
        turned = _orientation(image) in range(5, 9)
        return PhotoHeader((height, width) if turned else (width, height), _taken(image))


def stored_size(source: str | Where | bytes) -> tuple[int, int]:
    """Width and height of a photo as it is stored, without decoding it. ImageError if that cannot be read."""
    with _bad_photos_explained(), _open(source) as image:
        return image.size


def upright_size(source: str | Where | bytes) -> tuple[int, int]:
    """Width and height of a photo turned upright, without decoding it. ImageError if that cannot be read."""
    return read_header(source).size


def _taken(image: Image.Image) -> datetime.datetime | None:
    """When the photo was taken, or else digitised, or else written, as EXIF says; a damaged date says nothing."""
    try:
        exif = image.getexif()
        dates = [*map(exif.get_ifd(ExifTags.IFD.Exif).get, DATES_TAKEN), exif.get(ExifTags.Base.DateTime)]
    except Exception:
        return None
    for date in dates:
        with contextlib.suppress(ValueError):
            return datetime.datetime.strptime(str(date).strip("\0 "), "%Y:%m:%d %H:%M:%S")
    return None


def _open(source: str | Where | bytes | IO[bytes]) -> Image.Image:
    where = address_of(source) if isinstance(source, (str, Path, Address)) else source
    data = where.read_bytes() if isinstance(where, Address) else where
    file = io.BytesIO(data) if isinstance(data, bytes) else data
    if isinstance(file, Path) and file.is_dir():
        raise ImageError("a folder, not an image")
    if not data or (isinstance(file, Path) and file.stat().st_size == 0):
        raise ImageError("the file is empty")
    readable = register_heif()
    Image.init()
    try:
        return Image.open(file, formats=[name for name in Image.OPEN if name not in REFUSED_FORMATS])
    except UnidentifiedImageError as error:
        if not readable and _is_heif(file):
            raise ImageError(NEEDS_HEIF) from error
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        if not isinstance(file, Path):
            file.seek(0)
        with contextlib.suppress(SyntaxError):  # of whatever is no JPEG
            return JpegImagePlugin.JpegImageFile(file)  # which can be shrunk while it is decoded
        raise


def _is_heif(file: Path | io.BytesIO | IO[bytes]) -> bool:
    """By its first bytes: phones and messengers also call such a photo .jpg."""
    if isinstance(file, Path):
        with file.open("rb") as opened:
            head = opened.read(12)
    else:
        file.seek(0)
        head = file.read(12)
    return head[4:8] == b"ftyp" and head[8:12] in HEIF_BRANDS


def _upright(image: Image.Image) -> Image.Image:
    return ImageOps.exif_transpose(image) if _orientation(image) in range(2, 9) else image


def _orientation(image: Image.Image) -> int:
    """What the EXIF tag says; a damaged one says nothing."""
    try:
        return int(image.getexif().get(0x0112, 1))
    except Exception:
        return 1


def _crop(image: Image.Image, box: Box) -> Image.Image:
    left, upper, right, lower = (round(edge) for edge in box)
    if not (left < right and upper < lower and right > 0 and left < image.width and lower > 0 and upper < image.height):
        raise ImageError(f"the box {box} does not lie on the image of {image.width} x {image.height} pixels")
    return image.crop((left, upper, right, lower))


def to_rgb(image: Image.Image) -> Image.Image:
    """8-bit RGB from any mode: deep images are scaled, not clipped; transparency is laid on white."""
    if image.mode == "RGB" and "transparency" not in image.info:
        image.load()
        return image
    if image.mode.startswith("I") or image.mode == "F":
        limits = FLOAT_WHITES if image.mode == "F" else INTEGER_WHITES if image.mode == "I" else (65535.0,)
        return Image.fromarray(_to_8_bit(np.asarray(image).astype(np.float64), limits)).convert("RGB")
    if image.has_transparency_data:
        rgba = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", rgba.size, WHITE), rgba).convert("RGB")
    return image.convert("RGB")


def _to_8_bit(
    values: np.ndarray[Any, np.dtype[np.float64]], limits: Sequence[float]
) -> UInt8[np.ndarray, "height width"]:
    """0..white to 0..255, white being the first limit that no value passes, or else the largest value."""
    values = np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)
    top = values.max(initial=0.0)
    low = min(0.0, values.min(initial=0.0))
    full = next((limit for limit in limits if top <= limit), top) if low == 0 else top - low
    scaled: np.ndarray = np.rint((values - low) * (255.0 / full))
    return scaled.astype(np.uint8)


def normalise(
    pixels: UInt8[np.ndarray, "height width 3"], mean: Iterable[float], std: Iterable[float]
) -> Float32[np.ndarray, "3 height width"]:
    """(pixel / 255 - mean) / std, channels first. There are 256 pixels of a channel: each is worked out once."""
    scaled = np.arange(256, dtype=np.float32) / np.float32(255)
    made = np.empty((3, *pixels.shape[:2]), np.float32)
    for channel, (centre, spread) in enumerate(zip(mean, std, strict=True)):
        table = (scaled - np.float32(centre)) / np.float32(spread)
        np.take(table, pixels[:, :, channel], out=made[channel], mode="clip")
    return made


def scaled_size(height: int, width: int, scale: float) -> tuple[int, int]:
    """Height and width after resizing by `scale`, rounded down as torch does."""
    return math.floor(height * scale), math.floor(width * scale)
