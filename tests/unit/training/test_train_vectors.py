"""Training of GeM (contrastive) and AP-GeM (listwise), in very small, through the same trainer with the same resume."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from PIL import Image

import oracles_zoo
from fixtures_recipe import noise, take
from superfeat.config import LossConfig, Recipe
from superfeat.datasets.folders import read_folders
from superfeat.datasets.retrieval_set import each_photo_in_turn
from superfeat.datasets.training_set import TrainingSet
from superfeat.errors import ConfigError, WeightsError
from superfeat.recipes import read_recipe
from superfeat.settings import overlay
from superfeat.training.objective import MEASURES, Shared, step_loss
from superfeat.training.train import train
from superfeat.weights import Network, load_network, save_network

SMALL = {
    "weights": "new",
    "network.trunk": {"arch": "resnet10", "stages": 2},
    "training": {
        "epochs": 2,
        "queries": 8,
        "tuples_per_step": 4,
        "negatives": 2,
        "pool": 12,
        "learning_rate": 1e-3,
        "max_side": 48,
    },
    "validation": {"every": 1, "extract": {"max_side": 48, "scales": [1.0, 0.5]}},
}
CHANGES: dict[str, dict[str, Any]] = {
    "gem-sfm120k": {"data.kind": "folders"},
    "apgem-landmarks": {"network.pooling.layer": 12, "losses.listwise": 10, "data.hold_out": 0.0},
}


def small(name: str) -> Recipe:
    return overlay(overlay(read_recipe(name), SMALL), CHANGES[name])


@pytest.fixture
def things(tmp_path: Path) -> TrainingSet:
    for thing in range(6):
        (tmp_path / "things" / f"t{thing}").mkdir(parents=True)
        for view in range(2):
            mixed = 0.3 * noise(48, 40, thing) + 0.7 * noise(48, 40, 90 + 2 * thing + view)
            Image.fromarray(mixed.astype(np.uint8)).save(tmp_path / "things" / f"t{thing}" / f"{view}.png")
    return read_folders(tmp_path / "things")


@pytest.mark.parametrize("name", list(CHANGES))
def test_a_run_that_was_stopped_ends_with_the_same_bits(tmp_path: Path, things: TrainingSet, name: str) -> None:
    recipe, test = small(name), each_photo_in_turn(things, "things")
    events = list(train(recipe, things, tmp_path / "whole", validation=test, workers=1))
    losses = [float(event.facts["loss"]) for event in events if event.stage == "step"]
    assert len(losses) == 4
    assert all(np.isfinite(loss) and loss > -1e-6 for loss in losses)
    assert max(losses) > 0
    assert any(event.stage == "validation" for event in events)
    take(train(recipe, things, tmp_path / "parts", validation=test, workers=1), "step", 3)
    for _ in train(recipe, things, tmp_path / "parts", validation=test, resume=True, workers=2):
        pass
    whole, parts = (
        safetensors.torch.load_file(tmp_path / run / "last" / "model.safetensors") for run in ("whole", "parts")
    )
    assert whole.keys() == parts.keys()
    assert all(torch.equal(whole[key], parts[key]) for key in whole)
    network = load_network(tmp_path / "whole" / "last")
    assert network.config.method == {"gem-sfm120k": "gem", "apgem-landmarks": "apgem"}[name]
    assert float(whole["pooling.p"]) != 3.0, "the power is learned"


def test_the_listwise_loss_is_that_of_the_oracle() -> None:
    torch.manual_seed(0)
    vectors = torch.nn.functional.normalize(torch.randn(8, 5), dim=1).requires_grad_()
    things = np.asarray([0, 0, 1, 1, 2, 2, 0, 0])
    config = LossConfig(0.0, 0.0, 2.0, listwise=10)
    loss, measures = step_loss(Shared(None, vectors), things, config)
    scores, right = (vectors @ vectors.T).detach().numpy(), (things[:, None] == things[None]).astype(float)
    each = 2.0 * (1 - oracles_zoo.bin_average_precision(scores, right, 10))
    assert float(loss.detach()) == pytest.approx(each.sum() / 2, rel=1e-5)
    np.testing.assert_allclose(measures[:, MEASURES.index("loss")], each.reshape(-1, 2).mean(axis=1), rtol=1e-5)
    (gradient,) = torch.autograd.grad(loss, vectors)
    assert bool(gradient.abs().sum() > 0)


def test_the_power_learns_faster_and_does_not_decay(things: TrainingSet, tmp_path: Path) -> None:
    recipe = overlay(small("gem-sfm120k"), {"training.epochs": 1, "validation.every": 0})
    for _ in train(recipe, things, tmp_path / "run", workers=1):
        pass
    found = float(safetensors.torch.load_file(tmp_path / "run" / "last" / "model.safetensors")["pooling.p"])
    moved = abs(found - 3.0)
    assert moved == pytest.approx(2 * 10 * recipe.training.learning_rate, rel=0.6), (
        "two steps of Adam, ten times as long"
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"losses.listwise": 10}, "negatives_from"),
        ({"losses.listwise": 1, "training.negatives_from": "step"}, "losses.listwise"),
        ({"losses.superfeature": 1.0}, "gem has no super-features"),
        ({"network.whitened_dim": 4}, "whitened later"),
        ({"pretraining.first": True}, "has no LIT"),
    ],
)
def test_recipes_that_make_no_sense(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        overlay(small("gem-sfm120k"), changes)


def test_weights_that_do_not_fit(tmp_path: Path, things: TrainingSet) -> None:
    from superfeat.config import NetworkConfig, PoolingConfig, TrunkConfig
    from superfeat.weights import build_module

    config = NetworkConfig("gem", TrunkConfig("resnet10", stages=2), None, None, PoolingConfig(layer=5))
    save_network(Network(build_module(config), config), tmp_path / "layered")
    recipe = overlay(small("gem-sfm120k"), {"weights": str(tmp_path / "layered")})
    with pytest.raises(WeightsError, match=r"network\.pooling\.layer is None, the weights have 5"):
        list(train(recipe, things, tmp_path / "run", workers=1))
