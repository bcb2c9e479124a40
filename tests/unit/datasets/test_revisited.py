"""ROxford5k, RParis6k and their distractors, made up small; damaged, hostile and missing files."""

import functools
import gc
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures_benchmarks import BOX, IMAGES, gnd, names, photo_files, require_one_line, save
from superfeat.datasets.retrieval_set import Query, RetrievalSet
from superfeat.datasets.revisited import read_distractors, read_revisited
from superfeat.datasets.training_set import missing_photos
from superfeat.errors import DatasetError, SuperfeatError, UnpickleError
from superfeat.images import Photo, read_image

OUTSIDE = ["../x", "a/b", "/etc/passwd", "a\\b", "..", ".", "...", "", " ", "a\0b", "a\nb", "C:x", "\ud800", "a/../b"]


# --- ROxford5k and RParis6k -------------------------------------------------------------------------------------------


def truth(**changes: Any) -> dict[str, Any]:
    """A file with one query that is changed like this; None takes a key out."""
    entries = {"bbx": BOX, "easy": [1], "hard": [2], "junk": [3]} | changes
    return gnd(qimlist=["query"], gnd=[{key: value for key, value in entries.items() if value is not None}])


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
