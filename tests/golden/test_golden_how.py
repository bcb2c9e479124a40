"""HOW against the released implementation: features and strengths of every scale, selection, global vectors."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import oracles
from fixtures_recipe import SCALES, absolute_error, relative_error, released_checkpoint, released_state
from superfeat import ExtractConfig, Network, extract, load_network
from superfeat.config import NetworkConfig, TrunkConfig
from superfeat.extraction.scaling import resize
from superfeat.images import normalise
from superfeat.nets.fused import FusedResNet, for_inference
from superfeat.nets.local import Local, pool
from superfeat.weights import build_module

FEATURE_TOLERANCE = 3e-6  # relative, through the whole network
STRENGTH_TOLERANCE = 3e-6  # absolute; the strongest place of all scales has 1
GLOBAL_TOLERANCE = 1e-6  # absolute, of a unit vector
ROWS = 3  # of the scaled input every third is stored
CONFIGS = {
    "tiny": NetworkConfig("how", TrunkConfig(arch="resnet18", stages=2), None, whitened_dim=32),
    "r50": NetworkConfig("how", TrunkConfig(), None, whitened_dim=128),
}


@dataclasses.dataclass(frozen=True, repr=False)
class Case:
    arrays: dict[str, np.ndarray]
    network: Network
    locals: dict[str, list[Local]]  # eager or fused -> one per scale


@pytest.fixture(scope="module", params=["tiny", "r50"])
def case(request: pytest.FixtureRequest, golden: Path, tmp_path_factory: pytest.TempPathFactory) -> Case:
    with np.load(golden / f"how_{request.param}_forward.npz") as file:
        arrays = dict(file)
    state = released_state(build_module(CONFIGS[request.param]))
    file = tmp_path_factory.mktemp("how") / "how.pth"
    torch.save(released_checkpoint(state, "how/2020", {}), file)
    network = load_network(file)
    assert network.config == CONFIGS[request.param]
    fused = for_inference(network.module)
    assert isinstance(fused.trunk, FusedResNet)
    image = torch.from_numpy(normalise(arrays["im0"], *network.normalisation)).unsqueeze(0)
    with torch.inference_mode():
        found = {
            kind: [module(resize(image, scale, recompute=True)) for scale in SCALES]
            for kind, module in (("eager", network.module), ("fused", fused))
        }
    return Case(arrays, network, found)


def test_every_array_is_compared(case: Case) -> None:
    covered = r"im0|(feat|mask)_s\d|top300_(desc|strength|loc|scale)|global_(train|ms)|scaled_input_s1"
    assert [key for key in case.arrays if not re.fullmatch(covered, key)] == []


def test_scaled_input(case: Case) -> None:
    pixels = normalise(case.arrays["im0"], *case.network.normalisation)
    found = resize(torch.from_numpy(pixels).unsqueeze(0), SCALES[1], recompute=True)[0]
    assert absolute_error(found[:, ::ROWS], case.arrays["scaled_input_s1"]) <= 2e-6
    assert absolute_error(oracles.bilinear(pixels.astype(np.float64), SCALES[1], recompute=True), found) <= 3e-5


@pytest.mark.parametrize("kind", ["eager", "fused"])
def test_features_and_strengths_of_every_scale(case: Case, kind: str) -> None:
    scales = case.locals[kind]
    top = max(float(local.strengths.max()) for local in scales)
    compared = 0
    for number, local in enumerate(scales):
        if f"feat_s{number}" in case.arrays:
            expected = case.arrays[f"feat_s{number}"]
            assert local.grid == expected.shape[1:]
            assert relative_error(local.vectors[0].T.reshape(expected.shape), expected) <= FEATURE_TOLERANCE
            mask = case.arrays[f"mask_s{number}"]
            assert absolute_error(local.strengths[0].reshape(mask.shape) / top, mask) <= STRENGTH_TOLERANCE
            compared += 2
    assert compared == sum(key.startswith(("feat_", "mask_")) for key in case.arrays)


@pytest.mark.parametrize("kind", ["eager", "fused"])
def test_global_vectors(case: Case, kind: str) -> None:
    scales = case.locals[kind]
    assert absolute_error(pool([scales[2]])[0], case.arrays["global_train"]) <= GLOBAL_TOLERANCE
    assert absolute_error(pool(scales)[0], case.arrays["global_ms"]) <= GLOBAL_TOLERANCE


def test_extract_from_a_png_file(case: Case, tmp_path: Path) -> None:
    """The public path: strengths in order, then place, scale and vector of each."""
    Image.fromarray(case.arrays["im0"]).save(tmp_path / "im0.png")
    (found,) = extract(case.network, [tmp_path / "im0.png"], ExtractConfig(features_per_image=300))
    assert absolute_error(found.strengths, case.arrays["top300_strength"]) <= STRENGTH_TOLERANCE
    widths = {np.float32(scale): local.grid[1] for scale, local in zip(SCALES, case.locals["eager"], strict=True)}
    ours = {}
    for rank, (scale, place) in enumerate(zip(found.scales, found.ids, strict=True)):
        ours[float(np.float16(scale)), int(place) % widths[scale], int(place) // widths[scale]] = rank
    theirs = {
        (float(scale), int(x), int(y)): rank
        for rank, (scale, (x, y)) in enumerate(zip(case.arrays["top300_scale"], case.arrays["top300_loc"], strict=True))
    }
    weakest = case.arrays["top300_strength"][-1]
    for place in ours.keys() ^ theirs.keys():  # only near ties at the boundary may differ
        value = found.strengths[ours[place]] if place in ours else case.arrays["top300_strength"][theirs[place]]
        assert abs(value - weakest) <= STRENGTH_TOLERANCE
    both = [place for place in ours if place in theirs]
    vectors = found.vectors[[ours[place] for place in both]]
    expected = case.arrays["top300_desc"][[theirs[place] for place in both]]
    step = vectors.shape[1] // expected.shape[1]  # the fixture keeps one dimension in so many
    assert relative_error(vectors[:, ::step], expected) <= FEATURE_TOLERANCE
    assert len(both) >= 298
