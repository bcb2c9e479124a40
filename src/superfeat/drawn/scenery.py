"""What stands around: hills, houses, trees, people, cars, lamps, scaffolds; new for each view, behind or in front."""

import dataclasses
import math

import numpy as np

from superfeat.drawn.camera import SMALL_HEIGHT, Bounds, Viewpoint
from superfeat.drawn.library import BUS_SIZE, LEAF_CARD, LEAVES, PAINTS, PEOPLE, PERSON_SIZE, Library
from superfeat.drawn.mesh import Mesh, grown, rectangle, scaled

EDGE = 900.0  # metres to the end of the world


@dataclasses.dataclass
class Scene:
    """Where things are put: `aside` is to the right of the view, `ahead` towards the camera, both from the landmark."""

    mesh: Mesh
    library: Library
    rng: np.random.Generator
    bounds: Bounds
    view: Viewpoint

    @property
    def distance(self) -> float:
        """From the camera to the landmark's axis, along the ground."""
        return float(np.hypot(self.view.eye[0], self.view.eye[1]))

    @property
    def half_width(self) -> float:
        """Of the landmark as it is seen."""
        turn = self.view.azimuth
        return abs(math.cos(turn)) * self.bounds.half_width + abs(math.sin(turn)) * self.bounds.half_depth

    @property
    def half_depth(self) -> float:
        """Of the landmark along the view."""
        turn = self.view.azimuth
        return abs(math.sin(turn)) * self.bounds.half_width + abs(math.cos(turn)) * self.bounds.half_depth

    def place(self, aside: float, ahead: float) -> tuple[float, float]:
        """On the ground."""
        cosine, sine = math.cos(self.view.azimuth), math.sin(self.view.azimuth)
        return aside * cosine + ahead * sine, aside * sine - ahead * cosine

    def number(self, name: str) -> int:
        """Of a shared texture."""
        return self.library.numbers[name]


def surround(scene: Scene, ground: str, *, water: bool) -> None:
    """Everything around a landmark for one view."""
    rng, floor = scene.rng, scene.number("water" if water else ground)
    corners = [(-EDGE, -EDGE, 0.0), (EDGE, -EDGE, 0.0), (EDGE, EDGE, 0.0), (-EDGE, EDGE, 0.0)]
    scene.mesh.quad(corners, floor, (float(rng.uniform(0, 12)), float(rng.uniform(0, 12))))
    add_hills(scene)
    if water:
        add_bank(scene)
        return
    kind = str(rng.choice(["town", "town", "park", "square", "open"]))
    if kind in ("town", "square"):
        add_houses(scene, int(rng.integers(5, 12)) if kind == "town" else int(rng.integers(2, 5)))
    trees = {"town": (0, 4), "park": (5, 12), "square": (1, 6), "open": (1, 6)}[kind]
    add_trees(scene, int(rng.integers(*trees)))
    add_people(scene, int(rng.integers(0, 5 if scene.bounds.height < SMALL_HEIGHT else 14)))
    if ground != "grass" and scene.bounds.height >= SMALL_HEIGHT and rng.random() < 0.5:
        add_cars(scene, int(rng.integers(1, 4)))
    if rng.random() < 0.4:
        add_lamps(scene, int(rng.integers(1, 5)))
    if rng.random() < 0.06:
        add_scaffold(scene)
    add_occluder(scene)


def add_hills(scene: Scene) -> None:
    """A ring of hills far away, of a new shape for each view."""
    rng, steps = scene.rng, 72
    angles = np.linspace(0, 2 * math.pi, steps + 1)
    waves = sum(
        rng.uniform(0.2, 1.0) / wave * np.sin(wave * angles + rng.uniform(0, 6)) for wave in (2, 3, 5, 8, 13, 21)
    )
    heights = np.maximum(10 + rng.uniform(4, 18) * waves, 3.0)
    around = np.stack([np.cos(angles), np.sin(angles)], axis=1) * rng.uniform(380, 520)
    low = np.concatenate([around, np.zeros((steps + 1, 1))], axis=1)
    high = np.concatenate([around * 1.15, heights[:, None]], axis=1)
    points = np.concatenate(
        [np.stack([low[:-1], low[1:], high[1:]], axis=1), np.stack([low[:-1], high[1:], high[:-1]], axis=1)]
    )
    normals = np.broadcast_to(np.array([0.0, 0.0, 1.0]), points.shape)
    scene.mesh.add(points, points[:, :, :2] / 40, scene.number("hill"), normals)


def add_bank(scene: Scene) -> None:
    """The far side of a river: meadow, trees and houses."""
    back = -scene.half_depth - 22.0
    corners = [scene.place(-EDGE, back), scene.place(EDGE, back), scene.place(EDGE, -EDGE), scene.place(-EDGE, -EDGE)]
    scene.mesh.quad([(x, y, 0.5) for x, y in corners], scene.number("grass"))
    reach = scene.half_width * 1.6
    for _ in range(int(scene.rng.integers(3, 10))):
        plant_tree(scene, *scene.place(scene.rng.uniform(-reach, reach), back - scene.rng.uniform(4, 30)), 1.0)
    add_houses(scene, int(scene.rng.integers(0, 7)), back - 12)


def add_houses(scene: Scene, count: int, start: float | None = None) -> None:
    """Neighbours behind the landmark and at its sides, facing the camera more or less, often wall to wall."""
    rng = scene.rng
    gap = rng.uniform(10, 28)
    back = -scene.half_depth - gap if start is None else start
    aside = -scene.half_width * rng.uniform(0.8, 1.8) - rng.uniform(0, 25)
    for _ in range(count):
        house = scene.library.houses[int(rng.integers(len(scene.library.houses)))]
        x, y = scene.place(aside + house.width / 2, back - rng.uniform(0, 1.5))
        with scene.mesh.at(x, y, 0, scene.view.azimuth):
            _build_house(scene, house.width, house.height, house.front, house.roof)
        aside += house.width + (rng.uniform(3, 18) if rng.random() < 0.35 else 0.05)


def _build_house(scene: Scene, width: float, height: float, front: int, roof: int) -> None:
    outline = rectangle(width, 10.0)
    scene.mesh.loft(outline, outline, 0, height, [front])
    eaves = grown(outline, 0.4)
    if scene.rng.random() < 0.5:
        scene.mesh.loft(eaves, scaled(eaves, 0.3), height, height + 3.2, roof, lid=roof)
        return
    a, b, rise = width / 2, 5.0, scene.rng.uniform(2.5, 4.5)
    ridge = [(-a, 0.0), (a, 0.0), (a, 0.0), (-a, 0.0)]
    scene.mesh.loft([(-a, -b), (a, -b), (a, b), (-a, b)], ridge, height, height + rise, [roof, front, roof, front])


def add_trees(scene: Scene, count: int) -> None:
    """Beside and behind the landmark, most of them clear of it."""
    rng = scene.rng
    for _ in range(count):
        side = rng.choice([-1, 1])
        aside = side * (scene.half_width * rng.uniform(1.02, 1.7) + rng.uniform(2, 14))
        near = scene.half_depth + 0.25 * scene.distance if scene.bounds.height >= SMALL_HEIGHT else -scene.half_depth
        ahead = rng.uniform(-scene.half_depth - 30, near)
        plant_tree(scene, *scene.place(float(aside), float(ahead)), float(rng.uniform(0.7, 1.4)))


def plant_tree(scene: Scene, x: float, y: float, size: float) -> None:
    """A trunk and a crown of leaf cards: round, tall, or a cone; normals point out of the crown."""
    rng = scene.rng
    kind = int(rng.integers(0, 4))
    height = size * (rng.uniform(5, 8) if kind < 2 else rng.uniform(7, 12))
    wide = height * (0.36, 0.42, 0.15, 0.24)[kind]
    trunk = height * (0.3, 0.25, 0.1, 0.12)[kind]
    cards = 90
    up = rng.random(cards) if kind == 3 else (rng.random(cards) + rng.random(cards)) / 2
    girth = 1 - up if kind == 3 else np.sqrt(np.clip(1 - (2 * up - 1) ** 2, 0.02, 1))
    turn, out = rng.uniform(0, 2 * math.pi, cards), np.sqrt(rng.uniform(0.25, 1, cards)) * girth * wide
    middle = np.stack([out * np.cos(turn), out * np.sin(turn), trunk + up * (height - trunk)], axis=1)
    normal = middle - np.array([0, 0, trunk + (height - trunk) * 0.4])
    normal /= np.linalg.norm(normal, axis=1, keepdims=True)
    with scene.mesh.at(x, y):
        scene.mesh.turned([(height * 0.03, 0), (height * 0.018, height * 0.6)], scene.number("bark"), segments=5)
        leaves = scene.number(f"leaves {int(rng.choice(len(LEAVES), p=[0.35, 0.25, 0.24, 0.08, 0.08]))}")
        _add_cards(scene, middle, normal, height * 0.17, leaves)


def _add_cards(scene: Scene, middle: np.ndarray, normal: np.ndarray, half: float, texture: int) -> None:
    """Squares turned at random about their middles."""
    first = scene.rng.standard_normal(middle.shape)
    first /= np.linalg.norm(first, axis=1, keepdims=True)
    second = np.cross(first, scene.rng.standard_normal(middle.shape))
    second /= np.linalg.norm(second, axis=1, keepdims=True)
    a, b = first * half, second * half
    corners = np.stack([middle - a - b, middle + a - b, middle + a + b, middle - a + b], axis=1)
    uv = np.array([[0.0, 0.0], [LEAF_CARD, 0.0], [LEAF_CARD, LEAF_CARD], [0.0, LEAF_CARD]])
    order = np.array([[0, 1, 2], [0, 2, 3]])
    points = corners[:, order].reshape(-1, 3, 3)
    uvs = np.broadcast_to(uv[order], (len(middle), 2, 3, 2)).reshape(-1, 3, 2)
    normals = np.broadcast_to(normal[:, None, None], (len(middle), 2, 3, 3)).reshape(-1, 3, 3)
    scene.mesh.add(points, uvs, texture, normals)


def add_people(scene: Scene, count: int) -> None:
    """Walking before the landmark, singly and in pairs."""
    rng = scene.rng
    for _ in range(count):
        ahead = scene.half_depth + rng.uniform(0.5, max(0.75 * (scene.distance - scene.half_depth), 1.0))
        reach = scene.half_width * 1.3 * max(1 - ahead / (scene.distance * 1.2), 0.15) + 2
        aside = float(rng.uniform(-reach, reach))
        for pair in range(1 + int(rng.random() < 0.4)):
            stand_person(scene, aside + 0.7 * pair, float(ahead), float(rng.uniform(0.88, 1.03)))


def stand_person(scene: Scene, aside: float, ahead: float, size: float) -> None:
    """A flat figure that faces the camera."""
    half, height = PERSON_SIZE[0] / 2 * size, PERSON_SIZE[1] * size
    (a, b), (c, d) = scene.place(aside - half, ahead), scene.place(aside + half, ahead)
    x, y = scene.place(0.0, 1.0)
    corners = [(a, b, 0.0), (c, d, 0.0), (c, d, height), (a, b, height)]
    texture = scene.number(f"person {int(scene.rng.integers(PEOPLE))}")
    scene.mesh.card(corners, texture, *PERSON_SIZE, (x * 0.8, y * 0.8, 0.6))


def add_cars(scene: Scene, count: int) -> None:
    """Parked or driving across the view."""
    rng = scene.rng
    for _ in range(count):
        ahead = scene.half_depth + rng.uniform(3, max(0.5 * (scene.distance - scene.half_depth), 3.5))
        aside = rng.uniform(-1, 1) * (scene.half_width + 4)
        turn = scene.view.azimuth + rng.normal(0, 0.25) + (math.pi if rng.random() < 0.5 else 0.0)
        with scene.mesh.at(*scene.place(float(aside), float(ahead)), 0, float(turn)):
            _build_car(scene, scene.number(f"paint {int(rng.integers(len(PAINTS)))}"))


def _build_car(scene: Scene, paint: int) -> None:
    """Body, cabin with panes, wheels; it looks along x."""
    mesh, long = scene.mesh, float(scene.rng.uniform(3.8, 4.6))
    mesh.loft(rectangle(long, 1.7), rectangle(long * 0.97, 1.66), 0.32, 0.62, paint)
    mesh.loft(rectangle(long * 0.97, 1.66), rectangle(long * 0.94, 1.55), 0.62, 0.92, paint, lid=paint)
    cabin = rectangle(long * 0.62, 1.5, -long * 0.06)
    mesh.loft(cabin, grown(rectangle(long * 0.42, 1.25, -long * 0.06), 0.0), 0.9, 1.42, scene.number("pane"), lid=paint)
    for x in (-long * 0.31, long * 0.31):
        for y in (-0.8, 0.8):
            angles = np.linspace(0, 2 * math.pi, 11)
            rim = [(x + 0.33 * math.cos(angle), y * 1.02, 0.33 + 0.33 * math.sin(angle)) for angle in angles]
            points = np.array([[(x, y * 1.02, 0.33), rim[step], rim[step + 1]] for step in range(10)])
            mesh.add(points, points[:, :, ::2].copy(), scene.number("tyre"))


def add_lamps(scene: Scene, count: int) -> None:
    """Street lamps in a row before the landmark."""
    rng = scene.rng
    ahead = scene.half_depth + rng.uniform(1.5, 8)
    for place in range(count):
        aside = scene.half_width * 2.2 * ((place + 0.5) / count - 0.5) + rng.uniform(-2, 2)
        with scene.mesh.at(*scene.place(float(aside), float(ahead))):
            scene.mesh.turned([(0.16, 0), (0.07, 0.8), (0.05, 4.2)], scene.number("iron"), segments=6)
            scene.mesh.turned([(0.06, 4.2), (0.24, 4.35), (0.3, 4.8)], scene.number("lamp"), segments=8)
            scene.mesh.turned([(0.34, 4.8), (0.02, 5.1)], scene.number("iron"), segments=8)


def add_scaffold(scene: Scene) -> None:
    """Poles and boards before a part of the front."""
    rng, bounds = scene.rng, scene.bounds
    wide, tall = bounds.half_width * rng.uniform(0.5, 1.0), min(bounds.height * rng.uniform(0.4, 0.7), 16.0)
    with scene.mesh.at(rng.uniform(-1, 1) * (bounds.half_width - wide / 2), -bounds.half_depth - 0.8):
        for x in np.arange(-wide / 2, wide / 2 + 0.1, 2.0):
            scene.mesh.box(float(x), 0, 0, 0.09, 0.09, tall, scene.number("pole"))
        for z in np.arange(2.0, tall, 2.0):
            scene.mesh.box(0, 0.3, float(z), wide, 0.7, 0.08, scene.number("board"))
            scene.mesh.box(0, 0, float(z) + 1.0, wide, 0.06, 0.06, scene.number("pole"))


def add_occluder(scene: Scene) -> None:
    """Sometimes something close: a tree, a passer-by, a bus."""
    rng = scene.rng
    kind, free = rng.random(), scene.distance - scene.half_depth
    if scene.bounds.height < SMALL_HEIGHT and kind > 0.05:
        return
    if kind < 0.1 and scene.half_width > 6:  # what is narrow would be hidden
        ahead = scene.half_depth + free * rng.uniform(0.35, 0.65)
        aside = rng.choice([-1, 1]) * scene.half_width * rng.uniform(0.25, 0.6)
        plant_tree(scene, *scene.place(float(aside), float(ahead)), float(rng.uniform(0.7, 1.0)))
    elif kind < 0.2:
        ahead = scene.distance - rng.uniform(2.6, 5)
        for _ in range(int(rng.integers(1, 3))):
            stand_person(scene, float(rng.uniform(-1.2, 1.2)), float(ahead), 1.0)
    elif kind < 0.26 and free > 16:
        width, height = BUS_SIZE
        x, y = scene.place(
            rng.uniform(-1, 1) * scene.half_width * 0.8, scene.half_depth + free * rng.uniform(0.15, 0.4)
        )
        with scene.mesh.at(x, y, 0.15, scene.view.azimuth):
            outline = rectangle(width, 2.5)
            scene.mesh.loft(outline, outline, 0, height, [scene.number("bus")], lid=scene.number("pole"))
