"""Compaction of a small index: its images stay in the journal, where they take less room than in a segment."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures_index import CODEBOOK, vectors
from superfeat.errors import StoreError
from superfeat.index import contents, writer
from superfeat.index.codebook import Codebook
from superfeat.index.index import Index
from superfeat.index.journal import Note
from superfeat.storage.store import folder_bytes


@pytest.fixture(autouse=True, scope="module")
def as_it_is() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contents, "NAMES_BYTES", 1 << 14)
        yield


def test_compaction_makes_a_small_index_no_larger(filled: Index) -> None:
    before = {path: path.read_bytes() for path in filled.path.rglob("*") if path.is_file()}
    filled.compact()
    assert {path: path.read_bytes() for path in filled.path.rglob("*") if path.is_file()} == before
    filled.delete(["n1", "n8"])
    filled.add("n2", vectors(50), {"secret": "of the new one"})
    filled.note([Note(filled.id("n3"), "three", {"path": "/x"})])
    large = folder_bytes(filled.path)
    ids = {name: filled.id(name) for name in filled.names()}
    rankings = {name: filled.search(name, None) for name in filled.names()}
    filled.compact()
    assert folder_bytes(filled.path) < large
    for index in (filled, Index.open(filled.path)):
        facts = index.info()
        assert (facts.images, facts.deleted, facts.segments, facts.in_journal) == (7, 0, 0, 7)
        assert {name: index.id(name) for name in index.names()} == ids
        assert index.meta(["three", "n2"]) == {"three": {"path": "/x"}, "n2": {"secret": "of the new one"}}
        for name, ranking in rankings.items():
            assert index.search(name, None).names == ranking.names
    for data in (path.read_bytes() for path in filled.path.rglob("*") if path.is_file()):
        assert b'"n1"' not in data
    assert filled.add("later", vectors(51)).id == 10, "an id is never given twice"
    assert list(filled.verify())


def test_many_images_become_a_segment(tmp_path: Path) -> None:
    codebook = Codebook(np.random.default_rng(0).standard_normal((2, 64)).astype(np.float32))
    index = Index.create(tmp_path / "index", codebook)
    for number in range(5000):
        index.add(f"n{number}", np.random.default_rng(number).standard_normal((8, 64)).astype(np.float32))
        if index.info().segments:
            break
    index.compact()
    assert (index.info().segments, index.info().in_journal) == (1, 0)


def test_all_deleted(filled: Index) -> None:
    filled.delete(list(filled.names()))
    filled.compact()
    assert [file.stat().st_size for file in filled.path.glob("journal-*")] == [16]
    assert filled.add("again", vectors(0)).id == 9


def test_a_compaction_that_fails_loses_nothing(filled: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    filled.delete("n1")

    def refuse(*_: object) -> None:
        raise StoreError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(writer, "write_manifest", refuse)
        with pytest.raises(StoreError, match="the disk is full"):
            filled.compact()
    for index in (filled, Index.open(filled.path)):
        assert sorted(index.names()) == ["n0", *(f"n{number}" for number in range(2, 9))]
    filled.compact()
    assert len(list(filled.path.glob("journal-*"))) == 1


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 5)),
        st.tuples(st.just("delete"), st.integers(0, 5)),
        st.tuples(st.just("note"), st.integers(0, 5)),
        st.tuples(st.just("compact"), st.just(0)),
    ),
    max_size=14,
)


@settings(max_examples=40, deadline=None)
@given(steps=STEPS)
def test_gaps_between_ids_change_nothing(
    steps: list[tuple[str, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    index = Index.create(tmp_path_factory.mktemp("steps") / "index", CODEBOOK)
    model: dict[str, tuple[int, dict[str, int]]] = {}
    following = 0
    for seed, (step, number) in enumerate(steps):
        name = f"n{number}"
        if step == "add":
            index.add(name, vectors(seed), {"seed": seed})
            model[name] = following, {"seed": seed}
            following += 1
        elif step == "delete" and name in model:
            index.delete(name)
            del model[name]
        elif step == "note" and name in model:
            index.note([Note(model[name][0], name, {"noted": seed})])
            model[name][1]["noted"] = seed
        elif step == "compact":
            index.compact()
        for one in (index, Index.open(index.path)):
            assert {name: (one.id(name), one.meta([name])[name]) for name in one.names()} == model
            assert one.info().images == len(model)
