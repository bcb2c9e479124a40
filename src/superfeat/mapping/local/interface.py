"""What local features are to mapping: places in a photo, vectors that describe them, and which of two photos agree."""

import dataclasses
from typing import Protocol

import numpy as np
from jaxtyping import Float32, Int64, UInt8


@dataclasses.dataclass(frozen=True, eq=False)
class LocalPoints:
    """Places in pixels of the stored photo, (0, 0) being the corner of the first pixel, and a unit vector for each."""

    places: Float32[np.ndarray, "n 2"]
    vectors: Float32[np.ndarray, "n dim"]

    def __len__(self) -> int:
        return len(self.places)


class LocalMethod(Protocol):
    """Finds points in a photo, and pairs of points of two photos."""

    name: str

    def find(self, pixels: UInt8[np.ndarray, "height width 3"]) -> LocalPoints:
        """The points of a photo."""
        ...

    def match(self, one: LocalPoints, other: LocalPoints) -> Int64[np.ndarray, "m 2"]:
        """Which points of both show the same: numbers of points, each used once."""
        ...


def mutual_nearest(
    one: Float32[np.ndarray, "n dim"], other: Float32[np.ndarray, "k dim"], ratio: float | None = None
) -> Int64[np.ndarray, "m 2"]:
    """Pairs in which each is the other's nearest, by unit vectors; the first of several that are as near.

    With a ratio, the nearest must be nearer than so many times the distance of the second nearest.
    """
    if not len(one) or not len(other):
        return np.empty((0, 2), np.int64)
    products = one @ other.T
    best, numbers = products.argmax(axis=1), np.arange(len(one))
    # The greatest of each column tells whose nearest a point is. Its place would cost more than the products do.
    kept = products[numbers, best] == products.max(axis=0)[best]
    first = np.unique(best[kept], return_index=True)[1]
    kept[np.delete(np.flatnonzero(kept), first)] = False
    if ratio is not None and len(other) > 1:
        nearest = products[numbers, best]
        products[numbers, best] = -np.inf
        second = products.max(axis=1)
        kept &= 2 - 2 * nearest < ratio**2 * (2 - 2 * second)
    return np.stack([numbers[kept], best[kept]], axis=1).astype(np.int64)
