"""From the features of each scale to those of a photo."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32

from superfeat.config import ExtractConfig
from superfeat.extraction.selection import choose
from superfeat.features import Features


class ScaleFeatures(NamedTuple):
    """All features of one image at one scale."""

    vectors: Float32[np.ndarray, "n dim"]
    strengths: Float32[np.ndarray, "n"]
    regions: Float32[np.ndarray, "n 4"] | None
    maps: Float32[np.ndarray, "n height width"] | None
    grid: tuple[int, int]


class FeatureKind(NamedTuple):
    """What is to be known of a network to join its features."""

    dim: int
    superfeatures: int | None  # how many of a scale's are super-features; those after them are points
    points: bool  # whether points are kept
    relative: bool  # whether strengths are divided by the largest of a photo


def join_scales(
    kind: FeatureKind, scales: Sequence[float], parts: Sequence[ScaleFeatures], config: ExtractConfig
) -> Features:
    """The features that are kept, strongest first; equal ones in the order of scale and ID. They have no name yet."""
    strengths = np.concatenate([part.strengths for part in parts]) if parts else np.empty(0, np.float32)
    if kind.relative and len(strengths):
        strengths = strengths / max(strengths.max(), np.finfo(np.float32).tiny)
    counts = [len(part.strengths) for part in parts]
    chosen = choose(kind.superfeatures, kind.points, strengths, counts, config)
    ids = np.concatenate([np.arange(count, dtype=np.int32) for count in counts] or [np.empty(0, np.int32)])
    each = np.repeat(np.asarray(scales, np.float32), counts)
    vectors = np.concatenate([part.vectors for part in parts] or [np.empty((0, kind.dim), np.float32)])
    maps = regions = None
    if config.attention != "none":
        empty = np.empty((0, 4), np.float32)
        regions = np.concatenate([part.regions for part in parts if part.regions is not None] or [empty])[chosen]
    if config.attention == "maps":
        owners = np.repeat(np.arange(len(parts)), counts)
        maps = [_attention_map(parts[owners[index]], int(ids[index])) for index in chosen]
    return Features("", vectors[chosen], strengths[chosen], each[chosen], ids[chosen], regions, maps)


def _attention_map(part: ScaleFeatures, number: int) -> Float32[np.ndarray, "height width"]:
    """The map of one feature; one that is a place attends to that place alone."""
    if part.maps is not None:
        return np.asarray(part.maps[number])
    place = np.zeros(part.grid, np.float32)
    place.flat[number] = 1
    return place
