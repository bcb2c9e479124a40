"""Photos to a map: retrieval, local points, matches that agree, and a sparse model."""

import dataclasses
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from superfeat.engine import Engine
from superfeat.errors import ImageError, SuperfeatError
from superfeat.images import Photo, Skipped, stored_size
from superfeat.index.make import begin_indexing
from superfeat.mapping.cameras import CameraModel, guessed_camera
from superfeat.mapping.colmap import (
    MapPhoto,
    VerifiedMatches,
    colmap,
    reconstruct,
    triangulate,
    verify_pair,
    write_database,
)
from superfeat.mapping.image_lists import ListedPhotos
from superfeat.mapping.local import load_local
from superfeat.mapping.local.interface import LocalMethod, LocalPoints
from superfeat.mapping.map_folder import (
    DATABASE,
    INDEX,
    LOCAL,
    MODELS,
    PAIRS,
    StoredPoints,
    find_points,
    save_points,
    write_manifest,
)
from superfeat.mapping.pair_files import read_pairs_file
from superfeat.mapping.pairs import PairChoice, pairs_of_index
from superfeat.storage.store import explained
from superfeat.work import Work

PointsByNumber = StoredPoints | Sequence[LocalPoints]


@dataclasses.dataclass(frozen=True)
class MapChoice:
    """How a map is made."""

    local: str = "sift"
    top: int = 20  # photos that each is matched with
    weights: str | None = None  # of retrieval


class MapProgress(NamedTuple):
    """What is going on, and how far it is."""

    doing: str
    done: int
    total: int


class MapBuilt(NamedTuple):
    """What became of the photos."""

    photos: int
    models: list[int]  # photos in each, the largest first
    points: int  # of all models
    pairs: int  # of photos that were matched
    verified: int  # of them, pairs with enough matches that agree
    known_poses: bool
    guessed: list[str]  # photos of which no camera is known
    alone: list[str]  # photos without a place in any model
    skipped: list[Skipped]


def build_map(photos: ListedPhotos, output: str | Path, choice: MapChoice | None = None) -> Work[MapProgress, MapBuilt]:
    """Makes a map of photos in a folder; with the poses that are given if every photo has one. Stopped, it goes on."""
    return Work(_build_map(photos, Path(output), choice or MapChoice()))


def _build_map(listed: ListedPhotos, folder: Path, choice: MapChoice) -> Generator[MapProgress, None, MapBuilt]:
    colmap()  # said before hours of work, not after
    method = load_local(choice.local)
    if len(listed.photos) < 2:
        raise SuperfeatError(f"a map needs two photos at least, and there are {len(listed.photos)}; add photos")
    with explained(folder):
        (folder / LOCAL).mkdir(parents=True, exist_ok=True)
    readable, skipped = yield from _find_all_points(listed, folder, method)
    kept = [listed.photos[number] for number in readable]
    photos = [MapPhoto(one.name, camera_for(one, listed), listed.poses.get(one.name)) for one in kept]
    points = StoredPoints(folder / LOCAL, len(kept))
    pairs = yield from _retrieve(kept, folder, choice)
    verified: list[VerifiedMatches] = []
    for done, (first, second) in enumerate(pairs, 1):
        verified += match_pair(photos, points, method, first, second)
        yield MapProgress("matching", done, len(pairs))
    known = all(photo.pose is not None for photo in photos)
    yield MapProgress("triangulating" if known else "mapping", 0, 1)
    models = make_models(folder, photos, points, verified, known, listed.frames)
    write_manifest(folder, choice.local, photos, [one.path for one in kept], [one.num_reg_images() for one in models])
    placed = {one.image(image).name for one in models for image in one.reg_image_ids()}
    return MapBuilt(
        len(photos),
        [one.num_reg_images() for one in models],
        sum(one.num_points3D() for one in models),
        len(pairs),
        len(verified),
        known,
        [photo.name for photo in photos if photo.camera.guessed],
        [photo.name for photo in photos if photo.name not in placed],
        skipped,
    )


def camera_for(photo: Photo, listed: ListedPhotos) -> CameraModel:
    """What the list says, or EXIF, or a guess. ImageError if the photo cannot be read, or has another size."""
    camera = listed.cameras.get(photo.name)
    if camera is None:
        return camera_of_photo(photo.path)
    width, height = stored_size(photo.path)
    if (camera.width, camera.height) != (width, height):
        raise ImageError(
            f"{photo.path} is {width} x {height} pixels, and its camera is for {camera.width} x {camera.height}; "
            "give the camera of this size"
        )
    return camera


def camera_of_photo(path: Path) -> CameraModel:
    """By EXIF; guessed where that says nothing. ImageError if the photo cannot be read."""
    width, height = stored_size(path)
    try:
        found = colmap().infer_camera_from_image(str(path))
    except (ValueError, RuntimeError):
        return guessed_camera(width, height)
    if not found.has_prior_focal_length:
        return guessed_camera(width, height)
    return CameraModel(found.model_name, found.width, found.height, tuple(float(value) for value in found.params))


def _find_all_points(
    listed: ListedPhotos, folder: Path, method: LocalMethod
) -> Generator[MapProgress, None, tuple[list[int], list[Skipped]]]:
    """Numbers of photos that can be read; the points of the n-th of them are in the n-th file."""
    readable: list[int] = []
    skipped: list[Skipped] = []
    for number, photo in enumerate(listed.photos):
        path = folder / LOCAL / f"{len(readable):06}.npz"
        try:
            camera_for(photo, listed)
            note = f"{method.name} {photo.path.resolve()}"
            if not _is_of(path, note, photo):
                save_points(path, find_points(photo, method))
                path.with_suffix(".txt").write_text(note, encoding="utf-8")
            readable.append(number)
        except ImageError as error:
            skipped.append(Skipped(photo.name, str(error)))
        yield MapProgress("points", number + 1, len(listed.photos))
    if len(readable) < 2:
        raise SuperfeatError(
            f"only {len(readable)} of {len(listed.photos)} photos can be used, and a map needs two at least"
            + (f" ({skipped[0].reason})" if skipped else "")
        )
    return readable, skipped


def _is_of(path: Path, note: str, photo: Photo) -> bool:
    """Whether a file of points is there, of this photo, and newer than it."""
    noted = path.with_suffix(".txt")
    if not (path.is_file() and noted.is_file() and noted.read_text(encoding="utf-8") == note):
        return False
    return photo.path.is_file() and photo.path.stat().st_mtime < path.stat().st_mtime


def _retrieve(
    photos: Sequence[Photo], folder: Path, choice: MapChoice
) -> Generator[MapProgress, None, list[tuple[int, int]]]:
    """Pairs of numbers that are worth matching."""
    listing = folder / "photos.txt"
    listing.write_text("".join(f"{photo.path.resolve()}\n" for photo in photos), encoding="utf-8")
    for step in begin_indexing(listing, folder / INDEX, weights=choice.weights):
        yield MapProgress("indexing", getattr(step, "done", 0), len(photos))
    engine = Engine.open(folder / INDEX)
    for progress in pairs_of_index(engine, folder / PAIRS, "csv", PairChoice(top=choice.top, connected=True)):
        yield MapProgress("retrieving", progress.done, progress.photos)
    by_path = {str(photo.path.resolve()): number for number, photo in enumerate(photos)}
    return list(_numbered(engine, by_path, folder / PAIRS))


def _numbered(engine: Engine, by_path: dict[str, int], pairs: Path) -> Iterator[tuple[int, int]]:
    for first, second in read_pairs_file(pairs):
        one, other = (by_path.get(str(engine.path_of(name))) for name in (first, second))
        if one is not None and other is not None:
            yield min(one, other), max(one, other)


def match_pair(
    photos: Sequence[MapPhoto], points: PointsByNumber, method: LocalMethod, first: int, second: int
) -> list[VerifiedMatches]:
    """The matches of two photos that agree, or nothing."""
    found = method.match(points[first], points[second])
    cameras = photos[first].camera, photos[second].camera
    geometry = verify_pair(cameras, (points[first], points[second]), found)
    return [] if geometry is None else [VerifiedMatches(first, second, geometry)]


def make_models(
    folder: Path,
    photos: Sequence[MapPhoto],
    points: PointsByNumber,
    verified: Sequence[VerifiedMatches],
    known: bool,
    frames: dict[str, str],
) -> list[Any]:
    """Models, the largest first, written below `folder`. With known poses one for each frame of coordinates."""
    if not verified:
        raise SuperfeatError(
            "no two photos have enough matches that agree, so there is no map; take photos that overlap more"
        )
    places = {number: points[number].places for number in range(len(photos))}
    if known:
        models = [
            _triangulate_frame(folder, photos, places, verified, {n for n in range(len(photos)) if names[n] == frame})
            for names in [[frames.get(photo.name, "") for photo in photos]]
            for frame in sorted(set(names))
        ]
        models.sort(key=lambda one: -one.num_reg_images())
    else:
        write_database(folder / DATABASE, photos, places, verified)
        models = reconstruct(folder / DATABASE, folder / "work")
    if not models:
        raise SuperfeatError("the photos match, but no model came of it; take more photos, from more places")
    for number, one in enumerate(models):
        (folder / MODELS / str(number)).mkdir(parents=True, exist_ok=True)
        one.write(str(folder / MODELS / str(number)))
    return models


def _triangulate_frame(
    folder: Path,
    photos: Sequence[MapPhoto],
    places: dict[int, np.ndarray],
    verified: Sequence[VerifiedMatches],
    members: set[int],
) -> Any:
    """The model of the photos that share coordinates."""
    order = sorted(members)
    new = {number: place for place, number in enumerate(order)}
    mine = [photos[number] for number in order]
    inside = [
        VerifiedMatches(new[one.first], new[one.second], one.geometry)
        for one in verified
        if one.first in new and one.second in new
    ]
    write_database(folder / DATABASE, mine, {new[number]: places[number] for number in order}, inside)
    return triangulate(folder / DATABASE, mine, folder / "work")
