"""The exact nearest centroids: against plain float64 distances at every size, scale and kind of tie."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

import oracles
from superfeat.index import nearest as nearest_module
from superfeat.index.nearest import BLOCK, SHARE, find_sides, nearest, prepare
from superfeat.index.products import LANES, ROWS, has_avx2, has_vnni, products_avx2, products_plain, products_vnni

Sizes = tuple[int, int, int, int]
SIZES: list[Sizes] = [  # vectors, words, dimensions, count
    (1, 1, 1, 1),
    (3, 2, 1, 1),
    (4, 15, 3, 2),
    (5, 16, 7, 5),
    (7, 17, 8, 5),
    (9, 33, 9, 3),
    (6, 100, 31, 5),
    (10, 64, 33, 4),
    (13, 40, 64, 1),
    (8, 50, 128, 5),
    (11, 47, 140, 5),
]


def normal(n: int, dim: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, dim)).astype(np.float32)


def whole(n: int, dim: int, seed: int = 0, reach: int = 3) -> np.ndarray:
    """Small whole numbers: their distances have no rounding, and many are equal."""
    return np.random.default_rng(seed).integers(-reach, reach + 1, (n, dim)).astype(np.float32)


def assert_nearest(vectors: np.ndarray, centroids: np.ndarray, count: int, workers: int = 1) -> None:
    found = nearest(vectors, prepare(centroids), count, workers)
    expected = oracles.nearest_words(vectors, centroids, count)
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, np.reshape(expected, found.shape))


# --- sizes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", SIZES)
def test_every_size(sizes: Sizes) -> None:
    n, words, dim, count = sizes
    assert_nearest(normal(n, dim, 1), normal(words, dim, 2), count)
    assert_nearest(whole(n, dim, 1), whole(words, dim, 2), count)


@pytest.mark.parametrize("n", [BLOCK - 1, BLOCK, BLOCK + 1, SHARE + 3])
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_more_than_a_block(n: int, workers: int) -> None:
    assert_nearest(normal(n, 12, 1), normal(20, 12, 2), 2, workers)


def test_no_vectors() -> None:
    assert nearest(normal(0, 8), prepare(normal(20, 8)), 5).shape == (0, 5)
    assert nearest(normal(0, 8), prepare(normal(20, 8)), 5, workers=3).shape == (0, 5)


def test_fewer_words_than_asked_for() -> None:
    found = nearest(normal(6, 8, 1), prepare(normal(3, 8, 2)), 5)
    assert found.shape == (6, 3)
    assert_nearest(normal(6, 8, 1), normal(3, 8, 2), 5)


def test_rows_that_do_not_lie_together() -> None:
    vectors, centroids = normal(40, 20, 1), normal(60, 20, 2)
    assert_nearest(vectors[::3, ::2], centroids[::2, ::2], 3)


def test_the_inputs_are_not_touched() -> None:
    vectors, centroids = normal(40, 20, 1), normal(60, 20, 2)
    before = vectors.copy(), centroids.copy()
    nearest(vectors, prepare(centroids), 3)
    np.testing.assert_array_equal(vectors, before[0])
    np.testing.assert_array_equal(centroids, before[1])


# --- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e-37, 1e-30, 1e-20, 1e-10, 1e10, 1e20, 1e30, 2e37])
def test_any_scale(scale: float) -> None:
    assert_nearest(normal(50, 16, 1) * np.float32(scale), normal(40, 16, 2) * np.float32(scale), 5)


@pytest.mark.parametrize("scale", [1e-39, 1e-42, 1e-45])
def test_values_next_to_nothing(scale: float) -> None:
    assert_nearest(normal(50, 16, 1) * np.float32(scale), normal(40, 16, 2) * np.float32(scale), 5)
    assert_nearest(normal(50, 16, 1), normal(40, 16, 2) * np.float32(scale), 5)
    assert_nearest(normal(50, 16, 1) * np.float32(scale), normal(40, 16, 2), 5)


@pytest.mark.parametrize("scale", [1e-30, 1e-10, 1e-5, 1e-2, 1e2, 1e5, 1e8])
def test_vectors_and_centroids_of_different_scales(scale: float) -> None:
    assert_nearest(normal(50, 16, 1) * np.float32(scale), normal(40, 16, 2), 5)
    assert_nearest(normal(50, 16, 1), normal(40, 16, 2) * np.float32(scale), 5)


@pytest.mark.parametrize("factor", [1e2, 1e4, 1e8])
def test_a_value_far_out(factor: float) -> None:
    """It sets the scale of the rounding, and all others are lost in it: only the bounds keep the answer right."""
    vectors, centroids = normal(30, 16, 1), normal(40, 16, 2)
    far_vectors, far_centroids = vectors.copy(), centroids.copy()
    far_vectors[3, 4] *= np.float32(factor)
    far_centroids[7, 9] *= np.float32(factor)
    assert_nearest(far_vectors, centroids, 5)
    assert_nearest(vectors, far_centroids, 5)
    assert_nearest(far_vectors, far_centroids, 5)


def test_far_from_the_origin() -> None:
    assert_nearest(normal(50, 16, 1) + 1000, normal(40, 16, 2) + 1000, 5)


def test_zeros() -> None:
    assert_nearest(np.zeros((5, 8), np.float32), normal(30, 8), 5)
    assert_nearest(normal(5, 8), np.zeros((30, 8), np.float32), 5)
    assert_nearest(np.zeros((5, 8), np.float32), np.zeros((30, 8), np.float32), 5)


def test_the_centroids_themselves() -> None:
    centroids = normal(50, 24)
    np.testing.assert_array_equal(nearest(centroids, prepare(centroids), 1)[:, 0], np.arange(50))


def test_nearly_equal_distances() -> None:
    """Centroids that differ in the last bit of one value: a bound that is too tight by a little would mix them up."""
    centroids = np.repeat(normal(1, 20), 40, axis=0)
    for word in range(1, 40):
        centroids[word, 3] = np.nextafter(centroids[word - 1, 3], np.float32(-9))
    assert_nearest(centroids[[39, 20, 0]], centroids, 3)


# --- ties -------------------------------------------------------------------------------------------------------------


def test_equal_centroids_go_to_the_lower_word() -> None:
    some = normal(10, 12)
    centroids = np.concatenate([some, some, some[::-1]])
    found = nearest(some, prepare(centroids), 3)
    np.testing.assert_array_equal(found, [[word, word + 10, 29 - word] for word in range(10)])


def test_all_centroids_equal() -> None:
    found = nearest(normal(5, 6), prepare(np.ones((50, 6), np.float32)), 4)
    np.testing.assert_array_equal(found, [[0, 1, 2, 3]] * 5)


def test_ties_on_a_grid() -> None:
    assert_nearest(whole(100, 3, 1, reach=1), whole(200, 3, 2, reach=1), 20)


# --- the inner loops --------------------------------------------------------------------------------------------------


def call_avx2(
    points: np.ndarray,
    first: int,
    packed: np.ndarray,
    offset: int,
    eights: int,
    bias: np.ndarray,
    word: int,
    limits: np.ndarray,
    tile: np.ndarray,
) -> int:
    hits: int = products_avx2(points, first, packed, offset, eights, bias, word, limits, tile)
    return hits


def call_vnni(
    points: np.ndarray,
    first: int,
    packed: np.ndarray,
    offset: int,
    eights: int,
    bias: np.ndarray,
    word: int,
    limits: np.ndarray,
    tile: np.ndarray,
) -> int:
    hits: int = products_vnni(points, first, packed, offset, eights, bias, word, limits, tile)
    return hits


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(call_avx2, marks=pytest.mark.skipif(not has_avx2(), reason="this processor has no AVX2")),
        pytest.param(call_vnni, marks=pytest.mark.skipif(not has_vnni(), reason="this processor has no VNNI")),
    ],
)
@pytest.mark.parametrize("extreme", [False, True])
def test_the_fast_loop_is_the_plain_one(call: Callable[..., int], extreme: bool) -> None:
    fast = numba.njit(call)
    rng = np.random.default_rng(0)
    for eights in (1, 2, 3, 16, 18):
        points = rng.integers(1, 128, (3 * ROWS, 8 * eights)).astype(np.uint8)
        packed = rng.integers(-63, 64, 2 * LANES * 8 * eights).astype(np.int8)
        if extreme:  # the largest sums of 16 bits on the way
            points[:], packed[:] = 127, np.repeat(rng.choice([-63, 63], len(packed) // 4), 4)
        bias = rng.integers(-100_000, 100_000, 2 * LANES).astype(np.int32)
        limits = rng.integers(-100_000, 100_000, len(points)).astype(np.int32)
        for first in range(0, len(points), ROWS):
            for word in (0, LANES):
                tiles = np.zeros((2, ROWS, LANES), np.int32)
                offset = word * 8 * eights
                hits = [
                    run(points, first, packed, offset, eights, bias, word, limits, tile)
                    for run, tile in zip((fast, products_plain), tiles, strict=True)
                ]
                np.testing.assert_array_equal(tiles[0], tiles[1])
                products = packed[offset:].reshape(-1)[: LANES * 8 * eights].reshape(2 * eights, LANES, 4)
                sums = np.einsum(
                    "rqa,qla->rl",
                    points[first : first + ROWS].reshape(ROWS, 2 * eights, 4).astype(np.int64),
                    products.astype(np.int64),
                )
                np.testing.assert_array_equal(tiles[0], sums + bias[word : word + LANES])
                above = (tiles[0] > limits[first : first + ROWS, None]).any(axis=1)
                assert hits[0] == hits[1] == sum(1 << row for row in range(ROWS) if above[row])


PLAIN = """
import sys
import llvmlite.binding
features = llvmlite.binding.get_host_cpu_features()
features[sys.argv[4]] = False
llvmlite.binding.get_host_cpu_features = lambda: features
import numpy as np
from superfeat.index import nearest, products
assert products.byte_products is getattr(products, sys.argv[3])
with np.load(sys.argv[1]) as arrays:
    found = nearest.nearest(arrays["vectors"], nearest.prepare(arrays["centroids"]), 5)
np.save(sys.argv[2], found)
"""


@pytest.mark.parametrize(
    ("lacking", "taken"),
    [("avx2", "products_plain"), ("avx512vnni", "products_avx2" if has_avx2() else "products_plain")],
)
def test_a_processor_without(lacking: str, taken: str, tmp_path: Path) -> None:
    vectors, centroids = normal(BLOCK + 9, 21, 1), np.concatenate([normal(50, 21, 2)] * 2)
    np.savez(tmp_path / "in.npz", vectors=vectors, centroids=centroids)
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    arguments = [sys.executable, "-c", PLAIN, str(tmp_path / "in.npz"), str(tmp_path / "out.npy"), taken, lacking]
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), nearest(vectors, prepare(centroids), 5))


# --- two sides --------------------------------------------------------------------------------------------------------


def two_sides(kind: Callable[[int, int, int], np.ndarray], n: int, dim: int, seed: int, apart: float) -> np.ndarray:
    """Every third one lies elsewhere along the diagonal, as points do."""
    values = kind(n, dim, seed)
    values[::3] += np.float32(apart)
    return values


@pytest.mark.parametrize("kind", [normal, whole])
@pytest.mark.parametrize("dim", [7, 33, 128])
@pytest.mark.parametrize("count", [1, 5, 90])
@pytest.mark.parametrize("workers", [1, 2])
def test_words_on_two_sides(kind: Callable[..., np.ndarray], dim: int, count: int, workers: int) -> None:
    """More words than one side has, vectors on both sides, between them and far out; and equal distances."""
    centroids = two_sides(kind, 260, dim, 2, 60.0)
    sides = find_sides(centroids)
    assert sides.first == 173
    assert sorted(sides.order[sides.first :].tolist()) == list(range(0, 260, 3))
    vectors = two_sides(kind, 300, dim, 1, 60.0)
    vectors[1::7] += np.float32(30.0)  # as far from one side as from the other
    vectors[2::7] += np.float32(55.0)
    vectors[3::7] -= np.float32(500.0)
    assert_nearest(vectors, centroids, count, workers)


def test_equal_distances_on_both_sides_go_to_the_lower_number() -> None:
    """The same word again and again, on either side of where the vectors lie."""
    centroids = np.where(np.arange(200)[:, None] % 2, 1.0, -1.0).astype(np.float32) * np.ones((200, 16), np.float32)
    centroids[:, 0] += np.float32(0.25) * (np.arange(200) // 100)
    assert find_sides(centroids).first == 100
    assert_nearest(np.zeros((9, 16), np.float32), centroids, 7)
    assert_nearest(whole(50, 16, 3), centroids, 120)


def test_last_bits_on_two_sides() -> None:
    """Rounding from the mean of a side must not make a bound too tight by a little."""
    first = two_sides(normal, 150, 24, 2, 60.0)
    centroids = np.concatenate([first, np.nextafter(first, np.float32(np.inf)), np.nextafter(first, np.float32(0))])
    assert find_sides(centroids).first == 300
    vectors = np.concatenate([first, (first + np.roll(first, 3, axis=0)) / 2]).astype(np.float32)
    assert_nearest(vectors, centroids, 4)


def test_no_sides_without_a_gap() -> None:
    assert find_sides(normal(500, 16)).first == 500
    assert find_sides(two_sides(normal, 500, 16, 2, 0.1)).first == 500
    few = normal(500, 16)
    few[:20] += 60
    assert find_sides(few).first == 500, "too few to be a side"
    assert_nearest(normal(30, 16, 1), few, 3)


def test_hardly_a_vector_meets_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    met: list[int] = []
    true_block = nearest_module._nearest_block

    def counting(vectors: np.ndarray, centroids: Any, begin: int, end: int, *rest: np.ndarray) -> None:
        met.append(len(vectors) * (end - begin))
        true_block(vectors, centroids, begin, end, *rest)

    monkeypatch.setattr(nearest_module, "_nearest_block", counting)
    centroids, vectors = two_sides(normal, 400, 32, 2, 60.0), two_sides(normal, 300, 32, 1, 60.0)
    nearest(vectors, prepare(centroids), 1)
    assert sum(met) == 100 * 134 + 200 * 266
