"""Signs as bits in unsigned 32-bit numbers, the first dimension the highest bit, and their distances."""

import numpy as np

from superfeat.errors import SuperfeatError
from superfeat.index.kernel import binarise, code_bytes
from superfeat.index.kernel import hamming as count_differences

BITS = 32


def binarize_and_pack(vector: np.ndarray) -> np.ndarray:
    """The bits of one vector."""
    return np.asarray(binarize_and_pack_2D(np.asarray(vector)[None, :])[0])


def binarize_and_pack_2D(vectors: np.ndarray) -> np.ndarray:  # noqa: N802 - the name that callers use
    """(n, dim) numbers -> (n, ceil(dim / 32)) uint32; a bit is set where the number is above zero."""
    vectors = np.asarray(vectors)
    if vectors.ndim != 2:
        raise SuperfeatError(f"vectors must be (n, dim), not {vectors.shape}")
    width = -(-vectors.shape[1] // BITS)
    return binarise(np.asarray(vectors, np.float32)).view(">u4")[:, :width].astype(np.uint32)


def to_bytes(packed: np.ndarray) -> np.ndarray:
    """uint32 rows as the bytes that the index stores."""
    found = np.zeros((len(packed), code_bytes(BITS * packed.shape[1])), np.uint8)
    found[:, : 4 * packed.shape[1]] = np.ascontiguousarray(packed.astype(">u4")).view(np.uint8)
    return found


def from_bytes(stored: np.ndarray, width: int) -> np.ndarray:
    """The bytes of the index as `width` uint32 numbers each."""
    return np.ascontiguousarray(stored).view(">u4")[:, :width].astype(np.uint32)


def hamming_dist_packed(one: np.ndarray, other: np.ndarray, normalization: int | None = None) -> float:
    """The share of bits that differ: of all bits stored, or of `normalization`."""
    return float(hamming_cdist_packed(np.asarray(one)[None], np.asarray(other)[None], normalization)[0, 0])


def hamming_cdist_packed(ones: np.ndarray, others: np.ndarray, normalization: int | None = None) -> np.ndarray:
    """The same for all pairs, float32."""
    bits = normalization or BITS * ones.shape[1]
    return (count_differences(to_bytes(ones), to_bytes(others)) / bits).astype(np.float32)
