"""Which part of a score is borne out by where its words lie: from what an index stores, no photo is read again."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int64

from superfeat.config import SearchConfig
from superfeat.explain.explain import score_words
from superfeat.features import Features, ImageWords
from superfeat.index.places import Region, decode_places, enclose, encode_places, word_regions
from superfeat.index.snapshot import Snapshot
from superfeat.rerank.verify import CERTAIN, Correspondences, Rules, find_agreements
from superfeat.threads import run_all

Transform = tuple[tuple[float, float, float], tuple[float, float, float]]
Outline = tuple[tuple[float, float], ...]  # corners, as fractions of width and height
WHOLE: Region = (0.0, 0.0, 1.0, 1.0)  # a box that is no box
PHOTOS_AT_ONCE = 16  # that one thread looks at in turn
LEAST_LOCATED, LEAST_LOCATED_INLIERS = 0.1, 6  # from which on the verified part alone says where a match lies
INLIER = 0.5  # a word that agrees by half or more is an inlier


@dataclasses.dataclass(frozen=True, eq=False)
class PlacedWords:
    """An image's words, and where they lie: centre and spread as fractions of its width and height."""

    image: ImageWords
    places: Float64[np.ndarray, "m 4"]
    size: tuple[float, float]  # width and height, in any unit

    @property
    def sides(self) -> Float64[np.ndarray, "4"]:
        """Width and height in units of the longer one, twice: for centre and spread."""
        width, height = self.size
        return np.asarray([width, height, width, height], np.float64) / max(width, height)


def place_features(image: ImageWords, features: Features) -> PlacedWords | None:
    """The words of a photo that has just been looked at; None if its features do not say where they are."""
    if features.regions is None or image.assigned is None:
        return None
    each = np.repeat(features.regions, image.assigned.shape[1], axis=0)
    noted = encode_places(word_regions(each, image.assigned.ravel(), image.words))
    places = decode_places(noted, len(image))  # as precise as an index: one photo has one answer
    assert places is not None
    return PlacedWords(image, places, features.image_size or (1, 1))


def place_stored(image: ImageWords, meta: Mapping[str, Any]) -> PlacedWords | None:
    """The words of an indexed photo; None if nothing is noted of where they are."""
    places = decode_places(meta.get("places"), len(image))
    if places is None:
        return None
    width, height = meta.get("size") or (1, 1)
    return PlacedWords(image, places, (width, height))


class Verification(NamedTuple):
    """What the places of shared words say of a result.

    `verified` is the share of the score whose words agree with `transform`, beyond what would agree by chance: the
    sum of `shares` x `weights` in the score. `rows` are the rows of the shared words in the found photo.
    """

    verified: float  # 0 to 1
    agreement: float  # -inf to 1: how much more agrees than by chance; what results are re-ranked by
    inliers: int
    transform: Transform | None  # from fractions of the query to fractions of the found photo
    rows: Int64[np.ndarray, "shared"]
    shares: Float64[np.ndarray, "shared"]
    weights: Float64[np.ndarray, "shared"]
    asked: Int64[np.ndarray, "shared"]  # their rows in the query


class Arrangement(NamedTuple):
    """Where the words that two photos share lie in both, which of them agree, and where the query's outline is then."""

    verified: float
    inliers: int
    transform: Transform | None
    outline: Outline | None
    query: Float64[np.ndarray, "shared 2"]
    found: Float64[np.ndarray, "shared 2"]
    shares: Float64[np.ndarray, "shared"]
    agreed: Bool[np.ndarray, "shared"]

    @classmethod
    def of(cls, query: PlacedWords, photo: PlacedWords, one: Verification, box: Region = WHOLE) -> "Arrangement":
        """Of a verified photo; `box` is the part of the query that was asked with."""
        outline = None if one.transform is None else outline_of(one.transform, box)
        agreed = (one.weights > 0) & (one.weights >= INLIER * one.weights.max(initial=0))
        places = query.places[one.asked, :2], photo.places[one.rows, :2]
        return cls(one.verified, one.inliers, one.transform, outline, *places, one.shares, agreed)


def verify_photos(
    snapshot: Snapshot,
    query: PlacedWords,
    photos: Sequence[PlacedWords],
    config: SearchConfig,
    *,
    rules: Rules = Rules(),  # noqa: B008 - immutable
    workers: int = 1,
    turned: bool = False,
) -> list[Verification]:
    """Each photo is verified by itself, so their number, order and the number of threads change nothing.

    With `turned` the query is also tried in the other three quarter turns; what agrees most is taken.
    """
    found = _verify_all(snapshot, query, photos, config, rules, workers)
    for turns in (1, 2, 3) if turned else ():
        others = _verify_all(snapshot, turn(query, turns), photos, config, rules, workers)
        found = [
            one if one.agreement >= other.agreement else other._replace(transform=_after_turns(other.transform, turns))
            for one, other in zip(found, others, strict=True)
        ]
    return found


def turn(image: PlacedWords, turns: int) -> PlacedWords:
    """The same words as if the photo were turned clockwise by so many quarters."""
    places, (width, height) = image.places, image.size
    for _ in range(turns):
        places = np.column_stack([1 - places[:, 1], places[:, 0], places[:, 3], places[:, 2]])
        width, height = height, width
    return PlacedWords(image.image, places, (width, height))


def _after_turns(transform: Transform | None, turns: int) -> Transform | None:
    """From the query as it is: what a transform does to the query turned by so many quarters."""
    if transform is None:
        return None
    for _ in range(turns):
        (a, b, x), (c, d, y) = transform
        transform = (b, -a, a + x), (d, -c, c + y)
    return transform


def _verify_all(
    snapshot: Snapshot,
    query: PlacedWords,
    photos: Sequence[PlacedWords],
    config: SearchConfig,
    rules: Rules,
    workers: int,
) -> list[Verification]:
    parts = [photos[first : first + PHOTOS_AT_ONCE] for first in range(0, len(photos), PHOTOS_AT_ONCE)]
    done: list[list[Verification]] = [[] for _ in parts]

    def work(part: int) -> None:
        done[part] = _verify_part(snapshot, query, parts[part], config, rules)

    run_all(work, list(range(len(parts))), workers)
    return [one for part in done for one in part]


def _verify_part(
    snapshot: Snapshot, query: PlacedWords, photos: Sequence[PlacedWords], config: SearchConfig, rules: Rules
) -> list[Verification]:
    shared = [score_words(snapshot, query.image, photo.image, config) for photo in photos]
    starts = np.cumsum([0, *(len(one.scores) for one in shared)], dtype=np.int64)
    mine = [query.places[one.query] * query.sides for one in shared]
    theirs = [photo.places[one.found] * photo.sides for photo, one in zip(photos, shared, strict=True)]
    shares = np.concatenate([np.empty(0), *(one.scores for one in shared)])
    empty = np.empty((0, 4))
    matches = Correspondences(starts, shares, np.concatenate([empty, *mine]), np.concatenate([empty, *theirs]))
    agreed = find_agreements(matches, rules)
    return [
        _judge(
            (one.query, one.found),
            one.scores,
            agreed.weights[starts[place] : starts[place + 1]],
            float(agreed.chances[place]),
            _in_fractions(agreed.transforms[place], query.sides[:2], photo.sides[:2]),
        )
        for place, (one, photo) in enumerate(zip(shared, photos, strict=True))
    ]


def _judge(
    rows: tuple[Int64[np.ndarray, "shared"], Int64[np.ndarray, "shared"]],
    shares: Float64[np.ndarray, "shared"],
    weights: Float64[np.ndarray, "shared"],
    chance: float,
    transform: Transform | None,
) -> Verification:
    """Takes off what agrees anyway: by chance, and because the transform was made of it."""
    asked, found = rows
    votes = np.maximum(shares, 0)
    whole = math.fsum(votes)
    if transform is None or not whole > 0:
        return Verification(0.0, 0.0, 0, None, found, shares, np.zeros(len(shares)), asked)
    agreed = min(1.0, math.fsum(votes * weights) / whole)
    anyway = min(1.0, chance + math.fsum(np.sort(votes)[-CERTAIN:]) / whole)
    verified = max(0.0, (agreed - anyway) / (1 - anyway)) if anyway < 1 else 0.0
    excess = (agreed - chance) / (1 - chance) if chance < 1 else 0.0
    inliers = int(np.count_nonzero((weights >= INLIER) & (votes > 0)))
    return Verification(verified, excess, inliers, transform, found, shares, weights * (verified / agreed), asked)


def outline_of(transform: Transform, box: Region = WHOLE) -> Outline:
    """Where the corners of the query, or of a box in it, lie in the found photo; they may lie outside of it."""
    (a, b, x), (c, d, y) = transform
    left, top, width, height = box
    corners = ((left, top), (left + width, top), (left + width, top + height), (left, top + height))
    return tuple((a * u + b * v + x, c * u + d * v + y) for u, v in corners)


def locate_match(photo: PlacedWords, found: Verification) -> Region | None:
    """The box of what is verified; of all that is shared, where little is."""
    verified = found.verified >= LEAST_LOCATED and found.inliers >= LEAST_LOCATED_INLIERS
    return enclose(photo.places[found.rows], found.shares * found.weights if verified else found.shares)


def _in_fractions(
    transform: Float64[np.ndarray, "2 3"], query: Float64[np.ndarray, "2"], found: Float64[np.ndarray, "2"]
) -> Transform | None:
    """From units of the longer sides to fractions of widths and heights."""
    if not transform.any():
        return None
    (a, b, x), (c, d, y) = (transform * np.append(query, 1.0) / found[:, None]).tolist()
    return (a, b, x), (c, d, y)
