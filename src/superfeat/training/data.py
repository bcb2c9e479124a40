"""The photos of a run: read by their layout, checked before anything long begins, split from their validation."""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

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

UNREADABLE_SHOWN = 3
FEW_QUERIES = 20  # of things held out for validation
CHECK_SIDE = 64  # a JPEG decoded at an eighth still shows whether it is whole


@dataclasses.dataclass(frozen=True)
class Sources:
    """Where the photos of a run are, as the user names them."""

    images: Path | None = None
    labels: Path | None = None
    pairs: Path | None = None
    validation: tuple[Path, ...] = ()  # folders with one sub-folder per thing, or .json files of queries
    validation_images: tuple[Path, ...] = ()  # what the paths in those .json are below: one for all, or one for each


def draw_landmarks(config: DataConfig, folder: Path) -> Iterator[int]:
    """Draws the landmarks of a recipe into a folder; what is there is not drawn again."""
    for done, _ in enumerate(draw_folder(folder, things=config.things, views=config.views, max_side=config.side), 1):
        yield done


def read_training_set(recipe: Recipe, sources: Sources) -> TrainingSet:
    """The training photos, in the layout that the recipe or the sources name."""
    if sources.images is None:
        raise ConfigError("training needs photos: give a folder with one sub-folder per thing", arguments=["images"])
    if recipe.data.kind == "sfm120k":
        return read_sfm120k(sources.images)
    if sources.labels is not None:
        return read_labelled(sources.labels, sources.images, sources.pairs)
    if recipe.data.kind == "labelled":
        raise ConfigError(
            "this recipe reads labelled images: give a CSV with the columns image and thing", arguments=["labels"]
        )
    return read_folders(sources.images, sources.pairs)


def require_trainable(recipe: Recipe, training_set: TrainingSet) -> None:
    """Raises DatasetError, with the next step, where the photos do not suffice for the recipe's tuples or steps."""
    made, config = recipe.data.synthetic_views, recipe.training
    if made < 1 or not training_set.photos:
        training_set.require_pairs()
    shared = config.negatives_from == "step"
    training_set.require_negatives(1 if shared else config.negatives)
    if shared and not made and len(training_set.things_to_query()) < 2:
        raise DatasetError(
            "the negatives of a pair are the other pairs of its step, but all pairs are of 1 thing: "
            "add pairs of other things, or set training.negatives_from to 'pool'"
        )


def split_validation(
    recipe: Recipe, training_set: TrainingSet, sources: Sources
) -> tuple[TrainingSet, tuple[RetrievalSet, ...]]:
    """What trains and what validates: sets of their own, SfM-120k's, or things held out; none where there is none.

    The notes of what trains say where validation tells little, or would tell nothing and is left out.
    """
    if recipe.validation.every == 0:
        return training_set, ()
    if sources.validation:
        return training_set, tuple(_read_validation(sources))
    if recipe.data.kind == "sfm120k":
        assert sources.images is not None
        return training_set, (read_sfm120k_validation(sources.images),)
    if recipe.data.hold_out == 0:
        return training_set, ()
    return _hold_out(recipe, training_set)


def _hold_out(recipe: Recipe, training_set: TrainingSet) -> tuple[TrainingSet, tuple[RetrievalSet, ...]]:
    """Some of the things validate; not where these are one thing, to whose photos every answer is right."""
    share = recipe.data.hold_out
    rest, held = training_set.hold_out(share, recipe.training.seed)
    test = each_photo_in_turn(held, "held-out things")
    if not any(len(test.photos) > len({*query.positives, *query.junk}) for query in test.queries):
        note = (
            f"there is no validation: {share:g} of {len(training_set.things_to_query())} things is one thing, and "
            "among its photos every answer is right; add things, set data.hold_out higher, or give a validation set"
        )
        return dataclasses.replace(training_set, notes=(*training_set.notes, note)), ()
    if len(test.queries) < FEW_QUERIES:
        note = f"validation has {len(test.queries)} queries: its mAP says little about other photos"
        rest = dataclasses.replace(rest, notes=(*rest.notes, note))
    return rest, (test,)


def _read_validation(sources: Sources) -> Iterator[RetrievalSet]:
    folders, files = sources.validation_images, sources.validation
    if len(folders) not in (0, 1, len(files)):
        raise ConfigError(
            f"there are {len(folders)} folders of validation images for {len(files)} validation sets: "
            "give one for all, or one for each"
        )
    for number, file in enumerate(files):
        if file.suffix == ".json":
            own = folders[number if len(folders) > 1 else 0] if folders else None
            yield read_gnd_json(file, own or sources.images or file.parent)
        else:
            yield each_photo_in_turn(read_folders(file), file.name)


def one_or_all(facts: list[Any]) -> Any:
    """Facts of validation sets as they are told: those of a single set by themselves, None where there is none."""
    return facts if len(facts) > 1 else next(iter(facts), None)


def validation_sets(given: RetrievalSet | Sequence[RetrievalSet] | None) -> tuple[RetrievalSet, ...]:
    """None, one or several; DatasetError where two have one name, by which their figures could not be told apart."""
    tests = () if given is None else (given,) if isinstance(given, RetrievalSet) else tuple(given)
    names = [test.name for test in tests]
    if twice := [name for name in names if names.count(name) > 1]:
        raise DatasetError(
            f"two validation sets are called '{twice[0]}': rename a folder or a file, or give a .json another 'name'"
        )
    return tests


def check_photos(photos: Sequence[Photo], workers: int) -> Iterator[Skipped | None]:
    """Decodes each photo, small: what cannot be read, or None."""

    def check(photo: Photo) -> Skipped | None:
        try:
            read_image(photo.where, max_side=CHECK_SIDE, draft=True)
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
        first = "; ".join(f"{photo.name}: {photo.reason}" for photo in bad[:UNREADABLE_SHOWN])
        more = ", …" if len(bad) > UNREADABLE_SHOWN else ""
        raise DatasetError(
            f"{len(bad)} photos cannot be read ({first}{more}): remove or repair them, or have them skipped",
            arguments=["skip_unreadable"],
        )
