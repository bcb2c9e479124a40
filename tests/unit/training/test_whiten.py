"""Learning a network's whitening from photos."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fixtures_recipe import noise, quick_network
from superfeat import ExtractConfig, Network, extract, load_network, save_network
from superfeat.errors import ImageError, SuperfeatError
from superfeat.images import Skipped
from superfeat.nets.fire import Fire
from superfeat.nets.whitening import WhiteningFit
from superfeat.training.whiten import fit_whitening, without_whitening

EVERYTHING = ExtractConfig(features_per_image=10**6, scales=(1.0,))


def all_vectors(network: Network, photos: Path) -> np.ndarray:
    return np.concatenate([features.vectors for features in extract(network, photos, EVERYTHING)]).astype(np.float64)


@pytest.fixture
def many_photos(tmp_path: Path) -> Path:
    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(12):
        Image.fromarray(noise(32 + number, 40, seed=number)).save(folder / f"{number:02}.png")
    return folder


@pytest.mark.parametrize("kind", ["fire", "how"])
def test_features_of_the_fitting_photos_become_white(
    kind: str, tiny_network: Network, tiny_how: Network, many_photos: Path
) -> None:
    network = tiny_network if kind == "fire" else tiny_how
    whitened = fit_whitening(network, many_photos, dim=5)
    assert (whitened.dim, whitened.config.whitened_dim) == (5, 5)
    vectors = all_vectors(whitened, many_photos)
    np.testing.assert_allclose(vectors.mean(axis=0), 0, atol=1e-4)
    np.testing.assert_allclose(np.cov(vectors.T, bias=True), np.eye(5), atol=1e-3)


def test_it_is_the_fit_of_the_raw_features(tiny_network: Network, many_photos: Path) -> None:
    raw = all_vectors(without_whitening(tiny_network), many_photos)
    fit = WhiteningFit(16)
    fit.add(torch.from_numpy(raw))
    expected = fit.finish(5)
    found = fit_whitening(tiny_network, many_photos, dim=5).module.whitening
    assert found is not None
    signs = torch.sign((found.weight * expected.weight).sum(dim=1))
    torch.testing.assert_close(found.weight * signs[:, None], expected.weight, rtol=1e-3, atol=1e-4)


def test_the_network_is_left_as_it_was(tiny_network: Network, many_photos: Path) -> None:
    digest, whitening = tiny_network.digest, tiny_network.module.whitening
    whitened = fit_whitening(tiny_network, many_photos, dim=5)
    assert tiny_network.module.whitening is whitening
    assert Network(tiny_network.module, tiny_network.config).digest == digest
    assert whitened.digest != digest
    assert isinstance(whitened.module, Fire)


def test_progress_and_provenance(tiny_network: Network, many_photos: Path) -> None:
    (many_photos / "00.png").write_bytes(b"no photo")
    done: list[int] = []
    skipped: list[Skipped] = []
    whitened = fit_whitening(
        tiny_network, many_photos, dim=5, max_side=32, on_image=done.append, on_skip=skipped.append
    )
    assert done == list(range(1, 12))
    assert [one.name for one in skipped] == ["00.png"]
    assert whitened.provenance["whitening"] == "learned from 88 features of 11 photos at 32 px"
    assert whitened.provenance["source"] == "recipe"


def test_only_the_first_photos_are_used(tiny_network: Network, many_photos: Path) -> None:
    done: list[int] = []
    fit_whitening(tiny_network, many_photos, dim=5, images=4, on_image=done.append)
    assert done == [1, 2, 3, 4]


def test_it_can_be_saved(tiny_how: Network, many_photos: Path, tmp_path: Path) -> None:
    whitened = fit_whitening(tiny_how, many_photos, dim=5)
    save_network(whitened, tmp_path / "network")
    assert load_network(tmp_path / "network").digest == whitened.digest


@pytest.mark.parametrize("dim", [0, 17])
def test_impossible_dimensions(dim: int, tiny_network: Network, many_photos: Path) -> None:
    with pytest.raises(SuperfeatError, match=f"cannot whiten features of 16 dimensions to {dim}"):
        fit_whitening(tiny_network, many_photos, dim=dim)


def test_too_few_photos(tiny_network: Network, many_photos: Path, tmp_path: Path) -> None:
    with pytest.raises(
        SuperfeatError, match="8 features are too few to whiten 16 dimensions; give more or larger photos"
    ):
        fit_whitening(tiny_network, many_photos, dim=5, images=1)
    (tmp_path / "none").mkdir()
    with pytest.raises(SuperfeatError, match="0 features are too few"):
        fit_whitening(tiny_network, tmp_path / "none", dim=5)


def test_no_readable_photo(tiny_network: Network, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"x")
    with pytest.raises(ImageError, match="none of the 1 photos"):
        fit_whitening(tiny_network, [tmp_path / "a.png"], dim=5, on_skip=lambda skipped: None)


def test_an_exported_network_cannot_be_whitened(many_photos: Path) -> None:
    with pytest.raises(SuperfeatError, match="an exported network cannot be whitened"):
        fit_whitening(quick_network(), many_photos, dim=2)


def test_without_whitening(tiny_network: Network) -> None:
    bare = without_whitening(tiny_network)
    assert bare.module.whitening is None
    assert (bare.dim, bare.config.whitened_dim) == (16, None)
    assert bare.module.trunk is tiny_network.module.trunk
    assert bare.digest != tiny_network.digest
    assert tiny_network.module.whitening is not None
