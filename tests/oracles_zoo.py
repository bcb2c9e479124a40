"""The other systems of the tables in plain loops, straight from their formulas."""

import math

import numpy as np


def mac(maps: np.ndarray) -> np.ndarray:
    return np.array([[max(float(v) for v in channel.ravel()) for channel in one] for one in maps])


def spoc(maps: np.ndarray) -> np.ndarray:
    return np.array([[sum(float(v) for v in channel.ravel()) / channel.size for channel in one] for one in maps])


def gem(maps: np.ndarray, p: float = 3.0) -> np.ndarray:
    def one(channel: np.ndarray) -> float:
        return float((sum(max(float(v), 1e-6) ** p for v in channel.ravel()) / channel.size) ** (1 / p))

    return np.array([[one(channel) for channel in picture] for picture in maps])


def _positions(size: int, side: int, count: int) -> list[int]:
    """Where `count` squares begin: their middles, rounded down, less half a side, rounded down."""
    half = math.floor(side / 2 - 1)
    step = 0.0 if count == 1 else (size - side) / (count - 1)
    return [int(math.floor(np.float32(half) + np.float32(number) * np.float32(step)) - half) for number in range(count)]


def rmac(maps: np.ndarray, levels: int = 3) -> np.ndarray:
    height, width = maps.shape[2:]
    w, longer = min(height, width), max(height, width)
    extra = 0
    if longer > w:
        extra = min(range(2, 8), key=lambda n: abs(1 - (longer - w) / (n - 1) / w - 0.4)) - 1
    regions = [(0, 0, height, width)]
    for level in range(1, levels + 1):
        side = 2 * w // (level + 1)
        if side > 0:
            for y in _positions(height, side, level + (extra if height > width else 0)):
                for x in _positions(width, side, level + (extra if width > height else 0)):
                    regions.append((y, x, side, side))
    total = np.zeros(maps.shape[:2])
    for y, x, h, w in regions:
        vectors = mac(maps[:, :, y : y + h, x : x + w])
        total += vectors / (np.linalg.norm(vectors, axis=1, keepdims=True) + 1e-6)
    return total


def whiten_pairs(x: np.ndarray, queries: np.ndarray, positives: np.ndarray) -> np.ndarray:
    """The rows of Lw; each is known up to its sign."""
    mean = x[queries].mean(axis=0)
    scatter = np.zeros((x.shape[1], x.shape[1]))
    for q, p in zip(queries, positives, strict=True):
        scatter += np.outer(x[q] - x[p], x[q] - x[p]) / len(queries)
    a = np.linalg.inv(np.linalg.cholesky(scatter))
    spread = np.zeros_like(scatter)
    for one in x:
        moved = a @ (one - mean)
        spread += np.outer(moved, moved)
    values, vectors = np.linalg.eigh(spread)
    return vectors[:, np.argsort(-values)].T @ a


def bin_average_precision(scores: np.ndarray, labels: np.ndarray, bins: int) -> np.ndarray:
    def share(score: float, number: int) -> float:
        centre, step = 1 - number / (bins - 1), 1 / (bins - 1)
        if (number == 0 and score >= centre) or (number == bins - 1 and score <= centre):
            return 1.0
        return max(0.0, 1 - abs(score - centre) / step)

    found = []
    for row, truth in zip(scores, labels, strict=True):
        right = every = total = 0.0
        for number in range(bins):
            here = sum(share(float(score), number) * float(label) for score, label in zip(row, truth, strict=True))
            right += here
            every += sum(share(float(score), number) for score in row)
            total += (right / every if every else 0.0) * here / float(truth.sum())
        found.append(total)
    return np.array(found)


def regional_vlad(regions: list[np.ndarray], centroids: np.ndarray) -> np.ndarray:
    """The mean over regions of their residuals, each region's of length one."""
    total = np.zeros(centroids.shape)
    for rows in regions:
        own = np.zeros(centroids.shape)
        for row in rows:
            word = min(range(len(centroids)), key=lambda number: float(np.square(row - centroids[number]).sum()))
            own[word] += row - centroids[word]
        norm = math.sqrt(float(np.square(own).sum()))
        total += own / norm if norm else own
    return total / len(regions)
