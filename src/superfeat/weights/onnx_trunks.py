"""The trunks of exported networks, node by node."""

from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from superfeat.methods.method import Graph
from superfeat.nets.efficientnet import EfficientNetLite, LiteBlock
from superfeat.nets.fused import fold_batch_norm
from superfeat.nets.second_order import AttendedResNet, SecondOrderAttention
from superfeat.nets.tensorflow_trunks import EverySecond, KerasResNet, SlimResNet
from superfeat.nets.trunk import Bottleneck, ResNet

TRUNK = "trunk/"  # names of the trunk's nodes begin so: what int8 may touch


class TrunkGraph(Graph, Protocol):
    """What trunks need beside what methods need."""

    def convolution(self, x: str, name: str, conv: nn.Module, norm: nn.Module, **edges: str) -> str: ...
    def plain_convolution(self, x: str, name: str, conv: nn.Conv2d) -> str: ...
    def clipped(self, x: str) -> str: ...


def add_trunk(graph: TrunkGraph, trunk: nn.Module) -> str:
    """Adds the nodes of a trunk; the name of its map."""
    if isinstance(trunk, EfficientNetLite):
        return _add_lite(graph, trunk)
    assert isinstance(trunk, ResNet)
    return _add_resnet(graph, trunk)


def _add_lite(graph: TrunkGraph, trunk: EfficientNetLite) -> str:
    x = graph.clipped(graph.plain_convolution("image", "stem", trunk.stem))
    for number, block in enumerate(trunk.blocks):
        assert isinstance(block, LiteBlock)
        y = x
        if block.expand is not None:
            y = graph.clipped(graph.plain_convolution(x, f"{number}/expand", block.expand))
        y = graph.clipped(graph.plain_convolution(y, f"{number}/depthwise", block.depthwise))
        y = graph.plain_convolution(y, f"{number}/project", block.project)
        x = graph.add("Add", x, y, name=f"{TRUNK}{number}") if block.residual else y
    if trunk.neck is None:
        return x
    expanded = graph.clipped(graph.plain_convolution(x, "neck/expand", trunk.neck.expand))
    return graph.plain_convolution(expanded, "neck/project", trunk.neck.project)


def _add_resnet(graph: TrunkGraph, trunk: ResNet) -> str:
    same = {"auto_pad": "SAME_UPPER"}  # TensorFlow's
    keras, slim = isinstance(trunk, KerasResNet), isinstance(trunk, SlimResNet)
    x = graph.relu(graph.convolution("image", "stem", trunk.conv1, trunk.bn1, **(same if keras else {})))
    edges: dict[str, Any] = same if slim else {"pads": [0, 0, 0, 0] if keras else [1, 1, 1, 1]}
    x = graph.add("MaxPool", x, name=f"{TRUNK}pool", kernel_shape=[3, 3], strides=[2, 2], **edges)
    for number, block in enumerate(trunk.blocks()):
        y = graph.relu(graph.convolution(x, f"{number}/conv1", block.conv1, block.bn1))
        y = graph.convolution(y, f"{number}/conv2", block.conv2, block.bn2)
        if isinstance(block, Bottleneck):
            y = graph.convolution(graph.relu(y), f"{number}/conv3", block.conv3, block.bn3)
        if isinstance(block.downsample, EverySecond):
            x = _every_second(graph, x)
        elif block.downsample is not None:
            x = graph.convolution(x, f"{number}/shortcut", *block.downsample)
        x = graph.relu(graph.add("Add", y, x, name=f"{TRUNK}{number}"))
        if isinstance(trunk, AttendedResNet) and (attend := trunk.attention_behind(block)) is not None:
            x = _add_attention(graph, attend, x)
    return _every_second(graph, x) if isinstance(trunk, KerasResNet) and trunk.subsample else x


def _every_second(graph: TrunkGraph, x: str) -> str:
    return graph.add("MaxPool", x, kernel_shape=[1, 1], strides=[2, 2])


def _add_attention(graph: TrunkGraph, module: SecondOrderAttention, x: str) -> str:
    """SOLAR's: x + v(softmax(f^T g / sqrt(inner)) h)."""
    inner = module.h.out_channels

    def places(y: str) -> str:
        return graph.add("Reshape", y, np.array([inner, -1]))

    f, g = (places(graph.relu(_normed(graph, x, part))) for part in (module.f, module.g))
    scores = graph.add("Div", graph.add("Gemm", f, g, transA=1), torch.tensor(inner**0.5))
    h = places(graph.add("Conv", x, module.h.weight, _bias(module.h), kernel_shape=[1, 1]))
    gathered = graph.add("Gemm", h, graph.add("Softmax", scores, axis=1), transB=1)
    shape = graph.add("Concat", np.array([1, inner]), graph.add("Shape", x, start=2), axis=0)
    shown = graph.add(
        "Conv", graph.add("Reshape", gathered, shape), module.v.weight, _bias(module.v), kernel_shape=[1, 1]
    )
    return graph.add("Add", x, shown)


def _bias(conv: nn.Conv2d) -> Tensor:
    assert conv.bias is not None
    return conv.bias


def _normed(graph: TrunkGraph, x: str, part: nn.Sequential) -> str:
    conv, norm = part[0], part[1]
    assert isinstance(conv, nn.Conv2d)
    assert isinstance(norm, nn.BatchNorm2d)
    assert norm.running_var is not None
    weight, bias = fold_batch_norm(conv, norm)
    gain = norm.weight / (norm.running_var + norm.eps).sqrt()
    return graph.add("Conv", x, weight, bias + _bias(conv) * gain, kernel_shape=[1, 1])
