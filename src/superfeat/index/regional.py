"""Regional aggregation (R-ASMK, R-VLAD): an image is the mean of its regions, each aggregated on its own.

A region is the whole image or a detected box, with the features that were extracted from it as from an image of its
own. Residuals are summed per word, a region's are brought to length one over all its words together, and the mean over
the regions is taken; regions without features count. So what fills one region does not drown what fills another.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float32, Float64

from superfeat.errors import SuperfeatError
from superfeat.features import Features, ImageWords, require_vectors
from superfeat.index.codebook import Codebook
from superfeat.index.index import Index
from superfeat.index.kernel import aggregate, binarise

SMALLEST_NORM = 1e-6  # of a word's residual; one that is smaller says nothing
Regions = Sequence[Features | np.ndarray]


def regional_words(index: Index, regions: Regions) -> ImageWords:
    """An image of several regions as this index sees it: to be added like any other (`index.add`)."""
    layout = index.snapshot().layout
    if layout.vectors is not None:
        raise SuperfeatError(f"{index.path} holds one vector per photo; regions are aggregated over words")
    mean = mean_residuals(index.codebook, regions)
    norms = np.linalg.norm(mean, axis=1)
    words = np.flatnonzero(norms > SMALLEST_NORM).astype(np.int32)
    kept = mean[words]
    codes = binarise(kept) if layout.binary else (kept / norms[words, None]).astype(np.float32)
    networks = {one.network for one in regions if isinstance(one, Features)} or {None}
    return ImageWords(words, codes, layout.codebook, None, networks.pop() if len(networks) == 1 else None)


def mean_residuals(codebook: Codebook, regions: Regions) -> Float32[np.ndarray, "words dim"]:
    """The mean over the regions of their residuals, each region's of length one over all words."""
    if not regions:
        raise SuperfeatError("an image needs at least one region: the whole of it")
    total = np.zeros((codebook.words, codebook.dim), np.float32)
    for one in regions:
        total += unit_residuals(codebook, one.vectors if isinstance(one, Features) else one)
    return np.asarray(total / np.float32(len(regions)))


def unit_residuals(codebook: Codebook, vectors: np.ndarray) -> Float32[np.ndarray, "words dim"]:
    """VLAD: the residuals of each word, summed, of length one over all words; zeros without features."""
    sums = residuals(codebook, vectors)
    norm = float(np.linalg.norm(sums))
    return np.asarray(sums / norm if norm > 0 else sums, np.float32)


def residuals(codebook: Codebook, vectors: np.ndarray) -> Float32[np.ndarray, "words dim"]:
    """The same of whatever length it is."""
    rows = require_vectors(vectors, "features", codebook.dim)
    dense = np.zeros((codebook.words, codebook.dim), np.float32)
    if len(rows):
        words, sums = aggregate(rows, codebook.assign(rows, 1), codebook.centroids)
        dense[words] = sums
    return dense


def vlad(codebook: Codebook, regions: Regions) -> Float64[np.ndarray, " values"]:
    """R-VLAD, or VLAD if there is one region: one vector of length one."""
    mean = mean_residuals(codebook, regions).ravel().astype(np.float64)
    norm = float(np.linalg.norm(mean))
    return mean / norm if norm > 0 else mean
