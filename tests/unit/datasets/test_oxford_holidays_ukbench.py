"""Oxford5k, Paris6k, Holidays and UKBench, made up small; damaged and missing files."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures_benchmarks import (
    BOX,
    IMAGES,
    OXFORD,
    PARIS,
    empty_files,
    gnd,
    judge,
    names,
    oxford,
    photo_files,
    require_one_line,
    save,
)
from superfeat.datasets.holidays import read_holidays
from superfeat.datasets.oxford import read_oxford
from superfeat.datasets.retrieval_set import Query, RetrievalSet
from superfeat.datasets.revisited import read_revisited
from superfeat.datasets.training_set import missing_photos
from superfeat.datasets.ukbench import read_ukbench
from superfeat.errors import DatasetError
from superfeat.images import Photo, read_image

# --- Oxford5k and Paris6k ---------------------------------------------------------------------------------------------


def test_the_oxford_layout(tmp_path: Path) -> None:
    found = read_oxford(oxford(tmp_path), "oxford5k")
    folder = tmp_path / "jpg"
    files = [
        tmp_path / "gt" / f"{landmark}_{kind}.txt"
        for landmark in ("all_souls_1", "keble_2")
        for kind in ("query", "good", "ok", "junk")
    ]
    assert found == RetrievalSet(
        "oxford5k",
        tuple(Photo(folder / f"{name}.jpg", name) for name in OXFORD),
        (
            Query(Photo(folder / "all_souls_000013.jpg", "all_souls_000013", BOX), (0, 1, 4), (3,)),
            Query(Photo(folder / "keble_000001.jpg", "keble_000001", (0.0, 0.0, 12.0, 8.0)), (2,)),
        ),
        "plain",
        tuple(files),
        as_stored=True,
    )
    query = found.queries[1].photo
    assert read_image(query.path, box=query.box).shape == (8, 12, 3)
    assert read_oxford(str(tmp_path), "oxford5k") == found


@pytest.mark.parametrize("images", ["jpg", "oxbuild_images", "images", ""])
@pytest.mark.parametrize("truths", ["", "gt", "groundtruth", "gt_files_170407"])
@pytest.mark.parametrize("place", ["", "oxford5k", "test/oxford5k"])
def test_where_oxford_may_lie(tmp_path: Path, place: str, truths: str, images: str) -> None:
    oxford(tmp_path / place, truths, images)
    found = read_oxford(tmp_path, "oxford5k")
    assert names(found) == list(OXFORD)
    assert {file.parent for file in found.files} == {tmp_path / place / truths}
    assert {photo.path.parent for photo in found.photos} == {tmp_path / place / images}


@pytest.mark.parametrize("images", ["jpg", "paris", "images", "paris6k", "paris6k/paris"])
@pytest.mark.parametrize("truths", ["", "gt", "groundtruth", "paris_120310", "paris6k/gt"])
def test_paris_has_a_folder_for_each_landmark(tmp_path: Path, truths: str, images: str) -> None:
    judge(tmp_path / truths, "defense_1", f"{PARIS[0]} 130 17 843 732", good=PARIS[0], ok=PARIS[1])
    photo_files(tmp_path / images, *(f"{name.split('_')[1]}/{name}.jpg" for name in PARIS))
    found = read_oxford(tmp_path, "paris6k")
    assert found.name == "paris6k"
    assert names(found) == sorted(PARIS)
    assert found.photos[0].path == tmp_path / images / "defense" / "paris_defense_000001.jpg"
    (query,) = found.queries
    assert query == Query(Photo(found.photos[1].path, PARIS[0], (130.0, 17.0, 843.0, 732.0)), (0, 1))
    assert missing_photos(found.photos) == []


def test_a_data_folder_with_everything(tmp_path: Path) -> None:
    """Both sets, the revisited ones and Holidays side by side, each in its own folder or in the folder itself."""
    oxford(tmp_path / "oxford5k")
    judge(tmp_path / "paris6k/gt", "defense_1", f"{PARIS[0]} 130 17 843 732", good=PARIS[0])
    photo_files(tmp_path / "paris6k/jpg/defense", f"{PARIS[0]}.jpg")
    save(tmp_path / "test/roxford5k", gnd())
    empty_files(tmp_path / "jpg", "100000.jpg", "100001.jpg")
    assert names(read_oxford(tmp_path, "oxford5k")) == list(OXFORD)
    assert names(read_oxford(tmp_path, "paris6k")) == [PARIS[0]]
    assert names(read_revisited(tmp_path, "roxford5k")) == IMAGES
    assert names(read_holidays(tmp_path)) == ["100000", "100001"]


def test_other_files_are_no_part_of_the_database(tmp_path: Path) -> None:
    oxford(tmp_path)
    empty_files(tmp_path / "jpg", "._keble_000001.jpg", "readme.txt", "a.png", "no_ending", "more/last.JPG")
    (tmp_path / "jpg" / "folder.jpg").mkdir()
    (tmp_path / "gt" / "._keble_2_query.txt").write_bytes(b"\xff")
    assert names(read_oxford(tmp_path, "oxford5k")) == sorted([*OXFORD, "last"])


def test_junk_is_never_right(tmp_path: Path) -> None:
    both = "keble_000001\noxford_000317"
    judge(oxford(tmp_path) / "gt", "keble_2", "oxc1_keble_000001 0 0 12 8", good=both, ok=both, junk="keble_000001")
    query = read_oxford(tmp_path, "oxford5k").queries[1]
    assert (query.positives, query.junk) == ((3,), (2,))
    judge(tmp_path / "gt", "keble_2", "oxc1_keble_000001 0 0 12 8", junk="keble_000001")
    found = read_oxford(tmp_path, "oxford5k")
    assert (len(found.queries), found.left_out) == (1, 1)


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("query", "", "must be one line with an image and the four numbers of a box: fetch it again"),
        ("query", "oxc1_keble_000001 0 0 12", "must be one line with an image"),
        ("query", "oxc1_keble_000001 0 0 12 8 9", "must be one line with an image"),
        ("query", "keble_000001 0 0 1 1\nkeble_000001 0 0 1 1", "must be one line with an image"),
        ("query", "keble_000001 0 0 wide 8", r"the box must be four numbers \(.*'wide'\): fetch it again"),
        ("query", "keble_000001 0 0 nan 8", "must be a box: four numbers x1, y1, x2, y2"),
        ("query", "keble_000001 0 8 12 8", "must be a box: four numbers x1, y1, x2, y2"),
        ("query", "../keble_000001 0 0 12 8", "holds '../keble_000001', which is no name of an image"),
        ("query", "oxc1_ 0 0 12 8", "holds '', which is no name of an image"),
        ("query", "oxc1_absent 0 0 12 8", "names absent, but there is no absent.jpg below .*/jpg: put it there"),
        ("good", "absent", "names absent, but there is no absent.jpg below .*/jpg: put it there"),
        ("ok", "keble_000001\nabsent", "names absent, but there is no absent.jpg"),
        ("junk", "absent", "names absent, but there is no absent.jpg"),
        ("good", "/etc/passwd", "holds '/etc/passwd', which is no name of an image"),
        ("good", "keble_000001 keble_000001", "names keble_000001 keble_000001, but there is no"),
        ("ok", b"\xff\xfe", "it is no UTF-8 text; unpack the published ground truth again"),
        ("junk", None, "No such file or directory; unpack the published ground truth again"),
    ],
)
def test_oxford_lists_that_cannot_be_used(tmp_path: Path, kind: str, text: str | bytes | None, message: str) -> None:
    file = oxford(tmp_path) / "gt" / f"keble_2_{kind}.txt"
    file.unlink()
    if text is not None:
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(DatasetError, match=f"{re.escape(str(file))}.*{message}") as raised:
        read_oxford(tmp_path, "oxford5k")
    require_one_line(raised)


def test_two_images_of_one_name(tmp_path: Path) -> None:
    photo_files(oxford(tmp_path) / "jpg", "again/keble_000001.jpg")
    with pytest.raises(DatasetError, match=r"keble_000001\.jpg and .*keble_000001\.jpg have the same name: take one"):
        read_oxford(tmp_path, "oxford5k")


def test_oxford_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(DatasetError) as raised:
        read_oxford(tmp_path, "oxford5k")
    assert str(raised.value) == (
        f"there are no *_query.txt files of oxford5k at {tmp_path} or in gt, groundtruth, gt_files_170407 below it: "
        "unpack the published ground truth there"
    )
    judge(tmp_path / "paris_120310", "defense_1", f"{PARIS[0]} 130 17 843 732", good=PARIS[0])
    with pytest.raises(DatasetError, match=r"there are no .* files of oxford5k"):
        read_oxford(tmp_path, "oxford5k")
    empty_files(tmp_path, "other/x.jpg", "jpg/x.png")
    with pytest.raises(DatasetError) as raised:
        read_oxford(tmp_path, "paris6k")
    assert str(raised.value) == (
        f"there are no .jpg images of paris6k below {tmp_path}/jpg or {tmp_path}/paris or {tmp_path}/images: unpack "
        "the published images there"
    )


# --- Holidays ---------------------------------------------------------------------------------------------------------


HOLIDAYS = ("100000", "100001", "100002", "100100", "100101", "149900")


@pytest.mark.parametrize("place", ["", "jpg", "holidays", "holidays/jpg", "test/holidays/jpg"])
def test_the_holidays_layout(tmp_path: Path, place: str) -> None:
    folder = photo_files(tmp_path / place, *(f"{name}.jpg" for name in reversed(HOLIDAYS)))
    empty_files(folder, "1000.jpg", "100003.png", "a100003.jpg", "1000031.jpg", "١٠٠٠٠٣.jpg", "x/100003.jpg")
    (folder / "100004.jpg").mkdir()
    found = read_holidays(str(tmp_path))
    photos = tuple(Photo(folder / f"{name}.jpg", name) for name in HOLIDAYS)
    queries = (Query(photos[0], (1, 2), (0,)), Query(photos[3], (4,), (3,)))
    assert found == RetrievalSet("holidays", photos, queries, "plain", (), True, 1)


@pytest.mark.parametrize("place", ["", "jpg", "holidays"])
def test_holidays_in_two_folders(tmp_path: Path, place: str) -> None:
    photo_files(tmp_path / place / "jpg1", "100000.jpg", "100001.jpg")
    photo_files(tmp_path / place / "jpg2", "100002.jpg", "149900.jpg", "149901.jpg")
    found = read_holidays(tmp_path)
    assert names(found) == ["100000", "100001", "100002", "149900", "149901"]
    assert [query.positives for query in found.queries] == [(1, 2), (4,)]
    assert missing_photos(found.photos) == []
    photo_files(tmp_path / place / "jpg2", "100000.jpg")
    with pytest.raises(DatasetError, match=r"100000\.jpg and .*100000\.jpg have the same name: take one away"):
        read_holidays(tmp_path)


@given(st.sets(st.integers(0, 8).flatmap(lambda group: st.integers(0, 4).map(lambda rest: 100 * group + rest))))
@settings(deadline=None, max_examples=60)
def test_any_holidays(tmp_path_factory: pytest.TempPathFactory, chosen: set[int]) -> None:
    ordered = sorted(100000 + number for number in chosen)
    folder = empty_files(tmp_path_factory.mktemp("days"), *(f"{number}.jpg" for number in ordered))
    if any(number - number % 100 not in ordered for number in ordered) or all(n % 100 == 0 for n in ordered):
        with pytest.raises(DatasetError, match=r"there are no images|has no query|has a positive"):
            read_holidays(folder)
        return
    found = read_holidays(folder)
    for query in found.queries:
        own = int(query.photo.name)
        assert own % 100 == 0
        right = [image for image, number in enumerate(ordered) if number // 100 == own // 100 and number != own]
        assert (list(query.positives), query.junk) == (right, (ordered.index(own),))
    assert len(found.queries) + found.left_out == sum(number % 100 == 0 for number in ordered)


def test_holidays_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(DatasetError) as raised:
        read_holidays(tmp_path)
    assert str(raised.value) == (
        f"there are no images 100000.jpg, 100001.jpg and so on at {tmp_path} or {tmp_path}/jpg: unpack the published "
        "jpg1 and jpg2 there"
    )
    empty_files(tmp_path, "100000.jpg", "100001.jpg", "100101.jpg")
    with pytest.raises(DatasetError) as raised:
        read_holidays(tmp_path)
    assert str(raised.value) == (
        f"{tmp_path}/100101.jpg has no query: put {tmp_path}/100100.jpg there, or take its group away"
    )


def test_a_folder_that_cannot_be_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(folder: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", refuse)
    for reader in (read_holidays, read_ukbench):
        with pytest.raises(DatasetError, match=f"cannot list {re.escape(str(tmp_path))}.*: Permission denied"):
            reader(tmp_path)


# --- UKBench ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["", "full", "ukbench", "ukbench/full"])
def test_the_ukbench_layout(tmp_path: Path, place: str) -> None:
    numbers = (*range(4), *range(10196, 10200))
    folder = photo_files(tmp_path / place, *(f"ukbench{number:05}.jpg" for number in reversed(numbers)))
    empty_files(folder, "ukbench0004.jpg", "ukbench00004.png", "thumbnails/ukbench00004.jpg", "ukbench000041.jpg")
    found = read_ukbench(str(tmp_path))
    photos = tuple(Photo(folder / f"ukbench{number:05}.jpg", f"ukbench{number:05}") for number in numbers)
    right = [(0, 1, 2, 3)] * 4 + [(4, 5, 6, 7)] * 4
    queries = tuple(Query(photo, four) for photo, four in zip(photos, right, strict=True))
    assert found == RetrievalSet("ukbench", photos, queries, "ukbench", as_stored=True)
    assert missing_photos(found.photos) == []


@given(st.sets(st.integers(0, 11)))
@settings(deadline=None, max_examples=60)
def test_any_ukbench(tmp_path_factory: pytest.TempPathFactory, chosen: set[int]) -> None:
    folder = empty_files(tmp_path_factory.mktemp("things"), *(f"ukbench{number:05}.jpg" for number in chosen))
    wanted = {4 * (number // 4) + other for number in chosen for other in range(4)}
    if not chosen:
        with pytest.raises(DatasetError, match=r"there are no images ukbench00000\.jpg"):
            read_ukbench(folder)
    elif lacking := wanted - chosen:
        with pytest.raises(DatasetError, match=f"there is no {folder}/ukbench{min(lacking):05}.jpg: put it there"):
            read_ukbench(folder)
    else:
        found = read_ukbench(folder)
        for image, query in enumerate(found.queries):
            assert len(query.positives) == 4
            assert image in query.positives
            assert len({int(found.photos[other].name[-5:]) // 4 for other in query.positives}) == 1
