"""Weights + codebook + index behind search(photo). The command line and the service use this and nothing else."""

import dataclasses
import functools
import hashlib
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from superfeat.config import ExtractConfig, SearchConfig
from superfeat.errors import ImageError, SuperfeatError
from superfeat.explain.explain import Explanation, explain, score_words
from superfeat.features import Features, Hit, ImageWords
from superfeat.index.build import CALIBRATION
from superfeat.index.index import Added, Index
from superfeat.index.places import Region, decode_places, enclose, mass_inside, require_region
from superfeat.probability.apply import judge_ranking, require_fitting
from superfeat.probability.model import Calibration
from superfeat.recent import Recent
from superfeat.settings import overlay
from superfeat.storage.store import read_json

if TYPE_CHECKING:
    from superfeat.weights import Network

KEPT_PHOTOS = 8  # whose features stay in memory: a box on one, or an explanation, extracts nothing again
LEAST_MASS = 0.5  # of a feature's attention inside a box: it belongs to the box

PhotoLike = str | Path | bytes  # the name of an indexed photo, a file, or the bytes of one


class FoundPhoto(NamedTuple):
    """A photo that was found."""

    name: str
    id: int
    score: float
    probability: float | None  # that it shows the same thing; None without a calibration
    region: Region | None  # where in it the match lies; None if the index does not know
    path: str | None  # where its file lay when it was indexed


@dataclasses.dataclass(frozen=True)
class Answer:
    """What was found, best first, and how much of the query was looked for."""

    hits: list[FoundPhoto]
    features: int  # of the query that were searched with; 0 for an indexed photo, whose words are stored
    size: tuple[int, int] | None = None  # width and height that the query was looked at


class Engine:
    """An index that is asked with photos. Loads its network when a photo has to be looked at, not before.

    Methods may be called from several threads; the network looks at one photo at a time, with all cores.
    """

    def __init__(
        self,
        index: Index,
        *,
        weights: str | None = None,
        device: str = "cpu",
        workers: int | None = None,
    ) -> None:
        self.index = index
        self._weights, self._device, self._workers = weights, device, workers
        self._kept: Recent[Features] = Recent(KEPT_PHOTOS)
        self._looking = threading.Lock()

    @classmethod
    def open(
        cls, path: str | Path, *, weights: str | None = None, device: str = "cpu", workers: int | None = None
    ) -> "Engine":
        """The index at `path`, with the network that it was made with unless `weights` names another copy of it."""
        return cls(Index.open(path), weights=weights, device=device, workers=workers)

    @property
    def knows_network(self) -> bool:
        """Whether photos can be looked at."""
        return self._weights is not None or "weights" in self.index.facts

    @functools.cached_property
    def network(self) -> "Network":
        """The network that the index was made with."""
        from superfeat.weights import load_network

        source = self._weights or self.index.facts.get("weights")
        if source is None:
            raise SuperfeatError(
                f"{self.index.path} does not say which network it was made with; name it", arguments=["weights"]
            )
        return load_network(str(source))

    @property
    def config(self) -> ExtractConfig:
        """How the photos of the index were looked at."""
        return overlay(ExtractConfig(), self.index.facts.get("extract", {}))

    @functools.cached_property
    def calibration(self) -> Calibration | None:
        """From scores to probabilities; None if the index has none."""
        path = self.index.path / CALIBRATION
        return Calibration.from_dict(read_json(path)) if path.is_file() else None

    def _calibration_for(self, config: SearchConfig) -> Calibration | None:
        """None where scores are made in another way than those that it was fitted to: then they have no probability."""
        if self.calibration is not None:
            try:
                require_fitting(self.calibration, self.index, config)
            except SuperfeatError:
                return None
        return self.calibration

    # -- Photos -> features

    def features(self, photo: PhotoLike) -> Features:
        """Features of a photo with their attention maps; the last few photos stay in memory."""
        data = self._read(photo)
        key = photo_key(data)
        found = self.seen(key)
        return self._look(key, data) if found is None else found

    def seen(self, key: str) -> Features | None:
        """Features of the photo with this key (`photo_key`) if they are in memory. Does not wait for the network."""
        return self._kept.get(key)

    def _look(self, key: str, data: bytes) -> Features:
        from superfeat.extraction.extract import extract_image

        with self._looking:
            found = self.seen(key)  # who was here before may have looked at the same photo
            if found is None:
                config = dataclasses.replace(self.config, attention="maps")
                found = extract_image(self.network, data, config, workers=self._workers, device=self._device)
                self._kept.put(key, found)
        return found

    def _read(self, photo: PhotoLike) -> bytes:
        if isinstance(photo, bytes):
            return photo
        path = self.path_of(photo) if isinstance(photo, str) else photo
        try:
            return path.read_bytes()
        except OSError as error:
            raise ImageError(f"cannot read {path}: {error.strerror}") from error

    def pixels(self, photo: PhotoLike) -> np.ndarray:
        """A photo as it was looked at, upright: (height, width, 3)."""
        from superfeat.images import read_image

        config = self.config
        return read_image(self._read(photo), max_side=config.max_side, upright=config.upright, draft=config.draft)

    def path_of(self, name: str) -> Path:
        """Where the file of an indexed photo lies."""
        self.index.id(name)
        path = self.index.meta([name]).get(name, {}).get("path")
        if not isinstance(path, str):
            raise SuperfeatError(f"{self.index.path} does not know where {name} lies: it was indexed from features")
        return Path(path)

    def name_of(self, photo: str) -> str:
        """The name of an indexed photo that is given by its name or by its file."""
        parts = Path(photo).parts
        tails = [photo, *("/".join(parts[first:]) for first in range(len(parts)))]
        for name, meta in self.index.meta(tails).items():
            if name == photo or meta.get("path") == str(Path(photo).resolve()):
                return name
        raise SuperfeatError(f"{self.index.path} has no image called {photo}, and none of such a file")

    def _words(
        self, query: PhotoLike | Features, box: Region | None, config: SearchConfig
    ) -> tuple[ImageWords, Answer]:
        """An indexed photo is asked for with its stored words, one per feature, with a box or without."""
        if isinstance(query, str) and box is None:
            return self.index.words_of(query), Answer([], 0)
        features = query if isinstance(query, Features) else self.features(query)
        chosen = features if box is None else within(features, box)
        words = self.index.query(chosen, 1 if isinstance(query, str) else config.assignments)
        return words, Answer([], len(chosen), features.image_size)

    # -- Questions

    def search(
        self,
        query: PhotoLike | Features,
        *,
        box: Iterable[float] | None = None,
        top: int = 20,
        only: Iterable[str] | None = None,
        config: SearchConfig | None = None,
    ) -> Answer:
        """The photos that show the same thing as the query, or as the part of it in `box` (x, y, width, height as
        fractions of the upright photo)."""
        config = config or self.index.config.search
        words, answer = self._words(query, None if box is None else region_of(box), config)
        ranking, probabilities = judge_ranking(
            self.index, words, self._calibration_for(config), top=top, only=only, config=config, workers=self._workers
        )
        metas = self.index.meta(ranking.names)
        hits = []
        for place, hit in enumerate(ranking):
            meta = metas.get(hit.name, {})
            chance = None if probabilities is None else float(probabilities[place])
            where = self._locate(words, hit, meta.get("places"), config)
            hits.append(FoundPhoto(hit.name, hit.id, hit.score, chance, where, meta.get("path")))
        return dataclasses.replace(answer, hits=hits)

    def _locate(self, query: ImageWords, hit: Hit, places: Any, config: SearchConfig) -> Region | None:
        """Where in an indexed photo the words lie that it shares with the query, by what they add to the score."""
        snapshot = self.index.snapshot()
        found = snapshot.words_of(hit.id)
        if places is None or found is None:  # it may have been deleted a moment ago
            return None
        regions = decode_places(places, len(found))
        if regions is None:
            return None
        shared = score_words(snapshot, query, found, config)
        return enclose(regions[shared.found], shared.scores)

    def explain(
        self, query: PhotoLike, name: str, *, box: Iterable[float] | None = None, config: SearchConfig | None = None
    ) -> Explanation:
        """Where the score of the indexed photo `name` comes from."""
        features = self.features(query)
        config = config or self.index.config.search
        if isinstance(query, str):
            config = dataclasses.replace(config, assignments=1)
        chosen = features if box is None else within(features, region_of(box))
        return explain(self.index, chosen, name, self.features(name), config=config)

    # -- Changes

    def add(self, name: str, path: Path) -> Added:
        """Looks at the photo at `path` and adds it under `name`; one that was there is replaced."""
        from superfeat.images import Photo
        from superfeat.index.build import add_photos

        outcomes: Iterator[Any] = add_photos(
            self.index, self.network, [Photo(path, name)], self.config, workers=self._workers, device=self._device
        )
        for outcome in outcomes:
            if isinstance(outcome, Added):
                return outcome
            raise ImageError(f"{outcome.name}: {outcome.reason}")
        return Added(name, self.index.id(name), "same")


def photo_key(data: bytes) -> str:
    """By what a photo is remembered: a digest of its bytes."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def region_of(box: Iterable[float]) -> Region:
    """A box as fractions, checked."""
    try:
        return require_region(box)
    except ValueError as error:
        raise SuperfeatError(str(error)) from error


def within(features: Features, box: Region) -> Features:
    """The features whose attention lies in the box, by more than half. SuperfeatError if there is none."""
    if features.maps is None:
        raise SuperfeatError("to search by a box the features need their attention maps: extract with attention=maps")
    inside = np.asarray([mass_inside(attention, box) for attention in features.maps], np.float64)
    chosen = np.flatnonzero(inside >= LEAST_MASS)
    if not len(chosen):
        raise SuperfeatError("nothing in this box draws attention; make it larger")
    arrays: dict[str, Any] = {name: array[chosen] for name, array in features.arrays().items()}
    return dataclasses.replace(features, **arrays, maps=[features.maps[number] for number in chosen.tolist()])
