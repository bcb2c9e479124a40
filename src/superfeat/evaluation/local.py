"""DELG's second stage in a protocol run: the first images of each ranking by the inliers of their local features.

Junk is taken out before the first images are counted, so each grade has an order of its own.
"""

import dataclasses
import functools
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from superfeat.config import VECTOR_METHODS
from superfeat.datasets.retrieval_set import Query, RetrievalSet
from superfeat.errors import DatasetError
from superfeat.evaluation.judge import GradedRanking, grade_ranking, lists_of
from superfeat.evaluation.searching import SetRanking, names_in
from superfeat.extraction.folder import FeatureStore
from superfeat.rerank.affine import LocalFeatures, count_inliers, local_features, rerank

FIRST = 100  # images that are counted
KEPT = 1024  # images whose features stay in memory


class LocalStage:
    """Local features of a set's images and queries, from a folder that `extract --regions` made."""

    def __init__(self, folder: Path, test: RetrievalSet) -> None:
        store = FeatureStore(folder)
        if store.manifest.get("network", {}).get("method") in VECTOR_METHODS:
            raise DatasetError(f"{folder} holds one vector per photo; local features are needed, with their regions")
        self.network = store.network
        self._store, self._names = store, names_in(store, test)
        lost = [name for name in [*self._names.database, *self._names.queries] if name not in store.names()]
        if lost:
            raise DatasetError(f"{folder} lacks local features of {len(lost)} photos of {test.name} ({lost[0]}, …)")
        self._local = functools.lru_cache(KEPT)(self._read)

    def _read(self, name: str) -> LocalFeatures:
        return local_features(self._store[name])

    def order(self, number: int, query: Query, grades: Iterable[str], found: SetRanking) -> GradedRanking:
        """The ranking of query `number` in its new order, judged; its scores are those of the search."""
        asked, counts = self._local(self._names.queries[number]), dict[int, int]()
        scores = dict(zip(found.numbers.tolist(), found.scores.tolist(), strict=True))

        def reordered(junk: Iterable[int]) -> np.ndarray:
            ignored = set(junk)
            for image in [one for one in found.numbers.tolist() if one not in ignored][:FIRST]:
                if image not in counts:
                    counts[image] = count_inliers(asked, self._local(self._names.database[image]))
            return np.asarray(rerank(found.numbers, scores, counts, first=FIRST, junk=list(ignored)), np.int64)

        order = reordered(query.junk)
        whole = grade_ranking(query, grades, order, np.asarray([scores[image] for image in order.tolist()]))
        ranks = {
            grade: grade_ranking(query, [grade], reordered(lists_of(query, grade)[1]), found.scores).ranks[grade]
            for grade in grades
        }
        return dataclasses.replace(whole, ranks=ranks)
