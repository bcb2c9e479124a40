"""Keypoints of a photo: SIFT from OpenCV, described as RootSIFT."""

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float32, UInt8

from superfeat.errors import SuperfeatError

KEYPOINTS = 1000  # of a photo, the most contrasted first


@dataclasses.dataclass(frozen=True, eq=False)
class Keypoints:
    """Places in pixels and unit vectors that describe them, of one photo of `size` (width, height)."""

    places: Float32[np.ndarray, "n 2"]
    vectors: Float32[np.ndarray, "n 128"]
    size: tuple[int, int]


def find_keypoints(pixels: UInt8[np.ndarray, "height width 3"], most: int = KEYPOINTS) -> Keypoints:
    """SIFT keypoints with RootSIFT vectors: the square root of each share, so that products compare histograms."""
    cv2 = opencv()
    grey = cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY)
    found, described = cv2.SIFT_create(nfeatures=most).detectAndCompute(grey, None)
    size = (pixels.shape[1], pixels.shape[0])
    if described is None:
        return Keypoints(np.empty((0, 2), np.float32), np.empty((0, 128), np.float32), size)
    shares = described / np.maximum(described.sum(axis=1, keepdims=True), 1e-12)
    places = np.asarray([point.pt for point in found], np.float32).reshape(-1, 2)
    return Keypoints(places, np.sqrt(shares).astype(np.float32), size)


def opencv() -> Any:
    """OpenCV, or an error that says how to install it."""
    try:
        import cv2
    except ImportError as error:
        raise SuperfeatError("verifying photos by geometry needs OpenCV: pip install 'superfeat[geometry]'") from error
    return cv2
