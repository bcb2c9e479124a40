r"""What the same-ID rule does to the matches that training learns from, by the deviation of LIT's templates.

A new LIT on a trained trunk, or a trained LIT; pairs of photos of one thing, and for each query a photo of another
thing. The share of matches that are with the positive, as in Figure 3 of the paper (5 negatives), with and without the
rule, under Lowe's ratio test and under the released one, which nearly everything passes.

    superfeat weights get imagenet-resnet50
    python -m benchmarks.match_ratio --images THINGS --json benchmarks/results/match_ratio.json

    superfeat train drawn-mini -o mini --set training.template_scale=0.2 --set training.epochs=0
    python -m benchmarks.match_ratio --recipe drawn-mini --weights mini/pretraining/best --images mini-drawn \
        --scales 1 --count 400 --max-side 160 --json benchmarks/results/match_ratio_drawn.json
"""

import argparse
import json
import statistics
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from superfeat.datasets.training_set import TrainingSet
from superfeat.nets.fire import Fire
from superfeat.nets.losses import distances_between, match
from superfeat.nets.whitening import WhiteningFit
from superfeat.recipes import read_recipe
from superfeat.training.data import Sources, read_training_set
from superfeat.training.inputs import PhotoInputs
from superfeat.training.start import build_start, fit_recipe

RatioTest = Literal["lowe", "released"]
NEGATIVES = 5  # per tuple, as in the paper


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=Path, required=True, help="one sub-folder per thing")
    parser.add_argument("--labels", type=Path)
    parser.add_argument("--pairs", type=Path)
    parser.add_argument("--recipe", default="fire-folder")
    parser.add_argument("--weights", default="imagenet-resnet50", help="a trunk, or a whole network")
    parser.add_argument("--scales", type=float, nargs="+", default=[0.1, 0.2, 0.3, 0.4, 0.6, 1.0])
    parser.add_argument("--count", type=int, default=40, help="pairs")
    parser.add_argument("--max-side", type=int, default=256)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--json", type=Path)
    args = parser.parse_args(arguments)
    recipe, given = fit_recipe(read_recipe(args.recipe, args.set, args.weights))
    photos = read_training_set(recipe, Sources(args.images, args.labels, args.pairs))
    start = build_start(recipe, given)
    assert isinstance(start.module, Fire)
    pairs, others = draw(photos, args.count)
    inputs = PhotoInputs(photos.photos, args.max_side, start.normalisation)
    with torch.inference_mode():
        wanted = sorted({*pairs.ravel().tolist(), *others.tolist()})
        maps = {image: start.fast.trunk(inputs(image).unsqueeze(0)) for image in wanted}  # type: ignore[attr-defined]
    rows = [row for scale in args.scales for row in measure(start.module, maps, pairs, others, scale)]
    for row in rows:
        print(json.dumps(row))
    if args.json:
        args.json.write_text(json.dumps({"pairs": len(pairs), "rows": rows}, indent=1) + "\n")


def draw(photos: TrainingSet, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of one thing, and for each query a photo of another."""
    random = np.random.default_rng(0)
    pairs = photos.draw_pairs(count, random)
    others = [int(random.choice(np.flatnonzero(photos.things != photos.things[query]))) for query in pairs[:, 0]]
    return pairs, np.asarray(others)


@torch.inference_mode()
def measure(
    module: Fire, maps: dict[int, Tensor], pairs: np.ndarray, others: np.ndarray, scale: float
) -> list[dict[str, Any]]:
    templates = module.lit.templates.data
    kept = templates.clone()
    templates.mul_(scale)
    raw = {image: module.lit(features)[0][0] for image, features in maps.items()}
    templates.copy_(kept)
    fit = WhiteningFit(next(iter(raw.values())).shape[1])
    for vectors in raw.values():
        fit.add(vectors)
    whiten = fit.finish(min(128, next(iter(raw.values())).shape[1]))
    whitened = {image: whiten(vectors) for image, vectors in raw.items()}

    def matches(first: int, second: int, test: RatioTest, same_id: bool) -> int:
        distances = distances_between(whitened[first], whitened[second])
        return len(match(distances, ratio_test=test, same_id=same_id).query)

    rows = []
    for test in get_args(RatioTest):
        row: dict[str, Any] = {"template_scale": scale, "ratio_test": test}
        for rule, same_id in (("same_id", True), ("any_id", False)):
            right = statistics.mean(matches(positive, query, test, same_id) for query, positive in pairs.tolist())
            wrong = statistics.mean(
                matches(other, query, test, same_id) for (query, _), other in zip(pairs.tolist(), others, strict=True)
            )
            total = right + NEGATIVES * wrong
            row[rule] = {
                "positive": round(right, 2),
                "negative": round(wrong, 2),
                "ratio": round(right / total, 3) if total else None,
            }
        rows.append(row)
    return rows


if __name__ == "__main__":
    main()
