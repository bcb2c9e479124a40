"""Scenes with known poses to measure localization on: folders with `images` and `poses.json`, several side by side."""

import dataclasses
from pathlib import Path
from typing import Literal, TypedDict

import numpy as np

from superfeat.errors import DatasetError
from superfeat.images import Photo, Skipped
from superfeat.mapping.cameras import CameraModel, CameraPose, camera_of, pose_of
from superfeat.mapping.image_lists import ListedPhotos
from superfeat.storage.records import as_record
from superfeat.storage.store import read_json

POSES, IMAGES = "poses.json", "images"
EVERY = 3  # one photo in so many is a query, where the file does not say which are
DIAMETER = 25.0  # metres that a scene without a scale is taken to be wide


class _Camera(TypedDict):
    model: str
    width: int
    height: int
    params: list[float]


class _Posed(TypedDict):
    camera: _Camera
    qvec: list[float]
    tvec: list[float]


class _Entry(_Posed, total=False):
    split: str


class _Scene(TypedDict):
    scale: Literal["metric", "arbitrary"]
    images: dict[str, _Entry]


@dataclasses.dataclass(frozen=True)
class LocalizationSet:
    """Photos of a map and queries, with their true cameras and poses. A photo's frame is its scene.

    The true poses of queries may be known to others alone.
    """

    root: Path
    photos: ListedPhotos
    queries: ListedPhotos
    metres: dict[str, float]  # of a unit of each scene
    groups: dict[str, str] = dataclasses.field(default_factory=dict)  # of queries that are counted by themselves
    skipped: list[Skipped] = dataclasses.field(default_factory=list)  # photos that are left out


def read_scenes(folder: str | Path) -> LocalizationSet:
    """One scene, or all scenes below a folder."""
    root = Path(folder)
    found = [root] if (root / POSES).is_file() else sorted(path.parent for path in root.glob(f"*/{POSES}"))
    if not found:
        raise DatasetError(f"{root} has no scene: a folder with {IMAGES} and {POSES}, or folders with these")
    made = LocalizationSet(root, ListedPhotos([]), ListedPhotos([]), {})
    for scene in found:
        _add_scene(made, scene)
    return made


def _add_scene(made: LocalizationSet, folder: Path) -> None:
    facts = as_record(_Scene, read_json(folder / POSES), folder / POSES)
    centres = []
    for number, (name, entry) in enumerate(sorted(facts["images"].items())):
        query = entry["split"] == "query" if "split" in entry else number % EVERY == EVERY - 1
        kept = made.queries if query else made.photos
        full = f"{folder.name}/{name}"
        kept.photos.append(Photo(folder / IMAGES / name, full))
        kept.cameras[full] = _camera(entry["camera"], f"{folder / POSES}, {name}")
        kept.poses[full] = _pose(entry, f"{folder / POSES}, {name}")
        kept.frames[full] = folder.name
        if not query:
            centres.append(kept.poses[full].centre())
    if len(centres) < 2:
        raise DatasetError(f"{folder} has {len(centres)} photos for the map, and two are needed")
    spread = np.asarray(centres)
    diameter = max(float(np.linalg.norm(spread - one, axis=1).max()) for one in spread)
    made.metres[folder.name] = 1.0 if facts["scale"] == "metric" or diameter == 0 else DIAMETER / diameter


def _camera(entry: _Camera, where: str) -> CameraModel:
    return camera_of([entry["model"], str(entry["width"]), str(entry["height"]), *map(str, entry["params"])], where)


def _pose(entry: _Entry, where: str) -> CameraPose:
    sizes = len(entry["qvec"]), len(entry["tvec"])
    return pose_of([*entry["qvec"], *entry["tvec"]] if sizes == (4, 3) else [], where)
