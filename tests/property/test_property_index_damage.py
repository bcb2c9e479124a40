"""Damage anywhere in an index: it is refused with a StoreError that says where, or it changes nothing.

A changed answer is allowed only where `verify` finds the damage. The sweep runs in a process of its own, because a
damaged file that made the compiled loops leave their arrays would take the process with it.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from superfeat.config import IndexConfig
from superfeat.errors import StoreError
from superfeat.index import contents
from superfeat.index.codebook import Codebook
from superfeat.index.index import Index

DIM, WORDS = 128, 16
QUERY = np.random.default_rng(5).standard_normal((6, DIM)).astype(np.float32)

DRIVER = r"""
import faulthandler, json, random, sys, warnings
from pathlib import Path

import numpy as np

from superfeat.config import SearchConfig
from superfeat.errors import StoreError, SuperfeatError
from superfeat.index.index import Index

faulthandler.enable()
warnings.simplefilter("ignore")
path, how, count, here = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), Path(sys.argv[4])
rng = random.Random(0)
QUERY = np.random.default_rng(5).standard_normal((6, 128)).astype(np.float32)


def answers(index):
    # Everything that a reader can see.
    seen = [list(index.names()), len(index)]
    for name in NAMES:
        words = index.words_of(name)
        seen.append((name, index.id(name), index.meta([name]), words.words.tobytes(), words.codes.tobytes()))
    for config in (None, SearchConfig(assignments=2, alpha=1.0, idf=True)):
        found = index.search(QUERY, None, config=config)
        seen.append((found.names, found.scores.tobytes(), found.ids.tobytes()))
    found = index.search(NAMES[0], 3, only=NAMES[:5])
    seen.append((found.names, found.scores.tobytes(), index.scores(QUERY, NAMES[:3]).tobytes()))
    seen.append((index.network, str(index.config)))
    return seen


def judged(act, other=()):
    # Its value, or None and the error; an error of any other kind is a bug.
    try:
        return act(), None
    except StoreError as error:
        if str(path) not in str(error):
            return None, f"BUG no path in: {error}"
        return None, str(error)
    except other as error:
        return None, str(error)
    except BaseException as error:
        return None, f"BUG {type(error).__name__}: {error}"


def judge():
    index, error = judged(lambda: Index.open(path))
    if error:
        return error
    seen, error = judged(lambda: answers(index), SuperfeatError)
    if error and error.startswith("BUG"):
        return error
    whole, wrong = judged(lambda: list(index.verify()))
    if wrong:
        return wrong
    if error:
        return f"BUG {error}; and verify finds nothing"
    return None if seen == WHOLE else "BUG another answer; and verify finds nothing"


def places(data, most):
    # Bits to flip, spread over the file.
    if most >= len(data):
        return [(place, rng.randrange(8)) for place in range(len(data))]
    return [(int((n + rng.random()) * len(data) / most), rng.randrange(8)) for n in range(most)]


NAMES = list(Index.open(path).names())
WHOLE = answers(Index.open(path))
assert judge() is None
files = sorted(file for file in path.rglob("*") if file.is_file() and file.name != ".lock")
bugs, noticed, tried = [], {}, {}
for file in files:
    name, data = str(file.relative_to(path)), file.read_bytes()
    if how == "flip":
        changes = [(f"bit {bit} of byte {place}", (place, bit)) for place, bit in places(data, count)]
    else:
        last = len(data) - (2 if name.endswith(".json") else 1)  # the last line may lack its end
        lengths = sorted({0, 1, 15, 16, 17, 100, len(data) // 2, last} & set(range(len(data))))
        changes = [(f"cut to {length}", length) for length in lengths] + [("removed", None)]
    noticed[name], tried[name] = 0, len(changes)
    for what, change in changes:
        here.write_text(f"{name}: {what}")  # for the case that the process dies
        if change is None:
            file.unlink()
        elif isinstance(change, int):
            file.write_bytes(data[:change])
        else:
            damaged = bytearray(data)
            damaged[change[0]] ^= 1 << change[1]
            file.write_bytes(damaged)
        found = judge()
        file.write_bytes(data)
        noticed[name] += found is not None
        if found and found.startswith("BUG"):
            bugs.append(f"{name}: {what}: {found[:300]}")
assert judge() is None
print(json.dumps({"bugs": bugs, "noticed": noticed, "tried": tried}))
"""


def build(path: Path, kernel: str) -> Index:
    """Two segments, images deleted in them, a journal with two images and a deletion."""
    random = np.random.default_rng(0)
    codebook = Codebook(random.standard_normal((WORDS, DIM)).astype(np.float32))
    config = IndexConfig(kernel=kernel)  # type: ignore[arg-type]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contents, "SMALL", 9)
        index = Index.create(path, codebook, config, network="0123456789abcdef")
        for number in range(20):
            name = ["photos/{}.jpg", "ü{}", "b\udcff{}"][number % 3].format(number)
            meta = {"n": number, "tags": ["a", "é"]} if number % 4 == 0 else None
            index.add(name, random.standard_normal((5, DIM)).astype(np.float32), meta)
            if number in (4, 12):
                index.delete("photos/3.jpg" if number == 4 else "ü7")
        index.delete("ü1")
    info = index.info()
    assert (info.segments, info.in_journal, info.images) == (2, 2, 17)
    assert sorted(file.name[:4] for file in path.iterdir()) == [".loc", "code", "dead", "jour", "mani", "segm"]
    return index


def sweep(folder: Path, how: str, count: int) -> dict[str, Any]:
    here = folder / "here"
    command = [sys.executable, "-c", DRIVER, str(folder / "index"), how, str(count), str(here)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1800)
    assert run.returncode == 0, f"{here.read_text() if here.exists() else 'at the start'}: {run.stderr}"
    found: dict[str, Any] = json.loads(run.stdout)
    return found


@pytest.mark.parametrize(
    ("kernel", "count"),
    [
        ("binary", 12),
        ("real", 6),
        pytest.param("binary", 1000, marks=pytest.mark.long),
        pytest.param("real", 300, marks=pytest.mark.long),
    ],
)
def test_a_flipped_bit(kernel: str, count: int, tmp_path: Path) -> None:
    build(tmp_path / "index", kernel)
    found = sweep(tmp_path, "flip", count)
    assert found["bugs"] == []
    assert len(found["tried"]) == 2 + 3 + 2 * 6
    for name, noticed in found["noticed"].items():
        assert noticed >= found["tried"][name] // 2, name  # some bits mean nothing: spaces in JSON, a journal's mark


@pytest.mark.parametrize("kernel", ["binary", "real"])
def test_files_cut_short_or_missing(kernel: str, tmp_path: Path) -> None:
    build(tmp_path / "index", kernel)
    found = sweep(tmp_path, "cut", 0)
    assert found["bugs"] == []
    assert found["noticed"] == found["tried"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "index"
    build(path, "binary")
    return path


@pytest.fixture
def index_folder(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "index"))


def use(path: Path) -> None:
    index = Index.open(path)
    index.search(QUERY)
    list(index.verify())


def edit(file: Path, change: Callable[[dict[str, Any]], None]) -> None:
    manifest = json.loads(file.read_text())
    change(manifest)
    file.write_text(json.dumps(manifest))


@pytest.mark.parametrize("file", ["manifest.json", "codebook/manifest.json"])
@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("version", 9, r"has format version 9; this superfeat reads \d: upgrade it"),
        ("version", None, "has format version None"),
        ("version", "1", "has format version 1"),
        ("format", "superfeat-features", "is not a"),
        ("format", 7, "is not a"),
    ],
)
def test_another_format(file: str, key: str, value: Any, message: str, index_folder: Path) -> None:
    edit(index_folder / file, lambda manifest: manifest.update({key: value}))
    with pytest.raises(StoreError, match=message) as error:
        use(index_folder)
    assert str((index_folder / file).parent) in str(error.value)


@pytest.mark.parametrize("file", ["manifest.json", "codebook/manifest.json"])
@pytest.mark.parametrize("text", ["[]", "7", "null", '"text"', "{}", ""])
def test_a_manifest_that_is_none(file: str, text: str, index_folder: Path) -> None:
    (index_folder / file).write_text(text)
    with pytest.raises(StoreError, match=r"is not a|is damaged") as error:
        use(index_folder)
    assert str(index_folder) in str(error.value)


def test_every_fact_of_the_manifest_is_guarded(index_folder: Path) -> None:
    """Removed, of another kind, or another value: each is damage that is found."""
    text = (index_folder / "manifest.json").read_text()
    keys = sorted(set(json.loads(text)) - {"format", "version"})
    assert {"next_id", "next_file", "settings", "dim"} <= set(keys)
    for key in keys:
        for value in (None, "x", 99, -1, [], {}, [7], {"file": "manifest.json"}):
            manifest = json.loads(text)
            if manifest[key] == value:
                continue
            (index_folder / "manifest.json").write_text(json.dumps({**manifest, key: value}))
            with pytest.raises(StoreError, match=r"damaged|cannot read|not the codebook"):
                use(index_folder)
        (index_folder / "manifest.json").write_text(json.dumps({k: v for k, v in json.loads(text).items() if k != key}))
        with pytest.raises(StoreError, match="is damaged"):
            use(index_folder)
    (index_folder / "manifest.json").write_text(text)
    use(index_folder)


def test_a_codebook_of_another_index(index_folder: Path, tmp_path: Path) -> None:
    other = Codebook(np.ones((WORDS, DIM), np.float32))
    other.save(index_folder / "codebook", overwrite=True)
    index = Index.open(index_folder)
    with pytest.raises(StoreError, match="codebook is not the codebook that this index was made with"):
        index.search(QUERY)
    with pytest.raises(StoreError, match="codebook is not the codebook that this index was made with"):
        list(index.verify())


def test_a_centroid_that_is_no_number(index_folder: Path) -> None:
    file = index_folder / "codebook" / "centroids.npy"
    file.write_bytes(file.read_bytes()[:-4] + np.float32(np.inf).tobytes())
    with pytest.raises(StoreError, match=r"codebook.* is damaged"):
        Index.open(index_folder).search(QUERY)
    with pytest.raises(StoreError, match=r"codebook.* is damaged"):
        list(Index.open(index_folder).verify())


def test_segments_that_changed_places(index_folder: Path) -> None:
    first, second = sorted((index_folder / "segments").iterdir())
    first.rename(index_folder / "away")
    second.rename(first)
    (index_folder / "away").rename(second)
    with pytest.raises(StoreError, match="is damaged"):
        use(index_folder)


@pytest.mark.parametrize("name", ["codes", "ids", "names"])
def test_compaction_does_not_make_damage_pass_for_whole(name: str, index_folder: Path) -> None:
    """A segment is rewritten with new checksums; those of the old one are compared first."""
    file = sorted(index_folder.glob(f"segments/*/{name}.*"))[0]
    data = bytearray(file.read_bytes())
    data[-3 if name != "names" else data.index(b"photos/0.jpg")] ^= 1
    file.write_bytes(data)
    index = Index.open(index_folder)
    with pytest.raises(StoreError, match="is damaged"):
        index.compact()
    with pytest.raises(StoreError, match="is damaged"):
        list(Index.open(index_folder).verify())


def test_damage_of_other_people_in_the_folder(index_folder: Path) -> None:
    """What file managers and people leave there is no reason to refuse the work, and the images are not touched."""
    (index_folder / "segments" / ".DS_Store").write_bytes(b"x")
    (index_folder / ".DS_Store").write_bytes(b"x")
    (index_folder / "notes").mkdir()
    index = Index.open(index_folder)
    before = list(index.names())
    index.add("more", QUERY)
    index.compact()
    assert list(index.names()) == [*before, "more"]
    assert (index_folder / "notes").is_dir()
    use(index_folder)
