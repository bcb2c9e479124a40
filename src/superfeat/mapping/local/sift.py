"""COLMAP's own SIFT: needs no download."""

from typing import Any

import numpy as np
from jaxtyping import Int64, UInt8

from superfeat.mapping.colmap import colmap
from superfeat.mapping.local.interface import LocalPoints, mutual_nearest

MOST_POINTS = 2048
RATIO = 0.85


class ColmapSift:
    """The coarsest points of a photo first; pairs are mutual nearest neighbours that pass Lowe's ratio."""

    name = "sift"

    def __init__(self, most: int = MOST_POINTS) -> None:
        self._most = most
        options = colmap().FeatureExtractionOptions()
        options.use_gpu, options.num_threads = False, 1
        options.sift.max_num_features = most
        self._extractor: Any = colmap().FeatureExtractor.create(options, colmap().Device.cpu)

    def find(self, pixels: UInt8[np.ndarray, "height width 3"]) -> LocalPoints:
        grey = np.ascontiguousarray(np.round(pixels @ np.asarray([0.299, 0.587, 0.114])).astype(np.uint8))
        found, described = self._extractor.extract_from_uint8_array(grey)
        rows = colmap().keypoints_to_matrix(found)
        vectors = np.asarray(described.data, np.float32)
        order = np.argsort(-_scales(rows), kind="stable")[: self._most]
        lengths = np.linalg.norm(vectors[order], axis=1, keepdims=True)
        return LocalPoints(
            np.asarray(rows[order, :2], np.float32), (vectors[order] / np.maximum(lengths, 1e-12)).astype(np.float32)
        )

    def match(self, one: LocalPoints, other: LocalPoints) -> Int64[np.ndarray, "m 2"]:
        return mutual_nearest(one.vectors, other.vectors, RATIO)


def _scales(rows: np.ndarray) -> np.ndarray:
    """Of keypoints as x, y, scale, orientation, or with an affine matrix in place of both."""
    return np.asarray(rows[:, 2] if rows.shape[1] == 4 else np.hypot(rows[:, 2], rows[:, 4]))
