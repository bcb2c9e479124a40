"""The fused trunk gives the eager trunk's numbers, whatever the size, and leaves the original alone."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

import oracles
from fixtures_recipe import recipe, relative_error
from superfeat.nets.fire import Fire
from superfeat.nets.fused import FusedResNet, can_fuse, fold_batch_norm, for_inference
from superfeat.nets.lit import Lit
from superfeat.nets.lit_forms import FusedLit
from superfeat.nets.trunk import Normalisation, ResNet
from superfeat.weights import Network


def seeded(arch: str, stages: int, stride_in_1x1: bool = False) -> ResNet:
    trunk = ResNet(arch, stages, stride_in_1x1).eval()
    trunk.load_state_dict({name: recipe(name, value.shape) for name, value in trunk.state_dict().items()})
    return trunk


@pytest.mark.parametrize(
    ("arch", "stages", "stride_in_1x1"), [("resnet18", 3, False), ("resnet50", 2, False), ("resnet50", 2, True)]
)
@pytest.mark.parametrize("size", [(1, 1), (2, 3), (33, 47), (64, 64), (97, 31)])
def test_same_numbers(arch: str, stages: int, stride_in_1x1: bool, size: tuple[int, int]) -> None:
    trunk = seeded(arch, stages, stride_in_1x1)
    images = torch.randn(2, 3, *size, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        assert relative_error(FusedResNet(trunk)(images), trunk(images)) <= 2e-6


def test_the_input_is_not_written_over() -> None:
    images = torch.randn(1, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    before = images.clone()
    with torch.inference_mode():
        FusedResNet(seeded("resnet18", 1))(images)
    assert torch.equal(images, before)


def test_running_twice_gives_the_same_bits() -> None:
    fused = FusedResNet(seeded("resnet18", 2))
    images = torch.randn(1, 3, 40, 24)
    with torch.inference_mode():
        assert torch.equal(fused(images), fused(images))


def test_folding_by_plain_loops() -> None:
    conv, norm = nn.Conv2d(3, 4, 3, 1, 1, bias=False), nn.BatchNorm2d(4).eval()
    norm.load_state_dict({name: recipe(f"bn.{name}", value.shape) for name, value in norm.state_dict().items()})
    weight, bias = fold_batch_norm(conv, norm)
    x = np.random.default_rng(0).standard_normal((5, 6, 3))
    expected = oracles.convolve(x, weight.double().numpy().transpose(2, 3, 1, 0), 1, 1) + bias.double().numpy()
    with torch.inference_mode():
        found = norm(conv(torch.from_numpy(x.transpose(2, 0, 1)).float().unsqueeze(0)))[0]
    assert relative_error(found, expected.transpose(2, 0, 1)) <= 1e-6


def test_the_original_is_left_as_it_was(tiny_network: Network) -> None:
    before = copy.deepcopy(tiny_network.module.state_dict())
    fused = for_inference(tiny_network.module)
    assert isinstance(fused, Fire)
    assert isinstance(fused.trunk, FusedResNet)
    assert isinstance(fused.lit, FusedLit)
    assert isinstance(tiny_network.module.trunk, ResNet)
    assert all(torch.equal(value, before[name]) for name, value in tiny_network.module.state_dict().items())


@pytest.mark.parametrize("update", ["residual", "gru"])
@pytest.mark.parametrize("size", [(1, 1), (3, 4), (9, 8)], ids=["one place", "keys formed", "keys folded"])
def test_lit_gives_the_same_numbers(update: str, size: tuple[int, int]) -> None:
    torch.manual_seed(0)
    lit = Lit(20, templates=6, rounds=3, dim=12, update=update)  # type: ignore[arg-type]
    x = torch.randn(2, 20, *size)
    with torch.inference_mode():
        expected, expected_maps = lit(x)
        found, maps = FusedLit(lit)(x)
    assert relative_error(found, expected) <= 5e-6
    assert relative_error(maps, expected_maps) <= 5e-6


def test_facts_are_passed_on() -> None:
    trunk = ResNet("resnet18", 2, normalisation=Normalisation((0.1, 0.2, 0.3), (1.0, 1.0, 1.0)))
    fused = FusedResNet(trunk)
    assert (fused.stride, fused.channels, fused.normalisation) == (trunk.stride, trunk.channels, trunk.normalisation)


def test_what_cannot_be_fused_runs_as_it_is(tiny_network: Network) -> None:
    module = tiny_network.module
    assert isinstance(module, Fire)
    other = Fire(seeded("resnet18", 1).double(), module.lit, module.whitening)
    assert not can_fuse(other.trunk)  # type: ignore[arg-type]
    assert for_inference(other) is other
    assert not can_fuse(nn.Identity())
    assert not can_fuse(nn.Conv2d(3, 3, 1))


def test_without_the_operators_the_eager_trunk_runs(tiny_network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert for_inference(tiny_network.module) is tiny_network.module
