"""Where shared words lie, on both photos: those that agree in colour, others grey, and the query's outline."""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float64

from superfeat.explain.explain import Side
from superfeat.found.colours import COLOURS, MUTED
from superfeat.found.sheet import PAGE, Frame, Sheet
from superfeat.rerank.geometry import Arrangement

AGREED, OTHER = COLOURS[2], MUTED
SMALLEST, LARGEST = 2.0, 6.0  # radius of a word, by its share of the score
LINE = 2.5  # width of the outline


def describe_agreement(arrangement: Arrangement) -> str:
    """What the dots say, in words."""
    words = f"{arrangement.inliers} of {len(arrangement.shares)} words lie as in the query"
    return f"{words}: {arrangement.verified:.0%} of the score is verified"


def draw_arrangement(sheet: Sheet, arrangement: Arrangement, frames: Mapping[Side, Frame]) -> None:
    """On a sheet that has both photos already; the frames are those that the photos fill."""
    sizes = np.sqrt(np.maximum(arrangement.shares, 0) / max(float(arrangement.shares.max(initial=0)), 1e-300))
    order = np.lexsort((sizes, arrangement.agreed))  # what agrees is drawn last, on top
    for side, frame in frames.items():
        places = arrangement.query if side == "query" else arrangement.found
        for row in order.tolist():
            colour = AGREED if arrangement.agreed[row] else OTHER
            _dot(sheet, frame, places[row], SMALLEST + (LARGEST - SMALLEST) * float(sizes[row]), colour)
    if arrangement.outline is not None:
        _draw_outline(sheet, frames["found"], np.asarray(arrangement.outline))


def _dot(sheet: Sheet, frame: Frame, place: Float64[np.ndarray, "2"], radius: float, colour: str) -> None:
    x, y = frame.left + frame.width * float(place[0]), frame.top + frame.height * float(place[1])
    for around, paint in ((radius + 1, PAGE), (radius, colour)):
        box = (x - around, y - around, x + around, y + around)
        sheet.draw.ellipse([value * sheet.scale for value in box], paint)


def _draw_outline(sheet: Sheet, frame: Frame, corners: Float64[np.ndarray, "4 2"]) -> None:
    """As much of it as lies in the photo."""
    left, top, right, bottom = sheet.pixels(frame)
    whole = sheet.image.copy()
    points = [
        ((frame.left + frame.width * x) * sheet.scale, (frame.top + frame.height * y) * sheet.scale)
        for x, y in [*corners.tolist(), corners[0].tolist()]
    ]
    for width, colour in ((LINE + 2.5, PAGE), (LINE, AGREED)):
        sheet.draw.line(points, colour, round(width * sheet.scale), joint="curve")
    inside = sheet.image.crop((left, top, right, bottom))
    sheet.image.paste(whole, (0, 0))
    sheet.image.paste(inside, (left, top))
