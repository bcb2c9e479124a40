"""A calibration from labelled photos: what queries find in collections drawn from them, and whether it is right."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int8, Int64

from superfeat.datasets.retrieval_set import RetrievalSet
from superfeat.errors import DatasetError, SuperfeatError
from superfeat.evaluation.searching import add_images, names_in, numbered, search_set, stored_queries
from superfeat.extraction.folder import FeatureStore
from superfeat.features import ImageWords
from superfeat.figures import Panel, Series
from superfeat.index.codebook import Codebook
from superfeat.index.index import Index
from superfeat.index.pairs import score_pairs
from superfeat.probability.apply import SAMPLE, background_for
from superfeat.probability.honesty import BINS, Reliability
from superfeat.probability.model import (
    TOP,
    Calibration,
    Null,
    Origin,
    adapt_null,
    different_images,
    evidence,
    fit_calibration,
    fit_null,
    linked_share,
    match_prior,
)

DRAWN_SIZES = (10, 30, 100, 300)  # images of drawn collections; the whole set is one more
ABSENT = 0.25  # share of drawn collections that do not hold what is searched for
BACKGROUND_IMAGES = 20  # different ones that the labelled sets' strangers are worth in another collection
ALL = np.iinfo(np.int64).max
MOST_LABELLED, MOST_OF_ONE = 2000, 100  # photos of an index, and of one thing, that are compared with each other
RESAMPLED = 1000  # times that things are drawn for an interval


class Labelled(NamedTuple):
    """A set of photos with queries and their right answers, and the features of all of them."""

    test: RetrievalSet
    store: FeatureStore

    def images(self) -> list[str]:
        """The names of those photos of its database that there are features of."""
        known = {entry.name for entry in self.store.entries}
        return [name for name in names_in(self.store, self.test).database if name in known]


@dataclasses.dataclass(frozen=True, eq=False)
class Comparisons:
    """Scores of labelled searches with all images, and of these with each other. Each query searches twice: with one
    word per feature, as an indexed photo does, and with several, as a new photo does.
    """

    pairs: Float64[np.ndarray, "images images"]
    scores: Float64[np.ndarray, "searches images"]
    labels: Int8[np.ndarray, "searches images"]  # 1 right, 0 wrong, -1 not judged
    things: Int64[np.ndarray, "searches"]  # searches for one thing have one number
    search_sets: Int64[np.ndarray, "searches"]
    image_sets: Int64[np.ndarray, "images"]


class Results(NamedTuple):
    """The first results of searches: what a calibration is fitted to, and judged by."""

    evidence: Float64[np.ndarray, "n"]
    images: Int64[np.ndarray, "n"]  # of the collection that was searched
    labels: Bool[np.ndarray, "n"]
    things: Int64[np.ndarray, "n"]
    sets: Int64[np.ndarray, "n"]
    prior: Float64[np.ndarray, "n"]  # by how common matches seem in that collection


class _Met(NamedTuple):
    """Different images of a sample, how they score with each other, and which share of the sample's pairs is linked."""

    kept: Int64[np.ndarray, "kept"]
    null: Null
    linked: float
    sample: int


class Fitted(NamedTuple):
    """A calibration, what it was fitted to, and the probability of each result by a fit without its thing."""

    calibration: Calibration
    results: Results
    said: Float64[np.ndarray, "n"]


def calibrate(comparisons: Comparisons, origin: Origin, *, start: Calibration | None = None, seed: int = 0) -> Fitted:
    """Fits to searches in collections drawn from labelled sets; with few, not far from `start`."""
    known = None if start is None or origin.codebook is None else background_for(start, origin.codebook)
    background = known or measure_background(comparisons)
    results = draw_results(comparisons, background, seed=seed)
    fitted = fit_results(results, background, origin, start)
    return Fitted(fitted, results, predict_in_turn(results, background, origin, start))


def measure_background(comparisons: Comparisons) -> Null:
    """How strangers score in all sets together, for collections that are too small to show it."""
    kept = different_images(comparisons.pairs)
    return fit_null(comparisons.pairs[np.ix_(kept, kept)])._replace(images=BACKGROUND_IMAGES)


# -- An index and its user's labels


def compare_index(index: Index, thing_of: Mapping[str, str], *, seed: int = 0) -> Comparisons:
    """Labelled photos of an index, searched for with their stored words. A thing with one photo is searched for by
    nobody; the others must not find it.
    """
    names_of: dict[str, list[str]] = {}
    for name, thing in thing_of.items():
        names_of.setdefault(thing, []).append(name)
    groups = list(names_of.values())
    if sum(len(group) > 1 for group in groups) < 2:
        raise DatasetError(
            f"the labels name {len(thing_of)} photos of the index: give at least two things with two photos each"
        )
    order = np.random.default_rng(seed).permutation(len(groups)).tolist()
    order.sort(key=lambda number: len(groups[number]) < 2)  # those that can be searched for first
    chosen = [(number, name) for number in order for name in groups[number][:MOST_OF_ONE]][:MOST_LABELLED]
    names = [name for _, name in chosen]
    things = np.asarray([number for number, _ in chosen], np.int64)
    same = things[:, None] == things
    searches = np.flatnonzero(same.sum(axis=1) > 1)
    labels = same[searches].astype(np.int8)
    labels[np.arange(len(searches)), searches] = -1  # itself
    pairs = score_pairs(index.snapshot(), [index.words_of(name) for name in names], index.config.search)
    sets = np.zeros(len(names), np.int64)
    return Comparisons(pairs, pairs[searches], labels, things[searches], sets[searches], sets)


def origin_of(index: Index) -> Origin:
    """What decides the scores of an index."""
    search = index.config.search
    if search.idf:
        raise SuperfeatError(f"{index.path} searches with idf, for which there are no calibrations")
    return Origin(index.network, index.snapshot().layout.codebook, index.config.kernel, search.alpha, search.threshold)


# -- Photos -> scores


def index_sets(path: str | Path, codebook: Codebook, labelled: Sequence[Labelled]) -> Index:
    """One index of all the photos that can be found."""
    index = Index.create(path, codebook)
    for number, one in enumerate(labelled):
        names = one.images()
        if not names:
            raise DatasetError(f"{one.store.path} has no features of the photos of {one.test.name}")
        for _ in add_images(index, ((numbered(number, name), one.store[name]) for name in names)):
            pass
    return index


def compare_sets(index: Index, labelled: Sequence[Labelled]) -> Comparisons:
    """All scores of an index of these sets. What one set shows must not be in another: its photos count as wrong."""
    set_of = {numbered(number, name): number for number, one in enumerate(labelled) for name in one.images()}
    rows = {name: row for row, name in enumerate(set_of)}
    asked, labels, sets = [], [], []
    for number, one in enumerate(labelled):
        for words, judged in _searches(index, number, one, rows):
            asked.append(words)
            labels.append(judged)
            sets.append(number)
    if not asked:
        raise DatasetError(f"none of the queries of {labelled[0].test.name} has features")
    scores = np.zeros((len(asked), len(rows)))
    for row, found in zip(scores, search_set(index, list(rows), asked), strict=True):
        assert found is not None
        row[found.numbers] = found.scores
    judged = np.stack(labels)
    pairs = score_pairs(index.snapshot(), [index.words_of(name) for name in rows], index.config.search)
    image_sets = np.asarray(list(set_of.values()), np.int64)
    return Comparisons(pairs, scores, judged, group_searches(judged), np.asarray(sets, np.int64), image_sets)


def _searches(
    index: Index, number: int, labelled: Labelled, rows: Mapping[str, int]
) -> Iterator[tuple[ImageWords, Int8[np.ndarray, "images"]]]:
    """Each query twice, and what every image is to it."""
    test, store = labelled
    names = names_in(store, test)
    places = [rows.get(numbered(number, name)) for name in names.database]
    for query, name, features in zip(test.queries, names.queries, stored_queries(store, names), strict=True):
        if features is None:
            continue
        judged = np.zeros(len(rows), np.int8)
        own = [image for image, other in enumerate(names.database) if other == name]
        for value, images in ((1, query.positives), (-1, (*query.junk, *own))):
            judged[[place for image in images if (place := places[image]) is not None]] = value
        for assignments in (1, index.config.search.assignments):
            yield index.query(features, assignments), judged


def group_searches(labels: Int8[np.ndarray, "searches images"]) -> Int64[np.ndarray, "searches"]:
    """A number for each thing: searches are for one if an image is right, or not judged, in both."""
    things = np.arange(len(labels))
    owner: dict[int, int] = {}
    for search, judged in enumerate(labels):
        for image in np.flatnonzero(judged).tolist():
            other = things[owner.setdefault(image, search)]
            things[things == max(other, things[search])] = min(other, things[search])
    return np.unique(things, return_inverse=True)[1].astype(np.int64)


# -- Scores -> results in collections of many sizes


def draw_results(
    comparisons: Comparisons, background: Null, *, sizes: Sequence[int] = (*DRAWN_SIZES, ALL), seed: int = 0
) -> Results:
    """Each search in a collection of each size: a random part of its own set, or of all, in a quarter of the cases
    without any image of its thing.

    How often a result is right depends on how many matches there are, which nobody knows beforehand: this mixture
    stands for that.
    """
    generator = np.random.default_rng(seed)
    parts = []
    different = sorted({size if size < len(comparisons.pairs) else ALL for size in sizes})
    for search in range(len(comparisons.scores)):
        for size in different:
            rows = _draw(comparisons, search, size, generator)
            met = _meet_strangers(comparisons, rows[:SAMPLE], background)
            parts.append(_first_results(comparisons, search, rows, met))
    return _join(parts)


def _draw(comparisons: Comparisons, search: int, size: int, generator: np.random.Generator) -> Int64[np.ndarray, "n"]:
    """Images of a collection, in a random order."""
    judged = comparisons.labels[search]
    own = comparisons.image_sets == comparisons.search_sets[search]
    wrong = np.flatnonzero((judged == 0) & (own if generator.random() < 0.5 else True))
    right = np.flatnonzero(judged == 1)
    share = min(1.0, size / (len(wrong) + len(right)))
    count = max(1, int(generator.binomial(len(right), share))) if generator.random() >= ABSENT else 0
    chosen = generator.permutation(right)[:count]
    others = generator.permutation(wrong)[: max(size - len(chosen), 0)]
    return generator.permutation(np.concatenate([chosen, others]))


def whole_results(comparisons: Comparisons, background: Null) -> Results:
    """Each search in all images of its own set."""
    parts, met = list[Results](), dict[int, _Met]()
    for search, own in enumerate(comparisons.search_sets.tolist()):
        rows = np.flatnonzero(comparisons.image_sets == own)
        if own not in met:
            sample = np.random.default_rng(0).permutation(rows)[:SAMPLE]
            met[own] = _meet_strangers(comparisons, sample, background)
        parts.append(_first_results(comparisons, search, rows, met[own]))
    return _join(parts)


def _meet_strangers(comparisons: Comparisons, sample: Int64[np.ndarray, "n"], background: Null) -> _Met:
    """As likeness.py does it in an index."""
    scores = comparisons.pairs[np.ix_(sample, sample)]
    kept = different_images(scores, background)
    null = fit_null(scores[np.ix_(kept, kept)], background)
    return _Met(sample[kept], null, linked_share(scores, null), len(sample))


def _first_results(comparisons: Comparisons, search: int, rows: Int64[np.ndarray, "n"], met: _Met) -> Results:
    """The first results of a search among these images, those that are not judged left out."""
    null = adapt_null(met.null, comparisons.scores[search, met.kept])
    rows = rows[comparisons.labels[search, rows] >= 0]
    scores = comparisons.scores[search, rows]
    first = np.argsort(-scores, kind="stable")[:TOP]
    labels = comparisons.labels[search, rows[first]] == 1
    same = np.ones(len(first), np.int64)
    return Results(
        evidence(scores[first], null),
        same * len(rows),
        labels,
        same * comparisons.things[search],
        same * comparisons.search_sets[search],
        same * match_prior(met.linked, met.sample, len(rows)),
    )


def _join(parts: Sequence[Results]) -> Results:
    """All of them, one after the other."""
    return Results(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


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


def fit_results(results: Results, background: Null, origin: Origin, start: Calibration | None) -> Calibration:
    """The calibration of these results; with few, not far from `start`."""
    return fit_calibration(results.evidence, results.images, results.labels, background, origin, start, results.prior)


def predict(calibration: Calibration, results: Results) -> Float64[np.ndarray, "n"]:
    """The probability of each result."""
    said = np.empty(len(results.labels))
    for images in np.unique(results.images).tolist():
        chosen = results.images == images
        said[chosen] = calibration.probability(results.evidence[chosen], images, results.prior[chosen])
    return said


# -- How honest it is


def bootstrap_intervals(
    said: Float64[np.ndarray, "n"], results: Results, *, seed: int = 0
) -> tuple[tuple[float, float], tuple[float, float]]:
    """95 % intervals of the expected calibration error and of the Brier score, over things drawn with replacement:
    results of one thing are right or wrong together.
    """
    things = np.unique(results.things, return_inverse=True)[1]
    count, wrong = int(things.max()) + 1, said - results.labels
    gaps = np.zeros((count, BINS))
    np.add.at(gaps, (things, np.minimum((said * BINS).astype(np.int64), BINS - 1)), wrong)
    drawn = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), RESAMPLED)
    totals = drawn @ np.bincount(things, minlength=count)
    errors = np.abs(drawn @ gaps).sum(axis=1) / totals
    squares = drawn @ np.bincount(things, wrong**2, count) / totals
    (low, high), (least, most) = (np.quantile(values, (0.025, 0.975)).tolist() for values in (errors, squares))
    return (low, high), (least, most)


def reliability_panel(title: str, judged: Mapping[str, Reliability]) -> Panel:
    """What was said against what was right, a line for each; the numbers in the note are of the last."""
    series = [Series("honest", (0.0, 1.0), (0.0, 1.0))]
    for name, one in judged.items():
        reach = [max(each.right - each.least, each.most - each.right) for each in one.bins]
        series.append(Series(name, [each.said for each in one.bins], [each.right for each in one.bins], reach))
    counts = ", ".join(f"{each.low:g}: {each.results}" for each in one.bins)
    note = f"{one.results} results, error {one.error:.3f}, Brier {one.brier:.3f}; results in the bin from {counts}"
    return Panel(title, "probability that was said", "share that was right", series, note=note, y_limits=(0, 1))
