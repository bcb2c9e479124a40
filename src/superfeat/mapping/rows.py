"""Pairs as arrays, and one pair as people and files see it."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int64


class Pair(NamedTuple):
    """Two photos that should be matched."""

    first: str
    second: str
    score: float
    probability: float | None = None
    matches: int | None = None  # words that both have and whose codes agree; None if nobody asked
    verified: float | None = None  # share of the score whose words lie alike in both photos; None if nobody asked


@dataclasses.dataclass(frozen=True, eq=False)
class PairTable:
    """Pairs of numbers of images, the lower one first, each pair once, sorted. A probability that is unknown is NaN."""

    first: Int64[np.ndarray, "n"]
    second: Int64[np.ndarray, "n"]
    score: Float64[np.ndarray, "n"]
    probability: Float64[np.ndarray, "n"]

    def __len__(self) -> int:
        return len(self.first)

    def __getitem__(self, chosen: np.ndarray | slice) -> "PairTable":
        return PairTable(self.first[chosen], self.second[chosen], self.score[chosen], self.probability[chosen])


def unique_pairs(found: PairTable) -> PairTable:
    """Each pair once, whoever found whom; with the higher probability of both directions."""
    low, high = np.minimum(found.first, found.second), np.maximum(found.first, found.second)
    chance = np.where(np.isnan(found.probability), -1.0, found.probability)
    order = np.lexsort((-chance, high, low))
    low, high = low[order], high[order]
    new = np.ones(len(low), np.bool_)
    new[1:] = (low[1:] != low[:-1]) | (high[1:] != high[:-1])
    kept = order[new]
    return PairTable(low[new], high[new], found.score[kept], found.probability[kept])


def join_tables(tables: Sequence[PairTable]) -> PairTable:
    """One after the other."""
    columns = zip(*((one.first, one.second, one.score, one.probability) for one in tables), strict=True)
    return PairTable(*(np.concatenate(parts) for parts in columns))


class Forest:
    """Which photos hang together."""

    def __init__(self, count: int) -> None:
        self._above = np.arange(count)
        self.parts = count

    def root(self, number: int) -> int:
        """The photo that stands for all that hang together with this one."""
        while self._above[number] != number:
            self._above[number] = self._above[self._above[number]]
            number = int(self._above[number])
        return number

    def join(self, one: int, other: int) -> bool:
        """Whether they did not hang together before."""
        one, other = self.root(one), self.root(other)
        if one == other:
            return False
        self._above[max(one, other)] = min(one, other)
        self.parts -= 1
        return True

    def roots(self) -> Int64[np.ndarray, "n"]:
        """Of all photos."""
        return np.asarray([self.root(number) for number in range(len(self._above))], np.int64)


def connecting(kept: Bool[np.ndarray, "n"], table: PairTable, forest: Forest) -> Bool[np.ndarray, "n"]:
    """The pairs kept, and of the others the best that join what does not hang together: a maximum spanning forest."""
    for number in np.flatnonzero(kept).tolist():
        forest.join(int(table.first[number]), int(table.second[number]))
    chosen = kept.copy()
    for number in np.lexsort((table.second, table.first, -table.score)).tolist():
        if not chosen[number] and table.score[number] > 0:
            chosen[number] = forest.join(int(table.first[number]), int(table.second[number]))
    return chosen
