"""Poses as other programs read them: lines of hloc, COLMAP's text files, kapture's tables."""

from collections.abc import Sequence
from pathlib import Path

from superfeat.errors import DatasetError
from superfeat.mapping.cameras import CameraModel, CameraPose, pose_of
from superfeat.mapping.image_lists import read_lines
from superfeat.mapping.localize import Located
from superfeat.storage.store import explained, write_file

KAPTURE_HEAD = "# kapture format: 1.1"


def pose_line(name: str, pose: CameraPose) -> str:
    """name qw qx qy qz tx ty tz: world to camera, as hloc and the benchmarks of visual localization have it."""
    return " ".join([name, *(f"{value:.9g}" for value in (*pose.qvec, *pose.tvec))])


def read_poses_file(path: Path) -> dict[str, CameraPose]:
    """Lines of hloc, by name."""
    found: dict[str, CameraPose] = {}
    for number, line in read_lines(path):
        name, *words = line.split()
        if name in found:
            raise DatasetError(f"{path}, line {number}: {name} has a pose already; leave one of both")
        found[name] = pose_of(words, f"{path}, line {number}")
    if not found:
        raise DatasetError(f"{path} has no pose; write name qw qx qy qz tx ty tz in each line")
    return found


def write_poses(folder: Path, found: Sequence[Located]) -> list[Path]:
    """poses.txt, images.txt with cameras.txt, and a kapture dataset, of those that have a pose."""
    posed = [(one, one.pose, one.camera) for one in found if one.pose is not None and one.camera is not None]
    files = {
        "poses.txt": [pose_line(one.name, pose) for one, pose, _ in posed],
        "cameras.txt": [f"{n} {_camera_words(camera, ' ')}" for n, (_, _, camera) in enumerate(posed, 1)],
        "images.txt": [line for n, (one, pose, _) in enumerate(posed, 1) for line in _image_lines(n, one.name, pose)],
        "kapture/sensors/sensors.txt": [
            KAPTURE_HEAD,
            "# sensor_device_id, name, sensor_type, [sensor_params]+",
            *(f"camera{n}, camera{n}, camera, {_camera_words(camera, ', ')}" for n, (_, _, camera) in enumerate(posed)),
        ],
        "kapture/sensors/records_camera.txt": [
            KAPTURE_HEAD,
            "# timestamp, device_id, image_path",
            *(f"{n}, camera{n}, {one.name}" for n, (one, _, _) in enumerate(posed)),
        ],
        "kapture/sensors/trajectories.txt": [
            KAPTURE_HEAD,
            "# timestamp, device_id, qw, qx, qy, qz, tx, ty, tz",
            *(f"{n}, camera{n}, {_values(pose)}" for n, (_, pose, _) in enumerate(posed)),
        ],
    }
    for name, lines in files.items():
        with explained(folder / name):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_file(folder / name, "".join(f"{line}\n" for line in lines).encode())
    return [folder / name for name in files]


def _values(pose: CameraPose) -> str:
    return ", ".join(f"{value:.9g}" for value in (*pose.qvec, *pose.tvec))


def _camera_words(camera: CameraModel, between: str) -> str:
    params = [f"{value:.9g}" for value in camera.params]
    return between.join([camera.model, str(camera.width), str(camera.height), *params])


def _image_lines(number: int, name: str, pose: CameraPose) -> list[str]:
    """The second line has the points of the image: none."""
    values = " ".join(f"{value:.9g}" for value in (*pose.qvec, *pose.tvec))
    return [f"{number} {values} {number} {name}", ""]
