"""Which photos a codebook should be learned from: the indexed ones, or others of the same kind. mAP on real photos.

Uses the features that `benchmarks.profiles extract` has kept.

    python -m benchmarks.codebooks WORK/how640 --data DATA --json benchmarks/results/codebooks.json
"""

import argparse
import json
from pathlib import Path

from benchmarks.profiles import SETS, Choice, Extracted, judge, learn, read_sets

FEATURES = 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("--data", type=Path, required=True, help="folder with photos/ and gnd/")
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--words", type=int, nargs="+", default=[256, 1024, 4096, 16384])
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    extracted, rows = Extracted(args.work), []
    for words in args.words:
        choice = Choice((FEATURES,), words)
        others = learn(extracted, choice, extracted.facts["codebook"])
        for test in read_sets(args.data, args.sets):
            own = learn(extracted, choice, [str(photo.path) for photo in test.photos])
            for source, codebook in (("other photos", others), ("the indexed photos", own)):
                found = judge(extracted, choice, [test], codebook).mean
                rows.append({"set": test.name, "words": words, "learned from": source, "mAP": round(found, 1)})
                print(json.dumps(rows[-1]), flush=True)
    if args.json:
        args.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
