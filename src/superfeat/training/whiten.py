"""Learns a network's whitening from photos: a stream of raw features -> an affine map."""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float32, Int64
from torch import nn

from superfeat.config import DEFAULT_PROFILE, POINTS_PER_SIDE, WHITENED_DIM, WHITENING_IMAGES, ExtractConfig
from superfeat.errors import SuperfeatError
from superfeat.extraction.extract import EVERY_FEATURE, Photos, as_photos, extract
from superfeat.images import Photo, Skipped
from superfeat.methods import profile_for
from superfeat.nets.fire import Fire
from superfeat.nets.pair_whitening import whiten_pairs
from superfeat.nets.points import APART, PointNetwork, Points
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
    settings = dataclasses.replace(network.config, whitened_dim=None, points=None)
    return dataclasses.replace(network, module=bare, config=settings)


def fit_pair_whitening(
    network: Network,
    photos: Sequence[Photo],
    pairs: Int64[np.ndarray, "pairs 2"],
    *,
    dim: int | None = None,
    max_side: int = ExtractConfig().max_side,
    scales: tuple[float, ...] | None = None,
    workers: int | None = None,
    device: str = "cpu",
    on_skip: Callable[[Skipped], None] | None = None,
    on_image: Callable[[int], None] = lambda done: None,
) -> Network:
    """A network of one vector per photo with a whitening learned from pairs that show the same thing (Lw)."""
    if not network.one_vector:
        raise SuperfeatError("only vectors of whole photos are whitened by pairs; local features by themselves")
    raw = without_whitening(network)
    wanted = profile_for(network.config.method, "paper")
    config = dataclasses.replace(wanted, max_side=max_side, scales=scales or wanted.scales)
    needed = [photos[number] for number in np.unique(pairs)]
    found = {}
    for done, features in enumerate(extract(raw, needed, config, workers=workers, device=device, on_skip=on_skip), 1):
        found[features.name] = features.vectors[0]
        on_image(done)
    return learned_from_pairs(network, found, [(photos[q].name, photos[p].name) for q, p in pairs.tolist()], dim)


def learned_from_pairs(
    network: Network,
    vectors: Mapping[str, Float32[np.ndarray, " dim"]],
    pairs: Sequence[tuple[str, str]],
    dim: int | None,
) -> Network:
    """The same from raw vectors that are there, by name; pairs without them are passed over."""
    raw = without_whitening(network)
    known = [pair for pair in pairs if pair[0] in vectors and pair[1] in vectors]
    names = list(vectors)
    outputs = raw.dim if dim is None else dim
    if not known or not 1 <= outputs <= raw.dim:
        raise SuperfeatError(f"cannot whiten vectors of {raw.dim} dimensions to {outputs} from {len(known)} pairs")
    number = {name: place for place, name in enumerate(names)}
    queries, positives = (torch.tensor([number[pair[side]] for pair in known]) for side in (0, 1))
    stacked = torch.from_numpy(np.stack([vectors[name] for name in names]))
    if stacked.shape[1] != raw.dim:
        raise SuperfeatError(f"these vectors have {stacked.shape[1]} dimensions, and the network's {raw.dim}")
    module = raw.module
    module.whitening = whiten_pairs(stacked, queries, positives, outputs)
    made = f"learned from {len(known)} pairs of {len(names)} photos"
    provenance = {**network.provenance, "whitening": made}
    return Network(module, dataclasses.replace(raw.config, whitened_dim=outputs), provenance)


def fit_whitening(
    network: Network,
    photos: Photos,
    *,
    dim: int = WHITENED_DIM,
    images: int = WHITENING_IMAGES,
    max_side: int = ExtractConfig().max_side,
    workers: int | None = None,
    device: str = "cpu",
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
    for done, features in enumerate(extract(raw, chosen, config, workers=workers, device=device, on_skip=on_skip), 1):
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


def fit_points(
    network: Network,
    photos: Photos,
    *,
    per_side: float = POINTS_PER_SIDE,
    images: int = WHITENING_IMAGES,
    config: ExtractConfig = ExtractConfig.profile(DEFAULT_PROFILE),  # noqa: B008 - frozen
    workers: int | None = None,
    device: str = "cpu",
    on_skip: Callable[[Skipped], None] | None = None,
    on_image: Callable[[int], None] = lambda done: None,
) -> Network:
    """FIRe with points beside its super-features: their whitening is learned from the points of the first photos."""
    module, dim = network.module, network.config.whitened_dim
    if not isinstance(module, Fire) or dim is None:
        raise SuperfeatError("points are added to a FIRe network with its whitening, before it is exported")
    bare = dataclasses.replace(network.config, method="how", lit=None, whitened_dim=None, points=None)
    raw = Network(PointNetwork(module.trunk, per_side), bare)
    fit = WhiteningFit(module.trunk.channels)
    every = dataclasses.replace(config, features_per_image=EVERY_FEATURE, features_per_scale=None)
    chosen = itertools.islice(as_photos(photos), images)
    done = 0
    for done, features in enumerate(extract(raw, chosen, every, workers=workers, device=device, on_skip=on_skip), 1):
        fit.add(torch.from_numpy(features.vectors.copy()))
        on_image(done)
    if fit.count < module.trunk.channels:
        raise SuperfeatError(
            f"{fit.count} points are too few to whiten {module.trunk.channels} dimensions; give more or larger photos"
        )
    whitening = fit.finish(dim)
    whitening.bias.add_(APART)
    both = Fire(module.trunk, module.lit, module.whitening, Points(whitening, per_side)).eval()
    made = f"whitened by {fit.count} of them, of {done} photos at {config.max_side} px"
    settings = dataclasses.replace(network.config, points=float(per_side))
    return Network(both, settings, {**network.provenance, "points": made})
