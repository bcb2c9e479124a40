"""How honest probabilities are: what was said, and what was right."""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64

from superfeat.errors import SuperfeatError

BINS = 10  # of equal width, from 0 to 1
Z_95 = 1.959964  # of a two-sided 95 % interval
LOWEST = 1e-12  # probability of what was held to be impossible: its logarithm is finite


class Bin(NamedTuple):
    """Results whose probability was between two edges: the mean of what was said, the share that was right, and the
    95 % interval of that share (Wilson), as if results were independent."""

    low: float
    high: float
    results: int
    said: float
    right: float
    least: float
    most: float


class Reliability(NamedTuple):
    """`error` is the expected calibration error: |said - right|, mean over the results, bin by bin."""

    results: int
    right: float
    said: float
    error: float
    brier: float
    log_loss: float
    bins: tuple[Bin, ...]


def reliability(
    probabilities: Float64[np.ndarray, "n"], labels: Bool[np.ndarray, "n"], bins: int = BINS
) -> Reliability:
    """What probabilities said, and what was right. Bins are of equal width; empty ones are left out."""
    said, truth = np.asarray(probabilities, np.float64), np.asarray(labels, np.bool_)
    if said.shape != truth.shape or said.ndim != 1 or not len(said) or bins < 1:
        raise SuperfeatError(f"there must be results, with a label each, and bins: {said.shape}, {truth.shape}, {bins}")
    if not ((said >= 0) & (said <= 1)).all():
        raise SuperfeatError("probabilities must be between 0 and 1")
    places = np.minimum((said * bins).astype(np.int64), bins - 1)
    found = tuple(
        _bin(place / bins, (place + 1) / bins, said[places == place], truth[places == place])
        for place in np.unique(places).tolist()
    )
    error = math.fsum(one.results * abs(one.said - one.right) for one in found) / len(said)
    sure = np.clip(np.where(truth, said, 1 - said), LOWEST, 1.0)
    return Reliability(
        len(said),
        float(truth.mean()),
        float(said.mean()),
        error,
        float(((said - truth) ** 2).mean()),
        float(-np.log(sure).mean()),
        found,
    )


def _bin(low: float, high: float, said: Float64[np.ndarray, "n"], truth: Bool[np.ndarray, "n"]) -> Bin:
    least, most = wilson_interval(int(truth.sum()), len(truth))
    return Bin(low, high, len(truth), float(said.mean()), float(truth.mean()), least, most)


def wilson_interval(right: int, count: int) -> tuple[float, float]:
    """In which the true share lies in 95 of 100 cases (Wilson 1927)."""
    share, z = right / count, Z_95
    middle = share + z**2 / (2 * count)
    reach = z * math.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
    low, high = ((middle + side) / (1 + z**2 / count) for side in (-reach, reach))
    return min(max(low, 0.0), share), max(min(high, 1.0), share)  # rounding must not put the share outside
