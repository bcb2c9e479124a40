"""Photos: every format and mode, upright, crops, limits; what is no photo is refused with a reason; listings."""

import datetime
import io
import os
import struct
import sys
import types
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

import superfeat.images as images_module
from fixtures_recipe import noise
from superfeat.errors import ImageError
from superfeat.images import (
    REFUSED_FORMATS,
    image_endings,
    limit,
    normalise,
    read_header,
    read_image,
    register_heif,
    scaled_size,
    upright_size,
)
from superfeat.sources.listing import list_photos

Pixels = npt.NDArray[np.uint8]


def halves(size: int = 32) -> Image.Image:
    """Dark on the left, light on the right: recognisable in one bit and at any size."""
    pixels = np.full((size, size, 3), 20, np.uint8)
    pixels[:, size // 2 :] = 235
    return Image.fromarray(pixels)


def encode(kind: str) -> bytes | None:
    """The picture in this format, in the first mode that its encoder takes; None if it takes none."""
    for mode in ("RGB", "L", "P", "1", "F"):
        file = io.BytesIO()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # Pillow means to drop some rare formats
                halves().convert(mode).save(file, kind)
        except (OSError, ValueError, KeyError, NotImplementedError):
            continue
        return file.getvalue()
    return None


def encoded_formats() -> dict[str, bytes]:
    Image.init()
    both = sorted(set(Image.SAVE) & set(Image.OPEN) - REFUSED_FORMATS)
    return {kind: data for kind in both if (data := encode(kind)) is not None}


FORMATS = encoded_formats()


def test_the_common_formats_are_among_those_tested() -> None:
    assert {"JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP", "PPM", "TGA", "ICO"} <= set(FORMATS)


@pytest.mark.parametrize("kind", list(FORMATS))
def test_every_format_that_pillow_writes(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "photo"
    file.write_bytes(FORMATS[kind])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        found = read_image(file, max_side=32)
    assert found.dtype == np.uint8
    assert found.shape == (32, 32, 3)
    assert found[:, :12].mean() < 60
    assert found[:, 20:].mean() > 195


def save(path: Path, values: npt.NDArray[np.generic], **options: object) -> Path:
    Image.fromarray(values).save(path, **options)  # type: ignore[arg-type]
    return path


@pytest.mark.parametrize("ending", ["png", "tif"])
def test_16_bits_are_scaled_and_not_clipped(ending: str, tmp_path: Path) -> None:
    values = np.linspace(0, 65535, 256, dtype=np.uint16).reshape(16, 16)
    found = read_image(save(tmp_path / f"deep.{ending}", values))
    np.testing.assert_array_equal(found[..., 0].ravel(), np.rint(values.ravel() / 257.0))
    assert (found[..., 0] == found[..., 1]).all()
    assert (found[..., 0] == found[..., 2]).all()


@pytest.mark.parametrize("ending", ["png", "tif"])
def test_a_dark_16_bit_photo_stays_dark(ending: str, tmp_path: Path) -> None:
    """The depth says what white is, not the brightest pixel of this photo."""
    values = np.full((8, 8), 200, np.uint16)
    assert read_image(save(tmp_path / f"dark.{ending}", values)).max() <= 1


def test_32_bit_integers(tmp_path: Path) -> None:
    large = np.array([[0, 30000, 60000]], np.int32)
    np.testing.assert_array_equal(read_image(save(tmp_path / "i.tif", large))[0, :, 0], np.rint(large[0] * 255 / 65535))
    small = np.array([[0, 100, 255]], np.int32)
    np.testing.assert_array_equal(read_image(save(tmp_path / "small.tif", small))[0, :, 0], small[0])
    negative = np.array([[-100, 0, 100]], np.int32)
    np.testing.assert_allclose(
        read_image(save(tmp_path / "negative.tif", negative))[0, :, 0], [0, 127.5, 255], atol=0.5
    )


def test_floats(tmp_path: Path) -> None:
    unit = np.array([[0.0, 0.5, 1.0]], np.float32)
    np.testing.assert_array_equal(read_image(save(tmp_path / "f.tif", unit))[0, :, 0], [0, 128, 255])
    huge = np.array([[0.0, 5e5, 1e6]], np.float32)
    np.testing.assert_array_equal(read_image(save(tmp_path / "huge.tif", huge))[0, :, 0], [0, 128, 255])
    odd = np.array([[np.nan, np.inf, 1.0]], np.float32)
    np.testing.assert_array_equal(read_image(save(tmp_path / "odd.tif", odd))[0, :, 0], [0, 0, 255])


def test_a_black_deep_photo_is_black(tmp_path: Path) -> None:
    assert read_image(save(tmp_path / "black.png", np.zeros((4, 4), np.uint16))).max() == 0


def test_transparency_is_laid_on_white(tmp_path: Path) -> None:
    rgba = np.zeros((2, 2, 4), np.uint8)
    rgba[0, 0] = (255, 0, 0, 255)
    rgba[0, 1] = (255, 0, 0, 0)
    rgba[1, 0] = (0, 0, 0, 128)
    found = read_image(save(tmp_path / "rgba.png", rgba))
    np.testing.assert_array_equal(found[0], [[255, 0, 0], [255, 255, 255]])
    np.testing.assert_allclose(found[1, 0], 127, atol=1)
    la = Image.merge("LA", [Image.new("L", (2, 1), 0), Image.new("L", (2, 1), 0)])
    la.save(tmp_path / "la.png")
    assert (read_image(tmp_path / "la.png") == 255).all()


def test_palettes(tmp_path: Path) -> None:
    image = Image.new("P", (2, 1))
    image.putpalette([255, 0, 0, 0, 0, 255])
    image.putpixel((1, 0), 1)
    image.save(tmp_path / "p.png")
    np.testing.assert_array_equal(read_image(tmp_path / "p.png")[0], [[255, 0, 0], [0, 0, 255]])
    image.save(tmp_path / "clear.png", transparency=1)
    np.testing.assert_array_equal(read_image(tmp_path / "clear.png")[0], [[255, 0, 0], [255, 255, 255]])
    image.save(tmp_path / "clear.gif", transparency=1)
    np.testing.assert_array_equal(read_image(tmp_path / "clear.gif")[0], [[255, 0, 0], [255, 255, 255]])


def test_a_transparent_colour_of_an_rgb_png(tmp_path: Path) -> None:
    Image.fromarray(np.array([[[1, 2, 3], [9, 9, 9]]], np.uint8)).save(tmp_path / "t.png", transparency=(1, 2, 3))
    np.testing.assert_array_equal(read_image(tmp_path / "t.png")[0], [[255, 255, 255], [9, 9, 9]])


def test_cmyk_jpeg(tmp_path: Path) -> None:
    halves().convert("CMYK").save(tmp_path / "cmyk.jpg", quality=95)
    found = read_image(tmp_path / "cmyk.jpg")
    assert found[:, :12].mean() < 60
    assert found[:, 20:].mean() > 195


def test_one_bit(tmp_path: Path) -> None:
    halves().convert("1").save(tmp_path / "bit.png")
    assert set(np.unique(read_image(tmp_path / "bit.png"))) == {0, 255}


@pytest.mark.parametrize("kind", ["gif", "webp", "png", "tif"])
def test_the_first_frame_of_an_animation(kind: str, tmp_path: Path) -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ((255, 0, 0), (0, 255, 0), (0, 0, 255))]
    frames[0].save(tmp_path / f"moving.{kind}", save_all=True, append_images=frames[1:])
    found = read_image(tmp_path / f"moving.{kind}")
    assert found.shape == (8, 8, 3)
    assert found[..., 0].min() > 240
    assert found[..., 1:].max() < 15


TURNS: dict[int, Callable[[Pixels], Pixels]] = {
    1: lambda x: x,
    2: lambda x: x[:, ::-1],
    3: lambda x: x[::-1, ::-1],
    4: lambda x: x[::-1],
    5: lambda x: x.transpose(1, 0, 2),
    6: lambda x: np.rot90(x, -1),
    7: lambda x: x[::-1, ::-1].transpose(1, 0, 2),
    8: lambda x: np.rot90(x, 1),
}


@pytest.mark.parametrize("orientation", range(1, 9))
def test_all_exif_orientations(orientation: int, tmp_path: Path) -> None:
    stored = noise(6, 10)
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = save(tmp_path / "turned.png", stored, exif=exif)
    np.testing.assert_array_equal(read_image(file), TURNS[orientation](stored))
    np.testing.assert_array_equal(read_image(file, upright=False), stored)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_upright_size_is_known_without_decoding(orientation: int, tmp_path: Path) -> None:
    image = Image.fromarray(noise(20, 30))
    exif = image.getexif()
    exif[0x0112] = orientation
    image.save(tmp_path / "photo.jpg", exif=exif)
    height, width = read_image(tmp_path / "photo.jpg").shape[:2]
    assert upright_size(tmp_path / "photo.jpg") == (width, height)
    assert upright_size((tmp_path / "photo.jpg").read_bytes()) == (width, height)


@pytest.mark.parametrize(
    ("dates", "expected"),
    [
        ({0x9003: "2019:08:04 12:30:00", 0x9004: "2020:01:01 00:00:00"}, datetime.datetime(2019, 8, 4, 12, 30)),
        ({0x9003: "0000:00:00 00:00:00", 0x9004: "2020:01:01 00:00:00"}, datetime.datetime(2020, 1, 1)),
        ({0x0132: "2021:02:03 04:05:06\0"}, datetime.datetime(2021, 2, 3, 4, 5, 6)),
        ({0x9003: "long ago"}, None),
        ({}, None),
    ],
)
def test_the_date_of_a_photo(dates: dict[int, str], expected: datetime.datetime | None, tmp_path: Path) -> None:
    image = Image.fromarray(noise(20, 30))
    exif = image.getexif()
    for tag, date in dates.items():
        (exif if tag == 0x0132 else exif.get_ifd(0x8769))[tag] = date
    image.save(tmp_path / "photo.jpg", exif=exif)
    assert read_header(tmp_path / "photo.jpg") == ((30, 20), expected)


def test_bytes_are_read_like_files(photo_folder: Path) -> None:
    for photo in list_photos([photo_folder]).photos:
        data = photo.path.read_bytes()
        np.testing.assert_array_equal(read_image(data, max_side=32), read_image(photo.path, max_side=32))
    for data, reason in ((b"", "empty"), (b"no photo", "not an image")):
        with pytest.raises(ImageError, match=reason):
            read_image(data)
        with pytest.raises(ImageError, match=reason):
            upright_size(data)


def test_a_phones_jpeg_is_turned_before_it_is_limited(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    file = save(tmp_path / "phone.jpg", noise(60, 100), exif=exif)
    assert read_image(file, max_side=50).shape == (50, 30, 3)
    assert read_image(file, max_side=50, draft=True).shape == (50, 30, 3)


@pytest.mark.parametrize("orientation", [0, 9, 65535])
def test_impossible_orientations_are_ignored(orientation: int, tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = noise(6, 10)
    np.testing.assert_array_equal(read_image(save(tmp_path / "odd.png", stored, exif=exif)), stored)


def test_a_damaged_exif_block_is_ignored(tmp_path: Path) -> None:
    stored = noise(16, 16)
    file = save(tmp_path / "odd.jpg", stored, exif=b"Exif\x00\x00MM\x00*\xff\xff\xff\xff")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's own remark on the block
        assert read_image(file).shape == (16, 16, 3)


def png_header(width: int, height: int) -> bytes:
    """A PNG of a few bytes that claims to be enormous."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 64)) + chunk(b"IEND", b"")
    )


def truncated_jpeg() -> bytes:
    file = io.BytesIO()
    Image.fromarray(noise(64, 64)).save(file, "JPEG")
    return file.getvalue()[: len(file.getvalue()) // 2]


def eps() -> bytes:
    file = io.BytesIO()
    halves().save(file, "EPS")
    return file.getvalue()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "the file is empty"),
        (b"These are words, not pixels.\n" * 50, "not an image"),
        (truncated_jpeg(), "truncated"),
        (FORMATS["PNG"][:60], "truncated|Truncated|damaged|broken"),
        (png_header(60_000, 60_000), "too many pixels"),
        (png_header(10_000, 10_000), "too many pixels"),  # Pillow warns; our tests make warnings errors
        (png_header(2**31 - 1, 2**31 - 1), "too many pixels"),
        (eps(), "not an image, or a format"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not an image, or a format"),
        (b"\x89PNG\r\n\x1a\n", "not an image|damaged|truncated|broken"),
        (b"\xff\xd8\xff\xe0", "not an image|damaged|truncated"),
    ],
)
def test_what_cannot_be_read(data: bytes, reason: str, tmp_path: Path) -> None:
    file = tmp_path / "photo.jpg"
    file.write_bytes(data)
    with pytest.raises(ImageError, match=reason):
        read_image(file, max_side=64)


def test_folders_and_links_are_no_photos(tmp_path: Path) -> None:
    (tmp_path / "x.jpg").mkdir()
    with pytest.raises(ImageError, match="a folder, not an image"):
        read_image(tmp_path / "x.jpg")
    (tmp_path / "dangling.jpg").symlink_to(tmp_path / "nowhere")
    for name in ("dangling.jpg", "missing.jpg"):
        with pytest.raises(ImageError, match="No such file"):
            read_image(tmp_path / name)
    os.mkfifo(tmp_path / "pipe.jpg")
    with pytest.raises(ImageError, match="empty"):
        read_image(tmp_path / "pipe.jpg")


@pytest.mark.parametrize("seed", range(40))
def test_damage_anywhere_is_an_image_error_or_a_picture(seed: int, tmp_path: Path) -> None:
    """Random bytes over the files of all formats: whatever a decoder raises, the caller sees one kind of error."""
    rng = np.random.default_rng(seed)
    read = refused = 0
    for kind, data in FORMATS.items():
        damaged = np.frombuffer(data, np.uint8).copy()
        where = rng.integers(0, min(len(damaged), 400), 8)
        damaged[where] = rng.integers(0, 256, 8)
        file = tmp_path / kind
        file.write_bytes(damaged.tobytes())
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = read_image(file, max_side=64)
        except ImageError:
            refused += 1
        else:
            assert found.ndim == 3
            assert max(found.shape[:2]) <= 64
            read += 1
    assert read + refused == len(FORMATS)


@pytest.mark.parametrize("error", [MemoryError(), OverflowError("too big")])
def test_more_than_the_machine_can_hold(error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(self: Image.Image) -> None:
        raise error

    file = save(tmp_path / "p.bmp", noise(8, 8))
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", load)
    with pytest.raises(ImageError, match="too large to decode in this machine's memory"):
        read_image(file)


def test_limits(tmp_path: Path) -> None:
    file = save(tmp_path / "p.png", noise(60, 100))
    assert read_image(file).shape == (60, 100, 3)
    assert read_image(file, max_side=1024).shape == (60, 100, 3), "never enlarged"
    assert read_image(file, max_side=100).shape == (60, 100, 3)
    assert read_image(file, max_side=50).shape == (30, 50, 3)
    strip = save(tmp_path / "strip.png", noise(1, 900))
    assert read_image(strip, max_side=64).shape == (1, 64, 3)
    expected = Image.fromarray(noise(60, 100))
    expected.thumbnail((50, 50), Image.Resampling.LANCZOS)
    np.testing.assert_array_equal(read_image(file, max_side=50), np.asarray(expected))


@pytest.mark.parametrize("shape", [(60, 100), (100, 60), (48, 48), (1, 90), (90, 1), (1, 1)])
@pytest.mark.parametrize("side", [1, 7, 50, 99, 100, 1024])
def test_pixels_are_limited_as_read_photos_are(shape: tuple[int, int], side: int, tmp_path: Path) -> None:
    pixels = noise(*shape)
    before = pixels.copy()
    found = limit(pixels, side)
    np.testing.assert_array_equal(found, read_image(save(tmp_path / "p.png", pixels), max_side=side))
    assert max(found.shape[:2]) == min(side, max(shape)), "never enlarged"
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(pixels, before)


def test_crops_are_limited_in_proportion(tmp_path: Path) -> None:
    stored = noise(60, 100)
    file = save(tmp_path / "p.png", stored)
    np.testing.assert_array_equal(read_image(file, box=(10, 5, 60, 45)), stored[5:45, 10:60])
    np.testing.assert_array_equal(read_image(file, box=(9.6, 5.4, 60.4, 44.6)), stored[5:45, 10:60])
    assert read_image(file, max_side=1024, box=(10, 5, 60, 45)).shape == (40, 50, 3)
    assert read_image(file, max_side=50, box=(10, 5, 60, 45)).shape == (20, 25, 3)
    assert read_image(file, max_side=16, box=(10, 5, 11, 6)).shape == (1, 1, 3)


def test_boxes_are_in_stored_pixels(tmp_path: Path) -> None:
    stored = noise(60, 100)
    exif = Image.Exif()
    exif[0x0112] = 6
    file = save(tmp_path / "turned.png", stored, exif=exif)
    np.testing.assert_array_equal(read_image(file, box=(70, 5, 100, 45), upright=True), stored[5:45, 70:100])


@pytest.mark.parametrize(
    "box", [(10, 10, 10, 20), (20, 10, 10, 20), (100, 0, 120, 20), (-20, 0, 0, 20), (0, 60, 10, 70)]
)
def test_boxes_off_the_image(box: tuple[float, float, float, float], tmp_path: Path) -> None:
    file = save(tmp_path / "p.png", noise(60, 100))
    with pytest.raises(ImageError, match="does not lie on the image of 100 x 60 pixels"):
        read_image(file, box=box)


def test_draft_is_nearly_the_same(tmp_path: Path) -> None:
    file = save(tmp_path / "large.jpg", noise(600, 800), quality=95)
    plain = read_image(file, max_side=100).astype(float)
    draft = read_image(file, max_side=100, draft=True).astype(float)
    assert plain.shape == draft.shape == (75, 100, 3)
    assert 0 < abs(plain - draft).mean() < 3
    np.testing.assert_array_equal(read_image(file, max_side=500, draft=True), read_image(file, max_side=500))
    png = save(tmp_path / "large.png", noise(600, 800))
    np.testing.assert_array_equal(read_image(png, max_side=100, draft=True), read_image(png, max_side=100))


def test_normalise() -> None:
    pixels = noise(3, 4)
    found = normalise(pixels, (0.1, 0.2, 0.3), (0.5, 0.6, 0.7))
    assert found.dtype == np.float32
    for channel, (mean, std) in enumerate(((0.1, 0.5), (0.2, 0.6), (0.3, 0.7))):
        np.testing.assert_allclose(found[channel], (pixels[..., channel] / 255 - mean) / std, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("scale", "expected"), [(2.0, (202, 150)), (1.414, (142, 106)), (0.707, (71, 53)), (0.25, (25, 18)), (0.01, (1, 0))]
)
def test_scaled_sizes_round_down(scale: float, expected: tuple[int, int]) -> None:
    assert scaled_size(101, 75, scale) == expected


def test_heif_is_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    assert register_heif() is False
    called: list[bool] = []
    plugin = types.SimpleNamespace(register_heif_opener=lambda: called.append(True))
    monkeypatch.setitem(sys.modules, "pillow_heif", plugin)
    assert register_heif() is True
    assert called == [True]


@pytest.mark.parametrize("given", ["phone.heic", "called.jpg", "bytes"])
def test_heic_without_its_plug_in_says_what_to_install(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images_module, "register_heif", lambda: False)
    data = b"\0\0\0\x18ftypmif1\0\0\0\0mif1heic" + b"\0" * 64
    (tmp_path / given).write_bytes(data)
    with pytest.raises(ImageError, match=r"pip install 'superfeat\[heif\]'"):
        read_image(data if given == "bytes" else tmp_path / given)
    with pytest.raises(ImageError, match="not an image"):
        read_image(b"\0\0\0\x18ftypqt  " + b"\0" * 64)


def test_endings() -> None:
    endings = image_endings()
    assert {".jpg", ".jpeg", ".png", ".webp", ".tif", ".gif", ".bmp"} <= endings
    assert not endings & {".eps", ".ps", ".wmf", ".emf", ".pdf", ".txt"}


# --- Large scans, and JPEGs that lack their last bytes


def scan(path: Path, **how: Any) -> Path:
    """A JPEG of 600 x 800, with a picture on it."""
    Image.fromarray(noise(600, 800, 3)).save(path, "JPEG", **how)
    return path


@pytest.fixture
def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow calls more than 200 000 pixels an attack."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100_000)


@pytest.mark.usefixtures("small_limit")
@pytest.mark.parametrize("draft", [False, True])
def test_a_large_jpeg_is_shrunk_while_it_is_decoded(draft: bool, tmp_path: Path) -> None:
    file = scan(tmp_path / "scan.jpg")
    assert upright_size(file) == (800, 600)
    for source in (file, file.read_bytes()):
        assert read_image(source, max_side=64, draft=draft).shape == (48, 64, 3)


@pytest.mark.usefixtures("small_limit")
def test_what_is_too_large_even_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = scan(tmp_path / "scan.jpg")
    Image.fromarray(noise(600, 800)).save(tmp_path / "scan.png")
    asked: list[tuple[Path, dict[str, Any]]] = [
        (file, {}),
        (file, {"max_side": 400}),
        (file, {"max_side": 64, "box": (0, 0, 100, 100)}),
        (scan(tmp_path / "progressive.jpg", progressive=True), {"max_side": 64}),
        (tmp_path / "scan.png", {"max_side": 64}),
    ]
    for source, how in asked:
        with pytest.raises(ImageError, match=r"too many pixels.*; if that is right, allow more") as refused:
            read_image(source, **how)
        assert refused.value.arguments == ("max_pixels",)
    monkeypatch.setattr(images_module, "LARGEST_DRAFT", 400_000)
    with pytest.raises(ImageError, match="too many pixels: 800 x 600"):
        read_image(file, max_side=64)


@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("missing", [2, 40, 900])
def test_a_jpeg_that_lacks_its_last_bytes_is_taken_with_a_note(missing: int, progressive: bool, tmp_path: Path) -> None:
    whole = scan(tmp_path / "whole.jpg", progressive=progressive)
    torn = tmp_path / "torn.jpg"
    torn.write_bytes(whole.read_bytes()[:-missing])
    for draft in (False, True):
        notes: list[str] = []
        found = read_image(torn, max_side=160, draft=draft, on_note=notes.append)
        assert notes == ["its last bytes are missing; it was read as far as it goes"]
        wanted = read_image(whole, max_side=160, draft=draft, on_note=notes.append)
        assert len(notes) == 1
        rows = slice(None) if progressive else slice(0, 110)  # of 120
        assert np.abs(found[rows].astype(int) - wanted[rows].astype(int)).mean() < 4


def test_a_jpeg_of_which_much_is_missing_is_not(tmp_path: Path) -> None:
    data = scan(tmp_path / "whole.jpg").read_bytes()
    for share in (0.8, 0.5, 0.1):
        with pytest.raises(ImageError, match="truncated"):
            read_image(data[: int(share * len(data))], max_side=160)
