"""What is built: the families of landmarks, and one of them by number."""

import dataclasses
import functools
import math
from collections.abc import Callable

import numpy as np

from superfeat.drawn.camera import Bounds
from superfeat.drawn.canvas import bind
from superfeat.drawn.churches import basilica, church, mosque
from superfeat.drawn.halls import glass_tower, palace, row_of_houses, temple
from superfeat.drawn.library import GROUNDS, open_library
from superfeat.drawn.monuments import bridge, column_monument, fountain, statue, triumphal_arch
from superfeat.drawn.raster import Textures, Triangles
from superfeat.drawn.site import Site, design_style
from superfeat.drawn.towers import campanile, castle, lighthouse, pagoda, windmill

KEPT_LANDMARKS = 8  # landmarks whose textures stay in memory


@dataclasses.dataclass(frozen=True)
class Family:
    """How its members are built, of what, how often, and how far around they can be told apart (radians)."""

    build: Callable[[Site], None]
    materials: tuple[str, ...]
    weight: float
    swing: float


@dataclasses.dataclass(frozen=True)
class Landmark:
    """A built thing with all textures that its views need."""

    family: str
    triangles: Triangles
    textures: Textures
    bounds: Bounds
    ground: str
    over_water: bool


STONY = ("stone", "stone", "rough", "brick")
FAMILIES = {
    "palace": Family(palace, ("stone", "brick", "plaster", "plaster", "mosaic"), 3, 1.15),
    "church": Family(church, ("stone", "rough", "brick", "plaster"), 3, 1.15),
    "houses": Family(row_of_houses, ("timber", "timber", "brick", "plaster"), 2, 0.95),
    "basilica": Family(basilica, ("stone", "plaster", "stone"), 1.5, 1.3),
    "castle": Family(castle, ("rough", "rough", "stone", "brick"), 1.5, 1.0),
    "campanile": Family(campanile, (*STONY, "plaster"), 1.5, 1.3),
    "arch": Family(triumphal_arch, ("stone", "stone", "brick"), 1, 0.95),
    "bridge": Family(bridge, STONY, 1, 0.75),
    "temple": Family(temple, ("stone", "stone", "plaster"), 1, 1.2),
    "mosque": Family(mosque, ("mosaic", "stone", "plaster", "brick"), 1, 1.1),
    "statue": Family(statue, STONY, 0.7, 1.6),
    "column": Family(column_monument, STONY, 0.7, 1.8),
    "fountain": Family(fountain, STONY, 0.8, 1.8),
    "pagoda": Family(pagoda, ("plaster", "timber", "brick"), 0.8, 1.4),
    "lighthouse": Family(lighthouse, ("plaster", "plaster", "rough", "brick"), 0.7, 1.2),
    "windmill": Family(windmill, ("brick", "plaster", "rough"), 0.6, 1.0),
    "glass": Family(glass_tower, ("glass",), 0.6, 1.4),
}


@functools.lru_cache(maxsize=KEPT_LANDMARKS)
def build(seed: int, thing: int) -> Landmark:
    """The landmark of this number: the same for all its views."""
    rng = np.random.default_rng((seed, thing))
    weights = np.array([family.weight for family in FAMILIES.values()])
    name = str(rng.choice(list(FAMILIES), p=weights / weights.sum()))
    family = FAMILIES[name]
    textures = open_library().textures
    site = Site(rng, design_style(rng, family.materials), len(textures))
    family.build(site)
    triangles = site.mesh.triangles()
    points = triangles.points.reshape(-1, 3)
    low, high = points.min(axis=0), points.max(axis=0)
    triangles.points[:, :, :2] -= (low + high)[:2] / 2  # the axis goes through its middle
    half_width, half_depth, _ = (float(side) / 2 for side in high - low)
    bounds = Bounds(half_width, half_depth, float(high[2]), min(family.swing, math.pi))
    ground, water = str(rng.choice(GROUNDS)), family.build is bridge
    return Landmark(name, triangles, bind([*textures, *site.textures]), bounds, ground, water)
