"""Features: what crosses the border is checked, immutable, and NumPy."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from superfeat.features import Features


def some(n: int = 3, dim: int = 4, **changes: Any) -> Features:
    values: dict[str, Any] = {
        "name": "photo.jpg",
        "vectors": np.arange(n * dim, dtype=np.float32).reshape(n, dim),
        "strengths": np.ones(n, np.float32),
        "scales": np.ones(n, np.float32),
        "ids": np.arange(n, dtype=np.int32),
    }
    return Features(**{**values, **changes})


def test_length_and_arrays() -> None:
    features = some()
    assert len(features) == 3
    assert list(features.arrays()) == ["vectors", "strengths", "scales", "ids"]
    with_regions = some(regions=np.zeros((3, 4), np.float32))
    assert list(with_regions.arrays()) == ["vectors", "strengths", "scales", "ids", "regions"]


def test_an_image_may_have_no_features() -> None:
    assert len(some(n=0)) == 0


def test_nothing_can_be_changed() -> None:
    features = some(regions=np.zeros((3, 4), np.float32))
    for array in features.arrays().values():
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        features.name = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vectors": np.zeros(3, np.float32)}, r"vectors must be \(n, dim\)"),
        ({"strengths": np.zeros(2, np.float32)}, r"strengths must be \(3,\), not \(2,\)"),
        ({"scales": np.zeros((3, 1), np.float32)}, "scales must be"),
        ({"ids": np.zeros(4, np.int32)}, "ids must be"),
        ({"regions": np.zeros((3, 2), np.float32)}, "regions must be"),
    ],
)
def test_shapes_must_agree(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        some(**changes)


def test_maps_of_different_scales_have_different_sizes() -> None:
    maps = [np.full((2, 3), 1 / 6, np.float32), np.full((4, 5), 1 / 20, np.float32), np.ones((1, 1), np.float32)]
    features = some(maps=maps)
    assert features.maps is not None
    assert [one.shape for one in features.maps] == [(2, 3), (4, 5), (1, 1)]
