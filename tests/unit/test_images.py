"""Photos: every format and mode, upright, crops, limits; what is no photo is refused with a reason; listings."""

import io
import os
import struct
import sys
import types
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from fixtures_recipe import noise
from superfeat.errors import ImageError
from superfeat.images import (
    REFUSED_FORMATS,
    Photo,
    image_endings,
    limit,
    list_photos,
    normalise,
    read_image,
    register_heif,
    scaled_size,
    upright_size,
)

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


def test_endings() -> None:
    endings = image_endings()
    assert {".jpg", ".jpeg", ".png", ".webp", ".tif", ".gif", ".bmp"} <= endings
    assert not endings & {".eps", ".ps", ".wmf", ".emf", ".pdf", ".txt"}


# --- listings ---------------------------------------------------------------------------------------------------------


def names(*sources: str | Path) -> list[str]:
    return [photo.name for photo in list_photos(sources).photos]


def test_a_folder_is_listed_with_all_below_it_in_order(photo_folder: Path) -> None:
    (photo_folder / "Z.PNG").write_bytes(b"x")
    (photo_folder / "noending").write_bytes(b"x")
    assert names(photo_folder) == ["Z.PNG", "a.png", "b.jpg", "c.png", "d.jpg", "e.bmp", "more/f.png", "noending"]
    assert list_photos([photo_folder]).photos[1] == Photo(photo_folder / "a.png", "a.png")


def test_hidden_files_are_passed_over_and_others_reported(photo_folder: Path) -> None:
    (photo_folder / ".DS_Store").write_bytes(b"x")
    (photo_folder / ".thumbs").mkdir()
    (photo_folder / ".thumbs" / "a.png").write_bytes(b"x")
    (photo_folder / "._a.png").write_bytes(b"x")
    (photo_folder / "notes.txt").write_text("x")
    (photo_folder / "clip.mp4").write_bytes(b"x")
    (photo_folder / "figure.eps").write_bytes(b"x")
    (photo_folder / "folder.jpg").mkdir()
    listing = list_photos([photo_folder])
    assert len(listing.photos) == 6
    assert listing.left_out == ["clip.mp4", "figure.eps", "notes.txt"]


def test_a_folder_below_a_hidden_one_is_listed(tmp_path: Path) -> None:
    folder = tmp_path / ".cache" / "photos"
    folder.mkdir(parents=True)
    (folder / "a.png").write_bytes(b"x")
    assert names(folder) == ["a.png"]


def test_links(photo_folder: Path) -> None:
    (photo_folder / "dangling.jpg").symlink_to(photo_folder / "nowhere")
    (photo_folder / "loop").symlink_to(photo_folder)
    assert "dangling.jpg" in names(photo_folder), "it is for the run to report"
    assert not any(name.startswith("loop/loop") for name in names(photo_folder))


def test_glob_patterns(photo_folder: Path) -> None:
    assert names(f"{photo_folder}/*.png") == [f"{photo_folder}/a.png", f"{photo_folder}/c.png"]
    assert len(names(f"{photo_folder}/**/*.png")) == 3
    assert names(f"{photo_folder}/[bm]*") == [f"{photo_folder}/b.jpg"], "folders that match are no photos"


def test_a_file_with_a_pattern_in_its_name(tmp_path: Path) -> None:
    file = tmp_path / "a[1].png"
    file.write_bytes(b"x")
    assert [photo.path for photo in list_photos([file]).photos] == [file]


def test_list_files(photo_folder: Path) -> None:
    listed = photo_folder / "some.txt"
    listed.write_text(f"# two of them\n\nb.jpg\n  more/f.png  \n{photo_folder}/a.png\n", encoding="utf-8")
    assert names(listed) == ["b.jpg", "more/f.png", f"{photo_folder}/a.png"]
    assert [photo.path.is_file() for photo in list_photos([listed]).photos] == [True, True, True]


def test_a_list_with_the_mark_that_windows_writes(photo_folder: Path) -> None:
    listed = photo_folder / "some.txt"
    listed.write_bytes(b"\xef\xbb\xbfb.jpg\r\na.png\r\n")
    assert names(listed) == ["b.jpg", "a.png"]


def test_a_list_that_is_not_text(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_bytes(b"\xff\xfea.png")
    with pytest.raises(ImageError, match="must be UTF-8 text with one path a line"):
        list_photos([tmp_path / "list.txt"])


def test_several_sources_keep_their_names_apart(photo_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = photo_folder.parent / "other"
    other.mkdir()
    (other / "a.png").write_bytes(b"x")
    monkeypatch.chdir(photo_folder.parent)
    found = names("photos", "other", "photos/b.jpg")
    assert found == [
        "photos/a.png",
        "photos/b.jpg",
        "photos/c.png",
        "photos/d.jpg",
        "photos/e.bmp",
        "photos/more/f.png",
        "other/a.png",
    ]


def test_the_same_photo_twice_is_one_photo(photo_folder: Path) -> None:
    assert names(photo_folder / "a.png", photo_folder / "a.png") == [str(photo_folder / "a.png")]
    listed = photo_folder / "twice.txt"
    listed.write_text("a.png\nb.jpg\na.png\n")
    assert names(listed) == ["a.png", "b.jpg"]


def test_two_photos_of_one_name(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "list.txt").write_text("a.png\n")
    with pytest.raises(
        ImageError, match=r"two photos are called a\.png: .*one/a\.png and .*two/a\.png; name one folder above both"
    ):
        list_photos([tmp_path / "one" / "list.txt", tmp_path / "two" / "list.txt"])


def test_a_folder_that_cannot_be_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Path, pattern: str) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "rglob", fail)
    with pytest.raises(ImageError, match=r"cannot list .*: Permission denied"):
        list_photos([tmp_path])


def test_nothing_found(tmp_path: Path) -> None:
    for source in (tmp_path / "absent", tmp_path / "*.jpg"):
        with pytest.raises(ImageError, match=r"no photos at .*: give a folder, a file, a glob pattern or a .txt list"):
            list_photos([source])
    assert list_photos([tmp_path]).photos == []


def test_names_are_relative_to_the_folder_however_it_is_written(
    photo_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(photo_folder)
    assert names(".") == names(photo_folder) == names(f"{photo_folder}/")
    assert names("a.png") == ["a.png"]
