"""What surfaces are made of: walls, roofs and grounds, painted on a canvas; and colours that go together."""

import numpy as np

from superfeat.drawn.canvas import COLOUR, GLOW, HEIGHT, Canvas, Colour, Layer, darker, hexed, lighter, noise

STONES = ["#d6c5a2", "#cdb48b", "#c49a6c", "#b9b2a4", "#a39c92", "#e3ddd0", "#a8654b", "#d9cfb8", "#8d8780", "#caa98c"]
BRICKS = ["#9a4b37", "#b2624a", "#c38a5c", "#7d4034", "#a9563f", "#8b4a3c", "#b98563"]
PLASTERS = [
    "#e3bd70",
    "#efe2c4",
    "#e2b2a2",
    "#a9c1cf",
    "#bcc7a4",
    "#f0ebe0",
    "#cf8a62",
    "#d8c3d0",
    "#d9a24f",
    "#9db5a6",
]
ROOFS = ["#a24a32", "#8b4433", "#b35f3c", "#4e5661", "#5c5f66", "#6c4a3d", "#3f464f", "#7a5a48"]
METALS = ["#6fa58e", "#83b39c", "#7b858c", "#c6a04a", "#5f7f78", "#4b5560"]
TRIMS = ["#efe9dc", "#e2d6bd", "#cfc0a3", "#b7aea0", "#f3efe6", "#8f6a4f", "#d8d2c6"]
BEAMS = ["#4a3426", "#3b2a22", "#6a3f2b", "#59493a", "#7a2f26"]
DOORS = ["#5b3a26", "#2f4b3c", "#7a2a24", "#2d3f57", "#40322b", "#8a5a2e"]


def pick(rng: np.random.Generator, colours: list[str]) -> Colour:
    """One of them, a little different each time."""
    shift = rng.normal(0, 0.018, 3) + rng.normal(0, 0.025)
    red, green, blue = np.clip(np.asarray(hexed(colours[int(rng.integers(len(colours)))])) + shift, 0.04, 0.97)
    return float(red), float(green), float(blue)


def _courses(
    canvas: Canvas, rng: np.random.Generator, course: float, length: float, joint: float
) -> tuple[Layer, Layer]:
    """Blocks laid in bond: a random number of each block, and how far inside it each texel is (0 in the joint)."""
    row = np.floor(canvas.y / course).astype(np.int64)
    shifted = canvas.x + (row % 2) * (length / 2)
    column = np.floor(shifted / length).astype(np.int64)
    columns = max(round(canvas.width / length), 1)
    values = rng.random((int(row.max()) + 1, columns), dtype=np.float32)
    across = np.minimum(shifted - column * length, (column + 1) * length - shifted)
    along = np.minimum(canvas.y - row * course, (row + 1) * course - canvas.y)
    inside = np.clip((np.minimum(across, along) - joint / 2) * canvas.scale + 0.5, 0, 1)
    return values[row, column % columns], np.asarray(inside, np.float32)


def _weather(canvas: Canvas, rng: np.random.Generator, strength: float) -> None:
    """Large stains and fine grain."""
    stains = noise(rng, canvas.shape, 2.5 * canvas.scale, 3)
    grain = rng.random(canvas.shape, dtype=np.float32)
    canvas.shade(1 + strength * (stains - 0.5) * 0.9 + strength * (grain - 0.5) * 0.22)


def paint_blocks(
    canvas: Canvas, rng: np.random.Generator, colour: Colour, course: float, length: float, relief: float, spread: float
) -> None:
    """Bricks or stones with joints."""
    value, inside = _courses(canvas, rng, course, length, max(course * 0.07, 0.03))
    joint = lighter(colour, 0.35) if course < 0.3 else darker(colour, 0.3)
    canvas.paint(np.ones_like(inside), joint, height=0.0)
    canvas.paint(inside, colour)
    canvas.layers[HEIGHT] += inside * relief + (value - 0.5) * relief * 0.3
    canvas.shade(1 + (value - 0.5) * spread * inside)
    _weather(canvas, rng, 0.16)


def paint_plaster(canvas: Canvas, rng: np.random.Generator, colour: Colour) -> None:
    """Smooth, a little uneven, darker at the foot."""
    canvas.paint(np.ones(canvas.shape, np.float32), colour)
    _weather(canvas, rng, 0.14)
    canvas.shade(np.broadcast_to(1 - 0.16 * np.exp(-canvas.y / 0.9), canvas.shape).astype(np.float32))


def paint_timber(
    canvas: Canvas, rng: np.random.Generator, colour: Colour, beam: Colour, storey: float, bay: float
) -> None:
    """Plaster between beams: posts, rails, and braces in bays chosen once per storey."""
    paint_plaster(canvas, rng, colour)
    half = 0.1
    for level in range(int(canvas.height / storey) + 2):
        low = level * storey
        canvas.paint(canvas.cover(canvas.box(-1, low - 0.14, 999, low + 0.14)), beam, height=0.05)
        canvas.paint(
            canvas.cover(canvas.box(-1, low + 0.33 * storey, 999, low + 0.33 * storey + 0.14)), beam, height=0.04
        )
        kinds = rng.integers(0, 4, int(canvas.width / bay) + 2)
        for place, kind in enumerate(kinds):
            left = place * bay
            area = canvas.part(left - 0.2, low - 0.2, left + bay + 0.2, low + storey + 0.2)
            if area.layers.size == 0:
                continue
            area.paint(area.cover(area.box(left - half, low, left + half, low + storey)), beam, height=0.05)
            for slope in (-1, 1):
                if kind == 3 or (kind == 1 and slope > 0) or (kind == 2 and slope < 0):
                    tilt = storey / bay * slope
                    line = area.y - low - storey / 2 - tilt * (area.x - left - bay / 2)
                    brace = np.abs(line) / np.hypot(1, tilt) - half * 0.8
                    brace = np.maximum(brace, area.box(left, low, left + bay, low + storey))
                    area.paint(area.cover(np.asarray(brace, np.float32)), beam, height=0.04)


def paint_glass(canvas: Canvas, rng: np.random.Generator, colour: Colour, storey: float, bay: float) -> None:
    """A curtain wall: panes that mirror the sky, mullions, spandrels at the floors; some offices are lit."""
    value, inside = _courses(canvas, rng, storey, bay, 0.16)
    row = np.floor(canvas.y / storey)
    column = np.floor(canvas.x / bay).astype(np.int64)
    lit = rng.random((int(row.max()) + 1, int(column.max()) + 1), dtype=np.float32)[row.astype(np.int64), column]
    across = np.minimum(canvas.x - column * bay, (column + 1) * bay - canvas.x)
    above = canvas.y - row * storey
    pane = canvas.cover(
        np.asarray(np.maximum(0.09 - across, np.maximum(0.5 - above, above - storey + 0.08)), np.float32)
    )
    canvas.paint(np.ones_like(inside), lighter(colour, 0.3), height=0.05)
    canvas.paint(pane, darker(colour, 0.55), height=0.0, gloss=0.85)
    canvas.layers[GLOW] += pane * np.where(lit > 0.55, 0.35 + 0.6 * lit, 0.0)
    canvas.shade(1 + (value - 0.5) * 0.1)


def paint_mosaic(canvas: Canvas, rng: np.random.Generator, colour: Colour, second: Colour) -> None:
    """Glazed tiles in a pattern of diamonds and dots."""
    paint_blocks(canvas, rng, colour, 0.5, 0.5, 0.01, 0.08)
    size = 1.0
    x, y = np.abs(canvas.x % size - size / 2), np.abs(canvas.y % size - size / 2)
    diamond = np.abs(x + y - 0.38) - 0.07
    dot = np.hypot(x, y) - 0.13
    canvas.paint(canvas.cover(np.asarray(np.minimum(diamond, dot), np.float32)), second, gloss=0.12)


def paint_roof(canvas: Canvas, rng: np.random.Generator, colour: Colour, course: float = 0.4) -> None:
    """Rows of tiles that overlap downwards."""
    value, _ = _courses(canvas, rng, course, course * 0.75, 0.02)
    down = (canvas.y % course) / course
    canvas.paint(np.ones_like(value), colour)
    row = np.floor(canvas.y / course)
    bulge = np.abs(np.sin((canvas.x / (course * 0.75) + 0.5 * (row % 2)) * np.pi))
    canvas.layers[HEIGHT] = (1 - down) * 0.07 + 0.03 * bulge
    ridges = 0.86 + 0.14 * np.minimum(4 * (1 - down), 1)
    canvas.shade(np.asarray((1 + (value - 0.5) * 0.28) * ridges, np.float32))
    _weather(canvas, rng, 0.2)


def paint_metal(canvas: Canvas, rng: np.random.Generator, colour: Colour, seam: float = 0.75) -> None:
    """Sheets with standing seams and run-off stains."""
    canvas.paint(np.ones(canvas.shape, np.float32), colour, gloss=0.1)
    edge = np.broadcast_to(np.abs((canvas.x + seam / 2) % seam - seam / 2) - 0.045, canvas.shape)
    canvas.paint(canvas.cover(np.asarray(edge, np.float32)), darker(colour, 0.2), height=0.06)
    streaks = noise(rng, (1, canvas.layers.shape[1]), 0.4 * canvas.scale, 2)
    canvas.shade(np.broadcast_to(0.9 + 0.2 * streaks, canvas.shape).astype(np.float32))
    _weather(canvas, rng, 0.16)


def paint_grass(canvas: Canvas, rng: np.random.Generator, colour: Colour) -> None:
    """Lawn: blades of many greens."""
    shape = canvas.shape
    canvas.paint(np.ones(shape, np.float32), colour)
    dry = noise(rng, shape, 3 * canvas.scale, 3)
    canvas.paint(np.clip(dry * 1.6 - 0.7, 0, 0.5), (0.62, 0.58, 0.33))
    canvas.shade(0.75 + 0.5 * noise(rng, shape, 0.25 * canvas.scale, 2))


def paint_water(canvas: Canvas, rng: np.random.Generator) -> None:
    """Ripples that mirror the sky."""
    shape = canvas.shape
    canvas.paint(np.ones(shape, np.float32), (0.2, 0.33, 0.36), gloss=0.75)
    canvas.layers[HEIGHT] = 0.12 * noise(rng, shape, 1.5 * canvas.scale, 3)


def paint_asphalt(canvas: Canvas, rng: np.random.Generator, colour: Colour) -> None:
    """Grey with patches."""
    canvas.paint(np.ones(canvas.shape, np.float32), colour)
    _weather(canvas, rng, 0.22)


def speckle(canvas: Canvas, rng: np.random.Generator, strength: float) -> None:
    """Differences of colour between texels, without change of the mean."""
    spots = rng.random(canvas.shape, dtype=np.float32) - 0.5
    canvas.layers[COLOUR] *= 1 + strength * spots
