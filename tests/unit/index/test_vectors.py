"""An index of photos that are one vector each: exact answers, whatever is stored, and all that an index can do."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from superfeat.config import ExpansionConfig, IndexConfig, SearchConfig
from superfeat.errors import StoreError, SuperfeatError
from superfeat.index import contents as contents_module
from superfeat.index.codebook import Codebook
from superfeat.index.index import Index
from superfeat.index.vectors import Limit, best_rows, choose, expand_query, products, round_rows, rounding_bound

KERNELS = ("float32", "float16", "int8")


def rows(count: int, dim: int, seed: int = 0) -> np.ndarray:
    """Unit vectors, some of them equal."""
    rng = np.random.default_rng(seed)
    found = rng.standard_normal((count, dim)).astype(np.float32)
    found[count // 2 :: 3] = found[: len(found[count // 2 :: 3])]
    return np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True))


def made(path: Path, kernel: str, vectors: np.ndarray) -> Index:
    index = Index.create(path, Codebook.of_vectors(vectors.shape[1]), IndexConfig(kernel=kernel))  # type: ignore[arg-type]
    for _ in index.add_many(((f"{number:04}", one[None], None) for number, one in enumerate(vectors)), batch=16):
        pass
    return index


def slow(stored: np.ndarray, query: np.ndarray) -> tuple[list[int], list[float]]:
    """The oracle: plain products in float64, best first, equal ones by number."""
    scores = [sum(float(a) * float(b) for a, b in zip(row, query, strict=True)) for row in stored]
    order = sorted(range(len(scores)), key=lambda number: (-scores[number], number))
    return order, [scores[number] for number in order]


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 60), st.integers(1, 33), st.integers(0, 70), st.integers(0, 5), st.sampled_from(KERNELS))
def test_the_best_are_exact(count: int, dim: int, top: int, seed: int, kernel: str) -> None:
    vectors = rows(count, dim, seed)
    query = rows(1, dim, seed + 100)[0]
    stored = vectors.astype(np.float16) if kernel == "float16" else vectors
    given_rows = stored.view(np.uint16) if kernel == "float16" else stored
    rounded = round_rows(vectors) if kernel == "int8" else None
    wanted = np.random.default_rng(seed).random(count) < 0.8
    found = best_rows(given_rows, rounded, query, wanted, top, Limit())
    order, scores = slow(stored[wanted], query)
    numbers = np.flatnonzero(wanted)
    np.testing.assert_allclose(found.scores, scores[:top], atol=1e-12)
    exact = [int(numbers[place]) for place in order[:top]]
    assert found.ids.tolist() == exact or len(set(np.round(scores, 12))) < len(scores)
    about = products(given_rows, query[None])[0]
    again = choose(given_rows, query, about, rounding_bound(query), wanted, top, Limit())
    assert again.ids.tolist() == found.ids.tolist()


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 20), st.integers(1, 40), st.floats(1e-6, 1e6))
def test_roundings_are_as_far_off_as_they_say(count: int, dim: int, size: float) -> None:
    vectors = np.random.default_rng(count).standard_normal((count, dim)).astype(np.float32) * np.float32(size)
    rounded = round_rows(vectors)
    off = np.linalg.norm(
        vectors.astype(np.float64) - rounded.values * rounded.steps[:, None].astype(np.float64), axis=1
    )
    assert (off <= rounded.errors).all()


@pytest.mark.parametrize("kernel", KERNELS)
def test_it_lives_like_any_index(tmp_path: Path, kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments, a journal, deletions, replacements, compaction, another process."""
    monkeypatch.setattr(contents_module, "MIDDLE", 16)
    vectors = rows(50, 12)
    index = made(tmp_path / "index", kernel, vectors)
    assert index.info().segments >= 3
    index.delete(["0003", "0017"])
    index.add("0005", vectors[6:7])
    alive = {number: vectors[6 if number == 5 else number] for number in range(50) if number not in (3, 17)}
    for one in (index, Index.open(tmp_path / "index")):
        check(one, alive, kernel)
    index.compact()
    check(Index.open(tmp_path / "index"), alive, kernel)
    assert list(index.verify())
    other = made(tmp_path / "other", kernel, rows(4, 12, 9))
    assert other.merge(index) == len(alive)
    assert len(other) == len(alive) + 4 - 3  # of the names 0000 to 0003 three are there in both
    assert list(other.verify())


def check(index: Index, alive: dict[int, np.ndarray], kernel: str) -> None:
    query = rows(1, 12, 77)
    numbers = list(alive)
    stored = np.stack([index.words_of(f"{number:04}").codes[0] for number in numbers])
    assert stored.dtype == (np.float16 if kernel == "float16" else np.float32)
    for top in (1, 7, None):
        ranking = index.search(query, top)
        _, scores = slow(stored, (query / np.linalg.norm(query.astype(np.float64)))[0].astype(stored.dtype))
        np.testing.assert_allclose(ranking.scores, scores[:top], atol=2e-7)
        for hit in ranking:
            expected = float(alive[int(hit.name)].astype(np.float64) @ query[0].astype(np.float64))
            assert hit.score == pytest.approx(expected, abs=2e-3 if kernel == "float16" else 1e-6)
    (many,) = index.search_many([query], 7)
    assert many.names == index.search(query, 7).names
    named = index.search("0001", 2)
    assert named[0].score == pytest.approx(1, abs=1e-3)


def test_killed_between_two_writes(tmp_path: Path) -> None:
    """What a journal has acknowledged is there; a record that was cut off is not."""
    index = made(tmp_path / "index", "int8", rows(5, 8))
    journal = next((tmp_path / "index").glob("journal-*"))
    whole = journal.read_bytes()
    journal.write_bytes(whole + b"\x10\x00\x00\x00cut off")
    assert len(Index.open(tmp_path / "index")) == len(index) == 5


def test_a_damaged_rounding_is_found(tmp_path: Path) -> None:
    index = made(tmp_path / "index", "int8", rows(600, 64))
    index.compact()
    (file,) = (tmp_path / "index").glob("segments/*/rounded.npy")
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(StoreError, match="checksum"):
        list(Index.open(tmp_path / "index").verify())


def test_what_is_no_vector_is_refused(tmp_path: Path) -> None:
    index = made(tmp_path / "index", "float32", rows(3, 4))
    with pytest.raises(SuperfeatError, match="one vector per photo, and these features are 2"):
        index.add("two", rows(2, 4))
    with pytest.raises(SuperfeatError, match="4 are needed"):
        index.search(rows(1, 5))
    with pytest.raises(SuperfeatError, match="selectivity table"):
        index.search(rows(1, 4), table=np.zeros(5))
    zero = index.add("nothing", np.zeros((1, 4), np.float32))
    assert zero.outcome == "new"
    assert index.search("nothing", 1)[0].score == 0


def test_query_expansion(tmp_path: Path) -> None:
    vectors = rows(30, 8)
    index = made(tmp_path / "index", "float32", vectors)
    query = rows(1, 8, 5)
    near = index.search(query, 4)
    names = [int(name) for name in near.names]
    total = query[0].astype(np.float64).copy()
    for number, score in zip(names, near.scores, strict=True):
        total += max(score, 0) ** 2 * vectors[number]
    expected = index.search((total / np.linalg.norm(total))[None].astype(np.float32), 10)
    config = dataclasses.replace(SearchConfig(), expansion=ExpansionConfig(4, 2.0))
    found = index.search(query, 10, config=config)
    assert found.names == expected.names
    np.testing.assert_allclose(found.scores, expected.scores, atol=1e-6)
    (many,) = index.search_many([query], 10, config=config)
    assert many.names == found.names


def test_expansion_is_the_released_one(golden: Path) -> None:
    """The mean of the query and its nearest, each times similarity^alpha; the database's own expansion is the same."""
    with np.load(golden / "zoo_dirtorch.npz") as file:
        found = dict(file)
    database = found["aqe_database"]
    for key in (key for key in found if key.startswith("aqe_k")):
        count, alpha = int(key.split("_k")[1].split("_")[0]), float(key.split("alpha")[1])
        for query, expected in zip(found["aqe_queries"], found[key], strict=True):
            scores = database.astype(np.float64) @ query
            near = np.argsort(-scores, kind="stable")[:count]
            ours = expand_query(query, database[near], scores[near], alpha)
            np.testing.assert_allclose(ours, expected, atol=3e-6, err_msg=key)
    for number, expected in enumerate(found["dba_k3_alpha2"]):
        scores = database.astype(np.float64) @ database[number]
        others = [place for place in np.argsort(-scores, kind="stable") if place != number][:3]
        ours = expand_query(database[number], database[others], scores[others], 2.0)
        np.testing.assert_allclose(ours, expected, atol=3e-6)
