"""From light to pixels: lens, rain and snow, exposure, white balance, tone, blur, grain."""

from typing import Any

import numpy as np
from jaxtyping import Float32, UInt8

from superfeat.drawn.raster import compiled_fast
from superfeat.drawn.weather import Weather

LightMap = Float32[np.ndarray, "height width 3"]


def develop(
    light: LightMap, weather: Weather, rng: np.random.Generator, width: int, height: int
) -> UInt8[np.ndarray, "height width 3"]:
    """A photo of width x height from a picture of the light at twice the size or so."""
    bend, fringe = float(np.clip(rng.normal(0, 0.025), -0.06, 0.06)), float(rng.uniform(0, 0.0016))
    picture = np.empty((height, width, 3), np.float32)
    _through_lens(light, bend, fringe, picture)
    if weather.rain or weather.snow:
        _fall(picture, weather, rng)
    picture *= _vignette(width, height, float(rng.uniform(0, 0.38)))[:, :, None]
    picture = _expose(picture, weather, rng)
    if rng.random() < 0.3:
        picture = _blur(picture, float(rng.uniform(0.35, 0.9)) * min(width, height) / 192)
    dim = {"night": 1.6, "dusk": 1.3}.get(weather.hour, 1.0)
    grain = float(rng.uniform(0.002, 0.011)) * dim
    colour, bright = (rng.standard_normal(picture.shape[:sides], dtype=np.float32) for sides in (3, 2))
    pixels = np.empty(picture.shape, np.uint8)
    _add_grain(picture, colour, bright, grain, pixels)
    return pixels


@compiled_fast
def _add_grain(picture: Any, colour: Any, bright: Any, grain: Any, pixels: Any) -> None:  # pragma: no cover
    height, width = picture.shape[:2]
    for y in range(height):
        for x in range(width):
            for channel in range(3):
                value = picture[y, x, channel] + grain * (colour[y, x, channel] + bright[y, x])
                pixels[y, x, channel] = int(min(max(value, 0.0), 1.0) * 255 + 0.5)


@compiled_fast
def _through_lens(light: Any, bend: Any, fringe: Any, picture: Any) -> None:  # pragma: no cover
    """Barrel or pincushion, and colours that the lens bends a little differently; four samples a pixel."""
    rows, columns = light.shape[:2]
    height, width = picture.shape[:2]
    ratio = columns / width
    for y in range(height):
        for x in range(width):
            across, down = (x + 0.5) / width * 2 - 1, (y + 0.5) / height * 2 - 1
            square = (across * across + down * down) / 2
            for channel in range(3):
                zoom = 1.0 + bend * (square - 1.0 if bend > 0 else square) + fringe * (channel - 1) * square
                middle_x, middle_y = (across * zoom + 1) / 2 * columns, (down * zoom + 1) / 2 * rows
                total = 0.0
                for corner in range(4):
                    column = int(middle_x + (0.25 if corner & 1 else -0.25) * ratio)
                    row = int(middle_y + (0.25 if corner & 2 else -0.25) * ratio)
                    column, row = min(max(column, 0), columns - 1), min(max(row, 0), rows - 1)
                    total += min(light[row, column, channel], 6.0)
                picture[y, x, channel] = total / 4


def _fall(picture: LightMap, weather: Weather, rng: np.random.Generator) -> None:
    """Streaks of rain that slant one way, or flakes of several sizes."""
    height, width = picture.shape[:2]
    amount = weather.rain or weather.snow
    count = int(amount * 0.006 * height * width) + 1
    places = rng.random((count, 2)) * (width, height)
    sizes = rng.uniform(0.4, 1.0, count)
    air = np.asarray(weather.light.horizon, np.float32)
    slant = float(rng.normal(0, 0.2))
    if weather.rain:
        _draw_streaks(picture, places, sizes * height * 0.07, slant, air, 0.2)
    else:
        _draw_flakes(picture, places, sizes**2 * height * 0.011, air, 0.8)


@compiled_fast
def _draw_streaks(
    picture: Any, places: Any, lengths: Any, slant: Any, colour: Any, strength: Any
) -> None:  # pragma: no cover
    height, width = picture.shape[:2]
    for number in range(len(places)):
        for step in range(int(lengths[number]) + 1):
            x, y = int(places[number, 0] + slant * step), int(places[number, 1]) + step
            if 0 <= x < width and 0 <= y < height:
                for channel in range(3):
                    picture[y, x, channel] += strength * (colour[channel] - picture[y, x, channel])


@compiled_fast
def _draw_flakes(picture: Any, places: Any, radii: Any, colour: Any, strength: Any) -> None:  # pragma: no cover
    height, width = picture.shape[:2]
    for number in range(len(places)):
        reach = int(radii[number]) + 1
        middle_x, middle_y = places[number, 0], places[number, 1]
        for y in range(max(int(middle_y) - reach, 0), min(int(middle_y) + reach + 1, height)):
            for x in range(max(int(middle_x) - reach, 0), min(int(middle_x) + reach + 1, width)):
                distance = np.hypot(x + 0.5 - middle_x, y + 0.5 - middle_y)
                part = min(max(radii[number] + 0.5 - distance, 0.0), 1.0) * strength
                for channel in range(3):
                    picture[y, x, channel] += part * (1.15 * colour[channel] - picture[y, x, channel])


def _vignette(width: int, height: int, strength: float) -> Float32[np.ndarray, "height width"]:
    across = (np.arange(width, dtype=np.float32) + 0.5) / width * 2 - 1
    down = (np.arange(height, dtype=np.float32) + 0.5) / height * 2 - 1
    square = across[None, :] ** 2 + down[:, None] ** 2
    return np.asarray(1 - strength * square * np.sqrt(square) * 0.354, np.float32)


def _expose(picture: LightMap, weather: Weather, rng: np.random.Generator) -> LightMap:
    """As a camera meters: towards a middle grey, less so in the dark; then white balance and a film's curve."""
    grey = float(np.exp(np.log(picture[::2, ::2].mean(axis=2) + 1e-3).mean()))  # every fourth pixel is enough
    goal, pull = {"night": (0.09, 0.75), "dusk": (0.19, 0.8)}.get(weather.hour, (0.3, 0.65))
    gain = (goal / grey) ** pull * 2.0 ** float(np.clip(rng.normal(0, 0.28), -0.6, 0.6))
    warmth = float(rng.normal(0, 0.05))
    balance = np.array([1 + warmth, 1 + rng.normal(0, 0.012), 1 - warmth], np.float32)
    vivid = float(rng.uniform(0.88, 1.15))
    gamma = np.linspace(0, 1, 1025) ** (2 / 2.2)  # of the square of a place
    _tone(picture, balance * np.float32(gain * 0.72), vivid, gamma)
    return picture


@compiled_fast
def _tone(picture: Any, gains: Any, vivid: Any, gamma: Any) -> None:  # pragma: no cover
    """A film's curve, which makes colours stronger, so they are weakened before; then more or less vivid."""
    height, width = picture.shape[:2]
    toned = np.empty(3)
    for y in range(height):
        for x in range(width):
            grey = 0.0
            for channel in range(3):
                toned[channel] = max(picture[y, x, channel] * gains[channel], 0.0)
                grey += toned[channel] / 3
            middle = 0.0
            for channel in range(3):
                value = grey + 0.88 * (toned[channel] - grey)
                value = value * (2.51 * value + 0.03) / (value * (2.43 * value + 0.59) + 0.14)
                toned[channel] = gamma[int(np.sqrt(min(max(value, 0.0), 1.0)) * 1024)]
                middle += toned[channel] / 3
            for channel in range(3):
                picture[y, x, channel] = middle + (toned[channel] - middle) * vivid


def _blur(picture: LightMap, sigma: float) -> LightMap:
    """Out of focus by a little: a short Gaussian along both sides."""
    taps = np.exp(-0.5 * (np.arange(-2, 3) / max(sigma, 0.05)) ** 2)
    taps /= taps.sum()
    for axis in (0, 1):
        pad = [(2, 2) if own == axis else (0, 0) for own in range(3)]
        padded = np.pad(picture, pad, mode="edge")
        size = picture.shape[axis]
        parts = [np.float32(tap) * padded.take(range(first, first + size), axis) for first, tap in enumerate(taps)]
        picture = np.sum(parts, axis=0)
    return picture
