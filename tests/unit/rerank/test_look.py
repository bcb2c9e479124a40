"""A second look at what was found: what a wider query does, and that nobody who widens it gains by its own words."""

import numpy as np

from superfeat.config import SearchConfig
from superfeat.features import Hit, ImageWords
from superfeat.index.places import encode_places
from superfeat.index.segments import Layout
from superfeat.index.snapshot import Snapshot
from superfeat.rerank.geometry import PlacedWords
from superfeat.rerank.look import SearchedWith, Wider, look_again, widened
from superfeat.rerank.order import LEAST_INLIERS, expand_query

LAYOUT = Layout(words=400, dim=128, binary=True, codebook="words")
CONFIG, SIZE, SHARED = SearchConfig(), (4, 3), 60


def searched_among(photos: int, strangers: int) -> tuple[SearchedWith, dict[str, dict[str, object]]]:
    """A query; photos with its words where they are in it, and others of their own; and photos of anything."""
    rng = np.random.default_rng(0)
    places, codes = rng.random((400, 4)), rng.integers(0, 256, (400, 16), dtype=np.uint8)
    asked = np.arange(SHARED)
    images: list[ImageWords] = []
    metas: dict[str, dict[str, object]] = {}
    for number in range(photos + strangers):
        own = rng.choice(np.arange(SHARED, 400), SHARED, replace=False)
        words = np.sort(np.concatenate([asked[number % 7 :], own] if number < photos else [own])).astype(np.int32)
        images.append(ImageWords(words, codes[words], "words"))
        metas[str(number)] = {"places": encode_places(places[words]), "size": SIZE}
    snapshot = Snapshot.in_memory(LAYOUT, images)
    placed = PlacedWords(ImageWords(asked.astype(np.int32), codes[asked], "words"), places[asked], SIZE)
    return SearchedWith(snapshot, placed.image, placed, CONFIG), metas


def test_who_widens_a_query_scores_as_if_the_others_alone_did() -> None:
    searched, metas = searched_among(photos=4, strangers=5)
    hits = [Hit(str(hit.id), hit.score, hit.id) for hit in searched.snapshot.search(searched.words, CONFIG)]
    seen = look_again(searched, hits, metas)
    wider = widened(searched, seen)
    assert wider is not None
    assert set(wider.voters) == {0, 1, 2, 3}
    for voter, score in wider.voters.items():
        others = [one for one in seen[:4] if one.hit.id != voter]
        photos = [one.photo for one in others if one.photo is not None]
        found = [one.verification for one in others if one.verification is not None]
        assert min(one.inliers for one in found) >= LEAST_INLIERS
        without = expand_query(searched.words, photos, found, LAYOUT.dim)
        assert score == searched.snapshot.score_of(voter, without, CONFIG)
        own = searched.snapshot.score_of(voter, wider.words, CONFIG)
        assert own is not None
        assert own > 1.2 * score, "it finds itself"


def test_what_a_wider_query_finds_is_ordered_by_these_scores() -> None:
    wider = Wider(ImageWords(np.empty(0, np.int32), np.empty((0, 16), np.uint8), "words"), {1: 0.2, 3: 0.05})
    found = [Hit(str(number), score, number) for number, score in ((1, 0.9), (3, 0.8), (2, 0.3), (0, 0.05))]
    assert [hit.id for hit in wider.ordered(found)] == [2, 1, 3, 0]


def test_a_query_that_nothing_is_verified_for_stays_as_it_is() -> None:
    searched, metas = searched_among(photos=0, strangers=3)
    hits = [Hit(str(number), 0.1, number) for number in range(3)]
    assert widened(searched, look_again(searched, hits, metas)) is None
