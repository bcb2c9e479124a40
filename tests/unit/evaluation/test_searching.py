"""One way to search a set: names that cannot be mixed up, whole rankings by number, ties, and all who use it agree."""

import collections
import dataclasses
from pathlib import Path

import numpy as np
import pytest

from fixtures_evaluate import CONFIG, draw, draw_many, tiny_network
from superfeat.config import IndexConfig, ValidationConfig
from superfeat.datasets.retrieval_set import Query, RetrievalSet
from superfeat.errors import DatasetError
from superfeat.evaluation import searching
from superfeat.evaluation.run import Evaluated, run_protocol
from superfeat.evaluation.searching import (
    add_images,
    distractor_names,
    names_in,
    own_names,
    renamed,
    search_set,
    stored_queries,
)
from superfeat.evaluation.stages import extract_set
from superfeat.extraction.extract import extract_to
from superfeat.extraction.folder import FeatureStore
from superfeat.features import Features
from superfeat.images import Photo
from superfeat.index.codebook import Codebook
from superfeat.index.index import Index
from superfeat.probability.comparing import Labelled, compare_sets, index_sets
from superfeat.rerank import look
from superfeat.rerank.look import SearchedWith, reorder_by_diffusion
from superfeat.rerank.strangers import hardly_strangers, measure_strangers, sample_images
from superfeat.training.validation import Score, validate

DIM, WORDS = 16, 8
CODEBOOK = Codebook(4 * np.random.default_rng(0).standard_normal((WORDS, DIM)).astype(np.float32))


def made(seed: int, name: str = "") -> Features:
    """Features around the words."""
    random = np.random.default_rng(seed)
    vectors = CODEBOOK.centroids[random.integers(0, WORDS, 6)] + random.standard_normal((6, DIM)).astype(np.float32)
    ones = np.ones(6, np.float32)
    return Features(name, vectors, ones, ones, np.arange(6, dtype=np.int32))


def photo(name: str, file: str | None = None) -> Photo:
    return Photo(Path(file or name), name)


@pytest.fixture
def index(tmp_path: Path) -> Index:
    """Five images; the second and the fourth are alike, and came into it in another order than that of their names."""
    found = Index.create(tmp_path / "index", CODEBOOK)
    order = [(3, 1), (0, 0), (1, 1), (4, 4), (2, 2)]
    collections.deque(add_images(found, ((f"{number} a", made(seed)) for number, seed in order)), maxlen=0)
    return found


NAMES = [f"{number} a" for number in range(5)]


# -- Names


def test_names_that_no_two_photos_share() -> None:
    photos = (photo("a", "x/a"), photo("a", "y/a"), photo("1 a", "z/a"), photo("query 0 a", "q/a"))
    boxed = dataclasses.replace(photos[1], box=(0.0, 0.0, 4.0, 4.0))
    test = RetrievalSet("t", photos, tuple(Query(one, (0,)) for one in (photo("a", "new/a"), photos[1], boxed)))
    names = own_names(test)
    assert names.database == ["0 a", "1 a", "2 1 a", "3 query 0 a"]
    assert names.queries == ["query 0 a", "1 a", "query 2 a"], "one that is in the database has its name there"
    assert list(names.photos(test).items()) == [
        *zip(names.database, photos, strict=True),
        ("query 0 a", test.queries[0].photo),
        ("query 2 a", boxed),
    ]
    every = [*names.database, *names.queries, *distractor_names(photos)]
    assert len(set(every)) == len(every) - 1, "the query that is in the database"


def test_photos_under_other_names() -> None:
    photos = [photo("a"), dataclasses.replace(photo("b"), box=(0.0, 1.0, 2.0, 3.0))]
    assert renamed(photos, ["x", "y"]) == [Photo(Path("a"), "x"), Photo(Path("b"), "y", (0.0, 1.0, 2.0, 3.0))]
    with pytest.raises(ValueError, match="shorter"):
        renamed(photos, ["x"])


def test_the_names_of_a_features_folder(tmp_path: Path) -> None:
    """Those of a run, or those of the set; a folder by plain names cannot hold two photos of one name."""
    network = tiny_network()
    photos = tuple(Photo(path, path.name) for path in draw_many(tmp_path / "db", 2, 0))
    boxed = dataclasses.replace(photos[0], box=(0.0, 0.0, 20.0, 20.0))
    test = RetrievalSet("t", photos, (Query(photos[1], (0,)), Query(boxed, (1,))))
    collections.deque(extract_set(network, test, tmp_path / "run", CONFIG, 1, "cpu"), maxlen=0)
    collections.deque(extract_to(tmp_path / "plain", network, list(photos), CONFIG.extract, workers=1), maxlen=0)
    assert names_in(FeatureStore(tmp_path / "run"), test) == own_names(test)
    plain = names_in(FeatureStore(tmp_path / "plain"), test)
    assert (plain.database, plain.queries) == (["00.png", "01.png"], ["01.png", "query 1 00.png"])
    asked = list(stored_queries(FeatureStore(tmp_path / "plain"), plain))
    assert [one and one.name for one in asked] == ["01.png", None], "there are no features of the box"
    same = dataclasses.replace(test, photos=(photos[0], dataclasses.replace(photos[1], name="00.png")))
    with pytest.raises(DatasetError, match=r"t has several photos of one name, so that .*plain cannot be used for it"):
        names_in(FeatureStore(tmp_path / "plain"), same)


# -- Rankings


def test_rankings_are_those_of_the_index_by_number(index: Index) -> None:
    queries = [made(seed) for seed in (2, 7)]
    for query, found in zip(queries, search_set(index, NAMES, queries), strict=True):
        assert found is not None
        ranking = index.search(query, None)
        assert dict(zip(found.numbers.tolist(), found.scores.tolist(), strict=True)) == {
            int(hit.name.split()[0]): hit.score for hit in ranking
        }
        assert found.scores.tolist() == sorted(ranking.scores.tolist(), reverse=True)


def test_equal_scores_stand_in_the_order_of_the_names(index: Index) -> None:
    for names in (NAMES, NAMES[::-1]):
        (found,) = search_set(index, names, [made(1)])
        assert found is not None
        assert [names[number] for number in found.numbers[:2]] == [name for name in names if name in ("1 a", "3 a")]
        assert found.scores[0] == found.scores[1] > found.scores[2]


def test_words_and_queries_without_features(index: Index) -> None:
    query = made(3)
    plain, none, words = search_set(index, NAMES, [query, None, index.query(query)])
    assert plain is not None
    assert none is None
    assert words is not None
    np.testing.assert_array_equal(plain.numbers, words.numbers)
    np.testing.assert_array_equal(plain.scores, words.scores)


def test_an_index_without_images(tmp_path: Path) -> None:
    (found,) = search_set(Index.create(tmp_path / "index", CODEBOOK), [], [made(0)])
    assert found is not None
    assert (len(found.numbers), len(found.scores)) == (0, 0)


# -- All who search a set find the same


def test_evaluation_validation_and_calibration_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same photos, words and settings: one ranking. Two photos have one name, two queries are in the database."""
    monkeypatch.setenv("SUPERFEAT_CACHE", str(tmp_path / "cache"))
    network = tiny_network()
    paths = draw_many(tmp_path / "db", 6, 0)
    photos = tuple(Photo(path, "same" if number < 2 else path.name) for number, path in enumerate(paths))
    boxed = dataclasses.replace(photos[2], box=(2.0, 2.0, 30.0, 30.0))
    outside = Photo(draw(tmp_path / "q.png", 1, 5), "q.png")
    queries = (Query(outside, (1, 4)), Query(photos[1], (0,), (1,)), Query(boxed, (3,)), Query(photos[5], (2, 3), (5,)))
    test = RetrievalSet("t", photos, queries)
    others = [Photo(path, path.name) for path in draw_many(tmp_path / "others", 6, 500)]
    config = dataclasses.replace(CONFIG, index=IndexConfig())
    *_, run = run_protocol(network, test, tmp_path / "run", config, codebook=others, workers=1)
    assert isinstance(run, Evaluated)
    settings = ValidationConfig(extract=config.extract, codebook=config.codebook, codebook_images=len(others))
    *steps, score = validate(network, [test], others, settings, tmp_path, 1)
    assert steps == list(range(1, len(others) + len(photos) + 3))
    assert isinstance(score, Score)
    assert score.map == pytest.approx(run.scores["grades"]["all"]["map"], abs=1e-4)
    assert (score.queries, score.images) == (4, 6)
    assert score.words_per_image == run.card["memory"]["words_per_image"]
    labelled = [Labelled(test, FeatureStore(tmp_path / "run" / "features"))]
    index = index_sets(tmp_path / "index", Codebook.open(tmp_path / "run" / "index" / "codebook"), labelled)
    compared = compare_sets(index, labelled)
    numbers, scores = (np.load(tmp_path / "run" / "rankings" / f"{name}.npy") for name in ("numbers", "scores"))
    for query in range(4):  # each is searched with one word per feature, then with several
        np.testing.assert_array_equal(compared.scores[2 * query + 1][numbers[query]], scores[query])
    assert (compared.labels == -1).sum(axis=1).tolist() == [0, 0, 1, 1, 0, 0, 1, 1], "itself"


def viewed(number: int) -> Features:
    """Photos of 40 things, three of each."""
    features = made(number % 40)
    noise = np.random.default_rng(1000 + number).standard_normal(features.vectors.shape).astype(np.float32)
    return dataclasses.replace(features, vectors=features.vectors + 0.5 * noise)


def test_diffusion_orders_the_first_anew_and_keeps_scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (look, searching):
        monkeypatch.setattr(module, "COMPARED", 100)
    index = Index.create(tmp_path / "many", CODEBOOK)
    names = [f"{number} a" for number in range(120)]
    collections.deque(add_images(index, ((name, viewed(number)) for number, name in enumerate(names))), maxlen=0)
    (plain,), (found,) = (list(search_set(index, names, [made(500)], diffused=diffused)) for diffused in (False, True))
    assert plain is not None
    assert found is not None
    assert found.numbers.tolist() != plain.numbers.tolist()
    assert found.numbers[100:].tolist() == plain.numbers[100:].tolist()
    assert dict(zip(found.numbers.tolist(), found.scores.tolist(), strict=True)) == dict(
        zip(plain.numbers.tolist(), plain.scores.tolist(), strict=True)
    )
    snapshot = index.snapshot()
    floor = hardly_strangers(measure_strangers(snapshot, sample_images(snapshot), None, index.config.search).null)
    hits = list(index.search(made(500), None))
    searched = SearchedWith(snapshot, index.query(made(500)), None, index.config.search)
    expected = [hit.name for hit in reorder_by_diffusion(searched, hits, floor)]
    assert [names[number] for number in found.numbers.tolist()] == expected
