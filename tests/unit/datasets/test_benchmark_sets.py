"""The retrieval benchmarks in their published layouts, made up small; damaged, hostile and missing files."""

import functools
import gc
import json
import os
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fixtures_recipe import noise
from superfeat.datasets.benchmarks import BENCHMARKS, read_benchmark
from superfeat.datasets.holidays import read_holidays
from superfeat.datasets.oxford import read_oxford
from superfeat.datasets.retrieval_set import Query, RetrievalSet
from superfeat.datasets.revisited import read_distractors, read_revisited
from superfeat.datasets.sfm120k import VALIDATION_FILE
from superfeat.datasets.training_set import missing_photos
from superfeat.datasets.ukbench import read_ukbench
from superfeat.errors import DatasetError, SuperfeatError, UnpickleError
from superfeat.images import Box, Photo, read_image

IMAGES = [f"landmark_{number:06}" for number in range(8)]
BOX: Box = (136.5, 34.1, 648.5, 955.7)
OUTSIDE = ["../x", "a/b", "/etc/passwd", "a\\b", "..", ".", "...", "", " ", "a\0b", "a\nb", "C:x", "\ud800", "a/../b"]


def photo_files(folder: Path, *names: str) -> Path:
    """Small real photos with these names."""
    for seed, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(noise(8, 12, seed)).save(folder / name)
    return folder


def empty_files(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


def names(found: RetrievalSet) -> list[str]:
    return [photo.name for photo in found.photos]


def require_one_line(raised: pytest.ExceptionInfo[SuperfeatError]) -> None:
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 700


# --- ROxford5k and RParis6k -------------------------------------------------------------------------------------------


def gnd(**changes: Any) -> dict[str, Any]:
    truths = [
        {"bbx": BOX, "easy": [3, 1], "hard": [5], "junk": [0, 2]},
        {"bbx": [0, 0, 8, 6], "easy": [], "hard": [7, 6], "junk": []},
    ]
    return {"imlist": IMAGES, "qimlist": ["query_000001", "query_000002"], "gnd": truths} | changes


def truth(**changes: Any) -> dict[str, Any]:
    """A file with one query that is changed like this; None takes a key out."""
    entries = {"bbx": BOX, "easy": [1], "hard": [2], "junk": [3]} | changes
    return gnd(qimlist=["query"], gnd=[{key: value for key, value in entries.items() if value is not None}])


def save(folder: Path, contents: Any, name: str = "roxford5k") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"gnd_{name}.pkl").write_bytes(contents if isinstance(contents, bytes) else pickle.dumps(contents))
    return folder


def read(folder: Path, contents: Any) -> RetrievalSet:
    return read_revisited(save(folder, contents), "roxford5k")


def test_the_revisited_layout(tmp_path: Path) -> None:
    found = read(tmp_path, gnd())
    folder = tmp_path / "jpg"
    assert found == RetrievalSet(
        "roxford5k",
        tuple(Photo(folder / f"{name}.jpg", name) for name in IMAGES),
        (
            Query(Photo(folder / "query_000001.jpg", "query_000001", BOX), (1, 3, 5), (0, 2), (5,)),
            Query(Photo(folder / "query_000002.jpg", "query_000002", (0.0, 0.0, 8.0, 6.0)), (6, 7), (), (6, 7)),
        ),
        "revisited",
        (tmp_path / "gnd_roxford5k.pkl",),
        as_stored=True,
    )
    assert [query.easy for query in found.queries] == [(1, 3), ()]
    assert missing_photos(found.photos, 100) == IMAGES, "reading the lists needs no images"


@pytest.mark.parametrize("name", ["roxford5k", "rparis6k"])
@pytest.mark.parametrize("place", ["", "{}", "test/{}"])
def test_where_the_revisited_lists_may_lie(tmp_path: Path, name: Literal["roxford5k", "rparis6k"], place: str) -> None:
    folder = save(tmp_path / place.format(name), gnd(), name)
    photo_files(folder / "jpg", *(f"{image}.jpg" for image in [*IMAGES, *gnd()["qimlist"]]))
    found = read_revisited(str(tmp_path), name)
    assert found.name == name
    assert found.files == (folder / f"gnd_{name}.pkl",)
    assert missing_photos(found.photos) == missing_photos([query.photo for query in found.queries]) == []
    query = found.queries[1].photo
    assert read_image(query.path, box=query.box).shape == (6, 8, 3)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_lists_tuples_and_arrays_in_every_protocol(tmp_path: Path, protocol: int) -> None:
    expected = read(tmp_path, truth(bbx=[1, 2, 3, 4]))
    forms: list[Callable[[list[Any]], Any]] = [list, tuple, np.asarray]
    forms += [functools.partial(np.asarray, dtype=kind) for kind in ("i1", ">i8", "<u2", "u8")]
    forms.append(lambda values: [np.int32(value) for value in values])
    for form in forms:
        entries = {"bbx": form([1, 2, 3, 4]), "easy": form([1]), "hard": form([2]), "junk": form([3])}
        contents = {"imlist": np.asarray(IMAGES), "qimlist": ("query",), "gnd": (entries,)}
        found = read(tmp_path, pickle.dumps(contents, protocol))
        assert found == expected
        query = found.queries[0]
        assert {type(image) for image in (*query.positives, *query.junk, *query.hard)} == {int}
        assert query.photo.box is not None
        assert {type(edge) for edge in query.photo.box} == {float}
        assert {type(name) for name in names(found)} == {str}


@pytest.mark.parametrize(
    "box",
    [BOX, [*BOX], np.asarray(BOX), [np.float64(edge) for edge in BOX], [136.5, np.float64(34.1), 648.5, 955.7]],
)
def test_boxes_of_every_kind(tmp_path: Path, box: Any) -> None:
    assert read(tmp_path, truth(bbx=box)).queries[0].photo.box == BOX
    half = read(tmp_path, truth(bbx=np.asarray([0, 0, 1.5, 2], np.float16))).queries[0].photo.box
    assert half == (0.0, 0.0, 1.5, 2.0)


@pytest.mark.parametrize(
    ("changes", "positives", "junk", "hard"),
    [
        ({"junk": None}, (1, 2), (), (2,)),
        ({"easy": [1, 1, 4], "hard": [2, 2]}, (1, 2, 4), (3,), (2,)),
        ({"easy": [1, 3], "hard": [2]}, (1, 2), (3,), (2,)),
        ({"easy": [1], "hard": [2, 3]}, (1, 2), (3,), (2,)),
        ({"easy": [1, 2], "hard": [2]}, (1, 2), (3,), (2,)),
        ({"easy": [], "hard": np.array([]), "junk": ()}, None, (), ()),
        ({"easy": [3], "hard": []}, None, (3,), ()),
    ],
)
def test_what_counts(
    tmp_path: Path,
    changes: dict[str, Any],
    positives: tuple[int, ...] | None,
    junk: tuple[int, ...],
    hard: tuple[int, ...],
) -> None:
    contents = truth(**changes)
    contents["qimlist"] += ["other"]
    contents["gnd"] += truth()["gnd"]
    found = read(tmp_path, contents)
    assert found.left_out == (positives is None)
    if positives is not None:
        query = found.queries[0]
        assert (query.positives, query.junk, query.hard) == (positives, junk, hard)
    assert found.queries[-1].photo.name == "other"


def test_two_boxes_in_one_image(tmp_path: Path) -> None:
    contents = gnd(qimlist=["same", "same"])
    assert len({query.photo for query in read(tmp_path, contents).queries}) == 2


def test_no_query_has_a_positive(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="roxford5k: none of its 1 queries has a positive"):
        read(tmp_path, truth(easy=[], hard=[]))


numbers = st.lists(st.integers(0, 9), max_size=6)


@given(st.lists(st.tuples(numbers, numbers, numbers), min_size=1, max_size=5))
@settings(deadline=None, max_examples=60)
def test_any_judgement(tmp_path_factory: pytest.TempPathFactory, truths: list[tuple[list[int], ...]]) -> None:
    """Against loops over every image: junk wins over all, hard over easy."""
    entries = [{"bbx": BOX, "easy": easy, "hard": hard, "junk": junk} for easy, hard, junk in truths]
    contents = {
        "imlist": [f"i{n}" for n in range(10)],
        "qimlist": [f"q{n}" for n in range(len(truths))],
        "gnd": entries,
    }
    expected = []
    for number, (easy, hard, junk) in enumerate(truths):
        grades = ["junk" if n in junk else "hard" if n in hard else "easy" if n in easy else "" for n in range(10)]
        graded = [tuple(n for n in range(10) if grades[n] == grade) for grade in ("easy", "hard", "junk")]
        if graded[0] or graded[1]:
            expected.append((f"q{number}", *graded))
    folder = tmp_path_factory.mktemp("any")
    if not expected:
        with pytest.raises(DatasetError, match="has a positive"):
            read(folder, contents)
        return
    found = read(folder, contents)
    assert [(query.photo.name, query.easy, query.hard, query.junk) for query in found.queries] == expected
    assert all(set(query.positives) == {*query.easy, *query.hard} for query in found.queries)
    assert found.left_out == len(truths) - len(expected)


def doubled(levels: int) -> list[Any]:
    """A list that prints as 2 ** levels numbers, in a file of a few hundred bytes."""
    made: list[Any] = [1, 1]
    for _ in range(levels):
        made = [made, made]
    return made


def endless() -> list[Any]:
    made: list[Any] = []
    made.append(made)
    return made


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        ([1], r"gnd_roxford5k\.pkl must be a dict with imlist, qimlist, gnd, not list"),
        ({"gnd": [], "qimlist": []}, r"5k\.pkl has no imlist; it is damaged or another file: fetch it again"),
        ({}, "has no imlist, qimlist, gnd"),
        (gnd(imlist=[]), "'imlist' must be a list of image names"),
        (gnd(imlist="abc"), "'imlist' must be a list of image names"),
        (gnd(imlist=None), "'imlist' must be a list of image names"),
        (gnd(imlist=np.asarray([["a"], ["b"]])), "'imlist' must be a list of image names"),
        (gnd(imlist=[*IMAGES, 5]), "'imlist' holds something of type int, which is no name of an image"),
        (gnd(imlist=np.zeros(8)), "'imlist' holds something of type float"),
        (gnd(imlist=[b"a"]), "'imlist' holds something of type bytes"),
        (gnd(imlist=doubled(60)), "'imlist' holds something of type list"),
        (gnd(imlist=endless()), "'imlist' holds something of type list"),
        (gnd(imlist=["a", "b", "a"]), "'imlist' holds an image twice; the file is damaged: fetch it again"),
        (gnd(imlist=["x" * 10**6 + "/"]), "'imlist' holds 'xxx"),
        (gnd(qimlist=["a", None]), "'qimlist' holds something of type NoneType"),
        (gnd(qimlist=["a"]), "'gnd' must be a list with one entry for each of the 1 queries"),
        (gnd(gnd={}), "'gnd' must be a list with one entry for each of the 2 queries"),
        (gnd(gnd=[]), "'gnd' must be a list with one entry for each of the 2 queries"),
        (gnd(gnd=[[1], [2]]), "'gnd' of query 0 must be a dict with bbx, easy, hard, not list"),
        (gnd(gnd=doubled(60)), "'gnd' of query 0 must be a dict"),
        (truth(bbx=None), "'gnd' of query 0 has no bbx"),
        (truth(easy=None), "'gnd' of query 0 has no easy"),
        (truth(hard=None), "'gnd' of query 0 has no hard"),
        (truth(easy=[8]), "'gnd' of query 0: 'easy' holds 8, but there are 8 images"),
        (truth(hard=[-1]), "'hard' holds -1, but there are 8 images"),
        (truth(junk=np.array([2**40])), "'junk' holds 1099511627776, but there are 8 images"),
        (truth(easy=[1.0]), "'easy' must be .*whole numbers"),
        (truth(easy=np.array([1.0])), "'easy' must be whole numbers of shape n, not float64"),
        (truth(easy=[True, 2]), "'easy' must be .*whole numbers"),
        (truth(easy=["1"]), "'easy' must be .*whole numbers"),
        (truth(easy=[[1]]), "'easy' must be .*whole numbers"),
        (truth(easy=np.array([[1]])), "'easy' must be whole numbers of shape n"),
        (truth(easy=doubled(60)), "'easy' must be .*whole numbers"),
        (truth(easy=endless()), "'easy' must be .*whole numbers"),
        (truth(easy=[10**30]), "'easy' must be"),
        (truth(easy=np.array([2**63], np.uint64)), "'easy' must be whole numbers"),
        (truth(easy=1), "'easy' must be whole numbers"),
        (truth(easy={1: 2}), "'easy' must be whole numbers"),
        (truth(easy="1"), "'easy' must be whole numbers"),
    ],
)
def test_damaged_revisited_contents(tmp_path: Path, contents: Any, message: str) -> None:
    with pytest.raises(DatasetError, match=message) as raised:
        read(tmp_path, contents)
    require_one_line(raised)


@pytest.mark.parametrize(
    "box",
    [
        [0, 0, 1],
        [0, 0, 1, 1, 1],
        [],
        [1, 0, 1, 1],
        [0, 2, 1, 1],
        [0, 0, float("nan"), 1],
        [0, 0, float("inf"), 1],
        [0, 0, 10**400, 1],
        [False, False, True, True],
        ["0", "0", "1", "1"],
        [0, 0, 1, None],
        [0, 0, 1, [1]],
        np.zeros((2, 2)),
        np.asarray(5),
        np.asarray([0, 0, 1, 1j]),
        np.asarray(list("0011")),
        "0011",
        {0: 0, 1: 0, 2: 1, 3: 1},
        5,
        doubled(60),
    ],
)
def test_boxes_that_are_none(tmp_path: Path, box: Any) -> None:
    message = "'gnd' of query 0: 'bbx' must be a box: four numbers x1, y1, x2, y2 with x1 < x2 and y1 < y2, in pixels"
    with pytest.raises(DatasetError, match=message) as raised:
        read(tmp_path, truth(bbx=box))
    require_one_line(raised)


@pytest.mark.parametrize("key", ["imlist", "qimlist"])
@pytest.mark.parametrize("name", OUTSIDE)
def test_names_that_lead_elsewhere(tmp_path: Path, key: str, name: str) -> None:
    with pytest.raises(DatasetError, match=f"'{key}' holds .*, which is no name of an image") as raised:
        read(tmp_path, gnd(**{key: [name, "b"]}))
    require_one_line(raised)


@given(st.text(st.sampled_from("./\\ a:\0\n\u2028é") | st.characters(), max_size=6))
@settings(deadline=None)
def test_any_name_stays_in_its_folder_or_is_refused(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    folder = tmp_path_factory.mktemp("name")
    try:
        (photo,) = read(folder, truth(easy=[0], hard=[], junk=[]) | {"imlist": [name]}).photos
    except DatasetError:
        assert not (name.isascii() and name.isalnum())
        return
    assert photo.name == name
    assert os.path.normpath(photo.path) == str(photo.path)
    assert photo.path.parent == folder / "jpg"
    assert os.fsencode(photo.path)


def test_a_gnd_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DatasetError) as raised:
        read_revisited(tmp_path, "rparis6k")
    assert str(raised.value) == (
        f"there is no gnd_rparis6k.pkl at {tmp_path}, {tmp_path}/rparis6k or {tmp_path}/test/rparis6k: put the "
        "published file there, with the images below jpg/ beside it"
    )
    (tmp_path / "gnd_rparis6k.pkl").mkdir()
    with pytest.raises(DatasetError, match=r"there is no gnd_rparis6k\.pkl"):
        read_revisited(tmp_path, "rparis6k")


class Call:
    """Pickles as a call of anything with anything."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return self.call


class Plain:
    """An object of no kind that a list needs."""


def hostile(marker: Path) -> dict[str, Any]:
    touch = f"open({str(marker)!r}, 'w').close()"
    return {
        "os.system": Call(os.system, f"touch {marker}"),
        "eval": Call(eval, f"open({str(marker)!r}, 'w')"),
        "exec": Call(exec, touch),
        "open": Call(open, str(marker), "w"),
        "touch": Call(Path.touch, marker),
        "import": Call(__import__, "os"),
        "an object": Plain(),
        "a class": Plain,
        "a function": os.system,
        "an object array": np.asarray([{}, Call(os.system, f"touch {marker}")], object),
    }


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
@pytest.mark.parametrize("kind", list(hostile(Path("x"))))
def test_hostile_gnd_files_run_nothing(tmp_path: Path, kind: str, protocol: int) -> None:
    marker = tmp_path / "owned"
    danger = hostile(marker)[kind]
    for contents in (
        danger,
        gnd(imlist=danger),
        gnd(imlist=[[[danger]]]),
        gnd(qimlist=["a", danger]),
        truth(bbx=danger),
        truth(easy=[danger]),
        truth(extra={"deep": ({"deeper": [danger]},)}),
        gnd() | {("key", 1): danger},
    ):
        with pytest.raises(UnpickleError, match=r"is refused: .*; nothing in it was run") as raised:
            read(tmp_path, pickle.dumps(contents, protocol))
        require_one_line(raised)
    assert not marker.exists()


def test_a_name_by_hand_runs_nothing(tmp_path: Path) -> None:
    """The oldest way to write it, with no class behind: cos, system, its argument, call."""
    marker = tmp_path / "owned"
    for module, function in (("os", "system"), ("posix", "system"), ("builtins", "eval"), ("__builtin__", "exec")):
        text = f"c{module}\n{function}\n(S'touch {marker}'\ntR."
        with pytest.raises(UnpickleError, match=rf"is refused: it names {module}\.{function}; nothing in it was run"):
            read(tmp_path, text.encode())
    assert not marker.exists()


def test_huge_gnd_files_are_refused(tmp_path: Path) -> None:
    save(tmp_path, b"")
    with (tmp_path / "gnd_roxford5k.pkl").open("wb") as file:
        file.truncate((2 << 30) + 1)  # takes no room on the disk
    with pytest.raises(UnpickleError, match="is refused: it is larger than"):
        read_revisited(tmp_path, "roxford5k")
    for content in (
        b"\x80\x04\x8d" + (1 << 40).to_bytes(8, "little") + b"abc.",
        b"(" * 10**6,
        b"\x80\x04" + b"]" * 10**5,
    ):
        with pytest.raises(SuperfeatError) as raised:
            read(tmp_path, content)
        require_one_line(raised)
    deep: Any = []
    for _ in range(200):
        deep = [deep]
    with pytest.raises(DatasetError, match=r"'easy' must be .*whole numbers"):
        read(tmp_path, truth(easy=deep))


@pytest.mark.parametrize("content", [b"", b"x", b"\x80", pickle.dumps(gnd())[:-20], b"\x80\x04N."])
def test_damaged_gnd_files(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(SuperfeatError, match=r"damaged|must be a dict"):
        read(tmp_path, content)


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 9) | st.floats() | st.text(max_size=3) | st.binary(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["bbx", "easy", "hard", "junk"]), inner)
    ),
    max_leaves=12,
)


@given(
    st.dictionaries(st.sampled_from(["imlist", "qimlist", "gnd"]), plain).map(lambda changes: gnd(**changes))
    | st.dictionaries(st.sampled_from(["bbx", "easy", "hard", "junk"]), plain).map(lambda changes: truth(**changes))
)
@settings(deadline=None)
def test_any_contents_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, contents: Any) -> None:
    try:
        found = read(tmp_path_factory.mktemp("contents"), contents)
    except DatasetError:
        return
    assert all(query.positives and query.photo.box for query in found.queries)


@given(st.data())
@settings(deadline=None, max_examples=150)
def test_any_damage_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    content = bytearray(pickle.dumps(gnd(), data.draw(st.sampled_from([2, 4]))))
    for place in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=3)):
        content[place] = data.draw(st.integers(0, 255))
    try:
        found = read(tmp_path_factory.mktemp("damage"), bytes(content))
    except SuperfeatError:
        return
    for query in found.queries:
        assert all(0 <= image < len(found.photos) for image in (*query.positives, *query.junk))


# --- distractors ------------------------------------------------------------------------------------------------------


def distractors(folder: Path, content: str | bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "revisitop1m.txt").write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


@pytest.mark.parametrize("place", ["", "revisitop1m", "test/revisitop1m"])
def test_the_list_of_distractors(tmp_path: Path, place: str) -> None:
    folder = distractors(tmp_path / place, "4eafe/0d7c.jpg\n\nplain\r\n  b/c/é 1.jpg  \n.hidden.JPG\nx.y/z\na\n")
    assert read_distractors(tmp_path) == (
        Photo(folder / "jpg/4eafe/0d7c.jpg", "4eafe/0d7c.jpg"),
        Photo(folder / "jpg/plain.jpg", "plain"),
        Photo(folder / "jpg/b/c/é 1.jpg", "b/c/é 1.jpg"),
        Photo(folder / "jpg/.hidden.JPG", ".hidden.JPG"),
        Photo(folder / "jpg/x.y/z.jpg", "x.y/z"),
        Photo(folder / "jpg/a.jpg", "a"),
    )
    assert read_distractors(str(tmp_path))[0].path.is_relative_to(folder)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"revisitop1m\.txt names no images; it must have one name a line"),
        (b"\n \r\n", "names no images"),
        (b"a.jpg\nb.jpg\n\na.jpg\n", r"line 4 of .*revisitop1m\.txt names a\.jpg again: keep one line"),
        (b"a\na", r"line 2 of .* names a\.jpg again"),
        (b"a\na.jpg\n", r"line 2 of .* names a\.jpg again"),
        (b"a.jpg\n\xff\n", r"cannot read .*revisitop1m\.txt: .*; it must be UTF-8 text with one image name a line"),
        (b"a\n../b.jpg\n", r"line 2 of .* holds '\.\./b\.jpg', which is no name of an image"),
        (b"a/../../b.jpg", "which is no name of an image"),
        (b"/etc/passwd", "which is no name of an image"),
        (b"a//b", "which is no name of an image"),
        (b"a/./b", "which is no name of an image"),
        (b"a/", "which is no name of an image"),
        (b"a\\b", "which is no name of an image"),
        (b"a\0b", "which is no name of an image"),
        (b"..", "which is no name of an image"),
        (b"C:/x.jpg", "which is no name of an image"),
    ],
)
def test_lists_of_distractors_that_cannot_be_used(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(DatasetError, match=message) as raised:
        read_distractors(distractors(tmp_path, content))
    require_one_line(raised)


def test_a_list_of_distractors_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"there is no revisitop1m\.txt at .*: put the published file there"):
        read_distractors(tmp_path)


@given(st.lists(st.text(st.sampled_from("ab./\\\t é"), max_size=5), max_size=6))
@settings(deadline=None)
def test_any_distractors_stay_in_their_folder(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    folder = distractors(tmp_path_factory.mktemp("lines"), "\n".join(lines))
    try:
        found = read_distractors(folder)
    except DatasetError:
        return
    assert [photo.name for photo in found] == [line.strip() for line in lines if line.strip()]
    for photo in found:
        assert os.path.normpath(photo.path) == str(photo.path)
        assert photo.path.is_relative_to(folder / "jpg")
    assert len({photo.path for photo in found}) == len(found)


def test_the_collector_is_left_as_it_was(tmp_path: Path) -> None:
    distractors(tmp_path, "a\nb\n")
    assert gc.isenabled()
    read_distractors(tmp_path)
    assert gc.isenabled()
    gc.disable()
    try:
        read_distractors(tmp_path)
        assert not gc.isenabled()
    finally:
        gc.enable()


@pytest.mark.slow
def test_many_distractors(tmp_path: Path) -> None:
    distractors(tmp_path, "".join(f"{n % 4096:05x}/{n:032x}.jpg\n" for n in range(100_000)))
    found = read_distractors(tmp_path)
    assert len(found) == 100_000
    assert found[-1].path == tmp_path / "jpg" / found[-1].name


# --- Oxford5k and Paris6k ---------------------------------------------------------------------------------------------

OXFORD = ("all_souls_000013", "all_souls_000026", "keble_000001", "oxford_000317", "oxford_002416")
PARIS = ("paris_defense_000605", "paris_defense_000001", "paris_eiffel_000002")


def judge(folder: Path, name: str, query: str, good: str = "", ok: str = "", junk: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for kind, text in (("query", query), ("good", good), ("ok", ok), ("junk", junk)):
        (folder / f"{name}_{kind}.txt").write_text(text)
    return folder


def oxford(root: Path, truths: str = "gt", images: str = "jpg") -> Path:
    judge(
        root / truths,
        "all_souls_1",
        "oxc1_all_souls_000013 136.5 34.1 648.5 955.7\n",
        good="all_souls_000026\nall_souls_000013\n",
        ok="oxford_002416\n\n",
        junk="oxford_000317\r\n",
    )
    judge(root / truths, "keble_2", "oxc1_keble_000001 0 0 12 8", good="keble_000001")
    photo_files(root / images, *(f"{name}.jpg" for name in OXFORD))
    return root


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


# --- by name, .json or folder -----------------------------------------------------------------------------------------


def make(name: str, root: Path) -> RetrievalSet:
    """The smallest tree of each benchmark, and what its own reader makes of it."""
    if name == "roxford5k":
        return read_revisited(save(root, gnd()), "roxford5k")
    if name == "rparis6k":
        return read_revisited(save(root, gnd(), "rparis6k"), "rparis6k")
    if name == "oxford5k":
        return read_oxford(oxford(root), "oxford5k")
    if name == "paris6k":
        judge(root, "defense_1", f"{PARIS[0]} 130 17 843 732", good=PARIS[0])
        return read_oxford(photo_files(root, f"jpg/defense/{PARIS[0]}.jpg"), "paris6k")
    if name == "holidays":
        return read_holidays(empty_files(root, "100000.jpg", "100001.jpg"))
    if name == "ukbench":
        return read_ukbench(empty_files(root, *(f"ukbench0000{number}.jpg" for number in range(4))))
    root.mkdir(exist_ok=True)
    contents = {"cids": ["abcdef", "abcdeg"], "qidx": [0], "gnd": [[1]]}
    (root / VALIDATION_FILE).write_bytes(pickle.dumps(contents))
    return RetrievalSet("", (), ())


@pytest.mark.parametrize("name", BENCHMARKS)
def test_benchmarks_by_name(tmp_path: Path, name: str) -> None:
    expected = make(name, tmp_path / "data")
    found = read_benchmark(name, tmp_path / "data")
    if name == "sfm120k-val":
        assert (found.name, len(found.queries)) == ("retrieval-SfM-120k-val-eccv2020", 1)
    else:
        assert found == expected
        assert found.name == name
    benchmark = BENCHMARKS[name]
    assert benchmark.name == name
    assert not {"\n", ""} & {*benchmark.what, *benchmark.layout, benchmark.what, benchmark.layout}
    with pytest.raises(DatasetError) as raised:
        read_benchmark(name, None)
    assert str(raised.value) == f"{name} needs the folder of its files: give one with {benchmark.layout}"
    with pytest.raises(DatasetError, match=r"there (is|are) no .* there") as raised:
        read_benchmark(name, tmp_path / "absent")
    require_one_line(raised)


def test_the_names_of_the_benchmarks() -> None:
    assert list(BENCHMARKS) == [
        "roxford5k",
        "rparis6k",
        "oxford5k",
        "paris6k",
        "holidays",
        "ukbench",
        "sfm120k-val",
    ]


@pytest.mark.parametrize(
    ("source", "hint"),
    [
        ("roxford", r"did you mean 'roxford5k'\? known are holidays, oxford5k, paris6k, roxford5k"),
        ("ROxford5k", r"did you mean 'roxford5k'\? known are"),
        ("zzz", "; known are holidays, oxford5k, paris6k, roxford5k, rparis6k, sfm120k-val, ukbench$"),
        ("", "^'' is no benchmark"),
        ("a/b/c", "known are"),
        ("a\0b", "known are"),
    ],
)
def test_unknown_names(source: str, hint: str) -> None:
    with pytest.raises(DatasetError, match=hint) as raised:
        read_benchmark(source, None)
    assert f"'{source}' is no benchmark, .json of queries or folder with one sub-folder of photos" in str(raised.value)
    assert str(raised.value).count("known are") == 1


def test_a_file_of_another_kind(tmp_path: Path) -> None:
    save(tmp_path, gnd())
    with pytest.raises(DatasetError, match=r"gnd_roxford5k\.pkl' is no benchmark, \.json of queries or folder"):
        read_benchmark(str(tmp_path / "gnd_roxford5k.pkl"), None)


def write_json(path: Path, database: list[str]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"db": database, "queries": [{"img": database[0], "pos": [1], "self": 0}]}))
    return str(path)


def test_json_with_its_photos_beside_it_above_it_or_elsewhere(tmp_path: Path) -> None:
    source = write_json(tmp_path / "data/gnd/some.json", ["photos/a.jpg", "photos/b.jpg"])
    above, beside, elsewhere = tmp_path / "data", tmp_path / "data/gnd", tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert read_benchmark(source, None).photos[0].path.is_relative_to(beside), "where there is none at all"
    photo_files(above, "photos/a.jpg")
    found = read_benchmark(source, None)
    assert [photo.path for photo in found.photos] == [above / "photos/a.jpg", above / "photos/b.jpg"]
    assert (found.name, found.files) == ("some", (Path(source),))
    photo_files(beside, "photos/a.jpg")
    assert read_benchmark(source, None).photos[0].path == beside / "photos/a.jpg"
    assert read_benchmark(source, elsewhere).photos[0].path == elsewhere / "photos/a.jpg"
    with pytest.raises(DatasetError, match=r"there is no folder .*absent: give the one that the paths in"):
        read_benchmark(source, tmp_path / "absent")


def test_json_by_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_json(tmp_path / "gnd/some.json", ["a.jpg", "b.jpg"])
    photo_files(tmp_path, "a.jpg", "b.jpg")
    for folder, source in (
        ("gnd", "some.json"),
        ("gnd", "./some.json"),
        (".", "gnd/some.json"),
        (".", "gnd/../gnd/some.json"),
    ):
        monkeypatch.chdir(tmp_path / folder)
        assert missing_photos(read_benchmark(source, None).photos) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b"\xff", "is not JSON"),
        (b"[]", "holds no object"),
        (b"5", "holds no object"),
        (b"null", "holds no object"),
        (b"{}", "'db' must be a list"),
        (b'{"db": []}', "'db' must be a list"),
        (b'{"db": {"0": 1}}', "'db' must be a list"),
        (b'{"db": [5]}', "'db' holds 5"),
        (b'{"db": ["../x.jpg"]}', "paths must be relative"),
        (b'{"db": ["/x.jpg"]}', "paths must be relative"),
        (None, "cannot read .*: No such file or directory"),
    ],
)
def test_json_that_cannot_be_used(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "some.JSON"
    if content is not None:
        path.write_bytes(content)
    for images in (None, tmp_path):
        with pytest.raises(DatasetError, match=message) as raised:
            read_benchmark(str(path), images)
        require_one_line(raised)


def test_a_folder_of_things(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = photo_files(tmp_path / "mine", "castle/a.jpg", "castle/b.png", "tower/a.jpg", "tower/d.jpg", "well/e.jpg")
    found = read_benchmark(str(folder), None)
    assert (found.name, found.protocol, found.left_out) == ("mine", "plain", 1)
    assert names(found) == ["castle/a.jpg", "castle/b.png", "tower/a.jpg", "tower/d.jpg", "well/e.jpg"]
    assert [(query.positives, query.junk) for query in found.queries] == [
        ((1,), (0,)),
        ((0,), (1,)),
        ((3,), (2,)),
        ((2,), (3,)),
    ]
    monkeypatch.chdir(folder)
    assert read_benchmark(".", None).name == "mine"
    with pytest.raises(DatasetError, match=r"is a folder without gnd\.json, .*: leave .*elsewhere out"):
        read_benchmark(str(folder), tmp_path / "elsewhere")
    with pytest.raises(DatasetError, match="holds no photos"):
        read_benchmark(str(empty_files(tmp_path / "empty", "x.txt")), None)


def test_a_folder_with_its_own_list(tmp_path: Path) -> None:
    folder = photo_files(tmp_path / "mine", "castle/a.jpg", "castle/b.jpg", "tower/c.jpg")
    write_json(folder / "gnd.json", ["castle/b.jpg", "tower/c.jpg"])
    found = read_benchmark(str(folder), None)
    assert names(found) == ["castle/b.jpg", "tower/c.jpg"]
    assert [photo.path for photo in found.photos] == [folder / "castle/b.jpg", folder / "tower/c.jpg"]
    elsewhere = photo_files(tmp_path / "elsewhere", "castle/b.jpg")
    assert read_benchmark(str(folder), elsewhere).photos[0].path == elsewhere / "castle/b.jpg"


def test_a_name_is_stronger_than_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photo_files(tmp_path / "ukbench", "castle/a.jpg", "castle/b.jpg", "tower/c.jpg")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DatasetError, match="ukbench needs the folder of its files"):
        read_benchmark("ukbench", None)
    assert len(read_benchmark("./ukbench", None).photos) == 3


# --- what the document says -------------------------------------------------------------------------------------------


def test_the_document_has_all_benchmarks_and_an_example_that_can_be_read(tmp_path: Path) -> None:
    text = (Path(__file__).parents[3] / "docs" / "protocols.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `([\w-]+)` (?:\|[^|\n]+){4}\|$", text, re.MULTILINE)) == set(BENCHMARKS)
    example = re.search(r"^    \{\n.*?^    \}\n", text, re.MULTILINE | re.DOTALL)
    assert example is not None
    (tmp_path / "gnd.json").write_text(example[0])
    photo_files(tmp_path, "asked/e.jpg")
    found = read_benchmark(str(tmp_path), None)
    assert (found.name, len(found.photos)) == ("castles", 4)
    assert [(query.positives, query.junk) for query in found.queries] == [((1,), (0, 3)), ((2, 3), ())]
    assert found.queries[1].photo.box == pytest.approx((1.2, 1.6, 10.8, 8.0))
