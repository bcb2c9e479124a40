"""Reads pickles and torch files from strangers: plain containers, numbers, strings, arrays and tensors, nothing else.

Nothing that a file names is ever called, except the constructors listed here, which only build values.
"""

import collections
import contextlib
import io
import pickle
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from superfeat.errors import UnpickleError

MAX_PICKLE_BYTES = 2 << 30
LEGACY_MAGIC = 0x1950A86A20F9469CFC6C  # how torch.save began its files before torch 1.6
STORAGE_DTYPES = {
    "FloatStorage": "float32",
    "DoubleStorage": "float64",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
}


class _RefusedError(Exception):
    """What in a file is not plain data."""


class _ArrayClass:
    """Stands for numpy.ndarray, which pickles name but never need to call."""


def _plain_path(*parts: str) -> str:
    return str(PurePath(*parts))


def _plain_bytes(*arguments: Any) -> bytes:
    """bytes(), bytes(b"...") and bytes("...", "latin1"), but not bytes(10**12)."""
    if any(not isinstance(argument, (str, bytes)) for argument in arguments):
        raise _RefusedError("bytes made of something else than text")
    return bytes(*arguments)


def _plain_dtype(*arguments: Any) -> np.dtype[Any]:
    dtype: np.dtype[Any] = np.dtype(arguments[0])
    if dtype.hasobject:
        raise _RefusedError("it holds an array of Python objects")
    return dtype


def _numpy_array(subtype: type, shape: tuple[int, ...], kind: bytes) -> np.ndarray:
    """The empty shell that pickle fills by __setstate__."""
    return np.ndarray((0,), "b")


def _numpy_scalar(dtype: np.dtype[Any], raw: bytes | str) -> Any:
    data = raw.encode("latin1") if isinstance(raw, str) else raw
    return np.frombuffer(data, dtype=_plain_dtype(dtype), count=1)[0]


def _numpy_from_buffer(buffer: Any, dtype: np.dtype[Any], shape: tuple[int, ...], order: str) -> np.ndarray:
    return np.frombuffer(buffer, dtype=_plain_dtype(dtype)).reshape(shape, order="F" if order == "F" else "C")


def _latin1_bytes(text: str, encoding: str) -> bytes:
    if encoding != "latin1":
        raise _RefusedError(f"it holds bytes in {encoding}")
    return text.encode("latin1")


_CONTAINERS = (list, dict, set, frozenset, tuple, int, float, bool, str, complex, slice)
_PATHS = ("PosixPath", "WindowsPath", "Path", "PurePosixPath", "PureWindowsPath")
PLAIN: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("collections", "defaultdict"): collections.defaultdict,
    ("_codecs", "encode"): _latin1_bytes,
    ("numpy", "dtype"): _plain_dtype,
    ("numpy", "ndarray"): _ArrayClass,
}
for _module in ("builtins", "__builtin__"):
    PLAIN.update({(_module, kind.__name__): kind for kind in _CONTAINERS})
    PLAIN.update({(_module, name): _plain_bytes for name in ("bytes", "bytearray")})
for _module in ("pathlib", "pathlib._local"):
    PLAIN.update({(_module, name): _plain_path for name in _PATHS})
for _module in ("numpy.core", "numpy._core"):
    PLAIN[f"{_module}.multiarray", "_reconstruct"] = _numpy_array
    PLAIN[f"{_module}.multiarray", "scalar"] = _numpy_scalar
    PLAIN[f"{_module}.numeric", "_frombuffer"] = _numpy_from_buffer


class RestrictedUnpickler(pickle.Unpickler):
    """An unpickler that knows a short list of names and refuses every other."""

    def __init__(
        self, file: io.BufferedIOBase | io.BytesIO, storages: Callable[[str, str, int], Any] | None = None
    ) -> None:
        super().__init__(file, encoding="latin1")
        self._storages = storages

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in PLAIN:
            return PLAIN[module, name]
        if self._storages is not None:
            found = _torch_name(module, name)
            if found is not None:
                return found
        raise _RefusedError(f"it names {module}.{name}")

    def persistent_load(self, pid: Any) -> Any:
        if self._storages is None or not (isinstance(pid, tuple) and len(pid) >= 5 and pid[0] == "storage"):
            raise _RefusedError("it refers to data outside itself")
        _, dtype, key, _, count = pid[:5]
        return self._storages(str(dtype), str(key), int(count))


def _torch_name(module: str, name: str) -> Any:
    if module == "torch" and name in STORAGE_DTYPES:
        return STORAGE_DTYPES[name]
    if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
        return _rebuild_tensor
    if (module, name) == ("torch._utils", "_rebuild_parameter"):
        return lambda tensor, *_: tensor
    if (module, name) == ("torch", "device"):
        return str
    if (module, name) == ("torch", "Size"):
        return tuple
    return None


def _rebuild_tensor(storage: Any, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_: Any) -> Any:
    """A tensor over its storage; torch checks that the strides stay inside it."""
    return storage.as_strided(size, stride, offset)


def _tensor(raw: bytes, dtype: Any) -> Any:
    import torch

    return torch.frombuffer(bytearray(raw), dtype=dtype) if raw else torch.empty(0, dtype=dtype)


def read_pickle(path: str | Path) -> Any:
    """The plain values of a pickle file. Refuses anything that would run code."""
    path = Path(path)
    with _explained(path):
        if path.stat().st_size > MAX_PICKLE_BYTES:
            raise _RefusedError(f"it is larger than {MAX_PICKLE_BYTES} bytes")
        return RestrictedUnpickler(io.BytesIO(path.read_bytes())).load()


def read_torch(path: str | Path) -> Any:
    """The plain values and tensors of a file that torch.save wrote, in its zip form or the form before torch 1.6."""
    path = Path(path)
    with _explained(path):
        return _read_torch_zip(path) if zipfile.is_zipfile(path) else _read_torch_legacy(path)


def _read_torch_zip(path: Path) -> Any:
    import torch

    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        indices = [entry for entry in entries if entry.filename.count("/") <= 1 and entry.filename.endswith("data.pkl")]
        if len(indices) != 1:
            raise _RefusedError("it is a zip file that torch.save did not write")
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
            raise _RefusedError("its parts are compressed")
        root = indices[0].filename.removesuffix("data.pkl")
        loaded: dict[str, Any] = {}

        def storage(dtype: str, key: str, count: int) -> Any:
            if key not in loaded:
                loaded[key] = _tensor(archive.read(f"{root}data/{key}"), getattr(torch, dtype))
            return loaded[key]

        return RestrictedUnpickler(io.BytesIO(archive.read(indices[0])), storage).load()


def _read_torch_legacy(path: Path) -> Any:
    """Magic number, protocol, system facts, the values, the order of the storages, then their bytes."""
    import torch

    size = path.stat().st_size
    with path.open("rb") as file:
        if RestrictedUnpickler(file).load() != LEGACY_MAGIC:
            raise _RefusedError("torch.save did not write it")
        for _ in ("protocol", "system"):
            RestrictedUnpickler(file).load()
        loaded: dict[str, Any] = {}

        def storage(dtype: str, key: str, count: int) -> Any:
            kind = getattr(torch, dtype)
            if count * kind.itemsize > size:
                raise _RefusedError(f"storage {key} is longer than the file")
            return loaded.setdefault(key, torch.zeros(count, dtype=kind))

        values = RestrictedUnpickler(file, storage).load()
        for key in RestrictedUnpickler(file).load():
            target = loaded[key]
            count = int.from_bytes(file.read(8), "little")
            target.copy_(_tensor(file.read(count * target.element_size()), target.dtype))
        return values


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turns whatever goes wrong into one clear error."""
    try:
        yield
    except _RefusedError as error:
        raise UnpickleError(f"{path} is refused: {error}; nothing in it was run") from None
    except RecursionError:
        raise UnpickleError(f"{path} is refused: it is nested too deeply; nothing in it was run") from None
    except OSError as error:
        raise UnpickleError(f"cannot read {path}: {error.strerror or error}") from error
    except Exception as error:  # a damaged file fails in any way it likes
        raise UnpickleError(f"{path} is damaged, or not of this kind ({type(error).__name__}: {error})") from error
