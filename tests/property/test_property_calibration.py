"""Calibration over random scores: it equals plain loops, moves the right way, and stays between 0 and 1."""

import math

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import oracles_calibration as oracle
from superfeat.probability.honesty import reliability, wilson_interval
from superfeat.probability.logistic import fit_logistic
from superfeat.probability.model import Calibration, Origin, fit_calibration, match_prior
from superfeat.rerank.strangers import Null, adapt_null, different_images, evidence, fit_null, linked_share

MODEST = settings(deadline=None, max_examples=100)
ORIGIN = Origin(None, None, "binary", 3.0, 0.0)
BACKGROUND = Null(-8.0, 1.2, 20)
numbers = st.floats(-20, 20)
nulls = st.builds(Null, st.floats(-15, 0), st.floats(0.1, 5), st.floats(0.5, 100))
calibrations = st.builds(
    Calibration, numbers, st.floats(0.01, 20), st.floats(-3, 0), st.just(BACKGROUND), st.just(ORIGIN)
)
scores_of_results = arrays.arrays(np.float64, st.integers(0, 30), elements=st.just(0.0) | st.floats(1e-12, 1))


@st.composite
def collections(draw: st.DrawFn, least: int = 0) -> np.ndarray:
    """Scores of images with each other: symmetric, 1 with itself, some 0, many alike."""
    size = draw(st.integers(least, 9))
    values = draw(
        arrays.arrays(np.float64, (size, size), elements=st.sampled_from([0, 1e-9, 1e-4, 2e-4, 5e-4, 0.01, 0.3]))
    )
    upper = np.triu(values, 1)
    found: np.ndarray = upper + upper.T + np.eye(size)
    return found


# --- strangers --------------------------------------------------------------------------------------------------------


@MODEST
@given(collections(), st.none() | nulls)
def test_images_are_kept_as_by_plain_loops(scores: np.ndarray, background: Null | None) -> None:
    highest = math.inf if background is None else background.location + 4 * background.scale
    assert different_images(scores, background).tolist() == oracle.different_images(scores.tolist(), highest)


@MODEST
@given(collections(), nulls)
def test_the_null_equals_plain_loops(scores: np.ndarray, background: Null) -> None:
    found = fit_null(scores, background)
    pairs = oracle.off_diagonal(scores.tolist(), range(len(scores)))
    if not pairs:
        assert found == background
        return
    location, scale = oracle.upper(pairs)
    share = len(scores) / (len(scores) + background.images)
    assert math.isclose(found.location, share * location + (1 - share) * background.location, abs_tol=1e-9)
    assert math.isclose(found.scale, share * scale + (1 - share) * background.scale, abs_tol=1e-9)
    assert found.images == len(scores) + background.images


@MODEST
@given(nulls, scores_of_results)
def test_a_querys_null_and_evidence_equal_plain_loops(null: Null, scores: np.ndarray) -> None:
    found = adapt_null(null, scores)
    np.testing.assert_allclose(found[:2], oracle.query_null(null[:2], scores.tolist()), atol=1e-9)
    expected = [oracle.evidence(score, null.location, null.scale) for score in scores.tolist()]
    np.testing.assert_allclose(evidence(scores, null), expected, atol=1e-9)


@MODEST
@given(st.integers(5, 60), st.integers(0, 1000), st.floats(0.01, 100))
def test_a_factor_on_all_scores_changes_nothing(images: int, seed: int, factor: float) -> None:
    rng = np.random.default_rng(seed)
    logs = np.triu(rng.normal(-8, 1, (images, images)), 1)
    scores, asked = np.exp(logs + logs.T), np.exp(rng.normal(-6, 2, 10))
    before, after = fit_null(scores), fit_null(scores * factor)
    np.testing.assert_allclose(evidence(asked, before), evidence(asked * factor, after), atol=1e-6)


@MODEST
@given(collections(2), nulls)
def test_the_null_lies_between_what_is_seen_and_what_is_known(scores: np.ndarray, background: Null) -> None:
    found = fit_null(scores, background)
    assert found.images >= background.images
    assert found.scale > 0, "or evidence would be infinite"
    low, high = min(math.log(1e-9), background.location), max(0.0, background.location)
    assert low - 12 <= found.location <= high


@MODEST
@given(collections(), nulls)
def test_the_share_of_links_equals_plain_loops(scores: np.ndarray, null: Null) -> None:
    found = linked_share(scores, null)
    assert math.isclose(found, oracle.linked_share(scores.tolist(), null.location, null.scale), abs_tol=1e-12)
    assert linked_share(scores, null._replace(location=null.location + 1)) <= found


@MODEST
@given(st.floats(0, 1), st.integers(0, 256), st.integers(0, 10**7))
def test_the_prior_equals_its_definition(linked: float, sample: int, images: int) -> None:
    found = match_prior(linked, sample, images)
    assert math.isclose(found, oracle.match_prior(linked, sample, images), abs_tol=1e-9)
    assert match_prior(min(2 * linked, 1.0), sample, images) >= found, "the more links, the likelier a match"
    assert match_prior(0.0, sample, images) <= 0 <= match_prior(1.0, sample, images)


# --- probabilities ----------------------------------------------------------------------------------------------------


@MODEST
@given(calibrations, scores_of_results, nulls, st.integers(0, 10**9), st.floats(-5, 5))
def test_probabilities_rise_with_scores_and_prior(
    calibration: Calibration, scores: np.ndarray, null: Null, images: int, prior: float
) -> None:
    scores = np.sort(scores)
    said = calibration.probability(evidence(scores, null), images, prior)
    assert said.shape == scores.shape
    assert ((said >= 0) & (said <= 1)).all()
    assert (np.diff(said) >= 0).all()
    assert (calibration.probability(evidence(scores, null), images + 1, prior) <= said).all()
    assert (calibration.probability(evidence(scores, null), images, prior + 1) >= said).all()


@MODEST
@given(calibrations)
def test_calibrations_come_back(calibration: Calibration) -> None:
    assert Calibration.from_dict(calibration.to_dict()) == calibration


# --- fitting ----------------------------------------------------------------------------------------------------------


@MODEST
@given(st.integers(2, 80), st.integers(0, 10**6), st.booleans())
def test_the_logistic_is_at_its_minimum(count: int, seed: int, separable: bool) -> None:
    rng = np.random.default_rng(seed)
    columns = np.column_stack([rng.normal(3, 2, count), rng.choice([2.0, 5.0], count)])
    labels = columns[:, 0] > 3 if separable else rng.random(count) < 0.4
    assume(labels.any() and not labels.all())
    centre = rng.normal(size=2)
    known = rng.normal(size=count)
    found = fit_logistic(columns, labels, centre, known)
    slopes = oracle.penalised_slopes(columns.tolist(), labels.tolist(), found.tolist(), centre.tolist(), known.tolist())
    assert np.isfinite(found).all()
    np.testing.assert_allclose(slopes, 0, atol=1e-4)


@settings(deadline=None, max_examples=15)
@given(st.floats(-8, 0), st.floats(1, 4), st.floats(-1, -0.1), st.integers(0, 1000))
def test_known_coefficients_are_recovered(intercept: float, slope: float, size_slope: float, seed: int) -> None:
    truth = Calibration(intercept, slope, size_slope, BACKGROUND, ORIGIN)
    rng = np.random.default_rng(seed)
    images = rng.choice([10, 100, 1000], 30000).astype(np.int64)
    found = (rng.normal(0, 2, 30000) - intercept - size_slope * np.log(images)) / slope  # half of them right
    prior = rng.choice([-1.0, 0.0, 2.0], 30000)
    odds = intercept + slope * found + size_slope * np.log(images) + prior
    labels = rng.random(30000) < 1 / (1 + np.exp(-odds))
    fitted = fit_calibration(found, images, labels, BACKGROUND, ORIGIN, prior=prior)
    assert abs(fitted.slope / slope - 1) < 0.15
    assert abs(fitted.size_slope - size_slope) < 0.15
    middle = np.asarray([-intercept / slope])
    assert abs(float((fitted.probability(middle, 100) - truth.probability(middle, 100))[0])) < 0.05


# --- honesty ----------------------------------------------------------------------------------------------------------


@MODEST
@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=40), st.integers(1, 12))
def test_reliability_equals_plain_loops(results: list[tuple[float, bool]], bins: int) -> None:
    said, labels = [p for p, _ in results], [label for _, label in results]
    found = reliability(np.asarray(said), np.asarray(labels), bins)
    expected = oracle.reliability(said, labels, bins)
    np.testing.assert_allclose((found.error, found.brier, found.log_loss), expected, rtol=1e-9, atol=1e-12)
    assert sum(one.results for one in found.bins) == found.results == len(results)
    for one in found.bins:
        assert one.low - 1e-12 <= one.said <= one.high + 1e-12
        assert 0 <= one.least <= one.right <= one.most <= 1


@MODEST
@given(st.integers(1, 2000), st.floats(0, 1))
def test_wilsons_interval_equals_its_definition(count: int, share: float) -> None:
    right = round(share * count)
    np.testing.assert_allclose(wilson_interval(right, count), oracle.wilson(right, count), atol=1e-9)
