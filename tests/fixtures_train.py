"""A training in very small: photos of things, a recipe, whole runs and what they leave."""

import itertools
import json
import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors.torch
from PIL import Image
from torch import Tensor

from fixtures_recipe import noise
from superfeat.config import Recipe
from superfeat.datasets.retrieval_set import RetrievalSet
from superfeat.datasets.training_set import TrainingSet
from superfeat.settings import overlay
from superfeat.training.run import Event
from superfeat.training.train import train
from superfeat.weights import load_network

SIDE = 48
EPOCHS, STEPS = 2, 4  # steps of an epoch
RECIPE = """
[network]
whitened_dim = 6
trunk = { arch = "resnet10", stages = 1 }
lit = { templates = 8, rounds = 2, dim = 16 }

[training]
epochs = 2
queries = 8
tuples_per_step = 2
negatives = 2
pool = 12
learning_rate = 1e-3
decay = 0.9
max_side = 48
whitening_images = 12

[losses]
ratio_test = "off" # which so small a network would hardly pass

[validation]
every = 1
codebook = { words = 16, rounds = 2 }
codebook_images = 6
extract = { max_side = 48, scales = [1.0, 0.5], features_per_image = 12 }
"""
TIMES = ("seconds", "mining_seconds")
# Children come from a process that has imported everything and has no threads.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["superfeat.training.train", "superfeat.cli", "superfeat.training.validation"])


class Things(NamedTuple):
    """A folder with train/ and validation/, and what it holds."""

    folder: Path
    training: TrainingSet
    validation: RetrievalSet


def draw_things(folder: Path, things: int, views: int, seed: int) -> None:
    """Noise, and under it one pattern for each thing."""
    for thing in range(things):
        (folder / f"thing{thing}").mkdir(parents=True)
        for view in range(views):
            height, width = (SIDE, SIDE - 8)[:: 1 if view % 2 else -1]
            mixed = 0.6 * noise(height, width, seed + thing) + 0.4 * noise(
                height, width, seed + 100 + 10 * thing + view
            )
            Image.fromarray(mixed.astype(np.uint8)).save(folder / f"thing{thing}" / f"{view}.png")


def unvalidated(recipe: Recipe) -> Recipe:
    return overlay(recipe, {"validation.every": 0})


def one_step(recipe: Recipe, **changes: Any) -> Recipe:
    """One epoch of one step."""
    short = overlay(recipe, {"training": {"epochs": 1, "queries": 2}, "validation.every": 0})
    return overlay(short, {name.replace("__", "."): value for name, value in changes.items()})


def finish(recipe: Recipe, things: Things, run: Path, **options: Any) -> list[Event]:
    events = list(train(recipe, things.training, run, **{"workers": 1, **options}))
    assert events[-1].stage == "end"
    return events


def stop_after(recipe: Recipe, things: Things, run: Path, stage: str, number: int, **options: Any) -> None:
    """Asks the run to stop at the `number`th event of this stage."""
    stages: list[str] = []
    for event in train(recipe, things.training, run, workers=1, stop=lambda: stages.count(stage) >= number, **options):
        stages.append(event.stage)
    assert stages[-1] == "stopped"


def parameters_of(run: Path, name: str = "last") -> dict[str, Tensor]:
    return safetensors.torch.load_file(run / name / "model.safetensors")


def weights(run: Path, name: str = "last") -> bytes:
    return (run / name / "model.safetensors").read_bytes()


def log(run: Path) -> list[dict[str, Any]]:
    """Everything but times."""
    lines = (run / "log.jsonl").read_text().splitlines()
    return [{name: value for name, value in json.loads(line).items() if name not in TIMES} for line in lines]


def of(event: str, run: Path) -> list[dict[str, Any]]:
    return [record for record in log(run) if record["event"] == event]


def provenance(run: Path, name: str) -> dict[str, Any]:
    return load_network(run / name).provenance


def assert_same(expected: Path, found: Path) -> None:
    assert [record["step"] for record in of("step", found)] == list(range(1, EPOCHS * STEPS + 1))
    assert log(found) == log(expected)
    for name in ("last", "best"):
        assert weights(found, name) == weights(expected, name), name


def kill_at(calls: int) -> Callable[..., None]:
    """A function whose call number `calls` kills this process."""
    left = itertools.count(calls - 1, -1)

    def called(*_: object) -> None:
        if next(left) == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    return called
