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
from typing import IO, Any, ClassVar, NamedTuple

import numpy as np

from superfeat.errors import UnpickleError

MAX_PICKLE_BYTES = 2 << 30
MAX_TUPLE_DEPTH = 50
MAX_TUPLES = 1_000_000  # inside one tuple; one that is held twice counts twice, as it does for whoever hashes them
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


class _Dtype:
    """A dtype of plain numbers or text. numpy's own would take any state from the file, and read memory by it."""

    __slots__ = ("dtype",)

    def __init__(self, kind: Any, *_: Any) -> None:
        self.dtype = np.dtype(kind) if isinstance(kind, str) else np.dtype("O")
        if self.dtype.kind not in "biufcSU":
            raise _RefusedError("it holds an array of something else than numbers or text")

    def __setstate__(self, state: Any) -> None:
        order, parts, sizes = state[1], state[2:5], state[5:7]
        if parts != (None, None, None) or any(
            size not in (-1, self.dtype.itemsize, self.dtype.alignment) for size in sizes
        ):
            raise _RefusedError("it holds an array with a strange type")
        if order in ("<", ">"):
            self.dtype = self.dtype.newbyteorder(order)


class _Array(np.ndarray):
    """The shell of an array, which takes its state only with a dtype of ours."""

    def __setstate__(self, state: Any, *_: Any) -> None:
        version, shape, dtype, fortran, raw = state
        if not isinstance(dtype, _Dtype) or not isinstance(raw, bytes):
            raise _RefusedError("it holds an array without a plain type")
        super().__setstate__((version, shape, dtype.dtype, fortran, raw))


def _numpy_scalar(dtype: _Dtype, raw: bytes | str) -> Any:
    data = raw.encode("latin1") if isinstance(raw, str) else raw
    return np.frombuffer(data, dtype=dtype.dtype, count=1)[0]


def _numpy_from_buffer(buffer: Any, dtype: _Dtype, shape: tuple[int, ...], order: str) -> np.ndarray:
    return np.frombuffer(buffer, dtype=dtype.dtype).reshape(shape, order="F" if order == "F" else "C")


def _plain_bytes(*arguments: Any) -> bytes:
    """bytes(), bytes(b"...") and bytes("...", "latin1"), but not bytes(10**12)."""
    if any(not isinstance(argument, (str, bytes)) for argument in arguments):
        raise _RefusedError("it makes bytes of something else than text")
    return bytes(*arguments)


def _latin1_bytes(text: str, encoding: str) -> bytes:
    if encoding != "latin1":
        raise _RefusedError("it holds bytes in another encoding than latin1")
    return text.encode("latin1")


def _flat_tuple(items: Any = ()) -> tuple[Any, ...]:
    """tuple() of anything but tuples: nesting is for the opcodes, where it is counted."""
    made = tuple(items)
    if any(isinstance(item, tuple) for item in made):
        raise _RefusedError("it nests tuples in an unusual way")
    return made


def _empty_text() -> str:
    return ""


def _plain_path(*parts: str) -> str:
    return str(PurePath(*parts))


class Inert:
    """An object of a stranger's class as the values that it holds: nothing of the class itself is here, or is run."""

    __slots__ = ("values",)

    values: dict[str, Any]

    def __new__(cls, *_: Any) -> "Inert":
        made = super().__new__(cls)
        made.values = {}
        return made

    def __setstate__(self, state: Any) -> None:
        if not isinstance(state, dict) or any(not isinstance(key, str) for key in state):
            raise _RefusedError("it holds an object with a strange state")
        self.values = dict(state)


_CONTAINERS = (list, dict, set, frozenset, int, float, bool, complex)
_PATHS = ("PosixPath", "WindowsPath", "Path", "PurePosixPath", "PureWindowsPath")
PLAIN: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("collections", "defaultdict"): collections.defaultdict,
    ("_codecs", "encode"): _latin1_bytes,
    ("numpy", "dtype"): _Dtype,
    ("numpy", "ndarray"): _empty_text,  # named by every array, needed by none
}
for _module in ("builtins", "__builtin__"):
    PLAIN.update({(_module, kind.__name__): kind for kind in _CONTAINERS})
    PLAIN.update({(_module, name): _plain_bytes for name in ("bytes", "bytearray")})
    PLAIN.update({(_module, name): _empty_text for name in ("str", "unicode")})
    PLAIN.update({(_module, "tuple"): _flat_tuple, (_module, "long"): int})
for _module in ("sklearn.decomposition.pca", "sklearn.decomposition._pca"):
    PLAIN[_module, "PCA"] = Inert  # AP-GeM's files carry one; its arrays are all that is wanted of it
for _module in ("pathlib", "pathlib._local"):
    PLAIN.update({(_module, name): _plain_path for name in _PATHS})
for _module in ("numpy.core", "numpy._core"):
    PLAIN[f"{_module}.multiarray", "_reconstruct"] = lambda *_: _Array((0,), "b")
    PLAIN[f"{_module}.multiarray", "scalar"] = _numpy_scalar
    PLAIN[f"{_module}.numeric", "_frombuffer"] = _numpy_from_buffer


class RestrictedUnpickler(pickle._Unpickler):
    """An unpickler that knows a short list of names and refuses every other.

    It is the one of the standard library that is written in Python, so that tuples can be kept from nesting without
    end: hashing such a tuple would overflow the interpreter's own stack.
    """

    stack: list[Any]
    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = dict(pickle._Unpickler.dispatch)

    def __init__(self, file: IO[bytes], storages: Callable[[str, str, int], Any] | None = None) -> None:
        super().__init__(file, encoding="latin1")
        self._storages = storages
        self._nested: dict[int, tuple[int, int]] = {}  # tuple -> how deep, how many inside

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in PLAIN:
            return PLAIN[module, name]
        if self._storages is not None and (module, name) in TORCH:
            return TORCH[module, name]
        raise _RefusedError(f"it names {module}.{name}")

    def persistent_load(self, pid: Any) -> Any:
        if self._storages is None or not isinstance(pid, tuple) or len(pid) < 5 or pid[0] != "storage":
            raise _RefusedError("it refers to data outside itself")
        _, storage, key, _, count = pid[:5]
        if not isinstance(storage, _Storage) or not isinstance(key, str) or not isinstance(count, int):
            raise _RefusedError("it refers to data outside itself")
        return self._storages(storage.dtype, key, count)

    def limit_tuples(self) -> None:
        """Called after a tuple has been put on the stack."""
        made = self.stack[-1]
        inner = [self._nested.get(id(item), (0, 0)) for item in made if isinstance(item, tuple)]
        depth = 1 + max((depth for depth, _ in inner), default=0)
        tuples = len(inner) + sum(count for _, count in inner)
        if depth > MAX_TUPLE_DEPTH or tuples > MAX_TUPLES:
            raise _RefusedError("its tuples are nested too deeply")
        self._nested[id(made)] = depth, tuples

    def set_state(self) -> None:
        """Only arrays, their types and inert objects take a state. That of an OrderedDict (torch's _metadata) is left
        behind: it would become attributes, and one that is called `get` stands in the method's way."""
        state = self.stack.pop()
        target = self.stack[-1]
        if isinstance(target, (_Array, _Dtype, Inert)):
            target.__setstate__(state)
        elif not isinstance(target, collections.OrderedDict):
            raise _RefusedError("it tries to change what a name stands for")


RestrictedUnpickler.dispatch[pickle.BUILD[0]] = RestrictedUnpickler.set_state


def _limited(load: Callable[[RestrictedUnpickler], None]) -> Callable[[RestrictedUnpickler], None]:
    def load_tuple(unpickler: RestrictedUnpickler) -> None:
        load(unpickler)
        unpickler.limit_tuples()

    return load_tuple


for _opcode in (pickle.TUPLE, pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3):
    RestrictedUnpickler.dispatch[_opcode[0]] = _limited(RestrictedUnpickler.dispatch[_opcode[0]])


class _Storage(NamedTuple):
    dtype: str


def _rebuild_tensor(storage: Any, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_: Any) -> Any:
    """A tensor over its storage; torch checks that the strides stay inside it."""
    return storage.as_strided(size, stride, offset)


TORCH: dict[tuple[str, str], Any] = {
    **{("torch", name): _Storage(dtype) for name, dtype in STORAGE_DTYPES.items()},
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
    ("torch._utils", "_rebuild_parameter"): lambda tensor, *_: tensor,
    ("torch", "device"): lambda kind, *_: kind,
    ("torch", "Size"): _flat_tuple,
}


def _tensor(raw: bytes, dtype: Any) -> Any:
    import torch

    return torch.frombuffer(bytearray(raw), dtype=dtype) if raw else torch.empty(0, dtype=dtype)


def read_pickle(path: str | Path) -> Any:
    """The plain values of a pickle file. Refuses anything that would run code."""
    path = Path(path)
    with _bad_pickles_explained(path):
        if path.stat().st_size > MAX_PICKLE_BYTES:
            raise _RefusedError(f"it is larger than {MAX_PICKLE_BYTES} bytes")
        return RestrictedUnpickler(io.BytesIO(path.read_bytes())).load()


def read_torch(path: str | Path) -> Any:
    """The plain values and tensors of a file that torch.save wrote, in its zip form or the form before torch 1.6."""
    path = Path(path)
    with _bad_pickles_explained(path):
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
            if key not in loaded:
                if count * kind.itemsize + sum(one.nbytes for one in loaded.values()) > size:
                    raise _RefusedError(f"storage {key} is longer than the file")
                loaded[key] = torch.zeros(count, dtype=kind)
            return loaded[key]

        values = RestrictedUnpickler(file, storage).load()
        keys = RestrictedUnpickler(file).load()
        if set(keys) != set(loaded):
            raise _RefusedError("its storages are not those that it refers to")
        for key in keys:
            target = loaded[key]
            if int.from_bytes(file.read(8), "little") != len(target):
                raise _RefusedError(f"storage {key} is not as long as it says")
            raw = file.read(len(target) * target.element_size())
            if len(raw) != len(target) * target.element_size():
                raise EOFError("the file is cut off")
            target.copy_(_tensor(raw, target.dtype))
        return values


@contextlib.contextmanager
def _bad_pickles_explained(path: Path) -> Iterator[None]:
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
