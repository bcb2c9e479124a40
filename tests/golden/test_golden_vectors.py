"""MAC, SPoC, GeM, R-MAC, whitenings, AP-GeM and SOLAR against the released implementations."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import oracles_zoo
from fixtures_recipe import absolute_error, relative_error
from fixtures_zoo import zoo_state
from superfeat import ExtractConfig, Network, extract, load_network
from superfeat.extraction.scaling import resize
from superfeat.images import normalise
from superfeat.nets.global_vector import GlobalNetwork, over_scales
from superfeat.nets.listwise import bin_average_precision
from superfeat.nets.pair_whitening import affine, pca_whitening, whiten_pairs
from superfeat.nets.pooling import Pooling, gem, mac, regional, rmac, spoc, squares, unit
from superfeat.nets.second_order import SecondOrderAttention
from superfeat.nets.trunk import Normalisation
from superfeat.nets.vector_losses import second_order_loss, triplet_loss
from superfeat.nets.whitening import Whitening, WhiteningFit
from superfeat.training.objective import LISTWISE

TOLERANCE = 2e-6  # of the largest value of an array
DEEP = 1e-5  # absolute, of unit vectors, through a hundred layers of random weights
CASES = ("wide", "tall", "square", "panorama", "row", "tiny", "point")
Arrays = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def arrays(golden: Path) -> Callable[[str], Arrays]:
    def load(name: str) -> Arrays:
        with np.load(golden / f"zoo_{name}.npz") as file:
            return dict(file)

    return load


def tensor(values: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values))


# -- cirtorch: poolings


@pytest.mark.parametrize("case", CASES)
def test_poolings(arrays: Callable[[str], Arrays], case: str) -> None:
    found = arrays("cirtorch_pool")
    maps = tensor(found[f"{case}_map"])
    layer = nn.Linear(12, 12)
    layer.load_state_dict({key: tensor(found[f"region_whiten_{key}"]) for key in ("weight", "bias")})
    with torch.inference_mode():
        each = unit(layer(regional(maps, gem)))
        ours = {
            "mac": mac(maps),
            "spoc": spoc(maps),
            "gem3": gem(maps, 3.0),
            "gem2.37": gem(maps, 2.37),
            "gemmp": gem(maps, tensor(found["gemmp_p"])),
            "gem3_l2n": unit(gem(maps, 3.0)),
            **{f"rmac_L{levels}": rmac(maps, levels) for levels in (1, 2, 3)},
            "rmac_L3_l2n": unit(rmac(maps)),
            "region_mac": torch.stack(
                [mac(maps[..., y : y + h, x : x + w]) for y, x, h, w in squares(*maps.shape[2:])], 1
            ),
            "regional_gem_each": each,
            "regional_gem": unit(each.sum(dim=1)),
        }
    assert squares(*maps.shape[2:]) == [tuple(row) for row in found[f"{case}_regions_L3"].tolist()]
    assert {f"{case}_{key}" for key in [*ours, "map", "regions_L3"]} == {key for key in found if key.startswith(case)}
    for key, value in ours.items():
        assert relative_error(value, found[f"{case}_{key}"]) <= TOLERANCE, key


@pytest.mark.parametrize("case", CASES)
def test_poolings_are_their_oracles(arrays: Callable[[str], Arrays], case: str) -> None:
    maps = arrays("cirtorch_pool")[f"{case}_map"]
    for ours, slow in (
        (mac, oracles_zoo.mac),
        (spoc, oracles_zoo.spoc),
        (gem, oracles_zoo.gem),
        (rmac, oracles_zoo.rmac),
    ):
        assert relative_error(ours(tensor(maps)), slow(maps)) <= TOLERANCE


# -- cirtorch: a network over scales, whitenings


class TinyTrunk(nn.Module):
    stride, channels, normalisation = 4, 16, Normalisation()

    def __init__(self, found: Arrays) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 5, 4, 2)
        self.conv.load_state_dict({key: tensor(found[f"trunk_{key}"]) for key in ("weight", "bias")})

    def forward(self, images: Tensor) -> Tensor:
        return torch.relu(self.conv(images))


def tiny(found: Arrays, kind: str, layer: bool = False, whitening: Whitening | None = None) -> GlobalNetwork:
    full = nn.Linear(16, 16)
    full.load_state_dict({key: tensor(found[f"whiten_{key}"]) for key in ("weight", "bias")})
    pooling = Pooling(kind, float(found["gem_p"]))  # type: ignore[arg-type]
    return GlobalNetwork(TinyTrunk(found), pooling, full if layer else None, whitening).eval()


def over(network: GlobalNetwork, image: Tensor, scales: np.ndarray, power: float, old: bool = False) -> Tensor:
    vectors = [network(resize(image, float(scale), recompute=old)).vectors[0, 0] for scale in scales]
    return over_scales(torch.stack(vectors), power, signed=False)


@torch.inference_mode()
def test_network_over_scales(arrays: Callable[[str], Arrays]) -> None:
    found = arrays("cirtorch_net")
    image, p = tensor(found["input"]), float(found["gem_p"])
    plain, layered, squared = tiny(found, "gem"), tiny(found, "gem", layer=True), tiny(found, "rmac")
    learned = affine(tensor(found["Lw_P"]), tensor(found["Lw_m"]).flatten())
    whitened = tiny(found, "gem", whitening=learned)
    ours: dict[str, Tensor] = {
        "trunk_map": plain.trunk(image)[0],
        "gem_single": plain(image).vectors[0, 0],
        "gem_whiten_single": layered(image).vectors[0, 0],
        "rmac_single": squared(image).vectors[0, 0],
        "rmac_both_msp_1": over(squared, image, found["scales_both"], 1.0),
    }
    for number in (1, 2):
        ours[f"input_at_scales_both_{number}"] = resize(image, float(found["scales_both"][number]), False)[0]
    for kind in ("down", "both"):
        scales = found[f"scales_{kind}"]
        ours[f"gem_{kind}_msp_1"] = over(plain, image, scales, 1.0)
        for name, old in (("", False), ("_old_torch", True)):
            ours[f"gem_{kind}_msp_p{name}"] = over(plain, image, scales, p, old)
            ours[f"gem_whiten_{kind}_msp_1{name}"] = over(layered, image, scales, 1.0, old)
    vectors = torch.stack([plain(resize(image, float(scale), False)).vectors[0, 0] for scale in found["scales_down"]])
    assert plain.scale_power == pytest.approx(p)
    assert (layered.scale_power, squared.scale_power) == (1.0, 1.0)
    ours["gem_down_Lw"] = whitened.combine(vectors)
    first = affine(tensor(found["Lw_P"])[:8], tensor(found["Lw_m"]).flatten())
    ours["gem_down_Lw_first8"] = tiny(found, "gem", whitening=first).combine(vectors)
    region = nn.Linear(16, 16)
    region.load_state_dict({key: tensor(found[f"region_whiten_{key}"]) for key in ("weight", "bias")})
    parts = regional(plain.trunk(image), lambda maps: gem(maps, p))
    layer = layered.layer
    assert layer is not None
    ours["regional_gem_whiten_single"] = unit(layer(unit(unit(region(parts)).sum(dim=1))))[0]
    places = nn.functional.linear(
        plain.trunk(image).movedim(1, -1), tensor(found["local_whiten_weight"]), tensor(found["local_whiten_bias"])
    )
    ours["local_whiten_gem_single"] = unit(gem(places.movedim(-1, 1), p))[0]
    given = r"(trunk|whiten|local_whiten|region_whiten)_(weight|bias)|input|gem_p|scales_.*|Lw_[mP]"
    assert set(ours) == {key for key in found if not re.fullmatch(given, key)}
    for key, value in ours.items():
        assert relative_error(value, found[key]) <= TOLERANCE, key


@pytest.mark.parametrize("bits", ["f64", "f32"])
def test_whitenings(arrays: Callable[[str], Arrays], bits: str) -> None:
    """Rows are known up to their sign; similarities are free of it. The tolerance is that of 32 bits for both."""
    found = arrays("cirtorch_whiten")
    x = tensor(found[f"X_{bits}"].T)
    queries, positives = tensor(found["qidxs"]), tensor(found["pidxs"])
    fit = WhiteningFit(20)
    fit.add(x)
    pairs = [whiten_pairs(x, queries, positives, dim) for dim in (20, 8)]
    for name, (whole, eight) in {"Lw": pairs, "pca": [fit.finish(20), fit.finish(8)]}.items():
        rows = found[f"{name}_P_{bits}"]
        signs = np.sign((whole.weight.numpy() * rows).sum(axis=1, keepdims=True))
        assert relative_error(whole.weight.numpy() * signs, rows) <= 1e-4 if bits == "f32" else 2e-6
        mean = -np.linalg.solve(whole.weight.double().numpy(), whole.bias.double().numpy())
        assert absolute_error(mean, found[f"{name}_m_{bits}"].ravel()) <= 1e-5
        applied = {
            dim: nn.functional.normalize(one(x[:40].float()), dim=1).numpy() for dim, one in ((20, whole), (8, eight))
        }
        assert absolute_error(applied[20] * signs.T, found[f"{name}_applied_{bits}"].T) <= 2e-5
        assert absolute_error(applied[8] * signs.T[:, :8], found[f"{name}_applied_first8_{bits}"].T) <= 2e-5
        assert absolute_error(applied[8] @ applied[8].T, found[f"{name}_similarity_first8_{bits}"]) <= 2e-5
    slow = oracles_zoo.whiten_pairs(x.double().numpy(), found["qidxs"], found["pidxs"])
    again = whiten_pairs(x, queries, positives, 20).weight.numpy()
    assert relative_error(np.abs(again), np.abs(slow)) <= 1e-4


def test_a_whitening_of_too_few_pairs(arrays: Callable[[str], Arrays]) -> None:
    found = arrays("cirtorch_whiten")
    x = tensor(found["X_f64"].T)
    queries, positives = tensor(found["singular_pairs"])
    eight = whiten_pairs(x, queries, positives, 8)
    shown = nn.functional.normalize(eight(x[:20].float()), dim=1).numpy()
    assert absolute_error(shown @ shown.T, found["singular_Lw_similarity_first8"]) <= 1e-3
    mean = -np.linalg.lstsq(eight.weight.double().numpy(), eight.bias.double().numpy(), rcond=None)[0]
    rows = eight.weight.double().numpy()
    assert relative_error(rows @ mean, rows @ found["singular_Lw_m"].ravel()) <= 1e-3
    assert found["singular_diagonal_added"] in [0.0, *(1e-10 * 10.0**power for power in range(12))]


# -- Whole networks, from files in the published layout, through extract


def saved(tmp_path: Path, contents: dict[str, object]) -> Network:
    torch.save(contents, tmp_path / "network.pth")
    return load_network(tmp_path / "network.pth")


def vector_of(network: Network, image: np.ndarray, scales: tuple[float, ...], tmp_path: Path) -> np.ndarray:
    Image.fromarray(image).save(tmp_path / "image.png")
    (found,) = extract(network, [tmp_path / "image.png"], ExtractConfig(scales=scales), workers=1)
    assert len(found) == 1
    return np.asarray(found.vectors[0])


def map_of(network: Network, image: np.ndarray) -> Tensor:
    with torch.inference_mode():
        return network.module.trunk(tensor(normalise(image, *network.normalisation)).unsqueeze(0))


@pytest.mark.parametrize(("name", "several"), [("resnet50_gem_w", "both"), ("resnet101_gem", "down")])
def test_whole_gem(arrays: Callable[[str], Arrays], golden: Path, tmp_path: Path, name: str, several: str) -> None:
    found = arrays("cirtorch_full")
    meta = {
        "architecture": name.split("_")[0],
        "pooling": "gem",
        "mean": found["mean"].tolist(),
        "std": found["std"].tolist(),
    }
    network = saved(tmp_path, {"meta": meta, "state_dict": zoo_state(golden, f"cirtorch_{name}")})
    assert network.config.method == "gem"
    maps = map_of(network, found["image"])
    module: Any = network.module
    assert list(maps.shape) == found[f"{name}_map_shape"].tolist()
    assert relative_error(maps.mean(dim=(0, 2, 3)), found[f"{name}_map_channel_means"]) <= DEEP
    assert absolute_error(unit(module.pooling(maps))[0].detach(), found[f"{name}_pooled"]) <= DEEP
    assert absolute_error(vector_of(network, found["image"], (1.0,), tmp_path), found[f"{name}_single"]) <= DEEP
    scales = tuple(found[f"scales_{several}"].tolist())
    assert absolute_error(vector_of(network, found["image"], scales, tmp_path), found[f"{name}_{several}"]) <= DEEP


@pytest.mark.parametrize("arch", ["resnet50", "resnet101"])
def test_whole_apgem(arrays: Callable[[str], Arrays], golden: Path, tmp_path: Path, arch: str) -> None:
    found = arrays("dirtorch")
    state = {f"module.{key}": value for key, value in zoo_state(golden, f"dirtorch_{arch}_rmac").items()}
    network = saved(tmp_path, {"state_dict": state, "model_options": {"arch": f"{arch}_rmac"}})
    assert (network.config.method, network.config.trunk.arch) == ("apgem", arch)
    ours = vector_of(network, found["image"], (1.0,), tmp_path)
    assert absolute_error(ours, found[f"{arch}_rmac_out"]) <= DEEP


def test_whole_solar(arrays: Callable[[str], Arrays], golden: Path, tmp_path: Path) -> None:
    found = arrays("solar")
    meta = {"architecture": "resnet101", "pooling": "gem", "soa_layers": "45"}
    network = saved(tmp_path, {"meta": meta, "state_dict": zoo_state(golden, "solar_resnet101")})
    assert network.config.method == "solar"
    trunk: Any = network.module.trunk
    pixels = tensor(normalise(found["image"], *network.normalisation)).unsqueeze(0)
    with torch.inference_mode():
        x = trunk.maxpool(trunk.bn1(trunk.conv1(pixels)).relu())
        for stage in trunk.stage_names[:3]:
            x = trunk.get_submodule(stage)(x)
        assert relative_error(x.mean(dim=(0, 2, 3)), found["resnet101_stage4_channel_means"]) <= DEEP
        assert relative_error(trunk.soa4(x).mean(dim=(0, 2, 3)), found["resnet101_soa4_channel_means"]) <= DEEP
    maps = map_of(network, found["image"])
    assert relative_error(maps.mean(dim=(0, 2, 3)), found["resnet101_map_channel_means"]) <= DEEP
    assert absolute_error(vector_of(network, found["image"], (1.0,), tmp_path), found["resnet101_single"]) <= DEEP
    both = (1.0, 2**0.5, 2**-0.5)
    assert absolute_error(vector_of(network, found["image"], both, tmp_path), found["resnet101_both"]) <= DEEP


# -- SOLAR's attention, dirtorch's parts


@pytest.mark.parametrize("share", [4, 2])
@torch.inference_mode()
def test_second_order_attention(arrays: Callable[[str], Arrays], share: int) -> None:
    found = arrays("solar")
    module = SecondOrderAttention(16, 16 // share).eval()
    module.load_state_dict({key: tensor(found[f"k{share}_{key}"]) for key in module.state_dict()})
    maps = tensor(found["map"])
    assert relative_error(module(maps), found[f"k{share}_out"]) <= TOLERANCE
    assert relative_error(module.attention(maps), found[f"k{share}_attention"]) <= TOLERANCE


def test_dirtorch_poolings_and_scales(arrays: Callable[[str], Arrays]) -> None:
    found = arrays("dirtorch")
    assert relative_error(gem(tensor(found["map"]), 3.0), found["gem3"]) <= TOLERANCE
    assert relative_error(gem(tensor(found["map"]), 2.5), found["gem2.5"]) <= TOLERANCE
    scales = tensor(found["vectors_per_scale"]).transpose(0, 1)
    for name, power, signed in (("mean", 1.0, False), ("gem3", 3.0, True), ("gem2", 2.0, True)):
        ours = torch.stack([over_scales(one, power, signed) for one in scales])
        assert relative_error(ours, found[f"pooled_{name}_l2"]) <= TOLERANCE, name
        lengths = np.linalg.norm(found[f"pooled_{name}"], axis=1, keepdims=True)
        assert relative_error(ours.numpy() * lengths, found[f"pooled_{name}"]) <= TOLERANCE, name


def test_dirtorch_whitening(arrays: Callable[[str], Arrays]) -> None:
    found = arrays("dirtorch")
    x = tensor(found["pooled_gem3_l2"])
    parts = [tensor(found[f"pca_{key}"]) for key in ("mean", "components", "explained_variance")]
    for key in (key for key in found if key.startswith("whitened_")):
        power, dims, divisor = re.fullmatch(r"whitened_p([\d.]+)(?:_v(\d+))?(?:_m([\d.]+))?(?:_raw)?", key).groups()  # type: ignore[union-attr]
        outputs = None if dims is None else int(dims)
        ours = pca_whitening(*parts, outputs=outputs, power=float(power), divisor=float(divisor or 1))(x)
        if not key.endswith("_raw"):
            ours = nn.functional.normalize(ours, dim=1)
        assert relative_error(ours, found[key]) <= 1e-5, key


@pytest.mark.parametrize(
    ("name", "form"), [("ap", None), ("ap_dist", "distances"), ("tap", "ties"), ("taps", "simple-ties")]
)
def test_average_precision_losses(arrays: Callable[[str], Arrays], name: str, form: str | None) -> None:
    """By the names that recipes have for them (`losses.listwise_form`)."""
    found = arrays("dirtorch")
    scores = tensor(found["ap_scores"]).requires_grad_()
    each = LISTWISE[form](scores, tensor(found["ap_labels"]), int(found["ap_bins"]))
    loss = 1 - each.mean()
    loss.backward()
    assert relative_error(each.detach(), found[f"{name}_each"]) <= TOLERANCE
    assert absolute_error(loss.detach(), found[f"{name}_loss"]) <= TOLERANCE
    assert scores.grad is not None
    assert relative_error(scores.grad, found[f"{name}_grad"]) <= 2e-5  # 64 bits are 1.1e-5 from `ap_dist`'s


def test_average_precision_is_its_oracle(arrays: Callable[[str], Arrays]) -> None:
    found = arrays("dirtorch")
    each = bin_average_precision(tensor(found["ap_scores"]), tensor(found["ap_labels"]), int(found["ap_bins"]))
    slow = oracles_zoo.bin_average_precision(found["ap_scores"], found["ap_labels"], int(found["ap_bins"]))
    assert relative_error(each, slow) <= 1e-5


# -- SOLAR's losses


@pytest.mark.parametrize(("name", "loss"), [("triplet_m1.25", triplet_loss), ("sos", second_order_loss)])
def test_losses_of_solar(arrays: Callable[[str], Arrays], name: str, loss: Callable[..., Tensor]) -> None:
    """A tuple is a query (-1), a positive (1) and negatives (0)."""
    found = arrays("solar")
    assert found["loss_label"].reshape(3, -1)[:, :3].tolist() == [[-1, 1, 0]] * 3
    x = tensor(found["loss_x"]).requires_grad_()
    tuples = x.T.reshape(3, -1, len(x))
    ours = loss(tuples[:, 0], tuples[:, 1], tuples[:, 2:])
    ours.backward()
    assert relative_error(ours.detach(), found[f"{name}_loss"]) <= TOLERANCE
    assert x.grad is not None
    assert relative_error(x.grad, found[f"{name}_grad"]) <= 1e-5
