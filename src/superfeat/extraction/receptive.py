"""Boxes of DELF's features, and the choice among those that overlap."""

import numpy as np
from jaxtyping import Float32, Int64

Boxes = Float32[np.ndarray, "n 4"]  # top, left, bottom, right


def receptive_boxes(height: int, width: int, field: float, stride: float, padding: float) -> Boxes:
    """What each place of a map sees, row by row: top, left, bottom, right in pixels of the image."""
    rows, columns = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
    begins = np.stack([rows.ravel(), columns.ravel()], axis=1) * stride - padding
    return np.concatenate([begins, begins + field - 1], axis=1).astype(np.float32)


def centres(boxes: Boxes) -> Float32[np.ndarray, "n 2"]:
    """Places (y, x) of features."""
    return np.asarray((boxes[:, :2] + boxes[:, 2:]) / 2, np.float32)


def strong_enough(
    strengths: Float32[np.ndarray, " n"], threshold: float, fewest: int = 20
) -> Int64[np.ndarray, " kept"]:
    """Numbers of the features that are at least so strong; the threshold is halved until there are `fewest`, or all."""
    while (strengths >= threshold).sum() < min(fewest, (strengths > 0).sum()):
        threshold /= 2
    return np.flatnonzero(strengths >= threshold)


def without_overlap(
    boxes: Boxes, scores: Float32[np.ndarray, " n"], overlap: float, most: int
) -> Int64[np.ndarray, " kept"]:
    """Numbers of the strongest boxes, none of which overlaps a stronger one by more (intersection over union).

    Equal scores stand in the order of their numbers. At 1.0 nothing is dropped.
    """
    order = np.argsort(-scores, kind="stable")
    kept: list[int] = []
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    for number in order.tolist():
        if len(kept) >= most:
            break
        if not kept or float(_overlaps(boxes, areas, number, kept).max()) <= overlap:
            kept.append(number)
    return np.asarray(kept, np.int64)


def _overlaps(boxes: Boxes, areas: np.ndarray, number: int, kept: list[int]) -> np.ndarray:
    others = boxes[kept]
    top, left = np.maximum(boxes[number, 0], others[:, 0]), np.maximum(boxes[number, 1], others[:, 1])
    bottom, right = np.minimum(boxes[number, 2], others[:, 2]), np.minimum(boxes[number, 3], others[:, 3])
    shared = np.maximum(bottom - top, 0) * np.maximum(right - left, 0)
    return np.asarray(shared / np.maximum(areas[number] + areas[kept] - shared, np.float32(1e-12)))
