"""A pose from matches of which nearly all are wrong, and what counts as agreeing."""

import numpy as np
import pytest

pytest.importorskip("pycolmap")

from fixtures_mapping import CAMERA, FOCAL, HEIGHT, WIDTH, looking
from superfeat.mapping.cameras import CameraPose, guessed_camera, pose_error
from superfeat.mapping.colmap import PoseFound, as_camera, distances_of, find_pose, refine_pose
from superfeat.mapping.pose_choice import Pairs, best_pose, judge

TRUE = looking((0.1, 0.3, -4.4))
MAX_ERROR = 4.0


def seen_at(pose: CameraPose, points: np.ndarray) -> np.ndarray:
    """By the formula of a pinhole, point by point."""
    places = []
    for point in points:
        x, y, z = pose.rotation() @ point + np.asarray(pose.tvec)
        places.append([FOCAL * x / z + WIDTH / 2, FOCAL * y / z + HEIGHT / 2])
    return np.asarray(places)


def crowd(right: int, wrong: int, seed: int = 0) -> Pairs:
    """Right pairs that three photos say, and wrong ones, each of one photo."""
    random = np.random.default_rng(seed)
    points = random.uniform(-1, 1, (right + wrong, 3))
    places = random.uniform(0, [WIDTH, HEIGHT], (right + wrong, 2))
    places[:right] = seen_at(TRUE, points[:right]) + random.normal(0, 0.3, (right, 2))
    photos = np.where(np.arange(right + wrong) < right, 3, 1)
    return Pairs(np.arange(right + wrong), places, points, photos)


@pytest.mark.parametrize("seed", range(3))
def test_few_right_pairs_among_thousands(seed: int) -> None:
    """Thirty of three thousand are not drawn by chance; those that several photos say are."""
    pairs = crowd(30, 3000, seed)
    drawn = find_pose(pairs.places, pairs.points, CAMERA, MAX_ERROR)
    assert drawn is None or pose_error(drawn.pose, TRUE).distance > 0.5
    found = best_pose(pairs, CAMERA, MAX_ERROR)
    assert found is not None
    assert pose_error(found.found.pose, TRUE).distance < 0.05
    assert found.found.inliers[:30].sum() >= 28
    assert found.points == found.found.inliers.sum()


def test_what_several_photos_say_is_not_taken_where_all_say_more() -> None:
    """Fifteen pairs that agree on a wrong place do not outvote a hundred that agree on the right one."""
    random = np.random.default_rng(1)
    right, elsewhere = crowd(100, 0), looking((-1.0, 0.2, -3.0))
    points = random.uniform(-1, 1, (15, 3))
    pairs = Pairs(
        np.arange(115),
        np.concatenate([right.places, seen_at(elsewhere, points)]),
        np.concatenate([right.points, points]),
        np.where(np.arange(115) < 100, 1, 2),
    )
    found = best_pose(pairs, CAMERA, MAX_ERROR)
    assert found is not None
    assert pose_error(found.found.pose, TRUE).distance < 0.05


def test_close_points_outweigh_more_that_are_far() -> None:
    """Twelve points at the edge of the tolerance of a wrong pose, ten that lie where the right one puts them."""
    wrong, aside = looking((3.5, 0.1, -2.5)), np.asarray([0.97 * MAX_ERROR, 0])
    points = np.random.default_rng(3).uniform(-1, 1, (22, 3))
    places = np.concatenate([seen_at(TRUE, points[:10]), seen_at(wrong, points[10:]) + aside])
    pairs = Pairs(np.arange(22), places, points, np.ones(22, np.int64))
    right, other = (
        judge(pairs, PoseFound(pose, np.zeros(22, np.bool_), None, FOCAL), CAMERA, MAX_ERROR) for pose in (TRUE, wrong)
    )
    assert (right.points, other.points) == (10, 12)
    assert right.closeness == pytest.approx(10)
    assert other.closeness == pytest.approx(12 * (1 - 0.97**2))


def test_a_point_of_the_query_counts_once() -> None:
    """With the nearest of its points of the model."""
    pairs = crowd(8, 12)._replace(query=np.repeat(np.arange(5), 4))
    found = judge(pairs, PoseFound(TRUE, np.zeros(20, np.bool_), None, FOCAL), CAMERA, MAX_ERROR)
    far = np.linalg.norm(seen_at(TRUE, pairs.points) - pairs.places, axis=1).reshape(5, 4).min(axis=1)
    wanted = [1 - (one / MAX_ERROR) ** 2 for one in far if one <= MAX_ERROR]
    assert found.points == len(wanted)
    assert found.closeness == pytest.approx(sum(wanted))
    assert found.points < found.found.inliers.sum()


def test_points_near_their_places_and_points_behind() -> None:
    pairs = crowd(40, 40)
    points = np.concatenate([pairs.points, [[0.1, 0.3, -9.0]]])  # behind the camera, and projected onto its middle
    places = np.concatenate([pairs.places, [[WIDTH / 2, HEIGHT / 2]]])
    wanted = [
        bool(np.linalg.norm(seen_at(TRUE, p[None])[0] - q) <= MAX_ERROR) for p, q in zip(points, places, strict=True)
    ]
    far = distances_of(TRUE, places, points, as_camera(CAMERA))
    assert (far <= MAX_ERROR).tolist() == [*wanted[:-1], False]
    assert np.isinf(far[-1])
    assert len(distances_of(TRUE, places[:0], points[:0], as_camera(CAMERA))) == 0


def test_a_pose_is_refined_by_all_that_agree() -> None:
    """Also where the focal length was found with it, and not where too few agree."""
    pairs = crowd(60, 60)
    begun = find_pose(pairs.places[:12], pairs.points[:12], CAMERA, MAX_ERROR)
    assert begun is not None
    found = refine_pose(begun, pairs.places, pairs.points, CAMERA, MAX_ERROR)
    assert found is not None
    assert found.inliers[:60].all()
    assert pose_error(found.pose, TRUE).distance < pose_error(begun.pose, TRUE).distance + 1e-3
    assert found.covariance is not None
    unknown = guessed_camera(WIDTH, HEIGHT)
    guessed = find_pose(pairs.places[:30], pairs.points[:30], unknown, MAX_ERROR)
    assert guessed is not None
    again = refine_pose(guessed, pairs.places, pairs.points, unknown, MAX_ERROR)
    assert again is not None
    assert again.focal == pytest.approx(FOCAL, rel=0.05)
    far = begun._replace(pose=looking((9.0, 9.0, 9.0)))
    assert refine_pose(far, pairs.places[:3], pairs.points[:3], CAMERA, MAX_ERROR) is None
