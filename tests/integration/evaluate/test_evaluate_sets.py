"""A protocol run on odd sets: missing and unreadable photos, names that stand twice, equal scores."""

import contextlib
import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fixtures_evaluate import (
    CONFIG,
    GREY,
    PALETTE_CONFIG,
    POOLED,
    Case,
    draw,
    draw_many,
    finish,
    kept_rankings,
    paint,
    paint_random,
    painted_set,
    palette_network,
    rank,
    tiny_network,
    truncated,
)
from oracles_datasets import average_precision
from superfeat.config import EvaluateConfig, ExtractConfig, IndexConfig, SearchConfig
from superfeat.datasets.retrieval_set import Query, RetrievalSet
from superfeat.errors import DatasetError, StoreError, SuperfeatError
from superfeat.extraction.folder import FeatureStore
from superfeat.images import Photo
from superfeat.index.codebook import Codebook

# -- Missing and unreadable


def lacking(case: Case, tmp_path: Path, photos: Sequence[int] = (), queries: Sequence[int] = ()) -> RetrievalSet:
    """The set with some of its files elsewhere, where there is nothing."""
    gone = tmp_path / "gone"
    return dataclasses.replace(
        case.test,
        photos=tuple(
            dataclasses.replace(photo, where=gone / photo.name) if number in photos else photo
            for number, photo in enumerate(case.test.photos)
        ),
        queries=tuple(
            dataclasses.replace(query, photo=Photo(gone / query.photo.name, query.photo.name))
            if number in queries
            else query
            for number, query in enumerate(case.test.queries)
        ),
    )


def spoilt(case: Case, tmp_path: Path, photos: Sequence[int] = (), queries: Sequence[int] = ()) -> RetrievalSet:
    """The same with files that end in the middle."""
    test = lacking(case, tmp_path, photos, queries)
    for photo in (*test.photos, *(query.photo for query in test.queries)):
        if photo.path.parent == tmp_path / "gone":
            truncated(photo.path)
    return test


@pytest.mark.parametrize("config", [PALETTE_CONFIG, POOLED], ids=["asmk", "pooled"])
@pytest.mark.parametrize("what", ["missing", "unreadable"])
def test_a_photo_that_is_not_found(what: str, config: EvaluateConfig, case: Case, tmp_path: Path) -> None:
    """It is in no ranking but is still wanted; the others stand as they stood."""
    whole = finish(case.test, tmp_path / "whole", config, codebook=case.others)
    rankings = kept_rankings(tmp_path / "whole")
    test = (lacking if what == "missing" else spoilt)(case, tmp_path, photos=[1])
    found = finish(test, tmp_path / "run", config, codebook=case.others, allow_missing=True)
    left = [[number for number in ranking if number != 1] for ranking in rankings]
    assert kept_rankings(tmp_path / "run") == left
    aps = [query["ap"]["all"] for query in found.scores["queries"]]
    expected = [
        100 * average_precision(ranking, query.positives) for ranking, query in zip(left, test.queries, strict=True)
    ]
    assert aps == pytest.approx(expected, abs=1e-4)
    maps: Any = [run.scores["grades"]["all"]["map"] for run in (found, whole)]
    assert maps[0] < maps[1]
    assert found.card["dataset"]["missing"] == ["db1.png"]
    assert "1 could not be read: db1.png." in (tmp_path / "run" / "card.txt").read_text()


def test_missing_photos_are_refused_with_their_places(case: Case, tmp_path: Path) -> None:
    test = lacking(case, tmp_path, photos=[3], queries=[1])
    with pytest.raises(DatasetError, match=r"2 photos of painted are not there \(db3\.png, q1\.png") as refused:
        finish(test, tmp_path / "run", codebook=case.others)
    assert str(tmp_path / "gone" / "db3.png") in str(refused.value)
    assert "allow that they are missing" in str(refused.value)
    assert refused.value.arguments == ("allow_missing",)
    assert not (tmp_path / "run").exists()
    distractors = [*case.distractors, Photo(tmp_path / "gone" / "far.png", "far.png")]
    with pytest.raises(DatasetError, match=r"1 photos of painted are not there \(far\.png"):
        finish(case.test, tmp_path / "run", codebook=case.others, distractors=distractors)


def test_many_missing_photos_are_all_counted(case: Case, tmp_path: Path) -> None:
    more = tuple(Photo(tmp_path / "gone" / f"{n}.png", f"{n}.png") for n in range(15))
    test = dataclasses.replace(case.test, photos=case.test.photos + more)
    found = finish(test, tmp_path / "allowed", codebook=case.others, allow_missing=True)
    assert found.card["dataset"]["missing"] == [photo.name for photo in more]
    assert "15 could not be read: 0.png, 1.png, 2.png, 3.png, 4.png, …" in (tmp_path / "allowed/card.txt").read_text()
    with pytest.raises(DatasetError, match=r"15 photos of painted are not there \(0\.png, 1\.png, 2\.png, \.\.\."):
        finish(test, tmp_path / "run", codebook=case.others)


def test_an_unreadable_photo_is_refused_unless_allowed(case: Case, tmp_path: Path) -> None:
    with pytest.raises(SuperfeatError, match=r"db1\.png"):
        finish(spoilt(case, tmp_path, photos=[1]), tmp_path / "run", codebook=case.others)


@pytest.mark.parametrize("config", [PALETTE_CONFIG, POOLED], ids=["asmk", "pooled"])
def test_an_unreadable_query(config: EvaluateConfig, case: Case, tmp_path: Path) -> None:
    whole = finish(case.test, tmp_path / "whole", config, codebook=case.others)
    test = spoilt(case, tmp_path, queries=[0])
    with pytest.raises(DatasetError, match=r"1 photos of painted could not be used .*q0\.png.*allow that they"):
        finish(test, tmp_path / "run", config, codebook=case.others)
    found = finish(test, tmp_path / "run", config, codebook=case.others, allow_missing=True)
    assert found.scores["queries"] == whole.scores["queries"][1:]
    assert found.scores["grades"]["all"]["queries"] == found.card["dataset"]["queries"] == 1
    (name,) = found.card["dataset"]["missing"]
    assert "q0.png" in name


def test_a_missing_query_is_named_once(case: Case, tmp_path: Path) -> None:
    test = lacking(case, tmp_path, queries=[0])
    found = finish(test, tmp_path / "run", codebook=case.others, allow_missing=True)
    assert len(found.card["dataset"]["missing"]) == 1


@pytest.mark.parametrize("config", [PALETTE_CONFIG, POOLED], ids=["asmk", "pooled"])
def test_no_query_can_be_read(config: EvaluateConfig, case: Case, tmp_path: Path) -> None:
    test = spoilt(case, tmp_path, queries=[0, 1])
    for allowed in (False, True):
        with pytest.raises(
            DatasetError,
            match=r"2 photos of painted could not be|none of the 2 queries of painted has a photo",
        ):
            finish(test, tmp_path / "run", config, codebook=case.others, allow_missing=allowed)


@pytest.mark.parametrize("config", [PALETTE_CONFIG, POOLED], ids=["asmk", "pooled"])
def test_no_photo_of_the_database_can_be_read(config: EvaluateConfig, case: Case, tmp_path: Path) -> None:
    test = spoilt(case, tmp_path, photos=range(5))
    found = finish(test, tmp_path / "run", config, codebook=case.others, allow_missing=True)
    assert found.scores["grades"]["all"]["map"] == 0
    assert found.card["dataset"]["missing"] == [f"db{n}.png" for n in range(5)]


@pytest.mark.parametrize(
    ("what", "config"),
    [
        pytest.param("missing", PALETTE_CONFIG),
        ("missing", POOLED),
        ("unreadable", PALETTE_CONFIG),
        pytest.param("unreadable", POOLED),
    ],
    ids=["missing-asmk", "missing-pooled", "unreadable-asmk", "unreadable-pooled"],
)
def test_distractors_that_cannot_be_read_are_named_once(
    what: str, config: EvaluateConfig, case: Case, tmp_path: Path
) -> None:
    path = tmp_path / "far.png"
    if what == "unreadable":
        truncated(path)
    distractors = [*case.distractors, Photo(path, "far.png")]
    for _ in range(2):  # a run that is called again says the same
        found = finish(
            case.test, tmp_path / "run", config, codebook=case.others, distractors=distractors, allow_missing=True
        )
        (name,) = found.card["dataset"]["missing"]
        assert name.endswith("far.png")


def test_a_photo_that_is_brought_later(case: Case, tmp_path: Path) -> None:
    test = lacking(case, tmp_path, photos=[1])
    finish(test, tmp_path / "run", codebook=case.others, allow_missing=True)
    test.photos[1].path.parent.mkdir()
    shutil.copy(case.test.photos[1].path, test.photos[1].path)
    found = finish(test, tmp_path / "run", codebook=case.others, allow_missing=True)
    fresh = finish(test, tmp_path / "fresh", codebook=case.others)
    assert found.card["dataset"] == fresh.card["dataset"]
    assert found.scores["grades"] == fresh.scores["grades"]


def test_a_photo_that_has_changed_since(tmp_path: Path) -> None:
    """The same command after a photo was replaced says what the photo is now, or refuses."""
    test, others = painted_set(tmp_path / "set")
    finish(test, tmp_path / "run", codebook=others)
    paint_random(test.photos[1].path, 999)
    fresh = finish(test, tmp_path / "fresh", codebook=others)
    found = fresh
    with contextlib.suppress(StoreError):
        found = finish(test, tmp_path / "run", codebook=others)
    assert found.scores["grades"] == fresh.scores["grades"]


# -- Odd sets


def asked(path: Path, positives: Sequence[int], junk: Sequence[int] = (), box: Any = None) -> Query:
    return Query(Photo(path, path.name, box), tuple(positives), tuple(junk))


def test_names_that_stand_twice(case: Case, tmp_path: Path) -> None:
    """Two photos of one name (folders of the same content) are two photos; one path that stands twice is two too."""
    first, second, third = (photo.path for photo in case.test.photos[:3])
    photos = (Photo(first, "a"), Photo(second, "a"), Photo(third, "b"), Photo(third, "b"))
    query = case.test.queries[0].photo
    test = RetrievalSet("twice", photos, (Query(query, (1,)), Query(photos[3], (2,), (3,))))
    found = finish(test, tmp_path / "run", codebook=case.others)
    rankings = kept_rankings(tmp_path / "run")
    assert [sorted(ranking) for ranking in rankings] == [[0, 1, 2, 3]] * 2
    plain = dataclasses.replace(
        test, photos=tuple(dataclasses.replace(photo, name=str(number)) for number, photo in enumerate(photos))
    )
    finish(plain, tmp_path / "plain", codebook=case.others)
    assert kept_rankings(tmp_path / "plain") == rankings
    assert rankings[1][:2] == [2, 3]
    assert [hit["name"] for hit in found.scores["queries"][1]["hits"]][:2] == ["b", "b"]


@pytest.mark.parametrize("names", [("a", "a", "a#1"), ("query 0: q0.png", "b", "c"), ("distractor/0.png", "b", "c")])
def test_names_like_those_that_we_give(names: tuple[str, ...], case: Case, tmp_path: Path) -> None:
    photos = tuple(Photo(photo.path, name) for photo, name in zip(case.test.photos, names, strict=False))
    test = RetrievalSet("names", photos, (Query(case.test.queries[0].photo, (1,)),))
    plain = dataclasses.replace(test, photos=case.test.photos[:3])
    for one, run in ((test, "run"), (plain, "plain")):
        finish(one, tmp_path / run, codebook=case.others, distractors=case.distractors)
    assert kept_rankings(tmp_path / "run") == kept_rankings(tmp_path / "plain")


def test_a_query_that_is_in_the_database(case: Case, tmp_path: Path, written: list[str]) -> None:
    """It is extracted once, and with a box once more."""
    photos = case.test.photos[:3]
    whole = Query(photos[0], (1,), (0,))
    part = Query(dataclasses.replace(photos[0], box=(0.0, 0.0, 8.0, 8.0)), (1,), (0,))
    test = RetrievalSet("own", photos, (whole, part, Query(photos[1], (1, 2))))
    found = finish(test, tmp_path / "run", codebook=case.others)
    assert written == ["0 db0.png", "1 db1.png", "2 db2.png", "query 1 db0.png"]
    rankings = kept_rankings(tmp_path / "run")
    assert (rankings[0][0], rankings[2][0]) == (0, 1)  # each finds itself first
    hits = found.scores["queries"][0]["hits"]
    assert hits[0]["judgement"] == "junk"
    scores = np.load(tmp_path / "run" / "rankings" / "scores.npy")
    assert scores[0, 0] == pytest.approx(1)
    features = FeatureStore(tmp_path / "run" / "features")
    assert np.ptp(features["query 1 db0.png"].vectors, axis=0).max() == 0  # a quarter of the photo, of one colour
    assert np.ptp(features["0 db0.png"].vectors, axis=0).max() > 0
    assert found.scores["queries"][0]["positives"] == 1
    assert found.card["dataset"]["crop"].startswith("1 of 3 queries")


@pytest.mark.parametrize("config", [PALETTE_CONFIG, POOLED], ids=["asmk", "pooled"])
def test_equal_scores_stand_in_the_order_of_the_database(config: EvaluateConfig, case: Case, tmp_path: Path) -> None:
    photos = tuple(Photo(paint(tmp_path / f"{n}.png", GREY), f"{n}.png") for n in (3, 1, 2, 0))
    test = RetrievalSet("grey", photos, (asked(paint(tmp_path / "q.png", GREY), [3]),))
    found = finish(test, tmp_path / "run", config, codebook=case.others)
    assert kept_rankings(tmp_path / "run") == [[0, 1, 2, 3]]
    assert found.scores["grades"]["all"]["map"] == pytest.approx(100 * average_precision([0, 1, 2, 3], [3]), abs=1e-4)


@pytest.mark.parametrize("config", [PALETTE_CONFIG, POOLED], ids=["asmk", "pooled"])
def test_a_database_of_one_image(config: EvaluateConfig, case: Case, tmp_path: Path) -> None:
    test = RetrievalSet("one", case.test.photos[:1], (Query(case.test.queries[0].photo, (0,)),))
    found = finish(test, tmp_path / "run", config, codebook=case.others)
    assert found.scores["grades"]["all"]["map"] == 100
    assert kept_rankings(tmp_path / "run") == [[0]]
    alone = RetrievalSet("itself", case.test.photos[:1], (Query(case.test.photos[0], (0,)),))
    assert finish(alone, tmp_path / "alone", config, codebook=case.others).scores["grades"]["all"]["map"] == 100


def test_a_query_that_shares_no_word(tmp_path: Path) -> None:
    """All scores are 0, so that the order is that of the database."""
    words = Codebook(np.asarray([[1, 1, 1], [-1, -1, -1]], np.float32), palette_network().digest)
    photos = tuple(Photo(paint(tmp_path / f"{n}.png", (n, n, n)), f"{n}.png") for n in (40, 20, 30))
    test = RetrievalSet("dark", photos, (asked(paint(tmp_path / "q.png", (250, 250, 250)), [2]),))
    found = finish(test, tmp_path / "run", codebook=words)
    assert kept_rankings(tmp_path / "run") == [[0, 1, 2]]
    assert [hit["score"] for hit in found.scores["queries"][0]["hits"]] == [0, 0, 0]
    assert found.scores["grades"]["all"]["map"] == pytest.approx(100 * average_precision([0, 1, 2], [2]), abs=1e-4)


def test_a_photo_too_small_for_a_feature(case: Case, tmp_path: Path) -> None:
    """At scale 0.5 a photo of one pixel has none: it is found last, and a query without features finds nothing."""
    config = dataclasses.replace(PALETTE_CONFIG, extract=ExtractConfig(scales=(0.5,)))
    Image.new("RGB", (1, 1)).save(tmp_path / "dot.png")
    dot = Photo(tmp_path / "dot.png", "dot.png")
    test = RetrievalSet("dots", (dot, *case.test.photos[:2]), (Query(case.test.photos[0], (1,)), Query(dot, (2,))))
    found = finish(test, tmp_path / "run", config, codebook=case.others)
    rankings = kept_rankings(tmp_path / "run")
    assert rankings[0][0] == 1
    assert rankings[1] == [0, 1, 2]
    assert found.scores["queries"][1]["ap"]["all"] == pytest.approx(100 * average_precision([0, 1, 2], [2]), abs=1e-4)


def test_a_real_network_by_slow_loops(tmp_path: Path) -> None:
    """The kernel with other settings than those of the command line's test, pooled vectors beside it."""
    network = tiny_network()
    database = draw_many(tmp_path / "db", 6, 0)
    others = draw_many(tmp_path / "others", 6, 500)
    query = draw(tmp_path / "q.png", 2, 5)
    test = RetrievalSet("real", tuple(Photo(path, path.name) for path in database), (asked(query, [2, 4]),))
    search = SearchConfig(assignments=2, alpha=2.5, threshold=-0.2)
    asmk = dataclasses.replace(CONFIG, index=IndexConfig(search=search))
    pooled = dataclasses.replace(CONFIG, method="pooled")
    for config, words in ((asmk, others), (pooled, [])):
        run = tmp_path / config.method
        photos = [Photo(path, path.name) for path in words]
        found = finish(test, run, config, network=network, codebook=photos)
        (ranking,) = rank(network, config, database, [(query, None)], words)
        assert kept_rankings(run) == [ranking]
        assert found.scores["grades"]["all"]["map"] == pytest.approx(100 * average_precision(ranking, [2, 4]), abs=1e-4)
