"""Parts of buildings: roofs, cornices, columns, stairs, pediments, domes, spires, battlements, figures."""

import itertools
import math

import numpy as np

from superfeat.drawn.mesh import Outline, grown, polygon, rectangle, scaled
from superfeat.drawn.site import Site


def cornice(site: Site, outline: Outline, z: float, reach: float = 0.45, name: str = "trim") -> float:
    """Two steps outwards; where it ends."""
    texture = site.plain(name)
    site.mesh.prism(grown(outline, reach * 0.5), z - reach * 0.6, z, texture)
    site.mesh.prism(grown(outline, reach), z, z + reach * 0.55, texture)
    return z + reach * 0.55


def gable_roof(site: Site, width: float, depth: float, z: float, rise: float, *, along_x: bool = True) -> float:
    """A saddle with gables of wall; its ridge runs along x or y. Where the ridge is."""
    if not along_x:
        with site.mesh.at(0, 0, 0, math.pi / 2):
            return gable_roof(site, depth, width, z, rise)
    out, a, b = 0.5, width / 2, depth / 2
    drop = out * rise / b
    for side in (-1, 1):
        x = side * a
        site.mesh.quad([(x, -side * b, z), (x, side * b, z), (x, 0, z + rise), (x, 0, z + rise)], site.plain("wall"))
        eave, low = side * (b + out), z - drop + 0.1
        ends = [(-side * -(a + out), eave, low), (-side * (a + out), eave, low)]
        ridge = [(-side * (a + out), 0, z + rise + 0.1), (side * (a + out), 0, z + rise + 0.1)]
        site.mesh.quad([*ends, *ridge], site.plain("roof"))
    site.mesh.box(0, 0, z + rise, width + 2 * out, 0.3, 0.25, site.plain("trim"))
    return z + rise


def hip_roof(site: Site, outline: Outline, z: float, rise: float, *, flat: float = 0.0) -> float:
    """Slopes on all sides up to a ridge, or to a smaller flat of this share of the outline."""
    eaves = grown(outline, 0.5)
    xs, ys = [x for x, _ in eaves], [y for _, y in eaves]
    if flat > 0 or len(outline) != 4:
        site.mesh.loft(eaves, scaled(eaves, max(flat, 0.001)), z, z + rise, site.plain("roof"), lid=site.plain("roof"))
        return z + rise
    width, depth = max(xs) - min(xs), max(ys) - min(ys)
    x, y, half = (max(xs) + min(xs)) / 2, (max(ys) + min(ys)) / 2, abs(width - depth) / 2
    low, high = ((x - half, y), (x + half, y)) if width >= depth else ((x, y - half), (x, y + half))
    upper = [low, high, high, low] if width >= depth else [low, low, high, high]
    site.mesh.loft(eaves, upper, z, z + rise, site.plain("roof"))
    return z + rise


def mansard_roof(site: Site, outline: Outline, z: float, rise: float) -> float:
    """Steep below, flat above, with dormers on the front."""
    inner = grown(outline, -rise * 0.28)
    site.mesh.loft(grown(outline, 0.2), inner, z, z + rise * 0.75, site.plain("roof"))
    site.mesh.prism(grown(inner, 0.15), z + rise * 0.75 - 0.15, z + rise * 0.75 + 0.1, site.plain("trim"))
    return hip_roof(site, grown(inner, -0.4), z + rise * 0.75, rise * 0.35)


def dormers(site: Site, width: float, front: float, z: float, count: int, texture: int) -> None:
    """Small gabled windows standing in a roof; `front` is the y of their faces."""
    for place in range(count):
        x = width * ((place + 0.5) / count - 0.5)
        with site.mesh.at(x, front, z):
            site.mesh.quad([(-0.8, 0, 0), (0.8, 0, 0), (0.8, 0, 1.8), (-0.8, 0, 1.8)], texture)
            for side in (-1, 1):
                site.mesh.quad(
                    [(side * 0.8, 0, 0), (side * 0.8, 2.5, 0), (side * 0.8, 2.5, 1.8), (side * 0.8, 0, 1.8)],
                    site.plain("roof"),
                )
                site.mesh.quad(
                    [(side * 1.0, -0.2, 1.65), (side * 1.0, 3, 1.65), (0, 3, 2.6), (0, -0.2, 2.6)], site.plain("roof")
                )
            site.mesh.quad([(-0.8, 0, 1.8), (0.8, 0, 1.8), (0, 0, 2.5), (0, 0, 2.5)], site.plain("trim"))


def pyramid(site: Site, outline: Outline, z: float, rise: float, name: str = "roof") -> float:
    """To a point."""
    site.mesh.loft(outline, scaled(outline, 0.001), z, z + rise, site.plain(name))
    return z + rise


def finial(site: Site, z: float, size: float, kind: int) -> None:
    """A ball with a cross, a vane or a spike, in gold."""
    gold = site.plain("gold")
    site.mesh.turned([(0, z), (size * 0.16, z + size * 0.16), (0, z + size * 0.32)], gold, segments=8)
    site.mesh.box(0, 0, z, size * 0.07, size * 0.07, size, gold)
    if kind == 0:
        site.mesh.box(0, 0, z + size * 0.66, size * 0.45, size * 0.07, size * 0.08, gold)
    elif kind == 1:
        site.mesh.box(size * 0.15, 0, z + size * 0.7, size * 0.5, size * 0.04, size * 0.22, gold)


def column(site: Site, height: float, radius: float, name: str = "trim", *, fluted: bool = False) -> None:
    """Base, a shaft that swells a little, capital with a slab."""
    texture, top = site.plain(name), height * 0.93
    site.mesh.box(0, 0, 0, radius * 2.7, radius * 2.7, height * 0.03, texture)
    profile = [
        (radius * 1.3, height * 0.03),
        (radius * 1.25, height * 0.055),
        (radius, height * 0.065),
        (radius * 0.98, height * 0.4),
        (radius * 0.82, top),
        (radius * 1.0, top + height * 0.01),
        (radius * 1.25, height * 0.975),
    ]
    site.mesh.turned(profile, texture, segments=7 if fluted else 10)
    site.mesh.box(0, 0, height * 0.97, radius * 2.8, radius * 2.8, height * 0.03, texture)


def stairs(site: Site, width: float, steps: int, front: float, rise: float = 0.18, tread: float = 0.4) -> float:
    """Steps before a wall whose face is at y = front; the height of the top."""
    for step in range(steps):
        depth = tread * (steps - step)
        site.mesh.box(0, front - depth / 2, rise * step, width + 2 * depth * 0.4, depth, rise, site.plain("base"))
    return rise * steps


def pediment(site: Site, width: float, depth: float, z: float, rise: float, front: float) -> None:
    """A low gable over columns, its front at y = front, with a frame and a relief."""
    trim, half = site.plain("trim"), width / 2
    with site.mesh.at(0, front, z):
        site.mesh.quad([(-half, 0.25, 0), (half, 0.25, 0), (0, 0.25, rise), (0, 0.25, rise)], site.plain("wall"))
        for side in (-1, 1):
            low, high = [(side * (half + 0.4), 0), (0, rise + 0.3)], [(side * (half - 0.4), 0), (0, rise - 0.25)]
            for face in (0.0, depth):
                (a, b), (c, d), (e, f), (g, h) = high[0], low[0], low[1], high[1]
                site.mesh.quad([(a, face, b), (c, face, d), (e, face, f), (g, face, h)], trim)
            (a, b), (c, d) = low
            site.mesh.quad([(a, -0.2, b), (a, depth, b), (c, depth, d), (c, -0.2, d)], site.plain("roof"))
        site.mesh.turned([(0, rise * 0.35), (rise * 0.22, rise * 0.5), (0, rise * 0.65)], trim, segments=8)


def dome(
    site: Site, radius: float, z: float, rise: float, name: str = "metal", *, ribs: int = 0, bulb: float = 0.0
) -> float:
    """A half egg, or an onion when `bulb` is above zero; its top."""
    profile = []
    for step in range(11):
        angle = step / 10 * math.pi / 2
        swell = 1 + bulb * math.sin(min(angle * 2.2, math.pi))
        lift = math.sin(angle) ** (1 if bulb == 0 else 1.35)
        profile.append((radius * swell * math.cos(angle) ** (1.0 if bulb == 0 else 1.15), z + rise * lift))
    site.mesh.turned(profile, site.plain(name), segments=24)
    for rib in range(ribs):
        with site.mesh.at(0, 0, 0, 2 * math.pi * rib / ribs):
            for (a, b), (c, d) in itertools.pairwise(profile):
                site.mesh.quad(
                    [(-0.15, -a - 0.12, b), (0.15, -a - 0.12, b), (0.15, -c - 0.12, d), (-0.15, -c - 0.12, d)],
                    site.plain("trim"),
                )
    return z + rise


def lantern(site: Site, radius: float, z: float, height: float, name: str = "metal") -> float:
    """A small open temple on top: columns and a cap; its top."""
    site.mesh.prism(polygon(8, radius * 1.15), z, z + height * 0.12, site.plain("trim"))
    site.mesh.prism(polygon(8, radius * 0.6), z, z + height * 0.7, site.plain("dark"))
    for side in range(8):
        angle = 2 * math.pi * (side + 0.5) / 8
        site.mesh.box(
            radius * math.cos(angle), radius * math.sin(angle), z, 0.25, 0.25, height * 0.7, site.plain("trim")
        )
    site.mesh.prism(polygon(8, radius * 1.2), z + height * 0.7, z + height * 0.78, site.plain("trim"))
    return dome(site, radius * 1.05, z + height * 0.78, radius * 0.9, name)


def battlements(site: Site, outline: Outline, z: float, size: float = 0.9, name: str = "wall") -> None:
    """Merlons along the edges of an outline, on a parapet."""
    texture = site.plain(name)
    for side in range(len(outline)):
        (a, b), (c, d) = outline[side], outline[(side + 1) % len(outline)]
        length = math.hypot(c - a, d - b)
        count = max(int(length / (2 * size)), 1)
        with site.mesh.at(a, b, z, math.atan2(d - b, c - a)):
            site.mesh.box(length / 2, 0.2, 0, length, 0.4, size * 0.5, texture)
            for place in range(count):
                site.mesh.box(length * (place + 0.5) / count, 0.2, size * 0.5, size, 0.4, size * 0.8, texture)


def balustrade(site: Site, length: float, name: str = "trim") -> None:
    """Along x, its middle at the origin: posts, balusters, rail."""
    texture, count = site.plain(name), max(int(length / 0.5), 2)
    site.mesh.box(0, 0, 0, length, 0.3, 0.12, texture)
    site.mesh.box(0, 0, 0.85, length, 0.32, 0.14, texture)
    for place in range(count + 1):
        site.mesh.box(length * (place / count - 0.5), 0, 0.1, 0.2, 0.2, 0.78, texture)


def figure(site: Site, size: float, rng: np.random.Generator, name: str = "bronze") -> None:
    """A person in a cloak: legs or robe, trunk, head, an arm raised or holding a staff."""
    texture, robe = site.plain(name), rng.random() < 0.5
    lower = [(0.2, 0), (0.26, 0.05), (0.2, 0.4)] if robe else [(0.14, 0), (0.17, 0.3), (0.17, 0.45)]
    body = [
        (radius * size * 0.55, z * size) for radius, z in [*lower, (0.15, 0.52), (0.24, 0.72), (0.2, 0.8), (0.06, 0.84)]
    ]
    site.mesh.turned(body, texture, segments=9)
    head = [(0.0, 0.83), (0.07, 0.86), (0.09, 0.91), (0.07, 0.97), (0.0, 1.0)]
    site.mesh.turned([(radius * size * 0.8, z * size) for radius, z in head], texture, segments=8)
    side, lift = float(rng.choice([-1, 1])), rng.uniform(-0.25, 0.45)
    shoulder, hand = (side * 0.12 * size, 0.0, 0.77 * size), (side * 0.34 * size, -0.12 * size, (0.77 + lift) * size)
    _limb(site, shoulder, hand, 0.05 * size, texture)
    other = (-side * 0.2 * size, -0.08 * size, 0.5 * size)
    _limb(site, (-side * 0.12 * size, 0.0, 0.77 * size), other, 0.05 * size, texture)
    if rng.random() < 0.5:
        site.mesh.box(
            hand[0],
            hand[1],
            0.0 if lift < 0.2 else hand[2] - 0.4 * size,
            0.035 * size,
            0.035 * size,
            1.1 * size,
            texture,
        )


def _limb(
    site: Site, start: tuple[float, float, float], end: tuple[float, float, float], thick: float, texture: int
) -> None:
    """A beam from one point to another."""
    a, b = np.asarray(start), np.asarray(end)
    along = (b - a) / (np.linalg.norm(b - a) + 1e-9)
    side = np.cross(along, (0.0, 1.0, 0.3))
    side *= thick / (np.linalg.norm(side) + 1e-9)
    up = np.cross(side, along)
    for first, second in ((side, up), (up, -side), (-side, -up), (-up, side)):
        corners = [a + first, a + second, b + second, b + first]
        site.mesh.quad([(float(x), float(y), float(z)) for x, y, z in corners], texture)


def pedestal(site: Site, width: float, height: float, name: str = "base") -> float:
    """Plinth, die, cap; its top."""
    texture = site.plain(name)
    site.mesh.box(0, 0, 0, width * 1.35, width * 1.35, height * 0.14, texture)
    site.mesh.loft(rectangle(width, width), rectangle(width * 0.9, width * 0.9), height * 0.14, height * 0.88, texture)
    site.mesh.box(0, 0, height * 0.88, width * 1.15, width * 1.15, height * 0.12, site.plain("trim"))
    return height


def raised_figure(site: Site, width: float, height: float, size: float, stone: str, metal: str) -> None:
    """A figure on a pedestal."""
    with site.mesh.at(0, 0, pedestal(site, width, height, stone)):
        figure(site, size, site.rng, metal)
