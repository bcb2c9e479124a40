"""Features that TensorFlow's DELF and DELG wrote: .delf and .delg_local files of local ones, .delg_global of vectors.

They are protocol buffers: a set of features, each with its vector, x, y, scale and strength; or one vector.
"""

from pathlib import Path

import numpy as np
from jaxtyping import Float32

from superfeat.errors import StoreError
from superfeat.features import Features
from superfeat.storage.protobuf import fields, varint

FEATURE, SHAPE, VALUES, LIST = 1, 1, 2, 1
VECTOR, X, Y, SCALE, STRENGTH = 1, 2, 3, 4, 6


def read_local_file(path: str | Path, image_size: tuple[int, int]) -> Features:
    """The local features of a photo of this width and height, ready for re-ranking. StoreError if the file is none.

    Their scales are as we have them: 2 is a photo of twice its size, for which the file says 0.5.
    """
    try:
        parts = [_bytes(value) for number, value in fields(Path(path).read_bytes()) if number == FEATURE]
        read = [dict(fields(part)) for part in parts]
        rows = [_vector(_bytes(one[VECTOR])) for one in read]
        numbers = np.array([[_float(one, key) for key in (X, Y, SCALE, STRENGTH)] for one in read], np.float32)
        vectors = np.stack(rows) if rows else np.empty((0, 0), np.float32)
    except (OSError, ValueError, IndexError, KeyError) as error:
        raise StoreError(f"{path} holds no local features of DELF: {error}") from error
    x, y, scales, strengths = numbers.reshape(-1, 4).T
    width, height = image_size
    spread = np.zeros(len(read), np.float32)
    regions = np.stack([x / np.float32(width), y / np.float32(height), spread, spread], axis=1)
    ids = np.arange(len(read), dtype=np.int32)
    return Features(
        Path(path).stem, vectors, strengths, 1 / scales, ids, regions.astype(np.float32), image_size=image_size
    )


def read_global_file(path: str | Path) -> Float32[np.ndarray, " dim"]:
    """The vector of a photo. StoreError if the file holds none."""
    try:
        return _vector(Path(path).read_bytes())
    except (OSError, ValueError, IndexError, KeyError) as error:
        raise StoreError(f"{path} holds no vector of DELG: {error}") from error


def _bytes(value: int | bytes) -> bytes:
    """The bytes of a field. ValueError if it is a number."""
    if isinstance(value, int):
        raise ValueError("a number where bytes belong")
    return value


def _vector(data: bytes) -> Float32[np.ndarray, " dim"]:
    """Its length is noted beside it, and must be that of the values."""
    found = dict(fields(data))
    values = np.frombuffer(_bytes(dict(fields(_bytes(found[VALUES])))[LIST]), "<f4")
    shape = _bytes(dict(fields(_bytes(found[SHAPE])))[LIST])
    length, end = varint(shape, 0)
    if end != len(shape) or length != len(values):
        raise ValueError("a vector of another length than is noted")
    return values.astype(np.float32)


def _float(found: dict[int, int | bytes], key: int) -> float:
    """A number that is 0 is not written."""
    return float(np.frombuffer(_bytes(found[key]), "<f4")[0]) if key in found else 0.0
