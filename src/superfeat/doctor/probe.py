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
from typing import Any

from superfeat.doctor.checks import first_line

PACKAGES = {"numpy": "numpy", "PIL": "Pillow", "safetensors": "safetensors", "numba": "numba", "torch": "torch"}
SIDE = 768  # of the matrices that are multiplied: their panels do not fit the first caches, as a trunk's do not
SECONDS = 0.3  # that the multiplying takes


def import_package(module: str) -> dict[str, Any]:
    """Its version."""
    return {"version": str(getattr(importlib.import_module(module), "__version__", "?"))}


def look_at_devices() -> dict[str, Any]:
    """What torch could run on, and what it makes of this CPU."""
    import torch

    found: dict[str, Any] = {"threads": torch.get_num_threads(), "cuda": None, "mps": False}
    if torch.cuda.is_available():
        found["cuda"] = torch.cuda.get_device_name(0)
    with contextlib.suppress(AttributeError):
        found["mps"] = bool(torch.backends.mps.is_available())
        found["capability"] = torch.backends.cpu.get_cpu_capability()
    return found


def look_at_workers() -> dict[str, Any]:
    """How many threads an extraction would take, and what each may need."""
    from superfeat.extraction.extract import BYTES_PER_WORKER, default_workers

    return {"workers": default_workers(), "bytes_per_worker": BYTES_PER_WORKER}


def multiply(seconds: float = SECONDS) -> dict[str, Any]:
    """Billions of 32-bit operations per second on one core: the best of many, as other work only slows it down."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        left, right = torch.rand(SIDE, SIDE), torch.rand(SIDE, SIDE)
        torch.mm(left, right)
        best, end = float("inf"), time.perf_counter() + seconds
        while best == float("inf") or time.perf_counter() < end:
            began = time.perf_counter()
            torch.mm(left, right)
            best = min(best, time.perf_counter() - began)
    finally:
        torch.set_num_threads(threads)
    return {"gflops": 2 * SIDE**3 / max(best, 1e-9) / 1e9}


def look_at_compiled_code() -> dict[str, Any]:
    """Where numba keeps its machine code for the next process, and whether it can."""
    from superfeat.index.kernel import compiled

    folder = getattr(getattr(compiled(_nothing), "stats", None), "cache_path", None)
    if folder is None:
        return {"folder": None, "writable": False}
    there = next(path for path in (Path(folder), *Path(folder).parents) if path.exists())
    return {"folder": str(folder), "writable": os.access(there, os.W_OK)}


def _nothing() -> int:
    return 0


def look_at_weights() -> dict[str, Any]:
    """The cache, and which weights are here."""
    from superfeat.storage.store import folder_bytes
    from superfeat.weights.named import NAMED, cache_folder, shipped_names

    folder = cache_folder()
    here = {name: (folder / named.file).is_file() for name, named in NAMED.items()}
    shipped = dict.fromkeys(shipped_names(), True)
    return {"folder": str(folder), "bytes": folder_bytes(folder), "names": here | shipped}


PARTS: dict[str, Callable[[], dict[str, Any]]] = {
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
