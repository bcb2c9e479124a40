"""An index that has lived through any changes answers, bit for bit, like one made afresh of what it should hold."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from superfeat.config import IndexConfig, SearchConfig
from superfeat.errors import SuperfeatError
from superfeat.images import Photo
from superfeat.index import contents
from superfeat.index.codebook import Codebook
from superfeat.index.entries import Added, Outcome
from superfeat.index.index import Index
from superfeat.index.journal import Note
from superfeat.index.splitting import create_shards, rebalance_shards
from superfeat.sources.listing import longer_names

DIM, WORDS = 70, 12  # a code of two 64-bit words, the second one mostly unused
MODEST = settings(deadline=None, max_examples=25)
THOROUGH = settings(deadline=None, max_examples=1000)
SEARCHES = (SearchConfig(assignments=3), SearchConfig(assignments=1, alpha=1.5, threshold=0.1, idf=True))

Held = dict[str, tuple[int, int, dict[str, Any]]]  # name -> id, seed of its features, meta; in the order of ids


@pytest.fixture(scope="module", autouse=True)
def _small_segments() -> Iterator[None]:
    """Three images fill a journal, three small segments are joined, and so are three middle ones; no power cuts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contents, "SMALL", 3)
        patch.setattr(contents, "MIDDLE", 9)
        patch.setattr(contents, "FAN", 3)
        patch.setattr(os, "fsync", lambda _: None)
        yield


def make_codebook() -> Codebook:
    return Codebook(np.random.default_rng(7).standard_normal((WORDS, DIM)).astype(np.float32))


def vectors(seed: int) -> np.ndarray:
    """None to six features; a seed with the same remainder of 40 gives the same first feature, and so equal scores."""
    random = np.random.default_rng(seed % 40)
    return random.standard_normal((seed % 7, DIM)).astype(np.float32)


NAMES = st.sampled_from(["a", "b", "c", "d", "e/f.jpg", "é", "g\udcff", ""])
METAS = st.sampled_from(
    [None, {}, {"x": 1}, {"x": [1, {"y": "ü"}]}, {"path": "/p"}, {"path": "/q\udcff", "digest": "d"}]
)
SEEDS = st.integers(0, 79)
ITEMS = st.tuples(NAMES, SEEDS, METAS)
CHANGES = st.one_of(
    st.tuples(st.just("add"), ITEMS),
    st.tuples(st.just("add"), ITEMS),
    st.tuples(st.just("many"), st.lists(ITEMS, max_size=12), st.integers(1, 12)),
    st.tuples(st.just("delete"), st.lists(NAMES, min_size=1, max_size=3)),
    st.tuples(
        st.just("note"), st.lists(st.tuples(NAMES, NAMES, METAS), min_size=1, max_size=4, unique_by=lambda n: n[0])
    ),
    st.tuples(st.just("compact")),
    st.tuples(st.just("merge"), st.lists(ITEMS, max_size=8), st.lists(NAMES, max_size=2)),
)
STEPS = st.lists(
    st.one_of(
        CHANGES,
        CHANGES,
        st.tuples(st.just("elsewhere"), CHANGES),
        st.tuples(st.just("refresh")),
        st.tuples(st.just("reopen")),
    ),
    max_size=25,
)


class Model:
    """What the index should hold."""

    def __init__(self) -> None:
        self.held: Held = {}
        self.next_id = 0

    def add(self, name: str, seed: int, meta: Mapping[str, Any] | None) -> Added:
        old = self.held.get(name)
        if old is not None and same_words(old[1], seed) and old[2] == dict(meta or {}):
            return Added(name, old[0], "same")
        return self.put(name, seed, meta, "new" if old is None else "replaced")

    def put(self, name: str, seed: int, meta: Mapping[str, Any] | None, outcome: Outcome = "new") -> Added:
        self.held.pop(name, None)
        self.held[name] = (self.next_id, seed, dict(meta or {}))
        self.next_id += 1
        return Added(name, self.next_id - 1, outcome)


def same_words(a: int, b: int) -> bool:
    return vectors(a).tobytes() == vectors(b).tobytes()


def change(index: Index, model: Model, step: tuple[Any, ...], folder: Path) -> None:
    """The same to both; what the index says of it must be what the model says."""
    kind, *what = step
    if kind == "add":
        name, seed, meta = what[0]
        assert index.add(name, vectors(seed), meta) == model.add(name, seed, meta)
    elif kind == "many":
        images, batch = what
        added = list(index.add_many(((name, vectors(seed), meta) for name, seed, meta in images), batch=batch))
        assert added == [model.add(*image) for image in images]
    elif kind == "delete":
        delete(index, model, what[0])
    elif kind == "note":
        note(index, model, what[0])
    elif kind == "compact":
        index.compact()
        info = index.info()
        assert info.deleted == 0
        assert info.shards is not None or (info.in_journal, info.segments) == (0, 1 if model.held else 0)
    elif kind == "merge" and index.info().shards is not None:  # shards take in no others: they are made anew instead
        rebalance_shards(index.path, 1 + len(what[0]))
        index.refresh()
    else:
        images, deleted = what
        merge(index, model, images, deleted, folder)


def note(index: Index, model: Model, changes: list[tuple[str, str, dict[str, Any] | None]]) -> None:
    """Images that are there get other names, all at once; two of one name there cannot be."""
    changes = [change for change in changes if change[0] in model.held]
    notes = [Note(model.held[old][0], new, meta or {}) for old, new, meta in changes]
    others = model.held.keys() - {old for old, _, _ in changes}
    names = [new for _, new, _ in changes]
    if len(set(names)) < len(names) or not others.isdisjoint(names):
        with pytest.raises(SuperfeatError, match=r"has an image called .* already; choose another name"):
            index.note(notes)
        return
    index.note(notes)
    moved = {old: (new, {**model.held[old][2], **(meta or {})}) for old, new, meta in changes}
    model.held = {
        moved.get(name, (name, meta))[0]: (image, seed, moved.get(name, (name, meta))[1])
        for name, (image, seed, meta) in model.held.items()
    }


def delete(index: Index, model: Model, names: list[str]) -> None:
    if all(name in model.held for name in names):
        assert index.delete(names) == len(set(names))
        for name in set(names):
            del model.held[name]
    else:
        with pytest.raises(SuperfeatError, match="has no image called"):
            index.delete(names)


def merge(index: Index, model: Model, images: list[Any], deleted: list[str], folder: Path) -> None:
    other, theirs = Index.create(folder, index.codebook, index.config), Model()
    list(other.add_many(((name, vectors(seed), meta) for name, seed, meta in images), batch=2))
    for image in images:
        theirs.add(*image)
    delete(other, theirs, deleted)
    assert index.merge(other) == len(theirs.held)
    for name, (_, seed, meta) in theirs.held.items():
        take(model, name, seed, meta)
    check(other, theirs.held)


def take(model: Model, name: str, seed: int, meta: dict[str, Any]) -> None:
    """An image of another index: it replaces those of the same photo, or comes with a longer name."""
    same = {one for one, (_, _, facts) in model.held.items() if is_same_photo(one, facts, name, meta)}
    for one in same:
        facts = model.held[one][2]
        alike = {"path", "digest"} <= meta.keys() and all(facts.get(key) == meta[key] for key in ("path", "digest"))
        if alike and same_words(model.held[one][1], seed):
            return
    for one in same:
        del model.held[one]
    if "path" in meta:
        name = next(one for one in longer_names(Photo(Path(meta["path"]), name)) if one not in model.held)
    model.put(name, seed, meta)


def is_same_photo(one: str, facts: Mapping[str, Any], name: str, meta: Mapping[str, Any]) -> bool:
    if "path" not in facts or "path" not in meta:
        return one == name
    return facts["path"] == meta["path"] or (one == name and facts.get("digest", 0) == meta.get("digest", 1))


def check(index: Index, held: Held) -> None:
    assert list(index.names()) == list(held)
    assert len(index) == len(held)
    for name, (image, _, meta) in held.items():
        assert name in index
        assert (index.id(name), index.meta([name])) == (image, {name: meta})
    for field, value in (("path", "/p"), ("path", "/q\udcff"), ("digest", "d")):
        found = index.find(field, [value]).get(value, [])  # type: ignore[arg-type]
        wanted = [(image, name, meta) for name, (image, _, meta) in held.items() if meta.get(field) == value]
        assert sorted(found) == sorted(wanted)


def check_searches(index: Index, held: Held, folder: Path) -> None:
    """Against an index made of the same images in the same order, and so with the same order of equal scores."""
    fresh = Index.create(folder, index.codebook, index.config)
    list(fresh.add_many((name, vectors(seed), None) for name, (_, seed, _) in held.items()))
    query = vectors(83)
    ids = np.asarray([image for image, _, _ in held.values()], np.int64)
    for config in SEARCHES:
        wanted = fresh.search(query, None, config=config)
        for top in (None, 2):
            found = index.search(query, top, config=config)
            assert found.names == wanted.names[:top]
            assert found.scores.tobytes() == wanted.scores[:top].tobytes()
            assert found.ids.tolist() == [held[name][0] for name in found.names]
        order = np.lexsort((found.ids, -found.scores))
        assert order.tolist() == list(range(len(found)))
        for worker in (1, 3):
            assert index.search_many([query], 2, config=config, workers=worker)[0].names == wanted.names[:2]
    assert len(ids) == len(set(ids.tolist()))
    for name in held:
        mine, theirs = index.words_of(name), fresh.words_of(name)
        assert (mine.words.tobytes(), mine.codes.tobytes()) == (theirs.words.tobytes(), theirs.codes.tobytes())


def live(folder: Path, kernel: str, steps: list[tuple[Any, ...]], shards: int | None = None) -> None:
    """`view` is what the index at hand should show: it lags behind when another one changes the same folder."""
    config = IndexConfig(kernel=kernel)  # type: ignore[arg-type]
    if shards is None:
        index = Index.create(folder / "index", make_codebook(), config)
    else:
        index = create_shards(folder / "index", shards, make_codebook(), config)
    other, model = Index.open(folder / "index"), Model()
    view: Held = {}
    for number, step in enumerate(steps):
        before = model.next_id
        if step[0] == "elsewhere":
            change(other, model, step[1], folder / f"merged{number}")
            check(index, view)
        else:
            if step[0] == "refresh":
                index.refresh()
            elif step[0] == "reopen":
                index = Index.open(folder / "index")
            else:
                change(index, model, step, folder / f"merged{number}")
            view = dict(model.held)
        check(index, view)
        assert model.next_id >= before
    check_searches(index, view, folder / "fresh")
    index.refresh()
    check(index, model.held)
    check_searches(index, model.held, folder / "fresher")
    reopened = Index.open(folder / "index")
    check(reopened, model.held)
    assert list(reopened.verify())


@pytest.mark.parametrize("kernel", ["binary", "real"])
@MODEST
@given(steps=STEPS)
def test_any_life(kernel: str, steps: list[tuple[Any, ...]], tmp_path_factory: pytest.TempPathFactory) -> None:
    live(tmp_path_factory.mktemp("life"), kernel, steps)


@settings(deadline=None, max_examples=20)
@given(steps=STEPS, shards=st.integers(1, 5))
def test_any_life_in_shards(
    steps: list[tuple[Any, ...]], shards: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The same, and with shards made anew in between, as many as there happen to be images to merge."""
    live(tmp_path_factory.mktemp("life"), "binary", steps, shards)


@pytest.mark.long
@pytest.mark.parametrize("kernel", ["binary", "real"])
@THOROUGH
@given(steps=STEPS, shards=st.integers(1, 5))
def test_any_of_many_lives_in_shards(
    kernel: str, steps: list[tuple[Any, ...]], shards: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    live(tmp_path_factory.mktemp("life"), kernel, steps, shards)


@pytest.mark.long
@pytest.mark.parametrize("kernel", ["binary", "real"])
@THOROUGH
@given(steps=STEPS)
def test_any_of_many_lives(kernel: str, steps: list[tuple[Any, ...]], tmp_path_factory: pytest.TempPathFactory) -> None:
    live(tmp_path_factory.mktemp("life"), kernel, steps)


@pytest.mark.parametrize("kernel", ["binary", "real"])
def test_a_long_life(kernel: str, tmp_path: Path) -> None:
    """Enough images for segments of all three sizes at once, and a compaction that has to leave several."""
    random = np.random.default_rng(3)
    index, model = Index.create(tmp_path / "i", make_codebook(), IndexConfig(kernel=kernel)), Model()  # type: ignore[arg-type]
    tiers = set()
    for number in range(150):
        image = (f"n{random.integers(0, 60)}", int(random.integers(0, 80)), {"n": number})
        assert index.add(image[0], vectors(image[1]), image[2]) == model.add(*image)
        if number % 4 == 3:
            delete(index, model, [str(random.choice(list(model.held)))])
        tiers |= {sum(len(s) > limit for limit in (3, 9)) for s in index.snapshot().segments}
    assert tiers == {0, 1, 2}
    check(index, model.held)
    check_searches(index, model.held, tmp_path / "fresh")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contents, "SEGMENT_IMAGES", 20)
        index.compact()
        assert index.info().segments == -(-len(model.held) // 20)
    check(index, model.held)
    check_searches(index, model.held, tmp_path / "fresh2")
    ids = {name: index.id(name) for name in model.held}
    index.delete(list(model.held)[-1])
    index.compact()
    assert index.add("last", vectors(5)).id == model.next_id > max(ids.values())
