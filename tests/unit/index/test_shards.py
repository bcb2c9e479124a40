"""Shards: any split answers like one index, and what touches several shards happens to all or none."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from superfeat.config import VECTOR_KERNELS, IndexConfig, SearchConfig
from superfeat.errors import StoreError, SuperfeatError
from superfeat.index import shards as module
from superfeat.index.codebook import Codebook
from superfeat.index.disk import Folder
from superfeat.index.growing import GrowingLists
from superfeat.index.index import Index
from superfeat.index.journal import Note
from superfeat.index.shards import shard_of
from superfeat.index.splitting import create_shards, join_shards, rebalance_shards, shard_index

WORDS, DIM, IMAGES = 24, 64, 60
SEARCHES = (SearchConfig(), SearchConfig(alpha=2.0, threshold=0.1, idf=True), SearchConfig(norm="none"))


def vectors(number: int) -> np.ndarray:
    """Every third image is the same as another one, so that scores are equal."""
    random = np.random.default_rng(number - number % 3)
    return random.standard_normal((5, DIM)).astype(np.float32)


def make(path: Path, kernel: str = "binary") -> Index:
    one = kernel in VECTOR_KERNELS
    random = np.random.default_rng(1)
    words = Codebook.of_vectors(DIM) if one else Codebook(random.standard_normal((WORDS, DIM)).astype(np.float32))
    index = Index.create(path, words, IndexConfig(kernel=kernel), network="n")  # type: ignore[arg-type]
    images = ((f"{n}.jpg", vectors(n)[:1] if one else vectors(n), {"path": f"/p/{n}.jpg"}) for n in range(IMAGES))
    list(index.add_many(images, batch=IMAGES))
    index.delete(["7.jpg", "11.jpg", "40.jpg"])
    return index


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Index:
    return make(tmp_path_factory.mktemp("whole") / "index")


def facts(index: Index) -> list[Any]:
    """All that can be asked of an index, and the bits of every score."""
    query = np.random.default_rng(99).standard_normal((9, DIM)).astype(np.float32)
    one = index.snapshot().layout.vectors is not None
    told: list[Any] = [list(index.snapshot().images()), index.snapshot().ids().tolist(), len(index), index.next_id]
    for config in SEARCHES[: 1 if one else 3]:
        for top in (None, 7):
            for asked in (query[:1] if one else query, "3.jpg"):
                found = index.search(asked, top, config=config, workers=2)
                told += [found.names, found.scores.tobytes(), found.ids.tobytes()]
    told += [[one.names, one.scores.tobytes()] for one in index.search_many(["3.jpg", "50.jpg"], 9)]
    told += [index.scores("3.jpg", ["9.jpg", "4.jpg"]).tobytes(), index.find("path", ["/p/9.jpg"])]
    told += [index.words_of(name).codes.tobytes() for name in index.names()]
    return told


@settings(deadline=None, max_examples=12)
@given(count=st.integers(1, 9), again=st.integers(1, 4))
def test_any_split_answers_like_one_index(
    whole: Index, count: int, again: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("split")
    wanted = facts(whole)
    split = shard_index(whole, count, folder / "shards")
    assert facts(split) == wanted
    assert sum(split.info().shards or []) == len(whole)
    assert facts(rebalance_shards(folder / "shards", again)) == wanted
    joined = join_shards(Index.open(folder / "shards"), folder / "joined")
    assert facts(joined) == wanted
    assert joined.info().shards is None
    for index in (Index.open(folder / "shards"), joined):
        assert list(index.verify())


@settings(deadline=None, max_examples=12)
@given(owners=st.lists(st.integers(0, 3), min_size=IMAGES, max_size=IMAGES))
def test_where_an_image_lies_never_matters(
    whole: Index, owners: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("anywhere")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("superfeat.index.splitting.shard_of", lambda name, _: owners[int(name.split(".")[0])])
        split = shard_index(whole, 4, folder / "shards")
    assert facts(split) == facts(whole)
    assert split.add("12.jpg", vectors(13)).outcome == "replaced"  # in the shard that it is in
    split.delete("12.jpg")
    assert "12.jpg" not in split
    assert list(split.verify())


@pytest.mark.parametrize("kernel", ["real", *VECTOR_KERNELS])
def test_every_kernel(kernel: str, tmp_path: Path) -> None:
    index = make(tmp_path / "index", kernel)
    wanted = facts(index)
    assert facts(shard_index(index, 3, tmp_path / "shards")) == wanted
    assert facts(join_shards(rebalance_shards(tmp_path / "shards", 2), tmp_path / "joined")) == wanted


def test_new_images_go_by_their_name_and_get_the_ids_of_the_whole(whole: Index, tmp_path: Path) -> None:
    split = shard_index(whole, 3, tmp_path / "shards")
    added = list(split.add_many(((f"new{n}", vectors(n), None) for n in range(8)), batch=8))
    assert [one.id for one in added] == list(range(whole.next_id, whole.next_id + 8))
    for number in range(8):
        part = Index.open(tmp_path / "shards" / f"{shard_of(f'new{number}', 3):06}")
        assert f"new{number}" in part
    assert [shard_of("IMG_0001.jpg", count) for count in (2, 8, 100)] == [1, 7, 99]  # on every machine, for ever


@pytest.fixture
def shards(tmp_path: Path) -> Index:
    index = create_shards(tmp_path / "shards", 3, Codebook(np.eye(WORDS, DIM, dtype=np.float32)))
    list(index.add_many(((f"{n}.jpg", vectors(n), None) for n in range(12)), batch=12))
    return index


def test_a_change_of_several_shards_is_seen_whole_while_it_is_made(
    shards: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers that open it in the middle see all of it, and the next writer finishes what a killed one began."""
    names = list(shards.names())
    seen: list[list[str]] = []

    def stop(*_: Any) -> Any:
        seen.append(list(Index.open(shards.path).names()))
        raise OSError(5, "stopped")

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "write", stop)
        with pytest.raises(OSError, match="stopped"):
            shards.delete(names[:6])
    assert seen[0] == names[6:]
    assert list(Index.open(shards.path).names()) == names[6:]
    other = Index.open(shards.path)
    other.add("more", vectors(1))
    assert json.loads((shards.path / module.ACROSS).read_text())["records"] == {}
    assert list(Index.open(shards.path).names()) == [*names[6:], "more"]
    assert list(other.verify())


def test_names_change_places_between_shards(shards: Index) -> None:
    first, second = list(shards.names())[:2]
    ids = {name: shards.id(name) for name in (first, second)}
    shards.note([Note(ids[first], second, {}), Note(ids[second], first, {"x": 1})])
    for index in (shards, Index.open(shards.path)):
        assert (index.id(first), index.id(second)) == (ids[second], ids[first])
        assert index.meta([first]) == {first: {"x": 1}}


def test_what_lies_beside_the_images_goes_along(whole: Index, tmp_path: Path) -> None:
    index = join_shards(whole, tmp_path / "index")
    (index.path / "calibration.json").write_text("{}")
    (index.path / "labels").mkdir()
    (index.path / "labels" / "said.jsonl").write_text('{"format": "superfeat-labels", "version": 1}\n')
    split = shard_index(index, 2, tmp_path / "shards")
    for name in ("calibration.json", "labels/said.jsonl"):
        assert (split.path / name).read_bytes() == (index.path / name).read_bytes()
    assert (split.network, split.facts, split.config) == (index.network, index.facts, index.config)


def test_what_cannot_be_is_said_in_a_line(whole: Index, shards: Index, tmp_path: Path) -> None:
    with pytest.raises(SuperfeatError, match="1 to 4096 shards, not 0"):
        shard_index(whole, 0, tmp_path / "none")
    with pytest.raises(StoreError, match="exists already"):
        shard_index(whole, 2, shards.path)
    with pytest.raises(SuperfeatError, match="is not in shards; make some of it with: superfeat shard"):
        rebalance_shards(whole.path)
    with pytest.raises(SuperfeatError, match="takes in photos, not indexes"):
        shards.merge(Index.create(tmp_path / "other", shards.codebook))
    with pytest.raises(SuperfeatError, match="make one of them with: superfeat merge"):
        GrowingLists.of_snapshot(shards.snapshot())
    assert not (tmp_path / "none").exists()


def test_damage_is_named(shards: Index, tmp_path: Path) -> None:
    manifest = shards.path / "manifest.json"
    text = manifest.read_text()
    manifest.write_text(text.replace("000001", "000002"))
    with pytest.raises(StoreError, match="its checksum is not the one it was written with"):
        Index.open(shards.path)
    manifest.write_text(text)
    part = Index.open(shards.path / "000000")
    name = next(iter(Index.open(shards.path / "000001").names()))
    part.add(name, vectors(3))  # behind the back of the others
    with pytest.raises(StoreError, match="an image is in two shards"):
        list(Index.open(shards.path).verify())
    create_shards(tmp_path / "other", 1, Codebook(np.ones((2, DIM), np.float32)))
    (shards.path / "000002").rename(tmp_path / "gone")
    (tmp_path / "other" / "000000").rename(shards.path / "000002")
    with pytest.raises(StoreError, match="not made with one codebook"):
        Index.open(shards.path)


def test_a_whole_that_counts_like_its_parts(whole: Index, tmp_path: Path) -> None:
    split = shard_index(whole, 4, tmp_path / "shards")
    mine, theirs = dataclasses.asdict(split.info()), dataclasses.asdict(whole.info())
    for key in ("images", "words", "dim", "kernel", "codebook", "network", "settings", "words_per_image"):
        assert mine[key] == theirs[key]
    assert (mine["format"], len(mine["shards"]), mine["deleted"]) == ("superfeat-shards", 4, 0)
