"""What a recipe asks of its photos before anything long begins."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from superfeat.config import Recipe
from superfeat.datasets.training_set import TrainingSet
from superfeat.errors import DatasetError
from superfeat.images import Photo
from superfeat.settings import overlay
from superfeat.training.data import Sources, require_trainable, split_validation

SHARED = {"training.negatives_from": "step"}


def made(things: list[int], pairs: list[tuple[int, int]] | None = None) -> TrainingSet:
    photos = tuple(Photo(Path(f"{number}.jpg"), f"{number}.jpg") for number in range(len(things)))
    return TrainingSet(
        photos, np.asarray(things, np.int64), None if pairs is None else np.asarray(pairs).reshape(-1, 2)
    )


@pytest.mark.parametrize(
    ("things", "pairs", "changes"),
    [
        ([0, 0, 1, 2, 3, 4, 5], None, {}),
        ([0, 0, 1, 1], None, SHARED),  # two things: the five negatives of a pool are nobody's here
        ([0, 0, 1, 1], [(0, 1), (2, 3)], SHARED),
        ([0, 0, 1], None, {**SHARED, "data.synthetic_views": 0.5}),  # the view of the third is a pair too
        ([0, 1], None, {**SHARED, "data.synthetic_views": 1.0}),
        ([0, 1], None, {"training.negatives": 1, "data.synthetic_views": 1.0}),
    ],
)
def test_what_a_recipe_can_be_trained_on(
    things: list[int], pairs: list[tuple[int, int]] | None, changes: dict[str, Any]
) -> None:
    require_trainable(overlay(Recipe(), changes), made(things, pairs))


@pytest.mark.parametrize(
    ("things", "pairs", "changes", "message"),
    [
        ([0, 0, 1, 1], None, {}, "each query needs 5 negatives of 5 different other things"),
        ([0, 0], None, SHARED, "each query needs a negative of another thing, but there is only 1 thing: add things"),
        ([0, 0, 1], None, SHARED, "the negatives of a pair are the other pairs of its step, but all pairs are of 1"),
        ([0, 0, 1, 1], [(0, 1)], SHARED, "the negatives of a pair are the other pairs of its step"),
        ([0, 1], None, SHARED, "no thing has two images"),
        ([0, 1], None, {**SHARED, "data.synthetic_views": 0.5}, "no thing has two images"),
        ([], None, {**SHARED, "data.synthetic_views": 1.0}, "there are no photos to train on"),
    ],
)
def test_what_it_cannot_be_trained_on(
    things: list[int], pairs: list[tuple[int, int]] | None, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(DatasetError) as raised:
        require_trainable(overlay(Recipe(), changes), made(things, pairs))
    assert str(raised.value).startswith(message)
    assert "\n" not in str(raised.value)


def test_photos_of_one_thing_validate_nothing() -> None:
    """A tenth of eight things is one: any network would find its photos with mAP 100."""
    recipe = overlay(Recipe(), {"data.hold_out": 0.1, "validation.every": 1})
    whole = made([thing for thing in range(8) for _ in range(3)])
    trains, tests = split_validation(recipe, whole, Sources())
    assert tests == ()
    assert len(trains.photos) == 24, "what validates nothing trains"
    (note,) = trains.notes
    assert note.startswith("there is no validation: 0.1 of 8 things is one thing")


@pytest.mark.parametrize(("views", "notes"), [(3, ["validation has 6 queries: its mAP says little"]), (10, [])])
def test_few_queries_are_noted(views: int, notes: list[str]) -> None:
    recipe = overlay(Recipe(), {"data.hold_out": 0.25, "validation.every": 1})
    whole = made([thing for thing in range(8) for _ in range(views)])
    trains, (test,) = split_validation(recipe, whole, Sources())
    assert (len(test.queries), len(trains.photos)) == (2 * views, 6 * views)
    assert [note[: len(start)] for note, start in zip(trains.notes, notes, strict=True)] == notes
