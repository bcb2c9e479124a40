"""Files, settings and small loops, as callers of `asmk` use them. Pickles are read by the restricted unpickler."""

import io
import logging
import pickle
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from superfeat.errors import ConfigError, SuperfeatError
from superfeat.storage.store import explained, write_file
from superfeat.storage.unpickle import read_pickle

TEMPLATE = "__template__"
MOST_TEMPLATES = 20
PICKLE_PROTOCOL = 4
Progress = int | None  # a line of the log for each so many
Item = TypeVar("Item")
log = logging.getLogger("superfeat.asmk")


def load_pickle(path: str | Path) -> Any:
    """Plain containers, numbers, text and arrays of a pickle; whatever else it names is refused and not run."""
    return read_pickle(path)


def save_pickle(path: str | Path, data: Any) -> None:
    """Writes what others unpickle, whole or not at all."""
    written = io.BytesIO()
    pickle.dump(data, written, protocol=PICKLE_PROTOCOL)
    write_file(Path(path), written.getvalue())


def load_params(path: str | Path) -> dict[str, Any]:
    """A YAML file of settings, laid over the file that its `__template__` names (a path beside it)."""
    return _load(Path(path), 0)


def _load(path: Path, depth: int) -> dict[str, Any]:
    try:
        import yaml
    except ImportError as error:
        raise SuperfeatError(f"reading {path} needs PyYAML: pip install pyyaml") from error
    with explained(path, "read"):
        text = path.read_text(encoding="utf-8")
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not YAML ({error}); correct it") from error
    if not isinstance(found, dict):
        raise ConfigError(f"{path} holds no settings by name; write them as 'name: value'")
    template = found.pop(TEMPLATE, None)
    if template is None:
        return found
    if depth >= MOST_TEMPLATES:
        raise ConfigError(f"{path} names templates in a circle; take one {TEMPLATE} out")
    return _overlay(_load(path.parent / str(template), depth + 1), found)


def _overlay(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    made = dict(below)
    for key, value in above.items():
        old = made.get(key)
        made[key] = _overlay(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return made


def slice_unique(ids: Sequence[int] | np.ndarray) -> Iterator[tuple[int, slice]]:
    """Each image and where its features lie; those of an image must follow each other."""
    found = np.asarray(ids)
    bounds = np.concatenate([[0], np.flatnonzero(np.diff(found)) + 1, [len(found)]]) if len(found) else np.zeros(1, int)
    firsts = found[bounds[:-1]].tolist()
    if len(set(firsts)) != len(firsts):
        raise SuperfeatError("the features of an image must follow each other; sort features and ids by image")
    yield from zip(
        firsts, (slice(a, b) for a, b in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)), strict=True
    )


def progress_over(items: Sequence[Item], frequency: Progress, header: str) -> Iterator[Item]:
    """The items, with a line of the log for each `frequency` of them."""
    began = time.perf_counter()
    for number, item in enumerate(items, 1):
        yield item
        if frequency and (number % frequency == 0 or number == len(items)):
            log.info("%s: %d of %d in %.1f s", header, number, len(items), time.perf_counter() - began)


def progress(iterable: Iterable[Item], *, frequency: Progress = None, header: str = "") -> Iterator[Item]:
    """The same for any iterable."""
    return progress_over(list(iterable), frequency, header)


def init_logger(path: str | Path | None) -> logging.Logger:
    """A logger that tells a file everything, and the terminal what matters."""
    logger = logging.getLogger("superfeat.asmk.run")
    logger.setLevel(logging.DEBUG)
    for old in list(logger.handlers):
        logger.removeHandler(old)
        old.close()
    terminal = logging.StreamHandler()
    terminal.setLevel(logging.INFO)
    handlers: list[logging.Handler] = [terminal]
    if path is not None:
        handlers.append(logging.FileHandler(path, encoding="utf-8"))
    for handler in handlers:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        logger.addHandler(handler)
    return logger


def download_files(
    names: Iterable[str], root_path: str | Path, base_url: str, logfunc: Callable[[str], object] | None = None
) -> None:
    """Brings the files that are not there yet, because the calling program asks for it."""
    for name in names:
        target = Path(root_path) / name
        if target.exists():
            continue
        if not base_url.startswith(("http://", "https://")):
            raise SuperfeatError(f"{base_url} is no web address; give one that begins with https://")
        if logfunc:
            logfunc(f"Downloading {name}")
        with explained(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            with urllib.request.urlopen(base_url.rstrip("/") + "/" + name, timeout=60) as response:
                write_file(target, response.read())
