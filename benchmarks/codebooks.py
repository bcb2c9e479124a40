"""Which photos a codebook should be learned from: the indexed ones, or others of the same kind. mAP on real photos.

Uses the features that `profiles.py` has extracted.

    python -m benchmarks.profiles --data DATA --network NETWORK --work WORK --sizes 480 --extract-only
    python -m benchmarks.codebooks --data DATA --work WORK --json benchmarks/results/codebooks.json
"""

import argparse
import json
from pathlib import Path

import superfeat
from benchmarks.profiles import FAST, codebook_images, images_in, mean_average_precision, read_features

SIZE, FEATURES, ROUNDS, POINTS_PER_WORD = 480, 1000, 5, 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with photos/, gnd/ and train.json")
    parser.add_argument("--work", type=Path, required=True, help="where profiles.py keeps its features")
    parser.add_argument("--sets", nargs="+", default=["val_landmarks", "ukbench50_val"])
    parser.add_argument("--words", type=int, nargs="+", default=[64, 256, 1024])
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows = []
    for words in args.words:
        others = train(args.work, codebook_images(args.data), words)
        for name in args.sets:
            own = train(args.work, images_in(args.data, name), words)
            for source, codebook in (("other photos", others), ("the indexed photos", own)):
                score = mean_average_precision(args.data, args.work, SIZE, FAST, FEATURES, name, codebook)
                rows.append({"set": name, "words": words, "learned from": source, "mAP": round(100 * score, 1)})
                print(json.dumps(rows[-1]), flush=True)
    if args.json:
        args.json.write_text(json.dumps({"points_per_word": POINTS_PER_WORD, "rows": rows}, indent=1) + "\n")


def train(work: Path, names: list[str], words: int) -> superfeat.Codebook:
    settings = superfeat.CodebookConfig(words=words, rounds=ROUNDS, points_per_word=POINTS_PER_WORD)
    return superfeat.train_codebook(read_features(work, SIZE, names, FAST, FEATURES), settings)


if __name__ == "__main__":
    main()
