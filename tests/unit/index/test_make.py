"""The main job as a library call: an index from photos, and what became of each."""

import inspect
from pathlib import Path

import pytest
from PIL import Image

from fixtures_recipe import noise
from superfeat import Codebook, Engine, ExtractConfig, Network, extract, extract_to, index_photos, save_network
from superfeat.cli.extract import extract as extract_command
from superfeat.config import DEFAULT_PROFILE
from superfeat.engine import Named
from superfeat.errors import SuperfeatError
from superfeat.extraction.folder import FeatureStore
from superfeat.index.make import Indexed, begin_indexing, extract_settings, index_features
from superfeat.settings import overlay

SMALL = {"max_side": 48, "scales": (1.0,), "features_per_image": 6}


@pytest.fixture
def weights(tiny_network: Network, tmp_path: Path) -> Path:
    save_network(tiny_network, tmp_path / "network")
    return tmp_path / "network"


def run(photos: Path, path: Path, weights: Path, **more: object) -> Indexed:
    return index_photos(photos, path, weights=weights, settings=SMALL, workers=1, **more)  # type: ignore[arg-type]


def counts(done: Indexed) -> tuple[int, int, int, int]:
    return done.new, done.replaced, done.same, len(done.dropped)


def test_a_new_index_learns_its_words(photo_folder: Path, weights: Path, tmp_path: Path) -> None:
    work = begin_indexing(photo_folder, tmp_path / "index", weights=weights, settings=SMALL, workers=1)
    events = list(work)
    stages = list(dict.fromkeys(event.stage for event in events))
    assert stages == ["extracting", "words", "indexing"]
    assert [event.done for event in events if event.stage == "indexing"] == [1, 2, 3, 4, 5, 6]
    done = work.result()
    assert counts(done) == (6, 0, 0, 0)
    assert len(done.open()) == 6
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "index",
        "network",
        "photos",
    ]  # nothing is left beside it


def test_the_index_answers(photo_folder: Path, weights: Path, tmp_path: Path) -> None:
    run(photo_folder, tmp_path / "index", weights)
    engine = Engine.open(tmp_path / "index")
    assert engine.index.search("a.png")[0][:2] == ("a.png", 1.0)
    assert engine.search(photo_folder / "a.png") == engine.search(Named("a.png"))
    assert engine.config == overlay(ExtractConfig.profile("fast"), {**SMALL, "attention": "regions"})


def test_again_changes_nothing_and_sync_drops_what_has_gone(photo_folder: Path, weights: Path, tmp_path: Path) -> None:
    run(photo_folder, tmp_path / "index", weights)
    assert counts(index_photos(photo_folder, tmp_path / "index", workers=1)) == (0, 0, 6, 0)
    (photo_folder / "a.png").unlink()
    Image.fromarray(noise(40, 40, 9)).save(photo_folder / "c.png")
    (photo_folder / "broken.png").write_bytes(b"nothing")
    done = index_photos(photo_folder, tmp_path / "index", sync=True, workers=1)
    assert counts(done) == (0, 1, 4, 1)
    assert [photo.name for photo in done.skipped] == ["broken.png"]


def test_a_codebook_that_is_given(photo_folder: Path, weights: Path, tiny_network: Network, tmp_path: Path) -> None:
    (first, *_) = extract(tiny_network, [photo_folder / "a.png"], ExtractConfig(max_side=48))
    words = Codebook(first.vectors[:4])
    done = run(photo_folder, tmp_path / "index", weights, codebook=words, kernel="real")
    assert done.open().codebook.digest == words.digest
    assert done.open().config.kernel == "real"
    words.save(tmp_path / "words")
    again = run(photo_folder, tmp_path / "index", weights, codebook=tmp_path / "words", kernel="real", shards=1)
    assert counts(again) == (0, 0, 6, 0)
    for other, told in (
        ({"codebook": Codebook(first.vectors[:3])}, "has another codebook"),
        ({"kernel": "binary"}, "has the kernel real"),
        ({"shards": 2}, "has 1 shard; `superfeat rebalance` makes that 2"),
    ):
        with pytest.raises(SuperfeatError, match=told):
            run(photo_folder, tmp_path / "index", weights, **other)


def test_from_features(photo_folder: Path, tiny_network: Network, tmp_path: Path) -> None:
    config = ExtractConfig(**SMALL)  # type: ignore[arg-type]
    assert len(list(extract_to(tmp_path / "features", tiny_network, photo_folder, config, workers=1))) == 6
    done = index_features(tmp_path / "features", tmp_path / "index", workers=1).result()
    assert counts(done) == (6, 0, 0, 0)
    assert set(done.open().names()) == FeatureStore(tmp_path / "features").names()


def test_library_and_command_line_have_one_default_profile() -> None:
    wanted = ExtractConfig.profile(DEFAULT_PROFILE)
    for function in (extract, extract_to):
        assert inspect.signature(function).parameters["config"].default == wanted
    assert extract_settings({}, None, {}) == overlay(wanted, {"attention": "regions"})
    (chosen,) = [one for one in extract_command.params if one.name == "profile"]
    assert chosen.default == DEFAULT_PROFILE


def test_no_photos_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(SuperfeatError, match="no photos in"):
        index_photos(tmp_path / "empty", tmp_path / "index")
    assert not (tmp_path / "index").exists()
