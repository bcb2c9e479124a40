"""The folder of a run: its settings, its log, its checkpoint, and the best and the last network."""

import contextlib
import dataclasses
import json
import os
import shutil
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from superfeat.errors import StoreError
from superfeat.storage.store import (
    as_json,
    differences,
    explained,
    read_json,
    require_version,
    write_file,
    write_json,
    writer_lock,
)
from superfeat.training.ranks import Ranks
from superfeat.training.records import DistilFacts, LogFacts, LogLine, PretrainingFacts, TrainingFacts
from superfeat.weights import Network, save_network
from superfeat.weights.network import Provenance

FORMAT = "superfeat-run"
VERSION = 1
CHECKPOINT_SECONDS = 300.0
NO_FACTS: LogFacts = {}
RunFacts = TrainingFacts | PretrainingFacts | DistilFacts


class Event(NamedTuple):
    """What a run is doing: `done` of `total`. Those that the log keeps carry their record in `facts`."""

    stage: str  # pretraining, start, maps, mining, step, epoch, validating, validation, stopped, end
    done: int
    total: int
    facts: LogFacts = NO_FACTS


@dataclasses.dataclass
class Position:
    """How far a run is: `step` steps of `epoch` are done."""

    epoch: int = 0
    step: int = 0
    steps: int = 0  # of all epochs
    validated: int | None = None  # the last epoch that was
    best: float | None = None
    best_epoch: int | None = None
    mining_seconds: float = 0.0
    log_bytes: int = 0
    provenance: Provenance = dataclasses.field(default_factory=dict)  # of the network that the run began with


class RunFolder:
    """Files of one run. Everything is replaced as a whole, so that a kill at any moment leaves a run to go on with."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.settings_file = path / "run.json"
        self.log_file = path / "log.jsonl"
        self.checkpoint_file = path / "checkpoint.safetensors"
        self._tensorboard: Any = None

    @contextlib.contextmanager
    def writing(self, facts: RunFacts, resume: bool, ranks: Ranks) -> Iterator[None]:
        """Holds the folder; the first rank makes it, or checks that the run in it is the one that `facts` describe."""
        if not ranks.first:
            ranks.wait()
            yield
            return
        self._open(facts, resume)
        with writer_lock(self.path):
            self._sweep()
            ranks.wait()
            try:
                yield
            finally:
                if self._tensorboard:
                    self._tensorboard.close()

    def _open(self, run: RunFacts, resume: bool) -> None:
        facts = as_json({"format": FORMAT, "version": VERSION, **run})
        if self.path.exists() and not self.path.is_dir():
            raise StoreError(f"{self.path} is a file; choose a new folder for the run")
        if self.settings_file.is_file():
            before = read_json(self.settings_file)
            if not isinstance(before, dict) or before.get("format") != FORMAT:
                raise StoreError(f"{self.settings_file} does not describe a training run; choose another folder")
            require_version(before, VERSION, self.settings_file)
            if not resume:
                raise StoreError(
                    f"{self.path} holds a run already; resume it, or choose another folder", arguments=["resume"]
                )
            if changed := differences(before, facts):
                raise StoreError(f"{self.path} is a run with other settings ({changed}); resume it with its own")
            return
        if self.path.exists() and any(not file.name.startswith(".") for file in self.path.iterdir()):
            raise StoreError(f"{self.path} is not empty and holds no run; choose a new folder")
        with explained(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        write_json(self.settings_file, facts)

    def _sweep(self) -> None:
        """Clears away what a killed process left half-written; a network that it had moved aside is put back."""
        with explained(self.path):
            for old in self.path.glob(".*.old"):
                name = self.path / old.name[1:].rsplit(".", 2)[0]
                if not name.exists():
                    old.rename(name)
            for pattern in (".validation.*", ".*.partial", ".*.old"):
                for left in self.path.glob(pattern):
                    shutil.rmtree(left) if left.is_dir() else left.unlink()

    def save_checkpoint(self, position: Position, tensors: Mapping[str, Tensor]) -> None:
        """Replaces the checkpoint."""
        position.log_bytes = self.log_file.stat().st_size if self.log_file.exists() else 0
        whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        place = json.dumps(dataclasses.asdict(position))
        metadata = {"format": FORMAT, "version": str(VERSION), "position": place, "crc32": _checksum(place, whole)}
        write_file(self.checkpoint_file, safetensors.torch.save(whole, metadata))

    def load_checkpoint(self) -> tuple[Position, dict[str, Tensor]] | None:
        """The checkpoint, if there is one, checked."""
        if not self.checkpoint_file.is_file():
            return None
        try:
            with safe_open(self.checkpoint_file, "pt") as file:
                metadata = file.metadata()
                require_version(metadata, VERSION, self.checkpoint_file)
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
                if metadata["crc32"] != _checksum(metadata["position"], tensors):
                    raise ValueError("its contents are not those that were written")
                return Position(**json.loads(metadata["position"])), tensors
        except (SafetensorError, OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
            raise StoreError(f"{self.checkpoint_file} is damaged ({error}); remove it to begin again") from error

    def cut_log(self, size: int) -> None:
        """Takes away the lines after a checkpoint, whose steps will be done again."""
        with explained(self.log_file):
            if self.log_file.exists() and self.log_file.stat().st_size > size:
                os.truncate(self.log_file, size)

    def log(self, record: LogLine) -> None:
        """Adds a line to log.jsonl, and to TensorBoard's files where it is installed."""
        with explained(self.log_file), self.log_file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        self._log_tensorboard(record)

    def _log_tensorboard(self, record: LogLine) -> None:
        if self._tensorboard is None:
            self._tensorboard = _tensorboard_writer(self.path / "tensorboard")
        if self._tensorboard:
            told = {name: value for name, value in record.items() if name not in ("step", "epoch")}
            for name, value in _scalars(told, record["event"]):
                self._tensorboard.add_scalar(name, value, record["step"])

    def save_network(self, network: Network, name: str) -> None:
        """Replaces RUN/`name`, a network folder."""
        save_network(network, self.path / name, overwrite=True)


def _scalars(record: Mapping[str, object], where: str) -> Iterator[tuple[str, float]]:
    """The numbers of a record, by their paths: of groups of numbers too."""
    for name, value in record.items():
        if isinstance(value, Mapping):
            yield from _scalars(value, f"{where}/{name}")
        elif isinstance(value, (int, float)):
            yield f"{where}/{name}", value


def _checksum(position: str, tensors: Mapping[str, Tensor]) -> str:
    total = zlib.crc32(position.encode())
    for name, tensor in sorted(tensors.items()):
        total = zlib.crc32(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode(), total)
        total = zlib.crc32(tensor.numpy().tobytes(), total)
    return f"{total:08x}"


def optimiser_state(optimiser: torch.optim.Optimizer, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What an optimiser remembers of each parameter, by names."""
    return {
        f"optimiser/{key}/{name}": value
        for name, parameter in parameters.items()
        for key, value in optimiser.state.get(parameter, {}).items()
    }


def restore_optimiser(
    optimiser: torch.optim.Optimizer, parameters: Mapping[str, Tensor], tensors: Mapping[str, Tensor]
) -> None:
    """Gives an optimiser its memory back."""
    for key, value in tensors.items():
        if key.startswith("optimiser/"):
            _, kind, name = key.split("/", 2)
            parameter = parameters[name]
            optimiser.state[parameter][kind] = value.to(parameter.device) if value.dim() else value


def _tensorboard_writer(folder: Path) -> Any:
    """A writer, or False where the optional package is missing (superfeat[tensorboard])."""
    with contextlib.suppress(ImportError):
        from torch.utils.tensorboard import SummaryWriter

        return SummaryWriter(str(folder))
    return False
