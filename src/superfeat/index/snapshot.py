"""The images of an index at one moment, and the search over them. Searching changes nothing."""

import dataclasses
import functools
import heapq
import itertools
import operator
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64

from superfeat.config import SearchConfig
from superfeat.errors import SuperfeatError
from superfeat.features import ImageWords, Ranking
from superfeat.index.kernel import (
    Best,
    Selectivity,
    accumulate,
    accumulate_real,
    accumulate_weighted,
    best_images,
    power_selectivity,
    table_selectivity,
)
from superfeat.index.names import Image
from superfeat.index.postings import count_images, weight_sums
from superfeat.index.segments import Layout, Segment, build_segment, require_words
from superfeat.index.vectors import QUERIES_AT_ONCE, Limit, best_rows, choose, expand_query, products, rounding_bound
from superfeat.threads import run_all

FEW_QUERIES = 16  # each reads a quarter of what a product of matrices would read once
MOST = 1.0  # the score of an image with itself, which rounding may exceed
Mask = Bool[np.ndarray, "_"]  # segments differ in length
Only = Mask | Int64[np.ndarray, "_"]  # among which images a search is made: masks of segments, or ids for shards


STRIDE = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: spreads ids that follow each other evenly


class WordCounts(NamedTuple):
    """How many images there are, and in how many of them each word is."""

    images: int
    words: Int64[np.ndarray, "words"]


class Weights(NamedTuple):
    """IDF: a weight for each word, and for each segment the norms of its images."""

    words: Float64[np.ndarray, "words"]
    norms: list[Float64[np.ndarray, "images"]]


@dataclasses.dataclass(frozen=True, eq=False)
class Snapshot:
    """Segments in the order of their ids, and which of their images are alive.

    Segments of several shards may have ids that lie between each other's; no id is in two of them.
    """

    layout: Layout
    segments: tuple[Segment, ...]
    alive: tuple[Mask, ...]
    whole: WordCounts | None = None  # of the collection that these images are a part of

    def __len__(self) -> int:
        return sum(int(mask.sum()) for mask in self.alive)

    @classmethod
    def in_memory(cls, layout: Layout, images: Sequence[ImageWords]) -> "Snapshot":
        """Images that are nowhere on disk, with the ids 0, 1, 2 and so on."""
        rows = [Image(str(number), 0, {}) for number in range(len(images))]
        segment = build_segment(layout, range(len(images)), rows, [(one.words, one.codes) for one in images])
        return cls(layout, (segment,), (np.ones(len(images), np.bool_),))

    def ids(self) -> Int64[np.ndarray, "images"]:
        """Of all living images, rising."""
        living = (segment.images[mask] for segment, mask in zip(self.segments, self.alive, strict=True))
        found = np.concatenate([np.empty(0, np.int64), *living])
        return np.sort(found) if self.interleaved else found

    def spread_ids(self, count: int) -> Int64[np.ndarray, "n"]:
        """Up to `count` of them, spread over all; an image that is added or deleted changes at most one."""
        return spread(self.ids(), count)

    @functools.cached_property
    def interleaved(self) -> bool:
        """Whether ids of some segments lie between those of others."""
        pairs = zip(self.segments, self.segments[1:], strict=False)
        return any(one.images[-1] > other.images[0] for one, other in pairs)

    def words_of(self, image: int) -> ImageWords | None:
        """The words of the living image with that id."""
        place = self.locate(image)
        return None if place is None else self.segments[place[0]].words_of(place[1])

    def words_of_many(self, images: Sequence[int], workers: int = 1) -> list[ImageWords | None]:
        """The same of several, faster than one by one; segments are shared out over threads."""
        places = self._places(np.unique(np.asarray(images, np.int64)))
        found: dict[int, ImageWords] = {}

        def gather(place: int) -> None:
            segment, numbers = self.segments[place], places[place]
            living = numbers[self.alive[place][numbers]]
            found.update(zip(segment.images[living].tolist(), segment.words_of_many(living), strict=True))

        run_all(gather, list(places), workers)
        return [found.get(int(image)) for image in images]

    def name_of(self, image: int) -> str | None:
        """The name of the living image with that id."""
        place = self.locate(image)
        return None if place is None else self.segments[place[0]].names.images_of([place[1]])[place[1]].name

    def score_of(self, image: int, query: ImageWords, config: SearchConfig) -> float | None:
        """The score of the living image with that id."""
        if self.locate(image) is None:
            return None
        return float(self.search(query, config, only=self.masks([image])).scores[0])

    def masks(self, ids: Sequence[int]) -> Sequence[Only]:
        """Which images of each segment these living ones are, for a search among them alone."""
        masks = [np.zeros(len(segment), np.bool_) for segment in self.segments]
        for image in ids:
            place = self.locate(image)
            if place is not None:
                masks[place[0]][place[1]] = True
        return masks

    def locate(self, image: int) -> tuple[int, int] | None:
        """Segment and number within it of the living image with that id."""
        for place, numbers in self._places(np.asarray([image], np.int64)).items():
            if self.alive[place][numbers[0]]:
                return place, int(numbers[0])
        return None

    def _places(self, ids: Int64[np.ndarray, "n"]) -> dict[int, Int64[np.ndarray, "k"]]:
        """Ids by segment, as numbers within it; those that are in none are left out."""
        if self.interleaved:
            looked = dict.fromkeys(range(len(self.segments)), ids)
        else:  # segments hold rising ranges of ids
            places = np.searchsorted([segment.images[0] for segment in self.segments], ids, side="right") - 1
            looked = {int(place): ids[places == place] for place in np.unique(places[places >= 0])}
        found: dict[int, np.ndarray] = {}
        for place, some in looked.items():
            images = self.segments[place].images
            numbers = np.minimum(np.searchsorted(images, some), len(images) - 1)
            there = images[numbers] == some
            if there.any():
                found[place] = numbers[there]
        return found

    def find(self, names: Sequence[str]) -> dict[str, int]:
        """Ids of living images by name."""
        found: dict[str, int] = {}
        for segment, mask in zip(self.segments, self.alive, strict=True):
            for number, image in segment.names.find(names).items():
                if mask[number]:
                    found[image.name] = int(segment.images[number])
        return found

    def images(self) -> Iterator[tuple[int, Image]]:
        """All living images with their ids, in the order of these."""
        parts = [_living(segment, mask) for segment, mask in zip(self.segments, self.alive, strict=True)]
        if self.interleaved:
            return heapq.merge(*parts, key=operator.itemgetter(0))
        return itertools.chain.from_iterable(parts)

    def names(self, ids: Sequence[int] | Int64[np.ndarray, "n"]) -> list[str]:
        """Names of living images, in the order of the ids given."""
        wanted = np.asarray(ids, np.int64)
        found: dict[int, str] = {}
        for place, numbers in self._places(wanted).items():
            images = self.segments[place].images
            by_number = self.segments[place].names.images_of(numbers.tolist())
            found |= {int(images[number]): one.name for number, one in by_number.items()}
        return [found[int(image)] for image in wanted]

    @functools.cached_property
    def weights(self) -> Weights:
        """Of the living images: log(images / images with the word)^2, and 1 for a word that no image has."""
        words = word_weights(self.whole or self.count_words())
        sums = [weight_sums(segment.postings, words, len(segment)) for segment in self.segments]
        return Weights(words, [np.sqrt(np.where(part > 0, part, 1.0)) for part in sums])

    def count_words(self) -> WordCounts:
        """Of the living images."""
        counts = np.zeros(self.layout.words, np.int64)
        for segment, mask in zip(self.segments, self.alive, strict=True):
            counts += count_images(segment.postings, mask)
        return WordCounts(len(self), counts)

    def search(
        self,
        query: ImageWords,
        config: SearchConfig,
        *,
        top: int | None = None,
        only: Sequence[Only] | None = None,
        table: np.ndarray | None = None,
        workers: int = 1,
    ) -> Ranking:
        """The best `top` images (all, if None) among those of `only`; a `table` replaces alpha and threshold."""
        return self._named(self.best(query, config, top=top, only=only, table=table, workers=workers))

    def best(
        self,
        query: ImageWords,
        config: SearchConfig,
        *,
        top: int | None = None,
        only: Sequence[Only] | None = None,
        table: np.ndarray | None = None,
        workers: int = 1,
    ) -> Best:
        """The same without names, which take longer than the search where all images are wanted."""
        if top is not None and top < 0:
            raise SuperfeatError(f"top is {top}; it must be 0 or more, or None for all")
        query = require_words(query, self.layout, "the query's words")
        masks = self._within(only)
        if self.layout.vectors is not None:
            return self._search_vectors(query, config, top, masks, table, workers)
        return self._search_words(query, config, top, masks, table, workers)

    def _within(self, only: Sequence[Only] | None) -> Sequence[Only]:
        """The living images among which a search is made."""
        return self.alive if only is None else [a & o for a, o in zip(self.alive, only, strict=True)]

    def _search_words(
        self,
        query: ImageWords,
        config: SearchConfig,
        top: int | None,
        masks: Sequence[Only],
        table: np.ndarray | None,
        workers: int,
    ) -> Best:
        selectivity = self._selectivity(config, table)
        found: list[Best | None] = [None] * len(self.segments)

        def work(place: int) -> None:
            found[place] = self._search_segment(place, query, config, selectivity, masks[place], top)

        run_all(work, [place for place, mask in enumerate(masks) if mask.any()], workers)
        return self._join(found, top, MOST if table is None and config.norm is None else np.inf)

    def _search_vectors(
        self,
        query: ImageWords,
        config: SearchConfig,
        top: int | None,
        masks: Sequence[Only],
        table: np.ndarray | None,
        workers: int,
    ) -> Best:
        """The same where an image is one vector: the score is the cosine."""
        if table is not None:
            raise SuperfeatError("a selectivity table is for an index with the binary kernel; this one holds vectors")
        vector = np.asarray(query.codes[0], np.float32)
        if config.expansion is not None:
            near = self.nearest(vector, config.expansion.images, self._within(None), workers)
            rows = np.stack([self.vector_of(int(image)) for image in near.ids]) if len(near.ids) else vector[None][:0]
            vector = expand_query(vector, rows, near.scores, config.expansion.alpha)
        return self.nearest(vector, top, masks, workers)

    def vector_of(self, image: int) -> Float32[np.ndarray, " dim"]:
        """The vector of the living image with that id, in an index of vectors."""
        found = self.words_of(image)
        assert found is not None
        return np.asarray(found.codes[0], np.float32)

    def nearest(
        self, vector: Float32[np.ndarray, " dim"], top: int | None, masks: Sequence[Only], workers: int = 1
    ) -> Best:
        """The images with the nearest vectors, in an index of vectors."""
        found: list[Best | None] = [None] * len(self.segments)
        limit = Limit()

        def work(place: int) -> None:
            segment, wanted = self.segments[place], len(self) if top is None else top
            found[place] = best_rows(segment.postings.codes, segment.rounded, vector, masks[place], wanted, limit)

        run_all(work, [place for place, mask in enumerate(masks) if mask.any()], workers)
        return self._join(found, top, MOST)

    def nearest_many(self, queries: Sequence[ImageWords], top: int | None, workers: int) -> list[Ranking]:
        """The same for many vectors: each segment is read once for many of them."""
        rankings: list[Ranking] = []
        for first in range(0, len(queries), QUERIES_AT_ONCE):
            part = queries[first : first + QUERIES_AT_ONCE]
            some = [require_words(one, self.layout, "the query's words") for one in part]
            asked = np.stack([one.codes[0] for one in some]).astype(np.float32)
            if self.layout.vectors == "int8" and len(asked) < FEW_QUERIES:
                best = [self.nearest(vector, top, self.alive, workers) for vector in asked]
            else:
                best = self._nearest_together(asked, top, workers)
            rankings += [self._named(one) for one in best]
        return rankings

    def _nearest_together(self, asked: Float32[np.ndarray, "queries dim"], top: int | None, workers: int) -> list[Best]:
        parts: list[list[Best | None]] = [[None] * len(self.segments) for _ in asked]
        limits, wanted = [Limit() for _ in asked], len(self) if top is None else top
        for place, (segment, mask) in enumerate(zip(self.segments, self.alive, strict=True)):
            rows = segment.postings.codes
            about = products(rows, asked)

            one = functools.partial(_choose_for, parts, place, rows, asked, about, mask, wanted, limits)
            run_all(one, list(range(len(asked))), workers)
        return [self._join(found, top, MOST) for found in parts]

    def _selectivity(self, config: SearchConfig, table: np.ndarray | None) -> Selectivity:
        if table is None:
            return power_selectivity(self.layout.dim, config.alpha, config.threshold)
        values = np.asarray(table, np.float64)
        if not self.layout.binary or values.shape != (self.layout.dim + 1,) or not np.isfinite(values).all():
            raise SuperfeatError(
                f"a selectivity table needs {self.layout.dim + 1} finite numbers, one per Hamming distance, and an "
                "index with the binary kernel"
            )
        return table_selectivity(values)

    def _search_segment(
        self,
        place: int,
        query: ImageWords,
        config: SearchConfig,
        selectivity: Selectivity,
        mask: Mask,
        top: int | None,
    ) -> Best:
        segment, codes, words = self.segments[place], self.layout.for_scan(query.codes), query.words
        weights = self.weights.words[words] if config.idf else np.ones(len(query))
        norms = self.weights.norms[place] if config.idf else segment.norms
        norms = np.ones(len(segment)) if config.norm == "none" else norms
        scale = 1.0
        with segment.reading(words):
            if not self.layout.binary:
                alpha, threshold = config.alpha, config.threshold
                sums = accumulate_real(segment.postings, words, codes, alpha, threshold, weights)
            elif config.idf:
                sums = accumulate_weighted(segment.postings, words, codes, selectivity, weights)
            else:
                sums = accumulate(segment.postings, words, codes, selectivity)
                scale = selectivity.scale
        total = float(weights.sum())
        norm = np.sqrt(total) if total > 0 and config.norm is None else 1.0
        return best_images(sums, norms, mask, scale * norm, len(segment) if top is None else top)

    def _join(self, found: Sequence[Best | None], top: int | None, most: float) -> Best:
        parts = [(place, best) for place, best in enumerate(found) if best is not None]
        if not parts:
            return Best(np.empty(0, np.int64), np.empty(0))
        scores = np.minimum(np.concatenate([best.scores for _, best in parts]), most)
        ids = np.concatenate([self.segments[place].images[best.ids] for place, best in parts])
        if len(parts) == 1 and len(scores) and parts[0][1].scores[0] <= most:
            return Best(ids[:top], scores[:top])  # ranked already
        order = np.lexsort((ids, -scores))[:top]
        return Best(ids[order], scores[order])

    def _named(self, best: Best) -> Ranking:
        return Ranking(tuple(self.names(best.ids)) if len(best.ids) else (), best.scores, best.ids)


def word_weights(counts: WordCounts) -> Float64[np.ndarray, "words"]:
    """log(images / images with the word)^2, and 1 for a word that no image has."""
    words = np.ones(len(counts.words))
    seen = counts.words > 0
    words[seen] = np.log(counts.images / counts.words[seen]) ** 2
    return words


def spread(ids: Int64[np.ndarray, "n"], count: int) -> Int64[np.ndarray, "m"]:
    """The first `count` of these ids in an order that mixes them well, and always in the same way."""
    order = np.argsort(ids.astype(np.uint64) * STRIDE, kind="stable")[:count]
    return np.asarray(ids[order], np.int64)


def _living(segment: Segment, mask: Mask) -> Iterator[tuple[int, Image]]:
    """The living images of a segment, with their ids."""
    rows = zip(segment.images.tolist(), segment.names, mask.tolist(), strict=True)
    return ((image, one) for image, one, living in rows if living)


def _choose_for(
    parts: list[list[Best | None]],
    place: int,
    rows: np.ndarray,
    asked: Float32[np.ndarray, "queries dim"],
    about: Float32[np.ndarray, "queries images"],
    mask: Mask,
    wanted: int,
    limits: list[Limit],
    number: int,
) -> None:
    """What one query of many finds in a segment."""
    off = rounding_bound(asked[number])
    parts[number][place] = choose(rows, asked[number], about[number], off, mask, wanted, limits[number])
