"""Vectors of whole photos for `benchmarks.methods`: all poolings from one pass of the trunk over each photo."""

import contextlib
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from superfeat.config import ExtractConfig
from superfeat.datasets.retrieval_set import RetrievalSet, read_gnd_json
from superfeat.evaluation.searching import own_names, renamed
from superfeat.extraction.decode import decode
from superfeat.extraction.folder import FeatureWriter, feature_writer, photo_stamp
from superfeat.extraction.scaling import resize
from superfeat.features import Features
from superfeat.images import Photo, Skipped, normalise
from superfeat.methods.vectors import DOWN
from superfeat.nets.fused import for_inference
from superfeat.settings import as_dict
from superfeat.weights import Network, load_network

TRUNK = "imagenet-resnet50"
VECTORS = ("gem", "rmac")


def sets_of(data: Path, names: Sequence[str]) -> dict[str, RetrievalSet]:
    return {name: read_gnd_json(data / "gnd" / f"{name}.json", data) for name in names}


def train_photos(data: Path) -> list[Photo]:
    """The photos of the verified pairs of train.json."""
    pairs = json.loads((data / "train.json").read_text())["pairs"]
    return [Photo(data / name, name) for name in sorted({name for pair in pairs for name in pair[:2]})]


def settings(size: int, test: RetrievalSet | None) -> ExtractConfig:
    return ExtractConfig(max_side=size, scales=DOWN, upright=test is None or not test.as_stored)


def extract(data: Path, work: Path, size: int, names: Sequence[str], most: int | None) -> None:
    """Features folders of all poolings, from one pass of the trunk; "train" are the photos of train.json."""
    torch.set_num_threads(1)
    networks = {method: load_network(TRUNK, method=method) for method in VECTORS}
    tests = sets_of(data, [name for name in names if name != "train"])
    for name in names:
        test = tests.get(name)
        if test is None:
            photos = train_photos(data)
        else:
            wanted = own_names(test).photos(test)
            photos = renamed(list(wanted.values()), list(wanted))
        _extract_photos(networks, photos[:most], settings(size, test), work, name)


def _extract_photos(
    networks: dict[str, Network], photos: Sequence[Photo], config: ExtractConfig, work: Path, name: str
) -> None:
    first = networks[VECTORS[0]]
    trunk = for_inference(first.module).trunk
    began = time.process_time()
    with contextlib.ExitStack() as stack:
        writers = {
            method: stack.enter_context(writer_for(work / f"{name}-{method}", network, config))
            for method, network in networks.items()
        }
        for number, photo in enumerate(photos):
            stamp = photo_stamp(photo.path)
            if all(writer.has(photo.name, stamp) for writer in writers.values()):
                continue
            outcome = decode(photo, config)
            if isinstance(outcome, Skipped):
                for writer in writers.values():
                    writer.skip(outcome, stamp)
                continue
            for method, vector in _vectors(networks, trunk, outcome.pixels, config):
                one, size = np.ones(1, np.float32), (outcome.pixels.shape[1], outcome.pixels.shape[0])
                found = Features(photo.name, vector[None], one, one, np.zeros(1, np.int32), image_size=size)
                if not writers[method].has(photo.name, stamp):
                    writers[method].add(found, stamp)
            if number % 50 == 0:
                print(f"{name}: {number} of {len(photos)}, {time.process_time() - began:.0f} CPU-seconds", flush=True)
        for writer in writers.values():
            writer.finish()


def writer_for(path: Path, network: Network, config: ExtractConfig) -> contextlib.AbstractContextManager[FeatureWriter]:
    facts = {"network": {"digest": network.digest, **as_dict(network.config)}, "extract": as_dict(config)}
    return feature_writer(path, json.loads(json.dumps(facts)), network.dim, regions=False)


@torch.inference_mode()
def _vectors(
    networks: dict[str, Network], trunk: object, pixels: np.ndarray, config: ExtractConfig
) -> Iterator[tuple[str, np.ndarray]]:
    first = networks[VECTORS[0]]
    image = torch.from_numpy(normalise(pixels, *first.normalisation)).unsqueeze(0)
    maps = [trunk(resize(image, scale, recompute=False)) for scale in config.scales]  # type: ignore[operator]
    for method, network in networks.items():
        yield method, network.combine(torch.cat([network.module.describe(one).vectors[0] for one in maps]).numpy())
