"""pycolmap, behind a few calls of ours: cameras, poses, verified matches, models."""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64, Int64

from superfeat.errors import MissingExtraError
from superfeat.mapping.cameras import CameraModel, CameraPose
from superfeat.mapping.local.interface import LocalPoints

SEED = 0
LEAST_INLIERS = 15  # of two photos, as COLMAP has it
QUIET = 3  # of its log: fatal errors alone


@functools.cache
def colmap() -> Any:
    """pycolmap, or an error that says how to install it."""
    try:
        import pycolmap
    except ImportError as error:
        raise MissingExtraError("making maps", "mapping") from error
    pycolmap.logging.minloglevel = QUIET
    return pycolmap


def as_camera(camera: CameraModel) -> Any:
    """As pycolmap has it."""
    made = colmap().Camera(
        model=camera.model, width=camera.width, height=camera.height, params=np.asarray(camera.params)
    )
    made.has_prior_focal_length = not camera.guessed
    return made


def as_rigid(pose: CameraPose) -> Any:
    """World to camera, as pycolmap has it."""
    w, x, y, z = pose.qvec
    length = float(np.linalg.norm(pose.qvec))
    rotation = colmap().Rotation3d(np.asarray([x, y, z, w]) / length)
    return colmap().Rigid3d(rotation, np.asarray(pose.tvec, np.float64))


def as_pose(rigid: Any) -> CameraPose:
    """From pycolmap."""
    x, y, z, w = (float(value) for value in rigid.rotation.quat)
    a, b, c = (float(value) for value in rigid.translation)
    return CameraPose((w, x, y, z), (a, b, c))


def verify_pair(
    cameras: tuple[CameraModel, CameraModel], points: tuple[LocalPoints, LocalPoints], matches: Int64[np.ndarray, "m 2"]
) -> Any | None:
    """The geometry of two photos with the matches that agree with it; None if too few do."""
    if len(matches) < LEAST_INLIERS:
        return None
    known = not any(camera.guessed for camera in cameras)
    estimate = colmap().estimate_calibrated_two_view_geometry if known else colmap().estimate_two_view_geometry
    options = colmap().TwoViewGeometryOptions()
    options.ransac.random_seed, options.ransac.num_threads = SEED, 1
    options.min_num_inliers = LEAST_INLIERS
    one, other = (np.asarray(found.places, np.float64) for found in points)
    geometry = estimate(as_camera(cameras[0]), one, as_camera(cameras[1]), other, matches.astype(np.uint32), options)
    return geometry if len(geometry.inlier_matches) >= LEAST_INLIERS else None


class MapPhoto(NamedTuple):
    """A photo of a map."""

    name: str
    camera: CameraModel
    pose: CameraPose | None


class VerifiedMatches(NamedTuple):
    """Of two photos, by their numbers."""

    first: int
    second: int
    geometry: Any


def write_database(
    path: Path, photos: Sequence[MapPhoto], points: Mapping[int, np.ndarray], matches: Sequence[VerifiedMatches]
) -> None:
    """A new COLMAP database; image number n of ours is image n + 1 there."""
    path.unlink(missing_ok=True)
    with colmap().Database.open(str(path)) as database:
        for number, photo in enumerate(photos):
            camera = as_camera(photo.camera)
            camera.camera_id = number + 1
            database.write_camera(camera, use_camera_id=True)
            rig = colmap().Rig(rig_id=number + 1)
            rig.add_ref_sensor(camera.sensor_id)
            database.write_rig(rig, use_rig_id=True)
            image = colmap().Image(name=photo.name, camera_id=number + 1, image_id=number + 1)
            database.write_image(image, use_image_id=True)
            frame = colmap().Frame(frame_id=number + 1, rig_id=number + 1)
            frame.add_data_id(image.data_id)
            database.write_frame(frame, use_frame_id=True)
            database.write_keypoints(number + 1, points[number].astype(np.float32))
        for one in matches:
            database.write_matches(one.first + 1, one.second + 1, one.geometry.inlier_matches)
            database.write_two_view_geometry(one.first + 1, one.second + 1, one.geometry)


def triangulate(database: Path, photos: Sequence[MapPhoto], output: Path) -> Any:
    """The points of a map whose poses are all known."""
    known = colmap().Reconstruction()
    for number, photo in enumerate(photos, 1):
        camera = as_camera(photo.camera)
        camera.camera_id = number
        known.add_camera_with_trivial_rig(camera)
        image = colmap().Image(name=photo.name, camera_id=number, image_id=number)
        assert photo.pose is not None
        known.add_image_with_trivial_frame(image, as_rigid(photo.pose))
    output.mkdir(parents=True, exist_ok=True)
    options = colmap().IncrementalPipelineOptions()
    options.num_threads, options.random_seed, options.extract_colors = 1, SEED, False
    return colmap().triangulate_points(known, str(database), str(output), str(output), options=options)


def reconstruct(database: Path, output: Path) -> list[Any]:
    """Models by incremental mapping, the largest first."""
    output.mkdir(parents=True, exist_ok=True)
    options = colmap().IncrementalPipelineOptions()
    options.num_threads, options.random_seed, options.extract_colors = 1, SEED, False
    options.min_model_size = 3
    found = colmap().incremental_mapping(str(database), str(output), str(output), options=options)
    return sorted(found.values(), key=lambda model: -model.num_reg_images())


class PoseFound(NamedTuple):
    """A pose, which of the points agree with it, and its covariance (rotation, then centre) as a 6 x 6 matrix."""

    pose: CameraPose
    inliers: np.ndarray
    covariance: Float64[np.ndarray, "6 6"] | None
    focal: float


def find_pose(
    places: Float64[np.ndarray, "n 2"], points: Float64[np.ndarray, "n 3"], camera: CameraModel, max_error: float
) -> PoseFound | None:
    """The pose that the most points agree with; a guessed focal length is found with it."""
    if len(places) < 4:
        return None
    estimation, refinement = colmap().AbsolutePoseEstimationOptions(), colmap().AbsolutePoseRefinementOptions()
    estimation.ransac.max_error, estimation.ransac.random_seed = max_error, SEED
    estimation.ransac.num_threads = 1
    estimation.estimate_focal_length = refinement.refine_focal_length = camera.guessed
    used = as_camera(camera)
    found = colmap().estimate_and_refine_absolute_pose(places, points, used, estimation, refinement, True)
    return None if found is None else _pose_found(found, np.asarray(found["inlier_mask"], np.bool_), used)


def refine_pose(
    begun: PoseFound,
    places: Float64[np.ndarray, "n 2"],
    points: Float64[np.ndarray, "n 3"],
    camera: CameraModel,
    max_error: float,
) -> PoseFound | None:
    """A pose that was found from some of these points, by all that agree with it; None if they are too few."""
    used = camera_found(camera, begun)
    options = colmap().AbsolutePoseRefinementOptions()
    options.refine_focal_length = camera.guessed
    near = distances_of(begun.pose, places, points, used) <= max_error
    if near.sum() < 4:
        return None
    found = colmap().refine_absolute_pose(as_rigid(begun.pose), places, points, near, used, options, True)
    if found is None:
        return None
    return _pose_found(found, near, used)


def camera_found(camera: CameraModel, found: PoseFound) -> Any:
    """As pycolmap has it, with the focal length that was found with a pose where none is known."""
    made = as_camera(camera)
    if camera.guessed:
        scale = found.focal / made.mean_focal_length()
        for place in made.focal_length_idxs():
            made.params[place] *= scale
    return made


def distances_of(
    pose: CameraPose, places: Float64[np.ndarray, "n 2"], points: Float64[np.ndarray, "n 3"], camera: Any
) -> Float64[np.ndarray, "n"]:
    """Pixels from each place to where a camera at this pose sees its point; infinite for points behind it."""
    seen = points @ pose.rotation().T + np.asarray(pose.tvec)
    far = np.full(len(points), np.inf)
    ahead = seen[:, 2] > 0
    gaps = np.asarray(camera.img_from_cam(seen[ahead])).reshape(-1, 2) - places[ahead]
    far[ahead] = np.linalg.norm(gaps, axis=1)
    return far


def _pose_found(found: Any, inliers: np.ndarray, camera: Any) -> PoseFound:
    rigid, covariance = found["cam_from_world"], found.get("covariance")
    if covariance is not None and np.shape(covariance) == (6, 6):
        covariance = np.asarray(colmap().get_covariance_for_inverse(rigid, covariance))
    else:
        covariance = None
    return PoseFound(as_pose(rigid), inliers, covariance, float(camera.mean_focal_length()))
