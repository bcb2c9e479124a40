"""Slow twins of the mapping room: pairs by comparing everything with everything."""

from collections.abc import Sequence

import numpy as np

from superfeat.features import ImageWords


def pair_score(one: ImageWords, other: ImageWords, dim: int, alpha: int = 3) -> float:
    """Binary ASMK of two sets of words, word by word and bit by bit."""
    total = 0.0
    for word, code in zip(one.words.tolist(), one.codes, strict=True):
        for candidate, stored in zip(other.words.tolist(), other.codes, strict=True):
            if word == candidate:
                distance = int(np.unpackbits(code ^ stored).sum())
                total += max(0.0, 1 - 2 * distance / dim) ** alpha
    return total / float(np.sqrt(len(one) * len(other)))


def best_pairs(scores: np.ndarray, top: int) -> dict[tuple[int, int], float]:
    """Of a matrix of scores: each photo with its `top` best others above zero, each pair once; equal ones by number."""
    found: dict[tuple[int, int], float] = {}
    for number, row in enumerate(scores):
        others = [other for other in range(len(row)) if other != number and row[other] > 0]
        for other in sorted(others, key=lambda other: (-row[other], other))[:top]:
            found[min(number, other), max(number, other)] = float(row[other])
    return found


def parts_of(count: int, pairs: Sequence[tuple[int, int]]) -> int:
    """Sets of photos that hang together, by walking."""
    beside: dict[int, set[int]] = {number: set() for number in range(count)}
    for one, other in pairs:
        beside[one].add(other)
        beside[other].add(one)
    seen: set[int] = set()
    parts = 0
    for start in range(count):
        if start in seen:
            continue
        parts += 1
        waiting = [start]
        while waiting:
            number = waiting.pop()
            if number not in seen:
                seen.add(number)
                waiting += beside[number]
    return parts


def nearest_of_each_other(products: np.ndarray) -> list[tuple[int, int]]:
    """Rows and columns of a matrix that are each other's greatest; in ties the first column, and the first such row."""
    taken: set[int] = set()
    found = []
    for row in range(len(products)):
        best = max(range(products.shape[1]), key=lambda column: (products[row, column], -column))
        if best not in taken and all(products[row, best] >= products[other, best] for other in range(len(products))):
            taken.add(best)
            found.append((row, best))
    return found
