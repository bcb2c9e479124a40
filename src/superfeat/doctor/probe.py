"""Looks at what must be imported to be seen. Run in a process of its own: a broken build may kill the one it is in.

Prints a line of JSON per part, and before each the part's name, so that a death says what died.
"""

import contextlib
import importlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypedDict

from superfeat.doctor.checks import first_line

PACKAGES = {"numpy": "numpy", "PIL": "Pillow", "safetensors": "safetensors", "numba": "numba", "torch": "torch"}
MATRIX_SIDE = 768  # of the matrices that are multiplied: their panels do not fit the first caches, as a trunk's do not
SECONDS = 0.3  # that the multiplying takes


class Probed(TypedDict, total=False):
    """What a part found: the fields of its own, or an error."""

    error: str
    version: str  # of a package
    threads: int  # of devices, as are the next three
    cuda: str | None
    mps: bool
    capability: str
    workers: int  # of workers
    bytes_per_worker: int
    gflops: float  # of speed
    folder: str | None  # of compiled code and of weights
    writable: bool  # of compiled code
    bytes: int  # of weights
    names: dict[str, bool]  # of weights: whether they are here


def import_package(module: str) -> Probed:
    """Its version."""
    return {"version": str(getattr(importlib.import_module(module), "__version__", "?"))}


def look_at_devices() -> Probed:
    """What torch could run on, and what it makes of this CPU."""
    import torch

    found: Probed = {"threads": torch.get_num_threads(), "cuda": None, "mps": False}
    if torch.cuda.is_available():
        found["cuda"] = torch.cuda.get_device_name(0)
    with contextlib.suppress(AttributeError):
        found["mps"] = bool(torch.backends.mps.is_available())
        found["capability"] = torch.backends.cpu.get_cpu_capability()
    return found


def look_at_workers() -> Probed:
    """How many threads an extraction would take, and what each may need."""
    from superfeat.extraction.extract import BYTES_PER_WORKER, default_workers

    return {"workers": default_workers(), "bytes_per_worker": BYTES_PER_WORKER}


def multiply(seconds: float = SECONDS) -> Probed:
    """Billions of 32-bit operations per second on one core: the best of many, as other work only slows it down."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        left, right = torch.rand(MATRIX_SIDE, MATRIX_SIDE), torch.rand(MATRIX_SIDE, MATRIX_SIDE)
        torch.mm(left, right)
        best, end = float("inf"), time.perf_counter() + seconds
        while best == float("inf") or time.perf_counter() < end:
            began = time.perf_counter()
            torch.mm(left, right)
            best = min(best, time.perf_counter() - began)
    finally:
        torch.set_num_threads(threads)
    return {"gflops": 2 * MATRIX_SIDE**3 / max(best, 1e-9) / 1e9}


def look_at_compiled_code() -> Probed:
    """Where numba keeps its machine code for the next process, and whether it can."""
    from superfeat.index.kernel import compiled

    folder = getattr(getattr(compiled(_nothing), "stats", None), "cache_path", None)
    if folder is None:
        return {"folder": None, "writable": False}
    there = next(path for path in (Path(folder), *Path(folder).parents) if path.exists())
    return {"folder": str(folder), "writable": os.access(there, os.W_OK)}


def _nothing() -> int:
    return 0


def look_at_weights() -> Probed:
    """The cache, and which weights are here."""
    from superfeat.storage.cache import cache_folder
    from superfeat.storage.store import folder_bytes
    from superfeat.weights.named import NAMED, shipped_names

    folder = cache_folder()
    here = {name: (folder / named.file).is_file() for name, named in NAMED.items()}
    shipped = dict.fromkeys(shipped_names(), True)
    return {"folder": str(folder), "bytes": folder_bytes(folder), "names": here | shipped}


PARTS: dict[str, Callable[[], Probed]] = {
    **{module: (lambda module=module: import_package(module)) for module in PACKAGES},  # type: ignore[misc]
    "devices": look_at_devices,
    "workers": look_at_workers,
    "speed": multiply,
    "compiled": look_at_compiled_code,
    "weights": look_at_weights,
}


def main() -> None:
    """Prints every part; one that fails is an `error` and does not stop the rest."""
    for part, look in PARTS.items():
        print(json.dumps({"part": part}), flush=True)
        try:
            found = look()
        except Exception as error:
            found = {"error": f"{type(error).__name__}: {first_line(error)}"}
        print(json.dumps({"part": part, "found": found}), flush=True)
