"""An explanation of a real, small index: it adds up, it refuses what has changed, it is plain data in the end."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fixtures_explain import DIM, looking, some_vectors
from superfeat.config import IndexConfig, SearchConfig
from superfeat.errors import SuperfeatError
from superfeat.explain.explain import MOST_REGIONS, NEAR, STRONGEST, Explanation, Place, explain, score_words
from superfeat.features import Features
from superfeat.index.codebook import Codebook
from superfeat.index.index import Index

CODEBOOK = Codebook(some_vectors(99, 6))
CONFIGS = [
    SearchConfig(),
    SearchConfig(assignments=1, idf=True),
    SearchConfig(assignments=2, alpha=0.5, threshold=-1.0),
    SearchConfig(assignments=3, alpha=2.5, threshold=0.2, idf=True),
]
EXACT = 1e-9


def photo(number: int) -> Features:
    """Photos of one thing: noise on the same vectors."""
    return looking(f"photo{number}", some_vectors(0, 20) + 0.3 * some_vectors(1 + number, 20), number)


@pytest.fixture(params=["binary", "real"])
def index(request: pytest.FixtureRequest, tmp_path: Path) -> Index:
    index = Index.create(tmp_path / "index", CODEBOOK, IndexConfig(kernel=request.param))
    for number in range(4):
        index.add(f"photo{number}", photo(number))
    index.add("other", looking("other", some_vectors(50, 9)))
    index.compact()
    index.add("empty", looking("empty", some_vectors(0, 0)))  # this one is in the journal
    return index


def query() -> Features:
    return looking("query", some_vectors(0, 20) + 0.3 * some_vectors(30, 20), 30, size=(60, 90))


def explained(index: Index, config: SearchConfig | None = None, number: int = 2) -> Explanation:
    return explain(index, query(), f"photo{number}", photo(number), config=config)


# -- Sums


@pytest.mark.parametrize("config", [None, *CONFIGS])
def test_everything_adds_up_to_the_score_of_a_search(index: Index, config: SearchConfig | None) -> None:
    found = explained(index, config)
    (expected,) = index.scores(query(), ["photo2"], config=config)
    assert found.score == expected > 0
    size = float(np.abs(found.words.scores).sum())
    for parts in (found.words.scores, found.pairs.scores, found.totals("query"), found.totals("found")):
        assert abs(math.fsum(parts) - expected) <= EXACT * size
    for side in ("query", "found"):
        heat = found.heat(side, 7, 5)
        assert heat.shape == (7, 5)
        assert abs(heat.sum() - expected) <= EXACT * size
    assert len(found.totals("query")) == len(found.totals("found")) == 20
    assert abs(math.fsum(region.share for region in found.regions) + found.rest - 1) <= EXACT * size / expected


def test_regions_are_the_pairs_that_they_name(index: Index) -> None:
    found = explained(index)
    assert 1 <= len(found.regions) <= MOST_REGIONS
    assert [region.share for region in found.regions] == sorted((one.share for one in found.regions), reverse=True)
    assert set(found.members.tolist()) <= {-1, *range(len(found.regions))}
    for number, region in enumerate(found.regions):
        assert region.share > 0
        members = found.pairs.scores[found.members == number]
        assert math.isclose(region.share, members.sum() / found.score, rel_tol=EXACT)
        for side in ("query", "found"):
            heat = found.heat(side, 60, 80, number)
            assert math.isclose(heat.sum(), members.sum(), rel_tol=EXACT)
            assert math.isclose(found.totals(side, number).sum(), members.sum(), rel_tol=EXACT)
            assert_inside(getattr(region, side))
    outside = found.pairs.scores[found.members == -1].sum() / found.score
    assert math.isclose(found.rest, outside, rel_tol=EXACT, abs_tol=EXACT)


def assert_inside(place: Place) -> None:
    left, top, width, height = place.box
    assert 0 <= left <= place.x <= left + width <= 1 + 1e-12
    assert 0 <= top <= place.y <= top + height <= 1 + 1e-12


def test_a_region_lies_where_its_features_look(tmp_path: Path) -> None:
    """One pair of features: the region's centroid is that of their maps, its box that of a map which is even."""
    index = Index.create(tmp_path / "index", CODEBOOK)
    index.add("a", some_vectors(3, 1))
    corner = np.zeros((4, 4), np.float32)
    corner[:2, 2:] = 0.25
    deviation = 0.5 / math.sqrt(12)
    regions = np.asarray([[0.75, 0.25, deviation, deviation]], np.float32)
    features = dataclasses.replace(looking("a", some_vectors(3, 1)), maps=[corner], regions=regions)
    found = explain(index, features, "a", features, config=SearchConfig(assignments=1))
    ((share, *places),) = found.regions
    assert share == pytest.approx(1, rel=EXACT)
    for place in places:
        np.testing.assert_allclose([place.x, place.y, *place.box], [0.75, 0.25, 0.5, 0, 0.5, 0.5], atol=1e-6)
    np.testing.assert_allclose(found.heat("query", 2, 2), [[0, 1], [0, 0]], rtol=EXACT)


def test_near_means_the_same_in_all_directions(tmp_path: Path) -> None:
    """Two pairs, NEAR of the height apart: in a tall photo that is near, in a wide one it is not much."""
    index = Index.create(tmp_path / "index", CODEBOOK)
    vectors = some_vectors(3, 2)
    regions = np.asarray([[0.5, 0.3, 0.1, 0.1], [0.5, 0.3 + 1.5 * NEAR, 0.1, 0.1]], np.float32)
    index.add("a", vectors)
    counts = []
    for size in ((300, 100), (100, 300)):
        features = dataclasses.replace(looking("a", vectors, size=size), regions=regions)
        found = explain(index, features, "a", features, config=SearchConfig(assignments=1))
        together = len(set(found.members[found.pairs.query == found.pairs.found].tolist()))
        counts.append(together)
    assert counts == [1, 2]


def test_it_is_the_same_each_time(index: Index) -> None:
    first, again = (explained(index) for _ in range(2))
    assert first.as_dict() == again.as_dict()
    np.testing.assert_array_equal(first.members, again.members)


def test_words_of_any_two_images(index: Index) -> None:
    """For those who have no maps: what each shared word adds, between indexed images too."""
    config = SearchConfig(assignments=1, idf=True)
    words = score_words(index.snapshot(), index.words_of("photo1"), index.words_of("photo2"), config)
    (expected,) = index.scores("photo1", ["photo2"], config=config)
    assert math.isclose(math.fsum(words.scores), expected, rel_tol=EXACT)


# -- Nothing to explain


def test_an_image_without_features(index: Index) -> None:
    found = explain(index, query(), "empty", looking("empty", some_vectors(0, 0)))
    assert (found.score, found.regions, found.rest, len(found.pairs.scores)) == (0.0, (), 0.0, 0)
    assert not found.heat("query", 3, 3).any()
    assert not found.heat("found", 3, 3).any()
    assert found.as_dict()["pairs"] == []
    assert found.as_dict()["regions"] == []


def test_a_query_without_features(index: Index) -> None:
    found = explain(index, looking("query", some_vectors(0, 0)), "photo1", photo(1))
    assert (found.score, len(found.words.words)) == (0.0, 0)


def test_codes_that_do_not_agree(tmp_path: Path) -> None:
    """The same word, opposite codes: nothing, or a score below zero, has no regions."""
    index = Index.create(tmp_path / "index", Codebook(np.zeros((1, DIM), np.float32)))
    vectors = some_vectors(3, 1)
    index.add("a", -vectors)
    query, found = looking("query", vectors), looking("a", -vectors)
    nothing = explain(index, query, "a", found)
    assert (nothing.score, nothing.regions, nothing.rest, nothing.share(0.0)) == (0.0, (), 0.0, 0.0)
    assert len(nothing.words.words) == 1
    assert len(nothing.pairs.scores) == 0
    against = explain(index, query, "a", found, config=SearchConfig(threshold=-1.0))
    assert (against.score, against.regions, against.rest) == (-1.0, (), 1.0)
    assert against.heat("query", 2, 2).sum() == pytest.approx(-1.0, rel=EXACT)


# -- What is refused


def test_a_photo_that_has_changed(index: Index) -> None:
    changed = [photo(1), dataclasses.replace(photo(2), vectors=-photo(2).vectors), looking("x", some_vectors(7, 1))]
    for features in changed:
        with pytest.raises(SuperfeatError, match=r"photo2 does not look as it did .* with: superfeat index"):
            explain(index, query(), "photo2", features)


def test_features_without_maps(index: Index) -> None:
    bare = dataclasses.replace(query(), maps=None)
    with pytest.raises(SuperfeatError, match="the query have no attention maps; extract them with attention='maps'"):
        explain(index, bare, "photo2", photo(2))
    with pytest.raises(SuperfeatError, match="photo2 have no attention maps"):
        explain(index, query(), "photo2", dataclasses.replace(photo(2), regions=None))


def test_an_image_that_is_not_there(index: Index) -> None:
    index.delete("photo3")
    for name in ("nothing", "photo3"):
        with pytest.raises(SuperfeatError, match=f"has no image called {name}"):
            explain(index, query(), name, photo(3))


def test_features_of_another_network(tmp_path: Path) -> None:
    index = Index.create(tmp_path / "index", CODEBOOK, network="a" * 64)
    index.add("photo1", photo(1))
    with pytest.raises(SuperfeatError, match="come from another network"):
        explain(index, dataclasses.replace(query(), network="b" * 64), "photo1", photo(1))


# -- Plain data


def test_as_plain_data(index: Index) -> None:
    found = explained(index)
    plain: dict[str, Any] = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert plain == found.as_dict()
    assert (plain["query"], plain["found"], plain["score"]) == ("query", "photo2", found.score)
    assert plain["shared_words"] == len(found.words.words)
    assert len(plain["words"]) == min(STRONGEST, len(found.words.words))
    assert len(plain["pairs"]) == min(STRONGEST, len(found.pairs.scores))
    assert sum(one["share"] for one in plain["regions"]) + plain["rest"] == pytest.approx(1, rel=EXACT)
    for one in plain["regions"]:
        assert [len(one[side][part]) for side in ("query", "found") for part in ("centroid", "box")] == [2, 4, 2, 4]
    strongest = plain["pairs"][0]
    assert strongest["share"] == pytest.approx(found.pairs.scores[0] / found.score)
    assert strongest["query"] == {
        "feature": int(found.pairs.query[0]),
        "id": int(found.query.ids[found.pairs.query[0]]),
        "scale": float(found.query.scales[found.pairs.query[0]]),
    }


def test_what_rounding_adds_to_a_photo_with_itself_is_in_no_word(tmp_path: Path) -> None:
    """Codes of the real kernel have lengths of one only to seven digits: a search takes off what is above one."""
    random, config = np.random.default_rng(0), SearchConfig(1, 10.0)
    codebook = Codebook(random.standard_normal((4, DIM)).astype(np.float32))
    for number in range(20):
        index = Index.create(tmp_path / str(number), codebook, IndexConfig("real", config))
        vectors = (1e4 * random.standard_normal((12, DIM))).astype(np.float32)
        index.add("itself", looking("itself", vectors))
        snapshot, words = index.snapshot(), index.words_of("itself")
        found = float(snapshot.search(words, config).scores[0])
        assert found == pytest.approx(math.fsum(score_words(snapshot, words, words, config).scores), rel=1e-9)
        assert found <= 1
