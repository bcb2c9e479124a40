"""How strangers score in a collection, photos of different things: from the scores of a sample of it with each other.

Scores are compared by their logarithms, so that a constant factor changes nothing. docs/calibration.md has the reasons.
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int64

from superfeat.config import SearchConfig
from superfeat.errors import SuperfeatError
from superfeat.index.pairs import score_pairs
from superfeat.index.snapshot import Snapshot

SAMPLE = 256  # images that show how strangers score: their 32640 pairs give its location to 0.03 deviations
HARDLY = 3.0  # deviations above strangers that these hardly ever have
LOWEST = 1e-12  # stands for all scores below it, 0 included, which have no logarithm
HIGH = 0.97  # share of strangers below what stands for the highest of them: beyond, there may be matches
MEDIAN_TO_QUARTILE, MEDIAN_TO_HIGH = 0.6745, 1.8808  # of a normal distribution, in standard deviations
CLIP = 3.0  # deviations above the bulk from which a pair no longer counts as one of strangers
LINK = 1.5  # the same for perhaps being one thing: where things are few, many of their pairs score no higher
FAR = 4.0  # the same by the background: no collection's strangers lie as high
QUERY_IMAGES = 100  # that the collection's null is worth beside what a query's own scores say
MOST_ROUNDS = 100  # more than the search for the bulk has ever needed
NARROWEST = 0.3  # the least scale of a crowd, in logarithms: copies of one photo have none


class Null(NamedTuple):
    """How strangers score: normal in the logarithm, as far as its upper part goes; worth so many different `images`."""

    location: float
    scale: float
    images: float


def fit_null(scores: Float64[np.ndarray, "n n"], background: Null | None = None) -> Null:
    """From the scores of different images with each other, and what is known beforehand.

    The upper part decides, because a result must stand out from it, and not from the many pairs that hardly share a
    word.
    """
    pairs = _pairs(_require_square(scores))
    if background is None:
        if not len(pairs) or (own := _fit_upper(pairs, len(scores))).scale <= 0:
            raise SuperfeatError("these photos do not show how strangers score: more different things are needed")
        return own
    return _mix(_fit_upper(pairs, len(scores)), background) if len(pairs) else background


def adapt_null(null: Null, scores: Float64[np.ndarray, "n"]) -> Null:
    """The null of one query, whose scores with different images these are: hardly one of them shows its thing."""
    logs = logarithms(scores[scores > 0])
    logs = logs[logs <= null.location + CLIP * null.scale]
    return _mix(_fit_upper(logs, len(logs)), null._replace(images=QUERY_IMAGES)) if len(logs) else null


def different_images(scores: Float64[np.ndarray, "n n"], background: Null | None = None) -> Int64[np.ndarray, "kept"]:
    """Images no two of which score as things that are the same, taken in their order.

    Most pairs must be strangers, unless there is a background. Dropping images, and not pairs alone, also drops the
    pairs of one thing that score low.
    """
    pairs = _pairs(_require_square(scores))
    cut = math.inf
    if len(pairs):
        location, scale = _fit_bulk(pairs)
        cut = location + LINK * scale
    if background is not None:
        cut = min(cut, background.location + FAR * background.scale)
    linked = logarithms(scores) > cut
    alone = np.ones(len(scores), np.bool_)
    for image in range(len(scores)):
        alone[image] = not (linked[image, :image] & alone[:image]).any()
    return np.flatnonzero(alone)


def linked_share(scores: Float64[np.ndarray, "n n"], null: Null) -> float:
    """Which part of the pairs of images scores as no strangers do: how common matches are in a collection."""
    apart = ~np.eye(len(_require_square(scores)), dtype=np.bool_)
    return float((evidence(scores[apart], null) >= CLIP).mean()) if apart.any() else 0.0


def logarithms(scores: Float64[np.ndarray, "..."]) -> Float64[np.ndarray, "..."]:
    """Of scores; those that have none get the lowest."""
    return np.asarray(np.log(np.maximum(scores, LOWEST)))


def _require_square(scores: Float64[np.ndarray, "n n"]) -> Float64[np.ndarray, "n n"]:
    values = np.asarray(scores, np.float64)
    if values.ndim != 2 or values.shape[0] != values.shape[1] or not np.isfinite(values).all():
        raise SuperfeatError(f"scores of images with each other must be finite numbers (n, n), not {values.shape}")
    return values


def _pairs(scores: Float64[np.ndarray, "n n"]) -> Float64[np.ndarray, "pairs"]:
    """Logarithms of the scores of different images; pairs without a common word say nothing."""
    values = scores[~np.eye(len(scores), dtype=np.bool_)]
    return logarithms(values[values > 0])


def _fit_bulk(pairs: Float64[np.ndarray, "pairs"]) -> tuple[float, float]:
    """Location and scale from the quartiles, once what stands far above them is left out."""
    lower, location = np.quantile(pairs, (0.25, 0.5))
    scale = (location - lower) / MEDIAN_TO_QUARTILE  # a fifth of matches would spoil the upper quartile
    for _ in range(MOST_ROUNDS):
        lower, middle, upper = np.quantile(pairs[pairs <= location + CLIP * scale], (0.25, 0.5, 0.75))
        found = (middle, (upper - lower) / (2 * MEDIAN_TO_QUARTILE))
        if found == (location, scale):
            break
        location, scale = found
    return float(location), float(scale)


def _fit_upper(pairs: Float64[np.ndarray, "pairs"], images: int) -> Null:
    """The normal distribution with the same upper quartile and the same high quantile."""
    quartile, high = np.quantile(pairs, (0.75, HIGH))
    scale = float(high - quartile) / (MEDIAN_TO_HIGH - MEDIAN_TO_QUARTILE)
    return Null(float(quartile) - MEDIAN_TO_QUARTILE * scale, scale, images)


def _mix(own: Null, other: Null) -> Null:
    """By how many images each is worth."""
    images = own.images + other.images
    share = own.images / images
    location, scale = (share * mine + (1 - share) * theirs for mine, theirs in zip(own[:2], other[:2], strict=True))
    return Null(location, scale, images)


def evidence(scores: Float64[np.ndarray, "*shape"], null: Null) -> Float64[np.ndarray, "*shape"]:
    """How far scores stand above those of strangers, in deviations of these."""
    values = np.asarray(scores, np.float64)
    if not np.isfinite(values).all():
        raise SuperfeatError("scores hold values that are not finite numbers; search again")
    return (logarithms(values) - null.location) / null.scale


# -- What photos have in common with just any other of a collection


class Crowd(NamedTuple):
    """How each of some photos scores with just any photo: location and scale of the logarithm."""

    location: Float64[np.ndarray, "n"]
    scale: Float64[np.ndarray, "n"]

    def above(self, scores: Float64[np.ndarray, "n *m"]) -> Float64[np.ndarray, "n *m"]:
        """How far scores of these photos stand above it, in deviations."""
        shape = (-1, *(1,) * (np.ndim(scores) - 1))
        return np.asarray((logarithms(scores) - self.location.reshape(shape)) / self.scale.reshape(shape))


def meet_crowd(scores: Float64[np.ndarray, "n sample"], background: Null) -> Crowd:
    """From the scores of each photo with a sample of a collection, and what is known beforehand.

    Strangers are photos of which no two look alike, so that photos that are all alike, frames on a wall, would stand
    out from them. The lower half of all that there are decides here: what stands out from it stands out from what the
    whole collection has in common, and where things have many photos these are in the upper half.
    """
    values = np.sort(np.asarray(scores, np.float64), axis=1)
    none = (values <= 0).sum(axis=1)  # without a common word: they say nothing
    some = values.shape[1] - none
    lower, middle = (_sorted_quantile(values, none, some, share) for share in (0.25, 0.5))
    own = some / (some + background.images)
    location = own * middle + (1 - own) * background.location
    scale = own * (middle - lower) / MEDIAN_TO_QUARTILE + (1 - own) * background.scale
    return Crowd(location, np.maximum(scale, NARROWEST))


def _sorted_quantile(
    values: Float64[np.ndarray, "n sample"], none: Int64[np.ndarray, "n"], some: Int64[np.ndarray, "n"], share: float
) -> Float64[np.ndarray, "n"]:
    """Of the logarithms of the values after the first `none` of each row, which rise; 0 where there are no more."""
    if not values.shape[1]:
        return np.zeros(len(values))
    place = none + share * np.maximum(some - 1, 0)
    below = np.minimum(np.floor(place).astype(np.int64), values.shape[1] - 1)
    beyond = np.minimum(below + 1, values.shape[1] - 1)
    rows = np.arange(len(values))
    first, second = logarithms(values[rows, below]), logarithms(values[rows, beyond])
    return np.where(some > 0, first + (place - below) * (second - first), 0.0)


def hardly_strangers(null: Null) -> float:
    """The score from which on two photos are hardly strangers."""
    return math.exp(null.location + HARDLY * null.scale)


# -- Of a collection


class Strangers(NamedTuple):
    """Different images of a collection, as an index of their own, how they score with each other, and which share of
    the pairs of images is linked in the sample that they were taken from; and this sample, what is known of strangers
    beforehand, and where just any pair of the sample scores.
    """

    images: Snapshot
    null: Null
    linked: float
    everyone: Snapshot
    background: Null
    usual: float

    @property
    def sample(self) -> int:
        """Images in it."""
        return len(self.everyone)


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
    different, everyone = (Snapshot.in_memory(snapshot.layout, some) for some in ([images[n] for n in kept], images))
    known = background or null
    usual = float(meet_crowd(scores.reshape(1, -1), known).location[0])
    return Strangers(different, null, linked_share(scores, null), everyone, known, usual)
