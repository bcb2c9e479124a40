"""How good a ranking is: average precision by the trapezoid rule of the Oxford benchmark."""

import math
from collections.abc import Collection, Iterable

import numpy as np
from jaxtyping import Int


def average_precision(
    ranking: Int[np.ndarray, "ranked"], positives: Collection[int], junk: Collection[int] = ()
) -> float:
    """Area under the curve of precision over recall, 0 to 1; NaN for a query without positives.

    Junk is taken out of the ranking first, and is never a positive. Positives that the ranking lacks are not found.
    """
    ignored = np.fromiter(junk, np.int64, len(junk))
    wanted = np.setdiff1d(np.fromiter(positives, np.int64, len(positives)), ignored)
    if len(wanted) == 0:
        return math.nan
    judged = ranking[~np.isin(ranking, ignored)]
    ranks = np.flatnonzero(np.isin(judged, wanted))
    assert len(ranks) <= len(wanted), "a ranking names no image twice"
    found = np.arange(len(ranks))  # how many positives stand before each
    before = np.where(ranks > 0, found / np.maximum(ranks, 1), 1.0)
    after = (found + 1) / (ranks + 1)
    return float((before + after).sum() / 2 / len(wanted))


def mean_average_precision(values: Iterable[float]) -> float:
    """Mean over the queries; those without positives (NaN) are left out. NaN if none is left."""
    known = [value for value in values if not math.isnan(value)]
    return math.fsum(known) / len(known) if known else math.nan
