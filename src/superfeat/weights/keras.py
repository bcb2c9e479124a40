"""Keras ResNets (TensorFlow.js folders or tarballs, and .h5 files) -> torchvision's names.

Keras's weights are Caffe's: stride in the first 1x1 of a stage, convolutions with biases, BGR pixels in 0..255 less a
mean. Here the biases go into the batch-norm means, the epsilon into the variances, and the channel order into the
first convolution, all exactly; mean and scale become the trunk's normalisation.
"""

import io
import json
import re
import tarfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch
from torch import Tensor

from superfeat.errors import MissingExtraError, WeightsError
from superfeat.nets.trunk import Normalisation
from superfeat.weights.layouts import Foreign, recognise_trunk

TORCH_EPSILON = 1e-5
OLD_NAMES_EPSILON = 1e-3
NEW_NAMES_EPSILON = 1.001e-5
CAFFE_PIXELS = Normalisation((123.68 / 255, 116.779 / 255, 103.939 / 255), (1 / 255, 1 / 255, 1 / 255))
MAX_MANIFEST_BYTES = 64 << 20
DTYPES = {"float32": "<f4", "float16": "<f2", "int32": "<i4"}

Arrays = dict[str, dict[str, np.ndarray]]  # layer -> kind of weight -> values


def is_keras(path: Path) -> bool:
    """Whether the path looks like Keras's: a TensorFlow.js folder, model.json or tarball, or an .h5 file."""
    if path.is_dir():
        return (path / "model.json").is_file()
    return path.name == "model.json" or path.suffix.lower() in {".h5", ".hdf5", ".tgz"} or path.name.endswith(".tar.gz")


def read_keras(path: Path) -> Foreign:
    """The trunk in a Keras file."""
    if path.suffix.lower() in {".h5", ".hdf5"}:
        arrays = _read_h5(path)
    elif path.is_dir() or path.name == "model.json":
        folder = path if path.is_dir() else path.parent
        arrays = _read_tfjs(lambda name: (folder / PurePosixPath(name).name).read_bytes(), str(path))
    else:
        arrays = _read_tarball(path)
    tensors = dict(to_torchvision(arrays, str(path)))
    foreign = recognise_trunk(tensors, str(path), stride_in_1x1=True, pixels=CAFFE_PIXELS)
    return foreign._replace(kind="Keras trunk")


def _read_tarball(path: Path) -> Arrays:
    """The first TensorFlow.js model with residual blocks in a package; members are read, never unpacked to disk."""
    try:
        with tarfile.open(path) as archive:
            members = {member.name: member for member in archive.getmembers() if member.isfile()}
            models = [name for name in sorted(members) if name.endswith("/ResNet50/model.json")]
            models += [name for name in sorted(members) if name.endswith("model.json") and name not in models]
            if not models:
                raise WeightsError(f"{path} holds no model.json of TensorFlow.js")
            folder = PurePosixPath(models[0]).parent

            def read(name: str) -> bytes:
                file = archive.extractfile(members[str(folder / PurePosixPath(name).name)])
                assert file is not None
                return file.read()

            return _read_tfjs(read, str(path))
    except (tarfile.TarError, EOFError, OSError, KeyError) as error:
        raise WeightsError(f"{path} is damaged or incomplete ({error}); fetch it again") from error


def _read_tfjs(read: Callable[[str], bytes], source: str) -> Arrays:
    """model.json lists names, shapes and types; the shard files hold the values one after the other."""
    try:
        manifest = json.loads(read("model.json")[:MAX_MANIFEST_BYTES])["weightsManifest"]
        arrays: Arrays = {}
        for group in manifest:
            data = io.BytesIO(b"".join(read(name) for name in group["paths"]))
            for entry in group["weights"]:
                layer, _, kind = entry["name"].rpartition("/")
                if "quantization" in entry:
                    raise WeightsError(f"{source} holds quantised weights; give the float32 model")
                dtype = np.dtype(DTYPES[entry["dtype"]])
                count = int(np.prod(entry["shape"], dtype=np.int64))
                values = np.frombuffer(data.read(count * dtype.itemsize), dtype)
                arrays.setdefault(layer.rpartition("/")[2], {})[kind] = values.reshape(entry["shape"])
        return arrays
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise WeightsError(
            f"{source} is not a complete TensorFlow.js model ({type(error).__name__}: {error})"
        ) from error


def _read_h5(path: Path) -> Arrays:
    try:
        import h5py
    except ImportError:
        raise MissingExtraError("reading a Keras .h5 file", "keras") from None
    arrays: Arrays = {}

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            parts = name.split("/")
            arrays.setdefault(parts[-2] if len(parts) > 1 else "", {})[parts[-1].partition(":")[0]] = item[()]

    try:
        with h5py.File(path, "r") as file:
            file.visititems(visit)
    except OSError as error:
        raise WeightsError(f"{path} is not a readable .h5 file ({error})") from error
    return arrays


def to_torchvision(arrays: Arrays, source: str, *, bgr: bool = True) -> Iterator[tuple[str, Tensor]]:
    """Names and values of torchvision's layout; layers that are not of the trunk or its classifier are passed over."""
    for layer, values in arrays.items():
        place = _place(layer)
        if place is not None and "kernel" in values:
            conv, norm, norm_layer, epsilon = place
            if values["kernel"].ndim != 4:
                raise WeightsError(f"{source}: the convolution {layer} has {values['kernel'].ndim} dimensions, not 4")
            kernel = values["kernel"].transpose(3, 2, 0, 1)  # height, width, in, out -> out, in, height, width
            if conv == "conv1" and bgr:
                kernel = kernel[:, ::-1]  # BGR -> RGB
            yield f"{conv}.weight", _tensor(kernel)
            yield from _batch_norm(norm, arrays.get(norm_layer, {}), values.get("bias"), epsilon)


def _batch_norm(
    name: str, values: Mapping[str, np.ndarray], bias: np.ndarray | None, epsilon: float
) -> Iterator[tuple[str, Tensor]]:
    """Of a convolution with a bias: normalising x + bias by mean m is normalising x by m - bias."""
    kinds = {"gamma": "weight", "beta": "bias", "moving_mean": "running_mean", "moving_variance": "running_var"}
    for theirs, ours in kinds.items():
        if theirs in values:
            value = values[theirs].astype(np.float64)
            if ours == "running_mean" and bias is not None:
                value = value - bias
            if ours == "running_var":
                value = value + (epsilon - TORCH_EPSILON)
            yield f"{name}.{ours}", _tensor(value)


def _tensor(values: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, np.float32))


def _place(layer: str) -> tuple[str, str, str, float] | None:
    """A Keras convolution's name -> our convolution, our batch-norm, Keras's batch-norm, its epsilon."""
    if layer == "conv1":
        return "conv1", "bn1", "bn_conv1", OLD_NAMES_EPSILON
    if layer == "conv1_conv":
        return "conv1", "bn1", "conv1_bn", NEW_NAMES_EPSILON
    if match := re.fullmatch(r"res([2-5])([a-z])_branch(1|2[abc])", layer):
        block = f"layer{int(match[1]) - 1}.{ord(match[2]) - ord('a')}"
        number = 0 if match[3] == "1" else " abc".index(match[3][1])
        return *_inside(block, number), layer.replace("res", "bn", 1), OLD_NAMES_EPSILON
    if match := re.fullmatch(r"conv([2-5])_block(\d+)_([0-3])_conv", layer):
        block = f"layer{int(match[1]) - 1}.{int(match[2]) - 1}"
        return *_inside(block, int(match[3])), layer.removesuffix("conv") + "bn", NEW_NAMES_EPSILON
    return None


def _inside(block: str, number: int) -> tuple[str, str]:
    if number == 0:
        return f"{block}.downsample.0", f"{block}.downsample.1"
    return f"{block}.conv{number}", f"{block}.bn{number}"
