"""Stages of a trunk that stay as they are: the same features, the same gradient for the rest, none for themselves."""

import copy
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from fixtures_recipe import recipe_network, relative_error
from superfeat.config import LitConfig, NetworkConfig, TrunkConfig
from superfeat.nets.fire import Fire
from superfeat.nets.training import FrozenStages, for_training, freeze_stages, run_folded
from superfeat.nets.trunk import ResNet
from superfeat.weights import Network

LIT = LitConfig(templates=6, rounds=2, dim=16)


@pytest.fixture(params=[("resnet18", 2), ("resnet50", 1)], ids=str, scope="module")
def network(request: pytest.FixtureRequest) -> Network:
    arch, stages = request.param
    return recipe_network(NetworkConfig("fire", TrunkConfig(arch, stages), LIT, whitened_dim=6))


@pytest.fixture
def images() -> Tensor:
    return torch.randn(2, 3, 33, 47, generator=torch.Generator().manual_seed(0))


def own(network: Network) -> Fire:
    """One to be frozen: others go on with theirs."""
    assert isinstance(network.module, Fire)
    return copy.deepcopy(network.module)


def trunk_of(module: nn.Module) -> ResNet:
    trunk = module.trunk
    assert isinstance(trunk, ResNet)
    return trunk


def by_stages(trunk: ResNet, images: Tensor, stages: int) -> Tensor:
    """Module after module, as the trunk itself has it."""
    x: Tensor = trunk.maxpool(trunk.bn1(trunk.conv1(images)).relu())
    for name in trunk.stage_names[:stages]:
        x = trunk.get_submodule(name)(x)
    return x


def names_with_gradient(trunk: nn.Module) -> set[str]:
    return {name.split(".")[0] for name, value in trunk.named_parameters() if value.requires_grad}


@pytest.mark.parametrize("stages", [0, 1, 2])
def test_frozen_stages_give_the_trunk_s_own_numbers(network: Network, images: Tensor, stages: int) -> None:
    trunk, before = trunk_of(network.module), images.clone()
    found = FrozenStages(trunk, stages)(images)
    with torch.no_grad():
        assert relative_error(found, by_stages(trunk, images, stages)) <= 2e-6
    assert not found.requires_grad
    assert torch.equal(images, before)


@pytest.mark.parametrize("stages", [1, 2, 9])
def test_the_rest_goes_on_from_there(network: Network, images: Tensor, stages: int) -> None:
    """More stages than there are freeze the whole trunk."""
    trunk = trunk_of(network.module)
    found = run_folded(trunk, images, FrozenStages(trunk, stages))
    with torch.no_grad():
        assert relative_error(found.detach(), trunk(images)) <= 5e-6
    assert found.requires_grad == (stages < len(trunk.stage_names))


def test_frozen_stages_are_taken_as_they_are_now(network: Network, images: Tensor) -> None:
    """A copy: what becomes of the trunk later does not change it, and it leaves the trunk as it was."""
    module = own(network)
    before = copy.deepcopy(module.state_dict())
    frozen = FrozenStages(trunk_of(module), 1)
    first = frozen(images)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(1)
    assert torch.equal(frozen(images), first)


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_the_network_gives_the_same_features(network: Network, images: Tensor, precision: str) -> None:
    whole = for_training(network.module, precision=precision)(images)
    frozen = for_training(network.module, precision=precision, frozen_stages=1)(images)
    tolerance = 2e-5 if precision == "float32" else 0.1  # frozen stages keep more digits than bf16 has
    assert frozen.grid == whole.grid
    assert relative_error(frozen.vectors.detach().float(), whole.vectors.detach().float()) <= tolerance
    assert relative_error(frozen.strengths.detach().float(), whole.strengths.detach().float()) <= tolerance


def gradients(module: Fire, images: Tensor, stages: int, wanted: Sequence[str]) -> list[Tensor]:
    local = for_training(module, frozen_stages=stages)(images)
    values = dict(module.named_parameters())
    return list(torch.autograd.grad(local.vectors.square().sum(), [values[name] for name in wanted]))


def test_the_gradient_of_the_rest_is_the_same(network: Network, images: Tensor) -> None:
    module = own(network)
    freeze_stages(trunk_of(module), 1)
    wanted = [name for name, value in module.named_parameters() if value.requires_grad]
    found, expected = gradients(module, images, 1, wanted), gradients(own(network), images, 0, wanted)
    whole = (torch.cat([part.flatten() for part in parts]) for parts in (found, expected))
    assert relative_error(*whole) <= 1e-4


def test_what_is_frozen_has_no_gradient(network: Network) -> None:
    stages = trunk_of(network.module).stage_names
    for count in range(len(stages) + 2):
        module = own(network)
        freeze_stages(trunk_of(module), count)
        expected = {*stages[count:], *(() if count else ("conv1", "bn1"))}
        assert names_with_gradient(trunk_of(module)) == expected
        assert all(value.requires_grad for value in module.lit.parameters())


def test_a_trunk_of_another_kind_is_left_alone() -> None:
    other = nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU())
    freeze_stages(other, 1)
    assert all(value.requires_grad for value in other.parameters())


def test_how_has_frozen_stages_too(images: Tensor) -> None:
    network = recipe_network(NetworkConfig("how", TrunkConfig("resnet18", 2), None, whitened_dim=6))
    whole, frozen = (for_training(network.module, frozen_stages=count)(images) for count in (0, 1))
    assert frozen.maps is None
    assert relative_error(frozen.vectors.detach(), whole.vectors.detach()) <= 1e-5
