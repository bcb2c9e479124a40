"""A plain ASMK, per word and per query, straight from METHOD: the yardstick for retrieval quality, not for speed."""

from collections.abc import Sequence

import numpy as np
import torch

WORDS_PER_QUERY_FEATURE = 5


def train_words(vectors: np.ndarray, words: int, rounds: int = 10, seed: int = 0) -> np.ndarray:
    """k-means (Lloyd) from random points; an empty cluster takes a random point."""
    generator = np.random.default_rng(seed)
    centroids = vectors[generator.choice(len(vectors), words, replace=False)].copy()
    for _ in range(rounds):
        nearest = nearest_words(vectors, centroids, 1)[:, 0]
        sums = torch.zeros(words, vectors.shape[1]).index_add_(0, torch.from_numpy(nearest), torch.from_numpy(vectors))
        counts = np.bincount(nearest, minlength=words)
        filled = counts > 0
        centroids[filled] = sums.numpy()[filled] / counts[filled, None]
        centroids[~filled] = vectors[generator.choice(len(vectors), int((~filled).sum()))]
    return centroids


def nearest_words(vectors: np.ndarray, centroids: np.ndarray, count: int, block: int = 4096) -> np.ndarray:
    """Indices of the `count` nearest centroids of each vector."""
    c = torch.from_numpy(centroids)
    half_norms = c.square().sum(1) / 2
    parts = []
    for start in range(0, len(vectors), block):
        nearness = torch.addmm(half_norms, torch.from_numpy(vectors[start : start + block]), c.T, beta=-1)
        parts.append(
            nearness.numpy().argmax(1)[:, None] if count == 1 else torch.topk(nearness, count, dim=1).indices.numpy()
        )
    return np.concatenate(parts) if parts else np.empty((0, count), np.int64)


def codes(vectors: np.ndarray, centroids: np.ndarray, assignments: int) -> tuple[np.ndarray, np.ndarray]:
    """Distinct words of an image and the signs (0/1) of its summed residuals in each."""
    words = nearest_words(vectors, centroids, assignments)
    rows = np.repeat(np.arange(len(vectors)), assignments)
    flat = words.ravel()
    unique, inverse = np.unique(flat, return_inverse=True)
    sums = torch.zeros(len(unique), vectors.shape[1])
    sums.index_add_(0, torch.from_numpy(inverse), torch.from_numpy(vectors[rows] - centroids[flat]))
    return unique, np.packbits(sums.numpy() > 0, axis=1)


class ReferenceIndex:
    """A list of arrays per word: image numbers and codes."""

    def __init__(self, centroids: np.ndarray, images: Sequence[np.ndarray]) -> None:
        self.centroids = centroids
        lists: dict[int, tuple[list[int], list[np.ndarray]]] = {}
        self.norms = np.zeros(len(images))
        for number, vectors in enumerate(images):
            words, bits = codes(vectors, centroids, 1)
            self.norms[number] = np.sqrt(max(len(words), 1))
            for word, code in zip(words.tolist(), bits, strict=True):
                numbers, kept = lists.setdefault(word, ([], []))
                numbers.append(number)
                kept.append(code)
        self.lists = {word: (np.asarray(numbers), np.stack(kept)) for word, (numbers, kept) in lists.items()}

    def scores(self, vectors: np.ndarray) -> np.ndarray:
        """u^3 for u = 1 - 2 h / dim where positive, summed over shared words, over both norms."""
        words, bits = codes(vectors, self.centroids, WORDS_PER_QUERY_FEATURE)
        dim = self.centroids.shape[1]
        total = np.zeros(len(self.norms))
        for word, code in zip(words.tolist(), bits, strict=True):
            if word in self.lists:
                numbers, stored = self.lists[word]
                distance = np.bitwise_count(stored ^ code).sum(axis=1, dtype=np.int64)
                total[numbers] += np.maximum(0.0, 1 - 2 * distance / dim) ** 3
        return np.asarray(total / self.norms / np.sqrt(max(len(words), 1)))


def average_precision(ranked: np.ndarray, positives: set[int], junk: set[int]) -> float:
    """The Oxford benchmark's trapezoid rule, junk taken out of the ranking first."""
    clean = [image for image in ranked.tolist() if image not in junk]
    ranks = [rank for rank, image in enumerate(clean) if image in positives]
    total = 0.0
    for found, rank in enumerate(ranks):
        before = found / rank if rank > 0 else 1.0
        total += (before + (found + 1) / (rank + 1)) / 2
    return total / len(positives)
