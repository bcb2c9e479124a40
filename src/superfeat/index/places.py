"""Where in an image its words are: four bytes per word, so that a result can say where the match lies.

A feature looks at a region: centroid x, y and spread x, y as fractions of the image. A word's region is that of all
its features together. Arrays in, arrays and text out.
"""

import base64
import binascii
import bisect
import math

import numpy as np
from jaxtyping import Float32, Float64, Int32, UInt8

STEPS = 255  # a fraction is a whole number of these
WIDEST = 0.5  # the largest spread that can be noted
OUTSIDE_SHARE = 0.1  # of the match lies outside of a region's box on each side
GRID = 200  # places on an axis among which the box's edges are looked for

Region = tuple[float, float, float, float]  # left, top, width, height as fractions of the image


def word_regions(
    regions: Float32[np.ndarray, "n 4"], words: Int32[np.ndarray, "n"], found: Int32[np.ndarray, "m"]
) -> Float64[np.ndarray, "m 4"]:
    """For each word of `found` (ascending) the mean and the spread of the regions of the features that go to it."""
    owners = np.searchsorted(found, words)
    centres, spreads = regions[:, :2].astype(np.float64), regions[:, 2:].astype(np.float64)
    counts = np.maximum(np.bincount(owners, minlength=len(found)), 1)[:, None]
    means = _sum_by(owners, centres, len(found)) / counts
    squares = _sum_by(owners, spreads**2 + centres**2, len(found)) / counts
    return np.concatenate((means, np.sqrt(np.maximum(squares - means**2, 0))), axis=1)


def _sum_by(owners: np.ndarray, values: Float64[np.ndarray, "n 2"], count: int) -> Float64[np.ndarray, "m 2"]:
    columns = [np.bincount(owners, weights=column, minlength=count) for column in values.T]
    return np.stack(columns, axis=1)


def encode_places(regions: Float64[np.ndarray, "m 4"]) -> str:
    """Text that can be noted with an image."""
    scaled = regions * np.asarray([STEPS, STEPS, STEPS / WIDEST, STEPS / WIDEST])
    values: UInt8[np.ndarray, "m 4"] = np.rint(np.clip(scaled, 0, STEPS)).astype(np.uint8)
    return base64.b64encode(values.tobytes()).decode()


def decode_places(text: object, count: int) -> Float64[np.ndarray, "m 4"] | None:
    """The regions of an image's words; None where nothing, or nothing that fits them, was noted."""
    try:
        values = np.frombuffer(base64.b64decode(str(text), validate=True), np.uint8)
    except (binascii.Error, ValueError):
        return None
    if len(values) != 4 * count:
        return None
    return np.asarray(values.reshape(-1, 4) / np.asarray([STEPS, STEPS, STEPS / WIDEST, STEPS / WIDEST]))


def enclose(regions: Float64[np.ndarray, "m 4"], weights: Float64[np.ndarray, "m"]) -> Region | None:
    """The box that holds the middle four fifths of the weight on each axis; None if there is no weight."""
    weights = np.maximum(weights, 0)
    if not weights.sum() > 0:
        return None
    left, right = _middle(regions[:, 0], regions[:, 2], weights)
    top, bottom = _middle(regions[:, 1], regions[:, 3], weights)
    return left, top, right - left, bottom - top


def _middle(
    centres: Float64[np.ndarray, "m"], spreads: Float64[np.ndarray, "m"], weights: Float64[np.ndarray, "m"]
) -> tuple[float, float]:
    """From where to where a sum of normal distributions has its middle."""
    places, shares = np.linspace(0, 1, GRID + 1), weights / weights.sum()

    def below(number: int) -> float:
        return float(_normal((places[number] - centres) / np.maximum(spreads, 1 / STEPS)) @ shares)

    first = bisect.bisect_right(range(GRID + 1), OUTSIDE_SHARE, key=below)
    last = bisect.bisect_left(range(GRID + 1), 1 - OUTSIDE_SHARE, key=below)
    return float(places[max(0, first - 1)]), float(places[min(GRID, last)])


_erf = np.frompyfunc(math.erf, 1, 1)


def _normal(values: Float64[np.ndarray, "m"]) -> Float64[np.ndarray, "m"]:
    """The normal distribution function."""
    return 0.5 * (1 + np.asarray(_erf(values / math.sqrt(2)), np.float64))


def require_region(values: object) -> Region:
    """Four fractions that make a box on the image; ValueError says what is wrong."""
    try:
        left, top, width, height = (float(value) for value in values)  # type: ignore[attr-defined]
    except (TypeError, ValueError) as error:
        raise ValueError(f"a box is four numbers, x,y,width,height, not {values!r}") from error
    if not all(map(math.isfinite, (left, top, width, height))) or width <= 0 or height <= 0:
        raise ValueError(f"the box {values!r} has no width or no height")
    right, bottom = min(left + width, 1.0), min(top + height, 1.0)
    left, top = max(left, 0.0), max(top, 0.0)
    if left >= right or top >= bottom:
        raise ValueError(f"the box {values!r} lies outside of the photo; its numbers are fractions of width and height")
    return left, top, right - left, bottom - top


def mass_inside(attention: Float32[np.ndarray, "height width"], region: Region) -> float:
    """The share of an attention map that lies in a box; cells that the edge cuts count in part."""
    left, top, width, height = region
    rows = _coverage(attention.shape[0], top, top + height)
    columns = _coverage(attention.shape[1], left, left + width)
    return float(rows @ attention.astype(np.float64) @ columns)


def _coverage(cells: int, begin: float, end: float) -> Float64[np.ndarray, "cells"]:
    """How much of each of `cells` equal parts of 0..1 lies between begin and end."""
    edges = np.arange(cells + 1) / cells
    return np.asarray(np.clip((np.minimum(edges[1:], end) - np.maximum(edges[:-1], begin)) * cells, 0, 1))
