"""DELF, and DELG's local features: places of the map that a small head selects by attention."""

import numpy as np
import torch

from superfeat.config import AttentionConfig, NetworkConfig, TrunkConfig
from superfeat.errors import SuperfeatError
from superfeat.methods.method import Graph, Method, Shapes
from superfeat.nets.attentive import HIDDEN, AttentionHead, Autoencoder, Delf
from superfeat.nets.trunk import Trunk
from superfeat.nets.whitening import Whitening

SCALES = (0.25, 8**-0.5, 0.5, 2**-0.5, 1.0, 2**0.5, 2.0)
LENGTH_FLOOR = 1e-12


def _build(config: NetworkConfig, trunk: Trunk, whitening: Whitening | None) -> Delf:
    chosen = config.attention
    assert chosen is not None
    head = AttentionHead(trunk.channels, chosen.epsilon) if chosen.trained else None
    narrow = Autoencoder(trunk.channels, chosen.reduced) if chosen.source == "reduced" else None
    return Delf(trunk, head, narrow, whitening, chosen.source)


def _raw_dim(config: NetworkConfig, channels: int) -> int:
    assert config.attention is not None
    return {"map": channels, "reduced": config.attention.reduced, "head": HIDDEN}[config.attention.source]


def _export(graph: Graph, module: Delf, x: str) -> Shapes:
    if module.attention is not None or module.autoencoder is not None:
        raise SuperfeatError("DELF with its own head cannot be exported yet; one on a plain trunk can")
    dim = module.trunk.channels
    graph.add("Reshape", graph.add("ReduceL2", x, axes=[1], keepdims=0), np.array([1, -1]), name="strengths")
    flat = graph.add("Transpose", graph.add("Reshape", x, np.array([dim, -1])), perm=[1, 0])
    vectors = _unit(graph, flat)
    if module.whitening is not None:
        dim = len(module.whitening.bias)
        vectors = _unit(graph, graph.affine(vectors, module.whitening))
    graph.add("Unsqueeze", vectors, np.array([0]), name="vectors")
    return {"vectors": [1, "n", dim], "strengths": [1, "n"]}


def _unit(graph: Graph, x: str) -> str:
    norm = graph.add("ReduceL2", x, axes=[1], keepdims=1)
    return graph.add("Div", x, graph.add("Max", norm, torch.tensor(LENGTH_FLOOR)))


DELF = Method(
    name="delf",
    title="DELF",
    network=NetworkConfig("delf", TrunkConfig(), None, None, attention=AttentionConfig(trained=False)),
    build=_build,
    raw_dim=_raw_dim,
    module=Delf,
    export=_export,
    learned=("attention.", "autoencoder."),
    scales=SCALES,
    round_sizes=True,
)
