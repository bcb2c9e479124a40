"""Exact 1- and 5-nearest words of 1000 features among 65536: ours against faiss IndexFlatL2, in one run, same answers.

    python -m benchmarks.assign

CPU time of one thread, taking turns. Also what bounds them: the machine's measured speed of 32-bit GEMM (faiss's inner
loop) and of our 8-bit products alone.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import torch

from superfeat.index.nearest import nearest, prepare

DIM = 128


def cpu(function: Callable[[], Any]) -> float:
    begin = time.process_time()
    function()
    return time.process_time() - begin


def sgemm_rate(features: int, words: int) -> float:
    """The best GFLOP/s of one thread over block sizes, of products of exactly these shapes."""
    a, b = torch.randn(features, DIM), torch.randn(words, DIM)
    rates = []
    for rows, columns in ((250, 1024), (500, 512), (500, 1024), (1000, 1024)):
        out = torch.empty(min(rows, features), columns)

        def blocks(rows: int = rows, columns: int = columns, out: torch.Tensor = out) -> None:
            for first in range(0, features - rows + 1, rows):
                for word in range(0, words - columns + 1, columns):
                    torch.mm(a[first : first + rows], b[word : word + columns].T, out=out)

        done = features // rows * rows * (words // columns * columns)
        if done:
            blocks()
            rates.append(2 * DIM * done / min(cpu(blocks) for _ in range(3)) / 1e9)
    return max(rates, default=0.0)


def vectors(source: Path | None, words: int, features: int) -> tuple[np.ndarray, np.ndarray]:
    """Random ones, or those of a features folder: some as centroids, others as features."""
    random = np.random.default_rng(0)
    if source is None:
        centroids = random.standard_normal((words, DIM)).astype(np.float32)
        return centroids, random.standard_normal((features, DIM)).astype(np.float32)
    rows = np.load(source / "vectors.npy", mmap_mode="r")
    chosen = random.choice(len(rows), words + features, replace=False)
    values = np.asarray(rows[np.sort(chosen)], np.float32)[random.permutation(words + features)]
    return values[:words], values[words:]


def measure(centroids: np.ndarray, features: np.ndarray, count: int, rounds: int) -> dict[str, Any]:
    flat = faiss.IndexFlatL2(centroids.shape[1])
    flat.add(centroids)
    prepared = prepare(centroids)
    same = nearest(features, prepared, count) == flat.search(features, count)[1]
    pairs = []
    for _ in range(rounds):
        pairs.append((cpu(lambda: flat.search(features, count)), cpu(lambda: nearest(features, prepared, count))))
    ratios = sorted(a / b for a, b in pairs)
    return {
        "nearest": count,
        "same_answers": float(same.mean()),
        "faiss_ms": round(1e3 * float(np.median([a for a, _ in pairs])), 1),
        "ours_ms": round(1e3 * float(np.median([b for _, b in pairs])), 1),
        "times_faster": round(float(np.median(ratios)), 2),
        "spread": [round(ratios[0], 2), round(ratios[-1], 2)],
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--words", type=int, default=65536)
    parser.add_argument("--features", type=int, default=1000)
    parser.add_argument("--from", dest="source", type=Path, help="a features folder to take real vectors from")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args(arguments)
    faiss.omp_set_num_threads(1)
    torch.set_num_threads(1)
    centroids, features = vectors(chosen.source, chosen.words, chosen.features)
    results = [measure(centroids, features, count, chosen.rounds) for count in (1, 5)]
    work = 2 * DIM * len(features) * len(centroids) / 1e9
    rate = sgemm_rate(len(features), len(centroids))
    report = {
        "vectors": "random" if chosen.source is None else "real",
        "results": results,
        "GFLOP": round(work, 2),
        "sgemm_GFLOP_s": round(rate, 1),
        "sgemm_alone_ms": round(1e3 * work / rate, 1) if rate else None,
        "faiss_GFLOP_s": [round(work / one["faiss_ms"] * 1e3, 1) for one in results],
        "ours_as_GFLOP_s": [round(work / one["ours_ms"] * 1e3, 1) for one in results],
    }
    text = json.dumps(report, indent=2)
    print(text)
    if chosen.json:
        chosen.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
