"""FIRe against the released implementation, from the trunk to the global vector: eager, fused, and the public path."""

import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

import oracles
from fixtures_recipe import SCALES, absolute_error, recipe, relative_error, released_checkpoint
from superfeat import ExtractConfig, Features, Network, extract, load_network
from superfeat.config import NetworkConfig
from superfeat.extraction.scaling import resize
from superfeat.images import normalise
from superfeat.nets.fire import Fire
from superfeat.nets.fused import FusedResNet, for_inference
from superfeat.nets.local import Local, pool

TRUNK_TOLERANCE = 2e-6  # relative to the largest value
LIT_TOLERANCE = 1e-5  # absolute, from the fixture's own trunk map; values reach 30
STRENGTH_TOLERANCE = 1e-6  # relative
FEATURE_TOLERANCE = 5e-6  # relative, through the whole network
ATTENTION_TOLERANCE = 1e-5  # relative, through the whole network
GLOBAL_TOLERANCE = 1e-6  # absolute, of a unit vector
SCALED_TOLERANCE = 2e-6  # absolute; normalised pixels reach 2.6
POSITION_TOLERANCE = 3e-5  # the same against the oracle, whose sampling positions are float64
NEAR_TIE = 1e-3  # the README's: below this gap at the boundary the chosen may differ

IMAGES = ("im0", "im1")
ROWS = 3  # of a scaled input every third is stored
COMPARED = {  # how many arrays of each kind there are, so that none is lost unseen
    "tiny": {"scaled_input": 8, "backbone": 5, "lit": 5, "attn": 14, "feat": 14},
    "r50": {"scaled_input": 1, "backbone": 1, "lit": 1, "attn": 4, "feat": 14},
}


@dataclasses.dataclass(frozen=True, repr=False)
class Case:
    """One fixture file, the eager network of its weights, and the scales of its images through both trunks."""

    name: str
    arrays: dict[str, np.ndarray]
    network: Network
    locals: dict[tuple[str, str], list[Local]]  # (eager or fused, image) -> one per scale

    def scale_of(self, key: str) -> tuple[str, float, int]:
        """'im1_feat_s3' -> 'im1', 0.707, 3."""
        number = int(key[-1])
        return key[:3], SCALES[number], number

    def keys(self, what: str) -> list[str]:
        return [key for key in self.arrays if re.fullmatch(rf"im\d_{what}_s\d", key)]


def thinned(found: Any, expected: np.ndarray) -> Any:
    """The values that the fixture keeps: one in so many of the last axis."""
    step, rest = divmod(found.shape[-1], expected.shape[-1])
    assert rest == 0
    return found[..., ::step]


def as_input(pixels: np.ndarray, scale: float = 1.0) -> Tensor:
    network = NetworkConfig()
    image = torch.from_numpy(normalise(pixels, network.trunk.mean, network.trunk.std)).unsqueeze(0)
    return resize(image, scale, recompute=False)


@torch.inference_mode()
def build_case(name: str, arrays: dict[str, np.ndarray], network: Network) -> Case:
    assert isinstance(network.module, Fire)
    fused = for_inference(network.module)
    assert isinstance(fused.trunk, FusedResNet), (
        "this build of torch has no fused operators: the fused trunk is not tested"
    )
    found = {
        (kind, image): [module(as_input(arrays[image], scale)) for scale in SCALES]
        for kind, module in (("eager", network.module), ("fused", fused))
        for image in IMAGES
    }
    return Case(name, arrays, network, found)


@pytest.fixture(scope="module", params=["tiny", "r50"])
def case(request: pytest.FixtureRequest, golden: Path, tmp_path_factory: pytest.TempPathFactory) -> Case:
    with np.load(golden / f"fire_{request.param}_forward.npz") as file:
        arrays = dict(file)
    if request.param == "tiny":
        return build_case(request.param, arrays, load_network(golden / "fire_tiny.pth"))
    shapes = json.loads((golden / "fire_r50_state_dict_shapes.json").read_text())
    state = {key: recipe(key, shape) for key, shape in shapes.items()}
    file = tmp_path_factory.mktemp("r50") / "fire.pth"
    torch.save(released_checkpoint(state, "fire/2021", {}), file)
    return build_case(request.param, arrays, load_network(file))


def test_every_array_is_compared(case: Case) -> None:
    by_scale = r"(feat|strength|attn|scaled_input|backbone|lit)_s\d"
    selection = r"top\d+_(index|strength|loc|scale|boundary_gap)"
    covered = rf"im\d(_({by_scale}|{selection}|global_(train|ms)))?"
    assert [key for key in case.arrays if not re.fullmatch(covered, key)] == []
    assert {what: len(case.keys(what)) for what in COMPARED[case.name]} == COMPARED[case.name]


def test_scaled_inputs(case: Case) -> None:
    for key in case.keys("scaled_input"):
        image, scale, _ = case.scale_of(key)
        found = as_input(case.arrays[image], scale)[0, :, ::ROWS]
        assert absolute_error(found, case.arrays[key]) <= SCALED_TOLERANCE, key


def test_scaled_inputs_by_the_oracle(case: Case) -> None:
    image = as_input(case.arrays["im1"])[0].double().numpy()
    for key in case.keys("scaled_input"):
        name, scale, _ = case.scale_of(key)
        if name == "im1":
            found = oracles.bilinear(image, scale, recompute=False)[:, ::ROWS]
            assert absolute_error(found, case.arrays[key]) <= POSITION_TOLERANCE, key


@pytest.mark.parametrize("kind", ["eager", "fused"])
def test_trunk(case: Case, kind: str) -> None:
    module = case.network.module
    trunk: Any = module.trunk if kind == "eager" else for_inference(module).trunk
    for key in case.keys("backbone"):
        image, scale, _ = case.scale_of(key)
        with torch.inference_mode():
            found = trunk(as_input(case.arrays[image], scale))[0]
        assert relative_error(found, case.arrays[key]) <= TRUNK_TOLERANCE, key


@pytest.mark.parametrize("kind", ["eager", "fused"])
def test_lit_on_the_fixtures_own_maps(case: Case, kind: str) -> None:
    module = case.network.module if kind == "eager" else for_inference(case.network.module)
    assert isinstance(module, Fire)
    for key in case.keys("lit"):
        image, _, number = case.scale_of(key)
        with torch.inference_mode():
            found, maps = module.lit(torch.from_numpy(case.arrays[f"{image}_backbone_s{number}"]).unsqueeze(0))
        assert absolute_error(thinned(found[0], case.arrays[key]), case.arrays[key]) <= LIT_TOLERANCE, key
        assert relative_error(maps[0], case.arrays[f"{image}_attn_s{number}"]) <= ATTENTION_TOLERANCE, key


def test_lit_by_the_oracle(golden: Path) -> None:
    """The oracle itself agrees with the released implementation (the tiny network, to save time)."""
    network = load_network(golden / "fire_tiny.pth")
    assert isinstance(network.module, Fire)
    with np.load(golden / "fire_tiny_forward.npz") as arrays:
        places = arrays["im0_backbone_s6"].reshape(128, -1).T
        parameters = {name: value.numpy() for name, value in network.module.lit.state_dict().items()}
        found, alpha = oracles.lit(places, parameters, rounds=6)
        assert absolute_error(found, arrays["im0_lit_s6"]) <= LIT_TOLERANCE
        assert relative_error(alpha.reshape(16, 3, 4), arrays["im0_attn_s6"]) <= ATTENTION_TOLERANCE


@pytest.mark.parametrize("kind", ["eager", "fused"])
@pytest.mark.parametrize("image", IMAGES)
def test_features_of_every_scale(case: Case, kind: str, image: str) -> None:
    for number, local in enumerate(case.locals[kind, image]):
        expected = case.arrays[f"{image}_feat_s{number}"]
        assert relative_error(thinned(local.vectors[0], expected), expected) <= FEATURE_TOLERANCE, number
        assert relative_error(local.strengths[0], case.arrays[f"{image}_strength_s{number}"]) <= STRENGTH_TOLERANCE, (
            number
        )


@pytest.mark.parametrize("kind", ["eager", "fused"])
def test_attention_maps(case: Case, kind: str) -> None:
    for key in case.keys("attn"):
        image, _, number = case.scale_of(key)
        maps = case.locals[kind, image][number].maps
        assert maps is not None
        assert relative_error(maps[0], case.arrays[key]) <= ATTENTION_TOLERANCE, key


@pytest.mark.parametrize("kind", ["eager", "fused"])
@pytest.mark.parametrize("image", IMAGES)
def test_global_vectors(case: Case, kind: str, image: str) -> None:
    scales = case.locals[kind, image]
    assert absolute_error(pool([scales[2]])[0], case.arrays[f"{image}_global_train"]) <= GLOBAL_TOLERANCE
    assert absolute_error(pool(scales)[0], case.arrays[f"{image}_global_ms"]) <= GLOBAL_TOLERANCE


def test_extract_from_png_files(case: Case, tmp_path: Path) -> None:
    """The public path with its defaults, at every number of features that the fixture has."""
    for image in IMAGES:
        Image.fromarray(case.arrays[image]).save(tmp_path / f"{image}.png")
    numbers = sorted({int(key.split("_top")[1].split("_")[0]) for key in case.arrays if "_top" in key})
    assert numbers[-1] == ExtractConfig().features_per_image
    for k in numbers:
        config = ExtractConfig(features_per_image=k)
        found = {features.name: features for features in extract(case.network, tmp_path, config)}
        assert list(found) == ["im0.png", "im1.png"]
        for image in IMAGES:
            check_selection(case.arrays, image, k, found[f"{image}.png"])


def check_selection(arrays: dict[str, np.ndarray], image: str, k: int, found: Features) -> None:
    """Same strengths in order, same features chosen except for near ties at the boundary, same vector for each."""
    prefix = f"{image}_top{k}"
    assert (
        absolute_error(found.strengths, arrays[f"{prefix}_strength"])
        <= STRENGTH_TOLERANCE * arrays[f"{prefix}_strength"].max()
    )
    expected = [SCALES[int(index) // per_scale(arrays)] for index in arrays[f"{prefix}_index"]]
    np.testing.assert_array_equal(np.array(expected, np.float16), arrays[f"{prefix}_scale"])
    np.testing.assert_array_equal(arrays[f"{prefix}_loc"][:, 0], 0)
    np.testing.assert_array_equal(arrays[f"{prefix}_loc"][:, 1], arrays[f"{prefix}_index"] % per_scale(arrays))
    theirs = {int(index): rank for rank, index in enumerate(arrays[f"{prefix}_index"])}
    ours = {number: rank for rank, number in enumerate(numbers_of(found, per_scale(arrays)))}
    if arrays[f"{prefix}_boundary_gap"] >= NEAR_TIE:
        assert ours.keys() == theirs.keys()
    weakest = arrays[f"{prefix}_strength"][-1]
    for number in ours.keys() ^ theirs.keys():
        assert abs(strength_of(arrays, image, number) - weakest) <= NEAR_TIE
    scale = max(abs(arrays[f"{image}_feat_s{number}"]).max() for number in range(len(SCALES)))
    for number, rank in ours.items():
        vector = arrays[f"{image}_feat_s{number // per_scale(arrays)}"][number % per_scale(arrays)]
        assert absolute_error(thinned(found.vectors[rank], vector), vector) <= FEATURE_TOLERANCE * scale


def per_scale(arrays: dict[str, np.ndarray]) -> int:
    return len(arrays["im0_strength_s0"])


def numbers_of(found: Features, count: int) -> Iterator[int]:
    """Numbers in the concatenation of all scales."""
    order = {np.float32(scale): number for number, scale in enumerate(SCALES)}
    return (order[scale] * count + int(one) for scale, one in zip(found.scales, found.ids, strict=True))


def strength_of(arrays: dict[str, np.ndarray], image: str, number: int) -> float:
    return float(arrays[f"{image}_strength_s{number // per_scale(arrays)}"][number % per_scale(arrays)])


def test_order_where_strengths_are_far_apart(case: Case) -> None:
    """The fixture's own strengths, sorted by the oracle, give the fixture's own order except for near ties."""
    for image in IMAGES:
        strengths = [case.arrays[f"{image}_strength_s{number}"].tolist() for number in range(len(SCALES))]
        k = len(case.arrays[f"{image}_top1000_index"])
        chosen = oracles.strongest(strengths, k)
        values = [strengths[s][i] for s, i in chosen]
        np.testing.assert_allclose(values, case.arrays[f"{image}_top1000_strength"], rtol=0, atol=NEAR_TIE)
