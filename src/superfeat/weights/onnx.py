"""Networks as single .onnx files, for ONNX Runtime: export and load.

The graph is written node by node. torch's own exporter takes dynamic sizes since 2.6 only, warns about packages that
we do not use, and its output changes with its version; these networks are a dozen kinds of node.
"""

import dataclasses
import functools
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from superfeat.config import TrunkConfig
from superfeat.errors import StoreError, SuperfeatError
from superfeat.methods import method_of
from superfeat.methods.method import trunk_stride
from superfeat.nets.efficientnet import CEILING, EfficientNetLite
from superfeat.nets.fused import fold_batch_norm
from superfeat.nets.global_vector import combine_scales
from superfeat.nets.local import Local
from superfeat.nets.tensorflow_trunks import KerasResNet
from superfeat.nets.trunk import ResNet
from superfeat.nets.whitening import Whitening
from superfeat.settings import as_dict, overlay
from superfeat.storage.store import explained, write_file
from superfeat.weights.network import Network, Provenance, network_config
from superfeat.weights.onnx_trunks import TRUNK, add_trunk
from superfeat.weights.sealed import FORMAT, KEY, VERSION, OnnxFacts, checksum_of, open_sealed, require_package

LEAST_SIDE = 64  # of a picture that any network takes
OPSET, IR_VERSION = 17, 8  # the first with LayerNormalization; runtimes refuse files that are newer than they are


def export_onnx(network: Network, path: Path, *, overwrite: bool = False) -> None:
    """Writes the network as one .onnx file for images of any size, whole or not at all.

    Input `image` (1, 3, height, width), normalised; outputs `vectors` (1, n, dim), `strengths` (1, n) and, for FIRe,
    `maps` (1, n, h, w).
    """
    if not isinstance(network.module, nn.Module):
        raise SuperfeatError("this network is an exported one already; export the network that it came from")
    if not isinstance(network.module.trunk, (ResNet, EfficientNetLite)):
        found = type(network.module.trunk).__name__
        raise SuperfeatError(f"only networks on a ResNet or an EfficientNet-Lite can be exported, not on a {found}")
    prepare_file(path, overwrite)
    write_file(path, seal(_build(network), network, network.digest, network.provenance, "float32"))


def load_onnx(path: Path, *, threads: int = 1) -> "OnnxNetwork":
    """Loads an exported network. One thread for each call, because extraction makes its calls from several."""
    session, facts = open_sealed(path, threads)
    return OnnxNetwork(OnnxModule(session, facts), network_config(facts["network"], path), facts["provenance"])


class OnnxModule:
    """A network in ONNX Runtime: one image -> Local, like the torch modules. Threads may share it."""

    def __init__(self, session: Any, facts: OnnxFacts) -> None:
        self.session = session
        self.digest: str = facts["digest"]
        self.precision: str = facts["precision"]
        self.dim: int = session.get_outputs()[0].shape[-1]
        self.stride = trunk_stride(overlay(TrunkConfig(), facts["network"]["trunk"]))
        known = [output.name for output in session.get_outputs()]
        self.outputs = [name for name in ("vectors", "strengths", "grid", "maps") if name in known]
        self.one_vector = "power" in known
        self.signed = facts["network"]["method"] == "apgem"
        self.recompute_scale = method_of(facts["network"]["method"]).module.recompute_scale

    def __call__(self, images: Float[Tensor, "1 3 height width"]) -> Local:
        pixels = np.ascontiguousarray(images.detach().cpu().float().numpy())
        results = self.session.run(self.outputs, {"image": pixels})
        found = dict(zip(self.outputs, map(torch.from_numpy, results), strict=True))
        height, width = (-(-side // self.stride) for side in pixels.shape[2:])  # each halving rounds up
        if "grid" in found:
            height, width = (int(side) for side in found["grid"])
        return Local(found["vectors"], found["strengths"], (height, width), found.get("maps"))

    @functools.cached_property
    def _ending(self) -> tuple[Tensor, Whitening | None]:
        """The power of the mean over scales, and the whitening after it: constants of the graph."""
        known = [output.name for output in self.session.get_outputs()]
        names = [name for name in ("power", "whitening_weight", "whitening_bias") if name in known]
        nothing = np.zeros((1, 3, LEAST_SIDE, LEAST_SIDE), np.float32)
        power, *rest = map(torch.from_numpy, self.session.run(names, {"image": nothing}))
        if not rest:
            return power, None
        whitening = Whitening(rest[0].shape[1], rest[0].shape[0])
        whitening.load_state_dict({"weight": rest[0], "bias": rest[1]})
        return power, whitening

    def combine(self, vectors: Float[Tensor, "scales dim"]) -> Float[Tensor, " out"]:
        """The photo's vector from those of its scales, as GlobalNetwork does it."""
        power, whitening = self._ending
        return combine_scales(vectors, float(power), self.signed, whitening)


@dataclasses.dataclass(frozen=True, eq=False)
class OnnxNetwork(Network):
    """A network from an .onnx file. A float32 export keeps the digest of its origin, int8 has one of its own."""

    module: OnnxModule  # type: ignore[assignment]

    @functools.cached_property
    def digest(self) -> str:
        return self.module.digest

    @property
    def dim(self) -> int:
        return self.module.dim

    @property
    def stride(self) -> int:
        return self.module.stride


def prepare_file(path: Path, overwrite: bool) -> None:
    """Makes sure, before the long part, that the file may be written."""
    if path.suffix != ".onnx":
        raise SuperfeatError(f"{path} must end in .onnx: that is how it is recognised when it is loaded")
    if path.exists() and not overwrite:
        raise StoreError(f"{path} exists already; choose another name or ask to overwrite it", arguments=["overwrite"])
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)


def seal(model: Any, network: Network, digest: str, provenance: Provenance, precision: str) -> bytes:
    """The model's bytes with our facts at the end, among them a checksum of all the rest.

    Protobuf messages that are joined are read as one, so what was hashed stands in the file byte for byte.
    """
    graph: bytes = model.SerializeToString()
    facts: OnnxFacts = {
        "format": FORMAT,
        "version": VERSION,
        "precision": precision,
        "digest": digest,
        "bytes": len(graph),
        "network": as_dict(network.config),
        "provenance": provenance,
    }
    end = type(model)()
    end.metadata_props.add(key=KEY, value=json.dumps({**facts, "checksum": checksum_of(graph, facts)}))
    sealed: bytes = graph + end.SerializeToString()
    return sealed


class _Graph:
    """Nodes in the order of work. Each call adds one and gives the name of its output."""

    def __init__(self) -> None:
        self.helper, self.arrays = require_package("onnx.helper"), require_package("onnx.numpy_helper")
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}

    def add(self, kind: str, *inputs: str | Tensor | np.ndarray[Any, Any], name: str = "", **attributes: Any) -> str:
        name = name or f"{kind}_{len(self.nodes)}"
        names = [part if isinstance(part, str) else self._constant(part) for part in inputs]
        self.nodes.append(self.helper.make_node(kind, names, [name], name=name, **attributes))
        return name

    def _constant(self, value: Tensor | np.ndarray[Any, Any]) -> str:
        """Named by its contents, so that the rounds of LIT share their weights."""
        array = np.ascontiguousarray(value.detach().cpu().numpy() if isinstance(value, Tensor) else value)
        name = hashlib.sha256(f"{array.shape} {array.dtype}".encode() + array.tobytes()).hexdigest()
        self.constants.setdefault(name, self.arrays.from_array(array, name))
        return name

    def affine(self, x: str, layer: nn.Module) -> str:
        assert isinstance(layer, (nn.Linear, Whitening))
        return self.add("Gemm", x, layer.weight, layer.bias, transB=1)

    def norm(self, x: str, layer: nn.LayerNorm) -> str:
        return self.add("LayerNormalization", x, layer.weight, layer.bias, axis=-1, epsilon=layer.eps)

    def relu(self, x: str) -> str:
        return self.add("Relu", x, name=f"{x}/relu")

    def strongest(self, x: str, count: str) -> tuple[str, str]:
        values, places = (f"TopK_{len(self.nodes)}/{part}" for part in ("values", "places"))
        self.nodes.append(self.helper.make_node("TopK", [x, count], [values, places], name=values))
        return values, places

    def convolution(self, x: str, name: str, conv: nn.Module, norm: nn.Module, **edges: str) -> str:
        assert isinstance(conv, nn.Conv2d)
        assert isinstance(norm, nn.BatchNorm2d)
        padded: dict[str, Any] = {**edges} or {"pads": [*conv.padding, *conv.padding]}
        shape = {"strides": conv.stride, "kernel_shape": conv.kernel_size, **padded}
        return self.add("Conv", x, *fold_batch_norm(conv, norm), name=TRUNK + name, **shape)

    def plain_convolution(self, x: str, name: str, conv: nn.Conv2d) -> str:
        assert conv.bias is not None
        shape = {"strides": conv.stride, "kernel_shape": conv.kernel_size, "pads": [*conv.padding, *conv.padding]}
        return self.add("Conv", x, conv.weight, conv.bias, name=TRUNK + name, group=conv.groups, **shape)

    def clipped(self, x: str) -> str:
        return self.add("Clip", x, torch.tensor(0.0), torch.tensor(CEILING), name=f"{x}/relu")


@torch.no_grad()
def _build(network: Network) -> Any:
    graph, module = _Graph(), network.module
    x = add_trunk(graph, module.trunk)  # type: ignore[arg-type]
    outputs = method_of(network.config.method).export(graph, module, x)
    if isinstance(module.trunk, KerasResNet) and not network.one_vector:  # its halvings do not all round up
        graph.add("Cast", graph.add("Shape", x, start=2), to=1, name="grid")
        outputs["grid"] = [2]
    image, *results = (
        graph.helper.make_tensor_value_info(name, elem_type=1, shape=shape)  # 1: float32
        for name, shape in ({"image": [1, 3, "height", "width"]} | outputs).items()
    )
    constants = list(graph.constants.values())
    whole = graph.helper.make_graph(graph.nodes, type(module).__name__, [image], results, constants)
    opset = graph.helper.make_opsetid("", OPSET)
    model = graph.helper.make_model(whole, opset_imports=[opset], ir_version=IR_VERSION, producer_name="superfeat")
    require_package("onnx.checker").check_model(model, full_check=True)
    return model
