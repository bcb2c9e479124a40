"""The doctor on machines laid out for it: limits, odd systems, broken parts, an index in any condition."""

import dataclasses
import os
import random
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import superfeat
from superfeat.config import CALIBRATION, DEFAULT_WEIGHTS, ExtractConfig
from superfeat.doctor import advise, examine, machine, probe, software
from superfeat.doctor.checks import Check, guarded
from superfeat.doctor.collection import check_index
from superfeat.doctor.probe import Probed
from superfeat.extraction.kept import SWITCH, keep_ratio, kept_path
from superfeat.index.codebook import Codebook
from superfeat.index.index import Index
from superfeat.storage.sizes import as_size
from superfeat.weights.facts import read_config
from superfeat.weights.named import find_weights

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[3]
GIGA = 1 << 30
MEMINFO = "MemTotal:  16777216 kB\nMemFree:  1048576 kB\nMemAvailable:  8388608 kB\nHugePages_Total: 0\n"


def lay_out(root: Path, **files: str) -> Path:
    """A machine's files: `proc__meminfo="..."` is proc/meminfo."""
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def one(checks: Iterator[Check]) -> Check:
    (check,) = checks
    return check


# -- Checks and advice


def test_a_look_that_fails_is_a_note() -> None:
    def look() -> Iterator[Check]:
        yield Check("a", "ok", "fine")
        raise PermissionError(13, "no\nsecond line")

    (check,) = guarded("memory", look)
    assert (check.name, check.state) == ("memory", "note")
    assert "PermissionError" in check.text
    assert "\n" not in check.text


def test_advice_comes_by_importance() -> None:
    checks = [
        Check("slow", "note", "", "second", 3.0),
        Check("fine", "ok", ""),
        Check("b", "note", "", "fourth", 1.0),
        Check("a", "note", "", "third", 1.0),
        Check("broken", "problem", "", "first"),
    ]
    assert advise(checks) == ["first", "second", "third", "fourth"]


def test_sizes_for_people() -> None:
    assert [as_size(size) for size in (12, 1500, 2.5e6, 3e9)] == ["12 bytes", "1.5 kB", "2.5 MB", "3.0 GB"]


# -- Cores


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, None),
        ({"proc__self__cgroup": "0::/\n", "sys__fs__cgroup__cpu_dot_max": "150000 100000\n"}, 1.5),
        ({"proc__self__cgroup": "0::/\n", "sys__fs__cgroup__cpu_dot_max": "max 100000\n"}, None),
        ({"proc__self__cgroup": "0::/a/b\n", "sys__fs__cgroup__a__cpu_dot_max": "50000 100000\n"}, 0.5),
        ({"proc__self__cgroup": "0::/gone\n", "sys__fs__cgroup__cpu_dot_max": "200000 100000\n"}, 2.0),
        (
            {
                "proc__self__cgroup": "4:memory:/x\n3:cpu,cpuacct:/y\n0::/\n",
                "sys__fs__cgroup__cpu,cpuacct__y__cpu_dot_cfs_quota_us": "300000",
                "sys__fs__cgroup__cpu,cpuacct__y__cpu_dot_cfs_period_us": "100000",
            },
            3.0,
        ),
        (
            {
                "proc__self__cgroup": "3:cpu:/\n",
                "sys__fs__cgroup__cpu__cpu_dot_cfs_quota_us": "-1",
                "sys__fs__cgroup__cpu__cpu_dot_cfs_period_us": "100000",
            },
            None,
        ),
        ({"proc__self__cgroup": "nonsense\n::\n", "sys__fs__cgroup__cpu_dot_max": "1 0"}, None),
    ],
)
def test_how_much_of_the_cores_a_container_gives(tmp_path: Path, files: dict[str, str], expected: float | None) -> None:
    assert machine.core_quota(lay_out(tmp_path, **files)) == expected


def test_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(machine, "all_cores", lambda: 8)
    assert one(machine.check_cores(tmp_path)).state == "ok"
    monkeypatch.setattr(machine, "all_cores", lambda: 2)
    few = one(machine.check_cores(tmp_path))
    assert (few.state, few.slows) == ("note", 4.0)
    assert "2 of 8" in few.text
    lay_out(tmp_path, proc__self__cgroup="0::/\n", sys__fs__cgroup__cpu_dot_max="150000 100000")
    limited = one(machine.check_cores(tmp_path))
    assert "--workers 2" in str(limited.advice)


@pytest.mark.parametrize(
    ("flags", "state", "words"),
    [
        ("fpu sse2 avx2 avx512f avx512_vnni", "ok", "AVX2, AVX-512, VNNI"),
        ("fpu avx2", "ok", "AVX2 (not AVX-512, VNNI)"),
        ("fpu sse2", "note", "none of AVX2"),
    ],
)
def test_instructions(tmp_path: Path, flags: str, state: str, words: str) -> None:
    text = f"processor : 0\nmodel name : A CPU\nflags\t\t: {flags}\n\nprocessor : 1\n"
    found = one(machine.check_processor(lay_out(tmp_path, proc__cpuinfo=text), "AVX2"))
    assert found.state == state
    assert words in found.text
    assert "torch uses AVX2" in found.text


def test_instructions_that_nobody_tells(tmp_path: Path) -> None:
    assert one(machine.check_processor(tmp_path)).state == "ok"


def test_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (0.1, 9.0, 9.0))
    assert one(machine.check_load(4)).state == "ok"
    monkeypatch.setattr(os, "getloadavg", lambda: (8.0, 0.0, 0.0))
    busy = one(machine.check_load(4))
    assert (busy.state, busy.slows) == ("note", 3.0)
    monkeypatch.delattr(os, "getloadavg")
    assert "does not tell" in one(machine.check_load(4)).text


def test_variables_that_change_threads() -> None:
    assert one(machine.check_threads({})).text == "nothing is set"
    limited = one(machine.check_threads({"OMP_NUM_THREADS": "1"}))
    assert (limited.state, limited.text.startswith("OMP_NUM_THREADS=1")) == ("ok", True)
    assert one(machine.check_threads({"OMP_PROC_BIND": "false", "NUMBA_DISABLE_JIT": "0"})).state == "ok"
    found = list(machine.check_threads({"OMP_PROC_BIND": "true", "NUMBA_DISABLE_JIT": "1"}))
    assert [check.state for check in found] == ["note", "note", "ok"]
    assert "NUMBA_DISABLE_JIT" in advise(found)[0]


# -- Memory and disks


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, None),
        ({"proc__meminfo": "nonsense\n:\nMemTotal: x kB\n"}, None),
        ({"proc__meminfo": MEMINFO}, (16 * GIGA, 8 * GIGA)),
        ({"proc__meminfo": "MemTotal: 4194304 kB\nMemFree: 1048576 kB\n"}, (4 * GIGA, GIGA)),
        (
            {
                "proc__meminfo": MEMINFO,
                "proc__self__cgroup": "0::/\n",
                "sys__fs__cgroup__memory_dot_max": str(4 * GIGA),
                "sys__fs__cgroup__memory_dot_current": str(GIGA),
            },
            (4 * GIGA, 3 * GIGA),
        ),
        (
            {
                "proc__meminfo": MEMINFO,
                "proc__self__cgroup": "4:memory:/x\n",
                "sys__fs__cgroup__memory__x__memory_dot_limit_in_bytes": str(2 * GIGA),
                "sys__fs__cgroup__memory__memory_dot_limit_in_bytes": "9223372036854771712",
            },
            (2 * GIGA, 2 * GIGA),
        ),
        (
            {
                "proc__meminfo": MEMINFO,
                "proc__self__cgroup": "0::/\n",
                "sys__fs__cgroup__memory_dot_max": "max",
            },
            (16 * GIGA, 8 * GIGA),
        ),
    ],
)
def test_memory_that_there_is(tmp_path: Path, files: dict[str, str], expected: tuple[int, int] | None) -> None:
    assert machine.find_memory(lay_out(tmp_path, **files)) == expected


def test_memory_for_workers(tmp_path: Path) -> None:
    assert "does not tell" in one(machine.check_memory({}, tmp_path)).text
    lay_out(tmp_path, proc__meminfo=MEMINFO)
    assert one(machine.check_memory({}, tmp_path)).state == "ok"
    assert one(machine.check_memory({"workers": 4, "bytes_per_worker": 2 * GIGA}, tmp_path)).state == "ok"
    short = one(machine.check_memory({"workers": 6, "bytes_per_worker": 2 * GIGA}, tmp_path))
    assert short.state == "note"
    assert "--workers 4" in str(short.advice)


def test_disks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = tmp_path / "not" / "there"
    assert str(tmp_path) in one(machine.check_disks([wanted, tmp_path])).text
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**9, 10**9 - 5, 5))
    full = one(machine.check_disks([wanted]))
    assert (full.state, "5 bytes" in full.text) == ("note", True)


def test_kinds_of_file_systems(tmp_path: Path) -> None:
    lines = (
        "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw",
        "30 22 0:40 / /mnt/my\\040share rw - nfs4 server:/x rw",
        "31 22 0:41 / /home rw - tmpfs tmpfs rw",
        "32 22 0:42 / /home rw - fuse.sshfs me@there: rw",
        "half a line",
        "",
    )
    lay_out(tmp_path, proc__self__mountinfo="\n".join(lines))
    kinds = {"/a/b": "ext4", "/mnt/my share/index": "nfs4", "/mnt/my": "ext4", "/home/me": "fuse.sshfs"}
    assert {path: machine.file_system(Path(path), tmp_path) for path in kinds} == kinds
    assert machine.file_system(Path("/a"), tmp_path / "nowhere") is None
    assert machine.file_system(Path("\\\\server\\share"), tmp_path) == "smb3"
    assert [machine.is_network(kind) for kind in ("ext4", "nfs4", "fuse.sshfs", "btrfs")] == [False, True, True, False]


# -- Software


def answer(text: str, code: str = "") -> list[str]:
    """A process that prints this and then does that."""
    return [sys.executable, "-c", f"import os, sys, time\nprint({text!r}, flush=True)\n{code}"]


def test_the_probe_of_this_machine() -> None:
    found = software.run_probe()
    assert {part: one for part, one in found.items() if "error" in one} == {}
    assert set(found) == set(probe.PARTS)
    assert found["speed"]["gflops"] > 0
    assert found["workers"]["workers"] >= 1
    assert {check.state for check in software.check_packages(found)} == {"ok"}


def test_a_probe_that_is_killed_says_where() -> None:
    lines = '{"part": "numpy", "found": {"version": "2"}}\n{"part": "torch"}'
    found = software.run_probe(answer(lines, f"os.kill(os.getpid(), {signal.SIGILL.value})"))
    assert found["numpy"] == {"version": "2"}
    assert "SIGILL" in found["torch"]["error"]
    states = {check.name: check.state for check in software.check_packages(found)}
    assert states == {"numpy": "ok", "torch": "problem"}


def test_a_probe_that_hangs() -> None:
    (found,) = software.run_probe(answer('{"part": "torch"}', "time.sleep(60)"), patience=2).values()
    assert "no answer" in found["error"]


def test_a_probe_that_fails_among_chatter() -> None:
    found = software.run_probe(answer('hello\n[1]\n{"part": "torch"}', "sys.exit('my last words')"))
    assert list(found) == ["torch"]
    assert "my last words" in found["torch"]["error"]


def test_a_probe_that_cannot_start(tmp_path: Path) -> None:
    found = software.run_probe([str(tmp_path / "no-python")])
    (check,) = software.check_packages(found)
    assert (check.name, check.state) == ("python", "note")
    for look in (software.check_device, software.check_speed, software.check_compiled_code, software.check_weights):
        assert list(look(found)) == []


def test_a_part_that_fails_does_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> dict[str, Any]:
        raise ImportError("libcudart.so.12: cannot open\nmore")

    monkeypatch.setattr(probe, "PARTS", {"torch": fail, "numpy": lambda: {"version": "2"}})
    probe.main()
    found = software._read_findings(capsys.readouterr().out.splitlines(), "ended")
    assert found == {"torch": {"error": "ImportError: libcudart.so.12: cannot open"}, "numpy": {"version": "2"}}
    (broken, _) = sorted(software.check_packages(found), key=lambda check: check.state, reverse=True)
    assert (broken.name, broken.state) == ("torch", "problem")
    assert "pip install" in str(broken.advice)


def test_the_extras_are_those_of_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = {
        extra: tuple(need.split(">")[0].split("[")[0] for need in needs)
        for extra, needs in project["optional-dependencies"].items()
        if extra not in ("dev", "bench", "docs")
    }
    assert set(declared) <= set(software.EXTRAS)
    assert {extra: software.EXTRAS[extra].needs for extra in declared} == declared
    assert software._version("superfeat-has-no-such-part") is None
    monkeypatch.setattr(software, "_version", lambda name: None if name == "onnx" else "1.0")
    checks = {check.name: check for check in software.check_extras()}
    assert checks["extra heif"].text == "pillow-heif 1.0"
    assert "pip install 'superfeat[onnx]'" in checks["extra onnx"].text


def test_devices() -> None:
    def device(**found: Any) -> Check:
        devices: Any = {"cuda": None, "mps": False, **found}
        return one(software.check_device({"devices": devices}))

    assert device().state == "ok"
    assert "--device cuda" in str(device(cuda="Tesla").advice)
    assert "--device mps" in str(device(mps=True).advice)
    assert list(software.check_device({"devices": {"error": "x"}})) == []


def test_speed() -> None:
    paper, fast = ExtractConfig.profile("paper"), ExtractConfig.profile("fast")
    rate = software.photos_per_minute(50, 2, fast)
    assert rate == pytest.approx(2 * software.photos_per_minute(50, 1, fast))
    assert software.photos_per_minute(50, 2, paper) < rate / 5
    assert one(software.check_speed({"speed": {"gflops": 60.0}, "workers": {"workers": 2}})).state == "ok"
    slow = one(software.check_speed({"speed": {"gflops": 2.0}}))
    assert (slow.state, slow.slows) == ("note", 10.0)


def test_compiled_code_and_weights() -> None:
    assert one(software.check_compiled_code({"compiled": {"folder": "/x", "writable": True}})).state == "ok"
    for folder in ("/x", None):
        found = one(software.check_compiled_code({"compiled": {"folder": folder, "writable": False}}))
        assert "NUMBA_CACHE_DIR" in str(found.advice)
    weights: Probed = {"folder": "/cache", "bytes": 5, "names": {"a": True, "b": False}}
    cache, here, missing = software.check_weights({"weights": weights})
    assert (cache.text, here.state, missing.state) == ("/cache: 5 bytes", "ok", "note")
    assert "superfeat weights get b" in missing.text
    assert one(software.check_weights({"weights": {"error": "ImportError: x"}})).state == "note"


def test_where_compiled_code_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert probe.look_at_compiled_code()["writable"] is True
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert probe.look_at_compiled_code()["writable"] is False


def test_python(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, python = software.check_python()
    assert superfeat.__version__ in ours.text
    assert python.state == "ok"
    monkeypatch.setattr(sys, "maxsize", (1 << 31) - 1)
    assert [check.state for check in software.check_python()] == ["ok", "problem"]


# -- An index


@pytest.fixture
def index(tmp_path: Path) -> Index:
    """Twelve images with files, one without a known one; no network."""
    codebook = Codebook(np.random.default_rng(0).standard_normal((8, 64)).astype(np.float32))
    made = Index.create(tmp_path / "index", codebook, facts={"weights": str(tmp_path / "network")})
    for number in range(12):
        path = tmp_path / f"{number}.jpg"
        path.touch()
        vectors = np.random.default_rng(number).standard_normal((5, 64)).astype(np.float32)
        made.add(str(number), vectors, {"path": str(path)} if number else None)
    return made


def looks(index: Index | Path, root: Path, **names: bool) -> dict[str, Check]:
    path = index.path if isinstance(index, Index) else index
    return {check.name: check for check in check_index(path, names, root)}


def test_an_index_in_good_health(index: Index, tmp_path: Path) -> None:
    (tmp_path / "network").mkdir()
    (index.path / CALIBRATION).write_text("{}")
    mounts = "22 1 254:0 / / rw - ext4 /dev/vda rw"
    found = looks(index, lay_out(tmp_path / "root", proc__self__mountinfo=mounts, proc__meminfo=MEMINFO))
    assert {check.state for check in found.values()} == {"ok"}
    assert "12 images" in found["index"].text
    assert found["index photos"].text.startswith("all of 11")
    assert found["index place"].text == "ext4"


def test_an_index_in_bad_health(index: Index, tmp_path: Path) -> None:
    index.delete([str(number) for number in range(5, 12)])
    (tmp_path / "3.jpg").unlink()
    mounts = "22 1 254:0 / / rw - nfs4 server:/ rw"
    root = lay_out(tmp_path / "root", proc__self__mountinfo=mounts, proc__meminfo="MemTotal: 1 kB\nMemAvailable: 1 kB")
    found = looks(index, root)
    assert {check.state for check in found.values()} == {"note"}
    assert "superfeat compact" in str(found["index"].advice)
    assert "1 of 4" in found["index photos"].text
    assert f"superfeat index PHOTOS -o {index.path} finds photos that were moved" in str(found["index photos"].advice)
    assert "--sync" in str(found["index photos"].advice)
    assert str(tmp_path / "network") in str(found["index network"].advice)
    assert "larger than the free memory" in advise(found.values())[0]


def test_networks_by_name(tmp_path: Path) -> None:
    codebook = Codebook(np.zeros((2, 64), np.float32))
    Index.create(tmp_path / "named", codebook, facts={"weights": "some-network"})
    Index.create(tmp_path / "unnamed", codebook)
    assert looks(tmp_path / "named", tmp_path, **{"some-network": True})["index network"].state == "ok"
    missing = looks(tmp_path / "named", tmp_path, **{"some-network": False})["index network"]
    assert "superfeat weights get some-network" in str(missing.advice)
    assert "--weights" in looks(tmp_path / "unnamed", tmp_path)["index network"].text


def test_an_index_of_features_and_an_empty_one(tmp_path: Path) -> None:
    index = Index.create(tmp_path / "index", Codebook(np.eye(64, dtype=np.float32)[:2]))
    assert "index photos" not in looks(index, tmp_path)
    index.add("a", np.ones((1, 64), np.float32))
    assert "not known" in looks(index, tmp_path)["index photos"].text


def test_what_is_not_an_index_is_a_problem(tmp_path: Path) -> None:
    found = looks(tmp_path, tmp_path)
    assert [(check.name, check.state) for check in found.values()] == [("index", "problem")]
    assert "is not an index" in found["index"].text


def test_many_segments(index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = dataclasses.replace(index.info(), segments=40)
    monkeypatch.setattr(Index, "info", lambda self: facts)
    assert "superfeat compact" in str(looks(index, tmp_path)["index"].advice)


# -- All of it


def test_nothing_that_fails_stops_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> Iterator[Check]:
        raise RuntimeError(f"odd {random.random()}")

    for module in (machine, software):
        for name in dir(module):
            if name.startswith("check_"):
                monkeypatch.setattr(module, name, fail)
    monkeypatch.setattr(software, "run_probe", lambda: {})
    checks = list(examine())
    assert len(checks) >= 10
    assert {check.state for check in checks} == {"note"}


def test_a_system_without_proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No files to read, no load, no affinity: less is said, nothing fails."""
    monkeypatch.delattr(os, "getloadavg")
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert one(machine.check_cores(tmp_path)).state == "ok"
    assert machine.find_memory(tmp_path) is None
    monkeypatch.setattr(machine, "_read", lambda _: None)
    assert machine.find_memory() is not None
    monkeypatch.delattr(os, "sysconf")
    assert machine.find_memory() is None


def test_int8_is_what_was_tried_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.setenv("SUPERFEAT_CACHE", str(tmp_path))
    monkeypatch.setenv(SWITCH, "torch")
    assert "says torch" in one(software.check_int8()).text
    monkeypatch.delenv(SWITCH)
    assert "not tried here yet" in one(software.check_int8()).text
    digest = read_config(find_weights(DEFAULT_WEIGHTS))["digest"]
    kept_path(digest).parent.mkdir(parents=True)
    for ratio, said in ((0.42, "takes 0.42 of float32's time here"), (0.95, "new indexes take float32")):
        keep_ratio(digest, ratio)
        assert said in one(software.check_int8()).text
    monkeypatch.setattr(software, "_version", lambda name: None)
    assert list(software.check_int8()) == []
