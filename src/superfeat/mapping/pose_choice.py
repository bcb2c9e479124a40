"""One pose from matches of which most may be wrong: drawn in several ways, judged in one.

How many matches agree within a wide tolerance does not tell a right pose from a wrong one where few do: a wrong one
gathers matches at the edge of the tolerance, of a right one they are close. So poses are judged by how close (MSAC).

The more photos a query is matched with, the more of its matches are wrong: a right point of the model is the same in
every photo, wrong ones differ. Among thousands of pairs a few right ones may be too few to be drawn by chance, while
among those that two photos say they are most.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int64

from superfeat.mapping.cameras import CameraModel
from superfeat.mapping.colmap import PoseFound, camera_found, distances_of, find_pose, refine_pose

LEAST_SAID_TWICE = 12  # pairs, for a pose from these alone


class Pairs(NamedTuple):
    """Points of a query and of a model that may be the same, each pair once."""

    query: Int64[np.ndarray, "n"]  # numbers of the query's points
    places: Float64[np.ndarray, "n 2"]
    points: Float64[np.ndarray, "n 3"]
    photos: Int64[np.ndarray, "n"]  # how many photos say so


class JudgedPose(NamedTuple):
    """A pose, and how well all pairs agree with it. A point of the query counts once, with its nearest."""

    found: PoseFound  # its inliers are pairs
    points: int  # of the query, within the tolerance
    closeness: float  # the sum over them of 1 - (distance / tolerance)^2


def best_pose(pairs: Pairs, camera: CameraModel, max_error: float) -> JudgedPose | None:
    """The pose that the points of the query are closest to: of all pairs, with the tolerance given or with half of it,
    or of those pairs that several photos say.
    """
    drawn = [find_pose(pairs.places, pairs.points, camera, error) for error in (max_error, max_error / 2)]
    often = pairs.photos >= 2
    if LEAST_SAID_TWICE <= often.sum() < len(often):
        some = find_pose(pairs.places[often], pairs.points[often], camera, max_error)
        drawn.append(some and refine_pose(some, pairs.places, pairs.points, camera, max_error))
    judged = [judge(pairs, found, camera, max_error) for found in drawn if found is not None]
    return max(judged, key=lambda one: one.closeness, default=None)


def judge(pairs: Pairs, found: PoseFound, camera: CameraModel, max_error: float) -> JudgedPose:
    """A pose by all pairs."""
    far = distances_of(found.pose, pairs.places, pairs.points, camera_found(camera, found))
    nearest = np.full(int(pairs.query.max()) + 1, np.inf)
    np.minimum.at(nearest, pairs.query, far)
    within = nearest[nearest <= max_error]
    closeness = float((1 - (within / max_error) ** 2).sum())
    return JudgedPose(found._replace(inliers=far <= max_error), len(within), closeness)
