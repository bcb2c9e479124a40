"""Slow twins of the losses and of mining: plain loops straight from METHOD.md 4, 5. Nothing here is of the package."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy.typing as npt

Numbers = npt.NDArray[Any]
Distances = Sequence[Sequence[float]]  # from each s' of the positive (rows) to each s of the query
Pair = tuple[int, int]  # IDs of s and of s'

RATIO = 0.9
DISTANCE_FLOOR = 1e-6  # added to each difference by the released losses
LENGTH_FLOOR = 1e-12  # a vector of zeros stays one


# --- eligible pairs (eq. 7) -------------------------------------------------------------------------------------------


def unit(x: Numbers) -> list[float]:
    values = [float(value) for value in x]
    length = math.sqrt(sum(value**2 for value in values))
    return [value / max(length, LENGTH_FLOOR) for value in values]


def distance(a: Sequence[float], b: Sequence[float], floor: float = 0.0) -> float:
    return math.sqrt(sum((x - y + floor) ** 2 for x, y in zip(a, b, strict=True)))


def distances(positive: Numbers, query: Numbers) -> list[list[float]]:
    """Between L2-normalised features."""
    here, there = [unit(one) for one in query], [unit(one) for one in positive]
    return [[distance(b, a) for a in here] for b in there]


def nearest(values: Sequence[float], without: int | None = None) -> int:
    """n(., S): where the smallest is; of equal ones the first. `without` is taken out of S."""
    return min((value, number) for number, value in enumerate(values) if number != without)[1]


def match(table: Distances, ratio_test: str, ratio: float, reciprocal: bool, same_id: bool) -> list[Pair]:
    """Every (s, s') is asked for each condition that is switched on; in the order of the positive's IDs."""
    pairs = []
    for there, row in enumerate(table):
        for here in range(len(row)):
            column = [other[here] for other in table]
            if reciprocal and not (nearest(row) == here and nearest(column) == there):
                continue
            if same_id and here != there:
                continue
            if not (reciprocal or same_id) and nearest(row) != here:
                continue
            if passes(row, here, ratio_test, ratio):
                pairs.append((here, there))
    return pairs


def passes(row: Sequence[float], here: int, ratio_test: str, ratio: float) -> bool:
    """The ratio test. A single feature has no second; two features alike, or neighbour number 0, never pass."""
    if ratio_test == "off" or len(row) == 1:
        return True
    second = nearest(row, without=here)
    below = row[second] if ratio_test == "lowe" else float(second)
    return below != 0 and row[here] / below <= ratio


def match_ratio(
    query: Numbers, positive: Numbers, negatives: Iterable[Numbers], ratio_test: str, same_id: bool
) -> float:
    """Figure 3: the share of a query's matches in its tuple that are with the positive; 0 where there are none."""
    counts = [len(match(distances(other, query), ratio_test, RATIO, True, same_id)) for other in (positive, *negatives)]
    return counts[0] / sum(counts) if sum(counts) else 0.0


# --- losses (eq. 2, 8, 9) ---------------------------------------------------------------------------------------------


def contrastive(
    query: Sequence[float], positive: Sequence[float], negatives: Sequence[Sequence[float]], margin: float, hinge: str
) -> float:
    """Eq. 2 for one vector, or what eq. 8 sums over the pairs."""
    if hinge == "paper":
        total = distance(query, positive) ** 2
        for negative in negatives:
            total += max(0.0, margin - distance(query, negative) ** 2)
        return total
    total = 0.5 * distance(query, positive, DISTANCE_FLOOR) ** 2
    for negative in negatives:
        total += 0.5 * max(0.0, margin - distance(query, negative, DISTANCE_FLOOR)) ** 2
    return total


def superfeature_loss(
    pairs: Sequence[Pair], query: Numbers, positive: Numbers, negatives: Iterable[Numbers], margin: float, hinge: str
) -> float:
    """Eq. 8, without its weight: the negatives of a pair are those with the ID of the query's feature."""
    total = 0.0
    images = list(negatives)
    for here, there in pairs:
        others = [unit(image[here]) for image in images]
        total += contrastive(unit(query[here]), unit(positive[there]), others, margin, hinge)
    return total


def decorrelation(maps: Numbers) -> float:
    """Eq. 9 for one image, without its weight: the mean cosine of two different maps; 0 for a single one."""
    flat = [unit(one.reshape(-1)) for one in maps]
    total = 0.0
    for i, a in enumerate(flat):
        for j, b in enumerate(flat):
            if i != j:
                total += sum(x * y for x, y in zip(a, b, strict=True))
    return total / (len(flat) * (len(flat) - 1)) if len(flat) > 1 else 0.0


# --- a step whose pairs are each other's negatives --------------------------------------------------------------------


def step_tuples(things: Sequence[int]) -> list[tuple[int, int, list[int]]]:
    """Each image is a query in turn, the other of its pair (2i, 2i + 1) the positive, all of other things negatives."""
    found = []
    for query, own in enumerate(things):
        positive = query + 1 if query % 2 == 0 else query - 1
        found.append((query, positive, [other for other, thing in enumerate(things) if thing != own]))
    return found


def step_superfeature_losses(
    images: Numbers, things: Sequence[int], rules: tuple[str, float, bool, bool], margin: float, hinge: str
) -> list[float]:
    """Of each pair of the step, without its weight; the two directions count half each."""
    totals = [0.0] * (len(things) // 2)
    for query, positive, others in step_tuples(things):
        pairs = match(distances(images[positive], images[query]), *rules)
        negatives = [images[other] for other in others]
        totals[query // 2] += superfeature_loss(pairs, images[query], images[positive], negatives, margin, hinge) / 2
    return totals


def step_pooled_losses(vectors: Numbers, things: Sequence[int], margin: float, hinge: str) -> list[float]:
    """The same for eq. 2."""
    totals = [0.0] * (len(things) // 2)
    for query, positive, others in step_tuples(things):
        negatives = [vectors[other].tolist() for other in others]
        totals[query // 2] += (
            contrastive(vectors[query].tolist(), vectors[positive].tolist(), negatives, margin, hinge) / 2
        )
    return totals


# --- mining (METHOD 5) ------------------------------------------------------------------------------------------------


def hardest_negatives(query: Numbers, own: int, pool: Numbers, things: Sequence[int], count: int) -> list[int] | None:
    """For one query: through the pool from the nearest on, equal ones in its order; None if there are too few."""
    similarity = [sum(float(x) * float(y) for x, y in zip(query, other, strict=True)) for other in pool]
    chosen: list[int] = []
    for number in sorted(range(len(pool)), key=lambda number: (-similarity[number], number)):
        if things[number] != own and all(things[number] != things[other] for other in chosen):
            chosen.append(number)
        if len(chosen) == count:
            return chosen
    return None


def group_alike(vectors: Numbers, things: Sequence[int], size: int) -> list[int]:
    """One group after the other: the first pair that is left, then the nearest of things that the group has not, then,
    where no other thing is left, the nearest."""
    left = list(range(len(things)))
    order: list[int] = []
    while left:
        begin = left[0]
        similarity = {
            other: sum(float(x) * float(y) for x, y in zip(vectors[begin], vectors[other], strict=True))
            for other in left
        }
        near = sorted(left[1:], key=lambda other: (-similarity[other], other))
        group = [begin]
        for repeats in (False, True):
            for other in near:
                known = things[other] in [things[one] for one in group]
                if len(group) < size and other not in group and known == repeats:
                    group.append(other)
        order += group
        left = [other for other in left if other not in group]
    return order
