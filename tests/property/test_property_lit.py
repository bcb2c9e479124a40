"""LIT over random sizes: it equals plain loops, and the order of the places does not matter."""

import math
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import oracles
from fixtures_recipe import absolute_error, relative_error
from superfeat.nets.lit import Lit
from superfeat.nets.lit_forms import FusedLit

MODEST = settings(deadline=None, max_examples=25)


class Case(NamedTuple):
    lit: Lit
    x: Tensor
    folded: bool


@st.composite
def cases(draw: st.DrawFn, folded: bool, update: str, smallest: int = 2) -> Case:
    """A LIT and a map of fewer or more places than rounds x templates: the two ways of computing."""
    templates, rounds = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    inputs, dim = draw(st.integers(smallest, 9)), draw(st.integers(smallest, 9))
    limit = rounds * templates
    places = draw(st.integers(limit + 1, limit + 12) if folded else st.integers(1, limit))
    height = draw(st.sampled_from([side for side in range(1, places + 1) if places % side == 0]))
    torch.manual_seed(draw(st.integers(0, 2**16)))
    lit = Lit(inputs, templates, rounds, dim, update).double()  # type: ignore[arg-type]
    with torch.no_grad():
        for parameter in lit.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    x = draw(st.sampled_from([0.1, 1.0, 10.0])) * torch.randn(1, inputs, height, places // height, dtype=torch.float64)
    return Case(lit, x, folded)


BOTH_WAYS = pytest.mark.parametrize("folded", [False, True], ids=["keys formed", "keys folded"])
BOTH_UPDATES = pytest.mark.parametrize("update", ["residual", "gru"])


def parameters_of(lit: Lit) -> dict[str, Any]:
    return {name: value.detach().numpy() for name, value in lit.state_dict().items()}


@BOTH_WAYS
@BOTH_UPDATES
@MODEST
@given(data=st.data())
def test_equals_the_oracle(folded: bool, update: str, data: st.DataObject) -> None:
    case = data.draw(cases(folded, update))
    with torch.inference_mode():
        found, maps = case.lit(case.x)
    expected, alpha = oracles.lit(case.x[0].flatten(1).T.numpy(), parameters_of(case.lit), case.lit.rounds)
    assert relative_error(found[0], expected) <= 1e-9
    assert absolute_error(maps[0].flatten(1), alpha) <= 1e-9


@BOTH_WAYS
@BOTH_UPDATES
@MODEST
@given(data=st.data())
def test_the_fused_form_equals_the_oracle(folded: bool, update: str, data: st.DataObject) -> None:
    """In float32, where a LayerNorm of few and nearly equal numbers loses digits: hence the tolerance."""
    case = data.draw(cases(folded, update, smallest=5))
    lit = case.lit.float()
    with torch.inference_mode():
        found, maps = FusedLit(lit)(case.x.float())
    expected, alpha = oracles.lit(case.x[0].float().flatten(1).T.numpy(), parameters_of(lit), lit.rounds)
    assert relative_error(found[0], expected) <= 1e-3
    assert absolute_error(maps[0].flatten(1), alpha) <= 1e-3


@BOTH_WAYS
@MODEST
@given(data=st.data())
def test_the_order_of_places_does_not_matter(folded: bool, data: st.DataObject) -> None:
    case = data.draw(cases(folded, "residual"))
    places = case.x.shape[2] * case.x.shape[3]
    order = torch.tensor(data.draw(st.permutations(range(places))))
    shuffled = case.x.flatten(2)[:, :, order].unflatten(2, case.x.shape[2:])
    with torch.inference_mode():
        found, maps = case.lit(case.x)
        again, again_maps = case.lit(shuffled)
    assert relative_error(again, found) <= 1e-9
    assert absolute_error(again_maps.flatten(2), maps.flatten(2)[:, :, order]) <= 1e-9


@BOTH_WAYS
@BOTH_UPDATES
@MODEST
@given(data=st.data())
def test_attention_maps_sum_to_one(folded: bool, update: str, data: st.DataObject) -> None:
    case = data.draw(cases(folded, update))
    with torch.inference_mode():
        for maps in (case.lit(case.x)[1], FusedLit(case.lit.float())(case.x.float())[1]):
            assert (maps > 0).all()
            np.testing.assert_allclose(maps.sum(dim=(2, 3)), 1, atol=1e-5)


@BOTH_WAYS
@MODEST
@given(data=st.data())
def test_the_order_of_templates_is_the_order_of_outputs(folded: bool, data: st.DataObject) -> None:
    case = data.draw(cases(folded, "residual"))
    order = torch.tensor(data.draw(st.permutations(range(len(case.lit.templates)))))
    with torch.inference_mode():
        found, maps = case.lit(case.x)
        case.lit.templates.copy_(case.lit.templates[order])
        again, again_maps = case.lit(case.x)
    assert relative_error(again, found[:, order]) <= 1e-9
    assert absolute_error(again_maps, maps[:, order]) <= 1e-9


@MODEST
@given(st.lists(st.floats(-50, 50), min_size=1, max_size=6))
def test_the_oracles_own_softmax(logits: list[float]) -> None:
    found = oracles.softmax(logits)
    assert math.isclose(sum(found), 1)
    assert max(range(len(logits)), key=found.__getitem__) in [
        i for i, v in enumerate(logits) if math.isclose(v, max(logits), abs_tol=1e-9)
    ]
