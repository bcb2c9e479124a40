"""The codebook as callers of `asmk` know it."""

from pathlib import Path
from typing import Any

import numpy as np

from superfeat.asmk.io_helpers import load_pickle, save_pickle
from superfeat.asmk.states import require_state
from superfeat.config import CodebookConfig
from superfeat.errors import ConfigError, SuperfeatError
from superfeat.index.codebook import Codebook as Words
from superfeat.index.codebook import train_codebook

THOUSAND = 1024  # "64k" is 65536


def size_of(size: int | str) -> int:
    """65536, "65536" or "64k"."""
    text = str(size).strip().lower()
    number, unit = (text[:-1], THOUSAND) if text.endswith("k") else (text, 1)
    if not number.isdigit() or int(number) < 1:
        raise ConfigError(f"the size of a codebook is {size!r}; give a number of words, as in 65536 or '64k'")
    return int(number) * unit


class NamedSizeCodebook:
    """Centroids, learned or given. `centroids` may be set."""

    def __init__(self, index_factory: Any = None, *, size: int | str) -> None:
        self.index_factory = index_factory
        self.params: dict[str, Any] = {"size": size}
        self.size = size_of(size)
        self._centroids: np.ndarray | None = None
        self._words: Words | None = None

    @property
    def centroids(self) -> np.ndarray:
        """(size, dim) float32."""
        if self._centroids is None:
            raise SuperfeatError("the codebook has no words yet; train it, or load one")
        return self._centroids

    @centroids.setter
    def centroids(self, values: np.ndarray) -> None:
        self._centroids, self._words = np.array(values, np.float32), None

    @property
    def words(self) -> Words:
        """The same as superfeat's own codebook."""
        if self._words is None:
            self._words = Words(self.centroids)
        return self._words

    def train(self, vecs: np.ndarray) -> None:
        """k-means; the same words for the same features, whatever the number of threads."""
        self.centroids = train_codebook([np.asarray(vecs)], CodebookConfig(words=self.size)).centroids

    def index(self) -> None:
        """Prepares the search for nearest words, which otherwise happens at first use."""
        self.words.assign(self.centroids[:1])

    def quantize(self, vecs: np.ndarray, *columns: np.ndarray, multiple_assignment: int) -> tuple[np.ndarray, ...]:
        """The features, their nearest words (n, multiple_assignment), and the other columns as they came."""
        vectors = np.asarray(vecs)
        return vectors, self.words.assign(vectors, multiple_assignment).astype(np.int64), *columns

    def state_dict(self) -> dict[str, Any]:
        """What a file holds."""
        return {"type": "Codebook", "params": dict(self.params), "state": {"centroids": self.centroids}}

    @classmethod
    def initialize_from_state(cls, state: Any, index_factory: Any = None) -> "NamedSizeCodebook":
        """From what `state_dict` gave, or a file held."""
        values = require_state(state, "Codebook").get("centroids")
        if not isinstance(values, np.ndarray) or values.ndim != 2 or values.dtype != np.float32:
            raise SuperfeatError("this codebook is damaged: its centroids are not rows of float32 numbers")
        made = cls(index_factory, size=state.get("params", {}).get("size", len(values)))
        made.centroids = Words(np.asarray(values)).centroids
        return made


Codebook = NamedSizeCodebook


def open_codebook(path: str | Path, index_factory: Any = None) -> NamedSizeCodebook:
    """A pickle of asmk, or a codebook folder of superfeat."""
    if not Path(path).is_dir():
        return NamedSizeCodebook.initialize_from_state(load_pickle(path), index_factory)
    opened = Words.open(path)
    made = NamedSizeCodebook(index_factory, size=opened.words)
    made.centroids = opened.centroids
    return made


def write_codebook(codebook: NamedSizeCodebook, path: str | Path) -> None:
    """A pickle; a folder of superfeat where the path has no ending."""
    if Path(path).suffix:
        save_pickle(path, codebook.state_dict())
    else:
        codebook.words.save(path)
