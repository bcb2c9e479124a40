"""The engine: photos, names and boxes as queries; where a match lies; what it keeps in memory; what it adds."""

import collections
import dataclasses
import itertools
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from fixtures_recipe import noise
from fixtures_service import calibrate
from superfeat.config import ExtractConfig
from superfeat.engine import Engine, Named, PhotoLike, photo_key, within
from superfeat.engine import engine as engine_module
from superfeat.errors import ImageError, SuperfeatError
from superfeat.extraction.extract import extract, extract_image
from superfeat.index.build import add_photos
from superfeat.index.codebook import train_codebook
from superfeat.index.index import Index
from superfeat.index.nearest import nearest
from superfeat.settings import as_dict
from superfeat.sources.listing import list_photos
from superfeat.storage.store import as_json
from superfeat.weights import Network, load_network, save_network

CONFIG = ExtractConfig(max_side=96, scales=(1.0, 0.5), attention="regions")


def draw(path: Path, seed: int) -> None:
    Image.fromarray(noise(72, 96, seed)).save(path)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(5):
        draw(folder / f"p{number}.png", number)
    return folder


@pytest.fixture
def engine(photos: Path, tmp_path: Path, tiny_network: Network) -> Engine:
    save_network(tiny_network, tmp_path / "network")
    features = list(extract(tiny_network, photos, CONFIG, workers=1))
    facts = as_json({"extract": as_dict(CONFIG), "weights": str(tmp_path / "network")})
    index = Index.create(tmp_path / "index", train_codebook(features, words=16), facts=facts)
    for _ in add_photos(index, tiny_network, list_photos([photos]).photos, CONFIG, workers=1):
        pass
    return Engine(index, workers=1)


class Counted:
    """A function that counts its calls by what `key` makes of their arguments."""

    def __init__(self, function: Callable[..., Any], key: Callable[..., Any] = lambda *_: None) -> None:
        self.calls: collections.Counter[Any] = collections.Counter()
        self._function, self._key = function, key

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        self.calls[self._key(*arguments)] += 1
        return self._function(*arguments, **options)


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> Counted:
    """How often each photo, by its bytes, was looked at."""
    counted = Counted(extract_image, lambda _, data, *__: data)
    monkeypatch.setattr("superfeat.extraction.extract.extract_image", counted)
    return counted


@pytest.fixture
def assigned(monkeypatch: pytest.MonkeyPatch) -> Counted:
    """How often features were assigned to words."""
    counted = Counted(nearest)
    monkeypatch.setattr("superfeat.index.codebook.nearest", counted)
    return counted


def test_a_student_searches_the_index_of_its_teacher(engine: Engine, tmp_path: Path, tiny_network: Network) -> None:
    """Whoever did not learn from the network of the index is refused; and only the teacher adds photos."""
    module = deepcopy(tiny_network.module)
    with torch.no_grad():
        next(module.parameters()).mul_(1.0001)
    for name, provenance in (("stranger", {}), ("student", {"teacher": tiny_network.digest})):
        save_network(Network(module, tiny_network.config, provenance), tmp_path / name)
    draw(tmp_path / "new.png", 2)  # as p2, in another file
    (tmp_path / "other.png").write_bytes((tmp_path / "new.png").read_bytes() + b"more")
    with pytest.raises(SuperfeatError, match="come from another network"):
        Engine(engine.index, weights=str(tmp_path / "stranger"), workers=1).search(tmp_path / "other.png")
    asking = Engine(engine.index, weights=str(tmp_path / "student"), workers=1)
    assert asking.search(tmp_path / "other.png").hits[0].name == "p2.png"
    with pytest.raises(SuperfeatError, match=r"can only search .*; add photos with its network"):
        asking.add("new.png", tmp_path / "new.png")
    assert asking.network.digest == tiny_network.digest != load_network(tmp_path / "student").digest


def test_one_photo_has_one_answer_whichever_way_it_is_given(engine: Engine, photos: Path, tmp_path: Path) -> None:
    shutil.copy(photos / "p2.png", tmp_path / "elsewhere.png")
    file = photos / "p2.png"
    for box in (None, (0, 0, 0.8, 1)):
        expected = engine.search(Named("p2.png"), top=3, box=box)
        assert len(expected.hits) == 3
        assert expected.itself == ("p2.png", engine.index.id("p2.png"), str(file.resolve()))
        assert "p2.png" not in [hit.name for hit in expected.hits]
        for query in (file, str(file), file.read_bytes(), tmp_path / "elsewhere.png"):
            assert engine.search(query, top=3, box=box) == expected


def test_a_warm_engine_has_its_network_and_answers_as_a_cold_one(engine: Engine, photos: Path, tmp_path: Path) -> None:
    cold = [(hit.name, hit.score) for hit in engine.search(photos / "p1.png")]
    warm = Engine(engine.index, workers=1)
    warm.warm_up()
    assert "network" in vars(warm._sight)
    assert [(hit.name, hit.score) for hit in warm.search(photos / "p1.png")] == cold
    empty = Index.create(tmp_path / "empty", engine.index.codebook, facts=engine.index.facts)
    Engine(empty, workers=1).warm_up()


def test_pixels_are_a_photo(engine: Engine, photos: Path, tmp_path: Path) -> None:
    draw(tmp_path / "new.png", 50)
    expected = engine.search(tmp_path / "new.png")
    with Image.open(tmp_path / "new.png") as image:
        pixels = np.asarray(image)
        kinds: list[PhotoLike] = [image, pixels, Image.fromarray(pixels).convert("RGBA"), in_pieces(pixels)]
    for photo in kinds:
        assert engine.search(photo) == expected
        assert engine.explain(photo, "p0.png").score == engine.explain(tmp_path / "new.png", "p0.png").score
        assert np.array_equal(engine.pixels(photo), pixels)


def in_pieces(pixels: np.ndarray) -> np.ndarray:
    """The same pixels, not in one piece."""
    return np.ascontiguousarray(pixels[:, ::-1])[:, ::-1]


def test_an_image_that_was_only_opened_is_its_file(engine: Engine, photos: Path) -> None:
    with Image.open(photos / "p2.png") as image:
        assert engine.search(image) == engine.search(Named("p2.png"))
        image.load()
        assert engine.search(image).itself is None


@pytest.mark.parametrize(
    "array",
    [np.zeros((4, 4, 3)), np.zeros((4, 4, 2), np.uint8), np.zeros((0, 4, 3), np.uint8), np.zeros(12, np.uint8)],
    ids=["float", "two channels", "empty", "flat"],
)
def test_an_array_that_is_no_photo(engine: Engine, array: np.ndarray) -> None:
    with pytest.raises(ImageError, match=r"is no photo: give \(height, width, 3\) of uint8"):
        engine.search(array)


def test_an_indexed_photo_is_asked_for_with_its_stored_words(engine: Engine, photos: Path, looked: Counted) -> None:
    stored = engine.index.search("p1.png", top=5)
    found = engine.search(photos / "p1.png", top=4)
    assert [(hit.name, hit.score, hit.id) for hit in found.hits] == list(stored)[1:]
    assert stored[0].name == "p1.png"
    assert stored[0].score == pytest.approx(1)
    assert found.features == 0
    assert not looked.calls


def test_an_indexed_photo_that_is_gone_is_still_asked_for_by_its_name(engine: Engine, photos: Path) -> None:
    before = engine.search(Named("p1.png"))
    (photos / "p1.png").unlink()
    assert engine.search(Named("p1.png")) == before
    with pytest.raises(ImageError, match="cannot read"):
        engine.search(Named("p1.png"), box=(0, 0, 0.5, 1))
    draw(photos / "p1.png", 40)
    assert engine.search(Named("p1.png")) == before
    with pytest.raises(ImageError, match="has changed since it was indexed"):
        engine.search(Named("p1.png"), box=(0, 0, 0.5, 1))
    assert engine.search(photos / "p1.png").itself is None


def test_copies_are_results_and_say_so(engine: Engine, photos: Path, tiny_network: Network) -> None:
    shutil.copy(photos / "p3.png", photos / "q.png")
    list(add_photos(engine.index, tiny_network, list_photos([photos]).photos, CONFIG, workers=1))
    for query, itself, copy in ((photos / "p3.png", "p3.png", "q.png"), (photos / "q.png", "q.png", "p3.png")):
        answer = engine.search(query, top=2)
        assert answer.itself is not None
        assert answer.itself.name == itself
        assert {hit.name: hit.copy_of for hit in answer.hits if hit.copy_of} == {copy: itself}
        assert answer.hits[0].name == copy
        assert answer.hits[0].score == pytest.approx(1)
    found = engine.search(photos / "p1.png").hits
    assert {hit.name: hit.copy_of for hit in found if hit.copy_of} == {"q.png": "p3.png"}


def test_an_older_index_knows_a_photo_by_its_file(engine: Engine, photos: Path) -> None:
    """One that notes no digests."""
    meta = {key: value for key, value in engine.index.meta(["p2.png"])["p2.png"].items() if key != "digest"}
    engine.index.add("p2.png", engine.index.words_of("p2.png"), meta)
    itself = engine.search(photos / "p2.png").itself
    assert itself is not None
    assert itself.name == "p2.png"
    assert engine.search((photos / "p2.png").read_bytes()).itself is None


def test_scores_are_those_of_the_index(engine: Engine, tmp_path: Path) -> None:
    draw(tmp_path / "new.png", 50)
    features = engine.features(tmp_path / "new.png")
    expected = engine.index.search(features, top=5)
    found = engine.search(tmp_path / "new.png", top=5)
    assert [(hit.name, hit.score, hit.id) for hit in found.hits] == list(expected)
    assert found.features == len(features)
    assert found.size == features.image_size
    assert found.itself is None


def test_a_full_box_is_no_box(engine: Engine, photos: Path) -> None:
    for query in (photos / "p3.png", Named("p3.png")):
        plain, boxed = engine.search(query, top=5), engine.search(query, top=5, box=(0, 0, 1, 1))
        assert plain.hits == boxed.hits


def test_a_box_asks_with_part_of_the_features(engine: Engine, photos: Path) -> None:
    whole = engine.features(photos / "p3.png")
    kept = within(whole, (0, 0, 0.6, 1))
    assert 0 < len(kept) < len(whole)
    assert kept.maps is not None
    assert kept.regions is not None
    for attention in kept.maps:
        columns = attention.sum(axis=0)
        edges = np.arange(len(columns)) / len(columns)
        inside = np.clip((0.6 - edges) * len(columns), 0, 1) @ columns
        assert inside >= 0.5
    assert engine.search(photos / "p3.png", box=(0, 0, 0.6, 1)).features == len(kept)


def test_a_box_extracts_nothing_again(engine: Engine, photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.features(photos / "p3.png")
    monkeypatch.setattr("superfeat.extraction.extract.extract_image", None)
    assert engine.search(photos / "p3.png", box=(0, 0, 0.7, 1)).hits


def test_only_the_last_photos_stay_in_memory(engine: Engine, photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "KEPT_PHOTOS", 2)
    engine = Engine(engine.index, workers=1)
    keys = [photo_key((photos / f"p{number}.png").read_bytes()) for number in range(4)]
    for number in range(4):
        engine.features(photos / f"p{number}.png")
    assert [engine.seen(key) is not None for key in keys] == [False, False, True, True]


def test_search_probability_and_explanation_look_at_an_upload_once(
    engine: Engine, tmp_path: Path, looked: Counted
) -> None:
    calibrate(engine.index)
    draw(tmp_path / "upload.png", 77)
    upload = (tmp_path / "upload.png").read_bytes()
    best = engine.search(upload).hits[0]
    assert best.probability is not None
    assert engine.explain(upload, best.name).score == pytest.approx(best.score, rel=1e-12)
    assert engine.search(tmp_path / "upload.png", box=(0, 0, 0.9, 1)).hits
    assert engine.explain(upload, best.name, box=(0, 0, 0.9, 1)).regions
    found = engine.path_of(best.name).read_bytes()
    assert looked.calls == {upload: 1, found: 1}


def test_many_who_ask_at_once_look_once(engine: Engine, photos: Path, looked: Counted) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(engine.features, [photos / f"p{number % 2}.png" for number in range(16)]))
    assert set(looked.calls.values()) == {1}
    assert {id(one) for one in found} == {id(found[0]), id(found[1])}


def test_a_photo_in_memory_does_not_wait_for_the_network(
    engine: Engine, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = engine.features(photos / "p1.png")
    entered, go = threading.Event(), threading.Event()

    def slow(*arguments: Any, **options: Any) -> Any:
        entered.set()
        assert go.wait(60)
        return extract_image(*arguments, **options)

    monkeypatch.setattr("superfeat.extraction.extract.extract_image", slow)
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(engine.features, photos / "p2.png")
        assert entered.wait(60)
        assert engine.features(photos / "p1.png") is first
        assert engine.search(photos / "p1.png").hits
        go.set()
        assert len(other.result(60)) > 0


def test_features_are_assigned_once_when_a_photo_is_added(engine: Engine, photos: Path, assigned: Counted) -> None:
    for number in range(3):
        draw(photos / f"new{number}.png", 20 + number)
        assert engine.add(f"new{number}.png", photos / f"new{number}.png").outcome == "new"
        assert assigned.calls.total() == number + 1
    draw(photos / "new0.png", 30)
    assert engine.add("new0.png", photos / "new0.png").outcome == "replaced"
    assert assigned.calls.total() == 4
    assert all(hit.region is not None for hit in engine.search(Named("new0.png"), top=8).hits if hit.score > 0)


def test_features_are_assigned_twice_in_an_explanation(engine: Engine, photos: Path, assigned: Counted) -> None:
    draw(photos / "new.png", 21)
    engine.search(photos / "new.png")
    assert assigned.calls.total() == 1
    engine.explain(photos / "new.png", "p4.png")
    assert assigned.calls.total() == 1 + 2
    engine.explain(Named("p1.png"), "p4.png")
    assert assigned.calls.total() == 1 + 2 + 2


def test_a_hit_says_where_the_match_lies(engine: Engine, photos: Path) -> None:
    for hit in engine.search(photos / "p0.png", top=5).hits:
        if hit.score > 0:
            assert hit.region is not None
            left, top, width, height = hit.region
            assert 0 <= left < left + width <= 1 + 1e-9
            assert 0 <= top < top + height <= 1 + 1e-9


def test_an_index_of_features_does_not_say_where(engine: Engine, tmp_path: Path) -> None:
    other = Index.create(tmp_path / "other", engine.index.codebook)
    features = dataclasses.replace(engine.features(Named("p0.png")), maps=None)
    other.add("one", features)
    (hit,) = Engine(other).search(features).hits
    assert (hit.region, hit.path) == (None, None)
    with pytest.raises(SuperfeatError, match="does not say which network"):
        _ = Engine(other).network
    with pytest.raises(SuperfeatError, match="does not know where one lies"):
        Engine(other).path_of("one")
    with pytest.raises(SuperfeatError, match="need their attention maps"):
        Engine(other).search(features, box=(0, 0, 0.5, 0.5))


def test_an_explanation_has_the_score_of_the_search(engine: Engine, photos: Path) -> None:
    draw(photos / "new.png", 21)
    asked: list[PhotoLike] = [photos / "new.png", Named("p1.png"), photos / "p1.png"]
    for query, box in itertools.product(asked, (None, (0, 0, 0.8, 1))):
        hit = next(hit for hit in engine.search(query, box=box).hits if hit.name == "p4.png")
        explanation = engine.explain(query, "p4.png", box=box)
        assert explanation.score == pytest.approx(hit.score, rel=1e-12)


def test_the_hit_that_a_photo_is(engine: Engine, photos: Path) -> None:
    calibrate(engine.index)
    hits = engine.search(Named("p1.png")).hits
    assert engine.hit_of(photos / "p1.png", "p4.png") == next(hit for hit in hits if hit.name == "p4.png")
    assert engine.hit_of(photos / "p1.png", "p1.png") is None
    assert engine.explain(photos / "p1.png", hits[0]).captions == (str(photos / "p1.png"), *hits[0][:4:3])


def test_a_photo_that_is_gone_or_no_photo(engine: Engine, photos: Path) -> None:
    with pytest.raises(ImageError, match="cannot read"):
        engine.search(photos / "nothing.png")
    with pytest.raises(ImageError, match="not an image"):
        engine.search(b"no photo")
    with pytest.raises(SuperfeatError, match="no image called nobody"):
        engine.search(Named("nobody"))
    with pytest.raises(SuperfeatError, match="outside of the photo"):
        engine.search(Named("p0.png"), box=(2, 2, 1, 1))


def test_nothing_in_a_box(engine: Engine) -> None:
    with pytest.raises(SuperfeatError, match="make it larger"):
        engine.search(Named("p0.png"), box=(0, 0, 0.001, 0.001))


def test_photos_are_added_and_replaced(engine: Engine, photos: Path) -> None:
    draw(photos / "new.png", 9)
    assert engine.add("new.png", photos / "new.png").outcome == "new"
    assert engine.add("new.png", photos / "new.png").outcome == "same"
    draw(photos / "new.png", 10)
    assert engine.add("new.png", photos / "new.png").outcome == "replaced"
    itself = engine.search(photos / "new.png").itself
    assert itself is not None
    assert itself.name == "new.png"
    (photos / "bad.png").write_bytes(b"nothing")
    with pytest.raises(ImageError, match=r"bad\.png"):
        engine.add("bad.png", photos / "bad.png")
    assert "bad.png" not in engine.index


def test_a_photo_is_named_by_its_file_too(engine: Engine, photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(photos.parent)
    for given in ("p3.png", "photos/p3.png", str(photos / "p3.png")):
        assert engine.name_of(given) == "p3.png"
    for other in ("elsewhere/p3.png", "p9.png", ""):
        with pytest.raises(SuperfeatError, match="has no image called"):
            engine.name_of(other)


def test_results_say_whose_file_is_gone(engine: Engine, photos: Path) -> None:
    assert not any(hit.gone or hit.copy_of for hit in engine.search(Named("p2.png")).hits)
    (photos / "p3.png").unlink()
    assert [hit.name for hit in engine.search(photos / "p2.png").hits if hit.gone] == ["p3.png"]
