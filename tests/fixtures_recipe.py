"""Seeded weights by the recipe of the reference fixtures, checkpoints in the released form, photos, error measures."""

import collections
import signal
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PosixPath
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor, nn

from superfeat.config import LitConfig, NetworkConfig, TrunkConfig
from superfeat.index.codebook import train_codebook
from superfeat.nets.local import Local
from superfeat.training.run import Event
from superfeat.weights import Network, build_module, save_network

SCALES = (2.0, 1.414, 1.0, 0.707, 0.5, 0.353, 0.25)
PARTS = {"conv1": "0", "bn1": "1", "layer1": "4", "layer2": "5", "layer3": "6", "layer4": "7"}
LIT_PARTS = {"templates": "templates_init", "query": "project_q", "key": "project_k", "value": "project_v"}
MEAN_STD = [[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]]


def recipe(key: str, shape: Sequence[int]) -> Tensor:
    """The value of a released state-dict entry, from its name and shape alone (README of the fixtures)."""
    if key.endswith("num_batches_tracked"):
        return torch.tensor(0)
    n = np.random.RandomState(zlib.crc32(key.encode()) & 0x7FFFFFFF).standard_normal(tuple(shape))
    if key.endswith("running_mean"):
        value = 0.1 * n
    elif key.endswith("running_var"):
        value = 0.5 + abs(n)
    elif key.endswith("templates_init"):
        value = n
    elif len(shape) >= 2:
        value = _gain(key, len(shape)) * n / np.sqrt(np.prod(shape[1:]))
    elif key.endswith(".weight"):
        value = (0.3 if ".bn3." in key else 1.0) + 0.1 * n
    else:
        value = 0.1 * n
    return torch.tensor(np.asarray(value, dtype=np.float32))


def _gain(key: str, dimensions: int) -> float:
    if dimensions == 4:
        return 1.4142135
    return 1.7 if key.endswith(("project_q.weight", "project_k.weight")) else 1.0


def released_name(ours: str) -> str:
    """Our parameter's name -> the released checkpoints' (METHOD.md 9)."""
    part, _, rest = ours.partition(".")
    head, _, tail = rest.partition(".")
    if part == "trunk":
        return f"features.{PARTS[head]}.{tail}"
    if part == "whitening":
        return f"dim_reduction.{rest}"
    return "lit." + ".".join(filter(None, (LIT_PARTS.get(head, head), tail)))


def released_shape(ours: str, shape: Sequence[int]) -> tuple[int, ...]:
    """Released whitening is a 1x1 convolution, released templates have a batch dimension."""
    if ours == "whitening.weight":
        return (*shape, 1, 1)
    return (1, *shape) if ours == "lit.templates" else tuple(shape)


def released_state(module: nn.Module) -> dict[str, Tensor]:
    """The recipe's state dict for this network, under the released names."""
    state: collections.OrderedDict[str, Tensor] = collections.OrderedDict()
    for ours, value in module.state_dict().items():
        state[released_name(ours)] = recipe(released_name(ours), released_shape(ours, value.shape))
    return state


def fill(module: nn.Module, state: Mapping[str, Tensor] | None = None) -> None:
    """Puts a released state dict (the recipe's if none is given) into a network of ours, name by name."""
    state = released_state(module) if state is None else state
    expected = module.state_dict()
    module.load_state_dict({ours: state[released_name(ours)].reshape(value.shape) for ours, value in expected.items()})


def recipe_network(config: NetworkConfig) -> Network:
    """A network whose every parameter, batch-norm statistics too, is random but always the same."""
    module = build_module(config)
    fill(module)
    return Network(module, config, {"source": "recipe"})


def released_checkpoint(state: Mapping[str, Tensor], version: str, net_params: Mapping[str, Any]) -> dict[str, Any]:
    """A checkpoint as the released training scripts write it: with a defaultdict, numpy scalars and a path inside."""
    scores: collections.defaultdict[str, list[Any]] = collections.defaultdict(list)
    scores["train_loss"].append((1, np.float64(0.25)))
    return {
        "epoch": np.int64(7),
        "meta": {"architecture": "resnet", "folder": PosixPath("/data/experiments/one")},
        "state_dict": collections.OrderedDict(state),
        "optimizer": {"state": {}, "param_groups": [{"lr": 3e-5, "betas": (0.9, 0.999), "params": [0, 1]}]},
        "best_score": np.float32(0.5),
        "scores": scores,
        "net_params": dict(net_params),
        "_version": version,
    }


def relative_error(found: npt.ArrayLike, expected: npt.ArrayLike) -> float:
    """The largest absolute difference over the largest absolute value."""
    a, b = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    assert a.shape == b.shape, f"{a.shape} is not {b.shape}"
    return float(abs(a - b).max() / abs(b).max())


def absolute_error(found: npt.ArrayLike, expected: npt.ArrayLike) -> float:
    a, b = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    assert a.shape == b.shape, f"{a.shape} is not {b.shape}"
    return float(abs(a - b).max())


def save_noise(folder: Path, count: int) -> Path:
    """So many photos of nothing, all different: p0.png, p1.png, ..."""
    folder.mkdir()
    for number in range(count):
        Image.fromarray(noise(72, 96, number)).save(folder / f"p{number}.png")
    return folder


def noise(height: int, width: int, seed: int = 0) -> npt.NDArray[np.uint8]:
    """A random photo with some structure: coarse noise, smoothly enlarged."""
    coarse = np.random.default_rng(seed).integers(0, 256, (max(1, height // 4), max(1, width // 4), 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC))


class Quick:
    """Stands in a network's place where only the numbers' way matters: a few features of the image's mean colour.

    Strengths have few different values, so that there are many ties.
    """

    recompute_scale = False
    trunk = SimpleNamespace(channels=3)

    def __init__(self, features: int, dim: int) -> None:
        self.shape = features, dim

    def state_dict(self) -> dict[str, Tensor]:
        return {"shape": torch.tensor(self.shape)}

    def __call__(self, images: Tensor) -> Local:
        features, dim = self.shape
        height, width = images.shape[-2:]
        rng = np.random.default_rng([height, width])
        vectors = rng.standard_normal((1, features, dim)).astype(np.float32) + float(images.mean())
        strengths = rng.integers(1, 4, (1, features)).astype(np.float32)
        maps = torch.full((1, features, 1, 1), 1.0)
        return Local(torch.from_numpy(vectors), torch.from_numpy(strengths), (1, 1), maps)


def quick_network(features: int = 5, dim: int = 3) -> Network:
    lit = LitConfig(templates=features, dim=dim)
    return Network(Quick(features, dim), NetworkConfig("fire", TrunkConfig(), lit, whitened_dim=None))  # type: ignore[arg-type]


def save_random_network(path: Path, templates: int, whitened_dim: int) -> Path:
    """A small FIRe network on disk, for tests of the command line."""
    torch.manual_seed(3)
    lit = LitConfig(templates=templates, rounds=2, dim=16)
    config = NetworkConfig("fire", TrunkConfig("resnet18", 2), lit, whitened_dim)
    module = build_module(config)
    assert module.whitening is not None
    torch.nn.init.normal_(module.whitening.weight)
    save_network(Network(module, config), path)
    return path


def network_with_words(folder: Path) -> Path:
    """A network with its codebook, so that no index has to learn one."""
    path = save_random_network(folder / "tiny", templates=8, whitened_dim=16)
    vectors = np.random.default_rng(0).standard_normal((256, 16)).astype(np.float32)
    train_codebook([vectors / np.linalg.norm(vectors, axis=1, keepdims=True)], words=16).save(path / "codebook")
    return path


def listen_to_ctrl_c() -> None:
    """To be run in a new process: background jobs of a shell ignore Ctrl-C, and so would their children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def take(events: Iterator[Event], stage: str, number: int = 1) -> None:
    """Goes on until the `number`th event of this stage."""
    seen = 0
    for event in events:
        seen += event.stage == stage
        if seen == number:
            return
    raise AssertionError(f"there are only {seen} events of {stage}")
