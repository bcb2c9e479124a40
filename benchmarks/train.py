"""Training: CPU-seconds per tuple of 7 images, ours against a plain loop written from METHOD.md, equal gradients.

The plain loop (benchmarks/plain.py and `plain_loss` below) takes one image at a time through eager torch calls.
ResNet-50 without its last block, 256 templates, 6 rounds; one thread; each of the two in a process of its own, taking
turns.

With --silent N the attention maps of negatives are not decorrelated (losses.decorrelated = "pair"), in both, and the
margin is one beyond which N of the five negatives lie: ours does not go back through these.

With --frozen the first two stages of the trunk are not trained, in both; ours has their maps from a file, in 16 bits
(training.stored_maps; gradients are compared without that rounding).

    python -m benchmarks.train --rounds 5 --json benchmarks/results/train.json
    python -m benchmarks.train --rounds 3 --sizes 224 362 --frozen --json benchmarks/results/train_stored.json
    python -m benchmarks.train --sizes 224 --silent 0 3 5 --json benchmarks/results/train_silent.json
"""

import argparse
import json
import multiprocessing
import statistics
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.extraction import GEMM, cpu_seconds, seeded_network, spread, trunk_flops
from benchmarks.plain import ROUNDS, PlainFire
from superfeat.config import LossConfig
from superfeat.extraction.extract import keep_memory
from superfeat.nets.losses import distances_between, match
from superfeat.nets.training import for_training, freeze_stages, stage_maps
from superfeat.training.objective import differentiate

IMAGES = 7
FROZEN = 2  # stages of the trunk


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[224, 362, 480])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--silent", type=int, nargs="+", choices=range(IMAGES - 1), help="negatives beyond the margin")
    parser.add_argument("--frozen", action="store_true", help="two stages are not trained, and their maps are stored")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args(arguments)
    rows = []
    for size in args.sizes:
        for silent in args.silent or [None]:
            losses = LossConfig() if silent is None else losses_with(size, silent)
            facts = {} if silent is None else {"silent": silent}
            facts |= {"frozen": FROZEN} if args.frozen else {}
            rows.append({**compare(size, args.rounds, losses, FROZEN if args.frozen else 0), **facts})
            print(json.dumps(rows[-1], indent=1), flush=True)
    if args.json:
        args.json.write_text(json.dumps({"torch": torch.__version__, "rows": rows}, indent=1) + "\n")


def losses_with(size: int, silent: int) -> LossConfig:
    """Losses whose margin so many negatives of the tuple are beyond, by the pair of features that is nearest."""
    made = Tuple(size, LossConfig(), torch.float64)
    with torch.no_grad():
        found = [made.network.module(image.unsqueeze(0)) for image in made.images]
    query, positive, *negatives = (F.normalize(local.vectors[0], dim=1) for local in found)
    chosen = match(distances_between(positive, query), ratio=LossConfig().ratio).query
    if not len(chosen):
        raise SystemExit(f"no pair of the tuple of {size} pixels is eligible; take another size")
    gaps = sorted(float((query[chosen] - one[chosen]).norm(dim=1).min()) for one in negatives)
    edges = [gaps[0] / 2, *gaps, 2 * gaps[-1]]
    within = len(gaps) - silent
    return LossConfig(decorrelated="pair", margin=(edges[within] + edges[within + 1]) / 2)


def plain_loss(features: list[Tensor], maps: list[Tensor], losses: LossConfig) -> Tensor:
    """The losses of METHOD.md section 4, pair by pair: query, positive, then negatives."""
    unit = [F.normalize(each, dim=1) for each in features]
    query, positive, negatives = unit[0], unit[1], unit[2:]
    with torch.no_grad():
        distances = torch.cdist(positive, query)
        to_query, to_positive = distances.argmin(dim=1), distances.argmin(dim=0)
        nearest = distances.sort(dim=1).values
    loss = features[0].sum() * 0
    for i in range(len(query)):
        if to_query[i] == i and to_positive[i] == i and nearest[i, 0] <= losses.ratio * nearest[i, 1]:
            loss = loss + 0.5 * (query[i] - positive[i] + 1e-6).square().sum()
            for negative in negatives:
                far = (query[i] - negative[i] + 1e-6).square().sum().sqrt()
                loss = loss + 0.5 * F.relu(losses.margin - far).square()
    loss = losses.superfeature * loss
    for attention in maps if losses.decorrelated is None else maps[:2]:
        unit_maps = F.normalize(attention, dim=1)
        cosines = unit_maps @ unit_maps.T
        others = cosines.sum() - cosines.diagonal().sum()
        loss = loss + losses.decorrelation * others / (len(cosines) * (len(cosines) - 1))
    return loss


class Tuple:
    """Seven images of one size: the same scene, more and more disturbed, so that some pairs are eligible."""

    def __init__(self, size: int, losses: LossConfig, dtype: torch.dtype = torch.float32, frozen: int = 0) -> None:
        self.losses, self.frozen = losses, frozen
        self.network = seeded_network()
        self.network.module.to(dtype)
        freeze_stages(self.network.module.trunk, frozen)  # type: ignore[arg-type]
        generator = torch.Generator().manual_seed(1)
        scene = torch.randn(1, 3, size * 3 // 4, size, generator=generator)
        noise = torch.randn(IMAGES, *scene.shape[1:], generator=generator)
        self.images = (scene + torch.linspace(0, 1.5, IMAGES)[:, None, None, None] * noise).to(dtype)
        self.named = {name: value for name, value in self.network.module.named_parameters() if value.requires_grad}

    def gradient(self) -> list[Tensor]:
        raise NotImplementedError


class Plain(Tuple):
    """One image at a time, eager."""

    def gradient(self) -> list[Tensor]:
        state = {**self.network.module.state_dict(), **self.named}
        plain = PlainFire(state)
        features, maps = [], []
        for image in self.images:
            raw, attention = plain.lit(plain.trunk(image.unsqueeze(0)))
            features.append(F.linear(raw, state["whitening.weight"], state["whitening.bias"]))
            maps.append(attention)
        return list(torch.autograd.grad(plain_loss(features, maps, self.losses), list(self.named.values())))


class Ours(Tuple):
    """superfeat's tuple, as its command line runs it."""

    def __init__(self, size: int, losses: LossConfig, dtype: torch.dtype = torch.float32, frozen: int = 0) -> None:
        super().__init__(size, losses, dtype, frozen)
        keep_memory()
        self.describe = for_training(self.network.module, frozen_stages=frozen, stored=bool(frozen))
        self.inputs = self.images
        if frozen:
            maps = stage_maps(self.network.module.trunk, frozen)(self.images)  # type: ignore[arg-type]
            self.inputs = maps.half() if dtype == torch.float32 else maps

    def gradient(self) -> list[Tensor]:
        parameters, inputs = list(self.named.values()), [one.to(self.images.dtype) for one in self.inputs]
        return differentiate(self.describe, inputs, parameters, self.losses, recompute=False).gradient


def serve(kind: type[Tuple], size: int, losses: LossConfig, frozen: int, pipe: Connection) -> None:
    """Answers the questions that come through the pipe."""
    torch.set_num_threads(1)
    runner = kind(size, losses, frozen=frozen)
    a, b = torch.randn(GEMM, GEMM), torch.randn(GEMM, GEMM)
    while (question := pipe.recv()) != "end":
        if question == "gradient":  # in float64: rounding alone must not decide
            pipe.send([part.numpy() for part in kind(size, losses, torch.float64, frozen).gradient()])
        else:
            pipe.send(cpu_seconds(lambda: a @ b, 3) if question == "gemm" else cpu_seconds(runner.gradient))


def compare(size: int, rounds: int, losses: LossConfig, frozen: int = 0) -> dict[str, Any]:
    context = multiprocessing.get_context("spawn")
    pipes, processes = {}, []
    for name, kind in (("plain", Plain), ("ours", Ours)):
        pipes[name], theirs = context.Pipe()
        processes.append(context.Process(target=serve, args=(kind, size, losses, frozen, theirs), daemon=True))
        processes[-1].start()

    def ask(name: str, question: str) -> Any:
        pipes[name].send(question)
        return pipes[name].recv()

    plain, ours = ask("plain", "gradient"), ask("ours", "gradient")
    times: dict[tuple[str, str], list[float]] = {}
    for _ in range(rounds):
        for question in ("gemm", "tuple"):
            for name in pipes:
                times.setdefault((name, question), []).append(ask(name, question))
    for pipe, process in zip(pipes.values(), processes, strict=True):
        pipe.send("end")
        process.join()
    largest = max(abs(part).max() for part in plain)
    worst = max(abs(a - b).max() for a, b in zip(plain, ours, strict=True))
    peak = 2 * GEMM**3 / min(statistics.median(times[name, "gemm"]) for name in pipes)
    flops = {name: IMAGES * 3 * work for name, work in (("plain", plain_flops(size)), ("ours", our_flops(size)))}
    facts = {
        "size": size,
        "rounds": rounds,
        "ratio": spread([p / o for p, o in zip(times["plain", "tuple"], times["ours", "tuple"], strict=True)]),
        "difference_of_gradients": float(worst / largest),
    }
    if frozen:
        return facts
    return {
        **facts,
        "share_of_gemm_peak": {
            name: round(flops[name] / statistics.median(times[name, "tuple"]) / peak, 3) for name in pipes
        },
        "ratio_if_both_were_at_the_peak": round(flops["plain"] / flops["ours"], 2),
        "ratio_if_ours_were_at_the_peak": round(statistics.median(times["plain", "tuple"]) * peak / flops["ours"], 2),
    }


def lit_flops(size: int, *, project_queries: bool, n: int = 256, d: int = 1024) -> float:
    """Multiply-adds x 2 of LIT on one image (METHOD.md 2); our form projects the places once, not the templates."""
    places = -(-size // 16) * -(-(size * 3 // 4) // 16)
    once = places * d * d * (2 if project_queries else 3)
    each = n * d * d + 2 * places * n * d + (n * d * d if project_queries else 0)
    return 2.0 * (once + ROUNDS * each)


def plain_flops(size: int) -> float:
    return trunk_flops(size * 3 // 4, size) + lit_flops(size, project_queries=True)


def our_flops(size: int) -> float:
    return trunk_flops(size * 3 // 4, size) + lit_flops(size, project_queries=False)


if __name__ == "__main__":
    main()
