"""superfeat finds every photo of the same thing: super-features (FIRe, ICLR 2022) and their search."""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Imported when first used, so that `import superfeat` and `superfeat --help` do not load torch.
_HOMES = {
    "Codebook": "index.codebook",
    "CodebookConfig": "config",
    "ExtractConfig": "config",
    "FeatureStore": "extraction.folder",
    "Engine": "engine",
    "Features": "features",
    "ImageWords": "features",
    "Index": "index.index",
    "IndexConfig": "config",
    "Named": "engine",
    "Network": "weights",
    "Ranking": "features",
    "SearchConfig": "config",
    "SuperfeatError": "errors",
    "analyse": "studies.analyse",
    "evaluate": "evaluation.evaluate",
    "extract": "extraction.extract",
    "extract_to": "extraction.extract",
    "index_photos": "index.make",
    "load_network": "weights",
    "reproduce": "studies.reproduce.catalogue",
    "save_network": "weights",
    "train_codebook": "index.codebook",
}
__all__ = [
    "Codebook",
    "CodebookConfig",
    "Engine",
    "ExtractConfig",
    "FeatureStore",
    "Features",
    "ImageWords",
    "Index",
    "IndexConfig",
    "Named",
    "Network",
    "Ranking",
    "SearchConfig",
    "SuperfeatError",
    "__version__",
    "analyse",
    "evaluate",
    "extract",
    "extract_to",
    "index_photos",
    "load_network",
    "reproduce",
    "save_network",
    "train_codebook",
]

if TYPE_CHECKING:
    from superfeat.config import CodebookConfig, ExtractConfig, IndexConfig, SearchConfig
    from superfeat.engine import Engine, Named
    from superfeat.errors import SuperfeatError
    from superfeat.evaluation.evaluate import evaluate
    from superfeat.extraction.extract import extract, extract_to
    from superfeat.extraction.folder import FeatureStore
    from superfeat.features import Features, ImageWords, Ranking
    from superfeat.index.codebook import Codebook, train_codebook
    from superfeat.index.index import Index
    from superfeat.index.make import index_photos
    from superfeat.studies.analyse import analyse
    from superfeat.studies.reproduce.catalogue import reproduce
    from superfeat.weights import Network, load_network, save_network


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'superfeat' has no attribute '{name}'")
    value = getattr(importlib.import_module(f"superfeat.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
