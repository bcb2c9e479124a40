"""Pairs of a large collection: time, and the most memory that they ever needed.

    python -m benchmarks.pairs -o FOLDER --json results/pairs.json    # 100 000 photos, about 1 GB in FOLDER, kept

Photos are words and codes at random, with a skew as in `benchmarks.search`. The pairs are made by a process of its own,
whose peak of memory the system tells; it includes the pages of the index that were read.
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

from benchmarks.search import WORDS, WORDS_PER_IMAGE, Collection, build_million
from superfeat.engine import Engine
from superfeat.mapping.pairs import PairChoice, pairs_of_index


def measure(index: Path, output: Path, top: int, connected: bool) -> dict[str, Any]:
    """In this process: what it took."""
    engine = Engine.open(index)
    began, used = time.perf_counter(), time.process_time()
    written = pairs_of_index(engine, output, "hloc", PairChoice(top=top, connected=connected)).result()
    return {
        "photos": written.photos,
        "top": top,
        "connected": connected,
        "pairs": written.pairs,
        "parts": written.parts,
        "seconds": round(time.perf_counter() - began, 1),
        "cpu_seconds": round(time.process_time() - used, 1),
        "peak_MB": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def in_its_own_process(index: Path, output: Path, top: int, connected: bool) -> dict[str, Any]:
    """The same, apart from what made the index."""
    command = [sys.executable, "-m", "benchmarks.pairs", "--measure", str(index), "-o", str(output), "--top", str(top)]
    run = subprocess.run([*command, *(["--connected"] if connected else [])], check=True, stdout=subprocess.PIPE)
    found: dict[str, Any] = json.loads(run.stdout)
    return found


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, help="folder of the index (default: a temporary one)")
    parser.add_argument("--images", type=int, default=100_000)
    parser.add_argument("--top", type=int, default=50)
    parser.add_argument("--words", type=int, default=WORDS)
    parser.add_argument("--words-per-image", type=int, default=WORDS_PER_IMAGE)
    parser.add_argument("--connected", action="store_true")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args(arguments)
    if chosen.measure:
        print(json.dumps(measure(chosen.measure, chosen.output, chosen.top, chosen.connected)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = chosen.output or Path(temporary, "index")
        build_million(Collection(chosen.words, chosen.words_per_image), folder, chosen.images).compact()
        rows = [
            in_its_own_process(folder, Path(temporary, "pairs.txt"), chosen.top, connected)
            for connected in ([False, True] if chosen.connected else [False])
        ]
    text = json.dumps({"cores": os.cpu_count(), "pairs": rows}, indent=2)
    print(text)
    if chosen.json:
        chosen.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
