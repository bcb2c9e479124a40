"""A building site: a mesh, its textures, the style they share; and facades with storeys of windows."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from superfeat.drawn.canvas import Canvas, Colour, Texture, darker, lighter
from superfeat.drawn.materials import (
    BEAMS,
    BRICKS,
    METALS,
    PLASTERS,
    ROOFS,
    STONES,
    TRIMS,
    paint_asphalt,
    paint_blocks,
    paint_glass,
    paint_metal,
    paint_mosaic,
    paint_plaster,
    paint_roof,
    paint_timber,
    paint_water,
    pick,
)
from superfeat.drawn.mesh import Mesh, Outline
from superfeat.drawn.openings import RISES, SURROUND, Window, design_window, paint_door, paint_window

FINEST = 26.0  # texels per metre
LONGEST_FACADE = 640  # texels along a facade
TILE = 6.0  # metres after which a plain surface repeats


@dataclasses.dataclass(frozen=True)
class Style:
    """Materials and colours of one landmark."""

    material: str
    wall: Colour
    second: Colour
    base: Colour
    trim: Colour
    roof: Colour
    metal: Colour
    roofing: str
    rise: float | None  # of all windows, or each its own


def design_style(rng: np.random.Generator, choices: Sequence[str]) -> Style:
    """One of the wall materials, and colours that go with it."""
    material = str(rng.choice(list(choices)))
    pool = {"brick": BRICKS, "stone": STONES, "rough": STONES}
    wall = pick(rng, pool.get(material, PLASTERS))
    second = pick(rng, BEAMS) if material == "timber" else pick(rng, PLASTERS)
    base = pick(rng, STONES)
    light_trim = rng.random() < 0.6
    trim = pick(rng, TRIMS) if light_trim or material == "timber" else lighter(wall, 0.3)
    if material in ("stone", "rough") and rng.random() < 0.6:
        base, trim = darker(wall, 0.12), lighter(wall, 0.25)
    roofing = "metal" if rng.random() < 0.25 else "tiles"
    rise = float(rng.choice(RISES)) if rng.random() < 0.6 else None
    roof, metal = pick(rng, ROOFS), pick(rng, METALS)
    return Style(material, wall, second, base, trim, roof, metal, roofing, rise)


@dataclasses.dataclass(frozen=True)
class Floor:
    """A storey: how high, how far apart its windows, and which."""

    height: float
    bay: float
    window: Window
    paired: bool = False


@dataclasses.dataclass(frozen=True)
class Plan:
    """How the walls of one building are divided."""

    floors: tuple[Floor, ...]
    rustic: bool
    bands: bool
    corners: bool
    pilasters: bool

    @property
    def height(self) -> float:
        """Of all storeys."""
        return sum(floor.height for floor in self.floors)


class Site:
    """Where a landmark is built."""

    def __init__(self, rng: np.random.Generator, style: Style, first: int) -> None:
        self.rng = rng
        self.style = style
        self.mesh = Mesh()
        self.textures: list[Texture] = []
        self.first = first
        self._plain: dict[str, int] = {}

    def use(self, canvas: Canvas, *, holes: bool = False) -> int:
        """The number of a new texture."""
        self.textures.append(Texture.of(canvas, holes=holes))
        return self.first + len(self.textures) - 1

    def plain(self, name: str) -> int:
        """A surface without openings: wall, base, trim, roof, metal, dark, gold, water, bronze."""
        if name not in self._plain:
            canvas = Canvas.blank(TILE, TILE, 20.0)
            self._paint_plain(canvas, name)
            self._plain[name] = self.use(canvas)
        return self._plain[name]

    def _paint_plain(self, canvas: Canvas, name: str) -> None:
        style, rng = self.style, self.rng
        solid = {"gold": (0.8, 0.62, 0.25), "bronze": (0.33, 0.42, 0.36), "iron": (0.2, 0.21, 0.23)}
        solid |= {"dark": darker(style.wall, 0.55), "trim": style.trim, "white": (0.93, 0.92, 0.88)}
        if name == "wall":
            self.paint_wall(canvas)
        elif name == "base":
            paint_blocks(canvas, rng, style.base, 0.6, 1.2, 0.06, 0.16)
        elif name == "water":
            paint_water(canvas, rng)
        elif name == "metal" or (name == "roof" and style.roofing == "metal"):
            paint_metal(canvas, rng, style.metal)
        elif name == "roof":
            paint_roof(canvas, rng, style.roof)
        else:
            paint_asphalt(canvas, rng, solid[name])

    def paint_wall(self, canvas: Canvas, storey: float = 3.2, bay: float = 1.6) -> None:
        """The style's material over a whole canvas."""
        style, rng = self.style, self.rng
        if style.material == "brick":
            paint_blocks(canvas, rng, style.wall, 0.2, 0.5, 0.02, 0.3)
        elif style.material == "stone":
            paint_blocks(canvas, rng, style.wall, 0.5, 1.0, 0.02, 0.14)
        elif style.material == "rough":
            paint_blocks(canvas, rng, style.wall, 0.375, 0.75, 0.07, 0.32)
        elif style.material == "timber":
            paint_timber(canvas, rng, lighter(style.wall, 0.3), style.second, storey, bay)
        elif style.material == "glass":
            paint_glass(canvas, rng, style.wall, storey, bay)
        elif style.material == "mosaic":
            paint_mosaic(canvas, rng, lighter(style.wall, 0.3), style.second)
        else:
            paint_plaster(canvas, rng, style.wall)

    def canvas(self, width: float, height: float, storey: float = 3.2, bay: float = 1.6) -> Canvas:
        """A wall of this size, without openings."""
        canvas = Canvas.blank(width, height, min(FINEST, LONGEST_FACADE / max(width, height)))
        self.paint_wall(canvas, storey, bay)
        return canvas

    def window(self, width: float, height: float, rise: float | None = None) -> Window:
        """A new design in the site's style."""
        return design_window(self.rng, width, height, self.style.trim, self.style.rise if rise is None else rise)

    def plan(self, storeys: int, height: float, bay: float) -> Plan:
        """Storeys of about this height, each with its own windows or all with the same."""
        rng, floors = self.rng, []
        window = self.window(bay * rng.uniform(0.35, 0.5), height * rng.uniform(0.5, 0.62))
        paired = bool(rng.random() < 0.2)
        for level in range(storeys):
            own = height * (rng.uniform(1.05, 1.35) if level == 0 else rng.uniform(0.82, 1.02))
            if rng.random() < 0.45:
                window = self.window(bay * rng.uniform(0.32, 0.5), own * rng.uniform(0.42, 0.62))
            high = min(window.height, own * 0.66)
            floors.append(Floor(own, bay, dataclasses.replace(window, height=high), paired))
        return Plan(tuple(floors), *(bool(rng.random() < chance) for chance in (0.4, 0.6, 0.4, 0.25)))

    def facade(self, plan: Plan, width: float, *, door: bool = False, axes: int = 0) -> int:
        """A wall with the plan's windows; `axes` windows side by side, or as many as fit."""
        canvas = self.canvas(width, plan.height, plan.floors[0].height, plan.floors[0].bay)
        low = 0.0
        for level, floor in enumerate(plan.floors):
            self._paint_storey(canvas, plan, level, low)
            count = axes or max(round(width / floor.bay), 1)
            picture = paint_window(floor.window, canvas.scale)
            for place in range(count):
                centre = width * (place + 0.5) / count
                if floor.paired:
                    centre += (1 if place % 2 == 0 else -1) * width / count * 0.12 * (count % 2 == 0)
                if door and level == 0 and abs(centre - width / 2) < 2.2:
                    continue
                lit = self.rng.uniform(0.5, 1.0) if self.rng.random() < 0.55 else 0.0
                bottom = low + (floor.height - floor.window.height) * 0.45
                canvas.stamp(picture, centre - floor.window.width / 2 - SURROUND, bottom - SURROUND, lit)
            low += floor.height
        if door:
            self.stamp_door(canvas, width / 2, min(plan.floors[0].height * 0.78, 3.6))
        return self.use(canvas)

    def stamp_door(self, canvas: Canvas, centre: float, height: float) -> None:
        """A door at the foot of a wall."""
        width = height * self.rng.uniform(0.5, 0.65)
        rise = float(self.rng.choice([0.0, 0.4, 1.0, 1.0])) if self.style.rise is None else self.style.rise
        picture = paint_door(self.rng, width, height, rise, self.style.trim, canvas.scale)
        canvas.stamp(picture, centre - width / 2 - SURROUND, -SURROUND)

    def _paint_storey(self, canvas: Canvas, plan: Plan, level: int, low: float) -> None:
        """Bands, rustic ground floor, corner stones and pilasters."""
        floor, trim, width = plan.floors[level], self.style.trim, canvas.width
        high = low + floor.height
        if level == 0 and plan.rustic and self.style.material != "glass":
            ground = canvas.part(0, 0, width, high - 1 / canvas.scale)
            paint_blocks(ground, self.rng, self.style.base, 0.6, 1.2, 0.09, 0.12)
        if plan.pilasters and floor.bay > 2:
            for place in range(round(width / floor.bay) + 1):
                centre = width * place / max(round(width / floor.bay), 1)
                area = canvas.part(centre - 0.5, low, centre + 0.5, high)
                area.paint(area.cover(area.box(centre - 0.24, low, centre + 0.24, high)), trim, height=0.1)
        if plan.corners and self.style.material != "glass":
            self._paint_corners(canvas, low, high)
        if plan.bands or level == 0:
            canvas.paint(canvas.cover(canvas.box(-1, high - 0.22, 999, high)), trim, height=0.12)
            canvas.paint(canvas.cover(canvas.box(-1, high - 0.4, 999, high - 0.22)), darker(trim, 0.12), height=0.05)

    def _paint_corners(self, canvas: Canvas, low: float, high: float) -> None:
        """Stones at the edges, long and short in turn."""
        for step in range(int((high - low) / 0.6)):
            reach = 0.9 if step % 2 else 0.55
            bottom = low + step * 0.6
            for left, right in ((-0.1, reach), (canvas.width - reach, canvas.width + 0.1)):
                area = canvas.part(left - 0.1, bottom, right + 0.1, bottom + 0.6)
                area.paint(
                    area.cover(area.box(left, bottom + 0.03, right, bottom + 0.57)), self.style.trim, height=0.06
                )

    def block(self, outline: Outline, low: float, plan: Plan, *, door: bool = False) -> float:
        """Walls with windows around an outline, a cornice on top; the height where it ends."""
        sides, known = [], {}
        for side in range(len(outline)):
            (a, b), (c, d) = outline[side], outline[(side + 1) % len(outline)]
            length, front = float(np.hypot(c - a, d - b)), door and side == 0
            key = (round(length, 2), front)
            if key not in known:
                known[key] = self.facade(plan, length, door=front)
            sides.append(known[key])
        self.mesh.loft(outline, outline, low, low + plan.height, sides)
        return low + plan.height
