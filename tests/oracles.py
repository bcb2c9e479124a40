"""Slow twins of every formula: plain loops straight from METHOD.md, in float64. Nothing here is of the package."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

LAYER_NORM_EPSILON = 1e-5
ATTENTION_FLOOR = 1e-8
STRENGTH_FLOOR = 1e-10
EIGENVALUE_FLOOR = 1e-14


# --- LIT (METHOD 2) ---------------------------------------------------------------------------------------------------


def layer_norm(x: Array, weight: Array, bias: Array) -> Array:
    """One vector."""
    variance = sum((value - x.mean()) ** 2 for value in x) / len(x)
    return np.array(
        [
            (v - x.mean()) / math.sqrt(variance + LAYER_NORM_EPSILON) * w + b
            for v, w, b in zip(x, weight, bias, strict=True)
        ]
    )


def softmax(logits: Sequence[float]) -> list[float]:
    top = max(logits)
    powers = [math.exp(value - top) for value in logits]
    return [power / sum(powers) for power in powers]


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def gru_cell(x: Array, state: Array, p: Mapping[str, Array]) -> Array:
    """Cho et al. 2014, with the reset gate applied after the recurrent product, as every library has it."""
    dim = len(state)
    inner = p["gru.weight_ih"] @ x + p["gru.bias_ih"]
    outer = p["gru.weight_hh"] @ state + p["gru.bias_hh"]
    reset = _sigmoid(inner[:dim] + outer[:dim])
    keep = _sigmoid(inner[dim : 2 * dim] + outer[dim : 2 * dim])
    fresh = np.tanh(inner[2 * dim :] + reset * outer[2 * dim :])
    return np.asarray((1 - keep) * fresh + keep * state)


def lit(places: Array, parameters: Mapping[str, Array], rounds: int) -> tuple[Array, Array]:
    """(places, channels) -> super-features (templates, dim) and attention (templates, places) of the last round."""
    p = {name: np.asarray(value, np.float64) for name, value in parameters.items()}
    normed = [
        layer_norm(place, p["norm_inputs.weight"], p["norm_inputs.bias"]) for place in np.asarray(places, np.float64)
    ]
    keys = [p["key.weight"] @ place for place in normed]
    values = [p["value.weight"] @ place for place in normed]
    state = [template.copy() for template in p["templates"]]
    alpha = np.zeros((len(state), len(keys)))
    for _ in range(rounds):
        alpha = _attention(state, keys, p)
        for n, row in enumerate(alpha):
            gathered = sum((a * value for a, value in zip(row, values, strict=True)), np.zeros(len(state[n])))
            state[n] = gru_cell(gathered, state[n], p) if "gru.weight_ih" in p else state[n] + gathered
            hidden = (
                p["mlp.0.weight"] @ layer_norm(state[n], p["norm_mlp.weight"], p["norm_mlp.bias"]) + p["mlp.0.bias"]
            )
            state[n] = state[n] + p["mlp.2.weight"] @ np.maximum(hidden, 0) + p["mlp.2.bias"]
    return np.array(state), alpha


def _attention(state: Sequence[Array], keys: Sequence[Array], p: Mapping[str, Array]) -> Array:
    queries = [
        p["query.weight"] @ layer_norm(one, p["norm_templates.weight"], p["norm_templates.bias"]) for one in state
    ]
    alpha = np.zeros((len(state), len(keys)))
    for place, key in enumerate(keys):
        shares = softmax([float(key @ query) / math.sqrt(len(query)) for query in queries])
        for n, share in enumerate(shares):
            alpha[n, place] = share + ATTENTION_FLOOR
    for n in range(len(state)):
        alpha[n] = alpha[n] / sum(alpha[n])
    return alpha


def strength(x: Array) -> float:
    return math.sqrt(sum(float(value) ** 2 for value in x) + STRENGTH_FLOOR)


# --- HOW (METHOD 3) ---------------------------------------------------------------------------------------------------


def smooth(x: Array) -> Array:
    """3x3 average of a (channels, height, width) map; at the borders the padding does not count."""
    channels, height, width = x.shape
    result = np.zeros((channels, height, width))
    for row in range(height):
        for column in range(width):
            inside = [
                x[:, r, c]
                for r in range(row - 1, row + 2)
                for c in range(column - 1, column + 2)
                if 0 <= r < height and 0 <= c < width
            ]
            result[:, row, column] = sum(inside, np.zeros(channels)) / len(inside)
    return result


def how(x: Array, weight: Array | None, bias: Array | None) -> tuple[Array, Array]:
    """(channels, height, width) -> features and strengths of all places, row by row."""
    channels = len(x)
    smoothed = smooth(x).reshape(channels, -1).T
    strengths = np.array([math.sqrt(sum(float(v) ** 2 for v in place)) for place in x.reshape(channels, -1).T])
    if weight is None or bias is None:
        return smoothed, strengths
    return np.array([weight @ place + bias for place in smoothed]), strengths


def points(x: Array, weight: Array | None, bias: Array | None, per_side: float) -> tuple[Array, Array, list[int]]:
    """Features, strengths and places of the strongest per_side x sqrt(places) places, strongest first."""
    vectors, strengths = how(x, weight, bias)
    count = max(1, min(len(strengths), int(per_side * len(strengths) ** 0.5)))
    places = sorted(range(len(strengths)), key=lambda place: -strengths[place])[:count]
    return vectors[places], strengths[places], places


def pool(scales: Sequence[tuple[Array, Array]]) -> Array:
    """Eq. 1: the L2-normalised sum of strength x feature."""
    total = np.zeros(scales[0][0].shape[1])
    for vectors, strengths in scales:
        for vector, weight in zip(vectors, strengths, strict=True):
            total = total + weight * vector
    return total / math.sqrt(sum(value**2 for value in total))


# --- whitening (METHOD 5) ---------------------------------------------------------------------------------------------


def whitening(x: Array, outputs: int, strength: float = 1.0) -> tuple[Array, Array]:
    """Weight and bias of PCA-whitening; the signs of the rows are arbitrary."""
    mean = x.mean(axis=0)
    values, vectors = np.linalg.eigh(np.cov(x.T, bias=True).reshape(x.shape[1], x.shape[1]))
    order = np.argsort(-values, kind="stable")
    rows = [vectors[:, i] * max(values[i], EIGENVALUE_FLOOR) ** (-strength / 2) for i in order[:outputs]]
    weight = np.array(rows)
    return weight, -weight @ mean


# --- scales and selection (METHOD 1) ----------------------------------------------------------------------------------


def bilinear(image: Array, scale: float, recompute: bool) -> Array:
    """(channels, height, width) resized: half-pixel centres, no antialias.

    The step between samples is 1 / scale, or the ratio of the (rounded) sizes where the scale is recomputed.
    """
    channels, height, width = image.shape
    sizes = math.floor(height * scale), math.floor(width * scale)
    steps = [old / new if recompute else 1 / scale for old, new in zip((height, width), sizes, strict=True)]
    result = np.zeros((channels, *sizes))
    for row in range(sizes[0]):
        up, down, v = _between(row, steps[0], height)
        for column in range(sizes[1]):
            left, right, h = _between(column, steps[1], width)
            upper = (1 - h) * image[:, up, left] + h * image[:, up, right]
            lower = (1 - h) * image[:, down, left] + h * image[:, down, right]
            result[:, row, column] = (1 - v) * upper + v * lower
    return result


def _between(index: int, step: float, size: int) -> tuple[int, int, float]:
    position = max(0.0, (index + 0.5) * step - 0.5)
    first = min(int(position), size - 1)
    return first, min(first + 1, size - 1), position - first


def strongest(strengths: Sequence[Sequence[float]], k: int) -> list[tuple[int, int]]:
    """(scale, number in its scale) of the k strongest, strongest first; equal ones keep their order."""
    everything = [(-value, s, i) for s, row in enumerate(strengths) for i, value in enumerate(row)]
    return [(s, i) for _, s, i in sorted(everything)[:k]]


def region(attention: Array) -> tuple[float, float, float, float]:
    """Centroid x, y and standard deviation in x, y of a map that sums to one, as fractions of the image.

    A place is a cell with its weight spread evenly, so even one place has the deviation of a uniform: side / sqrt(12).
    """
    height, width = attention.shape
    cells = [((c + 0.5) / width, (r + 0.5) / height, attention[r, c]) for r in range(height) for c in range(width)]
    x = sum(w * cx for cx, _, w in cells)
    y = sum(w * cy for _, cy, w in cells)
    variance_x = sum(w * (cx - x) ** 2 for cx, _, w in cells) + 1 / (12 * width**2)
    variance_y = sum(w * (cy - y) ** 2 for _, cy, w in cells) + 1 / (12 * height**2)
    return float(x), float(y), math.sqrt(variance_x), math.sqrt(variance_y)


# --- convolutions, for the fused trunk and for Keras's definition of a ResNet -----------------------------------------


def convolve(x: Array, kernel: Array, stride: int, padding: int) -> Array:
    """(height, width, in) with a (height, width, in, out) kernel, Keras's order of dimensions."""
    size_v, size_h = kernel.shape[:2]
    padded = np.pad(x, ((padding, padding), (padding, padding), (0, 0)))
    height = (padded.shape[0] - size_v) // stride + 1
    width = (padded.shape[1] - size_h) // stride + 1
    result = np.zeros((height, width, kernel.shape[3]))
    for v in range(size_v):
        for h in range(size_h):
            part = padded[v : v + stride * (height - 1) + 1 : stride, h : h + stride * (width - 1) + 1 : stride]
            result += part @ kernel[v, h]
    return result


def max_pool(x: Array, size: int, stride: int, padding: int) -> Array:
    padded = np.pad(x, ((padding, padding), (padding, padding), (0, 0)), constant_values=-np.inf)
    height = (padded.shape[0] - size) // stride + 1
    width = (padded.shape[1] - size) // stride + 1
    result = np.zeros((height, width, x.shape[2]))
    for row in range(height):
        for column in range(width):
            window = padded[row * stride : row * stride + size, column * stride : column * stride + size]
            result[row, column] = window.max(axis=(0, 1))
    return result


Layers = Mapping[str, Mapping[str, npt.NDArray[Any]]]


def keras_names(new: bool, stage: int, block: int, part: int) -> tuple[str, str]:
    """Names of a convolution (part 0: the shortcut's) and its batch-norm in a block, in Keras's old or new naming."""
    if new:
        return f"conv{stage}_block{block + 1}_{part}_conv", f"conv{stage}_block{block + 1}_{part}_bn"
    branch = f"{stage}{chr(ord('a') + block)}_branch" + ("1" if part == 0 else f"2{'abc'[part - 1]}")
    return f"res{branch}", f"bn{branch}"


def keras_trunk(layers: Layers, pixels: npt.NDArray[np.uint8], depths: Sequence[int], new: bool) -> Array:
    """keras.applications' ResNet-50 as it is defined, on RGB pixels 0..255 -> (channels, height, width).

    Its preprocessing ("caffe"): BGR, less (103.939, 116.779, 123.68). The stride of a stage is in the first 1x1.
    """
    epsilon = 1.001e-5 if new else 1e-3

    def layer(x: Array, names: tuple[str, str], stride: int, padding: int) -> Array:
        conv = {kind: np.asarray(value, np.float64) for kind, value in layers[names[0]].items()}
        norm = {kind: np.asarray(value, np.float64) for kind, value in layers[names[1]].items()}
        y = convolve(x, conv["kernel"], stride, padding) + conv["bias"]
        return (y - norm["moving_mean"]) / np.sqrt(norm["moving_variance"] + epsilon) * norm["gamma"] + norm["beta"]

    x = pixels[:, :, ::-1].astype(np.float64) - np.array([103.939, 116.779, 123.68])
    x = np.maximum(layer(x, ("conv1_conv", "conv1_bn") if new else ("conv1", "bn_conv1"), 2, 3), 0)
    x = max_pool(x, 3, 2, 1)
    for stage, depth in enumerate(depths, 2):
        for block in range(depth):
            stride = 2 if stage > 2 and block == 0 else 1
            y = np.maximum(layer(x, keras_names(new, stage, block, 1), stride, 0), 0)
            y = np.maximum(layer(y, keras_names(new, stage, block, 2), 1, 1), 0)
            y = layer(y, keras_names(new, stage, block, 3), 1, 0)
            x = np.maximum(y + (layer(x, keras_names(new, stage, block, 0), stride, 0) if block == 0 else x), 0)
    return np.asarray(x.transpose(2, 0, 1))


# --- ASMK (METHOD 6) --------------------------------------------------------------------------------------------------

RESIDUAL_EPSILON = 1e-6
Numbers = npt.NDArray[Any]
Words = Mapping[int, Sequence[float]]  # the words of an image, and the code of each: bits, or a unit residual


def nearest_words(vectors: Numbers, centroids: Numbers, count: int) -> list[list[int]]:
    """The `count` nearest words of each vector, nearest first; of two at the same distance the lower one first."""
    found = []
    for vector in np.asarray(vectors, np.float64):
        distances = [float(np.square(vector - centroid).sum()) for centroid in np.asarray(centroids, np.float64)]
        found.append(sorted(range(len(distances)), key=lambda word: (distances[word], word))[:count])
    return found


def aggregate(vectors: Numbers, words: Sequence[Sequence[int]], centroids: Numbers) -> dict[int, Array]:
    """In each word the sum of residuals; a feature counts once for each of its words."""
    sums: dict[int, Array] = {}
    for vector, mine in zip(np.asarray(vectors, np.float64), words, strict=True):
        for word in mine:
            residual = vector - np.asarray(centroids[word], np.float64)
            sums[word] = sums.get(word, np.zeros(len(vector))) + residual
    return dict(sorted(sums.items()))


def binarise(residual: Array) -> list[int]:
    return [1 if value > 0 else 0 for value in residual]


def normalise(residual: Array) -> list[float]:
    length = math.sqrt(sum(float(value) ** 2 for value in residual))
    return [float(value) / (length + RESIDUAL_EPSILON) for value in residual]


def image_words(
    vectors: Numbers, centroids: Numbers, assignments: int, binary: bool
) -> dict[int, list[int]] | dict[int, list[float]]:
    """An image as the index sees it."""
    sums = aggregate(vectors, nearest_words(vectors, centroids, assignments), centroids)
    if binary:
        return {word: binarise(residual) for word, residual in sums.items()}
    return {word: normalise(residual) for word, residual in sums.items()}


def hamming(a: Sequence[float], b: Sequence[float]) -> int:
    return sum(x != y for x, y in zip(a, b, strict=True))


def selectivity(u: float, alpha: float, threshold: float) -> float:
    return math.copysign(abs(u) ** alpha, u) if u >= threshold else 0.0


def similarity(a: Sequence[float], b: Sequence[float], binary: bool) -> float:
    """Of two codes: 1 - 2 hamming / dim, or the cosine of two unit residuals."""
    if binary:
        return 1 - 2 * hamming(a, b) / len(a)
    return sum(float(x) * float(y) for x, y in zip(a, b, strict=True))


def idf(images: Sequence[Words], words: int) -> list[float]:
    """log(images / images with the word)^2, and 1 for a word that no image has."""
    counts = [sum(word in image for image in images) for word in range(words)]
    return [math.log(len(images) / count) ** 2 if count else 1.0 for count in counts]


def score(
    query: Words,
    image: Words,
    binary: bool,
    alpha: float,
    threshold: float,
    weights: Sequence[float],
    table: Sequence[float] | None = None,
) -> float:
    """Of an image. A query's words that no image has still count in its norm; a norm of nothing is 1."""
    total = 0.0
    for word, code in query.items():
        if word in image:
            if table is not None:
                value = table[hamming(code, image[word])]
            else:
                value = selectivity(similarity(code, image[word], binary), alpha, threshold)
            total += weights[word] * value
    norms = [math.sqrt(sum(weights[word] for word in words)) or 1.0 for words in (query, image)]
    return total / (norms[0] * norms[1])


def ranking(scores: Mapping[int, float], top: int | None = None) -> list[int]:
    """Ids, best first; equal scores in the order of their ids."""
    return sorted(scores, key=lambda image: (-scores[image], image))[:top]


def lloyd(points: Numbers, centroids: Numbers, rounds: int) -> tuple[Array, list[float]]:
    """k-means without empty words: the centroids (rounded to float32 each round), and the distortion of each round."""
    current, distortions = np.asarray(centroids, np.float64), []
    for _ in range(rounds):
        owners = [mine[0] for mine in nearest_words(points, current, 1)]
        members: list[list[Array]] = [[] for _ in current]
        total = 0.0
        for point, owner in zip(np.asarray(points, np.float64), owners, strict=True):
            members[owner].append(point)
            total += float(np.square(point - current[owner]).sum())
        assert all(members), "a word is empty"
        means = [sum(mine, np.zeros(current.shape[1])) / len(mine) for mine in members]
        current = np.asarray(means, np.float32).astype(np.float64)
        distortions.append(total / len(points))
    return current, distortions
