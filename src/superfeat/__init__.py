"""superfeat finds every photo of the same thing: super-features (FIRe, ICLR 2022) and their search."""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Imported when first used, so that `import superfeat` and `superfeat --help` do not load torch.
_HOMES = {
    "ExtractConfig": "config",
    "FeatureStore": "feature_store",
    "Features": "features",
    "Network": "weights",
    "SuperfeatError": "errors",
    "extract": "extraction",
    "extract_to": "extraction",
    "load_network": "weights",
    "save_network": "weights",
}
__all__ = [
    "ExtractConfig",
    "FeatureStore",
    "Features",
    "Network",
    "SuperfeatError",
    "__version__",
    "extract",
    "extract_to",
    "load_network",
    "save_network",
]

if TYPE_CHECKING:
    from superfeat.config import ExtractConfig
    from superfeat.errors import SuperfeatError
    from superfeat.extraction import extract, extract_to
    from superfeat.feature_store import FeatureStore
    from superfeat.features import Features
    from superfeat.weights import Network, load_network, save_network


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'superfeat' has no attribute '{name}'")
    value = getattr(importlib.import_module(f"superfeat.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
