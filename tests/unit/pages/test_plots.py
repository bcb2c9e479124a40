"""Pictures: whole files of sensible size, the same from the same values, and never in the way of what is missing."""

import dataclasses
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from superfeat.errors import MissingExtraError, StoreError, SuperfeatError
from superfeat.pages.plots import (
    Panel,
    Picture,
    Series,
    curve_svg,
    draw_bars,
    draw_curves,
    draw_matrices,
    draw_photos,
    warm,
)

pytest.importorskip("matplotlib")
NAN = float("nan")
OURS = Series("FIRe", [1, 2, 5, 10], [70.0, 72.5, 74.0, 74.5], error=[1.0, 0.5, 0.4, 0.4])
PAPERS = Series("FIRe", [1, 2, 5, 10], [71.0, 73.5, 75.0, 75.5], paper=True)
PANEL = Panel("mAP against memory", "words per image", "mAP, %", [OURS, PAPERS], note="Mean of five runs.")
PHOTO = np.arange(60 * 80 * 3, dtype=np.uint8).reshape(60, 80, 3)


def curves(path: Path) -> None:
    draw_curves([PANEL, PANEL], path)


def bars(path: Path) -> None:
    words = Series("ours", ["ROxford", "RParis"], [61.0, 72.0], error=[1.0, 2.0])
    draw_bars([Panel("Sets", "set", "mAP, %", [words, Series("FIRe", ["RParis"], [75.0], paper=True)])], path)


def matrices(path: Path) -> None:
    draw_matrices([("with", np.eye(8)), ("without", np.full((8, 8), 0.4))], path, note="Mean over the queries.")


def photos(path: Path) -> None:
    rows = (
        (Picture(PHOTO), Picture(PHOTO, np.eye(5), "template 3")),
        (Picture(PHOTO.transpose(1, 0, 2)), None),
    )
    draw_photos(rows, path, row_titles=["first", "second"], column_titles=["photo", "attention"], note="Last round.")


DRAWERS = (curves, bars, matrices, photos)
WORDS: dict[Callable[[Path], None], tuple[str, ...]] = {
    curves: ("mAP against memory", "words per image", "mAP, %", "FIRe", "FIRe (paper)", "Mean of five runs."),
    bars: ("Sets", "ROxford", "RParis", "ours", "FIRe (paper)", "61", "72"),
    matrices: ("with", "without", "Mean over the queries.", "1.0"),
    photos: ("first", "second", "photo", "attention", "template 3", "Last round."),
}


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter() if element.tag.endswith("text")]


@pytest.mark.parametrize("draw", DRAWERS)
def test_png_files_are_images_of_sensible_size(draw: Callable[[Path], None], tmp_path: Path) -> None:
    draw(tmp_path / "a.png")
    with Image.open(tmp_path / "a.png") as image:
        image.load()
        assert image.format == "PNG"
        assert all(300 <= side <= 2500 for side in image.size)
        assert round(image.info["dpi"][0]) == 150
        assert len(set(np.asarray(image.convert("L")).ravel().tolist())) > 10
    assert [file.name for file in tmp_path.iterdir()] == ["a.png"]


@pytest.mark.parametrize("draw", DRAWERS)
def test_equal_values_give_equal_bytes(draw: Callable[[Path], None], tmp_path: Path) -> None:
    for ending in ("png", "svg"):
        draw(tmp_path / f"a.{ending}")
        draw(tmp_path / f"b.{ending}")
        assert (tmp_path / f"a.{ending}").read_bytes() == (tmp_path / f"b.{ending}").read_bytes()


@pytest.mark.parametrize("draw", DRAWERS)
def test_svg_files_hold_their_words_as_text(draw: Callable[[Path], None], tmp_path: Path) -> None:
    draw(tmp_path / "a.svg")
    found = texts((tmp_path / "a.svg").read_text())
    assert [word for word in WORDS[draw] if word not in found] == []


def test_lines_that_end_together_are_named_there_and_others_in_a_legend(tmp_path: Path) -> None:
    short = Series("HOW", [1, 2], [60.0, 61.0])
    for series in ([OURS, PAPERS], [OURS, short], [OURS, Series("a name that is too long for a margin", [10], [3.0])]):
        draw_curves([Panel("", "x", "y", series)], tmp_path / "a.svg")
        found = texts((tmp_path / "a.svg").read_text())
        assert all(found.count(one.label) == 1 for one in series)


def test_many_lines_at_one_height_are_named_apart(tmp_path: Path) -> None:
    draw_curves([Panel("", "x", "y", [Series(f"n{i}", [0, 1], [0, 5.0]) for i in range(6)])], tmp_path / "a.svg")
    svg = (tmp_path / "a.svg").read_text()
    heights = sorted(float(y) for y in re.findall(r' y="([\d.]+)"[^>]*>n\d<', svg))
    assert len(heights) == 6
    assert min(np.diff(heights)) > 9


def test_only_the_papers_lines_are_dashed_and_grey() -> None:
    assert "stroke-dasharray" not in curve_svg([Panel("", "x", "y", [OURS])])
    papers = curve_svg([Panel("", "x", "y", [PAPERS])])
    assert "stroke-dasharray" in papers
    assert "#0072b2" not in papers


def test_one_legend_serves_panels_with_the_same_lines(tmp_path: Path) -> None:
    shorter = Series("HOW", [1, 2], [60.0, 61.0])
    panels = [Panel(title, "x", "y", [OURS, shorter]) for title in ("one", "two")]
    draw_curves(panels, tmp_path / "a.svg")
    assert texts((tmp_path / "a.svg").read_text()).count("HOW") == 1
    draw_curves([panels[0], Panel("two", "x", "y", [shorter])], tmp_path / "a.svg")
    assert texts((tmp_path / "a.svg").read_text()).count("HOW") == 2


def test_logarithmic_axis_has_plain_numbers(tmp_path: Path) -> None:
    draw_curves([Panel("", "K", "y", [Series("a", [1, 10, 500], [1, 2, 3])], log_x=True)], tmp_path / "a.svg")
    found = texts((tmp_path / "a.svg").read_text())
    assert {"1", "10", "100"} <= set(found)
    assert not any("$" in text for text in found)


def test_names_are_never_read_as_formulas_or_markup() -> None:
    name = "<script>$x_1</script> & \"id='3'\""
    svg = curve_svg([Panel(name, "x", "y", [Series("a", [1], [2.0])])])
    assert "<script" not in svg
    assert name in texts(svg)
    assert ElementTree.fromstring(svg).get("aria-label") == name


EMPTY: tuple[list[Series], ...] = (
    [],
    [Series("none", [], [])],
    [Series("nan", [1, 2], [NAN, NAN]), Series("gap", [1, 2, 3], [1.0, NAN, 3.0], error=[NAN, 1.0, 1.0])],
    [Series("one", [3], [2.0])],
    [Series("same", [2, 2], [1.0, 1.0]), Series("none", [], [], paper=True)],
)


@pytest.mark.parametrize("series", EMPTY)
def test_empty_and_missing_values_are_drawn_as_nothing(series: list[Series], tmp_path: Path) -> None:
    for log_x in (False, True):
        draw_curves([Panel("t", "x", "y", series, log_x=log_x)], tmp_path / "curves.png")
    draw_bars([Panel("t", "x", "y", series)], tmp_path / "bars.png")
    assert "<svg" in curve_svg([Panel("t", "x", "y", series, y_limits=(0, 1))])


def test_nothing_at_all_is_still_a_picture(tmp_path: Path) -> None:
    draw_curves([], tmp_path / "a.png")
    draw_bars([], tmp_path / "b.png")
    draw_matrices([], tmp_path / "c.png")
    draw_matrices([("empty", np.zeros((0, 0))), ("nan", np.full((3, 3), NAN))], tmp_path / "d.png")
    draw_photos([], tmp_path / "e.png")
    draw_photos([[None], []], tmp_path / "f.png", row_titles=["a", "b"], column_titles=["c"])
    for file in tmp_path.iterdir():
        with Image.open(file) as image:
            assert min(image.size) > 100


def test_negative_correlations_share_a_scale_around_zero(tmp_path: Path) -> None:
    draw_matrices([("a", np.asarray([[1.0, -0.5], [-0.5, 1.0]])), ("b", np.eye(2))], tmp_path / "a.svg")
    found = texts((tmp_path / "a.svg").read_text())
    assert "−1.0" in found or "−1.00" in found  # noqa: RUF001 - matplotlib's minus sign


def test_warmth_lies_where_the_map_is_high() -> None:
    grey = np.full((40, 60, 3), 120, np.uint8)
    heat = np.zeros((4, 6))
    heat[0, 0] = 3.0
    shown = warm(Picture(grey, heat)).astype(int)
    assert shown.shape == grey.shape
    assert shown[2, 2, 0] > 200
    assert shown[-1, -1].tolist() == [78, 78, 78]
    for nothing in (np.zeros((4, 6)), np.full((4, 6), NAN), None):
        assert np.array_equal(warm(Picture(grey, nothing)), grey)


def test_inlined_pictures_fetch_nothing_and_share_no_ids() -> None:
    first = curve_svg([PANEL])
    second = curve_svg([Panel("other", "x", "y", [OURS, Series("HOW", [1, 10], [1.0, 2.0])])])
    for svg in (first, second):
        assert "://" not in svg
        assert "<style" not in svg
        ids, used = re.findall(r' id="([^"]+)"', svg), re.findall(r'(?:href="#|url\(#)([\w.-]+)', svg)
        assert set(used) == set(ids)
        assert len(ids) == len(set(ids))
        assert "font-family: inherit" in svg
        assert "var(--plot-1, #0072b2)" in svg
    assert not set(re.findall(r' id="([^"]+)"', first)) & set(re.findall(r' id="([^"]+)"', second))


def test_users_settings_of_matplotlib_neither_count_nor_change(tmp_path: Path) -> None:
    import matplotlib

    curves(tmp_path / "a.png")
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "black"}):
        curves(tmp_path / "b.png")
        assert matplotlib.rcParams["font.size"] == 30
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_other_endings_and_places_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SuperfeatError, match=r"\.png or \.svg"):
        curves(tmp_path / "a.gif")
    with pytest.raises(StoreError, match="cannot write"):
        curves(tmp_path / "nowhere" / "a.png")


@pytest.mark.parametrize("draw", DRAWERS)
def test_without_matplotlib_one_line_names_the_extra(
    draw: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match=r"pip install 'superfeat\[report\]'") as caught:
        draw(tmp_path / "a.png")
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_importing_does_not_load_matplotlib_and_drawing_not_pyplot(tmp_path: Path) -> None:
    script = f"""
import sys
import superfeat.pages.plots
assert not {{"matplotlib", "torch"}} & sys.modules.keys()
superfeat.pages.plots.draw_curves([], {str(tmp_path / "a.png")!r})
assert "matplotlib.pyplot" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_the_error_of_a_single_point_is_seen() -> None:
    """A band of no width would not be; colours that come again have another marker."""
    alone = [Series(f"method {number}", [number + 1], [50.0 + number], error=[2.0]) for number in range(7)]
    drawn = curve_svg([Panel("", "x", "y", alone)])
    without = curve_svg([Panel("", "x", "y", [dataclasses.replace(one, error=None) for one in alone])])
    assert drawn.count("<path") > without.count("<path")
    assert "stroke-width: 1.5" in drawn
    assert "stroke-width: 1.5" not in without
