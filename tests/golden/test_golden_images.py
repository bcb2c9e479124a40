"""Reading images against the released loader: the same pixels, bit for bit."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from fixtures_recipe import absolute_error
from superfeat.images import normalise, read_image
from superfeat.nets.trunk import IMAGENET_MEAN, IMAGENET_STD

BOX = (50.5, 30.25, 250.75, 210.0)


@pytest.fixture(scope="module")
def arrays(golden: Path) -> dict[str, np.ndarray]:
    with np.load(golden / "image_loading.npz") as file:
        return dict(file)


@pytest.mark.parametrize("side", [100, 200])
def test_whole_images(golden: Path, arrays: dict[str, np.ndarray], side: int) -> None:
    np.testing.assert_array_equal(read_image(golden / "load_src.png", max_side=side), arrays[f"full_{side}_uint8"])


def test_a_whole_image_below_the_limit(golden: Path, arrays: dict[str, np.ndarray]) -> None:
    found = read_image(golden / "load_src.png", max_side=1024)
    assert found.shape == (300, 400, 3)
    assert found.dtype == np.uint8
    assert hashlib.sha256(found.tobytes()).hexdigest() == str(arrays["full_1024_sha256"])


def test_crop(golden: Path, arrays: dict[str, np.ndarray]) -> None:
    found = read_image(golden / "load_src.png", max_side=100, box=BOX)
    np.testing.assert_array_equal(found, arrays["crop_100_uint8"])


@pytest.mark.parametrize("name", ["full_100", "crop_100"])
def test_normalised_tensors(arrays: dict[str, np.ndarray], name: str) -> None:
    found = normalise(arrays[f"{name}_uint8"], IMAGENET_MEAN, IMAGENET_STD)
    assert absolute_error(found, arrays[f"{name}_tensor"]) <= 3e-7


def test_every_array_is_compared(arrays: dict[str, np.ndarray]) -> None:
    assert set(arrays) == {f"full_{side}_uint8" for side in (100, 200)} | {
        "full_1024_sha256",
        "full_100_tensor",
        "crop_100_uint8",
        "crop_100_tensor",
    }
