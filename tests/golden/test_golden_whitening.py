"""Whitening against the two reference implementations (FIRe's and cirtorch's); signs of components are arbitrary."""

from pathlib import Path

import numpy as np
import pytest
import torch

import oracles
from fixtures_recipe import absolute_error, relative_error
from superfeat.nets.whitening import Whitening, WhiteningFit

P_TOLERANCE = 1e-4  # relative, per component: the reference sums its covariance in float32
DUPLICATED = 8  # columns of the rank-deficient case that repeat the first ones


@pytest.fixture(scope="module")
def arrays(golden: Path) -> dict[str, np.ndarray]:
    with np.load(golden / "whitening.npz") as file:
        return dict(file)


def fit(x: np.ndarray) -> WhiteningFit:
    found = WhiteningFit(x.shape[1])
    for chunk in torch.from_numpy(x).split(300):
        found.add(chunk)
    return found


def aligned(found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Rows of `found` with the signs of the rows of `expected`."""
    return np.asarray(found * np.sign((found * expected).sum(axis=1, keepdims=True)))


def worst_row(found: np.ndarray, expected: np.ndarray) -> float:
    return max(relative_error(a, b) for a, b in zip(aligned(found, expected), expected, strict=True))


@pytest.mark.parametrize("strength", ["1.0", "0.5"])
def test_mean_projection_and_outputs(arrays: dict[str, np.ndarray], strength: str) -> None:
    found = fit(arrays["X"])
    assert relative_error(found.mean, arrays[f"m_s{strength}"][0]) <= 2e-6
    whole = found.finish(48, float(strength)).weight.numpy()
    assert worst_row(whole, arrays[f"P_s{strength}"].T) <= P_TOLERANCE
    whitened = found.finish(16, float(strength))(torch.from_numpy(arrays["X"][:50])).numpy()
    unit = whitened / np.linalg.norm(whitened, axis=1, keepdims=True)
    expected = arrays[f"whitened_s{strength}_d16"]
    assert absolute_error(aligned(unit.T, expected.T), expected.T) <= 5e-6


def test_as_a_convolution(arrays: dict[str, np.ndarray]) -> None:
    whitening = fit(arrays["X"]).finish(16)
    weight, bias = arrays["conv_weight"].reshape(16, 48), arrays["conv_bias"]
    signs = np.sign((whitening.weight.numpy() * weight).sum(axis=1))
    assert relative_error(whitening.weight.numpy() * signs[:, None], weight) <= P_TOLERANCE
    assert relative_error(whitening.bias.numpy() * signs, bias) <= 1e-5
    found = whitening(torch.from_numpy(arrays["X"][:50])).numpy() * signs
    assert relative_error(found, arrays["conv_out"]) <= 1e-5


def test_the_released_convolution_as_ours(arrays: dict[str, np.ndarray]) -> None:
    ours = Whitening(48, 16)
    ours.load_state_dict(
        {
            "weight": torch.from_numpy(arrays["conv_weight"].reshape(16, 48)),
            "bias": torch.from_numpy(arrays["conv_bias"]),
        }
    )
    assert relative_error(ours(torch.from_numpy(arrays["X"][:50])), arrays["conv_out"]) <= 1e-6


def test_cirtorch(arrays: dict[str, np.ndarray]) -> None:
    """It works in float64, so only our float32 result rounds."""
    found = fit(arrays["X"])
    assert absolute_error(found.mean, arrays["cirtorch_m"][:, 0]) <= 1e-12
    assert worst_row(found.finish(48).weight.numpy(), arrays["cirtorch_P"]) <= 1e-6
    oracle, _ = oracles.whitening(arrays["X"].astype(np.float64), 48)
    assert worst_row(oracle, arrays["cirtorch_P"]) <= 1e-9


def test_rank_deficient(arrays: dict[str, np.ndarray]) -> None:
    """With the last 8 columns equal to the first 8, nothing passes 1 / sqrt(the eigenvalues' floor)."""
    x = arrays["X"].copy()
    x[:, -DUPLICATED:] = x[:, :DUPLICATED]
    found = abs(fit(x).finish(48).weight.numpy()).max(axis=1)
    expected = arrays["Xr_P_absmax_per_component"]
    np.testing.assert_allclose(found[:-DUPLICATED], expected[:-DUPLICATED], rtol=P_TOLERANCE)
    for rows in (found[-DUPLICATED:], expected[-DUPLICATED:]):  # which vectors span the empty directions is arbitrary
        assert (rows <= 1e7).all()
        assert (rows >= 1e5).all()


def test_every_array_is_compared(arrays: dict[str, np.ndarray]) -> None:
    by_strength = {
        f"{name}_s{s}{tail}" for s in ("1.0", "0.5") for name, tail in (("m", ""), ("P", ""), ("whitened", "_d16"))
    }
    conv = {"conv_weight", "conv_bias", "conv_out"}
    assert set(arrays) == by_strength | conv | {"X", "Xr_P_absmax_per_component", "cirtorch_m", "cirtorch_P"}
