"""Slow twins of how rankings are measured: plain loops straight from METHOD.md. Nothing here is of the package."""

from collections.abc import Collection, Sequence


def average_precision(ranking: Sequence[int], positives: Collection[int], junk: Collection[int] = ()) -> float:
    """METHOD 7: the trapezoid rule, junk taken out first, divided by the number of positives."""
    wanted = {image for image in positives if image not in junk}
    total, found, rank = 0.0, 0, 0
    for image in ranking:
        if image in junk:
            continue
        if image in wanted:
            before = found / rank if rank > 0 else 1.0
            total += (before + (found + 1) / (rank + 1)) / 2
            found += 1
        rank += 1
    return total / len(wanted)


def area_under_curve(ranking: Sequence[int], positives: Collection[int]) -> float:
    """The same as an area: precision after each place against recall, joined by straight lines."""
    precision, recall, area = 1.0, 0.0, 0.0
    found = 0
    for place, image in enumerate(ranking, start=1):
        found += image in positives
        area += (found / len(positives) - recall) * (precision + found / place) / 2
        precision, recall = found / place, found / len(positives)
    return area


def precision_at(ranking: Sequence[int], positives: Collection[int], junk: Collection[int], depth: int) -> float:
    """METHOD 7: right ones among the first k, where k ends with the last positive that was found."""
    judged = [image for image in ranking if image not in junk]
    right = [image in positives and image not in junk for image in judged]
    last = max((place + 1 for place, found in enumerate(right) if found), default=1)
    depth = min(depth, last)
    return sum(right[:depth]) / depth


def interpolated_precision(ranking: Sequence[int], positives: Collection[int], level: float) -> float:
    """The best precision after any place whose recall is at least `level`."""
    best, found = 0.0, 0
    for place, image in enumerate(ranking, start=1):
        found += image in positives
        if image in positives and found / len(positives) >= level - 1e-12:
            best = max(best, found / place)
    return best
