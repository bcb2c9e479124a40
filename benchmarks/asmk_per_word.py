"""ASMK the straightforward way: lists of arrays per word, a Python loop per posting to build, one per word to search.

The shape of the reference implementation; the yardstick of `search.py` for speed and for equal scores.
"""

import numpy as np


def aggregate_per_word(vectors: np.ndarray, words: np.ndarray, centroids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distinct words and packed signs of the summed residuals: a loop over the words."""
    flat, rows = words.ravel(), np.repeat(np.arange(len(vectors)), words.shape[1])
    found, codes = np.unique(flat), []
    for word in found:
        residuals = vectors[rows[flat == word]] - centroids[word]
        codes.append(np.packbits(residuals.sum(axis=0) > 0))
    return found, np.asarray(codes, np.uint8)


class PerWordIndex:
    """A list of codes and a list of image numbers for each word."""

    def __init__(self, words: int) -> None:
        self.codes: list[list[np.ndarray]] = [[] for _ in range(words)]
        self.images: list[list[int]] = [[] for _ in range(words)]
        self.sizes: list[int] = []
        self.arrays: list[tuple[np.ndarray, np.ndarray] | None] = []

    def add(self, words: np.ndarray, codes: np.ndarray) -> None:
        """The next image; one append per posting."""
        number = len(self.sizes)
        for word, code in zip(words, codes, strict=True):
            self.codes[word].append(code)
            self.images[word].append(number)
        self.sizes.append(len(words))

    def finish(self) -> None:
        """An array per word, as 64-bit words so that few operations suffice."""
        self.arrays = [
            (np.stack(codes).view(np.uint64), np.asarray(images)) if codes else None
            for codes, images in zip(self.codes, self.images, strict=True)
        ]

    @classmethod
    def from_lists(cls, starts: np.ndarray, images: np.ndarray, codes: np.ndarray, sizes: np.ndarray) -> "PerWordIndex":
        """The same arrays from sorted postings, where the loop would take too long."""
        made = cls(0)
        made.sizes = sizes.tolist()
        made.arrays = [
            (codes[first:end].copy(), images[first:end].astype(np.int64)) if end > first else None
            for first, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)
        ]
        return made

    def search(self, words: np.ndarray, codes: np.ndarray, top: int) -> tuple[np.ndarray, np.ndarray]:
        """The numbers and scores of the best images; equal scores by number."""
        total = np.zeros(len(self.sizes))
        query = codes.view(np.uint64)
        bits = 8 * codes.shape[1]
        for number, word in enumerate(words):
            found = self.arrays[word]
            if found is None:
                continue
            stored, images = found
            distance = np.bitwise_count(stored ^ query[number]).sum(axis=1, dtype=np.int64)
            similarity = 1 - 2 * distance / bits
            total[images] += np.where(similarity >= 0, similarity, 0) ** 3
        scores = total / np.sqrt(self.sizes) / np.sqrt(len(words))
        order = np.argsort(-scores, kind="stable")[:top]
        return order, scores[order]
