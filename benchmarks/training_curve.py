"""How a network grew: mAP on the validation sets against the pairs that it has seen, from the logs of its runs.

    python -m benchmarks.training_curve read RUN/log.jsonl --pairs-per-step 10 --name "LIT and third stage" \
        --seen 6600 --json benchmarks/results/training_curve.json
    python -m benchmarks.training_curve draw benchmarks/results/training_curve.json -o FILE.png

`read` adds a run to the file, or replaces the one of that name. --seen are the pairs that the network had seen before.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from superfeat.figures import Panel, Series
from superfeat.pages.plots import draw_curves


def read(args: argparse.Namespace) -> None:
    rows = []
    seconds = 0.0
    for line in args.log.read_text().splitlines():
        event = json.loads(line)
        if event["event"] == "step":
            seconds += sum(event["seconds"].values())
        if event["event"] == "validation":
            sets = {name: one.get("map_hard", one["map"]) for name, one in event["sets"].items()}
            rows.append(
                {
                    "pairs": args.seen + args.pairs_per_step * event["step"],
                    "mean": event["map"],
                    **sets,
                    "words": event["words_per_image"],
                    "step_hours": round(seconds / 3600, 2),
                }
            )
    runs: dict[str, Any] = json.loads(args.json.read_text()) if args.json.is_file() else {}
    runs[args.name] = rows
    args.json.write_text(json.dumps(runs, indent=1) + "\n")


def draw(args: argparse.Namespace) -> None:
    runs = json.loads(args.file.read_text())
    means = [Series(name, [row["pairs"] for row in rows], [row["mean"] for row in rows]) for name, rows in runs.items()]
    draw_curves([Panel("Mean of the validation sets", "pairs seen", "mAP", means)], args.output)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    one = verbs.add_parser("read")
    one.set_defaults(work=read)
    one.add_argument("log", type=Path)
    one.add_argument("--name", required=True)
    one.add_argument("--pairs-per-step", type=int, required=True)
    one.add_argument("--seen", type=int, default=0)
    one.add_argument("--json", type=Path, required=True)
    one = verbs.add_parser("draw")
    one.set_defaults(work=draw)
    one.add_argument("file", type=Path)
    one.add_argument("--output", "-o", type=Path, required=True)
    args = parser.parse_args(arguments)
    args.work(args)


if __name__ == "__main__":
    main()
