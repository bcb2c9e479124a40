"""Images compared with each other, as an index like theirs would score them."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float64

from superfeat.config import SearchConfig
from superfeat.features import ImageWords
from superfeat.index.snapshot import Snapshot


def score_pairs(snapshot: Snapshot, images: Sequence[ImageWords], config: SearchConfig) -> Float64[np.ndarray, "n n"]:
    """Scores of images with each other, as an index like this one gives them."""
    small = Snapshot.in_memory(snapshot.layout, images)
    scores = np.zeros((len(images), len(images)))
    for number, image in enumerate(images):
        ranking = small.search(image, config)
        scores[number, ranking.ids] = ranking.scores
    return scores
