"""From scores to probabilities: strangers, evidence, the logistic, its file, and how honest it is."""

import dataclasses
import json
import math
from typing import Any

import numpy as np
import pytest

import oracles_calibration as oracle
from superfeat.errors import SuperfeatError
from superfeat.probability.honesty import reliability, wilson_interval
from superfeat.probability.logistic import fit_logistic, sigmoid
from superfeat.probability.model import Calibration, Origin, fit_calibration, match_prior
from superfeat.rerank.strangers import Null, adapt_null, different_images, evidence, fit_null, linked_share

STRANGERS = Null(-8.0, 1.0, 20)
ORIGIN = Origin("network", "codebook", "binary", 3.0, 0.0)
CALIBRATION = Calibration(-7.0, 3.0, -0.6, STRANGERS, ORIGIN)


def collection(images: int, things: int, seed: int = 0, null: Null = STRANGERS) -> np.ndarray:
    """Scores of images with each other: strangers by the null, images of one thing far above it."""
    rng = np.random.default_rng(seed)
    logs = rng.normal(null.location, null.scale, (images, images))
    same = np.arange(images) % things
    logs[same[:, None] == same] = rng.normal(null.location + 6 * null.scale, 0.5, int((same[:, None] == same).sum()))
    logs = np.triu(logs, 1)
    scores = np.exp(logs + logs.T)
    np.fill_diagonal(scores, 1.0)
    return scores


def null_of(scores: np.ndarray, background: Null | None = None) -> Null:
    """Of the images that are different, as likeness.py and calibrate.py have it."""
    kept = different_images(scores, background)
    return fit_null(scores[np.ix_(kept, kept)], background)


# --- strangers --------------------------------------------------------------------------------------------------------


def test_strangers_are_found_among_things() -> None:
    """Of all the pairs that could be mistaken for one thing none is left, so the scale is less than that of all."""
    for images, things in ((200, 200), (200, 60), (200, 20)):
        found = null_of(collection(images, things))
        assert found.location == pytest.approx(-8, abs=0.4)
        assert 0.6 < found.scale < 1
        assert 10 < found.images <= things, "at most one image of each thing"


def test_one_image_of_each_thing_is_kept() -> None:
    scores = collection(60, 15)
    kept = different_images(scores)
    assert kept.tolist() == oracle.different_images(scores.tolist())
    assert len(set((kept % 15).tolist())) == len(kept)


def test_the_upper_part_decides() -> None:
    """Pairs far below the median, and pairs without a common word, are not what a result must stand out from."""
    scores = collection(80, 80)
    low = np.tril(np.random.default_rng(1).random((80, 80)) < 0.2, -1)
    spoilt = np.where(low | low.T, 1e-9, scores)
    empty = np.where(low | low.T, 0.0, scores)
    assert fit_null(empty).location == pytest.approx(fit_null(scores).location, abs=0.2)
    assert fit_null(spoilt).location == pytest.approx(fit_null(scores).location, abs=0.4)


def test_a_background_counts_as_so_many_images() -> None:
    other = Null(-6.0, 2.0, 40)
    scores = collection(40, 40)
    own = fit_null(scores)
    found = fit_null(scores, other)
    share = own.images / (own.images + 40)
    assert found.location == pytest.approx(share * own.location + (1 - share) * -6)
    assert found.scale == pytest.approx(share * own.scale + (1 - share) * 2)
    assert found.images == own.images + 40


def test_a_query_has_a_null_of_its_own() -> None:
    """As far as its strangers tell, and never by what stands far above them."""
    rng = np.random.default_rng(0)
    high = np.exp(rng.normal(-7, 1, 300))
    found = adapt_null(STRANGERS, high)
    assert STRANGERS.location < found.location < -7
    assert found.images == pytest.approx(400, abs=20)
    matches = np.exp(rng.normal(0, 1, 60))
    assert adapt_null(STRANGERS, np.append(high, matches)) == found
    assert adapt_null(STRANGERS, np.zeros(9)) == adapt_null(STRANGERS, matches) == STRANGERS


def test_links_are_pairs_of_one_thing() -> None:
    for things in (100, 50, 10, 2):
        same = np.arange(100) % things
        expected = ((same[:, None] == same).sum() - 100) / (100 * 99)
        assert linked_share(collection(100, things), STRANGERS) == pytest.approx(expected, abs=0.005)


def test_matches_are_likelier_where_there_are_many_links() -> None:
    """Twenty results count as much as those that are seen: half of what was found, half of the usual tenth."""
    assert match_prior(0.1 * 20 / 200, 200, 200) == pytest.approx(0), "two of twenty, as usual"
    assert match_prior(0.5, 200, 200) == pytest.approx(math.log(0.55 / 0.45) - math.log(0.1 / 0.9))
    assert match_prior(0.0, 200, 200) == pytest.approx(math.log(0.05 / 0.95) - math.log(0.1 / 0.9))
    assert match_prior(0.5, 10, 10) == pytest.approx(math.log(7 / 23) - math.log(0.1 / 0.9)), "ten results say less"
    assert abs(match_prior(0.5, 256, 10**6)) < 0.1, "a small sample says little of a large collection"
    assert match_prior(0.0, 0, 0) == match_prior(0.0, 0, 5) == pytest.approx(0)


@pytest.mark.parametrize("images", [0, 1])
def test_hardly_any_images(images: int) -> None:
    assert linked_share(np.ones((images, images)), STRANGERS) == 0
    scores = np.ones((images, images))
    assert fit_null(scores, STRANGERS) == STRANGERS
    with pytest.raises(SuperfeatError, match="more different things are needed"):
        fit_null(scores)


def test_no_common_words_at_all() -> None:
    assert fit_null(np.eye(9), STRANGERS) == STRANGERS
    with pytest.raises(SuperfeatError, match="more different things"):
        fit_null(np.eye(9))


def test_all_scores_equal() -> None:
    scores = np.full((9, 9), math.exp(-7))
    found = fit_null(scores, STRANGERS)
    assert found.location == pytest.approx((9 * -7 + 20 * -8) / 29)
    assert found.scale == pytest.approx(20 / 29)
    with pytest.raises(SuperfeatError, match="more different things"):
        fit_null(scores)


def test_a_collection_of_one_thing_is_not_taken_for_strangers() -> None:
    found = null_of(collection(100, 1), STRANGERS)
    assert found.location < -7
    assert null_of(collection(100, 1)).location > -3, "which without a background cannot be told"


@pytest.mark.parametrize("scores", [np.full((3, 3), np.nan), np.full((2, 2), np.inf), np.ones((2, 3)), np.ones(4)])
def test_scores_that_are_none(scores: np.ndarray) -> None:
    with pytest.raises(SuperfeatError, match="finite numbers"):
        fit_null(scores, STRANGERS)


# --- evidence ---------------------------------------------------------------------------------------------------------


def test_evidence_is_in_deviations_of_strangers() -> None:
    scores = np.exp(np.asarray([-8.0, -7.0, -2.0]))
    np.testing.assert_allclose(evidence(scores, STRANGERS), [0, 1, 6])
    np.testing.assert_allclose(evidence(scores, Null(-8.0, 2.0, 1)), [0, 0.5, 3])


def test_scores_without_a_logarithm() -> None:
    found = evidence(np.asarray([0.0, -0.5, 1e-300]), STRANGERS)
    assert np.isfinite(found).all()
    assert (found < -15).all()
    assert (CALIBRATION.probability(found, 100) < 1e-15).all()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_evidence_of_nothing(value: float) -> None:
    assert len(evidence(np.empty(0), STRANGERS)) == 0
    with pytest.raises(SuperfeatError, match="search again"):
        evidence(np.asarray([0.1, value]), STRANGERS)


# --- probabilities ----------------------------------------------------------------------------------------------------


def test_probability_by_hand() -> None:
    found = CALIBRATION.probability(np.asarray([2.0, 4.0]), 100)
    odds = [-7 + 3 * z - 0.6 * math.log(100) for z in (2, 4)]
    np.testing.assert_allclose(found, [1 / (1 + math.exp(-o)) for o in odds])
    assert CALIBRATION.probability(np.empty(0), 0).shape == (0,)
    assert CALIBRATION.probability(np.asarray([3.0]), 0) == CALIBRATION.probability(np.asarray([3.0]), 1)


def test_the_sigmoid_of_large_odds() -> None:
    np.testing.assert_array_equal(sigmoid(np.asarray([-1e6, 0.0, 1e6])), [0, 0.5, 1])


def test_a_calibration_comes_back_from_json() -> None:
    text = json.dumps(CALIBRATION.to_dict())
    assert Calibration.from_dict(json.loads(text)) == CALIBRATION
    unknown = dataclasses.replace(CALIBRATION, origin=Origin(None, None, "real", 1.0, 0.0))
    assert Calibration.from_dict(json.loads(json.dumps(unknown.to_dict()))) == unknown


def changed(where: str, value: Any) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(json.dumps(CALIBRATION.to_dict()))
    *heads, last = where.split(".")
    place = plain
    for head in heads:
        place = place[head]
    if value is KeyError:
        del place[last]
    else:
        place[last] = value
    return plain


@pytest.mark.parametrize(
    ("where", "value", "message"),
    [
        ("format", "superfeat-index", "no calibration"),
        ("version", 6, "version 6; this superfeat reads 1 to 5: upgrade it"),
        ("slope", KeyError, "needs intercept, slope"),
        ("alpha", 3.0, "needs intercept, slope"),
        ("slope", "3", "must be a finite number"),
        ("slope", True, "must be a finite number"),
        ("slope", math.nan, "must be a finite number"),
        ("slope", -1.0, "a higher score must make a match likelier"),
        ("slope", 0, "a higher score must make a match likelier"),
        ("size_slope", 0.1, "larger collection"),
        ("background", [1, 2, 3], "background.location"),
        ("background.scale", 0, "scale and its images must be above 0"),
        ("background.images", 0, "images must be above 0"),
        ("background.scale", None, "'background.scale'"),
        ("origin.network", 3, "'origin.network'"),
        ("origin.kernel", None, "'origin.kernel'"),
        ("origin.alpha", "3", "'origin.alpha'"),
        ("origin.extra", 1, "origin.network"),
    ],
)
def test_damaged_calibrations_are_refused(where: str, value: Any, message: str) -> None:
    with pytest.raises(SuperfeatError, match=message):
        Calibration.from_dict(changed(where, value))


@pytest.mark.parametrize("value", [None, [], "text", 3])
def test_what_is_no_calibration(value: Any) -> None:
    with pytest.raises(SuperfeatError, match="no calibration"):
        Calibration.from_dict(value)


def test_a_calibration_holds_finite_numbers() -> None:
    with pytest.raises(SuperfeatError, match="finite"):
        dataclasses.replace(CALIBRATION, intercept=math.inf)


# --- fitting ----------------------------------------------------------------------------------------------------------


def results(
    count: int, seed: int = 0, calibration: Calibration = CALIBRATION
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Evidence, sizes of collections and labels that follow a calibration."""
    rng = np.random.default_rng(seed)
    found, images = rng.normal(3.0, 2.0, count), rng.choice([10, 100, 1000], count)
    said = [float(calibration.probability(np.asarray([z]), n)[0]) for z, n in zip(found, images.tolist(), strict=True)]
    return found, images.astype(np.int64), rng.random(count) < said


def test_known_coefficients_are_recovered() -> None:
    fitted = fit_calibration(*results(20000), STRANGERS, ORIGIN)
    assert fitted.intercept == pytest.approx(-7, abs=0.4)
    assert fitted.slope == pytest.approx(3, abs=0.15)
    assert fitted.size_slope == pytest.approx(-0.6, abs=0.06)
    assert (fitted.background, fitted.origin) == (STRANGERS, ORIGIN)


def test_results_that_can_be_told_apart_have_finite_coefficients() -> None:
    found = np.asarray([0.0, 1.0, 2.0, 6.0, 7.0, 8.0])
    fitted = fit_calibration(found, np.full(6, 50), found > 4, STRANGERS, ORIGIN)
    assert 0 < fitted.slope < 10
    assert fitted.size_slope == 0
    said = fitted.probability(found, 50)
    assert (said[:3] < 0.3).all()
    assert (said[3:] > 0.7).all()


def test_few_results_stay_near_the_start() -> None:
    found, images, labels = results(12, seed=3)
    alone = fit_calibration(found, images, labels, STRANGERS, ORIGIN)
    near = fit_calibration(found, images, labels, STRANGERS, ORIGIN, CALIBRATION)
    assert abs(near.slope - 3) < abs(alone.slope - 3)
    many = [fit_calibration(*results(20000), STRANGERS, ORIGIN, start).slope for start in (None, CALIBRATION)]
    assert many[0] == pytest.approx(many[1], rel=0.01), "and many do not care"


def test_a_larger_collection_never_makes_a_match_likelier() -> None:
    rng = np.random.default_rng(0)
    images = rng.choice([10, 1000], 400)
    fitted = fit_calibration(rng.normal(size=400) + (images > 10), images, images > 10, STRANGERS, ORIGIN)
    assert fitted.size_slope == 0


@pytest.mark.parametrize("labels", [[True] * 4, [False] * 4, []])
def test_labels_of_one_kind(labels: list[bool]) -> None:
    with pytest.raises(SuperfeatError, match="both are needed"):
        fit_calibration(
            np.arange(float(len(labels))), np.full(len(labels), 9), np.asarray(labels, np.bool_), STRANGERS, ORIGIN
        )


def test_a_prior_is_no_part_of_the_fit() -> None:
    """Where matches are as likely as their prior says, the coefficients are those without one."""
    found, images, _ = results(20000)
    rng = np.random.default_rng(1)
    prior = rng.choice([-1.0, 0.0, 3.0], len(found))
    said = sigmoid(-7 + 3 * found - 0.6 * np.log(images) + prior)
    np.testing.assert_allclose(CALIBRATION.probability(found[:1], int(images[0]), float(prior[0])), said[:1])
    fitted = fit_calibration(found, images, rng.random(len(found)) < said, STRANGERS, ORIGIN, prior=prior)
    assert fitted.intercept == pytest.approx(-7, abs=0.4)
    assert fitted.slope == pytest.approx(3, abs=0.15)
    assert fitted.size_slope == pytest.approx(-0.6, abs=0.06)


def test_labels_the_wrong_way_round() -> None:
    found, images, labels = results(500)
    with pytest.raises(SuperfeatError, match="do not score higher"):
        fit_calibration(found, images, ~labels, STRANGERS, ORIGIN)


def test_evidence_that_is_not_finite_cannot_be_fitted() -> None:
    found, images, labels = results(20)
    found[3] = np.nan
    with pytest.raises(SuperfeatError, match="finite evidence"):
        fit_calibration(found, images, labels, STRANGERS, ORIGIN)
    with pytest.raises(SuperfeatError, match="each result"):
        fit_calibration(found[:5], images[:5], labels, STRANGERS, ORIGIN)
    found, images, labels = results(20)
    for prior in (np.zeros(19), np.full(20, np.inf)):
        with pytest.raises(SuperfeatError, match="finite prior"):
            fit_calibration(found, images, labels, STRANGERS, ORIGIN, prior=prior)


def test_the_logistic_is_at_its_minimum() -> None:
    rng = np.random.default_rng(0)
    columns = rng.normal(size=(60, 3)) * (1, 10, 0.1) + (0, 5, 100)
    labels = rng.random(60) < sigmoid(columns[:, 0] - 0.2 * columns[:, 1])
    centre = np.asarray([0.5, -1.0, 0.0])
    found = fit_logistic(columns, labels, centre)
    slopes = oracle.penalised_slopes(columns.tolist(), labels.tolist(), found.tolist(), centre.tolist())
    np.testing.assert_allclose(slopes, 0, atol=1e-5)


# --- honesty ----------------------------------------------------------------------------------------------------------


def test_reliability_by_hand() -> None:
    found = reliability(np.asarray([0.1, 0.3, 0.9, 1.0]), np.asarray([False, True, True, True]), bins=2)
    assert found.results == 4
    assert found.right == 0.75
    assert found.said == pytest.approx(0.575)
    assert found.error == pytest.approx((2 * abs(0.2 - 0.5) + 2 * abs(0.95 - 1)) / 4)
    assert found.brier == pytest.approx((0.01 + 0.49 + 0.01 + 0) / 4)
    assert found.log_loss == pytest.approx(-(math.log(0.9) + math.log(0.3) + math.log(0.9) + 0) / 4)
    assert [(one.low, one.high, one.results) for one in found.bins] == [(0, 0.5, 2), (0.5, 1, 2)]


def test_what_follows_its_probabilities_is_honest() -> None:
    rng = np.random.default_rng(0)
    said = rng.random(20000)
    found = reliability(said, rng.random(20000) < said)
    assert found.error < 0.015
    inside = sum(one.least <= one.said <= one.most for one in found.bins)
    assert inside >= 8, "of ten intervals of 95 %"
    assert reliability(said, rng.random(20000) < said**3).error > 0.2


def test_certainty_that_is_wrong_costs_much_but_not_everything() -> None:
    found = reliability(np.asarray([0.0, 1.0]), np.asarray([True, False]))
    assert found.log_loss == pytest.approx(-math.log(1e-12))
    assert found.error == found.brier == 1


@pytest.mark.parametrize(
    ("said", "labels", "bins"),
    [([], [], 10), ([0.5], [True, False], 10), ([0.5], [True], 0), ([1.1], [True], 5), ([math.nan], [True], 5)],
)
def test_nothing_to_judge(said: list[float], labels: list[bool], bins: int) -> None:
    with pytest.raises(SuperfeatError):
        reliability(np.asarray(said, np.float64), np.asarray(labels, np.bool_), bins)


@pytest.mark.parametrize(("right", "count"), [(0, 1), (1, 1), (3, 10), (0, 50), (50, 50), (499, 1000)])
def test_wilsons_interval(right: int, count: int) -> None:
    low, high = wilson_interval(right, count)
    assert (low, high) == pytest.approx(oracle.wilson(right, count), abs=1e-9)
    assert 0 <= low <= right / count <= high <= 1


def test_sizes_beyond_those_of_labelled_sets_say_nothing_more() -> None:
    calibration = Calibration(-5.0, 2.0, -0.9, Null(-7.0, 1.0, 20), ORIGIN)
    evidence = np.asarray([2.0, 5.0])
    small, large, huge = (calibration.probability(evidence, images) for images in (100, 1000, 1_000_000))
    assert (small > large).all()
    assert np.array_equal(large, huge)
