"""The pickles of the reference implementation of ASMK (codebook, inverted file), read by the restricted unpickler."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from superfeat.errors import StoreError
from superfeat.index.kernel import code_bytes
from superfeat.storage.unpickle import read_pickle


def _read(path: Path, kind: str) -> dict[str, Any]:
    contents = read_pickle(path)
    if not isinstance(contents, dict) or contents.get("type") != kind or not isinstance(contents.get("state"), dict):
        raise StoreError(f"{path} is not a pickled {kind} of the asmk package")
    state: dict[str, Any] = contents["state"]
    return state


def read_codebook(path: Path) -> np.ndarray:
    """The centroids of a pickled codebook."""
    centroids = _read(path, "Codebook").get("centroids")
    if not isinstance(centroids, np.ndarray) or centroids.ndim != 2 or centroids.dtype != np.float32:
        raise StoreError(f"{path} is damaged: its centroids are not an array of numbers")
    return centroids


class InvertedImage(NamedTuple):
    """An image of a pickled inverted file."""

    id: int
    words: np.ndarray
    codes: np.ndarray


def read_inverted_file(path: Path, dim: int) -> Iterator[InvertedImage]:
    """The images of a pickled inverted file, by id, in the form in which an index with the binary kernel takes them."""
    ids, words, codes = flatten_lists(path, _read(path, "IVF"))
    if codes.dtype != np.uint32 or codes.shape[1] not in (0, (dim + 31) // 32):
        raise StoreError(f"{path} does not hold binary codes of {dim} dimensions; the real-valued kind has no ids")
    as_bytes = np.zeros((len(codes), code_bytes(dim)), np.uint8)
    as_bytes[:, : codes.shape[1] * 4] = codes.astype(">u4").view(np.uint8)
    if np.unpackbits(as_bytes, axis=1)[:, dim:].any():
        raise StoreError(f"{path} does not hold binary codes of {dim} dimensions; they are longer")
    for image in np.unique(ids):
        mine = ids == image
        if (np.diff(words[mine]) <= 0).any():
            raise StoreError(f"{path} is damaged: image {image} is in the list of a word twice")
        yield InvertedImage(int(image), words[mine], as_bytes[mine])


def flatten_lists(path: Path | str, state: dict[str, Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The lists one after the other: image, word and code of each posting. A distractor's image is negative."""
    counts: Any = state.get("counts")
    vectors: Any = state.get("ivf_vecs")
    images: Any = state.get("ivf_image_ids")
    offset: Any = state.get("imid_offset", 0)
    lists = isinstance(vectors, list) and isinstance(images, list) and isinstance(counts, np.ndarray)
    if not lists or counts.shape != (len(vectors),) or len(images) != len(vectors) or counts.dtype.kind not in "iu":
        raise StoreError(f"{path} is damaged: it does not have a count, codes and images for each word")
    if not isinstance(offset, int | np.integer):
        raise StoreError(f"{path} is damaged: its offset is not a number")
    parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    for word in np.flatnonzero(counts):
        count = int(counts[word])
        stored, mine = _first(vectors[word], count), _first(images[word], count)
        wanted = parts[0][2] if parts else stored
        kind = stored.dtype in (np.uint32, np.float32) and stored.dtype == wanted.dtype
        if not kind or stored.ndim != 2 or stored.shape != (count, wanted.shape[1]):
            raise StoreError(
                f"{path} is damaged: the codes of word {word} are not rows of one kind, as many as it says"
            )
        if mine.dtype.kind not in "iu" or mine.shape != (count,):
            raise StoreError(f"{path} is damaged: the images of word {word} are not as many as its codes")
        parts.append((mine.astype(np.int64) - int(offset), np.full(count, word, np.int32), stored))
    if not parts:
        return np.empty(0, np.int64), np.empty(0, np.int32), np.empty((0, 0), np.uint32)
    ids, words, codes = zip(*parts, strict=True)
    return np.concatenate(ids), np.concatenate(words), np.concatenate(codes)


def _first(rows: Any, count: int) -> np.ndarray:
    """The used part of a list, which has room to spare."""
    return rows[:count] if isinstance(rows, np.ndarray) and rows.ndim else np.empty(0)
