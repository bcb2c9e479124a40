"""Folders of photos: one sub-folder per thing, pairs.csv in every spelling, and refusals in one line."""

import unicodedata
from pathlib import Path

import pytest

from superfeat.datasets.folders import read_folders
from superfeat.datasets.training_set import TrainingSet
from superfeat.errors import DatasetError

PHOTOS = ("castle/a.jpg", "castle/b.jpg", "castle/inside/c.png", "tower/a.jpg", "tower/d.JPEG", "well/e.jpg")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "set", *PHOTOS)


def write(folder: Path, *names: str) -> Path:
    """Files with these names; nothing reads them."""
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"x")
    return folder


def things(found: TrainingSet) -> dict[str, int]:
    return {photo.name: thing for photo, thing in zip(found.photos, found.things.tolist(), strict=True)}


def pairs(found: TrainingSet) -> list[tuple[str, str]]:
    assert found.pairs is not None
    return [(found.photos[query].name, found.photos[positive].name) for query, positive in found.pairs.tolist()]


def test_a_thing_is_a_sub_folder(folder: Path) -> None:
    found = read_folders(folder)
    assert list(things(found)) == list(PHOTOS)
    assert list(things(found).values()) == [0, 0, 0, 1, 1, 2]
    assert found.photos[2].path == folder / "castle/inside/c.png"
    assert found.pairs is None
    assert found.notes == ("1 thing has one image and serves as negatives only: well",)
    assert things(read_folders(str(folder) + "/")) == things(found)


def test_folders_with_strange_names(folder: Path) -> None:
    write(folder, "x.jpg/a.jpg", "x.jpg/b.jpg", "Straße des 17. Juni/ü.jpg", "日本/城.png", "日本/a,b\"c'.png")
    (folder / "castle" / "folder.jpg").mkdir()
    (folder / "empty").mkdir()
    found = things(read_folders(folder))
    assert len(found) == len(PHOTOS) + 5
    assert (
        len({found["x.jpg/a.jpg"], found["Straße des 17. Juni/ü.jpg"], found["日本/城.png"], found["castle/a.jpg"]})
        == 4
    )


def test_other_files_are_passed_over(folder: Path) -> None:
    write(folder, "README.md", "castle/notes.txt", ".DS_Store", ".cache/a.jpg", "castle/.thumb.jpg")
    assert list(things(read_folders(folder))) == list(PHOTOS)


# --- pairs ------------------------------------------------------------------------------------------------------------


def test_pairs_in_the_folder(folder: Path) -> None:
    (folder / "pairs.csv").write_text("query,positive\ncastle/a.jpg,castle/inside/c.png\ntower/d.JPEG,tower/a.jpg\n")
    assert pairs(read_folders(folder)) == [("castle/a.jpg", "castle/inside/c.png"), ("tower/d.JPEG", "tower/a.jpg")]


def test_given_pairs_go_before_those_in_the_folder(folder: Path, tmp_path: Path) -> None:
    (folder / "pairs.csv").write_text("query,positive\nno,photo\n")
    other = tmp_path / "other.csv"
    other.write_text("query,positive\ncastle/b.jpg,castle/a.jpg\n")
    assert (
        pairs(read_folders(folder, other))
        == pairs(read_folders(folder, str(other)))
        == [("castle/b.jpg", "castle/a.jpg")]
    )


def test_pairs_as_every_program_writes_them(folder: Path) -> None:
    write(folder, 'castle/x, "y".jpg', "castle/é.jpg", "castle/two\nlines.jpg")
    lines = [
        b"\xef\xbb\xbfscore, positive ,query",
        b'0.5,"castle/x, ""y"".jpg",castle/a.jpg',
        b"",
        b"0.4,castle\\b.jpg,./castle//a.jpg,more,cells",
        b",castle/a.jpg, castle/b.jpg ",
        "0,castle/é.jpg,castle/a.jpg".encode(),
        b"0,castle/a.jpg," + unicodedata.normalize("NFD", "castle/é.jpg").encode(),
        b'0,castle/b.jpg,"castle/two\nlines.jpg"',
    ]
    (folder / "pairs.csv").write_bytes(b"\r\n".join(lines))
    assert pairs(read_folders(folder)) == [
        ("castle/a.jpg", 'castle/x, "y".jpg'),
        ("castle/a.jpg", "castle/b.jpg"),
        ("castle/b.jpg", "castle/a.jpg"),
        ("castle/a.jpg", "castle/é.jpg"),
        ("castle/é.jpg", "castle/a.jpg"),
        ("castle/two\nlines.jpg", "castle/b.jpg"),
    ]


def test_pairs_of_a_photo_with_itself_are_noted(folder: Path) -> None:
    (folder / "pairs.csv").write_text("query,positive\ncastle/a.jpg,castle/a.jpg\ncastle/a.jpg,castle/b.jpg\n")
    found = read_folders(folder)
    assert pairs(found) == [("castle/a.jpg", "castle/b.jpg")]
    assert found.notes[-1] == "1 pair whose query is its positive was dropped"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"pairs\.csv has the columns \(none\), but needs a first line with query,positive"),
        (b"\n\n", "needs a first line with query,positive"),
        (b"castle/a.jpg,castle/b.jpg\n", "has the columns castle/a.jpg, castle/b.jpg, but needs a first line with"),
        (b"query;positive\na;b\n", "has the columns query;positive, but needs"),
        (b"query,positive\n", "pairs.csv holds no pairs: write one line"),
        (b"query,positive\ncastle/a.jpg\n", "line 2 of .*pairs.csv has no positive: fill it in, or take the line out"),
        (b"query,positive\n\n ,castle/b.jpg\n", "line 3 of .* has no query"),
        (
            b"query,positive\ncastle/a.jpg,castle/bb.jpg\n",
            r"line 2 of .*: there is no photo 'castle/bb.jpg'; did you mean 'castle/b.jpg'\?",
        ),
        (b"query,positive\nc.png,castle/b.jpg\n", r"there is no photo 'c.png'; did you mean 'castle/inside/c.png'\?"),
        (
            b"query,positive\n\xe6\x97\xa5,castle/b.jpg\n",
            "there is no photo '日'; names are relative to the folder of photos",
        ),
        (
            b"query,positive\ncastle/a.jpg,tower/a.jpg\n",
            "castle/a.jpg and tower/a.jpg are given as a pair but belong to",
        ),
        (b"query,positive\ncastle/a.jpg,castle/a.jpg\n", "has no pair of two different photos"),
        (b'query,positive\n"castle\n/a.jpg",b\n', "line 3 of .* there is no photo 'castle\\\\n/a.jpg'"),
        (b"query,positive\n\xff\xfe,b\n", "pairs.csv is not UTF-8 text: save it as 'CSV UTF-8'"),
        ("query,positive\na,b\n".encode("utf-16"), "is not UTF-8 text"),
    ],
)
def test_pairs_that_cannot_be_used(folder: Path, content: bytes, message: str) -> None:
    (folder / "pairs.csv").write_bytes(content)
    with pytest.raises(DatasetError, match=message) as raised:
        read_folders(folder)
    assert "\n" not in str(raised.value)


def test_pairs_that_are_not_there(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"cannot read .*absent\.csv: No such file"):
        read_folders(folder, tmp_path / "absent.csv")
    with pytest.raises(DatasetError, match=r"cannot read .*: Is a directory"):
        read_folders(folder, tmp_path)
    (folder / "pairs.csv").mkdir()
    assert read_folders(folder).pairs is None


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], "no photos in .*set: give a folder with one sub-folder of photos per thing"),
        (["a/x.txt", "b/y.pdf"], r"no photos in .*set \(left out: 2 not a photo by its ending\): give"),
        (["a.jpg", "castle/b.jpg"], r"photos that are in no sub-folder \(a\.jpg\), .*: sort them into one sub-folder"),
        (["a.jpg", "b.jpg", "c.jpg", "d.jpg"], r"in no sub-folder \(a.jpg, b.jpg, c.jpg, ...\)"),
        (["castle/a.jpg", "castle/b.jpg"], r"set has only one thing \(castle\), so that no query has a negative: add"),
        (["a/1.jpg", "b/1.jpg"], r"has no thing with two images, .* \(one image each: a, b\): add a second photo"),
    ],
)
def test_folders_that_cannot_be_trained_on(tmp_path: Path, names: list[str], message: str) -> None:
    folder = write(tmp_path / "set", *names)
    with pytest.raises(DatasetError, match=message) as raised:
        read_folders(folder)
    assert "\n" not in str(raised.value)


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("a.jpg\n")
    for path in (tmp_path / "absent", tmp_path / "list.txt", tmp_path / "*"):
        with pytest.raises(DatasetError, match=r"there is no folder .*: give a folder with one sub-folder of photos"):
            read_folders(path)
