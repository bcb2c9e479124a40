"""Exported networks in the user's cache: made once, with torch, so that the next search by a photo needs no torch."""

import contextlib
import importlib.metadata
import importlib.util
import json
import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from superfeat.errors import ConfigError, SuperfeatError, WeightsError
from superfeat.extraction.without_torch import MANNERS, Onlooker
from superfeat.storage.cache import cache_folder
from superfeat.storage.store import write_file
from superfeat.weights.facts import read_config
from superfeat.weights.named import find_weights

if TYPE_CHECKING:
    from superfeat.weights import Network

Precision = Literal["float32", "int8"] | None  # as in ExtractConfig
SWITCH = "SUPERFEAT_ENGINE"  # in the environment: "torch" never takes ONNX Runtime by itself
WORTH = 0.8  # int8 pays if it takes less than this share of float32's time
MOST_KEPT = 8  # files of 15 MB (int8) or 40; the oldest goes


def runs_onnx() -> bool:
    """Whether photos may be looked at by ONNX Runtime: it is installed, and nobody said otherwise."""
    said = os.environ.get(SWITCH, "auto")
    if said not in ("auto", "torch"):
        raise ConfigError(f"{SWITCH} is '{said}' in the environment; it must be auto or torch")
    return said == "auto" and importlib.util.find_spec("onnxruntime") is not None


def kept_path(digest: str, precision: Precision = None) -> Path:
    """Where the export of the network with this digest is kept."""
    return cache_folder() / "onnx" / f"{digest}{'' if precision is None else f'-{precision}'}.onnx"


def open_kept(digest: str, precision: Precision = None) -> Onlooker | None:
    """The network with this digest for ONNX Runtime; None if it is not kept here. A damaged file is removed."""
    path = kept_path(digest, precision)
    if not path.is_file() or not runs_onnx():
        return None
    try:
        found = Onlooker.open(path)
    except WeightsError:
        with contextlib.suppress(OSError):
            path.unlink()
        return None
    except SuperfeatError:  # the package is there and does not work
        return None
    found = found.standing_for(digest)
    return found if found.digest == digest else None


def open_exported(weights: str, digest: str | None, precision: Precision = None) -> Onlooker | None:
    """The network of these weights for ONNX Runtime, if it can be had without torch.

    `digest` is the network's, where it is known; None asks the weights themselves. A file is taken as it is, whatever
    its precision.
    """
    try:
        path = find_weights(weights)
        if path.suffix == ".onnx":
            return Onlooker.open(path) if runs_onnx() else None
        if digest is None:
            digest = read_config(path)["digest"]
    except SuperfeatError:  # whoever loads it with torch says what is wrong, if anything is
        if digest is None:
            return None
    return open_kept(digest, precision)


def keep_export(network: "Network") -> bool:
    """Exports a network into the cache if it is not there; whether it is there now.

    Nobody asked for it: where a package is missing or the disk is full or read-only, the next search takes torch.
    """
    path = kept_path(network.digest)
    if network.config.method not in MANNERS or not runs_onnx():
        return False
    if path.is_file():
        return True
    try:
        from superfeat.weights.onnx import export_onnx

        export_onnx(network, path, overwrite=True)
        drop_oldest(path.parent)
    except Exception:  # packages of others raise types of their own
        return path.is_file()
    return True


def drop_oldest(folder: Path) -> None:
    """Removes exports that are too many."""
    kept = sorted(folder.glob("*.onnx"), key=lambda file: file.stat().st_mtime)
    for old in kept[:-MOST_KEPT]:
        old.unlink()


# -- Whether int8 pays on this machine, once that was tried


def known_ratio(digest: str) -> float | None:
    """Time of int8 as a share of float32's, if that was tried on this machine."""
    try:
        record = json.loads(_record_path(digest).read_text(encoding="utf-8"))
        return float(record["ratio"]) if record["machine"] == _machine() else None
    except (OSError, ValueError, KeyError, TypeError, importlib.metadata.PackageNotFoundError):
        return None


def keep_ratio(digest: str, ratio: float) -> None:
    """Notes what share of float32's time int8 of this network takes here."""
    write_file(_record_path(digest), (json.dumps({"machine": _machine(), "ratio": ratio}) + "\n").encode())


def _record_path(digest: str) -> Path:
    return kept_path(digest, "int8").with_suffix(".json")


def _machine() -> str:
    """What the time of int8 depends on: the processor, and the runtime."""
    name = platform.processor()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        known = [line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "flags"))]
        name = " ".join(known[:2]) or name
    return f"onnxruntime {importlib.metadata.version('onnxruntime')}, {name}"
