"""DELG's global vector: GeM and a layer. Its local features, for re-ranking, are a network of `delf`."""

import dataclasses

from superfeat.config import PoolingConfig
from superfeat.methods.vectors import BOTH, vector_method
from superfeat.nets.global_vector import VectorRules

DELG = dataclasses.replace(
    vector_method(
        "delg",
        "DELG",
        PoolingConfig("gem", layer=2048),
        VectorRules(unit_before_layer=False, floor=0.0),
        scales=tuple(sorted(BOTH)),
    ),
    round_sizes=True,
)
