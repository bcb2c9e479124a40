"""Images compared with each other, as an index like theirs would score them."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float64, Int64

from superfeat.config import SearchConfig
from superfeat.features import ImageWords
from superfeat.index.kernel import Selectivity, accumulate_many, accumulate_pairs, power_selectivity
from superfeat.index.segments import require_words
from superfeat.index.snapshot import MOST, Snapshot


def score_pairs(snapshot: Snapshot, images: Sequence[ImageWords], config: SearchConfig) -> Float64[np.ndarray, "n n"]:
    """Scores of images with each other, as an index like this one gives them; each pair is compared once."""
    small = Snapshot.in_memory(snapshot.layout, images)
    if not (images and _adds_whole_numbers(small, config)):
        return _search_each(small, images, config)
    segment, selectivity = small.segments[0], _selectivity(small, config)
    words = np.concatenate([one.words for one in images])
    sums = accumulate_pairs(segment.postings, words, np.cumsum([len(one) for one in images]), selectivity)
    return _divide(sums, segment.norms, segment.norms, selectivity)


def score_many(small: Snapshot, queries: Sequence[ImageWords], config: SearchConfig) -> Float64[np.ndarray, "m n"]:
    """Scores of queries with the images of a snapshot in memory, to the last bit those of its `search`."""
    layout = small.layout
    if not (queries and _adds_whole_numbers(small, config)):
        return _search_each(small, queries, config)
    segment, selectivity = small.segments[0], _selectivity(small, config)
    some = [require_words(one, layout, "the query's words") for one in queries]
    words = np.concatenate([one.words for one in some])
    codes = layout.for_scan(np.concatenate([one.codes for one in some]))
    ends = np.cumsum([len(one) for one in some])
    sums = accumulate_many(segment.postings, words, codes, ends, selectivity, len(segment))
    return _divide(sums, np.sqrt([max(len(one), 1) for one in some]), segment.norms, selectivity)


def _adds_whole_numbers(small: Snapshot, config: SearchConfig) -> bool:
    return small.layout.binary and not config.idf and config.norm is None


def _selectivity(small: Snapshot, config: SearchConfig) -> Selectivity:
    return power_selectivity(small.layout.dim, config.alpha, config.threshold)


def _divide(
    sums: Int64[np.ndarray, "m n"],
    queries: Float64[np.ndarray, "m"],
    images: Float64[np.ndarray, "n"],
    selectivity: Selectivity,
) -> Float64[np.ndarray, "m n"]:
    return np.asarray(np.minimum(sums / (selectivity.scale * queries[:, None] * images), MOST))


def _search_each(small: Snapshot, queries: Sequence[ImageWords], config: SearchConfig) -> Float64[np.ndarray, "m n"]:
    scores = np.zeros((len(queries), len(small)))
    for row, query in zip(scores, queries, strict=True):
        ranking = small.search(query, config)
        row[ranking.ids] = ranking.scores
    return scores
