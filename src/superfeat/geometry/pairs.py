"""Pairs of photos that verifiably show the same view, found among photos that are labelled by place."""

import collections
import csv
import dataclasses
import io
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from jaxtyping import Float32

from superfeat.datasets.training_set import TrainingSet
from superfeat.errors import ConfigError, ImageError
from superfeat.geometry.keypoints import KEYPOINTS, KeypointKind, Keypoints, find_keypoints
from superfeat.geometry.verify import LEAST_MATCHES, agreement_between
from superfeat.images import Photo, Skipped, read_image
from superfeat.storage.store import write_file
from superfeat.threads import in_order

# Of 1600 pairs of strangers (a bridge, a town hall) one in 800 has 20 inliers by XFeat and none has 25.
LEAST_INLIERS: dict[KeypointKind, int] = {"sift": 20, "xfeat": 25, "aliked": 25, "disk": 25}
Photograph = TypeVar("Photograph", int, str)
VectorsOf = Callable[[Sequence[Photo]], Float32[np.ndarray, "photos dim"]]  # one unit vector per photo


@dataclasses.dataclass(frozen=True)
class PairRules:
    """What makes a pair of photos verified, and which pairs are looked at."""

    kind: KeypointKind = "sift"
    inliers: int | None = None  # None: what strangers hardly ever reach with this kind, LEAST_INLIERS
    spread: float = 0.04  # share of each photo that the inliers' hull covers: a watermark's is less
    max_side: int = 640
    keypoints: int = KEYPOINTS
    exhaustive: int = 200  # a thing with at most so many photos has all its pairs looked at
    neighbours: int = 30  # of a larger one, each photo with so many that a network finds nearest
    vouchers: int | None = None  # a pair that does not agree counts too where so many photos agree with both

    def __post_init__(self) -> None:
        limits = {"max_side": 64, "keypoints": 16, "exhaustive": 0, "neighbours": 1, "vouchers": 2}
        for name, least in limits.items():
            if getattr(self, name) is not None and getattr(self, name) < least:
                raise ConfigError(f"setting 'pairs.{name}' is {getattr(self, name)}; it must be {least} or more")
        if self.inliers is not None and self.inliers < LEAST_MATCHES:
            raise ConfigError(f"setting 'pairs.inliers' is {self.inliers}; it must be {LEAST_MATCHES} or more")
        if self.kind not in LEAST_INLIERS:
            raise ConfigError(f"setting 'pairs.kind' is {self.kind!r}; it must be {' or '.join(LEAST_INLIERS)}")
        if not 0 <= self.spread < 1:
            raise ConfigError(f"setting 'pairs.spread' is {self.spread}; it must be at least 0 and below 1")


class VerifiedPair(NamedTuple):
    """Two photos by their numbers in the training set, and how many matches agree; or how many others vouch for it."""

    a: int
    b: int
    inliers: int
    vouchers: int = 0


class ThingPairs(NamedTuple):
    """What was found among the photos of one thing."""

    name: str  # of its first photo
    photos: int
    looked_at: int
    pairs: list[VerifiedPair]
    skipped: list[Skipped]


def pairs_from_labels(
    training_set: TrainingSet,
    rules: PairRules = PairRules(),  # noqa: B008 - frozen
    *,
    vectors: VectorsOf | None = None,
    workers: int = 1,
) -> Iterator[ThingPairs]:
    """The verified pairs of each thing with two photos or more, thing by thing.

    `vectors` is asked only for things with more than `rules.exhaustive` photos; without it those are looked at whole.
    """
    for thing in np.unique(training_set.things):
        numbers = np.flatnonzero(training_set.things == thing)
        if len(numbers) > 1:
            yield _pairs_of_thing(training_set.photos, numbers.tolist(), rules, vectors, workers)


def _pairs_of_thing(
    photos: Sequence[Photo],
    own: list[int],
    rules: PairRules,
    vectors: VectorsOf | None,
    workers: int,
) -> ThingPairs:
    skipped: list[Skipped] = []
    found: dict[int, Keypoints] = {}

    def describe(number: int) -> Keypoints | Skipped:
        try:
            pixels = read_image(photos[number].where, max_side=rules.max_side, box=photos[number].box)
        except ImageError as error:
            return Skipped(photos[number].name, str(error))
        return find_keypoints(pixels, rules.kind, rules.keypoints)

    for number, outcome in zip(own, in_order(describe, own, workers), strict=True):
        if isinstance(outcome, Skipped):
            skipped.append(outcome)
        else:
            found[number] = outcome
    candidates = _candidates(photos, list(found), rules, vectors)
    agreements = in_order(lambda pair: agreement_between(found[pair[0]], found[pair[1]]), candidates, workers)
    pairs = [
        VerifiedPair(a, b, agreement.inliers)
        for (a, b), agreement in zip(candidates, agreements, strict=True)
        if agreement.holds(rules.inliers or LEAST_INLIERS[rules.kind], rules.spread)
    ]
    if rules.vouchers is not None:
        joined = vouched_pairs([(pair.a, pair.b) for pair in pairs], rules.vouchers)
        pairs += [VerifiedPair(a, b, 0, vouchers) for (a, b), vouchers in joined.items()]
    return ThingPairs(photos[own[0]].name, len(own), len(candidates), pairs, skipped)


def vouched_pairs(
    pairs: Sequence[tuple[Photograph, Photograph]], least: int
) -> dict[tuple[Photograph, Photograph], int]:
    """Pairs that are not among the given ones, but of which `least` photos or more are paired with both; how many.

    These are what local features fail on and a network is to learn: the same view by day and by night, from afar,
    from further round. A model of the place in three dimensions would join them by the same chain of photos.
    """
    partners: dict[Photograph, set[Photograph]] = {}
    for a, b in pairs:
        partners.setdefault(a, set()).add(b)
        partners.setdefault(b, set()).add(a)
    vouchers = collections.Counter(
        pair for among in partners.values() for pair in itertools.combinations(sorted(among), 2)
    )
    return {(a, b): vouchers[a, b] for a, b in sorted(vouchers) if vouchers[a, b] >= least and b not in partners[a]}


def _candidates(
    photos: Sequence[Photo], numbers: list[int], rules: PairRules, vectors: VectorsOf | None
) -> list[tuple[int, int]]:
    """Which pairs are worth looking at: all, or in a large thing the nearest of each photo."""
    if vectors is None or len(numbers) <= rules.exhaustive:
        return list(itertools.combinations(numbers, 2))
    described = vectors([photos[number] for number in numbers])
    similarity = described @ described.T
    np.fill_diagonal(similarity, -np.inf)
    nearest = np.argsort(-similarity, axis=1, kind="stable")[:, : rules.neighbours]
    rows = {(min(a, b), max(a, b)) for a, near in enumerate(nearest.tolist()) for b in near}
    return [(numbers[a], numbers[b]) for a, b in sorted(rows)]


def write_pairs(path: Path, photos: Sequence[Photo], pairs: Sequence[VerifiedPair]) -> None:
    """A CSV file with the columns query, positive, inliers and vouchers, as `superfeat train --pairs` reads it."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(("query", "positive", "inliers", "vouchers"))
    table.writerows((photos[pair.a].name, photos[pair.b].name, pair.inliers, pair.vouchers) for pair in pairs)
    write_file(path, text.getvalue().encode())
