"""The index as its users see it: searched, described, merged."""

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fixtures_index import CODEBOOK, DIM, NETWORK, WORDS, states, vectors
from superfeat.config import IndexConfig, SearchConfig
from superfeat.errors import SuperfeatError
from superfeat.features import ImageWords
from superfeat.index import contents
from superfeat.index.codebook import Codebook
from superfeat.index.index import Index

# -- Search


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
    assert (info.words, info.dim, info.format, info.version) == (WORDS, DIM, "superfeat-index", 2)
    assert info.words_per_image == round((sum(sizes) - sizes[1] - sizes[4]) / 4, 1)
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


def test_all_of_several_indexes_are_taken_or_none(tmp_path: Path) -> None:
    index = Index.create(tmp_path / "ours", CODEBOOK)
    index.add("a", vectors(0))
    others = [Index.create(tmp_path / name, CODEBOOK) for name in ("one", "two")]
    others[0].add("a", vectors(1))
    others[1].add("a", vectors(2))
    others[1].add("b", vectors(3))
    alien = Index.create(tmp_path / "alien", Codebook(np.ones((2, 128), np.float32)))
    with pytest.raises(SuperfeatError, match="another codebook"):
        index.merge(others[0], alien)
    assert list(Index.open(index.path).names()) == ["a"]
    assert index.id("a") == 0
    assert index.merge(*others) == 3
    for state in states(index):
        assert sorted(state.names()) == ["a", "b"]
        assert state.words_of("a").codes.tobytes() == others[1].words_of("a").codes.tobytes()
        assert list(state.verify())


def test_photos_of_one_name_are_told_apart_when_indexes_are_merged(tmp_path: Path) -> None:
    index, other = (Index.create(tmp_path / name, CODEBOOK) for name in ("ours", "theirs"))
    index.add("1.jpg", vectors(0), {"path": "/cam/2019/1.jpg", "digest": "x"})
    index.add("2.jpg", vectors(1), {"path": "/cam/2019/2.jpg", "digest": "y"})
    index.add("3.jpg", vectors(2), {"path": "/cam/2019/3.jpg", "digest": "z"})
    other.add("1.jpg", vectors(5), {"path": "/cam/2020/1.jpg", "digest": "other"})
    other.add("2019/2.jpg", vectors(1), {"path": "/cam/2019/2.jpg", "digest": "y"})
    other.add("3.jpg", vectors(2), {"path": "/mounted/cam/3.jpg", "digest": "z"})
    index.merge(other)
    found = {name: (index.id(name), meta["path"]) for name, meta in names_and_meta(index).items()}
    assert found == {
        "1.jpg": (0, "/cam/2019/1.jpg"),
        "2.jpg": (1, "/cam/2019/2.jpg"),
        "2020/1.jpg": (3, "/cam/2020/1.jpg"),
        "3.jpg": (4, "/mounted/cam/3.jpg"),
    }
