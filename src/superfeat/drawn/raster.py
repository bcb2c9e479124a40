"""Which triangle each pixel shows: perspective with near clipping for the camera, parallel for the sun's shadow map.

Nearness is linear on the screen in both: one over depth for a camera, minus depth for the sun. Texture coordinates are
interpolated only where a texture has holes (leaves, people); all else is found again from the position when shading.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numba
import numpy as np
from jaxtyping import Float32, Float64, Int32, UInt8

NEAR_PLANE = 0.4  # metres in front of the eye
FAR_AWAY = -1e9  # the nearness of nothing
TEXEL_ALPHA = 7  # the channel of a texel that says whether it is there

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled_fast(function: Function) -> Function:
    """As the kernel's, but sums may be reordered and nothing is checked for division by zero: pictures, not scores."""
    options = {"nogil": True, "fastmath": True, "error_model": "numpy"}
    try:
        made: Function = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # no folder to keep it in can be written
        made = numba.njit(**options)(function)
    return made


class Triangles(NamedTuple):
    """What is drawn. `dual` gives barycentric coordinates of a point p as dual @ (p - first corner)."""

    points: Float32[np.ndarray, "n 3 3"]
    normals: Float32[np.ndarray, "n 3 3"]
    uvs: Float32[np.ndarray, "n 3 2"]
    textures: Int32[np.ndarray, "n"]
    dual: Float32[np.ndarray, "n 2 3"]


class Textures(NamedTuple):
    """All textures and their halvings in one array; a table row: width, height, levels, holes, start of each level."""

    texels: UInt8[np.ndarray, "texels 8"]
    table: Int32[np.ndarray, "textures columns"]
    scales: Float32[np.ndarray, "textures"]  # texels per metre


class Camera(NamedTuple):
    """An eye and its axes; `focal` and the centre are in pixels. Without perspective, focal is pixels per metre."""

    eye: Float64[np.ndarray, "3"]
    right: Float64[np.ndarray, "3"]
    up: Float64[np.ndarray, "3"]
    forward: Float64[np.ndarray, "3"]
    focal: float
    centre_x: float
    centre_y: float


class Projected(NamedTuple):
    """Triangles on the screen: x, y, nearness, weight (one over depth, or one), u, v of each corner."""

    corners: Float64[np.ndarray, "m 3 6"]
    sources: Int32[np.ndarray, "m"]


class Seen(NamedTuple):
    """The nearest triangle of each pixel (-1: none) and how near it is."""

    triangles: Int32[np.ndarray, "height width"]
    nearness: Float32[np.ndarray, "height width"]


def see(
    triangles: Triangles, textures: Textures, camera: Camera, width: int, height: int, *, parallel: bool = False
) -> Seen:
    """Draws all triangles into an empty picture."""
    corners = np.empty((2 * len(triangles.points), 3, 6))
    sources = np.empty(2 * len(triangles.points), np.int32)
    if parallel:
        count = _project_parallel(triangles, camera, corners, sources)
    else:
        count = _project(triangles, camera, corners, sources)
    seen = Seen(np.full((height, width), -1, np.int32), np.full((height, width), FAR_AWAY, np.float32))
    _fill(corners[:count], sources[:count], triangles.textures, textures, seen)
    return seen


@compiled_fast
def _project_parallel(triangles: Any, camera: Any, corners: Any, sources: Any) -> int:  # pragma: no cover
    for number in range(len(triangles.points)):
        sources[number] = number
        for corner in range(3):
            x = y = depth = 0.0
            for axis in range(3):
                offset = triangles.points[number, corner, axis] - camera.eye[axis]
                x += offset * camera.right[axis]
                y += offset * camera.up[axis]
                depth += offset * camera.forward[axis]
            out = corners[number, corner]
            out[0] = camera.centre_x + camera.focal * x
            out[1] = camera.centre_y - camera.focal * y
            out[2], out[3] = -depth, 1.0
            out[4], out[5] = triangles.uvs[number, corner, 0], triangles.uvs[number, corner, 1]
    return len(triangles.points)


@compiled_fast
def _project(triangles: Any, camera: Any, corners: Any, sources: Any) -> int:  # pragma: no cover
    """Corners in the camera's axes, cut at the near plane: three or four corners are left, or none."""
    count = 0
    inside, cut = np.empty((3, 5)), np.empty((4, 5))
    for number in range(len(triangles.points)):
        for corner in range(3):
            x = y = depth = 0.0
            for axis in range(3):
                offset = triangles.points[number, corner, axis] - camera.eye[axis]
                x += offset * camera.right[axis]
                y += offset * camera.up[axis]
                depth += offset * camera.forward[axis]
            inside[corner, 0], inside[corner, 1], inside[corner, 2] = x, y, depth
            inside[corner, 3] = triangles.uvs[number, corner, 0]
            inside[corner, 4] = triangles.uvs[number, corner, 1]
        left = _clip(inside, cut)
        for last in range(2, left):
            for place, corner in enumerate((0, last - 1, last)):
                out = corners[count, place]
                weight = 1.0 / cut[corner, 2]
                out[0] = camera.centre_x + camera.focal * cut[corner, 0] * weight
                out[1] = camera.centre_y - camera.focal * cut[corner, 1] * weight
                out[2], out[3] = weight, weight
                out[4], out[5] = cut[corner, 3], cut[corner, 4]
            sources[count] = number
            count += 1
    return count


@compiled_fast
def _clip(inside: Any, cut: Any) -> int:  # pragma: no cover
    count = 0
    for corner in range(3):
        after = (corner + 1) % 3
        here, there = inside[corner, 2] - NEAR_PLANE, inside[after, 2] - NEAR_PLANE
        if here >= 0:
            cut[count] = inside[corner]
            count += 1
        if (here >= 0) != (there >= 0):
            part = here / (here - there)
            for value in range(5):
                cut[count, value] = inside[corner, value] + part * (inside[after, value] - inside[corner, value])
            count += 1
    return count


@compiled_fast
def _fill(corners: Any, sources: Any, texture_of: Any, textures: Any, seen: Any) -> None:  # pragma: no cover
    shown, nearest = seen.triangles, seen.nearness
    height, width = shown.shape
    for number in range(len(corners)):
        a, b, c = corners[number, 0], corners[number, 1], corners[number, 2]
        area = (b[0] - a[0]) * (c[1] - a[1]) - (c[0] - a[0]) * (b[1] - a[1])
        if abs(area) < 1e-9:
            continue
        top = max(0, int(np.ceil(min(a[1], b[1], c[1]) - 0.5)))
        bottom = min(height - 1, int(np.floor(max(a[1], b[1], c[1]) - 0.5)))
        first = max(0, int(np.ceil(min(a[0], b[0], c[0]) - 0.5)))
        last = min(width - 1, int(np.floor(max(a[0], b[0], c[0]) - 0.5)))
        texture = texture_of[sources[number]]
        holes = textures.table[texture, 3]
        step_b, step_c = (c[1] - a[1]) / area, (a[1] - b[1]) / area
        for y in range(top, bottom + 1):
            down, across = y + 0.5 - a[1], first + 0.5 - a[0]
            at_b = (across * (c[1] - a[1]) - (c[0] - a[0]) * down) / area
            at_c = ((b[0] - a[0]) * down - across * (b[1] - a[1])) / area
            begin, end = _inside(0, last - first, at_b, step_b)
            begin, end = _inside(begin, end, at_c, step_c)
            begin, end = _inside(begin, end, 1.0 - at_b - at_c, -step_b - step_c)
            near = a[2] + at_b * (b[2] - a[2]) + at_c * (c[2] - a[2])
            step = step_b * (b[2] - a[2]) + step_c * (c[2] - a[2])
            for x in range(begin, end + 1):
                if near + x * step > nearest[y, first + x]:
                    part_b, part_c = at_b + x * step_b, at_c + x * step_c
                    if holes == 0 or _is_there(part_b, part_c, corners[number], texture, textures):
                        nearest[y, first + x] = near + x * step
                        shown[y, first + x] = sources[number]


@compiled_fast
def _inside(begin: Any, end: Any, start: Any, step: Any) -> tuple[int, int]:  # pragma: no cover
    """The part of a range of pixels in which a value that grows by `step` is not below zero."""
    if step > 0:
        begin = max(begin, int(np.ceil(min(-start / step, 1e6))))
    elif step < 0:
        end = min(end, int(np.floor(max(min(-start / step, 1e6), -1e6))))
    elif start < 0:
        end = begin - 1
    return begin, end


@compiled_fast
def _is_there(at_b: Any, at_c: Any, corners: Any, texture: Any, textures: Any) -> bool:  # pragma: no cover
    at_a, at_b, at_c = (1.0 - at_b - at_c) * corners[0, 3], at_b * corners[1, 3], at_c * corners[2, 3]
    total = at_a + at_b + at_c
    scale = textures.scales[texture] / total
    u = (at_a * corners[0, 4] + at_b * corners[1, 4] + at_c * corners[2, 4]) * scale
    v = (at_a * corners[0, 5] + at_b * corners[1, 5] + at_c * corners[2, 5]) * scale
    width, height = textures.table[texture, 0], textures.table[texture, 1]
    column = min(max(int(u), 0), width - 1)
    row = min(max(int(v), 0), height - 1)
    there: bool = textures.texels[textures.table[texture, 4] + row * width + column, TEXEL_ALPHA] > 127
    return there
