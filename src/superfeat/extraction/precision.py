"""int8 in the place of a network: made once from the ranges that it brings, and taken where it pays.

Its features are taken for those of the float32 network: both may stand in one index (docs/onnx.md has what it costs).
"""

import contextlib
import dataclasses
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
from torch import nn

from superfeat.config import ExtractConfig
from superfeat.errors import SuperfeatError, WeightsError
from superfeat.extraction.kept import WORTH, drop_oldest, keep_export, keep_ratio, kept_path, known_ratio, runs_onnx
from superfeat.storage.store import write_file
from superfeat.weights import Network
from superfeat.weights.sealed import open_sealed

ROUNDS = 3
PROBED = (1, 3, 240, 320)  # the picture that both look at


def in_precision(network: Network, config: ExtractConfig) -> Network:
    """The network that looks at photos with these settings: itself, or int8 of it, which stands for it.

    SuperfeatError if int8 is asked for and cannot be had.
    """
    if config.precision is None or not isinstance(network.module, nn.Module):  # a file is what it is
        return network
    made: dict[str, Network] = vars(network).setdefault("_precisions", {})
    if config.precision not in made:
        made[config.precision] = _quantised(network)
    return made[config.precision]


def possible(config: ExtractConfig, network: Network, device: str = "cpu") -> ExtractConfig:
    """These settings, in float32 where int8 cannot be had: not on this device, without the package or the ranges."""
    if config.precision is None:
        return config
    if device == "cpu" and runs_onnx():
        with contextlib.suppress(SuperfeatError):
            in_precision(network, config)
            return config
    return dataclasses.replace(config, precision=None)


def _quantised(network: Network) -> Network:
    from superfeat.weights.int8 import quantise_onnx
    from superfeat.weights.onnx import export_onnx, load_onnx

    if network.ranges is None:
        raise SuperfeatError(
            "this network brings no ranges for int8; learn them with superfeat weights ranges, or take float32",
            arguments=["precision"],
        )
    path = kept_path(network.digest, "int8")
    if path.is_file():
        with contextlib.suppress(WeightsError):  # damaged: it is made again
            return load_onnx(path).standing_for(network.digest)
    with tempfile.TemporaryDirectory(prefix="superfeat-int8-") as folder:
        plain, made = Path(folder, "float32.onnx"), Path(folder, "int8.onnx")
        export_onnx(network, plain)
        quantise_onnx(plain, made, network.ranges)
        with contextlib.suppress(OSError, SuperfeatError):  # a cache that cannot be written: it is made each time
            path.parent.mkdir(parents=True, exist_ok=True)
            write_file(path, made.read_bytes())
            drop_oldest(path.parent)
        return load_onnx(made).standing_for(network.digest)


# -- Does it pay?


def int8_pays(network: Network) -> bool:
    """Whether int8 of this network takes clearly less time on this machine than float32.

    Tried once: what came of it is kept beside the exports. Where anything fails it does not pay.
    """
    if network.ranges is None or not runs_onnx():
        return False
    try:
        in_precision(network, ExtractConfig(precision="int8"))
        ratio = known_ratio(network.digest)
        if ratio is None and keep_export(network):
            ratio = _measure(kept_path(network.digest), kept_path(network.digest, "int8"))
            keep_ratio(network.digest, ratio)
    except Exception:  # nobody asked for int8: packages of others raise types of their own
        return False
    return ratio is not None and ratio < WORTH


def _measure(plain: Path, small: Path) -> float:
    """CPU-seconds of the second network as a share of the first's: both in turn, the median of a few rounds."""
    sessions = [open_sealed(path)[0] for path in (plain, small)]
    image = np.random.default_rng(0).standard_normal(PROBED, np.float32)
    spent: list[list[float]] = [[], []]
    for _ in range(ROUNDS + 1):
        for session, times in zip(sessions, spent, strict=True):
            began = time.thread_time()  # a session computes in the thread that calls it
            session.run(None, {"image": image})
            times.append(time.thread_time() - began)
    first, second = (statistics.median(times[1:]) for times in spent)  # the first of each warms up
    return second / first
