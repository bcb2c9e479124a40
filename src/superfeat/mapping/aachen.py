"""Aachen Day-Night v1.1 as published: photos with poses for the map, queries by day and by night without.

The poses of its queries are kept by the benchmark's server, visuallocalization.net, which takes a text file of poses.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from superfeat.errors import DatasetError, ImageError
from superfeat.images import Photo, Skipped
from superfeat.mapping.build_map import camera_for
from superfeat.mapping.cameras import CameraModel, CameraPose, camera_of, pose_of
from superfeat.mapping.colmap import as_pose
from superfeat.mapping.image_lists import ListedPhotos, read_lines, read_photos
from superfeat.mapping.map_folder import read_model
from superfeat.mapping.measure import QueryResult
from superfeat.mapping.pose_files import pose_line, read_poses_file
from superfeat.mapping.scenes import LocalizationSet
from superfeat.storage.store import explained, write_file

AACHEN = "aachen-v1.1"
IMAGES = Path("images") / "images_upright"
MODEL = Path("3D-models") / "aachen_v_1_1"
NVM, INTRINSICS = MODEL / "aachen_v_1_1.nvm", MODEL / "database_intrinsics_v1_1.txt"
LISTS = {
    light: Path("queries") / f"{light}_time_queries_with_intrinsics.txt"
    for light in ("day", "night")  # in the order in which their poses are written
}
POSES = Path("queries") / "poses.txt"  # not part of what is published: for those who have them
LAYOUT = (
    f"{IMAGES.as_posix()} with db, sequences and query; {NVM.as_posix()} with {INTRINSICS.name} beside it, or a COLMAP "
    f"model in {MODEL.as_posix()}; {' and '.join(path.as_posix() for path in LISTS.values())}"
)
NVM_HEAD = "NVM_V3"
NVM_WORDS = 11  # name, focal length, rotation, centre, distortion, 0


def is_aachen(folder: str | Path) -> bool:
    """Whether a folder is laid out as Aachen is."""
    return (Path(folder) / MODEL).is_dir()


def read_aachen(folder: str | Path, poses: str | Path | None = None) -> LocalizationSet:
    """The set below `folder`. True poses of queries come from a file, `queries/poses.txt` by default, if there is one.

    A photo whose size is not that of its camera is left out, and told by `skipped`.
    """
    root = Path(folder)
    _require(root, [IMAGES, MODEL, *LISTS.values()])
    made = LocalizationSet(root / IMAGES, _database(root), ListedPhotos([]), {AACHEN: 1.0})
    for light, path in LISTS.items():
        listed = read_photos(root / path, root / IMAGES)
        for photo in listed.photos:
            if photo.name not in listed.cameras:
                raise DatasetError(f"{root / path}: {photo.name} has no camera; is it a list with intrinsics?")
            made.groups[photo.name] = light
        made.queries.photos.extend(listed.photos)
        made.queries.cameras.update(listed.cameras)
    _no_name_twice(made.queries.photos)
    _all_there(root, [*made.photos.photos, *made.queries.photos])
    for some in (made.photos, made.queries):
        made.skipped.extend(_leave_out(some))
        some.frames.update((photo.name, AACHEN) for photo in some.photos)
    given = root / POSES if poses is None else Path(poses)
    if poses is not None or given.is_file():
        made.queries.poses.update(_query_poses(given, made.queries.photos))
    return made


def write_all_poses(folder: Path, results: Sequence[QueryResult], scenes: LocalizationSet) -> list[Path]:
    """A file that the server takes for each way of retrieval and number of photos retrieved."""
    found: dict[tuple[str, int], dict[str, CameraPose]] = {}
    for one in results:
        mine = found.setdefault((one["method"], one["top"]), {})
        if one["pose"] is not None:
            mine[one["query"]] = pose_of(one["pose"], one["query"])
    written = []
    for (method, top), poses in found.items():
        written.append(folder / f"{method}-top{top}.txt")
        write_aachen_poses(written[-1], poses, scenes.groups)
    return written


def write_aachen_poses(path: Path, found: Mapping[str, CameraPose], groups: Mapping[str, str]) -> None:
    """Poses of queries, those by day first. The server knows photos by their file names alone."""
    order = [name for light in LISTS for name in groups if groups[name] == light and name in found]
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, "".join(f"{pose_line(_file_name(name), found[name])}\n" for name in order).encode())


def _file_name(name: str) -> str:
    return name.rsplit("/", 1)[-1]


def _require(root: Path, paths: Iterable[Path]) -> None:
    missing = [path.as_posix() for path in paths if not (root / path).exists()]
    if missing:
        raise DatasetError(f"{root} has no {missing[0]}; {AACHEN} is a folder with {LAYOUT}")


def _no_name_twice(queries: Iterable[Photo]) -> None:
    seen: dict[str, str] = {}
    for photo in queries:
        before = seen.setdefault(_file_name(photo.name), photo.name)
        if before != photo.name:
            raise DatasetError(
                f"the queries {before} and {photo.name} have one file name, and the server knows no other; rename one"
            )


def _all_there(root: Path, photos: list[Photo]) -> None:
    missing = [photo.name for photo in photos if not photo.path.is_file()]
    if missing:
        raise DatasetError(
            f"{root / IMAGES} lacks {len(missing)} of {len(photos)} photos ({missing[0]}, …); unpack all parts of the "
            "set into it"
        )


def _leave_out(listed: ListedPhotos) -> list[Skipped]:
    """Takes out photos that their camera does not fit, or that cannot be read."""
    skipped = []
    for photo in list(listed.photos):
        try:
            camera_for(photo, listed)
        except ImageError as error:
            skipped.append(Skipped(photo.name, str(error)))
    left = {one.name for one in skipped}
    listed.photos[:] = [photo for photo in listed.photos if photo.name not in left]
    return skipped


def _query_poses(path: Path, queries: Iterable[Photo]) -> dict[str, CameraPose]:
    """By the names of the list; the file may have these, or file names alone."""
    full = {_file_name(photo.name): photo.name for photo in queries}
    found = read_poses_file(path)
    strangers = [name for name in found if _file_name(name) not in full]
    if strangers:
        raise DatasetError(f"{path}: {strangers[0]} is no query of {AACHEN}; give poses of its queries alone")
    return {full[_file_name(name)]: pose for name, pose in found.items()}


# -- Photos of the map


def _database(root: Path) -> ListedPhotos:
    """Photos with cameras and poses: of the NVM, which is small to read, or else of COLMAP's model."""
    found = _read_nvm(root) if (root / NVM).is_file() else _read_colmap(root)
    if len(found.photos) < 2:
        raise DatasetError(f"{root / MODEL} has {len(found.photos)} photos, and a map needs two at least")
    return found


def _read_nvm(root: Path) -> ListedPhotos:
    _require(root, [INTRINSICS])
    cameras: dict[str, CameraModel] = {}
    for number, line in read_lines(root / INTRINSICS):
        name, *words = line.split()
        cameras[name.removeprefix("./")] = camera_of(words, f"{root / INTRINSICS}, line {number}")
    made = ListedPhotos([])
    for name, pose in _nvm_poses(root / NVM):
        if name not in cameras:
            raise DatasetError(f"{root / INTRINSICS} has no camera of {name}, which {NVM.name} has a pose of")
        _add(made, root, name, cameras[name], pose)
    return made


def _nvm_poses(path: Path) -> Iterator[tuple[str, CameraPose]]:
    """Of its cameras; what follows them, the points, is not read."""
    with explained(path, "read"), path.open(encoding="utf-8", errors="replace") as file:
        if not file.readline().startswith(NVM_HEAD):
            raise DatasetError(f"{path} does not begin with {NVM_HEAD}; is it VisualSFM's file?")
        lines = ((number, line.split()) for number, line in enumerate(file, 2))
        filled = ((number, words) for number, words in lines if words)
        number, words = next(filled, (2, []))
        if len(words) != 1 or not words[0].isdecimal():
            raise DatasetError(f"{path}, line {number}: the number of cameras is expected here")
        rows = list(islice(filled, int(words[0])))
        if len(rows) < int(words[0]):
            raise DatasetError(f"{path} ends after {len(rows)} of {words[0]} cameras; copy it again")
    for number, words in rows:
        yield words[0].removeprefix("./"), _nvm_pose(words, f"{path}, line {number}")


def _nvm_pose(words: list[str], where: str) -> CameraPose:
    """VisualSFM notes the camera's centre in place of a translation."""
    if len(words) != NVM_WORDS:
        raise DatasetError(f"{where}: a camera has {NVM_WORDS} words, not {len(words)}; is the file cut?")
    turned = pose_of([*words[2:6], "0", "0", "0"], where)
    centre = np.asarray(pose_of(["1", "0", "0", "0", *words[6:9]], where).tvec)
    x, y, z = (float(value) for value in -turned.rotation() @ centre)
    return CameraPose(turned.qvec, (x, y, z))


def _read_colmap(root: Path) -> ListedPhotos:
    folder = root / MODEL
    if not any((folder / f"images{ending}").is_file() for ending in (".bin", ".txt")):
        raise DatasetError(f"{folder} has neither {NVM.name} nor a COLMAP model; {AACHEN} is a folder with {LAYOUT}")
    model = read_model(folder)
    made = ListedPhotos([])
    for image in sorted((model.image(number) for number in model.reg_image_ids()), key=lambda one: str(one.name)):
        _add(made, root, image.name, _camera(model.camera(image.camera_id)), as_pose(image.cam_from_world()))
    return made


def _camera(camera: Any) -> CameraModel:
    return CameraModel(camera.model_name, camera.width, camera.height, tuple(float(value) for value in camera.params))


def _add(made: ListedPhotos, root: Path, name: str, camera: CameraModel, pose: CameraPose) -> None:
    made.photos.append(Photo(root / IMAGES / name, name))
    made.cameras[name], made.poses[name] = camera, pose
