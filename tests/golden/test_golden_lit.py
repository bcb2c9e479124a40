"""LIT alone against the released implementation, with its gradients."""

from pathlib import Path

import numpy as np
import pytest
import torch

import oracles
from fixtures_recipe import absolute_error
from superfeat.nets.lit import Lit

OURS = {"templates_init": "templates", "project_q": "query", "project_k": "key", "project_v": "value"}
GRADIENT_TOLERANCE = 2e-5  # relative to the largest of its tensor
ROUNDING = 1e-6  # of the largest of all: the bias of norm_templates moves no softmax, its gradient is rounding alone


@pytest.fixture(scope="module")
def arrays(golden: Path) -> dict[str, np.ndarray]:
    with np.load(golden / "lit_standalone.npz") as file:
        return dict(file)


def our_name(theirs: str) -> str:
    part, dot, rest = theirs.partition(".")
    return OURS.get(part, part) + dot + rest


def build(arrays: dict[str, np.ndarray], rounds: int) -> Lit:
    lit = Lit(48, templates=12, rounds=rounds, dim=40)
    state = {our_name(key.removeprefix("w_")): torch.from_numpy(arrays[key]) for key in arrays if key.startswith("w_")}
    lit.load_state_dict({name: value[0] if name == "templates" else value for name, value in state.items()})
    return lit


@pytest.mark.parametrize("rounds", [1, 6])
def test_templates_attention_and_gradients(arrays: dict[str, np.ndarray], rounds: int) -> None:
    lit = build(arrays, rounds)
    x = torch.from_numpy(arrays[f"T{rounds}_x"]).requires_grad_()
    found, maps = lit(x)
    assert absolute_error(found.detach().transpose(1, 2).unsqueeze(-1), arrays[f"T{rounds}_templates"]) <= 1e-5
    assert absolute_error(maps.detach(), arrays[f"T{rounds}_attn"]) <= 1e-6
    (found.square().mean() + maps.square().sum()).backward()
    gradients = {"x": x.grad, **{name: value.grad for name, value in lit.named_parameters()}}
    expected = [key for key in arrays if key.startswith(f"T{rounds}_grad_")]
    assert len(expected) == len(gradients)
    largest = max(float(abs(arrays[key]).max()) for key in expected)
    for key in expected:
        gradient = gradients[our_name(key.removeprefix(f"T{rounds}_grad_"))]
        assert gradient is not None
        allowed = GRADIENT_TOLERANCE * float(abs(arrays[key]).max()) + ROUNDING * largest
        assert absolute_error(gradient.reshape(arrays[key].shape), arrays[key]) <= allowed, key


@pytest.mark.parametrize("rounds", [1, 6])
def test_by_the_oracle(arrays: dict[str, np.ndarray], rounds: int) -> None:
    parameters = {name: value.numpy() for name, value in build(arrays, rounds).state_dict().items()}
    for image in range(2):
        places = arrays[f"T{rounds}_x"][image].reshape(48, -1).T
        found, alpha = oracles.lit(places, parameters, rounds)
        assert absolute_error(found, arrays[f"T{rounds}_templates"][image, :, :, 0].T) <= 1e-5
        assert absolute_error(alpha.reshape(12, 5, 7), arrays[f"T{rounds}_attn"][image]) <= 1e-6


def test_every_array_is_compared(arrays: dict[str, np.ndarray]) -> None:
    known = ("w_", "T1_grad_", "T6_grad_")
    rest = {f"T{rounds}_{what}" for rounds in (1, 6) for what in ("x", "templates", "attn")}
    assert [key for key in arrays if not key.startswith(known) and key not in rest] == []
