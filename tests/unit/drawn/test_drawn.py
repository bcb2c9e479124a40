"""Drawn landmarks: the same everywhere, whatever the order; of any size; worth looking at; written whole."""

import hashlib
import itertools
import subprocess
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from superfeat.drawn import draw, draw_folder
from superfeat.drawn.canvas import Canvas, Texture, bind
from superfeat.drawn.drawing import frame
from superfeat.drawn.landmark import FAMILIES, build
from superfeat.drawn.mesh import Mesh, Opening, grown, polygon, rectangle
from superfeat.drawn.raster import Camera, see
from superfeat.errors import ConfigError, StoreError

Pixels = npt.NDArray[np.uint8]
SMALL = (96, 72)
THINGS = 12
VIEWS = 5


def digest(pixels: Pixels) -> str:
    return hashlib.sha256(pixels.tobytes()).hexdigest()


@pytest.fixture(scope="module")
def world() -> list[list[Pixels]]:
    """Some views of some things."""
    return [[draw(thing, view, seed=2, size=(128, 96)) for view in range(VIEWS)] for thing in range(THINGS)]


# -- The same numbers, the same picture


def test_the_same_arguments_give_the_same_bytes() -> None:
    first = draw(3, 1, size=SMALL)
    build.cache_clear()
    assert np.array_equal(first, draw(3, 1, size=SMALL))


def test_another_process_draws_the_same() -> None:
    script = (
        "import hashlib\nfrom superfeat.drawn import draw\n"
        f"print(hashlib.sha256(draw(4, 2, seed=9, size={SMALL}).tobytes()).hexdigest())"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stderr == ""
    assert run.stdout.strip() == digest(draw(4, 2, seed=9, size=SMALL))


def test_order_and_number_do_not_matter() -> None:
    pairs = list(itertools.product(range(3), range(2)))
    forwards = {pair: digest(draw(*pair, size=SMALL)) for pair in pairs}
    build.cache_clear()
    backwards = {pair: digest(draw(*pair, size=SMALL)) for pair in reversed(pairs)}
    assert forwards == backwards


def test_seeds_things_and_views_all_differ() -> None:
    numbers = itertools.product((0, 1), (0, 1, 2), (0, 1))
    pictures = [digest(draw(thing, view, seed=seed, size=SMALL)) for seed, thing, view in numbers]
    assert len(set(pictures)) == len(pictures)


# -- Sizes


def test_about_a_quarter_are_portraits(world: list[list[Pixels]]) -> None:
    shapes = [pixels.shape for views in world for pixels in views]
    assert set(shapes) == {(96, 128, 3), (128, 96, 3)}
    assert 0.1 < sum(shape[0] > shape[1] for shape in shapes) / len(shapes) < 0.45


@pytest.mark.parametrize("size", [(16, 16), (17, 23), (33, 16), (101, 67)])
def test_any_size(size: tuple[int, int]) -> None:
    for view in range(3):
        pixels = draw(1, view, size=size)
        assert pixels.dtype == np.uint8
        assert pixels.shape in {(size[1], size[0], 3), (size[0], size[1], 3)}


def test_the_same_view_at_another_size_shows_the_same() -> None:
    small, large = draw(5, 0, size=(64, 48)), draw(5, 0, size=(256, 192))
    shrunk = np.asarray(Image.fromarray(large).resize((small.shape[1], small.shape[0]), Image.Resampling.BOX))
    assert np.corrcoef(small.ravel(), shrunk.ravel())[0, 1] > 0.9


# -- Worth looking at


def gradients(pixels: Pixels) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    grey = pixels.mean(axis=2)
    down, across = np.gradient(grey)
    return down, across


def test_pictures_are_neither_flat_nor_noise(world: list[list[Pixels]]) -> None:
    flat = 0
    for pixels in itertools.chain.from_iterable(world):
        strength = np.hypot(*gradients(pixels))
        assert pixels.std() > 6
        assert (strength > 25).mean() < 0.5
        flat += int(pixels.std() < 20 or (strength > 8).mean() < 0.05)
    assert flat <= 0.2 * THINGS * VIEWS  # fog is allowed, seldom


def test_the_landmark_is_in_the_picture() -> None:
    """Not mostly sky and not hidden: it has a fair share of the pixels, and sky leaves room for it."""
    shares, skies = [], []
    for thing, view in itertools.product(range(10), range(4)):
        shot = frame(thing, view, seed=2, size=(64, 48))
        own = (shot.seen.triangles >= 0) & (shot.seen.triangles < len(shot.landmark.triangles.points))
        shares.append(own.mean())
        skies.append((shot.seen.triangles < 0).mean())
    assert np.median(shares) > 0.2
    assert np.quantile(shares, 0.05) > 0.03
    assert np.median(skies) < 0.6


def look(pixels: Pixels) -> npt.NDArray[np.float64]:
    """Colours without brightness, and directions of edges by place: a plain summary of the middle of a picture."""
    height, width = pixels.shape[:2]
    middle = pixels[height // 6 : -height // 6, width // 6 : -width // 6]
    colour = middle.reshape(-1, 3).astype(np.float64) + 1
    colour /= colour.sum(axis=1, keepdims=True)
    hues = np.histogram2d(colour[:, 0], colour[:, 1], bins=16, range=((0.2, 0.5), (0.25, 0.42)))[0].ravel()
    down, across = gradients(middle)
    strength, angle = np.hypot(down, across), np.arctan2(down, across) % np.pi
    cells = [
        np.histogram(angle[rows][:, columns], bins=9, range=(0, np.pi), weights=strength[rows][:, columns])[0]
        for rows in np.array_split(np.arange(len(middle)), 3)
        for columns in np.array_split(np.arange(middle.shape[1]), 3)
    ]
    edges = np.sqrt(np.concatenate(cells))
    hues = np.sqrt(hues)
    return np.concatenate([hues / np.linalg.norm(hues), edges / np.linalg.norm(edges)])


def test_views_of_a_thing_share_more_than_views_of_two(world: list[list[Pixels]]) -> None:
    looks = np.array([look(pixels) for views in world for pixels in views])
    owners = np.repeat(np.arange(THINGS), VIEWS)
    alike = looks @ looks.T
    same = owners[:, None] == owners[None, :]
    others = ~np.eye(len(owners), dtype=bool)
    assert alike[same & others].mean() > alike[~same].mean() + 0.01
    nearest = owners[np.where(others, alike, -1).argmax(axis=1)]
    assert (nearest == owners).mean() > 2 * (VIEWS - 1) / (THINGS * VIEWS - 1)  # twice chance


def test_every_family_can_be_built() -> None:
    seen = set()
    for thing in range(24):
        landmark = build(0, thing)
        assert np.isfinite(landmark.triangles.points).all()
        assert np.isfinite(landmark.triangles.dual).all()
        assert landmark.triangles.textures.max() < len(landmark.textures.table)
        assert 1 < landmark.bounds.height < 150
        seen.add(landmark.family)
    assert len(seen) > len(FAMILIES) // 3


# -- The renderer, against what can be said without it


def small_camera() -> Camera:
    axes = (np.array([1.0, 0, 0]), np.array([0, 0, 1.0]), np.array([0, 1.0, 0]))
    return Camera(np.array([0.0, -10.0, 0.0]), *axes, 100.0, 50.0, 50.0)


def test_a_square_covers_the_pixels_it_should() -> None:
    mesh = Mesh()
    mesh.quad([(-1, 0, -1), (1, 0, -1), (1, 0, 1), (-1, 0, 1)], 0)
    textures = bind([Texture.of(Canvas.blank(1, 1, 8))])
    seen = see(mesh.triangles(), textures, small_camera(), 100, 100)
    assert (seen.triangles >= 0).sum() == 20 * 20
    assert np.allclose(seen.nearness[50, 50], 0.1)
    flat = see(mesh.triangles(), textures, small_camera()._replace(focal=10.0), 100, 100, parallel=True)
    assert (flat.triangles >= 0).sum() == 20 * 20


def test_the_nearer_of_two_is_seen_and_what_is_behind_the_eye_is_not() -> None:
    mesh = Mesh()
    for y in (5.0, 0.0, -12.0):
        mesh.quad([(-1, y, -1), (1, y, -1), (1, y, 1), (-1, y, 1)], 0)
    mesh.quad([(-50, -50, -2), (50, -50, -2), (50, 50, -2), (-50, 50, -2)], 0)  # ground through the eye's plane
    seen = see(mesh.triangles(), bind([Texture.of(Canvas.blank(1, 1, 8))]), small_camera(), 100, 100)
    assert set(np.unique(seen.triangles[45:55, 45:55])) <= {2, 3}
    assert (seen.triangles[:40] == -1).all()
    assert (seen.triangles[95] >= 6).all()


def test_holes_let_through() -> None:
    canvas = Canvas.blank(2, 2, 8)
    canvas.layers[6, :, :8] = 0
    mesh = Mesh()
    mesh.card([(-1, 0, -1), (1, 0, -1), (1, 0, 1), (-1, 0, 1)], 0, 2, 2, (0, -1, 0))
    seen = see(mesh.triangles(), bind([Texture.of(canvas, holes=True)]), small_camera(), 100, 100)
    assert (seen.triangles[:, :50] == -1).all()
    assert (seen.triangles[45:55, 50:60] >= 0).all()


@pytest.mark.parametrize("rise", [0.4, 1.0, 1.7])
def test_arches_spring_and_rise(rise: float) -> None:
    hole = Opening(2.0, 3.0, 4.0, rise)
    assert hole.height_at(0.5) == pytest.approx(4.0, abs=1e-6)
    assert hole.height_at(3.5) == pytest.approx(4.0, abs=1e-6)
    assert hole.height_at(2.0) == pytest.approx(4.0 + 1.5 * rise)


def test_outlines_grow_and_shrink() -> None:
    assert grown(rectangle(4, 2), 1.0) == rectangle(6, 4)
    assert grown(rectangle(4, 3), -1.0) == rectangle(2, 1)
    assert np.allclose(grown(polygon(8, 5), -1.0), polygon(8, 4))


# -- Folders


def test_a_folder_of_views(tmp_path: Path) -> None:
    files = list(draw_folder(tmp_path, things=2, views=2, first=7, max_side=48))
    names = [file.relative_to(tmp_path).as_posix() for file in files]
    assert names == [f"landmark_{thing:04d}/view_{view:02d}.jpg" for thing in (7, 8) for view in (0, 1)]
    for file in files:
        with Image.open(file) as image:
            assert image.format == "JPEG"
            assert max(image.size) == 48


def test_a_resumed_folder_draws_only_what_is_missing(tmp_path: Path) -> None:
    run = draw_folder(tmp_path, things=2, views=2, max_side=32)
    done = next(run)
    run.close()  # type: ignore[attr-defined]
    assert sorted(tmp_path.rglob("*.jpg")) == [done]
    before = done.stat().st_mtime_ns
    files = list(draw_folder(tmp_path, things=2, views=2, max_side=32))
    assert len(files) == 4
    assert done.stat().st_mtime_ns == before
    times = [file.stat().st_mtime_ns for file in files]
    assert [file.stat().st_mtime_ns for file in draw_folder(tmp_path, things=2, views=2, max_side=32)] == times


def test_no_half_file_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(handle: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr("os.fsync", fail)
        with pytest.raises(StoreError, match="disk is full"):
            list(draw_folder(tmp_path, things=1, views=1, max_side=32))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert len(list(draw_folder(tmp_path, things=1, views=1, max_side=32))) == 1


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match="cannot write"):
        list(draw_folder(tmp_path / "file", things=1, views=1, max_side=32))


# -- What is refused


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"thing": -1}, "thing is -1"),
        ({"view": -2}, "view is -2"),
        ({"seed": -3}, "seed is -3"),
        ({"size": (15, 64)}, "15 x 64 is too small"),
        ({"size": (64, 0)}, "64 x 0 is too small"),
    ],
)
def test_impossible_views_are_refused(arguments: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        draw(**{"thing": 0, "view": 0, **arguments})  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"things": 0}, "0 things of 1 views"),
        ({"views": 0}, "1 things of 0 views"),
        ({"first": -1}, "first is -1"),
        ({"seed": -1}, "seed is -1"),
        ({"max_side": 20}, "longest side of 20"),
    ],
)
def test_impossible_folders_are_refused_before_anything_is_written(
    tmp_path: Path, arguments: dict[str, int], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        draw_folder(tmp_path / "new", **{"things": 1, "views": 1, **arguments})
    assert not (tmp_path / "new").exists()
