"""From photos to features: order, names, skips, tiny photos, attention, and threads that end."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import oracles
from fixtures_recipe import absolute_error, noise
from superfeat import ExtractConfig, Features, FeatureStore, Network, extract, extract_to
from superfeat.errors import ImageError, StoreError, SuperfeatError
from superfeat.extraction.extract import as_photos, default_workers, extract_image
from superfeat.extraction.folder import photo_stamp
from superfeat.extraction.scaling import find_regions, resize
from superfeat.images import Photo, Skipped
from superfeat.nets.local import Local

FEW = ExtractConfig(features_per_image=12, scales=(1.414, 1.0, 0.5))


def same(a: Features, b: Features) -> bool:
    return a.name == b.name and all(np.array_equal(array, b.arrays()[key]) for key, array in a.arrays().items())


@pytest.fixture
def mixed_folder(photo_folder: Path) -> Path:
    """The photos, and three files that are none."""
    (photo_folder / "broken.jpg").write_bytes(b"no photo")
    (photo_folder / "empty.png").touch()
    (photo_folder / "z_gone.png").symlink_to(photo_folder / "nowhere")
    return photo_folder


BAD = ["broken.jpg", "empty.png", "z_gone.png"]
GOOD = ["a.png", "b.jpg", "c.png", "d.jpg", "e.bmp", "more/f.png"]


# --- what comes out ---------------------------------------------------------------------------------------------------


def test_one_features_per_photo_in_order(tiny_network: Network, photo_folder: Path) -> None:
    found = list(extract(tiny_network, photo_folder, FEW))
    assert [features.name for features in found] == GOOD
    for features in found:
        assert features.vectors.shape == (12, 6)
        assert features.vectors.dtype == features.strengths.dtype == features.scales.dtype == np.float32
        assert features.ids.dtype == np.int32
        assert (np.diff(features.strengths) <= 0).all()
        assert features.regions is None
        assert features.maps is None
    assert [features.image_size for features in found[:2]] == [(56, 40), (48, 64)]


def test_fewer_features_than_asked_for_are_all_kept(tiny_network: Network, photo_folder: Path) -> None:
    (found,) = extract(tiny_network, [photo_folder / "a.png"], ExtractConfig(scales=(1.0, 0.5)))
    assert len(found) == 2 * 8
    assert sorted(zip(found.scales, found.ids, strict=True)) == [
        (s, i) for s in (np.float32(0.5), np.float32(1)) for i in range(8)
    ]


@pytest.mark.parametrize(("each", "most"), [(1, 99), (3, 99), (4, 5), (10**6, 7)])
def test_the_strongest_of_each_scale(each: int, most: int, tiny_network: Network, photo_folder: Path) -> None:
    """Against plain loops over all features: the strongest `each` of a scale, then the strongest `most` of those."""
    scales = (1.0, 0.707, 0.5)
    (every,) = extract(tiny_network, [photo_folder / "a.png"], ExtractConfig(10**6, scales=scales))
    kept: list[int] = []
    for place in range(len(every)):  # strongest first
        own = [other for other in kept if every.scales[other] == every.scales[place]]
        if len(own) < each:
            kept.append(place)
    config = ExtractConfig(most, each, scales=scales)
    (found,) = extract(tiny_network, [photo_folder / "a.png"], config)
    assert found.vectors.tolist() == every.vectors[kept[:most]].tolist()
    assert found.scales.tolist() == every.scales[kept[:most]].tolist()


def test_names(tiny_network: Network, photo_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(photo_folder)
    photos: list[str | Path | Photo] = [Path("a.png"), "b.jpg", Photo(photo_folder / "c.png", "my name")]
    assert [features.name for features in extract(tiny_network, photos, FEW)] == ["a.png", "b.jpg", "my name"]
    assert [photo.name for photo in as_photos("*.png")] == ["a.png", "c.png"]
    assert as_photos(iter(["x"])) == [Photo(Path("x"), "x")]


def test_a_lazy_source_of_photos(tiny_network: Network, photo_folder: Path) -> None:
    source = (photo_folder / name for name in GOOD[:3])
    assert len(list(extract(tiny_network, source, FEW))) == 3


def test_nothing_in_nothing_out(tiny_network: Network, tmp_path: Path) -> None:
    assert list(extract(tiny_network, [], FEW)) == []
    assert list(extract(tiny_network, tmp_path, FEW)) == []


def test_the_settings_reach_the_reader(tiny_network: Network, tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(noise(40, 80)).save(tmp_path / "phone.png", exif=exif)
    photo = tmp_path / "phone.png"
    (upright,) = extract(tiny_network, [photo], FEW)
    (stored,) = extract(tiny_network, [photo], ExtractConfig(upright=False))
    (small,) = extract(tiny_network, [photo], ExtractConfig(max_side=20))
    (part,) = extract(tiny_network, [Photo(photo, "part", box=(10, 10, 40, 30))], FEW)
    assert [one.image_size for one in (upright, stored, small, part)] == [(40, 80), (80, 40), (10, 20), (30, 20)]


def test_how_gives_places_and_relative_strengths(tiny_how: Network, photo_folder: Path) -> None:
    (found,) = extract(tiny_how, [photo_folder / "a.png"], ExtractConfig(scales=(1.0,)))
    assert len(found) == 10 * 14, "40 x 56 pixels at stride 4"
    assert found.strengths[0] == 1
    assert sorted(found.ids) == list(range(140))


def test_a_network_without_whitening_gives_raw_features(tiny_network: Network, photo_folder: Path) -> None:
    from superfeat.training.whiten import without_whitening

    (found,) = extract(without_whitening(tiny_network), [photo_folder / "a.png"], FEW)
    assert found.vectors.shape == (12, 16)
    norms = np.sqrt((found.vectors.astype(np.float64) ** 2).sum(axis=1) + 1e-10)
    np.testing.assert_allclose(found.strengths, norms, rtol=1e-6)


@pytest.mark.parametrize("height", [1, 2, 3])
@pytest.mark.parametrize("width", [1, 2, 3])
def test_tiny_photos(height: int, width: int, tiny_network: Network, tiny_how: Network, tmp_path: Path) -> None:
    Image.fromarray(noise(height, width)).save(tmp_path / "tiny.png")
    for network in (tiny_network, tiny_how):
        for attention in ("none", "maps"):
            (found,) = extract(network, [tmp_path / "tiny.png"], ExtractConfig(attention=attention))
            assert len(found) > 0
            assert np.isfinite(found.vectors).all()
            assert np.isfinite(found.strengths).all()
            kept = {scale for scale in ExtractConfig().scales if int(height * scale) >= 1 and int(width * scale) >= 1}
            assert set(found.scales) == {np.float32(scale) for scale in kept}


@pytest.mark.parametrize("attention", ["none", "regions", "maps"])
def test_a_photo_too_small_for_every_scale_has_no_features(
    attention: Any, tiny_network: Network, tmp_path: Path
) -> None:
    Image.fromarray(noise(3, 3)).save(tmp_path / "tiny.png")
    (found,) = extract(tiny_network, [tmp_path / "tiny.png"], ExtractConfig(scales=(0.25,), attention=attention))
    assert found.vectors.shape == (0, 6)
    assert (found.regions is None) == (attention == "none")


def test_a_very_long_photo(tiny_network: Network, tmp_path: Path) -> None:
    Image.fromarray(noise(2, 700)).save(tmp_path / "long.png")
    (found,) = extract(tiny_network, [tmp_path / "long.png"], ExtractConfig(max_side=350, scales=(1.0, 0.5)))
    assert found.image_size == (350, 1)
    assert set(found.scales) == {np.float32(1)}


# --- attention --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["fire", "how"])
def test_maps_and_regions(kind: str, tiny_network: Network, tiny_how: Network, photo_folder: Path) -> None:
    network = tiny_network if kind == "fire" else tiny_how
    config = ExtractConfig(features_per_image=12, scales=(1.0, 0.5), attention="maps")
    (found,) = extract(network, [photo_folder / "a.png"], config)
    assert found.maps is not None
    assert found.regions is not None
    assert len(found.maps) == 12
    sizes = {np.float32(1.0): (10, 14), np.float32(0.5): (5, 7)}
    for attention, region, scale, one in zip(found.maps, found.regions, found.scales, found.ids, strict=True):
        assert attention.shape == sizes[scale]
        assert attention.sum() == pytest.approx(1, abs=1e-5)
        assert absolute_error(region, oracles.region(attention.astype(np.float64))) <= 1e-5
        if kind == "how":
            assert attention.flat[one] == 1


def test_attention_does_not_change_the_features(tiny_network: Network, photo_folder: Path) -> None:
    plain = list(extract(tiny_network, photo_folder, FEW))
    for attention in ("regions", "maps"):
        config = ExtractConfig(features_per_image=12, scales=FEW.scales, attention=attention)
        for found, expected in zip(extract(tiny_network, photo_folder, config), plain, strict=True):
            assert found.regions is not None
            assert (found.maps is not None) == (attention == "maps")
            np.testing.assert_array_equal(found.vectors, expected.vectors)


def test_regions_of_known_maps() -> None:
    maps = torch.zeros(1, 3, 2, 4)
    maps[0, 0, 0, 0] = 1  # one cell in a corner
    maps[0, 1] = 1 / 8  # everywhere
    maps[0, 2, 1] = 0.25  # the lower half
    local = Local(torch.zeros(1, 3, 1), torch.zeros(1, 3), (2, 4), maps)
    even = 1 / np.sqrt(12)
    expected = [[1 / 8, 1 / 4, even / 4, even / 2], [0.5, 0.5, even, even], [0.5, 0.75, even, even / 2]]
    assert absolute_error(find_regions(local), expected) <= 1e-6


def test_resizing_by_one_is_nothing() -> None:
    image = torch.rand(1, 3, 5, 7)
    assert resize(image, 1.0, recompute=False) is image


# --- photos that cannot be read ---------------------------------------------------------------------------------------


def test_skips_are_told(tiny_network: Network, mixed_folder: Path) -> None:
    told: list[Skipped] = []
    found = list(extract(tiny_network, mixed_folder, FEW, on_skip=told.append))
    assert [features.name for features in found] == GOOD
    assert [skipped.name for skipped in told] == BAD
    assert told[1].reason == "the file is empty"


def test_skips_are_warned_of(tiny_network: Network, mixed_folder: Path) -> None:
    with pytest.warns(UserWarning, match="skipped") as caught:
        found = list(extract(tiny_network, mixed_folder, FEW))
    assert len(found) == 6
    messages = [str(warning.message) for warning in caught]
    assert [message.split(":")[0] for message in messages] == [f"skipped {name}" for name in BAD]
    assert {Path(warning.filename).name for warning in caught} == {Path(__file__).name}, "the caller's line is named"


def test_skips_do_not_change_the_others(tiny_network: Network, mixed_folder: Path) -> None:
    good = list(extract(tiny_network, [Photo(mixed_folder / name, name) for name in GOOD], FEW))
    mixed = list(extract(tiny_network, mixed_folder, FEW, on_skip=lambda skipped: None))
    assert all(same(a, b) for a, b in zip(good, mixed, strict=True))


def test_nothing_readable(tiny_network: Network, mixed_folder: Path) -> None:
    photos = [mixed_folder / name for name in BAD]
    with pytest.raises(
        ImageError, match=r"none of the 3 photos could be read \(the first is .*broken\.jpg: not an image"
    ):
        list(extract(tiny_network, photos, FEW, on_skip=lambda skipped: None))


def test_a_box_off_the_photo_is_a_skip(tiny_network: Network, photo_folder: Path) -> None:
    photos = [Photo(photo_folder / "a.png", "off", box=(500, 500, 600, 600)), Photo(photo_folder / "a.png", "on")]
    told: list[Skipped] = []
    assert [one.name for one in extract(tiny_network, photos, FEW, on_skip=told.append)] == ["on"]
    assert "does not lie on the image" in told[0].reason


# --- threads ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def two_threads() -> Iterator[None]:
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


@pytest.mark.usefixtures("two_threads")
def test_torch_keeps_its_threads(tiny_network: Network, photo_folder: Path) -> None:
    list(extract(tiny_network, photo_folder, FEW, workers=2))
    assert torch.get_num_threads() == 2
    running = extract(tiny_network, photo_folder, FEW, workers=2)
    next(running)
    running.close()  # type: ignore[attr-defined]
    assert torch.get_num_threads() == 2


def test_a_closed_generator_ends_its_threads(tiny_network: Network, photo_folder: Path) -> None:
    before = set(threading.enumerate())
    running = extract(tiny_network, photo_folder, FEW, workers=3)
    next(running)
    assert len(set(threading.enumerate()) - before) > 0
    running.close()  # type: ignore[attr-defined]
    assert set(threading.enumerate()) == before


def test_an_error_inside_the_network_comes_out(tiny_network: Network, photo_folder: Path) -> None:
    class Failing(torch.nn.Module):
        recompute_scale = False

        def forward(self, images: torch.Tensor) -> Local:
            raise ArithmeticError("inside")

    before = set(threading.enumerate())
    network = Network(Failing(), tiny_network.config)  # type: ignore[arg-type]
    network.__dict__["fast"] = network.module
    with pytest.raises(ArithmeticError, match="inside"):
        list(extract(network, photo_folder, FEW))
    assert set(threading.enumerate()) == before


def test_the_number_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 1 <= default_workers() <= (os.cpu_count() or 1)
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 1000}.__getitem__)
    assert default_workers() == 1, "as far as memory allows"

    def unknown(name: str) -> int:
        raise ValueError(name)

    monkeypatch.setattr(os, "sysconf", unknown)
    assert 1 <= default_workers() <= 4


@pytest.mark.parametrize("device", ["cuda:77", "no such device"])
def test_a_device_that_is_not_there(device: str, tiny_network: Network, photo_folder: Path) -> None:
    with pytest.raises(SuperfeatError, match=f"device '{device}' cannot be used here"):
        list(extract(tiny_network, photo_folder, FEW, device=device))


# --- into a folder ----------------------------------------------------------------------------------------------------


def test_into_a_folder(tiny_network: Network, mixed_folder: Path, tmp_path: Path) -> None:
    outcomes = list(extract_to(tmp_path / "out", tiny_network, mixed_folder, FEW))
    assert [outcome.name for outcome in outcomes] == sorted(GOOD + BAD)
    assert [outcome.name for outcome in outcomes if isinstance(outcome, Skipped)] == BAD
    store = FeatureStore(tmp_path / "out")
    store.verify()
    assert [entry.name for entry in store.skipped] == BAD
    direct = extract(tiny_network, mixed_folder, FEW, on_skip=lambda skipped: None)
    assert all(same(a, b) for a, b in zip(store, direct, strict=True))
    assert store.manifest["network"]["digest"] == tiny_network.digest
    assert store.manifest["extract"]["scales"] == list(FEW.scales)
    assert store.manifest["complete"] is True
    assert store.entries[0].stamp == photo_stamp(mixed_folder / "a.png")


def test_what_is_there_is_not_redone(tiny_network: Network, mixed_folder: Path, tmp_path: Path) -> None:
    list(extract_to(tmp_path / "out", tiny_network, mixed_folder, FEW))
    before = {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()}
    assert list(extract_to(tmp_path / "out", tiny_network, mixed_folder, FEW)) == []
    assert {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()} == before


def test_new_and_mended_photos_are_added(tiny_network: Network, mixed_folder: Path, tmp_path: Path) -> None:
    list(extract_to(tmp_path / "out", tiny_network, mixed_folder, FEW))
    Image.fromarray(noise(20, 30)).save(mixed_folder / "broken.jpg")
    Image.fromarray(noise(20, 30)).save(mixed_folder / "new.png")
    added = [outcome.name for outcome in extract_to(tmp_path / "out", tiny_network, mixed_folder, FEW)]
    assert added == ["broken.jpg", "new.png"]
    store = FeatureStore(tmp_path / "out")
    store.verify()
    assert sorted(entry.name for entry in store.entries) == sorted([*GOOD, "broken.jpg", "new.png"])


def test_stopped_early_and_gone_on_with(tiny_network: Network, photo_folder: Path, tmp_path: Path) -> None:
    running = extract_to(tmp_path / "out", tiny_network, photo_folder, FEW)
    assert [next(running).name for _ in range(2)] == GOOD[:2]
    running.close()  # type: ignore[attr-defined]
    assert len(FeatureStore(tmp_path / "out")) == 2
    assert FeatureStore(tmp_path / "out").manifest["complete"] is False
    assert [outcome.name for outcome in extract_to(tmp_path / "out", tiny_network, photo_folder, FEW)] == GOOD[2:]
    list(extract_to(tmp_path / "once", tiny_network, photo_folder, FEW))
    for file in ("vectors.npy", "strengths.npy", "scales.npy", "ids.npy", "images.jsonl", "manifest.json"):
        assert (tmp_path / "out" / file).read_bytes() == (tmp_path / "once" / file).read_bytes(), file


def test_the_same_photo_given_twice(tiny_network: Network, photo_folder: Path, tmp_path: Path) -> None:
    photos = [photo_folder / name for name in ("a.png", "b.jpg", "a.png", "c.png")]
    list(extract_to(tmp_path / "out", tiny_network, photos, FEW))
    list(extract_to(tmp_path / "out", tiny_network, [photo_folder / "d.jpg"], FEW))
    store = FeatureStore(tmp_path / "out")
    store.verify()
    for expected in extract(tiny_network, [*photos, photo_folder / "d.jpg"], FEW):
        np.testing.assert_array_equal(store[expected.name].vectors, expected.vectors)


def test_regions_are_stored_and_maps_are_not(tiny_network: Network, photo_folder: Path, tmp_path: Path) -> None:
    config = ExtractConfig(features_per_image=5, attention="regions")
    list(extract_to(tmp_path / "out", tiny_network, photo_folder, config))
    for stored, direct in zip(FeatureStore(tmp_path / "out"), extract(tiny_network, photo_folder, config), strict=True):
        np.testing.assert_array_equal(np.asarray(stored.regions), np.asarray(direct.regions))
    with pytest.raises(SuperfeatError, match="too large to store"):
        list(extract_to(tmp_path / "maps", tiny_network, photo_folder, ExtractConfig(attention="maps")))
    assert not (tmp_path / "maps").exists()


def test_another_network_or_setting_is_refused(
    tiny_network: Network, tiny_how: Network, photo_folder: Path, tmp_path: Path
) -> None:
    list(extract_to(tmp_path / "out", tiny_network, photo_folder, FEW))
    with pytest.raises(StoreError, match=r"network\.digest"):
        list(extract_to(tmp_path / "out", tiny_how, photo_folder, FEW))
    with pytest.raises(StoreError, match=r"extract\.features_per_image was 12, not 11"):
        list(
            extract_to(
                tmp_path / "out", tiny_network, photo_folder, ExtractConfig(features_per_image=11, scales=FEW.scales)
            )
        )


def test_nothing_readable_into_a_folder(tiny_network: Network, mixed_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="none of the 2 photos"):
        list(extract_to(tmp_path / "out", tiny_network, [mixed_folder / name for name in BAD[:2]], FEW))
    assert len(FeatureStore(tmp_path / "out").skipped) == 2


def test_one_image_is_extracted_as_many_are(photo_folder: Path, tiny_network: Network) -> None:
    config = ExtractConfig(max_side=48, scales=(1.0, 0.5), attention="maps")
    for features in extract(tiny_network, photo_folder, config, workers=2):
        path = photo_folder / features.name
        for source in (path, path.read_bytes()):
            alone = extract_image(tiny_network, source, config, name=features.name, workers=1)
            for name, array in features.arrays().items():
                np.testing.assert_array_equal(alone.arrays()[name], array)
            assert (alone.name, alone.image_size, alone.network) == (
                features.name,
                features.image_size,
                features.network,
            )
            assert features.maps is not None
            assert alone.maps is not None
            for mine, theirs in zip(alone.maps, features.maps, strict=True):
                np.testing.assert_array_equal(mine, theirs)
    with pytest.raises(ImageError, match="not an image"):
        extract_image(tiny_network, b"no photo", config)
