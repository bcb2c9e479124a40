"""Photos: list them, decode them, turn them upright, crop, limit, normalise."""

import contextlib
import dataclasses
import glob
import io
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32, UInt8
from PIL import Image, ImageOps, UnidentifiedImageError

from superfeat.errors import ImageError

Box = tuple[float, float, float, float]  # left, upper, right, lower in stored pixels

# EPS is handed to an outside program, WMF to the operating system: neither is ever run on a stranger's file.
REFUSED_FORMATS = frozenset({"EPS", "WMF"})
WHITE = (255, 255, 255, 255)
# What white may be where the mode does not tell: 32-bit integers and floats have no one convention.
INTEGER_WHITES = (255.0, 65535.0)
FLOAT_WHITES = (1.0, 255.0, 65535.0)


@dataclasses.dataclass(frozen=True)
class Photo:
    """Where an image lies, what it is called, and which part of it is meant."""

    path: Path
    name: str
    box: Box | None = None


@dataclasses.dataclass(frozen=True)
class Skipped:
    """A photo that could not be read, and why."""

    name: str
    reason: str


@dataclasses.dataclass(frozen=True)
class Listing:
    """The photos found, in order of name, and the files left out because their ending is not an image's."""

    photos: list[Photo]
    left_out: list[str]


def list_photos(sources: Sequence[str | Path]) -> Listing:
    """Photos of folders (with all below them), glob patterns, list files (*.txt, a path per line) and single files.

    Names are relative to the folder or list; with several sources each name begins with its source.
    """
    photos: list[Photo] = []
    left_out: list[str] = []
    for source in sources:
        found, ignored = _list_source(str(source))
        prefix = "" if len(sources) == 1 else _prefix(str(source))
        photos += [dataclasses.replace(photo, name=prefix + photo.name) for photo in found]
        left_out += [prefix + name for name in ignored]
    seen: dict[str, Path] = {}
    unique: list[Photo] = []
    for photo in photos:
        if seen.setdefault(photo.name, photo.path) != photo.path:
            raise ImageError(
                f"two photos are called {photo.name}: {seen[photo.name]} and {photo.path}; name one folder above both"
            )
        if len(unique) < len(seen):
            unique.append(photo)
    return Listing(unique, left_out)


def _prefix(source: str) -> str:
    return Path(source).as_posix().rstrip("/") + "/" if Path(source).is_dir() else ""


def _list_source(source: str) -> tuple[list[Photo], list[str]]:
    path = Path(source)
    if path.is_dir():
        return _list_folder(path)
    if path.suffix.lower() == ".txt" and path.is_file():
        return _read_list(path), []
    if path.exists():
        return [Photo(path, path.as_posix() if path.parent != Path() else path.name)], []
    matches = sorted(glob.glob(source, recursive=True))  # noqa: PTH207 - Path.glob takes no absolute pattern
    if not matches:
        raise ImageError(f"no photos at {source}: give a folder, a file, a glob pattern or a .txt list of paths")
    return [Photo(Path(match), Path(match).as_posix()) for match in matches if not Path(match).is_dir()], []


def _list_folder(folder: Path) -> tuple[list[Photo], list[str]]:
    endings = image_endings()
    photos, left_out = [], []
    try:
        files = sorted((file.relative_to(folder).as_posix(), file) for file in folder.rglob("*") if not file.is_dir())
    except OSError as error:
        raise ImageError(f"cannot list {folder}: {error.strerror}") from error
    for name, file in files:
        if any(part.startswith(".") for part in name.split("/")):
            continue
        if file.suffix.lower() in endings or not file.suffix:
            photos.append(Photo(file, name))
        else:
            left_out.append(name)
    return photos, left_out


def _read_list(path: Path) -> list[Photo]:
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ImageError(f"cannot read the list {path}: {error}; it must be UTF-8 text with one path a line") from error
    return [Photo(path.parent / line.strip(), line.strip()) for line in lines if line.strip() and line[0] != "#"]


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
    source: str | Path | bytes,
    *,
    max_side: int | None = None,
    upright: bool = True,
    box: Box | None = None,
    draft: bool = False,
) -> UInt8[np.ndarray, "height width 3"]:
    """Decodes a photo, from a file or from its bytes, to RGB, crops it, and shrinks it to `max_side` (never enlarges).

    ImageError if it cannot.
    A box is in stored pixels; its crop is limited in proportion, to max_side * its longest side / the whole's.
    """
    with _bad_photos_explained(), _open(source) as image:
        if draft and max_side is not None and box is None:
            image.draft("RGB", (2 * max_side, 2 * max_side))  # keeps twice the size, so that Lanczos still decides
        pixels = to_rgb(_upright(image) if upright and box is None else image)
        side = max_side
        if box is not None:
            whole = max(pixels.size)
            pixels = _crop(pixels, box)
            side = max_side and max(1, int(max_side * max(box[2] - box[0], box[3] - box[1]) / whole))
        if side:
            pixels.thumbnail((side, side), Image.Resampling.LANCZOS)
        return np.asarray(pixels)


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
        raise ImageError(f"too many pixels: {error}") from error
    except (MemoryError, OverflowError) as error:
        raise ImageError("too large to decode in this machine's memory") from error
    except UnidentifiedImageError as error:
        raise ImageError("not an image, or a format that Pillow cannot read") from error
    except OSError as error:
        raise ImageError(error.strerror or str(error)) from error
    except Exception as error:  # decoders of rare formats raise all sorts of things on damaged files
        raise ImageError(f"damaged image ({type(error).__name__}: {error})") from error


def upright_size(source: str | Path | bytes) -> tuple[int, int]:
    """Width and height of a photo turned upright, without decoding it. ImageError if that cannot be read."""
    with _bad_photos_explained(), _open(source) as image:
        width, height = image.size
        return (height, width) if _orientation(image) in range(5, 9) else (width, height)


def _open(source: str | Path | bytes) -> Image.Image:
    file = io.BytesIO(source) if isinstance(source, bytes) else Path(source)
    if isinstance(file, Path) and file.is_dir():
        raise ImageError("a folder, not an image")
    if not source or (isinstance(file, Path) and file.stat().st_size == 0):
        raise ImageError("the file is empty")
    register_heif()
    Image.init()
    return Image.open(file, formats=[name for name in Image.OPEN if name not in REFUSED_FORMATS])


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
    """(pixel / 255 - mean) / std, channels first."""
    scaled = pixels.astype(np.float32) / np.float32(255)
    centred = (scaled - np.asarray(list(mean), np.float32)) / np.asarray(list(std), np.float32)
    return np.ascontiguousarray(centred.transpose(2, 0, 1))


def scaled_size(height: int, width: int, scale: float) -> tuple[int, int]:
    """Height and width after resizing by `scale`, rounded down as torch does."""
    return math.floor(height * scale), math.floor(width * scale)
