"""The values that cross borders: NumPy, immutable. torch stays on the far side of them."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float32, Int32


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
