"""Photos that follow each other: by the numbers in their names, or by when they were taken."""

import datetime
import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

LONGEST_GAP = datetime.timedelta(seconds=60)  # between photos of one sequence
_NUMBER = re.compile(r"(\d+)")


def natural_key(name: str) -> tuple[tuple[int, int, str], ...]:
    """Numbers by value: frame2 comes before frame10."""
    return tuple((1, int(part), "") if part.isdigit() else (0, 0, part) for part in _NUMBER.split(name) if part)


def by_names(names: Sequence[str], reach: int) -> Iterator[tuple[int, int]]:
    """Each photo with the next `reach` of its folder."""
    folders: dict[str, list[int]] = {}
    for number, name in enumerate(names):
        folders.setdefault(str(PurePosixPath(name).parent), []).append(number)
    for numbers in folders.values():
        ordered = sorted(numbers, key=lambda number: (natural_key(names[number]), number))
        yield from _next_ones(ordered, reach)


def by_times(
    times: Sequence[datetime.datetime | None], reach: int, gap: datetime.timedelta = LONGEST_GAP
) -> Iterator[tuple[int, int]]:
    """Each photo with the next `reach` that were taken within `gap` of it; one without a time has none."""
    known = [(time, number) for number, time in enumerate(times) if time is not None]
    ordered = sorted(known)
    for one, other in _next_ones(list(range(len(ordered))), reach):
        if ordered[other][0] - ordered[one][0] <= gap:
            yield ordered[one][1], ordered[other][1]


def _next_ones(ordered: Sequence[int], reach: int) -> Iterator[tuple[int, int]]:
    for place, number in enumerate(ordered):
        for other in ordered[place + 1 : place + 1 + reach]:
            yield number, other
