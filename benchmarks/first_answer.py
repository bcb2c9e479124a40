"""The first answer from a cold shell: CPU-seconds of `superfeat search INDEX PHOTO` with torch and with ONNX Runtime.

    python -m benchmarks.first_answer INDEX PHOTOS [--int8 FILE] --json benchmarks/results/first_answer.json

Both, and with --int8 an int8 file of the index's network, take turns, each in a process of its own, with a photo that
is not in the index; CPU-seconds are those of the whole process. Before that all run once: the export is made, and
Numba's code is compiled. Beside the times it says how many words of a photo differ between torch and ONNX Runtime, how
far scores are apart, and what the first and the second search of an engine cost that was warmed up as the service does
it.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from superfeat.engine import Engine
from superfeat.extraction.kept import SWITCH
from superfeat.sources.listing import list_photos

ENGINES = {"torch": "torch", "onnx": "auto"}  # and what SWITCH has to say


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("index", type=Path)
    parser.add_argument("photos", type=Path, help="a folder of photos to ask with; the first is the one that is timed")
    parser.add_argument("--int8", type=Path, help="an .onnx file to ask with too")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--compared", type=int, default=20, help="photos whose words are compared")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args(arguments)
    photos = [photo.path for photo in list_photos([str(args.photos)]).photos]
    with tempfile.TemporaryDirectory() as cache:
        os.environ["SUPERFEAT_CACHE"] = cache
        facts = {
            "rounds": args.rounds,
            "search": time_searches(args.index, photos[0], args.rounds, args.int8),
            "agreement": compare(args.index, photos[: args.compared]),
            "warm": time_warm(args.index, photos[:2]),
        }
    print(json.dumps(facts, indent=1))
    if args.json:
        args.json.write_text(json.dumps(facts, indent=1) + "\n")


def time_searches(index: Path, photo: Path, rounds: int, int8: Path | None) -> dict[str, Any]:
    ways: dict[str, tuple[str, list[str]]] = {name: (said, []) for name, said in ENGINES.items()}
    if int8 is not None:
        ways["int8"] = "auto", ["--weights", str(int8)]
    spent: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds + 1):  # the first warms up
        for name, way in ways.items():
            spent[name].append(cpu_of(index, photo, *way))
    rows = {name: spread(values[1:]) for name, values in spent.items()}
    ratios = {name: round(row["median"] / rows["torch"]["median"], 3) for name, row in rows.items()}
    return {**rows, "ratio": ratios.pop("onnx"), **({"ratio_int8": ratios["int8"]} if int8 is not None else {})}


def cpu_of(index: Path, photo: Path, engine: str, options: Sequence[str]) -> float:
    """CPU-seconds of one search in a new process."""
    command = [sys.executable, "-m", "superfeat", "search", str(index), str(photo), "--json", *options]
    environment = {**os.environ, SWITCH: engine}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return usage.ru_utime + usage.ru_stime


def spread(values: Sequence[float]) -> dict[str, float]:
    return {
        "median": round(statistics.median(values), 3),
        "least": round(min(values), 3),
        "most": round(max(values), 3),
    }


def engine_by(index: Path, name: str) -> Engine:
    os.environ[SWITCH] = ENGINES[name]
    engine = Engine.open(index)
    if (engine._sight.onlooker is not None) != (name == "onnx"):
        raise SystemExit(
            "there is no export of this network: is superfeat[onnx] installed, and the method FIRe or HOW?"
        )
    return engine


def compare(index: Path, photos: Sequence[Path]) -> dict[str, Any]:
    """Words that only one of both gives, and how far the scores of the first results are apart."""
    both = [engine_by(index, name) for name in ENGINES]
    different = words = same = 0
    furthest, vectors = 0.0, 0.0
    for photo in photos:
        features = [engine.features(photo) for engine in both]
        answers = [engine.search(photo) for engine in both]
        sets = [set(engine.index.query(found, 5).words.tolist()) for engine, found in zip(both, features, strict=True)]
        different += len(sets[0] ^ sets[1])
        words += len(sets[0] | sets[1])
        scores = [{hit.name: hit.score for hit in answer} for answer in answers]
        furthest = max([furthest, *(abs(scores[0][name] - scores[1].get(name, 0.0)) for name in scores[0])])
        same += [hit.name for hit in answers[0]] == [hit.name for hit in answers[1]]
        vectors = max(vectors, distance(features[0].vectors, features[1].vectors))
    return {
        "photos": len(photos),
        "words": words,
        "words_of_one_alone": different,
        "largest_difference_of_scores": float(f"{furthest:.1e}"),
        "largest_difference_of_vectors": float(f"{vectors:.1e}"),
        "answers_in_the_same_order": same,
    }


def distance(one: np.ndarray, other: np.ndarray) -> float:
    """From each vector of one to the nearest of the other, at most: features may come in another order."""
    if not len(one) or not len(other):
        return 0.0 if len(one) == len(other) else np.inf
    squares = (one**2).sum(1)[:, None] + (other**2).sum(1) - 2 * one @ other.T
    nearest = squares.argmin(1)
    return float(np.sqrt(((one - other[nearest]) ** 2).sum(1)).max() / np.sqrt((one**2).sum(1)).max())


def time_warm(index: Path, photos: Sequence[Path]) -> dict[str, Any]:
    """CPU-milliseconds of the first and the second search of an engine, warm as the service has it, and cold."""
    facts: dict[str, Any] = {}
    for name in ("warm", "cold"):
        code = (
            "import json, sys, time; from pathlib import Path; from superfeat.engine import Engine\n"
            "engine, spent = Engine.open(sys.argv[1]), []\n"
            f"{'engine.warm_up()' if name == 'warm' else ''}\n"
            "for photo in sys.argv[2:]:\n"
            "    before = time.process_time(); engine.search(Path(photo)); spent.append(time.process_time() - before)\n"
            "print(json.dumps(spent))"
        )
        command = [sys.executable, "-c", code, str(index), *map(str, photos)]
        environment = {**os.environ, SWITCH: "auto"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        facts[name] = [round(1000 * seconds) for seconds in json.loads(done.stdout)]
    return facts


if __name__ == "__main__":
    main()
