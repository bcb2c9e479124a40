"""A network in memory: its module, its settings, and where its weights come from."""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from superfeat.config import NetworkConfig
from superfeat.errors import ConfigError, WeightsError
from superfeat.nets.fire import Fire
from superfeat.nets.fused import for_inference
from superfeat.nets.how import How
from superfeat.nets.lit import Lit
from superfeat.nets.local import Local
from superfeat.nets.trunk import Normalisation, ResNet
from superfeat.nets.whitening import Whitening
from superfeat.settings import as_dict, overlay

BARE = NetworkConfig("how", lit=None, whitened_dim=None)  # what a config file's settings are laid over


@dataclasses.dataclass(frozen=True, eq=False)
class Network:
    """A network ready to use: its module (images -> Local), its settings, and where its weights come from.

    It does not change: whoever trains a module wraps it anew.
    """

    module: Fire | How
    config: NetworkConfig
    provenance: dict[str, Any] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of all settings and parameters: the same network has the same digest whatever file it came from."""
        return digest_of(self.config, self.module.state_dict())

    @functools.cached_property
    def fast(self) -> Callable[[Tensor], Local]:
        """The module for inference on a CPU: fused where that is possible."""
        return for_inference(self.module) if isinstance(self.module, nn.Module) else self.module

    @property
    def normalisation(self) -> Normalisation:
        return Normalisation(self.config.trunk.mean, self.config.trunk.std)

    @property
    def dim(self) -> int:
        """Dimensions of a feature."""
        raw = self.config.lit.dim if self.config.lit else self.module.trunk.channels
        return self.config.whitened_dim or raw


def digest_of(config: NetworkConfig, state: dict[str, Tensor]) -> str:
    """SHA-256 of settings and parameters, in 32 bits."""
    total = hashlib.sha256(json.dumps(as_dict(config), sort_keys=True).encode())
    for name, tensor in sorted(state.items()):
        if not name.endswith("num_batches_tracked"):
            total.update(f"{name} {tuple(tensor.shape)}".encode())
            total.update(tensor.detach().cpu().float().contiguous().numpy().tobytes())
    return total.hexdigest()


def build_module(config: NetworkConfig) -> Fire | How:
    """The network of these settings, newly initialised."""
    trunk_config = config.trunk
    normalisation = Normalisation(trunk_config.mean, trunk_config.std)
    trunk = ResNet(trunk_config.arch, trunk_config.stages, trunk_config.stride_in_1x1, normalisation)
    raw = config.lit.dim if config.lit else trunk.channels
    whitening = None if config.whitened_dim is None else Whitening(raw, config.whitened_dim)
    if config.lit is None:
        return How(trunk, whitening).eval()
    return Fire(trunk, Lit(trunk.channels, **as_dict(config.lit)), whitening).eval()


def network_config(settings: Any, source: Path) -> NetworkConfig:
    """The settings that config.json holds, checked."""
    if not isinstance(settings, dict):
        raise WeightsError(f"{source} is damaged: it holds no network settings")
    try:
        base = NetworkConfig() if settings.get("method") == "fire" else BARE
        return overlay(base, settings)
    except ConfigError as error:
        raise WeightsError(f"{source}: {error}") from error
