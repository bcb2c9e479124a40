"""DELF, and DELG's local features: places of the map that a small head selects by attention."""

import numpy as np
import torch
from torch import nn

from superfeat.config import AttentionConfig, NetworkConfig, TrunkConfig
from superfeat.methods.method import Graph, Method, Shapes
from superfeat.nets.attentive import HIDDEN, AttentionHead, Autoencoder, Delf
from superfeat.nets.fused import fold_batch_norm
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
    inside = None if module.attention is None else _inside(graph, module.attention, x)
    if module.attention is None or inside is None:
        strengths = graph.add("ReduceL2", x, axes=[1], keepdims=0)
    else:
        strengths = graph.add("Softplus", _convolution(graph, module.attention.conv2, graph.relu(inside)))
    graph.add("Reshape", strengths, np.array([1, -1]), name="strengths")
    features, dim = x, module.trunk.channels
    if module.source == "reduced" and module.autoencoder is not None:
        features, dim = _convolution(graph, module.autoencoder.conv1, x), module.autoencoder.conv1.out_channels
    elif module.source == "head" and inside is not None:
        features, dim = inside, HIDDEN
    flat = graph.add("Transpose", graph.add("Reshape", features, np.array([dim, -1])), perm=[1, 0])
    vectors = _unit(graph, flat)
    if module.whitening is not None:
        dim = len(module.whitening.bias)
        vectors = _unit(graph, graph.affine(vectors, module.whitening))
    graph.add("Unsqueeze", vectors, np.array([0]), name="vectors")
    return {"vectors": [1, "n", dim], "strengths": [1, "n"]}


def _convolution(graph: Graph, conv: nn.Conv2d, x: str) -> str:
    assert conv.bias is not None
    return graph.add("Conv", x, conv.weight, conv.bias, kernel_shape=[1, 1])


def _inside(graph: Graph, head: AttentionHead, x: str) -> str:
    """The head's first half, its batch-norm folded into the convolution."""
    assert head.conv1.bias is not None
    assert head.bn.running_var is not None
    weight, bias = fold_batch_norm(head.conv1, head.bn)
    gain = head.bn.weight / (head.bn.running_var + head.bn.eps).sqrt()
    return graph.add("Conv", x, weight, bias + head.conv1.bias * gain, kernel_shape=[1, 1])


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
