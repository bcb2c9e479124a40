"""Groups of images against a slow twin that looks at every pair again and again; no order matters, nothing chains."""

import itertools
import math
from collections.abc import Container, Sequence
from fractions import Fraction
from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from superfeat.duplicates.find import LIKENESS_STEPS, PAIRS_PER_LINK, Links, Sets, group_images, mutual_links

MODEST = settings(deadline=None, max_examples=150)
Pair = tuple[int, int]
COPIES = 0.9  # the similarity of copies

# Few different values, so that there are many ties.
VALUES = st.sampled_from([0.25, 0.5, 0.75, 0.9, 1.0])


@st.composite
def graphs(draw: st.DrawFn, most: int = 12) -> dict[Pair, tuple[float, float]]:
    """Pairs of up to `most` images with their likeness and similarity, sparse or dense."""
    images = draw(st.integers(2, most))
    share = draw(st.sampled_from([0.2, 0.5, 0.9]))
    seed = draw(st.integers(0, 2**32 - 1))
    random = np.random.default_rng(seed)
    values = (0.25, 0.5, 0.75, 0.9, 1.0)
    return {
        pair: (float(random.choice(values)), float(random.choice(values)))
        for pair in itertools.combinations(range(images), 2)
        if random.random() < share
    }


def as_links(pairs: dict[Pair, tuple[float, float]], order: Sequence[int] | None = None) -> Links:
    rows = [(first, second, *values) for (first, second), values in pairs.items()]
    rows = rows if order is None else [rows[number] for number in order]
    first, second, likeness, similarity = zip(*rows, strict=True) if rows else ((), (), (), ())
    return Links(
        np.asarray(first, np.int64),
        np.asarray(second, np.int64),
        np.asarray(likeness, np.float64),
        np.asarray(similarity, np.float64),
    )


def groups_of(pairs: dict[Pair, tuple[float, float]], neighbours: int = 100) -> list[Sets]:
    return sorted(group_images(as_links(pairs), COPIES, neighbours))


# -- The slow twin


def all_linked(group: Sequence[int], weights: Container[Pair], neighbours: int) -> bool:
    """Whether each image is linked with more than a third of the others, or of those that its list can hold."""
    needed = min(len(group) - 1, neighbours)
    counts = [sum((min(a, b), max(a, b)) in weights for b in group if b != a) for a in group]
    return all(PAIRS_PER_LINK * count > needed for count in counts)


def joined(groups: list[list[int]], weights: dict[Pair, float], neighbours: int) -> list[list[int]]:
    """Again and again all pairs of groups are looked at, and the best one that has enough links is joined."""
    groups = [sorted(group) for group in groups]
    while True:
        best = None
        for one, other in itertools.combinations(sorted(groups), 2):
            pairs = [weights.get((min(a, b), max(a, b))) for a in one for b in other]
            links = [round(weight * LIKENESS_STEPS) for weight in pairs if weight is not None]
            possible = min(len(pairs), neighbours * min(len(one), len(other)))
            if PAIRS_PER_LINK * len(links) > possible and all_linked(one + other, weights, neighbours):
                rank = (-Fraction(sum(links), len(pairs)), one[0], other[0])
                if best is None or rank < best[0]:
                    best = rank, one, other
        if best is None:
            return groups
        _, one, other = best
        groups = [group for group in groups if group not in (one, other)] + [sorted(one + other)]


def slow_groups(pairs: dict[Pair, tuple[float, float]], neighbours: int) -> list[Sets]:
    images = sorted({image for pair in pairs for image in pair})
    alike = {pair: likeness for pair, (likeness, similarity) in pairs.items() if similarity >= COPIES}
    copies = joined([[image] for image in images], alike, neighbours)
    things = joined(copies, {pair: likeness for pair, (likeness, _) in pairs.items()}, neighbours)
    found = [tuple(sorted(tuple(some) for some in copies if set(some) <= set(thing))) for thing in things]
    return sorted(sets for sets in found if sum(map(len, sets)) > 1)


@MODEST
@given(graphs(), st.sampled_from([1, 2, 3, 100]))
def test_groups_are_those_of_the_slow_twin(pairs: dict[Pair, tuple[float, float]], neighbours: int) -> None:
    assert groups_of(pairs, neighbours) == slow_groups(pairs, neighbours)


@MODEST
@given(graphs(), st.randoms(use_true_random=False))
def test_the_order_of_links_does_not_matter(pairs: dict[Pair, tuple[float, float]], random: Random) -> None:
    order = list(range(len(pairs)))
    random.shuffle(order)
    assert sorted(group_images(as_links(pairs, order), COPIES)) == groups_of(pairs)


@MODEST
@given(graphs(most=9), st.randoms(use_true_random=False))
def test_the_order_of_images_does_not_matter_without_ties(
    pairs: dict[Pair, tuple[float, float]], random: Random
) -> None:
    """Other numbers for the same images: the same groups, if no two means of likenesses are equal."""
    primes = [number for number in range(2, 200) if all(number % factor for factor in range(2, number))]
    apart = [1e-3 * math.sqrt(prime) for prime in primes]  # no sum of some is a multiple of a sum of others
    rows = zip(pairs.items(), apart, strict=False)
    distinct = {pair: (likeness + offset, 0.0) for (pair, (likeness, _)), offset in rows}
    numbers = list(range(9))
    random.shuffle(numbers)
    renamed = {}
    for (first, second), values in distinct.items():
        low, high = sorted((numbers[first], numbers[second]))
        renamed[low, high] = values
    images = {number: image for image, number in enumerate(numbers)}
    found = [sorted(images[number] for some in sets for number in some) for sets in groups_of(renamed)]
    assert sorted(found) == sorted(sorted(image for some in sets for image in some) for sets in groups_of(distinct))


@MODEST
@given(graphs(most=16), st.sampled_from([2, 100]))
def test_every_image_is_linked_with_more_than_a_third(pairs: dict[Pair, tuple[float, float]], neighbours: int) -> None:
    seen: set[int] = set()
    for sets in groups_of(pairs, neighbours):
        images = [image for some in sets for image in some]
        assert len(images) > 1
        assert not seen & set(images)
        seen |= set(images)
        assert all_linked(images, pairs, neighbours)
        for copies in sets:
            alike = {pair for pair, (_, similarity) in pairs.items() if similarity >= COPIES}
            assert len(copies) == 1 or all_linked(copies, alike, neighbours)


@MODEST
@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 2**32 - 1), st.floats(0, 1))
def test_one_photo_of_two_things_does_not_tie_them_together(one: int, other: int, seed: int, similarity: float) -> None:
    """All photos of each thing are linked with each other and with the one that shows both, more or less strongly."""
    random = np.random.default_rng(seed)
    both, first, second = 0, range(1, 1 + one), range(1 + one, 1 + one + other)
    inside = [pair for thing in (first, second) for pair in itertools.combinations(thing, 2)]
    pairs = [*inside, *((both, image) for image in (*first, *second))]
    links = {pair: (float(random.uniform(0.5, 1)), similarity) for pair in pairs}
    for sets in groups_of(links):
        images = {image for some in sets for image in some}
        if one > 1 or other > 1:  # of two photos and the one that shows both nobody can tell
            assert not (images & set(first) and images & set(second))


def test_a_chain_breaks() -> None:
    """Each photo is like the next alone, as along a street: no group has more than three."""
    pairs = {(image, image + 1): (0.9, 0.0) for image in range(30)}
    assert max(len(sets) for sets in groups_of(pairs)) <= 3


@st.composite
def findings(draw: st.DrawFn) -> tuple[dict[Pair, tuple[float, float]], list[bool]]:
    """What each image finds, one direction at a time, and whose list was full."""
    images = draw(st.integers(1, 6))
    both = [(first, second) for first in range(images) for second in range(images) if first != second]
    chosen = draw(st.lists(st.sampled_from(both), unique=True)) if both else []
    found = {pair: (draw(VALUES), draw(VALUES)) for pair in chosen}
    return found, draw(st.lists(st.booleans(), min_size=images, max_size=images))


@MODEST
@given(findings())
def test_both_must_agree_unless_one_cannot_say(case: tuple[dict[Pair, tuple[float, float]], list[bool]]) -> None:
    found, full = case
    expected = {}
    for first, second in itertools.combinations(range(len(full)), 2):
        there, back = found.get((first, second)), found.get((second, first))
        if there and back:
            expected[first, second] = (min(there[0], back[0]), min(there[1], back[1]))
        elif (there and full[second]) or (back and full[first]):
            expected[first, second] = there or back or (0.0, 0.0)
    links = mutual_links(as_links(found), np.asarray(full, np.bool_))
    rows = zip(links.first.tolist(), links.second.tolist(), links.likeness, links.similarity, strict=True)
    assert [((first, second), values) for first, second, *values in rows] == [
        (pair, list(values)) for pair, values in sorted(expected.items())
    ]
