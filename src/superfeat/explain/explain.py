"""Why a photo was found: its score, taken apart into words, pairs of super-features, matched regions and pixels."""

import dataclasses
import functools
import math
from typing import Literal, NamedTuple, TypedDict

import numpy as np
from jaxtyping import Float64, Int64

from superfeat.config import SearchConfig
from superfeat.errors import SuperfeatError
from superfeat.explain.attribution import (
    Compare,
    PairScores,
    Shares,
    WordScores,
    compare_binary,
    compare_real,
    feature_shares,
    group_pairs,
    pair_scores,
    spread,
    word_scores,
)
from superfeat.features import Features, ImageWords
from superfeat.index.index import Index
from superfeat.index.kernel import power_selectivity
from superfeat.index.snapshot import MOST, Snapshot

MOST_REGIONS = 6
NEAR = 0.15  # how far a pair may lie from a region's seed, as a share of a photo's longer side
STRONGEST = 20  # words and pairs that are written out
Side = Literal["query", "found"]


class Place(NamedTuple):
    """Where a region lies in one photo, as fractions of its width and height: the centroid of its attention, and the
    box (left, top, width, height) that an even spread with the same deviation would fill."""

    x: float
    y: float
    box: tuple[float, float, float, float]


class MatchedRegion(NamedTuple):
    """Pairs of features that are near each other in both photos, and their share of the score."""

    share: float
    query: Place
    found: Place


class PlacedAt(TypedDict):
    """A place for JSON."""

    centroid: list[float]
    box: list[float]


class RegionShare(TypedDict):
    """A matched region for JSON."""

    share: float
    query: PlacedAt
    found: PlacedAt


class WordShare(TypedDict):
    """What a word adds to the score."""

    word: int
    share: float


class FeatureName(TypedDict):
    """Which feature of a photo."""

    feature: int
    id: int
    scale: float


class PairShare(TypedDict):
    """What two features add to the score together."""

    share: float
    query: FeatureName
    found: FeatureName


class AgreementFacts(TypedDict):
    """How much of a score lies as in the query, for JSON."""

    verified: float
    inliers: int
    transform: list[list[float]] | None
    outline: list[list[float]] | None


class ExplanationFacts(TypedDict):
    """An explanation for JSON."""

    query: str
    found: str
    score: float
    shared_words: int
    regions: list[RegionShare]
    rest: float
    words: list[WordShare]
    pairs: list[PairShare]
    agreement: AgreementFacts | None


@dataclasses.dataclass(frozen=True, eq=False)
class Explanation:
    """A score and its parts. `words` and `pairs` each sum to the score; `regions` and `rest` sum to 1.

    `query` and `found` are the features that `pairs` number. `members` is the region of each pair, -1 for the rest.
    A score that is not above zero has no regions.
    """

    score: float
    words: WordScores
    pairs: PairScores
    members: Int64[np.ndarray, "pairs"]
    regions: tuple[MatchedRegion, ...]
    rest: float
    query: Features
    found: Features
    images: tuple[ImageWords, ImageWords] | None = None  # both as the index sees them

    def totals(self, side: Side, region: int | None = None) -> Float64[np.ndarray, "features"]:
        """What each feature of one photo adds to the score (or to that of a region); they sum to it."""
        features = {"query": self.query, "found": self.found}[side]
        chosen = slice(None) if region is None else self.members == region
        numbers: np.ndarray = getattr(self.pairs, side)[chosen]
        return np.bincount(numbers, self.pairs.scores[chosen], len(features)).astype(np.float64)

    def heat(
        self, side: Side, height: int, width: int, region: int | None = None
    ) -> Float64[np.ndarray, "height width"]:
        """What each pixel of one photo, height x width, adds to the score (or to that of a region)."""
        features = {"query": self.query, "found": self.found}[side]
        return spread(features.maps or (), self.totals(side, region), height, width)

    def share(self, score: float) -> float:
        """A part of the score as a fraction of it."""
        return score / self.score if self.score else 0.0

    def as_dict(self) -> ExplanationFacts:
        """Plain JSON-ready values: the score, its regions, its strongest words and pairs."""
        best = np.argsort(-self.words.scores, kind="stable")[:STRONGEST]
        words: list[WordShare] = [
            {"word": int(self.words.words[row]), "share": self.share(float(self.words.scores[row]))} for row in best
        ]
        pairs: list[PairShare] = [
            {
                "share": self.share(float(score)),
                "query": _named(self.query, int(mine)),
                "found": _named(self.found, int(theirs)),
            }
            for mine, theirs, score in zip(*(part[:STRONGEST] for part in self.pairs), strict=True)
        ]
        return {
            "query": self.query.name,
            "found": self.found.name,
            "score": self.score,
            "shared_words": len(self.words.words),
            "regions": [
                {"share": one.share, "query": _as_dict(one.query), "found": _as_dict(one.found)} for one in self.regions
            ],
            "rest": self.rest,
            "words": words,
            "pairs": pairs,
            "agreement": None,
        }


def _as_dict(place: Place) -> PlacedAt:
    return {"centroid": [place.x, place.y], "box": list(place.box)}


def _named(features: Features, number: int) -> FeatureName:
    return {"feature": number, "id": int(features.ids[number]), "scale": round(float(features.scales[number]), 6)}


def explain(
    index: Index, query: Features, name: str, found: Features, *, config: SearchConfig | None = None
) -> Explanation:
    """Takes the score of the indexed image `name` for this query apart.

    `found` are the features of that image, extracted again as they were for the index; both with attention="maps".
    """
    config = config or index.config.search
    if index.snapshot().layout.vectors is not None:
        raise SuperfeatError(
            f"{index.path} holds one vector per photo, so that a score has no parts to show; an index of local "
            "features (FIRe, HOW, DELF) can say why"
        )
    _require_maps(query, "the query")
    _require_maps(found, name)
    snapshot = index.snapshot()
    image = snapshot.find([name]).get(name, -1)
    mine, stored = index.query(query, config.assignments), snapshot.words_of(image)
    if stored is None:
        raise SuperfeatError(f"{index.path} has no image called {name}")
    again = index.query(found, assignments=1)
    if not (np.array_equal(again.words, stored.words) and np.array_equal(again.codes, stored.codes)):
        raise SuperfeatError(
            f"{name} does not look as it did when it was indexed: the photo or the settings have changed since; "
            "bring the index up to date with: superfeat index"
        )
    words = score_words(snapshot, mine, stored, config)
    ours, theirs = _shares(index, query, mine, words.query), _shares(index, found, again, words.found)
    pairs = pair_scores(words.scores, ours, theirs)
    score = snapshot.score_of(image, mine, config)
    assert score is not None
    members, regions, rest = _regions(score, pairs, query, found)
    return Explanation(score, words, pairs, members, regions, rest, query, found, (mine, again))


def score_words(snapshot: Snapshot, query: ImageWords, found: ImageWords, config: SearchConfig) -> WordScores:
    """What each word that two images share adds to the score that a search of this snapshot gives."""
    if snapshot.layout.binary:
        selectivity = power_selectivity(snapshot.layout.dim, config.alpha, config.threshold)
        compare: Compare = functools.partial(compare_binary, selectivity=selectivity)
    else:
        compare = functools.partial(compare_real, alpha=config.alpha, threshold=config.threshold)
    shared = word_scores(query, found, compare, snapshot.weights.words if config.idf else None)
    over = math.fsum(shared.scores) / MOST  # by rounding alone, which a search takes off as well
    return shared._replace(scores=shared.scores / over) if over > 1 else shared


def _require_maps(features: Features, what: str) -> None:
    if features.maps is None or features.regions is None:
        raise SuperfeatError(f"the features of {what} have no attention maps; extract them with attention='maps'")


def _shares(index: Index, features: Features, image: ImageWords, rows: Int64[np.ndarray, "shared"]) -> Shares:
    """The shares of an image's features in those of its words that are in these rows."""
    assert image.assigned is not None
    centroids = index.codebook.centroids
    return feature_shares(features.vectors, image.assigned, centroids, image.words[rows], image.codes[rows])


# -- Regions


def _regions(
    score: float, pairs: PairScores, query: Features, found: Features
) -> tuple[Int64[np.ndarray, "pairs"], tuple[MatchedRegion, ...], float]:
    """The region of each pair, the regions by share, and the share of the pairs that are in none."""
    if not score > 0:
        return np.full(len(pairs.scores), -1, np.int64), (), 1.0 if score else 0.0
    assert query.regions is not None
    assert found.regions is not None
    places = [_in_sides(query)[pairs.query], _in_sides(found)[pairs.found]]
    groups = group_pairs(places[0], places[1], pairs.scores, NEAR, MOST_REGIONS)
    sums = [math.fsum(pairs.scores[groups == group]) for group in range(MOST_REGIONS)]
    order = sorted((group for group in range(MOST_REGIONS) if sums[group] > 0), key=lambda group: -sums[group])
    members = np.full(len(groups), -1, np.int64)
    regions = []
    for number, group in enumerate(order):
        inside = groups == group
        members[inside] = number
        for_it = np.maximum(pairs.scores[inside], 0)
        spots = (
            _locate(query.regions[pairs.query[inside]], for_it),
            _locate(found.regions[pairs.found[inside]], for_it),
        )
        regions.append(MatchedRegion(sums[group] / score, *spots))
    return members, tuple(regions), math.fsum(pairs.scores[members == -1]) / score


def _in_sides(features: Features) -> Float64[np.ndarray, "n 2"]:
    """Centroids in units of the photo's longer side, so that near means the same in all directions."""
    assert features.regions is not None
    size = np.asarray(features.image_size or (1, 1), np.float64)
    return np.asarray(features.regions[:, :2] * (size / size.max()))


def _locate(regions: np.ndarray, weights: Float64[np.ndarray, "n"]) -> Place:
    """Centroid and box of a mixture of attention maps, from their centroids and deviations."""
    centroids, deviations = np.split(regions.astype(np.float64), 2, axis=1)
    centre = np.average(centroids, axis=0, weights=weights)
    variances = np.average(deviations**2 + (centroids - centre) ** 2, axis=0, weights=weights)
    reach = np.sqrt(3 * variances)  # an even spread over 2 a has the deviation a / sqrt(3)
    first, last = np.maximum(centre - reach, 0), np.minimum(centre + reach, 1)
    x, y, left, top, width, height = (float(value) for value in (*centre, *first, *(last - first)))
    return Place(x, y, (left, top, width, height))
