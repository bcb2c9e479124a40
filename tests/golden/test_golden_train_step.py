"""One step of training against the released implementation: losses, matches, gradients, and the weights after Adam."""

import copy
import dataclasses
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from fixtures_recipe import absolute_error, relative_error, released_name
from superfeat import Network, load_network
from superfeat.config import LossConfig, TrainingConfig
from superfeat.images import normalise
from superfeat.nets.fire import Fire
from superfeat.nets.local import Local
from superfeat.nets.training import for_training
from superfeat.training.objective import MEASURES, TupleResult, differentiate

LOSS_TOLERANCE = 1e-6  # relative
GRADIENT_TOLERANCE = 3e-6  # relative to the largest of its tensor, through the whole network
UPDATE_TOLERANCE = 2e-8  # absolute; a step moves a weight by 3e-5, and a float32 near 0.25 is known to 3e-8
TUPLES, IMAGES = 2, 4
TRAINING = TrainingConfig()
WHITENING = "whitening."


@pytest.fixture(scope="module")
def arrays(golden: Path) -> dict[str, np.ndarray]:
    with np.load(golden / "train_step_tiny.npz") as file:
        return dict(file)


@pytest.fixture(scope="module")
def network(golden: Path) -> Network:
    return load_network(golden / "fire_tiny.pth")


@dataclasses.dataclass(frozen=True, repr=False)
class Step:
    """What our code makes of the fixture's tuples; gradients are those of both tuples together."""

    module: Fire
    results: list[TupleResult]
    gradients: dict[str, Tensor]


def as_it_is(module: Fire) -> Callable[[Tensor], Local]:
    return module


FORMS: dict[str, Callable[[Fire], Callable[[Tensor], Local]]] = {"eager": as_it_is, "for training": for_training}


@pytest.fixture(
    scope="module",
    params=[(form, recompute) for form in FORMS for recompute in (False, True)],
    ids=lambda value: f"{value[0]}, {'recomputed' if value[1] else 'whole'}",
)
def step(request: pytest.FixtureRequest, arrays: dict[str, np.ndarray], network: Network) -> Step:
    """Whitening is given a gradient, though training never moves it: the fixture has it."""
    form, recompute = request.param
    module = copy.deepcopy(network.module).requires_grad_()
    assert isinstance(module, Fire)
    named = dict(module.named_parameters())
    results = []
    for number in range(TUPLES):
        pixels = [arrays[f"step_t{number}_im{image}"] for image in range(IMAGES)]
        images = [torch.from_numpy(normalise(one, *network.normalisation)) for one in pixels]
        config = LossConfig(ratio_test="released")
        results.append(differentiate(FORMS[form](module), images, list(named.values()), config, recompute))
    sums = [sum(parts[1:], parts[0]) for parts in zip(*(result.gradient for result in results), strict=True)]
    return Step(module, results, dict(zip(named, sums, strict=True)))


def test_the_network_is_the_fixtures(network: Network) -> None:
    config = network.config
    assert config.lit is not None
    assert (config.lit.rounds, config.lit.templates, config.lit.dim, config.whitened_dim) == (6, 16, 64, 32)


@pytest.mark.parametrize("number", range(TUPLES))
def test_losses(arrays: dict[str, np.ndarray], step: Step, number: int) -> None:
    """The fixture's losses have their weights, 0.02 and 0.1; those of decorrelation are summed over the images."""
    measures = dict(zip(MEASURES, step.results[number].measures.tolist(), strict=False))
    expected = {
        "superfeature": float(arrays[f"step_t{number}_loss_super"]),
        "decorrelation": float(arrays[f"step_t{number}_loss_attn"]),
    }
    for name, value in expected.items():
        assert measures[name] == pytest.approx(value, rel=LOSS_TOLERANCE, abs=0)
    assert measures["loss"] == pytest.approx(sum(expected.values()), rel=LOSS_TOLERANCE, abs=0)
    assert 0.1 * IMAGES * measures["correlation"] == pytest.approx(measures["decorrelation"], rel=LOSS_TOLERANCE)


@pytest.mark.parametrize("number", range(TUPLES))
def test_matches(arrays: dict[str, np.ndarray], step: Step, number: int) -> None:
    measures = step.results[number].measures
    expected = arrays[f"step_t{number}_matches"].tolist()
    assert measures[len(MEASURES) :].nonzero().flatten().tolist() == expected
    assert measures[MEASURES.index("matches")] == len(expected)


def test_gradients_are_summed_over_the_tuples(arrays: dict[str, np.ndarray], step: Step) -> None:
    compared = set()
    for name, gradient in step.gradients.items():
        key = f"step_grad:{released_name(name)}"
        if key in arrays:
            assert relative_error(gradient.reshape(arrays[key].shape), arrays[key]) <= GRADIENT_TOLERANCE, name
            compared.add(key)
    assert compared == {key for key in arrays if key.startswith("step_grad:")}


def test_weights_after_the_step(arrays: dict[str, np.ndarray], step: Step) -> None:
    """Adam at 3e-5 with weight decay 1e-4; then the rate is multiplied by 0.99. Whitening and statistics stay."""
    module = copy.deepcopy(step.module)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    trained = {name: value for name, value in module.named_parameters() if not name.startswith(WHITENING)}
    for name, parameter in trained.items():
        parameter.grad = step.gradients[name].clone()
    optimiser = torch.optim.Adam(trained.values(), TRAINING.learning_rate, weight_decay=TRAINING.weight_decay)
    optimiser.step()
    compared = set()
    for name, value in module.state_dict().items():
        if name not in trained:
            assert torch.equal(value, before[name]), name
        key = f"step_after:{released_name(name)}"
        if key in arrays:
            assert absolute_error(value.reshape(arrays[key].shape), arrays[key]) <= UPDATE_TOLERANCE, name
            compared.add(key)
    assert compared == {key for key in arrays if key.startswith("step_after:")}
    assert arrays["step_bn_running_mean_unchanged"]
    assert not module.training


def test_learning_rates(arrays: dict[str, np.ndarray]) -> None:
    """The reference has four groups: trunk, (empty,) LIT, and whitening, whose rate is 0: what we call frozen."""
    rate = TRAINING.learning_rate * TRAINING.decay
    assert arrays["step_lrs_after"].tolist() == pytest.approx([rate, rate, rate, 0.0], rel=1e-12, abs=0)


def test_the_groups_have_as_many_parameters(arrays: dict[str, np.ndarray], network: Network) -> None:
    counts = [0, 0, 0, 0]
    for name, parameter in network.module.named_parameters():
        group = {"trunk": 0, "lit": 2, "whitening": 3}[name.split(".")[0]]
        assert parameter.requires_grad == (group != 3)
        counts[group] += 1
    assert counts == arrays["step_n_groups"].tolist()


def test_every_array_is_compared(arrays: dict[str, np.ndarray]) -> None:
    parts = "|".join((r"im[0-3]", "loss_attn", "loss_super", "matches"))
    known = re.compile(rf"step_(t[01]_({parts})|grad:.+|after:.+|lrs_after|n_groups|bn_running_mean_unchanged)")
    assert [key for key in arrays if not known.fullmatch(key)] == []
    assert sum(bool(re.fullmatch(r"step_t\d_im\d", key)) for key in arrays) == TUPLES * IMAGES
