"""The machine and what this process may use of it: cores, memory, threads, load, disks.

Linux tells all of it in files below /proc and /sys; `root` is where these lie, so that tests can lay out a machine.
Where a system has no such files there is less to say.
"""

import math
import os
import platform
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from superfeat.doctor.checks import Check
from superfeat.doctor.probe import Probed
from superfeat.storage.sizes import as_size
from superfeat.threads import all_cores

ROOT = Path("/")
LIMITING = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
PINNING = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")
BUSY = 0.5  # load per core that is worth a word
LITTLE_DISK = 2e9  # bytes
NOT_LIMITED = 1 << 60  # what older kernels say for "no limit" is a number near 2^63
NETWORKS = {
    "9p",
    "afs",
    "ceph",
    "cifs",
    "davfs",
    "drvfs",
    "gfs2",
    "glusterfs",
    "lustre",
    "ncpfs",
    "nfs",
    "nfs4",
    "ocfs2",
    "prl_fs",
    "smb3",
    "smbfs",
    "vboxsf",
}


# -- Limits of a container (cgroups, version 2 and 1)


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def _group_folders(root: Path, controller: str) -> Iterator[Path]:
    """Folders that may limit this process, from its own group up; inside a container its own may be the root."""
    base = root / "sys/fs/cgroup"
    for line in (_read(root / "proc/self/cgroup") or "").splitlines():
        _, controllers, group = [*line.split(":", 2), "", ""][:3]
        if controllers and controller not in controllers.split(","):
            continue
        home = base / controllers if controllers else base
        homes = [home, base / controller] if controllers else [home]
        for top in homes:
            own = Path(group.strip("/"))
            yield from (top / part for part in (own, *own.parents))


def _smallest(values: Iterator[float | None]) -> float | None:
    return min((value for value in values if value is not None), default=None)


def core_quota(root: Path = ROOT) -> float | None:
    """How many cores' time a container gives; None if it does not limit it."""
    return _smallest(_quota_in(folder) for folder in _group_folders(root, "cpu"))


def _quota_in(folder: Path) -> float | None:
    new = (_read(folder / "cpu.max") or "").split()
    old = [_read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")]
    quota, period = [*new, None, None][:2] if new else old
    try:
        share = float(quota or "") / float(period or "")
    except (ValueError, ZeroDivisionError):
        return None
    return share if share > 0 else None


def memory_limit(root: Path = ROOT) -> tuple[int, int] | None:
    """What a container allows, and what of that is used; None if it does not limit it."""
    limits = []
    for folder in _group_folders(root, "memory"):
        for limit_name, used_name in (
            ("memory.max", "memory.current"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ):
            limit, used = _read(folder / limit_name), _read(folder / used_name)
            if limit is not None and limit.isdigit() and int(limit) < NOT_LIMITED:
                limits.append((int(limit), int(used) if used is not None and used.isdigit() else 0))
    return min(limits, key=lambda pair: pair[0] - pair[1], default=None)


# -- Cores


def check_cores(root: Path = ROOT) -> Iterator[Check]:
    usable, every, quota = all_cores(), os.cpu_count() or 1, core_quota(root)
    if quota is not None and quota < usable:
        workers = max(1, math.ceil(quota))
        text = f"a container allows the time of {quota:g} of {every} cores"
        advice = f"use --workers {workers}: {usable} workers in the time of {quota:g} cores get in each other's way"
        yield Check("cores", "note", text, advice, every / quota)
    elif usable < every:
        text = f"this process may use {usable} of {every} (taskset, a scheduler or a container)"
        yield Check("cores", "note", text, f"give it more cores: it may use {usable} of {every}", every / usable)
    else:
        yield Check("cores", "ok", f"{every}, all of which this process may use")


def check_processor(root: Path = ROOT, capability: str | None = None) -> Iterator[Check]:
    """The instructions that matter; `capability` is what torch uses."""
    lines = (_read(root / "proc/cpuinfo") or "").splitlines()
    facts = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    model = facts.get("model name") or platform.processor() or platform.machine() or "unknown"
    uses = f"; torch uses {capability}" if capability else ""
    flags = set((facts.get("flags") or "").split())
    if not flags:
        yield Check("processor", "ok", f"{model}{uses}")
        return
    vnni = flags & {"avx512_vnni", "avx_vnni"}
    wanted = {"AVX2": "avx2" in flags, "AVX-512": "avx512f" in flags, "VNNI": bool(vnni)}
    has = ", ".join(name for name, there in wanted.items() if there) or "none of AVX2, AVX-512, VNNI"
    lacks = [name for name, there in wanted.items() if not there]
    text = f"{model}: {has}" + (f" (not {', '.join(lacks)})" if len(lacks) < len(wanted) and lacks else "") + uses
    if wanted["AVX2"]:
        yield Check("processor", "ok", text)
    else:
        yield Check("processor", "note", text, "this processor has no AVX2: another machine is several times faster", 4)


def check_load(cores: int | None = None) -> Iterator[Check]:
    if not hasattr(os, "getloadavg"):
        yield Check("load", "note", "this system does not tell")
        return
    cores = cores or all_cores()
    load = os.getloadavg()[0]
    text = f"{load:.1f} in the last minute on {cores} cores"
    if load < BUSY * cores:
        yield Check("load", "ok", text)
        return
    advice = f"something else is running: it wants {load:.1f} of {cores} cores; wait for it, or stop it"
    yield Check("load", "note", text, advice, 1 + load / cores)


def check_threads(environment: Mapping[str, str]) -> Iterator[Check]:
    """Variables that change how threads run."""
    if environment.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        advice = "unset NUMBA_DISABLE_JIT: searches run as plain Python"
        yield Check("threads", "note", f"NUMBA_DISABLE_JIT={environment['NUMBA_DISABLE_JIT']}", advice, 100)
    for name in PINNING:
        if environment.get(name, "").lower() not in ("", "false", "none", "disabled"):
            advice = f"unset {name}: it ties threads to cores, so that all workers may share one"
            yield Check("threads", "note", f"{name}={environment[name]}", advice, all_cores())
    limits = [f"{name}={environment[name]}" for name in LIMITING if environment.get(name)]
    text = f"{', '.join(limits)}: no matter, work is shared out over threads of our own" if limits else "nothing is set"
    yield Check("threads", "ok", text)


# -- Memory and disks


class Memory(NamedTuple):
    """Bytes that there are for this process, and that are free."""

    total: int
    free: int


def find_memory(root: Path = ROOT) -> Memory | None:
    """Of the machine, or of the container if that allows less; None if the system does not tell."""
    rows = [line.split() for line in (_read(root / "proc/meminfo") or "").splitlines()]
    facts = {row[0].rstrip(":"): int(row[1]) << 10 for row in rows if len(row) >= 2 and row[1].isdigit()}
    if "MemTotal" in facts:
        found = Memory(facts["MemTotal"], facts.get("MemAvailable", facts.get("MemFree", 0)))
    elif root == ROOT and hasattr(os, "sysconf") and {"SC_PAGE_SIZE", "SC_PHYS_PAGES"} <= os.sysconf_names.keys():
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        found = Memory(total, total)
    else:
        return None
    limit = memory_limit(root)
    if limit is None or limit[0] >= found.total:
        return found
    return Memory(limit[0], min(found.free, max(0, limit[0] - limit[1])))


def check_memory(workers: Probed, root: Path = ROOT) -> Iterator[Check]:
    """`workers` says how many an extraction starts, and what each may need."""
    memory = find_memory(root)
    if memory is None:
        yield Check("memory", "note", "this system does not tell")
        return
    text = f"{as_size(memory.free)} of {as_size(memory.total)} are free"
    if "workers" not in workers:
        yield Check("memory", "ok", text)
        return
    count, each = int(workers["workers"]), int(workers["bytes_per_worker"])
    text += f"; {count} workers need up to {as_size(count * each)} (profile paper)"
    if memory.free >= count * each:
        yield Check("memory", "ok", text)
    else:
        few = max(1, memory.free // each)
        advice = f"little memory is free: with profile paper use --workers {few}, or close other programs"
        yield Check("memory", "note", text, advice, 2)


def check_disks(folders: Iterable[Path]) -> Iterator[Check]:
    """Each disk once; of a folder that is not there, what is above it."""
    seen = set()
    for folder in folders:
        there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
        device, free = there.stat().st_dev, shutil.disk_usage(there).free
        if device in seen:
            continue
        seen.add(device)
        text = f"{as_size(free)} are free at {there}"
        if free >= LITTLE_DISK:
            yield Check("disk", "ok", text)
        else:
            yield Check("disk", "note", text, f"free some space on the disk of {there}: {as_size(free)} are left")


def file_system(path: Path, root: Path = ROOT) -> str | None:
    """The kind of file system that a path lies on; None if the system does not tell."""
    if str(path).startswith("\\\\"):
        return "smb3"
    best, kind = -1, None
    for line in (_read(root / "proc/self/mountinfo") or "").splitlines():
        mount, _, rest = line.partition(" - ")
        fields, types = mount.split(), rest.split()
        if len(fields) < 5 or not types:
            continue
        point = Path(fields[4].replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\"))
        if path.is_relative_to(point) and len(point.parts) >= best:  # of two on one place the later one is seen
            best, kind = len(point.parts), types[0]
    return kind


def is_network(kind: str) -> bool:
    """Whether a file system is one that other machines, or other programs, serve."""
    return kind in NETWORKS or kind.startswith("fuse.")
