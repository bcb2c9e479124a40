"""Points beside super-features: against plain loops; kept whole by extraction; words of their own; learned, stored."""

import copy
import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import oracles
from fixtures_recipe import noise, relative_error
from superfeat import CodebookConfig, ExtractConfig, Network, extract, load_network, save_network, train_codebook
from superfeat.config import NetworkConfig, Recipe
from superfeat.errors import ConfigError, SuperfeatError, WeightsError
from superfeat.extraction.extract import pool_features, pool_to
from superfeat.nets.fire import Fire
from superfeat.nets.how import How
from superfeat.nets.local import pool
from superfeat.nets.points import APART, Points, how_many
from superfeat.nets.training import for_training
from superfeat.nets.whitening import Whitening
from superfeat.training.start import build_start, fit_recipe
from superfeat.training.whiten import fit_points, fit_whitening

SCALES = ExtractConfig(features_per_scale=3, scales=(1.0, 0.5))


@pytest.fixture
def many_photos(tmp_path: Path) -> Path:
    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(12):
        Image.fromarray(noise(32 + number, 40, seed=number)).save(folder / f"{number:02}.png")
    return folder


@pytest.fixture
def with_points(tiny_network: Network, many_photos: Path) -> Network:
    return fit_points(tiny_network, many_photos, per_side=1.5)


@pytest.mark.parametrize("size", [(1, 1), (1, 4), (6, 5), (7, 3)])
@pytest.mark.parametrize("whitened", [True, False])
def test_points_by_plain_loops(size: tuple[int, int], whitened: bool) -> None:
    torch.manual_seed(0)
    whitening = None
    if whitened:
        whitening = Whitening(16, 5)
        whitening.weight.copy_(torch.randn(5, 16))
        whitening.bias.copy_(torch.randn(5))
    x = torch.rand(1, 16, *size)
    local = Points(whitening, 1.5)(x)
    matrix = None if whitening is None else whitening.weight.double().numpy()
    bias = None if whitening is None else whitening.bias.double().numpy()
    vectors, strengths, places = oracles.points(x[0].double().numpy(), matrix, bias, 1.5)
    assert relative_error(local.vectors[0], vectors) <= 2e-6
    assert relative_error(local.strengths[0], strengths) <= 2e-6
    assert local.maps is not None
    assert local.maps.shape == (1, len(places), *size)
    assert local.maps.flatten(2)[0].argmax(dim=1).tolist() == places
    assert local.maps.sum() == len(places)


@pytest.mark.parametrize(
    ("per_side", "places", "count"), [(6.0, 1200, 207), (6.0, 1, 1), (0.01, 9, 1), (50.0, 9, 9), (2.0, 9, 6)]
)
def test_how_many(per_side: float, places: int, count: int) -> None:
    assert how_many(per_side, places) == count


def test_superfeatures_come_first_and_are_as_without(tiny_network: Network, with_points: Network) -> None:
    module = with_points.module
    assert isinstance(module, Fire)
    assert module.points is not None
    x = torch.rand(1, module.trunk.channels, 6, 5)
    with torch.inference_mode():
        both, alone, points = module.describe(x), tiny_network.module.describe(x), module.points(x)
    for found, first, rest in zip(both[:2], alone[:2], points[:2], strict=True):
        assert torch.equal(found, torch.cat((first, rest), dim=1))
    assert both.maps is not None
    assert both.maps.shape == (1, both.strengths.shape[1], 6, 5)


def test_extraction_keeps_the_strongest_superfeatures_and_all_points(
    tiny_network: Network, with_points: Network, many_photos: Path
) -> None:
    first = tiny_network.superfeatures
    assert first is not None
    config = dataclasses.replace(SCALES, attention="regions")
    for both, alone in zip(
        extract(with_points, many_photos, config), extract(tiny_network, many_photos, config), strict=True
    ):
        point = both.ids >= first
        assert np.array_equal(both.vectors[~point], alone.vectors)
        assert np.array_equal(both.ids[~point], alone.ids)
        for scale in SCALES.scales:
            found = both.ids[point & (both.scales == np.float32(scale))]
            assert found.tolist() == list(range(first, first + len(found)))
            assert len(found) >= 1
        assert both.regions is not None
        assert alone.regions is not None
        assert (both.regions[point, 2:] < alone.regions[:, 2:].mean()).all()  # a place is narrower than an attention


def test_points_are_left_out_where_they_do_not_belong(
    tiny_network: Network, with_points: Network, many_photos: Path, tmp_path: Path
) -> None:
    assert with_points.without_points().digest == with_points.digest  # pooled vectors are of the same network
    bare = list(extract(with_points.without_points(), many_photos, SCALES))
    for found, alone in zip(bare, extract(tiny_network, many_photos, SCALES), strict=True):
        assert np.array_equal(found.vectors, alone.vectors)
    every = ExtractConfig(features_per_image=10**6, scales=(1.0,))
    pooled = [one.vectors for one in pool_to(tmp_path / "pooled", with_points, many_photos, every)]  # type: ignore[union-attr]
    plain = [pool_features(one).vectors for one in extract(tiny_network, many_photos, every)]
    assert np.array_equal(np.concatenate(pooled), np.concatenate(plain))


def test_points_become_white_around_their_own_centre(with_points: Network, many_photos: Path) -> None:
    first = with_points.superfeatures
    config = dataclasses.replace(ExtractConfig.profile("fast"), features_per_scale=1)
    found = np.concatenate([one.vectors[one.ids >= first] for one in extract(with_points, many_photos, config)])
    np.testing.assert_allclose(found.mean(axis=0), APART, atol=1e-3)
    np.testing.assert_allclose(np.cov(found.T, bias=True), np.eye(found.shape[1]), atol=2e-2)


def test_points_and_superfeatures_share_no_word(with_points: Network, many_photos: Path) -> None:
    images = list(extract(with_points, many_photos, SCALES))
    codebook = train_codebook([one.vectors for one in images], CodebookConfig(words=12, rounds=5))
    words: list[set[int]] = [set(), set()]
    for one in images:
        for kind in (False, True):
            words[kind] |= set(
                codebook.assign(one.vectors[(one.ids >= with_points.superfeatures) == kind]).ravel().tolist()
            )
    assert words[0]
    assert words[1]
    assert not words[0] & words[1]


def test_they_are_stored_and_known(with_points: Network, tiny_network: Network, tmp_path: Path) -> None:
    save_network(with_points, tmp_path / "net")
    again = load_network(tmp_path / "net")
    assert (again.config.points, again.digest) == (1.5, with_points.digest)
    assert again.digest != tiny_network.digest
    assert "12 photos" in again.provenance["points"]


def test_whitening_anew_drops_points(with_points: Network, many_photos: Path) -> None:
    found = fit_whitening(with_points, many_photos, dim=5)
    assert found.config.points is None
    assert isinstance(found.module, Fire)
    assert found.module.points is None


def test_what_cannot_have_points(tiny_network: Network, tiny_how: Network, tmp_path: Path) -> None:
    with pytest.raises(SuperfeatError, match="added to a FIRe network"):
        fit_points(tiny_how, tmp_path)
    Image.fromarray(noise(16, 16)).save(tmp_path / "one.png")
    with pytest.raises(SuperfeatError, match="too few to whiten"):
        fit_points(tiny_network, tmp_path)
    for settings in (
        {"method": "how", "lit": None, "points": 6.0},
        {"points": 0.0},
        {"points": 6.0, "whitened_dim": None},
    ):
        with pytest.raises(ConfigError, match="points"):
            NetworkConfig(**settings)


def test_what_points_are_trained_by_is_the_global_vector_of_how(tiny_network: Network, with_points: Network) -> None:
    """Of all places of the map, without what keeps points and super-features apart; super-features are as ever."""
    module = with_points.module
    assert isinstance(module, Fire)
    assert module.points is not None
    assert module.points.whitening is not None
    whitening = copy.deepcopy(module.points.whitening)
    whitening.bias.data -= APART
    images = torch.rand(2, 3, 70, 90, generator=torch.Generator().manual_seed(0))
    trained, how = for_training(module), How(module.trunk, whitening)
    found, alone = trained(images), for_training(tiny_network.module)(images)
    assert found.pooled is not None
    assert alone.pooled is None
    torch.testing.assert_close(found.pooled, pool([how(images)]), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found.vectors, alone.vectors)
    direction = torch.randn(found.pooled.shape, generator=torch.Generator().manual_seed(1))
    weights = [value for value in module.trunk.parameters() if value.requires_grad]  # type: ignore[attr-defined]
    ours = torch.autograd.grad((found.pooled * direction).sum(), weights)
    theirs = torch.autograd.grad((pool([how(images)]) * direction).sum(), weights)
    scale = max(float(one.abs().max()) for one in theirs)
    for mine, other in zip(ours, theirs, strict=True):
        assert float((mine - other).abs().max()) < 1e-3 * scale


def test_training_begins_with_the_points_of_the_weights(with_points: Network, tmp_path: Path) -> None:
    save_network(with_points, tmp_path / "net")
    recipe = Recipe(weights=str(tmp_path / "net"), network=with_points.config)
    fitted, given = fit_recipe(recipe)
    start = build_start(fitted, given)
    assert start.digest == with_points.digest
    without = dataclasses.replace(recipe, network=dataclasses.replace(with_points.config, points=None))
    assert build_start(*fit_recipe(without)).module.points is None


@pytest.mark.parametrize("weights", [None, "net"])
def test_points_that_the_weights_lack_are_refused(tiny_network: Network, tmp_path: Path, weights: str | None) -> None:
    save_network(tiny_network, tmp_path / "net")
    network = dataclasses.replace(tiny_network.config, points=2.0)
    recipe = Recipe(weights=weights and str(tmp_path / weights), network=network)
    with pytest.raises(WeightsError, match=r"points is 2.0.*`superfeat weights points`"):
        fit_recipe(recipe)
