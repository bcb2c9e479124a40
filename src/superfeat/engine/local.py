"""DELG's second stage for an answer: the first results by the inliers of their local features."""

import dataclasses
from pathlib import Path

from superfeat.config import ExtractConfig
from superfeat.errors import SuperfeatError
from superfeat.extraction.decode import read_for
from superfeat.extraction.folder import FeatureStore
from superfeat.features import Features
from superfeat.found.photos import Named
from superfeat.found.results import Answer
from superfeat.index.boxes import crop
from superfeat.rerank.affine import DELG, Matching, count_inliers, local_features
from superfeat.settings import overlay

FIRST = 100  # results that are counted


class LocalLook:
    """Local features of an index's photos (a folder that `extract --regions` made), and of photos that are asked with.

    `weights` is the network that made the folder; it is needed for photos that the folder does not have.
    """

    def __init__(self, folder: str | Path, weights: str | None = None, workers: int | None = None) -> None:
        self.store, self.weights, self.workers = FeatureStore(folder), weights, workers
        self._names = self.store.names()

    def order(self, answer: Answer, *, first: int = FIRST, rules: Matching = DELG) -> Answer:
        """The answer with its first hits by (inliers, score); how many inliers each has is its `matched`."""
        asked = local_features(self._asked(answer))
        counted = []
        for hit in answer.hits[:first]:
            if hit.name not in self._names:
                raise SuperfeatError(f"{self.store.path} has no local features of {hit.name}; extract them too")
            counted.append(hit._replace(matched=count_inliers(asked, local_features(self.store[hit.name]), rules)))
        counted.sort(key=lambda hit: -(hit.matched or 0))
        return dataclasses.replace(answer, hits=counted + answer.hits[first:])

    def _asked(self, answer: Answer) -> Features:
        """Of the photo that was asked with, or of the part of it in the box."""
        photo, box = answer.photo, answer.box
        name = photo.name if isinstance(photo, (Named, Features)) else answer.itself and answer.itself.name
        if name in self._names and box is None:
            return self.store[str(name)]
        if not isinstance(photo, (Path, bytes)):
            raise SuperfeatError(f"{self.store.path} has no local features of {name}; give the photo itself")
        if self.weights is None:
            raise SuperfeatError(
                f"{self.store.path} has no local features of the query; name the network that made the others",
                arguments=["local_weights"],
            )
        return self._look(photo, box)

    def _look(self, photo: Path | bytes, box: tuple[float, float, float, float] | None) -> Features:
        from superfeat.extraction.extract import extract_pixels
        from superfeat.weights import load_network

        network = load_network(str(self.weights))
        if network.digest != self.store.network:
            raise SuperfeatError(f"{self.weights} is not the network that made {self.store.path}")
        config = overlay(ExtractConfig(), self.store.manifest["extract"])
        pixels = read_for(config, photo).pixels
        if box is not None:
            pixels = crop(pixels, (box[0], box[1], box[0] + box[2], box[1] + box[3]))
        return extract_pixels(network, pixels, config, workers=self.workers)
