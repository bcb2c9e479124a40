"""FIRe and HOW, composed: against the oracles, with and without whitening; and the global vector."""

import numpy as np
import pytest
import torch
from torch import Tensor

import oracles
from fixtures_recipe import absolute_error, noise, relative_error
from superfeat.images import normalise
from superfeat.nets.fire import Fire
from superfeat.nets.how import How
from superfeat.nets.local import Local, pool, strength
from superfeat.weights import Network


def image(network: Network, height: int = 24, width: int = 20) -> Tensor:
    return torch.from_numpy(normalise(noise(height, width), *network.normalisation)).unsqueeze(0)


def test_fire_by_plain_loops(tiny_network: Network) -> None:
    module = tiny_network.module
    assert isinstance(module, Fire)
    assert module.whitening is not None
    with torch.inference_mode():
        local, x = module(image(tiny_network)), module.trunk(image(tiny_network))
    parameters = {name: value.numpy() for name, value in module.lit.state_dict().items()}
    raw, alpha = oracles.lit(x[0].flatten(1).T.numpy(), parameters, module.lit.rounds)
    weight, bias = module.whitening.weight.double().numpy(), module.whitening.bias.double().numpy()
    assert relative_error(local.vectors[0], raw @ weight.T + bias) <= 1e-5
    assert relative_error(local.strengths[0], [oracles.strength(one) for one in raw]) <= 1e-5
    assert local.maps is not None
    assert absolute_error(local.maps[0].flatten(1), alpha) <= 1e-6
    assert local.grid == (6, 5)


def test_how_by_plain_loops(tiny_how: Network) -> None:
    module = tiny_how.module
    assert module.whitening is not None
    with torch.inference_mode():
        local, x = module(image(tiny_how)), module.trunk(image(tiny_how))
    weight, bias = module.whitening.weight.double().numpy(), module.whitening.bias.double().numpy()
    vectors, strengths = oracles.how(x[0].double().numpy(), weight, bias)
    assert relative_error(local.vectors[0], vectors) <= 2e-6
    assert relative_error(local.strengths[0], strengths) <= 2e-6
    assert local.maps is None
    assert local.grid == (6, 5)


@pytest.mark.parametrize("size", [(1, 1), (1, 4), (3, 3), (2, 5)])
def test_smoothing_at_borders(tiny_how: Network, size: tuple[int, int]) -> None:
    module = How(tiny_how.module.trunk, None)
    x = torch.rand(1, 64, *size)
    with torch.inference_mode():
        local = module.describe(x)
    vectors, strengths = oracles.how(x[0].double().numpy(), None, None)
    assert relative_error(local.vectors[0], vectors) <= 1e-6
    assert relative_error(local.strengths[0], strengths) <= 1e-6


def test_without_whitening_raw_features_are_given(tiny_network: Network) -> None:
    module = tiny_network.module
    assert isinstance(module, Fire)
    with torch.inference_mode():
        local = Fire(module.trunk, module.lit, None)(image(tiny_network))
    assert local.vectors.shape == (1, 8, 16)
    torch.testing.assert_close(local.strengths, strength(local.vectors))


def test_global_vector_by_plain_loops(tiny_network: Network) -> None:
    with torch.inference_mode():
        scales = [tiny_network.module(image(tiny_network, *size)) for size in ((24, 20), (12, 10))]
    expected = oracles.pool([(one.vectors[0].double().numpy(), one.strengths[0].double().numpy()) for one in scales])
    assert absolute_error(pool(scales)[0], expected) <= 1e-6
    assert pool(scales)[0].norm().item() == pytest.approx(1)


def test_images_of_a_batch_are_pooled_apart() -> None:
    local = Local(torch.rand(3, 5, 4), torch.rand(3, 5), (1, 5), None)
    alone = [pool([Local(local.vectors[i : i + 1], local.strengths[i : i + 1], (1, 5), None)]) for i in range(3)]
    torch.testing.assert_close(pool([local]), torch.cat(alone))


def test_strength_has_a_finite_gradient_at_zero() -> None:
    x = torch.zeros(2, 3, requires_grad=True)
    strength(x).sum().backward()
    assert x.grad is not None
    assert torch.isfinite(x.grad).all()
    np.testing.assert_allclose(strength(x).detach(), 1e-5)


def test_who_recomputes_the_scale() -> None:
    assert Fire.recompute_scale is False
    assert How.recompute_scale is True
