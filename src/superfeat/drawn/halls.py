"""Palaces, town halls, temples, rows of houses and towers of glass."""

import math

import numpy as np

from superfeat.drawn.elements import (
    balustrade,
    battlements,
    column,
    cornice,
    dome,
    dormers,
    figure,
    finial,
    gable_roof,
    hip_roof,
    lantern,
    mansard_roof,
    pediment,
    pyramid,
    stairs,
)
from superfeat.drawn.mesh import grown, polygon, rectangle
from superfeat.drawn.openings import paint_clock, paint_window
from superfeat.drawn.site import Site


def palace(site: Site) -> None:
    """A long front with wings, a raised middle with columns, and a roof of some kind."""
    rng, mesh = site.rng, site.mesh
    storeys = int(rng.integers(2, 5))
    plan = site.plan(storeys, rng.uniform(3.6, 4.6), rng.uniform(2.6, 4.2))
    width, depth = rng.uniform(26, 44), rng.uniform(13, 18)
    outline = rectangle(width, depth)
    top = cornice(site, outline, site.block(outline, 0.0, plan, door=True))
    roof = str(rng.choice(["hip", "mansard", "flat"]))
    _cover(site, width, depth, top, roof, plan.floors[0].bay)
    middle = rng.uniform(8, 12)
    if rng.random() < 0.75:
        _portico(site, middle, depth, plan.height, plan.floors[0].height)
    if rng.random() < 0.5:
        wing = rng.uniform(6, 9)
        for side in (-1, 1):
            with mesh.at(side * (width / 2 - wing / 2), -2.0):
                outline = rectangle(wing, depth + 1)
                end = cornice(site, outline, site.block(outline, 0.0, plan))
                hip_roof(site, outline, end, rng.uniform(3, 6), flat=float(rng.choice([0.0, 0.35])))
    crown = rng.random()
    if crown < 0.35:
        with mesh.at(0, 0):
            radius = rng.uniform(3.5, 5.0)
            mesh.prism(polygon(8, radius * 1.1), top, top + 4.5, site.plain("wall"))
            end = dome(site, radius, top + 4.5, radius * rng.uniform(0.9, 1.4), ribs=8)
            finial(site, lantern(site, radius * 0.28, end - 0.3, 2.5), 2.0, 2)
    elif crown < 0.65:
        clock_tower(site, rng.uniform(5, 6.5), top, rng.uniform(9, 16))


def _cover(site: Site, width: float, depth: float, z: float, roof: str, bay: float) -> None:
    rng, outline = site.rng, rectangle(width, depth)
    if roof == "flat":
        for y, turn in ((-depth / 2, 0.0), (depth / 2, 0.0)):
            with site.mesh.at(0, y, z, turn):
                balustrade(site, width)
        site.mesh.cap(outline, z + 0.05, site.plain("roof"))
        return
    rise = rng.uniform(3.5, 6.5)
    if roof == "mansard":
        mansard_roof(site, outline, z, rise)
    else:
        hip_roof(site, outline, z, rise)
    canvas = site.canvas(1.6, 1.8)
    window = paint_window(site.window(0.9, 1.2), canvas.scale)
    canvas.stamp(window, 0.8 - window.width / 2, 0.9 - window.height / 2)
    dormers(site, width * 0.9, -depth / 2 + 0.5, z + 0.4, max(int(width / bay / 1.6), 2), site.use(canvas))
    for x in rng.uniform(-0.4, 0.4, int(rng.integers(2, 5))):
        site.mesh.box(x * width, rng.uniform(-1, 2), z + rise * 0.3, 1.3, 0.9, rise * 0.9, site.plain("base"))


def _portico(site: Site, width: float, depth: float, height: float, first: float) -> None:
    """Columns before the middle, over stairs or over an arcade, under a pediment."""
    rng, mesh = site.rng, site.mesh
    reach, count = rng.uniform(2.2, 3.5), int(rng.choice([4, 4, 6]))
    front = -depth / 2 - reach
    raised = rng.random() < 0.4 and height > 9
    low = first if raised else stairs(site, width, int(rng.integers(3, 8)), front)
    if raised:
        mesh.box(0, -depth / 2 - reach / 2, first - 0.5, width, reach, 0.5, site.plain("trim"))
        for x in np.linspace(-width / 2 + 0.5, width / 2 - 0.5, count):
            mesh.box(float(x), front + 0.5, 0, 0.9, 0.9, first - 0.5, site.plain("base"))
        with mesh.at(0, front + 0.2, first):
            balustrade(site, width)
    else:
        mesh.box(0, -depth / 2 - reach / 2, 0, width, reach, low, site.plain("base"))
    for x in np.linspace(-width / 2 + 0.7, width / 2 - 0.7, count):
        with mesh.at(float(x), front + 0.7, low):
            column(site, height - low - 0.8, rng.uniform(0.38, 0.42), fluted=True)
    mesh.box(0, -depth / 2 - reach / 2, height - 0.8, width + 0.4, reach + 0.3, 0.9, site.plain("trim"))
    pediment(site, width, reach + 3, height + 0.1, width * rng.uniform(0.16, 0.24), front)


def clock_tower(site: Site, width: float, low: float, height: float) -> None:
    """A square tower with a clock on each side, an open belfry and a roof."""
    rng, mesh = site.rng, site.mesh
    outline = rectangle(width, width)
    canvas = site.canvas(width, height)
    radius = width * rng.uniform(0.24, 0.34)
    clock = paint_clock(rng, radius, site.style.trim, canvas.scale)
    canvas.stamp(clock, width / 2 - clock.width / 2, height - radius * 1.4 - clock.height / 2)
    window = paint_window(site.window(width * 0.2, height * 0.16), canvas.scale)
    for level in range(int((height - 2.8 * radius) / (window.height + 0.5))):
        for side in (-1, 1) if width > 5 else (0,):
            x = width / 2 + side * width * 0.22 - window.width / 2
            canvas.stamp(window, x, 0.4 + level * (window.height + 0.5), rng.uniform(0, 1))
    mesh.loft(outline, outline, low, low + height, [site.use(canvas)])
    top = cornice(site, outline, low + height)
    belfry(site, width * 0.86, top, width * rng.uniform(0.6, 1.0))


def belfry(site: Site, width: float, low: float, height: float) -> None:
    """Arches on four sides and one of several tops."""
    rng, mesh = site.rng, site.mesh
    canvas = site.canvas(width, height)
    count = int(rng.choice([1, 2, 2, 3]))
    window = paint_window(site.window(width / count * 0.55, height * 0.68, float(rng.choice([1.0, 1.6]))), canvas.scale)
    for place in range(count):
        canvas.stamp(window, width * (place + 0.5) / count - window.width / 2, height * 0.46 - window.height / 2, 0.4)
    outline = rectangle(width, width)
    mesh.loft(outline, outline, low, low + height, [site.use(canvas)])
    top = cornice(site, outline, low + height, 0.35)
    crown(site, width, top)


def crown(site: Site, width: float, top: float) -> None:
    """What ends a tower: pyramid, spire, onion, dome with lantern, battlements."""
    rng, kind = site.rng, int(site.rng.integers(0, 6))
    sort = int(rng.integers(0, 3))
    if kind == 0:
        finial(
            site,
            pyramid(site, rectangle(width * 1.08, width * 1.08), top, width * rng.uniform(0.6, 1.2)),
            1.8,
            sort,
        )
    elif kind in (1, 2):
        for x in (-1, 1):
            for y in (-1, 1):
                with site.mesh.at(x * width * 0.44, y * width * 0.44):
                    pyramid(site, rectangle(0.8, 0.8), top, 2.6, "trim")
        spire = pyramid(
            site, polygon(8, width * 0.5), top, width * rng.uniform(1.8, 3.2), "metal" if kind == 2 else "roof"
        )
        finial(site, spire - 0.2, 2.2, sort)
    elif kind == 3:
        site.mesh.prism(polygon(8, width * 0.42), top, top + width * 0.25, site.plain("wall"))
        end = dome(site, width * 0.4, top + width * 0.25, width * 0.75, bulb=0.28)
        finial(site, end - 0.1, 2.4, sort)
    elif kind == 4:
        end = dome(site, width * 0.5, top, width * 0.5)
        finial(site, lantern(site, width * 0.18, end - 0.2, width * 0.4), 1.6, sort)
    else:
        battlements(site, grown(rectangle(width, width), 0.35), top, width * 0.09)
        pyramid(site, rectangle(width * 0.8, width * 0.8), top, width * rng.uniform(0.3, 0.7))


def temple(site: Site) -> None:
    """Stairs, columns all around, a pediment: a museum or an old temple."""
    rng, mesh = site.rng, site.mesh
    count = int(rng.choice([4, 6, 6, 8]))
    spacing, height = rng.uniform(2.6, 3.4), rng.uniform(7, 10.5)
    width, sides = spacing * (count - 1), int(rng.integers(4, 8))
    depth = spacing * (sides - 1)
    low = stairs(site, width + 2.5, int(rng.integers(4, 11)), -depth / 2 - 1.2)
    mesh.box(0, 0, 0, width + 2.4, depth + 2.4, low, site.plain("base"))
    radius = rng.uniform(0.42, 0.6)
    for row in range(sides):
        for place in range(count):
            if row in (0, sides - 1) or place in (0, count - 1):
                with mesh.at(place * spacing - width / 2, row * spacing - depth / 2, low):
                    column(site, height, radius, fluted=True)
    inner = site.plan(1, height, width - 3)
    with mesh.at(0, 0, low):
        site.block(rectangle(width - 3, depth - 3), 0.0, inner, door=True)
    top = low + height
    mesh.box(0, 0, top, width + 1.6, depth + 1.6, 0.9, site.plain("trim"))
    mesh.box(0, 0, top + 0.9, width + 2.4, depth + 2.4, 0.4, site.plain("trim"))
    rise = width * rng.uniform(0.13, 0.2)
    if rng.random() < 0.8:
        pediment(site, width + 1.6, depth + 2, top + 1.3, rise, -depth / 2 - 1.0)
    else:
        mesh.box(0, 0, top + 1.3, width, depth, 2.2, site.plain("wall"))
        for x in (-width / 2 + 1, 0, width / 2 - 1):
            with mesh.at(float(x), -depth / 2 + 1, top + 3.5):
                figure(site, 2.6, rng)


def row_of_houses(site: Site) -> None:
    """Narrow houses with their gables to the street, each with its own colour of the same family."""
    rng = site.rng
    count = int(rng.integers(2, 5))
    widths = rng.uniform(6.5, 10, count)
    x = -widths.sum() / 2
    for width in widths:
        plan = site.plan(int(rng.integers(3, 5)), rng.uniform(2.9, 3.4), rng.uniform(1.9, 2.6))
        with site.mesh.at(x + width / 2, 0):
            top = site.block(rectangle(width - 0.05, 13), 0.0, plan, door=True)
            rise = width * rng.uniform(0.6, 0.95)
            gable_roof(site, width - 0.05, 13, top, rise, along_x=False)
            if rng.random() < 0.5:
                _stepped_gable(site, width, top, rise)
        x += width


def _stepped_gable(site: Site, width: float, z: float, rise: float) -> None:
    """A front that climbs the roof in steps."""
    steps = int(site.rng.integers(4, 7))
    for step in range(steps):
        part = width * (1 - step / steps)
        site.mesh.box(0, -6.6, z + rise * step / steps, part, 0.5, rise / steps * 1.25, site.plain("wall"))
        for side in (-1, 1):
            x = side * (part - width / steps / 2) / 2
            site.mesh.box(
                x, -6.6, z + rise * (step + 1.25) / steps, width / steps / 2 + 0.1, 0.7, 0.18, site.plain("trim")
            )


def glass_tower(site: Site) -> None:
    """One or more slabs of glass, set back, tapered or turned."""
    rng, mesh = site.rng, site.mesh
    sides = int(rng.choice([4, 4, 6, 8]))
    radius, height, low = rng.uniform(8, 12), rng.uniform(40, 75), 0.0
    parts = int(rng.integers(1, 5))
    storey, bay = rng.uniform(2.6, 4.0), rng.uniform(1.4, 2.8)
    for part in range(parts):
        tall = height / parts * rng.uniform(0.7, 1.3)
        outline = rectangle(radius * 1.7, radius * 1.5) if sides == 4 else polygon(sides, radius)
        edge = math.dist(outline[0], outline[1])
        canvas = site.canvas(edge, tall, storey, bay)
        upper = grown(outline, -radius * rng.uniform(0.0, 0.3)) if part == parts - 1 else outline
        mesh.loft(outline, upper, low, low + tall, [site.use(canvas)], lid=site.plain("metal"))
        low += tall
        mesh.prism(grown(upper, 0.3), low - 0.3, low + 0.8, site.plain("trim"))
        radius *= rng.uniform(0.68, 0.9)
    mesh.prism(grown(rectangle(30, 20), 0), 0, 0.4, site.plain("base"))
    if rng.random() < 0.6:
        mesh.turned([(0.5, low), (0.12, low + height * 0.25), (0, low + height * 0.27)], site.plain("iron"), segments=6)
