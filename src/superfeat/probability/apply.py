"""Is it the same thing? Rankings with a probability beside each score, by how strangers score in this collection."""

import itertools
import threading
import weakref
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int64

from superfeat.config import SearchConfig
from superfeat.errors import SuperfeatError
from superfeat.features import Features, Hit, ImageWords, Ranking
from superfeat.index.index import Index, QueryLike
from superfeat.index.pairs import score_many, score_pairs
from superfeat.index.partial import collect_missing
from superfeat.index.snapshot import Snapshot
from superfeat.probability.clues import (
    CLUES,
    NEAREST,
    SUPPORTERS,
    Clues,
    back_of,
    choose_witnesses,
    inliers_of,
    inliers_with,
    support_of,
    witness_of,
)
from superfeat.probability.model import Calibration, match_prior
from superfeat.rerank.geometry import PlacedWords, place_features, place_stored
from superfeat.rerank.look import SearchedWith, SeenPhoto, look_again
from superfeat.rerank.order import FIRST
from superfeat.rerank.strangers import (
    Null,
    Strangers,
    adapt_null,
    evidence,
    hardly_strangers,
    measure_strangers,
    meet_crowd,
    sample_images,
)

LEAST_STRANGERS = 30  # different images, where no calibration says how strangers score
JUDGED = (20, FIRST)  # results that are judged together: those that people look at, and those that are looked at again
FOREIGN_IMAGES = 5  # that a background is worth where the codebook is another one than it was measured with


class _Measured(NamedTuple):
    """What was measured, of which images as they were then."""

    snapshot: "weakref.ref[Snapshot]"
    ids: Int64[np.ndarray, "n"]
    calibration: Calibration | None
    config: SearchConfig
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
    placed = _placed(index, query, words) if calibration is not None and calibration.weights is not None else None
    needed = top if placed is None or top is None else max(top, NEAREST + 1)
    found = index.search(words, needed, only=names, config=config, workers=workers)
    ranking = found.best(top)
    if calibration is None:
        return ranking, None
    itself = index.id(query) if isinstance(query, str) else None
    searched = SearchedWith(index.snapshot(), words, placed, config, without=itself)
    seen = [SeenPhoto(hit, None, None) for hit in ranking]
    if placed is not None:
        seen = look_again(searched, list(ranking), index.meta(ranking.names[:FIRST]))
    nearest = [hit for hit in found.best(NEAREST + 1) if hit.id != itself][:NEAREST]
    return ranking, judge_seen(index, calibration, searched, seen, nearest, len(index) if names is None else len(names))


def _placed(index: Index, query: QueryLike, words: ImageWords) -> PlacedWords | None:
    """The words of a query and where they lie, if anybody knows."""
    if isinstance(query, str):
        return place_stored(words, index.meta([query]).get(query, {}))
    return place_features(words, query) if isinstance(query, Features) else None


def judge_seen(
    index: Index,
    calibration: Calibration | None,
    searched: SearchedWith,
    seen: Sequence[SeenPhoto],
    nearest: Sequence[Hit],
    images: int,
) -> Float64[np.ndarray, "n"] | None:
    """The probability of each result to show the same thing as the query; None without a calibration. `nearest` are
    the first 256 by their scores, without the query itself; they are asked where clues are known.
    """
    if calibration is None:
        return None
    strangers = meet_strangers(index, calibration, searched.config)
    null = adapt_null(strangers.null, strangers.images.search(searched.words, searched.config).scores)
    above = evidence(np.asarray([one.hit.score for one in seen], np.float64), null)
    prior = match_prior(strangers.linked, strangers.sample, images)
    if calibration.weights is None or searched.placed is None:
        return calibration.without_clues().probability(above, images, prior)
    others = np.asarray([place for place, one in enumerate(seen) if one.hit.id != searched.without], np.int64)
    return calibration.probability(above, images, prior, find_clues(strangers, searched, seen, nearest), others)


def judged_together(top: int) -> int:
    """How many of the first results are judged where `top` are asked for, so that `falling` says of each the same."""
    return max(top, next((end for end in JUDGED if top <= end), top))


def falling(chances: Float64[np.ndarray, "n"]) -> Float64[np.ndarray, "n"]:
    """Probabilities that do not rise along an order that knows more than they do: those that would rise are shared out
    evenly among the first results, and then among the others that were looked at again, who have no more than these.
    """
    said: list[float] = []
    for begin, end in itertools.pairwise((0, *JUDGED, max(len(chances), JUDGED[-1]))):
        pools: list[tuple[float, int]] = []
        for chance in chances[begin:end].tolist():
            pools.append((min([chance, *said[-1:]]), 1))
            while len(pools) > 1 and pools[-2][0] < pools[-1][0]:
                (one, some), (other, more) = pools[-2:]
                pools[-2:] = [((one * some + other * more) / (some + more), some + more)]
        said += [chance for chance, count in pools for _ in range(count)]
    return np.asarray(said, np.float64)


def find_clues(
    strangers: Strangers, searched: SearchedWith, seen: Sequence[SeenPhoto], nearest: Sequence[Hit]
) -> Clues:
    """What speaks for each result besides its score; the first 100 are asked, the others have no clues."""
    first, ids = seen[:FIRST], [hit.id for hit in nearest]
    searched.words_of_found(list(dict.fromkeys([*(one.hit.id for one in first), *ids])))  # of all at once
    images = searched.words_of_found([one.hit.id for one in first])
    known = [place for place, image in enumerate(images) if image is not None]  # one may have been deleted just now
    asked, some = [first[place] for place in known], [image for image in images if image is not None]
    others = [row for row, one in enumerate(asked) if one.hit.id != searched.without]
    speakers = np.asarray(others[:SUPPORTERS], np.int64)  # the query itself, if it is a result, says nothing new
    scores, inliers = np.asarray([one.hit.score for one in asked]), inliers_of([one.verification for one in asked])
    witnesses = choose_witnesses(inliers, speakers)
    clues = np.zeros((len(seen), len(CLUES)))
    clues[known] = np.column_stack(
        [
            inliers,
            _seen_from_all(strangers, searched, some, scores),
            *_seen_from_nearest(strangers, searched, some, scores, speakers, nearest),
            witness_of(inliers, _agreed_with(searched, asked, witnesses), witnesses),
        ]
    )
    return clues


def _seen_from_all(
    strangers: Strangers, searched: SearchedWith, found: Sequence[ImageWords], scores: Float64[np.ndarray, "n"]
) -> Float64[np.ndarray, "n"]:
    """How far scores stand above what found photos have with just any photo of the collection."""
    asked = strangers.everyone.search(searched.words, searched.config).scores[None]
    query = meet_crowd(asked, strangers.background)
    crowd = meet_crowd(score_many(strangers.everyone, found, searched.config), strangers.background)
    return back_of(scores, crowd, query, strangers.usual)


def _seen_from_nearest(
    strangers: Strangers,
    searched: SearchedWith,
    found: Sequence[ImageWords],
    scores: Float64[np.ndarray, "n"],
    speakers: Int64[np.ndarray, "first"],
    nearest: Sequence[Hit],
) -> tuple[Float64[np.ndarray, "n"], Float64[np.ndarray, "n"]]:
    """The same as if the photos nearest to the query were the whole collection, and what the speakers say then."""
    words = searched.words_of_found([hit.id for hit in nearest])
    near, layout = [image for image in words if image is not None], searched.snapshot.layout
    query = meet_crowd(np.asarray([[hit.score for hit in nearest]]), strangers.background)
    crowd = meet_crowd(score_many(Snapshot.in_memory(layout, near), found, searched.config), strangers.background)
    pairs = score_pairs(searched.snapshot, near, searched.config)
    usual = float(meet_crowd(pairs.reshape(1, -1), strangers.background).location[0])
    voices = Snapshot.in_memory(layout, [found[row] for row in speakers.tolist()])
    mutual = score_many(voices, found, searched.config)
    return back_of(scores, crowd, query, usual), support_of(scores, mutual, speakers, crowd, query)


def _agreed_with(
    searched: SearchedWith, found: Sequence[SeenPhoto], witnesses: Int64[np.ndarray, "witnesses"]
) -> Float64[np.ndarray, "n witnesses"]:
    """The clue `inliers` of each result if a witness were the query."""
    photos, agreed = [one.photo for one in found], np.zeros((len(found), len(witnesses)))
    for column, witness in enumerate(witnesses.tolist()):
        asked = searched.snapshot, photos[witness], photos, searched.config
        agreed[:, column] = inliers_with(*asked, workers=searched.workers)
    return agreed


def meet_strangers(index: Index, calibration: Calibration | None, config: SearchConfig | None = None) -> Strangers:
    """How strangers score in this collection; measured once, and again when other images are in its sample.

    What the calibration knows of strangers beforehand helps where there are few; without one the collection must do.
    """
    config = config or index.config.search
    if calibration is not None:
        require_fitting(calibration, index, config)
    snapshot = index.snapshot()
    with _LOCK:
        before = _MEASURED.get(index)
        if before is not None and (before.calibration, before.config) != (calibration, config):
            before = None
        if before is not None and before.snapshot() is snapshot:
            return before.strangers
        with collect_missing() as missing:
            ids = sample_images(snapshot)
            background = None if calibration is None else background_for(calibration, snapshot.layout.codebook)
            same = before is not None and np.array_equal(before.ids, ids)
            found = before.strangers if before and same else measure_strangers(snapshot, ids, background, config)
        if not missing:  # strangers of a part of the collection serve for one answer
            _MEASURED[index] = _Measured(weakref.ref(snapshot), ids, calibration, config, found)
    return found


def link_floor(index: Index, calibration: Calibration | None, config: SearchConfig) -> float | None:
    """The score that two strangers of this collection hardly ever have; None if it has too few to tell, or vectors."""
    if index.snapshot().layout.vectors is not None:
        return None
    try:
        strangers = meet_strangers(index, calibration, config)
    except SuperfeatError:  # hardly two different photos
        return None
    few = calibration is None and len(strangers.images) < LEAST_STRANGERS
    return None if few else hardly_strangers(strangers.null)


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


def background_for(calibration: Calibration, codebook: str) -> Null:
    """What a calibration knows of strangers beforehand, in an index with this codebook."""
    background = calibration.background
    if codebook == calibration.origin.codebook:
        return background
    return background._replace(images=min(background.images, FOREIGN_IMAGES))
