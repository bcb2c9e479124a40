"""How alike queries and the photos of a map are, by ASMK and by pooled vectors, from extracted features."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float64

from superfeat.config import CodebookConfig, SearchConfig
from superfeat.errors import DatasetError
from superfeat.extraction.extract import pool_features
from superfeat.extraction.folder import FeatureStore
from superfeat.images import Photo
from superfeat.index.codebook import Codebook, train_codebook, words_for
from superfeat.index.index import Index
from superfeat.mapping.scenes import LocalizationSet
from superfeat.weights.named import SHIPPED_FOLDER

FEATURES_PER_WORD = 16  # of a codebook that is learned from the map's own photos
MOST_WORDS = 16384
ADD_AT_ONCE = 64
Similarity = Float64[np.ndarray, "queries photos"]


def similarities(
    scenes: LocalizationSet, features: str | Path, work: str | Path, codebook: str | Path | None = None
) -> tuple[Similarity, Similarity]:
    """By ASMK, and by pooled vectors. `features` were extracted from the folder of the scenes."""
    store = FeatureStore(features)
    photos, queries = _names(scenes, scenes.photos.photos), _names(scenes, scenes.queries.photos)
    lacking = sorted({*photos, *queries} - {entry.name for entry in store.entries})
    if lacking:
        raise DatasetError(
            f"{store.path} lacks {len(lacking)} of the scenes' photos ({lacking[0]}, …), which were not extracted or "
            f"cannot be read; extract the folder {scenes.root} into it"
        )
    index = _index(store, photos, Path(work), codebook)
    places = {name: number for number, name in enumerate(photos)}
    asmk = np.zeros((len(queries), len(photos)))
    for number, query in enumerate(queries):
        ranking = index.search(store[query], None, config=SearchConfig())
        asmk[number, [places[found] for found in ranking.names]] = ranking.scores
    ours, theirs = (np.concatenate([pool_features(store[one]).vectors for one in some]) for some in (queries, photos))
    return asmk, ours.astype(np.float64) @ theirs.T.astype(np.float64)


def photos_to_extract(scenes: LocalizationSet) -> list[Photo]:
    """All photos of the scenes, under the names that `extract` gives them where it is given the folder."""
    both = [*scenes.photos.photos, *scenes.queries.photos]
    return [Photo(photo.path, name) for photo, name in zip(both, _names(scenes, both), strict=True)]


def _names(scenes: LocalizationSet, photos: Sequence[Photo]) -> list[str]:
    """As `extract` names them: paths below the folder of the scenes."""
    return [photo.path.relative_to(scenes.root).as_posix() for photo in photos]


def _index(store: FeatureStore, photos: list[str], work: Path, codebook: str | Path | None) -> Index:
    """Of the photos of the map; gone on with if it is there."""
    if not (work / "manifest.json").is_file():
        Index.create(work, _codebook(store, photos, codebook))
    index = Index.open(work)
    missing = [photo for photo in photos if photo not in index]
    for _ in index.add_many(((photo, store[photo], None) for photo in missing), batch=ADD_AT_ONCE):
        pass
    return index


def _codebook(store: FeatureStore, photos: list[str], given: str | Path | None) -> Codebook:
    """The one that is named, or comes with the network, or is learned from the photos of the map."""
    if given is not None:
        return Codebook.open(given)
    network = store[photos[0]].network
    for folder in sorted(SHIPPED_FOLDER.glob("*/codebook")):
        shipped = Codebook.open(folder)
        if shipped.network == network:
            return shipped
    count = sum(len(store[photo].vectors) for photo in photos)
    words = words_for(count // FEATURES_PER_WORD * 4, MOST_WORDS)
    return train_codebook((store[photo] for photo in photos), CodebookConfig(words=words))
