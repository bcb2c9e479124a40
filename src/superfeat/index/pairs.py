"""Images compared with each other, as an index like theirs would score them."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float64

from superfeat.config import SearchConfig
from superfeat.features import ImageWords
from superfeat.index.kernel import accumulate_many, power_selectivity
from superfeat.index.segments import require_words
from superfeat.index.snapshot import MOST, Snapshot


def score_pairs(snapshot: Snapshot, images: Sequence[ImageWords], config: SearchConfig) -> Float64[np.ndarray, "n n"]:
    """Scores of images with each other, as an index like this one gives them."""
    return score_many(Snapshot.in_memory(snapshot.layout, images), images, config)


def score_many(small: Snapshot, queries: Sequence[ImageWords], config: SearchConfig) -> Float64[np.ndarray, "m n"]:
    """Scores of queries with the images of a snapshot in memory, to the last bit those of its `search`."""
    layout = small.layout
    if not layout.binary or config.idf or config.norm is not None or not queries:
        return _search_each(small, queries, config)
    (segment,) = small.segments
    some = [require_words(one, layout, "the query's words") for one in queries]
    words = np.concatenate([one.words for one in some])
    codes = layout.for_scan(np.concatenate([one.codes for one in some]))
    ends = np.cumsum([len(one) for one in some])
    selectivity = power_selectivity(layout.dim, config.alpha, config.threshold)
    sums = accumulate_many(segment.postings, words, codes, ends, selectivity, len(segment))
    norms = np.sqrt([max(len(one), 1) for one in some])
    return np.asarray(np.minimum(sums / (selectivity.scale * norms[:, None] * segment.norms), MOST))


def _search_each(small: Snapshot, queries: Sequence[ImageWords], config: SearchConfig) -> Float64[np.ndarray, "m n"]:
    scores = np.zeros((len(queries), len(small)))
    for row, query in zip(scores, queries, strict=True):
        ranking = small.search(query, config)
        row[ranking.ids] = ranking.scores
    return scores
