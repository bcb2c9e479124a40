"""A score taken apart and put together again: over random images, kernels and settings, against plain loops."""

import functools
import math
from typing import NamedTuple

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
import oracles_explain as oracle
from superfeat.config import SearchConfig
from superfeat.explain.attribution import (
    Compare,
    PairScores,
    Shares,
    WordScores,
    compare_binary,
    compare_real,
    feature_shares,
    group_pairs,
    overlaps,
    pair_scores,
    spread,
    word_scores,
)
from superfeat.explain.explain import score_words
from superfeat.features import ImageWords
from superfeat.index.codebook import Codebook
from superfeat.index.kernel import aggregate, binarise, normalise_residuals, power_selectivity
from superfeat.index.names import Image
from superfeat.index.segments import Layout, build_segment
from superfeat.index.snapshot import Snapshot

MODEST = settings(deadline=None, max_examples=80)
EXACT = 1e-9
CONFIGS = st.builds(
    SearchConfig,
    assignments=st.integers(1, 5),
    alpha=st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.0, 7.3]),
    threshold=st.sampled_from([-1.0, -0.31, 0.0, 0.27, 0.5, 1.0]),
    idf=st.booleans(),
)


class Collection(NamedTuple):
    """Some images in memory, and a query."""

    codebook: Codebook
    images: list[np.ndarray]
    query: np.ndarray
    binary: bool

    def words(self, vectors: np.ndarray, assignments: int = 1) -> ImageWords:
        words, sums = aggregate(vectors, self.codebook.assign(vectors, assignments), self.codebook.centroids)
        return ImageWords(words, binarise(sums) if self.binary else normalise_residuals(sums), self.codebook.digest)

    def compare(self, config: SearchConfig) -> Compare:
        if self.binary:
            selectivity = power_selectivity(self.codebook.dim, config.alpha, config.threshold)
            return functools.partial(compare_binary, selectivity=selectivity)
        return functools.partial(compare_real, alpha=config.alpha, threshold=config.threshold)

    def snapshot(self) -> Snapshot:
        layout = Layout(self.codebook.words, self.codebook.dim, self.binary, self.codebook.digest)
        contents = [self.words(vectors) for vectors in self.images]
        names = [Image(str(number), number, {}) for number in range(len(contents))]
        segment = build_segment(layout, range(len(names)), names, [(one.words, one.codes) for one in contents])
        return Snapshot(layout, (segment,), (np.ones(len(names), np.bool_),))


@st.composite
def collections(draw: st.DrawFn, most: int = 6) -> Collection:
    """Many features in few words; centroids that are features, so that residuals are zero; a query that is indexed."""
    dim, words = draw(st.sampled_from([1, 2, 7, 64, 128, 130])), draw(st.integers(1, 12))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    grid = draw(st.booleans())

    def some(n: int) -> np.ndarray:
        values = rng.integers(-2, 3, (n, dim)) / 4 if grid else rng.standard_normal((n, dim))
        return values.astype(np.float32)

    pool = some(24)
    centroids = pool[rng.integers(0, 24, words)] if draw(st.booleans()) else some(words)
    images = [pool[rng.integers(0, 24, rng.integers(0, 13))] for _ in range(draw(st.integers(1, most)))]
    query = images[0] if draw(st.booleans()) else pool[rng.integers(0, 24, rng.integers(0, 16))]
    return Collection(Codebook(centroids), images, query, draw(st.booleans()))


def attributed(
    collection: Collection, config: SearchConfig, image: int
) -> tuple[WordScores, Shares, Shares, PairScores]:
    """Everything of one image of the collection."""
    snapshot, centroids = collection.snapshot(), collection.codebook.centroids
    query, found = collection.words(collection.query, config.assignments), collection.words(collection.images[image])
    words = score_words(snapshot, query, found, config)

    def shares(vectors: np.ndarray, assignments: int, codes: np.ndarray) -> Shares:
        assigned = collection.codebook.assign(vectors, assignments)
        return feature_shares(vectors, assigned, centroids, words.words, codes)

    mine = shares(collection.query, config.assignments, query.codes[words.query])
    theirs = shares(collection.images[image], 1, found.codes[words.found])
    return words, mine, theirs, pair_scores(words.scores, mine, theirs)


def assert_sums(parts: np.ndarray, whole: float, size: float) -> None:
    """To nine digits of what was added up: where terms of both signs cancel, the sum itself has fewer."""
    assert abs(math.fsum(parts) - whole) <= EXACT * max(size, abs(whole))


@MODEST
@given(collections(), CONFIGS)
def test_all_parts_sum_to_the_score_of_a_search(collection: Collection, config: SearchConfig) -> None:
    ranking = collection.snapshot().search(collection.words(collection.query, config.assignments), config)
    for image, score in zip(ranking.ids.tolist(), ranking.scores.tolist(), strict=True):
        words, mine, theirs, pairs = attributed(collection, config, image)
        size = float(np.abs(words.scores).sum())
        assert_sums(words.scores, score, size)
        assert_sums(pairs.scores, score, size)
        for features, numbers, shares in (
            (collection.query, pairs.query, mine),
            (collection.images[image], pairs.found, theirs),
        ):
            assert_sums(np.bincount(numbers, pairs.scores, len(features)), score, size)
            np.testing.assert_allclose(np.bincount(shares.rows, shares.shares), np.ones(len(words.words)), atol=1e-10)
        if config.threshold >= 0:  # nothing cancels among the words: the score itself has nine digits
            assert_sums(pairs.scores, score, 0.0)


@MODEST
@given(collections(most=3), CONFIGS)
def test_words_shares_and_pairs_equal_the_loops(collection: Collection, config: SearchConfig) -> None:
    if not collection.binary:  # float32 codes: rounding must not decide on which side of a threshold a cosine lies
        config = SearchConfig(config.assignments, max(config.alpha, 1.0), -1.0, config.idf)
    exact, centroids = 1e-9 if collection.binary else 1e-4, collection.codebook.centroids
    stored = [oracles.image_words(one, centroids, 1, collection.binary) for one in collection.images]
    weights = oracles.idf(stored, len(centroids)) if config.idf else [1.0] * len(centroids)
    query = oracles.image_words(collection.query, centroids, config.assignments, collection.binary)
    for image, vectors in enumerate(collection.images):
        scores = oracle.word_scores(query, stored[image], collection.binary, config.alpha, config.threshold, weights)
        words, mine, theirs, pairs = attributed(collection, config, image)
        assert words.words.tolist() == list(scores)
        np.testing.assert_allclose(words.scores, list(scores.values()), atol=exact)
        shares = [
            oracle.feature_shares(collection.query, centroids, config.assignments, collection.binary),
            oracle.feature_shares(vectors, centroids, 1, collection.binary),
        ]
        for found, expected in zip((mine, theirs), shares, strict=True):
            for row, feature, share in zip(*found, strict=True):
                wanted = expected[int(words.words[row])][int(feature)]
                assert abs(share - wanted) <= exact * max(1.0, abs(wanted))
        products = oracle.pair_scores(scores, *shares)
        if collection.binary:
            assert set(zip(pairs.query.tolist(), pairs.found.tolist(), strict=True)) == set(products)
        for one, other, score in zip(*pairs, strict=True):
            assert abs(score - products.get((int(one), int(other)), 0.0)) <= exact * max(1.0, abs(score))
        assert (np.diff(pairs.scores) <= 0).all()


@MODEST
@given(st.integers(1, 12), st.integers(1, 6), st.floats(0, 1e-5), st.integers(0, 999), st.booleans())
def test_shares_stay_small_where_residuals_cancel(n: int, dim: int, noise: float, seed: int, binary: bool) -> None:
    """Features that lie opposite each other, but for a little."""
    rng = np.random.default_rng(seed)
    half = rng.standard_normal((n, dim))
    vectors = np.concatenate([half, -half + noise * rng.standard_normal((n, dim))]).astype(np.float32)
    centroids, assigned = np.zeros((1, dim), np.float32), np.zeros((2 * n, 1), np.int32)
    total = vectors.sum(axis=0, keepdims=True)
    codes = np.packbits(total > 0, axis=1) if binary else total
    found = feature_shares(vectors, assigned, centroids, np.zeros(1, np.int32), codes)
    assert np.abs(found.shares).max() <= 1000
    assert abs(math.fsum(found.shares) - 1) <= 1e-11
    pairs = pair_scores(np.ones(1), found, found)
    assert abs(math.fsum(pairs.scores) - 1) <= EXACT


# --- pixels -----------------------------------------------------------------------------------------------------------


@MODEST
@given(st.data())
def test_a_canvas_equals_the_loops_and_sums_to_the_weights(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), max_size=5))
    height, width = data.draw(st.tuples(st.integers(1, 9), st.integers(1, 9)))
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    maps = [rng.random(size).astype(np.float32) + np.float32(1e-6) for size in sizes]
    weights = rng.standard_normal(len(maps))
    canvas = spread(maps, weights, height, width)
    assert canvas.shape == (height, width)
    np.testing.assert_allclose(canvas, oracle.spread(maps, weights.tolist(), height, width), atol=1e-12)
    assert abs(canvas.sum() - weights.sum()) <= 1e-12 * max(1.0, float(np.abs(weights).sum()))


@MODEST
@given(st.integers(1, 60), st.integers(1, 60))
def test_every_cell_is_covered_once(cells: int, pixels: int) -> None:
    parts = overlaps(cells, pixels)
    np.testing.assert_allclose(parts.sum(axis=0), 1, rtol=1e-14)
    np.testing.assert_allclose(parts.sum(axis=1), cells / pixels, rtol=1e-13)


# --- groups -----------------------------------------------------------------------------------------------------------


@MODEST
@given(st.integers(0, 60), st.integers(0, 6), st.floats(0, 1), st.integers(0, 999))
def test_groups_are_compact_and_the_same_in_any_order(n: int, most: int, radius: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    query, found, scores = rng.random((n, 2)), rng.random((n, 2)), rng.standard_normal(n)
    groups = group_pairs(query, found, scores, radius, most)
    assert groups.shape == (n,)
    assert set(groups.tolist()) <= {-1, *range(most)}
    for group in range(int(groups.max(initial=-1)) + 1):
        inside = groups == group
        assert inside.any()
        for places in (query[inside], found[inside]):
            seeds = [np.linalg.norm(places - one, axis=1).max() <= radius + 1e-12 for one in places]
            assert any(seeds)
    order = rng.permutation(n)
    np.testing.assert_array_equal(group_pairs(query[order], found[order], scores[order], radius, most), groups[order])


@MODEST
@given(collections(most=2))
def test_images_without_words(collection: Collection) -> None:
    full = collection.words(collection.query)
    nothing = ImageWords(full.words[:0], full.codes[:0], full.codebook)
    for pair in ((nothing, full), (full, nothing), (nothing, nothing)):
        words = word_scores(*pair, collection.compare(SearchConfig()))
        assert [len(part) for part in words] == [0, 0, 0, 0]
        shares = feature_shares(
            collection.query,
            collection.codebook.assign(collection.query),
            collection.codebook.centroids,
            words.words,
            nothing.codes,
        )
        assert [len(part) for part in (*shares, *pair_scores(words.scores, shares, shares))] == [0] * 6
