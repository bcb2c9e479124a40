"""Whitening over random data: white on its own fitting set, and the same however the data is cut into batches."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import oracles
from fixtures_recipe import relative_error
from superfeat.nets.whitening import Whitening, WhiteningFit

MODEST = settings(deadline=None, max_examples=40)


@st.composite
def datasets(draw: st.DrawFn) -> Tensor:
    """Enough vectors for their dimensions, correlated, with a mean of any size."""
    dim = draw(st.integers(1, 7))
    n = draw(st.integers(10 * dim + 5, 10 * dim + 80))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    mix = np.diag(rng.uniform(0.5, 3, dim)) @ np.linalg.qr(rng.standard_normal((dim, dim)))[0]
    mean = draw(st.sampled_from([0.0, 1.0, 1000.0]))
    return torch.from_numpy(rng.standard_normal((n, dim)) @ mix + mean)


def fit(*batches: Tensor) -> WhiteningFit:
    found = WhiteningFit(batches[0].shape[1])
    for batch in batches:
        found.add(batch)
    return found


def apply(whitening: Whitening, x: Tensor) -> np.ndarray:
    """In float64, so that the test's own rounding does not count."""
    return (x @ whitening.weight.double().T + whitening.bias.double()).numpy()


@MODEST
@given(datasets(), st.data())
def test_white_on_its_own_fitting_set(x: Tensor, data: st.DataObject) -> None:
    outputs = data.draw(st.integers(1, x.shape[1]))
    found = apply(fit(x).finish(outputs), x)
    size = float(abs(x).max())
    np.testing.assert_allclose(found.mean(axis=0), 0, atol=1e-5 * size)
    np.testing.assert_allclose(np.cov(found.T, bias=True).reshape(outputs, outputs), np.eye(outputs), atol=1e-4)


@MODEST
@given(datasets(), st.data())
def test_any_batches_give_the_same(x: Tensor, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(x)), max_size=6)))
    parts = [x[a:b] for a, b in zip([0, *cuts], [*cuts, len(x)], strict=True)]
    whole, streamed = fit(x), fit(*data.draw(st.permutations(parts)))
    assert streamed.count == whole.count
    torch.testing.assert_close(streamed.mean, whole.mean, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(streamed.scatter, whole.scatter, rtol=1e-8, atol=1e-7)


@MODEST
@given(datasets(), st.data())
def test_equals_the_oracle(x: Tensor, data: st.DataObject) -> None:
    """Compared as the metric W^T W, which has no signs and no order among equal eigenvalues."""
    dim = x.shape[1]
    weight, bias = oracles.whitening(x.numpy(), dim)
    found = fit(x).finish(dim)
    ours = found.weight.double().numpy()
    assert relative_error(ours.T @ ours, weight.T @ weight) <= 1e-4
    assert relative_error((ours.T @ found.bias.double().numpy()), weight.T @ bias) <= 1e-4
    part = data.draw(st.integers(1, dim))
    np.testing.assert_array_equal(fit(x).finish(part).weight, found.weight[:part])
