"""Extraction: ours against a plain eager FIRe (benchmarks/plain.py), same weights, same photos, interleaved.

ResNet-50 without its last block, 256 templates, 7 scales; CPU-seconds of one thread; medians of several rounds. Each
of the two runs in a process of its own, as it would by itself, and they take turns.
Also: the trunk's share of the machine's matrix-multiply peak measured in the same run, and where the time goes.

    python -m benchmarks.extraction --rounds 5 --json benchmarks/results/extraction.json
"""

import argparse
import json
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

import superfeat
from benchmarks.plain import SCALES, PlainFire
from superfeat.config import NetworkConfig
from superfeat.extraction.extract import keep_memory
from superfeat.extraction.scaling import resize
from superfeat.images import normalise, read_image, scaled_size
from superfeat.nets.fire import Fire
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
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for size in args.sizes:
            photo = Path(folder) / "photo.png"
            make_photo(args.photo, size).save(photo)
            rows.append(compare(photo, size, args.rounds))
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


class Plain:
    """The baseline in a process of its own."""

    def __init__(self, photo: Path, size: int) -> None:
        self.network = seeded_network()
        self.photo, self.size = photo, size
        self.plain = PlainFire(dict(self.network.module.state_dict()))
        self.trunk: Callable[[Tensor], Tensor] = self.plain.trunk
        self.lit: Callable[[Tensor], object] = self.plain.lit

    def prepare(self) -> None:
        self.scaled = [resize(self.image(), scale, recompute=False) for scale in SCALES]
        self.maps = [self.trunk(x) for x in self.scaled]
        self.a, self.b = torch.randn(GEMM, GEMM), torch.randn(GEMM, GEMM)

    def image(self) -> Tensor:
        return torch.from_numpy(normalise(read_image(self.photo), *self.network.normalisation)).unsqueeze(0)

    def features(self) -> tuple[np.ndarray, np.ndarray]:
        vectors, strengths = self.plain(self.image())
        return vectors.numpy(), strengths.numpy()

    def seconds(self, what: str) -> float:
        if what == "gemm":
            return cpu_seconds(lambda: self.a @ self.b, 5)
        if what == "trunk":
            return cpu_seconds(lambda: [self.trunk(x) for x in self.scaled])
        if what == "lit":
            return cpu_seconds(lambda: [self.lit(x) for x in self.maps])
        return cpu_seconds(self.features)


class Ours(Plain):
    """superfeat as its command line runs it."""

    def __init__(self, photo: Path, size: int) -> None:
        super().__init__(photo, size)
        keep_memory()
        fused = self.network.fast
        assert isinstance(fused, Fire)
        self.trunk, self.lit = fused.trunk, fused.lit

    def features(self) -> tuple[np.ndarray, np.ndarray]:
        config = superfeat.ExtractConfig(max_side=self.size)
        (found,) = superfeat.extract(self.network, [self.photo], config, workers=1)
        return found.vectors, found.strengths


def serve(kind: type[Plain], photo: Path, size: int, pipe: Connection) -> None:
    """Answers the questions that come through the pipe."""
    torch.set_num_threads(1)
    with torch.inference_mode():
        runner = kind(photo, size)
        runner.prepare()
        while (question := pipe.recv()) != "end":
            pipe.send(runner.features() if question == "features" else runner.seconds(question))


def compare(photo: Path, size: int, rounds: int) -> dict[str, Any]:
    context = multiprocessing.get_context("spawn")
    pipes, processes = {}, []
    for name, kind in (("plain", Plain), ("ours", Ours)):
        pipes[name], theirs = context.Pipe()
        processes.append(context.Process(target=serve, args=(kind, photo, size, theirs), daemon=True))
        processes[-1].start()

    def ask(name: str, question: str) -> Any:
        pipes[name].send(question)
        return pipes[name].recv()

    results = {name: ask(name, "features") for name in pipes}
    times: dict[tuple[str, str], list[float]] = {}
    for _ in range(rounds):
        for question in ("gemm", "total", "trunk", "lit"):
            for name in pipes:
                times.setdefault((name, question), []).append(ask(name, question))
    for pipe, process in zip(pipes.values(), processes, strict=True):
        pipe.send("end")
        process.join()
    return summary(size, rounds, times, results)


def summary(
    size: int, rounds: int, times: dict[tuple[str, str], list[float]], results: dict[str, tuple[np.ndarray, np.ndarray]]
) -> dict[str, Any]:
    median = {key: statistics.median(values) for key, values in times.items()}
    flops = sum(trunk_flops(*scaled_size(size * 3 // 4, size, scale)) for scale in SCALES)
    peak = 2 * GEMM**3 / min(median["plain", "gemm"], median["ours", "gemm"])
    total = median["ours", "total"]
    parts = {part: median["ours", part] / total for part in ("trunk", "lit")}
    return {
        "size": size,
        "rounds": rounds,
        "ratio": spread([p / o for p, o in zip(times["plain", "total"], times["ours", "total"], strict=True)]),
        "ratio_trunk": round(median["plain", "trunk"] / median["ours", "trunk"], 2),
        "ratio_lit": round(median["plain", "lit"] / median["ours", "lit"], 2),
        "trunk_share_of_gemm_peak": round(flops / median["ours", "trunk"] / peak, 3),
        "plain_trunk_share_of_gemm_peak": round(flops / median["plain", "trunk"] / peak, 3),
        "share_of_time": {**{k: round(v, 3) for k, v in parts.items()}, "rest": round(1 - sum(parts.values()), 3)},
        "difference": {
            "strengths": relative(results["ours"][1], results["plain"][1]),
            "vectors": relative(*matched(results["ours"][0], *results["plain"])),
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


def matched(ours: np.ndarray, vectors: np.ndarray, strengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both lists of vectors without the few whose ranks swap because their strengths agree to the last digits."""
    gap = np.minimum(np.abs(np.diff(strengths, prepend=np.inf)), np.abs(np.diff(strengths, append=-np.inf)))
    clear = gap > 1e-5 * strengths
    return ours[clear], vectors[clear]


def trunk_flops(height: int, width: int) -> int:
    total = 0

    def count(module: Any, _: Any, output: Tensor) -> None:
        nonlocal total
        total += 2 * module.weight.numel() * output.shape[-2] * output.shape[-1]

    trunk = ResNet("resnet50", 3).to("meta")
    for module in trunk.modules():
        if isinstance(module, torch.nn.Conv2d):
            module.register_forward_hook(count)
    trunk(torch.empty(1, 3, height, width, device="meta"))
    return total


if __name__ == "__main__":
    main()
