"""Features as an index sees them: words and codes. It can be sent to whoever looks at photos for an index."""

import dataclasses

import numpy as np

from superfeat.features import Features, ImageWords, require_vectors
from superfeat.index.codebook import Codebook
from superfeat.index.kernel import aggregate, binarise, normalise_residuals
from superfeat.index.segments import Layout
from superfeat.index.vectors import as_vector


@dataclasses.dataclass(frozen=True, eq=False)
class Vocabulary:
    """The words of an index, and how it writes codes."""

    codebook: Codebook
    layout: Layout

    def words(self, features: Features | np.ndarray, assignments: int, workers: int | None = None) -> ImageWords:
        """Features, each assigned to its nearest words."""
        network = features.network if isinstance(features, Features) else None
        rows = features.vectors if isinstance(features, Features) else features
        vectors = require_vectors(rows, "features", self.layout.dim)
        if self.layout.vectors is not None:
            return as_vector(vectors, self.layout.vectors, self.layout.codebook, network)
        assigned = self.codebook.assign(vectors, assignments, workers=workers)
        words, sums = aggregate(vectors, assigned, self.codebook.centroids)
        codes = binarise(sums) if self.layout.binary else normalise_residuals(sums)
        return ImageWords(words, codes, self.layout.codebook, assigned, network)
