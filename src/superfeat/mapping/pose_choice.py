"""One pose from matches of which most may be wrong: drawn in two ways, judged in one.

The more photos a query is matched with, the more of its matches are wrong: a right point of the model is the same in
every photo, wrong ones differ. So among a thousand pairs a few right ones may be too few to be drawn by chance, while
among those that two photos say they are most.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int64

from superfeat.mapping.cameras import CameraModel
from superfeat.mapping.colmap import PoseFound, find_pose, refine_pose

LEAST_SAID_TWICE = 12  # pairs, for a pose from these alone


class Pairs(NamedTuple):
    """Points of a query and of a model that may be the same, each pair once."""

    query: Int64[np.ndarray, "n"]  # numbers of the query's points
    places: Float64[np.ndarray, "n 2"]
    points: Float64[np.ndarray, "n 3"]
    photos: Int64[np.ndarray, "n"]  # how many photos say so


def best_pose(pairs: Pairs, camera: CameraModel, max_error: float) -> PoseFound | None:
    """The pose that the most points of the query agree with: of all pairs, or of those that several photos say.

    Both are judged by all pairs. A point of the query counts once, however many points of the model it has.
    """
    best = find_pose(pairs.places, pairs.points, camera, max_error)
    often = pairs.photos >= 2
    if LEAST_SAID_TWICE <= often.sum() < len(often):
        some = find_pose(pairs.places[often], pairs.points[often], camera, max_error)
        other = None if some is None else refine_pose(some, pairs.places, pairs.points, camera, max_error)
        if other is not None and (best is None or agreeing(pairs, other) > agreeing(pairs, best)):
            return other
    return best


def agreeing(pairs: Pairs, found: PoseFound) -> int:
    """Points of the query that a pose is right for."""
    return len(np.unique(pairs.query[found.inliers]))
