"""Where the words of an image are: noted in four bytes, enclosed in a box, counted inside a box."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from superfeat.index.places import decode_places, enclose, encode_places, mass_inside, require_region, word_regions

fractions = st.floats(0, 1, allow_nan=False)


def test_the_region_of_a_word_is_that_of_all_its_features() -> None:
    regions = np.asarray([[0.2, 0.5, 0.1, 0.1], [0.6, 0.5, 0.1, 0.1], [0.9, 0.9, 0.05, 0.05]], np.float32)
    words = np.asarray([3, 3, 7], np.int32)
    found = word_regions(regions, words, np.unique(words))
    np.testing.assert_allclose(found[0], [0.4, 0.5, np.sqrt(0.01 + 0.04), 0.1], atol=1e-6)
    np.testing.assert_allclose(found[1], [0.9, 0.9, 0.05, 0.05], atol=1e-6)


@given(st.lists(st.tuples(fractions, fractions, st.floats(0, 0.5), st.floats(0, 0.5)), min_size=1, max_size=30))
def test_places_come_back_to_a_255th(rows: list[tuple[float, ...]]) -> None:
    regions = np.asarray(rows, np.float64)
    again = decode_places(encode_places(regions), len(rows))
    assert again is not None
    np.testing.assert_allclose(again, regions, atol=0.5 / 255 + 1e-12)


@pytest.mark.parametrize("text", ["", "AAAA", "not base64!", None, 7, "AAAAAAA="], ids=str)
def test_places_that_do_not_fit_are_as_if_there_were_none(text: object) -> None:
    assert decode_places(text, 2) is None


def test_no_word_has_no_place() -> None:
    found = decode_places(encode_places(np.empty((0, 4))), 0)
    assert found is not None
    assert found.shape == (0, 4)


def test_the_box_holds_where_the_weight_is() -> None:
    regions = np.asarray([[0.3, 0.4, 0.02, 0.02], [0.4, 0.6, 0.02, 0.02], [0.95, 0.95, 0.02, 0.02]])
    left, top, width, height = enclose(regions, np.asarray([1.0, 1.0, 0.05])) or (0, 0, 0, 0)
    assert 0.2 < left < 0.3 < left + width < 0.5
    assert 0.3 < top < 0.4 < top + height < 0.7


@given(st.lists(st.tuples(fractions, fractions, st.floats(0, 0.5), st.floats(0, 0.5), st.floats(-1, 1)), max_size=20))
def test_a_box_lies_on_the_photo(rows: list[tuple[float, ...]]) -> None:
    values = np.asarray(rows, np.float64).reshape(-1, 5)
    box = enclose(values[:, :4], values[:, 4])
    if not np.maximum(values[:, 4], 0).sum() > 0:
        assert box is None
    else:
        assert box is not None
        left, top, width, height = box
        assert 0 <= left <= left + width <= 1 + 1e-12
        assert 0 <= top <= top + height <= 1 + 1e-12
        assert width > 0
        assert height > 0


def test_mass_counts_cells_that_are_cut_in_part() -> None:
    attention = np.full((2, 2), 0.25, np.float32)
    assert mass_inside(attention, (0, 0, 1, 1)) == pytest.approx(1)
    assert mass_inside(attention, (0, 0, 0.5, 1)) == pytest.approx(0.5)
    assert mass_inside(attention, (0.25, 0.25, 0.5, 0.5)) == pytest.approx(0.25)


@given(st.integers(1, 9), st.integers(1, 9), fractions, fractions, fractions, fractions, st.integers(0, 99))
def test_mass_equals_a_fine_grid(rows: int, columns: int, x: float, y: float, w: float, h: float, seed: int) -> None:
    attention = np.random.default_rng(seed).random((rows, columns)).astype(np.float32)
    attention /= attention.sum()
    total = 0.0
    for row in range(rows):
        for column in range(columns):
            tall = max(0.0, min((row + 1) / rows, y + h) - max(row / rows, y)) * rows
            wide = max(0.0, min((column + 1) / columns, x + w) - max(column / columns, x)) * columns
            total += float(attention[row, column]) * tall * wide
    assert mass_inside(attention, (x, y, w, h)) == pytest.approx(total, abs=1e-9)


def test_boxes_are_cut_to_the_photo() -> None:
    assert require_region([-0.5, 0.25, 1, 2]) == pytest.approx((0, 0.25, 0.5, 0.75))


@pytest.mark.parametrize(
    "box",
    [None, [1, 2, 3], [0, 0, 0, 1], [0, 0, 1, -1], [2, 0, 1, 1], [0, 0, float("nan"), 1], "abcd", [0, 0, 1, "x"]],
    ids=str,
)
def test_what_is_no_box_is_refused(box: object) -> None:
    with pytest.raises(ValueError, match="box"):
        require_region(box)
