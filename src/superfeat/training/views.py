"""Views made from one photo: every photo is a thing of its own, seen from elsewhere, in other light, by a worse camera.

It costs no labels. A view keeps what can be told from a plane: it is a homography of the photo, so it teaches tilt,
scale, light and noise, and not what only a second photo knows.
"""

import io
from collections.abc import Callable

import numpy as np
from jaxtyping import Float64, UInt8
from PIL import Image, ImageFilter

LEAST_CROP, MOST_CROP = 0.35, 1.0  # side of the part that is seen, as a share of the photo's
MOST_TILT = 0.45  # how much of the part's side a corner may move inwards
MOST_ROLL = 15.0  # degrees
MOST_STRETCH = 1.3
LEAST_SCALE = 0.5  # of the view's longest side against the photo's
LEAST_SIDE = 64  # pixels
MOST_OCCLUDERS = 3
OCCLUDER_SIDES = (0.08, 0.35)
JPEG_QUALITIES = (25, 95)

Pixels = UInt8[np.ndarray, "height width 3"]
View = UInt8[np.ndarray, "high wide 3"]  # of another size than its photo
Change = Callable[[Pixels, np.random.Generator], Pixels]


def make_view(pixels: Pixels, random: np.random.Generator) -> View:
    """Another view of the same: a part of it, tilted and scaled, in other light, partly hidden, blurred, compressed."""
    view = _warp(pixels, random)
    for change, chance in CHANGES:
        if random.random() < chance:
            view = change(view, random)
    return view


def _warp(pixels: Pixels, random: np.random.Generator) -> View:
    """A random quadrilateral of the photo as a rectangle."""
    height, width = pixels.shape[:2]
    corners = _quadrilateral(random) * (width, height)
    across = np.linalg.norm(corners[1] - corners[0]) + np.linalg.norm(corners[2] - corners[3])
    down = np.linalg.norm(corners[3] - corners[0]) + np.linalg.norm(corners[2] - corners[1])
    stretch = MOST_STRETCH ** random.uniform(-1, 1)
    shape = np.asarray((across * stretch, down / stretch))
    longest = max(LEAST_SIDE, max(height, width) * random.uniform(LEAST_SCALE, 1.0))
    wide, high = np.maximum(np.rint(shape * longest / shape.max()), LEAST_SIDE / 2).astype(int).tolist()
    coefficients = homography(_rectangle(wide, high), corners)
    image = Image.fromarray(pixels).transform(
        (wide, high), Image.Transform.PERSPECTIVE, coefficients.tolist(), Image.Resampling.BICUBIC
    )
    return np.asarray(image)


def _quadrilateral(random: np.random.Generator) -> Float64[np.ndarray, "4 2"]:
    """Corners (clockwise from the upper left, in fractions) of a part of the unit square, seen aslant, inside it."""
    side = random.uniform(LEAST_CROP, MOST_CROP)
    part = (_rectangle(1.0, 1.0) - 0.5) * side
    tilt = random.uniform(0, MOST_TILT) ** 1.5 * MOST_TILT**-0.5
    tilted = part - part * random.uniform(0, tilt, (4, 2)) * 2
    while not _is_convex(tilted):  # a corner behind the line of its neighbours is seen from nowhere
        tilted = part - part * random.uniform(0, tilt, (4, 2)) * 2
    angle = np.deg2rad(np.clip(random.normal(0, MOST_ROLL / 2), -MOST_ROLL, MOST_ROLL))
    part = tilted @ np.asarray(((np.cos(angle), np.sin(angle)), (-np.sin(angle), np.cos(angle))))
    low, high = part.min(axis=0), part.max(axis=0)
    shrink = min(1.0, float((1 / (high - low)).min()))  # a turned square must fit again
    part, low, high = part * shrink, low * shrink, high * shrink
    placed: np.ndarray = part + -low + random.random(2) * np.maximum(0, 1 - (high - low))
    return placed


def _is_convex(corners: Float64[np.ndarray, "4 2"]) -> bool:
    """Whether all turns of a clockwise way round are to the right."""
    sides = np.roll(corners, -1, axis=0) - corners
    following = np.roll(sides, -1, axis=0)
    return bool((sides[:, 0] * following[:, 1] > sides[:, 1] * following[:, 0]).all())


def _rectangle(width: float, height: float) -> Float64[np.ndarray, "4 2"]:
    return np.asarray(((0.0, 0.0), (width, 0.0), (width, height), (0.0, height)), np.float64)


def homography(source: Float64[np.ndarray, "4 2"], target: Float64[np.ndarray, "4 2"]) -> Float64[np.ndarray, "8"]:
    """a..h with target = ((a x + b y + c) / (g x + h y + 1), (d x + e y + f) / (g x + h y + 1)) at four points."""
    rows = []
    for (x, y), (u, v) in zip(source, target, strict=True):
        rows += [(x, y, 1, 0, 0, 0, -u * x, -u * y), (0, 0, 0, x, y, 1, -v * x, -v * y)]
    found: np.ndarray = np.linalg.solve(np.asarray(rows, np.float64), target.reshape(8))
    return found


def _light(pixels: Pixels, random: np.random.Generator) -> Pixels:
    """Gamma, contrast, colour of the light, saturation."""
    values = (pixels / 255.0) ** (2.0 ** random.uniform(-0.9, 0.9))
    values = values * random.uniform(0.8, 1.2, 3)
    grey = values.mean(axis=2, keepdims=True)
    values = grey + (values - grey) * random.uniform(0.3, 1.4)
    middle = values.mean()
    values = middle + (values - middle) * random.uniform(0.6, 1.35) + random.uniform(-0.1, 0.1)
    return _to_bytes(255 * values)


def _shadow(pixels: Pixels, random: np.random.Generator) -> Pixels:
    """A soft edge of shadow across the view."""
    height, width = pixels.shape[:2]
    angle = random.uniform(0, 2 * np.pi)
    x, y = np.linspace(-1, 1, width), np.linspace(-1, 1, height)[:, None]
    distance = np.cos(angle) * x + np.sin(angle) * y - random.uniform(-0.6, 0.6)
    dark = random.uniform(0.35, 0.8)
    factor = dark + (1 - dark) / (1 + np.exp(-distance / random.uniform(0.02, 0.3)))
    return _to_bytes(pixels * factor[..., None])


def _blur(pixels: Pixels, random: np.random.Generator) -> Pixels:
    radius = random.uniform(0.3, 1.6)
    return np.asarray(Image.fromarray(pixels).filter(ImageFilter.GaussianBlur(radius)))


def _noise(pixels: Pixels, random: np.random.Generator) -> Pixels:
    return _to_bytes(pixels + random.normal(0, random.uniform(2, 16), pixels.shape))


def _occlude(pixels: Pixels, random: np.random.Generator) -> Pixels:
    """Something in front: plain boxes, or boxes of another part of the photo."""
    hidden = pixels.copy()
    height, width = pixels.shape[:2]
    for _ in range(random.integers(1, MOST_OCCLUDERS + 1)):
        h, w = (np.maximum(1, random.uniform(*OCCLUDER_SIDES, 2) * (height, width))).astype(int)
        (y, x), (v, u) = (random.integers((0, 0), (height - h + 1, width - w + 1)) for _ in range(2))
        plain = random.random() < 0.5
        hidden[y : y + h, x : x + w] = random.integers(0, 256, 3) if plain else pixels[v : v + h, u : u + w]
    return hidden


def _compress(pixels: Pixels, random: np.random.Generator) -> Pixels:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=int(random.integers(*JPEG_QUALITIES)))
    return np.asarray(Image.open(file))


def _to_bytes(values: Float64[np.ndarray, "height width 3"]) -> Pixels:
    rounded: np.ndarray = np.rint(values).clip(0, 255)
    return rounded.astype(np.uint8)


CHANGES: tuple[tuple[Change, float], ...] = (
    (_light, 0.8),
    (_shadow, 0.2),
    (_occlude, 0.3),
    (_blur, 0.3),
    (_noise, 0.3),
    (_compress, 0.5),
)  # each with how often it is made, in this order
