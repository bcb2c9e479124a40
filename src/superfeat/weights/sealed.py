"""The seal of an .onnx file: what is noted in it, and the checksum of all of it. Files are opened without torch."""

import hashlib
import importlib
import json
from pathlib import Path
from typing import Any

from superfeat.errors import MissingExtraError, StoreError, WeightsError
from superfeat.storage.records import as_record
from superfeat.weights.facts import NetworkFacts

FORMAT, VERSION = "superfeat-onnx", 1
KEY = "superfeat"  # of our entry in the file's metadata_props


class OnnxFacts(NetworkFacts):
    """What we note in an .onnx file, without its checksum."""

    precision: str  # float32 or int8
    bytes: int  # of the graph, which the facts follow


def open_sealed(path: Path, threads: int = 1) -> tuple[Any, OnnxFacts]:
    """A session of ONNX Runtime that uses so many threads for each call, and what the file says of itself.

    WeightsError if the file is damaged, changed or none of ours.
    """
    runtime = require_package("onnxruntime")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise WeightsError(f"cannot read {path}: {error.strerror or error}") from error
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.enable_mem_pattern = False  # it keeps a plan for every image size ever seen
    options.log_severity_level = 4  # what matters is raised
    try:
        session = runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the runtime's own types, which differ from version to version
        reason = str(error).strip().splitlines()[0]
        raise WeightsError(f"{path} is damaged or not an ONNX file ({reason}); export it again") from error
    return session, _check_seal(session.get_modelmeta().custom_metadata_map.get(KEY), data, path)


def require_package(name: str) -> Any:
    """A module of the extra `onnx`. MissingExtraError if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingExtraError("an .onnx network", "onnx") from error


def checksum_of(graph: bytes | memoryview, facts: OnnxFacts) -> str:
    """SHA-256 of the model's bytes and of what is noted of it."""
    total = hashlib.sha256(graph)
    total.update(json.dumps(facts, sort_keys=True).encode())
    return total.hexdigest()


def _check_seal(text: str | None, data: bytes, path: Path) -> OnnxFacts:
    if text is None:
        raise WeightsError(f"{path} was not exported by superfeat; export the network that it came from with superfeat")
    try:
        read = json.loads(text)
        if read["version"] != VERSION:
            raise WeightsError(f"{path} has format {read['version']}; this superfeat reads {VERSION}: upgrade it")
        checksum = read.pop("checksum")
        facts = as_record(OnnxFacts, read, path)
        if checksum == checksum_of(memoryview(data)[: facts["bytes"]], facts):
            return facts
    except (ValueError, KeyError, TypeError, AttributeError, StoreError):
        pass
    raise WeightsError(f"{path} is damaged or was changed after its export; export it again")
