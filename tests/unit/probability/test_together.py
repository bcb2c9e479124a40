"""The first results of a search judged together: many that are surely right make the others likelier."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles_calibration as oracle
from superfeat.config import CALIBRATION
from superfeat.errors import SuperfeatError
from superfeat.probability import fit
from superfeat.probability.clues import CLUES, NEAREST
from superfeat.probability.fit import Results, choose_results, fit_results, predict
from superfeat.probability.logistic import sigmoid
from superfeat.probability.model import Calibration, Origin, fit_calibration, match_prior
from superfeat.probability.together import Together, around_each, around_one, fit_together
from superfeat.rerank.strangers import Null

MODEST = settings(deadline=None, max_examples=60)
BACKGROUND, ORIGIN = Null(-8.0, 1.2, 20), Origin(None, None, "binary", 3.0, 0.0)
TOGETHER = Together(-3.3, 0.9, 0.4, 12.2, -0.5)
ALONE = Calibration(-6.0, 0.2, -0.3, BACKGROUND, ORIGIN, (0.5, 2.0, 0.0, 0.6, 1.3), 100_000, plain=(-4.0, 1.5, -0.4))
BESIDE = dataclasses.replace(ALONE, together=TOGETHER)
togethers = st.builds(
    Together, st.floats(-5, 5), st.floats(0.6, 3), st.floats(0, 2), st.floats(0, 9), st.floats(-2.9, 0)
)
log_odds = st.lists(st.floats(-20, 20), max_size=40)


def clues_of(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0, 3, (count, len(CLUES)))


@MODEST
@given(togethers, st.integers(0, 40), st.floats(-2, 4), st.integers(0, 10**6))
def test_it_equals_plain_loops(together: Together, count: int, prior: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    evidence, clues = rng.normal(2, 2, count), clues_of(count, seed)
    first = np.flatnonzero(rng.random(count) < 0.8)
    calibration = dataclasses.replace(ALONE, together=together)
    own = ALONE.odds(evidence, 300, clues=clues)
    slow = oracle.judged_together(own.tolist(), first.tolist(), prior, together)
    np.testing.assert_allclose(calibration.probability(evidence, 300, prior, clues, first), slow, rtol=1e-9)
    every = oracle.judged_together(own.tolist(), range(count), prior, together)
    np.testing.assert_allclose(calibration.probability(evidence, 300, prior, clues), every, rtol=1e-9)


@MODEST
@given(togethers, log_odds)
def test_the_order_of_results_stays(together: Together, odds: list[float]) -> None:
    own = np.sort(np.asarray(odds, np.float64))
    assert (np.diff(together.odds(own, around_one(own, 0.5))) >= 0).all()


@MODEST
@given(togethers, log_odds.filter(bool), st.floats(0, 10), st.data())
def test_no_evidence_of_its_own_speaks_against_a_result(
    together: Together, odds: list[float], more: float, data: st.DataObject
) -> None:
    own, place = np.asarray(odds, np.float64), data.draw(st.integers(0, len(odds) - 1))
    better = own.copy()
    better[place] += more
    before, after = (together.odds(one, around_one(one, 0.5))[place] for one in (own, better))
    assert after >= before - 1e-9


@pytest.mark.parametrize("own", [np.zeros(20), np.linspace(-4, 4, 9)], ids=["unsure", "spread"])
def test_nothing_moves_where_the_first_are_as_in_the_fit(own: np.ndarray) -> None:
    """With a slope of 1 it is a shift, and none where the intercept takes it off."""
    around = around_one(own, 0.7)
    together = Together(-float(around @ (0.4, 3.0, -0.5)), 1.0, 0.4, 3.0, -0.5)
    np.testing.assert_allclose(together.odds(own, around), own, atol=1e-12)


def test_no_results() -> None:
    none = np.zeros(0)
    assert around_one(none, 0.3).tolist() == [0.3, 0, 0]
    assert around_each(none, none, np.zeros(0, np.int64)).shape == (0, 3)
    assert BESIDE.probability(none, 10, clues=clues_of(0)).shape == (0,)


def test_a_middling_result_is_likelier_where_the_others_are_right() -> None:
    """And the twenty-first result has no say."""
    middling = np.zeros((21, len(CLUES)))
    middling[:, 0] = 2.5
    sure = middling.copy()
    sure[:10, 0] = 4.5
    alone, among = (BESIDE.probability(np.full(21, 2.0), 100, clues=clues) for clues in (middling, sure))
    assert among[10] > 2 * alone[10]
    late = middling.copy()
    late[20, 0] = 4.5
    np.testing.assert_array_equal(BESIDE.probability(np.full(21, 2.0), 100, clues=late)[:20], alone[:20])


# -- Fitting


def made_searches(searches: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log-odds that know nothing of how many results of each search are right: from hardly one to nearly all."""
    rng = np.random.default_rng(seed)
    common = rng.normal(0, 2, searches)
    own = rng.normal(0, 2, (searches, 20))
    labels = rng.random((searches, 20)) < 1 / (1 + np.exp(-(own + common[:, None])))
    seen = own + 0.7 * common[:, None]  # a part of it shows in the results themselves
    return seen.ravel(), labels.ravel(), np.repeat(np.arange(searches), 20)


def test_the_fit_learns_that_results_of_a_search_belong_together() -> None:
    odds, labels, searches = made_searches(800)
    together = fit_together(odds, around_each(odds, 0 * odds, searches), labels, None)
    assert together is not None
    assert together.share > 1
    new, truth, numbers = made_searches(800, seed=1)

    def loss(odds: np.ndarray) -> float:
        return float((np.logaddexp(0, odds) - truth * odds).mean())

    assert loss(together.odds(new, around_each(new, 0 * new, numbers))) < loss(new) - 0.002


def test_where_others_say_nothing_each_is_judged_by_itself() -> None:
    rng = np.random.default_rng(0)
    odds, searches = rng.normal(0, 2, 4000), np.repeat(np.arange(200), 20)
    labels = rng.random(4000) < 1 / (1 + np.exp(-(odds - 3 * (around_each(odds, 0 * odds, searches)[:, 1] - 0.5))))
    assert fit_together(odds, around_each(odds, 0 * odds, searches), labels, None) is None


def test_few_results_stay_near_the_start() -> None:
    odds, labels, searches = made_searches(1)
    found = fit_together(odds, around_each(odds, 0 * odds, searches), labels, TOGETHER)
    assert found is not None
    assert found.share == pytest.approx(TOGETHER.share, abs=0.5)
    assert found.prior == pytest.approx(TOGETHER.prior, abs=1e-6), "all collections are alike: nothing is learned of it"


def test_more_links_in_a_collection_make_all_likelier() -> None:
    clues = clues_of(6) / 2
    few, many = (BESIDE.probability(np.ones(6), 100, prior, clues) for prior in (0.0, 2.0))
    assert (many > few).all()
    assert abs(match_prior(0.1, 256, 100_000)) < 0.03, "a sample shows hardly anything of many thousands"


def test_the_weight_of_a_prior_is_found_and_one_that_speaks_against_matches_left_out() -> None:
    rng = np.random.default_rng(0)
    odds, searches = rng.normal(0, 2, 20_000), np.repeat(np.arange(1000), 20)
    prior = np.repeat(rng.choice([-1.0, 0.0, 2.5], 1000), 20)
    for weight in (0.6, -0.6):
        labels = rng.random(20_000) < 1 / (1 + np.exp(-(odds + weight * prior)))
        found = fit_together(odds, around_each(odds, prior, searches), labels, None)
        assert (0.0 if found is None else found.prior) == pytest.approx(max(weight, 0.0), abs=0.08)


def made_results(searches: int) -> Results:
    odds, labels, numbers = made_searches(searches)
    clues = np.zeros((len(odds), len(CLUES)))
    clues[:, 1] = odds
    ones = np.ones(len(odds), np.int64)
    return Results(odds + 5, 100 * ones, labels, numbers // 4, 0 * ones, 0 * odds, clues, numbers)


def test_a_fit_that_counts_few_results_knows_all_of_a_search() -> None:
    results = made_results(600)
    counted = np.arange(len(results.labels)) % 11 == 0
    some = fit_results(results, BACKGROUND, ORIGIN, None, counted)
    every = fit_results(results, BACKGROUND, ORIGIN, None)
    assert some.together is not None
    assert every.together is not None
    assert some.together.share == pytest.approx(every.together.share, rel=0.5)


def test_what_is_predicted_is_what_a_search_says() -> None:
    results = made_results(5)
    said = predict(BESIDE, results)
    for search in range(5):
        part = choose_results(results, results.searches == search)
        one = BESIDE.probability(part.evidence, 100, clues=part.clues)
        np.testing.assert_allclose(said[results.searches == search], one)


# -- Kept


@pytest.mark.parametrize("calibration", [ALONE, BESIDE], ids=["alone", "together"])
def test_it_comes_back_from_json(calibration: Calibration) -> None:
    plain = json.loads(json.dumps(calibration.to_dict()))
    assert plain["version"] == 5
    assert Calibration.from_dict(plain) == calibration


def test_each_by_itself_is_the_formula_of_shaped_clues() -> None:
    own = ALONE.odds(np.ones(3), 10, clues=clues_of(3))
    slow = (
        -6
        + 0.2
        - 0.3 * math.log(10)
        + np.asarray([oracle.shaped_clues(one) for one in clues_of(3).tolist()]) @ (0.5, 2.0, 0.0, 0.6, 1.3)
    )
    np.testing.assert_allclose(own, slow)
    np.testing.assert_allclose(ALONE.probability(np.ones(3), 10, clues=clues_of(3)), 1 / (1 + np.exp(-own)))


@pytest.mark.parametrize("version", [2, 3, 4])
def test_of_clues_that_are_not_measured_any_more_scores_are_left(version: int) -> None:
    """No release wrote these versions, but indexes may hold them."""
    named = {"verified": 0.0, "inliers": 0.3, "spread": 0.0, "back": 0.7, "support": 1.5}
    found = Calibration.from_dict({**BESIDE.to_dict(), "version": version, "weights": named, "largest": 100_000})
    assert found == BESIDE.without_clues()
    damaged: list[dict[str, Any]] = [{"plain": {}}, {"plain": None}, {"origin": None}]
    for broken in damaged:
        with pytest.raises(SuperfeatError, match="a calibration needs"):
            Calibration.from_dict({**BESIDE.to_dict(), "version": version, **broken})
    with pytest.raises(SuperfeatError, match="a calibration needs plain"):
        Calibration.from_dict({"format": "superfeat-calibration", "version": version})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"intercept": 0, "slope": 1, "prior": 0, "share": 1}, "together.level"),
        ({"intercept": 0, "slope": 0, "prior": 0, "share": 1, "level": 0}, "their order stays"),
        ({"intercept": 0, "slope": 1, "prior": 0, "share": 1, "level": -5}, "their order stays"),
        ({"intercept": 0, "slope": 1, "prior": 0, "share": -1, "level": 0}, "their order stays"),
        ({"intercept": 0, "slope": 1, "prior": -1, "share": 1, "level": 0}, "their order stays"),
        ({"intercept": math.nan, "slope": 1, "prior": 0, "share": 1, "level": 0}, "together.intercept"),
        ({}, "together.intercept"),
    ],
)
def test_damaged_ones_are_refused(value: Any, message: str) -> None:
    with pytest.raises(SuperfeatError, match=message):
        Calibration.from_dict({**BESIDE.to_dict(), "together": value})


def test_how_far_a_score_stands_above_strangers_does_not_count_beside_clues() -> None:
    """Not even where the labels follow it, or a start says that it does."""
    rng = np.random.default_rng(0)
    clues, evidence = clues_of(400), rng.normal(size=400)
    labels = rng.random(400) < sigmoid(2 * clues[:, 4] - 3 + 3 * evidence)
    for start in (None, ALONE):
        fitted = fit_calibration(evidence, np.full(400, 100), labels, BACKGROUND, ORIGIN, start, clues=clues)
        assert fitted.slope == 0
        assert fitted.largest == NEAREST


def test_scores_alone_are_judged_one_by_one() -> None:
    assert BESIDE.without_clues().together is None
    with pytest.raises(SuperfeatError, match="needs weights for clues"):
        Calibration(-4.0, 1.5, -0.4, BACKGROUND, ORIGIN, together=TOGETHER)


def test_what_comes_with_the_network_judges_together() -> None:
    file = Path(fit.__file__).parents[1] / "shipped" / "fire-landmarks-3" / CALIBRATION
    shipped = Calibration.from_dict(json.loads(file.read_text()))
    assert shipped.together is not None
    assert shipped.together.keeps_order
    assert shipped.slope == 0
