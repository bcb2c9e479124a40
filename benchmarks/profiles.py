"""What size and which scales a laptop wants: retrieval quality against CPU time, on real photos.

Extracts each photo once per size, keeping the strongest features of every scale; any choice of scales and of the
number of features is then scored from these. Quality: mAP of binary ASMK.

    python -m benchmarks.profiles --data DATA --network NETWORK --work WORK --json benchmarks/results/profiles.json
"""

import argparse
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

import superfeat
from superfeat.evaluation.metrics import average_precision

SCALES = (2.0, 1.414, 1.0, 0.707, 0.5, 0.353, 0.25)
FAST = superfeat.ExtractConfig.profile("fast").scales
FEWER = (FAST[1:], (1.0, 0.707, 0.5), (1.0,))
KEPT_PER_SCALE = 1000
POINTS_PER_WORD = 12
CODEBOOK_IMAGES = 350


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with photos/, gnd/ and train.json")
    parser.add_argument("--network", required=True)
    parser.add_argument("--work", type=Path, required=True, help="extracted features are kept here")
    parser.add_argument("--sizes", type=int, nargs="+", default=[640, 480, 384, 320])
    parser.add_argument("--sets", nargs="+", default=["val_landmarks", "ukbench50_val"])
    parser.add_argument("--words", type=int, default=8192)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--extract-only", action="store_true")
    parser.add_argument("--only-fast", action="store_true", help="the fast profile's scales alone, to compare networks")
    args = parser.parse_args()
    network = superfeat.load_network(args.network)
    results = []
    for size in args.sizes:
        extracted = FAST if args.only_fast else usable(size)
        extract_all(network, args.data, args.work, size, extracted, args.sets)
        if not args.extract_only:
            for scales in dict.fromkeys([extracted, FAST, *([] if args.only_fast else FEWER)]):
                for features in (1000, 500) if scales == FAST else (1000,):
                    row = measure(args.data, args.work, size, scales, features, args.sets, args.words)
                    results.append(row)
                    print(json.dumps(row), flush=True)
    if args.json:
        args.json.write_text(
            json.dumps({"network": network.digest, "words": args.words, "rows": results}, indent=1) + "\n"
        )


def usable(size: int) -> tuple[float, ...]:
    """Scale 2.0 of the largest size costs as much as everything else; the smaller sizes show what it brings."""
    return SCALES[1:] if size > 500 else SCALES


def images_of(data: Path, name: str) -> list[str]:
    truth = json.loads((data / "gnd" / f"{name}.json").read_text())
    return sorted({*truth["db"], *(query["img"] for query in truth["queries"])})


def images_in(data: Path, name: str) -> list[str]:
    """The images that are searched, without the queries."""
    return [str(image) for image in json.loads((data / "gnd" / f"{name}.json").read_text())["db"]]


def codebook_images(data: Path) -> list[str]:
    groups = json.loads((data / "train.json").read_text())["groups"]
    images = sorted({image for group in groups for image in group["images"]})
    return [images[index] for index in np.random.default_rng(0).permutation(len(images))[:CODEBOOK_IMAGES]]


def extract_all(
    network: superfeat.Network, data: Path, work: Path, size: int, scales: tuple[float, ...], sets: Sequence[str]
) -> None:
    """Features of every image and scale, and the CPU time of each scale, kept in `work` (resumable)."""
    names = codebook_images(data) + [name for one in sets for name in images_of(data, one)]
    todo = [name for name in dict.fromkeys(names) if not feature_file(work, size, name).exists()]
    config = superfeat.ExtractConfig(features_per_image=1 << 30, max_side=size, scales=scales, upright=False)
    before = time.process_time()
    for done, features in enumerate(superfeat.extract(network, [data / name for name in todo], config), 1):
        path = feature_file(work, size, str(Path(features.name).relative_to(data)))
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = np.concatenate([np.flatnonzero(features.scales == np.float32(s))[:KEPT_PER_SCALE] for s in scales])
        partial = path.with_suffix(".partial")
        with partial.open("wb") as file:
            np.savez(
                file,
                vectors=features.vectors[kept].astype(np.float16),
                strengths=features.strengths[kept],
                scales=features.scales[kept],
            )
        partial.replace(path)
        if done % 50 == 0:
            print(
                f"{size} px: {done} of {len(todo)}, {(time.process_time() - before) / done:.2f} CPU-s per image",
                flush=True,
            )


def feature_file(work: Path, size: int, name: str) -> Path:
    return work / str(size) / f"{name}.npz"


def read_features(
    work: Path, size: int, names: Sequence[str], scales: Sequence[float], count: int
) -> Iterator[np.ndarray]:
    """The strongest `count` of the given scales, per image."""
    for name in names:
        with np.load(feature_file(work, size, name)) as stored:
            rows = np.flatnonzero(np.isin(stored["scales"], np.asarray(scales, np.float32)))
            best = rows[np.argsort(-stored["strengths"][rows], kind="stable")[:count]]
            yield stored["vectors"][best].astype(np.float32)


def measure(
    data: Path, work: Path, size: int, scales: Sequence[float], features: int, sets: Sequence[str], words: int
) -> dict[str, object]:
    """mAP of each set, with a codebook learned at the same settings on other photos."""
    settings = superfeat.CodebookConfig(words=words, points_per_word=POINTS_PER_WORD, rounds=5)
    codebook = superfeat.train_codebook(read_features(work, size, codebook_images(data), scales, features), settings)
    row: dict[str, object] = {"size": size, "scales": list(scales), "features": features}
    row["pixels"] = round(sum(scale**2 for scale in scales) * size**2 / 1e6, 3)
    for name in sets:
        row[name] = round(100 * mean_average_precision(data, work, size, scales, features, name, codebook), 2)
    return row


def mean_average_precision(
    data: Path, work: Path, size: int, scales: Sequence[float], features: int, name: str,
    codebook: superfeat.Codebook,
) -> float:  # fmt: skip
    truth = json.loads((data / "gnd" / f"{name}.json").read_text())
    queries = read_features(work, size, [query["img"] for query in truth["queries"]], scales, features)
    with tempfile.TemporaryDirectory() as folder:
        index = superfeat.Index.create(Path(folder, "index"), codebook)
        images = read_features(work, size, truth["db"], scales, features)
        for _ in index.add_many(((str(number), one, None) for number, one in enumerate(images)), batch=64):
            pass
        rankings = index.search_many(list(queries), top=None)
    precisions = []
    for query, ranking in zip(truth["queries"], rankings, strict=True):
        ranked = ranking.ids
        junk = {*query.get("junk", []), *([query["self"]] if "self" in query else [])}
        precisions.append(average_precision(ranked, set(query["pos"]), junk))
    return float(np.mean(precisions))


if __name__ == "__main__":
    main()
