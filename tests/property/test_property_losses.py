"""The losses over random sizes: they equal plain loops, their gradients are right, and none goes through the choice."""

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

import oracles_losses as oracles
from fixtures_recipe import absolute_error
from superfeat.nets.losses import (
    Hinge,
    IdPairs,
    RatioTest,
    attention_correlation,
    decorrelation_loss,
    distances_between,
    eligible_pairs,
    global_loss,
    loss_of_pairs,
    match,
    superfeature_loss,
)

MODEST = settings(deadline=None, max_examples=25)
NEAR = 1e-4  # from a kink: finite differences would step over it

RATIO_TESTS = pytest.mark.parametrize("ratio_test", ["lowe", "released", "off"])
RECIPROCAL = pytest.mark.parametrize("reciprocal", [True, False], ids=["reciprocal", "one way"])
SAME_ID = pytest.mark.parametrize("same_id", [True, False], ids=["same id", "any id"])
HINGES = pytest.mark.parametrize("hinge", ["released", "paper"])


class Features(NamedTuple):
    """Of one tuple, in float64: so that a difference is a mistake and not a rounding."""

    query: Tensor
    positive: Tensor
    negatives: Tensor

    def leaves(self) -> tuple[Tensor, Tensor, Tensor]:
        query, positive, negatives = (part.clone().requires_grad_() for part in self)
        return query, positive, negatives

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self.query.numpy(), self.positive.numpy(), self.negatives.numpy()


@st.composite
def tuples(
    draw: st.DrawFn, smallest_n: int = 1, smallest_dim: int = 1, zeros: bool = True, duplicates: bool = True
) -> Features:
    """The positive resembles the query more or less; some features are exact copies of others, some are zero."""
    n, dim = draw(st.integers(smallest_n, 7)), draw(st.integers(smallest_dim, 6))
    images = draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    spread = draw(st.sampled_from([0.05, 0.3, 1.0]))
    query = 3 * rng.standard_normal((n, dim))
    positive = query + 3 * spread * rng.standard_normal((n, dim))
    negatives = rng.standard_normal((images, n, dim)) + query * draw(st.sampled_from([0.0, 1.0]))
    everything = [query, positive, *negatives]
    for _ in range(draw(st.integers(0, 3)) if duplicates else 0):
        target, source = (everything[draw(st.integers(0, len(everything) - 1))] for _ in range(2))
        target[draw(st.integers(0, n - 1))] = source[draw(st.integers(0, n - 1))]
    for _ in range(draw(st.integers(0, 2)) if zeros else 0):
        everything[draw(st.integers(0, len(everything) - 1))][draw(st.integers(0, n - 1))] = 0
    return Features(*(torch.from_numpy(part) for part in (query, positive, negatives)))


def as_list(pairs: IdPairs) -> list[tuple[int, int]]:
    return list(zip(pairs.query.tolist(), pairs.positive.tolist(), strict=True))


def gradients(loss: Tensor, leaves: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return torch.autograd.grad(loss, leaves)


# --- eligible pairs ---------------------------------------------------------------------------------------------------


@RATIO_TESTS
@RECIPROCAL
@SAME_ID
@MODEST
@given(data=st.data())
def test_every_rule_equals_the_oracle(ratio_test: RatioTest, reciprocal: bool, same_id: bool, data: Any) -> None:
    """On whole-number distances, so that ties, zeros and ratios of exactly 0.9 abound."""
    n = data.draw(st.integers(1, 6))
    m = data.draw(st.integers(1, 6)) if reciprocal or not same_id else n
    cells = st.integers(0, data.draw(st.sampled_from([2, 12])))
    table = data.draw(st.lists(st.lists(cells, min_size=m, max_size=m), min_size=n, max_size=n))
    found = match(
        torch.tensor(table, dtype=torch.float64), ratio_test=ratio_test, reciprocal=reciprocal, same_id=same_id
    )
    assert as_list(found) == oracles.match(table, ratio_test, oracles.RATIO, reciprocal, same_id)


@RATIO_TESTS
@MODEST
@given(data=st.data())
def test_other_ratios_equal_the_oracle(ratio_test: RatioTest, data: Any) -> None:
    case = data.draw(tuples())
    ratio = data.draw(st.sampled_from([0.1, 0.5, 0.8, 1.0, 2.0]))
    table = distances_between(case.positive, case.query)
    found = match(table, ratio_test=ratio_test, ratio=ratio)
    assert as_list(found) == oracles.match(table.tolist(), ratio_test, ratio, True, True)


@MODEST
@given(tuples())
def test_distances_equal_the_oracle(case: Features) -> None:
    expected = oracles.distances(case.positive.numpy(), case.query.numpy())
    assert absolute_error(distances_between(case.positive, case.query), expected) <= 1e-14


@RATIO_TESTS
@SAME_ID
@MODEST
@given(data=st.data())
def test_eligible_pairs_equal_the_oracle_from_the_features_on(ratio_test: RatioTest, same_id: bool, data: Any) -> None:
    """Without zeros, and in two dimensions or more: all units are at the same distance of a zero, but for rounding."""
    case = data.draw(tuples(smallest_dim=2, zeros=False))
    table = oracles.distances(case.positive.numpy(), case.query.numpy())
    found = eligible_pairs(case.query, case.positive, ratio_test=ratio_test, same_id=same_id)
    expected = oracles.match(table, ratio_test, oracles.RATIO, True, same_id)
    assert found.tolist() == [here for here, _ in expected]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_ratio_of_exactly_tau_passes(dtype: torch.dtype) -> None:
    assert len(match(torch.tensor([[9.0, 10.0], [10.0, 9.0]], dtype=dtype)).query) == 2
    assert len(match(torch.tensor([[9.01, 10.0], [10.0, 9.01]], dtype=dtype)).query) == 0


def test_features_alike_cannot_be_told_apart() -> None:
    alike = torch.ones(3, 4)
    assert eligible_pairs(alike, alike, ratio_test="lowe").tolist() == []
    assert eligible_pairs(alike, alike, ratio_test="off").tolist() == [0]


@pytest.mark.parametrize("ratio_test", ["lowe", "off"])
@RECIPROCAL
@SAME_ID
@MODEST
@given(data=st.data())
def test_other_ids_are_the_same_matches_renumbered(
    ratio_test: RatioTest, reciprocal: bool, same_id: bool, data: Any
) -> None:
    """The released ratio test is left out: it divides by a number of a feature, so it depends on the numbers."""
    case = data.draw(tuples(smallest_dim=2, zeros=False, duplicates=False))
    order = torch.tensor(data.draw(st.permutations(range(len(case.query)))))
    rules: dict[str, Any] = {"ratio_test": ratio_test, "reciprocal": reciprocal, "same_id": same_id}
    before = match(distances_between(case.positive, case.query), **rules)
    after = match(distances_between(case.positive[order], case.query[order]), **rules)
    assert sorted(as_list(IdPairs(order[after.query], order[after.positive]))) == sorted(as_list(before))
    moved = Features(case.query[order], case.positive[order], case.negatives[:, order])
    assert superfeature_loss(*moved, **rules).item() == pytest.approx(
        superfeature_loss(*case, **rules).item(), rel=1e-12, abs=1e-15
    )


# --- the super-feature loss -------------------------------------------------------------------------------------------


@HINGES
@RATIO_TESTS
@RECIPROCAL
@SAME_ID
@settings(MODEST, max_examples=8)
@given(data=st.data())
def test_superfeature_loss_equals_the_oracle(
    hinge: Hinge, ratio_test: RatioTest, reciprocal: bool, same_id: bool, data: Any
) -> None:
    case: Features = data.draw(tuples())
    margin, weight = data.draw(st.sampled_from([0.5, 1.1, 3.0])), data.draw(st.sampled_from([0.02, 1.0]))
    table = distances_between(case.positive, case.query).tolist()
    pairs = oracles.match(table, ratio_test, oracles.RATIO, reciprocal, same_id)
    found = superfeature_loss(
        *case,
        margin=margin,
        weight=weight,
        ratio_test=ratio_test,
        hinge=hinge,
        reciprocal=reciprocal,
        same_id=same_id,
    )
    expected = weight * oracles.superfeature_loss(pairs, *case.arrays(), margin, hinge)
    assert found.item() == pytest.approx(expected, rel=1e-10, abs=1e-14)


def pairs_of(case: Features, data: Any) -> IdPairs:
    """Any pairs at all: the loss of given pairs does not ask where they come from."""
    ids = st.integers(0, len(case.query) - 1)
    chosen = data.draw(st.lists(st.tuples(ids, ids), max_size=5))
    return IdPairs(*torch.tensor(chosen, dtype=torch.long).reshape(-1, 2).unbind(1))


@HINGES
@settings(MODEST, max_examples=10)
@given(data=st.data())
def test_superfeature_gradients_by_finite_differences(hinge: Hinge, data: Any) -> None:
    case = data.draw(tuples(zeros=False, duplicates=False))
    pairs, margin = pairs_of(case, data), 1.1
    units = [torch.nn.functional.normalize(part, dim=-1) for part in case]
    apart = (units[0][pairs.query] - units[2][:, pairs.query]).norm(dim=-1)
    kinks = apart.square() if hinge == "paper" else apart
    assume(bool(((kinks - margin).abs() > NEAR).all() and (apart > 0.01).all()))
    assume(min(float(part.norm(dim=-1).min()) for part in case) > 0.05)  # the curvature grows with 1 / length

    def loss(query: Tensor, positive: Tensor, negatives: Tensor) -> Tensor:
        return loss_of_pairs(pairs, query, positive, negatives, margin=margin, hinge=hinge)

    assert torch.autograd.gradcheck(loss, case.leaves(), atol=1e-4, rtol=1e-4)


@HINGES
@RATIO_TESTS
@MODEST
@given(data=st.data())
def test_no_gradient_through_the_choice(hinge: Hinge, ratio_test: RatioTest, data: Any) -> None:
    """The gradient is that of the loss of fixed pairs, to the bit."""
    case = data.draw(tuples())
    leaves = case.leaves()
    distances = distances_between(leaves[1], leaves[0])
    assert not distances.requires_grad
    pairs = match(distances, ratio_test=ratio_test)
    found = gradients(superfeature_loss(*leaves, weight=1.0, ratio_test=ratio_test, hinge=hinge), leaves)
    fixed = gradients(loss_of_pairs(pairs, *leaves, margin=1.1, hinge=hinge), leaves)
    for one, other in zip(found, fixed, strict=True):
        assert torch.equal(one, other)


@MODEST
@given(tuples(zeros=False))
def test_only_the_chosen_have_a_gradient(case: Features) -> None:
    leaves = case.leaves()
    chosen = eligible_pairs(case.query, case.positive)
    for gradient in gradients(superfeature_loss(*leaves), leaves):
        others = torch.ones(len(case.query), dtype=torch.bool)
        others[chosen] = False
        assert gradient.isfinite().all()
        assert not gradient[..., others, :].any()


@HINGES
@RATIO_TESTS
@MODEST
@given(data=st.data())
def test_no_eligible_pair_is_exactly_zero(hinge: Hinge, ratio_test: RatioTest, data: Any) -> None:
    """The positive has the query's features one ID further: all are reciprocal, none has the same ID."""
    case = data.draw(tuples(smallest_n=2, smallest_dim=2, zeros=False, duplicates=False))
    leaves = case._replace(positive=case.query.roll(1, dims=0)).leaves()
    assert len(eligible_pairs(leaves[0], leaves[1], ratio_test=ratio_test)) == 0
    loss = superfeature_loss(*leaves, ratio_test=ratio_test, hinge=hinge)
    assert loss.item() == 0
    for gradient in gradients(loss, leaves):
        assert not gradient.any()


@HINGES
@MODEST
@given(data=st.data())
def test_lengths_do_not_matter(hinge: Hinge, data: Any) -> None:
    """Powers of two change no digit."""
    case = data.draw(tuples(zeros=False))
    factors = [2.0 ** data.draw(st.integers(-8, 8)) for _ in case]
    scaled = Features(*(part * factor for part, factor in zip(case, factors, strict=True)))
    assert superfeature_loss(*scaled, hinge=hinge).item() == superfeature_loss(*case, hinge=hinge).item()


@MODEST
@given(tuples())
def test_single_precision_is_near(case: Features) -> None:
    """Given the same pairs: near the border of a rule the choice itself may turn."""
    pairs = match(distances_between(case.positive, case.query), ratio_test="off", reciprocal=False)
    for hinge in ("released", "paper"):
        expected = oracles.superfeature_loss(as_list(pairs), *case.arrays(), 1.1, hinge)
        single = loss_of_pairs(pairs, *(part.float() for part in case), margin=1.1, hinge=hinge)
        assert single.dtype == torch.float32
        assert single.item() == pytest.approx(expected, rel=1e-5, abs=1e-5)


# --- the global loss --------------------------------------------------------------------------------------------------


@HINGES
@MODEST
@given(data=st.data())
def test_global_loss_equals_the_oracle(hinge: Hinge, data: Any) -> None:
    case = data.draw(tuples())
    query, positive, negatives = (torch.nn.functional.normalize(part, dim=-1) for part in case)
    margin, weight = data.draw(st.sampled_from([0.1, 0.8, 1.5])), data.draw(st.sampled_from([0.5, 1.0]))
    found = global_loss(query[0], positive[0], negatives[:, 0], margin=margin, weight=weight, hinge=hinge)
    expected = oracles.contrastive(
        query[0].tolist(), positive[0].tolist(), negatives[:, 0].tolist(), margin=margin, hinge=hinge
    )
    assert found.item() == pytest.approx(weight * expected, rel=1e-10, abs=1e-14)


@HINGES
@settings(MODEST, max_examples=10)
@given(data=st.data())
def test_global_gradients_by_finite_differences(hinge: Hinge, data: Any) -> None:
    case = data.draw(tuples(zeros=False, duplicates=False))
    apart = (case.query[0] - case.negatives[:, 0]).norm(dim=-1)
    kinks = apart.square() if hinge == "paper" else apart
    assume(bool(((kinks - 1.5).abs() > NEAR).all() and (apart > 0.01).all()))

    def loss(query: Tensor, positive: Tensor, negatives: Tensor) -> Tensor:
        return global_loss(query[0], positive[0], negatives[:, 0], margin=1.5, hinge=hinge)

    assert torch.autograd.gradcheck(loss, case.leaves(), atol=1e-4, rtol=1e-4)


# --- decorrelation ----------------------------------------------------------------------------------------------------


@st.composite
def maps(draw: st.DrawFn, smallest_n: int = 1, zeros: bool = True) -> Tensor:
    """A batch of images' attention maps, each summing to one; some alike, some (which attention never is) zero."""
    batch, n = draw(st.integers(1, 3)), draw(st.integers(smallest_n, 6))
    height, width = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    values = rng.uniform(0.01, 1, (batch, n, height, width)) ** draw(st.sampled_from([1, 8]))
    values /= values.sum(axis=(2, 3), keepdims=True)
    if draw(st.booleans()):
        values[:, draw(st.integers(0, n - 1))] = values[:, draw(st.integers(0, n - 1))]
    if zeros and draw(st.booleans()):
        values[draw(st.integers(0, batch - 1)), draw(st.integers(0, n - 1))] = 0
    return torch.from_numpy(values)


@MODEST
@given(maps())
def test_decorrelation_equals_the_oracle(x: Tensor) -> None:
    expected = [oracles.decorrelation(one) for one in x.numpy()]
    assert absolute_error(attention_correlation(x), expected) <= 1e-12
    assert absolute_error(attention_correlation(x.float()), expected) <= 1e-6
    assert decorrelation_loss(x, weight=0.3).item() == pytest.approx(0.3 * sum(expected), abs=1e-12)


@MODEST
@given(maps())
def test_a_batch_of_maps_is_the_sum_of_its_images(x: Tensor) -> None:
    alone = [decorrelation_loss(one) for one in x]
    assert all(one.shape == () for one in alone)
    assert decorrelation_loss(x).item() == pytest.approx(sum(one.item() for one in alone), abs=1e-14)


@settings(MODEST, max_examples=10)
@given(maps(zeros=False))
def test_decorrelation_gradients_by_finite_differences(x: Tensor) -> None:
    small = x.flatten(2).norm(dim=-1).min()
    assert torch.autograd.gradcheck(decorrelation_loss, (x.clone().div_(small).requires_grad_(),), atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@MODEST
@given(x=maps(zeros=False))
def test_a_single_map_has_nothing_to_resemble(dtype: torch.dtype, x: Tensor) -> None:
    """Exactly: the loss of one template must not drift with rounding."""
    single = x[:, :1].to(dtype).requires_grad_()
    loss = decorrelation_loss(single)
    assert loss.item() == 0
    (gradient,) = gradients(loss, (single,))
    assert not gradient.any()


@MODEST
@given(maps(smallest_n=2, zeros=False), st.data())
def test_the_order_of_maps_and_of_places_does_not_matter(x: Tensor, data: Any) -> None:
    order = data.draw(st.permutations(range(x.shape[1])))
    flipped = x[:, list(order)].flip(-1).transpose(-1, -2)
    assert absolute_error(attention_correlation(flipped), attention_correlation(x)) <= 1e-14


@MODEST
@given(st.integers(2, 9), st.integers(0, 2**16))
def test_between_none_and_all(n: int, seed: int) -> None:
    """Maps that share no place are uncorrelated, maps that are alike wholly correlated."""
    apart = torch.eye(n, dtype=torch.float64).reshape(n, n, 1)
    alike = torch.from_numpy(np.random.default_rng(seed).uniform(0.1, 1, (1, 3, 2))).expand(n, 3, 2)
    assert attention_correlation(apart).item() == pytest.approx(0, abs=1e-15)
    assert attention_correlation(alike).item() == pytest.approx(1, abs=1e-14)
