"""Oracles of the small trunk and of distillation: plain loops over places, channels and features."""

import math
from typing import Any

import numpy as np

import oracles

Array = np.ndarray[Any, Any]
CEILING = 6.0


def lite_block(
    x: Array, expand: Array | None, depthwise: Array, project: Array, biases: dict[str, Array], stride: int
) -> Array:
    """(height, width, in); 1x1 matrices are (in, out), the depthwise kernel is (size, size, channels)."""
    y = x if expand is None else np.clip(x @ expand + biases["expand"], 0, CEILING)
    size = depthwise.shape[0]
    filtered = [
        oracles.convolve(y[:, :, channel : channel + 1], depthwise[:, :, channel, None, None], stride, size // 2)
        for channel in range(y.shape[2])
    ]
    y = np.clip(np.concatenate(filtered, axis=2) + biases["depthwise"], 0, CEILING)
    y = y @ project + biases["project"]
    return x + y if stride == 1 and x.shape[2] == y.shape[2] else y


def unexplained(student: Array, teacher: Array) -> float:
    """(places, dim): what is off, as a share of how the teacher's differ from their mean."""
    mean = [sum(row[k] for row in teacher) / len(teacher) for k in range(teacher.shape[1])]
    off = sum((s - t) ** 2 for a, b in zip(student, teacher, strict=True) for s, t in zip(a, b, strict=True))
    spread = sum((t - m) ** 2 for row in teacher for t, m in zip(row, mean, strict=True))
    return float(off / spread)


def disagreement(student: Array, teacher: Array, weights: Array) -> float:
    """(n, dim): 1 - cosine + log(length ratio)^2, weighted."""
    total = 0.0
    for s, t, weight in zip(student, teacher, weights, strict=True):
        long, longer = math.sqrt(sum(s * s)), math.sqrt(sum(t * t))
        total += weight * (1 - sum(s * t) / (long * longer) + math.log(long / longer) ** 2)
    return total / sum(weights)


def strength_error(student: Array, teacher: Array) -> float:
    return sum(math.log(s / t) ** 2 for s, t in zip(student, teacher, strict=True)) / len(student)
