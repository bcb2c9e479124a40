"""What a run would do, before it does it: counts, and time, memory and disk from one real tuple."""

import dataclasses
import resource
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import torch

from superfeat.config import Recipe, TrainingConfig
from superfeat.datasets.retrieval_set import RetrievalSet
from superfeat.datasets.training_set import TrainingSet
from superfeat.errors import StoreError
from superfeat.nets.training import for_training, freeze_stages, stage_maps
from superfeat.nets.whitening import Whitening
from superfeat.training.data import one_or_all, require_trainable, validation_sets
from superfeat.training.inputs import PhotoInputs, one_thread
from superfeat.training.mining import count_queries
from superfeat.training.objective import differentiate
from superfeat.training.start import build_start, fit_recipe
from superfeat.weights import Network
from superfeat.weights.network import raw_dim

FLOAT_BYTES = 4
COPIES = 6  # parameters and two moments in the checkpoint, the best and the last network, and one being written


class TrainingPlan(TypedDict):
    """What a run would do and need."""

    images: int
    things: int
    pairs: int
    notes: list[str]
    start: str
    pretraining_epochs: int
    parameters_trained: int
    epochs: int
    steps_per_epoch: int
    tuples_per_epoch: int
    images_per_tuple: int
    mining_pool: int
    validation: Any  # name, images, queries and times of one set, a list of these for several, None for none
    seconds_per_tuple_and_core: float
    hours_without_validation: float
    memory_gb: float
    disk_gb: float
    ratio_test: str
    hinge: str


def plan_training(
    recipe: Recipe, training_set: TrainingSet, validation: RetrievalSet | Sequence[RetrievalSet] | None, workers: int
) -> TrainingPlan:
    """Counts, and what one tuple measured here makes of them. Changes nothing on disk."""
    require_trainable(recipe, training_set)
    recipe, given = fit_recipe(recipe)
    config = recipe.training
    queries = sum(count_queries(training_set, config.queries, recipe.data.synthetic_views))
    pool = 0 if config.negatives_from == "step" else min(config.pool, len(training_set.photos))
    start = build_start(recipe, given)
    trained = _trained(start, config)
    seconds, tuple_bytes = _measure(recipe, start, training_set)
    mined = (queries + pool) * seconds / 3 / _images_per_tuple(config)  # a forward pass is a third of a training pass
    every = recipe.validation.every
    times = 0 if every == 0 else 1 + -(-config.epochs // every)
    tested = [
        {"name": test.name, "images": len(test.photos), "queries": len(test.queries), "times": times}
        for test in validation_sets(validation)
    ]
    return {
        "images": len(training_set.photos),
        "things": len(np.unique(training_set.things)),
        "pairs": training_set.query_count(),
        "notes": list(training_set.notes),
        "start": start.provenance["start"],
        "pretraining_epochs": recipe.pretraining.epochs if recipe.pretraining.first else 0,
        "parameters_trained": trained,
        "epochs": config.epochs,
        "steps_per_epoch": -(-queries // config.tuples_per_step),
        "tuples_per_epoch": queries,
        "images_per_tuple": _images_per_tuple(config),
        "mining_pool": pool,
        "validation": one_or_all(tested),
        "seconds_per_tuple_and_core": round(seconds, 2),
        "hours_without_validation": round(config.epochs * (queries * seconds + mined) / workers / 3600, 2),
        "memory_gb": round((_peak_bytes() + (workers - 1) * tuple_bytes + 2 * 8 * trained) / 1e9, 1),
        "disk_gb": round(needed_bytes(recipe) / 1e9, 2),
        "ratio_test": recipe.losses.ratio_test,
        "hinge": recipe.losses.hinge,
    }


def _images_per_tuple(config: TrainingConfig) -> int:
    """Query, positive, and the negatives that are the tuple's own."""
    return 2 if config.negatives_from == "step" else 2 + config.negatives


def _trained(start: Network, config: TrainingConfig) -> int:
    module = start.module
    module.trunk.requires_grad_(config.parts == "all")  # type: ignore[attr-defined]
    freeze_stages(module.trunk, config.frozen_stages)  # type: ignore[arg-type]
    return sum(value.numel() for value in module.parameters() if value.requires_grad)


def _measure(recipe: Recipe, start: Network, training_set: TrainingSet) -> tuple[float, int]:
    """CPU seconds and bytes of memory of one tuple of the first images, on one thread."""
    one_thread()
    module, config = start.module, recipe.training
    raw = raw_dim(recipe.network, module.trunk.channels)
    if module.whitening is None and recipe.network.pooling is None:
        assert recipe.network.whitened_dim is not None
        module.whitening = Whitening(raw, recipe.network.whitened_dim)
        torch.nn.init.normal_(module.whitening.weight, std=raw**-0.5)
    photos = PhotoInputs(training_set.photos, config.max_side, start.normalisation)
    images = [photos(number % len(training_set.photos)) for number in range(_images_per_tuple(config))]
    if config.parts == "lit":
        with torch.inference_mode():
            images = [module.trunk(image.unsqueeze(0))[0] for image in images]
    if config.stored_maps:
        before = stage_maps(module.trunk, config.frozen_stages)  # type: ignore[arg-type]
        images = [before(image.unsqueeze(0))[0] for image in images]
    describe = for_training(
        module,
        maps=config.parts == "lit",
        precision=config.precision,
        frozen_stages=config.frozen_stages,
        stored=bool(config.stored_maps),
    )
    parameters = [value for value in module.parameters() if value.requires_grad]
    peak, began = _peak_bytes(), time.process_time()
    differentiate(describe, images, parameters, recipe.losses, config.recompute)
    return time.process_time() - began, max(0, _peak_bytes() - peak)


def _peak_bytes() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def needed_bytes(recipe: Recipe) -> int:
    """Room that a run's checkpoints and networks take at most."""
    with torch.device("meta"):
        start = build_start(dataclasses.replace(recipe, weights=None), None)
    return COPIES * FLOAT_BYTES * sum(value.numel() for value in start.module.parameters())


def require_room(recipe: Recipe, run: Path) -> None:
    """StoreError before a run begins that could not save itself."""
    folder = next(parent for parent in (run, *run.absolute().parents) if parent.exists())
    free, needed = shutil.disk_usage(folder).free, needed_bytes(recipe)
    if free < needed:
        raise StoreError(
            f"a run needs about {needed / 1e6:.0f} MB for its checkpoints, but {folder} has {free / 1e6:.0f} MB left; "
            "free space or choose another disk"
        )
