"""An index that is asked with photos."""

import dataclasses
import functools
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float64

from superfeat.addresses.address import Where, address_of, seems_gone
from superfeat.config import CALIBRATION, ExtractConfig, SearchConfig
from superfeat.engine.asked import Asked, region_of, second_look, within
from superfeat.engine.looking import Sight
from superfeat.engine.matching import FIRST_MATCHED, Matcher, certain_first
from superfeat.errors import ImageError, SuperfeatError
from superfeat.explain.explain import Explanation, explain, score_words
from superfeat.extraction.folder import photo_stamp
from superfeat.features import Features, Meta
from superfeat.found.explanation import Captions
from superfeat.found.hits import FoundPhoto, IndexedPhoto
from superfeat.found.keypoint_matches import KeypointMatch
from superfeat.found.matches import ExplainedMatch
from superfeat.found.photos import Named, PhotoLike, as_file, name_of_photo, photo_key
from superfeat.found.results import Answer
from superfeat.geometry.keypoints import KeypointKind
from superfeat.index.boxes import crop
from superfeat.index.entries import Added, IndexedImage
from superfeat.index.given import names_of
from superfeat.index.index import Index
from superfeat.index.partial import collect_missing
from superfeat.index.places import Region, enclose
from superfeat.probability.apply import falling, judge_seen, link_floor, require_fitting
from superfeat.probability.model import Calibration
from superfeat.recent import Recent
from superfeat.rerank.geometry import (
    WHOLE,
    Arrangement,
    locate_match,
    place_features,
    place_stored,
    verify_photos,
)
from superfeat.rerank.look import SeenPhoto
from superfeat.rerank.order import DEFAULT_RERANK, Rerank
from superfeat.settings import overlay
from superfeat.storage.store import read_json

if TYPE_CHECKING:
    from superfeat.weights import Network

KEPT_PHOTOS = 8  # whose features stay in memory: a box on one, or an explanation, extracts nothing again
FIRST_RESULTS = 200  # among which one photo is looked for


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
        self._device, self._workers = device, workers
        self._sight = Sight(index, weights, device, workers)
        self._kept: Recent[Features] = Recent(KEPT_PHOTOS)
        self._looking = threading.Lock()
        self._matchers: dict[KeypointKind, Matcher] = {}
        self._calibrated: tuple[tuple[int, int] | None, Calibration | None] | None = None  # by the file's stamp

    @classmethod
    def open(
        cls, path: str | Path, *, weights: str | None = None, device: str = "cpu", workers: int | None = None
    ) -> "Engine":
        """The index at `path`, with its own network unless `weights` names a copy of it, or one that it has taught."""
        return cls(Index.open(path), weights=weights, device=device, workers=workers)

    @property
    def knows_network(self) -> bool:
        """Whether photos can be looked at."""
        return self._sight.source is not None

    @property
    def network(self) -> "Network":
        """The network that the index was made with, or one that it has taught."""
        return self._sight.network

    def keep_network(self) -> None:
        """Exports the network into the user's cache if it was needed and not there: the next search is faster."""
        self._sight.keep()

    @property
    def config(self) -> ExtractConfig:
        """How the photos of the index were looked at."""
        return overlay(ExtractConfig(), self.index.facts.get("extract", {}))

    @property
    def calibration(self) -> Calibration | None:
        """From scores to probabilities; None if the index has none. A new one is taken as soon as it is there."""
        path = self.index.path / CALIBRATION
        stamp = photo_stamp(path) if path.is_file() else None
        if self._calibrated is None or self._calibrated[0] != stamp:
            self._calibrated = stamp, None if stamp is None else Calibration.from_dict(read_json(path))
        return self._calibrated[1]

    def _calibration_for(self, config: SearchConfig) -> Calibration | None:
        """None where scores are made in another way than those that it was fitted to: then they have no probability."""
        calibration = self.calibration
        if calibration is not None:
            try:
                require_fitting(calibration, self.index, config)
            except SuperfeatError:
                return None
        return calibration

    def warm_up(self) -> None:
        """Searches once with a photo of nothing, so that the first search takes as long as the next: the network is
        loaded, code compiled, the codebook laid out, and it is known how strangers score.
        """
        config = dataclasses.replace(self.config, attention="maps")
        pixels = np.random.default_rng(0).integers(0, 256, (config.max_side * 3 // 4, config.max_side, 3), np.uint8)
        with self._looking:
            found = self._sight.look_at_pixels(pixels, config)
        if len(self.index):
            self.search(found)

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
        with self._looking:
            found = self.seen(key)  # who was here before may have looked at the same photo
            if found is None:
                config = dataclasses.replace(self.config, attention="maps")
                found = self._sight.look(data, config)
                self._kept.put(key, found)
        return found

    def _read(self, photo: PhotoLike) -> bytes:
        photo = as_file(photo)
        if isinstance(photo, bytes):
            return photo
        path = self.path_of(photo.name) if isinstance(photo, Named) else photo
        try:
            data = path.read_bytes()
        except OSError as error:
            raise ImageError(f"cannot read {path}: {error.strerror or error}") from error
        if isinstance(photo, Named) and self._note_of(photo.name).get("digest") not in (None, photo_key(data)):
            raise ImageError(f"{path} has changed since it was indexed; bring the index up to date: superfeat index")
        return data

    def pixels(self, photo: PhotoLike) -> np.ndarray:
        """A photo as it was looked at, upright: (height, width, 3)."""
        from superfeat.images import read_image

        config = self.config
        return read_image(self._read(photo), max_side=config.max_side, upright=config.upright, draft=config.draft)

    def path_of(self, name: str) -> Where:
        """Where the file of an indexed photo lies."""
        path = self._note_of(name).get("path")
        if not isinstance(path, str):
            raise SuperfeatError(f"{self.index.path} does not know where {name} lies: it was indexed from features")
        return address_of(path)

    def _note_of(self, name: str) -> Meta:
        self.index.id(name)
        return self.index.meta([name]).get(name, {})

    def name_of(self, photo: str) -> str:
        """The name of an indexed photo that is given by its name or by its file."""
        return names_of(self.index, [photo])[0]

    def recognise(self, photo: PhotoLike) -> IndexedImage | None:
        """The image of the index that this photo is: by its name, by its bytes, or by its file as it was indexed."""
        photo = as_file(photo)
        if isinstance(photo, Named):
            return IndexedImage(self.index.id(photo.name), photo.name, self._note_of(photo.name))
        path = None if isinstance(photo, bytes) else photo.resolve()
        digest = photo_key(self._read(photo))
        alike = self.index.find("digest", [digest]).get(digest, [])
        here = self.index.find("path", [str(path)]).get(str(path), []) if path is not None else []
        same = [entry for entry in here if entry.meta.get("digest") == digest]
        if path is not None and not alike:  # an index of an older superfeat notes no digests
            same = [entry for entry in here if entry.meta.get("stamp") == list(photo_stamp(path))]
        return next(iter([*same, *sorted(alike)]), None)

    # -- Questions

    def search(
        self,
        photo: PhotoLike | Features,
        *,
        box: Iterable[float] | None = None,
        top: int = 20,
        only: Iterable[str] | None = None,
        config: SearchConfig | None = None,
        rerank: Rerank = DEFAULT_RERANK,
        turned: bool = False,
    ) -> Answer:
        """The `top` photos that show the same thing as a photo, or as the part of it in `box` (x, y, width, height as
        fractions of the upright photo). The photo itself is not among them. `rerank` says how the first are ordered;
        with `turned` a match by quarter turns, of photos without an EXIF tag, is verified too.

        A photo is a file, its bytes, an image of Pillow or an array of its pixels; one of the index is `Named(name)`.
        """
        return self.answer(self.ask(photo, box=box, config=config), top=top, only=only, rerank=rerank, turned=turned)

    def ask(
        self, photo: PhotoLike | Features, *, box: Iterable[float] | None = None, config: SearchConfig | None = None
    ) -> Asked:
        """What to search with for a photo; only here the network may be needed.

        One that is in the index is asked for with its words there, one for each feature, whichever way it is given.
        """
        with collect_missing() as missing:
            asked = self._ask(photo, box, config or self.index.config.search)
        return asked._replace(missing=frozenset(missing))

    def _ask(self, photo: PhotoLike | Features, box: Iterable[float] | None, config: SearchConfig) -> Asked:
        photo = photo if isinstance(photo, Features) else as_file(photo)
        region = None if box is None else region_of(box)
        itself = None if isinstance(photo, Features) else self.recognise(photo)
        if itself is not None and region is None:
            stored = self.index.words_of(itself.name)
            return Asked(photo, stored, 0, None, None, itself, config, place_stored(stored, itself.meta))
        if region is not None and self.index.snapshot().layout.vectors is not None:
            return self._ask_part(photo, region, itself, config)
        features = photo if isinstance(photo, Features) else self.features(photo)
        chosen = features if region is None else within(features, region)
        words = self.index.query(chosen, config.assignments if itself is None else 1)
        placed = place_features(words, chosen)
        return Asked(photo, words, len(chosen), features.image_size, region, itself, config, placed)

    def _ask_part(
        self, photo: PhotoLike | Features, region: Region, itself: IndexedImage | None, config: SearchConfig
    ) -> Asked:
        """A part of a photo where a photo is one vector: the part is looked at as a photo of its own."""
        if isinstance(photo, Features):
            raise SuperfeatError("one vector has no parts; give the photo itself to search by a box")
        with self._looking:
            pixels = self.pixels(photo)
            height, width = pixels.shape[:2]
            part = crop(pixels, (region[0], region[1], region[0] + region[2], region[1] + region[3]))
            found = self._sight.look_at_pixels(part, self.config)
        return Asked(photo, self.index.query(found), len(found), (width, height), region, itself, config)

    def answer(
        self,
        asked: Asked,
        *,
        top: int = 20,
        only: Iterable[str] | None = None,
        rerank: Rerank = DEFAULT_RERANK,
        turned: bool = False,
    ) -> Answer:
        """The rest of a search: the first results are looked at again, and ordered anew where that is asked for."""
        with collect_missing() as missing:
            calibration = self._calibration_for(asked.config)
            floor = link_floor(self.index, calibration, asked.config) if rerank == "diffuse" else None
            found = second_look(self.index, asked, top, only, rerank, self._workers, floor, turned)
            chances = judge_seen(self.index, calibration, found.searched, found.seen, found.nearest, found.images)
            chances = chances if chances is None or floor is None else falling(chances)
            hits = self._describe(asked, found.seen[:top], chances)
        parts = tuple(sorted(missing | asked.missing))
        known = asked.itself and IndexedPhoto(asked.itself.name, asked.itself.id, asked.itself.meta.get("path"))
        images, name = len(self.index), name_of_photo(asked.photo)
        size, order = asked.size, found.reordered
        return Answer(hits, asked.features, size, known, images, asked.box, name, asked.photo, self, order, parts)

    def _describe(
        self, asked: Asked, seen: Sequence[SeenPhoto], chances: Float64[np.ndarray, "n"] | None
    ) -> list[FoundPhoto]:
        metas = self.index.meta([one.hit.name for one in seen])
        first = {asked.itself.meta.get("digest"): asked.itself.name} if asked.itself is not None else {}
        hits = []
        for place, one in enumerate(seen):
            hit, found, meta = one.hit, one.verification, metas.get(one.hit.name, {})
            path, digest = meta.get("path"), meta.get("digest")
            copied = first.setdefault(digest, hit.name) if digest else hit.name
            gone = path is not None and seems_gone(path)
            original = None if copied == hit.name else copied
            where = self._locate(asked, one, meta)
            chance = None if chances is None else float(chances[place])
            verified, transform = (None, None) if found is None else (found.verified, found.transform)
            hits.append(
                FoundPhoto(hit.name, hit.id, hit.score, chance, where, path, gone, original, verified, transform)
            )
        return hits

    def _locate(self, asked: Asked, seen: SeenPhoto, meta: Meta) -> Region | None:
        """Where in an indexed photo the match lies: the verified part of the words that it shares with the query, or
        all of them, by what they add to the score.
        """
        if seen.photo is not None and seen.verification is not None:
            return locate_match(seen.photo, seen.verification)
        snapshot = self.index.snapshot()
        image = None if meta.get("places") is None else snapshot.words_of(seen.hit.id)
        photo = None if image is None else place_stored(image, meta)  # it may have been deleted a moment ago
        if photo is None:
            return None
        shared = score_words(snapshot, asked.words, photo.image, asked.config)
        return enclose(photo.places[shared.found], shared.scores)

    def hit_of(self, photo: PhotoLike, name: str, *, box: Iterable[float] | None = None) -> FoundPhoto | None:
        """What an indexed photo is among the results for a photo; None if it is not one of the first."""
        return next((hit for hit in self.search(photo, box=box, top=FIRST_RESULTS) if hit.name == name), None)

    def explain(
        self,
        photo: PhotoLike,
        found: str | FoundPhoto,
        *,
        box: Iterable[float] | None = None,
        config: SearchConfig | None = None,
    ) -> ExplainedMatch:
        """Where the score of a photo that was found comes from; it is a hit, or the name of an indexed photo."""
        name, chance = (found, None) if isinstance(found, str) else (found.name, found.probability)
        photo = as_file(photo)
        features = self.features(photo)
        config = config or self.index.config.search
        if self.recognise(photo) is not None:
            config = dataclasses.replace(config, assignments=1)
        chosen = features if box is None else within(features, region_of(box))
        parts = explain(self.index, chosen, name, self.features(Named(name)), config=config)
        captions = Captions(name_of_photo(photo), name, chance)
        arranged = self._arrange(parts, config, None if box is None else region_of(box))
        return ExplainedMatch(**vars(parts), photo=photo, captions=captions, look=self, arrangement=arranged)

    def _arrange(self, parts: Explanation, config: SearchConfig, box: Region | None) -> Arrangement | None:
        """Where the words of both photos lie, as they were looked at just now."""
        assert parts.images is not None
        query, photo = place_features(parts.images[0], parts.query), place_features(parts.images[1], parts.found)
        if query is None or photo is None:
            return None
        (found,) = verify_photos(self.index.snapshot(), query, [photo], config)
        return Arrangement.of(query, photo, found, box or WHOLE)

    def match(self, photo: PhotoLike, name: str, kind: KeypointKind = "sift") -> KeypointMatch:
        """Matches a photo with an indexed one by keypoints, which needs both files and OpenCV, but no network."""
        with self._looking:
            if kind not in self._matchers:
                self._matchers[kind] = Matcher(kind)
        mine, theirs = as_file(photo), Named(name)
        keys = [photo_key(self._read(one)) for one in (mine, theirs)]
        reads = [functools.partial(self.pixels, one) for one in (mine, theirs)]
        return self._matchers[kind].match(name, (keys[0], reads[0]), (keys[1], reads[1]))

    def match_first(self, answer: Answer, first: int = FIRST_MATCHED, kind: KeypointKind = "sift") -> Answer:
        """An answer whose first results were matched by keypoints: those that are certain come first."""
        if isinstance(answer.photo, Features):
            raise SuperfeatError("matching keypoints needs the photo that was asked with, not its features")
        hits = []
        for hit in answer.hits[:first]:
            try:
                found = self.match(answer.photo, hit.name, kind)
            except ImageError:  # its file is gone or has changed: nothing more can be said of it
                hits.append(hit)
            else:
                hits.append(hit._replace(matched=found.inliers, certain=found.certain))
        return dataclasses.replace(answer, hits=certain_first(hits) + answer.hits[first:])

    # -- Changes

    def add(self, name: str, path: Path) -> Added:
        """Looks at the photo at `path` and adds it under `name`; one that was there is replaced."""
        from superfeat.images import Photo
        from superfeat.index.build import add_photo

        if self.network.taught_by(self.index.network):
            raise SuperfeatError(f"{self._sight.source} can only search {self.index.path}; add photos with its network")
        photo = Photo(path, name)
        config = self._sight.settings(self.config)
        return add_photo(self.index, self.network, photo, config, workers=self._workers, device=self._device)
