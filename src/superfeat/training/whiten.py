"""Learns a network's whitening from photos: a stream of raw features -> an affine map."""

import dataclasses
import itertools
from collections.abc import Callable

import torch
from torch import nn

from superfeat.config import WHITENED_DIM, WHITENING_IMAGES, ExtractConfig
from superfeat.errors import SuperfeatError
from superfeat.extraction.extract import EVERY_FEATURE, Photos, as_photos, extract
from superfeat.images import Skipped
from superfeat.nets.whitening import WhiteningFit
from superfeat.weights import Network


def without_whitening(network: Network) -> Network:
    """The same network, giving raw features."""
    module = network.module
    if not isinstance(module, nn.Module):
        raise SuperfeatError(
            "an exported network cannot be whitened; whiten the network that it came from and export again"
        )
    bare = module.on(module.trunk, None).eval()
    return dataclasses.replace(network, module=bare, config=dataclasses.replace(network.config, whitened_dim=None))


def fit_whitening(
    network: Network,
    photos: Photos,
    *,
    dim: int = WHITENED_DIM,
    images: int = WHITENING_IMAGES,
    max_side: int = ExtractConfig().max_side,
    workers: int | None = None,
    on_skip: Callable[[Skipped], None] | None = None,
    on_image: Callable[[int], None] = lambda done: None,
) -> Network:
    """The network with a whitening to `dim` learned from the raw scale-1 features of the first `images` photos."""
    raw = without_whitening(network)
    if not 1 <= dim <= raw.dim:
        raise SuperfeatError(f"cannot whiten features of {raw.dim} dimensions to {dim}")
    config = ExtractConfig(features_per_image=EVERY_FEATURE, max_side=max_side, scales=(1.0,))
    fit = WhiteningFit(raw.dim)
    chosen = itertools.islice(as_photos(photos), images)
    for done, features in enumerate(extract(raw, chosen, config, workers=workers, on_skip=on_skip), 1):
        fit.add(torch.from_numpy(features.vectors.copy()))
        on_image(done)
    if fit.count < raw.dim:
        raise SuperfeatError(
            f"{fit.count} features are too few to whiten {raw.dim} dimensions; give more or larger photos"
        )
    module = raw.module
    module.whitening = fit.finish(dim)
    provenance = {
        **network.provenance,
        "whitening": f"learned from {fit.count} features of {done} photos at {max_side} px",
    }
    return Network(module, dataclasses.replace(raw.config, whitened_dim=dim), provenance)
