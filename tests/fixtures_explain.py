"""Made-up features with attention maps, for explanations."""

import numpy as np

import oracles
from superfeat.features import Features

DIM = 16


def looking(
    name: str,
    vectors: np.ndarray,
    seed: int = 0,
    *,
    size: tuple[int, int] = (80, 60),
    one_place: bool = False,
    network: str | None = None,
) -> Features:
    """Each vector as a super-feature that looks somewhere, on grids of two scales; or, as HOW's, at one place."""
    rng = np.random.default_rng(seed)
    n = len(vectors)
    maps = []
    for number in range(n):
        height, width = (6, 8) if number % 2 else (3, 4)
        one = np.zeros((height, width)) if one_place else rng.random((height, width)) ** 3 + 1e-8
        one[rng.integers(height), rng.integers(width)] += 3
        maps.append((one / one.sum()).astype(np.float32))
    regions = np.reshape([oracles.region(one.astype(np.float64)) for one in maps], (n, 4)).astype(np.float32)
    scales = np.where(np.arange(n) % 2, 1.0, 0.5).astype(np.float32)
    strengths = np.arange(n, 0, -1).astype(np.float32)
    ids = (np.arange(n, dtype=np.int32) * 7) % 50
    return Features(name, vectors, strengths, scales, ids, regions, maps, size, network)


def some_vectors(seed: int, n: int = 12, dim: int = DIM) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, dim)).astype(np.float32)
