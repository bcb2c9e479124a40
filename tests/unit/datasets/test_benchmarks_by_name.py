"""Benchmarks by name, by a .json of queries or by a folder of things; what the document says of them."""

import json
import pickle
import re
from pathlib import Path

import pytest

from fixtures_benchmarks import PARIS, empty_files, gnd, judge, names, oxford, photo_files, require_one_line, save
from superfeat.datasets.benchmarks import BENCHMARKS, read_benchmark
from superfeat.datasets.holidays import read_holidays
from superfeat.datasets.oxford import read_oxford
from superfeat.datasets.retrieval_set import RetrievalSet
from superfeat.datasets.revisited import read_revisited
from superfeat.datasets.sfm120k import VALIDATION_FILE
from superfeat.datasets.training_set import missing_photos
from superfeat.datasets.ukbench import read_ukbench
from superfeat.errors import DatasetError

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
    with pytest.raises(DatasetError, match="no photos in"):
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
