"""FIRe: LIT turns the trunk's map into an ordered set of super-features."""

import numpy as np
import torch
from torch import nn

from superfeat.config import NetworkConfig
from superfeat.methods.method import Graph, Method, Shapes
from superfeat.nets.fire import Fire
from superfeat.nets.lit import ATTENTION_FLOOR, Lit
from superfeat.nets.local import STRENGTH_FLOOR
from superfeat.nets.points import Points
from superfeat.nets.trunk import Trunk
from superfeat.nets.whitening import Whitening
from superfeat.settings import as_dict

FLOAT, INT64 = 1, 7  # of ONNX


def _build(config: NetworkConfig, trunk: Trunk, whitening: Whitening | None) -> Fire:
    assert config.lit is not None
    points = None
    if config.points is not None and config.whitened_dim is not None:
        points = Points(Whitening(trunk.channels, config.whitened_dim), config.points)
    return Fire(trunk, Lit(trunk.channels, **as_dict(config.lit)), whitening, points)


def _raw_dim(config: NetworkConfig, channels: int) -> int:
    assert config.lit is not None
    return config.lit.dim


def _export(graph: Graph, module: Fire, x: str) -> Shapes:
    count, dim = module.lit.templates.shape
    raw, attention = _add_lit(graph, module.lit, x)
    squares = graph.add("Add", graph.add("ReduceSumSquare", raw, axes=[1], keepdims=0), torch.tensor([STRENGTH_FLOOR]))
    strengths, maps = graph.add("Sqrt", squares), graph.add("Transpose", attention, perm=[1, 0])
    if module.whitening is not None:
        dim = len(module.whitening.bias)
        raw = graph.affine(raw, module.whitening)
    number: int | str = count
    if module.points is not None:
        number, points = "n", _add_points(graph, module.points, x)
        raw, strengths, maps = (
            graph.add("Concat", *both, axis=0) for both in zip((raw, strengths, maps), points, strict=True)
        )
    graph.add("Unsqueeze", strengths, np.array([0]), name="strengths")
    graph.add("Unsqueeze", raw, np.array([0]), name="vectors")
    grid = graph.add("Concat", np.array([1, -1]), graph.add("Shape", x, start=2), axis=0)
    graph.add("Reshape", maps, grid, name="maps")
    return {"vectors": [1, number, dim], "strengths": [1, number], "maps": [1, number, "map_height", "map_width"]}


def _add_points(graph: Graph, points: Points, x: str) -> tuple[str, str, str]:
    """Vectors (points, dim), strengths (points) and attention (points, places) of the strongest places."""
    assert points.whitening is not None
    all_strengths = graph.add("Reshape", graph.add("ReduceL2", x, axes=[1], keepdims=0), np.array([-1]))
    places = graph.add("Shape", all_strengths)
    root = graph.add("Sqrt", graph.add("Cast", places, to=FLOAT))
    wanted = graph.add("Cast", graph.add("Floor", graph.add("Mul", root, torch.tensor([points.per_side]))), to=INT64)
    wanted = graph.add("Min", graph.add("Max", wanted, np.array([1])), places)
    best, where = graph.strongest(all_strengths, wanted)
    white = graph.add("Conv", x, points.whitening.weight[:, :, None, None], points.whitening.bias)
    smooth = graph.add("AveragePool", white, kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=0)
    flat = graph.add("Reshape", smooth, np.array([len(points.whitening.bias), -1]))
    vectors = graph.add("Gather", graph.add("Transpose", flat, perm=[1, 0]), where, axis=0)
    maps = graph.add("OneHot", where, graph.add("Squeeze", places), torch.tensor([0.0, 1.0]))
    return vectors, best, maps


def _add_lit(graph: Graph, lit: Lit, x: str) -> tuple[str, str]:
    """Super-features (templates, dim) and the last attention (places, templates).

    The projections of queries and keys are one matrix, applied to the places once: (LN(Q) W_q) (x W_k)^T =
    LN(Q) (x W_k W_q^T)^T. Of all forms this is the fastest up to 512 pixels; docs/onnx.md has the measurements.
    """
    flat = graph.add("Transpose", graph.add("Reshape", x, np.array([lit.key.in_features, -1])), perm=[1, 0])
    places = graph.norm(flat, lit.norm_inputs)
    scorer = lit.key.weight.double().T @ lit.query.weight.double() / lit.query.in_features**0.5
    keys, values = graph.add("MatMul", places, scorer.float()), graph.add("MatMul", places, lit.value.weight.T)
    state, attention = graph.add("Identity", lit.templates), ""
    for _ in range(lit.rounds):
        logits = graph.add("Gemm", keys, graph.norm(state, lit.norm_templates), transB=1)
        alpha = graph.add("Add", graph.add("Softmax", logits, axis=1), torch.tensor([ATTENTION_FLOOR]))
        attention = graph.add("Div", alpha, graph.add("ReduceSum", alpha, np.array([0]), keepdims=1))
        gathered = graph.add("Gemm", attention, values, transA=1)
        state = _add_gru(graph, lit.gru, gathered, state) if lit.gru else graph.add("Add", state, gathered)
        widen, _, narrow = lit.mlp
        inside = graph.relu(graph.affine(graph.norm(state, lit.norm_mlp), widen))
        state = graph.add("Add", state, graph.affine(inside, narrow))
    return state, attention


def _add_gru(graph: Graph, gru: nn.GRUCell, x: str, state: str) -> str:
    """torch.nn.GRUCell: its weights hold the gates for reset, update and the new state one after the other."""
    come, past = (
        [graph.add("Gemm", source, *gate, transB=1) for gate in zip(weight.chunk(3), bias.chunk(3), strict=True)]
        for source, weight, bias in ((x, gru.weight_ih, gru.bias_ih), (state, gru.weight_hh, gru.bias_hh))
    )
    reset, update = (graph.add("Sigmoid", graph.add("Add", come[gate], past[gate])) for gate in (0, 1))
    new = graph.add("Tanh", graph.add("Add", come[2], graph.add("Mul", reset, past[2])))
    return graph.add("Add", new, graph.add("Mul", update, graph.add("Sub", state, new)))


FIRE = Method(
    name="fire",
    title="FIRe",
    network=NetworkConfig(),
    build=_build,
    raw_dim=_raw_dim,
    module=Fire,
    export=_export,
    learned=("lit.",),
)
