"""HOW: every place of the trunk's map is a feature; the baseline the paper builds on."""

import numpy as np

from superfeat.config import NetworkConfig
from superfeat.methods.method import Graph, Method, Shapes
from superfeat.nets.how import How
from superfeat.nets.trunk import Trunk
from superfeat.nets.whitening import Whitening


def _build(config: NetworkConfig, trunk: Trunk, whitening: Whitening | None) -> How:
    return How(trunk, whitening)


def _export(graph: Graph, module: How, x: str) -> Shapes:
    dim = module.trunk.channels
    strengths = graph.add("ReduceL2", x, axes=[1], keepdims=0)
    graph.add("Reshape", strengths, np.array([1, -1]), name="strengths")
    if module.whitening is not None:
        dim = len(module.whitening.bias)
        x = graph.add("Conv", x, module.whitening.weight[:, :, None, None], module.whitening.bias)
    smooth = graph.add("AveragePool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=0)
    graph.add("Transpose", graph.add("Reshape", smooth, np.array([1, dim, -1])), name="vectors", perm=[0, 2, 1])
    return {"vectors": [1, "n", dim], "strengths": [1, "n"]}


HOW = Method(
    name="how",
    title="HOW",
    network=NetworkConfig("how", lit=None, whitened_dim=None),
    build=_build,
    raw_dim=lambda config, channels: channels,
    module=How,
    export=_export,
    relative_strengths=True,
    recipe={
        "network": {"method": "how", "lit": None},
        "losses": {"superfeature": 0.0, "decorrelation": 0.0, "pooled": 1.0},
    },
)
