"""Files for kapture, read by kapture itself, and its own files read by us. Skipped where kapture is not installed."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("kapture")

import kapture  # type: ignore[import-not-found]
import kapture.io.csv as kapture_csv  # type: ignore[import-not-found]

from superfeat.mapping.cameras import CameraModel, CameraPose
from superfeat.mapping.image_lists import read_photos
from superfeat.mapping.localize import Located
from superfeat.mapping.pair_files import write_pairs_file
from superfeat.mapping.pose_files import write_poses
from superfeat.mapping.rows import Pair

CAMERA = CameraModel("SIMPLE_RADIAL", 640, 480, (500.0, 320.0, 240.0, 0.01))
POSE = CameraPose((0.5, 0.5, -0.5, 0.5), (0.25, -3.0, 17.5))

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::SyntaxWarning")


def test_kapture_reads_poses_and_cameras(tmp_path: Path) -> None:
    found = [Located(f"day/{n}.jpg", "", "good", POSE, CAMERA, 0, 50, 60) for n in range(3)]
    write_poses(tmp_path, [*found, Located("lost.jpg", "no")])
    data = kapture_csv.kapture_from_dir(str(tmp_path / "kapture"))
    assert [name for _, _, name in kapture.flatten(data.records_camera, is_sorted=True)] == [one.name for one in found]
    for time, device, _ in kapture.flatten(data.records_camera):
        pose = data.trajectories[time, device]
        np.testing.assert_allclose(np.ravel(pose.t), POSE.tvec)
        np.testing.assert_allclose(np.ravel(pose.r_raw), POSE.qvec)
        sensor = data.sensors[device]
        assert sensor.camera_type == kapture.CameraType.SIMPLE_RADIAL
        assert sensor.camera_params == [640, 480, *CAMERA.params]


def test_kapture_reads_pairs(tmp_path: Path) -> None:
    pairsfile = pytest.importorskip("kapture_localization.utils.pairsfile")
    pairs = [Pair("q/1.jpg", "b/2.jpg", 0.877), Pair("q/1.jpg", "c.jpg", 0.25), Pair("q/2.jpg", "c.jpg", 0.5)]
    for kind in ("kapture", "mast3r"):
        write_pairs_file(tmp_path / "pairs.txt", pairs, kind)
        read = pairsfile.get_pairs_from_file(str(tmp_path / "pairs.txt"))  # each with the lower name first
        assert read == [(min(pair[:2]), max(pair[:2])) for pair in pairs]
        ranked = pairsfile.get_ordered_pairs_from_file(str(tmp_path / "pairs.txt"))
        assert {query: [tuple(one) for one in some] for query, some in ranked.items()} == {
            "q/1.jpg": [("b/2.jpg", 0.877), ("c.jpg", 0.25)],
            "q/2.jpg": [("c.jpg", 0.5)],
        }


def test_a_dataset_that_kapture_wrote(tmp_path: Path) -> None:
    """Two cameras at two times, one photo without a pose."""
    data = kapture.Kapture(sensors=kapture.Sensors(), records_camera=kapture.RecordsCamera())
    data.trajectories = kapture.Trajectories()
    for device in ("left", "right"):
        data.sensors[device] = kapture.Camera(kapture.CameraType.SIMPLE_RADIAL, [640, 480, *CAMERA.params])
        for time in (10, 20):
            data.records_camera[time, device] = f"{device}/{time}.jpg"
            if (time, device) != (20, "right"):
                data.trajectories[time, device] = kapture.PoseTransform(r=list(POSE.qvec), t=list(POSE.tvec))
    kapture_csv.kapture_to_dir(str(tmp_path), data)
    for name in ("left/10", "left/20", "right/10", "right/20"):
        path = tmp_path / "sensors" / "records_data" / f"{name}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (640, 480)).save(path)
    found = read_photos(tmp_path)
    assert sorted(photo.name for photo in found.photos) == [
        "left/10.jpg",
        "left/20.jpg",
        "right/10.jpg",
        "right/20.jpg",
    ]
    assert set(found.cameras.values()) == {CAMERA}
    assert sorted(found.poses) == ["left/10.jpg", "left/20.jpg", "right/10.jpg"]
    np.testing.assert_allclose(found.poses["left/20.jpg"].qvec, POSE.qvec)
    np.testing.assert_allclose(found.poses["left/20.jpg"].tvec, POSE.tvec)
