"""`--device`: every tensor goes where it should. No GPU is here; a stand-in computes on the CPU and refuses a mixture.

What is found there must be what is found on the CPU: the same code runs, but for parts that are made for CPUs.
"""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fixtures_cli import assert_refused, run
from fixtures_device import DEVICE, Elsewhere, MixedError, stand_in
from fixtures_recipe import recipe_network
from fixtures_train import RECIPE, Things, draw_things, log, parameters_of
from superfeat import ExtractConfig, Network, extract
from superfeat.config import LitConfig, NetworkConfig, Recipe, TrunkConfig
from superfeat.datasets.folders import read_folders
from superfeat.datasets.retrieval_set import each_photo_in_turn
from superfeat.errors import SuperfeatError, WeightsError
from superfeat.methods import METHODS
from superfeat.recipes import read_recipe
from superfeat.settings import overlay
from superfeat.training.pretrain import pretrain
from superfeat.training.ranks import Ranks
from superfeat.training.train import train
from superfeat.training.whiten import fit_pair_whitening, fit_points, fit_whitening
from superfeat.weights import build_module

TRUNK = TrunkConfig("resnet10", 2)
SMALL = ExtractConfig(max_side=48, scales=(1.0, 0.5), features_per_image=40)


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with stand_in(monkeypatch) as device:
        yield device


@pytest.fixture(scope="module")
def things(tmp_path_factory: pytest.TempPathFactory) -> Things:
    folder = tmp_path_factory.mktemp("things")
    draw_things(folder / "train", things=6, views=2, seed=0)
    draw_things(folder / "validation", things=2, views=2, seed=500)
    validation = each_photo_in_turn(read_folders(folder / "validation"), "validation")
    return Things(folder, read_folders(folder / "train"), validation)


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    file = tmp_path_factory.mktemp("recipe") / "tiny.toml"
    file.write_text(RECIPE)
    return overlay(read_recipe(file), {"training": {"epochs": 1, "queries": 4, "pool": 8}, "validation.every": 0})


def network_of(method: str) -> Network:
    """A small one of each method, with random weights."""
    torch.manual_seed(1)
    known = METHODS[method].network
    pooling = known.pooling and dataclasses.replace(known.pooling, layer=known.pooling.layer and 16)
    lit = LitConfig(templates=8, rounds=2, dim=16) if known.lit else None
    config = dataclasses.replace(known, trunk=TRUNK, lit=lit, pooling=pooling, whitened_dim=6, points=None)
    module = build_module(config)
    assert module.whitening is not None
    torch.nn.init.normal_(module.whitening.weight)
    return Network(module, config)


def test_the_stand_in_refuses_a_mixture(elsewhere: str) -> None:
    """Else the tests below would show nothing."""
    there, here = torch.ones(3).to(elsewhere), torch.ones(3)
    assert isinstance(there, Elsewhere)
    assert (there.device.type, (there + 1).sum().item(), there.tolist()) == (DEVICE, 6.0, [1.0] * 3)
    for wrong in (lambda: there + here, lambda: torch.cat([there, here]), lambda: torch.nn.Linear(3, 2)(there)):
        with pytest.raises(MixedError):
            wrong()
    with pytest.raises(RuntimeError):
        there.numpy()
    there[1] = here[0]
    assert torch.equal(there.cpu(), here)
    assert isinstance(there * torch.tensor(2.0), Elsewhere)


@pytest.mark.parametrize("method", METHODS)
def test_extraction(method: str, photo_folder: Path, elsewhere: str) -> None:
    """The network itself stays where it was, so that what is done with it afterwards on the CPU still can be."""
    network = network_of(method)
    expected = list(extract(network, photo_folder, SMALL, workers=1))
    found = list(extract(network, photo_folder, SMALL, device=elsewhere))
    for one, other in zip(found, expected, strict=True):
        assert one.name == other.name
        np.testing.assert_allclose(one.vectors, other.vectors, atol=2e-4)
        np.testing.assert_allclose(one.strengths, other.strengths, rtol=1e-3, atol=1e-4)
    assert {value.device.type for value in network.module.parameters()} == {"cpu"}
    assert network.on(elsewhere) is network.on(elsewhere)
    assert {value.device.type for value in network.on(elsewhere).parameters()} == {DEVICE}  # type: ignore[attr-defined]


def test_whitening_points_and_pairs(photo_folder: Path, things: Things, elsewhere: str) -> None:
    fire = network_of("fire")
    white = [fit_whitening(fire, photo_folder, dim=5, max_side=48, device=device) for device in ("cpu", elsewhere)]
    pointed = [
        fit_points(fire, photo_folder, per_side=4.0, config=SMALL, device=device) for device in ("cpu", elsewhere)
    ]
    gem = network_of("gem")
    pairs = np.asarray([[0, 1], [2, 3], [4, 5], [6, 7]])
    photos = things.training.photos
    vectors = [fit_pair_whitening(gem, photos, pairs, dim=3, max_side=48, device=one) for one in ("cpu", elsewhere)]
    for here, there in (white, pointed, vectors):
        assert {value.device.type for value in there.module.state_dict().values()} == {"cpu"}
        for one, other in zip(*([*net.module.parameters()] for net in (here, there)), strict=True):
            torch.testing.assert_close(other.abs(), one.abs(), rtol=0.02, atol=0.02)  # directions have no sign
    found = [next(iter(extract(pointed[0], photo_folder, SMALL, device=one))) for one in ("cpu", elsewhere)]
    np.testing.assert_allclose(found[1].vectors, found[0].vectors, atol=1e-3)


CHANGES: dict[str, dict[str, Any]] = {
    "negatives of the pool": {},
    "each image again": {"training.recompute": True},
    "negatives of the step, averaged": {
        "training": {"negatives_from": "step", "average": 0.9},
        "losses": {"pooled": 0.5},
    },
    "step, each image again": {"training": {"negatives_from": "step", "recompute": True}},
    "LIT on stored maps": {"training.parts": "lit"},
    "frozen stages": {"training.frozen_stages": 1},
    "stored maps of frozen stages": {"training.frozen_stages": 1, "training.stored_maps": True},
}


@pytest.mark.parametrize("name", CHANGES)
def test_training(name: str, recipe: Recipe, things: Things, tmp_path: Path, elsewhere: str) -> None:
    """Start, mining, steps, checkpoints, a stop and a resume; the losses of each step are those of the CPU."""
    wanted = overlay(recipe, CHANGES[name])
    for _ in train(wanted, things.training, tmp_path / "here", workers=1):
        pass
    seen: list[str] = []
    stop = lambda: "step" in seen  # noqa: E731
    for event in train(wanted, things.training, tmp_path / "there", workers=1, device=elsewhere, stop=stop):
        seen.append(event.stage)
    assert seen[-1] == "stopped"
    for _ in train(wanted, things.training, tmp_path / "there", workers=1, device=elsewhere, resume=True):
        pass
    here, there = log(tmp_path / "here"), log(tmp_path / "there")
    assert [one["event"] for one in there] == [one["event"] for one in here]
    for one, other in zip(here, there, strict=True):
        if one["event"] == "step":
            assert other["loss"] == pytest.approx(one["loss"], rel=0.02, abs=1e-4)
    expected, found = parameters_of(tmp_path / "here"), parameters_of(tmp_path / "there")
    for key, value in expected.items():
        torch.testing.assert_close(found[key], value, rtol=0.02, atol=0.02)


def test_training_one_vector_with_a_listwise_loss(things: Things, tmp_path: Path, elsewhere: str) -> None:
    settings = {
        "weights": "new",
        "network": {"trunk": {"arch": "resnet10", "stages": 2}, "pooling.layer": 12},
        "training": {"epochs": 1, "queries": 4, "tuples_per_step": 4, "max_side": 48},
        "losses.listwise": 10,
        "data.hold_out": 0.0,
        "validation.every": 0,
    }
    wanted = overlay(read_recipe("apgem-landmarks"), settings)
    for folder, device in (("here", "cpu"), ("there", elsewhere)):
        for _ in train(wanted, things.training, tmp_path / folder, workers=1, device=device):
            pass
    (one, _), (other, _) = log(tmp_path / "here"), log(tmp_path / "there")
    assert other["loss"] == pytest.approx(one["loss"], rel=1e-3)


def test_validation(recipe: Recipe, things: Things, tmp_path: Path, elsewhere: str) -> None:
    wanted = overlay(recipe, {"validation.every": 1})
    scores = {}
    for folder, device in (("here", "cpu"), ("there", elsewhere)):
        tests = things.validation
        for _ in train(wanted, things.training, tmp_path / folder, validation=tests, workers=1, device=device):
            pass
        scores[folder] = [one["map"] for one in log(tmp_path / folder) if one["event"] == "validation"]
    assert len(scores["there"]) == 2
    assert scores["there"][0] == pytest.approx(scores["here"][0], abs=10)  # before a step is made: the same network


@pytest.mark.parametrize("parts", ["all", "lit"])
def test_pretraining(parts: str, recipe: Recipe, things: Things, tmp_path: Path, elsewhere: str) -> None:
    settings = {"epochs": 1, "batch": 4, "hidden": 8, "side": 32, "parts": parts, "crops": 1, "hold_out": 0.5}
    wanted = overlay(recipe, {"pretraining": settings})
    for folder, device in (("here", "cpu"), ("there", elsewhere)):
        for _ in pretrain(wanted, things.training, tmp_path / folder, workers=1, device=device):
            pass
    here, there = log(tmp_path / "here"), log(tmp_path / "there")
    assert there[0]["loss"] == pytest.approx(here[0]["loss"], rel=1e-2)
    assert [one["event"] for one in there] == [one["event"] for one in here]


def test_ranks_add_up_tensors_of_two_devices(monkeypatch: pytest.MonkeyPatch, elsewhere: str) -> None:
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda flat: flat.mul_(2))
    there, here = torch.ones(2, dtype=torch.float64).to(elsewhere), torch.ones(3)
    Ranks(0, 2).sum([there, here])
    assert (there.tolist(), here.tolist()) == ([2.0] * 2, [2.0] * 3)


def test_an_exported_network_is_for_the_cpu(photo_folder: Path) -> None:
    class Exported:
        """No module of torch."""

    network = Network(Exported(), NetworkConfig("how", TRUNK, None, None))  # type: ignore[arg-type]
    with pytest.raises(WeightsError, match=f"an exported network runs on the CPU, not on '{DEVICE}'"):
        network.on(DEVICE)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there(photo_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(SuperfeatError, match=r"device 'cuda' cannot be used here .*; 'cpu' always can"):
        next(iter(extract(recipe_network(NetworkConfig("how", TRUNK, None, 6)), photo_folder, device="cuda")))
    made = run("extract", photo_folder, "-o", tmp_path / "features", "--device", "cuda")
    assert_refused(made, "device 'cuda' cannot be used here")
    assert_refused(run("extract", photo_folder, "-o", tmp_path / "f", "--device", "gpu"), "device 'gpu' cannot be used")
