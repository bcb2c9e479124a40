"""Search over random collections: the plain loops of the definition, ties, threads, shards, and what was saved."""

import itertools
import tempfile
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from superfeat.config import IndexConfig, SearchConfig
from superfeat.features import ImageWords, Ranking
from superfeat.index.codebook import Codebook
from superfeat.index.index import Index, QueryLike
from superfeat.index.kernel import accumulate, aggregate, binarise, normalise_residuals, power_selectivity
from superfeat.index.names import Image
from superfeat.index.nearest import nearest, prepare
from superfeat.index.pairs import score_many, score_pairs
from superfeat.index.segments import Layout, build_segment
from superfeat.index.snapshot import Snapshot

MODEST = settings(deadline=None, max_examples=60)
ON_DISK = settings(deadline=None, max_examples=12)
DIMS = st.one_of(
    st.integers(1, 140), st.sampled_from([1, 7, 8, 9, 31, 32, 33, 63, 64, 65, 71, 72, 73, 127, 128, 129, 136])
)
SEEDS = st.integers(0, 2**32 - 1)
EXACT = 1e-10  # of scores from float64 sums
REAL = 1e-5  # of scores from float32 residuals


class Collection(NamedTuple):
    """Values are multiples of 1/4, so that residuals, and distances, have no rounding."""

    codebook: Codebook
    images: list[np.ndarray]
    query: np.ndarray
    binary: bool

    @property
    def layout(self) -> Layout:
        return Layout(self.codebook.words, self.codebook.dim, self.binary, self.codebook.digest)

    def words(self, vectors: np.ndarray, assignments: int = 1) -> ImageWords:
        words, sums = aggregate(vectors, self.codebook.assign(vectors, assignments), self.codebook.centroids)
        return ImageWords(words, binarise(sums) if self.binary else normalise_residuals(sums), self.codebook.digest)

    def snapshot(self, cuts: list[int] | None = None, dead: list[bool] | None = None) -> Snapshot:
        """One segment, or one for each part between the cuts."""
        contents = [self.words(vectors) for vectors in self.images]
        alive = ~np.asarray(dead or [False] * len(contents), np.bool_)
        edges = sorted({0, len(contents), *(cut for cut in cuts or [] if cut <= len(contents))})
        groups = [range(*pair) for pair in itertools.pairwise(edges)]
        segments = tuple(
            build_segment(
                self.layout,
                list(group),
                [Image(str(image), image, {}) for image in group],
                [(contents[image].words, contents[image].codes) for image in group],
            )
            for group in groups
        )
        return Snapshot(self.layout, segments, tuple(alive[list(group)] for group in groups))


@st.composite
def collections(draw: st.DrawFn, kernel: Literal["binary", "real", "both"] = "both", most: int = 8) -> Collection:
    """Few words or many, images without features, features and centroids that come twice."""
    dim, words, images = draw(DIMS), draw(st.integers(1, 24)), draw(st.integers(0, most))
    rng = np.random.default_rng(draw(SEEDS))
    reach = draw(st.sampled_from([1, 2, 8]))  # small: many ties

    def some(n: int) -> np.ndarray:
        return (rng.integers(-reach, reach + 1, (n, dim)) / 4).astype(np.float32)

    centroids = some(words)
    if draw(st.booleans()):
        centroids = centroids[rng.integers(0, words, words)]
    pool = some(30)
    found = [pool[rng.integers(0, 30, rng.integers(0, 13))] for _ in range(images)]
    twice = draw(st.booleans())
    if found and twice:  # the same image again
        found[-1] = found[0]
    binary = draw(st.booleans()) if kernel == "both" else kernel == "binary"
    return Collection(Codebook(centroids), found, pool[rng.integers(0, 30, rng.integers(0, 20))], binary)


CONFIGS = st.builds(
    SearchConfig,
    assignments=st.sampled_from([1, 2, 5, 40]),
    alpha=st.sampled_from([0.5, 1.0, 2.0, 2.5, 3.0, 4.0, 7.3]),
    threshold=st.sampled_from([-1.0, -0.31, 0.0, 0.27, 0.5, 1.0]),
    idf=st.booleans(),
)
CUTS = st.lists(st.integers(1, 7), max_size=4)
Seen = dict[int, list[int]] | dict[int, list[float]]


def seen(collection: Collection, vectors: np.ndarray, assignments: int = 1) -> Seen:
    return oracles.image_words(vectors, collection.codebook.centroids, assignments, collection.binary)


def expected_scores(
    collection: Collection, config: SearchConfig, images: list[int], table: list[float] | None = None
) -> dict[int, float]:
    stored = {image: seen(collection, collection.images[image]) for image in images}
    words = collection.codebook.words
    weights = oracles.idf(list(stored.values()), words) if config.idf else [1.0] * words
    query = seen(collection, collection.query, config.assignments)
    return {
        image: oracles.score(query, mine, collection.binary, config.alpha, config.threshold, weights, table)
        for image, mine in stored.items()
    }


def assert_ranking(found: Ranking, expected: dict[int, float], tolerance: float) -> None:
    """The scores are those of the loops; the order is that of the scores found, equal ones by id."""
    scores = dict(zip(found.ids.tolist(), found.scores.tolist(), strict=True))
    assert set(scores) == set(expected)
    for image, score in expected.items():
        assert abs(scores[image] - score) <= tolerance, (image, scores[image], score)
    assert found.ids.tolist() == oracles.ranking(scores)
    assert found.names == tuple(str(image) for image in found.ids)


def assert_same(ours: Ranking, theirs: Ranking) -> None:
    """To the last bit."""
    assert ours.ids.tolist() == theirs.ids.tolist()
    assert ours.scores.tobytes() == theirs.scores.tobytes()
    assert ours.names == theirs.names


# --- assignment and aggregation ---------------------------------------------------------------------------------------


@MODEST
@given(st.integers(0, 60), st.integers(1, 60), DIMS, st.integers(1, 70), SEEDS, st.booleans())
def test_the_nearest_words(n: int, words: int, dim: int, count: int, seed: int, grid: bool) -> None:
    rng = np.random.default_rng(seed)
    if grid:
        vectors, centroids = (rng.integers(-2, 3, (rows, dim)).astype(np.float32) for rows in (n, words))
    else:
        vectors, centroids = (rng.standard_normal((rows, dim)).astype(np.float32) for rows in (n, words))
    found = nearest(vectors, prepare(centroids), count)
    expected = oracles.nearest_words(vectors, centroids, count)
    np.testing.assert_array_equal(found, np.reshape(expected, (n, min(count, words))))
    for workers in (2, 3):
        np.testing.assert_array_equal(nearest(vectors, prepare(centroids), count, workers), found)


@MODEST
@given(collections(), st.integers(1, 6))
def test_the_words_and_codes_of_an_image(collection: Collection, assignments: int) -> None:
    found = collection.words(collection.query, assignments)
    expected = seen(collection, collection.query, assignments)
    dim = collection.codebook.dim
    assert found.words.tolist() == list(expected)
    if collection.binary:
        bits = np.unpackbits(found.codes, axis=1)
        np.testing.assert_array_equal(bits[:, :dim], np.reshape(list(expected.values()), (-1, dim)))
        assert not bits[:, dim:].any()
    else:
        np.testing.assert_allclose(found.codes, np.reshape(list(expected.values()), (-1, dim)), rtol=1e-5, atol=1e-6)


# --- scores -----------------------------------------------------------------------------------------------------------


@MODEST
@given(collections("binary"), CONFIGS, CUTS, st.data())
def test_binary_scores(collection: Collection, config: SearchConfig, cuts: list[int], data: st.DataObject) -> None:
    dead = data.draw(st.lists(st.booleans(), min_size=len(collection.images), max_size=len(collection.images)))
    living = [image for image, gone in enumerate(dead) if not gone]
    query = collection.words(collection.query, config.assignments)
    found = collection.snapshot(cuts, dead).search(query, config)
    assert_ranking(found, expected_scores(collection, config, living), EXACT)


@MODEST
@given(collections("real"), CONFIGS, CUTS)
def test_real_scores(collection: Collection, config: SearchConfig, cuts: list[int]) -> None:
    if config.threshold not in (-1.0, 0.0):  # a cosine can lie on the threshold, or to either side of it by rounding
        config = SearchConfig(config.assignments, config.alpha, 0.123456789, config.idf)
    if config.alpha < 1:  # steep at zero: it makes rounding large
        config = SearchConfig(config.assignments, 1.5, config.threshold, config.idf)
    query = collection.words(collection.query, config.assignments)
    found = collection.snapshot(cuts).search(query, config)
    assert_ranking(found, expected_scores(collection, config, list(range(len(collection.images)))), REAL)


@MODEST
@given(collections("binary"), st.booleans(), SEEDS)
def test_any_table(collection: Collection, idf: bool, seed: int) -> None:
    values = np.sort(np.random.default_rng(seed).uniform(-2, 5, collection.codebook.dim + 1))[::-1]
    config = SearchConfig(idf=idf)
    query = collection.words(collection.query, config.assignments)
    found = collection.snapshot([2]).search(query, config, table=values)
    images = list(range(len(collection.images)))
    assert_ranking(found, expected_scores(collection, config, images, values.tolist()), EXACT)


@MODEST
@given(collections("binary"), st.integers(1, 4), st.sampled_from([1, 5]))
def test_sums_are_exact(collection: Collection, alpha: int, assignments: int) -> None:
    dim = collection.codebook.dim
    query = collection.words(collection.query, assignments)
    selectivity = power_selectivity(dim, alpha, -1)
    mine = seen(collection, collection.query, assignments)
    for segment in collection.snapshot([3]).segments:
        codes = collection.layout.for_scan(query.codes)
        sums = accumulate(segment.postings, query.words, codes, selectivity)
        for number, image in enumerate(segment.images.tolist()):
            stored = seen(collection, collection.images[image])
            steps = [dim - 2 * oracles.hamming(code, stored[word]) for word, code in mine.items() if word in stored]
            total = sum(abs(step) ** alpha * (1 if step >= 0 else -1) for step in steps)
            assert int(sums[number]) * dim**alpha == total * int(selectivity.scale)
        assert not sums[len(segment) :].any()


@MODEST
@given(collections(), CONFIGS)
def test_images_with_each_other(collection: Collection, config: SearchConfig) -> None:
    images = [collection.words(vectors) for vectors in collection.images]
    snapshot = collection.snapshot()
    found = score_pairs(snapshot, images, config)
    assert found.shape == (len(images), len(images))
    small = Snapshot.in_memory(collection.layout, images)
    assert found.tobytes() == score_many(small, images, config).tobytes()
    for row, image in zip(found, images, strict=True):
        ranking = small.search(image, config)
        assert row[ranking.ids].tobytes() == ranking.scores.tobytes()


# --- limits -----------------------------------------------------------------------------------------------------------


@MODEST
@given(collections(), CONFIGS, CUTS, st.data())
def test_the_best_of_some(collection: Collection, config: SearchConfig, cuts: list[int], data: st.DataObject) -> None:
    count = len(collection.images)
    wanted = np.asarray(data.draw(st.lists(st.booleans(), min_size=count, max_size=count)), np.bool_)
    top = data.draw(st.sampled_from([0, 1, 2, count, count + 5]))
    images, query = collection.snapshot(cuts), collection.words(collection.query, config.assignments)
    everything = images.search(query, config)
    assert len(everything) == count
    only = [wanted[segment.images] for segment in images.segments]
    found = images.search(query, config, top=top, only=only)
    kept = [hit for hit in everything if wanted[hit.id]][:top]
    assert list(found) == kept


@MODEST
@given(collections(), CONFIGS, CUTS, CUTS)
def test_any_split_gives_the_same_bits(
    collection: Collection, config: SearchConfig, cuts: list[int], others: list[int]
) -> None:
    query = collection.words(collection.query, config.assignments)
    whole = collection.snapshot().search(query, config)
    for images in (collection.snapshot(cuts), collection.snapshot(others), collection.snapshot(list(range(1, 8)))):
        for workers in (1, 2, 3):
            assert_same(images.search(query, config, workers=workers), whole)


# --- on disk ----------------------------------------------------------------------------------------------------------


def filled(folder: Path, collection: Collection, images: list[int], default: SearchConfig) -> Index:
    kernel: Literal["binary", "real"] = "binary" if collection.binary else "real"
    index = Index.create(folder, collection.codebook, IndexConfig(kernel, default))
    list(index.add_many(((str(image), collection.images[image], None) for image in images), batch=100))
    return index


@ON_DISK
@given(collections(), CONFIGS, st.data())
def test_an_index_is_the_definition_however_it_came_to_be(
    collection: Collection, config: SearchConfig, data: st.DataObject
) -> None:
    """Added one after the other, saved and opened, compacted, or merged of two: the same bits."""
    count = len(collection.images)
    cut = data.draw(st.integers(0, count))
    query = collection.words(collection.query, config.assignments)
    expected = collection.snapshot().search(query, config)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        index = filled(folder / "whole", collection, list(range(count)), config)
        assert_same(index.search(collection.query, None), expected)
        assert_same(Index.open(index.path).search(collection.query, None), expected)
        index.compact()
        assert_same(index.search(collection.query, None), expected)
        first = filled(folder / "first", collection, list(range(cut)), config)
        second = filled(folder / "second", collection, list(range(cut, count)), config)
        assert first.merge(second) == count - cut
        for merged in (first, Index.open(first.path)):
            assert_same(merged.search(collection.query, None), expected)
            assert_same(merged.search(collection.query, None, config=config, workers=2), expected)
        assert list(first.verify())


@ON_DISK
@given(collections(most=6), CONFIGS, st.sampled_from([None, 0, 1, 3, 100]))
def test_many_searches_are_single_ones(collection: Collection, config: SearchConfig, top: int | None) -> None:
    queries: list[QueryLike] = [collection.query, *collection.images, collection.words(collection.query)]
    with tempfile.TemporaryDirectory() as name:
        index = filled(Path(name) / "index", collection, list(range(len(collection.images))), SearchConfig())
        single = [index.search(query, top, config=config, workers=1) for query in queries]
        for workers in (1, 2, 3):
            found = index.search_many(queries, top, config=config, workers=workers)
            assert len(found) == len(queries)
            for ours, theirs in zip(found, single, strict=True):
                assert_same(ours, theirs)


@ON_DISK
@given(collections(most=6), CONFIGS, st.data())
def test_named_images_only(collection: Collection, config: SearchConfig, data: st.DataObject) -> None:
    count = len(collection.images)
    names = data.draw(st.lists(st.sampled_from([str(i) for i in range(count)]), max_size=6)) if count else []
    with tempfile.TemporaryDirectory() as name:
        index = filled(Path(name) / "index", collection, list(range(count)), config)
        everything = {hit.name: hit.score for hit in index.search(collection.query, None)}
        found = index.search(collection.query, None, only=names)
        assert {hit.name: hit.score for hit in found} == {name: everything[name] for name in names}
        assert index.scores(collection.query, names).tolist() == [everything[name] for name in names]


# --- many images ------------------------------------------------------------------------------------------------------


def test_a_segment_with_every_id() -> None:
    """65536 images, each with one word; scores fall into few levels, so that most of the order is ties."""
    layout = Layout(3, 16, True, "digest")
    rng = np.random.default_rng(0)
    values = rng.choice([-1, 1], (1 << 16, 16)).astype(np.float32)
    codes, words = binarise(values), rng.integers(0, 3, 1 << 16).astype(np.int32)
    images = [Image(str(number), number, {}) for number in range(1 << 16)]
    contents = [(words[number : number + 1], codes[number : number + 1]) for number in range(1 << 16)]
    segment = build_segment(layout, range(1 << 16), images, contents)
    query = ImageWords(np.asarray([1], np.int32), codes[:1], "digest")
    found = Snapshot(layout, (segment,), (np.ones(1 << 16, np.bool_),)).search(query, SearchConfig(), top=500)
    distances = np.bitwise_count(codes ^ codes[0]).sum(axis=1, dtype=np.int64)
    scores = np.where((words == 1) & (distances <= 8), (8 - distances) ** 3 / 512, 0.0)
    expected = np.lexsort((np.arange(1 << 16), -scores))[:500]
    assert found.ids.tolist() == expected.tolist()
    np.testing.assert_allclose(found.scores, scores[expected], rtol=1e-14)
