"""Which features of a photo are kept."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float32, Int64

from superfeat.config import ExtractConfig


def strongest(
    strengths: Float32[np.ndarray, "n"], counts: Sequence[int], config: ExtractConfig
) -> Int64[np.ndarray, "kept"]:
    """Which features are kept, strongest first: of each scale (`counts` features each, in turn), then over all.

    A scale's strengths are its own: they grow as the scale shrinks, so that coarse scales fill a choice over all.
    """
    order = np.argsort(-strengths, kind="stable")
    if config.features_per_scale is not None:
        scale = np.repeat(np.arange(len(counts)), counts)[order]
        within = np.empty(len(order), np.int64)  # place among its scale's
        for number in range(len(counts)):
            own = scale == number
            within[own] = np.arange(own.sum())
        order = order[within < config.features_per_scale]
    if config.least_strength is not None:
        order = order[strengths[order] >= config.least_strength]
    return order[: config.features_per_image]


def choose(
    superfeatures: int | None,
    points: bool,
    strengths: Float32[np.ndarray, "n"],
    counts: Sequence[int],
    config: ExtractConfig,
) -> Int64[np.ndarray, "kept"]:
    """The strongest, and after them all points of a network that has some: what follows a scale's `superfeatures`."""
    if superfeatures is None:
        return strongest(strengths, counts, config)
    point = np.concatenate([np.arange(count) >= superfeatures for count in counts] or [np.empty(0, np.bool_)])
    others = np.flatnonzero(~point)
    kept = others[strongest(strengths[others], [min(count, superfeatures) for count in counts], config)]
    return np.concatenate((kept, np.flatnonzero(point))) if points else kept
