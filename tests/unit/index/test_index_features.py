"""The index as its users see it: which features and words it takes, and which it refuses."""

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fixtures_index import CODEBOOK, NETWORK, states, vectors
from superfeat.config import IndexConfig, SearchConfig
from superfeat.errors import SuperfeatError
from superfeat.features import Features
from superfeat.index.codebook import Codebook
from superfeat.index.index import Index


def features(seed: int, network: str | None = None) -> Features:
    rows = vectors(seed)
    ones = np.ones(len(rows), np.float32)
    return Features("some name", rows, ones, ones, np.arange(len(rows), dtype=np.int32), network=network)


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
