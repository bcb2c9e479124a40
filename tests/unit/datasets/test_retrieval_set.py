"""What searching is judged by: each photo in turn, ground truth in JSON, boxes in stored pixels, and bad files."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fixtures_recipe import noise
from superfeat.datasets.retrieval_set import Query, RetrievalSet, each_photo_in_turn, read_gnd_json, with_positives
from superfeat.datasets.training_set import TrainingSet
from superfeat.errors import DatasetError
from superfeat.images import Photo, read_image

DATABASE = ["a.png", "more/b.jpg", "c.png", "ü.png", "c.png"]
ORIENTATION = 0x0112


@pytest.fixture
def images(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    (folder / "more").mkdir(parents=True)
    Image.fromarray(noise(40, 80)).save(folder / "query.png")
    return folder


def save(images: Path, contents: Any) -> Path:
    path = images.parent / "some_gnd.json"
    path.write_bytes(contents if isinstance(contents, bytes) else json.dumps(contents).encode())
    return path


def gnd(**query: Any) -> dict[str, Any]:
    return {"db": DATABASE, "queries": [{"img": "query.png", **query}]}


def read(images: Path, **query: Any) -> Query:
    (found,) = read_gnd_json(save(images, gnd(**query)), images).queries
    return found


# --- each photo in turn -----------------------------------------------------------------------------------------------


def test_each_photo_in_turn() -> None:
    photos = tuple(Photo(Path(f"{number}.jpg"), f"{number}.jpg") for number in range(6))
    found = each_photo_in_turn(TrainingSet(photos, np.array([9, 4, 9, 5, 4, 9]), np.array([[0, 2]])), "mine")
    assert found.name == "mine"
    assert found.photos == photos
    assert found.queries == (
        Query(photos[0], (2, 5), (0,)),
        Query(photos[1], (4,), (1,)),
        Query(photos[2], (0, 5), (2,)),
        Query(photos[4], (1,), (4,)),
        Query(photos[5], (0, 2), (5,)),
    )


def test_no_photo_has_a_positive() -> None:
    photos = (Photo(Path("a"), "a"), Photo(Path("b"), "b"))
    with pytest.raises(
        DatasetError, match="mine: none of its 2 queries has a positive, so there is nothing to measure"
    ):
        each_photo_in_turn(TrainingSet(photos, np.array([0, 1]), None), "mine")
    with pytest.raises(DatasetError, match="none of its 0 queries"):
        with_positives("none", [], [])


# --- JSON -------------------------------------------------------------------------------------------------------------


def test_positives_and_junk(images: Path) -> None:
    path = save(images, gnd(pos=[2, 0, 2], junk=[3]))
    photo = Photo(images / "query.png", "query.png")
    assert read_gnd_json(path, images) == RetrievalSet(
        "some_gnd",
        tuple(Photo(images / name, name) for name in DATABASE),
        (Query(photo, (0, 2), (3,)),),
        files=(path,),
        as_stored=True,
    )
    assert read_gnd_json(str(path), str(images)).queries[0].photo == photo


@pytest.mark.parametrize(
    ("query", "positives", "junk"),
    [
        ({"easy": [3], "hard": [1]}, (1, 3), ()),
        ({"easy": [3]}, (3,), ()),
        ({"easy": [3], "hard": [], "pos": [3, 4]}, (3, 4), ()),
        ({"pos": [1], "self": 2}, (1,), (2,)),
        ({"pos": [1, 2], "self": 2, "junk": [2, 0]}, (1,), (0, 2)),
        ({"pos": [1], "self": None, "bbox_rel": None, "landmark": "x"}, (1,), ()),
    ],
)
def test_every_form(images: Path, query: dict[str, Any], positives: tuple[int, ...], junk: tuple[int, ...]) -> None:
    found = read(images, **query)
    assert (found.positives, found.junk, found.photo.box) == (positives, junk, None)


def test_grades(images: Path) -> None:
    graded = read(images, easy=[3], hard=[1], junk=[0])
    assert (graded.easy, graded.hard, graded.positives, graded.junk) == ((3,), (1,), (1, 3), (0,))
    assert read_gnd_json(save(images, gnd(easy=[3], hard=[1])), images).protocol == "revisited"
    assert read_gnd_json(save(images, gnd(easy=[3])), images).protocol == "plain"
    assert read(images, easy=[3], hard=[2, 1], self=2).hard == (1,), "the query's own photo is junk, not hard"


def test_the_name_and_the_mark_that_windows_writes(images: Path) -> None:
    text = json.dumps(gnd(pos=[0]) | {"name": "Schloß"}, ensure_ascii=False)
    assert read_gnd_json(save(images, b"\xef\xbb\xbf" + text.encode()), images).name == "Schloß"
    assert read_gnd_json(save(images, gnd(pos=[0]) | {"name": 5}), images).name == "some_gnd"


def test_queries_without_positives_are_left_out(images: Path) -> None:
    contents = gnd(pos=[], junk=[0])
    contents["queries"] += [{"img": "b.png", "easy": [], "hard": [1]}, {"img": "c.png", "pos": [2], "self": 2}]
    assert [query.photo.name for query in read_gnd_json(save(images, contents), images).queries] == ["b.png"]
    with pytest.raises(DatasetError, match="some_gnd: none of its 1 queries has a positive"):
        read_gnd_json(save(images, gnd(pos=[])), images)


def test_a_box_in_stored_pixels(images: Path) -> None:
    found = read(images, pos=[0], bbox_rel=[0.125, 0, 0.5, 1])
    assert found.photo.box == (10.0, 0.0, 40.0, 40.0)
    assert read_image(found.photo.path, box=found.photo.box).shape == (40, 30, 3)


def test_a_box_does_not_turn_with_the_photo(images: Path) -> None:
    image = Image.fromarray(noise(40, 80))
    exif = image.getexif()
    exif[ORIENTATION] = 6
    image.save(images / "turned.jpg", exif=exif)
    contents = {"db": DATABASE, "queries": [{"img": "turned.jpg", "pos": [0], "bbox_rel": [0, 0, 1, 0.5]}]}
    assert read_gnd_json(save(images, contents), images).queries[0].photo.box == (0.0, 0.0, 80.0, 20.0)


@pytest.mark.parametrize(
    "box",
    [
        [0, 0, 1],
        [0, 0, 1, 1, 1],
        [0.5, 0, 0.5, 1],
        [0, 0.6, 1, 0.5],
        [0, 0, 1.5, 1],
        [-0.1, 0, 1, 1],
        [0, 0, float("nan"), 1],
        [0, 0, float("inf"), 1],
        ["0", 0, 1, 1],
        [False, 0, True, 1],
        "0011",
        {"x": 1},
        5,
        [],
    ],
)
def test_boxes_that_are_none(images: Path, box: Any) -> None:
    with pytest.raises(DatasetError, match=r"query 1: 'bbox_rel' is .*; it must be x1 < x2 and y1 < y2 from 0 to 1"):
        read(images, pos=[0], bbox_rel=box)


@pytest.mark.parametrize("content", [None, b"", b"no image", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"])
def test_a_box_on_what_is_no_image(images: Path, content: bytes | None) -> None:
    (images / "query.png").unlink()
    if content is not None:
        (images / "query.png").write_bytes(content)
    with pytest.raises(
        DatasetError, match=r"query 1: its box needs the size of .*query\.png, which cannot be read \(.+\)"
    ):
        read(images, pos=[0], bbox_rel=[0, 0, 1, 1])


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({}, "query 1 has neither 'pos' nor 'easy' and 'hard'"),
        ({"pos": [5]}, "query 1: 'pos' holds 5, but 'db' has 5 photos, numbered from 0"),
        ({"pos": [-1]}, "'pos' holds -1"),
        ({"pos": [1.0]}, "'pos' holds 1.0"),
        ({"pos": [True]}, "'pos' holds True"),
        ({"pos": ["a.png"]}, "'pos' holds 'a.png'"),
        ({"pos": [10**400]}, "'pos' holds 1000"),
        ({"pos": 1}, "'pos' must be a list of numbers of photos in 'db'"),
        ({"pos": None}, "'pos' must be a list"),
        ({"easy": [0], "hard": {}}, "'hard' must be a list"),
        ({"pos": [0], "junk": [9]}, "'junk' holds 9"),
        ({"pos": [0], "self": 9}, "'self' holds 9"),
        ({"pos": [0], "self": [1]}, r"'self' holds \[1\]"),
        ({"pos": [0, 1], "junk": [1]}, "query 1: photo 1 is both a positive and junk: take it out of one"),
        ({"img": None, "pos": [0]}, "query 1: 'img' holds None, which is no path of a photo"),
        ({"img": "../x.png", "pos": [0]}, "'img' holds '../x.png': paths must be relative"),
    ],
)
def test_queries_that_cannot_be_used(images: Path, query: dict[str, Any], message: str) -> None:
    with pytest.raises(DatasetError, match=message) as raised:
        read(images, **query)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        (b"", "some_gnd.json is not JSON"),
        (b"{", "is not JSON"),
        (b'{"db": ["a"], "queries": \xff}', "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        ([], "some_gnd.json holds no object: it must have 'db'"),
        ({}, "'db' must be a list of paths of photos"),
        ({"db": [], "queries": []}, "'db' must be a list of paths of photos"),
        ({"db": "a.png", "queries": []}, "'db' must be a list of paths"),
        ({"db": ["a.png", 5], "queries": []}, "'db' holds 5, which is no path of a photo"),
        ({"db": ["/etc/passwd"], "queries": []}, "'db' holds '/etc/passwd': paths must be relative"),
        ({"db": ["a.png"]}, "'queries' must be a list of objects with 'img' and 'pos'"),
        ({"db": ["a.png"], "queries": {}}, "'queries' must be a list of objects"),
        ({"db": ["a.png"], "queries": ["a.png"]}, "'queries' must be a list of objects"),
        ({"db": ["a.png"], "queries": []}, "none of its 0 queries has a positive"),
    ],
)
def test_files_that_cannot_be_used(images: Path, contents: Any, message: str) -> None:
    with pytest.raises(DatasetError, match=message) as raised:
        read_gnd_json(save(images, contents), images)
    assert "\n" not in str(raised.value)


def test_files_that_are_not_there(images: Path) -> None:
    with pytest.raises(DatasetError, match=r"cannot read .*absent\.json: No such file"):
        read_gnd_json(images / "absent.json", images)
    with pytest.raises(
        DatasetError, match=r"there is no folder .*absent: give the one that the paths in .* begin from"
    ):
        read_gnd_json(save(images, gnd(pos=[0])), images / "absent")
