"""Labels that lie on the regions that they speak of."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float64

from superfeat.explain.explain import Place
from superfeat.found.sheet import PAGE, Frame, Sheet, ink_on

LABEL_HEIGHT, LABEL_TEXT, LABEL_GAP = 25.0, 16.0, 3.0
FAR = 0.5  # of a label lies beside its region rather than a whole photo away from the region's centroid


def label_width(sheet: Sheet, words: str) -> float:
    """With its edge."""
    return sheet.length(words, LABEL_TEXT) + LABEL_TEXT + LABEL_GAP


def place_label(
    region: Bool[np.ndarray, "rows columns"], place: Place, photo: Frame, width: float, taken: Sequence[Frame]
) -> Frame:
    """Where a label of this width covers most of its own region, near the region's middle and beside other labels."""
    rows, columns = region.shape
    across, down = photo.width / columns, photo.height / rows
    height = LABEL_HEIGHT + LABEL_GAP
    cover = _share_around(region, min(rows, round(height / down)), min(columns, round(width / across)))
    x, y = (np.arange(columns) + 0.5) * across, (np.arange(rows) + 0.5) * down
    apart = np.hypot(*np.meshgrid(x / photo.width - place.x, y / photo.height - place.y))
    value = np.asarray(cover - FAR * apart - ~region)
    value[np.abs(2 * y - photo.height) > max(0.0, photo.height - height), :] -= 1
    value[:, np.abs(2 * x - photo.width) > max(0.0, photo.width - width)] -= 1
    for other in taken:
        middle_x, middle_y = other.left + other.width / 2 - photo.left, other.top + other.height / 2 - photo.top
        beside = np.abs(x - middle_x) < (width + other.width) / 2
        value[np.ix_(np.abs(y - middle_y) < (height + other.height) / 2, beside)] -= 2
    row, column = np.unravel_index(int(value.argmax()), value.shape)
    return Frame(photo.left + x[column] - width / 2, photo.top + y[row] - height / 2, width, height)


def _share_around(
    region: Bool[np.ndarray, "rows columns"], height: int, width: int
) -> Float64[np.ndarray, "rows columns"]:
    """For each cell, the share of a window of this size around it that belongs to the region."""
    height, width = max(1, height), max(1, width)
    padded = np.pad(region.astype(np.float64), ((height // 2, height), (width // 2, width)))
    sums = np.pad(padded.cumsum(axis=0).cumsum(axis=1), ((1, 0), (1, 0)))
    windows = sums[height:, width:] - sums[:-height, width:] - sums[height:, :-width] + sums[:-height, :-width]
    return np.asarray(windows[: region.shape[0], : region.shape[1]] / (height * width))


def draw_label(sheet: Sheet, words: str, colour: str, spot: tuple[float, float]) -> None:
    """A pill with its middle at `spot`, and an edge around it."""
    width, height = label_width(sheet, words), LABEL_HEIGHT + LABEL_GAP
    for edge, paint in ((0.0, PAGE), (LABEL_GAP, colour)):
        left, top = spot[0] - (width - edge) / 2, spot[1] - (height - edge) / 2
        sheet.fill(Frame(left, top, width - edge, height - edge), paint, (height - edge) / 2)
    sheet.write(*spot, words, LABEL_TEXT, ink_on(colour), "mm")
