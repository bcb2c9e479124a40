"""Groups of photos of the same thing, and in them the copies of one photo.

Every image is looked for with its stored words. Two images are linked if each finds the other likely enough. Then
groups grow, the likeliest first: two become one if more than a third of the pairs across them are links and every
image is linked with more than a third of the others. So a photo that shows two things cannot tie the photos of both
together: it can come into a group with one of each at most. Copies are grouped first, by the same rule.
"""

import array
import dataclasses
import heapq
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int64

from superfeat.config import VECTOR_KERNELS
from superfeat.errors import SuperfeatError
from superfeat.features import Ranking
from superfeat.index.index import Index
from superfeat.index.snapshot import Snapshot
from superfeat.probability.apply import judge_ranking
from superfeat.probability.model import Calibration
from superfeat.threads import all_cores, in_order

NEIGHBOURS = 100  # images that each image is compared with at most
LEAST_PROBABILITY = 0.6  # in both directions; docs/duplicates.md has what groups that this makes are worth
SURE_LINK = 0.88  # likeness of a link that joins two groups all alone: one weak link joins no two things
# By kernel: of images of the same thing, where there are no probabilities, and of copies (docs/duplicates.md).
LEAST_SIMILARITY = {"binary": 0.03, "real": 0.08, **dict.fromkeys(VECTOR_KERNELS, 0.8)}
COPY_SIMILARITY = {"binary": 0.3, "real": 0.6, **dict.fromkeys(VECTOR_KERNELS, 0.97)}
PAIRS_PER_LINK = 3  # more than one in so many pairs of images must be links
# Two groups that stand by themselves (two things that look alike have many weak links) need fewer, if some are sure.
STANDING, PAIRS_PER_STANDING_LINK, PAIRS_PER_SURE_LINK = 3, 5, 12
LIKENESS_STEPS = 1 << 30  # of likeness: whole numbers add up to the same in any order

Sets = tuple[tuple[int, ...], ...]  # a group: sets of copies, by the images' numbers


class Looked(NamedTuple):
    """How many of the images have been looked for."""

    done: int
    images: int


class Member(NamedTuple):
    """An image of a group."""

    name: str
    id: int
    likeness: float  # with those of the group that it is linked with, on average
    copies: int | None  # the number of the set of copies that it is in; None if it is in none


@dataclasses.dataclass(frozen=True)
class Group:
    """Images of the same thing; copies of one photo follow each other."""

    members: tuple[Member, ...]
    likeness: float  # of all links, on average

    @property
    def kind(self) -> str:
        """`copies` if all are copies of one photo, else `same thing`."""
        return "copies" if {member.copies for member in self.members} == {0} else "same thing"


@dataclasses.dataclass(frozen=True, eq=False)
class Links:
    """Pairs of images, by their numbers in the order of ids."""

    first: Int64[np.ndarray, "n"]
    second: Int64[np.ndarray, "n"]
    likeness: Float64[np.ndarray, "n"]
    similarity: Float64[np.ndarray, "n"]

    def __len__(self) -> int:
        return len(self.first)

    def __getitem__(self, chosen: np.ndarray | slice) -> "Links":
        return Links(self.first[chosen], self.second[chosen], self.likeness[chosen], self.similarity[chosen])


def find_duplicates(
    index: Index,
    calibration: Calibration | None = None,
    *,
    least: float | None = None,
    neighbours: int = NEIGHBOURS,
    workers: int | None = None,
) -> Iterator[Looked | Group]:
    """Yields how far it is, then the groups of two or more images: the largest first, then the likeliest.

    `least` is the probability that a link needs; without a calibration, the similarity (an image has 1 with itself).
    """
    least = least_likeness(index, calibration) if least is None else least
    _require_possible(least, neighbours)
    sure = 0.0 if calibration is None else max(SURE_LINK, least)
    return _find(_Judge(index, calibration, neighbours), least, COPY_SIMILARITY[index.config.kernel], workers, sure)


def find_copies(
    index: Index, *, least: float | None = None, neighbours: int = NEIGHBOURS, workers: int | None = None
) -> Iterator[Looked | Group]:
    """The same for copies alone: files of the same bytes, and nearly the same pictures.

    `least` is the similarity that a copy needs.
    """
    least = COPY_SIMILARITY[index.config.kernel] if least is None else least
    _require_possible(least, neighbours)
    return _find(_Judge(index, None, neighbours), least, least, workers)


def least_likeness(index: Index, calibration: Calibration | None) -> float:
    """What a link needs unless told otherwise: a probability, or a similarity where there is no calibration."""
    return LEAST_SIMILARITY[index.config.kernel] if calibration is None else LEAST_PROBABILITY


def _require_possible(least: float, neighbours: int) -> None:
    if not 0 < least <= 1 or neighbours < 1:
        raise SuperfeatError(f"least is {least} and neighbours {neighbours}; they must be above 0 up to 1, and above 0")


def _find(
    judge: "_Judge", least: float, copies: float, workers: int | None, sure: float = 0.0
) -> Iterator[Looked | Group]:
    ids, neighbours = judge.snapshot.ids(), judge.neighbours
    found, full = yield from _look_for_all(judge, ids, least, workers or all_cores())
    links = with_same_files(mutual_links(found, full), _digests(judge.snapshot), neighbours)
    groups = _describe(group_images(links, copies, neighbours, sure), links, ids, judge.snapshot)
    yield from sorted(groups, key=lambda group: (-len(group.members), -group.likeness, group.members[0].id))


# -- Who is like whom


class _Judge:
    """The images that are most like one, and how likely they show the same thing.

    The score of two sets of stored words is a cosine: the same in both directions, and 1 for an image with itself. So
    without a calibration it serves as it is, and with one it still tells copies.
    """

    def __init__(self, index: Index, calibration: Calibration | None, neighbours: int) -> None:
        self.index = Index.open(index.path)  # of our own: it stays as it is, whatever becomes of the other
        self.snapshot, self.config = self.index.snapshot(), self.index.config.search
        self.calibration, self.neighbours = calibration, neighbours

    def __call__(self, image: int) -> tuple[Ranking, Float64[np.ndarray, "n"]]:
        name = self.snapshot.name_of(image)
        assert name is not None
        top = self.neighbours + 1  # it finds itself as well
        ranking, chances = judge_ranking(self.index, name, self.calibration, top=top, config=self.config, workers=1)
        return ranking, ranking.scores if chances is None else chances


def _look_for_all(
    judge: _Judge, ids: Int64[np.ndarray, "images"], least: float, workers: int
) -> Generator[Looked, None, tuple[Links, Bool[np.ndarray, "images"]]]:
    """What each image finds, and of which images the list was full: they may have found others, had it been longer."""
    first, second, likeness, similarity = array.array("q"), array.array("q"), array.array("d"), array.array("d")
    full = np.zeros(len(ids), np.bool_)
    for number, (ranking, chances) in enumerate(in_order(judge, ids.tolist(), workers)):
        wanted = np.flatnonzero((chances >= least) & (ranking.ids != ids[number]))[: judge.neighbours]
        full[number] = len(wanted) == judge.neighbours
        first.extend([number] * len(wanted))
        second.extend(np.searchsorted(ids, ranking.ids[wanted]).tolist())
        likeness.extend(chances[wanted].tolist())
        similarity.extend(ranking.scores[wanted].tolist())
        yield Looked(number + 1, len(ids))
    numbers = (np.frombuffer(values, np.int64) for values in (first, second))
    shares = (np.frombuffer(values, np.float64) for values in (likeness, similarity))
    return Links(*numbers, *shares), full


def mutual_links(found: Links, full: Bool[np.ndarray, "images"]) -> Links:
    """The pairs in which each finds the other, with the lesser likeness; one whose list was full is not asked."""
    low, high = np.minimum(found.first, found.second), np.maximum(found.first, found.second)
    order = np.lexsort((found.first, high, low))
    low, high, found = low[order], high[order], found[order]
    again = np.concatenate([[False], (low[1:] == low[:-1]) & (high[1:] == high[:-1])])[: len(found)]
    both = np.concatenate([again[1:], [False]])[: len(found)]  # the other direction is the next row
    kept = both | (~again & full[found.second])
    other = np.where(both, np.arange(len(found)) + 1, np.arange(len(found)))
    return Links(
        low,
        high,
        np.minimum(found.likeness, found.likeness[other]),
        np.minimum(found.similarity, found.similarity[other]),
    )[kept]


def _digests(snapshot: Snapshot) -> list[str | None]:
    """Of the files of all images, where they were noted."""
    found = (image.meta.get("digest") for _, image in snapshot.images())
    return [digest if isinstance(digest, str) else None for digest in found]


def with_same_files(links: Links, digests: Sequence[str | None], neighbours: int) -> Links:
    """With a certain link between images whose files have the same bytes, each with `neighbours` before it at most."""
    seen: dict[str, list[int]] = {}
    pairs: list[tuple[int, int]] = []
    for number, digest in enumerate(digests):
        if digest is not None:
            before = seen.setdefault(digest, [])
            pairs += [(other, number) for other in before[-neighbours:]]
            before.append(number)
    if not pairs:
        return links
    same = np.asarray(pairs, np.int64)
    first, second = (np.concatenate([same[:, end], known]) for end, known in ((0, links.first), (1, links.second)))
    sure = np.ones(len(same))
    likeness, similarity = (np.concatenate([sure, known]) for known in (links.likeness, links.similarity))
    _, kept = np.unique(np.stack([first, second]), axis=1, return_index=True)  # of two equal pairs the first
    return Links(first, second, likeness, similarity)[kept]


# -- Links -> groups


def group_images(links: Links, copies: float, neighbours: int = NEIGHBOURS, sure: float = 0.0) -> Iterator[Sets]:
    """The groups of two or more images that the links make, in no order; links of the similarity `copies` are those."""
    for part in _components(links):
        images = np.unique(np.concatenate([part.first, part.second])).tolist()
        singles = [(image,) for image in images]
        alike = join_groups(singles, part[part.similarity >= copies], neighbours)
        photos = [_flatten(singles[number] for number in joined) for joined in alike]
        for joined in join_groups(photos, part, neighbours, sure):
            sets = tuple(sorted(photos[number] for number in joined))
            if len(_flatten(sets)) > 1:
                yield sets


def _flatten(sets: Iterable[Sequence[int]]) -> tuple[int, ...]:
    return tuple(sorted(image for some in sets for image in some))


def _components(links: Links) -> Iterator[Links]:
    """Links that hang together: what is in different ones cannot come into one group."""
    labels = np.arange(int(links.second.max(initial=-1)) + 1)
    while True:
        lowest = np.minimum(labels[links.first], labels[links.second])
        before = labels.copy()
        np.minimum.at(labels, links.first, lowest)
        np.minimum.at(labels, links.second, lowest)
        labels = labels[labels]  # a label is an image of the same component: its label is at least as low
        if (labels == before).all():
            break
    owners = labels[links.first]
    order = np.argsort(owners, kind="stable")
    ends = np.flatnonzero(np.diff(owners[order])) + 1
    for part in np.split(order, ends) if len(order) else []:
        yield links[part]


def join_groups(
    groups: Sequence[Sequence[int]], links: Links, neighbours: int = NEIGHBOURS, sure: float = 0.0
) -> list[list[int]]:
    """Which of the groups become one: again and again the two of the greatest mean likeness that may be joined.

    Pairs without a link count as 0. Equal ones are joined in the order of their first images. Where there could be
    several links and is one, it must have the likeness `sure`, and so must some between groups that stand by
    themselves.
    """
    joining = _Joining(groups, links, neighbours, sure)
    waiting = [joining.rank(one, other) for one, others in enumerate(joining.across) for other in others if one < other]
    heapq.heapify(waiting)
    while waiting:
        *_, one, other = heapq.heappop(waiting)
        if joining.may_join(one, other):
            new = joining.join(one, other)
            for third in joining.across[new]:
                heapq.heappush(waiting, joining.rank(new, third))
    return [part for part, some in zip(joining.parts, joining.members, strict=True) if some]


class _Across(NamedTuple):
    """Between two groups: how many links, the sum of their likeness in steps, and how many of them are sure."""

    links: int
    total: int
    sure: int

    def __add__(self, other: object) -> "_Across":
        assert isinstance(other, _Across)
        return _Across(self.links + other.links, self.total + other.total, self.sure + other.sure)


NOTHING_ACROSS = _Across(0, 0, 0)


class _Joining:
    """Groups that grow. Two that are joined get a new number, so that what waits with their old ones is out of date."""

    def __init__(self, groups: Sequence[Sequence[int]], links: Links, neighbours: int, sure: float) -> None:
        self.neighbours, self.sure = neighbours, round(sure * LIKENESS_STEPS)
        self.members = [sorted(group) for group in groups]
        self.parts = [[number] for number in range(len(groups))]
        self.across: list[dict[int, _Across]] = [{} for _ in groups]
        self._owners = {image: number for number, some in enumerate(groups) for image in some}
        self._linked: dict[int, list[int]] = {image: [] for image in self._owners}
        self._inside = dict.fromkeys(self._owners, 0)  # how many of its own group an image is linked with
        steps = np.rint(links.likeness * LIKENESS_STEPS).astype(np.int64).tolist()
        for first, second, weight in zip(links.first.tolist(), links.second.tolist(), steps, strict=True):
            self._linked[first].append(second)
            self._linked[second].append(first)
            one, other = self._owners[first], self._owners[second]
            if one == other:
                self._inside[first] += 1
                self._inside[second] += 1
            else:
                both = self.across[one].get(other, NOTHING_ACROSS) + _Across(1, weight, int(weight >= self.sure))
                self.across[one][other] = self.across[other][one] = both

    def rank(self, one: int, other: int) -> tuple[float, int, int, int, int]:
        """The order in which pairs of groups are looked at: likeliest first."""
        if self.members[other][0] < self.members[one][0]:
            one, other = other, one
        pairs = len(self.members[one]) * len(self.members[other])
        return -self.across[one][other].total / pairs, self.members[one][0], self.members[other][0], one, other

    def may_join(self, one: int, other: int) -> bool:
        """Whether both are there, enough pairs across are links, and every image has enough links then."""
        sizes = len(self.members[one]), len(self.members[other])
        if min(sizes) == 0:
            return False
        possible = min(sizes[0] * sizes[1], self.neighbours * min(sizes))  # a list holds no more than `neighbours`
        across = self.across[one][other]
        standing = self.sure > 0 and min(sizes) >= STANDING
        per_link = PAIRS_PER_STANDING_LINK if standing else PAIRS_PER_LINK
        if per_link * across.links <= possible or (possible > across.links == 1 and not across.sure):
            return False
        if standing and PAIRS_PER_SURE_LINK * across.sure <= possible:
            return False
        counts = self._count_across(one, other)
        needed = min(sum(sizes) - 1, self.neighbours)
        images = (image for group in (one, other) for image in self.members[group])
        return all(per_link * (self._inside[image] + counts.get(image, 0)) > needed for image in images)

    def _count_across(self, one: int, other: int) -> dict[int, int]:
        """For each image of both groups that has any, its links with the other group."""
        if len(self.members[other]) < len(self.members[one]):
            one, other = other, one
        counts: dict[int, int] = {}
        for image in self.members[one]:
            for found in self._linked[image]:
                if self._owners[found] == other:
                    counts[image] = counts.get(image, 0) + 1
                    counts[found] = counts.get(found, 0) + 1
        return counts

    def join(self, one: int, other: int) -> int:
        """Makes one group of two, and returns its number."""
        new = len(self.members)
        for image, count in self._count_across(one, other).items():
            self._inside[image] += count
        merged: dict[int, _Across] = {}
        for old in (one, other):
            self._owners.update(dict.fromkeys(self.members[old], new))
            for third, between in self.across[old].items():
                if third not in (one, other):
                    merged[third] = merged.get(third, NOTHING_ACROSS) + between
                    del self.across[third][old]
        for third, between in merged.items():
            self.across[third][new] = between
        self.members.append(sorted(self.members[one] + self.members[other]))
        self.parts.append(sorted(self.parts[one] + self.parts[other]))
        self.across.append(merged)
        for old in (one, other):
            self.members[old], self.across[old] = [], {}
        return new


# -- Groups for people


def _describe(
    groups: Iterable[Sets], links: Links, ids: Int64[np.ndarray, "images"], snapshot: Snapshot
) -> Iterator[Group]:
    groups = list(groups)
    owners = np.full(len(ids), -1)
    for number, sets in enumerate(groups):
        owners[list(_flatten(sets))] = number
    inside = links[(owners[links.first] >= 0) & (owners[links.first] == owners[links.second])]
    totals, counts = np.zeros(len(ids)), np.zeros(len(ids))
    for ends in (inside.first, inside.second):
        totals += np.bincount(ends, inside.likeness, len(ids))
        counts += np.bincount(ends, minlength=len(ids))
    for sets in groups:
        images = [image for some in sets for image in some]
        numbers = iter(range(len(sets)))
        copies = [number for some in sets for number in [next(numbers) if len(some) > 1 else None] * len(some)]
        names = snapshot.names(ids[images])
        likeness = (totals[images] / np.maximum(counts[images], 1)).tolist()
        rows = zip(names, ids[images].tolist(), likeness, copies, strict=True)
        mean = float(totals[images].sum() / max(1, counts[images].sum()))
        yield Group(tuple(Member(*row) for row in rows), mean)
