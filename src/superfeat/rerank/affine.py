"""DELG's and DELF's re-ranking: nearest local features, an affine map by RANSAC, and its inliers.

Random samples are those of numpy's default generator, and the search ends early as scikit-image's does, so that counts
are the same as the released ones, seed by seed.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int64

from superfeat.errors import SuperfeatError
from superfeat.features import Features, Ranking

FEWEST_PAIRS = 4
SAMPLE = 3
EPSILON = float(np.spacing(1.0))
Places = Float[np.ndarray, "n 2"]


class Matching(NamedTuple):
    """When two features are a pair, and how far an inlier may be off."""

    distance: float = 1.0  # a nearest feature further away is none
    ratio: float | None = None  # of the nearest distance to the second, instead of `distance`
    residual: float = 20.0  # pixels of the query
    trials: int = 1000


DELG, D2R = Matching(), Matching(0.9, None, 10.0)


class LocalFeatures(NamedTuple):
    """Places (y, x) in pixels, and vectors of length one."""

    places: Places
    vectors: Float[np.ndarray, "n dim"]


def match(query: LocalFeatures, image: LocalFeatures, rules: Matching = DELG) -> tuple[Places, Places]:
    """Places of pairs: each query feature with its nearest one of the image, if it is near enough."""
    if not len(query.places) or not len(image.places):
        return query.places[:0], image.places[:0]
    products = query.vectors.astype(np.float64) @ image.vectors.astype(np.float64).T
    squares = [np.square(one.vectors.astype(np.float64)).sum(axis=1) for one in (query, image)]
    distances = np.sqrt(np.maximum(squares[0][:, None] + squares[1][None] - 2 * products, 0))
    nearest = distances.argmin(axis=1)
    first = distances[np.arange(len(distances)), nearest]
    if rules.ratio is None:
        kept = first < rules.distance
    elif distances.shape[1] < 2:
        kept = np.zeros(len(first), np.bool_)
    else:
        kept = first < rules.ratio * np.partition(distances, 1, axis=1)[:, 1]
    return query.places[kept], image.places[nearest[kept]]


def count_inliers(query: LocalFeatures, image: LocalFeatures, rules: Matching = DELG, seed: int = 0) -> int:
    """How many pairs the best affine map from the image to the query agrees with; 0 if there are too few pairs."""
    ours, theirs = match(query, image, rules)
    if len(ours) < FEWEST_PAIRS:
        return 0
    return int(find_inliers(theirs, ours, rules, seed).sum())


def find_inliers(source: Places, target: Places, rules: Matching, seed: int = 0) -> Bool[np.ndarray, " n"]:
    """The inliers of the best sample; it is not fitted again."""
    random = np.random.default_rng(seed)
    best, error, needed = np.zeros(len(source), np.bool_), math.inf, float(rules.trials)
    trial = 0
    while trial < rules.trials and trial < needed:
        trial += 1
        sample = random.choice(len(source), SAMPLE, replace=False)
        matrix = _affine(source[sample], target[sample])
        if matrix is None:
            continue
        residuals = _residuals(matrix, source, target)
        inliers, total = residuals < rules.residual, float(residuals @ residuals)
        count, most = int(inliers.sum()), int(best.sum())
        if count > most or (count == most and total < error):
            best, error = inliers, total
            needed = min(needed, _trials(count, len(source)))
    return best


def _trials(inliers: int, every: int) -> float:
    """After so many a better sample is next to impossible."""
    if inliers == 0:
        return math.inf
    chance = (inliers / every) ** SAMPLE
    return 0.0 if chance >= 1 else math.ceil(math.log(EPSILON) / math.log(max(EPSILON, 1 - chance)))


def _affine(source: Places, target: Places) -> Float[np.ndarray, "2 3"] | None:
    """The map through three pairs; None if they lie on a line."""
    corners = np.column_stack([source.astype(np.float64), np.ones(SAMPLE)])
    if np.linalg.matrix_rank(corners) < SAMPLE:
        return None
    return np.linalg.solve(corners, target.astype(np.float64)).T


def _residuals(matrix: Float[np.ndarray, "2 3"], source: Places, target: Places) -> Float[np.ndarray, " n"]:
    moved = source @ matrix[:, :2].T + matrix[:, 2]
    return np.asarray(np.sqrt(np.square(moved - target).sum(axis=1)))


def rerank(
    order: Sequence[int] | Int64[np.ndarray, " n"],
    scores: Float[np.ndarray, " images"] | Mapping[int, float],
    inliers: Mapping[int, int],
    *,
    first: int = 100,
    junk: Sequence[int] = (),
) -> list[int]:
    """Images by (inliers, first score): the `first` that are not junk have been counted, the others have none."""
    every, ignored = [int(image) for image in order], set(junk)
    judged = [image for image in every if image not in ignored]
    counted = {image: inliers.get(image, 0) for image in judged[:first]}
    return sorted(every, key=lambda image: (-counted.get(image, 0), -float(scores[image])))


def local_features(features: Features) -> LocalFeatures:
    """Places in pixels and vectors of features that were extracted with their regions."""
    if features.regions is None or features.image_size is None:
        raise SuperfeatError(
            f"the features of {features.name or 'the query'} do not say where they are; extract them with their regions"
        )
    width, height = features.image_size
    places = np.stack([features.regions[:, 1] * height, features.regions[:, 0] * width], axis=1)
    lengths = np.maximum(np.linalg.norm(features.vectors, axis=1, keepdims=True), 1e-12)
    return LocalFeatures(places.astype(np.float64), features.vectors / lengths)


def rerank_ranking(
    ranking: Ranking,
    query: Features,
    images: Callable[[str], Features],
    *,
    first: int = 100,
    rules: Matching = DELG,
    seed: int = 0,
) -> tuple[Ranking, list[int]]:
    """DELG's second stage: the first images of a ranking by the inliers of their local features, and these counts.

    `images` gives the local features of an image by its name, as a features folder does (`FeatureStore`).
    """
    asked = local_features(query)
    counts = [count_inliers(asked, local_features(images(name)), rules, seed) for name in ranking.names[:first]]
    counts += [0] * (len(ranking) - len(counts))
    order = sorted(range(len(ranking)), key=lambda place: (-counts[place], place))
    names = tuple(ranking.names[place] for place in order)
    return Ranking(names, ranking.scores[order], ranking.ids[order]), [counts[place] for place in order]
