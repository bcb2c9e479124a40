"""Pairs of a large collection: time, and the most memory that they ever needed.

    python -m benchmarks.pairs -o FOLDER --json results/pairs.json    # 100 000 photos, about 1 GB in FOLDER, kept

Stopped, the same call goes on.

Photos are words and codes at random, with a skew as in `benchmarks.search`. The pairs are made by a process of its own,
whose peak of memory the system tells; it includes the pages of the index that were read. The first 500 photos are an
index of their own, whose pairs must be those of brute force: each photo beside all others, word by word.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.asmk_per_word import PerWordIndex
from benchmarks.search import WORDS, WORDS_PER_IMAGE, Collection, build_million
from superfeat.engine import Engine
from superfeat.mapping.pair_files import read_pairs_file
from superfeat.mapping.pairs import PairChoice, pairs_of_index
from superfeat.threads import all_cores

CHECKED = 500  # photos whose pairs are compared with brute force


def measure(index: Path, output: Path, top: int, connected: bool, workers: int) -> dict[str, Any]:
    """In this process: what it took."""
    engine = Engine.open(index)
    began, used = time.perf_counter(), time.process_time()
    choice = PairChoice(top=top, connected=connected)
    work = pairs_of_index(engine, output, "hloc", choice, workers=workers)
    earlier = next(iter(work)).done
    written = work.result()
    return {
        "photos": written.photos,
        "top": top,
        "connected": connected,
        "workers": workers,
        "found_earlier": earlier,  # photos, by a run that was stopped
        "pairs": written.pairs,
        "parts": written.parts,
        "seconds": round(time.perf_counter() - began, 1),
        "cpu_seconds": round(time.process_time() - used, 1),
        "peak_MB": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def in_its_own_process(index: Path, output: Path, top: int, connected: bool, workers: int) -> dict[str, Any]:
    """The same, apart from what made the index."""
    command = [sys.executable, "-m", "benchmarks.pairs", "--measure", str(index), "-o", str(output), "--top", str(top)]
    more = ["--workers", str(workers), *(["--connected"] if connected else [])]
    run = subprocess.run([*command, *more], check=True, stdout=subprocess.PIPE)
    found: dict[str, Any] = json.loads(run.stdout)
    return found


def compare_with_brute_force(collection: Collection, folder: Path, photos: int, top: int) -> dict[str, Any]:
    """Pairs of a few photos of the collection, and those of scoring each of them beside all."""
    index = build_million(collection, folder / "few", photos)
    pairs_of_index(Engine.open(index.path), folder / "few.txt", "hloc", PairChoice(top=top)).result()
    plain, drawn, wanted = PerWordIndex(collection.words), list(collection.images(0, photos)), set()
    for one in drawn:
        plain.add(*one)
    plain.finish()
    for number, one in enumerate(drawn):
        order, scores = plain.search(*one, photos)
        others = [other for other, score in zip(order.tolist(), scores, strict=True) if other != number and score > 0]
        wanted |= {(min(number, other), max(number, other)) for other in others[:top]}
    names = {name: number for number, name in enumerate(index.names())}
    found = {(names[first], names[second]) for first, second in read_pairs_file(folder / "few.txt")}
    return {"photos": photos, "top": top, "pairs": len(wanted), "equal": found == wanted}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, help="folder of the index (default: a temporary one)")
    parser.add_argument("--images", type=int, default=100_000)
    parser.add_argument("--top", type=int, default=50)
    parser.add_argument("--words", type=int, default=WORDS)
    parser.add_argument("--words-per-image", type=int, default=WORDS_PER_IMAGE)
    parser.add_argument("--connected", action="store_true")
    parser.add_argument("--workers", type=int, default=all_cores())
    parser.add_argument("--checked", type=int, default=CHECKED, help="photos whose pairs are compared with brute force")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args(arguments)
    if chosen.measure:
        print(json.dumps(measure(chosen.measure, chosen.output, chosen.top, chosen.connected, chosen.workers)))
        return
    collection = Collection(chosen.words, chosen.words_per_image)
    with tempfile.TemporaryDirectory() as temporary:
        folder = chosen.output or Path(temporary, "index")
        checked = compare_with_brute_force(collection, Path(temporary), chosen.checked, chosen.top)
        build_million(collection, folder, chosen.images).compact()
        rows = [
            in_its_own_process(folder, folder.with_suffix(".pairs.txt"), chosen.top, connected, chosen.workers)
            for connected in ([False, True] if chosen.connected else [False])
        ]
    text = json.dumps({"cores": os.cpu_count(), "brute_force": checked, "pairs": rows}, indent=2)
    print(text)
    if chosen.json:
        chosen.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
