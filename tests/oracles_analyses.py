"""Slow twins of the analyses: plain loops straight from the paper's captions. Nothing here is of the package."""

import math
from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

Numbers = npt.NDArray[Any]
LENGTH_FLOOR = 1e-12  # a vector of zeros stays one


def cosine(a: Numbers, b: Numbers) -> float:
    one, other = ([float(value) for value in vector.reshape(-1)] for vector in (a, b))
    product = sum(x * y for x, y in zip(one, other, strict=True))
    lengths = [max(math.sqrt(sum(x * x for x in vector)), LENGTH_FLOOR) for vector in (one, other)]
    return product / (lengths[0] * lengths[1])


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def correlation_matrix(images: Sequence[Numbers]) -> list[list[float]]:
    """Of each image its attention maps, map by map."""
    n = len(images[0])
    return [[mean([cosine(maps[i], maps[j]) for maps in images]) for j in range(n)] for i in range(n)]


def off_diagonal_mean(matrix: Sequence[Sequence[float]]) -> float:
    different = [value for i, row in enumerate(matrix) for j, value in enumerate(row) if i != j]
    return mean(different) if different else 0.0


def pair_mean(vectors: Sequence[Numbers]) -> float:
    """The mean cosine of two different vectors."""
    return mean([cosine(a, b) for i, a in enumerate(vectors) for b in vectors[:i]])


def redundancy(images: Sequence[Numbers], count: int) -> float:
    """The mean cosine of a feature to its `count` nearest, over an image's features, then over the images."""
    of_images = []
    for vectors in images:
        if len(vectors) < max(2, count):
            continue
        of_features = []
        for here in range(len(vectors)):
            others = sorted(cosine(vectors[here], vectors[there]) for there in range(len(vectors)) if there != here)
            of_features.append(mean(others[::-1][:count]))
        of_images.append(mean(of_features))
    return mean(of_images)


def scale_shares(images: Sequence[Sequence[float]], scale: float, count: int) -> tuple[float, float, float]:
    """For one scale, of images that are the scales of their features, strongest first: the three panels' bars."""
    of_selected, selected, features = [], [], []
    for scales in images:
        chosen = sum(1 for other in scales[:count] if other == scale)
        every = sum(1 for other in scales if other == scale)
        of_selected.append(chosen / len(scales[:count]) if scales else 0.0)
        if every:
            selected.append(chosen / every)
        features.append(float(every))
    return mean(of_selected), mean(selected), mean(features)


def words_by_features(images: Sequence[Numbers], centroids: Numbers, count: int) -> float:
    """Each feature goes to its nearest centroid, of equal ones to the first."""
    numbers = []
    for vectors in images:
        words = set()
        for vector in vectors[:count]:
            squares = [sum((float(x) - float(y)) ** 2 for x, y in zip(vector, word, strict=True)) for word in centroids]
            words.add(min(range(len(squares)), key=lambda word: (squares[word], word)))
        numbers.append(float(len(words)))
    return mean(numbers)


def strongest(strengths: Sequence[float], top: int) -> list[int]:
    """Numbers of the largest, equal ones in order."""
    return sorted(range(len(strengths)), key=lambda number: (-strengths[number], number))[:top]
