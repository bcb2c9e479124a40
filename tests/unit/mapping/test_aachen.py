"""Aachen's layout as published: read as it is, answered as the server wants it, and every file that is odd is named."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("pycolmap")

from fixtures_mapping import CAMERA, write_aachen
from superfeat.errors import DatasetError, StoreError
from superfeat.mapping.aachen import is_aachen, read_aachen, write_aachen_poses
from superfeat.mapping.cameras import CameraPose

NVM = Path("3D-models/aachen_v_1_1/aachen_v_1_1.nvm")
INTRINSICS = Path("3D-models/aachen_v_1_1/database_intrinsics_v1_1.txt")
DAY, NIGHT = (Path(f"queries/{light}_time_queries_with_intrinsics.txt") for light in ("day", "night"))
NOON, DARK = "query/day/milestone/noon.png", "query/night/nexus5x/dark.png"


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published") / "aachen"
    write_aachen(folder)
    return folder


@pytest.mark.parametrize("nvm", [True, False])
def test_photos_poses_cameras_and_lists(tmp_path: Path, nvm: bool) -> None:
    """VisualSFM's file and COLMAP's model say the same, although one has centres and the other translations."""
    write_aachen(tmp_path, nvm=nvm)
    found = read_aachen(tmp_path)
    names = [photo.name for photo in found.photos.photos]
    assert names == ["db/0.png", "db/1.png", "db/2.png", "sequences/gopro3/a.png", "sequences/gopro3/b.png"]
    assert {found.photos.cameras[name] for name in names} == {CAMERA}
    for name, x in zip(names, (-0.9, -0.5, 0.2, 0.6, 0.9), strict=True):
        assert found.photos.poses[name].centre()[0] == pytest.approx(x, abs=1e-6)
        np.testing.assert_allclose(found.photos.poses[name].rotation()[2, 0], (0.4 * x - x) / 3.2, atol=0.02)
    assert found.groups == {NOON: "day", DARK: "night"}
    assert found.queries.poses == {}
    assert found.skipped == []
    assert is_aachen(tmp_path)
    assert not is_aachen(tmp_path / "queries")


@pytest.mark.parametrize("where", ["queries/poses.txt", "elsewhere.txt"])
def test_true_poses_of_queries(published: Path, tmp_path: Path, where: str) -> None:
    """By the names of the lists, or by file names alone, as the server writes them."""
    folder = tmp_path / "aachen"
    shutil.copytree(published, folder)
    given = folder / where
    given.write_text(f"noon.png 1 0 0 0 1 2 3\n# by night\n{DARK} 0 1 0 0 4 5 6\n")
    found = read_aachen(folder, None if where == "queries/poses.txt" else given).queries.poses
    assert found == {NOON: CameraPose((1, 0, 0, 0), (1, 2, 3)), DARK: CameraPose((0, 1, 0, 0), (4, 5, 6))}


def test_the_file_that_the_server_takes(tmp_path: Path) -> None:
    poses = {name: CameraPose((1, 0, 0, 0), (number, 0.5, 0)) for number, name in enumerate(("b/3.jpg", "a/1.jpg"))}
    groups = {"b/3.jpg": "night", "c/2.jpg": "day", "a/1.jpg": "day"}
    write_aachen_poses(tmp_path / "new" / "answer.txt", poses, groups)
    assert (tmp_path / "new" / "answer.txt").read_text() == "1.jpg 1 0 0 0 1 0.5 0\n3.jpg 1 0 0 0 0 0.5 0\n"


def change(path: Path, before: str, after: str) -> Callable[[Path], object]:
    def changed(folder: Path) -> None:
        text = (folder / path).read_text()
        assert before in text
        (folder / path).write_text(text.replace(before, after, 1))

    return changed


def gone(path: str | Path) -> Callable[[Path], object]:
    return lambda folder: shutil.rmtree(folder / path) if (folder / path).is_dir() else (folder / path).unlink()


def poses(text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / "queries" / "poses.txt").write_text(text)


ODD = {
    "no images": (gone("images"), "has no images/images_upright; aachen-v1.1 is a folder with"),
    "no model": (gone(NVM.parent), "has no 3D-models/aachen_v_1_1;"),
    "neither model": (gone(NVM), "has neither aachen_v_1_1.nvm nor a COLMAP model"),
    "no intrinsics": (gone(INTRINSICS), "has no 3D-models/aachen_v_1_1/database_intrinsics_v1_1.txt"),
    "no night": (gone(NIGHT), "has no queries/night_time_queries_with_intrinsics.txt"),
    "photo missing": (gone("images/images_upright/db/1.png"), r"lacks 1 of 7 photos \(db/1.png, …\); unpack all"),
    "query missing": (gone(f"images/images_upright/{NOON}"), r"lacks 1 of 7 photos"),
    "no nvm": (change(NVM, "NVM_V3", "ply"), "does not begin with NVM_V3"),
    "no count": (change(NVM, "\n5\n", "\nmany\n"), "line 3: the number of cameras is expected here"),
    "cut": (change(NVM, "\n5\n", "\n50\n"), "ends after 8 of 50 cameras; copy it again"),
    "short line": (change(NVM, " 0.0 0\n", "\n"), "line 4: a camera has 11 words, not 9"),
    "no number": (change(NVM, "300.0 ", "300.0 nan"), "line 4: a pose is four numbers"),
    "no camera of": (change(INTRINSICS, "db/2.png", "db/22.png"), "has no camera of db/2.png"),
    "odd camera": (change(INTRINSICS, "PINHOLE", "BOX"), "line 1: 'BOX' is no camera model"),
    "list of names": (
        lambda folder: (folder / DAY).write_text(NOON + "\n"),
        "noon.png has no camera; is it a list with",
    ),
    "empty list": (lambda folder: (folder / NIGHT).write_text("\n"), "names no photo"),
    "one file name": (change(NIGHT, DARK, "query/night/noon.png"), "have one file name"),
    "a stranger": (poses("other.png 1 0 0 0 0 0 0\n"), "other.png is no query of aachen-v1.1"),
    "short pose": (poses("noon.png 1 0 0 0 0 0\n"), "poses.txt, line 1: a pose is four numbers"),
    "zero rotation": (poses("noon.png 0 0 0 0 0 0 0\n"), "poses.txt, line 1: a pose is four numbers"),
    "twice": (poses("noon.png 1 0 0 0 0 0 0\nnoon.png 1 0 0 0 0 0 0\n"), "line 2: noon.png has a pose already"),
    "nothing": (poses("# none\n"), "has no pose; write name qw qx qy qz"),
}


@pytest.mark.parametrize("odd", ODD)
def test_what_is_missing_or_odd(published: Path, tmp_path: Path, odd: str) -> None:
    shutil.copytree(published, tmp_path / "aachen")
    spoil, said = ODD[odd]
    spoil(tmp_path / "aachen")
    with pytest.raises(DatasetError, match=said):
        read_aachen(tmp_path / "aachen")


def test_a_file_of_poses_that_is_not_there(published: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"nowhere\.txt"):
        read_aachen(published, tmp_path / "nowhere.txt")
    (tmp_path / "binary.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DatasetError, match="is not a text file"):
        read_aachen(published, tmp_path / "binary.txt")


def test_a_damaged_model_of_colmap(tmp_path: Path) -> None:
    write_aachen(tmp_path, nvm=False)
    (tmp_path / NVM.parent / "cameras.txt").write_text("nonsense\n")
    with pytest.raises(StoreError, match="not a whole model of COLMAP"):
        read_aachen(tmp_path)


def test_photos_that_their_camera_does_not_fit_are_left_out_and_told(published: Path, tmp_path: Path) -> None:
    folder = tmp_path / "aachen"
    shutil.copytree(published, folder)
    images = folder / "images" / "images_upright"
    Image.new("RGB", (240, 320)).save(images / "db" / "1.png")
    (images / DARK).write_bytes(b"no photo")
    found = read_aachen(folder)
    assert len(found.photos.photos) == 4
    assert [photo.name for photo in found.queries.photos] == [NOON]
    assert [one.name for one in found.skipped] == ["db/1.png", DARK]
    assert "is 240 x 320 pixels, and its camera is for 320 x 240" in found.skipped[0].reason
