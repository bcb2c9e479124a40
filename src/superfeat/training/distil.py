"""Distillation: a small network learns to give the super-features and points of a large one, on any photos."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from superfeat.config import Recipe
from superfeat.errors import ConfigError, DatasetError
from superfeat.extraction.extract import default_workers
from superfeat.images import Photo
from superfeat.settings import as_dict
from superfeat.training.distil_start import StudentStart, load_given, load_teacher, student_config
from superfeat.training.distiller import Distiller
from superfeat.training.inputs import torch_threads
from superfeat.training.ranks import Ranks
from superfeat.training.records import DistilFacts
from superfeat.training.run import CHECKPOINT_SECONDS, Event, RunFolder
from superfeat.weights import Network


def distil(
    recipe: Recipe,
    photos: Sequence[Photo],
    run: str | Path,
    *,
    resume: bool = False,
    workers: int | None = None,
    stop: Callable[[], bool] = lambda: False,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> Iterator[Event]:
    """Teaches the recipe's network into the folder `run`, whose `last` is the student. `stop` is asked after each step.

    Killed at any moment and called again with `resume`, it ends with the same weights, to the bit.
    """
    config = recipe.distillation
    if config is None:
        raise ConfigError("the recipe has no [distillation]; begin with the recipe 'distil'")
    if len(photos) - config.held_out < config.batch:
        raise DatasetError(
            f"{len(photos)} photos are too few where {config.held_out} are held out and {config.batch} make a step: "
            "give more, or set distillation.held_out lower"
        )
    teacher, given = load_teacher(config), load_given(recipe)
    student_config(recipe, teacher, given)  # what does not fit is said before a folder is made
    folder = RunFolder(Path(run))
    with torch_threads(1), folder.writing(_facts(recipe, teacher, given, photos), resume, Ranks()):
        distiller = Distiller(recipe, config, teacher, photos, folder, workers or default_workers())
        distiller.stop, distiller.checkpoint_seconds = stop, checkpoint_seconds
        yield from distiller.begin(given)
        yield from distiller.run()


def _facts(recipe: Recipe, teacher: Network, given: StudentStart | None, photos: Sequence[Photo]) -> DistilFacts:
    """What a run must agree on to be resumed."""
    return {
        "distillation": as_dict(recipe.distillation),
        "trunk": as_dict(recipe.network.trunk),
        "weights": None if given is None else given.digest,
        "teacher": teacher.digest,
        "images": len(photos),
        "photos": hashlib.sha256("\n".join(photo.name for photo in photos).encode()).hexdigest(),
    }
