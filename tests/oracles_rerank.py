"""Slow twins of the verification: plain loops. Nothing here is of the package."""

import math
from collections.abc import Iterator, Mapping, Sequence

Place = Sequence[float]  # x, y, spread x, spread y
Transform = tuple[float, float, float, float, float, float]  # x' = a x + b y + c, y' = d x + e y + f

EXACT, NEAR = 0.03, 0.1
HEARD, SINGLES, PAIRS = 64, 40, 20
LARGEST_SCALE, LARGEST_TURN = 4.0, 0.5
FITS, RIDGE, LEAST_BASE = 6, 1e-3, 0.02


def agreement(one: Place, other: Place, transform: Transform) -> float:
    """1 where the place is off by EXACT or less, 0 from NEAR on, and in between by the square."""
    a, b, c, d, e, f = transform
    off = (a * one[0] + b * one[1] + c - other[0]) ** 2 + (d * one[0] + e * one[1] + f - other[1]) ** 2
    off = max(off, off / (a * e - b * d))
    return min(1.0, max(0.0, (NEAR**2 - off) / (NEAR**2 - EXACT**2)))


def hypotheses(query: Sequence[Place], found: Sequence[Place]) -> Iterator[Transform]:
    """Of each correspondence by itself, and with each stronger one."""
    for row in range(len(query)):
        if row < SINGLES:
            yield from from_one(query[row], found[row])
        if row < PAIRS:
            for other in range(row):
                yield from from_two(query[other], found[other], query[row], found[row])


def from_one(one: Place, other: Place) -> Iterator[Transform]:
    scale = math.sqrt(other[2] * other[3] / (one[2] * one[3]))
    if 1 / LARGEST_SCALE <= scale <= LARGEST_SCALE:
        yield scale, 0.0, other[0] - scale * one[0], 0.0, scale, other[1] - scale * one[1]


def from_two(one: Place, one_there: Place, two: Place, two_there: Place) -> Iterator[Transform]:
    """By complex numbers: z -> turn * z + shift."""
    here, there = (
        complex(two[0] - one[0], two[1] - one[1]),
        complex(two_there[0] - one_there[0], two_there[1] - one_there[1]),
    )
    if min(abs(here), abs(there)) < LEAST_BASE:
        return
    turn = there / here
    if not 1 / LARGEST_SCALE <= abs(turn) <= LARGEST_SCALE or abs(math.atan2(turn.imag, turn.real)) > LARGEST_TURN:
        return
    shift = (complex(*one_there[:2]) + complex(*two_there[:2]) - turn * (complex(*one[:2]) + complex(*two[:2]))) / 2
    yield turn.real, -turn.imag, shift.real, turn.imag, turn.real, shift.imag


def fit(
    query: Sequence[Place], found: Sequence[Place], masses: Sequence[float], affine: bool, before: Transform
) -> Transform | None:
    """Weighted least squares with a ridge towards the transform before."""
    total = sum(masses)
    if total <= 0:
        return None
    middle = [sum(m * p[axis] for m, p in zip(masses, query, strict=True)) / total for axis in (0, 1)]
    there = [sum(m * p[axis] for m, p in zip(masses, found, strict=True)) / total for axis in (0, 1)]
    old = ((before[0], before[1]), (before[3], before[4]))
    inner = [[RIDGE * (i == j) for j in (0, 1)] for i in (0, 1)]
    cross = [[RIDGE * old[i][j] for j in (0, 1)] for i in (0, 1)]
    for mass, p, r in zip(masses, query, found, strict=True):
        for i in (0, 1):
            for j in (0, 1):
                inner[i][j] += mass / total * (p[i] - middle[i]) * (p[j] - middle[j])
                cross[i][j] += mass / total * (r[i] - there[i]) * (p[j] - middle[j])
    if affine:
        det = inner[0][0] * inner[1][1] - inner[0][1] * inner[1][0]
        (a, b), (d, e) = (
            (
                (cross[i][0] * inner[1][1] - cross[i][1] * inner[0][1]) / det,
                (cross[i][1] * inner[0][0] - cross[i][0] * inner[0][1]) / det,
            )
            for i in (0, 1)
        )
    else:
        spread = inner[0][0] + inner[1][1]
        a = e = (cross[0][0] + cross[1][1]) / spread
        d = (cross[1][0] - cross[0][1]) / spread
        b = -d
    if not 1 / LARGEST_SCALE**2 <= a * e - b * d <= LARGEST_SCALE**2:
        return None
    return a, b, there[0] - a * middle[0] - b * middle[1], d, e, there[1] - d * middle[0] - e * middle[1]


def find_agreement(
    shares: Sequence[float], query: Sequence[Place], found: Sequence[Place]
) -> tuple[list[float], Transform | None, float]:
    """Weight of each correspondence, the transform, and what would agree by chance."""
    order = sorted(range(len(shares)), key=lambda row: -shares[row])[:HEARD]
    votes = [shares[row] for row in order]
    mine, theirs = ([places[row] for row in order] for places in (query, found))

    def support(transform: Transform) -> float:
        return sum(v * agreement(p, r, transform) for v, p, r in zip(votes, mine, theirs, strict=True))

    best, most = None, 0.0
    for one in hypotheses(mine, theirs):
        if support(one) > most:
            best, most = one, support(one)
    if best is None:
        return [0.0] * len(shares), None, 0.0
    for number in range(FITS):
        masses = [v * agreement(p, r, best) for v, p, r in zip(votes, mine, theirs, strict=True)]
        better = fit(mine, theirs, masses, 2 * number >= FITS, best)
        if better is not None and support(better) > most:
            best, most = better, support(better)
    chance = 0.0
    for row, vote in enumerate(votes):
        others = [other for other in range(len(votes)) if other != row]
        weight = sum(votes[other] for other in others)
        if weight > 0:
            chance += vote * sum(votes[o] * agreement(mine[row], theirs[o], best) for o in others) / weight
    weights = [agreement(p, r, best) for p, r in zip(query, found, strict=True)]
    return weights, best, chance / sum(votes)


def diffused(
    scores: Sequence[float], similarities: Sequence[Sequence[float]], neighbours: int, floor: float, share: float
) -> list[float]:
    """f = (1 - share) y + share W f, by going round until nothing changes; who has no neighbours keeps y."""
    n = len(scores)
    counted = [[value if value >= floor and value > 0 else 0.0 for value in row] for row in similarities]
    alike = [[0.0 if i == j else counted[i][j] for j in range(n)] for i in range(n)]
    near = [sorted(range(n), key=lambda j, row=row: (-row[j], j))[:neighbours] for row in alike]  # type: ignore[misc]
    kept = [[alike[i][j] if j in near[i] and i in near[j] else 0.0 for j in range(n)] for i in range(n)]
    worth = list(scores)
    for _ in range(400):
        worth = [
            (1 - share) * scores[i] + share * sum(kept[i][j] * worth[j] for j in range(n)) / sum(kept[i])
            if sum(kept[i]) > 0
            else scores[i]
            for i in range(n)
        ]
    return worth


def expanded(
    query: Mapping[int, Sequence[int]], photos: Sequence[tuple[Mapping[int, Sequence[int]], float]], own: float
) -> dict[int, list[int]]:
    """Words and the signs of their codes: each word by the votes of those that have it; a tie is no."""
    votes: dict[int, list[float]] = {}
    for signs, weight in [(query, own), *photos]:
        for word, code in signs.items():
            total = votes.setdefault(word, [0.0] * len(code))
            for place, sign in enumerate(code):
                total[place] += weight * sign
    return {word: [1 if value > 0 else -1 for value in total] for word, total in sorted(votes.items())}
