"""Made-up places: points in space and cameras that see them, or a painted wall and photos of it."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageFilter

from superfeat.mapping.build_map import make_models, match_pair
from superfeat.mapping.cameras import CameraModel, CameraPose
from superfeat.mapping.colmap import MapPhoto, VerifiedMatches
from superfeat.mapping.local import load_local
from superfeat.mapping.local.interface import LocalPoints
from superfeat.mapping.map_folder import LOCAL, OpenMap, save_points, write_manifest

WIDTH, HEIGHT, FOCAL = 320, 240, 300.0
CAMERA = CameraModel("PINHOLE", WIDTH, HEIGHT, (FOCAL, FOCAL, WIDTH / 2, HEIGHT / 2))


def looking(centre: Sequence[float], target: Sequence[float] = (0, 0, 0)) -> CameraPose:
    """A camera at `centre` that looks at `target`, y down."""
    ahead = np.asarray(target, float) - np.asarray(centre, float)
    ahead /= np.linalg.norm(ahead)
    right = np.cross([0.0, 1.0, 0.0], ahead)
    right /= np.linalg.norm(right)
    rotation = np.stack([right, np.cross(ahead, right), ahead])
    w = np.sqrt(max(0.0, 1 + np.trace(rotation))) / 2
    x, y, z = (
        (rotation[2, 1] - rotation[1, 2]) / (4 * w),
        (rotation[0, 2] - rotation[2, 0]) / (4 * w),
        (rotation[1, 0] - rotation[0, 1]) / (4 * w),
    )
    a, b, c = -rotation @ np.asarray(centre, float)
    return CameraPose((float(w), float(x), float(y), float(z)), (float(a), float(b), float(c)))


class Place:
    """Points in space, each with a vector of its own."""

    def __init__(self, seed: int, count: int = 150) -> None:
        random = np.random.default_rng(seed)
        self.points = random.uniform(-1, 1, (count, 3)) * [1.5, 1.0, 0.7]
        vectors = random.standard_normal((count, 64))
        self.vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)

    def seen(self, pose: CameraPose, noise: float = 0.2, seed: int = 0) -> LocalPoints:
        """What a camera sees of it."""
        inside = self.points @ pose.rotation().T + np.asarray(pose.tvec)
        places = FOCAL * inside[:, :2] / inside[:, 2:] + [WIDTH / 2, HEIGHT / 2]
        places += noise * np.random.default_rng(seed).standard_normal(places.shape)
        visible = (places >= 0).all(axis=1) & (places < [WIDTH, HEIGHT]).all(axis=1) & (inside[:, 2] > 0)
        return LocalPoints(places[visible].astype(np.float32), self.vectors[visible])


CENTRES = [(-1.2, 0.1, -4.0), (-0.4, -0.2, -4.3), (0.4, 0.2, -4.2), (1.2, 0.0, -4.0)]


def map_of(folder: Path, places: Sequence[Place], *, lonely: bool = False) -> OpenMap:
    """A map with four photos of each place, in coordinates of its own; `lonely` adds one that sees nothing known."""
    (folder / LOCAL).mkdir(parents=True)
    photos, points, frames = [], [], {}
    for number, place in enumerate(places):
        for view, centre in enumerate(CENTRES):
            name = f"place{number}/{view}.png"
            photos.append(MapPhoto(name, CAMERA, looking(centre)))
            points.append(place.seen(looking(centre), seed=10 * number + view))
            frames[name] = str(number)
    if lonely:
        photos.append(MapPhoto("place0/lonely.png", CAMERA, looking((0, 0, -4))))
        points.append(Place(99).seen(looking((0, 0, -4))))
        frames["place0/lonely.png"] = "0"
    method = load_local("sift")
    verified: list[VerifiedMatches] = []
    for first in range(len(photos)):
        save_points(folder / LOCAL / f"{first:06}.npz", points[first])
        for second in range(first + 1, len(photos)):
            verified += match_pair(photos, points, method, first, second)
    models = make_models(folder, photos, points, verified, True, frames)
    files = [folder / photo.name for photo in photos]
    write_manifest(folder, "sift", photos, files, [one.num_reg_images() for one in models])
    return OpenMap(folder)


def paint(seed: int, side: int = 700) -> Image.Image:
    """A wall with patches of many sizes."""
    random = np.random.default_rng(seed)
    wall = np.zeros((side, side, 3))
    for cells in (9, 24, 60, 140):
        noise = Image.fromarray(random.integers(0, 256, (cells, cells, 3), np.uint8))
        wall += np.asarray(noise.resize((side, side), Image.Resampling.NEAREST)) / 4
    return Image.fromarray(wall.astype(np.uint8)).filter(ImageFilter.GaussianBlur(0.8))


def photograph(wall: Image.Image, pose: CameraPose, width: float = 5.0) -> Image.Image:
    """What a camera sees of a wall in the plane z = 0, `width` wide, around the origin."""
    rotation = pose.rotation()
    to_pixels = np.asarray([[FOCAL, 0, WIDTH / 2], [0, FOCAL, HEIGHT / 2], [0, 0, 1]])
    from_wall = to_pixels @ np.stack([rotation[:, 0], rotation[:, 1], np.asarray(pose.tvec)], axis=1)
    scale = width / wall.width
    texture = np.asarray([[scale, 0, -width / 2], [0, scale, -width / 2], [0, 0, 1]])
    back = np.linalg.inv(from_wall @ texture)
    data = tuple((back / back[2, 2]).ravel()[:8].tolist())
    return wall.transform((WIDTH, HEIGHT), Image.Transform.PERSPECTIVE, data, Image.Resampling.BICUBIC)


def write_scene(folder: Path, seed: int, scale: str = "metric") -> None:
    """Six photos of a painted wall with their poses; the third is a query."""
    (folder / "images").mkdir(parents=True)
    wall, entries = paint(seed), {}
    camera = {"model": CAMERA.model, "width": WIDTH, "height": HEIGHT, "params": list(CAMERA.params)}
    for number, x in enumerate((-0.9, -0.5, -0.1, 0.2, 0.6, 0.9)):
        pose = looking((x, 0.1 * (number % 3), -3.2), (0.4 * x, 0, 0))
        photograph(wall, pose).save(folder / "images" / f"{number}.png")
        split = "query" if number == 2 else "db"
        entries[f"{number}.png"] = {"camera": camera, "qvec": pose.qvec, "tvec": pose.tvec, "split": split}
    (folder / "poses.json").write_text(json.dumps({"scale": scale, "images": entries}))


def write_aachen(folder: Path, *, nvm: bool = True) -> dict[str, CameraPose]:
    """A painted wall laid out as Aachen Day-Night v1.1 is, by night a darker photo. The true poses of its queries."""
    images, model = folder / "images" / "images_upright", folder / "3D-models" / "aachen_v_1_1"
    names = [f"db/{n}.png" for n in range(3)] + ["sequences/gopro3/a.png", "sequences/gopro3/b.png"]
    for name in ("db", "sequences/gopro3", "query/day/milestone", "query/night/nexus5x"):
        (images / name).mkdir(parents=True)
    for made in (model, folder / "queries"):
        made.mkdir(parents=True)
    wall, poses = paint(3), {}
    for number, (name, x) in enumerate(zip(names, (-0.9, -0.5, 0.2, 0.6, 0.9), strict=True)):
        poses[name] = looking((x, 0.1 * (number % 3), -3.2), (0.4 * x, 0, 0))
        photograph(wall, poses[name]).save(images / name)
    words = " ".join(map(str, [CAMERA.model, WIDTH, HEIGHT, *CAMERA.params]))
    (_write_nvm if nvm else _write_colmap)(model, poses, words)
    queries = {"query/day/milestone/noon.png": (0.0, 0.05, -3.1), "query/night/nexus5x/dark.png": (0.4, 0.1, -3.3)}
    true = {name: looking(centre, (0.1, 0, 0)) for name, centre in queries.items()}
    for name, pose in true.items():
        light = name.split("/")[1]
        photograph(wall, pose).point(lambda value, dark=light == "night": value // 2 if dark else value).save(
            images / name
        )
        (folder / "queries" / f"{light}_time_queries_with_intrinsics.txt").write_text(f"{name} {words}\n")
    return true


def _write_nvm(model: Path, poses: dict[str, CameraPose], camera: str) -> None:
    """VisualSFM's file, in which a camera has its centre; its points follow, and are never read."""
    rows = [
        " ".join(map(str, [name, FOCAL, *pose.qvec, *pose.centre().tolist(), 0.0, 0])) for name, pose in poses.items()
    ]
    text = "\n".join(["NVM_V3 ", "", str(len(rows)), *rows, "", "1", "0.1 0.2 0.3 9 9 9 0", "0"])
    (model / "aachen_v_1_1.nvm").write_text(text + "\n")
    (model / "database_intrinsics_v1_1.txt").write_text("".join(f"{name} {camera}\n" for name in poses))


def _write_colmap(model: Path, poses: dict[str, CameraPose], camera: str) -> None:
    (model / "cameras.txt").write_text(f"1 {camera}\n")
    rows = [
        " ".join(map(str, [number, *pose.qvec, *pose.tvec, 1, name])) + "\n\n"
        for number, (name, pose) in enumerate(poses.items(), 1)
    ]
    (model / "images.txt").write_text("".join(rows))
    (model / "points3D.txt").write_text("")
