"""Views of drawn landmarks: one, or a folder of them."""

import functools
import io
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, UInt8
from PIL import Image

from superfeat.drawn.camera import SHADOW_SIDE, aim, aim_sun, choose_viewpoint
from superfeat.drawn.landmark import Landmark, build
from superfeat.drawn.library import open_library
from superfeat.drawn.mesh import Mesh, join_triangles
from superfeat.drawn.photo import develop
from superfeat.drawn.raster import Camera, Seen, Triangles, see
from superfeat.drawn.scenery import Scene, surround
from superfeat.drawn.shading import shade
from superfeat.drawn.weather import Weather, choose_weather, cloud_map
from superfeat.errors import ConfigError
from superfeat.storage.store import explained, write_file

PORTRAITS = 0.25
FINENESS = 2  # rendered pixels per pixel of the photo, along each side
SMALLEST_SIDE = 16
QUALITY = 92
DRAWN_NAME = re.compile(r"landmark_\d{4,}/\.?view_\d{2,}\.jpg.*")  # or what is left of one that was being written
PHOTO_ENDINGS = frozenset({".jpg", ".jpeg", ".png", ".heic", ".heif", ".tif", ".tiff", ".webp", ".gif", ".bmp", ".dng"})


def draw(
    thing: int, view: int, *, seed: int = 0, size: tuple[int, int] = (256, 192)
) -> UInt8[np.ndarray, "height width 3"]:
    """One view of one landmark: everything follows from seed, thing and view.

    `size` is width, height of a landscape view; about a quarter of the views are portraits, with the two swapped.
    """
    _require(seed=seed, thing=thing, view=view)
    if min(size) < SMALLEST_SIDE:
        raise ConfigError(
            f"the size {size[0]} x {size[1]} is too small to draw on; give at least {SMALLEST_SIDE} x {SMALLEST_SIDE}"
        )
    shot = frame(thing, view, seed=seed, size=size)
    sun = aim_sun(shot.weather.light.toward_sun, shot.landmark.bounds)
    textures, side = shot.landmark.textures, SHADOW_SIDE
    shadow = see(shot.triangles, textures, sun, side, side, parallel=True)
    light = shade(shot.triangles, textures, shot.seen, shot.eye, shadow, sun, shot.weather.light, _clouds())
    height, width = shot.seen.triangles.shape
    return develop(light, shot.weather, shot.rng, width // FINENESS, height // FINENESS)


class Shot(NamedTuple):
    """A view before its light: what stands where, what each pixel shows (the landmark's triangles come first)."""

    landmark: Landmark
    triangles: Triangles
    eye: Camera
    seen: Seen
    weather: Weather
    rng: np.random.Generator  # for what is still to be chosen


def frame(thing: int, view: int, *, seed: int, size: tuple[int, int]) -> Shot:
    """Sets up one view."""
    landmark = build(seed, thing)
    rng = np.random.default_rng((seed, thing, 1 + view))
    width, height = (min(size), max(size)) if rng.random() < PORTRAITS else size
    viewpoint = choose_viewpoint(rng, landmark.bounds, height > width)
    hour = choose_weather(rng, viewpoint.azimuth)
    scene = Scene(Mesh(), open_library(), rng, landmark.bounds, viewpoint)
    surround(scene, landmark.ground, water=landmark.over_water)
    triangles = join_triangles(landmark.triangles, scene.mesh.triangles())
    eye = aim(viewpoint, FINENESS * width, FINENESS * height)
    seen = see(triangles, landmark.textures, eye, FINENESS * width, FINENESS * height)
    return Shot(landmark, triangles, eye, seen, hour, rng)


@functools.lru_cache(maxsize=1)
def _clouds() -> Float32[np.ndarray, "cells cells"]:
    return cloud_map()


def draw_folder(
    folder: Path, *, things: int, views: int, seed: int = 0, first: int = 0, max_side: int = 256
) -> Iterator[Path]:
    """Writes folder/landmark_0007/view_03.jpg for every view of every thing, yielding each file when it is there.

    Files that are there already are not drawn again; each is written whole or not at all.
    """
    _require(seed=seed, first=first)
    if things < 1 or views < 1:
        raise ConfigError(f"{things} things of {views} views are nothing to draw; give at least one of each")
    if (other := _other_photo(Path(folder))) is not None:
        raise ConfigError(f"{folder} holds other photos, such as {other}; draw into a folder of its own")
    if max_side * 3 // 4 < SMALLEST_SIDE:
        raise ConfigError(f"a longest side of {max_side} pixels is too small to draw on; give at least 22")
    return _draw_files(Path(folder), range(first, first + things), views, seed, (max_side, max_side * 3 // 4))


def _other_photo(folder: Path) -> str | None:
    """A photo in this folder that was not drawn into it; None if there is none."""
    files = (Path(here, name) for here, _, names in os.walk(folder) for name in names)
    for file in files:
        name = file.relative_to(folder).as_posix()
        if file.suffix.lower() in PHOTO_ENDINGS and not DRAWN_NAME.fullmatch(name):
            return name
    return None


def _draw_files(folder: Path, things: range, views: int, seed: int, size: tuple[int, int]) -> Iterator[Path]:
    for thing in things:
        for view in range(views):
            path = folder / f"landmark_{thing:04d}" / f"view_{view:02d}.jpg"
            if not path.exists():
                with explained(path):
                    path.parent.mkdir(parents=True, exist_ok=True)
                file = io.BytesIO()
                Image.fromarray(draw(thing, view, seed=seed, size=size)).save(file, "JPEG", quality=QUALITY)
                write_file(path, file.getvalue())
            yield path


def _require(**numbers: int) -> None:
    for name, number in numbers.items():
        if number < 0:
            raise ConfigError(f"{name} is {number}; numbers of landmarks, views and seeds begin at 0")
