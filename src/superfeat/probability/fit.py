"""A calibration from labelled photos: what queries find in collections drawn from them, and whether it is right."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int64

from superfeat.figures import Panel, Series
from superfeat.index.snapshot import MOST
from superfeat.probability.apply import background_for
from superfeat.probability.clues import (
    CLUES,
    NEAREST,
    SUPPORTERS,
    Clues,
    back_of,
    choose_witnesses,
    support_of,
    witness_of,
)
from superfeat.probability.comparing import Comparisons
from superfeat.probability.honesty import Reliability
from superfeat.probability.logistic import sigmoid
from superfeat.probability.model import Calibration, Origin, fit_calibration, match_prior
from superfeat.probability.together import TOP, around_each, fit_together
from superfeat.rerank.strangers import (
    HIGH,
    SAMPLE,
    Null,
    adapt_null,
    different_images,
    evidence,
    fit_null,
    linked_share,
    logarithms,
    meet_crowd,
)

ALL = np.iinfo(np.int64).max
DRAWN_SIZES = (10, 30, 100, 300)  # images of drawn collections; the whole set is one more
LEAST_TAIL = 30  # best wrong results that show how those of more strangers would score
ABSENT = 0.25  # share of drawn collections that do not hold what is searched for
BACKGROUND_IMAGES = 20  # different ones that the labelled sets' strangers are worth in another collection


class Results(NamedTuple):
    """The first results of searches: what a calibration is fitted to, and judged by."""

    evidence: Float64[np.ndarray, "n"]
    images: Int64[np.ndarray, "n"]  # of the collection that was searched
    labels: Bool[np.ndarray, "n"]
    things: Int64[np.ndarray, "n"]
    sets: Int64[np.ndarray, "n"]
    prior: Float64[np.ndarray, "n"]  # by how common matches seem in that collection
    clues: Clues  # besides the evidence; all zeros where nothing but scores is known
    searches: Int64[np.ndarray, "n"]  # results of one search have one number


class _Met(NamedTuple):
    """Different images of a sample, how they score with each other, and which share of the sample's pairs is linked."""

    kept: Int64[np.ndarray, "kept"]
    null: Null
    linked: float
    everyone: Int64[np.ndarray, "sample"]
    background: Null
    usual: float


class Fitted(NamedTuple):
    """A calibration, what it was fitted to, and the probability of each result by a fit without its thing."""

    calibration: Calibration
    results: Results
    said: Float64[np.ndarray, "n"]


def calibrate(
    comparisons: Comparisons,
    origin: Origin,
    *,
    start: Calibration | None = None,
    sizes: Sequence[int] = (*DRAWN_SIZES, ALL),
    seed: int = 0,
) -> Fitted:
    """Fits to searches in collections drawn from labelled sets, in equal parts to those of queries that may show what a
    collection does not have, and to those of its own photos. With few, not far from `start`.
    """
    known = None if start is None or origin.codebook is None else background_for(start, origin.codebook)
    background = known or measure_background(comparisons)
    drawn = (draw_results(comparisons, background, sizes=sizes, seed=seed, absent=absent) for absent in (ABSENT, None))
    results = join_results(list(drawn))
    fitted = fit_results(results, background, origin, start)
    return Fitted(fitted, results, predict_in_turn(results, background, origin, start))


def measure_background(comparisons: Comparisons, sets: Sequence[int] | None = None) -> Null:
    """How strangers score in these sets together (None: in all), for collections that are too small to show it."""
    own = np.flatnonzero(np.isin(comparisons.image_sets, sets)) if sets is not None else slice(None)
    pairs = comparisons.pairs[own][:, own]
    kept = different_images(pairs)
    return fit_null(pairs[np.ix_(kept, kept)])._replace(images=BACKGROUND_IMAGES)


# -- Scores -> results in collections of many sizes


def draw_results(
    comparisons: Comparisons,
    background: Null,
    *,
    sizes: Sequence[int] = (*DRAWN_SIZES, ALL),
    seed: int = 0,
    absent: float | None = ABSENT,
) -> Results:
    """Each search in a collection of each size: a random part of its own set, or of all. In a share of the cases it is
    `absent`, so that there is no image of its thing; else there is one at least. None: as many as fall into it.

    How often a result is right depends on how many matches there are, which nobody knows beforehand: this mixture
    stands for that. What falls into a collection is what its own photos find there.
    """
    generator = np.random.default_rng(seed)
    parts = []
    different = sorted({size if size < len(comparisons.pairs) else ALL for size in sizes})
    for search in range(len(comparisons.scores)):
        for size in different:
            rows = _draw(comparisons, search, size, generator, absent)
            met = _meet_strangers(comparisons, rows[:SAMPLE], background)
            parts.append(_first_results(comparisons, search, rows, met))
    return _join(parts)


def _draw(
    comparisons: Comparisons, search: int, size: int, generator: np.random.Generator, absent: float | None
) -> Int64[np.ndarray, "n"]:
    """Images of a collection, in a random order."""
    judged = comparisons.labels[search]
    own = comparisons.image_sets == comparisons.search_sets[search]
    wrong = np.flatnonzero((judged == 0) & (own if generator.random() < 0.5 else True))
    right = np.flatnonzero(judged == 1)
    share = min(1.0, size / (len(wrong) + len(right)))
    none, least = absent is not None and generator.random() < absent, 0 if absent is None else 1
    count = 0 if none else max(least, int(generator.binomial(len(right), share)))
    chosen = generator.permutation(right)[:count]
    others = generator.permutation(wrong)[: max(size - len(chosen), 0)]
    return generator.permutation(np.concatenate([chosen, others]))


def whole_results(comparisons: Comparisons, background: Null, sizes: Sequence[int] = (ALL,)) -> Results:
    """Each search in all images of its own set; and if it is to be among more, in a collection so many times as large,
    for which the same images stand (`growth_of`).
    """
    parts, met = list[Results](), dict[int, _Met]()
    for search, own in enumerate(comparisons.search_sets.tolist()):
        rows = np.flatnonzero(comparisons.image_sets == own)
        if own not in met:
            sample = np.random.default_rng(0).permutation(rows)[:SAMPLE]
            met[own] = _meet_strangers(comparisons, sample, background)
        parts += [_first_results(comparisons, search, rows, met[own], size) for size in sizes]
    return _join(parts)


def _meet_strangers(comparisons: Comparisons, sample: Int64[np.ndarray, "n"], background: Null) -> _Met:
    """As `measure_strangers` does it in an index."""
    scores = comparisons.pairs[np.ix_(sample, sample)]
    kept = different_images(scores, background)
    null = fit_null(scores[np.ix_(kept, kept)], background)
    usual = float(meet_crowd(scores.reshape(1, -1), background).location[0])
    return _Met(sample[kept], null, linked_share(scores, null), sample, background, usual)


def _first_results(
    comparisons: Comparisons, search: int, rows: Int64[np.ndarray, "n"], met: _Met, size: int = ALL
) -> Results:
    """The first results of a search among these images, those that are not judged left out; in a collection of `size`
    images, if that is more than there are.
    """
    null = adapt_null(met.null, comparisons.scores[search, met.kept])
    rows = rows[comparisons.labels[search, rows] >= 0]
    scores, wrong = comparisons.scores[search, rows], comparisons.labels[search, rows] == 0
    images, growth = len(rows), 1.0
    if len(rows) < size < ALL:
        images, growth = size, growth_of(scores[wrong], size / len(rows))
        scores = np.minimum(np.where(wrong, growth, 1.0) * scores, MOST)
    order = np.argsort(-scores, kind="stable")[:NEAREST]
    near = _Near(rows[order], scores[order], wrong[order], growth)
    first, same = order[:TOP], np.ones(min(len(order), TOP), np.int64)
    return Results(
        evidence(scores[first], null),
        same * images,
        ~wrong[first],
        same * comparisons.things[search],
        same * comparisons.search_sets[search],
        same * match_prior(met.linked, len(met.everyone), images),
        _clues(comparisons, search, near, met),
        0 * same,
    )


class _Near(NamedTuple):
    """The images nearest to a query, best first, and how much higher than they do strangers score."""

    rows: Int64[np.ndarray, "near"]
    scores: Float64[np.ndarray, "near"]
    wrong: Bool[np.ndarray, "near"]
    growth: float

    def pairs(self, comparisons: Comparisons) -> Float64[np.ndarray, "near near"]:
        """Their scores with each other."""
        stranger = self.wrong[:, None] | self.wrong
        known = comparisons.pairs[np.ix_(self.rows, self.rows)]
        return np.asarray(np.minimum(np.where(stranger, self.growth, 1.0) * known, MOST))


def _clues(comparisons: Comparisons, search: int, near: _Near, met: _Met) -> Clues:
    """As apply.py finds them in an index."""
    rows, scores = near.rows[:TOP], near.scores[:TOP]
    clues = np.zeros((len(rows), len(CLUES)))
    if comparisons.inliers is None or comparisons.mutual is None:
        return clues
    inliers = np.asarray(comparisons.inliers[search, rows], np.float64)
    query = meet_crowd(comparisons.scores[search][met.everyone][None], met.background)
    found = meet_crowd(comparisons.pairs[np.ix_(rows, met.everyone)], met.background)
    pairs, speakers = near.pairs(comparisons), np.arange(min(len(rows), SUPPORTERS))
    asks, answers = meet_crowd(near.scores[None], met.background), meet_crowd(pairs[: len(rows)], met.background)
    usual = float(meet_crowd(pairs.reshape(1, -1), met.background).location[0])
    witnesses = choose_witnesses(inliers, speakers)
    agree = [comparisons.mutual.between(one, rows.tolist()) for one in rows[witnesses].tolist()]
    clues[:] = np.column_stack(
        [
            inliers,
            back_of(scores, found, query, met.usual),
            back_of(scores, answers, asks, usual),
            support_of(scores, pairs[: len(rows), speakers], speakers, answers, asks),
            witness_of(inliers, np.reshape(agree, (len(agree), len(rows))).T, witnesses),
        ]
    )
    return clues


def growth_of(wrong: Float64[np.ndarray, "n"], times: float) -> float:
    """How much higher strangers score in a collection that is so many times as large.

    The logarithms of the best fall off exponentially, so those of as many of the best are all higher by as much; with
    the query, with what is right, and with each other (docs/calibration.md has what was measured of that).
    """
    some = wrong[wrong > 0]
    if len(some) < 2 * LEAST_TAIL:
        return 1.0  # too few show how strangers score
    logs = logarithms(some)
    edge = float(np.quantile(logs, 1 - max(1 - HIGH, LEAST_TAIL / len(some))))
    excess = float(logs[logs >= edge].mean()) - edge
    return float(times**excess)


def _join(parts: Sequence[Results]) -> Results:
    """Those of all searches, one after the other."""
    joined = Results(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
    return joined._replace(searches=np.repeat(np.arange(len(parts)), [len(part.labels) for part in parts]))


def join_results(parts: Sequence[Results]) -> Results:
    """Those of several draws, one after the other."""
    begins = np.cumsum([0, *(int(part.searches.max(initial=-1)) + 1 for part in parts)]).tolist()
    joined = Results(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
    numbers = [part.searches + begin for part, begin in zip(parts, begins, strict=False)]
    return joined._replace(searches=np.concatenate(numbers))


def choose_results(results: Results, chosen: Bool[np.ndarray, "n"]) -> Results:
    """Some of them."""
    return Results(*(column[chosen] for column in results))


def predict_in_turn(
    results: Results, background: Null, origin: Origin, start: Calibration | None = None, folds: int = 10
) -> Float64[np.ndarray, "n"]:
    """The probability of each result by a calibration fitted without any result of its thing."""
    said = np.empty(len(results.labels))
    order = np.random.default_rng(0).permutation(int(results.things.max()) + 1)
    fold = order[results.things] % folds
    for number in np.unique(fold):
        rest, held = choose_results(results, fold != number), fold == number
        said[held] = predict(fit_results(rest, background, origin, start), choose_results(results, held))
    return said


def fit_results(
    results: Results,
    background: Null,
    origin: Origin,
    start: Calibration | None,
    counted: Bool[np.ndarray, "n"] | None = None,
) -> Calibration:
    """The calibration of these results; with few, not far from `start`. The fit can count some of them alone, and
    still all results of a search say how many of them are right.
    """
    part = results if counted is None else choose_results(results, counted)
    evidence, images, labels = part.evidence, part.images, part.labels
    start_plain = None if start is None else start.without_clues()
    plain = fit_calibration(evidence, images, labels, background, origin, start_plain, part.prior)
    if not part.clues.any() or (start is not None and start.weights is None):
        return plain
    found = fit_calibration(evidence, images, labels, background, origin, start, clues=part.clues)
    own = _odds(found, results)
    rows = slice(None) if counted is None else counted
    around, before = around_each(own, results.prior, results.searches), None if start is None else start.together
    together = fit_together(own[rows], around[rows], results.labels[rows], before)
    return dataclasses.replace(found, plain=(plain.intercept, plain.slope, plain.size_slope), together=together)


def predict(calibration: Calibration, results: Results) -> Float64[np.ndarray, "n"]:
    """The probability of each result, of searches that are there with all of theirs."""
    own = _odds(calibration, results)
    if calibration.together is None:
        return sigmoid(own)
    return sigmoid(calibration.together.odds(own, around_each(own, results.prior, results.searches)))


def _odds(calibration: Calibration, results: Results) -> Float64[np.ndarray, "n"]:
    """The log-odds of each result by itself."""
    odds = np.empty(len(results.labels))
    for images in np.unique(results.images).tolist():
        chosen = results.images == images
        prior, clues = results.prior[chosen], results.clues[chosen]
        odds[chosen] = calibration.odds(results.evidence[chosen], images, prior, clues)
    return odds


# -- How honest it is


def reliability_panel(title: str, judged: Mapping[str, Reliability]) -> Panel:
    """What was said against what was right, a line for each; the numbers in the note are of the last."""
    series = [Series("honest", (0.0, 1.0), (0.0, 1.0))]
    for name, one in judged.items():
        reach = [max(each.right - each.least, each.most - each.right) for each in one.bins]
        series.append(Series(name, [each.said for each in one.bins], [each.right for each in one.bins], reach))
    counts = ", ".join(f"{each.low:g}: {each.results}" for each in one.bins)
    note = f"{one.results} results, error {one.error:.3f}, Brier {one.brier:.3f}; results in the bin from {counts}"
    return Panel(title, "probability that was said", "share that was right", series, note=note, y_limits=(0, 1))
