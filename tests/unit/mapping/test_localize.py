"""Poses by points: right where they can be, from the right cluster, and with a plain word where there is none."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pycolmap")

from fixtures_mapping import CAMERA, CENTRES, HEIGHT, WIDTH, Place, looking, map_of, write_scene
from oracles_mapping import nearest_of_each_other
from superfeat.errors import DatasetError, StoreError
from superfeat.mapping.build_map import make_models, match_pair
from superfeat.mapping.cameras import CameraPose, PoseError, guessed_camera, pose_error
from superfeat.mapping.colmap import MapPhoto
from superfeat.mapping.local import load_local
from superfeat.mapping.local.interface import LocalPoints, mutual_nearest
from superfeat.mapping.localize import Located, Match, clusters, locate, match_with
from superfeat.mapping.map_folder import OpenMap, read_points, save_points, write_manifest
from superfeat.mapping.match_cache import MatchCache
from superfeat.mapping.measure import QueryResult, measure_localization, percent_within, read_results, score
from superfeat.mapping.pose_files import write_poses
from superfeat.mapping.scenes import read_scenes

TRUE = looking((0.1, 0.3, -4.4))


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> OpenMap:
    """Two places that share nothing, four photos each, and a photo that matches none."""
    return map_of(tmp_path_factory.mktemp("map") / "map", [Place(1), Place(2)], lonely=True)


def joined(*some: LocalPoints) -> LocalPoints:
    return LocalPoints(np.concatenate([one.places for one in some]), np.concatenate([one.vectors for one in some]))


def test_a_photo_of_a_known_place(where: OpenMap) -> None:
    found = locate(where, "query", Place(1).seen(TRUE, seed=7), CAMERA, [0, 1, 2, 3])
    assert found.pose is not None
    error = pose_error(found.pose, TRUE)
    assert error.distance < 0.02
    assert error.degrees < 0.5
    assert found.trust == "good"
    assert found.cluster == (0, 1, 2, 3)
    assert found.deviation is not None
    assert 0 < found.deviation < 0.1
    assert "matches with 4 photos agree" in found.reason


def test_a_camera_that_is_not_known(where: OpenMap) -> None:
    found = locate(where, "query", Place(1).seen(TRUE, noise=0.05, seed=7), guessed_camera(WIDTH, HEIGHT), [0, 1, 2, 3])
    assert found.pose is not None
    assert pose_error(found.pose, TRUE).distance < 0.2
    assert "its camera is not known" in found.reason


def test_the_pose_is_that_of_the_largest_cluster(where: OpenMap) -> None:
    """Photos of another place among those found, and even points of it in the query, do not disturb."""
    elsewhere = Place(2).seen(looking((-0.8, 0, -4)), seed=8)
    some = LocalPoints(elsewhere.places[:40], elsewhere.vectors[:40])
    mixed = joined(Place(1).seen(TRUE, seed=7), some)
    found = locate(where, "query", mixed, CAMERA, [4, 5, 6, 7, 1, 2])
    assert found.pose is not None
    assert pose_error(found.pose, TRUE).distance < 0.02
    assert set(found.cluster) == {1, 2}
    groups = clusters(where, [one for n in range(8) if (one := match_with(where, mixed, n)) is not None])
    assert sorted(sorted(match.number for match in group) for group in groups) == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_two_places_that_are_equally_likely_are_doubtful(where: OpenMap) -> None:
    both = joined(Place(1).seen(TRUE, seed=7), Place(2).seen(TRUE, seed=9))
    found = locate(where, "query", both, CAMERA, list(range(8)))
    assert found.trust == "doubtful"
    assert "another place has" in found.reason


def test_why_there_is_no_pose(where: OpenMap) -> None:
    assert "nothing like it" in locate(where, "q", Place(1).seen(TRUE), CAMERA, []).reason
    stranger = locate(where, "q", Place(5).seen(TRUE), CAMERA, [0, 1, 4])
    assert (stranger.pose, stranger.trust) == (None, "none")
    assert "matches agree on a place, and 12 are needed" in stranger.reason
    nothing = locate(where, "q", LocalPoints(np.empty((0, 2), np.float32), np.empty((0, 64), np.float32)), CAMERA, [0])
    assert nothing.pose is None


def test_a_map_that_falls_into_parts(tmp_path: Path) -> None:
    """No poses are known, and two places share nothing: COLMAP makes two models, and a pose says which it is in."""
    centres = [*CENTRES, (-2.0, 0.3, -3.6), (2.0, -0.3, -3.6), (0.0, 0.9, -4.1), (0.0, -0.9, -4.0)]
    places = [Place(1, 300), Place(2, 300)]
    views = [(number, centre) for number in range(2) for centre in centres[: 8 - 2 * number]]
    photos = [MapPhoto(f"{one}.png", CAMERA, None) for one in range(len(views))]
    points = [places[number].seen(looking(centre), seed=one) for one, (number, centre) in enumerate(views)]
    method = load_local("sift")
    pairs = itertools.combinations(range(len(photos)), 2)
    verified = [match for pair in pairs for match in match_pair(photos, points, method, *pair)]
    models = make_models(tmp_path, photos, points, verified, False, {})
    assert [one.num_reg_images() for one in models] == [8, 6]
    (tmp_path / "local").mkdir()
    for number, one in enumerate(points):
        save_points(tmp_path / "local" / f"{number:06}.npz", one)
    write_manifest(tmp_path, "sift", photos, [tmp_path / one.name for one in photos], [8, 6])
    found = locate(OpenMap(tmp_path), "query", places[1].seen(TRUE), CAMERA, list(range(14)))
    assert (found.trust, found.model) == ("good", 1)
    assert "in part 2 of 2 of the map, with coordinates of its own" in found.reason


def test_nearest_of_each_other_and_the_ratio() -> None:
    one = np.eye(3, dtype=np.float32)
    other = np.asarray([[0, 1, 0], [1, 0, 0], [0.999, 0.0447, 0]], np.float32)
    assert mutual_nearest(one, other).tolist() == [[0, 1], [1, 0]]
    assert mutual_nearest(one, other, 0.8).tolist() == [[0, 1], [1, 0]]
    near = np.asarray([[0.7072, 0.707, 0], [0.707, 0.7072, 0]], np.float32)
    assert len(mutual_nearest(one[:2], near)) == 2
    assert len(mutual_nearest(one[:2], near, 0.8)) == 0
    assert mutual_nearest(one[:0], other).shape == (0, 2)


@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_nearest_of_each_other_by_definition(rows: int, columns: int, seed: int) -> None:
    """Whole numbers, so that many are as near as others."""
    random = np.random.default_rng(seed)
    one, other = (random.integers(-1, 2, (count, 3)).astype(np.float32) for count in (rows, columns))
    found = mutual_nearest(one, other)
    assert [tuple(pair) for pair in found.tolist()] == nearest_of_each_other(one @ other.T)


def test_errors_of_poses() -> None:
    turned = CameraPose((np.cos(np.radians(5)), 0, np.sin(np.radians(5)), 0), (0, 0, 0))
    assert pose_error(turned, CameraPose((1, 0, 0, 0), (0, 0, 0))).degrees == pytest.approx(10)
    moved = looking((0, 0, -3))
    assert pose_error(moved, looking((0, 0, -5))) == pytest.approx((2.0, 0.0), abs=1e-6)
    np.testing.assert_allclose(moved.centre(), [0, 0, -3], atol=1e-9)


def test_poses_for_other_programs(where: OpenMap, tmp_path: Path) -> None:
    found = locate(where, "a/query.jpg", Place(1).seen(TRUE, seed=7), CAMERA, [0, 1, 2, 3])
    write_poses(tmp_path, [found, Located("lost.jpg", "no")])
    assert found.pose is not None
    (line,) = (tmp_path / "poses.txt").read_text().splitlines()
    assert line.split()[0] == "a/query.jpg"
    np.testing.assert_allclose([float(v) for v in line.split()[1:]], [*found.pose.qvec, *found.pose.tvec], rtol=1e-7)
    from superfeat.mapping.image_lists import read_photos

    again = read_photos(tmp_path / "kapture")
    assert again.cameras == {"a/query.jpg": CAMERA}
    np.testing.assert_allclose(again.poses["a/query.jpg"].tvec, found.pose.tvec, rtol=1e-7)


def test_colmap_itself_reads_the_poses(where: OpenMap, tmp_path: Path) -> None:
    import pycolmap

    found = locate(where, "a/query.jpg", Place(1).seen(TRUE, seed=7), CAMERA, [0, 1, 2, 3])
    write_poses(tmp_path, [found])
    (tmp_path / "points3D.txt").write_text("")
    model = pycolmap.Reconstruction()
    model.read_text(str(tmp_path))
    (image,) = model.images.values()
    assert found.pose is not None
    assert image.name == "a/query.jpg"
    np.testing.assert_allclose(image.projection_center(), found.pose.centre(), atol=1e-6)


def test_maps_that_are_none(where: OpenMap, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="not a finished map"):
        OpenMap(tmp_path)
    facts = json.loads((where.folder / "manifest.json").read_text())
    (tmp_path / "manifest.json").write_text(json.dumps({**facts, "photos": [{"name": 3}]}))
    with pytest.raises(StoreError, match="damaged"):
        OpenMap(tmp_path)
    (tmp_path / "manifest.json").write_text(json.dumps(facts))
    (tmp_path / "models" / "0").mkdir(parents=True)
    (tmp_path / "models" / "0" / "images.bin").write_bytes(b"nonsense")
    with pytest.raises(StoreError, match="not a whole model"):
        OpenMap(tmp_path).models  # noqa: B018
    (tmp_path / "points.npz").write_bytes(b"PK nonsense")
    with pytest.raises(StoreError, match="damaged"):
        read_points(tmp_path / "points.npz")
    np.savez(tmp_path / "hostile.npz", places=np.asarray([{}], object), vectors=np.zeros((1, 2)))
    with pytest.raises(StoreError, match="damaged"):
        read_points(tmp_path / "hostile.npz")
    whole = (where.folder / "local" / "000000.npz").read_bytes()
    (tmp_path / "torn.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(StoreError, match="damaged"):
        read_points(tmp_path / "torn.npz")


# -- Measuring


def test_percent_at_each_level() -> None:
    errors = [PoseError(0.1, 1), PoseError(0.4, 1), PoseError(0.1, 7), None]
    assert percent_within(errors) == (25.0, 50.0, 75.0)
    assert percent_within([]) == ()


def test_queries_are_counted_by_group_and_known_pose(tmp_path: Path) -> None:
    """A pose in another scene is none, and a query whose true pose nobody knows is not judged."""
    for number in range(2):
        write_scene(tmp_path / f"wall{number}", number)
    scenes = read_scenes(tmp_path)
    scenes.groups.update({"wall0/2.png": "day", "wall1/2.png": "night"})
    true = scenes.queries.poses["wall0/2.png"]
    right: QueryResult = {
        "query": "wall0/2.png",
        "method": "m",
        "top": 5,
        "pose": [*true.qvec, *true.tvec],
        "scene": "wall0",
        "inliers": 9,
        "right_scene": 0.5,
        "match_seconds": 1.0,
        "pose_seconds": 0.5,
    }
    lost: QueryResult = {**right, "query": "wall1/2.png", "pose": None, "scene": None}
    found = score(scenes, "m", 5, [right, lost, {**right, "top": 1}], "day")
    assert found == ("m", 5, 1, (100.0, 100.0, 100.0), 0.5, 1.5, "day", 1)
    assert score(scenes, "m", 5, [right, lost], "night").percent == (0.0, 0.0, 0.0)
    assert score(scenes, "m", 5, [{**right, "scene": "wall1"}], "day").percent == (0.0, 0.0, 0.0)
    del scenes.queries.poses["wall0/2.png"]
    assert score(scenes, "m", 5, [right], "day").percent == ()


def test_two_scenes_in_one_database(tmp_path: Path) -> None:
    """Painted walls, real points: with the right photos every query is found, with the wrong ones none."""
    for number in range(2):
        write_scene(tmp_path / "scenes" / f"wall{number}", number)
    scenes = read_scenes(tmp_path / "scenes")
    assert [photo.name for photo in scenes.queries.photos] == ["wall0/2.png", "wall1/2.png"]
    right = np.asarray([[1.0] * 5 + [0.0] * 5, [0.0] * 5 + [1.0] * 5])
    methods = {"right": right, "wrong": 1 - right}
    found = measure_localization(scenes, tmp_path / "work", methods, tops=(5,), exhaustive=True).result()
    assert [(one.method, one.percent[2], one.right_scene) for one in found] == [
        ("right", 100.0, 1.0),
        ("wrong", 0.0, 0.0),
        ("exhaustive", 100.0, 0.5),
    ]
    results = tmp_path / "work" / "poses.jsonl"
    before = results.read_text()
    results.write_text(before[:-20])  # killed while it was writing
    assert len(read_results(results)) == 5
    again = measure_localization(scenes, tmp_path / "work", methods, tops=(5,), exhaustive=True).result()
    assert [one.percent for one in again] == [one.percent for one in found]
    with pytest.raises(StoreError, match=r"has a map of 10 other photos or points \(sift\)"):
        measure_localization(scenes, tmp_path / "work", methods, local="xfeat").result()


def test_matches_are_kept_for_a_run_that_goes_on(tmp_path: Path) -> None:
    cache = MatchCache(tmp_path / "matches")
    assert cache.read("scene/one.jpg") == {}
    cache.write("scene/one.jpg", {})
    assert cache.read("scene/one.jpg") == {}
    some = Match(3, 1, np.asarray([0, 4]), np.asarray([7, 9]))
    cache.write(
        "scene/one.jpg", {5: (None, 0.0), 3: (some, 0.25), 2: (Match(2, 0, some.query[:0], some.points[:0]), 0.5)}
    )
    found = cache.read("scene/one.jpg")
    assert list(found) == [5, 3, 2]
    assert found[5] == (None, 0.0)
    match, seconds = found[3]
    assert match is not None
    assert (match.number, match.model, match.query.tolist(), match.points.tolist()) == (3, 1, [0, 4], [7, 9])
    assert seconds == 0.25
    empty = found[2][0]
    assert empty is not None
    assert len(empty.query) == len(empty.points) == 0
    path = next((tmp_path / "matches").iterdir())
    for torn in (path.read_bytes()[:-30], b"torn"):
        path.write_bytes(torn)
        assert cache.read("scene/one.jpg") == {}


def test_scenes_without_a_scale_and_scenes_that_are_none(tmp_path: Path) -> None:
    write_scene(tmp_path / "wall", 0, "arbitrary")
    scenes = read_scenes(tmp_path / "wall")
    centres = [scenes.photos.poses[photo.name].centre() for photo in scenes.photos.photos]
    widest = max(float(np.linalg.norm(one - other)) for one in centres for other in centres)
    assert scenes.metres["wall"] * widest == pytest.approx(25.0)
    with pytest.raises(DatasetError, match="has no scene"):
        read_scenes(tmp_path / "wall" / "images")
    facts = json.loads((tmp_path / "wall" / "poses.json").read_text())
    facts["images"]["0.png"]["qvec"] = [0, 0, 0, 0]
    (tmp_path / "wall" / "poses.json").write_text(json.dumps(facts))
    with pytest.raises(DatasetError, match=r"0\.png: a pose is"):
        read_scenes(tmp_path / "wall")
