"""A network in memory: its module, its settings, and where its weights come from."""

import copy
import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32
from torch import Tensor, nn

from superfeat.config import NetworkConfig
from superfeat.errors import ConfigError, WeightsError
from superfeat.methods import method_of
from superfeat.nets.fused import for_inference
from superfeat.nets.local import Local, LocalNetwork
from superfeat.nets.trunk import Normalisation
from superfeat.nets.whitening import Whitening
from superfeat.settings import as_dict, overlay
from superfeat.weights.facts import Provenance as Provenance
from superfeat.weights.facts import is_taught_by
from superfeat.weights.ranges import Ranges


@dataclasses.dataclass(frozen=True, eq=False)
class Network:
    """A network ready to use: its module (images -> Local), its settings, and where its weights come from.

    It does not change: whoever trains a module wraps it anew.
    """

    module: LocalNetwork
    config: NetworkConfig
    provenance: Provenance = dataclasses.field(default_factory=dict)
    ranges: Ranges | None = None  # of its trunk's activations, for int8

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of all settings and parameters: the same network has the same digest whatever file it came from."""
        return digest_of(self.config, self.module.state_dict())

    @functools.cached_property
    def fast(self) -> Callable[[Tensor], Local]:
        """The module for inference on a CPU: fused where that is possible."""
        return for_inference(self.module) if isinstance(self.module, nn.Module) else self.module

    def on(self, device: str) -> Callable[[Tensor], Local]:
        """The module for inference on a device; a copy, made once, since this network stays where it is."""
        if device == "cpu":
            return self.fast
        if not isinstance(self.module, nn.Module):
            raise WeightsError(f"an exported network runs on the CPU, not on '{device}'; give the one it came from")
        copies: dict[str, LocalNetwork] = vars(self).setdefault("_copies", {})
        if device not in copies:
            copies[device] = copy.deepcopy(self.module).eval().to(device)
        return copies[device]

    @property
    def normalisation(self) -> Normalisation:
        return Normalisation(self.config.trunk.mean, self.config.trunk.std)

    @property
    def stride(self) -> int:
        """Pixels from one place of the map to the next."""
        return self.module.trunk.stride

    @property
    def one_vector(self) -> bool:
        """Whether a photo is one vector, and not many local features."""
        return method_of(self.config.method).one_vector

    @property
    def superfeatures(self) -> int | None:
        """How many features of a scale are super-features; those after them are points. None: there are none."""
        return None if self.config.lit is None else self.config.lit.templates

    def without_points(self) -> "Network":
        """The same network, with super-features alone: they are what they were, and so is the digest."""
        bare = dataclasses.replace(self, config=dataclasses.replace(self.config, points=None))
        vars(bare)["digest"] = self.digest
        return bare

    def taught_by(self, network: str | None) -> bool:
        """Whether it learned from the network with this digest."""
        return is_taught_by(self.provenance, network)

    def standing_for(self, network: str | None) -> "Network":
        """A student in the place of the network that taught it, which has this digest: its features are taken for the
        teacher's. Any other network is given as it is.
        """
        if not self.taught_by(network):
            return self
        student = dataclasses.replace(self)
        vars(student)["digest"] = network
        return student

    @torch.inference_mode()
    def combine(self, vectors: Float32[np.ndarray, "scales raw"]) -> Float32[np.ndarray, " dim"]:
        """The vector of a photo from those of its scales."""
        combined: Tensor = self.module.combine(torch.from_numpy(vectors))  # type: ignore[operator]
        return combined.numpy()

    @property
    def dim(self) -> int:
        """Dimensions of a feature."""
        return self.config.whitened_dim or raw_dim(self.config, self.module.trunk.channels)


def digest_of(config: NetworkConfig, state: dict[str, Tensor]) -> str:
    """SHA-256 of settings and parameters, in 32 bits."""
    total = hashlib.sha256(json.dumps(as_dict(config), sort_keys=True).encode())
    for name, tensor in sorted(state.items()):
        if not name.endswith("num_batches_tracked"):
            total.update(f"{name} {tuple(tensor.shape)}".encode())
            total.update(tensor.detach().cpu().float().contiguous().numpy().tobytes())
    return total.hexdigest()


def raw_dim(config: NetworkConfig, channels: int) -> int:
    """Dimensions of a feature before whitening, on a trunk with so many channels."""
    return method_of(config.method).raw_dim(config, channels)


def build_module(config: NetworkConfig) -> LocalNetwork:
    """The network of these settings, newly initialised."""
    trunk = method_of(config.method).trunk(config.trunk)
    raw = raw_dim(config, trunk.channels)
    whitening = None if config.whitened_dim is None else Whitening(raw, config.whitened_dim)
    return method_of(config.method).build(config, trunk, whitening).eval()


def network_config(settings: Any, source: Path) -> NetworkConfig:
    """The settings that config.json holds, checked."""
    if not isinstance(settings, dict):
        raise WeightsError(f"{source} is damaged: it holds no network settings")
    try:
        return overlay(method_of(str(settings.get("method"))).network, settings)
    except ConfigError as error:
        raise WeightsError(f"{source}: {error}") from error
