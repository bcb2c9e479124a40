"""Logistic regression by Newton's method, with slopes whose sign is known."""

import numpy as np
from jaxtyping import Bool, Float64

MOST_ROUNDS = 100  # more than Newton's method has ever needed
PENALTY = 0.1  # of the logistic: keeps coefficients finite where labels can be told apart without error


def sigmoid(odds: Float64[np.ndarray, "n"]) -> Float64[np.ndarray, "n"]:
    """Probability of log-odds, however large they are."""
    return np.asarray(np.exp(-np.logaddexp(0.0, -odds)))


def fit_signed(
    columns: Float64[np.ndarray, "n d"],
    labels: Bool[np.ndarray, "n"],
    centre: Float64[np.ndarray, "d"],
    known: Float64[np.ndarray, "n"],
) -> tuple[float, Float64[np.ndarray, "d"]]:
    """Intercept and slopes, of which that of the size, the second, is 0 at most and all others 0 at least: what has
    the wrong sign is chance, or one size only, and is left out, the worst first.
    """
    kept = list(range(columns.shape[1]))
    while True:
        intercept, *found = fit_logistic(columns[:, kept], labels, centre[kept], known).tolist()
        signed = {place: -value if place == 1 else value for place, value in zip(kept, found, strict=True)}
        worst = min(signed, key=lambda place: signed[place], default=None)
        if worst is None or signed[worst] >= 0:
            slopes = np.zeros(columns.shape[1])
            slopes[kept] = found
            return float(intercept), slopes
        kept.remove(worst)


def fit_logistic(
    columns: Float64[np.ndarray, "n d"],
    labels: Bool[np.ndarray, "n"],
    centre: Float64[np.ndarray, "d"],
    known: float | Float64[np.ndarray, "n"] = 0.0,
) -> Float64[np.ndarray, "d_1"]:
    """Intercept and slopes of the likeliest logistic, slopes pulled towards `centre`. Newton's method.

    `known` is a part of the log-odds that is not fitted.
    """
    means, spreads = columns.mean(axis=0), columns.std(axis=0)
    spreads[spreads == 0] = 1.0
    design = np.column_stack([np.ones(len(columns)), (columns - means) / spreads])
    aim, penalty = np.append(0.0, centre * spreads), np.append(0.0, np.full(len(centre), PENALTY))

    def loss(at: Float64[np.ndarray, "d_1"]) -> float:
        odds = design @ at + known
        return float((np.logaddexp(0.0, odds) - labels * odds).sum() + (penalty * (at - aim) ** 2).sum() / 2)

    found, step = aim, 1.0
    for _ in range(MOST_ROUNDS):
        said = sigmoid(design @ found + known)
        slope = design.T @ (said - labels) + penalty * (found - aim)
        curve = (design.T * (said * (1 - said))) @ design + np.diag(penalty + np.finfo(np.float64).eps)
        change = np.linalg.solve(curve, slope)
        step = 1.0
        while loss(found - step * change) > loss(found) and step > np.finfo(np.float64).eps:
            step /= 2  # a whole step can overshoot where nearly all results are certain
        found = found - step * change
        if np.abs(step * change).max() < 1e-9:
            break
    slopes = found[1:] / spreads
    return np.append(found[0] - slopes @ means, slopes)
