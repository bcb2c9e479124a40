"""What a student learns from: the same features as the network's own, losses by plain loops, least squares."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import oracles_distillation as oracle
from superfeat.config import LitConfig, NetworkConfig, TrunkConfig
from superfeat.nets.distillation import Squares, compare, disagreement, look, strength_error, unexplained
from superfeat.nets.fire import Fire
from superfeat.nets.points import APART
from superfeat.weights import build_module

LIT = LitConfig(templates=5, rounds=2, dim=8)


def network(seed: int, points: float | None = 2.0) -> Fire:
    torch.manual_seed(seed)
    module = build_module(NetworkConfig("fire", TrunkConfig("resnet10", 1), LIT, 6, points=points))
    assert isinstance(module, Fire)
    for name, value in module.named_parameters():
        if "whitening" in name:
            torch.nn.init.normal_(value)
    return module


@pytest.mark.parametrize("size", [(3, 4), (9, 11)])  # below and above where Lit takes another form
def test_it_sees_what_the_network_gives(size: tuple[int, int]) -> None:
    fire, x = network(0), torch.rand(1, 64, *size)
    with torch.inference_mode():
        seen, local = look(fire, x), fire.describe(x)
    count = LIT.templates
    torch.testing.assert_close(seen.vectors, local.vectors[:, :count], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(seen.strengths, local.strengths[:, :count], rtol=1e-4, atol=1e-4)
    assert seen.points is not None
    assert seen.point_strengths is not None
    best = seen.point_strengths[0].topk(local.vectors.shape[1] - count)
    torch.testing.assert_close(best.values, local.strengths[0, count:])
    torch.testing.assert_close(seen.points[0, best.indices] + APART, local.vectors[0, count:])


def test_without_points() -> None:
    fire, x = network(0, points=None), torch.rand(1, 64, 3, 4)
    seen = look(fire, x)
    assert seen.points is seen.point_strengths is None
    assert float(compare(seen, seen).points) == 0


@given(st.integers(0, 1000), st.integers(2, 5), st.integers(2, 6))
def test_the_losses_by_plain_loops(seed: int, count: int, dim: int) -> None:
    random = np.random.default_rng(seed)
    ours, theirs = random.standard_normal((2, count, dim))
    weights, others = random.uniform(0.1, 3, (2, count))

    def batch(values: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(values).unsqueeze(0)

    found = unexplained(batch(ours), batch(theirs)).item()
    assert found == pytest.approx(oracle.unexplained(ours, theirs), rel=1e-6)
    found = disagreement(batch(ours), batch(theirs), batch(weights)).item()
    assert found == pytest.approx(oracle.disagreement(ours, theirs, weights), rel=1e-5)
    assert strength_error(batch(others), batch(weights)).item() == pytest.approx(
        oracle.strength_error(others, weights), rel=1e-6
    )


def test_a_student_that_is_its_teacher_has_nothing_to_learn() -> None:
    fire, x = network(0), torch.rand(1, 64, 3, 4)
    with torch.no_grad():
        seen = look(fire, x)
        for part in compare(seen, seen):
            assert part.item() == pytest.approx(0, abs=1e-6)
        for part in compare(look(network(1), x), seen):
            assert part.item() > 0.1


def test_the_gradient_is_finite_where_a_map_is_empty() -> None:
    fire, x = network(0), torch.zeros(1, 64, 3, 4, requires_grad=True)
    with torch.no_grad():
        seen = look(network(1), torch.rand(1, 64, 3, 4))
    losses = compare(look(fire, x), seen)
    (gradient,) = torch.autograd.grad(sum(losses[1:], losses[0]), [x])
    assert torch.isfinite(gradient).all()


def test_least_squares() -> None:
    random = np.random.default_rng(0)
    x, true = random.standard_normal((400, 7)), random.standard_normal((7, 4))
    y = x @ true + 0.01 * random.standard_normal((400, 4))
    squares = Squares(7, 4)
    for begin in range(0, 400, 90):
        squares.add(torch.from_numpy(x[begin : begin + 90]), torch.from_numpy(y[begin : begin + 90]))
    wanted = np.linalg.lstsq(x, y, rcond=None)[0].T
    assert squares.count == 400
    np.testing.assert_allclose(squares.solve().numpy(), wanted, atol=0.01)
    # Four directions of the inputs tell all that can be told of four outputs; two tell more than two others.
    kept = squares.reduced(4).numpy()
    again = np.linalg.lstsq(x @ kept.T, y, rcond=None)[0]
    np.testing.assert_allclose(x @ kept.T @ again, x @ wanted.T, atol=0.05)

    def left(directions: np.ndarray) -> float:
        inside = x @ directions.T
        return float(np.square(y - inside @ np.linalg.lstsq(inside, y, rcond=None)[0]).sum())

    assert left(squares.reduced(2).numpy()) < min(left(random.standard_normal((2, 7))) for _ in range(20))
