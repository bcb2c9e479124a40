"""Windows, doors, clocks and rose windows, each painted on a small canvas of its own to be stamped on walls."""

import dataclasses
import math

import numpy as np

from superfeat.drawn.canvas import ALPHA, COLOUR, Canvas, Colour, darker, hexed, lighter, mixed
from superfeat.drawn.materials import BEAMS, DOORS, TRIMS, pick

SURROUND = 0.6  # metres around an opening for its surround
GLASSES = [(0.13, 0.17, 0.22), (0.10, 0.14, 0.17), (0.17, 0.22, 0.26), (0.16, 0.15, 0.15)]
RISES = (0.0, 0.0, 0.3, 1.0, 1.0, 1.7)
HEADS = ("plain", "plain", "lintel", "gable", "arc", "keystone")


@dataclasses.dataclass(frozen=True)
class Window:
    """How a window is made. `rise` is that of its arch: 0 flat, 1 round, more is pointed."""

    width: float
    height: float
    rise: float
    columns: int
    rows: int
    frame: Colour
    trim: Colour
    border: float
    head: str
    shutter: Colour | None
    glass: Colour
    sill: bool


def design_window(rng: np.random.Generator, width: float, height: float, trim: Colour, rise: float | None) -> Window:
    """A window of about this size."""
    own_rise = float(rng.choice(RISES)) if rise is None else rise
    flat = own_rise < 0.5
    shutters = flat and rng.random() < 0.25
    return Window(
        width * rng.uniform(0.85, 1.1),
        height * rng.uniform(0.9, 1.08),
        own_rise,
        int(rng.integers(1, 4)) if width > 0.8 else 1,
        int(rng.integers(2, 6)),
        pick(rng, [*TRIMS[:5], *BEAMS[:3]]),
        trim,
        float(rng.choice([0.0, 0.12, 0.18, 0.26])),
        str(rng.choice(HEADS)) if flat else str(rng.choice(["plain", "keystone"])),
        pick(rng, [*DOORS, "#6f8f86", "#7d8a5a"]) if shutters else None,
        GLASSES[int(rng.integers(len(GLASSES)))],
        bool(rng.random() < 0.75),
    )


def _sheet(width: float, height: float, scale: float) -> Canvas:
    """Empty, with a margin around the opening, which begins at (SURROUND, SURROUND)."""
    canvas = Canvas.blank(width + 2 * SURROUND, height + 2 * SURROUND, scale)
    canvas.layers[ALPHA] = 0
    return canvas


def _lay(
    canvas: Canvas, distance: np.ndarray, colour: Colour, height: float, gloss: float = 0.0, glow: float = 0.0
) -> None:
    """Paints a part and makes it opaque."""
    where = canvas.cover(distance)
    alpha = canvas.layers[ALPHA]
    share = where / np.maximum(where + alpha * (1 - where), 1e-6)  # an edge over nothing is not mixed with nothing
    canvas.paint(np.asarray(share, np.float32), colour, height=height, gloss=gloss, glow=glow)
    canvas.layers[ALPHA] = np.maximum(alpha, where)


def paint_window(window: Window, scale: float) -> Canvas:
    """Surround, head, sill, recess, glass and bars."""
    canvas = _sheet(window.width, window.height, scale)
    left, low, right, high = SURROUND, SURROUND, SURROUND + window.width, SURROUND + window.height
    opening = canvas.arch(left, low, right, high, window.rise)
    if window.border:
        _lay(canvas, opening - np.float32(window.border), window.trim, 0.07)
    _paint_head(canvas, window, left, right, high)
    _lay(canvas, opening, darker(window.trim, 0.45), -0.1)
    pane = opening + np.float32(0.07)
    _lay(canvas, pane, window.frame, -0.07)
    _lay(canvas, opening + np.float32(0.15), window.glass, -0.14, gloss=0.75, glow=1.0)
    bright = np.clip((canvas.y - low) / window.height, 0, 1) * 0.25 + 0.85
    inside = canvas.cover(opening + np.float32(0.15))
    canvas.shade(np.asarray(1 + inside * (bright - 1), np.float32))
    bars = np.full(canvas.shape, 9.0, np.float32)
    for column in range(1, window.columns):
        bars = np.minimum(bars, np.abs(canvas.x - left - window.width * column / window.columns) - 0.035)
    for row in range(1, window.rows):
        bars = np.minimum(bars, np.abs(canvas.y - low - window.height * row / window.rows) - 0.03)
    if window.rise > 1.2 and window.columns > 1:
        bars = np.maximum(bars, canvas.y - high + window.width * 0.75)
        ring = np.abs(canvas.disc((left + right) / 2, high - window.width * 0.62, window.width * 0.22)) - 0.05
        bars = np.minimum(bars, ring)
    _lay(canvas, np.asarray(np.maximum(bars, pane), np.float32), window.frame, -0.09)
    if window.sill:
        _lay(canvas, canvas.box(left - 0.16, low - 0.16, right + 0.16, low), lighter(window.trim, 0.15), 0.14)
    if window.shutter is not None:
        _paint_shutters(canvas, window, left, low, right, high)
    return canvas


def _paint_head(canvas: Canvas, window: Window, left: float, right: float, high: float) -> None:
    """What is above the opening."""
    middle, trim = (left + right) / 2, lighter(window.trim, 0.1)
    if window.head == "lintel":
        _lay(canvas, canvas.box(left - 0.22, high + 0.1, right + 0.22, high + 0.32), trim, 0.16)
    elif window.head == "gable":
        half = (right - left) / 2 + 0.3
        slope = np.maximum(canvas.y - high - 0.5 + np.abs(canvas.x - middle) * 0.4 / half, high + 0.1 - canvas.y)
        _lay(canvas, np.asarray(slope, np.float32), trim, 0.16)
    elif window.head == "arc":
        bow = np.maximum(canvas.disc(middle, high - 0.9, 1.4), high + 0.06 - canvas.y)
        bow = np.maximum(bow, np.abs(canvas.x - middle) - (right - left) / 2 - 0.25)
        _lay(canvas, np.asarray(bow, np.float32), trim, 0.16)
    elif window.head == "keystone":
        wedge = np.abs(canvas.x - middle) - 0.13 - (canvas.y - high) * 0.15
        wedge = np.maximum(wedge, np.abs(canvas.y - high - 0.14) - 0.24)
        _lay(canvas, np.asarray(wedge, np.float32), trim, 0.15)


def _paint_shutters(canvas: Canvas, window: Window, left: float, low: float, right: float, high: float) -> None:
    """Open ones, with slats."""
    assert window.shutter is not None
    leaf = min(window.width / 2, SURROUND - 0.06)
    for start in (left - leaf, right):
        board = canvas.box(start + 0.02, low, start + leaf - 0.02, high)
        _lay(canvas, board, window.shutter, 0.06)
        slats = (np.sin(canvas.y * 2 * np.pi / 0.16) > 0.2) * canvas.cover(board + np.float32(0.07))
        canvas.shade(1 - 0.3 * np.asarray(slats, np.float32))


def paint_door(
    rng: np.random.Generator, width: float, height: float, rise: float, trim: Colour, scale: float
) -> Canvas:
    """Two leaves of panels under an arch or a lintel, in a stepped surround."""
    canvas = _sheet(width, height, scale)
    left, low, right, high = SURROUND, SURROUND, SURROUND + width, SURROUND + height
    wood = pick(rng, DOORS)
    opening = canvas.arch(left, low - 2, right, high, rise)
    for step, colour in ((0.45, trim), (0.3, darker(trim, 0.25)), (0.18, lighter(trim, 0.2))):
        _lay(canvas, opening - np.float32(step), colour, 0.12 * step / 0.45 + 0.02)
    _lay(canvas, opening, darker(wood, 0.3), -0.16)
    leaves = opening + np.float32(0.1)
    _lay(canvas, leaves, wood, -0.12)
    across = np.abs((canvas.x - left) % (width / 4) - width / 8) - width / 8 + 0.1
    along = np.abs((canvas.y - low) % (height / 4) - height / 8) - height / 8 + 0.12
    panel = np.maximum(np.maximum(across, along), leaves + 0.06)
    _lay(canvas, np.asarray(panel, np.float32), darker(wood, 0.22), -0.17)
    if height > 3 and rise < 2:  # a fanlight over the leaves
        fan = np.maximum(leaves + 0.04, low + height * 0.68 - canvas.y)
        _lay(canvas, np.asarray(fan, np.float32), GLASSES[0], -0.16, gloss=0.6, glow=0.9)
        bars = np.abs((canvas.x - left) % (width / 4)) - 0.05
        _lay(canvas, np.asarray(np.maximum(bars, fan), np.float32), wood, -0.1)
    _lay(
        canvas,
        np.asarray(np.maximum(np.abs(canvas.x - (left + right) / 2) - 0.03, leaves), np.float32),
        darker(wood, 0.6),
        -0.2,
    )
    canvas.layers[ALPHA, canvas.y[:, 0] < low] = 0
    return canvas


def paint_clock(rng: np.random.Generator, radius: float, trim: Colour, scale: float) -> Canvas:
    """A dial with twelve marks and two hands; the time is the building's own."""
    canvas = _sheet(2 * radius, 2 * radius, scale)
    middle = SURROUND + radius
    dark = bool(rng.random() < 0.4)
    face = hexed("#22303f") if dark else hexed("#f2ecdc")
    ink = hexed("#e2c268") if dark else hexed("#2a2622")
    _lay(canvas, canvas.disc(middle, middle, radius * 1.12), trim, 0.14)
    _lay(canvas, canvas.disc(middle, middle, radius * 0.98), mixed(face, ink, 0.75), 0.02)
    _lay(canvas, canvas.disc(middle, middle, radius * 0.92), face, 0.0, glow=0.55)
    x, y = canvas.x - middle, canvas.y - middle
    angle = np.arctan2(x, y)
    mark = np.abs((angle + np.pi / 12) % (np.pi / 6) - np.pi / 12) * np.hypot(x, y) - radius * 0.035
    ring = np.abs(np.hypot(x, y) - radius * 0.76) - radius * 0.1
    _lay(canvas, np.asarray(np.maximum(mark, ring), np.float32), ink, 0.01)
    hour, minute = rng.uniform(0, 2 * np.pi, 2)
    for turn, reach, thick in ((hour, 0.48, 0.06), (minute, 0.74, 0.04)):
        along, off = x * math.sin(turn) + y * math.cos(turn), x * math.cos(turn) - y * math.sin(turn)
        hand = np.maximum(np.abs(off) - radius * thick, np.abs(along - radius * reach / 2) - radius * reach / 2)
        _lay(canvas, np.asarray(hand, np.float32), ink, 0.02)
    return canvas


def paint_rose(rng: np.random.Generator, radius: float, trim: Colour, scale: float) -> Canvas:
    """A round window of petals; its coloured glass shows at night."""
    canvas = _sheet(2 * radius, 2 * radius, scale)
    middle, petals = SURROUND + radius, int(rng.choice([6, 8, 8, 10, 12]))
    x, y = canvas.x - middle, canvas.y - middle
    distance, angle = np.hypot(x, y), np.arctan2(y, x)
    _lay(canvas, canvas.disc(middle, middle, radius * 1.1), trim, 0.1)
    _lay(canvas, canvas.disc(middle, middle, radius), darker(trim, 0.2), 0.0)
    glass = [
        hexed(code) for code in rng.choice(["#30406e", "#5a2338", "#2f5a52", "#6a4a22", "#37305e"], 2, replace=False)
    ]
    spoke = np.abs((angle + np.pi / petals) % (2 * np.pi / petals) - np.pi / petals)
    for ring, reach, colour in ((0.62, 0.24, glass[0]), (0.87, 0.09, glass[1])):
        offset = spoke if ring < 0.8 else np.pi / petals - spoke
        width = 0.8 * np.pi / petals * ring * radius
        petal = np.hypot(offset * distance / width, (distance - ring * radius) / (reach * radius)) - 1
        _lay(canvas, np.asarray(petal * min(width, reach * radius), np.float32), colour, -0.14, gloss=0.5, glow=0.8)
    _lay(canvas, canvas.disc(middle, middle, radius * 0.24), glass[1], -0.14, gloss=0.5, glow=0.9)
    canvas.layers[COLOUR] = np.clip(canvas.layers[COLOUR], 0, 1)
    return canvas
