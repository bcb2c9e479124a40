"""The released checkpoints' form: a real one, and one made of the 274 names and shapes of the published file."""

import collections
import json
from pathlib import Path

import numpy as np
import torch

from fixtures_recipe import MEAN_STD, SCALES, recipe, released_checkpoint, released_name
from superfeat import load_network
from superfeat.config import LitConfig, NetworkConfig, TrunkConfig
from superfeat.storage.unpickle import read_torch


def test_the_names_and_shapes_of_the_published_checkpoint(golden: Path, tmp_path: Path) -> None:
    shapes = json.loads((golden / "fire_r50_state_dict_shapes.json").read_text())
    assert len(shapes) == 274
    state = {key: recipe(key, shape) for key, shape in shapes.items()}
    net_params = {
        "architecture": "resnet50",
        "pretrained": None,
        "skip_layer": 1,
        "dim_reduction": {"dim": 128},
        "lit": {"T": 6, "N": 256, "dim": 1024},
        "runtime": {"mean_std": MEAN_STD, "image_size": 1024, "features_num": 1000, "scales": list(SCALES)},
    }
    torch.save(released_checkpoint(state, "fire/2021", net_params), tmp_path / "fire.pth")
    network = load_network(tmp_path / "fire.pth")
    assert network.config == NetworkConfig(), "the paper's network is the default"
    ours = network.module.state_dict()
    assert {released_name(name) for name in ours} == set(shapes)
    for name, value in ours.items():
        assert torch.equal(value, state[released_name(name)].reshape(value.shape)), name


def test_a_checkpoint_of_the_released_training_script(golden: Path) -> None:
    contents = read_torch(golden / "fire_tiny.pth")
    assert contents["_version"] == "fire/2021"
    assert isinstance(contents["scores"], collections.defaultdict)
    assert contents["scores"]["train_loss"] == [(1, 0.0)]
    network = load_network(golden / "fire_tiny.pth")
    assert network.config == NetworkConfig(
        "fire", TrunkConfig("resnet18", 2), LitConfig(templates=16, dim=64), whitened_dim=32
    )
    assert network.provenance["kind"] == "released FIRe checkpoint"
    assert network.dim == 32
    for name, value in network.module.state_dict().items():
        theirs = contents["state_dict"][released_name(name)]
        np.testing.assert_array_equal(value, theirs.reshape(value.shape), err_msg=name)
