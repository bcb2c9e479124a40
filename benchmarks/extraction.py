"""Extraction: ours against a plain eager FIRe (benchmarks/plain.py), same weights, same photos, interleaved.

ResNet-50 without its last block, 256 templates, 7 scales; CPU-seconds of one thread; medians of several rounds.
Also: the trunk's share of the machine's matrix-multiply peak measured in the same run, and where the time goes.

    python benchmarks/extraction.py --rounds 5 --json benchmarks/results/extraction.json
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

import superfeat
from benchmarks.plain import SCALES, PlainFire
from superfeat.config import NetworkConfig
from superfeat.images import normalise, read_image
from superfeat.nets.fire import Fire
from superfeat.nets.fused import for_inference
from superfeat.nets.trunk import ResNet
from superfeat.weights import Network, build_module

GEMM = 2048


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[512, 1024])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--photo", type=Path, help="a photo to use in place of a generated one")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    network = seeded_network()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for size in args.sizes:
            photo = Path(folder) / "photo.png"
            make_photo(args.photo, size).save(photo)
            rows.append(compare(network, photo, size, args.rounds))
            print(json.dumps(rows[-1], indent=1), flush=True)
    if args.json:
        args.json.write_text(json.dumps({"torch": torch.__version__, "rows": rows}, indent=1) + "\n")


def seeded_network() -> Network:
    torch.manual_seed(0)
    config = NetworkConfig()
    module = build_module(config)
    with torch.no_grad():
        for name, value in module.state_dict().items():
            if name.endswith("running_mean"):
                value.normal_(0, 0.1)
            elif name.endswith("running_var"):
                value.uniform_(0.5, 1.5)
            elif ".bn3." in name and name.endswith("weight"):
                value.fill_(0.3)
            elif name.startswith("whitening"):
                value.normal_(0, 0.03)
    return Network(module, config)


def make_photo(path: Path | None, size: int) -> Image.Image:
    shape = (size, size * 3 // 4)
    if path is not None:
        return Image.fromarray(read_image(path)).resize(shape, Image.Resampling.LANCZOS)
    noise = np.random.default_rng(0).integers(0, 256, (24, 32, 3), np.uint8)
    return Image.fromarray(noise).resize(shape, Image.Resampling.BICUBIC)


def compare(network: Network, photo: Path, size: int, rounds: int) -> dict[str, Any]:
    plain = PlainFire(dict(network.module.state_dict()))
    pixels = read_image(photo)
    image = torch.from_numpy(normalise(pixels, *network.normalisation)).unsqueeze(0)
    config = superfeat.ExtractConfig(max_side=size)

    def ours() -> superfeat.Features:
        return next(iter(superfeat.extract(network, [photo], config, workers=1)))

    def theirs() -> tuple[torch.Tensor, torch.Tensor]:
        with torch.inference_mode():
            return plain(torch.from_numpy(normalise(read_image(photo), *network.normalisation)).unsqueeze(0))

    features, (vectors, strengths) = ours(), theirs()
    a, b = torch.randn(GEMM, GEMM), torch.randn(GEMM, GEMM)
    times: dict[str, list[float]] = {
        "ours": [],
        "plain": [],
        "gemm": [],
        "trunk": [],
        "plain_trunk": [],
        "lit": [],
        "plain_lit": [],
    }
    fused = for_inference(network.module)
    assert isinstance(fused, Fire)
    scaled = [
        torch.nn.functional.interpolate(image, scale_factor=s, mode="bilinear", align_corners=False) for s in SCALES
    ]
    with torch.inference_mode():
        maps = [fused.trunk(x) for x in scaled]
        for _ in range(rounds):
            times["gemm"].append(cpu_seconds(lambda: a @ b, 5))
            times["plain"].append(cpu_seconds(theirs))
            times["ours"].append(cpu_seconds(ours))
            times["plain_trunk"].append(cpu_seconds(lambda: [plain.trunk(x) for x in scaled]))
            times["trunk"].append(cpu_seconds(lambda: [fused.trunk(x) for x in scaled]))
            times["plain_lit"].append(cpu_seconds(lambda: [plain.lit(x) for x in maps]))
            times["lit"].append(cpu_seconds(lambda: [fused.lit(x) for x in maps]))
    median = {name: statistics.median(values) for name, values in times.items()}
    flops = sum(trunk_flops(network, x.shape[-2], x.shape[-1]) for x in scaled)
    peak = 2 * GEMM**3 / median["gemm"]
    return {
        "size": size,
        "rounds": rounds,
        "ratio": spread([p / o for p, o in zip(times["plain"], times["ours"], strict=True)]),
        "ratio_trunk": round(median["plain_trunk"] / median["trunk"], 2),
        "ratio_lit": round(median["plain_lit"] / median["lit"], 2),
        "trunk_share_of_gemm_peak": round(flops / median["trunk"] / peak, 3),
        "plain_trunk_share_of_gemm_peak": round(flops / median["plain_trunk"] / peak, 3),
        "share_of_time": {
            "trunk": round(median["trunk"] / median["ours"], 3),
            "lit": round(median["lit"] / median["ours"], 3),
            "rest": round(1 - (median["trunk"] + median["lit"]) / median["ours"], 3),
        },
        "difference": {
            "strengths": relative(features.strengths, strengths.numpy()),
            "vectors": relative(*matched(features, vectors.numpy(), strengths.numpy())),
        },
    }


def cpu_seconds(work: Callable[[], object], repeat: int = 1) -> float:
    best = float("inf")
    for _ in range(repeat):
        before = time.process_time()
        work()
        best = min(best, time.process_time() - before)
    return best


def spread(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {"median": round(statistics.median(ordered), 2), "min": round(ordered[0], 2), "max": round(ordered[-1], 2)}


def relative(ours: np.ndarray, theirs: np.ndarray) -> float:
    return float(f"{np.abs(ours - theirs).max() / np.abs(theirs).max():.1e}")


def matched(features: superfeat.Features, vectors: np.ndarray, strengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both lists of vectors without the few whose ranks swap because their strengths agree to the last digits."""
    gap = np.minimum(np.abs(np.diff(strengths, prepend=np.inf)), np.abs(np.diff(strengths, append=-np.inf)))
    clear = gap > 1e-5 * strengths
    return features.vectors[clear], vectors[clear]


def trunk_flops(network: Network, height: int, width: int) -> int:
    total = 0

    def count(module: Any, _: Any, output: torch.Tensor) -> None:
        nonlocal total
        total += 2 * module.weight.numel() * output.shape[-2] * output.shape[-1]

    trunk = ResNet(network.config.trunk.arch, network.config.trunk.stages).to("meta")
    for module in trunk.modules():
        if isinstance(module, torch.nn.Conv2d):
            module.register_forward_hook(count)
    trunk(torch.empty(1, 3, height, width, device="meta"))
    return total


if __name__ == "__main__":
    main()
