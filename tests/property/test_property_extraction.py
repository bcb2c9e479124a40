"""Extraction over random orders, workers, scales and sizes: always the same bits, always what the definition says."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import oracles
from fixtures_recipe import absolute_error, noise, quick_network
from superfeat import ExtractConfig, Features, Network, extract
from superfeat.extraction.scaling import find_regions, resize
from superfeat.images import Photo, Skipped, normalise, scaled_size
from superfeat.nets.local import Local

MODEST = settings(deadline=None, max_examples=20)
CONFIG = ExtractConfig(features_per_image=20, scales=(2.0, 1.0, 0.5), attention="regions")
BAD = {"broken.png": b"no photo", "empty.jpg": b"", "cut.png": b"\x89PNG\r\n\x1a\n"}


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> list[Photo]:
    folder = tmp_path_factory.mktemp("photos")
    for number, size in enumerate([(24, 32), (40, 20), (17, 33), (32, 32), (1, 3), (48, 16)]):
        Image.fromarray(noise(*size, seed=number)).save(folder / f"{number}.png")
    for name, data in BAD.items():
        (folder / name).write_bytes(data)
    return [Photo(path, path.name) for path in sorted(folder.iterdir())]


def equal(a: Features, b: Features) -> bool:
    pairs = [(a.arrays()[key], b.arrays()[key]) for key in ("vectors", "strengths", "scales", "ids", "regions")]
    return a.name == b.name and all(x.tobytes() == y.tobytes() for x, y in pairs)


@pytest.fixture(scope="module")
def alone(photos: list[Photo], tiny_network: Network, tiny_how: Network) -> dict[str, dict[str, Features]]:
    """Each good photo, extracted by itself with one worker."""
    good = [photo for photo in photos if photo.name not in BAD]
    return {
        kind: {photo.name: next(iter(extract(network, [photo], CONFIG, workers=1))) for photo in good}
        for kind, network in (("fire", tiny_network), ("how", tiny_how))
    }


@pytest.mark.parametrize("kind", ["fire", "how"])
@MODEST
@given(data=st.data())
def test_the_same_bits_whatever_the_workers_and_the_order(
    kind: str,
    data: st.DataObject,
    photos: list[Photo],
    alone: dict[str, dict[str, Features]],
    tiny_network: Network,
    tiny_how: Network,
) -> None:
    chosen = data.draw(st.lists(st.sampled_from(photos), min_size=1, max_size=9, unique_by=lambda photo: photo.name))
    workers = data.draw(st.integers(1, 4))
    skipped: list[Skipped] = []
    network = tiny_network if kind == "fire" else tiny_how
    running = extract(network, chosen, CONFIG, workers=workers, on_skip=skipped.append)
    good = [photo.name for photo in chosen if photo.name not in BAD]
    found = list(running) if good else []
    assert [features.name for features in found] == good
    assert all(equal(features, alone[kind][features.name]) for features in found)
    if good:
        assert [one.name for one in skipped] == [photo.name for photo in chosen if photo.name in BAD]


@MODEST
@given(threads=st.integers(1, 3), workers=st.integers(1, 3))
def test_the_same_bits_whatever_torchs_threads(
    threads: int, workers: int, photos: list[Photo], alone: dict[str, dict[str, Features]], tiny_network: Network
) -> None:
    torch.set_num_threads(threads)
    try:
        good = [photo for photo in photos if photo.name not in BAD]
        assert all(equal(one, alone["fire"][one.name]) for one in extract(tiny_network, good, CONFIG, workers=workers))
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(1)


def select(
    strengths: list[np.ndarray], vectors: list[np.ndarray], scales: list[float], k: int
) -> tuple[np.ndarray, list[tuple[np.float32, int]]]:
    chosen = oracles.strongest([row.tolist() for row in strengths], k)
    rows = np.array([vectors[s][i] for s, i in chosen])
    return rows, [(np.float32(scales[s]), i) for s, i in chosen]


SCALES = st.lists(st.sampled_from([2.0, 1.414, 1.0, 0.9, 0.707, 0.5, 0.353, 0.25]), min_size=1, max_size=5, unique=True)


@MODEST
@given(scales=SCALES, k=st.integers(1, 50), size=st.tuples(st.integers(1, 40), st.integers(1, 40)))
def test_scales_and_selection_with_many_ties(
    scales: list[float], k: int, size: tuple[int, int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Equal strengths are taken in the order of scale, then ID; a scale without a pixel is left out."""
    network = quick_network()
    path = tmp_path_factory.mktemp("one") / "photo.png"
    Image.fromarray(noise(*size)).save(path)
    (found,) = extract(network, [path], ExtractConfig(features_per_image=k, scales=tuple(scales)), workers=2)
    used = [scale for scale in scales if min(scaled_size(*size, scale)) >= 1]
    if not used:
        assert len(found) == 0
        return
    image = torch.from_numpy(normalise(noise(*size), *network.normalisation)).unsqueeze(0)
    parts = [network.module(resize(image, scale, recompute=False)) for scale in used]
    rows, labels = select(
        [part.strengths[0].numpy() for part in parts], [part.vectors[0].numpy() for part in parts], used, k
    )
    np.testing.assert_array_equal(found.vectors, rows)
    assert list(zip(found.scales, found.ids.tolist(), strict=True)) == labels


@pytest.mark.parametrize("kind", ["fire", "how"])
@MODEST
@given(scales=SCALES, k=st.integers(1, 120))
def test_scales_and_selection_of_networks(
    kind: str, scales: list[float], k: int, photos: list[Photo], tiny_network: Network, tiny_how: Network
) -> None:
    network = tiny_network if kind == "fire" else tiny_how
    photo = next(photo for photo in photos if photo.name == "0.png")
    (found,) = extract(network, [photo], ExtractConfig(features_per_image=k, scales=tuple(scales)), workers=2)
    image = torch.from_numpy(normalise(noise(24, 32, seed=0), *network.normalisation)).unsqueeze(0)
    with torch.inference_mode():
        parts = [network.fast(resize(image, scale, recompute=kind == "how")) for scale in scales]
    strengths = [part.strengths[0].numpy() for part in parts]
    rows, labels = select(strengths, [part.vectors[0].numpy() for part in parts], scales, k)
    np.testing.assert_array_equal(found.vectors, rows)
    assert list(zip(found.scales, found.ids.tolist(), strict=True)) == labels
    top = max(row.max() for row in strengths) if kind == "how" else 1
    expected = np.sort(np.concatenate(strengths))[::-1][:k] / top
    np.testing.assert_allclose(found.strengths, expected, rtol=1e-6)


@pytest.mark.parametrize("recompute", [False, True])
@MODEST
@given(data=st.data())
def test_resizing_equals_the_oracle(recompute: bool, data: st.DataObject) -> None:
    size = data.draw(st.tuples(st.integers(4, 30), st.integers(4, 30)))
    scale = data.draw(st.sampled_from([2.0, 1.414, 1.0, 0.707, 0.5, 0.353, 0.25]))
    image = np.random.default_rng(data.draw(st.integers(0, 999))).standard_normal((3, *size)).astype(np.float32)
    found = resize(torch.from_numpy(image).unsqueeze(0), scale, recompute)[0]
    assert found.shape[1:] == scaled_size(*size, scale)
    assert absolute_error(found, oracles.bilinear(image.astype(np.float64), scale, recompute)) <= 1e-4


@MODEST
@given(size=st.tuples(st.integers(1, 6), st.integers(1, 6)), seed=st.integers(0, 999), peaked=st.booleans())
def test_regions_equal_the_oracle(size: tuple[int, int], seed: int, peaked: bool) -> None:
    rng = np.random.default_rng(seed)
    maps = rng.random((1, 4, *size)) ** (20 if peaked else 1) + 1e-12
    maps /= maps.sum(axis=(2, 3), keepdims=True)
    local = Local(torch.zeros(1, 4, 1), torch.zeros(1, 4), size, torch.from_numpy(maps.astype(np.float32)))
    expected = [oracles.region(one) for one in maps[0]]
    assert absolute_error(find_regions(local), expected) <= 1e-3
    places = find_regions(Local(torch.zeros(1, size[0] * size[1], 1), torch.zeros(1, size[0] * size[1]), size, None))
    single = np.eye(size[0] * size[1]).reshape(-1, *size)
    assert absolute_error(places, [oracles.region(one) for one in single]) <= 1e-6


def test_the_fixture_is_what_it_says(photos: list[Photo], alone: dict[str, dict[str, Features]]) -> None:
    assert {photo.name for photo in photos} == set(BAD) | set(alone["fire"])
    check: Callable[[Path], bool] = Path.is_file
    assert all(check(photo.path) for photo in photos)
