"""The first results of a search judged together: where most of them are surely right, the others are likelier too.

How many photos of its thing a query has decides what a middling result is worth, and nobody knows it beforehand. But
the first results show it. docs/calibration.md has the reasons.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int64

from superfeat.probability.logistic import fit_logistic, sigmoid

TOP = 20  # results that people look at
LEAST = 5  # results that have a level: that of fewer is mostly the own evidence of each


class Together(NamedTuple):
    """The log-odds of a result beside others: intercept + slope * its own + prior * that of the collection + share *
    the square of the mean probability of the first results + level * their mean log-odds.

    A slope above 0 that is more than `level` takes off, of which a result's own evidence is a fifth at most: the order
    of results stays, and no evidence of its own speaks against a result.
    """

    intercept: float
    slope: float
    prior: float
    share: float
    level: float

    def odds(self, own: Float64[np.ndarray, "n"], around: Float64[np.ndarray, "*n 3"]) -> Float64[np.ndarray, "n"]:
        """Of results with these log-odds of their own, in a collection and among first results like these."""
        return np.asarray(self.intercept + self.slope * own + around @ np.asarray(self[2:]))

    @property
    def keeps_order(self) -> bool:
        """Whether a result with more evidence is never less likely, however few there are, nor are more matches."""
        return min(self.prior, self.share, -self.level) >= 0 and self.slope + self.level / LEAST > 0


def around_one(odds: Float64[np.ndarray, "n"], prior: float) -> Float64[np.ndarray, "3"]:
    """What surrounds the results of one search: the prior of the collection, and of the first results, by the log-odds
    of each by itself, the square of the mean probability and, of five or more, the mean log-odds; zeros without any.
    """
    first = odds[:TOP]
    level = first.mean() if len(first) >= LEAST else 0.0
    return np.asarray([prior, sigmoid(first).mean() ** 2 if len(first) else 0.0, level])


def around_each(
    odds: Float64[np.ndarray, "n"], prior: Float64[np.ndarray, "n"], searches: Int64[np.ndarray, "n"]
) -> Float64[np.ndarray, "n 3"]:
    """The same for each of the results of many searches, of which no more than the first are there."""
    if not len(odds):
        return np.zeros((0, 3))
    places = np.unique(searches, return_inverse=True)[1]
    totals = np.column_stack([np.bincount(places, values) for values in (sigmoid(odds), odds)])
    counts = np.bincount(places)
    means = totals / counts[:, None]
    means[:, 0] **= 2
    means[counts < LEAST, 1] = 0.0
    return np.column_stack([prior, means[places]])


def fit_together(
    odds: Float64[np.ndarray, "n"],
    around: Float64[np.ndarray, "n 3"],
    labels: Bool[np.ndarray, "n"],
    start: Together | None,
) -> Together | None:
    """The likeliest, with few results not far from `start`; None where nothing around a result speaks for it.

    What has the wrong sign is chance, and is left out: the level first, then the prior, then the share.
    """
    columns = np.column_stack([odds, around])
    centre = np.asarray((1.0, 0.0, 0.0, 0.0) if start is None else start[1:], np.float64)
    for kept in ([0, 1, 2, 3], [0, 1, 2], [0, 2, 3], [0, 2], [0, 1]):
        intercept, *slopes = fit_logistic(columns[:, kept], labels, centre[kept]).tolist()
        terms = np.zeros(4)
        terms[kept] = slopes
        found = Together(intercept, *terms.tolist())
        if found.keeps_order and max(found.prior, found.share) > 0:
            return found
    return None
