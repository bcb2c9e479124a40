"""How many queries are localized, by way of retrieval and number of photos retrieved; all scenes in one database."""

import dataclasses
import json
import time
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypedDict

import numpy as np
from jaxtyping import Float64

from superfeat.errors import StoreError
from superfeat.mapping.build_map import MapProgress, make_models, match_pair
from superfeat.mapping.cameras import CameraModel, PoseError, pose_error, pose_of
from superfeat.mapping.colmap import MapPhoto, VerifiedMatches
from superfeat.mapping.local import load_local
from superfeat.mapping.local.interface import LocalPoints
from superfeat.mapping.localize import Located, Match, agree, match_with
from superfeat.mapping.map_folder import (
    LOCAL,
    MANIFEST,
    OpenMap,
    StoredPoints,
    find_points,
    save_points,
    write_manifest,
)
from superfeat.mapping.match_cache import MatchCache, Matched
from superfeat.mapping.scenes import LocalizationSet
from superfeat.storage.store import explained, writer_lock
from superfeat.work import Work

LEVELS = ((0.25, 2.0), (0.5, 5.0), (5.0, 10.0))  # metres and degrees
TOPS = (1, 5, 10, 20, 50)
NEIGHBOURS = 10  # photos that each photo of the map is matched with: the nearest by the true poses
EXHAUSTIVE = "exhaustive"
RESULTS, MATCHES = "poses.jsonl", "matches"


class QueryResult(TypedDict):
    """A query, one way of retrieval, one number of photos."""

    query: str
    method: str
    top: int
    pose: list[float] | None  # qw, qx, qy, qz, tx, ty, tz
    scene: str | None  # whose coordinates the pose is in
    inliers: int
    right_scene: float  # share of the photos retrieved
    match_seconds: float  # of the CPU
    pose_seconds: float


class LocalizationScore(NamedTuple):
    """What one way of retrieval came to."""

    method: str
    top: int
    queries: int
    percent: tuple[float, ...]  # at each of LEVELS; none where no true pose is known
    right_scene: float
    cpu_seconds: float  # per query, of matching and of the pose
    group: str = ""  # of the queries
    located: int = 0  # queries that have a pose, right or wrong


def measure_localization(
    scenes: LocalizationSet,
    output: str | Path,
    methods: Mapping[str, Float64[np.ndarray, "queries photos"]],
    *,
    tops: Sequence[int] = TOPS,
    exhaustive: bool = False,
    local: str = "sift",
) -> Work[MapProgress, list[LocalizationScore]]:
    """`methods` have a similarity for each query and photo of the map. Stopped, the same call goes on."""
    return Work(_measure(scenes, Path(output), dict(methods), tuple(tops), exhaustive, local))


def _measure(
    scenes: LocalizationSet,
    folder: Path,
    methods: dict[str, np.ndarray],
    tops: tuple[int, ...],
    exhaustive: bool,
    local: str,
) -> Generator[MapProgress, None, list[LocalizationScore]]:
    where = yield from _map_of(scenes, folder, local)
    wanted = [(name, top) for name in methods for top in tops] + (
        [(EXHAUSTIVE, len(where.names))] if exhaustive else []
    )
    cache = MatchCache(folder / MATCHES)
    with (
        writer_lock(folder),
        explained(folder / RESULTS),
        (folder / RESULTS).open("a", encoding="utf-8") as file,
    ):
        done = {(one["query"], one["method"], one["top"]): one for one in read_results(folder / RESULTS)}
        for number, photo in enumerate(scenes.queries.photos):
            missing = [one for one in wanted if (photo.name, *one) not in done]
            if missing:
                points = find_points(photo, where.method)
                camera, matched = scenes.queries.cameras[photo.name], cache.read(photo.name)
                asked = _Query(where, scenes, photo.name, points, camera, matched)
                for name, top in missing:
                    ranked = np.arange(top) if name == EXHAUSTIVE else np.argsort(-methods[name][number], kind="stable")
                    found = asked.result(name, top, ranked[:top].tolist())
                    done[photo.name, name, top] = found
                    file.write(json.dumps(found) + "\n")
                file.flush()
                cache.write(photo.name, asked.matched)
            yield MapProgress("localizing", number + 1, len(scenes.queries.photos))
    groups = dict.fromkeys(scenes.groups.get(photo.name, "") for photo in scenes.queries.photos)
    return [score(scenes, name, top, list(done.values()), group) for name, top in wanted for group in groups]


def read_results(path: Path) -> list[QueryResult]:
    """What an earlier run found; a torn last line is left out."""
    if not path.is_file():
        return []
    whole, _, torn = path.read_text(encoding="utf-8").rpartition("\n")
    if torn:
        path.write_text(whole + "\n" if whole else "", encoding="utf-8")
    try:
        return [json.loads(line) for line in whole.splitlines()]
    except ValueError as error:
        raise StoreError(f"{path} is damaged ({error}); remove it to measure again") from error


@dataclasses.dataclass
class _Query:
    """A query; what it was matched with is not matched again."""

    where: OpenMap
    scenes: LocalizationSet
    name: str
    points: LocalPoints
    camera: CameraModel
    matched: Matched

    def match(self, number: int) -> tuple[Match | None, float]:
        """With a photo of the map, and how long that took."""
        if number not in self.matched:
            _ = self.where.points[number]  # to read them is not part of it
            began = time.process_time()
            found = match_with(self.where, self.points, number)
            self.matched[number] = found, time.process_time() - began
        return self.matched[number]

    def result(self, method: str, top: int, numbers: Sequence[int]) -> QueryResult:
        """With these photos."""
        found = [self.match(number) for number in numbers]
        began = time.process_time()
        matches = [match for match, _ in found if match is not None]
        located = agree(self.where, Located(self.name, ""), self.points, self.camera, matches)
        seconds = time.process_time() - began
        frame = self.scenes.queries.frames[self.name]
        right = [self.scenes.photos.frames[self.where.names[number]] == frame for number in numbers]
        scene = self.scenes.photos.frames[self.where.names[located.cluster[0]]] if located.cluster else None
        return {
            "query": self.name,
            "method": method,
            "top": top,
            "pose": None if located.pose is None else [*located.pose.qvec, *located.pose.tvec],
            "scene": scene,
            "inliers": located.inliers,
            "right_scene": float(np.mean(right)) if right else 0.0,
            "match_seconds": sum(one for _, one in found),
            "pose_seconds": seconds,
        }


def score(
    scenes: LocalizationSet, method: str, top: int, results: Sequence[QueryResult], group: str = ""
) -> LocalizationScore:
    """Over all queries of a group; percent of those whose true pose is known."""
    mine = [
        one
        for one in results
        if (one["method"], one["top"]) == (method, top) and scenes.groups.get(one["query"], "") == group
    ]
    errors = [error_of(scenes, one) for one in mine if one["query"] in scenes.queries.poses]
    right = float(np.mean([one["right_scene"] for one in mine])) if mine else 0.0
    seconds = sum(one["match_seconds"] + one["pose_seconds"] for one in mine) / max(len(mine), 1)
    located = sum(one["pose"] is not None for one in mine)
    return LocalizationScore(method, top, len(mine), percent_within(errors), right, seconds, group, located)


def error_of(scenes: LocalizationSet, one: QueryResult) -> PoseError | None:
    """In metres and degrees; a pose in another scene is none."""
    frame = scenes.queries.frames[one["query"]]
    if one["pose"] is None or one["scene"] != frame:
        return None
    error = pose_error(pose_of(one["pose"], one["query"]), scenes.queries.poses[one["query"]])
    return PoseError(error.distance * scenes.metres[frame], error.degrees)


def percent_within(errors: Sequence[PoseError | None]) -> tuple[float, ...]:
    """At each level, a query without a pose within none; nothing if there is no query."""
    posed = [one for one in errors if one is not None]
    return tuple(
        100.0 * sum(one.distance <= metres and one.degrees <= degrees for one in posed) / len(errors)
        for metres, degrees in LEVELS
        if errors
    )


# -- The map, from true poses: the same for every way of retrieval


def _map_of(scenes: LocalizationSet, folder: Path, local: str) -> Generator[MapProgress, None, OpenMap]:
    if (folder / MANIFEST).is_file():
        return _same_map(OpenMap(folder), scenes, local)
    method, listed = load_local(local), scenes.photos
    with explained(folder):
        (folder / LOCAL).mkdir(parents=True, exist_ok=True)
    for number, photo in enumerate(listed.photos):
        path = folder / LOCAL / f"{number:06}.npz"
        if not path.is_file():
            save_points(path, find_points(photo, method))
        yield MapProgress("points", number + 1, len(listed.photos))
    photos = [MapPhoto(one.name, listed.cameras[one.name], listed.poses[one.name]) for one in listed.photos]
    points = StoredPoints(folder / LOCAL, len(photos))
    verified: list[VerifiedMatches] = []
    pairs = nearest_pairs(photos, [listed.frames[photo.name] for photo in photos])
    for done, (first, second) in enumerate(pairs, 1):
        verified += match_pair(photos, points, method, first, second)
        yield MapProgress("matching", done, len(pairs))
    models = make_models(folder, photos, points, verified, True, listed.frames)
    paths = [one.path for one in listed.photos]
    write_manifest(folder, local, photos, paths, [one.num_reg_images() for one in models])
    return OpenMap(folder)


def _same_map(where: OpenMap, scenes: LocalizationSet, local: str) -> OpenMap:
    """The map that is there, if it is of these photos and points."""
    if where.names != [photo.name for photo in scenes.photos.photos] or where.manifest["local"] != local:
        raise StoreError(
            f"{where.folder} has a map of {len(where.names)} other photos or points ({where.manifest['local']}); give "
            "another folder"
        )
    return where


def nearest_pairs(photos: Sequence[MapPhoto], frames: Sequence[str], count: int = NEIGHBOURS) -> list[tuple[int, int]]:
    """Each photo with the nearest of its scene that look the same way, by the true poses."""
    pairs: set[tuple[int, int]] = set()
    poses = [photo.pose for photo in photos if photo.pose is not None]
    centres = np.asarray([pose.centre() for pose in poses])
    ahead = np.asarray([pose.rotation()[2] for pose in poses])
    for number, frame in enumerate(frames):
        others = np.asarray([n for n, other in enumerate(frames) if other == frame and n != number], np.int64)
        alike = others[ahead[others] @ ahead[number] > 0.5]
        distances = np.linalg.norm(centres[alike] - centres[number], axis=1)
        nearest = alike[np.argsort(distances, kind="stable")[:count]]
        pairs |= {(min(number, other), max(number, other)) for other in nearest.tolist()}
    return sorted(pairs)
