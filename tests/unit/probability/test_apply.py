"""Probabilities beside scores in a small index: what they are, when strangers are measured again, what is refused."""

import dataclasses
import threading
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from superfeat.config import IndexConfig, SearchConfig
from superfeat.errors import SuperfeatError
from superfeat.index.codebook import Codebook
from superfeat.index.index import Index
from superfeat.index.pairs import score_many, score_pairs
from superfeat.index.snapshot import Snapshot
from superfeat.probability import apply as likeness
from superfeat.probability.apply import (
    falling,
    judge_ranking,
    judged_together,
    link_floor,
    meet_strangers,
    require_fitting,
)
from superfeat.probability.model import Calibration, Origin, match_prior
from superfeat.rerank.strangers import (
    SAMPLE,
    Null,
    Strangers,
    adapt_null,
    evidence,
    hardly_strangers,
    linked_share,
    measure_strangers,
    sample_images,
)

DIM, WORDS, FEATURES = 64, 24, 12
CODEBOOK = Codebook(5 * np.random.default_rng(0).standard_normal((WORDS, DIM)).astype(np.float32))
ORIGIN = Origin("network", CODEBOOK.digest, "binary", 3.0, 0.0)
CALIBRATION = Calibration(-8.5, 3.0, -0.3, Null(-8.0, 1.2, 20), ORIGIN)
SEARCH = SearchConfig()


def photo(thing: int, view: int = 0) -> np.ndarray:
    """Features near some words of a thing, a little different in each view."""
    rng = np.random.default_rng(thing)
    words = rng.permutation(WORDS)[:FEATURES]
    seen = rng.standard_normal((FEATURES, DIM))
    noise = np.random.default_rng((thing, view)).standard_normal((FEATURES, DIM))
    return np.asarray(CODEBOOK.centroids[words] + seen + 0.4 * noise, np.float32)


def make(path: Path, things: int, views: int = 1, config: IndexConfig = IndexConfig()) -> Index:  # noqa: B008 - frozen
    index = Index.create(path, CODEBOOK, config, network="network")
    images = ((f"{thing} {view}", photo(thing, view), None) for thing in range(things) for view in range(views))
    assert len(list(index.add_many(images, batch=100))) == things * views
    return index


@pytest.fixture
def index(tmp_path: Path) -> Index:
    return make(tmp_path / "index", things=12, views=3)


def chances(index: Index, query: str | np.ndarray = "0 0", top: int | None = None) -> dict[str, float]:
    ranking, found = judge_ranking(index, query, CALIBRATION, top)
    assert found is not None
    return dict(zip(ranking.names, found.tolist(), strict=True))


# -- Probabilities


@pytest.mark.parametrize("query", ["3 1", photo(3, 9)], ids=["indexed", "new"])
def test_the_same_thing_is_likelier(index: Index, query: str | np.ndarray) -> None:
    ranking, found = judge_ranking(index, query, CALIBRATION, None)
    assert found is not None
    assert ranking.names == index.search(query, None).names
    assert len(found) == len(index)
    assert ((found >= 0) & (found <= 1)).all()
    assert (np.diff(found) <= 0).all(), "scores fall, so must probabilities"
    same = np.asarray([name.startswith("3 ") for name in ranking.names])
    assert same[:3].all()
    assert found[same].min() > 0.5 > 0.1 > found[~same].max()


def test_the_probability_is_that_of_the_formula(index: Index) -> None:
    ranking, found = judge_ranking(index, "0 0", CALIBRATION, 5)
    strangers = meet_strangers(index, CALIBRATION)
    null = adapt_null(strangers.null, strangers.images.search(index.words_of("0 0"), SEARCH).scores)
    names = list(index.names())
    scores = score_pairs(index.snapshot(), [index.words_of(name) for name in names], SEARCH)
    assert strangers.linked == pytest.approx(linked_share(scores, strangers.null))
    prior = match_prior(strangers.linked, len(names), len(names))
    expected = CALIBRATION.probability(evidence(ranking.scores, null), len(index), prior)
    np.testing.assert_array_equal(found, expected)


def test_without_a_calibration_there_are_none(index: Index) -> None:
    ranking, found = judge_ranking(index, "0 0", None, 4)
    assert found is None
    assert ranking.names == index.search("0 0", 4).names


def test_top_does_not_change_what_is_said(index: Index) -> None:
    everything = chances(index)
    assert chances(index, top=4) == dict(list(everything.items())[:4])
    assert chances(index, top=0) == {}


def test_only_some(index: Index) -> None:
    """They are a smaller collection, as which they have odds of their own; a name twice is one image."""
    everything = chances(index)
    ranking, found = judge_ranking(index, "0 0", CALIBRATION, only=["5 0", "0 1", "0 1"])
    assert found is not None
    assert ranking.names == ("0 1", "5 0")
    odds = np.log(found / (1 - found))
    linked = meet_strangers(index, CALIBRATION).linked
    change = CALIBRATION.size_slope * np.log(2 / 36) + match_prior(linked, 36, 2) - match_prior(linked, 36, 36)
    for name, odd in zip(ranking.names, odds.tolist(), strict=True):
        before = np.log(everything[name] / (1 - everything[name]))
        assert odd - before == pytest.approx(change, rel=1e-6)
    ranking, found = judge_ranking(index, "0 0", CALIBRATION, only=[])
    assert (len(ranking.names), len(found if found is not None else [0])) == (0, 0)


def test_the_same_again_in_another_process_or_order_of_segments(index: Index) -> None:
    before = chances(index)
    assert chances(Index.open(index.path)) == before
    index.compact()
    assert chances(Index.open(index.path)) == before


def test_matches_are_likelier_where_things_have_many_photos(tmp_path: Path) -> None:
    many, few = (make(tmp_path / str(views), things=60 // views, views=views) for views in (12, 1))
    links = [meet_strangers(one, CALIBRATION).linked for one in (many, few)]
    assert links[0] == pytest.approx(11 / 59, abs=0.02)
    assert links[1] < 0.01
    priors = [match_prior(linked, 60, 60) for linked in links]
    assert priors[0] > 1 > 0 > priors[1]


# -- Collections that say little


@pytest.mark.parametrize("things", [0, 1, 2])
def test_hardly_any_images(tmp_path: Path, things: int) -> None:
    index = make(tmp_path / "index", things)
    found = chances(index, photo(0, 5))
    assert len(found) == things
    assert all(0 <= chance <= 1 for chance in found.values())
    if things:
        assert found["0 0"] > 0.5, "the background knows how strangers score"
    if things == 2:
        assert found["1 0"] < 0.1


def test_photos_of_one_thing_are_all_likely(tmp_path: Path) -> None:
    index = make(tmp_path / "index", things=1, views=30)
    assert min(chances(index, "0 4").values()) > 0.5


def test_images_without_any_word_in_common(tmp_path: Path) -> None:
    index = Index.create(tmp_path / "index", CODEBOOK)
    for word in range(5):
        index.add(str(word), CODEBOOK.centroids[[word]] + np.float32(0.1))
    found = chances(index, "2")
    assert found.pop("2") > 0.5
    assert max(found.values()) < 1e-6


# -- When strangers are measured


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many images were compared each time."""
    sizes: list[int] = []

    def spy(*arguments: object) -> Strangers:
        sizes.append(len(arguments[1]))  # type: ignore[arg-type]
        return measure(*arguments)  # type: ignore[arg-type]

    measure = measure_strangers
    monkeypatch.setattr(likeness, "measure_strangers", spy)
    return sizes


def test_strangers_are_measured_once(index: Index, measured: list[int]) -> None:
    for query in ("0 0", "1 0", photo(2, 7)):
        chances(index, query)
    index.compact()  # the same images
    chances(index)
    assert measured == [36]


def test_strangers_are_measured_again_after_a_change(index: Index, measured: list[int]) -> None:
    chances(index)
    index.add("new", photo(40))
    chances(index)
    index.delete("0 1")
    assert "0 1" not in chances(index)
    index.add("new", photo(41))
    fresh = chances(index)
    assert measured == [36, 37, 36, 36]
    assert fresh == chances(Index.open(index.path)), "nothing of before is left"


def test_another_calibration_has_other_strangers(index: Index, measured: list[int]) -> None:
    other = dataclasses.replace(CALIBRATION, background=Null(-3.0, 1.0, 50))
    for calibration in (CALIBRATION, other, other):
        judge_ranking(index, "0 0", calibration)
    assert measured == [36, 36]


def test_a_large_index_is_measured_by_a_sample(tmp_path: Path, measured: list[int]) -> None:
    index = make(tmp_path / "index", things=SAMPLE + 30)
    chances(index, photo(0))
    sample = sample_images(index.snapshot())
    assert (len(sample), len(np.unique(sample))) == (SAMPLE, SAMPLE)
    names = list(index.names())
    index.delete(next(name for name in names if index.id(name) not in sample))
    chances(index, photo(0))
    assert measured == [SAMPLE], "none of the images that were compared has changed"
    index.delete(index.snapshot().names(sample[:1])[0])
    assert len(np.intersect1d(sample_images(index.snapshot()), sample)) == SAMPLE - 1
    chances(index, photo(0))
    assert measured == [SAMPLE, SAMPLE]


def test_a_sample_is_spread_over_all(tmp_path: Path) -> None:
    index = make(tmp_path / "index", things=60)
    sample = sample_images(index.snapshot(), 15)
    quarters = np.bincount(sample // 15, minlength=4)
    assert (quarters >= 3).all()


def test_threads_share_one_measurement(index: Index, measured: list[int]) -> None:
    ready = threading.Barrier(8)
    found: list[dict[str, float]] = []

    def ask() -> None:
        ready.wait()
        found.append(chances(index, "4 0"))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert measured == [36]
    assert found == [chances(index, "4 0")] * 8


def test_searching_while_images_come_and_go(index: Index) -> None:
    errors: list[BaseException] = []
    stop = threading.Event()

    def ask() -> None:
        try:
            while not stop.is_set():
                assert all(0 <= chance <= 1 for chance in chances(index, photo(4, 8)).values())
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(5):
        index.add(f"more {number}", photo(50 + number))
        index.delete(f"{number} 2")
    stop.set()
    for thread in threads:
        thread.join()
    assert errors == []
    assert chances(index) == chances(Index.open(index.path))


def test_a_background_of_another_codebook_weighs_less(index: Index) -> None:
    foreign = dataclasses.replace(CALIBRATION, origin=ORIGIN._replace(codebook="another"))
    own, other = (meet_strangers(Index.open(index.path), one).null for one in (CALIBRATION, foreign))
    assert own.images - other.images == 20 - likeness.FOREIGN_IMAGES


def test_scores_of_images_with_each_other(index: Index) -> None:
    names = ["7 0", "2 1", "7 2"]
    scores = score_pairs(index.snapshot(), [index.words_of(name) for name in names], SEARCH)
    for row, name in zip(scores, names, strict=True):
        np.testing.assert_array_equal(row, index.scores(name, names))


@pytest.mark.parametrize("kernel", ["binary", "real"])
@pytest.mark.parametrize(
    "config", [SEARCH, SearchConfig(alpha=2.5, threshold=0.1), SearchConfig(idf=True), SearchConfig(norm="none")]
)
def test_many_queries_score_as_each_by_itself(
    tmp_path: Path, kernel: Literal["binary", "real"], config: SearchConfig
) -> None:
    index = Index.create(tmp_path / "other", CODEBOOK, IndexConfig(kernel=kernel))
    images = [index.query(photo(thing)) for thing in range(7)] + [index.query(photo(0), 1)]
    small = Snapshot.in_memory(index.snapshot().layout, images[:5])
    scores = score_many(small, images, config)
    assert scores.shape == (8, 5)
    for row, image in zip(scores, images, strict=True):
        ranking = small.search(image, config)
        np.testing.assert_array_equal(row[ranking.ids], ranking.scores)
    assert score_many(small, [], config).shape == (0, 5)


# -- Probabilities along another order


@given(st.lists(st.floats(0, 1), max_size=130))
def test_probabilities_along_an_order_do_not_rise(chances: list[float]) -> None:
    said = falling(np.asarray(chances, np.float64))
    assert len(said) == len(chances)
    assert (np.diff(said) <= 1e-12).all()
    for top in (1, 7, 20, 21, 60, 100, 130):
        part = falling(np.asarray(chances[: judged_together(top)], np.float64))
        np.testing.assert_allclose(part[:top], said[:top], atol=1e-12)
    np.testing.assert_allclose(said[:20].sum(), sum(chances[:20]), atol=1e-9)


def test_probabilities_that_fall_stay() -> None:
    chances = np.linspace(0.99, 0.01, 120)
    np.testing.assert_array_equal(falling(chances), chances)
    np.testing.assert_allclose(falling(np.asarray([0.9, 0.2, 0.6, 0.1])), [0.9, 0.4, 0.4, 0.1])


# -- From which score on two photos are hardly strangers


def test_a_collection_of_many_things_tells_how_strangers_score(index: Index, tmp_path: Path) -> None:
    assert link_floor(index, CALIBRATION, SEARCH) == hardly_strangers(meet_strangers(index, CALIBRATION).null)
    many, few = (Index.create(tmp_path / name, CODEBOOK) for name in ("many", "few"))
    for thing in range(60):
        many.add(str(thing), photo(thing))
    few.add("0", photo(0))
    floor = link_floor(many, None, SEARCH)
    assert floor is not None
    assert floor == hardly_strangers(meet_strangers(many, None).null)
    assert link_floor(few, None, SEARCH) is None
    assert link_floor(index, None, SEARCH) is None  # a dozen things


# -- What a calibration fits


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"network": "of someone else"},
            r"another network \(of someone e…\) than .*: fit one for it, or search without",
        ),
        ({"kernel": "real"}, "is for the kernel real, alpha 3, threshold 0 and no idf, not for the kernel binary, "),
        ({"alpha": 2.5}, "alpha 2.5, .* not for the kernel binary, alpha 3, "),
        ({"threshold": 0.2}, "threshold 0.2 and no idf, not for .* threshold 0 and no idf: fit one, or search without"),
    ],
)
def test_a_calibration_of_other_scores_is_refused(index: Index, change: dict[str, object], message: str) -> None:
    other = dataclasses.replace(CALIBRATION, origin=ORIGIN._replace(**change))  # type: ignore[arg-type]
    with pytest.raises(SuperfeatError, match=message):
        require_fitting(other, index, SEARCH)
    with pytest.raises(SuperfeatError, match=message):
        judge_ranking(index, "0 0", other)


@pytest.mark.parametrize("setting", [{"idf": True}, {"alpha": 1.0}, {"threshold": 0.5}])
def test_a_search_with_other_settings_is_refused(index: Index, setting: dict[str, float]) -> None:
    config = dataclasses.replace(SEARCH, **setting)  # type: ignore[arg-type]
    with pytest.raises(
        SuperfeatError, match="the calibration is for the kernel binary, alpha 3, threshold 0 and no idf"
    ):
        judge_ranking(index, "0 0", CALIBRATION, config=config)
    assert judge_ranking(index, "0 0", None, config=config)[1] is None


def test_unknown_networks_are_taken_at_their_word(index: Index, tmp_path: Path) -> None:
    require_fitting(dataclasses.replace(CALIBRATION, origin=ORIGIN._replace(network=None)), index, SEARCH)
    nameless = Index.create(tmp_path / "nameless", CODEBOOK)
    require_fitting(CALIBRATION, nameless, SEARCH)


def test_the_number_of_words_of_a_query_may_differ(index: Index) -> None:
    """Each query has strangers of its own, so that more words per feature move both its scores and theirs."""
    few, many = (
        judge_ranking(index, photo(3, 9), CALIBRATION, config=dataclasses.replace(SEARCH, assignments=count))[1]
        for count in (1, 5)
    )
    assert few is not None
    assert many is not None
    assert min(few[2], many[2]) > 0.5 > 0.1 > max(few[3], many[3])
