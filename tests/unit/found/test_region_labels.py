"""Labels lie on their regions, inside of the photo, and beside each other."""

import numpy as np
import pytest

from superfeat.explain.explain import Place
from superfeat.found.region_labels import place_label
from superfeat.found.sheet import Frame

PHOTO = Frame(100, 200, 480, 320)


def middle(label: Frame, region: np.ndarray) -> tuple[int, int]:
    """The cell of the region's grid under the middle of a label."""
    x = (label.left + label.width / 2 - PHOTO.left) / PHOTO.width
    y = (label.top + label.height / 2 - PHOTO.top) / PHOTO.height
    return int(y * region.shape[0]), int(x * region.shape[1])


def test_several_labels_on_one_region() -> None:
    region = np.zeros((80, 120), np.bool_)
    region[40:75, 20:60] = True
    taken: list[Frame] = []
    for _ in range(3):
        label = place_label(region, Place(0.9, 0.1, (0, 0, 1, 1)), PHOTO, 60, taken)
        assert region[middle(label, region)]
        for other in taken:
            assert abs(label.left - other.left) >= label.width or abs(label.top - other.top) >= label.height
        taken.append(label)


@pytest.mark.parametrize("corner", [(0, 0), (0, -1), (-1, 0), (-1, -1)])
def test_a_label_stays_inside_of_the_photo(corner: tuple[int, int]) -> None:
    region = np.zeros((80, 120), np.bool_)
    region[corner] = True
    label = place_label(region, Place(0.5, 0.5, (0, 0, 1, 1)), PHOTO, 60, [])
    assert PHOTO.left - 4 <= label.left <= PHOTO.left + PHOTO.width - label.width + 4
    assert PHOTO.top - 4 <= label.top <= PHOTO.top + PHOTO.height - label.height + 4


def test_a_region_of_two_parts_is_labelled_on_the_larger_one_that_is_near() -> None:
    region = np.zeros((80, 120), np.bool_)
    region[10:40, 10:50] = region[60:62, 100:102] = True
    label = place_label(region, Place(0.5, 0.5, (0, 0, 1, 1)), PHOTO, 60, [])
    row, column = middle(label, region)
    assert 10 <= row < 40
    assert 10 <= column < 50


def test_small_parts_on_both_sides_of_the_middle() -> None:
    region = np.zeros((80, 120), np.bool_)
    region[10:14, 10:14] = region[10:14, 100:104] = True
    label = place_label(region, Place(0.47, 0.14, (0, 0, 1, 1)), PHOTO, 60, [])
    assert region[middle(label, region)], "and not between them, where nothing is"
