"""A calibration from labelled photos: what queries find in collections drawn from them, and whether it is right."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int64

from superfeat.figures import Panel, Series
from superfeat.probability.apply import background_for
from superfeat.probability.clues import CLUES, PLACE_CLUES, SUPPORTERS, Clues, back_of, support_of
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
PADDED_SIZES = (10_000, 100_000)  # of collections that are larger than any labelled set: strangers stand for the rest
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


def measure_background(comparisons: Comparisons) -> Null:
    """How strangers score in all sets together, for collections that are too small to show it."""
    kept = different_images(comparisons.pairs)
    return fit_null(comparisons.pairs[np.ix_(kept, kept)])._replace(images=BACKGROUND_IMAGES)


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
    different = sorted({size if size < len(comparisons.pairs) or size in PADDED_SIZES else ALL for size in sizes})
    for search in range(len(comparisons.scores)):
        for size in different:
            rows = _draw(comparisons, search, size, generator, absent)
            met = _meet_strangers(comparisons, rows[:SAMPLE], background)
            parts.append(_first_results(comparisons, search, rows, met, size, generator))
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


def whole_results(comparisons: Comparisons, background: Null) -> Results:
    """Each search in all images of its own set."""
    parts, met, generator = list[Results](), dict[int, _Met](), np.random.default_rng(0)
    for search, own in enumerate(comparisons.search_sets.tolist()):
        rows = np.flatnonzero(comparisons.image_sets == own)
        if own not in met:
            sample = np.random.default_rng(0).permutation(rows)[:SAMPLE]
            met[own] = _meet_strangers(comparisons, sample, background)
        parts.append(_first_results(comparisons, search, rows, met[own], ALL, generator))
    return _join(parts)


def _meet_strangers(comparisons: Comparisons, sample: Int64[np.ndarray, "n"], background: Null) -> _Met:
    """As `measure_strangers` does it in an index."""
    scores = comparisons.pairs[np.ix_(sample, sample)]
    kept = different_images(scores, background)
    null = fit_null(scores[np.ix_(kept, kept)], background)
    usual = float(meet_crowd(scores.reshape(1, -1), background).location[0])
    return _Met(sample[kept], null, linked_share(scores, null), sample, background, usual)


def _first_results(
    comparisons: Comparisons, search: int, rows: Int64[np.ndarray, "n"], met: _Met, size: int, rng: np.random.Generator
) -> Results:
    """The first results of a search among these images, those that are not judged left out; and among strangers that
    stand for all others, where the collection is to be larger than the images that there are.
    """
    null = adapt_null(met.null, comparisons.scores[search, met.kept])
    rows = rows[comparisons.labels[search, rows] >= 0]
    scores, labels = comparisons.scores[search, rows], comparisons.labels[search, rows] == 1
    images = len(rows)
    if size in PADDED_SIZES and size > images:
        rows, scores, labels = pad_results(rows, scores, labels, size, rng)
        images = size if len(rows) > images else images  # where too few show how strangers score, there are no more
    first = np.argsort(-scores, kind="stable")[:TOP]
    above, same = evidence(scores[first], null), np.ones(len(first), np.int64)
    return Results(
        above,
        same * images,
        labels[first],
        same * comparisons.things[search],
        same * comparisons.search_sets[search],
        same * match_prior(met.linked, len(met.everyone), images),
        _clues(comparisons, search, rows[first], scores[first], met),
        0 * same,
    )


def _clues(
    comparisons: Comparisons,
    search: int,
    rows: Int64[np.ndarray, "n"],
    scores: Float64[np.ndarray, "n"],
    met: _Met,
) -> Clues:
    """As apply.py finds them in an index."""
    clues = np.zeros((len(rows), len(CLUES)))
    if comparisons.places is None:
        return clues
    clues[:, :PLACE_CLUES] = comparisons.places[search, rows]
    query = meet_crowd(comparisons.scores[search][met.everyone][None], met.background)
    found = meet_crowd(comparisons.pairs[np.ix_(rows, met.everyone)], met.background)
    clues[:, PLACE_CLUES] = back_of(scores, found, query, met.usual)
    speakers = np.arange(min(len(rows), SUPPORTERS))
    mutual = comparisons.pairs[np.ix_(rows, rows[speakers])]
    mutual[rows[:, None] == rows[speakers]] = 0.0  # two strangers for which one image stands
    clues[:, PLACE_CLUES + 1] = support_of(scores, mutual, speakers, found, query)
    return clues


def pad_results(
    rows: Int64[np.ndarray, "n"],
    scores: Float64[np.ndarray, "n"],
    labels: Bool[np.ndarray, "n"],
    size: int,
    rng: np.random.Generator,
) -> tuple[Int64[np.ndarray, "m"], Float64[np.ndarray, "m"], Bool[np.ndarray, "m"]]:
    """With the best of so many more strangers: their logarithms go on as those of the best that there are, falling off
    exponentially, and one of these, drawn at random, stands for each in all else.
    """
    wrong = np.flatnonzero(~labels & (scores > 0))
    if len(wrong) < 2 * LEAST_TAIL:
        return rows, scores, labels
    logs, share = logarithms(scores[wrong]), max(1 - HIGH, LEAST_TAIL / len(wrong))
    edge = float(np.quantile(logs, 1 - share))
    tail = wrong[logs >= edge]
    excess = max(float(logs[logs >= edge].mean()) - edge, np.finfo(np.float64).tiny)
    arrivals = np.cumsum(rng.exponential(size=TOP)) / (share * (size - len(rows)))
    added = np.exp(edge - excess * np.log(arrivals[arrivals < 1]))
    donors = rng.choice(tail, len(added))
    more = np.zeros(len(added), np.bool_)
    return np.append(rows, rows[donors]), np.append(scores, added), np.append(labels, more)


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
