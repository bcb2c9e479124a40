"""An index whose shards answer from elsewhere: the same bits as one index, and what is missing is said."""

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures_shards import Here
from superfeat.config import VECTOR_KERNELS, ExpansionConfig, IndexConfig, SearchConfig
from superfeat.errors import SuperfeatError
from superfeat.index.codebook import Codebook
from superfeat.index.far import FarSnapshot, far_index
from superfeat.index.index import Index
from superfeat.index.partial import MissingPart, collect_missing
from superfeat.index.snapshot import Snapshot
from superfeat.index.splitting import rebalance_shards, shard_index

DIM, IMAGES = 64, 40
SEARCHES = (SearchConfig(), SearchConfig(idf=True, alpha=2.0, threshold=0.1))


def vectors(number: int, count: int = 5) -> np.ndarray:
    """Every third image is the same as another one, so that scores are equal."""
    return np.random.default_rng(number - number % 3).standard_normal((count, DIM)).astype(np.float32)


def make(path: Path, kernel: str = "binary") -> Index:
    one = kernel in VECTOR_KERNELS
    centroids = np.random.default_rng(1).standard_normal((24, DIM)).astype(np.float32)
    words = Codebook.of_vectors(DIM) if one else Codebook(centroids)
    index = Index.create(path, words, IndexConfig(kernel=kernel), network="n")  # type: ignore[arg-type]
    count = 1 if one else 5
    images = ((f"{n}.jpg", vectors(n, count), {"path": f"/p/{n}.jpg", "digest": f"{n % 9}"}) for n in range(IMAGES))
    list(index.add_many(images, batch=IMAGES))
    index.delete("7.jpg")
    return index


def far(folder: Path, index: Index, count: int) -> tuple[Index, Here]:
    names = [f"{number:06}" for number in range(count)]
    here = Here(shard_index(index, count, folder / "shards").path, names)
    return far_index(folder / "shards", here), here


def facts(index: Index, searches: Sequence[SearchConfig]) -> list[Any]:
    snapshot, names = index.snapshot(), [f"{n}.jpg" for n in (3, 9, 30)]
    told: list[Any] = [list(snapshot.images()), snapshot.ids().tolist(), len(index), list(index.names())]
    told += [snapshot.spread_ids(9).tolist(), index.meta(names), index.find("digest", ["1", "8"]), index.next_id]
    told += [index.facts, index.network, index.config, index.codebook.digest, "7.jpg" in index, "8.jpg" in index]
    ids = [index.id(name) for name in names]
    told += [snapshot.names(ids), [snapshot.name_of(image) for image in (*ids, 999)], snapshot.find(names)]
    told += [None if one is None else one.codes.tobytes() for one in snapshot.words_of_many([*ids, 999])]
    query = vectors(50, 1 if snapshot.layout.vectors else 9)
    for config in searches:
        for top, only in ((None, None), (7, None), (None, names), (0, None)):
            found = index.search(query, top, config=config, only=only)
            told += [found.names, found.scores.tobytes(), found.ids.tobytes()]
        words = index.query(query)
        told += [snapshot.score_of(ids[0], words, config), snapshot.score_of(999, words, config)]
    told += [[one.names, one.scores.tobytes()] for one in index.search_many(names, 9)]
    return told


@settings(deadline=None, max_examples=8)
@given(count=st.integers(1, 7))
def test_answers_are_those_of_one_index(count: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("far")
    whole = make(folder / "index")
    index, _ = far(folder, whole, count)
    with collect_missing() as missing:
        assert facts(index, SEARCHES) == facts(whole, SEARCHES)
    assert not missing
    assert index.snapshot().weights.words.tobytes() == whole.snapshot().weights.words.tobytes()
    table = np.linspace(1, 0, DIM + 1)
    mine, theirs = (one.search(vectors(1), 9, table=table) for one in (index, whole))
    assert (mine.names, mine.scores.tobytes()) == (theirs.names, theirs.scores.tobytes())
    assert sum(index.info().shards or []) == len(whole) == index.info().images


@pytest.mark.parametrize("kernel", ["real", *VECTOR_KERNELS])
def test_every_kernel(kernel: str, tmp_path: Path) -> None:
    whole = make(tmp_path / "index", kernel)
    searches = [SearchConfig()]
    if kernel in VECTOR_KERNELS:
        searches.append(SearchConfig(expansion=ExpansionConfig(images=3, alpha=2.0)))
    assert facts(far(tmp_path, whole, 3)[0], searches) == facts(whole, searches)


def test_every_question_is_put_to_the_shards() -> None:
    """What a snapshot answers from its segments would be wrong here: there are none."""
    built_on_others = {"search", "best", "in_memory", "vector_of"}
    for name, _ in inspect.getmembers(Snapshot, lambda one: inspect.isfunction(one) or isinstance(one, property)):
        if not name.startswith("_") and name not in built_on_others:
            assert name in vars(FarSnapshot), name


def test_a_shard_that_is_gone_is_left_out_and_said(tmp_path: Path) -> None:
    whole = make(tmp_path / "index")
    index, here = far(tmp_path, whole, 4)
    there = {name for number in (0, 1, 3) for name in here.parts[number].find([*whole.names()])}
    lost = MissingPart("000002", len(whole) - len(there))
    wanted = whole.search(vectors(50), None)
    here.dead.add(2)
    with collect_missing() as outer:
        with collect_missing() as missing:
            found = index.search(vectors(50), None)
        assert missing == {lost}
        kept = [number for number, name in enumerate(wanted.names) if name in there]
        assert found.names == tuple(wanted.names[number] for number in kept)
        assert found.scores.tobytes() == wanted.scores[kept].tobytes()
    assert outer == {lost}
    assert len(index) == len(whole)  # of the whole collection
    name = next(iter(set(whole.names()) - there))
    for question in (index.id, index.words_of):
        with pytest.raises(SuperfeatError, match=f"called {name} in the shards that answer; 000002 did not"):
            question(name)
    with collect_missing() as missing:
        index.search(vectors(50), None, config=SEARCHES[1])
    index.refresh()
    here.dead.clear()
    for config in SEARCHES:  # the words that were counted without it are forgotten
        mine, theirs = (one.search(vectors(50), None, config=config) for one in (index, whole))
        assert (mine.names, mine.scores.tobytes()) == (theirs.names, theirs.scores.tobytes())


def test_changes_on_disk_are_taken_in(tmp_path: Path) -> None:
    whole = make(tmp_path / "index")
    index, _ = far(tmp_path, whole, 3)
    local = Index.open(tmp_path / "shards")
    for one in (whole, local):
        one.delete(["1.jpg", "2.jpg", "5.jpg"])
        one.add("new", vectors(77))
    stamp = index.stamp()
    assert stamp == local.stamp()
    assert "new" not in index
    index.refresh()
    assert facts(index, SEARCHES) == facts(whole, SEARCHES)


def test_what_cannot_be_done_is_refused(tmp_path: Path) -> None:
    index, here = far(tmp_path, make(tmp_path / "index"), 3)
    for change in (lambda: index.add("x", vectors(1)), lambda: index.delete("3.jpg"), index.compact):
        with pytest.raises(SuperfeatError, match="is only read here; change it where its files are"):
            change()
    with pytest.raises(SuperfeatError, match="has no image called nowhere"):
        index.id("nowhere")
    assert list(index.verify())
    here.dead = {1}
    with pytest.raises(SuperfeatError, match="shard 000001 does not answer"):
        far_index(index.path, here)
    here.dead = set()
    rebalance_shards(index.path)
    here.dead = {0, 1, 2}
    with pytest.raises(SuperfeatError, match="has other shards than before"):
        index.refresh()
