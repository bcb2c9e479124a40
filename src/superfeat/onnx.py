"""Networks as single .onnx files, for ONNX Runtime: export, load, and int8 for the trunk.

The graph is written node by node. torch's own exporter takes dynamic sizes since 2.6 only, prints warnings of
packages that we do not use, and its output changes with its version; these networks are a dozen kinds of node.
"""

import dataclasses
import functools
import hashlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from superfeat.config import as_dict
from superfeat.errors import MissingExtraError, StoreError, SuperfeatError, WeightsError
from superfeat.nets.fire import Fire
from superfeat.nets.fused import fold_batch_norm
from superfeat.nets.how import How
from superfeat.nets.lit import ATTENTION_FLOOR, Lit
from superfeat.nets.local import STRENGTH_FLOOR, Local
from superfeat.nets.trunk import Bottleneck, ResNet
from superfeat.store import explained, write_file
from superfeat.weights.files import Network, network_config

FORMAT = "superfeat-onnx"
VERSION = 1
KEY = "superfeat"  # of our entry in the file's metadata_props
OPSET, IR_VERSION = 17, 8  # the first with LayerNormalization; runtimes refuse files that are newer than they are
TRUNK = "trunk/"  # names of the trunk's nodes begin so: what int8 may touch
CALIBRATION_PHOTOS = 32
CALIBRATION_SIDE = 480


class _Graph:
    """Nodes in the order of work. Each call adds one and gives the name of its output."""

    def __init__(self) -> None:
        self.helper = _package("onnx.helper", "ONNX export")
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
        name = hashlib.sha256(f"{array.shape} {array.dtype}".encode() + array.tobytes()).hexdigest()[:16]
        if name not in self.constants:
            self.constants[name] = _package("onnx.numpy_helper", "ONNX export").from_array(array, name)
        return name

    def linear(self, x: str, layer: nn.Linear) -> str:
        return self.add("Gemm", x, layer.weight, layer.bias, transB=1)

    def norm(self, x: str, layer: nn.LayerNorm) -> str:
        return self.add("LayerNormalization", x, layer.weight, layer.bias, axis=-1, epsilon=layer.eps)

    def convolution(self, x: str, name: str, conv: nn.Conv2d, norm: nn.BatchNorm2d) -> str:
        padding = [int(side) for side in conv.padding]
        shape = {"strides": list(conv.stride), "pads": padding * 2, "kernel_shape": list(conv.kernel_size)}
        return self.add("Conv", x, *fold_batch_norm(conv, norm), name=TRUNK + name, **shape)

    def relu(self, x: str) -> str:
        return self.add("Relu", x, name=f"{x}/relu")


def _package(name: str, purpose: str) -> ModuleType:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingExtraError(purpose, "onnx") from error


def export_onnx(network: Network, path: Path, *, overwrite: bool = False) -> None:
    """Writes the network as one .onnx file for images of any size, whole or not at all.

    Input `image` (1, 3, height, width), normalised; outputs `vectors` (1, n, dim), `strengths` (1, n) and, for FIRe,
    `maps` (1, n, h, w).
    """
    path = Path(path)
    if not isinstance(network.module, nn.Module):
        raise SuperfeatError("this network is an exported one already; export the network that it came from")
    if not isinstance(network.module.trunk, ResNet):
        raise SuperfeatError(f"only networks on a ResNet can be exported, not on {type(network.module.trunk).__name__}")
    _check_target(path, overwrite)
    facts = {
        "format": FORMAT,
        "version": VERSION,
        "precision": "float32",
        "network": as_dict(network.config),
        "digest": network.digest,
        "provenance": network.provenance,
    }
    _write(path, _seal(_build(network.module), facts))


def _check_target(path: Path, overwrite: bool) -> None:
    if path.suffix != ".onnx":
        raise SuperfeatError(f"{path} must end in .onnx: networks are told apart by their ending")
    if path.exists() and not overwrite:
        raise StoreError(f"{path} exists already; choose another name or ask to overwrite it")


def _write(path: Path, data: bytes) -> None:
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, data)


def _seal(model: Any, facts: dict[str, Any]) -> bytes:
    """The model's bytes with our facts at the end, among them a checksum of all that comes before.

    Protobuf messages that are joined are read as one, so what was hashed stands in the file byte for byte.
    """
    del model.metadata_props[:]
    graph: bytes = model.SerializeToString()
    facts = {**facts, "bytes": len(graph)}
    facts["checksum"] = _checksum(graph, facts)
    end = type(model)()
    end.metadata_props.add(key=KEY, value=json.dumps(facts))
    sealed: bytes = graph + end.SerializeToString()
    return sealed


def _checksum(graph: bytes, facts: dict[str, Any]) -> str:
    return hashlib.sha256(graph + json.dumps(facts, sort_keys=True).encode()).hexdigest()


@torch.no_grad()
def _build(module: Fire | How) -> Any:
    graph = _Graph()
    assert isinstance(module.trunk, ResNet)
    x = _add_trunk(graph, module.trunk)
    outputs = _add_fire(graph, module, x) if isinstance(module, Fire) else _add_how(graph, module, x)
    tensor = functools.partial(graph.helper.make_tensor_value_info, elem_type=1)  # 1: float32
    shapes = [tensor(name, shape=shape) for name, shape in outputs.items()]
    image = tensor("image", shape=[1, 3, "height", "width"])
    whole = graph.helper.make_graph(graph.nodes, type(module).__name__, [image], shapes, list(graph.constants.values()))
    opset = graph.helper.make_opsetid("", OPSET)
    model = graph.helper.make_model(whole, opset_imports=[opset], ir_version=IR_VERSION, producer_name="superfeat")
    _package("onnx.checker", "ONNX export").check_model(model, full_check=True)
    return model


def _add_trunk(graph: _Graph, trunk: ResNet) -> str:
    x = graph.relu(graph.convolution("image", "stem", trunk.conv1, trunk.bn1))
    x = graph.add("MaxPool", x, name=f"{TRUNK}pool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    for number, block in enumerate(trunk.blocks()):
        y = graph.relu(graph.convolution(x, f"{number}/conv1", block.conv1, block.bn1))
        y = graph.convolution(y, f"{number}/conv2", block.conv2, block.bn2)
        if isinstance(block, Bottleneck):
            y = graph.convolution(graph.relu(y), f"{number}/conv3", block.conv3, block.bn3)
        if block.downsample is not None:
            conv, norm = block.downsample
            assert isinstance(conv, nn.Conv2d)
            assert isinstance(norm, nn.BatchNorm2d)
            x = graph.convolution(x, f"{number}/shortcut", conv, norm)
        x = graph.relu(graph.add("Add", y, x, name=f"{TRUNK}{number}"))
    return x


def _add_how(graph: _Graph, module: How, x: str) -> dict[str, list[int | str]]:
    strengths = graph.add("ReduceL2", x, axes=[1], keepdims=0)
    dim = module.trunk.channels
    if module.whitening is not None:
        dim = len(module.whitening.bias)
        x = graph.add("Conv", x, module.whitening.weight[:, :, None, None], module.whitening.bias, kernel_shape=[1, 1])
    smooth = graph.add("AveragePool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=0)
    flat = graph.add("Reshape", smooth, np.array([1, dim, -1]))
    graph.add("Transpose", flat, name="vectors", perm=[0, 2, 1])
    graph.add("Reshape", strengths, np.array([1, -1]), name="strengths")
    return {"vectors": [1, "n", dim], "strengths": [1, "n"]}


def _add_fire(graph: _Graph, module: Fire, x: str) -> dict[str, list[int | str]]:
    count, dim = module.lit.templates.shape
    raw, attention = _add_lit(graph, module.lit, x)
    squares = graph.add("ReduceSumSquare", raw, axes=[1], keepdims=0)
    strengths = graph.add("Sqrt", graph.add("Add", squares, np.float32([STRENGTH_FLOOR])))
    vectors = raw
    if module.whitening is not None:
        vectors = graph.add("Gemm", raw, module.whitening.weight, module.whitening.bias, transB=1)
        dim = len(module.whitening.bias)
    first = np.array([0])
    graph.add("Unsqueeze", vectors, first, name="vectors")
    graph.add("Unsqueeze", strengths, first, name="strengths")
    grid = graph.add("Concat", np.array([1, count]), graph.add("Shape", x, start=2), axis=0)
    graph.add("Reshape", graph.add("Transpose", attention, perm=[1, 0]), grid, name="maps")
    return {"vectors": [1, count, dim], "strengths": [1, count], "maps": [1, count, "map_height", "map_width"]}


def _add_lit(graph: _Graph, lit: Lit, x: str) -> tuple[str, str]:
    """Super-features (templates, dim) and the last attention (places, templates).

    W_q and W_k are one matrix, so keys are never formed: LayerNorm(Q) W_q (x W_k)^T = (LayerNorm(Q) W_q W_k^T) x^T.
    Values are formed: cheaper than the folded form over the scales of photos up to 640 pixels, and 3 % dearer at 1024.
    """
    channels = lit.key.in_features
    flat = graph.add("Transpose", graph.add("Reshape", x, np.array([channels, -1])), perm=[1, 0])
    places = graph.norm(flat, lit.norm_inputs)
    values = graph.add("MatMul", places, lit.value.weight.T)
    merged = (lit.query.weight.double().T @ lit.key.weight.double() / lit.query.in_features**0.5).float()
    state = graph.add("Identity", lit.templates)
    attention = ""
    for _ in range(lit.rounds):
        query = graph.add("MatMul", graph.norm(state, lit.norm_templates), merged)
        logits = graph.add("Gemm", places, query, transB=1)
        alpha = graph.add("Add", graph.add("Softmax", logits, axis=1), np.float32([ATTENTION_FLOOR]))
        attention = graph.add("Div", alpha, graph.add("ReduceSum", alpha, np.array([0]), keepdims=1))
        gathered = graph.add("Gemm", attention, values, transA=1)
        state = _add_update(graph, lit, state, gathered)
    return state, attention


def _add_update(graph: _Graph, lit: Lit, state: str, gathered: str) -> str:
    state = graph.add("Add", state, gathered) if lit.gru is None else _add_gru(graph, lit.gru, gathered, state)
    widen, _, narrow = lit.mlp
    assert isinstance(widen, nn.Linear)
    assert isinstance(narrow, nn.Linear)
    inside = graph.relu(graph.linear(graph.norm(state, lit.norm_mlp), widen))
    return graph.add("Add", state, graph.linear(inside, narrow))


def _add_gru(graph: _Graph, gru: nn.GRUCell, x: str, state: str) -> str:
    """torch.nn.GRUCell: its weights hold the gates for reset, update and the new state one after the other."""
    sides = [
        [graph.add("Gemm", source, weight, bias, transB=1) for weight, bias in zip(w.chunk(3), b.chunk(3), strict=True)]
        for source, w, b in ((x, gru.weight_ih, gru.bias_ih), (state, gru.weight_hh, gru.bias_hh))
    ]
    reset, update = (
        graph.add("Sigmoid", graph.add("Add", *pair)) for pair in zip(sides[0][:2], sides[1][:2], strict=True)
    )
    new = graph.add("Tanh", graph.add("Add", sides[0][2], graph.add("Mul", reset, sides[1][2])))
    return graph.add("Add", new, graph.add("Mul", update, graph.add("Sub", state, new)))


class OnnxModule:
    """A network in ONNX Runtime: images -> Local, like the torch modules. Threads may share it."""

    def __init__(self, session: Any, facts: dict[str, Any]) -> None:
        self.session = session
        self.digest: str = facts["digest"]
        self.precision: str = facts["precision"]
        self.recompute_scale = How.recompute_scale if facts["network"]["method"] == "how" else Fire.recompute_scale
        self.stride = 2 ** (facts["network"]["trunk"]["stages"] + 1)
        self.dim: int = session.get_outputs()[0].shape[-1]

    def __call__(self, images: Float[Tensor, "1 3 height width"]) -> Local:
        pixels = np.ascontiguousarray(images.detach().cpu().float().numpy())
        outputs = [torch.from_numpy(array) for array in self.session.run(None, {"image": pixels})]
        if len(outputs) == 3:
            vectors, strengths, maps = outputs
            return Local(vectors, strengths, (maps.shape[2], maps.shape[3]), maps)
        height, width = (-(-side // self.stride) for side in pixels.shape[2:])  # every halving rounds up
        return Local(outputs[0], outputs[1], (height, width), None)


@dataclasses.dataclass(frozen=True, eq=False)
class OnnxNetwork(Network):
    """A network from an .onnx file. A float32 export has the digest of the network it came from, int8 one of its own."""

    module: OnnxModule  # type: ignore[assignment]

    @functools.cached_property
    def digest(self) -> str:
        return self.module.digest

    @property
    def dim(self) -> int:
        return self.module.dim


def load_onnx(path: Path, *, threads: int = 1) -> OnnxNetwork:
    """Loads an exported network. One thread for each call, because extraction makes its calls from several."""
    runtime = _package("onnxruntime", "running an .onnx network")
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise WeightsError(f"cannot read {path}: {error.strerror or error}") from error
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.enable_mem_pattern = False  # a plan is kept for every image size ever seen
    options.log_severity_level = 4  # what matters is raised
    try:
        session = runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        text = session.get_modelmeta().custom_metadata_map.get(KEY)
    except Exception as error:  # the runtime's own types, which differ from version to version
        reason = str(error).strip().splitlines()[0]
        raise WeightsError(f"{path} is damaged or not an ONNX file ({reason}); export it again") from error
    facts = _check_facts(text, data, path)
    return OnnxNetwork(OnnxModule(session, facts), network_config(facts["network"], path), facts["provenance"])


def _check_facts(text: str | None, data: bytes, path: Path) -> dict[str, Any]:
    if text is None:
        raise WeightsError(
            f"{path} was not exported by superfeat: use `superfeat weights export` on the network it came from"
        )
    try:
        facts: dict[str, Any] = json.loads(text)
        if facts["format"] == FORMAT and facts["version"] != VERSION:
            raise WeightsError(
                f"{path} has format version {facts['version']}; this superfeat reads {VERSION}: upgrade it"
            )
        sealed = facts.pop("checksum") == _checksum(data[: facts["bytes"]], facts)
    except (ValueError, KeyError, TypeError, AttributeError):
        sealed = False
    if not sealed:
        raise WeightsError(f"{path} is damaged or was changed after its export; export it again")
    return facts


def quantise_onnx(
    source: Path,
    target: Path,
    photos: Iterable[Path],
    *,
    images: int = CALIBRATION_PHOTOS,
    max_side: int = CALIBRATION_SIDE,
    overwrite: bool = False,
) -> None:
    """Writes an exported network again with its trunk in int8, ranges taken from the first `images` readable photos.

    The stem, the shortcuts' sums and all that follows the trunk stay float32. The result is another network, with a
    digest of its own: its features must not be mixed with those of the float32 one.
    """
    target = Path(target)
    _check_target(target, overwrite)
    network = load_onnx(Path(source))
    if network.module.precision != "float32":
        raise SuperfeatError(f"{source} is int8 already; quantise the float32 export that it came from")
    pixels = list(itertools.islice(_calibration_images(photos, max_side, network.normalisation), images))
    if not pixels:
        raise ImageError("no photo to calibrate int8 on could be read; give a few dozen ordinary ones")
    model = _quantise(Path(source).read_bytes(), pixels)
    facts = {
        "format": FORMAT,
        "version": VERSION,
        "precision": "int8",
        "network": as_dict(network.config),
        "digest": hashlib.sha256(model.SerializeToString()).hexdigest(),
        "provenance": {**network.provenance, "int8": f"from {network.digest}, calibrated on {len(pixels)} photos at {max_side} px"},
    }
    _write(target, _seal(model, facts))


def _calibration_images(
    photos: Iterable[Path], max_side: int, normalisation: Normalisation
) -> Iterator[Float32[np.ndarray, "1 3 height width"]]:
    for photo in photos:
        with contextlib.suppress(ImageError):
            yield normalise(read_image(photo, max_side=max_side), *normalisation)[None]


def _quantise(data: bytes, pixels: list[Float32[np.ndarray, "1 3 height width"]]) -> Any:
    """The model with its trunk's convolutions in int8.

    Weights have 7 bits (reduce_range): two products of full 8 bits overflow the 16-bit sums of processors without
    VNNI, silently. The 7x7 stem has three channels: int8 gains little there and loses most.
    Only min-max calibration takes photos of different sizes.
    """
    onnx, quantiser = _package("onnx", "int8"), _package("onnxruntime.quantization", "int8")
    model = onnx.load_model_from_string(data)
    stem = (f"{TRUNK}stem", f"{TRUNK}stem/relu")
    names = [node.name for node in model.graph.node if node.name.startswith(TRUNK) and node.name not in stem]
    # Says that batch-norms are folded and shapes known, else the quantiser warns.
    model.metadata_props.add(key="onnx.quant.pre_process", value="onnxruntime.quant")
    with tempfile.TemporaryDirectory(prefix="superfeat-int8-") as folder, _root_logger_kept():
        before, after = Path(folder) / "float32.onnx", Path(folder) / "int8.onnx"
        onnx.save(model, before)
        quantiser.quantize_static(
            str(before),
            str(after),
            _Calibration(pixels),
            quant_format=quantiser.QuantFormat.QDQ,
            op_types_to_quantize=["Conv", "Relu"],
            nodes_to_quantize=names,
            per_channel=True,
            reduce_range=True,
            activation_type=quantiser.QuantType.QUInt8,
            weight_type=quantiser.QuantType.QInt8,
        )
        model = onnx.load(after)
    del model.metadata_props[:]
    return model


class _Calibration:
    """Photos in the form in which the quantiser asks for them."""

    def __init__(self, pixels: list[Float32[np.ndarray, "1 3 height width"]]) -> None:
        self.coming = iter(pixels)

    def get_next(self) -> dict[str, Float32[np.ndarray, "1 3 height width"]] | None:
        pixels = next(self.coming, None)
        return None if pixels is None else {"image": pixels}


@contextlib.contextmanager
def _root_logger_kept() -> Iterator[None]:
    """The quantiser logs by logging.info(), which sets up logging for the whole program unless a handler is there."""
    handler = logging.NullHandler()
    logging.root.addHandler(handler)
    try:
        yield
    finally:
        logging.root.removeHandler(handler)
