"""What the methods with one vector per photo have in common: how they are built and exported."""

import dataclasses
from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from superfeat.config import NetworkConfig, PoolingConfig, TrunkConfig
from superfeat.errors import SuperfeatError
from superfeat.methods.method import Graph, Method, Shapes, plain_trunk
from superfeat.nets.global_vector import GlobalNetwork, VectorRules
from superfeat.nets.pooling import GEM_FLOOR, Pooling
from superfeat.nets.trunk import Trunk
from superfeat.nets.whitening import Whitening

WHOLE = TrunkConfig(stages=4)
ROOT_HALF = 2**-0.5
DOWN = (1.0, ROOT_HALF, 0.5)  # cirtorch's scales, with a whitening learned from pairs
BOTH = (1.0, 2**0.5, ROOT_HALF)  # its scales with a layer
ENOUGH = 1e-12  # torch.nn.functional.normalize's


def vector_method(
    name: str,
    title: str,
    pooling: PoolingConfig,
    rules: VectorRules = VectorRules(),  # noqa: B008 - an immutable tuple
    *,
    scales: tuple[float, ...] = DOWN,
    trunk: Callable[[TrunkConfig], Trunk] = plain_trunk,
    arch: TrunkConfig = WHOLE,
) -> Method:
    """A method of this pooling, on a whole trunk."""

    def build(config: NetworkConfig, trunk: Trunk, whitening: Whitening | None) -> GlobalNetwork:
        chosen = config.pooling
        assert chosen is not None
        layer = None if chosen.layer is None else nn.Linear(trunk.channels, chosen.layer)
        return GlobalNetwork(trunk, Pooling(chosen.kind, chosen.p, chosen.levels), layer, whitening, rules)

    network = NetworkConfig(name, arch, None, None, pooling)
    return Method(
        name=name,
        title=title,
        network=network,
        build=build,
        raw_dim=_raw_dim,
        module=GlobalNetwork,
        export=export_vector,
        learned=("pooling.", "layer."),
        trunk=trunk,
        scales=scales,
        one_vector=True,
        recipe={
            "network": {"method": name, "lit": None, "whitened_dim": None, "pooling": dataclasses.asdict(pooling)}
            | {"trunk.stages": arch.stages},
            "losses": {"superfeature": 0.0, "decorrelation": 0.0, "pooled": 1.0},
        },
    )


def _raw_dim(config: NetworkConfig, channels: int) -> int:
    assert config.pooling is not None
    return config.pooling.layer or channels


def export_vector(graph: Graph, module: GlobalNetwork, x: str) -> Shapes:
    """One vector per scale; the mean over the scales, and the whitening, come after the graph."""
    pooled = _export_pooling(graph, module.pooling, x)
    dim = module.trunk.channels
    if module.layer is not None:
        dim = module.layer.out_features
        before = _unit(graph, pooled, module.rules.floor) if module.rules.unit_before_layer else pooled
        pooled = graph.affine(before, module.layer)
    graph.add("Unsqueeze", _unit(graph, pooled, module.rules.floor), np.array([1]), name="vectors")
    graph.add("Identity", torch.ones(1, 1), name="strengths")
    graph.add("Identity", torch.tensor([module.scale_power]), name="power")
    shapes: Shapes = {"vectors": [1, 1, dim], "strengths": [1, 1], "power": [1]}
    if module.whitening is not None:
        graph.add("Identity", module.whitening.weight, name="whitening_weight")
        graph.add("Identity", module.whitening.bias, name="whitening_bias")
        out, inputs = module.whitening.weight.shape
        shapes |= {"whitening_weight": [out, inputs], "whitening_bias": [out]}
    return shapes


def _export_pooling(graph: Graph, pooling: Pooling, x: str) -> str:
    """(1, channels). R-MAC's squares depend on the size of the map, which a graph does not know."""
    if pooling.kind == "rmac":
        raise SuperfeatError("R-MAC cannot be exported: which squares it looks at depends on the size of each photo")
    if pooling.p is not None:
        power = float(pooling.p.detach())
        lifted = graph.add("Pow", graph.add("Clip", x, torch.tensor(GEM_FLOOR)), torch.tensor(power))
        mean = graph.add("Flatten", graph.add("GlobalAveragePool", lifted))
        return graph.add("Pow", mean, torch.tensor(1 / power))
    kind = "GlobalMaxPool" if pooling.kind == "mac" else "GlobalAveragePool"
    return graph.add("Flatten", graph.add(kind, x))


def _unit(graph: Graph, x: str, floor: float) -> str:
    norm = graph.add("ReduceL2", x, axes=[1], keepdims=1)
    if floor:
        return graph.add("Div", x, graph.add("Add", norm, torch.tensor(floor)))
    return graph.add("Div", x, graph.add("Max", norm, torch.tensor(ENOUGH)))
