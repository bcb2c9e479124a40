"""Files of pairs as the programs read them, and lists of photos as these programs write them."""

import csv
from pathlib import Path

import pytest
from PIL import Image

from superfeat.errors import DatasetError, SuperfeatError
from superfeat.mapping.cameras import CameraModel, CameraPose
from superfeat.mapping.image_lists import read_photos
from superfeat.mapping.pair_files import FORMATS, PairFormat, read_pairs_file, write_pairs_file
from superfeat.mapping.rows import Pair

PAIRS = [Pair("a/1.jpg", "b/2.jpg", 0.877, 0.5, 12), Pair("a/1.jpg", "c.jpg", 0.25)]
KAPTURE = "# kapture format: 1.1\n# query_image, map_image, score\na/1.jpg, b/2.jpg, 0.877\na/1.jpg, c.jpg, 0.25\n"
GOLDEN: dict[PairFormat, str] = {
    "hloc": "a/1.jpg b/2.jpg\na/1.jpg c.jpg\n",
    "colmap": "a/1.jpg b/2.jpg\na/1.jpg c.jpg\n",
    "kapture": KAPTURE,
    "mast3r": KAPTURE.split("\n", 1)[1],
    "csv": "first,second,score,probability,matches,verified\na/1.jpg,b/2.jpg,0.877,0.5,12,\na/1.jpg,c.jpg,0.25,,,\n",
}


@pytest.mark.parametrize("kind", FORMATS)
def test_each_format_as_it_is_known(tmp_path: Path, kind: PairFormat) -> None:
    assert write_pairs_file(tmp_path / "new" / "pairs.txt", PAIRS, kind) == 2
    assert (tmp_path / "new" / "pairs.txt").read_text() == GOLDEN[kind]
    assert list(read_pairs_file(tmp_path / "new" / "pairs.txt")) == [pair[:2] for pair in PAIRS]


@pytest.mark.parametrize(("kind", "name"), [("hloc", "my photo.jpg"), ("colmap", "a\tb.jpg"), ("kapture", "a,b.jpg")])
def test_names_that_a_format_cannot_hold(tmp_path: Path, kind: PairFormat, name: str) -> None:
    (tmp_path / "pairs.txt").write_text("before")
    with pytest.raises(SuperfeatError, match="rename the photo, or write csv"):
        write_pairs_file(tmp_path / "pairs.txt", [Pair(name, "b.jpg", 1.0)], kind)
    assert (tmp_path / "pairs.txt").read_text() == "before"
    assert [path.name for path in tmp_path.iterdir()] == ["pairs.txt"]


def test_csv_holds_every_name(tmp_path: Path) -> None:
    pair = Pair('say "a", b.jpg', "c d.jpg", 1.0)
    write_pairs_file(tmp_path / "pairs.csv", [pair], "csv")
    with (tmp_path / "pairs.csv").open(newline="") as file:
        assert list(csv.reader(file))[1][:2] == list(pair[:2])
    assert list(read_pairs_file(tmp_path / "pairs.csv")) == [pair[:2]]


def test_a_line_that_is_no_pair(tmp_path: Path) -> None:
    (tmp_path / "pairs.txt").write_text("a.jpg b.jpg\nc.jpg\n")
    with pytest.raises(SuperfeatError, match="line 2"):
        list(read_pairs_file(tmp_path / "pairs.txt"))


def photo(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 6)).save(path)


def test_lists_of_hloc_and_colmap(tmp_path: Path) -> None:
    for name in ("q/1.jpg", "q/2.jpg", "with space.jpg"):
        photo(tmp_path / "images" / name)
    listed = "# queries\nq/1.jpg PINHOLE 640 480 500 501 320 240\n\nq/2.jpg\nwith space.jpg\n"
    (tmp_path / "queries.txt").write_text(listed)
    for root in (None, tmp_path / "images"):
        found = read_photos(tmp_path / "queries.txt", root)
        assert [one.name for one in found.photos] == ["q/1.jpg", "q/2.jpg", "with space.jpg"]
        assert all(one.path.is_file() for one in found.photos)
        assert found.cameras == {"q/1.jpg": CameraModel("PINHOLE", 640, 480, (500, 501, 320, 240))}
    assert [one.name for one in read_photos(tmp_path / "images").photos] == ["q/1.jpg", "q/2.jpg", "with space.jpg"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("a.jpg PINHOL 640 480 1 1 1 1", "no camera model"),
        ("a.jpg PINHOLE 640", "as numbers"),
        ("a.jpg PINHOLE 640 480 1 2 3", "4 finite parameters, not 3"),
        ("a.jpg PINHOLE 640 480 1 2 3 nan", "finite"),
        ("", "names no photo"),
    ],
)
def test_lists_that_are_wrong(tmp_path: Path, line: str, reason: str) -> None:
    (tmp_path / "queries.txt").write_text(line + "\n")
    with pytest.raises(DatasetError, match=reason):
        read_photos(tmp_path / "queries.txt")


def test_a_kapture_dataset(tmp_path: Path) -> None:
    photo(tmp_path / "sensors" / "records_data" / "a" / "1.jpg")
    files = {
        "sensors.txt": "cam0, cam0, camera, PINHOLE, 640, 480, 500, 501, 320, 240\nlidar, x, lidar\n"
        "cam1, , camera, UNKNOWN_CAMERA, 640, 480\n",
        "records_camera.txt": "0, cam0, a/1.jpg\n1, cam1, a/2.jpg\n",
        "trajectories.txt": "0, cam0, 1, 0, 0, 0, 1.5, 2, 3\n1, cam1, , , , , , , \n",
    }
    for name, text in files.items():
        (tmp_path / "sensors" / name).write_text("# kapture format: 1.1\n" + text)
    found = read_photos(tmp_path)
    assert [one.name for one in found.photos] == ["a/1.jpg", "a/2.jpg"]
    assert found.photos[0].path.is_file()
    assert found.cameras == {"a/1.jpg": CameraModel("PINHOLE", 640, 480, (500, 501, 320, 240))}
    assert found.poses == {"a/1.jpg": CameraPose((1, 0, 0, 0), (1.5, 2, 3))}
    (tmp_path / "sensors" / "records_camera.txt").write_text("0, cam0\n")
    with pytest.raises(DatasetError, match="2 columns, and 3"):
        read_photos(tmp_path)


def test_colmap_itself_reads_the_pairs(tmp_path: Path) -> None:
    """Its own importer of pairs, over its own database."""
    pycolmap = pytest.importorskip("pycolmap")
    names = ["a/1.jpg", "b/2.jpg", "c.jpg"]
    with pycolmap.Database.open(str(tmp_path / "map.db")) as database:
        camera = database.write_camera(pycolmap.Camera(model="SIMPLE_PINHOLE", width=8, height=6, params=[9, 4, 3]))
        for name in names:
            database.write_image(pycolmap.Image(name=name, camera_id=camera))
    write_pairs_file(tmp_path / "pairs.txt", PAIRS, "colmap")
    options = pycolmap.ImportedPairingOptions()
    options.match_list_path = str(tmp_path / "pairs.txt")
    with pycolmap.Database.open(str(tmp_path / "map.db")) as database:
        by_id = {image.image_id: image.name for image in database.read_all_images()}
        generator = pycolmap.ImportedPairGenerator(options, database)
        found = [tuple(by_id[one] for one in pair) for pair in generator.all_pairs()]
    assert found == [pair[:2] for pair in PAIRS]
