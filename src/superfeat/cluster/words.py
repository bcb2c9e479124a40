"""k-means over a cluster: blocks of points find their nearest words on any machine, and are summed on one, in order."""

import collections
from collections.abc import Iterator
from typing import Any

import numpy as np

from superfeat.index.lloyd import Owners, Vectors, nearest_words, point_blocks

RETRIES = 5  # of a block whose machine was lost


class ClusterAssign:
    """The nearest words of points (`index.lloyd.Assign`). The points travel once, the centroids once in each round.

    Only the numbers of words come back: 4 bytes for each point, where sums would be as large as the codebook for each
    block. They are summed by who asks, in the order of the points, so the centroids are those of one machine.
    """

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        # Workers that look at photos hold the cores, and wait while words are learned: so no core is asked for.
        self._task = ray.remote(nearest_words).options(max_retries=RETRIES, num_cpus=0, scheduling_strategy="SPREAD")
        self._most = max(1, int(ray.cluster_resources().get("CPU", 1)))  # blocks at the same time
        self._sent: tuple[int, list[Any]] | None = None  # which points, and where they are

    def __call__(self, points: Vectors, centroids: Vectors) -> Iterator[Owners]:
        if self._sent is None or self._sent[0] != id(points):
            self._sent = id(points), [self._ray.put(block) for block in point_blocks(points)]
        words = self._ray.put(centroids)
        running: collections.deque[Any] = collections.deque()
        for block in self._sent[1]:
            if len(running) >= self._most:
                yield np.asarray(self._ray.get(running.popleft()))
            running.append(self._task.remote(block, words))
        while running:
            yield np.asarray(self._ray.get(running.popleft()))
