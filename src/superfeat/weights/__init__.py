"""Weights: our own format, the released checkpoints, trunk files of other libraries, and named weights to fetch."""

import importlib
from typing import TYPE_CHECKING, Any

# Imported when first used: a photo can be looked at without torch, by ONNX Runtime.
_HOMES = {
    "Network": "network",
    "build_module": "network",
    "carried_calibration": "files",
    "carried_codebook": "files",
    "find_weights": "named",
    "load_network": "files",
    "save_network": "files",
}
__all__ = [
    "Network",
    "build_module",
    "carried_calibration",
    "carried_codebook",
    "find_weights",
    "load_network",
    "save_network",
]

if TYPE_CHECKING:
    from superfeat.weights.files import carried_calibration, carried_codebook, load_network, save_network
    from superfeat.weights.named import find_weights
    from superfeat.weights.network import Network, build_module


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'superfeat.weights' has no attribute '{name}'")
    value = getattr(importlib.import_module(f"superfeat.weights.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
