"""The network that training begins with: given weights or a new one, with batch-norm statistics and a whitening."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from superfeat.config import VECTOR_METHODS, NetworkConfig, Recipe, TrainingConfig
from superfeat.errors import SuperfeatError, WeightsError
from superfeat.images import Photo
from superfeat.methods import method_of
from superfeat.nets.fire import Fire
from superfeat.nets.training import stage_maps
from superfeat.nets.trunk import ResNet
from superfeat.training.inputs import PhotoInputs
from superfeat.training.whiten import fit_whitening
from superfeat.weights import Network, build_module, load_network

PLAIN_VECTOR = "spoc"  # a method that has a whole trunk and nothing else
NEW = "new"  # the name of no weights
NORM_BATCHES, NORM_BATCH = 4, 16


def fit_recipe(recipe: Recipe) -> tuple[Recipe, Network | None]:
    """The recipe with the trunk of its weights, and those weights; WeightsError where they contradict each other."""
    if recipe.weights in (None, NEW):
        _require_points(recipe.network, None, NEW)
        return recipe, None
    given = _load(str(recipe.weights), recipe.network)
    if not isinstance(given.module, nn.Module):
        raise WeightsError(
            f"{recipe.weights} is an exported network, which cannot be trained; give the one it came from"
        )
    _require_fit(recipe.network, given.config, str(recipe.weights))
    _require_points(recipe.network, given.config.points, str(recipe.weights))
    network = dataclasses.replace(recipe.network, trunk=given.config.trunk)
    return dataclasses.replace(recipe, network=network), given


def _load(source: str, wanted: NetworkConfig) -> Network:
    """The weights; of a trunk file all stages that the recipe's method needs."""
    given = load_network(source)
    whole = wanted.method in VECTOR_METHODS and given.config.method == "how" and given.config.whitened_dim is None
    if whole and given.config.trunk.stages < wanted.trunk.stages:
        return load_network(source, method=PLAIN_VECTOR)
    return given


def _require_fit(wanted: NetworkConfig, given: NetworkConfig, source: str) -> None:
    facts = [
        (f"network.trunk.{name}", getattr(wanted.trunk, name), getattr(given.trunk, name))
        for name in ("arch", "stages")
    ]
    if wanted.lit is not None and given.lit is not None:
        names = ("templates", "dim", "update")
        facts += [(f"network.lit.{name}", getattr(wanted.lit, name), getattr(given.lit, name)) for name in names]
    if wanted.pooling is not None and given.pooling is not None and wanted.method == given.method:
        ours, theirs = wanted.pooling, given.pooling
        facts += [(f"network.pooling.{name}", getattr(ours, name), getattr(theirs, name)) for name in ("kind", "layer")]
    if given.whitened_dim is not None:
        facts.append(("network.whitened_dim", wanted.whitened_dim, given.whitened_dim))
    for name, mine, other in facts:
        if mine != other:
            raise WeightsError(
                f"{source} does not fit the recipe: {name} is {mine}, the weights have {other}; set one as the other"
            )


def _require_points(wanted: NetworkConfig, given: float | None, source: str) -> None:
    """Points are trained where the weights have them; a network that has none gets them afterwards."""
    if wanted.points is not None and wanted.points != given:
        raise WeightsError(
            f"{source} does not fit the recipe: network.points is {wanted.points}, the weights have {given}; "
            "`superfeat weights points` adds them to a network"
        )


def build_start(recipe: Recipe, given: Network | None) -> Network:
    """The recipe's network: parts that `given` has are copied from it, others are new, by the recipe's seed."""
    config = dataclasses.replace(recipe.network, whitened_dim=None, points=None)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.training.seed)
        module = build_module(config)
        if isinstance(module, Fire):
            with torch.no_grad():
                module.lit.templates.mul_(recipe.training.template_scale)
    origin = "a new network" if recipe.weights in (None, NEW) else str(recipe.weights)
    if given is not None:
        state = given.module.state_dict()
        same = given.config.method == config.method
        parts = ("trunk.", *(method_of(config.method).learned if same else ()))
        module.load_state_dict(
            {**module.state_dict(), **{name: state[name] for name in state if name.startswith(parts)}}
        )
        if given.config.whitened_dim is not None and same:
            module.whitening = given.module.whitening
            if recipe.network.points is not None:
                module.points = given.module.points
            config = recipe.network
    return Network(module, config, {**({} if given is None else given.provenance), "start": origin})


def prepare_start(
    recipe: Recipe, given: Network | None, photos: Sequence[Photo], workers: int, device: str = "cpu"
) -> Network:
    """The network to begin with: its batch-norms settled if it is new, whitened if it was not."""
    start = build_start(recipe, given)
    training = recipe.training
    order = np.random.default_rng((training.seed, 1)).permutation(len(photos))
    shuffled = [photos[number] for number in order]
    if given is None:
        inputs = PhotoInputs(shuffled, training.max_side, start.normalisation)
        settle_batch_norms(start.module.trunk, inputs, training.max_side)
    if start.config.whitened_dim is None and not start.one_vector:
        assert recipe.network.whitened_dim is not None
        start = fit_whitening(
            start,
            shuffled,
            dim=recipe.network.whitened_dim,
            images=training.whitening_images,
            max_side=training.max_side,
            workers=workers,
            device=device,
        )
    return start


@torch.no_grad()
def settle_batch_norms(trunk: Any, inputs: PhotoInputs, side: int) -> None:
    """Batch-norm statistics of a new trunk, from photos scaled to squares; training keeps them frozen."""
    norms = [module for module in trunk.modules() if isinstance(module, nn.BatchNorm2d)]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the plain mean over all batches
    trunk.train()
    for batch in range(NORM_BATCHES):
        numbers = [n % len(inputs.photos) for n in range(batch * NORM_BATCH, (batch + 1) * NORM_BATCH)]
        squares = [nn.functional.interpolate(inputs(n).unsqueeze(0), (side, side), mode="bilinear") for n in numbers]
        trunk(torch.cat(squares))
    trunk.eval()
    for norm in norms:
        norm.momentum = 0.1


def frozen_part(network: Network, config: TrainingConfig, device: str) -> Callable[[Tensor], Tensor]:
    """What is frozen of the trunk, from pixels to the maps that are stored: all of it, or its first stages."""
    trunk = network.module.trunk
    if not config.stored_maps:
        whole: Callable[[Tensor], Tensor] = network.on(device).trunk  # type: ignore[attr-defined]
        return whole
    if type(trunk) is not ResNet:
        raise SuperfeatError(f"maps of the first stages are stored of a ResNet, not of a {type(trunk).__name__}")
    return stage_maps(trunk, config.frozen_stages, device)
