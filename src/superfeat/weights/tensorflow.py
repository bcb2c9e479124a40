"""TensorFlow's checkpoints without TensorFlow, and the names of DELF and DELG in them.

`X.index` is a LevelDB table whose values are small protocol buffers (type, shape, offset, size); the file
`X.data-00000-of-00001` holds the values one after the other. Blocks are not compressed. Only float32, float64 and
integers are read.
"""

import re
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from superfeat.errors import WeightsError
from superfeat.storage.protobuf import fields, varint

FOOTER, MAGIC = 48, 0xDB4775248B80FB57
TYPES = {1: "<f4", 2: "<f8", 3: "<i4", 9: "<i8"}  # DT_FLOAT, DT_DOUBLE, DT_INT32, DT_INT64
MOST_BYTES = 4 << 30
KERAS_EPSILON, TORCH_EPSILON = 1e-3, 1e-5
VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
Arrays = dict[str, np.ndarray]


class _Variable(NamedTuple):
    dtype: int
    shape: tuple[int, ...]
    offset: int
    size: int


def is_tensorflow(path: Path) -> bool:
    """Whether the path looks like a checkpoint of TensorFlow's, or a SavedModel's folder."""
    return path.suffix == ".index" or (path / "variables" / "variables.index").is_file()


def read_tensorflow(path: Path) -> Arrays:
    """All arrays of a checkpoint, by name."""
    index = path if path.suffix == ".index" else path / "variables" / "variables.index"
    data = index.with_name(f"{index.stem}.data-00000-of-00001")
    try:
        table, values = index.read_bytes(), data.read_bytes()
    except OSError as error:
        raise WeightsError(
            f"cannot read {error.filename}: {error.strerror}; a checkpoint is .index and .data"
        ) from error
    try:
        found = {name: _values(entry, values) for name, entry in _entries(table)}
        if not found:
            raise ValueError("it holds no arrays")
        return found
    except (ValueError, IndexError, struct.error, UnicodeDecodeError) as error:
        raise WeightsError(f"{index} is damaged, or not a checkpoint of TensorFlow's ({error})") from error


def _values(entry: _Variable, data: bytes) -> np.ndarray:
    if entry.offset + entry.size > len(data) or entry.size > MOST_BYTES:
        raise ValueError("values beyond the end of the file")
    return np.frombuffer(data, TYPES[entry.dtype], offset=entry.offset, count=_count(entry)).reshape(entry.shape)


def _count(entry: _Variable) -> int:
    count = int(np.prod(entry.shape, dtype=np.int64))
    if count * np.dtype(TYPES[entry.dtype]).itemsize != entry.size:
        raise ValueError("an array's size is not that of its shape")
    return count


def _entries(table: bytes) -> Iterator[tuple[str, _Variable]]:
    """Names and where their values lie; the header and arrays of other types are passed over."""
    if len(table) < FOOTER or struct.unpack("<Q", table[-8:])[0] != MAGIC:
        raise ValueError("no table")
    _, place = varint(table, len(table) - FOOTER)  # of the meta index
    _, place = varint(table, place)
    offset, place = varint(table, place)
    size, _ = varint(table, place)
    for _, handle in _block(table, offset, size):
        begin, after = varint(handle, 0)
        length, _ = varint(handle, after)
        for name, value in _block(table, begin, length):
            entry = _parse(value)
            if name and entry.dtype in TYPES:
                yield name.decode(), entry


def _block(table: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values; a key repeats the beginning of the one before it."""
    if offset + size + 1 > len(table) or table[offset + size] != 0:
        raise ValueError("a block is compressed or cut off")
    data = table[offset : offset + size]
    end = len(data) - 4 * (struct.unpack("<I", data[-4:])[0] + 1)
    place, key = 0, b""
    while place < end:
        shared, place = varint(data, place)
        rest, place = varint(data, place)
        length, place = varint(data, place)
        key = key[:shared] + data[place : place + rest]
        yield key, data[place + rest : place + rest + length]
        place += rest + length


def _parse(data: bytes) -> _Variable:
    numbers = {number: value for number, value in fields(data) if isinstance(value, int)}
    shape: list[int] = []
    for number, value in fields(data):
        if number == 2 and isinstance(value, bytes):
            for part, size in fields(value):
                if part == 2 and isinstance(size, bytes):
                    shape.append(next((one for name, one in fields(size) if name == 1 and isinstance(one, int)), 0))
    return _Variable(numbers.get(1, 0), tuple(shape), numbers.get(4, 0), numbers.get(5, 0))


# -- Names


def slim_parameters(arrays: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
    """TF-Slim's names (`resnet_v1_50/block1/unit_1/...`, `attention_block/...`) -> ours."""
    found: dict[str, Tensor] = {}
    for name, value in arrays.items():
        place = _slim_place(name.removesuffix(VALUE))
        if place is not None:
            found[place] = as_tensor(value)
    if "attention.conv2.weight" in found:
        found.setdefault("attention.conv1.bias", torch.zeros(len(found["attention.conv1.weight"])))
    return found


SLIM_KINDS = {"weights": "weight", "biases": "bias", "gamma": "weight", "beta": "bias", "moving_mean": "running_mean"}
SLIM_KINDS |= {"moving_variance": "running_var", "kernel": "weight", "bias": "bias"}


def _slim_place(name: str) -> str | None:
    *_, kind = name.split("/")
    norm = "/BatchNorm/" in name
    if kind not in SLIM_KINDS:
        return None
    ending = SLIM_KINDS[kind]
    if match := re.search(r"resnet_v1_\d+/conv1/", name):
        return f"trunk.{'bn1' if norm else 'conv1'}.{ending}"
    if match := re.search(r"block(\d)/unit_(\d+)/bottleneck_v1/(shortcut|conv(\d))/", name):
        block = f"trunk.layer{match[1]}.{int(match[2]) - 1}"
        if match[3] == "shortcut":
            return f"{block}.downsample.{1 if norm else 0}.{ending}"
        return f"{block}.{'bn' if norm else 'conv'}{match[4]}.{ending}"
    if match := re.search(r"attention\w*/(?:.*/)?conv(\d)/", name):
        return f"attention.{'bn' if norm else f'conv{match[1]}'}.{ending}"
    return None


def keras_parameters(arrays: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
    """The names of TensorFlow's later training code -> ours. Biases and the larger epsilon go into the batch-norms."""
    from superfeat.weights.keras import to_torchvision

    layers: dict[str, dict[str, np.ndarray]] = {}
    heads: dict[str, np.ndarray] = {}
    for name, value in arrays.items():
        part, _, rest = name.removesuffix(VALUE).partition("/")
        if part == "backbone" and not rest.startswith("embedding_layer"):
            layer, _, kind = rest.rpartition("/")
            layers.setdefault(layer, {})[kind] = value
        else:
            heads[f"{part}/{rest}"] = value
    found = {f"trunk.{name}": value for name, value in to_torchvision(layers, "the checkpoint", bgr=False)}
    places = {"attention/attn_conv": "attention.conv", "attention/bn_conv1": "attention.bn"}
    places |= {"autoencoder/autoenc_conv": "autoencoder.conv", "backbone/embedding_layer": "layer"}
    for name, value in heads.items():
        for theirs, ours in places.items():
            if name.startswith(theirs):
                layer, _, kind = name.rpartition("/")
                found[f"{ours}{layer.removeprefix(theirs)}.{SLIM_KINDS[kind]}"] = as_tensor(value)
    return found


def as_tensor(value: np.ndarray) -> Tensor:
    """A kernel as torch has it: outputs first."""
    if value.ndim == 4:
        value = value.transpose(3, 2, 0, 1)
    elif value.ndim == 2:
        value = value.T
    return torch.from_numpy(np.ascontiguousarray(value).astype(np.float32))
