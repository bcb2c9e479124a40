"""Churches with towers and apses, domed basilicas, mosques with minarets."""

import math

from superfeat.drawn.elements import (
    battlements,
    column,
    cornice,
    dome,
    finial,
    gable_roof,
    lantern,
    pediment,
    pyramid,
    stairs,
)
from superfeat.drawn.halls import belfry, crown
from superfeat.drawn.mesh import polygon, rectangle
from superfeat.drawn.openings import SURROUND, paint_clock, paint_door, paint_rose, paint_window
from superfeat.drawn.site import Site


def church(site: Site) -> None:
    """A nave with buttresses, its front with a portal and a rose; one tower, two, or one at the side."""
    rng, mesh = site.rng, site.mesh
    width, depth, height = rng.uniform(10, 14), rng.uniform(22, 32), rng.uniform(9, 14)
    rise = float(rng.choice([1.0, 1.7, 1.7]))
    bays = int(rng.integers(4, 7))
    side = _nave_wall(site, depth, height, bays, rise)
    front = _front(site, width, height, rise)
    mesh.loft(rectangle(width, depth), rectangle(width, depth), 0, height, [front, side, site.plain("wall"), side])
    gable_roof(site, width, depth, height, width * rng.uniform(0.5, 0.85), along_x=False)
    if rng.random() < 0.6:
        _buttresses(site, width, depth, height, bays)
    _apse(site, width * 0.38, depth / 2, height * 0.8)
    layout = str(rng.choice(["front", "twin", "twin", "side", "crossing"]))
    tower, tall = width * rng.uniform(0.42, 0.55), height * rng.uniform(1.4, 2.1)
    if layout == "twin":
        state = rng.bit_generator.state
        for x in (-1, 1):
            rng.bit_generator.state = state  # twins are alike
            _tower(site, tower * 0.85, tall, x * (width / 2 + tower * 0.1), -depth / 2 + tower * 0.2, rise)
    elif layout == "front":
        _tower(site, tower, tall, 0.0, -depth / 2 - tower * 0.3, rise)
    elif layout == "side":
        _tower(
            site, tower, tall, float(rng.choice([-1, 1])) * (width / 2 + tower * 0.45), -depth / 2 + tower * 0.8, rise
        )
    else:
        mesh.box(0, depth * 0.1, 0, width * 1.9, width * 0.8, height, site.plain("wall"))
        with mesh.at(0, depth * 0.1):
            gable_roof(site, width * 1.9, width * 0.8, height, width * 0.42)
            mesh.prism(polygon(8, width * 0.42), height, height + width * 0.75, site.plain("wall"))
            top = cornice(site, polygon(8, width * 0.42), height + width * 0.75)
            finial(site, pyramid(site, polygon(8, width * 0.45), top, width * rng.uniform(0.5, 1.6)), 2, 0)


def _nave_wall(site: Site, depth: float, height: float, bays: int, rise: float) -> int:
    canvas = site.canvas(depth, height)
    picture = paint_window(site.window(depth / bays * 0.4, height * 0.6, rise), canvas.scale)
    for place in range(bays):
        lit = site.rng.uniform(0.5, 0.9)
        canvas.stamp(picture, depth * (place + 0.5) / bays - picture.width / 2, height * 0.5 - picture.height / 2, lit)
    canvas.paint(canvas.cover(canvas.box(-1, height - 0.6, 999, height)), site.style.trim, height=0.14)
    canvas.paint(canvas.cover(canvas.box(-1, -1, 999, 1.0)), site.style.base, height=0.12)
    return site.use(canvas)


def _front(site: Site, width: float, height: float, rise: float) -> int:
    """Portal, rose or a group of windows, and a blind arcade."""
    rng, canvas = site.rng, site.canvas(width, height)
    kind = float(rng.random())
    if kind < 0.6:
        radius = width * rng.uniform(0.13, 0.19)
        rose = paint_rose(rng, radius, site.style.trim, canvas.scale)
        canvas.stamp(rose, width / 2 - rose.width / 2, height * 0.74 - rose.height / 2)
    else:
        count = int(rng.choice([1, 3, 3, 5]))
        picture = paint_window(site.window(width * 0.09, height * 0.3, rise), canvas.scale)
        for place in range(count):
            x = width / 2 + (place - (count - 1) / 2) * width * 0.16
            canvas.stamp(picture, x - picture.width / 2, height * 0.72 - picture.height / 2, 0.8)
    for x in (-1, 1) if rng.random() < 0.6 else ():
        door = paint_door(rng, width * 0.12, height * 0.24, rise, site.style.trim, canvas.scale)
        canvas.stamp(door, width / 2 + x * width * 0.31 - door.width / 2, -SURROUND)
    door = paint_door(rng, width * 0.2, height * 0.4, rise, site.style.trim, canvas.scale)
    canvas.stamp(door, width / 2 - door.width / 2, -SURROUND)
    canvas.paint(canvas.cover(canvas.box(-1, height * 0.49, 999, height * 0.52)), site.style.trim, height=0.14)
    return site.use(canvas)


def _buttresses(site: Site, width: float, depth: float, height: float, bays: int) -> None:
    for place in range(bays + 1):
        y = depth * (place / bays - 0.5)
        for side in (-1, 1):
            x = side * (width / 2 + 0.5)
            site.mesh.box(x, y, 0, 1.2, 0.8, height * 0.7, site.plain("wall"))
            with site.mesh.at(x, y):
                pyramid(site, rectangle(1.3, 0.9), height * 0.7, 1.8, "trim")


def _apse(site: Site, radius: float, y: float, height: float) -> None:
    with site.mesh.at(0, y, 0, math.pi):
        site.mesh.turned([(radius, 0), (radius, height)], site.plain("wall"), span=math.pi)
        site.mesh.turned([(radius * 1.06, height), (0.01, height + radius * 0.7)], site.plain("roof"), span=math.pi)


def _tower(site: Site, width: float, height: float, x: float, y: float, rise: float) -> None:
    """Storeys of one or two windows, a belfry, and a top."""
    rng, mesh = site.rng, site.mesh
    with mesh.at(x, y):
        canvas = site.canvas(width, height)
        storeys, axes = int(rng.integers(3, 6)), int(rng.choice([1, 1, 2]))
        window = site.window(width / axes * 0.3, height / storeys * 0.55, rise)
        picture = paint_window(window, canvas.scale)
        for level in range(storeys):
            low = height * level / storeys
            canvas.paint(
                canvas.cover(canvas.box(-1, low + height / storeys - 0.3, 999, low + height / storeys)),
                site.style.trim,
                height=0.14,
            )
            for place in range(axes) if level > 0 else ():
                middle = width * (place + 0.5) / axes
                canvas.stamp(
                    picture, middle - picture.width / 2, low + height / storeys * 0.47 - picture.height / 2, 0.3
                )
        if rng.random() < 0.4:
            clock = paint_clock(rng, width * 0.24, site.style.trim, canvas.scale)
            canvas.stamp(clock, width / 2 - clock.width / 2, height * (1 - 0.5 / storeys) - clock.height / 2)
        site.stamp_door(canvas, width / 2, min(3.4, height / storeys * 0.8))
        mesh.loft(rectangle(width, width), rectangle(width, width), 0, height, [site.use(canvas)])
        top = cornice(site, rectangle(width, width), height)
        if rng.random() < 0.7:
            belfry(site, width * 0.92, top, width * 0.8)
        else:
            crown(site, width, top)


def basilica(site: Site) -> None:
    """A great dome on a drum of columns over a block with a portico."""
    rng, mesh = site.rng, site.mesh
    radius, height = rng.uniform(6, 9), rng.uniform(8, 12)
    width = radius * rng.uniform(2.4, 3.4)
    plan = site.plan(int(rng.integers(1, 3)), height / 1.6, rng.uniform(3, 5))
    outline = rectangle(width, width * 0.9) if rng.random() < 0.6 else polygon(8, width * 0.56)
    low = cornice(site, outline, site.block(outline, 0.0, plan, door=True))
    mesh.cap(outline, low, site.plain("metal"))
    if rng.random() < 0.7:
        _porch(site, width * 0.55, min(y for _, y in outline), plan.height)
    drum = rng.uniform(3.5, 6)
    mesh.turned([(radius * 0.94, low), (radius * 0.94, low + drum)], _drum(site, radius * 0.94, drum), segments=32)
    count = int(rng.choice([8, 12, 16]))
    for side in range(count) if rng.random() < 0.7 else ():
        angle = 2 * math.pi * (side + 0.5) / count
        with mesh.at(radius * 1.08 * math.cos(angle), radius * 1.08 * math.sin(angle), low):
            column(site, drum, 0.3)
    top = low + drum
    mesh.turned(
        [(radius, top - 0.3), (radius * 1.16, top), (radius * 1.16, top + 0.4), (radius * 0.98, top + 0.5)],
        site.plain("trim"),
        segments=32,
    )
    end = dome(
        site,
        radius,
        top + 0.4,
        radius * rng.uniform(0.75, 1.35),
        str(rng.choice(["metal", "metal", "gold", "roof"])),
        ribs=int(rng.choice([0, 8, 16])),
    )
    finial(site, lantern(site, radius * 0.2, end - 0.4, radius * 0.5), 2.4, 0)
    if rng.random() < 0.5:
        for side in (-1, 1):
            with mesh.at(side * width * 0.42, -width * 0.38):
                mesh.prism(polygon(8, radius * 0.3), low, low + radius * 0.5, site.plain("wall"))
                finial(site, dome(site, radius * 0.32, low + radius * 0.5, radius * 0.4), 1.2, 2)


def _drum(site: Site, radius: float, height: float) -> int:
    """Windows all around a cylinder."""
    around = 2 * math.pi * radius
    canvas = site.canvas(around, height)
    count = int(site.rng.choice([8, 12, 16]))
    picture = paint_window(site.window(around / count * 0.35, height * 0.6), canvas.scale)
    for place in range(count):
        canvas.stamp(picture, around * (place + 0.5) / count - picture.width / 2, height / 2 - picture.height / 2, 0.6)
    return site.use(canvas)


def _porch(site: Site, width: float, front: float, height: float) -> None:
    rng, mesh = site.rng, site.mesh
    count, reach = int(rng.choice([4, 6])), rng.uniform(3, 4.5)
    low = stairs(site, width, int(rng.integers(4, 9)), front - reach)
    mesh.box(0, front - reach / 2, 0, width, reach, low, site.plain("base"))
    for place in range(count):
        with mesh.at(width * ((place + 0.5) / count - 0.5), front - reach + 0.7, low):
            column(site, height - low, 0.5, fluted=True)
    mesh.box(0, front - reach / 2, height, width + 0.5, reach, 1.0, site.plain("trim"))
    pediment(site, width, reach + 2, height + 1.0, width * rng.uniform(0.15, 0.25), front - reach)


def mosque(site: Site) -> None:
    """A cube with a tall portal, a dome over it, smaller domes, and minarets."""
    rng, mesh = site.rng, site.mesh
    width, height = rng.uniform(14, 20), rng.uniform(8, 11)
    outline = rectangle(width, width)
    plan = site.plan(2, height / 2, rng.uniform(2.4, 3.6))
    low = cornice(site, outline, site.block(outline, 0.0, plan))
    mesh.cap(outline, low, site.plain("trim"))
    canvas = site.canvas(width * 0.36, height * 1.25)
    portal = paint_door(rng, width * 0.2, height * 0.9, 1.5, site.style.trim, canvas.scale)
    canvas.stamp(portal, canvas.width / 2 - portal.width / 2, -SURROUND)
    with mesh.at(0, -width / 2 - 0.4):
        gate = rectangle(width * 0.36, 1.2)
        mesh.loft(gate, gate, 0, height * 1.25, [site.use(canvas), site.plain("wall")], lid=site.plain("trim"))
        battlements(site, gate, height * 1.25, 0.35, "trim")
    radius, bulb = width * rng.uniform(0.27, 0.36), float(rng.choice([0.0, 0.12, 0.25]))
    drum = rng.uniform(2, 4)
    mesh.turned([(radius * 0.95, low), (radius * 0.95, low + drum)], _drum(site, radius * 0.95, drum), segments=24)
    name = str(rng.choice(["metal", "gold", "trim", "metal"]))
    finial(site, dome(site, radius, low + drum, radius * rng.uniform(0.9, 1.3), name, bulb=bulb), 2.2, 2)
    for x in (-1, 1):
        for y in (-1, 1):
            with mesh.at(x * width * 0.37, y * width * 0.37):
                dome(site, width * 0.1, low, width * 0.11, name, bulb=bulb)
    count = int(rng.choice([1, 2, 2, 4]))
    tall = rng.uniform(20, 32)
    for x, y in [(-1, -1), (1, -1), (-1, 1), (1, 1)][:count]:
        with mesh.at(x * width * 0.62, y * width * 0.55):
            minaret(site, rng.uniform(1.15, 1.25), tall, name)


def minaret(site: Site, radius: float, height: float, name: str) -> None:
    """A slender round tower with galleries."""
    mesh = site.mesh
    mesh.prism(polygon(8, radius * 1.5), 0, height * 0.16, site.plain("wall"))
    mesh.turned([(radius, height * 0.16), (radius * 0.85, height * 0.8)], site.plain("wall"), segments=12)
    for level in (0.45, 0.78):
        z = height * level
        mesh.turned(
            [
                (radius * 0.9, z - 0.9),
                (radius * 1.6, z),
                (radius * 1.6, z + 0.8),
                (radius * 1.5, z + 0.8),
                (radius * 1.5, z),
            ],
            site.plain("trim"),
            segments=12,
        )
    mesh.turned([(radius * 0.6, height * 0.8), (radius * 0.6, height * 0.9)], site.plain("wall"), segments=10)
    finial(site, dome(site, radius * 0.75, height * 0.9, height * 0.09, name, bulb=0.1), 1.4, 2)
