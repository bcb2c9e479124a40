"""LIT: sizes, options, and what the definition promises; the numbers are in the property and golden tests."""

import pytest
import torch

import oracles
from fixtures_recipe import absolute_error
from superfeat.config import LitConfig
from superfeat.nets.lit import Lit


def test_the_papers_size() -> None:
    with torch.device("meta"):
        settings = LitConfig()
        lit = Lit(1024, settings.templates, settings.rounds, settings.dim)
    assert sum(value.numel() for value in lit.parameters()) == 4_464_128
    assert (lit.templates.shape, lit.rounds) == ((256, 1024), 6)


def test_shapes() -> None:
    found, maps = Lit(12, templates=5, rounds=2, dim=8)(torch.randn(3, 12, 4, 7))
    assert found.shape == (3, 5, 8)
    assert maps.shape == (3, 5, 4, 7)


def test_each_map_sums_to_one() -> None:
    _, maps = Lit(12, templates=5, rounds=2, dim=8)(torch.randn(2, 12, 4, 7))
    torch.testing.assert_close(maps.sum(dim=(2, 3)), torch.ones(2, 5))


def test_one_place_has_all_attention() -> None:
    _, maps = Lit(12, templates=5, rounds=2, dim=8)(torch.randn(1, 12, 1, 1))
    torch.testing.assert_close(maps, torch.ones(1, 5, 1, 1))


def test_images_of_a_batch_do_not_meet() -> None:
    lit = Lit(12, templates=5, rounds=2, dim=8)
    images = torch.randn(3, 12, 4, 7)
    together, _ = lit(images)
    for number in range(3):
        alone, _ = lit(images[number : number + 1])
        torch.testing.assert_close(together[number], alone[0])


def test_folding_keys_and_values_changes_neither_outputs_nor_gradients() -> None:
    """By the definition repeating every place changes nothing; it takes 6 places over rounds x templates = 12."""
    torch.manual_seed(0)
    lit = Lit(12, templates=4, rounds=3, dim=8)
    x = torch.randn(1, 12, 2, 3)
    few, few_maps = lit(x)
    few.square().sum().backward()
    expected = {name: value.grad for name, value in lit.named_parameters()}
    lit.zero_grad()
    many, many_maps = lit(x.repeat(1, 1, 5, 1))
    many.square().sum().backward()
    torch.testing.assert_close(many, few)
    torch.testing.assert_close(many_maps.unflatten(2, (5, 2)).sum(dim=2), few_maps)
    # The bias of norm_templates moves every logit of a place alike, so that its gradient is rounding alone.
    rounding = 1e-6 * max(float(value.abs().max()) for value in expected.values() if value is not None)
    for name, value in lit.named_parameters():
        torch.testing.assert_close(value.grad, expected[name], rtol=1e-4, atol=rounding, msg=name)


def test_templates_may_be_frozen() -> None:
    lit = Lit(12, rounds=6, templates=5, dim=8, frozen_templates=True)
    lit(torch.randn(1, 12, 2, 2))[0].sum().backward()
    assert lit.templates.grad is None
    assert lit.query.weight.grad is not None


def test_the_gru_is_an_option() -> None:
    plain, gru = Lit(12, rounds=6, templates=5, dim=8), Lit(12, rounds=6, templates=5, dim=8, update="gru")
    assert plain.gru is None
    assert gru.gru is not None
    assert {name.split(".")[0] for name in gru.state_dict()} - {name.split(".")[0] for name in plain.state_dict()} == {
        "gru"
    }


@pytest.mark.parametrize("update", ["residual", "gru"])
@pytest.mark.parametrize("size", [(1, 2), (4, 4)])
def test_against_plain_loops(update: str, size: tuple[int, int]) -> None:
    torch.manual_seed(1)
    lit = Lit(10, templates=3, rounds=3, dim=6, update=update)  # type: ignore[arg-type]
    x = torch.randn(1, 10, *size)
    with torch.inference_mode():
        found, maps = lit(x)
    parameters = {name: value.detach().numpy() for name, value in lit.state_dict().items()}
    expected, alpha = oracles.lit(x[0].flatten(1).T.numpy(), parameters, rounds=3)
    assert absolute_error(found[0], expected) <= 1e-5
    assert absolute_error(maps[0].flatten(1), alpha) <= 1e-6
