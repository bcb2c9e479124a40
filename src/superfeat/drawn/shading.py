"""The light that reaches the eye from each pixel: texture, relief, sun and shadows, sky, reflections, lamps, haze."""

from typing import Any

import numpy as np
from jaxtyping import Float32, Float64

from superfeat.drawn.raster import Camera, Seen, Textures, Triangles, compiled_fast
from superfeat.drawn.sky import (
    AMBIENT,
    BOUNCE,
    CENTRE_X,
    CENTRE_Y,
    EYE,
    FOCAL,
    FORWARD,
    HAZE,
    HORIZON,
    LAMPS,
    MIRRORED,
    NORMAL,
    OUT,
    POINT,
    RAY,
    RIGHT,
    SUN,
    SURFACE,
    TOWARD_SUN,
    UP,
    WETNESS,
    WINDOWS,
    Light,
    sky,
)

OCCLUSION_REACH = 1.6  # metres over which a corner is darkened
OCCLUSION_SAMPLES = 5
PIXEL = 1.9  # rendered pixels along the side of what is seen as one
SHADOW_BIAS = 0.12  # metres: what lies this little behind the first surface is still lit
TURNS = 16  # patterns of samples, so that neighbours do not share their errors
HALF = 128 / 255  # a flat texel: its slopes are stored around this
RELIEF = 1.6  # the steepest slope that a texel's normal can hold


def shade(
    triangles: Triangles,
    textures: Textures,
    seen: Seen,
    camera: Camera,
    shadow: Seen,
    sun: Camera,
    light: Light,
    clouds: Float32[np.ndarray, "cells cells"],
) -> Float32[np.ndarray, "height width 3"]:
    """Linear light of every pixel; sides must be even. Squares of 2 x 2 that show one triangle are shaded once."""
    height, width = seen.triangles.shape
    picture = np.empty((height, width, 3), np.float32)
    angles = np.arange(TURNS)[:, None] * (2 * np.pi / TURNS) + np.arange(OCCLUSION_SAMPLES) * 2.39996
    radii = np.sqrt((np.arange(OCCLUSION_SAMPLES) + 0.6) / OCCLUSION_SAMPLES)
    pattern = np.stack([radii * np.cos(angles), radii * np.sin(angles)], axis=2)
    count = len(triangles.points)
    parts = (triangles.points[:, 0], triangles.dual, triangles.normals, triangles.uvs)
    faces = np.concatenate([part.reshape(count, -1) for part in parts], axis=1)
    eyes, lamps = (_pack(*camera), _pack(*sun)), _pack(*light)
    _shade(faces, triangles.textures, *textures, *seen, *eyes, shadow.nearness, lamps, clouds, pattern, picture)
    return picture


def _pack(*values: Float64[np.ndarray, "3"] | float) -> Float64[np.ndarray, "rows 3"]:
    return np.concatenate([np.atleast_1d(np.asarray(value, np.float64)) for value in values]).reshape(-1, 3)


@compiled_fast
def _shade(
    faces: Any,
    texture_of: Any,
    texels: Any,
    table: Any,
    scales: Any,
    ids: Any,
    nearness: Any,
    camera: Any,
    sun: Any,
    shadow: Any,
    light: Any,
    clouds: Any,
    pattern: Any,
    picture: Any,
) -> None:  # pragma: no cover
    """One long loop: a call with so many arrays for each pixel would cost more than its light."""
    height, width = ids.shape
    work, texel, place = np.empty((6, 3)), np.empty(8), np.empty(3)
    for square in range(height * width):
        y, x, corner = square // 4 // (width // 2) * 2, square // 4 % (width // 2) * 2, square % 4
        row, column = y + corner // 2, x + corner % 2
        first = _gather(ids, nearness, x, y, corner, place)
        if first < corner:
            for channel in range(3):
                picture[row, column, channel] = picture[y + first // 2, x + first % 2, channel]
            continue
        number = ids[row, column]
        _look(place, camera, work)
        if number < 0:
            sky(work, RAY, light, clouds, True)
        else:
            depth = 1.0 / place[2]
            for axis in range(3):
                work[POINT, axis] = camera[EYE, axis] + work[RAY, axis] * depth
            texture, footprint = texture_of[number], PIXEL * depth / camera[FOCAL] * scales[texture_of[number]]
            u, v = _find_surface(faces, number, work)
            _sample(texels, table, texture, u * scales[texture], v * scales[texture], footprint, work, texel)
            _raise_relief(faces, number, texel, work)
            lit = _sunlight(work, shadow, sun, light)
            open_sky = 1.0
            if table[texture, 3]:  # leaves and people: light comes through and around
                lit = 0.6 * lit + 0.22
            else:
                open_sky = _open_sky(place, ids, nearness, camera, pattern, work)
            _colour(texel, lit, open_sky, light, clouds, work)
            _add_haze(depth, light, work)
        for channel in range(3):
            picture[row, column, channel] = work[OUT, channel]


@compiled_fast
def _gather(ids: Any, nearness: Any, x: Any, y: Any, corner: Any, place: Any) -> int:  # pragma: no cover
    """The first pixel of a square that shows the same triangle; if it is this one, the middle of all that do.

    The middle is left in `place`: x, y, nearness (linear on the screen, so the mean is right).
    """
    number = ids[y + corner // 2, x + corner % 2]
    for first in range(corner):
        if ids[y + first // 2, x + first % 2] == number:
            return int(first)
    count = across = down = 0
    near = 0.0
    for other in range(corner, 4):
        row, column = y + other // 2, x + other % 2
        if ids[row, column] == number:
            across, down, count = across + column, down + row, count + 1
            near += nearness[row, column]
    place[0], place[1], place[2] = across / count, down / count, near / count
    return int(corner)


@compiled_fast
def _look(place: Any, camera: Any, work: Any) -> None:  # pragma: no cover
    """From the eye to the pixel, of length one along the camera's axis."""
    across = (place[0] + 0.5 - camera[CENTRE_X]) / camera[FOCAL]
    above = (camera[CENTRE_Y] - place[1] - 0.5) / camera[FOCAL]
    for axis in range(3):
        work[RAY, axis] = camera[FORWARD, axis] + across * camera[RIGHT, axis] + above * camera[UP, axis]


@compiled_fast
def _normalise(work: Any, row: Any) -> float:  # pragma: no cover
    length: float = np.sqrt(work[row, 0] ** 2 + work[row, 1] ** 2 + work[row, 2] ** 2) + 1e-12
    for axis in range(3):
        work[row, axis] /= length
    return length


# Where a face's record holds the first corner, the dual, the corners' normals and texture coordinates.
DUAL, NORMALS, UVS = 3, 9, 18


@compiled_fast
def _find_surface(faces: Any, number: Any, work: Any) -> tuple[float, float]:  # pragma: no cover
    """The smooth normal, turned to the eye, and the texture's coordinates in metres."""
    at_b = at_c = 0.0
    for axis in range(3):
        offset = work[POINT, axis] - faces[number, axis]
        at_b += faces[number, DUAL + axis] * offset
        at_c += faces[number, DUAL + 3 + axis] * offset
    facing = 0.0
    for axis in range(3):
        first = faces[number, NORMALS + axis]
        second, third = faces[number, NORMALS + 3 + axis], faces[number, NORMALS + 6 + axis]
        work[SURFACE, axis] = first + at_b * (second - first) + at_c * (third - first)
        facing += work[SURFACE, axis] * work[RAY, axis]
    _normalise(work, SURFACE)
    if facing > 0:
        for axis in range(3):
            work[SURFACE, axis] = -work[SURFACE, axis]
    u, v = faces[number, UVS], faces[number, UVS + 1]
    u += at_b * (faces[number, UVS + 2] - u) + at_c * (faces[number, UVS + 4] - faces[number, UVS])
    v += at_b * (faces[number, UVS + 3] - v) + at_c * (faces[number, UVS + 5] - faces[number, UVS + 1])
    return u, v


@compiled_fast
def _raise_relief(faces: Any, number: Any, texel: Any, work: Any) -> None:  # pragma: no cover
    """The normal with the texel's slopes."""
    tilt_u, tilt_v = (texel[3] - HALF) * 2 * RELIEF, (texel[4] - HALF) * 2 * RELIEF
    u, v = faces[number, UVS], faces[number, UVS + 1]
    u_b, u_c = faces[number, UVS + 2] - u, faces[number, UVS + 4] - u
    v_b, v_c = faces[number, UVS + 3] - v, faces[number, UVS + 5] - v
    by_b, by_c = tilt_u * u_b + tilt_v * v_b, tilt_u * u_c + tilt_v * v_c
    for axis in range(3):
        slope = by_b * faces[number, DUAL + axis] + by_c * faces[number, DUAL + 3 + axis]
        work[NORMAL, axis] = work[SURFACE, axis] + slope
    _normalise(work, NORMAL)


@compiled_fast
def _sample(
    texels: Any, table: Any, texture: Any, u: Any, v: Any, footprint: Any, work: Any, texel: Any
) -> None:  # pragma: no cover
    """Between the four nearest texels of the halving that has texels of about the pixel's size; textures repeat."""
    facing = length = 0.0
    for axis in range(3):
        facing += work[SURFACE, axis] * work[RAY, axis]
        length += work[RAY, axis] * work[RAY, axis]
    footprint /= np.sqrt(max(abs(facing) / np.sqrt(length), 0.08))
    level, last = 0, table[texture, 2] - 1
    while footprint > 1.6 and level < last:
        footprint *= 0.5
        level += 1
    width, height = max(table[texture, 0] >> level, 1), max(table[texture, 1] >> level, 1)
    start = table[texture, 4 + level]
    x = u * width / table[texture, 0] - 0.5
    y = v * height / table[texture, 1] - 0.5
    left, low = np.floor(x), np.floor(y)
    part_x, part_y = x - left, y - low
    x0, y0 = int(left - width * np.floor(left / width)), int(low - height * np.floor(low / height))
    x1, y1 = x0 + 1 if x0 + 1 < width else 0, y0 + 1 if y0 + 1 < height else 0
    a, b, c, d = start + y0 * width + x0, start + y0 * width + x1, start + y1 * width + x0, start + y1 * width + x1
    at_a, at_b = (1 - part_x) * (1 - part_y) / 255.0, part_x * (1 - part_y) / 255.0
    at_c, at_d = (1 - part_x) * part_y / 255.0, part_x * part_y / 255.0
    for channel in range(8):
        lower = at_a * texels[a, channel] + at_b * texels[b, channel]
        texel[channel] = lower + at_c * texels[c, channel] + at_d * texels[d, channel]


@compiled_fast
def _sunlight(work: Any, shadow: Any, sun: Any, light: Any) -> float:  # pragma: no cover
    """How much of the sun arrives: its angle, and the share of four shadow texels that see it."""
    angle = facing = 0.0
    for axis in range(3):
        angle += work[NORMAL, axis] * light[TOWARD_SUN, axis]
        facing += work[SURFACE, axis] * light[TOWARD_SUN, axis]
    if angle <= 0 or facing <= 0:
        return 0.0
    x = y = depth = 0.0
    for axis in range(3):
        offset = work[POINT, axis] + 0.06 * work[SURFACE, axis] - sun[EYE, axis]
        x += offset * sun[RIGHT, axis]
        y += offset * sun[UP, axis]
        depth += offset * sun[FORWARD, axis]
    x, y = sun[CENTRE_X] + sun[FOCAL] * x - 0.5, sun[CENTRE_Y] - sun[FOCAL] * y - 0.5
    height, width = shadow.shape
    if not (0 <= x < width - 1 and 0 <= y < height - 1):
        return angle
    left, low = int(x), int(y)
    part_x, part_y = x - left, y - low
    behind = SHADOW_BIAS * (1.0 + 1.5 * (1.0 - facing)) - depth
    total = 0.0
    for down in range(2):
        for across in range(2):
            if shadow[low + down, left + across] <= behind:
                total += (part_x if across else 1 - part_x) * (part_y if down else 1 - part_y)
    return angle * total


@compiled_fast
def _open_sky(place: Any, ids: Any, nearness: Any, camera: Any, pattern: Any, work: Any) -> float:  # pragma: no cover
    """1 in the open, less in corners: how far neighbouring pixels rise above this one's plane."""
    height, width = nearness.shape
    x, y = place[0], place[1]
    reach = min(OCCLUSION_REACH * camera[FOCAL] * place[2], 60.0)
    if reach < 1.5:
        return 1.0
    turn = (int(x) * 7 // 2 + int(y) * 13 // 2) % TURNS
    closed = 0.0
    for sample in range(OCCLUSION_SAMPLES):
        column, row = int(x + reach * pattern[turn, sample, 0]), int(y + reach * pattern[turn, sample, 1])
        if not (0 <= column < width and 0 <= row < height) or ids[row, column] < 0:
            continue
        depth = 1.0 / nearness[row, column]
        across = (column + 0.5 - camera[CENTRE_X]) / camera[FOCAL]
        above = (camera[CENTRE_Y] - row - 0.5) / camera[FOCAL]
        rise = square = 0.0
        for axis in range(3):
            there = camera[FORWARD, axis] + across * camera[RIGHT, axis] + above * camera[UP, axis]
            offset = camera[EYE, axis] + there * depth - work[POINT, axis]
            rise += offset * work[SURFACE, axis]
            square += offset * offset
        rise /= np.sqrt(square) + 1e-6
        closed += max(rise - 0.08, 0.0) / (1.0 + square / (OCCLUSION_REACH * OCCLUSION_REACH))
    return max(1.0 - 1.7 * closed / OCCLUSION_SAMPLES, 0.25)


@compiled_fast
def _colour(texel: Any, lit: Any, open_sky: Any, light: Any, clouds: Any, work: Any) -> None:  # pragma: no cover
    upward = 0.5 + 0.5 * work[NORMAL, 2]
    flood = 0.0
    if light[LAMPS, 0] > 0:
        flood = np.exp(-max(work[POINT, 2], 0.0) / 14.0) * (0.55 - 0.25 * work[NORMAL, 2] - 0.2 * work[NORMAL, 1])
    gloss = max(texel[6], light[WETNESS] * max(work[NORMAL, 2], 0.0) ** 4 * 0.5)
    gloss = _reflect(gloss, light, clouds, work) if gloss > 0.02 else 0.0
    for channel in range(3):
        above = light[AMBIENT, channel] * upward + light[BOUNCE, channel] * (1.0 - upward)
        arriving = light[SUN, channel] * lit + (above + light[LAMPS, channel] * flood) * open_sky
        own = texel[channel] * texel[channel] * arriving
        mirrored = work[OUT, channel] if gloss > 0 else 0.0
        work[OUT, channel] = own + gloss * (mirrored - own) + light[WINDOWS, channel] * texel[5] * texel[5]


@compiled_fast
def _reflect(gloss: Any, light: Any, clouds: Any, work: Any) -> float:  # pragma: no cover
    """Leaves the sky that a surface mirrors in OUT, and says how strong the mirror is from here."""
    along = 0.0
    for axis in range(3):
        along += work[RAY, axis] * work[NORMAL, axis]
    for axis in range(3):
        work[MIRRORED, axis] = work[RAY, axis] - 2.0 * along * work[NORMAL, axis]
    length = _normalise(work, MIRRORED)
    sky(work, MIRRORED, light, clouds, False)
    if work[MIRRORED, 2] < 0.04:  # roofs across the street
        for channel in range(3):
            work[OUT, channel] *= 0.35
    steep = 1.0 - min(abs(along) / length, 1.0)
    strength: float = gloss * (0.25 + 0.75 * steep * steep * steep)
    return strength


@compiled_fast
def _add_haze(depth: Any, light: Any, work: Any) -> None:  # pragma: no cover
    length = depth * np.sqrt(work[RAY, 0] ** 2 + work[RAY, 1] ** 2 + work[RAY, 2] ** 2)
    clear = np.exp(-light[HAZE] * length)
    for channel in range(3):
        work[OUT, channel] = work[OUT, channel] * clear + light[HORIZON, channel] * (1.0 - clear)
