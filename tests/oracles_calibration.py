"""Slow twins of the calibration: plain loops straight from the definitions. Nothing here is of the package."""

import math
from collections.abc import Sequence

Matrix = Sequence[Sequence[float]]


def quantile(values: Sequence[float], share: float) -> float:
    """Between the two neighbours of its place, in proportion."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def off_diagonal(scores: Matrix, images: Sequence[int]) -> list[float]:
    """Logarithms of the scores above 0 of every two different images."""
    return [math.log(scores[a][b]) for a in images for b in images if a != b and scores[a][b] > 0]


def bulk(pairs: Sequence[float]) -> tuple[float, float]:
    """Median and half the distance of the quartiles in deviations, without what lies 3 above, until nothing changes."""
    location = quantile(pairs, 0.5)
    scale = (location - quantile(pairs, 0.25)) / 0.6745
    for _ in range(100):
        kept = [pair for pair in pairs if pair <= location + 3 * scale]
        found = quantile(kept, 0.5), (quantile(kept, 0.75) - quantile(kept, 0.25)) / (2 * 0.6745)
        if found == (location, scale):
            break
        location, scale = found
    return location, scale


def different_images(scores: Matrix, highest: float = math.inf) -> list[int]:
    """Image by image: kept if it scores with none of those kept so far as one thing does."""
    pairs = off_diagonal(scores, range(len(scores)))
    cut = highest
    if pairs:
        location, scale = bulk(pairs)
        cut = min(cut, location + 1.5 * scale)
    kept: list[int] = []
    for image in range(len(scores)):
        if all(scores[image][other] <= 0 or math.log(scores[image][other]) <= cut for other in kept):
            kept.append(image)
    return kept


def upper(pairs: Sequence[float]) -> tuple[float, float]:
    """The normal distribution that has the same quartile, and the same value that 97 of 100 lie below."""
    quartile, high = quantile(pairs, 0.75), quantile(pairs, 0.97)
    scale = (high - quartile) / (1.8808 - 0.6745)
    return quartile - 0.6745 * scale, scale


def query_null(null: tuple[float, float], scores: Sequence[float]) -> tuple[float, float]:
    """The upper part of a query's own scores, and a null that is worth 100 of them."""
    own = [math.log(score) for score in scores if score > 0]
    own = [log for log in own if log <= null[0] + 3 * null[1]]
    if not own:
        return null
    location, scale = upper(own)
    share = len(own) / (len(own) + 100)
    return share * location + (1 - share) * null[0], share * scale + (1 - share) * null[1]


def evidence(score: float, location: float, scale: float) -> float:
    """Deviations above strangers."""
    return (math.log(max(score, 1e-12)) - location) / scale


def linked_share(scores: Matrix, location: float, scale: float) -> float:
    """Pairs of different images that stand 3 deviations above strangers, of all such pairs."""
    pairs = [(a, b) for a in range(len(scores)) for b in range(len(scores)) if a != b]
    linked = [pair for pair in pairs if evidence(scores[pair[0]][pair[1]], location, scale) >= 3]
    return len(linked) / len(pairs) if pairs else 0.0


def match_prior(linked: float, sample: int, images: int) -> float:
    """Of the first 20 results (or all) so many are right as an image has links; 20 more, a tenth of them right, are
    counted with them. Of a collection that is larger than the sample the first count for less.
    """
    images = max(images, 1)
    first = min(images, 20)
    right = min(linked * images, first)
    weight = sample / images if images > sample else 1.0
    share = (weight * right + 2) / (weight * first + 20)
    return math.log(share / (1 - share)) - math.log(0.1 / 0.9)


def logistic(odds: float) -> float:
    return 1 / (1 + math.exp(-odds)) if odds >= 0 else math.exp(odds) / (1 + math.exp(odds))


def shaped_clues(clues: Sequence[float]) -> list[float]:
    """What a fit counts of one result's clues: docs/calibration.md, "Clues besides the score"."""

    def between(value: float, low: float, high: float) -> float:
        return 0.0 if value < low else high - low if value > high else value - low

    inliers, back, near, support, witness = clues
    bounded = between(back, 1, 3), between(near, 0.5, 3), between(support, 2, 3.5), between(witness, 2.3, 3.7)
    return [inliers * inliers, *bounded]


def witness(inliers: Sequence[float], mutual: Matrix, first: Sequence[int]) -> list[float]:
    """Of up to five of the first results that share most agreeing words with the query, 14 or more: the best of what
    they say of each result, and each says the less of what it shares with the query and with the result. `inliers` are
    logarithms of one more than the words; `mutual[a][b]` those of b with a.
    """
    asked = sorted((place for place in first if math.exp(inliers[place]) - 1 >= 13.5), key=lambda one: -inliers[one])[
        :5
    ]
    said = []
    for place in range(len(inliers)):
        words = [min(inliers[one], mutual[one][place]) for one in asked if one != place]
        said.append(max([0.0, *words]))
    return said


def judged_together(own: Sequence[float], first: Sequence[int], prior: float, terms: Sequence[float]) -> list[float]:
    """What is said of the results of one search, by the log-odds of each by itself. The collection has a prior; the
    first 20 of `first` tell how many are right, by the square of their mean probability, and how far wrong ones lie
    below, by their mean log-odds; fewer than five have no level.
    """
    intercept, slope, common, share, level = terms
    speakers = list(first)[:20]
    right = sum(logistic(own[place]) for place in speakers) / len(speakers) if speakers else 0.0
    mean = sum(own[place] for place in speakers) / len(speakers) if len(speakers) >= 5 else 0.0
    moved = intercept + common * prior + share * right**2 + level * mean
    return [logistic(moved + slope * odds) for odds in own]


def penalised_slopes(
    columns: Matrix,
    labels: Sequence[bool],
    coefficients: Sequence[float],
    centre: Sequence[float],
    known: Sequence[float] | None = None,
) -> list[float]:
    """Derivatives of the penalised loss by intercept and slopes: all are 0 at its minimum.

    The penalty is a twentieth of the square of each slope's distance to its centre, in its column's deviations.
    """
    found = [0.0] * len(coefficients)
    for row, label, prior in zip(columns, labels, known or [0.0] * len(labels), strict=True):
        odds = prior + coefficients[0] + sum(c * value for c, value in zip(coefficients[1:], row, strict=True))
        wrong = logistic(odds) - label
        found[0] += wrong
        for place, value in enumerate(row):
            found[place + 1] += wrong * value
    for place, aim in enumerate(centre):
        column = [row[place] for row in columns]
        mean = sum(column) / len(column)
        variance = sum((value - mean) ** 2 for value in column) / len(column) or 1.0
        found[place + 1] += 0.1 * variance * (coefficients[place + 1] - aim)
    return found


def reliability(said: Sequence[float], labels: Sequence[bool], bins: int) -> tuple[float, float, float]:
    """Expected calibration error, Brier score, log loss."""
    count = len(said)
    error = 0.0
    for place in range(bins):
        inside = [
            (p, label) for p, label in zip(said, labels, strict=True) if min(math.floor(p * bins), bins - 1) == place
        ]
        if inside:
            mean = sum(p for p, _ in inside) / len(inside)
            right = sum(label for _, label in inside) / len(inside)
            error += len(inside) / count * abs(mean - right)
    brier = sum((p - label) ** 2 for p, label in zip(said, labels, strict=True)) / count
    losses = [-math.log(max(p if label else 1 - p, 1e-12)) for p, label in zip(said, labels, strict=True)]
    return error, brier, sum(losses) / count


def wilson(right: int, count: int, z: float = 1.959964) -> tuple[float, float]:
    """The shares from which `right` of `count` lies z standard errors away: roots of a quadratic, by halving."""

    def distance(share: float) -> float:
        return (right / count - share) ** 2 - z**2 * share * (1 - share) / count

    def root(inside: float, outside: float) -> float:
        for _ in range(200):
            middle = (inside + outside) / 2
            inside, outside = (middle, outside) if distance(middle) <= 0 else (inside, middle)
        return inside

    return root(right / count, 0.0), root(right / count, 1.0)
