"""Surfaces to paint on, in metres: colour, relief, glow of lit windows, gloss of glass, holes; and their halvings."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from jaxtyping import Float32, UInt8

from superfeat.drawn.raster import Textures
from superfeat.drawn.shading import HALF, RELIEF

Layer = npt.NDArray[np.float32]
Colour = tuple[float, float, float]
COLOUR, HEIGHT, GLOW, GLOSS, ALPHA = slice(0, 3), 3, 4, 5, 6
MOST_LEVELS = 8


def hexed(code: str) -> Colour:
    """'#c8a27a' as three numbers from 0 to 1."""
    red, green, blue = (int(code[place : place + 2], 16) / 255 for place in (1, 3, 5))
    return red, green, blue


def mixed(first: Colour, second: Colour, part: float) -> Colour:
    """`part` of the second in the first."""
    red, green, blue = (a + (b - a) * part for a, b in zip(first, second, strict=True))
    return red, green, blue


def darker(colour: Colour, by: float) -> Colour:
    """Mixed with a warm black."""
    return mixed(colour, (0.07, 0.06, 0.06), by)


def lighter(colour: Colour, by: float) -> Colour:
    """Mixed with a warm white."""
    return mixed(colour, (0.98, 0.96, 0.92), by)


@dataclasses.dataclass
class Canvas:
    """Layers over a rectangle of metres, row 0 at the bottom. `x` and `y` are the places of the texels' middles."""

    layers: Float32[np.ndarray, "7 height width"]
    x: Float32[np.ndarray, "1 width"]
    y: Float32[np.ndarray, "height 1"]
    scale: float

    @classmethod
    def blank(cls, width: float, height: float, scale: float, colour: Colour = (0.5, 0.5, 0.5)) -> "Canvas":
        """One colour, flat, without holes; `scale` is texels per metre."""
        columns, rows = max(round(width * scale), 2), max(round(height * scale), 2)
        layers = np.zeros((7, rows, columns), np.float32)
        layers[COLOUR] = np.asarray(colour, np.float32)[:, None, None]
        layers[ALPHA] = 1
        x = (np.arange(columns, dtype=np.float32)[None] + 0.5) / np.float32(scale)
        y = (np.arange(rows, dtype=np.float32)[:, None] + 0.5) / np.float32(scale)
        return cls(layers, x, y, scale)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.layers.shape[1], self.layers.shape[2]

    @property
    def width(self) -> float:
        """In metres."""
        return float(self.layers.shape[2] / self.scale)

    @property
    def height(self) -> float:
        """In metres."""
        return float(self.layers.shape[1] / self.scale)

    def part(self, left: float, low: float, right: float, high: float) -> "Canvas":
        """A window onto a part of it, with the same coordinates: what is painted there is painted here."""
        rows = slice(max(int(low * self.scale), 0), max(int(high * self.scale) + 1, 0))
        columns = slice(max(int(left * self.scale), 0), max(int(right * self.scale) + 1, 0))
        return Canvas(self.layers[:, rows, columns], self.x[:, columns], self.y[rows], self.scale)

    def cover(self, distance: Layer) -> Layer:
        """How much of each texel lies inside a shape, given its signed distance in metres (negative inside)."""
        return np.asarray(np.clip(0.5 - distance * np.float32(self.scale), 0, 1), np.float32)

    def paint(
        self,
        where: Layer,
        colour: Colour | None = None,
        *,
        height: float | None = None,
        glow: float | None = None,
        gloss: float | None = None,
    ) -> None:
        """Lays values over the covered texels; what is not given stays."""
        rows, columns = _extent(where)
        part = where[rows, columns]
        values = [*zip((0, 1, 2), colour or (None,) * 3, strict=True), (HEIGHT, height), (GLOW, glow), (GLOSS, gloss)]
        for layer, value in values:
            if value is not None:
                target = self.layers[layer, rows, columns]
                target += part * (np.float32(value) - target)

    def shade(self, factor: Layer) -> None:
        """Multiplies the colour."""
        self.layers[COLOUR] *= factor

    def stamp(self, picture: "Canvas", x: float, y: float, glow: float = 1.0) -> None:
        """Lays another canvas on this one with its lower left corner at (x, y), through its alpha."""
        row, column = round(y * self.scale), round(x * self.scale)
        rows, columns = picture.shape
        below, left = max(-row, 0), max(-column, 0)
        target = self.layers[:ALPHA, max(row, 0) : max(row + rows, 0), max(column, 0) : max(column + columns, 0)]
        source = picture.layers[:, below : below + target.shape[1], left : left + target.shape[2]]
        if target.size == 0 or source.size == 0:
            return
        values = source[:ALPHA].copy()
        values[GLOW] *= np.float32(glow)
        target += source[ALPHA] * (values - target)

    def box(self, left: float, low: float, right: float, high: float) -> Layer:
        """The distance to a rectangle."""
        across = np.abs(self.x - (left + right) / 2) - (right - left) / 2
        along = np.abs(self.y - (low + high) / 2) - (high - low) / 2
        return np.asarray(np.maximum(across, along), np.float32)

    def disc(self, x: float, y: float, radius: float) -> Layer:
        """The distance to a disc."""
        return np.asarray(np.hypot(self.x - x, self.y - y) - radius, np.float32)

    def arch(self, left: float, low: float, right: float, high: float, rise: float) -> Layer:
        """The distance to a doorway: a box whose top is flat (rise 0), a low arc, round (1), or pointed (above 1)."""
        if rise <= 0.02:
            return self.box(left, low, right, high)
        half, middle = (right - left) / 2, (left + right) / 2
        top = half * rise
        spring = max(high - top, low)
        reach = (half * half + top * top) / (2 * half if rise > 1 else 2 * top)
        if rise > 1:
            arc = np.hypot(np.abs(self.x - middle) + reach - half, np.maximum(self.y - spring, 0)) - reach
        else:
            arc = np.hypot(self.x - middle, np.maximum(self.y - (high - reach), 0)) - reach
        box = self.box(left, low, right, high)
        return np.asarray(np.where(self.y > spring, np.maximum(arc, np.abs(self.x - middle) - half), box), np.float32)


def _extent(where: Layer) -> tuple[slice, slice]:
    """The rows and columns in which anything is covered."""
    rows, columns = np.flatnonzero(where.any(axis=1)), np.flatnonzero(where.any(axis=0))
    if len(rows) == 0:
        return slice(0, 0), slice(0, 0)
    return slice(int(rows[0]), int(rows[-1]) + 1), slice(int(columns[0]), int(columns[-1]) + 1)


def finish(canvas: Canvas, *, cavities: float = 0.9) -> UInt8[np.ndarray, "height width 8"]:
    """Texels: root of colour, slopes of the relief, glow, gloss, alpha; what lies deep is darkened."""
    layers = canvas.layers
    height = layers[HEIGHT]
    around = blurred(height, max(int(canvas.scale * 0.16), 1))
    deep = np.clip(around - height, 0, 0.25)
    out = np.empty((8, *height.shape), np.float32)
    out[:3] = layers[COLOUR] * (1 - cavities * 2.6 * deep)
    for channel, axis in ((3, 1), (4, 0)):
        slope = (np.roll(height, 1, axis) - np.roll(height, -1, axis)) * np.float32(canvas.scale / 2)
        out[channel] = slope * np.float32(0.4 / RELIEF) + np.float32(HALF)
    out[5:] = layers[[GLOW, GLOSS, ALPHA]]
    np.clip(out, 0, 1, out=out)
    out *= 255
    texels: UInt8[np.ndarray, "height width 8"] = np.rint(out).astype(np.uint8).transpose(1, 2, 0)
    return np.ascontiguousarray(texels)


def blurred(values: Layer, radius: int) -> Layer:
    """Averaged over a square window, the ends repeated."""
    for axis in (0, 1):
        pad = [(radius + 1, radius) if axis == own else (0, 0) for own in (0, 1)]
        sums = np.cumsum(np.pad(values, pad, mode="edge"), axis=axis, dtype=np.float32)
        size = values.shape[axis]
        ends, starts = np.arange(size) + 2 * radius + 1, np.arange(size)
        values = (sums.take(ends, axis) - sums.take(starts, axis)) / np.float32(2 * radius + 1)
    return values


def noise(rng: np.random.Generator, shape: tuple[int, int], cell: float, octaves: int = 1) -> Layer:
    """Smooth, between 0 and 1, repeating at the edges; `cell` is the size of the largest lumps in texels."""
    total, weight, sums = np.zeros(shape, np.float32), 1.0, 0.0
    for octave in range(octaves):
        rows, columns = (max(int(side / cell * 2**octave), 1) for side in shape)
        grid = rng.random((rows, columns), dtype=np.float32)
        total += np.float32(weight) * _enlarged(_enlarged(grid, shape[0], 0), shape[1], 1)
        sums, weight = sums + weight, weight / 2
    return total / np.float32(sums)


def _enlarged(grid: Layer, size: int, axis: int) -> Layer:
    places = np.arange(size) * (grid.shape[axis] / size)
    first = places.astype(np.int64)
    part = (places - first).astype(np.float32)
    part = part * part * (3 - 2 * part)
    part = part[:, None] if axis == 0 else part[None, :]
    after = (first + 1) % grid.shape[axis]
    return np.asarray(grid.take(first, axis) * (1 - part) + grid.take(after, axis) * part, np.float32)


@dataclasses.dataclass(frozen=True)
class Texture:
    """A finished texture with its halvings."""

    levels: tuple[UInt8[np.ndarray, "height width 8"], ...]
    scale: float
    holes: bool

    @classmethod
    def of(cls, canvas: Canvas, *, holes: bool = False, cavities: float = 0.9) -> "Texture":
        """Halves until a side is one texel, or often enough."""
        levels = [finish(canvas, cavities=cavities)]
        while len(levels) < MOST_LEVELS and min(levels[-1].shape[:2]) > 1:
            levels.append(_halved(levels[-1]))
        return cls(tuple(levels), canvas.scale, holes)


def _halved(texels: UInt8[np.ndarray, "height width 8"]) -> UInt8[np.ndarray, "rows columns 8"]:
    rows, columns = texels.shape[0] // 2, texels.shape[1] // 2
    even = texels[: 2 * rows, : 2 * columns].astype(np.uint16)
    total = even[0::2, 0::2] + even[1::2, 0::2] + even[0::2, 1::2] + even[1::2, 1::2]
    return ((total + 2) >> 2).astype(np.uint8)


def bind(textures: Sequence[Texture]) -> Textures:
    """All textures in one array."""
    table = np.zeros((len(textures), 4 + MOST_LEVELS), np.int32)
    flat, start = [], 0
    for number, texture in enumerate(textures):
        height, width = texture.levels[0].shape[:2]
        table[number, :4] = width, height, len(texture.levels), texture.holes
        for level, texels in enumerate(texture.levels):
            table[number, 4 + level] = start
            flat.append(texels.reshape(-1, 8))
            start += len(flat[-1])
    scales = np.array([texture.scale for texture in textures], np.float32)
    return Textures(np.concatenate(flat), table, scales)
