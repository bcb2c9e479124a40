"""Exact nearest neighbours among vectors of whole photos: our index on disk beside faiss's flat one in memory.

    python -m benchmarks.vectors -o WORK/int8 --kernel int8 --json benchmarks/results/vectors_int8.json

Both give the same ids; they take turns in one run, on the same number of threads. The vectors are of things with a few
photos each and noise around them. A million float32 vectors of 2048 dimensions are 8.2 GB (float16 4.1, the 8-bit
roundings 2.05, which lie beside the float32 ones): faiss needs them in memory, ours are mapped. What the memory allows
is measured too: no scan of 8.2 GB can be faster than reading them. `--images 20000` is a small run of a minute.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.search import bandwidth, interleaved
from superfeat import Index
from superfeat.config import VECTOR_KERNELS, IndexConfig
from superfeat.features import ImageWords
from superfeat.index.codebook import Codebook
from superfeat.index.contents import load_contents
from superfeat.index.names import Image
from superfeat.index.segments import Segment, build_segment
from superfeat.index.vectors import as_row
from superfeat.index.writer import adopt
from superfeat.threads import all_cores

DIM, TOP, PHOTOS_PER_THING, NOISE = 2048, 100, 8, 1.0
SEGMENT = 1 << 16


def vectors(first: int, count: int, dim: int) -> np.ndarray:
    """Rows `first` to `first + count`: a thing, and noise of the same size; always the same."""
    rows = np.empty((count, dim), np.float32)
    for number in range(first, first + count):
        thing, photo = divmod(number, PHOTOS_PER_THING)
        row = np.random.default_rng((1, thing)).standard_normal(dim, np.float32)
        row += NOISE * np.random.default_rng((2, thing, photo)).standard_normal(dim, np.float32)
        rows[number - first] = row / np.linalg.norm(row)
    return rows


def build(folder: Path, kernel: str, count: int, dim: int) -> Index:
    """An index of so many vectors, in whole segments; one that is there is used."""
    if (folder / "manifest.json").is_file():
        index = Index.open(folder)
        if len(index) == count:
            return index
        raise SystemExit(f"{folder} holds {len(index)} vectors, not {count}; remove it or choose another folder")
    index = Index.create(folder, Codebook.of_vectors(dim), IndexConfig(kernel=kernel))  # type: ignore[arg-type]
    layout = index.snapshot().layout

    def segments() -> Iterator[Segment]:
        for first in range(0, count, SEGMENT):
            rows = vectors(first, min(SEGMENT, count - first), dim)
            word = np.zeros(1, np.int32)
            numbers = range(first, first + len(rows))
            images = [Image(f"{number:07}.jpg", number, {}) for number in numbers]
            yield build_segment(layout, numbers, images, [(word, as_row(row, kernel)) for row in rows])
            print(f"{first + len(rows)} of {count} vectors", file=sys.stderr, flush=True)

    with index.writing():
        adopt(index.path, load_contents(index.path), segments(), set())
    return Index.open(folder)


def compare(arguments: argparse.Namespace) -> dict[str, Any]:
    import faiss

    clock = time.process_time if arguments.cpu else time.perf_counter
    index = build(arguments.output, arguments.kernel, arguments.images, arguments.dim)
    threads = arguments.threads or all_cores()
    faiss.omp_set_num_threads(threads)
    flat = faiss.IndexFlatIP(arguments.dim)
    for segment in index.snapshot().segments:
        flat.add(index.snapshot().layout.as_stored(segment.postings.codes).astype(np.float32))
    digest, top = index.codebook.digest, min(TOP, arguments.images)
    asked = [vectors(int(number), 1, arguments.dim) for number in _places(arguments)]
    queries = [ImageWords(np.zeros(1, np.int32), as_row(row[0], arguments.kernel), digest) for row in asked]
    same = _same(index, flat, queries, top, threads)
    coming = iter(queries * 3), iter(queries * 3)

    def theirs() -> None:
        flat.search(np.asarray(next(coming[0]).codes, np.float32), top)

    one = interleaved(theirs, lambda: index.search(next(coming[1]), top, workers=threads), arguments.rounds, clock)
    batch = np.concatenate([np.asarray(query.codes, np.float32) for query in queries])
    many = interleaved(
        lambda: flat.search(batch, top),
        lambda: index.search_many(queries, top, workers=threads),
        max(1, arguments.rounds // 3),
        clock,
    )
    speed = bandwidth(arguments.gigabytes, clock) * 1e9
    width = {"float32": 4, "float16": 2, "int8": 1}[arguments.kernel]
    scanned = arguments.images * arguments.dim
    return {
        "images": arguments.images,
        "dim": arguments.dim,
        "kernel": arguments.kernel,
        "threads": threads,
        "clock": "CPU, beside other work" if arguments.cpu else "wall",
        "same_ids": same,
        "one_query": one,
        "queries_at_once": len(queries),
        "many_queries": many,
        "bandwidth_one_thread_GB_s": round(speed / 1e9, 1),
        "reading_all_float32_ms_one_thread": round(1e3 * 4 * scanned / speed, 1),
        "reading_what_is_scanned_ms_one_thread": round(1e3 * width * scanned / speed, 1),
        "bytes_on_disk": index.info().bytes,
    }


def _places(arguments: argparse.Namespace) -> np.ndarray:
    return np.asarray(np.random.default_rng(0).choice(arguments.images, arguments.rounds, replace=False))


def _same(index: Index, flat: Any, queries: list[ImageWords], top: int, threads: int) -> float:
    """The share of queries with the same ids, but for places whose scores are equal to 32 bits."""
    right = 0
    for query in queries:
        scores, ids = flat.search(np.asarray(query.codes, np.float32), top)
        ranking = index.search(query, top, workers=threads)
        changed = ranking.ids != ids[0]
        near = np.abs(ranking.scores[changed] - scores[0][changed]) < 1e-5
        right += bool(near.all()) and len(set(ranking.ids.tolist()) ^ set(ids[0].tolist())) <= 2 * int(near.sum())
    return right / len(queries)


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", "-o", type=Path, required=True, help="Folder of the index.")
    parser.add_argument("--images", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, default=DIM)
    parser.add_argument("--kernel", choices=VECTOR_KERNELS, default="int8")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--cpu", action="store_true", help="CPU-seconds in place of the clock, for a busy machine.")
    parser.add_argument("--gigabytes", type=float, default=1.0, help="Memory to read for the bandwidth.")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args(given)
    result = compare(arguments)
    text = json.dumps(result, indent=2)
    print(text)
    if arguments.json is not None:
        arguments.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
