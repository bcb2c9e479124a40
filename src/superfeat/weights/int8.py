"""int8 for the trunk of an exported network: what its activations range over, and the network quantised by that."""

import contextlib
import hashlib
import itertools
import logging
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from jaxtyping import Float32

from superfeat.errors import ImageError, SuperfeatError, WeightsError
from superfeat.images import normalise, read_image
from superfeat.nets.trunk import Normalisation
from superfeat.storage.store import write_file
from superfeat.weights.facts import ORIGIN
from superfeat.weights.files import load_network
from superfeat.weights.onnx import export_onnx, load_onnx, prepare_file, seal
from superfeat.weights.onnx_trunks import TRUNK
from superfeat.weights.ranges import RANGES_FILE, Ranges
from superfeat.weights.sealed import require_package

PHOTOS, SIDE = 32, 480
KINDS = ["Conv", "Relu", "Clip"]  # of nodes that are quantised
NetworkInput = Float32[np.ndarray, "1 3 height width"]


def learn_ranges(source: Path, photos: Iterable[Path], *, images: int = PHOTOS, max_side: int = SIDE) -> Ranges:
    """What the trunk of an exported float32 network ranges over on the first `images` photos that can be read."""
    network = load_onnx(source)
    if network.module.precision != "float32":
        raise SuperfeatError(f"{source} is int8 already; quantise the float32 export that it came from")
    pixels = list(itertools.islice(_read_photos(photos, max_side, network.normalisation), images))
    if not pixels:
        raise ImageError("no photo to learn the ranges of int8 from could be read; give a few dozen ordinary ones")
    return Ranges(network.digest, len(pixels), max_side, _measure(source, pixels))


def give_ranges(folder: Path, photos: Iterable[Path]) -> Ranges:
    """Learns the ranges of the network in a folder and writes them beside it, as int8.json."""
    if not (folder / "config.json").is_file():
        raise WeightsError(f"{folder} is not a network's folder; make one with superfeat weights convert")
    with tempfile.TemporaryDirectory(prefix="superfeat-int8-") as temporary:
        plain = Path(temporary, "float32.onnx")
        export_onnx(load_network(folder), plain)
        learned = learn_ranges(plain, photos)
    write_file(folder / RANGES_FILE, learned.as_bytes())
    return learned


def quantise_onnx(source: Path, target: Path, ranges: Ranges, *, overwrite: bool = False) -> None:
    """Writes an exported network again with its trunk in int8.

    The stem, the sums with shortcuts and all that follows the trunk stay float32. The result is another network, with
    a digest of its own, that knows which one it was made from and may stand for it.
    """
    prepare_file(target, overwrite)
    network = load_onnx(source)
    if network.digest != ranges.network:
        raise SuperfeatError(
            f"these ranges for int8 are of another network ({ranges.network[:12]}…, not {network.digest[:12]}…); "
            "learn them with superfeat weights ranges"
        )
    model = _quantise(source, ranges.values)
    digest = hashlib.sha256(model.SerializeToString()).hexdigest()
    made = f"from {network.digest}, calibrated on {ranges.photos} photos at {ranges.max_side} px"
    provenance = {**network.provenance, "int8": made, ORIGIN: network.digest}
    write_file(target, seal(model, network, digest, provenance, "int8"))


def _read_photos(photos: Iterable[Path], max_side: int, normalisation: Normalisation) -> Iterator[NetworkInput]:
    for photo in photos:
        with contextlib.suppress(ImageError):
            yield normalise(read_image(photo, max_side=max_side), *normalisation)[None]


def _measure(source: Path, pixels: list[NetworkInput]) -> dict[str, tuple[float, float]]:
    """Least and largest values of the tensors that int8 replaces. Only min-max takes photos of several sizes."""
    calibrate = require_package("onnxruntime.quantization.calibrate")
    model = require_package("onnx").load(source)
    chosen = set(_trunk_nodes(model))
    used = [name for node in model.graph.node if node.name in chosen for name in (node.input[0], *node.output)]
    inputs = iter([{"image": image} for image in pixels])
    with tempfile.TemporaryDirectory(prefix="superfeat-int8-") as folder, _no_logging():
        calibrator = calibrate.create_calibrator(source, KINDS, str(Path(folder, "observed.onnx")))
        calibrator.collect_data(SimpleNamespace(get_next=lambda: next(inputs, None)))
        found = calibrator.compute_data()
        del calibrator
    return {name: (float(np.min(found[name].lowest)), float(np.max(found[name].highest))) for name in used}


def _quantise(source: Path, ranges: Mapping[str, tuple[float, float]]) -> Any:
    """The model with its trunk's convolutions in int8.

    Weights have 7 bits (reduce_range): on processors without VNNI, products of full 8 bits overflow 16-bit sums,
    silently. The stem gains little from int8 and loses most.
    """
    onnx, calibrate = require_package("onnx"), require_package("onnxruntime.quantization.calibrate")
    quantiser = require_package("onnxruntime.quantization.qdq_quantizer")
    kinds = require_package("onnxruntime.quantization").QuantType
    model = onnx.load(source)
    del model.metadata_props[:]
    ends = {name: tuple(np.float32(value) for value in pair) for name, pair in ranges.items()}
    measured = calibrate.TensorsData(calibrate.CalibrationMethod.MinMax, ends)
    names = _trunk_nodes(model)
    with _no_logging():
        made = quantiser.QDQQuantizer(
            model, True, True, kinds.QInt8, kinds.QUInt8, measured, names, [], KINDS, extra_options={}
        )
        try:
            made.quantize_model()
        except ValueError as error:  # a tensor of which nothing is known
            reason = str(error).splitlines()[0]
            raise SuperfeatError(f"these ranges do not fit the network ({reason}); learn them again") from error
    result = made.model.model
    del result.metadata_props[:]
    return result


def _trunk_nodes(model: Any) -> list[str]:
    stem = (f"{TRUNK}stem", f"{TRUNK}stem/relu")
    nodes = [node for node in model.graph.node if node.name.startswith(TRUNK) and node.name not in stem]
    return [node.name for node in nodes if node.op_type in KINDS]


@contextlib.contextmanager
def _no_logging() -> Iterator[None]:
    """Keeps the quantiser's logging.info() from setting up logging for the whole program."""
    handler = logging.NullHandler()
    logging.root.addHandler(handler)
    try:
        yield
    finally:
        logging.root.removeHandler(handler)
