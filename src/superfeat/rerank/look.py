"""A second look at the first results of a search: what their places say, and the order that follows."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64, Int64

from superfeat.config import SearchConfig
from superfeat.features import Hit, ImageWords
from superfeat.index.pairs import score_pairs
from superfeat.index.snapshot import Only, Snapshot
from superfeat.rerank.geometry import PlacedWords, Verification, place_stored, verify_photos
from superfeat.rerank.order import (
    COMPARED,
    FIRST,
    MOST_EXPANDED,
    Rerank,
    agreed_scores,
    descending,
    diffuse,
    expand_query,
    is_verified,
)


class SeenPhoto(NamedTuple):
    """A result at the second look: its score, where its words lie, and what that says; None where nothing is noted."""

    hit: Hit
    photo: PlacedWords | None
    verification: Verification | None


class Reordered(NamedTuple):
    """What a second look changed among the first `top` results."""

    method: Rerank
    moved: int  # that have another place
    came: int  # that were not among them before
    used: int  # photos that the new order rests on: verified ones, or those that were compared with each other


@dataclasses.dataclass(frozen=True)
class SearchedWith:
    """What was searched with, in what, and how: all that a second look needs."""

    snapshot: Snapshot
    words: ImageWords
    placed: PlacedWords | None
    config: SearchConfig
    only: Sequence[Only] | None = None
    without: int | None = None  # the id of the query, if it is in the index
    workers: int = 1
    turned: bool = False  # whether quarter turns are tried too
    _gathered: dict[int, ImageWords | None] = dataclasses.field(default_factory=dict, init=False, repr=False)

    def words_of_found(self, ids: Sequence[int]) -> list[ImageWords | None]:
        """The words of images that were found; None for one that was deleted a moment ago. They are gathered once, as
        that is most of a second look's time.
        """
        new = [image for image in ids if image not in self._gathered]
        self._gathered.update(zip(new, self.snapshot.words_of_many(new, self.workers), strict=True))
        return [self._gathered[image] for image in ids]


def look_again(
    searched: SearchedWith, hits: Sequence[Hit], metas: Mapping[str, Mapping[str, Any]], first: int = FIRST
) -> list[SeenPhoto]:
    """Verifies the first results, as far as places are noted; the others are as they were."""
    photos: list[PlacedWords | None] = [None] * len(hits)
    images = searched.words_of_found([hit.id for hit in hits[:first]])
    for place, (hit, image) in enumerate(zip(hits, images, strict=False)):
        if image is not None:  # it may have been deleted a moment ago
            photos[place] = place_stored(image, metas.get(hit.name, {}))
    known = [place for place, photo in enumerate(photos) if photo is not None]
    found: list[Verification | None] = [None] * len(hits)
    if searched.placed is not None:
        some = [photo for photo in photos if photo is not None]
        verified = verify_photos(
            searched.snapshot,
            searched.placed,
            some,
            searched.config,
            workers=searched.workers,
            turned=searched.turned,
        )
        for place, one in zip(known, verified, strict=True):
            found[place] = one
    return [SeenPhoto(*one) for one in zip(hits, photos, found, strict=True)]


def reorder_by_geometry(seen: Sequence[SeenPhoto]) -> list[SeenPhoto]:
    """The first results by score and agreement; those that were not verified stay behind them."""
    part = list(seen[:FIRST])
    scores = np.asarray([one.hit.score for one in part], np.float64)
    order = descending(agreed_scores(scores, [one.verification for one in part]))
    return [part[place] for place in order.tolist()] + list(seen[FIRST:])


def reorder_by_diffusion(searched: SearchedWith, hits: Sequence[Hit], floor: float) -> list[Hit]:
    """The first results by their own scores and those of the ones that they are most like, if more than `floor`."""
    ids, scores = np.asarray([hit.id for hit in hits], np.int64), np.asarray([hit.score for hit in hits], np.float64)
    return [hits[place] for place in diffused_order(searched, ids, scores, floor).tolist()] + list(hits[COMPARED:])


def diffused_order(
    searched: SearchedWith, ids: Int64[np.ndarray, "n"], scores: Float64[np.ndarray, "n"], floor: float
) -> Int64[np.ndarray, "first"]:
    """The same of images by id: the places of the first in their new order."""
    images = searched.words_of_found(ids[:COMPARED].tolist())
    if any(image is None for image in images):  # one was deleted a moment ago: the order stays
        return np.arange(len(images))
    similarities = score_pairs(searched.snapshot, [image for image in images if image is not None], searched.config)
    return descending(diffuse(scores[:COMPARED], (similarities + similarities.T) / 2, floor))


class Wider(NamedTuple):
    """A query with what verified photos show of it; and what each of these scores if the others alone widen it, as
    with its own words it would come before all that it is asked to help.
    """

    words: ImageWords
    voters: dict[int, float]

    def ordered(self, hits: Sequence[Hit]) -> list[Hit]:
        """The results of a search with it, by these scores."""
        scores = np.asarray([self.voters.get(hit.id, hit.score) for hit in hits], np.float64)
        return [hits[place] for place in descending(scores).tolist()]


def widened(searched: SearchedWith, seen: Sequence[SeenPhoto]) -> Wider | None:
    """The query with what verified photos show of it; None if none is verified."""
    good = [one for one in seen[:FIRST] if is_verified(one.verification)][:MOST_EXPANDED]
    if not good:
        return None

    def widen(some: Sequence[SeenPhoto]) -> ImageWords:
        photos = [one.photo for one in some if one.photo is not None]
        found = [one.verification for one in some if one.verification is not None]
        return expand_query(searched.words, photos, found, searched.snapshot.layout.dim)

    voters: dict[int, float] = {}
    for place, one in enumerate(good):
        without = widen([*good[:place], *good[place + 1 :]])
        score = searched.snapshot.score_of(one.hit.id, without, searched.config)
        if score is not None:  # it may have been deleted a moment ago
            voters[one.hit.id] = score
    return Wider(widen(good), voters)


def changes(method: Rerank, before: Sequence[Hit], after: Sequence[SeenPhoto], top: int, used: int) -> Reordered:
    """What is different among the first `top`."""
    old, new = [hit.id for hit in before[:top]], [one.hit.id for one in after[:top]]
    moved = sum(one != other for one, other in zip(old, new, strict=False))
    return Reordered(method, moved, len(set(new) - set(old)), used)
