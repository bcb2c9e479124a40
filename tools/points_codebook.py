"""Words for points beside the words that super-features have: learned from the points alone, put after the others.

    python tools/points_codebook.py FEATURES CODEBOOK --words 8192 -o BOTH

FEATURES is a features folder of a network with points, CODEBOOK that of the same network without them.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import superfeat
from superfeat.config import CodebookConfig
from superfeat.extraction.folder import FeatureStore
from superfeat.index.codebook import Codebook

ROUNDS = 8


def points_of(store: FeatureStore, superfeatures: int) -> Iterator[np.ndarray]:
    """The points of each photo."""
    for features in store:
        yield features.vectors[features.ids >= superfeatures]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("features", type=Path)
    parser.add_argument("codebook", type=Path)
    parser.add_argument("--words", type=int, required=True)
    parser.add_argument("--output", "-o", type=Path, required=True)
    args = parser.parse_args()
    store = FeatureStore(args.features)
    superfeatures = store.manifest["network"]["lit"]["templates"]
    points = list(points_of(store, superfeatures))
    learned = superfeat.train_codebook(points, CodebookConfig(words=args.words, rounds=ROUNDS))
    before = superfeat.Codebook.open(args.codebook)
    both = Codebook(np.concatenate((before.centroids, learned.centroids)), store.network)
    both.save(args.output)
    print(f"{args.output}: {len(before.centroids)} words of super-features, {len(learned.centroids)} of points")


if __name__ == "__main__":
    main()
