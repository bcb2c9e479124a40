"""Strangers' pickles and torch files: plain data is read; anything else is refused, and nothing in it runs."""

import collections
import io
import pathlib
import pickle
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path, PosixPath
from typing import Any

import numpy as np
import pytest
import torch

from superfeat.errors import UnpickleError
from superfeat.storage.unpickle import LEGACY_MAGIC, read_pickle, read_torch

# --- files by hand ----------------------------------------------------------------------------------------------------


def value(plain: object) -> bytes:
    """The opcodes that push a plain value."""
    return pickle.dumps(plain, 2)[2:-1]


def name(module: str, attribute: str) -> bytes:
    """The opcode that pushes whatever a module holds under this name."""
    return f"c{module}\n{attribute}\n".encode()


def call(module: str, attribute: str, *arguments: object) -> bytes:
    return name(module, attribute) + value(arguments) + b"R"


def document(body: bytes) -> bytes:
    return b"\x80\x02" + body + b"."


def write_pickle(path: Path, body: bytes) -> None:
    path.write_bytes(document(body))


def write_zip(path: Path, body: bytes, compression: int = zipfile.ZIP_STORED, storage: bytes = bytes(16)) -> None:
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("archive/data.pkl", document(body))
        archive.writestr("archive/data/0", storage)
        archive.writestr("archive/version", b"3\n")


def write_legacy(path: Path, body: bytes, storages: bytes = value([]) + b".") -> None:
    parts = [pickle.dumps(part, 2) for part in (LEGACY_MAGIC, 1001, {"protocol_version": 1001, "little_endian": True})]
    path.write_bytes(b"".join(parts) + document(body) + storages)


def storage_id(dtype: str = "FloatStorage", key: str = "0", count: int = 4) -> bytes:
    """The persistent id that torch gives a storage."""
    return b"(" + value("storage") + name("torch", dtype) + value(key) + value("cpu") + value(count) + b"tQ"


def tensor(size: tuple[int, ...], stride: tuple[int, ...], offset: int = 0, **storage: Any) -> bytes:
    rest = value(offset) + value(size) + value(stride) + value(False) + call("collections", "OrderedDict")
    return name("torch._utils", "_rebuild_tensor_v2") + b"(" + storage_id(**storage) + rest + b"tR"


Writer = Callable[[Path, bytes], None]
Reader = Callable[[Path], Any]
FORMS: dict[str, tuple[Writer, Reader]] = {
    "pickle": (write_pickle, read_pickle),
    "torch zip": (write_zip, read_torch),
    "torch legacy": (write_legacy, read_torch),
}


@pytest.fixture(params=list(FORMS))
def form(request: pytest.FixtureRequest) -> tuple[Writer, Reader]:
    return FORMS[request.param]


# --- what is read -----------------------------------------------------------------------------------------------------

PLAIN = {
    "numbers": [1, -(2**70), 1.5, True, None, 2 + 3j],
    "text": ["a", "ü", b"bytes", bytearray(b"more")],
    "containers": ({"a": {1, 2}}, frozenset({3}), [], (), {}, collections.OrderedDict(a=1)),
}


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_values(protocol: int, tmp_path: Path) -> None:
    (tmp_path / "plain.pkl").write_bytes(pickle.dumps(PLAIN, protocol))
    assert read_pickle(tmp_path / "plain.pkl") == PLAIN


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.int64).reshape(2, 3),
        np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)),
        np.arange(6, dtype=">f8"),
        np.array(["a", "bcd"]),
        np.array([b"x", b"yz"]),
        np.array([True, False]),
        np.zeros((0, 4), np.int32),
        np.array(1.5, np.float32),
        np.arange(12).reshape(3, 4)[::2],
    ],
    ids=lambda array: f"{array.dtype.str}{array.shape}",
)
def test_arrays(protocol: int, array: np.ndarray, tmp_path: Path) -> None:
    (tmp_path / "array.pkl").write_bytes(pickle.dumps({"a": array}, protocol))
    found = read_pickle(tmp_path / "array.pkl")["a"]
    assert isinstance(found, np.ndarray)
    # numpy itself brings foreign byte orders to the machine's own in the older protocols
    assert (found.dtype.newbyteorder("="), found.shape) == (array.dtype.newbyteorder("="), array.shape)
    np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_numpy_scalars_paths_and_defaultdicts(protocol: int, tmp_path: Path) -> None:
    scores: collections.defaultdict[str, list[int]] = collections.defaultdict(list, a=[1])
    values = {"scalar": [np.float64(0.5), np.int64(3), np.bool_(True)], "path": PosixPath("/a/b"), "scores": scores}
    (tmp_path / "values.pkl").write_bytes(pickle.dumps(values, protocol))
    found = read_pickle(tmp_path / "values.pkl")
    assert found["scalar"] == [0.5, 3, True]
    assert found["path"] == "/a/b", "paths are given as text"
    assert found["scores"] == {"a": [1]}
    assert found["scores"]["new"] == []


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("kind", [int, float, str, bool, list, dict, set, tuple, bytes])
def test_factories_of_defaultdicts(kind: type, protocol: int, tmp_path: Path) -> None:
    """Up to protocol 2, which torch.save uses, int is called `long` and str `unicode`."""
    counts: collections.defaultdict[str, Any] = collections.defaultdict(kind)
    (tmp_path / "counts.pkl").write_bytes(pickle.dumps(counts, protocol))
    assert read_pickle(tmp_path / "counts.pkl")["new"] == kind()


def test_names_of_older_versions(tmp_path: Path) -> None:
    """numpy before 2 and Python 2 call the same things otherwise."""
    data = pickle.dumps({"a": np.arange(3), "b": np.float64(2)}, 2)
    older = data.replace(b"numpy._core", b"numpy.core")
    assert older != data
    (tmp_path / "old.pkl").write_bytes(older)
    found = read_pickle(tmp_path / "old.pkl")
    np.testing.assert_array_equal(found["a"], [0, 1, 2])
    assert found["b"] == 2
    write_pickle(tmp_path / "two.pkl", b"U\x03a\xe9b")  # Python 2's str
    assert read_pickle(tmp_path / "two.pkl") == "aéb"


TENSORS = {
    "float": torch.arange(6.0).reshape(2, 3),
    "double": torch.tensor([1.5, 2.5], dtype=torch.float64),
    "half": torch.tensor([1.5], dtype=torch.float16),
    "bfloat": torch.tensor([1.5, -2], dtype=torch.bfloat16),
    "long": torch.tensor(7),
    "int": torch.tensor([1, 2], dtype=torch.int32),
    "short": torch.tensor([1, 2], dtype=torch.int16),
    "char": torch.tensor([-1], dtype=torch.int8),
    "byte": torch.tensor([255], dtype=torch.uint8),
    "bool": torch.tensor([True, False]),
    "empty": torch.empty(0, 3),
    "transposed": torch.arange(6.0).reshape(2, 3).T,
    "part": torch.arange(10.0)[3:9:2],
    "parameter": torch.nn.Parameter(torch.ones(2)),
}


@pytest.mark.parametrize("zipped", [True, False])
def test_torch_files(zipped: bool, tmp_path: Path) -> None:
    file = tmp_path / "file.pth"
    torch.save({"tensors": TENSORS, "epoch": np.int64(3)}, file, _use_new_zipfile_serialization=zipped)
    assert zipfile.is_zipfile(file) == zipped
    found = read_torch(file)
    assert found["epoch"] == 3
    for kind, expected in TENSORS.items():
        assert found["tensors"][kind].dtype == expected.dtype
        assert torch.equal(found["tensors"][kind], expected), kind


@pytest.mark.parametrize("zipped", [True, False])
def test_shared_storages_stay_shared(zipped: bool, tmp_path: Path) -> None:
    whole = torch.arange(4.0)
    torch.save([whole, whole[1:3]], tmp_path / "file.pth", _use_new_zipfile_serialization=zipped)
    first, second = read_torch(tmp_path / "file.pth")
    first[1] = 9
    assert second[0] == 9


@pytest.mark.parametrize("zipped", [True, False])
def test_a_modules_state_dict(zipped: bool, tmp_path: Path) -> None:
    state = torch.nn.BatchNorm1d(3).state_dict()
    torch.save(state, tmp_path / "file.pth", _use_new_zipfile_serialization=zipped)
    found = read_torch(tmp_path / "file.pth")
    assert list(found) == list(state)
    assert all(torch.equal(found[key], state[key]) for key in state)


# --- what is refused --------------------------------------------------------------------------------------------------


def hostile_bodies(sentinel: Path) -> dict[str, bytes]:
    """Ways to have something run; each would leave the sentinel file behind."""
    touch, python = f"touch {sentinel}", f"open({str(sentinel)!r}, 'w')"
    system = call("os", "system", touch)
    opened = ("posix", "open", str(sentinel), 65)
    return {
        "os.system": system,
        "posix.system": call("posix", "system", touch),
        "subprocess": call("subprocess", "Popen", ["touch", str(sentinel)]),
        "eval": call("builtins", "eval", python),
        "python 2's eval": call("__builtin__", "eval", python),
        "exec": call("builtins", "exec", python),
        "open": call("builtins", "open", str(sentinel), "w"),
        "io.open": call("io", "open", str(sentinel), "w"),
        "posix.open": call(*opened),
        "__import__": call("builtins", "__import__", "antigravity"),
        "getattr": name("builtins", "getattr") + b"(" + name("os", "path") + value("os") + b"tR",
        "getattr on an allowed name": name("builtins", "getattr")
        + b"("
        + name("collections", "OrderedDict")
        + value("x")
        + b"tR",
        "a dotted name": b"\x80\x04"
        + value("collections")
        + value("OrderedDict.fromkeys")
        + b"\x93"
        + value((["a"],))
        + b"R",
        "attrgetter": call("operator", "attrgetter", "system"),
        "partial": name("functools", "partial") + b"(" + name("os", "system") + value(touch) + b"tR",
        "map": name("builtins", "map") + b"(" + name("os", "system") + value([touch]) + b"tR",
        "pickle.loads": call("pickle", "loads", pickle.dumps(1)),
        "marshal": call("marshal", "loads", b"N"),
        "code": call("types", "CodeType", 0),
        "numpy.load": call("numpy", "load", str(sentinel)),
        "numpy.memmap": call("numpy", "memmap", str(sentinel), "uint8", "w+", 0, (4,)),
        "torch.load": call("torch", "load", str(sentinel)),
        "a storage from bytes": call("torch.storage", "_load_from_bytes", pickle.dumps(1)),
        "a module of torch": call("torch", "os"),
        "in a list": value([1]) + system + b"a",
        "in a dict": b"}" + value("a") + system + b"s",
        "in a tuple": system + b"\x85",
        "under another": name("collections", "OrderedDict") + b"(" + system + b"tR",
        "as a state": call("collections", "OrderedDict") + system + b"b",
        "as a factory": name("collections", "defaultdict") + name("os", "system") + b"\x85R",
        "as an array's type": name("numpy._core.multiarray", "_reconstruct")
        + b"("
        + name("os", "system")
        + value((0,))
        + value(b"b")
        + b"tR",
        "as a persistent id": system + b"Q",
        "as a text persistent id": b"Pstorage\n",
        "an instance": b"(" + value(touch) + b"ios\nsystem\n",
        "an object": b"(" + name("os", "system") + value(touch) + b"o",
        "a new object": name("os", "system") + value((touch,)) + b"\x81",
        "a new object with keywords": name("os", "system") + value((touch,)) + value({}) + b"\x92",
        "an extension": b"\x82\x01",
        "twice": system + system,
        "after a good value": value([1, 2]) + b"0" + system,
    }


@pytest.mark.parametrize("attack", list(hostile_bodies(Path("x"))))
def test_nothing_runs(attack: str, form: tuple[Writer, Reader], tmp_path: Path) -> None:
    write, read = form
    sentinel = tmp_path / "sentinel"
    write(tmp_path / "hostile", hostile_bodies(sentinel)[attack])
    with pytest.raises(UnpickleError, match=r"nothing in it was run|damaged, or not of this kind"):
        read(tmp_path / "hostile")
    assert not sentinel.exists()


def test_the_attacks_would_work_on_an_open_unpickler(tmp_path: Path) -> None:
    """So that the test above tests something."""
    sentinel = tmp_path / "sentinel"
    pickle.loads(document(hostile_bodies(sentinel)["os.system"]))
    assert sentinel.exists()


def test_a_refusal_names_what_was_asked_for(form: tuple[Writer, Reader], tmp_path: Path) -> None:
    write, read = form
    write(tmp_path / "hostile", call("os", "system", "true"))
    with pytest.raises(UnpickleError, match=r"hostile is refused: it names os\.system; nothing in it was run"):
        read(tmp_path / "hostile")


@pytest.mark.parametrize(
    "body",
    [
        call("builtins", "bytes", 10**12),
        call("builtins", "bytearray", 10**12),
        call("__builtin__", "bytearray", 10**12),
        call("builtins", "range", 10**12),
        name("numpy", "ndarray") + value(((10**12,),)) + b"R",
        call("numpy", "zeros", 10**12),
        call("numpy._core.numeric", "_frombuffer", b"abc", "f8", (10**12,), "C"),
        b"\x8e" + struct.pack("<Q", 10**12),  # BINBYTES8
        b"\x8b" + struct.pack("<i", 2**31 - 1),  # LONG4
        b"B" + struct.pack("<I", 2**32 - 1),  # BINBYTES
        value(("9" * 10**5,)) + b"0" + call("builtins", "int", "9" * 10**5),
    ],
    ids=lambda body: body[:24],
)
def test_huge_requests(body: bytes, form: tuple[Writer, Reader], tmp_path: Path) -> None:
    write, read = form
    write(tmp_path / "huge", body)
    with pytest.raises(UnpickleError):
        read(tmp_path / "huge")


def array_with(dtype_state: bytes, raw: bytes = b"AAAAAAAA", kind: str = "V8") -> bytes:
    """An array of one element whose dtype has been given a state of our choice."""
    shell = (
        name("numpy._core.multiarray", "_reconstruct")
        + b"("
        + name("numpy", "ndarray")
        + value((0,))
        + value("b")
        + b"tR"
    )
    dtype = call("numpy", "dtype", kind, False, True) + dtype_state + b"b"
    return (
        shell
        + b"("
        + value(1)
        + value((1,))
        + dtype
        + value(False)
        + call("_codecs", "encode", raw.decode(), "latin1")
        + b"tb"
    )


def test_a_dtype_that_points_outside_its_array(form: tuple[Writer, Reader], tmp_path: Path) -> None:
    """Reading such a field would read the process's memory, or crash it."""
    write, read = form
    field = b"}" + value("a") + b"(" + call("numpy", "dtype", "f8", False, True) + value(2**30) + b"ts"
    state = b"(" + value(3) + value("|") + b"N" + value(("a",)) + field + value(8) + value(1) + value(16) + b"t"
    write(tmp_path / "outside", array_with(state))
    with pytest.raises(UnpickleError):
        read(tmp_path / "outside")


@pytest.mark.parametrize(
    "state",
    [
        value((3, "<", (np.dtype("f8").str, (9,)), None, None, -1, -1, 0)),
        value((3, "<", None, ("a",), {}, -1, -1, 0)),
        value((3, "<", None, None, None, 2**20, 1, 0)),
        value((3,)),
        value("text"),
    ],
)
def test_strange_states_of_a_plain_dtype(state: bytes, form: tuple[Writer, Reader], tmp_path: Path) -> None:
    write, read = form
    write(tmp_path / "strange", array_with(state, kind="f8"))
    with pytest.raises(UnpickleError):
        read(tmp_path / "strange")


@pytest.mark.parametrize("state", [(1, (1,), "f8", False, b"AAAAAAAA"), (1, (1,)), None, 3])
def test_strange_states_of_an_array(state: Any, form: tuple[Writer, Reader], tmp_path: Path) -> None:
    write, read = form
    shell = name("numpy._core.multiarray", "_reconstruct") + b"(" + name("numpy", "ndarray") + value((0,)) + value("b")
    write(tmp_path / "strange", shell + b"tR" + value(state) + b"b")
    with pytest.raises(UnpickleError):
        read(tmp_path / "strange")


def test_a_dtype_that_claims_to_hold_objects(form: tuple[Writer, Reader], tmp_path: Path) -> None:
    """numpy would take the file's bytes for addresses."""
    write, read = form
    write(tmp_path / "objects", array_with(value((3, "|", None, None, None, 8, 1, 1))))
    with pytest.raises(UnpickleError):
        read(tmp_path / "objects")


@pytest.mark.parametrize(
    "array", [np.array([object], object), np.array([[1, "a"], None], object), np.zeros(2, [("a", "O")])]
)
def test_arrays_of_objects(array: np.ndarray, tmp_path: Path) -> None:
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        (tmp_path / "objects.pkl").write_bytes(pickle.dumps(array, protocol))
        with pytest.raises(UnpickleError):
            read_pickle(tmp_path / "objects.pkl")


LAUGHS = value("a") + b"q\x00" + b"".join(b"0(" + 10 * bytes([104, n]) + b"tq" + bytes([n + 1]) for n in range(6))


@pytest.mark.parametrize(
    "body",
    [
        name("builtins", "str") + LAUGHS + b"\x85R",
        name("_codecs", "encode") + value("a") + LAUGHS + b"\x86R",
        name("pathlib", "PosixPath") + LAUGHS + b"\x85R",
        name("numpy", "dtype") + LAUGHS + b"\x85R",
        LAUGHS + b"Q",
        b"(" + value("storage") + name("torch", "FloatStorage") + LAUGHS + value("cpu") + value(4) + b"tQ",
    ],
    ids=["str", "an encoding", "a path", "a dtype", "a persistent id", "a storage's key"],
)
def test_text_that_grows_without_end(body: bytes, form: tuple[Writer, Reader], tmp_path: Path) -> None:
    """A tuple of ten of a tuple of ten of ...: tiny as a file, and as text ten times longer with every level."""
    write, read = form
    write(tmp_path / "laughs", body)
    with pytest.raises(UnpickleError) as error:
        read(tmp_path / "laughs")
    assert len(str(error.value)) < 1000


@pytest.mark.parametrize(
    "target",
    [("pathlib", "PosixPath"), ("builtins", "bytes"), ("numpy", "dtype"), ("numpy", "ndarray"), ("_codecs", "encode")],
)
def test_a_file_cannot_change_what_its_names_stand_for(
    target: tuple[str, str], form: tuple[Writer, Reader], tmp_path: Path
) -> None:
    write, read = form
    write(tmp_path / "changing", name(*target) + b"N" + value({"__doc__": "changed"}) + b"\x86b")
    with pytest.raises(UnpickleError):
        read(tmp_path / "changing")


DEEP = 1_000_000
ENDLESS: dict[str, bytes] = {
    "deep": value(1) + b"\x85" * DEEP,
    "deep by tuple()": name("builtins", "tuple") + b"q\x000" + b"h\x00(" * DEEP + value(1) + b"l\x85R" * DEEP,
    "twice itself, 45 times": value(1) + b"q\x000h\x00h\x00\x86" * 45,
}


@pytest.mark.parametrize("key", list(ENDLESS))
def test_hashing_an_endless_tuple_neither_crashes_nor_hangs(key: str, tmp_path: Path) -> None:
    """As a key of a dict a tuple is hashed, and its hash is made by C code that knows no limits."""
    write_pickle(tmp_path / "key.pkl", b"}" + ENDLESS[key] + value(2) + b"s")
    read = "try: u.read_pickle(sys.argv[1])\nexcept u.UnpickleError: print('refused')"
    command = [sys.executable, "-c", f"import sys, superfeat.storage.unpickle as u\n{read}", str(tmp_path / "key.pkl")]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    assert (run.returncode, run.stdout) == (0, "refused\n")


@pytest.mark.parametrize("tuples", [(((1, 2), 3), 4), tuple((n, (n,)) for n in range(5000)), ((),)])
def test_common_tuples_are_read(tuples: Any, tmp_path: Path) -> None:
    (tmp_path / "tuples.pkl").write_bytes(pickle.dumps({tuples: tuples}, 2))
    assert read_pickle(tmp_path / "tuples.pkl") == {tuples: tuples}


def test_deep_containers_can_be_read_and_dropped(tmp_path: Path) -> None:
    write_pickle(tmp_path / "deep.pkl", b"]" * 200_000 + b"a" * 199_999)
    try:
        found = read_pickle(tmp_path / "deep.pkl")
    except UnpickleError:
        return
    assert len(found) == 1


# --- torch's own parts ------------------------------------------------------------------------------------------------


def test_handmade_torch_files_are_read(tmp_path: Path) -> None:
    """So that the refusals below are of what they say."""
    write_zip(tmp_path / "good.pth", tensor((2, 2), (2, 1)), storage=np.arange(4, dtype="<f4").tobytes())
    assert read_torch(tmp_path / "good.pth").tolist() == [[0, 1], [2, 3]]
    storages = value(["0"]) + b"." + struct.pack("<q", 4) + np.arange(4, dtype="<f4").tobytes()
    write_legacy(tmp_path / "old.pth", tensor((2, 2), (2, 1)), b"\x80\x02" + storages)
    assert read_torch(tmp_path / "old.pth").tolist() == [[0, 1], [2, 3]]


@pytest.mark.parametrize(
    "body",
    [
        tensor((5,), (1,)),
        tensor((2, 2), (2**40, 1)),
        tensor((2,), (1,), offset=3),
        tensor((2,), (1,), offset=-1),
        tensor((-1,), (1,)),
        tensor((10**12,), (1,)),
        tensor((2,), (-1,), offset=3),
        tensor((2,), (1,), key="1"),
        tensor((2,), (1,), key="../version"),
        tensor((2,), (1,), dtype="QInt8Storage"),
        tensor((2,), (1,), dtype="UntypedStorage"),
        b"(" + value("module") + value("a") + value("b") + value("c") + value(4) + b"tQ",
        b"(" + value("storage") + b"tQ",
        value("storage") + b"Q",
        b"(" + value("storage") + value("float32") + value("0") + value("cpu") + value("many") + b"tQ",
        call("torch._utils", "_rebuild_tensor_v2", "text", 0, (1,), (1,)),
        call("torch._utils", "_rebuild_tensor_v2"),
        call("torch._utils", "_rebuild_device_tensor_from_numpy", 1),
    ],
    ids=range(18),
)
def test_impossible_tensors(body: bytes, tmp_path: Path) -> None:
    for write in (write_zip, write_legacy):
        write(tmp_path / "bad.pth", body)
        with pytest.raises(UnpickleError):
            read_torch(tmp_path / "bad.pth")


@pytest.mark.parametrize("write", [write_zip, write_legacy])
def test_a_storage_type_is_not_looked_up_by_the_files_own_word(
    write: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch imports whole subpackages when it is asked for an attribute that it does not have yet."""
    asked: list[str] = []

    def ask(attribute: str) -> Any:
        asked.append(attribute)
        raise AttributeError(attribute)

    monkeypatch.setattr(torch, "__getattr__", ask)
    body = b"(" + value("storage") + value("_no_such_part") + value("0") + value("cpu") + value(4) + b"tQ"
    write(tmp_path / "asking.pth", body)
    with pytest.raises(UnpickleError):
        read_torch(tmp_path / "asking.pth")
    assert asked == []


def test_a_pickle_may_not_refer_to_storages(tmp_path: Path) -> None:
    write_pickle(tmp_path / "refers.pkl", value(("storage", "float32", "0", "cpu", 4)) + b"Q")
    with pytest.raises(UnpickleError, match="refers to data outside itself"):
        read_pickle(tmp_path / "refers.pkl")


def test_compressed_parts(tmp_path: Path) -> None:
    write_zip(tmp_path / "bomb.pth", value({}), compression=zipfile.ZIP_DEFLATED)
    with pytest.raises(UnpickleError, match="its parts are compressed"):
        read_torch(tmp_path / "bomb.pth")


def test_other_zip_files(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "photos.zip", "w") as archive:
        archive.writestr("a.txt", "hello")
    with pytest.raises(UnpickleError, match=r"torch.save did not write"):
        read_torch(tmp_path / "photos.zip")
    with zipfile.ZipFile(tmp_path / "two.zip", "w") as archive:
        archive.writestr("a/data.pkl", document(value(1)))
        archive.writestr("b/data.pkl", document(value(2)))
    with pytest.raises(UnpickleError, match=r"torch.save did not write"):
        read_torch(tmp_path / "two.zip")


def test_a_legacy_file_whose_storages_are_longer_than_it_is(tmp_path: Path) -> None:
    write_legacy(tmp_path / "huge.pth", tensor((1,), (1,), count=10**12))
    with pytest.raises(UnpickleError, match="longer than the file"):
        read_torch(tmp_path / "huge.pth")


@pytest.mark.parametrize("zipped", [True, False])
def test_a_file_cut_off_anywhere(zipped: bool, tmp_path: Path) -> None:
    file = io.BytesIO()
    torch.save(
        {"a": torch.arange(50.0), "b": torch.ones(3, 3), "c": "text"}, file, _use_new_zipfile_serialization=zipped
    )
    whole = file.getvalue()
    tail = range(len(whole) - 60, len(whole)) if not zipped else range(len(whole) - 20, len(whole))
    for length in (*range(0, len(whole) - 60, 37), *tail):
        (tmp_path / "cut.pth").write_bytes(whole[:length])
        with pytest.raises(UnpickleError):
            read_torch(tmp_path / "cut.pth")


def test_a_pickle_cut_off_anywhere(tmp_path: Path) -> None:
    whole = pickle.dumps({"a": np.arange(9), "b": [1, "two", 3.0], "c": pathlib.PurePosixPath("/x")}, 2)
    for length in range(len(whole)):
        (tmp_path / "cut.pkl").write_bytes(whole[:length])
        with pytest.raises(UnpickleError):
            read_pickle(tmp_path / "cut.pkl")


@pytest.mark.parametrize("data", [b"", b"\n", b"hello, world", b"\x80\x02", b"PK\x03\x04", b"\x93NUMPY", bytes(1000)])
def test_files_of_other_kinds(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(data)
    for read in (read_pickle, read_torch):
        with pytest.raises(UnpickleError):
            read(tmp_path / "other")


def test_missing_files_and_folders(tmp_path: Path) -> None:
    for read in (read_pickle, read_torch):
        for path in (tmp_path / "absent", tmp_path):
            with pytest.raises(UnpickleError, match="cannot read"):
                read(path)
