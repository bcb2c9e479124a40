"""A map on disk: photos and their cameras, an index to find them, local points, COLMAP's database and models."""

import functools
import io
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import numpy as np

from superfeat.errors import StoreError
from superfeat.images import Photo, read_image
from superfeat.mapping.cameras import CameraModel, CameraPose
from superfeat.mapping.colmap import MapPhoto, as_pose, colmap
from superfeat.mapping.local import load_local
from superfeat.mapping.local.interface import LocalMethod, LocalPoints
from superfeat.recent import Recent
from superfeat.storage.records import as_record
from superfeat.storage.store import explained, read_json, require_version, write_file, write_json

FORMAT, VERSION = "superfeat-map", 1
MANIFEST, INDEX, LOCAL, DATABASE, MODELS, PAIRS = (
    "manifest.json",
    "index",
    "local",
    "database.db",
    "models",
    "pairs.txt",
)
LONGEST_SIDE = 1600  # of photos in which points are looked for
KEPT_POINTS = 256  # photos whose points stay in memory: 1 MB each
KEPT_SEEN = 4096  # photos of which it stays in memory which points of the model they see: 16 KB each


class CameraFacts(TypedDict):
    """A camera for JSON."""

    model: str
    width: int
    height: int
    params: list[float]
    guessed: bool


class MapPhotoFacts(TypedDict):
    """A photo for JSON."""

    name: str
    path: str
    camera: CameraFacts


class MapManifest(TypedDict):
    """manifest.json of a map."""

    format: str
    version: int
    local: str
    photos: list[MapPhotoFacts]
    models: list[int]  # photos in each


class Registered(NamedTuple):
    """Where a photo stands: in which model, as which image of it."""

    model: int
    image: int


def write_manifest(
    folder: Path, local: str, photos: Sequence[MapPhoto], paths: Sequence[Path], models: list[int]
) -> None:
    """The last file of a map."""
    facts: list[MapPhotoFacts] = [
        {"name": photo.name, "path": str(path.resolve()), "camera": _camera_facts(photo.camera)}
        for photo, path in zip(photos, paths, strict=True)
    ]
    made: MapManifest = {"format": FORMAT, "version": VERSION, "local": local, "photos": facts, "models": models}
    write_json(folder / MANIFEST, made)


def _camera_facts(camera: CameraModel) -> CameraFacts:
    return {
        "model": camera.model,
        "width": camera.width,
        "height": camera.height,
        "params": list(camera.params),
        "guessed": camera.guessed,
    }


def find_points(photo: Photo, method: LocalMethod) -> LocalPoints:
    """The points of a photo as it is stored, in pixels of its full size. ImageError if it cannot be read."""
    from superfeat.images import stored_size

    pixels = read_image(photo.path, upright=False, max_side=LONGEST_SIDE)
    found = method.find(pixels)
    width, height = stored_size(photo.path)
    scale = np.asarray([width / pixels.shape[1], height / pixels.shape[0]], np.float32)
    return LocalPoints(found.places * scale, found.vectors)


def save_points(path: Path, points: LocalPoints) -> None:
    """Whole or not at all."""
    data = io.BytesIO()
    np.savez(data, places=points.places, vectors=points.vectors.astype(np.float16))
    write_file(path, data.getvalue())


def read_points(path: Path) -> LocalPoints:
    """What `save_points` wrote, checked."""
    with explained(path, "read"):
        try:
            with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
                places, vectors = file["places"], file["vectors"].astype(np.float32)
        except (ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise StoreError(f"{path} is damaged ({error}); make the map again") from error
    if places.ndim != 2 or places.shape[1:] != (2,) or vectors.ndim != 2 or len(places) != len(vectors):
        raise StoreError(f"{path} is damaged: its places and vectors are not as many; make the map again")
    return LocalPoints(places.astype(np.float32), vectors)


class StoredPoints:
    """The local points of a map's photos, by number; those used last stay in memory."""

    def __init__(self, folder: Path, count: int) -> None:
        self._folder, self._count = folder, count
        self._kept: Recent[LocalPoints] = Recent(KEPT_POINTS)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: int) -> LocalPoints:
        found = self._kept.get(str(number))
        if found is None:
            found = read_points(self._folder / f"{number:06}.npz")
            self._kept.put(str(number), found)
        return found


class OpenMap:
    """A finished map."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        path = self.folder / MANIFEST
        facts = read_json(path) if path.is_file() else None
        if not isinstance(facts, dict) or facts.get("format") != FORMAT:
            raise StoreError(
                f"{self.folder} is not a finished map; make one with: superfeat map PHOTOS -o {self.folder}"
            )
        require_version(facts, VERSION, path)
        self.manifest = as_record(MapManifest, facts, path)
        self.points = StoredPoints(self.folder / LOCAL, len(self.manifest["photos"]))
        self.seen: Recent[np.ndarray] = Recent(KEPT_SEEN)

    @property
    def names(self) -> list[str]:
        return [photo["name"] for photo in self.manifest["photos"]]

    def path_of(self, number: int) -> Path:
        """The file of a photo."""
        return Path(self.manifest["photos"][number]["path"])

    @functools.cached_property
    def numbers(self) -> dict[str, int]:
        """Of photos, by their files."""
        return {photo["path"]: number for number, photo in enumerate(self.manifest["photos"])}

    @functools.cached_property
    def method(self) -> LocalMethod:
        """The local features it was made with."""
        return load_local(self.manifest["local"])

    @functools.cached_property
    def models(self) -> list[Any]:
        """COLMAP's models, the largest first."""
        return [read_model(self.folder / MODELS / str(number)) for number in range(len(self.manifest["models"]))]

    @functools.cached_property
    def registered(self) -> dict[int, Registered]:
        """Photos that have a place in a model, by number; in the largest of several."""
        places = {name: number for number, name in enumerate(self.names)}
        found: dict[int, Registered] = {}
        for model, one in enumerate(self.models):
            for image in one.reg_image_ids():
                number = places.get(one.image(image).name)
                if number is not None:
                    found.setdefault(number, Registered(model, image))
        return found

    def pose(self, number: int) -> CameraPose | None:
        """Where a photo was taken; None if it has no place in a model."""
        place = self.registered.get(number)
        return None if place is None else as_pose(self.models[place.model].image(place.image).cam_from_world())


def read_model(path: Path) -> Any:
    """A model as COLMAP writes them. StoreError if it cannot be read."""
    try:
        return colmap().Reconstruction(str(path))
    except (ValueError, RuntimeError, OSError) as error:
        raise StoreError(
            f"{path} is not a whole model of COLMAP ({str(error).splitlines()[0]}); make it again"
        ) from error
