"""A second look at results: what is verified, in which order, and what is said where nobody knows places."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import oracles_calibration as oracle
from fixtures_found import small_engine
from fixtures_lightglue import lightglue_of_fakes
from superfeat.config import CALIBRATION
from superfeat.engine import Engine, Named
from superfeat.errors import SuperfeatError
from superfeat.features import Features
from superfeat.index.codebook import Codebook
from superfeat.index.index import Index
from superfeat.index.places import encode_places, word_regions
from superfeat.probability.apply import judge_ranking, meet_strangers
from superfeat.probability.comparing import origin_of
from superfeat.probability.model import Calibration, match_prior
from superfeat.probability.together import Together
from superfeat.rerank.order import RERANKS, Rerank
from superfeat.rerank.strangers import Null
from superfeat.storage.store import write_json
from superfeat.weights import Network

CODEBOOK = Codebook(np.random.default_rng(0).standard_normal((200, 64)).astype(np.float32))


@pytest.fixture
def engine(tmp_path: Path, tiny_network: Network) -> Engine:
    return small_engine(tmp_path, tiny_network)


def without_places(engine: Engine) -> Engine:
    """The same photos, as an index that does not say where words lie."""
    bare = Index.create(engine.index.path.parent / "bare", engine.index.codebook, facts=engine.index.facts)
    for name, meta in engine.index.meta(list(engine.index.names())).items():
        bare.add(name, engine.index.words_of(name), {key: value for key, value in meta.items() if key != "places"})
    return Engine(bare, workers=1)


@pytest.mark.parametrize("rerank", RERANKS)
def test_any_order_has_the_same_photos_and_scores(engine: Engine, rerank: Rerank) -> None:
    plain, other = engine.search(Named("a.png")), engine.search(Named("a.png"), rerank=rerank)
    assert {hit.name: hit.score for hit in plain} == {hit.name: hit.score for hit in other}
    assert all(hit.verified is not None and 0 <= hit.verified <= 1 for hit in other)
    assert (other.reordered is None) == (rerank == "off")
    if other.reordered is not None:
        moved = sum(a.name != b.name for a, b in zip(plain, other, strict=True))
        assert other.reordered[:3] == (rerank, moved, 0)


def placed_features(seed: int, count: int = 80) -> Features:
    """Features near words of their own, in places of their own."""
    rng = np.random.default_rng(seed)
    vectors = CODEBOOK.centroids[rng.choice(len(CODEBOOK.centroids), count, replace=False)]
    vectors = (vectors + 0.1 * rng.standard_normal(vectors.shape)).astype(np.float32)
    regions = np.concatenate((rng.random((count, 2)), rng.uniform(0.02, 0.1, (count, 2))), axis=1).astype(np.float32)
    ones = np.ones(count, np.float32)
    return Features("", vectors, ones, ones, np.arange(count, dtype=np.int32), regions, image_size=(640, 480))


def test_a_part_of_a_photo_is_verified_and_outlined(tmp_path: Path) -> None:
    index = Index.create(tmp_path / "index", CODEBOOK)
    for seed in range(6):
        features = placed_features(seed)
        words = index.query(features, 1)
        assert words.assigned is not None
        assert features.regions is not None
        places = encode_places(word_regions(features.regions, words.assigned[:, 0], words.words))
        index.add(str(seed), words, {"places": places, "size": [640, 480]})
    whole = placed_features(3)
    assert whole.regions is not None
    inside = whole.regions[:, 0] < 0.5
    left = whole.regions[inside] * np.asarray([2, 1, 2, 1], np.float32)  # the left half, as a photo of its own
    arrays: dict[str, Any] = {name: array[inside] for name, array in whole.arrays().items()}
    half = dataclasses.replace(whole, **{**arrays, "regions": left}, image_size=(320, 480))
    for rerank in RERANKS:
        first, *others = Engine(index).search(half, rerank=rerank)
        assert first.name == "3"
        assert first.verified is not None
        assert first.verified > 0.9
        assert first.transform is not None
        assert np.allclose(first.transform, [[0.5, 0.0, 0.0], [0.0, 1.0, 0.0]], atol=0.05)
        corners = np.asarray([(0.0, 0.0), (0.5, 0.0), (0.5, 0.5), (0.0, 0.5)])
        assert np.allclose(np.asarray(first.outline((0, 0, 1, 0.5))), corners, atol=0.05)
        assert first.region is not None
        assert first.region[0] + first.region[2] < 0.6
        assert all((hit.verified or 0) < 0.3 for hit in others)
        assert "verified" in repr(first)


@pytest.mark.parametrize("rerank", RERANKS)
def test_an_index_without_places_answers_as_before(engine: Engine, rerank: Rerank) -> None:
    bare = without_places(engine)
    found, plain = bare.search(Named("a.png"), rerank=rerank), engine.search(Named("a.png"))
    assert [(hit.name, hit.score) for hit in found] == [(hit.name, hit.score) for hit in plain]
    assert all(hit.verified is None and hit.transform is None and hit.region is None for hit in found)
    assert found.reordered is None or found.reordered.used == 0


def test_diffusion_needs_to_know_strangers_and_no_places(engine: Engine) -> None:
    bare = without_places(engine)
    assert bare.search(Named("a.png"), rerank="diffuse").reordered == ("diffuse", 0, 0, 0)
    known = Calibration(-1.0, 1.0, -0.1, Null(-4.0, 1.0, 20), origin_of(bare.index))
    write_json(bare.index.path / CALIBRATION, known.to_dict())
    found = bare.search(Named("a.png"), rerank="diffuse")
    assert found.reordered is not None
    assert found.reordered.used == 3
    assert {hit.name for hit in found} == {hit.name for hit in engine.search(Named("a.png"))}


def test_a_new_calibration_is_taken_at_once(engine: Engine) -> None:
    assert engine.search(Named("a.png"))[0].probability is None
    plain = Calibration(-1.0, 1.0, -0.1, Null(-4.0, 1.0, 20), origin_of(engine.index))
    write_json(engine.index.path / CALIBRATION, plain.to_dict())
    before = engine.search(Named("a.png"))[0].probability
    assert before is not None
    clues = dataclasses.replace(plain, weights=(1.0, 0.5, 0.5, 0.1, 0.2), plain=(-1.0, 1.0, -0.1), largest=50_000)
    write_json(engine.index.path / CALIBRATION, clues.to_dict())
    after = engine.search(Named("a.png"))[0].probability
    assert after is not None
    assert after != before
    assert without_places(engine).calibration is None
    (engine.index.path / CALIBRATION).unlink()
    assert engine.search(Named("a.png"))[0].probability is None


def test_results_are_judged_together_and_the_query_has_no_say(engine: Engine) -> None:
    """As `Calibration.probability` does it, with the prior of the collection; in the engine as in a ranking."""
    plain = Calibration(-1.0, 1.0, -0.1, Null(-4.0, 1.0, 20), origin_of(engine.index))
    clues = dataclasses.replace(plain, weights=(1.0, 0.5, 0.5, 0.1, 0.2), plain=(-1.0, 1.0, -0.1), largest=50_000)
    together = dataclasses.replace(clues, together=Together(-1.0, 0.9, 0.4, 3.0, -0.4))
    ranking, alone = judge_ranking(engine.index, "a.png", clues)
    strangers = meet_strangers(engine.index, clues)
    assert alone is not None
    own = np.log(alone) - np.log1p(-alone)
    others = np.asarray([name != "a.png" for name in ranking.names])
    prior = match_prior(strangers.linked, strangers.sample, len(engine.index))
    slow = oracle.judged_together(own.tolist(), np.flatnonzero(others).tolist(), prior, together.together or ())
    _, said = judge_ranking(engine.index, "a.png", together)
    assert said is not None
    np.testing.assert_allclose(said, np.asarray(slow), rtol=1e-6)
    write_json(engine.index.path / CALIBRATION, together.to_dict())
    for hit in engine.search(Named("a.png"), rerank="off"):
        assert hit.probability == pytest.approx(slow[ranking.names.index(hit.name)], rel=1e-6)


def test_a_calibration_with_clues_serves_an_index_without_places(engine: Engine) -> None:
    bare = without_places(engine)
    plain = Calibration(-1.0, 1.0, -0.1, Null(-4.0, 1.0, 20), origin_of(bare.index))
    clues = dataclasses.replace(plain, intercept=-7.0, weights=(1.0,) * 5, plain=(-1.0, 1.0, -0.1))
    said = []
    for one in (plain, clues):
        write_json(bare.index.path / CALIBRATION, one.to_dict())
        said.append([hit.probability for hit in bare.search(Named("a.png"))])
    assert said[0] == said[1]


def test_an_explanation_says_how_its_words_lie(engine: Engine, tmp_path: Path) -> None:
    why = engine.explain(Named("a.png"), "b.png")
    assert why.arrangement is not None
    facts = why.as_dict()["agreement"]
    assert facts is not None
    assert facts["verified"] == why.arrangement.verified
    assert len(why.arrangement.query) == len(why.arrangement.found) == len(why.words.words)
    why.save(tmp_path / "why.png")
    assert np.asarray(Image.open(tmp_path / "why.png")).std() > 0


def test_keypoints_of_other_kinds(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cv2")
    for _ in lightglue_of_fakes(monkeypatch):
        match = engine.match(Named("a.png"), "b.png", "aliked")
        assert match.inliers == len(match.query) > 8
        hits = engine.match_first(engine.search(Named("a.png"), top=2), kind="disk").hits
        assert [hit.matched for hit in hits] == [match.inliers] * 2


def test_keypoints_make_certain_and_are_found_once(engine: Engine, tmp_path: Path) -> None:
    pytest.importorskip("cv2")
    rng = np.random.default_rng(0)
    big = Image.fromarray(rng.integers(0, 256, (24, 32, 3), dtype=np.uint8)).resize(
        (320, 240), Image.Resampling.BICUBIC
    )
    big.save(tmp_path / "photos" / "big.png")
    engine.add("big.png", tmp_path / "photos" / "big.png")
    big.crop((20, 10, 310, 230)).save(tmp_path / "part.png")
    match = engine.match(tmp_path / "part.png", "big.png")
    assert match.certain
    assert not engine.match(Named("a.png"), "big.png").certain
    match.save(tmp_path / "match.png")
    answer = engine.match_first(engine.search(tmp_path / "part.png"))
    assert answer[0].name == "big.png"
    assert answer[0].certain
    assert all(hit.matched is not None for hit in answer)
    with pytest.raises(SuperfeatError, match="needs the photo"):
        engine.match_first(engine.search(engine.features(Named("a.png"))))
