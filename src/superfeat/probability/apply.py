"""Is it the same thing? Rankings with a probability beside each score, by how strangers score in this collection."""

import math
import threading
import weakref
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int64

from superfeat.config import SearchConfig
from superfeat.errors import SuperfeatError
from superfeat.features import Features, ImageWords, Ranking
from superfeat.index.index import Index, QueryLike
from superfeat.index.pairs import score_pairs
from superfeat.index.partial import collect_missing
from superfeat.index.snapshot import Snapshot
from superfeat.probability.clues import CLUES, PLACE_CLUES, SUPPORTERS, Clues, place_clues, support_of
from superfeat.probability.model import (
    Calibration,
    Null,
    adapt_null,
    back_evidence,
    different_images,
    evidence,
    fit_null,
    linked_share,
    match_prior,
)
from superfeat.rerank.geometry import PlacedWords, place_features, place_stored
from superfeat.rerank.look import SearchedWith, SeenPhoto, look_again
from superfeat.rerank.order import FIRST

SAMPLE = 256  # images that show how strangers score: their 32640 pairs give its location to 0.03 deviations
HARDLY = 3.0  # deviations above strangers
FOREIGN_IMAGES = 5  # that a background is worth where the codebook is another one than it was measured with


class Strangers(NamedTuple):
    """Different images of a collection, as an index of their own, how they score with each other, and which share of
    the pairs of images is linked in the sample that they were taken from.
    """

    images: Snapshot
    null: Null
    linked: float
    sample: int  # images in it


class _Measured(NamedTuple):
    """What was measured, of which images as they were then."""

    snapshot: "weakref.ref[Snapshot]"
    ids: Int64[np.ndarray, "n"]
    calibration: Calibration
    strangers: Strangers


_MEASURED: "weakref.WeakKeyDictionary[Index, _Measured]" = weakref.WeakKeyDictionary()
_LOCK = threading.Lock()


def judge_ranking(
    index: Index,
    query: QueryLike,
    calibration: Calibration | None,
    top: int | None = 20,
    *,
    only: Iterable[str] | None = None,
    config: SearchConfig | None = None,
    workers: int | None = None,
) -> tuple[Ranking, Float64[np.ndarray, "n"] | None]:
    """The `top` images (None: all), and the probability of each to show the same thing; None without a calibration.

    Where a calibration asks for clues, the first 100 are verified, if the index says where words lie.
    """
    config = config or index.config.search
    names = None if only is None else list(dict.fromkeys(only))
    words = index.words_for(query, config)
    ranking = index.search(words, top, only=names, config=config, workers=workers)
    if calibration is None:
        return ranking, None
    hits, images = list(ranking), len(index) if names is None else len(names)
    itself = index.id(query) if isinstance(query, str) else None
    searched = SearchedWith(index.snapshot(), words, _placed(index, query, words), config, without=itself)
    seen = [SeenPhoto(hit, None, None) for hit in hits]
    if calibration.weights is not None:
        seen = look_again(searched, hits, index.meta([hit.name for hit in hits[:FIRST]]))
    return ranking, judge_seen(index, calibration, searched, seen, images)


def _placed(index: Index, query: QueryLike, words: ImageWords) -> PlacedWords | None:
    """The words of a query and where they lie, if anybody knows."""
    if isinstance(query, str):
        return place_stored(words, index.meta([query]).get(query, {}))
    return place_features(words, query) if isinstance(query, Features) else None


def judge_seen(
    index: Index, calibration: Calibration | None, searched: SearchedWith, seen: Sequence[SeenPhoto], images: int
) -> Float64[np.ndarray, "n"] | None:
    """The probability of each result to show the same thing as the query; None without a calibration."""
    if calibration is None:
        return None
    strangers = meet_strangers(index, calibration, searched.config)
    null = adapt_null(strangers.null, strangers.images.search(searched.words, searched.config).scores)
    above = evidence(np.asarray([one.hit.score for one in seen], np.float64), null)
    if calibration.weights is None or searched.placed is None:
        prior = match_prior(strangers.linked, strangers.sample, images)
        return calibration.without_clues().probability(above, images, prior)
    return calibration.probability(above, images, clues=find_clues(strangers, searched, seen, above, null))


def find_clues(
    strangers: Strangers,
    searched: SearchedWith,
    seen: Sequence[SeenPhoto],
    above: Float64[np.ndarray, "n"],
    null: Null,
) -> Clues:
    """What speaks for each result besides its score; the first 100 are asked, the others have no clues."""
    first = seen[:FIRST]
    clues = np.zeros((len(seen), len(CLUES)))
    clues[: len(first), :PLACE_CLUES] = place_clues(
        searched.placed, [one.photo for one in first], [one.verification for one in first]
    )
    images = searched.snapshot.words_of_many([one.hit.id for one in first])
    known = [place for place, image in enumerate(images) if image is not None]
    some = [image for image in images if image is not None]
    for place, image in zip(known, some, strict=True):
        own = adapt_null(strangers.null, strangers.images.search(image, searched.config).scores)
        score = np.asarray([seen[place].hit.score])
        clues[place, PLACE_CLUES] = back_evidence(score, own, null, strangers.null)[0]
    others = [row for row, place in enumerate(known) if first[place].hit.id != searched.without]
    speakers = np.asarray(others[:SUPPORTERS], np.int64)  # the query itself, if it is a result, says nothing new
    voices = Snapshot.in_memory(searched.snapshot.layout, [some[row] for row in speakers.tolist()])
    mutual = np.zeros((len(some), len(speakers)))
    for row, image in zip(mutual, some, strict=True):
        ranking = voices.search(image, searched.config)
        row[ranking.ids] = evidence(ranking.scores, strangers.null)
    clues[known, PLACE_CLUES + 1] = support_of(above[known], mutual, speakers)
    return clues


def meet_strangers(index: Index, calibration: Calibration, config: SearchConfig | None = None) -> Strangers:
    """How strangers score in this collection; measured once, and again when other images are in its sample."""
    config = config or index.config.search
    require_fitting(calibration, index, config)
    snapshot = index.snapshot()
    with _LOCK:
        before = _MEASURED.get(index)
        if before is not None and before.calibration != calibration:
            before = None
        if before is not None and before.snapshot() is snapshot:
            return before.strangers
        with collect_missing() as missing:
            ids, background = sample_images(snapshot), background_for(calibration, snapshot.layout.codebook)
            same = before is not None and np.array_equal(before.ids, ids)
            found = before.strangers if before and same else measure_strangers(snapshot, ids, background, config)
        if not missing:  # strangers of a part of the collection serve for one answer
            _MEASURED[index] = _Measured(weakref.ref(snapshot), ids, calibration, found)
    return found


def link_floor(index: Index, calibration: Calibration | None, config: SearchConfig) -> float | None:
    """The score that two strangers of this collection hardly ever have; None if nobody knows how strangers score."""
    if calibration is None:
        return None
    null = meet_strangers(index, calibration, config).null
    return math.exp(null.location + HARDLY * null.scale)


def require_fitting(calibration: Calibration, index: Index, config: SearchConfig) -> None:
    """SuperfeatError where scores are made in another way than those that the calibration was fitted to."""
    origin = calibration.origin
    if None not in (origin.network, index.network) and origin.network != index.network:
        raise SuperfeatError(
            f"the calibration is of another network ({str(origin.network)[:12]}…) than {index.path} "
            f"({str(index.network)[:12]}…): fit one for it, or search without probabilities"
        )
    fitted = _settings(origin.kernel, origin.alpha, origin.threshold, False)
    asked = _settings(index.config.kernel, config.alpha, config.threshold, config.idf)
    if asked != fitted:
        raise SuperfeatError(f"the calibration is for {fitted}, not for {asked}: fit one, or search without it")


def _settings(kernel: str, alpha: float, threshold: float, idf: bool) -> str:
    return f"the kernel {kernel}, alpha {alpha:g}, threshold {threshold:g} and {'idf' if idf else 'no idf'}"


def sample_images(snapshot: Snapshot, count: int = SAMPLE) -> Int64[np.ndarray, "n"]:
    """Ids of up to `count` living images, spread over all; an image that is added or deleted changes at most one."""
    return snapshot.spread_ids(count)


def measure_strangers(
    snapshot: Snapshot, ids: Int64[np.ndarray, "n"], background: Null | None, config: SearchConfig
) -> Strangers:
    """From the scores of these images with each other; one is kept of those that look like one thing."""
    images = [words for words in snapshot.words_of_many(ids.tolist()) if words is not None]
    scores = score_pairs(snapshot, images, config)
    kept = different_images(scores, background)
    null = fit_null(scores[np.ix_(kept, kept)], background)
    # In memory: so what is asked of a few images costs the same in a collection of any size.
    different = Snapshot.in_memory(snapshot.layout, [images[number] for number in kept])
    return Strangers(different, null, linked_share(scores, null), len(images))


def background_for(calibration: Calibration, codebook: str) -> Null:
    """What a calibration knows of strangers beforehand, in an index with this codebook."""
    background = calibration.background
    if codebook == calibration.origin.codebook:
        return background
    return background._replace(images=min(background.images, FOREIGN_IMAGES))
