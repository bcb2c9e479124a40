"""The images of an index at one moment: looked up, searched, limited, and what a query may not be."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import oracles
from superfeat.config import SearchConfig
from superfeat.errors import SuperfeatError
from superfeat.features import ImageWords
from superfeat.index.codebook import Codebook
from superfeat.index.index import Index
from superfeat.index.kernel import binarise, code_bytes
from superfeat.index.names import Image
from superfeat.index.segments import Layout, build_segment
from superfeat.index.snapshot import Snapshot

WORDS, DIM = 12, 20
LAYOUT = Layout(WORDS, DIM, True, "digest")
REAL = Layout(WORDS, DIM, False, "digest")
Contents = tuple[np.ndarray, np.ndarray]
EVERYTHING = SearchConfig(threshold=-1)


def contents(image: int, layout: Layout = LAYOUT) -> Contents:
    """Seeded words, some images with none, and codes."""
    rng = np.random.default_rng(image)
    words = np.flatnonzero(rng.random(WORDS) < (0 if image % 7 == 3 else 0.5)).astype(np.int32)
    values = rng.standard_normal((len(words), DIM)).astype(np.float32)
    return words, binarise(values) if layout.binary else values / 5


def query(image: int = 100, layout: Layout = LAYOUT) -> ImageWords:
    return ImageWords(*contents(image, layout), "digest")


def snapshot(
    groups: Sequence[Sequence[int]], dead: Sequence[int] = (), layout: Layout = LAYOUT, same: Sequence[int] = ()
) -> Snapshot:
    """A segment for each group of ids; images of `same` are all equal."""
    segments = tuple(
        build_segment(
            layout,
            ids,
            [Image(f"image {image}", image, {}) for image in ids],
            [contents(1 if image in same else image, layout) for image in ids],
        )
        for ids in groups
    )
    return Snapshot(layout, segments, tuple(~np.isin(np.asarray(ids), dead) for ids in groups))


# --- looking up -------------------------------------------------------------------------------------------------------


def test_ids_and_names() -> None:
    found = snapshot([[2, 5, 6], [9], [11, 30]], dead=[5, 30])
    assert len(found) == 4
    assert [image for image, _ in found.images()] == [2, 6, 9, 11]
    assert found.names([11, 2, 9]) == ["image 11", "image 2", "image 9"]
    assert found.names([]) == []


def test_where_an_image_is() -> None:
    found = snapshot([[2, 5, 6], [9], [11, 30]], dead=[5, 30])
    assert {image: found.locate(image) for image in range(32)} == {
        **dict.fromkeys(range(32)),
        2: (0, 0),
        6: (0, 2),
        9: (1, 0),
        11: (2, 0),
    }
    assert found.find([f"image {image}" for image in (2, 5, 9, 30, 31)]) == {"image 2": 2, "image 9": 9}


@pytest.mark.parametrize("groups", [[[2, 5, 6], [9], [11, 30]], [[2, 9, 30], [5], [6, 11]]])
@pytest.mark.parametrize("workers", [1, 3])
def test_words_of_many_are_those_of_each(groups: Sequence[Sequence[int]], workers: int) -> None:
    """In segments one after the other and interleaved, one asked for twice, some dead, some nowhere."""
    found, asked = snapshot(groups, dead=[5, 30]), [30, 11, 2, 9, 2, 99, 5, 6, 0]
    for image, words in zip(asked, found.words_of_many(asked, workers), strict=True):
        one = found.words_of(image)
        assert (words is None) == (one is None) == (image not in (2, 6, 9, 11))
        if words is not None:
            np.testing.assert_array_equal(words.words, contents(image)[0])
            np.testing.assert_array_equal(words.codes, contents(image)[1])
    assert found.words_of_many([]) == []


def test_of_two_images_of_a_name_the_living_one() -> None:
    parts = [build_segment(LAYOUT, [image], [Image("same", image, {})], [contents(image)]) for image in (3, 8)]
    for alive, expected in (((True, False), 3), ((False, True), 8), ((False, False), None)):
        found = Snapshot(LAYOUT, tuple(parts), tuple(np.asarray([one]) for one in alive))
        assert found.find(["same"]).get("same") == expected


def test_no_images_at_all() -> None:
    empty = Snapshot(LAYOUT, (), ())
    assert len(empty) == 0
    assert list(empty.images()) == []
    assert empty.locate(0) is None
    assert empty.find(["x"]) == {}
    assert len(empty.search(query(), SearchConfig())) == 0
    assert len(empty.search(query(), SearchConfig(idf=True), top=3)) == 0


def test_words_of_an_image() -> None:
    segment = snapshot([[2, 3, 6]]).segments[0]
    for number, image in enumerate((2, 3, 6)):
        words, codes = contents(image)
        np.testing.assert_array_equal(segment.words_of(number).words, words)
        np.testing.assert_array_equal(segment.words_of(number).codes, codes)
        assert segment.words_of(number).codebook == "digest"


# --- search -----------------------------------------------------------------------------------------------------------


def test_an_image_is_most_like_itself() -> None:
    found = snapshot([range(10)]).search(query(4), SearchConfig(), top=1)
    assert found.names == ("image 4",)
    assert found.ids.tolist() == [4]
    assert found.scores[0] == pytest.approx(1, abs=1e-12)


def test_all_or_the_best() -> None:
    images = snapshot([range(6), range(6, 20)])
    everything = images.search(query(), EVERYTHING)
    assert sorted(everything.ids.tolist()) == list(range(20))
    for top in (0, 1, 7, 20, 21, 1000):
        some = images.search(query(), EVERYTHING, top=top)
        assert some.ids.tolist() == everything.ids[:top].tolist()
        assert some.scores.tolist() == everything.scores[:top].tolist()
        assert some.names == everything.names[:top]


def test_equal_images_rank_by_id_across_segments() -> None:
    images = snapshot([[0, 3, 4], [5, 8], [9, 12]], same=[3, 5, 8, 12])
    found = images.search(query(1), SearchConfig())
    assert found.ids[:4].tolist() == [3, 5, 8, 12]
    assert len(set(found.scores[:4].tolist())) == 1
    assert images.search(query(1), SearchConfig(), top=3).ids.tolist() == [3, 5, 8]


@pytest.mark.parametrize("idf", [False, True])
def test_the_dead_are_not_found_and_do_not_count(idf: bool) -> None:
    config = dataclasses.replace(EVERYTHING, idf=idf)
    dead = [0, 5, 6, 19]
    with_dead = snapshot([range(8), range(8, 20)], dead).search(query(), config)
    without = snapshot([[i for i in range(20) if i not in dead]]).search(query(), config)
    assert with_dead.ids.tolist() == without.ids.tolist()
    assert with_dead.scores.tolist() == without.scores.tolist()


def test_only_some() -> None:
    images = snapshot([range(8), range(8, 20)], dead=[3])
    everything = images.search(query(), EVERYTHING)
    masks = [np.isin(np.arange(8), [2, 3, 7]), np.isin(np.arange(8, 20), [11])]
    found = images.search(query(), EVERYTHING, only=masks)
    expected = [(image, score) for _, score, image in everything if image in (2, 7, 11)]
    assert [(image, score) for _, score, image in found] == expected
    nobody = images.search(query(), EVERYTHING, only=[np.zeros(8, np.bool_), np.zeros(12, np.bool_)])
    assert len(nobody) == 0
    assert nobody.names == ()


def test_searching_changes_nothing() -> None:
    images, asked = snapshot([range(8), range(8, 20)], dead=[3]), query()
    before = [array.copy() for segment in images.segments for array in segment.postings]
    mine = asked.words.copy(), asked.codes.copy()
    images.search(asked, SearchConfig(), only=[np.ones(8, np.bool_), np.zeros(12, np.bool_)])
    images.search(asked, SearchConfig(idf=True))
    for array, old in zip([a for segment in images.segments for a in segment.postings], before, strict=True):
        np.testing.assert_array_equal(array, old)
    np.testing.assert_array_equal(asked.words, mine[0])
    np.testing.assert_array_equal(asked.codes, mine[1])
    assert images.alive[1].all()


def test_a_query_with_no_words() -> None:
    nothing = ImageWords(np.empty(0, np.int32), np.empty((0, code_bytes(DIM)), np.uint8), "digest")
    for config in (SearchConfig(), SearchConfig(idf=True)):
        found = snapshot([range(5)]).search(nothing, config)
        assert found.ids.tolist() == list(range(5))
        assert found.scores.tolist() == [0.0] * 5


def test_words_in_every_image_weigh_nothing() -> None:
    words, codes = np.arange(2, dtype=np.int32), binarise(np.ones((2, DIM), np.float32))
    images = [Image(str(number), number, {}) for number in range(3)]
    found = Snapshot(LAYOUT, (build_segment(LAYOUT, range(3), images, [(words, codes)] * 3),), (np.ones(3, np.bool_),))
    assert found.weights.words.tolist() == [0.0] * 2 + [1.0] * (WORDS - 2)
    ranking = found.search(ImageWords(words, codes, "digest"), SearchConfig(idf=True))
    assert ranking.scores.tolist() == [0.0] * 3


def test_weights_by_their_definition() -> None:
    ids = range(20)
    images = [{word: [0.0] for word in contents(i)[0].tolist()} for i in ids if i != 3]
    weights = snapshot([range(8), range(8, 20)], dead=[3]).weights
    np.testing.assert_allclose(weights.words, oracles.idf(images, WORDS), rtol=1e-12)


# --- what is refused --------------------------------------------------------------------------------------------------


def test_a_query_of_another_codebook() -> None:
    with pytest.raises(SuperfeatError, match="of another codebook"):
        snapshot([range(3)]).search(dataclasses.replace(query(), codebook="other"), SearchConfig())


@pytest.mark.parametrize("words", [[-1, 3], [3, WORDS], [3, 3], [4, 2]])
def test_words_that_there_cannot_be(words: list[int]) -> None:
    """Nothing checks them further down: they would be read from outside of the lists."""
    bad = ImageWords(np.asarray(words, np.int32), binarise(np.ones((2, DIM), np.float32)), "digest")
    with pytest.raises(SuperfeatError, match="words"):
        snapshot([range(3)]).search(bad, SearchConfig())


@pytest.mark.parametrize(
    "codes",
    [
        np.zeros((1, 8), np.uint8),
        np.zeros((3, 8), np.uint8),
        np.zeros((2, 16), np.uint8),
        np.zeros((2, 8), np.float32),
        np.zeros((2, 1), np.uint64),
        np.zeros(16, np.uint8),
        np.full((2, 8), 255, np.uint8),
    ],
)
def test_codes_that_there_cannot_be(codes: np.ndarray) -> None:
    bad = ImageWords(np.asarray([1, 5], np.int32), codes, "digest")
    with pytest.raises(SuperfeatError, match="codes"):
        snapshot([range(3)]).search(bad, SearchConfig())


def test_codes_of_the_other_kernel() -> None:
    with pytest.raises(SuperfeatError, match="codes"):
        snapshot([range(3)], layout=REAL).search(query(), SearchConfig())
    with pytest.raises(SuperfeatError, match="codes"):
        snapshot([range(3)]).search(query(layout=REAL), SearchConfig())


@pytest.mark.parametrize("table", [np.zeros(DIM), np.zeros(DIM + 2), np.full(DIM + 1, np.nan), np.zeros((1, DIM + 1))])
def test_tables_that_do_not_fit(table: np.ndarray) -> None:
    with pytest.raises(SuperfeatError, match=f"needs {DIM + 1} finite numbers"):
        snapshot([range(3)]).search(query(), SearchConfig(), table=table)


def test_a_table_for_the_real_kernel() -> None:
    with pytest.raises(SuperfeatError, match="binary kernel"):
        snapshot([range(3)], layout=REAL).search(query(layout=REAL), SearchConfig(), table=np.zeros(DIM + 1))


def test_no_score_exceeds_one(tmp_path: Path) -> None:
    """n / (sqrt(n) * sqrt(n)) is 1.0000000000000002 for some n; a table may say any score."""
    codebook = Codebook(np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32))
    index = Index.create(tmp_path / "index", codebook)
    for number in range(1, 40):
        index.add(str(number), codebook.centroids[:number] + 0.1)
    counts = [len(index.words_of(str(number))) for number in range(1, 40)]
    assert any(np.sqrt(count) * np.sqrt(count) < count for count in counts)
    for number in range(1, 40):
        (best,) = index.search(str(number), 1).scores.tolist()
        assert 1 - 1e-15 <= best <= 1
        table = np.full(65, 2.0)
        assert index.search(str(number), 1, table=table).scores[0] == pytest.approx(2)
