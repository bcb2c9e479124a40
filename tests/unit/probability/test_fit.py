"""A calibration from labels: what is searched and judged, how it is stored, and that it is honest where it can be."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from superfeat.config import CALIBRATION, IndexConfig, SearchConfig
from superfeat.datasets.retrieval_set import Query, RetrievalSet
from superfeat.engine import Engine, Named
from superfeat.errors import DatasetError, StoreError, SuperfeatError
from superfeat.extraction.folder import FeatureStore, feature_writer
from superfeat.features import Features
from superfeat.images import Photo
from superfeat.index.codebook import Codebook
from superfeat.index.index import Index
from superfeat.index.places import encode_places, word_regions
from superfeat.probability import apply, comparing, fit
from superfeat.probability.apply import FOREIGN_IMAGES, judge_ranking, meet_strangers
from superfeat.probability.comparing import (
    Comparisons,
    Labelled,
    compare_index,
    compare_photos,
    compare_sets,
    group_searches,
    index_sets,
    origin_of,
)
from superfeat.probability.fit import (
    Results,
    calibrate,
    choose_results,
    draw_results,
    join_results,
    measure_background,
    predict,
    predict_in_turn,
    reliability_panel,
    whole_results,
)
from superfeat.probability.honesty import reliability
from superfeat.probability.model import Calibration, Origin, fit_calibration, match_prior
from superfeat.probability.stored import (
    SHIPPED_CALIBRATION,
    reset_calibration,
    shipped_calibration,
    store_calibration,
    verify_calibrations,
)
from superfeat.rerank.strangers import Null
from superfeat.storage.store import write_json

DIM, WORDS, FEATURES = 64, 32, 12
CODEBOOK = Codebook(5 * np.random.default_rng(0).standard_normal((WORDS, DIM)).astype(np.float32))
ORIGIN = Origin("network", CODEBOOK.digest, "binary", 3.0, 0.0)
START = Calibration(-8.0, 2.5, -0.3, Null(-8.0, 1.2, 20), ORIGIN)
THINGS, VIEWS = 14, 3


def photo(thing: int, view: int) -> np.ndarray:
    """Features near some words of a thing; every view sees them differently, some hardly."""
    rng = np.random.default_rng(thing)
    words = rng.permutation(WORDS)[:FEATURES]
    seen = rng.standard_normal((FEATURES, DIM))
    noise = np.random.default_rng((thing, view)).standard_normal((FEATURES, DIM))
    return np.asarray(CODEBOOK.centroids[words] + seen + (0.5 + 0.5 * view) * noise, np.float32)


@pytest.fixture
def index(tmp_path: Path) -> Index:
    """Things in three views each, and five more photos that are alone."""
    made = Index.create(tmp_path / "index", CODEBOOK, network="network")
    names = [(thing, view) for thing in range(THINGS) for view in range(VIEWS)] + [
        (thing, 0) for thing in range(50, 55)
    ]
    list(made.add_many(((f"{thing} {view}", photo(thing, view), None) for thing, view in names), batch=100))
    return made


def labels_of(index: Index, leave_out: tuple[str, ...] = ()) -> dict[str, str]:
    return {name: name.split()[0] for name in index.names() if name not in leave_out}


@pytest.fixture
def comparisons(index: Index) -> Comparisons:
    return compare_index(index, labels_of(index))


# -- What is searched and judged


def test_who_searches_and_what_is_right(index: Index) -> None:
    found = compare_index(index, labels_of(index, leave_out=("3 0", "3 1", "7 2")))
    assert found.pairs.shape == (THINGS * VIEWS + 5 - 3,) * 2
    assert len(found.scores) == (THINGS - 1) * VIEWS - 1, "a photo without label and a thing with one are not asked for"
    assert len(np.unique(found.things)) == THINGS - 1
    for scores, judged, thing in zip(found.scores, found.labels, found.things, strict=True):
        assert (judged == -1).sum() == 1, "itself"
        assert scores[judged == -1] == pytest.approx(1)
        assert (judged == 1).sum() == (found.things == thing).sum() - 1


def test_scores_are_those_of_searches(index: Index) -> None:
    names = ["0 0", "0 1", "1 0", "1 2"]
    found = compare_index(index, {name: name.split()[0] for name in names})
    expected = sorted(float(score) for name in names for score in index.scores(name, names))
    np.testing.assert_allclose(np.sort(found.scores.ravel()), expected)


@pytest.mark.parametrize("names", [[], ["0 0"], ["0 0", "0 1", "0 2"], ["0 0", "0 1", "1 0", "2 0"]])
def test_too_few_labels(index: Index, names: list[str]) -> None:
    with pytest.raises(DatasetError, match=f"name {len(names)} photos of the index: give at least two things with two"):
        compare_index(index, {name: name.split()[0] for name in names})


def test_many_labels_are_thinned(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing, "MOST_LABELLED", 12)
    found = [compare_index(index, labels_of(index), seed=seed) for seed in (0, 0, 1)]
    assert found[0].pairs.shape == (12, 12)
    np.testing.assert_array_equal(found[0].pairs, found[1].pairs)
    assert not np.array_equal(found[0].pairs, found[2].pairs)
    assert len(np.unique(found[0].things)) == 4, "photos that are alone come last"
    monkeypatch.setattr(comparing, "MOST_OF_ONE", 2)
    assert len(np.unique(compare_index(index, labels_of(index)).things)) == 6


def test_searches_that_share_an_image_are_for_one_thing() -> None:
    labels = np.asarray([[1, 0, 0, 0], [0, 1, -1, 0], [0, 0, 1, 0], [0, 0, 0, 1], [-1, 0, 0, 0]], np.int8)
    assert group_searches(labels).tolist() == [0, 1, 1, 2, 0]


# -- Sets


def features_of(thing: int, view: int, name: str) -> Features:
    ones = np.ones(FEATURES, np.float32)
    return Features(name, photo(thing, view), ones, ones, np.arange(FEATURES, dtype=np.int32))


def labelled_set(folder: Path, name: str, things: tuple[int, ...], leave_out: tuple[str, ...] = ()) -> Labelled:
    """Two views of each thing under names that the sets share; the first asks for the second. Some have no features."""
    names = [(f"{number}{view}.jpg", thing, view) for number, thing in enumerate(things) for view in range(2)]
    with feature_writer(folder / name, {}, DIM, regions=False) as writer:
        for file, thing, view in names:
            if file not in leave_out:
                writer.add(features_of(thing, view, file), (0, 0))
        writer.finish()
    photos = tuple(Photo(Path(file), file) for file, _, _ in names)
    asked = tuple(Query(photos[2 * number], (2 * number + 1,)) for number in range(len(things)))
    return Labelled(RetrievalSet(name, photos, asked), FeatureStore(folder / name))


def test_sets_in_one_index(tmp_path: Path) -> None:
    """Photos of one name in two sets are two, each search is judged in both, and one without features is not asked."""
    sets = [labelled_set(tmp_path, "a", (0, 1)), labelled_set(tmp_path, "b", (2, 3, 4), ("10.jpg", "21.jpg"))]
    index = index_sets(tmp_path / "index", CODEBOOK, sets)
    kept = [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1), (3, 1), (4, 0)]  # thing and view, in the order of the sets
    assert len(index) == len(kept)
    found = compare_sets(index, sets)
    assert found.image_sets.tolist() == [0] * 4 + [1] * 4
    assert found.search_sets.tolist() == [0] * 4 + [1] * 4
    assert found.labels[::2].tolist() == [
        [-1, 1, 0, 0, 0, 0, 0, 0],
        [0, 0, -1, 1, 0, 0, 0, 0],
        [0, 0, 0, 0, -1, 1, 0, 0],
        [0, 0, 0, 0, 0, 0, 0, -1],
    ]
    np.testing.assert_array_equal(found.labels[::2], found.labels[1::2])
    asked = [(0, 0), (1, 0), (2, 0), (4, 0)]
    plain = Index.create(tmp_path / "plain", CODEBOOK)
    list(plain.add_many(((f"{number}", photo(*one), None) for number, one in enumerate(kept)), batch=100))
    for number, one in enumerate(asked):
        for row, assignments in ((2 * number, 1), (2 * number + 1, plain.config.search.assignments)):
            scores = plain.scores(plain.query(photo(*one), assignments), [str(place) for place in range(len(kept))])
            np.testing.assert_array_equal(found.scores[row], scores)
    np.testing.assert_allclose(found.pairs, [plain.scores(str(n), [str(m) for m in range(8)]) for n in range(8)])


def test_photos_of_sets_search_as_they_come(tmp_path: Path) -> None:
    """Each that shows a thing with another, by its stored words; what the sets call a thing is not one in another."""
    sets = [labelled_set(tmp_path, "a", (0, 1)), labelled_set(tmp_path, "b", (2, 3, 4), ("10.jpg",))]
    index = index_sets(tmp_path / "index", CODEBOOK, sets)
    shown = [{name: name[0] for name in one.images()} for one in sets]
    found = compare_photos(index, sets, shown)
    assert found.image_sets.tolist() == [0] * 4 + [1] * 5
    assert found.search_sets.tolist() == [0] * 4 + [1] * 4, "one is alone"
    right = [np.flatnonzero(one == 1).tolist() for one in found.labels]
    assert right == [[1], [0], [3], [2], [5], [4], [8], [7]]
    assert [np.flatnonzero(one == -1).tolist() for one in found.labels] == [[n] for n in (0, 1, 2, 3, 4, 5, 7, 8)]
    np.testing.assert_allclose(found.scores, compare_sets(index, sets).pairs[[0, 1, 2, 3, 4, 5, 7, 8]])


def test_sets_without_features(tmp_path: Path) -> None:
    full = labelled_set(tmp_path, "full", (0, 1))
    empty = labelled_set(tmp_path, "empty", (2,), ("00.jpg", "01.jpg"))
    with pytest.raises(DatasetError, match="has no features of the photos of empty"):
        index_sets(tmp_path / "index", CODEBOOK, [full, empty])
    silent = labelled_set(tmp_path, "silent", (0, 1), ("00.jpg", "10.jpg"))
    with pytest.raises(DatasetError, match="none of the queries of silent has features"):
        compare_sets(index_sets(tmp_path / "other", CODEBOOK, [silent]), [silent])


# -- Collections


def test_drawn_collections(comparisons: Comparisons) -> None:
    background = measure_background(comparisons)
    found = draw_results(comparisons, background, sizes=(10, 30))
    again = draw_results(comparisons, background, sizes=(10, 30))
    for ours, theirs in zip(found, again, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert set(found.images.tolist()) == {10, 30}
    assert len(found.labels) == len(comparisons.scores) * (10 + 20), "the first twenty, or all"
    assert 0 < found.labels.mean() < 0.2
    small, large = (draw_results(comparisons, background, sizes=(size,)) for size in (10, 10**6))
    assert len(small.labels) < len(large.labels)
    assert large.images.max() == len(comparisons.pairs) - 1


def test_a_size_beyond_the_set_is_drawn_once(comparisons: Comparisons) -> None:
    background = measure_background(comparisons)
    once, twice = (draw_results(comparisons, background, sizes=sizes) for sizes in ((100,), (100, 300)))
    assert len(once.labels) == len(twice.labels)


def test_a_quarter_of_collections_holds_no_match(comparisons: Comparisons) -> None:
    found = draw_results(comparisons, measure_background(comparisons), sizes=(10,))
    matches = found.labels.reshape(-1, 10).sum(axis=1)
    assert 0.1 < (matches == 0).mean() < 0.45


def test_what_falls_into_collections(comparisons: Comparisons) -> None:
    """Without a share that is absent a photo has as many matches as chance gives it: two others of 46, so of 10 photos
    0.43, and in the whole set both.
    """
    background = measure_background(comparisons)
    found = draw_results(comparisons, background, sizes=(10,), absent=None)
    matches = found.labels.reshape(-1, 10).sum(axis=1)
    assert 0.2 < matches.mean() < 0.7
    assert (matches == 0).mean() > 0.4
    large = draw_results(comparisons, background, sizes=(10**6,), absent=None)
    assert large.labels.sum() > 0.9 * 2 * len(comparisons.scores)


def test_draws_joined_keep_their_searches_apart(comparisons: Comparisons) -> None:
    background = measure_background(comparisons)
    one, other = (draw_results(comparisons, background, sizes=(10,), absent=absent) for absent in (0.25, None))
    both = join_results([one, other])
    searches = one.searches.max() + 1
    np.testing.assert_array_equal(both.searches, np.concatenate([one.searches, other.searches + searches]))
    np.testing.assert_array_equal(both.evidence, np.concatenate([one.evidence, other.evidence]))


def test_whole_sets(comparisons: Comparisons) -> None:
    found = whole_results(comparisons, measure_background(comparisons))
    assert set(found.images.tolist()) == {len(comparisons.pairs) - 1}
    assert len(found.labels) == 20 * len(comparisons.scores)
    assert found.labels.sum() > 0.9 * 2 * len(comparisons.scores), "both other views are among the first"


def test_a_collection_with_more_matches_has_a_higher_prior(index: Index) -> None:
    """The same photos: once three views of each thing, once one view of a thing and three of two."""
    names = sorted(index.names())
    few = [name for name in names if name.endswith(" 0") or name[:2] in ("0 ", "1 ")]
    priors = []
    for chosen in (few, names):
        compared = compare_index(index, {name: name.split()[0] for name in chosen})
        priors.append(whole_results(compared, START.background).prior)
        assert len(np.unique(priors[-1])) == 1, "one collection"
    assert priors[0][0] < priors[1][0]


def test_the_prior_is_that_of_a_search(index: Index, comparisons: Comparisons) -> None:
    """What is fitted to is what an index with these photos does."""
    met = meet_strangers(index, START)
    labelled = whole_results(comparisons, START.background)
    assert met.sample == len(comparisons.pairs)
    assert labelled.prior[0] == pytest.approx(match_prior(met.linked, met.sample, len(index) - 1), abs=0.2)


# -- Fitting


def test_a_fit_is_honest_about_things_it_has_not_seen(comparisons: Comparisons) -> None:
    fitted = calibrate(comparisons, ORIGIN)
    judged = reliability(fitted.said, fitted.results.labels)
    assert judged.error < 0.05
    assert judged.brier < 0.5 * judged.right * (1 - judged.right)
    assert fitted.calibration.origin == ORIGIN
    assert calibrate(comparisons, ORIGIN).calibration == fitted.calibration


def test_each_thing_is_judged_without_itself(comparisons: Comparisons) -> None:
    background = measure_background(comparisons)
    results = draw_results(comparisons, background)
    folds = int(results.things.max()) + 1
    said = predict_in_turn(results, background, ORIGIN, folds=folds)
    for thing in (0, 5):
        rest = choose_results(results, results.things != thing)
        fitted = fit_calibration(rest.evidence, rest.images, rest.labels, background, ORIGIN, prior=rest.prior)
        held = results.things == thing
        np.testing.assert_allclose(said[held], predict(fitted, choose_results(results, held)))


def test_a_start_gives_background_and_slopes(comparisons: Comparisons) -> None:
    alone = calibrate(comparisons, ORIGIN).calibration
    near = calibrate(comparisons, ORIGIN, start=START).calibration
    assert near.background == START.background != alone.background
    foreign = dataclasses.replace(START, origin=ORIGIN._replace(codebook="another"))
    found = calibrate(comparisons, ORIGIN, start=foreign).calibration
    assert found.background == START.background._replace(images=FOREIGN_IMAGES)
    assert found.origin == ORIGIN


def test_four_photos_are_enough_with_a_start(index: Index) -> None:
    few = compare_index(index, {name: name[0] for name in ("0 0", "0 1", "1 0", "1 1")})
    found = calibrate(few, ORIGIN, start=START).calibration
    assert found.slope == pytest.approx(START.slope, rel=0.5)
    with pytest.raises(SuperfeatError, match="more different things are needed"):
        calibrate(few, ORIGIN)


def test_labels_by_chance_are_refused_or_say_little(index: Index) -> None:
    rng = np.random.default_rng(0)
    labels = {name: str(rng.integers(20)) for name in index.names()}
    try:
        fitted = calibrate(compare_index(index, labels), ORIGIN)
    except SuperfeatError as error:
        assert "do not score higher" in str(error)  # noqa: PT017 - either answer is right
    else:
        judged = reliability(fitted.said, fitted.results.labels)
        assert judged.brier > 0.8 * judged.right * (1 - judged.right)


def test_the_origin_of_an_index(index: Index, tmp_path: Path) -> None:
    assert origin_of(index) == ORIGIN
    config = IndexConfig(kernel="real", search=SearchConfig(alpha=2.0, threshold=0.1))
    assert origin_of(Index.create(tmp_path / "real", CODEBOOK, config)) == (None, CODEBOOK.digest, "real", 2.0, 0.1)
    weighted = Index.create(tmp_path / "idf", CODEBOOK, IndexConfig(search=SearchConfig(idf=True)))
    with pytest.raises(SuperfeatError, match="searches with idf"):
        origin_of(weighted)


# -- In the index


OWN, LATER = dataclasses.replace(START, intercept=-7.0), dataclasses.replace(START, intercept=-6.0)


def calibration_in(index: Index) -> Calibration | None:
    return Engine.open(index.path).calibration


def test_an_index_answers_with_what_was_stored(index: Index) -> None:
    write_json(index.path / CALIBRATION, START.to_dict())
    before = [hit.probability for hit in Engine.open(index.path).search(Named("0 0")).hits]
    store_calibration(index, OWN)
    assert calibration_in(index) == OWN
    assert [hit.probability for hit in Engine.open(index.path).search(Named("0 0")).hits] != before
    store_calibration(index, LATER)
    assert calibration_in(index) == LATER
    assert shipped_calibration(index) == START, "what it came with, however often it is fitted"
    assert reset_calibration(index)
    assert calibration_in(index) == shipped_calibration(index) == START
    assert [hit.probability for hit in Engine.open(index.path).search(Named("0 0")).hits] == before
    assert not reset_calibration(index)
    assert calibration_in(index) == START
    assert not (index.path / SHIPPED_CALIBRATION).exists()


def test_an_index_that_came_without(index: Index) -> None:
    assert shipped_calibration(index) is None
    assert not reset_calibration(index)
    store_calibration(index, OWN)
    assert (calibration_in(index), shipped_calibration(index)) == (OWN, None)
    assert reset_calibration(index)
    assert calibration_in(index) is None


def test_it_survives_changes_of_the_index(index: Index) -> None:
    store_calibration(index, OWN)
    index.delete("0 0")
    index.compact()
    assert list(Index.open(index.path).verify())
    assert calibration_in(index) == OWN


@pytest.mark.parametrize("name", [CALIBRATION, SHIPPED_CALIBRATION])
def test_damage_is_found_in_what_probabilities_are_made_from(index: Index, name: str) -> None:
    assert list(verify_calibrations(index)) == []
    write_json(index.path / CALIBRATION, START.to_dict())
    store_calibration(index, OWN)
    assert list(verify_calibrations(index)) == [CALIBRATION, SHIPPED_CALIBRATION]
    whole = (index.path / name).read_text()
    for damaged in (whole[:-20], "", "{}", whole.replace("slope", "slop")):
        (index.path / name).write_text(damaged)
        with pytest.raises(StoreError, match=rf"{name} is damaged"):
            list(verify_calibrations(index))


def test_one_that_does_not_fit_is_no_start(index: Index) -> None:
    write_json(index.path / CALIBRATION, dataclasses.replace(START, origin=ORIGIN._replace(alpha=1.0)).to_dict())
    assert shipped_calibration(index) is None
    (index.path / CALIBRATION).write_text("{")
    with pytest.raises(SuperfeatError, match="damaged"):
        shipped_calibration(index)


# -- How honest it is


def made_results(things: int, each: int, seed: int = 0) -> tuple[np.ndarray, Results]:
    rng = np.random.default_rng(seed)
    said = rng.random(things * each)
    ones = np.ones(len(said), np.int64)
    return said, Results(
        said,
        ones,
        rng.random(len(said)) < said**2,
        np.repeat(np.arange(things) * 3, each),
        ones,
        0 * said,
        np.zeros((len(said), 5)),
        np.arange(len(said)),
    )


def test_the_panel_of_a_reliability() -> None:
    said, results = made_results(10, 30)
    judged = reliability(said, results.labels)
    panel = reliability_panel("a set", {"before": judged, "after": judged})
    assert [one.name for one in panel.series] == ["honest", "before", "after"]
    assert list(panel.series[2].y) == [one.right for one in judged.bins]
    assert f"{judged.results} results" in panel.note
    assert f"0.9: {judged.bins[-1].results}" in panel.note


def test_the_stored_file_is_plain(index: Index) -> None:
    store_calibration(index, OWN)
    text = (index.path / CALIBRATION).read_text()
    assert json.loads(text)["background"] == {"location": -8.0, "scale": 1.2, "images": 20}


# -- Clues


def placed_index(path: Path) -> Index:
    """Ten things in three views each, whose words lie where they belong, and ten more photos that are alone."""
    codebook = Codebook(5 * np.random.default_rng(1).standard_normal((300, DIM)).astype(np.float32))
    made, images = Index.create(path, codebook, network="network"), []
    things = [(thing, view) for thing in range(10) for view in range(3)]
    for thing, view in [*things, *((thing, 0) for thing in range(50, 60))]:
        own, rng = np.random.default_rng(thing), np.random.default_rng((thing, view))
        words, places = own.choice(300, 40, replace=False), own.random((40, 2))
        strange = rng.random(40) < 0.2 + 0.1 * view
        words = np.where(strange, rng.integers(0, 300, 40), words)
        vectors = np.asarray(codebook.centroids[words] + own.standard_normal((40, DIM)), np.float32)
        regions = np.concatenate([0.9 * places + 0.02 * view, np.full((40, 2), 0.05)], axis=1).astype(np.float32)
        image = made.query(vectors, 1)
        assert image.assigned is not None
        noted = encode_places(word_regions(regions, image.assigned[:, 0], image.words))
        images.append((f"{thing} {view}", vectors, {"places": noted, "size": [4, 3]}))
    list(made.add_many(images, batch=100))
    return made


@pytest.mark.parametrize("nearest", [256, 25])
def test_a_search_knows_the_clues_that_a_fit_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nearest: int
) -> None:
    """Whether the nearest photos are the whole collection or a part of it."""
    for module in (apply, fit):
        monkeypatch.setattr(module, "NEAREST", nearest)
    index = placed_index(tmp_path / "index")
    comparisons = compare_index(index, labels_of(index))
    background = measure_background(comparisons)
    found = whole_results(comparisons, background)
    origin = Origin("network", index.snapshot().layout.codebook, "binary", 3.0, 0.0)
    weights = (0.3, 0.5, 0.7, 0.9, 1.1)
    calibration = Calibration(-4.0, 0.0, -0.1, background, origin, weights, 256, (-4.0, 1.0, 0.0))
    assert (found.clues.max(axis=0) > [2, 1, 0.5, 1.5, 2.7]).all(), "each clue says something of somebody"
    for name in [f"{thing} {view}" for thing in range(10) for view in range(3)]:
        thing, view = map(int, name.split())
        rows = found.searches == np.flatnonzero(comparisons.things == thing)[view]
        ranking, chances = judge_ranking(index, name, calibration, 21)
        assert chances is not None
        others = [place for place, hit in enumerate(ranking) if hit.name != name][:20]
        expected = calibration.probability(found.evidence[rows], len(index), 0.0, found.clues[rows])
        np.testing.assert_allclose(np.sort(chances[others]), np.sort(expected), atol=1e-6)  # scores may be equal
