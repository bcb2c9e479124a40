"""Files of other systems: what is read of them, and what is said where they do not fit."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from superfeat.config import NetworkConfig, PoolingConfig, TrunkConfig
from superfeat.errors import UnpickleError, WeightsError
from superfeat.methods import METHODS, method_of
from superfeat.storage.unpickle import Inert, read_torch
from superfeat.weights import Network, build_module, load_network, save_network
from superfeat.weights.layouts import RELEASED_PARTS

TRUNK = TrunkConfig("resnet10", stages=4)


def cirtorch_state(layer: bool = False, stages: int = 4) -> dict[str, Tensor]:
    torch.manual_seed(0)
    pooling = PoolingConfig("gem", layer=512 if layer else None)
    module = build_module(NetworkConfig("gem", TRUNK, None, None, pooling))
    state = {}
    for name, value in module.state_dict().items():
        part, _, rest = name.partition(".")
        head, _, tail = rest.partition(".")
        if part == "trunk":
            if head.startswith("layer") and int(head[5]) > stages:
                continue
            state[f"features.{RELEASED_PARTS[head]}.{tail}"] = value
        else:
            state[f"{'pool' if part == 'pooling' else 'whiten'}.{rest}"] = value
    return state


def saved(path: Path, contents: Any) -> Path:
    torch.save(contents, path)
    return path


def test_gem_with_its_learned_whitening(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    maps = {"P": rng.standard_normal((512, 512)), "m": rng.standard_normal((512, 1))}
    other = {"P": np.zeros((512, 512)), "m": np.zeros((512, 1))}
    learned = {"retrieval-SfM-30k": {"ss": other, "ms": other}, "retrieval-SfM-120k": {"ss": other, "ms": maps}}
    meta = {"pooling": "gem", "mean": [0.4, 0.4, 0.4], "std": [0.2, 0.2, 0.2], "Lw": learned}
    network = load_network(saved(tmp_path / "gem.pth", {"meta": meta, "state_dict": cirtorch_state()}))
    assert (network.config.method, network.dim, network.config.trunk.mean) == ("gem", 512, (0.4, 0.4, 0.4))
    whitening = network.module.whitening
    assert whitening is not None
    x = rng.standard_normal(512)
    expected = maps["P"] @ (x - maps["m"].ravel())
    np.testing.assert_allclose(whitening(torch.tensor(x).float()), expected, rtol=1e-3, atol=1e-3)


def test_the_layouts_of_the_published_files(golden: Path) -> None:
    with np.load(golden / "zoo_layout_truth.npz") as file:
        truth = dict(file)
    meta = read_torch(golden / "zoo_layout_cirtorch.pth")["meta"]
    for key in ("P", "m"):
        np.testing.assert_array_equal(meta["Lw"]["retrieval-SfM-120k"]["ms"][key], truth[f"Lw_120k_ms_{key}"])
    held = read_torch(golden / "zoo_layout_dirtorch.pt")["pca"]["Landmarks_clean"]
    assert isinstance(held, Inert)
    for ours, theirs in (
        ("mean", "mean_"),
        ("components", "components_"),
        ("explained_variance", "explained_variance_"),
    ):
        np.testing.assert_array_equal(held.values[theirs], truth[f"pca_{ours}"])


def test_a_strange_object_is_refused(tmp_path: Path) -> None:
    import pickle

    (tmp_path / "bad.pt").write_bytes(pickle.dumps({"pca": Path}))
    with pytest.raises(UnpickleError):
        read_torch(tmp_path / "bad.pt")


@pytest.mark.parametrize(
    ("state", "meta", "said"),
    [
        (cirtorch_state(stages=3), {"pooling": "gem"}, "3 stages .* GeM needs 4: the last stage is missing"),
        (cirtorch_state(), {"Lw": {"a": {"ms": {"P": np.eye(4), "m": np.zeros(3)}}}}, "does not fit its own mean"),
        (cirtorch_state(), {"Lw": {"a": {"ms": {"P": np.eye(4), "m": np.zeros(4)}}}}, "whitening.weight is"),
        (cirtorch_state(), {"Lw": {"a": {"ss": {}}}}, "without its 'ms'"),
        ({**cirtorch_state(), "lwhiten.weight": torch.zeros(2, 2)}, {}, "whitens places"),
        (cirtorch_state(), {"mean": [1.0]}, "settings make no sense"),
    ],
)
def test_what_does_not_fit(tmp_path: Path, state: dict[str, Tensor], meta: dict[str, Any], said: str) -> None:
    with pytest.raises(WeightsError, match=said):
        load_network(saved(tmp_path / "x.pth", {"meta": meta, "state_dict": state}))


def test_apgem_without_its_layer_or_with_another_pca(tmp_path: Path) -> None:
    state = {**trunk_state(), "adpool.p": torch.tensor([3.0])}
    with pytest.raises(WeightsError, match="no layer fc"):
        load_network(saved(tmp_path / "a.pt", {"state_dict": state}))
    state |= {"fc.weight": torch.zeros(6, 512), "fc.bias": torch.zeros(6)}
    pca = {"mean_": np.zeros(4), "components_": np.eye(4), "explained_variance_": np.ones(4)}
    with pytest.raises(WeightsError, match="PCA of 4 dimensions, and the network gives 6"):
        load_network(saved(tmp_path / "b.pt", {"state_dict": state, "pca": {"Landmarks_clean": pca}}))
    with pytest.raises(WeightsError, match="cannot be read"):
        load_network(saved(tmp_path / "c.pt", {"state_dict": state, "pca": {"Landmarks_clean": {}}}))
    good = {"mean_": np.zeros(6), "components_": np.eye(6)[:5], "explained_variance_": np.full(5, 16.0)}
    network = load_network(saved(tmp_path / "d.pt", {"state_dict": state, "pca": {"Landmarks_clean": good}}))
    assert network.dim == 5
    np.testing.assert_allclose(network.module.whitening.weight, 0.5 * np.eye(6)[:5])  # type: ignore[union-attr]


def trunk_state(stages: int = 4) -> dict[str, Tensor]:
    torch.manual_seed(0)
    module = build_module(NetworkConfig("gem", TRUNK, None, None, PoolingConfig()))
    names = {name: value for name, value in module.state_dict().items() if name.startswith("trunk.")}
    kept = {name: value for name, value in names.items() if not any(f"layer{n}" in name for n in range(stages + 1, 5))}
    return {name.removeprefix("trunk."): value for name, value in kept.items()}


@pytest.mark.parametrize("name", ["mac", "spoc", "rmac", "gem", "delf", "how"])
def test_a_trunk_off_the_shelf(tmp_path: Path, name: str) -> None:
    path = saved(tmp_path / "trunk.pth", {**trunk_state(), "fc.weight": torch.zeros(2, 512), "fc.bias": torch.zeros(2)})
    network = load_network(path, method=name)
    assert network.config.method == name
    assert network.config.trunk.stages == method_of(name).network.trunk.stages
    save_network(network, tmp_path / "ours")
    again = load_network(tmp_path / "ours", method=name)
    assert again.digest == network.digest


def test_what_cannot_be_built_on_a_file(tmp_path: Path) -> None:
    short = saved(tmp_path / "short.pth", trunk_state(stages=3))
    with pytest.raises(WeightsError, match="the last stage is missing"):
        load_network(short, method="gem")
    whole = saved(tmp_path / "whole.pth", trunk_state())
    with pytest.raises(WeightsError, match="AP-GeM has a layer that must be trained"):
        load_network(whole, method="apgem")
    gem = saved(tmp_path / "gem.pth", {"state_dict": cirtorch_state()})
    with pytest.raises(WeightsError, match="is a GeM network, not a trunk"):
        load_network(gem, method="mac")
    save_network(load_network(gem), tmp_path / "ours")
    with pytest.raises(WeightsError, match="is a network of GeM, not of MAC"):
        load_network(tmp_path / "ours", method="mac")


def test_settings_without_vectors_are_written_as_before() -> None:
    """Else the digests of all networks that people have would change."""
    from superfeat.settings import as_dict

    assert set(as_dict(NetworkConfig())) == {"method", "trunk", "lit", "whitened_dim"}
    assert "layout" not in as_dict(NetworkConfig())["trunk"]
    assert set(METHODS) >= {"mac", "spoc", "rmac", "gem", "apgem", "solar", "delg", "delf"}
    assert isinstance(load_network(), Network)
