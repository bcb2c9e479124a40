"""The trainer between two steps: learning rates, the average of the weights, and what is frozen."""

import dataclasses
import math
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor

from fixtures_recipe import recipe_network, relative_error
from superfeat.config import Recipe, TrainingConfig, TrunkConfig
from superfeat.errors import SuperfeatError
from superfeat.training.objective import MEASURES
from superfeat.training.ranks import Ranks
from superfeat.training.start import frozen_part
from superfeat.training.steps import StepGradient
from superfeat.training.trainer import Trainer, learning_rate
from superfeat.weights import Network, build_module

RATE = 0.01
EPOCHS, STEPS = 3, 4


# --- The learning rate ------------------------------------------------------------------------------------------------


def rates(**settings: Any) -> list[float]:
    """Of all the steps of a run, in their order."""
    config = TrainingConfig(epochs=EPOCHS, learning_rate=RATE, **settings)
    return [learning_rate(config, epoch, step, STEPS) for epoch in range(EPOCHS) for step in range(STEPS)]


def test_the_rate_decays_by_the_epoch() -> None:
    assert rates(decay=0.5) == pytest.approx([RATE] * STEPS + [RATE / 2] * STEPS + [RATE / 4] * STEPS)


def test_a_cosine_falls_from_the_whole_rate_to_nearly_nothing() -> None:
    found, total = rates(schedule="cosine", decay=0.5), EPOCHS * STEPS
    assert found[0] == RATE
    assert found[total // 2] == pytest.approx(RATE / 2)
    assert found[-1] == pytest.approx(RATE * (1 - math.cos(math.pi / total)) / 2)
    assert 0 < found[-1] < RATE / 50
    assert found == sorted(found, reverse=True)
    assert np.add(found[1:], found[:0:-1]) == pytest.approx([RATE] * (total - 1)), "as far above the middle as below"


@pytest.mark.parametrize("schedule", ["decay", "cosine"])
@pytest.mark.parametrize("warm_up", [0, 1, 5, 100])
def test_the_rate_rises_over_the_first_steps_to_what_it_is(schedule: Any, warm_up: int) -> None:
    whole, found = rates(schedule=schedule), rates(schedule=schedule, warm_up=warm_up)
    for done, (rate, expected) in enumerate(zip(found, whole, strict=True)):
        share = (done + 1) / warm_up if done < warm_up else 1.0
        assert rate == pytest.approx(share * expected)
    assert all(rate > 0 for rate in found), "the first step learns too"


# --- The average ------------------------------------------------------------------------------------------------------


def trainer_of(network: Network, **settings: Any) -> Trainer:
    """A trainer of a network whose every gradient is random: only what it does with them matters."""
    training = TrainingConfig(learning_rate=RATE, tuples_per_step=2, **settings)
    recipe = Recipe(network=network.config, training=training)
    folder = SimpleNamespace(log=lambda record: None)
    trainer = Trainer(recipe, cast(Any, None), (), cast(Any, folder), Ranks(), workers=1, device="cpu")
    trainer._adopt(recipe_network(network.config))
    random = torch.Generator().manual_seed(0)

    def each_alone(tuples: np.ndarray, showings: Any, width: int) -> StepGradient:
        gradient = [torch.randn(one.shape, generator=random).double() for one in trainer.parameters.values()]
        return StepGradient(gradient, torch.ones(len(tuples), width, dtype=torch.float64), 0.0)

    trainer.stepper = cast(Any, SimpleNamespace(each_alone=each_alone))
    return trainer


def weights_after_each_step(trainer: Trainer, steps: int) -> list[dict[str, Tensor]]:
    """And before the first."""
    found = [{name: value.detach().clone() for name, value in trainer.parameters.items()}]
    trainer.tuples = np.arange(8 * steps).reshape(2 * steps, 4)
    for _ in trainer._epoch_steps():
        found.append({name: value.detach().clone() for name, value in trainer.parameters.items()})
    return found


@pytest.mark.parametrize("average", [0.3, 0.9])
def test_the_average_is_what_the_recurrence_says(tiny_network: Network, average: float) -> None:
    """It stays by (1 + n) / (10 + n) in the first steps, so that it soon forgets where it began."""
    trainer = trainer_of(tiny_network, average=average)
    weights = weights_after_each_step(trainer, 12)
    assert trainer.position.steps == 12
    for name, value in trainer.average.items():
        expected = weights[0][name].double()
        for done, now in enumerate(weights[1:]):
            kept = min(average, (1 + done) / (10 + done))
            expected = kept * expected + (1 - kept) * now[name].double()
        assert relative_error(value, expected) <= 1e-6, name
        assert not torch.equal(value, weights[-1][name])


def test_the_network_that_is_kept_is_the_average_and_all_else_as_it_was(tiny_network: Network) -> None:
    trainer = trainer_of(tiny_network, average=0.9)
    weights_after_each_step(trainer, 3)
    start = recipe_network(tiny_network.config).module.state_dict()
    found = trainer._snapshot().module.state_dict()
    assert found.keys() == start.keys()
    for name, value in found.items():
        assert torch.equal(value, trainer.average.get(name, start[name])), name
    assert any(torch.equal(value, start[name]) for name, value in found.items())


def test_without_an_average_the_weights_are_kept(tiny_network: Network) -> None:
    trainer = trainer_of(tiny_network)
    weights = weights_after_each_step(trainer, 3)
    found = trainer._snapshot().module.state_dict()
    assert all(torch.equal(found[name], value) for name, value in weights[-1].items())


def test_averaging_changes_nothing_that_is_learned(tiny_network: Network) -> None:
    with_, without = (weights_after_each_step(trainer_of(tiny_network, average=one), 3)[-1] for one in (0.9, 0.0))
    assert all(torch.equal(value, without[name]) for name, value in with_.items())


# --- Rates of the parts, frozen stages --------------------------------------------------------------------------------


def test_the_trunk_has_a_share_of_the_rate(tiny_network: Network) -> None:
    """Adam's first step is as long as its rate, whatever the gradient."""
    trainer = trainer_of(tiny_network, trunk_rate=0.1, weight_decay=0.0, warm_up=2)
    before, after = weights_after_each_step(trainer, 1)
    for name in before:
        rate = RATE / 2 * (0.1 if name.startswith("trunk.") else 1.0)
        lengths = (after[name] - before[name]).abs()
        assert float(lengths.median()) == pytest.approx(rate, rel=0.01), name
    assert len(trainer.optimiser.param_groups) == 2
    total = sum(len(group["params"]) for group in trainer.optimiser.param_groups)
    assert total == len(trainer.parameters)


@pytest.mark.parametrize(("frozen", "names"), [(0, ["conv1", "bn1", "layer1"]), (1, [])])
def test_what_is_frozen_is_not_learned(tiny_network: Network, frozen: int, names: list[str]) -> None:
    """The tiny trunk has a single stage: nothing of it is left to learn, and no group of it either."""
    trainer = trainer_of(tiny_network, frozen_stages=frozen, average=0.5)
    parts = {name.split(".")[1] for name in trainer.parameters if name.startswith("trunk.")}
    assert parts == set(names)
    assert len(trainer.optimiser.param_groups) == 1 + bool(names)
    weights_after_each_step(trainer, 2)
    start = recipe_network(tiny_network.config).module.state_dict()
    same = {name for name, value in trainer._snapshot().module.state_dict().items() if torch.equal(value, start[name])}
    assert {name for name in start if name not in trainer.parameters} == same


def test_measures_are_summed_over_the_epoch(tiny_network: Network) -> None:
    trainer = trainer_of(tiny_network)
    weights_after_each_step(trainer, 3)
    assert trainer.totals[: len(MEASURES)].tolist() == [6.0] * len(MEASURES)


def test_maps_of_the_first_stages_are_stored_of_a_resnet_alone(tiny_network: Network) -> None:
    trunk = TrunkConfig("efficientnet-lite0", 2, neck=12)
    config = dataclasses.replace(tiny_network.config, trunk=trunk)
    chosen = TrainingConfig(frozen_stages=1, stored_maps=True)
    with pytest.raises(SuperfeatError, match="of a ResNet, not of a EfficientNetLite"):
        frozen_part(Network(build_module(config), config), chosen, "cpu")
