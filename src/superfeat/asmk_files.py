"""The pickles of the reference implementation of ASMK (codebook, inverted file), read by the restricted unpickler."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from superfeat.errors import StoreError
from superfeat.kernel import code_bytes
from superfeat.unpickle import read_pickle


def _read(path: Path, kind: str) -> dict[str, Any]:
    contents = read_pickle(path)
    if not isinstance(contents, dict) or contents.get("type") != kind or not isinstance(contents.get("state"), dict):
        raise StoreError(f"{path} is not a pickled {kind} of the asmk package")
    state: dict[str, Any] = contents["state"]
    return state


def read_codebook(path: Path) -> np.ndarray:
    """The centroids of a pickled codebook."""
    state = _read(path, "Codebook")
    centroids = np.asarray(state.get("centroids"))
    if centroids.ndim != 2 or centroids.dtype != np.float32:
        raise StoreError(f"{path} is damaged: its centroids are not an array of numbers")
    return centroids


class InvertedImage(NamedTuple):
    """An image of a pickled inverted file."""

    id: int
    words: np.ndarray
    codes: np.ndarray


def read_inverted_file(path: Path, dim: int) -> Iterator[InvertedImage]:
    """The images of a pickled inverted file, by id, in the form in which an index with the binary kernel takes them."""
    state = _read(path, "IVF")
    counts, lists = np.asarray(state["counts"]), list(zip(state["ivf_vecs"], state["ivf_image_ids"], strict=True))
    ids, words, codes = [], [], []
    for word, (stored, images) in enumerate(lists):
        count = int(counts[word])
        if count == 0 or stored is None:
            continue
        stored, images = np.asarray(stored)[:count], np.asarray(images)[:count]
        if stored.dtype != np.uint32 or stored.shape != (count, (dim + 31) // 32):
            raise StoreError(f"{path} does not hold binary codes of {dim} dimensions; the real-valued kind has no ids")
        ids.append(images + int(state.get("imid_offset", 0)))
        words.append(np.full(count, word, np.int32))
        codes.append(stored)
    if not ids:
        return
    flat_ids, flat_words, flat_codes = np.concatenate(ids), np.concatenate(words), np.concatenate(codes)
    as_bytes = np.zeros((len(flat_codes), code_bytes(dim)), np.uint8)
    as_bytes[:, : flat_codes.shape[1] * 4] = flat_codes.astype(">u4").view(np.uint8)
    for image in np.unique(flat_ids):
        mine = flat_ids == image
        yield InvertedImage(int(image), flat_words[mine], as_bytes[mine])
