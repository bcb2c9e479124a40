"""Weights of whole networks of other systems, by the recipe of the reference fixtures (tests/golden/data/README.md)."""

import json
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

SMALL_GAINS = (".bn3.", ".c_bn.", "/conv3/BatchNorm/", "_branch2c/")  # of the last batch-norm of a block


def zoo_value(key: str, shape: Sequence[int], *, channels_last: bool = False) -> np.ndarray:
    """One parameter, from its name and shape alone."""
    last = key.replace("/", ".").rpartition(".")[2]
    if last == "num_batches_tracked":
        return np.zeros((), np.int64)
    if last == "p":
        return np.full(tuple(shape), 2.7, np.float32)
    n = np.random.RandomState(zlib.crc32(key.encode()) & 0x7FFFFFFF).standard_normal(tuple(shape))
    if last in ("running_mean", "moving_mean"):
        value = 0.1 * n
    elif last in ("running_var", "moving_variance"):
        value = 0.5 + abs(n)
    elif len(shape) >= 2:
        inputs = np.prod(shape[:-1] if channels_last else shape[1:])
        value = (1.4142135 if len(shape) == 4 else 1.0) * n / np.sqrt(inputs)
    elif last in ("weight", "gamma"):
        value = (0.3 if any(part in key for part in SMALL_GAINS) else 1.0) + 0.1 * n
    else:
        value = 0.1 * n
    return np.asarray(value, np.float32)


def zoo_state(golden: Path, name: str) -> dict[str, Tensor]:
    """The whole state dict of one of the networks of zoo_state_dict_shapes.json."""
    shapes = json.loads((golden / "zoo_state_dict_shapes.json").read_text())[name]
    return {key: torch.from_numpy(zoo_value(key, shape)) for key, shape in shapes.items()}


def zoo_arrays(golden: Path, name: str) -> dict[str, np.ndarray]:
    """The same of one of TensorFlow's, whose last dimension is the outputs."""
    shapes = json.loads((golden / "zoo_state_dict_shapes.json").read_text())[name]
    return {key: zoo_value(key, shape, channels_last=True) for key, shape in shapes.items()}
