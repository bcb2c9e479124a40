"""A sheet to draw on, in units: text, frames and discs, smooth at any size.

Pillow alone, with the font that it brings, so that a picture is the same everywhere. All is drawn at twice its size,
which makes lines and letters smooth when it is made smaller.
"""

import functools
import math
import unicodedata
from typing import NamedTuple

from PIL import Image, ImageColor, ImageDraw, ImageFont

from superfeat.found.colours import INK

UNITS = 1200  # the width of every sheet
SMOOTH = 2
PAGE = "#ffffff"
LONGEST_LINE = 160  # letters of a line


class Frame(NamedTuple):
    """A part of the sheet, in units."""

    left: float
    top: float
    width: float
    height: float


class Sheet:
    """What is drawn on: its measures are units, its image is twice the size of the picture."""

    def __init__(self, width: int, height: float) -> None:
        self.scale = SMOOTH * width / UNITS
        self.size = (width, math.ceil(height * width / UNITS))
        self.image = Image.new("RGB", (SMOOTH * self.size[0], SMOOTH * self.size[1]), PAGE)
        self.draw = ImageDraw.Draw(self.image)

    def pixels(self, frame: Frame) -> tuple[int, int, int, int]:
        """Left, top, right, bottom; at least one pixel."""
        left, top = round(frame.left * self.scale), round(frame.top * self.scale)
        right, bottom = round((frame.left + frame.width) * self.scale), round((frame.top + frame.height) * self.scale)
        return left, top, max(left + 1, right), max(top + 1, bottom)

    def fill(self, frame: Frame, colour: str, radius: float = 0.0) -> None:
        left, top, right, bottom = self.pixels(frame)
        self.draw.rounded_rectangle((left, top, right - 1, bottom - 1), radius * self.scale, colour)

    def length(self, words: str, size: float) -> float:
        return float(_font(size * self.scale).getlength(words)) / self.scale

    def write(
        self, x: float, y: float, words: str, size: float, colour: str = INK, anchor: str = "ls", room: float = UNITS
    ) -> None:
        """One line; where there is no room for it, its middle is left out."""
        words = _plain(words)
        for kept in range(min(len(words), LONGEST_LINE), 0, -1):
            cut = words if kept == len(words) else f"{words[: (kept + 1) // 2]}…{words[len(words) - kept // 2 :]}"
            if self.length(cut, size) <= room:
                self.draw.text((x * self.scale, y * self.scale), cut, colour, _font(size * self.scale), anchor)
                return

    def finish(self) -> Image.Image:
        return self.image.resize(self.size, Image.Resampling.LANCZOS)


@functools.cache
def _font(size: float) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(max(1.0, size))


def _plain(words: str) -> str:
    """In letters that the font has: those of ASCII, without accents; a question mark for any other."""
    letters = unicodedata.normalize("NFKD", words)
    kept = [letter for letter in letters if not unicodedata.combining(letter)]
    return "".join(letter if " " <= letter <= "~" or letter in "·…" else "?" for letter in kept)


def ink_on(colour: str) -> str:
    """Dark letters on light colours, light ones on dark."""
    red, green, blue = ImageColor.getrgb(colour)[:3]
    return INK if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else PAGE
