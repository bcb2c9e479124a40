"""The index as its users see it: made and opened, images in and out."""

import itertools
from pathlib import Path
from typing import Any

import pytest

from fixtures_index import CODEBOOK, NETWORK, states, vectors
from superfeat.config import IndexConfig, SearchConfig
from superfeat.errors import StoreError, SuperfeatError
from superfeat.index import contents, segments
from superfeat.index.entries import Added
from superfeat.index.index import Index

ODD = (
    "",
    " ",
    'it\'s "quoted"; --',
    "line\nbreak\ttab",
    "nul\0inside",
    "ünï 名前 🏛",
    "e\u0301",
    "é",
    "caf\udce9.jpg",
    "\udcff",
    "a/../b",
    "x" * 100_000,
)


# -- Make and open


def test_a_new_index(index: Index, kernel: str) -> None:
    assert (len(index), list(index.names()), index.network) == (0, [], None)
    assert index.config == IndexConfig(kernel=kernel)  # type: ignore[arg-type]
    assert index.codebook.digest == CODEBOOK.digest
    assert list(index.verify()) == ["codebook", "journal-000000"]
    assert len(index.search(vectors(1))) == 0
    assert index.search_many([vectors(1)])[0].names == ()
    assert index.delete([]) == 0
    index.compact()
    index.refresh()
    assert len(Index.open(index.path)) == 0


def test_settings_and_facts_are_kept(tmp_path: Path) -> None:
    config = IndexConfig("real", SearchConfig(assignments=2, alpha=1.5, threshold=-0.5, idf=True))
    index = Index.create(
        tmp_path / "a" / "b", CODEBOOK, config, network=NETWORK, facts={"weights": "w", "extract": {"max_side": 7}}
    )
    index.add("x", vectors(0))
    index.compact()
    opened = Index.open(str(tmp_path / "a" / "b"))
    assert (opened.config, opened.network, opened.facts) == (
        config,
        NETWORK,
        {"weights": "w", "extract": {"max_side": 7}},
    )


def test_a_folder_that_is_there_already(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    Index.create(tmp_path / "empty", CODEBOOK).add("a", vectors(0))
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("mine")
    said = {"empty": "; open it, or choose another name", "file": " and is no index", "full": " and is no index"}
    for name, words in said.items():
        with pytest.raises(StoreError, match=f"{name} exists already{words}"):
            Index.create(tmp_path / name, CODEBOOK)
    assert list(Index.open(tmp_path / "empty").names()) == ["a"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "file", "full"]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("absent", "; make one with: superfeat index PHOTOS -o "),
        ("empty", "; make one with: superfeat index PHOTOS -o "),
        ("file", ": it has no manifest.json; name the folder of one"),
        ("full", ": it has no manifest.json; name the folder of one"),
        ("codebook", ": its manifest.json is of something else; choose another folder"),
    ],
)
def test_what_is_no_index(name: str, hint: str, tmp_path: Path) -> None:
    """Who follows the hint does not meet the same error again."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("mine")
    CODEBOOK.save(tmp_path / "codebook")
    with pytest.raises(StoreError, match=f"{name} is not an index{hint}"):
        Index.open(tmp_path / name)


@pytest.mark.parametrize("folder", ["with space", "a?b#c%20d&mode=rw", "ü'\"", "bad\udcff", "-", "x" * 200])
def test_folders_of_any_name(folder: str, tmp_path: Path) -> None:
    index = Index.create(tmp_path / folder, CODEBOOK)
    index.add("a", vectors(0))
    for state in states(index):
        assert state.search(vectors(0)).names == ("a",)
        assert list(state.verify())


# -- Images in and out


def test_what_became_of_an_image(index: Index) -> None:
    assert index.add("a", vectors(0)) == Added("a", 0, "new")
    assert index.add("a", vectors(0)) == Added("a", 0, "same")
    assert index.add("b", vectors(0), {"x": 1}) == Added("b", 1, "new")
    assert index.add("b", vectors(0), {"x": 1}) == Added("b", 1, "same")
    assert index.add("b", vectors(0)) == Added("b", 2, "replaced")
    assert index.add("a", vectors(1)) == Added("a", 3, "replaced")
    assert index.add("a", vectors(0)) == Added("a", 4, "replaced")
    for state in states(index):
        assert list(state.names()) == ["b", "a"]
        assert (state.id("a"), state.id("b")) == (4, 2)
    assert index.add("a", vectors(0), {}) == Added("a", 4, "same")
    assert index.delete("a") == 1
    assert index.add("a", vectors(0)) == Added("a", 5, "new")


def test_ids_are_never_used_again(index: Index) -> None:
    for number in range(3):
        assert index.add("a", vectors(0)).id == number
        index.delete("a")
        if number == 1:
            index.compact()
        index = Index.open(index.path)
    index.compact()
    assert Index.open(index.path).add("b", vectors(0)).id == 3


def test_batches(index: Index) -> None:
    index.add("old", vectors(0))
    images = [("a", 1), ("old", 0), ("b", 2), ("a", 1), ("a", 3), ("old", 4), ("c", 5)]
    added = list(index.add_many(((name, vectors(seed), None) for name, seed in images), batch=4))
    assert added == [
        Added("a", 1, "new"),
        Added("old", 0, "same"),
        Added("b", 2, "new"),
        Added("a", 1, "same"),
        Added("a", 3, "replaced"),
        Added("old", 4, "replaced"),
        Added("c", 5, "new"),
    ]
    assert list(index.names()) == ["b", "a", "old", "c"]


def test_each_image_is_yielded_when_it_is_safe(index: Index) -> None:
    images = ((f"n{seed}", vectors(seed), None) for seed in range(7))
    seen = []
    for added in index.add_many(images, batch=3):
        seen.append((added.name, len(Index.open(index.path))))
    assert seen == [("n0", 3), ("n1", 3), ("n2", 3), ("n3", 6), ("n4", 6), ("n5", 6), ("n6", 7)]


def test_stopping_in_the_middle_frees_the_lock(index: Index) -> None:
    adding = index.add_many(((f"n{seed}", vectors(seed), None) for seed in range(7)), batch=2)
    assert [next(adding).name for _ in range(3)] == ["n0", "n1", "n2"]
    del adding
    assert len(index) == 4
    Index.open(index.path).add("more", vectors(9))


def test_one_bad_image_leaves_the_others(index: Index) -> None:
    images = [("a", vectors(0), None), ("b", vectors(1)[:, :5], None), ("c", vectors(2), None)]
    adding = index.add_many(images)
    assert next(adding) == Added("a", 0, "new")
    with pytest.raises(SuperfeatError, match="features have 5 dimensions, and 128 are needed"):
        next(adding)
    assert list(index.names()) == ["a"]
    assert index.add("c", vectors(2)).id == 1


def test_a_batch_larger_than_a_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many share one wait for the disk, what was written can be read."""
    monkeypatch.setattr(contents, "MIDDLE", 8)
    monkeypatch.setattr(contents, "SEGMENT_IMAGES", 16)
    monkeypatch.setattr(segments, "SEGMENT_IMAGES", 16)
    index = Index.create(tmp_path / "index", CODEBOOK)
    index.add("first", vectors(99))
    added = list(index.add_many(((f"n{seed}", vectors(seed), None) for seed in range(50)), batch=50))
    assert [one.id for one in added] == list(range(1, 51))
    for state in states(index):
        assert len(state.search(vectors(0), None)) == 51
        assert list(state.verify())


def test_deleting(index: Index) -> None:
    for seed in range(5):
        index.add(f"n{seed}", vectors(seed))
    with pytest.raises(SuperfeatError, match="has no image called absent"):
        index.delete(["n1", "absent", "n2"])
    assert len(index) == 5
    assert index.delete(["n1", "n3", "n1"]) == 2
    assert index.delete("n0") == 1
    with pytest.raises(SuperfeatError, match="has no image called n1"):
        index.delete("n1")
    for state in states(index):
        assert list(state.names()) == ["n2", "n4"]
        assert sorted(state.search(vectors(0), None).names) == ["n2", "n4"]
        for act in (state.id, state.words_of, state.search):
            with pytest.raises(SuperfeatError, match="has no image called n1"):
                act("n1")
        assert "n1" not in state
        assert state.meta(["n1", "n2"]) == {"n2": {}}


def test_compaction_empties_the_journal(filled: Index) -> None:
    """Deletions of images in segments are the only records in it."""
    filled.compact()
    filled.delete(["n1", "n2"])
    assert filled.info().in_journal == 0
    filled.compact()
    assert [file.stat().st_size for file in filled.path.glob("journal-*")] == [16]
    assert list(filled.path.glob("dead-*")) == []
    assert len(Index.open(filled.path)) == 7


def test_names_can_be_walked_while_images_change(index: Index) -> None:
    """It is the names that there were at the beginning; replacing an image does not bring it up again."""
    for seed in range(6):
        index.add(f"n{seed}", vectors(seed))
    seen = []
    for name in itertools.islice(index.names(), 20):
        seen.append(name)
        index.add(name, vectors(50 + len(seen)))
        index.add(f"more {len(seen)}", vectors(90))
    assert seen == [f"n{seed}" for seed in range(6)]


def test_odd_names(index: Index) -> None:
    for number, name in enumerate(ODD):
        assert index.add(name, vectors(number), {"name": name}).id == number
    for state in states(index):
        assert list(state.names()) == list(ODD)
        assert sorted(state.search(vectors(0), None).names) == sorted(ODD)
        assert state.scores(vectors(3), ODD).shape == (len(ODD),)
        for number, name in enumerate(ODD):
            assert name in state
            assert state.id(name) == number
            assert state.meta([name]) == {name: {"name": name}}
            assert state.add(name, vectors(number), {"name": name}).outcome == "same"
            assert state.search(name, 1).names == (name,)
        assert list(state.verify())
    assert index.delete(ODD) == len(ODD)


NEVER_FILES = ("\ud800", "a\udfffb", "\ud83d\ude00", "\udcc3\udca9")


@pytest.mark.parametrize("name", NEVER_FILES)
def test_names_that_no_file_has_are_refused_or_kept(name: str, index: Index) -> None:
    """They are not from a file system; stored under another name, or in an index that then fails, they must not be."""
    index.add("good", vectors(1))
    try:
        index.add(name, vectors(0))
    except SuperfeatError:
        wanted = ["good"]
    else:
        wanted = ["good", name]
    for state in states(index):
        assert list(state.names()) == wanted
        assert (name in state) == (name in wanted)


def test_meta_comes_back(index: Index) -> None:
    meta = {"s": "ü\0\n'\"", "i": 2**70, "f": 1.5, "n": None, "b": True, "l": [1, [2, {"x": {}}]], "": ""}
    index.add("a", vectors(0), meta)
    index.add("b", vectors(1))
    for state in states(index):
        assert state.meta(["a", "b", "absent"]) == {"a": meta, "b": {}}
        assert state.meta([]) == {}
    assert index.add("a", vectors(0), meta).outcome == "same"


def test_meta_is_what_it_will_be_on_disk(index: Index) -> None:
    """Tuples become lists and keys text at once, not only when the index is opened again."""
    given = {"t": (1, 2), "d": {3: "x"}}
    index.add("a", vectors(0), given)
    for state in states(index):
        assert state.meta(["a"]) == {"a": {"t": [1, 2], "d": {"3": "x"}}}
        assert state.add("a", vectors(0), given).outcome == "same"


def test_meta_belongs_to_the_index(index: Index) -> None:
    """What a caller does to its own dictionary, or to the one it was given, changes nothing here."""
    given: dict[str, Any] = {"tags": ["old"]}
    index.add("a", vectors(0), given)
    given["tags"].append("new")
    index.meta(["a"])["a"]["tags"].append("newer")
    index.meta(["a"])["a"]["more"] = 1
    for state in states(index):
        assert state.meta(["a"]) == {"a": {"tags": ["old"]}}


@pytest.mark.parametrize("meta", [{"x": object()}, {"x": b"bytes"}, {"x": {1, 2}}])
def test_meta_that_is_no_json(meta: Any, index: Index) -> None:
    with pytest.raises(SuperfeatError, match="a"):
        index.add("a", vectors(0), meta)
    index.add("b", vectors(0))
    for state in states(index):
        assert list(state.names()) == ["b"]
