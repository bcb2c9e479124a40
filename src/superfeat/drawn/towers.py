"""Things that stand alone and tall: campaniles, lighthouses, pagodas, windmills, castles."""

import math

import numpy as np

from superfeat.drawn.elements import (
    battlements,
    cornice,
    dome,
    finial,
    gable_roof,
    hip_roof,
    lantern,
    pyramid,
    stairs,
)
from superfeat.drawn.halls import clock_tower
from superfeat.drawn.mesh import Opening, grown, polygon, rectangle
from superfeat.drawn.openings import SURROUND, paint_door, paint_window
from superfeat.drawn.site import Site


def campanile(site: Site) -> None:
    """A high shaft with few windows, a clock, a belfry."""
    rng, mesh = site.rng, site.mesh
    width, low = rng.uniform(6, 8.5), rng.uniform(9, 22)
    base = rectangle(width * 1.15, width * 1.15)
    plan = site.plan(int(low / 4.5), 4.5, width * rng.uniform(0.4, 1.1))
    top = cornice(site, base, site.block(base, 0.0, plan, door=True), 0.3)
    mesh.cap(base, top, site.plain("trim"))
    if rng.random() < 0.5:
        stairs(site, width * 0.6, 4, -width * 0.575)
    clock_tower(site, width, top, rng.uniform(9, 16))
    if rng.random() < 0.4:
        house = rectangle(width * 3, width * 1.6)
        with mesh.at(float(rng.choice([-1, 1])) * width * 1.6, width * 0.5):
            wing = site.plan(2, 3.6, 3.0)
            hip_roof(site, house, site.block(house, 0.0, wing), 3.5)


def lighthouse(site: Site) -> None:
    """A tapered round tower in bands, a gallery, a lamp room, and a keeper's house."""
    rng, mesh = site.rng, site.mesh
    radius, height = rng.uniform(2.6, 3.8), rng.uniform(17, 28)
    around = 2 * math.pi * radius
    canvas = site.canvas(around, height)
    bands, slant = int(rng.integers(0, 7)), float(rng.choice([0.0, 0.0, 1.0]))
    if bands:
        stripe = (np.floor(canvas.y / height * bands * 2 + slant * 2 * canvas.x / around) % 2).astype(np.float32)
        canvas.paint(np.broadcast_to(stripe, canvas.shape).astype(np.float32), site.style.second)
    picture = paint_window(site.window(0.9, 1.5), canvas.scale)
    for level in range(int(rng.integers(3, 6))):
        x = around * (0.5 + (level % 2 - 0.5) * 0.12) - picture.width / 2
        canvas.stamp(picture, x, 3.0 + level * height * 0.19, 0.9)
    door = paint_door(rng, 1.4, 2.4, 1.0, site.style.trim, canvas.scale)
    canvas.stamp(door, around / 2 - door.width / 2, -SURROUND)
    mesh.turned([(radius, 0), (radius * 0.8, height * 0.5), (radius * 0.66, height)], site.use(canvas), segments=24)
    top = radius * 0.66
    mesh.turned(
        [(top, height - 0.8), (top * 1.5, height), (top * 1.5, height + 0.25), (0.1, height + 0.25)],
        site.plain("trim"),
        segments=20,
    )
    for side in range(16):
        angle = 2 * math.pi * side / 16
        mesh.box(top * 1.45 * math.cos(angle), top * 1.45 * math.sin(angle), height, 0.1, 0.1, 1.2, site.plain("iron"))
    mesh.turned([(top * 1.45, height + 1.1), (top * 1.45, height + 1.25)], site.plain("iron"), segments=20)
    finial(site, lantern(site, top * 0.8, height + 0.2, 3.6, "roof"), 1.5, 1)
    if rng.random() < 0.75:
        with mesh.at(float(rng.choice([-1, 1])) * (radius + 4.5), 1.0):
            plan, house = site.plan(1, 3.4, 2.4), rectangle(8, 6.5)
            gable_roof(site, 8, 6.5, site.block(house, 0.0, plan, door=True), rng.uniform(2.4, 3.6))


def pagoda(site: Site) -> None:
    """Storeys that grow smaller under wide curved roofs."""
    rng, mesh = site.rng, site.mesh
    sides, storeys = int(rng.choice([4, 4, 6, 8])), int(rng.integers(3, 8))
    radius, low, shrink = rng.uniform(4.5, 6.5), 1.2, rng.uniform(0.84, 0.93)
    mesh.prism(grown(polygon(sides, radius * 1.5), 0.5), 0, low, site.plain("base"))
    reach = rng.uniform(1.35, 1.6)
    for _ in range(storeys):
        outline = polygon(sides, radius)
        plan = site.plan(1, rng.uniform(2.4, 3.2), math.dist(outline[0], outline[1]) / int(rng.integers(1, 4)))
        end = site.block(outline, low, plan, door=low < 2)
        for steps, (inner, outer, drop, lift) in enumerate(
            ((0.0, 1.0, 0.0, 0.35), (1.0, 0.62, 0.35, 0.9), (0.62, 0.2, 0.9, 1.7))
        ):
            if steps == 0:
                mesh.prism(polygon(sides, radius * reach), end - 0.15, end + 0.1, site.plain("dark"))
                continue
            lower = polygon(sides, radius * (1 + (reach - 1) * inner * 1.05))
            upper = polygon(sides, radius * (shrink + (reach - shrink) * outer * 0.8))
            mesh.loft(lower, upper, end + drop - 0.3, end + lift - 0.3, site.plain("roof"))
        for corner in polygon(sides, radius * reach * 1.02):
            with mesh.at(*corner, end):
                pyramid(site, rectangle(0.3, 0.3), 0.0, 0.9, "trim")
        low, radius = end + 1.2, radius * shrink
    finial(site, pyramid(site, polygon(sides, radius * reach), low - 0.6, 2.4), 4.0, 2)


def windmill(site: Site) -> None:
    """A tapered body with a gallery, a cap, and four sails."""
    rng, mesh = site.rng, site.mesh
    sides, radius, height = int(rng.choice([8, 8, 20])), rng.uniform(3.8, 5.0), rng.uniform(11, 16)
    lower, upper = polygon(sides, radius), polygon(sides, radius * 0.58)
    edge = math.dist(lower[0], lower[1])
    canvas = site.canvas(edge, height)
    picture = paint_window(site.window(min(edge * 0.35, 1.0), 1.4), canvas.scale)
    for level in range(3):
        canvas.stamp(picture, edge / 2 - picture.width / 2, 3.2 + level * height * 0.24, 0.8)
    front = site.canvas(edge, height)
    front.layers[:] = canvas.layers
    site.stamp_door(front, edge / 2, 2.3)
    first, others = site.use(front), site.use(canvas)
    mesh.loft(lower, upper, 0, height, [first, *[others] * (sides - 1)])
    if rng.random() < 0.6:
        mesh.prism(polygon(sides, radius * 1.35), height * 0.33, height * 0.33 + 0.2, site.plain("dark"))
        mesh.prism(polygon(sides, radius * 1.36), height * 0.33 + 0.9, height * 0.33 + 1.0, site.plain("trim"))
    dome(site, radius * 0.66, height, radius * rng.uniform(0.6, 0.9), "roof", bulb=0.05)
    reach, turn = height * rng.uniform(0.62, 0.75), rng.uniform(0, math.pi / 2)
    _sails(site, -radius * 0.72, height + radius * 0.2, reach, turn)


def _sails(site: Site, y: float, z: float, reach: float, turn: float) -> None:
    """Four lattices on one axle."""
    site.mesh.box(0, y + 0.6, z - 0.3, 0.6, 1.8, 0.6, site.plain("dark"))
    for sail in range(4):
        angle = turn + sail * math.pi / 2
        out, side = (math.cos(angle), math.sin(angle)), (-math.sin(angle), math.cos(angle))
        _strip(site, y, z, out, side, 0.0, reach, -0.12, 0.12, "dark")
        for bar in range(9):
            start = reach * (0.2 + 0.09 * bar)
            _strip(site, y - 0.02, z, out, side, start, start + 0.12, 0.0, reach * 0.2, "dark")
        _strip(site, y - 0.03, z, out, side, reach * 0.2, reach * 0.95, reach * 0.19, reach * 0.2 + 0.08, "dark")
        _strip(site, y + 0.03, z, out, side, reach * 0.2, reach * 0.95, 0.1, reach * 0.12, "white")


def _strip(
    site: Site,
    y: float,
    z: float,
    out: tuple[float, float],
    side: tuple[float, float],
    near: float,
    far: float,
    low: float,
    high: float,
    name: str,
) -> None:
    """A rectangle in a turned frame of the plane x, z."""
    corners = [(near, low), (far, low), (far, high), (near, high)]
    site.mesh.quad([(out[0] * a + side[0] * b, y, z + out[1] * a + side[1] * b) for a, b in corners], site.plain(name))


def castle(site: Site) -> None:
    """A gate between round towers, curtain walls, corner towers, a keep behind."""
    rng, mesh = site.rng, site.mesh
    width, depth, height = rng.uniform(26, 36), rng.uniform(18, 26), rng.uniform(7, 10)
    gate = Opening(0.0, rng.uniform(3, 4.2), 2.6, float(rng.choice([1.0, 1.5])))
    canvas = site.canvas(width, height)
    slit = paint_window(site.window(0.5, 1.7, 0.0), canvas.scale)
    for place in range(int(rng.integers(4, 9))):
        canvas.stamp(
            slit, width * rng.uniform(0.05, 0.4) + (place % 2) * width * 0.5, height * rng.uniform(0.3, 0.62), 0.9
        )
    with mesh.at(0, -depth / 2):
        mesh.wall(width, height, 2.0, [gate], site.use(canvas), site.plain("wall"))
        battlements(site, [(-width / 2, 0), (width / 2, 0), (width / 2, 2), (-width / 2, 2)], height)
    mesh.quad(
        [
            (-2.5, -depth / 2 + 1.5, 0),
            (2.5, -depth / 2 + 1.5, 0),
            (2.5, -depth / 2 + 1.5, 6),
            (-2.5, -depth / 2 + 1.5, 6),
        ],
        site.plain("dark"),
    )
    for side in (-1, 1):
        mesh.box(side * width / 2, 0, 0, 1.6, depth, height, site.plain("wall"))
    mesh.box(0, depth / 2, 0, width, 1.6, height, site.plain("wall"))
    pointed = bool(rng.random() < 0.6)
    for x in (-1, 1):
        _round_tower(site, x * width / 2, -depth / 2, rng.uniform(2.8, 3.8), height * rng.uniform(1.25, 1.9), pointed)
        _round_tower(site, x * width / 2, depth / 2, rng.uniform(2.6, 3.4), height * rng.uniform(1.2, 1.7), pointed)
    for x in (-1, 1) if rng.random() < 0.65 else ():
        _round_tower(site, x * (gate.width / 2 + 2.0), -depth / 2 - 0.5, 2.0, height * 1.35, pointed)
    plan, keep = site.plan(int(rng.integers(4, 6)), 3.8, 3.4), rectangle(rng.uniform(9, 13), rng.uniform(8, 11))
    with mesh.at(rng.uniform(-0.25, 0.25) * width, depth * 0.18):
        top = site.block(keep, 0.0, plan)
        battlements(site, grown(keep, 0.3), top)
        if pointed:
            hip_roof(site, grown(keep, -1.0), top, rng.uniform(3, 6))


def _round_tower(site: Site, x: float, y: float, radius: float, height: float, pointed: bool) -> None:
    around, mesh = 2 * math.pi * radius, site.mesh
    canvas = site.canvas(around, height)
    slit = paint_window(site.window(0.6, 1.6), canvas.scale)
    for level in range(1, int(height / 3.2)):
        for place in range(4):
            canvas.stamp(slit, around * ((place + 0.5 * (level % 2)) / 4 + 0.06), level * 3.2, 0.9)
    with mesh.at(x, y):
        mesh.turned([(radius * 1.08, 0), (radius, 1.5), (radius, height)], site.use(canvas), segments=18)
        ring = radius * 1.15
        mesh.turned([(radius, height - 0.8), (ring, height), (ring, height + 0.6)], site.plain("wall"), segments=18)
        battlements(site, polygon(10, ring), height + 0.5, 0.55)
        if pointed:
            end = height + radius * 2.3
            mesh.turned([(ring * 1.06, height + 0.9), (0.02, end)], site.plain("roof"), segments=18)
            finial(site, end - 0.2, 1.6, 1)
        else:
            mesh.cap(polygon(10, ring), height + 0.2, site.plain("base"))
