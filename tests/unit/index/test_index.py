"""The index as its users see it: what goes in, what comes out, and what is refused."""

import dataclasses
import itertools
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from superfeat.config import IndexConfig, SearchConfig
from superfeat.errors import StoreError, SuperfeatError
from superfeat.features import Features, ImageWords
from superfeat.index import contents, segments
from superfeat.index.codebook import Codebook
from superfeat.index.index import Added, Index

DIM, WORDS = 128, 16
NETWORK = "0123456789abcdef" * 4
CODEBOOK = Codebook(np.random.default_rng(0).standard_normal((WORDS, DIM)).astype(np.float32))
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


def vectors(seed: int, rows: int = 5) -> np.ndarray:
    return np.random.default_rng(100 + seed).standard_normal((rows, DIM)).astype(np.float32)


def features(seed: int, network: str | None = None) -> Features:
    rows = vectors(seed)
    ones = np.ones(len(rows), np.float32)
    return Features("some name", rows, ones, ones, np.arange(len(rows), dtype=np.int32), network=network)


@pytest.fixture(params=["binary", "real"])
def kernel(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def index(kernel: str, tmp_path: Path) -> Index:
    return Index.create(tmp_path / "index", CODEBOOK, IndexConfig(kernel=kernel))  # type: ignore[arg-type]


@pytest.fixture
def binary(tmp_path: Path) -> Index:
    return Index.create(tmp_path / "binary", CODEBOOK)


@pytest.fixture
def real(tmp_path: Path) -> Index:
    return Index.create(tmp_path / "real", CODEBOOK, IndexConfig(kernel="real"))


def states(index: Index) -> Iterator[Index]:
    """The same images in the journal, opened anew, and in a segment."""
    yield index
    yield Index.open(index.path)
    index.compact()
    yield index
    yield Index.open(index.path)


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
    for name in ("empty", "file", "full"):
        with pytest.raises(StoreError, match=f"{name} exists already; open it, or choose another name"):
            Index.create(tmp_path / name, CODEBOOK)
    assert list(Index.open(tmp_path / "empty").names()) == ["a"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "file", "full"]


@pytest.mark.parametrize("name", ["absent", "empty", "file"])
def test_what_is_no_index(name: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match=f"{name} is not an index; make one with: superfeat index PHOTOS -o "):
        Index.open(tmp_path / name)
    CODEBOOK.save(tmp_path / "codebook")
    with pytest.raises(StoreError, match="is not an index"):
        Index.open(tmp_path / "codebook")


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


# -- Features


def test_images_without_features(index: Index) -> None:
    index.add("none", vectors(0, rows=0))
    index.add("some", vectors(0))
    for state in states(index):
        assert len(state.words_of("none")) == 0
        ranking = state.search(vectors(0))
        assert ranking.names == ("some", "none")
        assert ranking.scores[1] == 0
        for query in (vectors(0, rows=0), "none"):
            empty = state.search(query)
            assert (empty.names, empty.scores.tolist()) == (("none", "some"), [0.0, 0.0])
        assert np.isfinite(state.search(vectors(0), config=SearchConfig(idf=True)).scores).all()
        assert list(state.verify())
    assert index.add("none", vectors(0, rows=0)).outcome == "same"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (np.zeros((3, 127), np.float32), "features have 127 dimensions, and 128 are needed: another network?"),
        (np.zeros((0, 5), np.float32), "features have 5 dimensions"),
        (np.zeros(128, np.float32), r"must be an array of numbers \(n, dim\)"),
        (np.zeros((1, 1, 128), np.float32), r"must be an array of numbers \(n, dim\)"),
        (np.zeros((2, 128), np.int64), r"must be an array of numbers \(n, dim\)"),
        (np.full((2, 128), np.nan, np.float32), "not finite numbers"),
        (np.full((2, 128), -np.inf), "not finite numbers"),
    ],
)
def test_features_that_are_none(wrong: Any, message: str, index: Index) -> None:
    index.add("a", vectors(0))
    for act in (index.search, index.query, lambda it: index.add("b", it), lambda it: index.scores(it, ["a"])):
        with pytest.raises(SuperfeatError, match=message):
            act(wrong)
    assert list(index.names()) == ["a"]


def test_features_of_another_network(index: Index) -> None:
    index.add("a", features(0))
    assert index.network is None
    index.add("b", features(1, NETWORK))
    for state in states(index):
        assert state.network == NETWORK
        for act in (state.search, state.query, lambda it: index.add("c", it)):
            with pytest.raises(SuperfeatError, match=r"come from another network .*extract them with the same weights"):
                act(features(2, "f" * 64))
        assert len(state.search(features(2, NETWORK))) == len(state.search(features(2))) == 2
    assert index.add("b", features(1, NETWORK)).outcome == "same"
    assert index.add("b", vectors(1)).outcome == "same"


def test_words_know_the_network_of_their_features(index: Index) -> None:
    words = index.query(features(0, NETWORK), assignments=1)
    list(index.add_many([("a", words, None)]))
    assert index.network == Index.open(index.path).network == NETWORK
    assert index.add("a", features(0, NETWORK)).outcome == "same"
    with pytest.raises(SuperfeatError, match="come from another network"):
        list(index.add_many([("b", dataclasses.replace(words, network="f" * 64), None)]))


def test_a_query_says_where_each_feature_went(index: Index) -> None:
    rows = vectors(3, rows=7)
    query = index.query(rows, assignments=3)
    assert query.assigned is not None
    np.testing.assert_array_equal(query.assigned, CODEBOOK.assign(rows, 3))
    np.testing.assert_array_equal(query.words, np.unique(query.assigned))
    index.add("a", rows)
    assert index.words_of("a").assigned is None


def test_the_network_is_that_of_the_codebook(tmp_path: Path) -> None:
    codebook = Codebook(CODEBOOK.centroids, NETWORK)
    assert Index.create(tmp_path / "a", codebook).network == NETWORK
    assert Index.create(tmp_path / "b", codebook, network="other").network == "other"


def test_words_of_another_codebook(index: Index, kernel: str, tmp_path: Path) -> None:
    config = IndexConfig(kernel=kernel)  # type: ignore[arg-type]
    other = Index.create(tmp_path / "other", Codebook(CODEBOOK.centroids + 1), config)
    index.add("a", vectors(0))
    words = other.query(vectors(0), 1)
    with pytest.raises(SuperfeatError, match="the query's words are of another codebook"):
        index.search(words)
    with pytest.raises(SuperfeatError, match="the words of b are of another codebook"):
        list(index.add_many([("b", words, None)]))
    with pytest.raises(SuperfeatError, match=r"has another codebook or kernel than .*; they cannot be merged"):
        index.merge(other)
    assert list(index.names()) == ["a"]


HOSTILE = r"""
import json, sys
import numpy as np
from superfeat.index.codebook import Codebook
from superfeat.config import IndexConfig
from superfeat.errors import SuperfeatError
from superfeat.features import ImageWords
from superfeat.index.index import Index

codebook = Codebook(np.random.default_rng(0).standard_normal((16, 128)).astype(np.float32))
rows = np.random.default_rng(0).standard_normal((5, 128)).astype(np.float32)
kernels = ("binary", "real")
indexes = {kernel: Index.create(f"{sys.argv[1]}/{kernel}", codebook, IndexConfig(kernel)) for kernel in kernels}
index = indexes.pop(sys.argv[2])
(other,) = indexes.values()
index.add("a", rows)
good = index.query(rows, 1)
words, codes = good.words, good.codes
wrong = {
    "of the other kernel": other.query(rows, 1),
    "too large": (words + 16, codes),
    "negative": (words - 16, codes),
    "falling": (words[::-1].copy(), codes),
    "repeated": (np.repeat(words[:1], len(words)), codes),
    "too few words": (words[:-1], codes),
    "too few codes": (words, codes[:-1]),
    "narrow": (words, codes[:, :-1].copy()),
    "wide": (words, np.concatenate([codes, codes], axis=1)),
    "flat": (words, codes.reshape(-1)),
    "codes of another type": (words, codes.astype(np.float64)),
    "words of another type": (words.astype(np.float32), codes),
    "words in a column": (words[:, None], codes),
}
for what, given in wrong.items():
    given = given if isinstance(given, ImageWords) else ImageWords(*given, codebook.digest)
    for act in (lambda: index.search(given), lambda: list(index.add_many([("b", given, None)]))):
        print(what, end=": ", flush=True)
        try:
            act()
            print("taken", flush=True)
        except SuperfeatError as error:
            print("refused", flush=True)
        except Exception as error:
            print(repr(error), flush=True)
index = Index.open(index.path)
print("whole", list(index.names()) == ["a"] and len(list(index.verify())) > 0)
"""


def test_words_that_make_no_sense(kernel: str, tmp_path: Path) -> None:
    """They go to compiled loops that check nothing; so in a process of their own, which they may not take down."""
    command = [sys.executable, "-c", HOSTILE, str(tmp_path), kernel]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    *lines, last = run.stdout.splitlines()
    assert run.returncode == 0, f"{last}: {run.stderr[-500:]}"
    assert [line for line in lines if not line.endswith(": refused")] == []
    assert (len(lines), last) == (26, "whole True")


def test_indexes_of_two_kernels_are_not_merged(binary: Index, real: Index) -> None:
    for index, other in ((binary, real), (real, binary)):
        with pytest.raises(SuperfeatError, match=r"has another codebook or kernel than .*; they cannot be merged"):
            index.merge(other)


def test_words_that_came_out_go_in(index: Index) -> None:
    index.add("a", vectors(0))
    (added,) = index.add_many([("b", index.words_of("a"), None)])
    assert added.outcome == "new"
    for state in states(index):
        a, b = state.words_of("a"), state.words_of("b")
        assert (a.words.tobytes(), a.codes.tobytes()) == (b.words.tobytes(), b.codes.tobytes())
        assert state.search("a").names == ("a", "b")
    assert index.add("b", vectors(0)).outcome == "same"


def test_words_are_those_of_the_query_with_one_assignment(index: Index) -> None:
    for seed in range(6):
        index.add(f"n{seed}", vectors(seed, rows=seed * 4))
    for state in states(index):
        for seed in range(6):
            found, wanted = state.words_of(f"n{seed}"), state.query(vectors(seed, rows=seed * 4), assignments=1)
            assert found.words.dtype == wanted.words.dtype == np.int32
            assert found.codes.dtype == wanted.codes.dtype
            assert found.words.tolist() == wanted.words.tolist()
            assert found.codes.tobytes() == wanted.codes.tobytes()
            assert found.codebook == wanted.codebook == CODEBOOK.digest


# -- Search


@pytest.fixture
def filled(index: Index) -> Index:
    for seed in range(9):
        index.add(f"n{seed}", vectors(seed))
    return index


def test_top(filled: Index) -> None:
    for state in states(filled):
        everything = state.search(vectors(20), None)
        assert len(everything) == 9
        for top in (0, 1, 5, 9, 10, 10**9):
            found = state.search(vectors(20), top)
            assert found.names == everything.names[:top]
            assert found.scores.tobytes() == everything.scores[:top].tobytes()
            assert found.ids.tolist() == everything.ids[:top].tolist()
        assert list(everything.scores) == sorted(everything.scores, reverse=True)
        hits = list(everything)
        assert [(hit.name, hit.id) for hit in hits] == [(name, state.id(name)) for name in everything.names]
    with pytest.raises(SuperfeatError, match="-1"):
        filled.search(vectors(20), -1)


def test_an_image_finds_itself_first(filled: Index) -> None:
    for state in states(filled):
        for seed in range(9):
            found = state.search(f"n{seed}", 3)
            assert found.names[0] == f"n{seed}"
            assert found.scores[0] == pytest.approx(1, abs=1e-6)
            again = state.search(vectors(seed), 3, config=SearchConfig(assignments=1))
            assert (found.names, found.scores.tobytes()) == (again.names, again.scores.tobytes())


def test_equal_scores_are_in_the_order_of_ids(index: Index) -> None:
    for name in "zyxwv":
        index.add(name, vectors(1))
    index.add("y", vectors(1), {"again": True})
    for state in states(index):
        assert state.search(vectors(1)).names == tuple("zxwvy")
        assert state.search(vectors(1), 2).names == tuple("zx")


def test_only_some_images(filled: Index) -> None:
    for state in states(filled):
        everything = state.search(vectors(20), None)
        score = dict(zip(everything.names, everything.scores.tolist(), strict=True))
        some = ["n7", "n2", "n3", "n2"]
        found = state.search(vectors(20), None, only=some)
        assert sorted(found.names) == ["n2", "n3", "n7"]
        assert [score[name] for name in found.names] == found.scores.tolist()
        assert state.search(vectors(20), 1, only=(name for name in some)).names == found.names[:1]
        assert len(state.search(vectors(20), only=[])) == 0
        with pytest.raises(SuperfeatError, match="has no image called absent"):
            state.search(vectors(20), only=["n1", "absent"])
        assert state.scores(vectors(20), some).tolist() == [score[name] for name in some]
        assert state.scores(vectors(20), []).tolist() == []
        with pytest.raises(SuperfeatError, match="has no image called absent"):
            state.scores(vectors(20), ["absent"])


def test_searching_changes_nothing(filled: Index) -> None:
    filled.compact()
    files = {path: path.stat().st_mtime_ns for path in filled.path.rglob("*")}
    for config in (None, SearchConfig(idf=True), SearchConfig(alpha=0.5, threshold=0.3)):
        filled.search(vectors(1), config=config)
    assert list(filled.verify())
    filled.info()
    Index.open(filled.path).search("n1")
    assert {path: path.stat().st_mtime_ns for path in filled.path.rglob("*")} == files


def test_a_table_in_the_place_of_alpha(binary: Index, real: Index) -> None:
    for index in (binary, real):
        for seed in range(5):
            index.add(f"n{seed}", vectors(seed))
    u = 1 - 2 * np.arange(DIM + 1) / DIM
    table = np.where(u >= 0, u**3, 0)
    found, wanted = binary.search(vectors(9), table=table), binary.search(vectors(9))
    assert found.names == wanted.names
    assert found.scores == pytest.approx(wanted.scores, abs=1e-9)
    for wrong in (table[:-1], np.full(DIM + 1, np.nan), table[:, None]):
        with pytest.raises(SuperfeatError, match="a selectivity table needs 129 finite numbers"):
            binary.search(vectors(9), table=wrong)
    with pytest.raises(SuperfeatError, match="binary kernel"):
        real.search(vectors(9), table=table)


@pytest.mark.parametrize("count", [248, 1984])
def test_lists_that_end_with_a_page(count: int, binary: Index) -> None:
    """128 bytes of header and 248 codes of 16 bytes, or 1984 ids of 2, fill pages to the last byte."""
    codes = np.zeros((WORDS, 16), np.uint8)
    words = ImageWords(np.arange(8, dtype=np.int32), codes[:8], CODEBOOK.digest)
    list(binary.add_many(((f"n{number}", words, None) for number in range(count // 8)), batch=count))
    binary.compact()
    file = "codes.npy" if count == 248 else "ids.npy"
    assert [path.stat().st_size for path in binary.path.rglob(f"segments/*/{file}")] == [4096]
    everything = ImageWords(np.arange(WORDS, dtype=np.int32), codes, CODEBOOK.digest)  # half of them have no images
    assert Index.open(binary.path).search(everything, 2).names == ("n0", "n1")


# -- Describe, merge


def test_info_counts(index: Index, kernel: str) -> None:
    sizes = []
    for seed in range(6):
        index.add(f"n{seed}", vectors(seed))
        sizes.append(len(index.words_of(f"n{seed}")))
    index.delete(["n1", "n4"])
    info = index.info()
    wanted = {"images": 4, "deleted": 2, "segments": 0, "in_journal": 6, "postings": sum(sizes), "kernel": kernel}
    assert wanted.items() <= dataclasses.asdict(info).items()
    assert (info.words, info.dim, info.format, info.version) == (WORDS, DIM, "superfeat-index", 1)
    assert info.words_per_image == round(sum(sizes) / 6, 1)
    index.compact()
    info = Index.open(index.path).info()
    left = sum(sizes) - sizes[1] - sizes[4]
    assert {"images": 4, "deleted": 0, "segments": 1, "in_journal": 0, "postings": left}.items() <= dataclasses.asdict(
        info
    ).items()
    assert info.bytes == sum(path.stat().st_size for path in index.path.rglob("*") if path.is_file())
    assert info.bytes_per_posting == round(info.bytes / left, 2)
    assert info.codebook == CODEBOOK.digest


def names_and_meta(index: Index) -> dict[str, dict[str, Any]]:
    return index.meta(list(index.names()))


def test_merging(index: Index, kernel: str, tmp_path: Path) -> None:
    other = Index.create(tmp_path / "other", CODEBOOK, IndexConfig(kernel=kernel), network=NETWORK)  # type: ignore[arg-type]
    for seed in range(4):
        index.add(f"n{seed}", vectors(seed), {"from": "ours"})
    for seed in range(2, 7):
        other.add(f"n{seed}", vectors(seed + 50), {"from": "theirs"})
    other.delete("n5")
    assert index.merge(other) == 4
    assert index.merge(Index.create(tmp_path / "empty", CODEBOOK, index.config)) == 0
    ours, theirs = {"from": "ours"}, {"from": "theirs"}
    for state in states(index):
        assert names_and_meta(state) == {"n0": ours, "n1": ours, "n2": theirs, "n3": theirs, "n4": theirs, "n6": theirs}
        assert [state.id(name) for name in state.names()] == [0, 1, 4, 5, 6, 7]
        for seed in (2, 3, 4, 6):
            assert state.words_of(f"n{seed}").codes.tobytes() == other.words_of(f"n{seed}").codes.tobytes()
        assert state.network == NETWORK
        assert list(state.verify())
    assert len(other) == 4
    alien = Index.create(tmp_path / "alien", CODEBOOK, index.config, network="f" * 64)
    with pytest.raises(SuperfeatError, match="come from another network"):
        index.merge(alien)


def test_merging_with_itself_keeps_all_images(filled: Index) -> None:
    filled.compact()
    filled.add("n9", vectors(9))
    assert filled.merge(filled) == 10
    for state in states(filled):
        assert sorted(state.names()) == [f"n{seed}" for seed in range(10)]
        assert list(state.verify())


def test_the_smallest_codebooks(tmp_path: Path) -> None:
    for codebook in (Codebook(np.zeros((1, 1), np.float32)), Codebook(np.zeros((3, 64), np.float32))):
        index = Index.create(tmp_path / str(codebook.dim), codebook)
        index.add("a", np.ones((2, codebook.dim), np.float32))
        for state in states(index):
            found = state.search(np.ones((1, codebook.dim), np.float32), config=SearchConfig(assignments=1))
            assert found.scores.tolist() == [1.0]


def test_many_small_changes_stay_few_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "SMALL", 2)
    monkeypatch.setattr(contents, "MIDDLE", 8)
    monkeypatch.setattr(contents, "FAN", 2)
    monkeypatch.setattr(os, "fsync", lambda _: None)
    index = Index.create(tmp_path / "index", CODEBOOK)
    most = 0
    for seed in range(60):
        index.add(f"n{seed % 25}", vectors(seed))
        most = max(most, index.info().segments)
        names: Sequence[str] = [path.name for path in (index.path / "segments").iterdir()]
        assert len(names) == index.info().segments
    assert most <= 6
    assert len(index) == 25
