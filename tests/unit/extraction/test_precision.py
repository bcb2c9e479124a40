"""int8 in the place of a network: made of the ranges that it brings, taken where it pays, mixed with float32."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fixtures_recipe import network_with_words, noise, save_noise
from superfeat.config import ExtractConfig
from superfeat.engine import Engine
from superfeat.errors import ConfigError, ImageError, MissingExtraError, SuperfeatError, WeightsError
from superfeat.extraction import kept, precision
from superfeat.extraction.extract import extract, extract_image, pool_to
from superfeat.extraction.kept import SWITCH, kept_path, known_ratio
from superfeat.extraction.precision import in_precision, int8_pays, possible
from superfeat.index.index import Index
from superfeat.index.make import index_photos
from superfeat.settings import as_dict, overlay
from superfeat.weights import Network, int8, load_network
from superfeat.weights.files import convert_network
from superfeat.weights.int8 import give_ranges
from superfeat.weights.ranges import RANGES_FILE, read_ranges

SETTINGS = {"max_side": 96, "scales": (1.0, 0.5)}
INT8 = ExtractConfig(max_side=96, scales=(1.0, 0.5), precision="int8")
FLOAT32 = ExtractConfig(max_side=96, scales=(1.0, 0.5))


@pytest.fixture(autouse=True)
def _cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SUPERFEAT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv(SWITCH)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return save_noise(tmp_path / "photos", 4)


@pytest.fixture
def folder(tmp_path: Path, photos: Path) -> Path:
    made = network_with_words(tmp_path / "network")
    give_ranges(made, sorted(photos.iterdir()))
    return made


@pytest.fixture
def network(folder: Path) -> Network:
    return load_network(folder)


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], list[int]]:
    """Says what share of the time int8 takes; the list grows whenever it is tried."""

    def say(ratio: float) -> list[int]:
        tried: list[int] = []

        def measure(plain: Path, small: Path) -> float:
            assert plain.is_file()
            assert small.is_file()
            tried.append(1)
            return ratio

        monkeypatch.setattr(precision, "_measure", measure)
        return tried

    return say


def test_float32_is_said_in_one_way() -> None:
    assert ExtractConfig(precision="float32") == ExtractConfig()
    assert "precision" not in as_dict(ExtractConfig(precision="float32"))
    assert overlay(ExtractConfig(), {"precision": "int8"}).precision == "int8"
    with pytest.raises(ConfigError, match="precision"):
        overlay(ExtractConfig(), {"precision": "int4"})


def test_features_of_int8_are_near_and_stand_for_the_network(network: Network, photos: Path) -> None:
    exact, near = (list(extract(network, photos, config)) for config in (FLOAT32, INT8))
    for one, other in zip(exact, near, strict=True):
        assert other.network == one.network == network.digest
        keys = [np.lexsort((features.ids, features.scales)) for features in (one, other)]
        first, second = one.vectors[keys[0]], other.vectors[keys[1]]
        cosine = (first * second).sum(1) / np.linalg.norm(first, axis=1) / np.linalg.norm(second, axis=1)
        assert cosine.min() > 0.9
        assert not np.array_equal(first, second)
    single = extract_image(network, sorted(photos.iterdir())[1], INT8)
    np.testing.assert_array_equal(single.vectors, near[1].vectors)


def test_a_file_and_float32_are_taken_as_they_are(network: Network, photos: Path, tmp_path: Path) -> None:
    assert in_precision(network, FLOAT32) is network
    small = in_precision(network, INT8)
    assert in_precision(small, INT8) is small
    pooled = [list(pool_to(tmp_path / name, network, photos, config)) for name, config in (("a", FLOAT32), ("b", INT8))]
    for one, other in zip(*pooled, strict=True):
        np.testing.assert_array_equal(one.vectors, other.vectors)


def test_it_is_made_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = in_precision(load_network(folder), INT8)
    file = kept_path(first.digest, "int8")
    before = file.read_bytes()

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("made again")

    with monkeypatch.context() as patch:
        patch.setattr(int8, "quantise_onnx", refuse)
        again = load_network(folder)
        assert in_precision(again, INT8) is in_precision(again, INT8)
    file.write_bytes(before[:1000])
    assert in_precision(load_network(folder), INT8).digest == first.digest
    assert file.read_bytes() == before, "the same on every machine"


def test_a_cache_that_cannot_be_written_costs_time_alone(
    network: Network, photos: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "full").write_bytes(b"")
    monkeypatch.setenv("SUPERFEAT_CACHE", str(tmp_path / "full" / "cache"))
    assert len(list(extract(network, photos, INT8))) == 4
    assert not int8_pays(network)


def test_without_ranges_it_says_what_to_do(folder: Path, photos: Path) -> None:
    (folder / RANGES_FILE).unlink()
    network = load_network(folder)
    with pytest.raises(SuperfeatError, match="superfeat weights ranges"):
        list(extract(network, photos, INT8))
    assert possible(INT8, network) == FLOAT32
    assert not int8_pays(network)


def test_where_it_cannot_be_made_float32_is_taken(
    folder: Path, photos: Path, tmp_path: Path, timed: Callable[[float], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The package that makes it is gone, and so is what was kept: nobody asked for int8, and nothing is refused."""
    timed(0.4)
    path = index_photos(photos, tmp_path / "index", weights=folder, settings=SETTINGS).path
    assert precision_of(path) == "int8"
    for file in kept_path("x").parent.glob("*.onnx"):
        file.unlink()
    monkeypatch.setitem(sys.modules, "onnx.helper", None)
    assert not int8_pays(load_network(folder))
    Image.fromarray(noise(72, 96, 7)).save(photos / "new.png")
    assert index_photos(photos, path).new == 1
    assert len(Engine.open(path).search(photos / "new.png"))
    with pytest.raises(MissingExtraError):
        list(extract(load_network(folder), photos, INT8))


# -- Ranges


def test_ranges_are_read_as_they_were_written(folder: Path, network: Network) -> None:
    ranges = read_ranges(folder / RANGES_FILE)
    assert ranges == network.ranges
    assert ranges.network == network.digest
    assert ranges.photos == 4
    assert (folder / RANGES_FILE).read_bytes() == ranges.as_bytes()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"version": 9}, "upgrade"),
        ({"format": "other"}, "does not hold"),
        ({"ranges": {}}, "does not hold"),
        ({"ranges": {"trunk/0": [2.0, 1.0]}}, "does not hold"),
        ({"ranges": {"trunk/0": [0.0, float("nan")]}}, "does not hold"),
        ({"ranges": {"trunk/0": [1.0]}}, "damaged"),
        ({"ranges": {"trunk/0": "ab"}}, "damaged"),
        ({"photos": "many"}, "damaged"),
        (None, "damaged"),
    ],
)
def test_damaged_ranges_are_refused(folder: Path, change: dict[str, object] | None, reason: str) -> None:
    path = folder / RANGES_FILE
    facts = json.loads(path.read_text())
    path.write_text("{" if change is None else json.dumps({**facts, **change}))
    with pytest.raises(WeightsError, match=reason) as caught:
        load_network(folder)
    assert "\n" not in str(caught.value)


def test_ranges_travel_with_the_network_and_stay_behind_when_it_changes(folder: Path, tmp_path: Path) -> None:
    assert convert_network(folder, tmp_path / "copy") == []
    assert load_network(tmp_path / "copy").ranges == load_network(folder).ranges
    notes = convert_network(folder, tmp_path / "half", half=True)
    assert [note for note in notes if note.startswith("ranges for int8 stay behind")]
    assert load_network(tmp_path / "half").ranges is None


def test_ranges_want_a_folder_and_photos(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(WeightsError, match="weights convert"):
        give_ranges(tmp_path, [])
    before = (folder / RANGES_FILE).read_bytes()
    with pytest.raises(ImageError, match="few dozen"):
        give_ranges(folder, [tmp_path / "none.jpg"])
    assert (folder / RANGES_FILE).read_bytes() == before


# -- Does it pay?


def test_it_is_tried_once_on_a_machine(
    network: Network, timed: Callable[[float], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = timed(0.4)
    assert known_ratio(network.digest) is None
    assert int8_pays(network)
    assert int8_pays(network)
    assert tried == [1]
    assert known_ratio(network.digest) == 0.4
    monkeypatch.setattr(kept, "_machine", lambda: "another")
    assert known_ratio(network.digest) is None
    tried = timed(0.9)
    assert not int8_pays(network)
    assert tried == [1]


def test_it_does_not_pay_where_it_fails(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> float:
        raise RuntimeError("a package of others")

    monkeypatch.setattr(precision, "_measure", fail)
    assert not int8_pays(network)
    monkeypatch.setenv(SWITCH, "torch")
    assert not int8_pays(network)


def test_both_are_really_timed(network: Network) -> None:
    int8_pays(network)
    ratio = known_ratio(network.digest)
    assert ratio is not None
    assert 0 < ratio < 100


def precision_of(path: Path) -> str | None:
    found: str | None = Index.open(path).facts["extract"].get("precision")
    return found


@pytest.mark.parametrize(
    ("ratio", "asked", "expected"),
    [
        (0.4, {}, "int8"),
        (0.9, {}, None),
        (0.4, {"profile": "large"}, "int8"),
        (0.4, {"profile": "paper"}, None),
        (0.4, {"settings": {**SETTINGS, "precision": "float32"}}, None),
        (0.9, {"settings": {**SETTINGS, "precision": "int8"}}, "int8"),
    ],
)
def test_a_new_index_takes_it_where_it_pays(
    folder: Path,
    photos: Path,
    tmp_path: Path,
    timed: Callable[[float], list[int]],
    ratio: float,
    asked: dict[str, object],
    expected: str | None,
) -> None:
    timed(ratio)
    made = index_photos(photos, tmp_path / "index", weights=folder, **{"settings": SETTINGS, **asked})  # type: ignore[arg-type]
    assert precision_of(made.path) == expected


def test_an_index_of_int8_goes_on_with_and_without_it(
    folder: Path,
    photos: Path,
    tmp_path: Path,
    timed: Callable[[float], list[int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its own settings, in int8 where that can be had; else, or if it is asked for, photos of float32 join them."""
    timed(0.4)
    path = index_photos(photos, tmp_path / "index", weights=folder, settings=SETTINGS).path
    Image.fromarray(noise(72, 96, 7)).save(photos / "new.png")
    assert index_photos(photos, path).new == 1
    query = photos / "new.png"
    network = load_network(folder)
    near, exact = (extract_image(network, query, config).vectors for config in (INT8, FLOAT32))
    assert not np.allclose(near, exact, atol=1e-3)
    np.testing.assert_allclose(Engine.open(path).features(query).vectors, near, atol=1e-4)
    monkeypatch.setenv(SWITCH, "torch")
    np.testing.assert_allclose(Engine.open(path).features(query).vectors, exact, atol=1e-4)
    Image.fromarray(noise(72, 96, 8)).save(photos / "newer.png")
    assert index_photos(photos, path).new == 1
    assert Engine.open(path).add("newest", photos / "newer.png").outcome == "new"
    monkeypatch.delenv(SWITCH)
    Image.fromarray(noise(72, 96, 9)).save(photos / "last.png")
    assert index_photos(photos, path, settings={"precision": "float32"}).new == 1
    assert precision_of(path) == "int8"
    with pytest.raises(SuperfeatError, match="max_side was 96"):
        index_photos(photos, path, settings={"max_side": 64})
