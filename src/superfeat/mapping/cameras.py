"""Cameras and where they stood, in COLMAP's convention: x_cam = R x_world + t."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64

from superfeat.errors import DatasetError

PARAMETERS = {
    "SIMPLE_PINHOLE": 3,
    "PINHOLE": 4,
    "SIMPLE_RADIAL": 4,
    "RADIAL": 5,
    "OPENCV": 8,
    "OPENCV_FISHEYE": 8,
    "FULL_OPENCV": 12,
    "SIMPLE_RADIAL_FISHEYE": 4,
    "RADIAL_FISHEYE": 5,
    "THIN_PRISM_FISHEYE": 12,
    "FOV": 5,
}
GUESSED_FOCAL = 1.2  # of the longer side, where nothing is known


class CameraModel(NamedTuple):
    """Intrinsics, as COLMAP and hloc name them."""

    model: str
    width: int
    height: int
    params: tuple[float, ...]
    guessed: bool = False


class CameraPose(NamedTuple):
    """World to camera: a unit quaternion w, x, y, z and a translation."""

    qvec: tuple[float, float, float, float]
    tvec: tuple[float, float, float]

    def rotation(self) -> Float64[np.ndarray, "3 3"]:
        """As a matrix."""
        w, x, y, z = np.asarray(self.qvec, np.float64) / np.linalg.norm(self.qvec)
        return np.asarray(
            [
                [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
                [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
                [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
            ]
        )

    def centre(self) -> Float64[np.ndarray, "3"]:
        """Where the camera stood."""
        return np.asarray(-self.rotation().T @ np.asarray(self.tvec, np.float64))


class PoseError(NamedTuple):
    """How far one pose is from another."""

    distance: float  # of the centres
    degrees: float


def pose_error(found: CameraPose, true: CameraPose) -> PoseError:
    """Distance of the centres, and the angle of the rotation between both."""
    turned = found.rotation() @ true.rotation().T
    cosine = np.clip((np.trace(turned) - 1) / 2, -1.0, 1.0)
    distance = float(np.linalg.norm(found.centre() - true.centre()))
    return PoseError(distance, math.degrees(math.acos(float(cosine))))


def camera_of(words: Sequence[str], where: str) -> CameraModel:
    """From MODEL, width, height and parameters, as files have them."""
    model = words[0] if words else ""
    if model not in PARAMETERS:
        raise DatasetError(f"{where}: {model!r} is no camera model of COLMAP; known are {', '.join(PARAMETERS)}")
    try:
        width, height = int(float(words[1])), int(float(words[2]))
        params = tuple(float(word) for word in words[3:])
    except (IndexError, ValueError, OverflowError):
        raise DatasetError(f"{where}: write MODEL width height and the parameters, as numbers") from None
    if len(params) != PARAMETERS[model] or min(width, height) < 1 or not np.isfinite(params).all():
        raise DatasetError(
            f"{where}: {model} needs a size and {PARAMETERS[model]} finite parameters, not {len(params)}"
        )
    return CameraModel(model, width, height, params)


def pose_of(words: Sequence[str | float], where: str) -> CameraPose:
    """From qw, qx, qy, qz, tx, ty, tz, as files have them."""
    try:
        values = [float(word) for word in words]
    except (ValueError, OverflowError):
        values = []
    if len(values) != 7 or not np.isfinite(values).all() or not any(values[:4]):
        raise DatasetError(f"{where}: a pose is four numbers of a rotation and three of a translation")
    w, x, y, z, a, b, c = values
    return CameraPose((w, x, y, z), (a, b, c))


def guessed_camera(width: int, height: int) -> CameraModel:
    """For a photo that nothing is known of."""
    focal = GUESSED_FOCAL * max(width, height)
    return CameraModel("SIMPLE_RADIAL", width, height, (focal, width / 2, height / 2, 0.0), guessed=True)
