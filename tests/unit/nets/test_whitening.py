"""PCA-whitening: its definition, its edge cases, and numbers that would be lost in a careless sum."""

import numpy as np
import pytest
import torch

import oracles
from fixtures_recipe import relative_error
from superfeat.nets.whitening import Whitening, WhiteningFit


def data(n: int = 200, dim: int = 5, shift: float = 0.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(n, dim, generator=generator) @ torch.diag(torch.arange(1.0, dim + 1)) + shift


def fitted(x: torch.Tensor) -> WhiteningFit:
    fit = WhiteningFit(x.shape[1])
    fit.add(x)
    return fit


def test_an_affine_map_that_does_not_learn() -> None:
    whitening = fitted(data()).finish(3)
    assert not any(value.requires_grad for value in whitening.parameters())
    x = data(4)
    expected = x @ whitening.weight.T + whitening.bias
    torch.testing.assert_close(whitening(x), expected)
    assert whitening(x.reshape(2, 2, 5)).shape == (2, 2, 3)


def test_the_papers_size() -> None:
    assert sum(value.numel() for value in Whitening(1024, 128).parameters()) == 131_200


@pytest.mark.parametrize("outputs", [1, 3, 5])
@pytest.mark.parametrize("strength", [1.0, 0.5])
def test_against_numpy(outputs: int, strength: float) -> None:
    x = data()
    whitening = fitted(x).finish(outputs, strength)
    weight, bias = oracles.whitening(x.double().numpy(), outputs, strength)
    signs = np.sign((whitening.weight.numpy() * weight).sum(axis=1))
    assert relative_error(whitening.weight.numpy() * signs[:, None], weight) <= 1e-6
    np.testing.assert_allclose(whitening.bias.numpy() * signs, bias, atol=1e-6)


def test_components_come_strongest_first() -> None:
    x = data(dim=5)
    projected = x @ fitted(x).finish(5).weight.T
    variances = (
        fitted(x).finish(5, strength=0.0).weight @ torch.cov(x.T) @ fitted(x).finish(5, strength=0.0).weight.T
    ).diag()
    assert projected.shape == (200, 5)
    assert (variances.diff() < 0).all()


def test_a_large_mean_costs_no_digits() -> None:
    x = data(500, 4).double()
    near, far = WhiteningFit(4), WhiteningFit(4)
    for chunk in x.split(50):
        near.add(chunk)
        far.add(chunk + 1e6)
    torch.testing.assert_close(far.scatter, near.scatter, rtol=1e-8, atol=1e-6)
    torch.testing.assert_close(far.mean, near.mean + 1e6, rtol=1e-14, atol=0)


def test_an_empty_batch_changes_nothing() -> None:
    fit = fitted(data())
    before = (fit.count, fit.mean.clone(), fit.scatter.clone())
    fit.add(torch.empty(0, 5))
    assert fit.count == before[0]
    assert torch.equal(fit.mean, before[1])
    assert torch.equal(fit.scatter, before[2])


def test_the_data_is_not_touched() -> None:
    x = data()
    before = x.clone()
    fitted(x)
    assert torch.equal(x, before)


def test_directions_without_variance_stay_finite() -> None:
    x = data(50, 4)
    x[:, 3] = x[:, 0]
    whitening = fitted(x).finish(4)
    assert torch.isfinite(whitening.weight).all()
    assert torch.isfinite(whitening.bias).all()
    assert whitening.weight.abs().max() <= 1e7


def test_what_cannot_be_fitted() -> None:
    with pytest.raises(ValueError, match="at least 2 vectors, got 1"):
        fitted(data(1)).finish(2)
    for outputs in (0, 6):
        with pytest.raises(ValueError, match=f"cannot whiten 5 dimensions to {outputs}"):
            fitted(data()).finish(outputs)
