"""What the index is searched with, and what a second look at the first results makes of them."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from superfeat.config import SearchConfig
from superfeat.errors import SuperfeatError
from superfeat.features import Features, Hit, ImageWords
from superfeat.found.photos import PhotoLike
from superfeat.index.entries import IndexedImage
from superfeat.index.index import Index
from superfeat.index.partial import MissingPart
from superfeat.index.places import Region, mass_inside, require_region
from superfeat.index.snapshot import Snapshot
from superfeat.probability.apply import judged_together
from superfeat.probability.clues import NEAREST
from superfeat.rerank.geometry import PlacedWords
from superfeat.rerank.look import (
    Reordered,
    SearchedWith,
    SeenPhoto,
    changes,
    look_again,
    reorder_by_diffusion,
    reorder_by_geometry,
    widened,
)
from superfeat.rerank.order import COMPARED, FIRST, Rerank
from superfeat.threads import all_cores

LEAST_MASS = 0.5  # of a feature's attention inside a box: it belongs to the box


class Asked(NamedTuple):
    """What the index is searched with, how much of which photo that is, and which image of the index that is."""

    photo: PhotoLike | Features
    words: ImageWords
    features: int
    size: tuple[int, int] | None
    box: Region | None
    itself: IndexedImage | None
    config: SearchConfig
    placed: PlacedWords | None = None  # the words and where they lie; None if nobody knows
    missing: frozenset[MissingPart] = frozenset()  # parts of the index that could not be asked whether it is theirs


class SecondLook(NamedTuple):
    """The first results as they were seen at the second look, perhaps more than were asked for, and those with the
    highest scores, among so many images; and what it changed.
    """

    searched: SearchedWith
    seen: list[SeenPhoto]
    nearest: list[Hit]
    images: int
    reordered: Reordered | None


def second_look(
    index: Index,
    asked: Asked,
    top: int,
    only: Iterable[str] | None,
    rerank: Rerank,
    workers: int | None,
    floor: float | None,
    turned: bool = False,
) -> SecondLook:
    """Searches, verifies the first results, and orders them as it is asked for.

    `floor` is the similarity above which two photos are hardly strangers; without it nothing is diffused.
    `turned` tries quarter turns too.
    """
    snapshot = index.snapshot()
    names = None if only is None else list(dict.fromkeys(only))
    masks = None if names is None else snapshot.masks(_ids(index, snapshot, names))
    without = None if asked.itself is None else asked.itself.id
    searched = SearchedWith(
        snapshot, asked.words, asked.placed, asked.config, masks, without, workers or all_cores(), turned
    )
    idle = rerank == "off" or (rerank == "diffuse" and floor is None)
    first = top if idle else max(top, COMPARED if rerank == "diffuse" else FIRST)
    found, used = _search(searched, asked.words, max(first, NEAREST)), 0
    hits, nearest = found[:first], found[:NEAREST]
    if rerank == "diffuse" and floor is not None:
        ordered, used = reorder_by_diffusion(searched, hits, floor), min(len(hits), COMPARED)
        after = _look(index, searched, ordered[: judged_together(top)])
    else:
        after = _look(index, searched, hits)
    if rerank == "geometry":
        after, used = reorder_by_geometry(after), sum(one.verification is not None for one in after[:FIRST])
    elif rerank == "expand":
        after, used = _expand(index, searched, after, first)
    reordered = None if rerank == "off" else changes(rerank, hits, after, top, used)
    return SecondLook(searched, after, nearest, len(index) if names is None else len(names), reordered)


def _ids(index: Index, snapshot: Snapshot, names: Sequence[str]) -> list[int]:
    found = snapshot.find(names)
    return [found[name] if name in found else index.id(name) for name in names]  # which says that there is none


def _search(searched: SearchedWith, words: ImageWords, top: int) -> list[Hit]:
    """The `top` images, without the query itself."""
    ranking = searched.snapshot.search(
        words,
        searched.config,
        top=top + (searched.without is not None),
        only=searched.only,
        workers=searched.workers,
    )
    return [hit for hit in ranking if hit.id != searched.without][:top]


def _look(index: Index, searched: SearchedWith, hits: Sequence[Hit]) -> list[SeenPhoto]:
    return look_again(searched, hits, index.meta([hit.name for hit in hits[:FIRST]]))


def _expand(index: Index, searched: SearchedWith, seen: list[SeenPhoto], first: int) -> tuple[list[SeenPhoto], int]:
    """The results of a search with the wider query; their scores are those of the query that was asked with."""
    wider = widened(searched, seen)
    if wider is None:
        return seen, 0
    found = wider.ordered(_search(searched, wider.words, first))
    only = searched.snapshot.masks([hit.id for hit in found])
    own = {hit.id: hit for hit in searched.snapshot.search(searched.words, searched.config, only=only)}
    return _look(index, searched, [own[hit.id] for hit in found]), len(wider.voters)


def region_of(box: Iterable[float]) -> Region:
    """A box as fractions, checked."""
    try:
        return require_region(box)
    except ValueError as error:
        raise SuperfeatError(str(error)) from error


def within(features: Features, box: Region) -> Features:
    """The features whose attention lies in the box, by more than half. SuperfeatError if there is none."""
    if features.maps is None:
        raise SuperfeatError("to search by a box the features need their attention maps: extract with attention=maps")
    inside = np.asarray([mass_inside(attention, box) for attention in features.maps], np.float64)
    chosen = np.flatnonzero(inside >= LEAST_MASS)
    if not len(chosen):
        raise SuperfeatError("nothing in this box draws attention; make it larger")
    arrays: dict[str, Any] = {name: array[chosen] for name, array in features.arrays().items()}
    return dataclasses.replace(features, **arrays, maps=[features.maps[number] for number in chosen.tolist()])
