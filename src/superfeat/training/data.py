"""The photos of a run: read by their layout, checked before anything long begins, split from their validation."""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from superfeat.config import DataConfig, Recipe
from superfeat.datasets.folders import read_folders
from superfeat.datasets.labelled import read_labelled
from superfeat.datasets.retrieval_set import RetrievalSet, each_photo_in_turn, read_gnd_json
from superfeat.datasets.sfm120k import read_sfm120k, read_sfm120k_validation
from superfeat.datasets.training_set import TrainingSet
from superfeat.drawn import draw_folder
from superfeat.errors import ConfigError, DatasetError, ImageError
from superfeat.images import Photo, Skipped, read_image
from superfeat.threads import in_order

SHOWN = 3
CHECK_SIDE = 64  # a JPEG decoded at an eighth still shows whether it is whole


@dataclasses.dataclass(frozen=True)
class Sources:
    """Where the photos of a run are, as the user names them."""

    images: Path | None = None
    labels: Path | None = None
    pairs: Path | None = None
    validation: Path | None = None  # a folder with one sub-folder per thing, or a .json of queries
    validation_images: Path | None = None  # what the paths in that .json are below


def draw(config: DataConfig, folder: Path) -> Iterator[int]:
    """Draws the landmarks of a recipe into a folder; what is there is not drawn again."""
    for done, _ in enumerate(draw_folder(folder, things=config.things, views=config.views, max_side=config.side), 1):
        yield done


def read_training_set(recipe: Recipe, sources: Sources) -> TrainingSet:
    """The training photos, in the layout that the recipe or the sources name."""
    if sources.images is None:
        raise ConfigError("training needs photos: give --images, a folder with one sub-folder per thing")
    if recipe.data.kind == "sfm120k":
        return read_sfm120k(sources.images)
    if sources.labels is not None:
        return read_labelled(sources.labels, sources.images, sources.pairs)
    if recipe.data.kind == "labelled":
        raise ConfigError("this recipe reads labelled images: give --labels, a CSV with the columns image and thing")
    return read_folders(sources.images, sources.pairs)


def split_validation(
    recipe: Recipe, training_set: TrainingSet, sources: Sources
) -> tuple[TrainingSet, RetrievalSet | None]:
    """What trains and what validates: a set of its own, SfM-120k's, or things held out; None where there is none."""
    if recipe.validation.every == 0:
        return training_set, None
    if sources.validation is not None:
        if sources.validation.suffix == ".json":
            images = sources.validation_images or sources.images or sources.validation.parent
            return training_set, read_gnd_json(sources.validation, images)
        return training_set, each_photo_in_turn(read_folders(sources.validation), sources.validation.name)
    if recipe.data.kind == "sfm120k":
        assert sources.images is not None
        return training_set, read_sfm120k_validation(sources.images)
    if recipe.data.hold_out == 0:
        return training_set, None
    rest, held = training_set.hold_out(recipe.data.hold_out, recipe.training.seed)
    return rest, each_photo_in_turn(held, "held-out things")


def check_photos(photos: Sequence[Photo], workers: int) -> Iterator[Skipped | None]:
    """Decodes each photo, small: what cannot be read, or None."""

    def check(photo: Photo) -> Skipped | None:
        try:
            read_image(photo.path, max_side=CHECK_SIDE, draft=True)
        except ImageError as error:
            return Skipped(photo.name, str(error))
        return None

    yield from in_order(check, photos, workers)


def without_photos(training_set: TrainingSet, names: set[str]) -> TrainingSet:
    """The set without these photos and their pairs."""
    kept = np.asarray([photo.name not in names for photo in training_set.photos])
    number = np.cumsum(kept) - 1
    pairs = training_set.pairs
    if pairs is not None:
        pairs = number[pairs[kept[pairs].all(axis=1)]]
    photos = tuple(photo for photo in training_set.photos if photo.name not in names)
    note = f"{len(names)} photos that cannot be read are left out"
    return TrainingSet(photos, training_set.things[kept], pairs, (*training_set.notes, note))


def require_readable(bad: Sequence[Skipped]) -> None:
    """DatasetError, naming the first few, if any photo cannot be read."""
    if bad:
        first = "; ".join(f"{photo.name}: {photo.reason}" for photo in bad[:SHOWN])
        more = ", …" if len(bad) > SHOWN else ""
        raise DatasetError(
            f"{len(bad)} photos cannot be read ({first}{more}): remove or repair them, or add --skip-unreadable"
        )
