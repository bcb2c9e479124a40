"""The analyses against plain loops, on networks and on made-up features."""

import dataclasses
import math
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import hypothesis.extra.numpy as arrays
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor

import oracles_analyses as oracle
from fixtures_recipe import noise, recipe_network
from superfeat import Codebook, Features, Network, extract
from superfeat.config import ExtractConfig, LitConfig, NetworkConfig, TrunkConfig
from superfeat.errors import ImageError, SuperfeatError
from superfeat.extraction.scaling import resize
from superfeat.images import Skipped, normalise, read_image
from superfeat.nets.local import Local
from superfeat.nets.losses import attention_correlation
from superfeat.sources.listing import list_photos
from superfeat.studies import analyses as ours
from superfeat.studies.analyses import Attention, Run
from superfeat.work import Work

CONFIG = ExtractConfig(max_side=48, scales=(1.414, 1.0, 0.5))
IDS = [5, 0, 7]
values = st.floats(-4, 4, width=32)


def pixels_of(network: Network, path: Path, config: ExtractConfig = CONFIG) -> Tensor:
    """A photo as the network's plain module takes it."""
    pixels = read_image(path, max_side=config.max_side)
    return torch.from_numpy(normalise(pixels, *network.normalisation)).unsqueeze(0)


def locals_of(network: Network, folder: Path) -> list[Local]:
    """What the plain module gives for each photo at scale 1."""
    with torch.inference_mode():
        return [network.module(pixels_of(network, photo.path)) for photo in list_photos([folder]).photos]


def maps_of(network: Network, folder: Path) -> list[np.ndarray[Any, Any]]:
    return [local.maps[0].numpy() for local in locals_of(network, folder) if local.maps is not None]


def made_up(vectors: np.ndarray[Any, Any], scales: Sequence[float] = (), network: str | None = None) -> Features:
    n = len(vectors)
    steps = np.asarray(scales or [1.0] * n, np.float32)
    strengths = np.arange(n, 0, -1).astype(np.float32)
    return Features("made up", vectors, strengths, steps, np.arange(n, dtype=np.int32), network=network)


def close(found: object, expected: object, tolerance: float = 1e-4) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=tolerance, atol=tolerance)


# --- attention --------------------------------------------------------------------------------------------------------


def test_attention_of_ids_is_what_the_network_gives(tiny_network: Network, photo_folder: Path) -> None:
    found = list(ours.attention_of_ids(tiny_network, photo_folder, IDS, CONFIG))
    assert [one.name for one in found] == [photo.name for photo in list_photos([photo_folder]).photos]
    for one, local in zip(found, locals_of(tiny_network, photo_folder), strict=True):
        assert local.maps is not None
        assert one.ids == tuple(IDS)
        close(one.maps, local.maps[0, IDS])
        close(one.strengths, local.strengths[0, IDS])
        close(one.vectors, local.vectors[0, IDS])
        close(one.maps.sum(axis=(1, 2)), np.ones(3))
        assert one.regions.shape == (3, 4)


def test_attention_comes_photo_by_photo(tiny_network: Network, photo_folder: Path) -> None:
    """The first map is there before the last photo has been read."""
    (photo_folder / "more" / "f.png").write_bytes(b"no photo")
    skipped: list[Skipped] = []
    stream = ours.attention_of_ids(tiny_network, photo_folder, [1], CONFIG, run=Run(1, on_skip=skipped.append))
    assert isinstance(next(stream), Attention)
    assert skipped == []
    assert len(list(stream)) == 4
    assert [one.name for one in skipped] == ["more/f.png"]


def test_attention_over_scales(tiny_network: Network, photo_folder: Path) -> None:
    found = ours.attention_over_scales(tiny_network, photo_folder / "b.jpg", 3, CONFIG)
    assert [one.scale for one in found] == list(CONFIG.scales)
    image = pixels_of(tiny_network, photo_folder / "b.jpg")
    for one in found:
        with torch.inference_mode():
            local = tiny_network.module(resize(image, one.scale, recompute=False))
        assert local.maps is not None
        close(one.map, local.maps[0, 3], 1e-3)
        close(one.strength, local.strengths[0, 3], 1e-3)
        assert one.region.shape == (4,)


def test_attention_of_several_ids_over_scales(tiny_network: Network, photo_folder: Path) -> None:
    found = list(ours.attention_of_ids_over_scales(tiny_network, photo_folder, IDS, CONFIG))
    assert [one.name for one in found] == [photo.name for photo in list_photos([photo_folder]).photos]
    for id, maps in zip(IDS, found[1].maps, strict=True):
        alone = ours.attention_over_scales(tiny_network, photo_folder / "b.jpg", id, CONFIG)
        assert [one.scale for one in maps] == [one.scale for one in alone] == list(CONFIG.scales)
        for one, other in zip(maps, alone, strict=True):
            np.testing.assert_array_equal(one.map, other.map)
            assert one.map.base is None  # it does not hold the maps of the other IDs


def test_scales_that_a_photo_is_too_small_for_are_left_out(tiny_network: Network, tmp_path: Path) -> None:
    Image.fromarray(noise(3, 40)).save(tmp_path / "strip.png")
    config = ExtractConfig(scales=(0.25, 1.0, 0.5))
    found = ours.attention_over_scales(tiny_network, tmp_path / "strip.png", 0, config)
    assert [one.scale for one in found] == [1.0, 0.5]


def test_strongest_ids(tiny_network: Network, photo_folder: Path) -> None:
    strengths = torch.cat([local.strengths for local in locals_of(tiny_network, photo_folder)]).mean(dim=0)
    found = ours.strongest_ids(tiny_network, photo_folder, 3, CONFIG)
    assert found == oracle.strongest(strengths.tolist(), 3)
    assert sorted(ours.strongest_ids(tiny_network, photo_folder, 99, CONFIG)) == list(range(8))


def test_correlation_matrix(tiny_network: Network, photo_folder: Path) -> None:
    found = ours.correlation_matrix(tiny_network, photo_folder, CONFIG)
    expected = oracle.correlation_matrix(maps_of(tiny_network, photo_folder))
    close(found, expected)
    close(np.diag(found), np.ones(8))
    np.testing.assert_array_equal(found, found.T)
    assert ours.off_diagonal_mean(found) == pytest.approx(oracle.off_diagonal_mean(expected), abs=1e-4)


def test_its_mean_is_what_the_loss_lowers(tiny_network: Network, photo_folder: Path) -> None:
    maps = [torch.from_numpy(one) for one in maps_of(tiny_network, photo_folder)]
    expected = np.mean([float(attention_correlation(one)) for one in maps])
    found = ours.off_diagonal_mean(ours.correlation_matrix(tiny_network, photo_folder, CONFIG))
    assert found == pytest.approx(expected, abs=1e-4)


def test_a_network_with_a_single_super_feature(photo_folder: Path) -> None:
    config = NetworkConfig("fire", TrunkConfig("resnet18", 1), LitConfig(1, 2, 16), whitened_dim=6)
    network = recipe_network(config)
    matrix = ours.correlation_matrix(network, photo_folder, CONFIG)
    close(matrix, [[1.0]])
    assert ours.off_diagonal_mean(matrix) == 0
    assert ours.strongest_ids(network, photo_folder, 5, CONFIG) == [0]


def test_what_ids_look_for(tiny_network: Network, photo_folder: Path) -> None:
    names = [photo.name for photo in list_photos([photo_folder]).photos]
    locals_ = locals_of(tiny_network, photo_folder)
    found = ours.what_ids_look_for(tiny_network, photo_folder, IDS, 3, CONFIG)
    assert [one.id for one in found] == IDS
    for one in found:
        order = oracle.strongest([float(local.strengths[0, one.id]) for local in locals_], 3)
        assert [seen.name for seen in one.strongest] == [names[number] for number in order]
        for seen, number in zip(one.strongest, order, strict=True):
            local = locals_[number]
            assert local.maps is not None
            close(seen.map, local.maps[0, one.id])
            close(seen.strength, local.strengths[0, one.id])
            close(seen.vector, local.vectors[0, one.id])
        vectors = [local.vectors[0, one.id].numpy() for local in locals_]
        assert one.cosine == pytest.approx(oracle.pair_mean([vectors[number] for number in order]), abs=1e-4)
        assert one.cosine_of_all == pytest.approx(oracle.pair_mean(vectors), abs=1e-4)


def test_what_one_id_looks_for(tiny_network: Network, photo_folder: Path) -> None:
    found = ours.what_an_id_looks_for(tiny_network, photo_folder, 2, 99, CONFIG)
    assert (found.id, len(found.strongest)) == (2, 6)
    assert found.cosine == pytest.approx(found.cosine_of_all)
    alone = ours.what_an_id_looks_for(tiny_network, [photo_folder / "a.png"], 2, 1, CONFIG)
    assert [seen.name for seen in alone.strongest] == [str(photo_folder / "a.png")]
    assert math.isnan(alone.cosine)
    assert math.isnan(alone.cosine_of_all)


def test_equally_strong_photos_keep_their_order(tiny_network: Network, tmp_path: Path) -> None:
    for name in "cab":
        Image.fromarray(noise(40, 40)).save(tmp_path / f"{name}.png")
    found = ours.what_an_id_looks_for(tiny_network, tmp_path, 1, 2, CONFIG)
    assert [seen.name for seen in found.strongest] == ["a.png", "b.png"]
    assert found.cosine == pytest.approx(1)


def test_progress(tiny_network: Network, photo_folder: Path) -> None:
    (photo_folder / "a.png").write_bytes(b"no photo")
    skipped: list[Skipped] = []
    run = Run(workers=2, on_skip=skipped.append)
    work = Work(ours.correlation_matrix.steps(tiny_network, photo_folder, CONFIG, run=run))
    assert list(work) == [1, 2, 3, 4, 5]
    assert [one.name for one in skipped] == ["a.png"]
    np.testing.assert_array_equal(work.result(), ours.correlation_matrix(tiny_network, photo_folder, CONFIG, run=run))


CALLS: dict[str, Callable[[Network, Path], object]] = {
    "attention_of_ids": lambda network, photos: list(ours.attention_of_ids(network, photos, [0], CONFIG)),
    "strongest_ids": lambda network, photos: ours.strongest_ids(network, photos, 1, CONFIG),
    "over_scales": lambda network, photos: list(ours.attention_of_ids_over_scales(network, photos, [0], CONFIG)),
    "correlation_matrix": lambda network, photos: ours.correlation_matrix(network, photos, CONFIG),
    "what_ids_look_for": lambda network, photos: ours.what_ids_look_for(network, photos, [0], 1, CONFIG),
}


@pytest.mark.parametrize("call", CALLS)
def test_how_has_no_ids(call: str, tiny_how: Network, photo_folder: Path) -> None:
    with pytest.raises(SuperfeatError, match=r"a network of method 'how' has no super-features, .* of a FIRe network"):
        CALLS[call](tiny_how, photo_folder)
    with pytest.raises(SuperfeatError, match="method 'how'"):
        ours.attention_over_scales(tiny_how, photo_folder / "a.png", 0, CONFIG)


@pytest.mark.parametrize("call", CALLS)
def test_no_photo(call: str, tiny_network: Network, tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="there is no photo to look at; give a folder"):
        CALLS[call](tiny_network, tmp_path)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.filterwarnings("ignore:skipped")
def test_no_readable_photo(call: str, tiny_network: Network, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"x")
    with pytest.raises(ImageError, match="none of the 1 photos could be read"):
        CALLS[call](tiny_network, tmp_path)
    with pytest.raises(ImageError, match=r"none of the 1 photos could be read \(the first is .*a.png"):
        ours.attention_over_scales(tiny_network, tmp_path / "a.png", 0, CONFIG)


@pytest.mark.parametrize("wrong", [-1, 8, 300])
def test_ids_that_are_not_there(wrong: int, tiny_network: Network, photo_folder: Path) -> None:
    message = f"no super-feature with the ID {wrong}; its IDs are 0 to 7"
    with pytest.raises(SuperfeatError, match=message):
        ours.attention_of_ids(tiny_network, photo_folder, [0, wrong], CONFIG)  # before the first photo is asked for
    with pytest.raises(SuperfeatError, match=message):
        ours.attention_over_scales(tiny_network, photo_folder / "a.png", wrong, CONFIG)
    with pytest.raises(SuperfeatError, match=message):
        ours.what_an_id_looks_for(tiny_network, photo_folder, wrong, 1, CONFIG)


def test_nothing_asked_for(tiny_network: Network, photo_folder: Path) -> None:
    with pytest.raises(SuperfeatError, match="no ID is given; this network's are 0 to 7"):
        ours.attention_of_ids(tiny_network, photo_folder, [], CONFIG)
    with pytest.raises(SuperfeatError, match="the 0 strongest photos are none"):
        ours.what_an_id_looks_for(tiny_network, photo_folder, 1, 0, CONFIG)
    with pytest.raises(SuperfeatError, match="0 IDs are none"):
        ours.strongest_ids(tiny_network, photo_folder, 0, CONFIG)


def test_an_exported_network_has_its_maps(tiny_network: Network, photo_folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from superfeat.weights.onnx import export_onnx, load_onnx

    export_onnx(tiny_network, tmp_path / "network.onnx")
    exported = load_onnx(tmp_path / "network.onnx")
    found = ours.correlation_matrix(exported, photo_folder, CONFIG)
    close(found, ours.correlation_matrix(tiny_network, photo_folder, CONFIG), 1e-3)


# --- redundancy -------------------------------------------------------------------------------------------------------


def image_vectors(most: int = 7) -> st.SearchStrategy[list[np.ndarray[Any, Any]]]:
    """A few images of up to `most` features in 3 dimensions."""
    one = st.integers(0, most).flatmap(lambda n: arrays.arrays(np.float32, (n, 3), elements=values))
    return st.lists(one, min_size=1, max_size=4)


@given(image_vectors(), st.lists(st.integers(1, 9), min_size=1, max_size=4), st.sampled_from([1, 2, 1024]))
@settings(max_examples=80, deadline=None)
def test_redundancy(images: list[np.ndarray[Any, Any]], counts: list[int], rows: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ours, "FEATURES_AT_ONCE", rows)
        found = ours.redundancy((made_up(vectors) for vectors in images), counts)
    close(found, [oracle.redundancy(images, count) for count in counts])


def test_redundancy_of_identical_features() -> None:
    same = np.tile(np.array([[1, 2, 3]], np.float32), (5, 1))
    close(ours.redundancy([made_up(same)], [1, 3, 5]), [1, 1, 1])


def test_redundancy_where_there_are_too_few() -> None:
    vectors = np.eye(3, dtype=np.float32)
    found = ours.redundancy([made_up(vectors[:1]), made_up(vectors)], [1, 2, 3, 4])
    close(found[:3], [0, 0, 0])  # K = 3 of 3: the two others
    assert math.isnan(found[3])
    assert np.isnan(ours.redundancy([made_up(vectors[:1])], [1])).all()


def test_images_with_fewer_features_do_not_count_for_larger_k() -> None:
    few = np.array([[1, 0], [1, 0]], np.float32)
    many = np.array([[1, 0], [0, 1], [0, -1], [-1, 0]], np.float32)
    found = ours.redundancy([made_up(few), made_up(many)], [1, 3])
    close(found, [(1 + 0) / 2, -1 / 3])


def test_redundancy_of_a_network(tiny_how: Network, photo_folder: Path) -> None:
    config = dataclasses.replace(ours.every_feature(CONFIG), scales=(1.0,))
    found = ours.redundancy(extract(tiny_how, photo_folder, config), [1, 4])
    images = [local.vectors[0].numpy() for local in locals_of(tiny_how, photo_folder)]
    close(found, [oracle.redundancy(images, count) for count in (1, 4)])


@pytest.mark.parametrize("counts", [[], [0], [3, -1]])
def test_impossible_counts(counts: list[int]) -> None:
    features = [made_up(np.eye(3, dtype=np.float32))]
    with pytest.raises(SuperfeatError, match="cannot be looked at; give 1 or more"):
        ours.redundancy(features, counts)
    with pytest.raises(SuperfeatError, match="cannot be looked at; give 1 or more"):
        ours.words_by_features(features, Codebook(np.eye(3, dtype=np.float32)), counts)


def test_no_features() -> None:
    with pytest.raises(ImageError, match="there is no photo to look at"):
        ours.redundancy([], [1])
    with pytest.raises(ImageError, match="there is no photo to look at"):
        ours.scale_shares([], [1.0], 5)
    with pytest.raises(ImageError, match="there is no photo to look at"):
        ours.words_by_features([], Codebook(np.eye(3, dtype=np.float32)), [1])


# --- scales -----------------------------------------------------------------------------------------------------------

SCALES = (2.0, 1.414, 0.5)


@given(
    st.lists(st.lists(st.sampled_from(SCALES[:2]), max_size=8), min_size=1, max_size=4),
    st.integers(1, 10),
)
@settings(max_examples=80, deadline=None)
def test_scale_shares(images: list[list[float]], count: int) -> None:
    features = (made_up(np.ones((len(scales), 2), np.float32), scales) for scales in images)
    found = ours.scale_shares(features, SCALES, count)
    assert found.scales == SCALES
    for number, scale in enumerate(SCALES):
        of_selected, selected, total = oracle.scale_shares(images, scale, count)
        close(found.of_selected[number], of_selected)
        close(found.selected[number], selected)
        close(found.features[number], total)


def test_the_selected_are_those_that_extraction_selects(tiny_how: Network, photo_folder: Path) -> None:
    chosen = dataclasses.replace(CONFIG, features_per_image=60)
    every = extract(tiny_how, photo_folder, ours.every_feature(chosen))
    found = ours.scale_shares(every, CONFIG.scales, 60)
    images = list(extract(tiny_how, photo_folder, chosen))
    for number, scale in enumerate(CONFIG.scales):
        shares = [float((one.scales == np.float32(scale)).mean()) for one in images]
        assert found.of_selected[number] == pytest.approx(np.mean(shares))
    assert found.of_selected.sum() == pytest.approx(1)
    assert (np.diff(found.features) < 0).all()


def test_every_super_feature_may_be_selected(tiny_network: Network, photo_folder: Path) -> None:
    every = extract(tiny_network, photo_folder, ours.every_feature(CONFIG))
    found = ours.scale_shares(every, CONFIG.scales, 1000)
    close(found.of_selected, [1 / 3] * 3)
    close(found.selected, [1] * 3)
    close(found.features, [8] * 3)


# --- words ------------------------------------------------------------------------------------------------------------


@given(
    image_vectors(),
    arrays.arrays(np.float32, (4, 3), elements=values),
    st.lists(st.integers(1, 9), min_size=1, max_size=4),
)
@settings(max_examples=60, deadline=None)
def test_words_by_features(
    images: list[np.ndarray[Any, Any]], centroids: np.ndarray[Any, Any], counts: list[int]
) -> None:
    found = ours.words_by_features((made_up(vectors) for vectors in images), Codebook(centroids), counts, workers=1)
    close(found, [oracle.words_by_features(images, centroids, count) for count in counts])


def test_words_of_another_network() -> None:
    eye = np.eye(3, dtype=np.float32)
    codebook = Codebook(eye, network="a" * 64)
    assert ours.words_by_features([made_up(eye, network="a" * 64), made_up(eye)], codebook, [2]).tolist() == [2.0]
    with pytest.raises(SuperfeatError, match=r"features of another network .* learn a codebook from features of"):
        ours.words_by_features([made_up(eye, network="b" * 64)], codebook, [2])
    with pytest.raises(SuperfeatError, match="dimensions"):
        ours.words_by_features([made_up(np.eye(2, dtype=np.float32))], codebook, [2])


def test_a_stream_is_never_gathered() -> None:
    """When an image is asked for, those before it are gone but for the last."""
    given: list[weakref.ref[Features]] = []

    def stream() -> Iterator[Features]:
        for _ in range(5):
            one = made_up(np.eye(3, dtype=np.float32))
            given.append(weakref.ref(one))
            yield one
            del one
            assert sum(features() is not None for features in given) <= 1

    ours.redundancy(stream(), [1])
    ours.scale_shares(stream(), [1.0], 2)
    ours.words_by_features(stream(), Codebook(np.eye(3, dtype=np.float32)), [2])
    assert len(given) == 15
