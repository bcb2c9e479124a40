"""Networks in and out: a folder of model.safetensors + config.json + README.md (the model card), or foreign files."""

import json
import re
from collections.abc import Mapping
from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from superfeat.config import CALIBRATION, CARRIED_CODEBOOK, DEFAULT_WEIGHTS
from superfeat.errors import SuperfeatError, WeightsError
from superfeat.methods import method_of
from superfeat.nets.local import LocalNetwork
from superfeat.settings import as_dict
from superfeat.storage.store import write_folder
from superfeat.storage.unpickle import read_torch
from superfeat.weights.efficientnet import is_lite_wheel, read_lite_wheel
from superfeat.weights.facts import FORMAT, TAUGHT_BY, VERSION, NetworkFacts, read_config
from superfeat.weights.keras import is_keras, read_keras
from superfeat.weights.layouts import Foreign, fit, recognise
from superfeat.weights.model_card import model_card
from superfeat.weights.named import SHIPPED_FOLDER, find_weights, shipped_names
from superfeat.weights.network import Network, build_module, digest_of, network_config
from superfeat.weights.published import for_method, recognise_published, recognise_tensorflow
from superfeat.weights.ranges import RANGES_FILE, read_ranges
from superfeat.weights.tensorflow import is_tensorflow, read_tensorflow

NOTHING_SPARE = re.compile(r"(?!)")
# What a network brings that is of its weights as they are, to the last bit
LEFT_BEHIND = {
    CALIBRATION: "the calibration stays behind: it is of the network as it was; fit one with superfeat calibrate",
    RANGES_FILE: "ranges for int8 stay behind: they are of the network as it was; learn them with weights ranges",
}


def load_network(source: str | Path = DEFAULT_WEIGHTS, *, method: str | None = None) -> Network:
    """Loads a network from a folder of ours, a released FIRe or HOW checkpoint, a trunk file (torchvision, timm,
    Keras), an exported .onnx file, or by name (shipped with superfeat, or brought by `superfeat weights get`).

    Without any it is the one that superfeat uses where nothing is chosen. `method` says what is to be built on a trunk
    file (HOW where nothing is said), or that a file must be of this method.
    """
    path = find_weights(source)
    if path.suffix == ".onnx":
        from superfeat.weights.onnx import load_onnx

        return _require_method(load_onnx(path), method, path)
    if path.name == "model.safetensors" and (path.parent / "config.json").is_file():
        path = path.parent
    if (path / "config.json").is_file():
        return _require_method(_load_ours(path), method, path)
    foreign = read_foreign(path, method)
    return adopt(foreign if method is None else for_method(foreign, method, str(path)), path)


def _require_method(network: Network, method: str | None, path: Path) -> Network:
    if method is not None and network.config.method != method_of(method).name:
        found, wanted = method_of(network.config.method).title, method_of(method).title
        raise WeightsError(f"{path} is a network of {found}, not of {wanted}; give a trunk, or a network of {wanted}")
    return network


def carried_codebook(weights: str | Path) -> Path | None:
    """The general codebook that a network's folder brings, or its teacher where that one comes with superfeat; None if
    there is none.
    """
    folder = find_weights(weights)
    homes = [folder]
    if (folder / "config.json").is_file() and (teacher := read_config(folder)["provenance"].get(TAUGHT_BY)):
        shipped = [SHIPPED_FOLDER / name for name in shipped_names()]
        homes += [home for home in shipped if read_config(home)["digest"] == teacher]
    return next((home / CARRIED_CODEBOOK for home in homes if (home / CARRIED_CODEBOOK).is_dir()), None)


def carried_calibration(weights: str | Path) -> Path:
    """Where the calibration of a network lies, if it has any: in its folder, or beside the codebook that it brings."""
    folder, codebook = find_weights(weights), carried_codebook(weights)
    own = folder / CALIBRATION
    return own if own.is_file() or codebook is None else codebook.parent / CALIBRATION


def carried_files(weights: str | Path) -> dict[str, bytes]:
    """The codebook, the calibration and the ranges for int8 that a network's folder brings, by name within it."""
    folder = find_weights(weights)
    found = [folder / CALIBRATION, folder / RANGES_FILE, *sorted((folder / CARRIED_CODEBOOK).glob("*"))]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found if path.is_file()}


def convert_network(
    source: str | Path, path: str | Path, *, method: str | None = None, half: bool = False, overwrite: bool = False
) -> list[str]:
    """Writes a network in our format, with all that its folder brings. What is left behind."""
    network, carried, notes = load_network(source, method=method), carried_files(source), []
    if digest_of(network.config, _tensors(network, half)) != network.digest:
        notes = [note for name, note in LEFT_BEHIND.items() if carried.pop(name, None) is not None]
    save_network(network, path, half=half, overwrite=overwrite, carried=carried)
    return notes


def read_foreign(path: Path, method: str | None = None) -> Foreign:
    """Parameters of a file that is not in our format; `method` chooses where it holds two networks."""
    if is_tensorflow(path):
        return recognise_tensorflow(read_tensorflow(path), str(path), method)
    if is_keras(path):
        return read_keras(path)
    if is_lite_wheel(path):
        return read_lite_wheel(path)
    if path.is_dir():
        raise WeightsError(f"{path} is a folder without config.json: not a network that superfeat saved")
    if path.suffix == ".safetensors":
        return recognise(_read_safetensors(path), str(path))
    contents = read_torch(path)
    return recognise_published(contents, str(path), method) or recognise(contents, str(path))


def adopt(foreign: Foreign, path: Path) -> Network:
    """The network that a file of others holds."""
    module = _filled(foreign, str(path))
    return Network(module, foreign.config, {"source": path.name, "kind": foreign.kind})


def _filled(foreign: Foreign, source: str) -> LocalNetwork:
    """The module of these settings, with the file's tensors themselves as its parameters."""
    module = build_module(foreign.config)
    module.load_state_dict(fit(foreign, module.state_dict(), source), assign=True)
    return module


def _load_ours(folder: Path) -> Network:
    facts = read_config(folder)
    config = network_config(facts["network"], folder)
    state = _read_safetensors(folder / "model.safetensors")
    module = _filled(Foreign(state, config, lambda name: name, NOTHING_SPARE, "superfeat network"), str(folder))
    ranges = read_ranges(folder / RANGES_FILE) if (folder / RANGES_FILE).is_file() else None
    network = Network(module, config, facts["provenance"], ranges)
    if network.digest != facts["digest"]:
        raise WeightsError(
            f"{folder} is damaged: its parameters are not those that were saved; copy or convert it again"
        )
    return network


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        return safetensors.torch.load_file(path)
    except (SafetensorError, OSError) as error:
        raise WeightsError(f"{path} is damaged or incomplete ({error}); copy or convert it again") from error


def save_network(
    network: Network,
    path: str | Path,
    *,
    half: bool = False,
    overwrite: bool = False,
    carried: Mapping[str, bytes] | None = None,
) -> None:
    """Writes the network as a folder, whole or not at all. `half` stores 16-bit floats: half the size, 3 digits.

    Vectors stay as they are: they take no room, and variances of pixels from 0 to 255 lie beyond 16 bits. `carried` are
    files to lie beside it.
    """
    tensors = _tensors(network, half)
    facts: NetworkFacts = {
        "format": FORMAT,
        "version": VERSION,
        "network": as_dict(network.config),
        "digest": digest_of(network.config, tensors),
        "provenance": network.provenance,
    }
    files = {
        "model.safetensors": safetensors.torch.save(tensors),
        "config.json": (json.dumps(facts, indent=2) + "\n").encode(),
        "README.md": model_card(facts, sum(value.numel() for value in tensors.values()), half).encode(),
    }
    write_folder(Path(path), {**files, **(carried or {})}, overwrite=overwrite)


def _tensors(network: Network, half: bool) -> dict[str, Tensor]:
    """The parameters as they are stored."""
    if not isinstance(network.module, nn.Module):
        raise SuperfeatError("an exported network cannot be saved again; convert the network that it came from")
    tensors = {name: value.detach().cpu().contiguous() for name, value in network.module.state_dict().items()}
    return {name: _halved(value) for name, value in tensors.items()} if half else tensors


def _halved(value: Tensor) -> Tensor:
    small = value.half() if value.is_floating_point() and value.ndim > 1 else value
    return small if torch.isfinite(small).all() else value
