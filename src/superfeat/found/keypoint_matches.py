"""Two photos whose keypoints were matched, as a picture: both photos, and a line for each match that agrees."""

import dataclasses
from pathlib import Path

import numpy as np
from jaxtyping import Float64, UInt8
from PIL import Image

from superfeat.found.colours import COLOURS, MUTED
from superfeat.found.explanation import save_picture
from superfeat.found.sheet import UNITS, Frame, Sheet

MARGIN, GAP, TOP_SPACE, TALLEST = 32, 24, 122, 560
LINE, DOT = 1.2, 2.5


@dataclasses.dataclass(frozen=True, eq=False)
class KeypointMatch:
    """How many matches of keypoints agree on one homography, whether that is certain, and where they lie, as fractions
    of width and height."""

    name: str  # of the photo that was found
    inliers: int
    certain: bool  # strangers hardly ever have so many, so far spread
    covered: tuple[float, float]  # share of each photo that they span
    query: Float64[np.ndarray, "n 2"]
    found: Float64[np.ndarray, "n 2"]
    pixels: tuple[UInt8[np.ndarray, "h w 3"], UInt8[np.ndarray, "h2 w2 3"]]

    def __repr__(self) -> str:
        return f"<KeypointMatch {self.name!r}: {self.inliers} inliers{', certain' if self.certain else ''}>"

    def draw(self, width: int = UNITS) -> Image.Image:
        """Both photos side by side, with a line for each match that agrees."""
        photos = [Image.fromarray(pixels) for pixels in self.pixels]
        aspects = [photo.width / photo.height for photo in photos]
        height = min(TALLEST, (UNITS - 2 * MARGIN - GAP) / sum(aspects))
        left = (UNITS - height * sum(aspects) - GAP) / 2
        frames = [
            Frame(left, TOP_SPACE, height * aspects[0], height),
            Frame(left + height * aspects[0] + GAP, TOP_SPACE, height * aspects[1], height),
        ]
        sheet = Sheet(width, TOP_SPACE + height + MARGIN)
        sheet.write(MARGIN, 52, "Certainly the same" if self.certain else "Not certain", 29)
        sheet.write(MARGIN, 78, f"{self.inliers} matches of keypoints agree on one transform", 15, MUTED)
        sheet.write(frames[1].left, TOP_SPACE - 12, self.name, 15, room=frames[1].width)
        for photo, frame in zip(photos, frames, strict=True):
            x, y, right, bottom = sheet.pixels(frame)
            sheet.image.paste(photo.resize((right - x, bottom - y), Image.Resampling.LANCZOS), (x, y))
        self._draw_lines(sheet, frames)
        return sheet.finish()

    def _draw_lines(self, sheet: Sheet, frames: list[Frame]) -> None:
        for number, ends in enumerate(zip(self.query.tolist(), self.found.tolist(), strict=True)):
            points = [
                ((frame.left + frame.width * x) * sheet.scale, (frame.top + frame.height * y) * sheet.scale)
                for frame, (x, y) in zip(frames, ends, strict=True)
            ]
            colour = COLOURS[number % len(COLOURS)]
            sheet.draw.line(points, colour, max(1, round(LINE * sheet.scale)))
            for x, y in points:
                reach = DOT * sheet.scale
                sheet.draw.ellipse((x - reach, y - reach, x + reach, y + reach), colour)

    def save(self, path: str | Path) -> None:
        """As a picture, .png or .jpg."""
        save_picture(self.draw(), path)
