"""Photos as mapping programs list them: folders, lists of hloc and COLMAP, datasets of kapture."""

import dataclasses
from pathlib import Path

from superfeat.errors import DatasetError
from superfeat.images import Photo
from superfeat.mapping.cameras import CameraModel, CameraPose, camera_of
from superfeat.sources.listing import list_photos, nothing_there
from superfeat.storage.store import explained

KAPTURE_RECORDS = Path("sensors") / "records_camera.txt"
KAPTURE_SENSORS = Path("sensors") / "sensors.txt"
KAPTURE_POSES = Path("sensors") / "trajectories.txt"
KAPTURE_PHOTOS = Path("sensors") / "records_data"


@dataclasses.dataclass(frozen=True)
class ListedPhotos:
    """Photos, and what the list says of their cameras and poses."""

    photos: list[Photo]
    cameras: dict[str, CameraModel] = dataclasses.field(default_factory=dict)
    poses: dict[str, CameraPose] = dataclasses.field(default_factory=dict)
    frames: dict[str, str] = dataclasses.field(default_factory=dict)  # of coordinates, where there are several


def read_photos(source: str | Path, root: str | Path | None = None) -> ListedPhotos:
    """A folder of photos, a kapture dataset, or a list of hloc or COLMAP with names below `root`.

    A list has a name per line, and may have MODEL, width, height and parameters after it. Without a root its names are
    looked for beside it, and in `images` beside it.
    """
    path = Path(source)
    if (path / KAPTURE_RECORDS).is_file():
        return _read_kapture(path)
    if path.suffix == ".txt" and path.is_file():
        return _read_list(path, None if root is None else Path(root))
    listing = list_photos([path])
    if not listing.photos:
        raise DatasetError(nothing_there([path], listing))
    return ListedPhotos(listing.photos)


def read_lines(path: Path) -> list[tuple[int, str]]:
    """The lines of a text file that say something, with their numbers; `#` begins a remark."""
    with explained(path, "read"):
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise DatasetError(f"{path} is not a text file; give a list with a name per line") from None
    numbered = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1)]
    return [(number, line) for number, line in numbered if line and not line.startswith("#")]


def _read_list(path: Path, root: Path | None) -> ListedPhotos:
    found: dict[str, Photo] = {}
    cameras: dict[str, CameraModel] = {}
    for number, line in read_lines(path):
        name, *words = line.split()
        if line != name and _place(path, line, root).is_file():  # a name with spaces
            name, words = line, []
        found[name] = Photo(_place(path, name, root), name)
        if words:
            cameras[name] = camera_of(words, f"{path}, line {number}")
    if not found:
        raise DatasetError(f"{path} names no photo; write a name per line")
    return ListedPhotos(list(found.values()), cameras)


def _place(path: Path, name: str, root: Path | None) -> Path:
    if root is not None:
        return root / name
    beside = path.parent / name
    return beside if beside.exists() else path.parent / "images" / name


def _table(path: Path, columns: int) -> list[tuple[int, list[str]]]:
    rows = [(number, [part.strip() for part in line.split(",")]) for number, line in read_lines(path)]
    for number, row in rows:
        if len(row) < columns:
            raise DatasetError(f"{path}, line {number}: {len(row)} columns, and {columns} are needed; is it kapture's?")
    return rows


def _read_kapture(folder: Path) -> ListedPhotos:
    sensors: dict[str, CameraModel] = {}
    for number, row in _table(folder / KAPTURE_SENSORS, 3) if (folder / KAPTURE_SENSORS).is_file() else []:
        if row[2] == "camera" and row[3:4] != ["UNKNOWN_CAMERA"]:
            sensors[row[0]] = camera_of(
                row[3:],
                f"{folder / KAPTURE_SENSORS}, line {number}",
            )
    poses = _read_trajectories(folder / KAPTURE_POSES)
    made = ListedPhotos([])
    for _, (time, device, name, *_rest) in _table(folder / KAPTURE_RECORDS, 3):
        made.photos.append(Photo(folder / KAPTURE_PHOTOS / name, name))
        if device in sensors:
            made.cameras[name] = sensors[device]
        if (time, device) in poses:
            made.poses[name] = poses[time, device]
    if not made.photos:
        raise DatasetError(f"{folder / KAPTURE_RECORDS} names no photo")
    return made


def _read_trajectories(path: Path) -> dict[tuple[str, str], CameraPose]:
    found: dict[tuple[str, str], CameraPose] = {}
    for number, row in _table(path, 9) if path.is_file() else []:
        try:
            values = [float(value) for value in row[2:9]]
        except ValueError:
            continue  # kapture leaves out what is not known
        if not any(values[:4]):
            raise DatasetError(f"{path}, line {number}: a rotation of length 0; is the file damaged?")
        found[row[0], row[1]] = CameraPose(
            (values[0], values[1], values[2], values[3]), (values[4], values[5], values[6])
        )
    return found
