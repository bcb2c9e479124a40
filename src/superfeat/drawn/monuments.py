"""Arches, bridges, obelisks, columns, statues, fountains."""

import math

import numpy as np

from superfeat.drawn.canvas import Canvas, darker, lighter
from superfeat.drawn.elements import (
    balustrade,
    column,
    cornice,
    figure,
    finial,
    gable_roof,
    pedestal,
    pyramid,
    raised_figure,
)
from superfeat.drawn.mesh import Opening, grown, polygon, rectangle
from superfeat.drawn.site import Site


def triumphal_arch(site: Site) -> None:
    """One or three passages, columns between them, an attic with panels, perhaps statues on top."""
    rng, mesh = site.rng, site.mesh
    three = bool(rng.random() < 0.5)
    width, depth = (rng.uniform(17, 22), rng.uniform(5, 7)) if three else (rng.uniform(11, 15), rng.uniform(4.5, 6.5))
    height = rng.uniform(9, 12)
    large = Opening(0.0, width * (0.26 if three else 0.36), height * 0.52)
    holes = [large]
    if three:
        small = [Opening(x * width * 0.33, width * 0.13, height * 0.36) for x in (-1, 1)]
        holes = [small[0], large, small[1]]
    canvas = site.canvas(width, height)
    _frame_holes(site, canvas, holes, width)
    with mesh.at(0, -depth / 2):
        mesh.wall(width, height, depth, holes, site.use(canvas), site.plain("wall"))
    edges = [-width / 2 + 0.6, width / 2 - 0.6]
    edges += [x * width * 0.21 for x in (-1, 1)] if three else [x * (large.width / 2 + 0.9) for x in (-1, 1)]
    for x in edges if rng.random() < 0.75 else ():
        for y in (-depth / 2 - 0.6, depth / 2 + 0.6):
            mesh.box(x, y, 0, 1.3, 1.3, height * 0.2, site.plain("base"))
            with mesh.at(x, y, height * 0.2):
                column(site, height * 0.72, 0.42)
    top = cornice(site, rectangle(width, depth), height, 1.3)
    attic = rng.uniform(2.2, 4.0)
    panel = _attic(site, width, attic)
    mesh.loft(
        rectangle(width, depth),
        rectangle(width, depth),
        top,
        top + attic,
        [panel, site.plain("wall"), panel, site.plain("wall")],
    )
    top = cornice(site, rectangle(width, depth), top + attic, 0.6)
    mesh.cap(rectangle(width, depth), top, site.plain("trim"))
    for x in np.linspace(-1, 1, int(rng.choice([1, 3, 5]))) if rng.random() < 0.7 else ():
        with mesh.at(float(x) * width * 0.4, 0, top):
            figure(site, rng.uniform(2.6, 3.6), rng, "bronze")


def _frame_holes(site: Site, canvas: Canvas, holes: list[Opening], width: float) -> None:
    """Mouldings around passages, keystones, round medals beside them."""
    trim = site.style.trim
    for hole in holes:
        x = hole.centre + width / 2
        high = hole.spring + hole.width / 2 * hole.rise
        frame = canvas.arch(x - hole.width / 2, -3, x + hole.width / 2, high, hole.rise)
        canvas.paint(canvas.cover(frame - np.float32(0.7)), trim, height=0.12)
        canvas.paint(canvas.cover(frame - np.float32(0.35)), darker(trim, 0.15), height=0.05)
        canvas.paint(
            canvas.cover(canvas.box(x - 0.35, high - 0.2, x + 0.35, high + 1.0)), lighter(trim, 0.2), height=0.25
        )
        if len(holes) == 1 or hole.centre != 0:
            for side in (-1, 1) if len(holes) == 1 else (0,):
                medal = x + side * (hole.width / 2 + 0.4)
                low = high + 1.4 if side == 0 else high + 0.1
                canvas.paint(canvas.cover(canvas.disc(medal, low + 0.6, 0.75)), trim, height=0.14)
                canvas.paint(canvas.cover(canvas.disc(medal, low + 0.6, 0.5)), darker(trim, 0.25), height=0.05)


def _attic(site: Site, width: float, height: float) -> int:
    """Panels with lines of letters that nobody can read."""
    rng, canvas = site.rng, site.canvas(width, height)
    count = int(rng.choice([1, 3, 3]))
    for place in range(count):
        left, right = width * (place + 0.12) / count, width * (place + 0.88) / count
        canvas.paint(canvas.cover(canvas.box(left, height * 0.15, right, height * 0.88)), site.style.trim, height=0.08)
        canvas.paint(
            canvas.cover(canvas.box(left + 0.2, height * 0.22, right - 0.2, height * 0.81)),
            lighter(site.style.trim, 0.2),
            height=0.0,
        )
        for line in range(int(rng.integers(1, 4))):
            x, y = left + 0.6, height * (0.68 - 0.2 * line)
            while x < right - 0.8:
                size = rng.uniform(0.12, 0.34)
                area = canvas.part(x - 0.1, y - 0.3, x + size + 0.1, y + 0.3)
                area.paint(
                    area.cover(area.box(x, y - 0.16, x + size, y + 0.16)), darker(site.style.trim, 0.6), height=-0.03
                )
                x += size + rng.choice([0.1, 0.1, 0.1, 0.35])
    return site.use(canvas)


def bridge(site: Site) -> None:
    """Arches over water, seen from the bank; with towers, or houses, or lamps on it."""
    rng, mesh = site.rng, site.mesh
    count, height, depth = int(rng.integers(2, 6)), rng.uniform(6, 9), rng.uniform(5, 8)
    span, pier, rise = rng.uniform(7, 11), rng.uniform(1.6, 2.4), float(rng.choice([0.55, 0.8, 1.0, 1.2]))
    rise = min(rise, (height - 1.6) / (span / 2))
    length = count * (span + pier) + pier + 14
    holes = []
    for place in range(count):
        centre = (place - (count - 1) / 2) * (span + pier)
        holes.append(Opening(centre, span, max(height - 1.4 - span / 2 * rise, 0.3), rise))
    canvas = site.canvas(length, height)
    for hole in holes:
        x, high = hole.centre + length / 2, hole.spring + span / 2 * rise
        ring = canvas.arch(x - span / 2, -4, x + span / 2, high, rise)
        canvas.paint(canvas.cover(ring - np.float32(0.5)), site.style.trim, height=0.1)
    with mesh.at(0, -depth / 2):
        mesh.wall(length, height, depth, holes, site.use(canvas), site.plain("wall"))
    for place in range(count + 1):
        x = (place - count / 2) * (span + pier)
        for y in (-depth / 2, depth / 2):
            with mesh.at(x, y):
                mesh.prism(polygon(6, pier * 0.75), 0, height * 0.55, site.plain("base"))
                pyramid(site, polygon(6, pier * 0.75), height * 0.55, 1.2, "base")
    for y in (-depth / 2 + 0.2, depth / 2 - 0.2):
        with mesh.at(0, y, height):
            balustrade(site, length)
    _adorn_bridge(site, (span + pier) * count, height, depth)


def _adorn_bridge(site: Site, length: float, height: float, depth: float) -> None:
    rng, mesh = site.rng, site.mesh
    kind = int(rng.integers(0, 4))
    if kind == 0:
        for x in (-length / 2, length / 2):
            plan, outline = site.plan(3, 4.0, 2.6), rectangle(depth * 0.9, depth)
            with mesh.at(x, 0):
                top = cornice(site, outline, site.block(outline, height * 0.5, plan))
                finial(site, pyramid(site, grown(outline, 0.4), top, rng.uniform(4, 8)), 1.5, 1)
    elif kind == 1:
        for x in np.linspace(-length / 2, length / 2, 5):
            with mesh.at(float(x), -depth / 2 + 0.3, height):
                raised_figure(site, 1.0, 1.6, 2.4, "base", "bronze")
    elif kind == 2:
        x = -length / 2
        while x < length / 2 - 4:
            width = rng.uniform(4.5, 7)
            plan, outline = site.plan(int(rng.integers(2, 4)), 2.9, 2.2), rectangle(width, depth)
            with mesh.at(x + width / 2, 0):
                gable_roof(site, width, depth, site.block(outline, height, plan), rng.uniform(2, 3.5))
            x += width
    else:
        for x in np.linspace(-length / 2, length / 2, 7):
            mesh.box(float(x), -depth / 2 + 0.2, height, 0.16, 0.16, 3.4, site.plain("iron"))
            with mesh.at(float(x), -depth / 2 + 0.2, height + 3.4):
                mesh.turned([(0.05, 0), (0.32, 0.3), (0.2, 0.7), (0, 0.8)], site.plain("white"), segments=8)


def statue(site: Site) -> None:
    """A figure, or a group, on a tall pedestal with steps."""
    rng, mesh = site.rng, site.mesh
    name = str(rng.choice(["bronze", "bronze", "white", "gold"]))
    for step in range(int(rng.integers(2, 5))):
        side = 7 - step * 1.2
        mesh.prism(
            rectangle(side, side) if rng.random() < 0.7 else polygon(8, side / 1.7),
            step * 0.3,
            step * 0.3 + 0.3,
            site.plain("base"),
        )
    tall, width = rng.uniform(2.5, 5.5), rng.uniform(1.8, 3.0)
    with mesh.at(0, 0, 0.6):
        stone = str(rng.choice(["base", "wall", "trim"]))
        raised_figure(site, width, tall, rng.uniform(3.2, 4.8), stone, name)
    for x, y in ((-1, -1), (1, -1), (-1, 1), (1, 1)) if rng.random() < 0.55 else ():
        with mesh.at(x * 2.5, y * 2.5, 0.5):
            raised_figure(site, 0.9, rng.uniform(0.9, 1.3), rng.uniform(1.5, 2.1), "base", name)


def column_monument(site: Site) -> None:
    """An obelisk or a giant column with a figure on top, on a stepped base."""
    rng, mesh = site.rng, site.mesh
    steps = int(rng.integers(2, 6))
    for step in range(steps):
        side = 8 - step * 0.9
        mesh.box(0, 0, step * 0.35, side, side, 0.35, site.plain("base"))
    height, width = rng.uniform(13, 22), rng.uniform(1.7, 2.5)
    with mesh.at(0, 0, steps * 0.35):
        top = pedestal(site, width * 1.6, rng.uniform(2.5, 4.5))
    with mesh.at(0, 0, steps * 0.35 + top):
        if rng.random() < 0.45:
            lower, upper = rectangle(width, width), rectangle(width * 0.62, width * 0.62)
            mesh.loft(lower, upper, 0, height * 0.8, [_signs(site, width, height * 0.8)])
            pyramid(site, upper, height * 0.8, width * 0.8, str(rng.choice(["gold", "wall"])))
        else:
            _giant_column(site, height * 0.75, width * 0.55)


def _giant_column(site: Site, height: float, radius: float) -> None:
    """Rings of gold around it, a figure on top."""
    rng = site.rng
    column(site, height, radius, str(rng.choice(["wall", "trim"])))
    for level in rng.uniform(0.15, 0.85, int(rng.integers(0, 4))):
        z, ring = height * float(level), radius * 1.12
        profile = [(ring * 0.9, z), (ring, z + 0.15), (ring, z + 0.4), (ring * 0.9, z + 0.5)]
        site.mesh.turned(profile, site.plain("gold"), segments=12)
    with site.mesh.at(0, 0, height):
        figure(site, rng.uniform(2.6, 3.6), rng, str(rng.choice(["bronze", "gold"])))


def _signs(site: Site, width: float, height: float) -> int:
    """Carved signs, one below the other."""
    rng, canvas = site.rng, site.canvas(width, height)
    for place in range(int(height / 0.9)):
        x, y = width / 2, 0.6 + place * 0.9
        kind, size = int(rng.integers(0, 4)), width * 0.22
        area = canvas.part(0, y - 0.6, width, y + 0.6)
        shape = [
            area.disc(x, y, size),
            area.box(x - size, y - 0.12, x + size, y + 0.12),
            area.box(x - 0.1, y - 0.3, x + 0.1, y + 0.3),
        ]
        sign = (
            np.abs(shape[0]) - 0.06
            if kind == 0
            else shape[1]
            if kind == 1
            else np.minimum(shape[1], shape[2])
            if kind == 2
            else shape[2]
        )
        area.paint(area.cover(np.asarray(sign, np.float32)), darker(site.style.wall, 0.5), height=-0.08)
    return site.use(canvas)


def fountain(site: Site) -> None:
    """A basin, bowls one above the other with falling water, a figure or a jet."""
    rng, mesh = site.rng, site.mesh
    radius = rng.uniform(4.5, 7)
    sides = int(rng.choice([6, 8, 12, 32]))
    mesh.prism(polygon(sides, radius * 1.25), 0, 0.25, site.plain("base"))
    outer, inner = polygon(sides, radius), polygon(sides, radius * 0.92)
    mesh.loft(outer, outer, 0.25, 1.1, site.plain("trim"))
    mesh.loft(outer, inner, 1.1, 1.15, site.plain("trim"))
    mesh.loft(inner, inner, 0.3, 1.15, site.plain("base"))
    mesh.cap(inner, 0.85, site.plain("water"))
    z, bowl = 0.6, radius * rng.uniform(0.42, 0.55)
    name = str(rng.choice(["trim", "wall", "bronze"]))
    for _ in range(int(rng.integers(1, 4))):
        rise = rng.uniform(1.3, 2.2)
        profile = [
            (bowl * 0.28, z),
            (bowl * 0.16, z + rise * 0.5),
            (bowl * 0.3, z + rise * 0.7),
            (bowl * 0.9, z + rise * 0.92),
            (bowl, z + rise),
        ]
        mesh.turned(profile, site.plain(name), segments=20)
        mesh.turned([(bowl * 0.97, z + rise - 0.05), (0.01, z + rise - 0.03)], site.plain("water"), segments=20)
        for drop in range(10):
            angle = 2 * math.pi * drop / 10
            mesh.box(bowl * math.cos(angle), bowl * math.sin(angle), z - 0.1, 0.12, 0.12, rise, site.plain("white"))
        z, bowl = z + rise - 0.1, bowl * rng.uniform(0.5, 0.65)
    with mesh.at(0, 0, z):
        figure(site, rng.uniform(2.0, 3.2), rng, str(rng.choice(["bronze", "gold", "white"])))
    for place in range(int(rng.choice([0, 4, 6]))):
        angle = 2 * math.pi * (place + 0.5) / 4
        with mesh.at(radius * 0.96 * math.cos(angle), radius * 0.96 * math.sin(angle), 1.1, angle + math.pi / 2):
            figure(site, 1.5, rng, name)
