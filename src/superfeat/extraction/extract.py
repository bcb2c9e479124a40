"""Photos -> features: decode, scale pyramid, network, strongest. One Features per photo, in the order given.

Each scale of each photo is one task on one thread. So the result cannot depend on the number of workers, a single
photo still uses all cores, and no more than `workers` maps are in memory at once.
"""

import collections
import contextlib
import dataclasses
import functools
import json
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float32, UInt8
from torch import Tensor

from superfeat.addresses.address import Address, Where, address_of
from superfeat.addresses.text import is_remote
from superfeat.config import DEFAULT_PROFILE, ExtractConfig
from superfeat.errors import SuperfeatError
from superfeat.extraction.decode import Decoded, decode, read_for
from superfeat.extraction.folder import UNSEEN, FeatureFacts, feature_writer, photo_stamp
from superfeat.extraction.joining import FeatureKind, ScaleFeatures, join_scales
from superfeat.extraction.memory import BYTES_PER_WORKER as BYTES_PER_WORKER
from superfeat.extraction.memory import default_workers as default_workers
from superfeat.extraction.memory import keep_memory as keep_memory
from superfeat.extraction.precision import in_precision
from superfeat.extraction.scaling import ROUNDED, find_regions, resize
from superfeat.features import Features
from superfeat.images import Photo, Skipped, none_read, normalise, scaled_size
from superfeat.methods import method_of
from superfeat.nets.local import Local
from superfeat.settings import as_dict
from superfeat.sources.listing import list_photos
from superfeat.threads import worker_pool
from superfeat.weights import Network

DECODERS = 2
EVERY_FEATURE = 1 << 30
Photos = str | Path | Iterable[str | Where | Photo]


def extract(
    network: Network,
    photos: Photos,
    config: ExtractConfig = ExtractConfig.profile(DEFAULT_PROFILE),  # noqa: B008 - frozen
    *,
    workers: int | None = None,
    device: str = "cpu",
    on_skip: Callable[[Skipped], None] | None = None,
) -> Iterator[Features]:
    """Yields the features of each photo. One that cannot be read is skipped: `on_skip` is told, or a warning given.

    `photos` are paths, or one folder, archive, pattern or list file. Raises ImageError only if no photo could be read.
    """
    done, reasons = 0, []
    for outcome in _run(network, _each(photos), config, workers, device):
        if isinstance(outcome, Features):
            done += 1
            yield outcome
        else:
            reasons.append(outcome)
            if on_skip is None:
                warnings.warn(f"skipped {outcome.name}: {outcome.reason}", stacklevel=2)
            else:
                on_skip(outcome)
    _require_one(done, reasons)


def extract_image(
    network: Network,
    source: str | Where | bytes,
    config: ExtractConfig,
    *,
    name: str = "",
    workers: int | None = None,
    device: str = "cpu",
) -> Features:
    """The features of one photo, given as a file or as its bytes: the same as `extract` gives. ImageError if none."""
    return _extract_decoded(network, read_for(config, source), config, name, workers, device)


def extract_pixels(
    network: Network,
    pixels: UInt8[np.ndarray, "height width 3"],
    config: ExtractConfig,
    *,
    name: str = "",
    workers: int | None = None,
    device: str = "cpu",
) -> Features:
    """The same of pixels that are in memory, as large as they are."""
    return _extract_decoded(network, Decoded(pixels, None), config, name, workers, device)


def _extract_decoded(
    network: Network, decoded: Decoded, config: ExtractConfig, name: str, workers: int | None, device: str
) -> Features:
    require_device(device)
    network = in_precision(network, config)
    with _runners(network, workers, device) as (module, runners, _):
        pending = _start(module, network, decoded, config, runners, device)
        return _finish(network, name, pending, config)


def extract_to(
    path: str | Path,
    network: Network,
    photos: Photos,
    config: ExtractConfig = ExtractConfig.profile(DEFAULT_PROFILE),  # noqa: B008 - frozen
    *,
    workers: int | None = None,
    device: str = "cpu",
    run: Callable[[Iterable[Photo]], Iterator[Features | Skipped]] | None = None,
) -> Iterator[Features | Skipped]:
    """Extracts into a features folder, passing on each outcome as it is safe on disk. What is there is not redone.

    `run` extracts in the place of this machine: an outcome for each photo, in their order.
    """
    if config.attention == "maps":
        raise SuperfeatError("attention maps are too large to store; keep 'regions', or take the maps from extract()")
    run = run or functools.partial(_run, network, config=config, workers=workers, device=device)
    yield from _extract_to(path, network, photos, config, False, lambda features: features, run)


def pool_to(
    path: str | Path,
    network: Network,
    photos: Photos,
    config: ExtractConfig,
    *,
    workers: int | None = None,
    device: str = "cpu",
) -> Iterator[Features | Skipped]:
    """The same with one feature per image: its global vector (eq. 1), pooled over all features of all scales."""
    every = dataclasses.replace(config, features_per_image=EVERY_FEATURE, features_per_scale=None, attention="none")
    every = dataclasses.replace(every, precision=None)  # an exported network cannot leave its points out
    plain = network.without_points()
    run = functools.partial(_run, plain, config=every, workers=workers, device=device)
    yield from _extract_to(path, plain, photos, every, True, pool_features, run)


def pool_features(features: Features) -> Features:
    """One feature: the L2-normalised sum of strength x vector."""
    total = features.strengths.astype(np.float64) @ features.vectors.astype(np.float64)
    vector = (total / max(float(np.linalg.norm(total)), 1e-12)).astype(np.float32)
    one = np.ones(1, np.float32)
    return dataclasses.replace(
        features, vectors=vector[None], strengths=one, scales=one, ids=np.zeros(1, np.int32), regions=None, maps=None
    )


def _extract_to(
    path: str | Path,
    network: Network,
    photos: Photos,
    config: ExtractConfig,
    pooled: bool,
    finish: Callable[[Features], Features],
    run: Callable[[Iterable[Photo]], Iterator[Features | Skipped]],
) -> Iterator[Features | Skipped]:
    facts: FeatureFacts = {"network": {"digest": network.digest, **as_dict(network.config)}, "extract": as_dict(config)}
    if pooled:
        facts["pooled"] = True
    reasons = []
    with feature_writer(
        path,
        json.loads(json.dumps(facts)),
        network.dim,
        regions=config.attention == "regions" and not network.one_vector,
    ) as writer:
        every = {photo.name: photo for photo in as_photos(photos)}
        stamps = {name: photo_stamp(photo.where) for name, photo in every.items()}
        todo = [photo for name, photo in every.items() if not writer.has(name, stamps[name])]
        for outcome in run(todo):
            if isinstance(outcome, Features):
                outcome = finish(outcome)
                writer.add(outcome, stamps[outcome.name])
            else:
                where = every[outcome.name].where
                again = isinstance(where, Address) and where.is_remote  # it may only have been out of reach
                writer.skip(outcome, UNSEEN if again else stamps[outcome.name])
                reasons.append(outcome)
            yield outcome
        writer.finish()
        _require_one(sum(entry.skipped is None for entry in writer.entries.values()), reasons)


def as_photos(photos: Photos) -> list[Photo]:
    """Paths as they are given; a single string or path may be a folder, a glob pattern or a list."""
    return list(_each(photos))


def _each(photos: Photos) -> Iterator[Photo]:
    """The same one by one, as they are asked for."""
    if isinstance(photos, (str, Path)):
        photos = list_photos([photos]).photos
    for photo in photos:
        if isinstance(photo, Photo):
            yield photo
        else:
            where = address_of(photo)
            yield Photo(where, str(where if is_remote(photo) else photo))


def _require_one(done: int, reasons: list[Skipped]) -> None:
    if reasons and not done:
        raise none_read(reasons)


def require_device(device: str) -> None:
    """SuperfeatError if torch cannot work there."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise SuperfeatError(f"device '{device}' cannot be used here ({reason}); 'cpu' always can") from error


def _run(
    network: Network, photos: Iterable[Photo], config: ExtractConfig, workers: int | None, device: str
) -> Iterator[Features | Skipped]:
    """The pipeline: decoding runs ahead of the network, the network's tasks ahead of the selection."""
    require_device(device)
    network = in_precision(network, config)
    decoding: collections.deque[tuple[Photo, Future[Decoded | Skipped]]] = collections.deque()
    working: collections.deque[tuple[Photo, Skipped | _Pending]] = collections.deque()
    coming = iter(photos)
    with worker_pool(DECODERS) as decoders, _runners(network, workers, device) as (module, runners, count):
        while True:
            while len(decoding) < count + DECODERS and (photo := next(coming, None)) is not None:
                decoding.append((photo, decoders.submit(decode, photo, config)))
            while decoding and len(working) <= count:
                photo, decoded = decoding.popleft()
                outcome = decoded.result()
                if isinstance(outcome, Skipped):
                    working.append((photo, outcome))
                else:
                    working.append((photo, _start(module, network, outcome, config, runners, device)))
            if not working:
                return
            photo, pending = working.popleft()
            yield pending if isinstance(pending, Skipped) else _finish(network, photo.name, pending, config)


@contextlib.contextmanager
def _runners(
    network: Network, workers: int | None, device: str
) -> Iterator[tuple[Callable[[Tensor], Local], ThreadPoolExecutor, int]]:
    """The module, and the threads that run it, a scale at a time."""
    module = network.on(device)
    workers = 1 if device != "cpu" else workers or default_workers()
    threads = torch.get_num_threads()
    try:
        with worker_pool(workers, lambda: torch.set_num_threads(1)) as runners:
            yield module, runners, workers
    finally:
        torch.set_num_threads(threads)  # the workers' setting reaches parts of torch that all threads share


class _Pending(NamedTuple):
    image_size: tuple[int, int]
    scales: list[float]
    parts: "list[Future[ScaleFeatures]]"
    note: str | None


def _start(
    module: Callable[[Tensor], Local],
    network: Network,
    decoded: Decoded,
    config: ExtractConfig,
    runners: ThreadPoolExecutor,
    device: str,
) -> "_Pending":
    """Hands each scale of a decoded photo to the workers."""
    height, width = decoded.pixels.shape[:2]
    scales = [scale for scale in config.scales if min(scaled_size(height, width, scale)) >= 1]
    image = torch.from_numpy(normalise(decoded.pixels, *network.normalisation)).unsqueeze(0).to(device)
    rounded = method_of(network.config.method).round_sizes
    stride = network.stride if rounded else None
    recompute: bool | str = ROUNDED if rounded else network.module.recompute_scale
    attention = "none" if network.one_vector else config.attention
    parts = [runners.submit(_run_scale, module, image, scale, recompute, attention, stride) for scale in scales]
    return _Pending((width, height), scales, parts, decoded.note)


@torch.inference_mode()
def _run_scale(
    module: Callable[[Tensor], Local],
    image: Float[Tensor, "1 3 height width"],
    scale: float,
    recompute: bool | str,
    attention: str,
    stride: int | None,
) -> ScaleFeatures:
    local = module(resize(image, scale, recompute))
    height, width = image.shape[-2:]
    steps = None if stride is None else (stride / (scale * height), stride / (scale * width))
    regions = None if attention == "none" else find_regions(local, steps).cpu().numpy()
    maps = local.maps[0].cpu().numpy() if attention == "maps" and local.maps is not None else None
    return ScaleFeatures(local.vectors[0].cpu().numpy(), local.strengths[0].cpu().numpy(), regions, maps, local.grid)


def _one_vector(network: Network, name: str, pending: _Pending, vectors: Float32[np.ndarray, "scales dim"]) -> Features:
    """The photo's only feature, from the vectors of its scales."""
    one, vector = np.ones(1, np.float32), network.combine(vectors)
    facts = {"image_size": pending.image_size, "network": network.digest, "note": pending.note}
    return Features(name, vector[None], one, one, np.zeros(1, np.int32), **facts)  # type: ignore[arg-type]


def _finish(network: Network, name: str, pending: _Pending, config: ExtractConfig) -> Features:
    """The features that are kept, strongest first; equal ones in the order of scale and ID."""
    parts = [part.result() for part in pending.parts]
    if network.one_vector:
        return _one_vector(network, name, pending, np.concatenate([part.vectors for part in parts]))
    kind = FeatureKind(
        network.dim,
        network.superfeatures,
        network.config.points is not None,
        method_of(network.config.method).relative_strengths,
    )
    found = join_scales(kind, pending.scales, parts, config)
    size, digest = pending.image_size, network.digest
    return dataclasses.replace(found, name=name, image_size=size, network=digest, note=pending.note)
