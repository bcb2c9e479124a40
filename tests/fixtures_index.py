"""Made-up features, and an index of them."""

import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from superfeat.errors import SuperfeatError
from superfeat.index.codebook import Codebook
from superfeat.index.index import Index
from superfeat.index.kernel import aggregate, binarise

DIM, WORDS = 128, 16
NETWORK = "0123456789abcdef" * 4
CODEBOOK = Codebook(np.random.default_rng(0).standard_normal((WORDS, DIM)).astype(np.float32))
QUERY = np.random.default_rng(1).standard_normal((6, DIM)).astype(np.float32)


def vectors(seed: int, rows: int = 5) -> np.ndarray:
    return np.random.default_rng(100 + seed).standard_normal((rows, DIM)).astype(np.float32)


def states(index: Index) -> Iterator[Index]:
    """The same images in the journal, opened anew, and in a segment."""
    yield index
    yield Index.open(index.path)
    index.compact()
    yield index
    yield Index.open(index.path)


def holds(index: Index) -> dict[str, bytes]:
    """Names and what is stored of each image."""
    return {name: index.words_of(name).codes.tobytes() for name in index.names()}


@functools.cache
def codes(seed: int) -> bytes:
    """What an index makes of the features with that seed."""
    _, sums = aggregate(vectors(seed), CODEBOOK.assign(vectors(seed)), CODEBOOK.centroids)
    return binarise(sums).tobytes()


def make(path: Path, seeds: Sequence[int] = ()) -> Index:
    index = Index.create(path, CODEBOOK)
    for seed in seeds:
        index.add(f"n{seed}", vectors(seed))
    return index


def attempt(change: Callable[..., object], *arguments: Any) -> str:
    """The word with which it is refused, or nothing."""
    try:
        change(*arguments)
    except SuperfeatError as error:
        return str(error)
    return ""
