"""Where the time of indexing goes: CPU-seconds in the network and in everything else, and how busy the cores are.

    python -m benchmarks.indexing PHOTOS --photos 120 --json benchmarks/results/indexing.json

One run of `index_photos` into a new index, after a first one over a few photos that loads and compiles. CPU-seconds of
each part are those of the threads that do it; what no part accounts for (names, journal of the index, Python itself)
is `rest`. Loading the network and the words is `start`, which is the same for any number of photos and left out of
the shares. Utilisation is CPU-seconds / (wall-clock seconds x cores): it means something on a quiet machine alone.
"""

import argparse
import collections
import functools
import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from superfeat.extraction import extract
from superfeat.extraction.memory import keep_memory
from superfeat.index import build, codebook, identity, make, nearest
from superfeat.index import index as index_module
from superfeat.index.codebook import Codebook
from superfeat.index.index import Index
from superfeat.index.make import index_photos
from superfeat.sources.listing import list_photos
from superfeat.threads import all_cores
from superfeat.weights.network import Network

WARM_UP = 3


class Spent:
    """CPU-seconds by part; of nested parts the inner one is not counted in the outer one."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = collections.defaultdict(float)
        self._lock, self._open = threading.Lock(), threading.local()

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def run(*arguments: Any, **options: Any) -> Any:
            outer = getattr(self._open, "inside", 0.0)
            self._open.inside = 0.0
            clock = time.process_time if part == "start" else time.thread_time  # torch's threads help to load
            began = clock()
            try:
                return function(*arguments, **options)
            finally:
                whole = clock() - began
                with self._lock:
                    self.seconds[part] += whole - self._open.inside
                self._open.inside = outer + whole

        return run


@contextmanager
def watched(spent: Spent) -> Iterator[None]:
    """Indexing, every part of it timed."""
    parts: list[tuple[Any, str, str]] = [
        (extract, "decode", "decode"),
        (extract, "normalise", "resize"),
        (extract, "resize", "resize"),
        (extract, "find_regions", "join"),
        (extract, "join_scales", "join"),
        (Index, "query", "words"),
        (nearest, "_nearest_block", "words"),
        (identity, "file_digest", "hash"),
        (build, "_places", "write"),
        (make, "load_network", "start"),
        (Codebook, "open", "start"),
        (codebook, "prepare", "start"),
        (index_module, "create_folder", "start"),
        (make, "take_calibration", "start"),
        (make, "list_photos", "start"),
    ]
    fast = Network.fast
    assert isinstance(fast, functools.cached_property)
    with ExitStack() as stack:
        for owner, name, part in parts:
            stack.enter_context(mock.patch.object(owner, name, spent.timed(part, getattr(owner, name))))
        fuse = spent.timed("start", fast.func)
        timed = property(lambda network: spent.timed("network", fuse(network)))
        stack.enter_context(mock.patch.object(Network, "fast", timed))
        yield


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", help="photos")
    parser.add_argument("--photos", type=int, default=120)
    parser.add_argument("--weights")
    parser.add_argument("--set", action="append", default=[], help="of the extraction, e.g. max_side=480")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args(arguments)
    keep_memory()
    every = [photo.path for photo in list_photos([args.source]).photos]
    order = np.random.default_rng(0).permutation(len(every))
    photos = [every[place] for place in order[: args.photos + WARM_UP]]
    settings = dict(text.split("=", 1) for text in args.set)
    facts = measure(photos, args.weights, {name: json.loads(value) for name, value in settings.items()})
    print(json.dumps(facts, indent=1))
    if args.json:
        args.json.write_text(json.dumps(facts, indent=1) + "\n")


def measure(photos: Sequence[Path], weights: str | None, settings: dict[str, Any]) -> dict[str, Any]:
    spent = Spent()
    with tempfile.TemporaryDirectory() as folder:
        options: dict[str, Any] = {"weights": weights, "settings": settings}
        with watched(spent):
            index_photos(photos[:WARM_UP], Path(folder, "first"), **options)
            spent.seconds.clear()
            wall, cpu = time.perf_counter(), time.process_time()
            done = index_photos(photos[WARM_UP:], Path(folder, "index"), **options)
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    parts = dict(spent.seconds)
    parts["rest"] = cpu - sum(parts.values())
    start = parts.pop("start")
    return {
        "photos": done.new,
        "start_cpu_seconds": round(start, 2),
        "cpu_ms_per_photo": {name: round(1000 * value / done.new, 1) for name, value in sorted(parts.items())},
        "share_outside_network": round(1 - parts["network"] / (cpu - start), 4),
        "cpu_seconds": round(cpu, 2),
        "wall_seconds": round(wall, 2),
        "cores": all_cores(),
        "utilisation": round(cpu / wall / all_cores(), 3),
    }


if __name__ == "__main__":
    main()
