"""The light of a view and its sky; and in which rows the shading loops find what they need."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64

from superfeat.drawn.raster import compiled_fast

# A tuple of arrays is slow to take apart for each pixel: cameras and lights travel as rows of three numbers.
EYE, RIGHT, UP, FORWARD = range(4)
FOCAL, CENTRE_X, CENTRE_Y = (4, 0), (4, 1), (4, 2)
TOWARD_SUN, SUN, ZENITH, HORIZON, AMBIENT, BOUNCE, CLOUD, CLOUD_SHADE, LAMPS, WINDOWS = range(10)
GLARE, COVER, DRIFT_X, DRIFT_Y, HAZE, WETNESS = (10, 0), (10, 1), (10, 2), (11, 0), (11, 1), (11, 2)
# Rows of the working memory: the ray to the pixel, the point it meets, the surface's normal, that with relief.
RAY, POINT, SURFACE, NORMAL, OUT, MIRRORED = range(6)


class Light(NamedTuple):
    """Sun, sky and lamps of one view, in linear light; a white wall at noon is about one."""

    toward_sun: Float64[np.ndarray, "3"]
    sun: Float64[np.ndarray, "3"]
    zenith: Float64[np.ndarray, "3"]
    horizon: Float64[np.ndarray, "3"]
    ambient: Float64[np.ndarray, "3"]
    bounce: Float64[np.ndarray, "3"]
    cloud: Float64[np.ndarray, "3"]
    cloud_shade: Float64[np.ndarray, "3"]
    lamps: Float64[np.ndarray, "3"]  # floodlight from below
    windows: Float64[np.ndarray, "3"]  # light behind the panes
    glare: float
    cover: float  # of the sky by clouds, 0 to 1
    drift_x: float
    drift_y: float
    haze: float  # per metre
    wetness: float


@compiled_fast
def sky(work: Any, row: Any, light: Any, clouds: Any, sharp: Any) -> None:  # pragma: no cover
    """Horizon to zenith, the sun's glare, and two samples of clouds: how dense here, how dense towards the sun."""
    length = np.sqrt(work[row, 0] ** 2 + work[row, 1] ** 2 + work[row, 2] ** 2)
    rise = max(work[row, 2] / length, 0.0)
    high = np.sqrt(rise)
    toward = 0.0
    for axis in range(3):
        toward += work[row, axis] * light[TOWARD_SUN, axis] / length
    glare = light[GLARE] * max(toward, 0.0) ** 12
    density = bright = 0.0
    if sharp or rise > 0.05:
        spread = 1.0 / (rise + 0.12) / length
        u, v = work[row, 0] * spread + light[DRIFT_X], work[row, 1] * spread + light[DRIFT_Y]
        here = _cloud(clouds, u, v)
        behind = _cloud(clouds, u + 0.07 * light[TOWARD_SUN, 0], v + 0.07 * light[TOWARD_SUN, 1])
        edge = 1.0 - light[COVER]
        density = min(max((here - edge) / 0.22, 0.0), 1.0)
        density = density * density * (3 - 2 * density) * min(1.0, 0.25 + rise * 6)
        bright = min(max(0.65 + 2.2 * (here - behind) - 0.5 * max(here - edge - 0.2, 0.0), 0.0), 1.0)
    for channel in range(3):
        clear = light[HORIZON, channel] + (light[ZENITH, channel] - light[HORIZON, channel]) * high
        clear += glare * light[SUN, channel]
        cloud = light[CLOUD_SHADE, channel] + (light[CLOUD, channel] - light[CLOUD_SHADE, channel]) * bright
        work[OUT, channel] = clear + (cloud - clear) * density


@compiled_fast
def _cloud(clouds: Any, u: Any, v: Any) -> float:  # pragma: no cover
    """The density of clouds at a place of the sky; the map repeats."""
    cells = len(clouds)
    x, y = u * cells * 0.16, v * cells * 0.16
    left, low = np.floor(x), np.floor(y)
    part_x, part_y = x - left, y - low
    last = cells - 1  # a power of two less one: a mask
    x0, y0 = int(left) & last, int(low) & last
    x1, y1 = (x0 + 1) & last, (y0 + 1) & last
    lower = clouds[y0, x0] * (1 - part_x) + clouds[y0, x1] * part_x
    upper = clouds[y1, x0] * (1 - part_x) + clouds[y1, x1] * part_x
    density: float = lower * (1 - part_y) + upper * part_y
    return density
