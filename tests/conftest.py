"""What all tests share: shape checks on, a tiny network, a folder of photos, the reference fixtures."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from fixtures_shapes import CHECKED, check_shapes

check_shapes(CHECKED)

from fixtures_disk import Disk  # noqa: E402 - the hook comes before the first import of superfeat
from fixtures_recipe import noise, recipe_network  # noqa: E402 - the hook comes before the first import of superfeat
from superfeat.config import LitConfig, NetworkConfig, TrunkConfig  # noqa: E402
from superfeat.weights import Network  # noqa: E402

GOLDEN = Path(__file__).resolve().parent / "golden" / "data"
SEGMENTS_ALWAYS = -(1 << 40)
TINY_TRUNK = TrunkConfig(arch="resnet18", stages=1)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With --dist loadfile, a folder below integration/ goes to one process: its files share what is made once.

    Documents, which take long and share little, go one by one to whoever is free.
    """
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

    def together(test: str) -> str:
        file = Path(test.partition("::")[0])
        if file.name == "test_documents.py":
            return test
        return str(file.parent if file.parent.parent.name == "integration" else file)

    scheduler = LoadFileScheduling(config, log)
    scheduler._split_scope = together
    return scheduler


@pytest.fixture(autouse=True, scope="session")
def _segments_always() -> Iterator[None]:
    """Compaction makes segments of the few images of tests too; tests/unit/index/test_compact.py sees what it does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("superfeat.index.contents.NAMES_BYTES", SEGMENTS_ALWAYS)
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_power_cuts() -> Iterator[None]:
    """Nobody waits for the disk, which takes milliseconds each time; to sync a file that is closed is still an error.

    Tests that watch or break os.fsync see each call as before, and the processes that tests start sync in earnest.
    """

    def fsync(file: Any) -> None:
        os.fstat(file if isinstance(file, int) else file.fileno())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        yield


@pytest.fixture(scope="session", autouse=True)
def _own_archives(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What tests find in archives that lie elsewhere is not noted in the cache of whoever runs them."""
    folder = tmp_path_factory.mktemp("archives")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "superfeat.addresses.remembered.cache_folder", lambda: Path(os.environ.get("SUPERFEAT_CACHE", folder))
        )
        yield


@pytest.fixture(scope="session", autouse=True)
def _torch_alone() -> Iterator[None]:
    """Photos are looked at with torch, to the last bit as they were indexed; no export is made of each small network.

    What ONNX Runtime does in its place has tests of its own: test_without_torch.py, test_first_answer.py.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SUPERFEAT_ENGINE", "torch")
        yield


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """Tiny tensors gain nothing from threads, and threads that wait in a loop make a busy machine crawl."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def golden() -> Path:
    """The reference fixtures, which are part of the project: without them tests fail."""
    return GOLDEN


@pytest.fixture(scope="session")
def shared(golden: Path) -> Path:
    """An older name."""
    return golden


@pytest.fixture(scope="session")
def tiny_network() -> Network:
    """FIRe: 64 channels at stride 4, 8 super-features of 16 dimensions, whitened to 6."""
    return recipe_network(NetworkConfig("fire", TINY_TRUNK, LitConfig(templates=8, rounds=3, dim=16), whitened_dim=6))


@pytest.fixture(scope="session")
def tiny_how() -> Network:
    """HOW on the same trunk, whitened to 6."""
    return recipe_network(NetworkConfig("how", TINY_TRUNK, None, whitened_dim=6))


@pytest.fixture
def photo_folder(tmp_path: Path) -> Path:
    """Six readable photos of different sizes and formats, one of them in a subfolder."""
    folder = tmp_path / "photos"
    (folder / "more").mkdir(parents=True)
    sizes = {
        "a.png": (40, 56),
        "b.jpg": (64, 48),
        "c.png": (33, 47),
        "d.jpg": (48, 48),
        "e.bmp": (24, 64),
        "more/f.png": (56, 40),
    }
    for seed, (name, (height, width)) in enumerate(sizes.items()):
        Image.fromarray(noise(height, width, seed)).save(folder / name)
    return folder


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """A file system of 8 MB; skips, saying so, where none can be mounted."""
    path = tmp_path / "disk"
    path.mkdir()
    mounted = shutil.which("mount") and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(path)], capture_output=True, check=False
    )
    if not mounted or mounted.returncode:
        pytest.skip("a file system of its own is needed")
    try:
        yield Disk(path)
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)
