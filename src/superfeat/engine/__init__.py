"""Weights + codebook + index behind search(photo). The command line and the service use this and nothing else."""

from superfeat.engine.asked import Asked, within
from superfeat.engine.engine import Engine
from superfeat.found.hits import FoundPhoto, IndexedPhoto
from superfeat.found.matches import ExplainedMatch
from superfeat.found.photos import Named, PhotoLike, photo_key
from superfeat.found.results import Answer

__all__ = [
    "Answer",
    "Asked",
    "Engine",
    "ExplainedMatch",
    "FoundPhoto",
    "IndexedPhoto",
    "Named",
    "PhotoLike",
    "photo_key",
    "within",
]
