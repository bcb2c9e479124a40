"""A contact sheet of drawn landmarks: a row per thing, a column per view.

python -m benchmarks.drawn_sheet OUT.jpg --things 6 --views 6
"""

import argparse
from pathlib import Path

from PIL import Image

from superfeat.drawn import draw


def make_sheet(first: int, things: int, views: int, *, seed: int, cell: int) -> Image.Image:
    """Every view in the middle of its cell."""
    height = cell * 3 // 4
    sheet = Image.new("RGB", (views * cell, things * height), (24, 24, 26))
    for row in range(things):
        for column in range(views):
            picture = Image.fromarray(draw(first + row, column, seed=seed, size=(256, 192)))
            picture.thumbnail((cell - 4, height - 4), Image.Resampling.LANCZOS)
            left, top = (cell - picture.width) // 2, (height - picture.height) // 2
            sheet.paste(picture, (column * cell + left, row * height + top))
    return sheet


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--things", type=int, default=6)
    parser.add_argument("--views", type=int, default=6)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cell", type=int, default=200, help="width of a view in pixels")
    given = parser.parse_args()
    sheet = make_sheet(given.first, given.things, given.views, seed=given.seed, cell=given.cell)
    sheet.save(given.out, optimize=True, quality=90)


if __name__ == "__main__":
    main()
