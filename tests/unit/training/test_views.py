"""Views made of one photo: the same by the same seed, inside the photo, and where the homography says."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures_recipe import noise
from superfeat.training import views
from superfeat.training.views import (
    CHANGES,
    LEAST_CROP,
    LEAST_SIDE,
    MOST_CROP,
    Change,
    Pixels,
    homography,
    make_view,
)

Numbers = npt.NDArray[np.float64]
MODEST = settings(deadline=None, max_examples=60)
SEEDS = st.integers(0, 2**32 - 1)
NOT_CONVEX_AT_FIRST = (249, 1469, 1674, 3064)  # seeds whose first quadrilateral has a corner that points inwards


def random_of(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def rectangle(width: float, height: float) -> Numbers:
    return np.array([(0, 0), (width, 0), (width, height), (0, height)], np.float64)


def mapped(coefficients: Numbers, x: float, y: float) -> tuple[float, float]:
    """The definition, point by point."""
    a, b, c, d, e, f, g, h = coefficients.tolist()
    return (a * x + b * y + c) / (g * x + h * y + 1), (d * x + e * y + f) / (g * x + h * y + 1)


def turns(corners: Numbers) -> list[float]:
    """Twice the area of the triangle at each corner: positive where a clockwise way round turns to the right."""
    found = []
    for number in range(4):
        (ax, ay), (bx, by), (cx, cy) = (corners[(number + step) % 4].tolist() for step in range(3))
        found.append((bx - ax) * (cy - by) - (by - ay) * (cx - bx))
    return found


# --- Homographies -----------------------------------------------------------------------------------------------------


@MODEST
@given(SEEDS, st.integers(1, 2000), st.integers(1, 2000))
def test_a_homography_maps_the_four_points(seed: int, width: int, height: int) -> None:
    corners = views._quadrilateral(random_of(seed)) * (width, height)
    source = rectangle(height + 3.0, width + 5.0)
    found = homography(source, corners)
    for (x, y), wanted in zip(source.tolist(), corners.tolist(), strict=True):
        assert mapped(found, x, y) == pytest.approx(wanted, abs=1e-6 * max(width, height))


def test_homographies_that_are_known() -> None:
    square = rectangle(10, 20)
    assert homography(square, square) == pytest.approx([1, 0, 0, 0, 1, 0, 0, 0])
    assert homography(square, 2 * square + (3, 4)) == pytest.approx([2, 0, 3, 0, 2, 4, 0, 0])
    mirrored = square * (-1, 1) + (10, 0)
    assert homography(square, mirrored) == pytest.approx([-1, 0, 10, 0, 1, 0, 0, 0])


@MODEST
@given(SEEDS)
def test_there_and_back_is_where_it_was(seed: int) -> None:
    source, corners = rectangle(3, 2), views._quadrilateral(random_of(seed))
    there, back = homography(source, corners), homography(corners, source)
    assert mapped(back, *mapped(there, 1.2, 0.7)) == pytest.approx((1.2, 0.7), abs=1e-6)


# --- The part that is seen --------------------------------------------------------------------------------------------


@MODEST
@given(SEEDS)
def test_the_part_is_inside_the_photo_and_convex(seed: int) -> None:
    corners = views._quadrilateral(random_of(seed))
    assert corners.shape == (4, 2)
    assert corners.min() >= -1e-12
    assert corners.max() <= 1 + 1e-12
    assert min(turns(corners)) > 0


def test_a_corner_never_points_inwards() -> None:
    """Such a part is no view of a plane: it would be seen from both sides, with black between them."""
    for seed in (*NOT_CONVEX_AT_FIRST, *range(2000)):
        assert min(turns(views._quadrilateral(random_of(seed)))) > 0, seed


def test_parts_are_small_and_large_straight_and_tilted() -> None:
    corners = [views._quadrilateral(random_of(seed)) for seed in range(500)]
    sides = [float((found.max(axis=0) - found.min(axis=0)).max()) for found in corners]
    assert min(sides) < LEAST_CROP + 0.05
    assert max(sides) > MOST_CROP - 0.05
    ratios = [np.linalg.norm(found[1] - found[0]) / np.linalg.norm(found[2] - found[3]) for found in corners]
    assert min(ratios) < 0.7 < 1 / 0.7 < max(ratios)
    assert np.median(np.abs(np.log(ratios))) < 0.2


@pytest.mark.parametrize("shape", [(60, 80), (200, 30), (16, 16), (5, 3), (1, 1)])
def test_nothing_outside_the_photo_is_seen(shape: tuple[int, int]) -> None:
    """A photo of one grey stays one grey: no black comes in from the border, and bicubic adds nothing of its own."""
    photo = np.full((*shape, 3), 150, np.uint8)
    for seed in (*NOT_CONVEX_AT_FIRST, *range(60)):
        assert set(np.unique(views._warp(photo, random_of(seed)))) == {150}, seed


def test_no_black_where_the_photo_has_none() -> None:
    photo = np.maximum(noise(60, 80), 50)
    for seed in range(60):
        assert views._warp(photo, random_of(seed)).min() > 20, seed  # bicubic undershoots a little


@pytest.mark.parametrize("seed", range(6))
def test_every_pixel_is_where_the_homography_says(seed: int) -> None:
    """Red tells the column and green the row, to a third of a pixel: Pillow's bicubic bends a straight ramp a little.

    It cuts fractions off, so that a value is half of one too low on average.
    """
    height, width = 60, 80
    photo = np.zeros((height, width, 3), np.uint8)
    photo[..., 0] = 3 * np.arange(width)
    photo[..., 1] = 4 * np.arange(height)[:, None]
    found = views._warp(photo, random_of(seed))
    corners = views._quadrilateral(random_of(seed)) * (width, height)
    coefficients = homography(rectangle(found.shape[1], found.shape[0]), corners)
    seen = 0
    for row in range(0, found.shape[0], 3):
        for column in range(0, found.shape[1], 3):
            x, y = mapped(coefficients, column + 0.5, row + 0.5)
            if 2 < x < width - 2 and 2 < y < height - 2:
                seen += 1
                red, green, _ = (found[row, column] + 0.5).tolist()
                assert (red / 3, green / 4) == pytest.approx((x - 0.5, y - 0.5), abs=0.3)
    assert seen > 50


# --- Whole views ------------------------------------------------------------------------------------------------------


def test_the_same_seed_makes_the_same_view() -> None:
    photo = noise(40, 64)
    made = [make_view(photo, random_of(seed)) for seed in range(12)]
    for seed, view in enumerate(made):
        assert np.array_equal(view, make_view(photo, random_of(seed)))
    assert len({view.tobytes() for view in made}) == len(made)


@MODEST
@given(SEEDS, st.integers(1, 150), st.integers(1, 150))
def test_a_view_is_a_photo_of_a_modest_size(seed: int, height: int, width: int) -> None:
    photo = noise(height, width, seed % 7)
    before = photo.copy()
    view = make_view(photo, random_of(seed))
    assert view.dtype == np.uint8
    assert view.shape[2] == 3
    assert min(view.shape[:2]) >= LEAST_SIDE // 2
    assert max(view.shape[:2]) <= max(LEAST_SIDE, height, width)
    assert np.array_equal(photo, before), "the photo itself is left as it was"


def test_a_view_is_of_the_photo_it_was_made_of() -> None:
    """Dark photos make darker views than light ones do, by the same seed."""
    for seed in range(20):
        dark, light = (make_view(np.full((64, 64, 3), value, np.uint8), random_of(seed)) for value in (40, 210))
        assert dark.shape == light.shape
        assert dark.mean() < light.mean()


def test_each_change_is_made_as_often_as_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    draws, counts = 1500, [0] * len(CHANGES)

    def counting(number: int) -> Change:
        def change(pixels: Pixels, random: np.random.Generator) -> Pixels:
            counts[number] += 1
            return pixels

        return change

    monkeypatch.setattr(views, "CHANGES", tuple((counting(n), chance) for n, (_, chance) in enumerate(CHANGES)))
    random = random_of(0)
    for _ in range(draws):
        make_view(np.zeros((2, 2, 3), np.uint8), random)
    for (_, chance), count in zip(CHANGES, counts, strict=True):
        assert abs(count - draws * chance) < 4 * (draws * chance * (1 - chance)) ** 0.5


@pytest.mark.parametrize(("change", "chance"), CHANGES, ids=lambda value: getattr(value, "__name__", None))
@pytest.mark.parametrize("kind", ["noise", "black", "white", "one pixel"])
def test_a_change_keeps_the_size_and_leaves_its_input(change: Change, chance: float, kind: str) -> None:
    shape = (1, 1) if kind == "one pixel" else (40, 33)
    photo = noise(*shape) if kind in ("noise", "one pixel") else np.full((*shape, 3), 255 * (kind == "white"), np.uint8)
    before = photo.copy()
    for seed in range(8):
        found = change(photo, random_of(seed))
        assert found.dtype == np.uint8
        assert found.shape == photo.shape
        assert np.array_equal(found, change(photo, random_of(seed)))
        assert np.array_equal(photo, before)
    assert 0 < chance < 1


def test_a_shadow_only_darkens() -> None:
    photo = noise(40, 50)
    for seed in range(20):
        found = views._shadow(photo, random_of(seed))
        assert (found <= photo).all()
        assert found.mean() > 0.3 * photo.mean()


def test_what_is_hidden_is_plain_or_of_the_photo_and_not_all_of_it() -> None:
    """At most three boxes of at most 0.35 of each side: more than half of the photo is left."""
    photo = noise(50, 60)
    colours = {tuple(colour) for colour in photo.reshape(-1, 3).tolist()}
    plain = 0
    for seed in range(40):
        changed = (found := views._occlude(photo, random_of(seed))) != photo
        hidden = changed.any(axis=2)
        assert hidden.mean() < 3 * 0.35**2
        strange = {tuple(colour) for colour in found[hidden].tolist()} - colours
        assert len(strange) <= 3, "a plain box has one colour"
        plain += bool(strange)
    assert 0 < plain < 40


def test_blur_and_compression_keep_what_the_photo_shows() -> None:
    photo = noise(64, 64)
    for change in (views._blur, views._compress, views._noise):
        for seed in range(6):
            found = change(photo, random_of(seed)).astype(float)
            assert np.corrcoef(found.ravel(), photo.ravel())[0, 1] > 0.8
            assert not np.array_equal(found, photo)
