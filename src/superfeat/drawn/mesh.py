"""Solid shapes out of triangles: quads, boxes, lofts between two outlines, turned bodies, walls with arched openings.

Metres; x to the right, y away from the street, z up. Textures are laid on in metres, so bricks have the same size
everywhere.
"""

import contextlib
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from jaxtyping import Float64, Int64

from superfeat.drawn.raster import Triangles

Point = tuple[float, float, float]
Outline = Sequence[tuple[float, float]]
Array = npt.NDArray[np.float64]
SMALLEST_AREA = 1e-7
QUAD = np.array([[0, 1, 2], [0, 2, 3]])


class Opening(NamedTuple):
    """A hole in a wall: `spring` is where its arch begins; `rise` is the arch's height over half its width."""

    centre: float
    width: float
    spring: float
    rise: float = 1.0

    def height_at(self, x: float) -> float:
        """The top of the hole."""
        part = min(abs(x - self.centre) / (self.width / 2), 1.0)
        if self.rise > 1.05:  # pointed: two arcs whose centres lie apart
            reach = (1 + self.rise**2) / 2
            return self.spring + self.width / 2 * math.sqrt(max(reach**2 - (part + reach - 1) ** 2, 0.0))
        return self.spring + self.width / 2 * self.rise * math.sqrt(max(1 - part**2, 0.0))


def rectangle(width: float, depth: float, x: float = 0.0, y: float = 0.0) -> Outline:
    """Around (x, y), the front edge first, counter-clockwise from above."""
    a, b = width / 2, depth / 2
    return [(x - a, y - b), (x + a, y - b), (x + a, y + b), (x - a, y + b)]


def polygon(sides: int, radius: float, x: float = 0.0, y: float = 0.0) -> Outline:
    """A regular one with an edge to the front."""
    start = -math.pi / 2 - math.pi / sides
    angles = [start + 2 * math.pi * side / sides for side in range(sides)]
    return [(x + radius * math.cos(angle), y + radius * math.sin(angle)) for angle in angles]


def scaled(outline: Outline, scale: float) -> Outline:
    """About its middle."""
    x, y = (sum(values) / len(outline) for values in zip(*outline, strict=True))
    return [(x + (a - x) * scale, y + (b - y) * scale) for a, b in outline]


def grown(outline: Outline, by: float) -> Outline:
    """Pushed outwards by as many metres (inwards if below zero): rectangles at each side, others at their corners."""
    x, y = (sum(values) / len(outline) for values in zip(*outline, strict=True))
    if len(outline) == 4:
        return [(a + by * math.copysign(1, a - x), b + by * math.copysign(1, b - y)) for a, b in outline]
    return scaled(outline, 1 + by / math.hypot(outline[0][0] - x, outline[0][1] - y))


class Mesh:
    """Triangles as they are put together; `at` moves what is added inside it."""

    def __init__(self) -> None:
        self._points: list[Array] = []
        self._normals: list[Array] = []
        self._uvs: list[Array] = []
        self._textures: list[npt.NDArray[np.int64]] = []
        self._turn: Array = np.eye(3)
        self._shift: Array = np.zeros(3)

    @contextlib.contextmanager
    def at(self, x: float, y: float, z: float = 0.0, turn: float = 0.0) -> Iterator[None]:
        """Everything added inside is turned (radians, seen from above) and then moved."""
        before = self._turn, self._shift
        cosine, sine = math.cos(turn), math.sin(turn)
        self._shift = self._turn @ np.array([x, y, z]) + self._shift
        self._turn = self._turn @ np.array([[cosine, -sine, 0], [sine, cosine, 0], [0, 0, 1]])
        try:
            yield
        finally:
            self._turn, self._shift = before

    def add(
        self,
        points: Float64[np.ndarray, "n 3 3"],
        uvs: Float64[np.ndarray, "n 3 2"],
        texture: int | Int64[np.ndarray, "n"],
        normals: Float64[np.ndarray, "n 3 3"] | None = None,
    ) -> None:
        """Triangles with a texture, or one each; flat unless normals are given."""
        if normals is None:
            flat = _unit_rows(_cross_rows(points[:, 1] - points[:, 0], points[:, 2] - points[:, 0]))
            normals = np.repeat(flat[:, None], 3, axis=1)
        self._points.append(points @ self._turn.T + self._shift)
        self._normals.append(normals @ self._turn.T)
        self._uvs.append(uvs)
        self._textures.append(np.broadcast_to(np.asarray(texture, np.int64), len(points)))

    def quad(self, corners: Sequence[Point], texture: int, start: tuple[float, float] = (0.0, 0.0)) -> None:
        """Four corners, counter-clockwise seen from outside; u runs along the first edge, v away from it."""
        a, b, c, d = corners
        edge = _minus(b, a) if b != a else _minus(c, d)
        edge = _scaled_to_one(edge)
        first, second = _cross(_minus(b, a), _minus(c, a)), _cross(_minus(c, a), _minus(d, a))
        normal = _scaled_to_one((first[0] + second[0], first[1] + second[1], first[2] + second[2]))
        axes = np.array([edge, _cross(normal, edge)])
        points = np.array(corners, np.float64)
        uvs = (points - points[0]) @ axes.T + np.array(start)
        self.add(points[QUAD], uvs[QUAD], texture, np.broadcast_to(np.array(normal), (2, 3, 3)))

    def card(self, corners: Sequence[Point], texture: int, width: float, height: float, normal: Point) -> None:
        """A picture of width x height metres (in its texture's measure) stretched over four corners, lit as told."""
        points = np.asarray(corners, np.float64)
        uvs = np.array([[0.0, 0.0], [width, 0.0], [width, height], [0.0, height]])
        self.add(points[QUAD], uvs[QUAD], texture, np.broadcast_to(np.asarray(normal, np.float64), (2, 3, 3)))

    def loft(
        self, lower: Outline, upper: Outline, low: float, high: float, textures: int | Sequence[int], *, lid: int = -1
    ) -> None:
        """Side faces from one outline to another; every roof, prism and pyramid is one. A lid closes the top."""
        bottom, top, count = np.array(lower, np.float64), np.array(upper, np.float64), len(lower)
        corners = np.empty((count, 4, 3))
        corners[:, 0, :2], corners[:, 1, :2] = bottom, np.roll(bottom, -1, axis=0)
        corners[:, 3, :2], corners[:, 2, :2] = top, np.roll(top, -1, axis=0)
        corners[:, :2, 2], corners[:, 2:, 2] = low, high
        edges = corners[:, 1] - corners[:, 0]
        lengths = np.sqrt((edges * edges).sum(axis=1))
        edges /= lengths[:, None] + 1e-12
        lines = corners[:, 1:] - corners[:, :1]
        normals = _unit_rows(_cross_rows(lines[:, 0], lines[:, 1]) + _cross_rows(lines[:, 1], lines[:, 2]))
        uvs = np.zeros((count, 4, 2))
        uvs[:, 1:, 0] = (lines * edges[:, None]).sum(axis=2)
        uvs[:, 1:, 1] = (lines * _cross_rows(normals, edges)[:, None]).sum(axis=2)
        if isinstance(textures, int):  # one texture runs around all sides
            uvs[:, :, 0] += (np.cumsum(lengths) - lengths)[:, None]
        numbers = np.repeat(np.resize(np.atleast_1d(textures), count), 2)
        shape = (count, 2, 3, 3)
        flat = np.broadcast_to(normals[:, None, None], shape).reshape(-1, 3, 3)
        self.add(corners[:, QUAD].reshape(-1, 3, 3), uvs[:, QUAD].reshape(-1, 3, 2), numbers, flat)
        if lid >= 0:
            self.cap(upper, high, lid)

    def cap(self, outline: Outline, z: float, texture: int) -> None:
        """A flat convex lid."""
        points = np.array([(x, y, z) for x, y in outline])
        fan = np.array([[0, corner, corner + 1] for corner in range(1, len(points) - 1)])
        self.add(points[fan], points[fan][:, :, :2].copy(), texture)

    def prism(self, outline: Outline, low: float, high: float, texture: int, *, lid: int | None = None) -> None:
        """An outline raised; the lid has the same texture unless another is given."""
        self.loft(outline, outline, low, high, texture, lid=texture if lid is None else lid)

    def box(self, x: float, y: float, z: float, width: float, depth: float, height: float, texture: int) -> None:
        """Centred on (x, y), standing on z."""
        self.prism(rectangle(width, depth, x, y), z, z + height, texture)

    def turned(self, profile: Outline, texture: int, *, segments: int = 14, span: float = 2 * math.pi) -> None:
        """A profile of (radius, height), from below upwards, turned about the axis: columns, domes, bowls, people."""
        line = np.asarray(profile, np.float64)
        steps = np.diff(line, axis=0)
        slopes = np.stack([steps[:, 1], -steps[:, 0]], axis=1)
        slopes /= np.linalg.norm(slopes, axis=1, keepdims=True) + 1e-12
        lengths = np.concatenate([[0.0], np.cumsum(np.linalg.norm(steps, axis=1))])
        angles = np.linspace(0, span, segments + 1) - math.pi / 2 - span / 2
        circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
        widest = float(line[:, 0].max())
        grid = np.empty((len(line), segments + 1, 3))
        grid[:, :, :2] = line[:, None, :1] * circle[None]
        grid[:, :, 2] = line[:, 1:]
        for ring in range(len(steps)):
            normal = np.concatenate([slopes[ring, 0] * circle, np.full((segments + 1, 1), slopes[ring, 1])], axis=1)
            u = np.linspace(0, span, segments + 1) * widest
            strip = _strip(grid[ring], grid[ring + 1])
            lower = np.stack([u, np.full_like(u, lengths[ring])], axis=1)
            upper = np.stack([u, np.full_like(u, lengths[ring + 1])], axis=1)
            self.add(strip, _strip(lower, upper), texture, _strip(normal, normal))

    def wall(
        self, length: float, height: float, depth: float, openings: Sequence[Opening], texture: int, inner: int
    ) -> None:
        """A thick wall along x from -length/2, its front at y = 0, with holes that reach the ground."""
        edges = [-length / 2]
        for hole in openings:
            edges += list(np.linspace(hole.centre - hole.width / 2, hole.centre + hole.width / 2, 13))
        edges.append(length / 2)
        for left, right in itertools.pairwise(edges):
            hole_here = next(
                (hole for hole in openings if abs((left + right) / 2 - hole.centre) < hole.width / 2), None
            )
            low, high = (0.0, 0.0) if hole_here is None else (hole_here.height_at(left), hole_here.height_at(right))
            self._face(left, right, low, high, height, depth, length, texture)
            if hole_here is not None:
                self.quad([(left, 0, low), (left, depth, low), (right, depth, high), (right, 0, high)], inner)
        for hole in openings:
            for side in (-1, 1):
                x = hole.centre + side * hole.width / 2
                self.quad([(x, 0, 0), (x, depth, 0), (x, depth, hole.spring), (x, 0, hole.spring)], inner)
        for side in (-1, 1):
            x = side * length / 2
            self.quad([(x, 0, 0), (x, depth, 0), (x, depth, height), (x, 0, height)], inner)
        self.cap(rectangle(length, depth, 0, depth / 2), height, inner)

    def _face(
        self, left: float, right: float, low: float, high: float, top: float, depth: float, length: float, texture: int
    ) -> None:
        """A strip of the wall's front and back above a hole, its texture laid on from the wall's lower left corner."""
        if right - left < 1e-6 or min(low, high) >= top:
            return
        for y in (0.0, depth):
            points = np.array([(left, y, low), (right, y, high), (right, y, top), (left, y, top)])
            order = QUAD if y == 0 else QUAD[:, ::-1]
            uvs = np.stack([points[:, 0] + length / 2, points[:, 2]], axis=1)
            self.add(points[order], uvs[order], texture)

    def triangles(self) -> Triangles:
        """All that was added, without slivers, with what shading needs to find a point's place in its triangle."""
        points, normals = np.concatenate(self._points), np.concatenate(self._normals)
        uvs, textures = np.concatenate(self._uvs), np.concatenate(self._textures)
        b, c = points[:, 1] - points[:, 0], points[:, 2] - points[:, 0]
        bb, bc, cc = (b * b).sum(1), (b * c).sum(1), (c * c).sum(1)
        square = bb * cc - bc * bc
        kept = square > SMALLEST_AREA**1.5
        dual = np.stack([b * cc[:, None] - c * bc[:, None], c * bb[:, None] - b * bc[:, None]], axis=1)
        dual = dual[kept] / square[kept, None, None]
        return Triangles(
            points[kept].astype(np.float32),
            normals[kept].astype(np.float32),
            uvs[kept].astype(np.float32),
            textures[kept].astype(np.int32),
            dual.astype(np.float32),
        )


def _minus(a: Point, b: Point) -> Point:
    return a[0] - b[0], a[1] - b[1], a[2] - b[2]


def _cross(a: Point, b: Point) -> Point:
    return a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]


def _scaled_to_one(a: Point) -> Point:
    length = math.sqrt(a[0] * a[0] + a[1] * a[1] + a[2] * a[2]) + 1e-12
    return a[0] / length, a[1] / length, a[2] / length


def _cross_rows(a: Array, b: Array) -> Array:
    """np.cross is slow for a few rows."""
    first, second = a[:, [1, 2, 0]], b[:, [1, 2, 0]]
    return (first * b[:, [2, 0, 1]]) - (a[:, [2, 0, 1]] * second)


def _unit_rows(a: Array) -> Array:
    return np.asarray(a / (np.sqrt((a * a).sum(axis=1, keepdims=True)) + 1e-12))


def _strip(lower: Array, upper: Array) -> Array:
    """Two triangles for each pair of neighbours of two rows."""
    a, b, c, d = lower[:-1], lower[1:], upper[1:], upper[:-1]
    return np.concatenate([np.stack([a, b, c], axis=1), np.stack([a, c, d], axis=1)])


def join_triangles(first: Triangles, second: Triangles) -> Triangles:
    """Both."""
    return Triangles(*(np.concatenate(pair) for pair in zip(first, second, strict=True)))
