"""Do shared words lie in the same arrangement in both photos? Arrays in, arrays out; compiled, no chance involved.

A correspondence is a word that two photos share: its share of the score, and in each photo a place, which is a centre
x, y and a spread x, y in units of the photo's longer side. A transform is a 2 x 3 matrix that takes places of the query
to places of the found photo. Hypotheses are made in a fixed order, strongest correspondences first: from one (scale by
the spreads, and translation) and from two (similarity). The one that the most score agrees with is fitted again to what
agrees. tests/oracles_rerank.py has the formulas as plain loops.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64, Int64

from superfeat.index.kernel import compiled

LEAST_BASE = 0.02  # of two correspondences that make a hypothesis: how far apart they lie at least, in both photos
LEAST_SPREAD = 1 / 512  # half a step of what an index stores: a ratio of spreads is a scale
RIDGE = 1e-3  # of a fit: how much the transform before it counts, as a variance of places
CERTAIN = 2  # so many correspondences agree with a transform that is made of them, whatever they are


class Rules(NamedTuple):
    """How well places must agree, and how long is looked for a transform that they agree on."""

    exact: float = 0.03  # a place that is off by no more than this agrees wholly (as shares of the longer side)
    near: float = 0.1  # and one that is off by this or more, not at all; in both photos
    heard: int = 64  # strongest correspondences that decide between hypotheses
    singles: int = 40  # strongest correspondences that make a hypothesis each
    pairs: int = 20  # strongest correspondences of which every two make one
    largest_scale: float = 4.0  # from one photo to the other, or back
    largest_turn: float = 0.5  # radians
    fits: int = 6  # times that the best is fitted again, the first half as a similarity, the others as an affine map


class Correspondences(NamedTuple):
    """The words that a query shares with some photos, one photo after the other; `starts` has one more than photos."""

    starts: Int64[np.ndarray, "photos_1"]
    shares: Float64[np.ndarray, "n"]
    query: Float64[np.ndarray, "n 4"]
    found: Float64[np.ndarray, "n 4"]


class Agreements(NamedTuple):
    """For each correspondence how well it agrees with its photo's transform, from 0 to 1; for each photo the transform
    (all zeros if there is none), and which part of the score would agree if the same places were dealt out at random.
    """

    weights: Float64[np.ndarray, "n"]
    transforms: Float64[np.ndarray, "photos 2 3"]
    chances: Float64[np.ndarray, "photos"]


def find_agreements(matches: Correspondences, rules: Rules = Rules()) -> Agreements:  # noqa: B008 - immutable
    """Photo by photo, the transform that the most score agrees with. What is below zero has no say."""
    photos = len(matches.starts) - 1
    weights = np.zeros(len(matches.shares))
    transforms, chances = np.zeros((photos, 2, 3)), np.zeros(photos)
    query, found = (_with_spread(places) for places in (matches.query, matches.found))
    shares = np.maximum(matches.shares, 0.0)
    _find_all(matches.starts, shares, query, found, rules, weights, transforms, chances)
    return Agreements(weights, transforms, chances)


def _with_spread(places: Float64[np.ndarray, "n 4"]) -> Float64[np.ndarray, "n 4"]:
    return np.ascontiguousarray(np.maximum(places, (-np.inf, -np.inf, LEAST_SPREAD, LEAST_SPREAD)))


@compiled
def _find_all(
    starts: Any, shares: Any, query: Any, found: Any, rules: Any, weights: Any, transforms: Any, chances: Any
) -> None:  # pragma: no cover
    for photo in range(len(chances)):
        own = slice(starts[photo], starts[photo + 1])
        order = np.argsort(-shares[own], kind="mergesort")  # equal ones in the order of the words
        heard = order[: rules.heard]
        best = transforms[photo]
        mine, theirs, votes = query[own], found[own], shares[own]
        if _find(mine[heard], theirs[heard], votes[heard], rules, best) > 0:
            _weigh(mine, theirs, best, rules, weights[own])
            chances[photo] = _by_chance(mine[heard], theirs[heard], votes[heard], best, rules)


@compiled
def _find(query: Any, found: Any, votes: Any, rules: Any, best: Any) -> Any:  # pragma: no cover
    """The best transform, and what agrees with it. The votes fall."""
    rest = np.zeros(len(votes) + 1)  # of the votes from each on
    for row in range(len(votes) - 1, -1, -1):
        rest[row] = rest[row + 1] + votes[row]
    most = _best_hypothesis(query, found, votes, rest, rules, best)
    trial, weights = np.zeros((2, 3)), np.zeros(len(votes))
    for number in range(rules.fits):
        if not most > 0:
            break
        trial[:] = best
        _weigh(query, found, best, rules, weights)
        if _fit(query, found, votes * weights, 2 * number >= rules.fits, rules.largest_scale, trial):
            agreed = _support(query, found, votes, rest, trial, rules, most)
            if agreed > most:
                most = agreed
                best[:] = trial
    return most


@compiled
def _best_hypothesis(query: Any, found: Any, votes: Any, rest: Any, rules: Any, best: Any) -> Any:  # pragma: no cover
    trial, most = np.zeros((2, 3)), 0.0
    for row in range(min(len(votes), max(rules.singles, rules.pairs))):
        for other in range(-1, row if row < rules.pairs else 0):
            if other < 0:
                good = row < rules.singles and _from_one(query[row], found[row], rules, trial)
            else:
                good = _from_two(query, found, other, row, rules, trial)
            if good:
                agreed = _support(query, found, votes, rest, trial, rules, most)
                if agreed > most:
                    most = agreed
                    best[:] = trial
    return most


@compiled
def _support(
    query: Any, found: Any, votes: Any, rest: Any, transform: Any, rules: Any, most: Any
) -> Any:  # pragma: no cover
    """The votes that agree; 0 as soon as they cannot be more than `most`."""
    agreed, ruler = 0.0, _ruler(transform, rules)
    for row in range(len(votes)):
        if not agreed + rest[row] > most:
            return 0.0
        agreed += votes[row] * _agreement(query[row], found[row], ruler)
    return agreed


@compiled
def _weigh(query: Any, found: Any, transform: Any, rules: Any, weights: Any) -> None:  # pragma: no cover
    ruler = _ruler(transform, rules)
    for row in range(len(weights)):
        weights[row] = _agreement(query[row], found[row], ruler)


@compiled
def _ruler(transform: Any, rules: Any) -> Any:  # pragma: no cover
    """What places are held against, worked out once for a transform, as its divisions would be most of the time: the
    transform, how much farther off a place may be in the query, from where on nothing agrees, and how fast that comes.
    """
    a, b, x = transform[0, 0], transform[0, 1], transform[0, 2]
    c, d, y = transform[1, 0], transform[1, 1], transform[1, 2]
    exact, near = rules.exact * rules.exact, rules.near * rules.near
    return a, b, x, c, d, y, max(1.0, 1.0 / (a * d - b * c)), near, 1.0 / (near - exact)


@compiled
def _agreement(mine: Any, theirs: Any, ruler: Any) -> Any:  # pragma: no cover
    """How well a place of the query and one of the found photo agree: by how far off it is, where that is farther."""
    a, b, x, c, d, y, farther, near, fall = ruler
    u = a * mine[0] + b * mine[1] + x - theirs[0]
    v = c * mine[0] + d * mine[1] + y - theirs[1]
    off = (u * u + v * v) * farther  # squared, in the found photo or taken back to the query
    return min(1.0, max(0.0, (near - off) * fall))


@compiled
def _by_chance(query: Any, found: Any, votes: Any, transform: Any, rules: Any) -> Any:  # pragma: no cover
    """Which part of the votes would agree if each had the place of any other vote in the found photo."""
    whole, total, ruler = votes.sum(), 0.0, _ruler(transform, rules)
    for row in range(len(votes)):
        part, others = 0.0, whole - votes[row]
        for other in range(len(votes)):
            if other != row:
                part += votes[other] * _agreement(query[row], found[other], ruler)
        if others > 0:
            total += votes[row] * min(1.0, part / others)
    return total / whole


@compiled
def _from_one(mine: Any, theirs: Any, rules: Any, transform: Any) -> Any:  # pragma: no cover
    """Scale by the spreads, and translation; whether it is one to be expected."""
    scale = math.sqrt((theirs[2] * theirs[3]) / (mine[2] * mine[3]))
    transform[0, 0], transform[0, 1], transform[0, 2] = scale, 0.0, theirs[0] - scale * mine[0]
    transform[1, 0], transform[1, 1], transform[1, 2] = 0.0, scale, theirs[1] - scale * mine[1]
    return 1 / rules.largest_scale <= scale <= rules.largest_scale


@compiled
def _from_two(query: Any, found: Any, one: Any, other: Any, rules: Any, transform: Any) -> Any:  # pragma: no cover
    """The similarity that takes both to their places; whether it is one to be expected."""
    x, y = query[other, 0] - query[one, 0], query[other, 1] - query[one, 1]
    u, v = found[other, 0] - found[one, 0], found[other, 1] - found[one, 1]
    before, after = x * x + y * y, u * u + v * v
    if min(before, after) < LEAST_BASE * LEAST_BASE:
        return False
    along, across = (u * x + v * y) / before, (v * x - u * y) / before
    left, top = (query[one, 0] + query[other, 0]) / 2, (query[one, 1] + query[other, 1]) / 2
    transform[0, 0], transform[0, 1] = along, -across
    transform[1, 0], transform[1, 1] = across, along
    transform[0, 2] = (found[one, 0] + found[other, 0]) / 2 - along * left + across * top
    transform[1, 2] = (found[one, 1] + found[other, 1]) / 2 - across * left - along * top
    largest = rules.largest_scale * rules.largest_scale
    return (
        before <= after * largest and after <= before * largest and abs(math.atan2(across, along)) <= rules.largest_turn
    )


@compiled
def _fit(
    query: Any, found: Any, masses: Any, affine: Any, largest_scale: Any, transform: Any
) -> Any:  # pragma: no cover
    """Least squares, drawn a little towards the transform that was before; whether it is one to be expected."""
    total = masses.sum()
    if not total > 0:
        return False
    qx, qy = (masses * query[:, 0]).sum() / total, (masses * query[:, 1]).sum() / total
    fx, fy = (masses * found[:, 0]).sum() / total, (masses * found[:, 1]).sum() / total
    x, y, u, v = query[:, 0] - qx, query[:, 1] - qy, found[:, 0] - fx, found[:, 1] - fy
    xx, xy, yy = (
        (masses * x * x).sum() / total + RIDGE,
        (masses * x * y).sum() / total,
        (masses * y * y).sum() / total + RIDGE,
    )
    ux, uy = (
        (masses * u * x).sum() / total + RIDGE * transform[0, 0],
        (masses * u * y).sum() / total + RIDGE * transform[0, 1],
    )
    vx, vy = (
        (masses * v * x).sum() / total + RIDGE * transform[1, 0],
        (masses * v * y).sum() / total + RIDGE * transform[1, 1],
    )
    if affine:
        det = xx * yy - xy * xy
        a, b = (ux * yy - uy * xy) / det, (uy * xx - ux * xy) / det
        c, d = (vx * yy - vy * xy) / det, (vy * xx - vx * xy) / det
    else:
        a, c = (ux + vy) / (xx + yy), (vx - uy) / (xx + yy)
        b, d = -c, a
    transform[0, 0], transform[0, 1], transform[0, 2] = a, b, fx - a * qx - b * qy
    transform[1, 0], transform[1, 1], transform[1, 2] = c, d, fy - c * qx - d * qy
    area = a * d - b * c
    return 1 / largest_scale**2 <= area <= largest_scale**2
