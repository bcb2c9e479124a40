"""The first results of a search judged together: where most of them are surely right, the others are likelier too.

How many photos of its thing a query has decides what a middling result is worth, and nobody knows it beforehand. But
the first results show it. docs/calibration.md has the reasons.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int64

from superfeat.probability.logistic import fit_logistic, sigmoid

TOP = 20  # results that people look at


class Together(NamedTuple):
    """The log-odds of a result beside others: intercept + slope * its own + share * the mean probability of the first
    + level * their mean log-odds.

    A slope above 0 that is more than `level` takes off: the order of results stays, and no evidence of its own speaks
    against a result.
    """

    intercept: float
    slope: float
    share: float
    level: float

    def odds(self, own: Float64[np.ndarray, "n"], first: Float64[np.ndarray, "*n 2"]) -> Float64[np.ndarray, "n"]:
        """Of results with these log-odds of their own, with what the first of their search are like."""
        return np.asarray(self.intercept + self.slope * own + first @ np.asarray(self[2:]))

    @property
    def keeps_order(self) -> bool:
        """Whether a result with more evidence is never less likely, however few there are."""
        return self.slope > 0 and self.share >= 0 and self.level <= 0 and self.slope + self.level > 0


def first_of(odds: Float64[np.ndarray, "n"]) -> Float64[np.ndarray, "2"]:
    """What the first results of one search are like, by the log-odds of each by itself: their mean probability, and
    their mean log-odds; zeros without any.
    """
    first = odds[:TOP]
    return np.asarray([sigmoid(first).mean(), first.mean()]) if len(first) else np.zeros(2)


def first_of_each(odds: Float64[np.ndarray, "n"], searches: Int64[np.ndarray, "n"]) -> Float64[np.ndarray, "n 2"]:
    """The same for each of the results of many searches, of which no more than the first are there."""
    if not len(odds):
        return np.zeros((0, 2))
    places = np.unique(searches, return_inverse=True)[1]
    totals = np.column_stack([np.bincount(places, values) for values in (sigmoid(odds), odds)])
    return np.asarray((totals / np.bincount(places)[:, None])[places])


def fit_together(
    odds: Float64[np.ndarray, "n"],
    first: Float64[np.ndarray, "n 2"],
    labels: Bool[np.ndarray, "n"],
    start: Together | None,
) -> Together | None:
    """The likeliest, with few results not far from `start`; None where the others say nothing of a result."""
    centre = np.asarray((1.0, 0.0, 0.0) if start is None else start[1:], np.float64)
    for terms in (3, 2):  # without the level, if it would take more off a result than its evidence adds
        columns = np.column_stack([odds, first])[:, :terms]
        found = Together(*fit_logistic(columns, labels, centre[:terms]).tolist(), *(0.0,) * (3 - terms))
        if found.keeps_order:
            return found if found.share > 0 else None
    return None
