"""torch with fused operators, ONNX Runtime in float32, ONNX Runtime in int8: CPU time and how near the features are.

One thread, the fast profile, interleaved, medians. Calibrates on some of the photos, measures on others.

    python -m benchmarks.onnx_engines --network NETWORK --photos PHOTOS --json benchmarks/results/onnx_engines.json
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import superfeat
from superfeat.extraction.scaling import resize
from superfeat.images import normalise, read_image
from superfeat.nets.local import Local
from superfeat.sources.listing import list_photos
from superfeat.weights.int8 import learn_ranges, quantise_onnx
from superfeat.weights.onnx import export_onnx

FAST = superfeat.ExtractConfig.profile("fast")
CALIBRATION = 32


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", required=True)
    parser.add_argument("--photos", required=True)
    parser.add_argument("--test-photos", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    paths = [photo.path for photo in list_photos([args.photos]).photos]
    chosen = [paths[i] for i in np.random.default_rng(0).permutation(len(paths))[: CALIBRATION + args.test_photos]]
    network = superfeat.load_network(args.network)
    with tempfile.TemporaryDirectory() as folder:
        plain, small = Path(folder, "float32.onnx"), Path(folder, "int8.onnx")
        export_onnx(network, plain)
        quantise_onnx(plain, small, learn_ranges(plain, chosen[:CALIBRATION]))
        engines: dict[str, Callable[[Tensor], Local]] = {
            "torch": network.fast,
            "onnx": superfeat.load_network(plain).fast,
            "int8": superfeat.load_network(small).fast,
        }
        result = {
            "megabytes": {
                name: round(path.stat().st_size / 1e6, 1) for name, path in (("onnx", plain), ("int8", small))
            }
        }
    result |= compare(network, engines, chosen[CALIBRATION:], args.rounds)
    print(json.dumps(result, indent=1))
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n")


@torch.inference_mode()
def compare(
    network: superfeat.Network, engines: dict[str, Callable[[Tensor], Local]], photos: list[Path], rounds: int
) -> dict[str, dict[str, float]]:
    pyramids = []
    for photo in photos:
        image = torch.from_numpy(
            normalise(read_image(photo, max_side=FAST.max_side), *network.normalisation)
        ).unsqueeze(0)
        pyramids.append([resize(image, scale, network.module.recompute_scale) for scale in FAST.scales])
    times: dict[str, list[float]] = {name: [] for name in engines}
    outputs: dict[str, list[list[Local]]] = {}
    for _ in range(rounds + 1):  # the first warms up
        for name, engine in engines.items():
            before = time.process_time()
            outputs[name] = [[engine(scaled) for scaled in pyramid] for pyramid in pyramids]
            times[name].append(time.process_time() - before)
    median = {name: statistics.median(values[1:]) for name, values in times.items()}
    return {
        "cpu_time_relative_to_torch": {name: round(value / median["torch"], 2) for name, value in median.items()},
        "onnx_against_torch": nearness(outputs["torch"], outputs["onnx"]),
        "int8_against_torch": nearness(outputs["torch"], outputs["int8"]),
    }


def nearness(first: list[list[Local]], second: list[list[Local]]) -> dict[str, float]:
    """Of the strongest features of the first: cosine to the second's at the same place, and how many are kept."""
    cosines, kept, differences = [], [], []
    for a, b in zip(first, second, strict=True):
        vectors = [torch.cat([local.vectors[0] for local in scales]) for scales in (a, b)]
        tops = [
            torch.cat([local.strengths[0] for local in scales]).argsort(descending=True)[: FAST.features_per_image]
            for scales in (a, b)
        ]
        cosines.append(torch.nn.functional.cosine_similarity(vectors[0][tops[0]], vectors[1][tops[0]]))
        kept.append(len(set(tops[0].tolist()) & set(tops[1].tolist())) / len(tops[0]))
        differences.append(float((vectors[0] - vectors[1]).abs().max() / vectors[0].abs().max()))
    cosine = torch.cat(cosines)
    return {
        "largest_difference": float(f"{max(differences):.1e}"),
        "cosine_mean": round(float(cosine.mean()), 4),
        "cosine_5th_percentile": round(float(cosine.quantile(0.05)), 4),
        "same_strongest": round(float(np.mean(kept)), 3),
    }


if __name__ == "__main__":
    main()
