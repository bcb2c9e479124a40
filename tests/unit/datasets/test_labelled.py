"""Tables of images and things: Google Landmarks' two layouts, one's own, and what is refused with the line at fault."""

import csv
from pathlib import Path

import pytest

from superfeat.datasets.labelled import read_labelled, read_pairs
from superfeat.datasets.training_set import TrainingSet
from superfeat.errors import DatasetError

IDS = ("00ab1c2d3e4f5a6b", "0123456789abcdef", "fedcba9876543210", "f00000000000000d")


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Four images as Google Landmarks stores them, three in a plain folder."""
    folder = tmp_path / "images"
    for cid in IDS:
        write(folder / cid[0] / cid[1] / cid[2] / f"{cid}.jpg")
    for name in ("a.png", "b.jpg", 'sub/ü, "c".jpg'):
        write(folder / name)
    return folder


def write(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x")


def table(images: Path, content: str | bytes, name: str = "labels.csv") -> Path:
    path = images.parent / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def things(found: TrainingSet) -> dict[str, int]:
    return {photo.name: thing for photo, thing in zip(found.photos, found.things.tolist(), strict=True)}


def stored(cid: str) -> str:
    return f"{cid[0]}/{cid[1]}/{cid[2]}/{cid}.jpg"


# --- what is read -----------------------------------------------------------------------------------------------------


def test_google_landmarks(images: Path) -> None:
    rows = "".join(f"{cid},http://x/{cid},{thing}\n" for cid, thing in zip(IDS, (7, 7, 9, 9), strict=True))
    found = read_labelled(table(images, "id,url,landmark_id\n" + rows), images)
    assert things(found) == {stored(cid): number for cid, number in zip(IDS, (0, 0, 1, 1), strict=True)}
    assert [photo.path.is_file() for photo in found.photos] == [True] * 4
    assert found.pairs is None
    assert found.notes == ()


def test_google_landmarks_clean(images: Path) -> None:
    content = f"landmark_id,images\n7,{IDS[0]} {IDS[2]}\n9,{IDS[3]}\n"
    found = read_labelled(table(images, content), images)
    assert things(found) == {stored(IDS[0]): 0, stored(IDS[2]): 0, stored(IDS[3]): 1}
    assert found.notes == ("1 thing has one image and serves as negatives only: 9",)


def test_a_landmark_with_more_images_than_the_csv_module_allows(images: Path) -> None:
    before = csv.field_size_limit()
    names = [f"{number:016x}" for number in range(before // 17 + 10)]
    content = f"landmark_id,images\n7,{' '.join(names)}\n8,{IDS[2]} {IDS[3]}\n9,a.png\n"
    found = read_labelled(table(images, content), images, allow_missing=True)
    assert len(found.photos) == 3
    assert found.notes[0].startswith(f"images of labels.csv that are missing and were left out: {len(names)} (0000")
    assert csv.field_size_limit() == before
    with pytest.raises(DatasetError, match="are missing"):
        read_labelled(table(images, content), images)
    assert csv.field_size_limit() == before, "an error puts it back, too"


@pytest.mark.parametrize("image", ["image", "path", "id"])
@pytest.mark.parametrize("thing", ["thing", "landmark_id", "label"])
def test_columns(images: Path, image: str, thing: str) -> None:
    found = read_labelled(table(images, f"{thing},{image}\nx,a.png\nx,b.jpg\ny,{IDS[0]}\n"), images)
    assert things(found) == {"a.png": 0, "b.jpg": 0, stored(IDS[0]): 1}


def test_a_path_says_more_than_an_id(images: Path) -> None:
    found = read_labelled(
        table(images, "id,path,label\n1,a.png,x\n2,b.jpg,x\n3,b,y\n".replace("3,b,", f"3,{IDS[0]},")), images
    )
    assert list(things(found)) == ["a.png", "b.jpg", stored(IDS[0])]


def test_tables_as_every_program_writes_them(images: Path) -> None:
    lines = ["\ufeff image , thing", '"sub\\ü, ""c"".jpg", Schloß ', "", ' b ,"Schloß"', "a.png,x,more"]
    content = "\r\n".join(lines)
    found = read_labelled(table(images, content), images)
    assert things(found) == {'sub/ü, "c".jpg': 0, "b.jpg": 0, "a.png": 1}


def test_where_an_id_is_looked_for(images: Path) -> None:
    write(images / "plain")
    write(images / "plain.jpg")
    write(images / "photo.1.jpg")
    write(images / "xy.jpg")
    (images / IDS[1]).mkdir()
    content = f"id,label\nplain,a\nphoto.1,a\nxy,a\n{IDS[1]},b\nsub/deep/q,b\n"
    write(images / "sub/deep/q.jpg")
    found = read_labelled(table(images, content), images)
    assert list(things(found)) == ["plain", "photo.1.jpg", "xy.jpg", stored(IDS[1]), "sub/deep/q.jpg"]


def test_the_same_line_twice_is_one(images: Path) -> None:
    content = f"image,thing\na.png,x\nb.jpg,x\na.png,x\n{IDS[0]},y\n{IDS[1]},y\na.png,x\n"
    found = read_labelled(table(images, content), images)
    assert found.notes == ("images that labels.csv names more than once: 2",)
    assert things(found) == {"a.png": 0, "b.jpg": 0, stored(IDS[0]): 1, stored(IDS[1]): 1}


def test_two_names_of_one_file_are_one_image(images: Path) -> None:
    content = f"image,thing\nb,x\nb.jpg,x\na.png,x\n{IDS[0]},y\n{stored(IDS[0])},y\n"
    found = read_labelled(table(images, content), images)
    assert things(found) == {"b.jpg": 0, "a.png": 0, stored(IDS[0]): 1}


# --- pairs ------------------------------------------------------------------------------------------------------------


def test_pairs_by_id_and_by_path(images: Path) -> None:
    labels = table(images, f"id,landmark_id\n{IDS[0]},1\n{IDS[1]},1\n{IDS[2]},2\n{IDS[3]},2\n")
    pairs = table(images, f"query,positive\n{IDS[1]},{IDS[0]}\n{stored(IDS[2])},{IDS[3]}\n", "pairs.csv")
    found = read_labelled(labels, images, pairs)
    assert found.pairs is not None
    assert found.pairs.tolist() == [[1, 0], [2, 3]]


def test_pairs_of_missing_images(images: Path) -> None:
    labels = table(images, f"id,landmark_id\ngone,1\n{IDS[1]},1\n{IDS[2]},2\n{IDS[3]},2\n")
    pairs = table(images, f"query,positive\n{IDS[1]},gone\n{IDS[2]},{IDS[3]}\n", "pairs.csv")
    found = read_labelled(labels, images, pairs, allow_missing=True)
    assert found.pairs is not None
    assert found.pairs.tolist() == [[1, 2]]
    assert found.notes == (
        "images of labels.csv that are missing and were left out: 1 (gone)",
        "pairs with a missing image that were left out: 1",
        "1 thing has one image and serves as negatives only: 1",
    )
    with pytest.raises(DatasetError, match="1 of the 4 images"):
        read_labelled(labels, images, pairs)


def test_pairs_of_images_that_the_table_lacks(images: Path) -> None:
    labels = table(images, f"id,landmark_id\n{IDS[1]},1\n{IDS[2]},2\n{IDS[3]},2\n")
    pairs = table(images, f"query,positive\n{IDS[2]},{IDS[3][:-1]}\n", "pairs.csv")
    with pytest.raises(DatasetError, match=rf"line 2 of .*pairs\.csv: there is no photo .*; did you mean '{IDS[3]}'"):
        read_labelled(labels, images, pairs)


def test_only_pairs_of_missing_images(images: Path) -> None:
    path = table(images, "query,positive\na,b\n", "pairs.csv")
    found = read_pairs(path, {"a": -1, "b": 0})
    assert found.rows.shape == (0, 2)
    assert found.left_out == 1


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_missing_images(images: Path) -> None:
    labels = table(images, "id,landmark_id\nabcd,1\na.png,1\ngone.jpg,2\nxy,2\nsub,3\n")
    with pytest.raises(DatasetError) as raised:
        read_labelled(labels, images)
    assert str(raised.value) == (
        f"4 of the 5 images of {labels} are missing (abcd, gone.jpg, xy, ...); the first was looked for at "
        f"{images}/abcd and {images}/abcd.jpg and {images}/a/b/c/abcd.jpg: "
        "fetch them, or allow missing images to train without"
    )


def test_all_images_missing(images: Path) -> None:
    labels = table(images, "id,landmark_id\nx,1\ny.jpg,1\n")
    with pytest.raises(DatasetError, match=r"2 of the 2 images of .* are missing \(x, y\.jpg\)"):
        read_labelled(labels, images, allow_missing=True)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"has the columns \(none\), but needs one of image, path, id and one of thing, landmark_id, label"),
        (b"a.png,x\nb.jpg,x\n", r"labels\.csv has the columns a\.png, x, but needs"),
        (b"image;thing\na.png;x\n", "has the columns image;thing, but needs"),
        (b"image,url\na.png,x\n", "has the columns image, url, but needs"),
        (b"image,thing\n", "labels.csv names no images: write one line"),
        (b"image,thing\na.png,x\nb.jpg\n", "line 3 of .*labels.csv has no thing: fill it in, or take the line out"),
        (b"image,thing\n,x\n", "line 2 of .* has no image"),
        (b"landmark_id,images\n7, \n", "line 2 of .* has no images"),
        (
            b"image,thing\na.png,x\nb.jpg,x\na.png,y\n",
            "line 4 of .* says that a.png shows y, an earlier one that it shows x",
        ),
        (
            b"image,thing\nb,x\na.png,x\nb.jpg,y\n",
            "says that b shows x and that b.jpg shows y, but both are .*b.jpg: keep one",
        ),
        (b"image,thing\na.png,x\nb.jpg,x\n", r"labels.csv has only one thing \(x\)"),
        (b"image,thing\na.png,x\nb.jpg,y\n", r"has no thing with two images, .* \(one image each: x, y\)"),
        (b"image,thing\n../../etc/passwd,x\n", "line 2 of .* holds '../../etc/passwd': paths must be relative"),
        (b"image,thing\n/etc/passwd,x\n", "line 2 of .* holds '/etc/passwd': paths must be relative"),
        (b"image,thing\na\0b,x\n", r"line (1|2) of .*(which is no path of a photo|is no CSV)"),
        (b"image,thing\na.png,\xff\n", "labels.csv is not UTF-8 text: save it as 'CSV UTF-8'"),
    ],
)
def test_tables_that_cannot_be_used(images: Path, content: bytes, message: str) -> None:
    with pytest.raises(DatasetError, match=message) as raised:
        read_labelled(table(images, content), images)
    assert "\n" not in str(raised.value)


def test_files_that_are_not_there(images: Path) -> None:
    with pytest.raises(DatasetError, match=r"cannot read .*absent\.csv: No such file"):
        read_labelled(images / "absent.csv", images)
    with pytest.raises(DatasetError, match=r"there is no folder .*: give the one that holds the images of .*labels"):
        read_labelled(table(images, "image,thing\n"), images / "absent")
    with pytest.raises(DatasetError, match=r"cannot read .*: Is a directory"):
        read_labelled(images, images)


def test_what_is_no_csv(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("superfeat.datasets.labelled.LONGEST_CELL", 20)
    with pytest.raises(DatasetError, match=r"line 2 of .*labels\.csv is no CSV: field larger than field limit"):
        read_labelled(table(images, f"image,thing\n{'a' * 50},x\n"), images)
    with pytest.raises(DatasetError, match=r"line 1 of .*labels\.csv is no CSV: field larger than field limit"):
        read_labelled(table(images, f"image,{'a' * 50}\n"), images)
