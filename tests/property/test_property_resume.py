"""A run killed at any moment and gone on with leaves the same bytes as one never stopped, and redoes nothing."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from fixtures_recipe import noise
from superfeat import FeatureStore, Network, save_network

FILES = ("vectors.npy", "strengths.npy", "scales.npy", "ids.npy", "images.jsonl", "manifest.json")
PHOTOS = 6
TESTS = Path(__file__).resolve().parents[1]

# One process imports torch and forks a child for each attempt before any of torch's threads exist.
DRIVER = r"""
import json, os, random, signal, sys, time
from pathlib import Path

folder, how, rounds, seed = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
from fixtures_recipe import quick_network
from superfeat import ExtractConfig, extract_to, load_network
from superfeat.images import image_endings

image_endings()  # loads Pillow's decoders, once for all children
SETTINGS = ExtractConfig(features_per_image=11, scales=(1.0, 0.5))
rng = random.Random(seed)


def attempt(out, before_sync=None):
    child = os.fork()
    if child:
        return child
    try:
        if before_sync is not None:
            sync, left = os.fsync, [before_sync]

            def killing(handle):
                left[0] -= 1
                if left[0] < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                sync(handle)

            os.fsync = killing
        network = quick_network() if how == "sync" else load_network(folder / "network")
        for _ in extract_to(out, network, folder / "photos", SETTINGS, workers=2):
            pass
        os._exit(0)
    except BaseException as error:
        print("child:", repr(error), file=sys.stderr, flush=True)
        os._exit(1)


def ended(child):
    status = os.waitpid(child, 0)[1]
    return "killed" if os.WIFSIGNALED(status) else f"exit {os.WEXITSTATUS(status)}"


def journal(out):
    path = out / "images.jsonl"
    return path.read_bytes() if path.exists() else b""


def check_kept(before, out):
    # Every whole line of an earlier attempt is still there, at its place: nothing was done a second time.
    whole = before[: before.rfind(b"\n") + 1]
    return journal(out).startswith(whole)


start = time.monotonic()
outcomes = [ended(attempt(folder / "once"))]
length = time.monotonic() - start
kept = True
if how == "sync":
    number = 0
    while number < rounds:
        out = folder / f"cut{number}"
        first = ended(attempt(out, before_sync=number))
        if first != "killed":
            break
        outcomes.append(first)
        before = journal(out)
        second = ended(attempt(out))
        outcomes.append(second)
        kept = kept and check_kept(before, out)
        number += 1
else:
    out = folder / "often"
    for _ in range(rounds):
        before = journal(out)
        child = attempt(out)
        time.sleep(rng.uniform(0, length))
        os.kill(child, signal.SIGKILL)
        outcomes.append(ended(child))
        kept = kept and check_kept(before, out)
    before = journal(out)
    outcomes.append(ended(attempt(out)))
    kept = kept and check_kept(before, out)
print(json.dumps({"outcomes": outcomes, "kept": kept}))
"""


@pytest.fixture
def folder(tmp_path: Path, tiny_network: Network) -> Path:
    (tmp_path / "photos").mkdir()
    for number in range(PHOTOS):
        Image.fromarray(noise(20 + number, 24, seed=number)).save(tmp_path / "photos" / f"{number}.png")
    (tmp_path / "photos" / "1.png").write_bytes(b"no photo")
    (tmp_path / "photos" / "4.png").write_bytes(b"")
    save_network(tiny_network, tmp_path / "network")
    return tmp_path


def drive(folder: Path, how: str, rounds: int = 0, seed: int = 0) -> dict[str, Any]:
    script = f"import sys\nsys.path.insert(0, {str(TESTS)!r})\n{DRIVER}"
    command = [sys.executable, "-c", script, str(folder), how, str(rounds), str(seed)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert run.returncode == 0, run.stderr
    found: dict[str, Any] = {"errors": run.stderr, **json.loads(run.stdout)}
    return found


def assert_same(once: Path, other: Path) -> None:
    for file in FILES:
        assert (once / file).read_bytes() == (other / file).read_bytes(), f"{other.name}/{file}"
    store = FeatureStore(other)
    store.verify()
    lines = (other / "images.jsonl").read_text().splitlines()
    assert len(lines) == len({json.loads(line)["name"] for line in lines}) == PHOTOS
    assert (len(store), len(store.skipped)) == (PHOTOS - 2, 2)


def test_killed_before_every_single_sync(folder: Path) -> None:
    """Each write that the folder relies on is a place to die; the next run goes on from every one of them."""
    found = drive(folder, "sync", 1000)
    kills = found["outcomes"].count("killed")
    assert kills >= 4 * (PHOTOS - 2)
    assert kills < 1000
    assert found["outcomes"] == ["exit 0"] + kills * ["killed", "exit 0"], found["errors"]
    assert found["kept"]
    for number in range(kills):
        assert_same(folder / "once", folder / f"cut{number}")


def test_killed_at_random_moments(folder: Path) -> None:
    found = drive(folder, "time", rounds=25, seed=1)
    assert set(found["outcomes"]) <= {"killed", "exit 0"}, found["errors"]
    assert found["outcomes"][-1] == "exit 0"
    assert found["kept"]
    assert_same(folder / "once", folder / "often")
