"""Where a photo was taken: the photos most like it, matches with their points, and a pose that they agree on.

Photos that were found may be of several places. Those that see common points of one model are a cluster, and the pose
is that of the cluster with which the most matches agree, never of all matches together.
"""

import dataclasses
import math
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Int64

from superfeat.engine import Engine
from superfeat.errors import ImageError
from superfeat.images import Photo
from superfeat.mapping.build_map import camera_for
from superfeat.mapping.cameras import CameraModel, CameraPose
from superfeat.mapping.colmap import PoseFound
from superfeat.mapping.image_lists import ListedPhotos
from superfeat.mapping.local.interface import LocalPoints
from superfeat.mapping.map_folder import INDEX, OpenMap, find_points
from superfeat.mapping.pose_choice import JudgedPose, Pairs, best_pose
from superfeat.mapping.rows import Forest
from superfeat.work import Work

LEAST_INLIERS = 12  # for a pose
GOOD_INLIERS = 30
RIVAL = 0.5  # another cluster with so many of the inliers makes a pose doubtful
LEAST_SHARED = 5  # points that two photos of a cluster see both
MAX_ERROR = 12.0  # pixels, of a photo 1000 pixels wide
Trust = Literal["good", "doubtful", "none"]


class Match(NamedTuple):
    """What a photo of the map adds: points of the query, and points of the model."""

    number: int  # of the photo
    model: int
    query: Int64[np.ndarray, "m"]
    points: Int64[np.ndarray, "m"]


@dataclasses.dataclass(frozen=True, eq=False)
class Located:
    """Where a photo was taken, or why that is not known."""

    name: str
    reason: str  # in words, whether there is a pose or not
    trust: Trust = "none"
    pose: CameraPose | None = None
    camera: CameraModel | None = None
    model: int | None = None
    inliers: int = 0
    matches: int = 0
    deviation: float | None = None  # of the place, in units of the map; of what a pose that is right leaves open
    retrieved: tuple[int, ...] = ()  # photos of the map
    cluster: tuple[int, ...] = ()  # those of them that the pose is of
    lines: tuple[tuple[int, tuple[tuple[float, float], ...]], ...] = ()  # agreeing points in the query, by photo


class LocalizeProgress(NamedTuple):
    """How many queries are done."""

    done: int
    queries: int


def localize(
    folder: str | Path, queries: ListedPhotos, *, top: int = 20, weights: str | None = None
) -> Work[LocalizeProgress, list[Located]]:
    """A pose, or why there is none, for each query."""
    return Work(_localize(OpenMap(folder), queries, top, weights))


def _localize(
    where: OpenMap, queries: ListedPhotos, top: int, weights: str | None
) -> Generator[LocalizeProgress, None, list[Located]]:
    engine = Engine.open(where.folder / INDEX, weights=weights)
    found: list[Located] = []
    for photo in queries.photos:
        try:
            camera = camera_for(photo, queries)
            numbers = retrieve(engine, where, photo, top)
            found.append(locate(where, photo.name, find_points(photo, where.method), camera, numbers))
        except ImageError as error:
            found.append(Located(photo.name, f"cannot be used: {error}"))
        yield LocalizeProgress(len(found), len(queries.photos))
    return found


def retrieve(engine: Engine, where: OpenMap, photo: Photo, top: int) -> list[int]:
    """The photos of the map most like one, best first."""
    hits = engine.search(photo.path, top=top)
    return [where.numbers[hit.path] for hit in hits if hit.path in where.numbers and hit.score > 0]


def locate(where: OpenMap, name: str, points: LocalPoints, camera: CameraModel, numbers: Sequence[int]) -> Located:
    """The pose of a photo by its points and the photos that it is to be matched with."""
    if not numbers:
        return Located(name, "nothing like it is in the map; add photos of this place", camera=camera)
    matches = [match for number in numbers if (match := match_with(where, points, number)) is not None]
    return agree(where, Located(name, "", camera=camera, retrieved=tuple(numbers)), points, camera, matches)


def agree(
    where: OpenMap, asked: Located, points: LocalPoints, camera: CameraModel, matches: Sequence[Match]
) -> Located:
    """The pose of the cluster with which the most matches agree."""
    if not matches:
        return dataclasses.replace(asked, reason="none of the photos found has a place in the map")
    best: tuple[JudgedPose, list[Match]] | None = None
    rival = 0  # points that agree with the best of the other clusters
    for cluster in clusters(where, matches):
        pairs = correspondences(where, points, cluster)
        if len(pairs.query) < LEAST_INLIERS:
            continue
        pose = best_pose(pairs, camera, MAX_ERROR * max(camera.width, camera.height) / 1000)
        if pose is not None and (best is None or pose.closeness > best[0].closeness):
            rival = max(rival, 0 if best is None else best[0].points)
            best = pose, cluster
        elif pose is not None:
            rival = max(rival, pose.points)
    if best is None or best[0].points < LEAST_INLIERS:
        most = 0 if best is None else best[0].points
        said = f"only {most} matches agree on a place, and {LEAST_INLIERS} are needed"
        total = sum(len(match.query) for match in matches)
        return dataclasses.replace(asked, reason=said, inliers=most, matches=total)
    return _described(where, asked, points, camera, best, rival)


def match_with(where: OpenMap, points: LocalPoints, number: int) -> Match | None:
    """The points of a model that a photo of it shares with the query; None if it has no place in one."""
    place = where.registered.get(number)
    if place is None:
        return None
    found = where.method.match(points, where.points[number])
    seen = points_of(where, number)[found[:, 1]] if len(found) else np.empty(0, np.int64)
    known = seen >= 0
    return Match(number, place.model, found[known, 0], seen[known])


def points_of(where: OpenMap, number: int) -> Int64[np.ndarray, "n"]:
    """For each local point of a photo the number of its point in the model, -1 if it has none."""
    found = where.seen.get(str(number))
    if found is None:
        place = where.registered[number]
        image = where.models[place.model].image(place.image)
        found = np.asarray([one.point3D_id if one.has_point3D() else -1 for one in image.points2D], np.int64)
        where.seen.put(str(number), found)
    return found


def clusters(where: OpenMap, matches: Sequence[Match]) -> list[list[Match]]:
    """Photos that see common points, those with the most matches first."""
    seen = [np.unique(points_of(where, match.number)) for match in matches]
    forest = Forest(len(matches))
    for one in range(len(matches)):
        for other in range(one):
            same = matches[one].model == matches[other].model
            if same and len(np.intersect1d(seen[one], seen[other], assume_unique=True)) > LEAST_SHARED:  # one is -1
                forest.join(one, other)
    found: dict[int, list[Match]] = {}
    for number, root in enumerate(forest.roots().tolist()):
        found.setdefault(root, []).append(matches[number])
    return sorted(found.values(), key=lambda some: -sum(len(match.query) for match in some))


def correspondences(where: OpenMap, points: LocalPoints, cluster: Sequence[Match]) -> Pairs:
    """Points of the query and of the model, each pair of them once, with the number of photos that say so."""
    every = np.concatenate([np.stack([one.query, one.points], axis=1) for one in cluster])
    pairs, photos = np.unique(every, axis=0, return_counts=True)
    model = where.models[cluster[0].model]
    targets = [model.point3D(point).xyz for point in pairs[:, 1].tolist()]
    places = points.places[pairs[:, 0]].astype(np.float64)
    return Pairs(pairs[:, 0], places, np.asarray(targets, np.float64).reshape(-1, 3), photos)


def _described(
    where: OpenMap,
    asked: Located,
    points: LocalPoints,
    camera: CameraModel,
    best: tuple[JudgedPose, list[Match]],
    rival: int,
) -> Located:
    """With what is to be said of it."""
    (found, inliers, _), cluster = best
    pairs = correspondences(where, points, cluster)
    right = {(float(x), float(y)) for x, y in pairs.places[found.inliers]}
    lines = []
    for match in cluster:
        mine = [(float(x), float(y)) for x, y in points.places[match.query].astype(np.float64)]
        lines.append((match.number, tuple(place for place in mine if place in right)))
    matches = len(np.unique(pairs.query))
    said = f"{inliers} of {matches} matches with {len(cluster)} photos agree"
    if rival >= RIVAL * inliers:
        said += f"; another place has {rival}"
    if len(where.models) > 1:
        said += f"; in part {cluster[0].model + 1} of {len(where.models)} of the map, with coordinates of its own"
    if camera.guessed:
        said += f"; its camera is not known, a focal length of {found.focal:.0f} pixels was found"
    return dataclasses.replace(
        asked,
        reason=said,
        trust="good" if inliers >= GOOD_INLIERS and rival < RIVAL * inliers else "doubtful",
        pose=found.pose,
        model=cluster[0].model,
        inliers=inliers,
        matches=matches,
        deviation=_deviation(found),
        cluster=tuple(match.number for match in cluster),
        lines=tuple(lines),
    )


def _deviation(found: PoseFound) -> float | None:
    """Of the place, from the covariance of the pose."""
    if found.covariance is None:
        return None
    return math.sqrt(max(0.0, float(np.trace(found.covariance[3:, 3:]))))
