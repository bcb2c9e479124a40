"""The values that cross borders: NumPy, immutable. torch stays on the far side of them."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float32, Float64, Int32, Int64

from superfeat.errors import SuperfeatError

Meta = Mapping[str, Any]  # what is noted with an image in an index: whatever its owner likes, as JSON


@dataclasses.dataclass(frozen=True, eq=False)
class Features:
    """The features of one image, strongest first.

    `ids` is the super-feature ID (FIRe) or the number of the place in its scale's map, row by row (HOW).
    `regions` gives, as fractions of the image's width and height, the centroid x, y of each feature's attention
    map and its spread (one standard deviation) in x and y. `maps` holds each feature's attention map, summing to one.
    """

    name: str
    vectors: Float32[np.ndarray, "n dim"]
    strengths: Float32[np.ndarray, "n"]
    scales: Float32[np.ndarray, "n"]
    ids: Int32[np.ndarray, "n"]
    regions: Float32[np.ndarray, "n 4"] | None = None
    maps: Sequence[Float32[np.ndarray, "height width"]] | None = None
    image_size: tuple[int, int] | None = None  # width, height after the limit
    network: str | None = None  # digest of the network that made them
    note: str | None = None  # what there is to say of the photo; it is not stored

    def __post_init__(self) -> None:
        n = len(self.vectors)
        if self.vectors.ndim != 2:
            raise ValueError(f"vectors must be (n, dim), not {self.vectors.shape}")
        for field in ("strengths", "scales", "ids"):
            if getattr(self, field).shape != (n,):
                raise ValueError(f"{field} must be ({n},), not {getattr(self, field).shape}")
        if self.regions is not None and self.regions.shape != (n, 4):
            raise ValueError(f"regions must be ({n}, 4), not {self.regions.shape}")
        for field, array in self.arrays().items():
            view = array.view()
            view.flags.writeable = False
            object.__setattr__(self, field, view)

    def __len__(self) -> int:
        return len(self.vectors)

    def arrays(self) -> dict[str, np.ndarray]:
        """What is stored on disk, by field name."""
        found = {"vectors": self.vectors, "strengths": self.strengths, "scales": self.scales, "ids": self.ids}
        return found if self.regions is None else {**found, "regions": self.regions}


def require_vectors(values: object, what: str, dim: int | None = None) -> Float32[np.ndarray, "n dim"]:
    """`values` as a float32 array of rows, or an error that says what is wrong with it."""
    vectors = np.asarray(values)
    if vectors.ndim != 2 or not np.issubdtype(vectors.dtype, np.floating):
        raise SuperfeatError(f"{what} must be an array of numbers (n, dim), not {vectors.dtype} {vectors.shape}")
    if dim is not None and vectors.shape[1] != dim:
        raise SuperfeatError(f"{what} have {vectors.shape[1]} dimensions, and {dim} are needed: another network?")
    with np.errstate(over="ignore"):  # what does not fit is refused below
        vectors = np.ascontiguousarray(vectors, np.float32)
    if not np.isfinite(vectors).all():
        raise SuperfeatError(f"{what} hold values that are not finite numbers; extract them again")
    return vectors


class Hit(NamedTuple):
    """One image of a ranking."""

    name: str
    score: float
    id: int


@dataclasses.dataclass(frozen=True, eq=False)
class Ranking(Sequence[Hit]):
    """The images found, best first; equal scores in the order of their ids."""

    names: tuple[str, ...]
    scores: Float64[np.ndarray, "n"]
    ids: Int64[np.ndarray, "n"]

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, place: int) -> Hit:  # type: ignore[override]
        return Hit(self.names[place], float(self.scores[place]), int(self.ids[place]))

    def __iter__(self) -> Iterator[Hit]:
        return (self[place] for place in range(len(self)))

    def best(self, top: int | None) -> "Ranking":
        """The first of them (None: all)."""
        return Ranking(self.names[:top], self.scores[:top], self.ids[:top])


@dataclasses.dataclass(frozen=True, eq=False)
class ImageWords:
    """An image as the index sees it: its words, ascending, and a code for each. Of a query or of an indexed image."""

    words: Int32[np.ndarray, "m"]
    codes: np.ndarray  # (m, bytes) uint8, or (m, dim) float32 with the real-valued kernel
    codebook: str  # digest
    assigned: Int32[np.ndarray, "n k"] | None = None  # words of each feature, nearest first; None of a stored image
    network: str | None = None  # digest of the network that made its features

    def __len__(self) -> int:
        return len(self.words)
