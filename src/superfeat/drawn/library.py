"""Textures that all views share, the same for all seeds: grounds, leaves, people, paint, a bus, house fronts."""

import dataclasses
import functools

import numpy as np

from superfeat.drawn.canvas import ALPHA, Canvas, Colour, Layer, Texture, darker, hexed, lighter
from superfeat.drawn.materials import paint_asphalt, paint_blocks, paint_grass, paint_water, speckle
from superfeat.drawn.site import Site, design_style

GROUNDS = ("paving", "slabs", "cobbles", "grass", "gravel", "asphalt")
LEAF_CARD = 1.8  # metres
PERSON_SIZE = (0.9, 1.8)  # metres
BUS_SIZE = (11.0, 3.1)
PEOPLE = 16
LEAVES = ((0.36, 0.44, 0.22), (0.43, 0.47, 0.24), (0.28, 0.38, 0.24), (0.66, 0.48, 0.22), (0.60, 0.34, 0.19))
PAINTS = ("#8f1f1f", "#1f3557", "#d9d9d6", "#2a2c2f", "#7b8085", "#3f5a45", "#c8a23a")
CLOTHES = ("#2b2f3a", "#7a2e2e", "#39507a", "#c9c2b4", "#4a5a3c", "#8a6a4a", "#d8d8d8", "#b0502f", "#55405e", "#1f1f22")
SKINS = ("#e2b99a", "#c58d68", "#8a5a3e", "#f0cdb4")


@dataclasses.dataclass(frozen=True)
class House:
    """A front's size and texture, and its roof's."""

    width: float
    height: float
    front: int
    roof: int


@dataclasses.dataclass(frozen=True)
class Library:
    """All shared textures; the numbers of those with a name; the houses."""

    textures: tuple[Texture, ...]
    numbers: dict[str, int]
    houses: tuple[House, ...]


@functools.lru_cache(maxsize=1)
def open_library() -> Library:
    """Paints everything at the first use."""
    rng = np.random.default_rng(11)
    canvases: dict[str, Canvas] = {name: _paint_ground(rng, name) for name in GROUNDS}
    for number, colour in enumerate(LEAVES):
        canvases[f"leaves {number}"] = _paint_leaves(rng, colour)
    for number in range(PEOPLE):
        canvases[f"person {number}"] = _paint_person(rng)
    for number, code in enumerate(PAINTS):
        canvases[f"paint {number}"] = _paint_plain(rng, hexed(code), 0.25)
    plain: dict[str, tuple[Colour, float]] = {"bark": ((0.33, 0.27, 0.22), 0.0), "iron": ((0.16, 0.17, 0.18), 0.05)}
    plain |= {"tyre": ((0.1, 0.1, 0.1), 0.0), "pane": ((0.12, 0.15, 0.18), 0.8), "pole": ((0.55, 0.56, 0.58), 0.1)}
    plain |= {"hill": ((0.36, 0.43, 0.32), 0.0), "board": ((0.6, 0.5, 0.36), 0.0)}
    for name, (colour, gloss) in plain.items():
        canvases[name] = _paint_plain(rng, colour, gloss)
    canvases["water"] = Canvas.blank(12, 12, 12)
    paint_water(canvases["water"], rng)
    canvases["lamp"] = _paint_plain(rng, (0.95, 0.92, 0.8), 0.0)
    canvases["lamp"].layers[4] = 1
    canvases["bus"] = _paint_bus()
    textures = [Texture.of(canvas, holes=name.startswith(("leaves", "person"))) for name, canvas in canvases.items()]
    numbers = {name: number for number, name in enumerate(canvases)}
    houses = [_build_house(textures, seed) for seed in range(14)]
    return Library(tuple(textures), numbers, tuple(houses))


def _build_house(textures: list[Texture], seed: int) -> House:
    rng = np.random.default_rng((12, seed))
    site = Site(rng, design_style(rng, ("plaster", "plaster", "brick", "stone", "timber")), len(textures))
    plan = site.plan(int(rng.integers(2, 6)), rng.uniform(2.9, 3.5), rng.uniform(2.0, 3.0))
    width = float(rng.uniform(8, 15))
    front, roof = site.facade(plan, width, door=True), site.plain("roof")
    textures.extend(site.textures)
    return House(width, plan.height, front, roof)


def _paint_ground(rng: np.random.Generator, name: str) -> Canvas:
    canvas = Canvas.blank(12, 12, 20)
    if name == "paving":
        paint_blocks(canvas, rng, (0.64, 0.61, 0.56), 1.0, 1.0, 0.01, 0.16)
    elif name == "slabs":
        paint_blocks(canvas, rng, (0.58, 0.54, 0.5), 1.5, 3.0, 0.01, 0.12)
        joint = np.minimum(canvas.x % 6, canvas.y % 6) - 0.25
        canvas.paint(canvas.cover(np.asarray(joint, np.float32)), (0.72, 0.66, 0.58))
    elif name == "cobbles":
        paint_blocks(canvas, rng, (0.5, 0.47, 0.44), 0.3, 0.3, 0.05, 0.3)
    elif name == "grass":
        paint_grass(canvas, rng, (0.36, 0.42, 0.24))
    else:
        paint_asphalt(canvas, rng, (0.64, 0.58, 0.48) if name == "gravel" else (0.37, 0.37, 0.38))
    return canvas


def _paint_plain(rng: np.random.Generator, colour: Colour, gloss: float) -> Canvas:
    canvas = Canvas.blank(2, 2, 8, colour)
    speckle(canvas, rng, 0.16)
    canvas.layers[5] = gloss
    return canvas


def _empty(width: float, height: float, scale: float, colour: Colour) -> Canvas:
    canvas = Canvas.blank(width, height, scale, colour)
    canvas.layers[ALPHA] = 0
    return canvas


def _lay(canvas: Canvas, distance: Layer, colour: Colour) -> None:
    where = canvas.cover(distance)
    canvas.paint((where > 0.02).astype(np.float32), colour)
    canvas.layers[ALPHA] = np.maximum(canvas.layers[ALPHA], where)


def _paint_leaves(rng: np.random.Generator, colour: Colour) -> Canvas:
    """A bunch of leaves, lighter above."""
    canvas = _empty(LEAF_CARD, LEAF_CARD, 36, colour)
    for _ in range(70):
        reach, turn, tilt = rng.uniform(0, 0.72), rng.uniform(0, 2 * np.pi), rng.uniform(0, np.pi)
        x, y = LEAF_CARD / 2 + reach * np.cos(turn), LEAF_CARD / 2 + reach * np.sin(turn)
        area = canvas.part(x - 0.25, y - 0.25, x + 0.25, y + 0.25)
        along = (area.x - x) * np.cos(tilt) + (area.y - y) * np.sin(tilt)
        off = (area.y - y) * np.cos(tilt) - (area.x - x) * np.sin(tilt)
        leaf = (np.hypot(along / 0.15, off / 0.08) - 1) * 0.08
        shade = rng.uniform(0, 0.3)
        own = lighter(colour, shade * 0.6) if rng.random() < 0.5 else darker(colour, shade)
        _lay(area, np.asarray(leaf, np.float32), own)
    return canvas


def _paint_person(rng: np.random.Generator) -> Canvas:
    """Seen from the front or from behind: legs or a skirt, a coat, arms, a head, hair, perhaps a bag."""
    coat, legs = (hexed(str(code)) for code in rng.choice(CLOTHES, 2, replace=False))
    skin, hair = (
        hexed(str(rng.choice(SKINS))),
        hexed(str(rng.choice(["#2a1f1a", "#5a3a22", "#b08a50", "#1a1a1c", "#8f8a84"]))),
    )
    canvas, middle = _empty(*PERSON_SIZE, 48, coat), PERSON_SIZE[0] / 2
    stride = rng.uniform(0.04, 0.13)
    if rng.random() < 0.25:
        skirt = np.maximum(np.abs(canvas.x - middle) - 0.12 - (0.95 - canvas.y) * 0.2, np.abs(canvas.y - 0.6) - 0.38)
        _lay(canvas, canvas.box(middle - 0.1, 0, middle + 0.1, 0.5), skin)
        _lay(canvas, np.asarray(skirt, np.float32), legs)
    else:
        for side in (-1, 1):
            leg = np.abs(canvas.x - middle - side * (0.07 + stride * (0.9 - canvas.y))) - 0.075
            _lay(canvas, np.asarray(np.maximum(leg, np.abs(canvas.y - 0.48) - 0.47), np.float32), legs)
    body = np.maximum(np.abs(canvas.x - middle) - 0.17 - (canvas.y - 0.85) * 0.08, np.abs(canvas.y - 1.17) - 0.34)
    for side in (-1, 1):
        arm = np.abs(canvas.x - middle - side * (0.25 + 0.1 * (1.45 - canvas.y))) - 0.055
        _lay(canvas, np.asarray(np.maximum(arm, np.abs(canvas.y - 1.15) - 0.32), np.float32), darker(coat, 0.15))
    _lay(canvas, np.asarray(body, np.float32), coat)
    _lay(canvas, canvas.disc(middle, 1.64, 0.125), hair)
    if rng.random() < 0.6:
        _lay(canvas, canvas.disc(middle, 1.615, 0.1), skin)
    if rng.random() < 0.4:
        _lay(canvas, canvas.box(middle + 0.14, 0.75, middle + 0.36, 1.05), hexed(str(rng.choice(CLOTHES))))
    return canvas


def _paint_bus() -> Canvas:
    """The side of a bus: windows, a stripe, wheels."""
    width, height = BUS_SIZE
    canvas = Canvas.blank(width, height, 20, hexed("#b03a2c"))
    canvas.paint(canvas.cover(canvas.box(0, 0, width, 0.3)), (0.1, 0.1, 0.11))
    canvas.paint(canvas.cover(canvas.box(0, 1.15, width, 1.3)), hexed("#e8e2d4"))
    for place in range(7):
        left = 0.4 + place * 1.5
        canvas.paint(canvas.cover(canvas.box(left, 1.5, left + 1.3, 2.6)), (0.12, 0.15, 0.18), gloss=0.7, glow=0.6)
    for x in (2.2, 8.6):
        canvas.paint(canvas.cover(canvas.disc(x, 0.45, 0.52)), (0.08, 0.08, 0.08))
        canvas.paint(canvas.cover(canvas.disc(x, 0.45, 0.25)), (0.6, 0.6, 0.6))
    return canvas
