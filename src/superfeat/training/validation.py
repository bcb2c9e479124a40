"""How well a network finds: features, a codebook from training photos, an index, a search with every query, mAP."""

import dataclasses
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from superfeat.config import CodebookConfig, ExtractConfig, IndexConfig, ValidationConfig
from superfeat.datasets.retrieval_set import RetrievalSet
from superfeat.evaluation.metrics import average_precision, mean_average_precision
from superfeat.extraction.extract import extract
from superfeat.features import Features
from superfeat.images import Box, Photo
from superfeat.index.codebook import Codebook, train_codebook, words_for
from superfeat.index.index import Index
from superfeat.weights import Network

BATCH = 64  # images that share one wait for the disk
Look = tuple[Path, Box | None]  # which part of which file


@dataclasses.dataclass(frozen=True)
class Score:
    """mAP in percent, over `queries` queries, and how many words an image has on average."""

    map: float
    queries: int
    images: int
    words_per_image: float


def validate(
    network: Network,
    test: RetrievalSet,
    codebook_photos: Sequence[Photo],
    config: ValidationConfig,
    scratch: Path,
    workers: int | None = None,
) -> Iterator[int | Score]:
    """Yields how many photos have been extracted, and the score at the end."""
    done = 0
    single = dataclasses.replace(config.extract, scales=(1.0,))
    samples: list[np.ndarray] = []
    for features in extract(network, codebook_photos[: config.codebook_images], single, workers=workers):
        samples.append(features.vectors)
        yield (done := done + 1)
    with tempfile.TemporaryDirectory(prefix=".validation.", dir=scratch) as work:
        codebook = _learn_codebook(samples, config.codebook, Path(work) / "k-means", workers)
        del samples
        index = Index.create(Path(work) / "index", codebook, IndexConfig(search=config.search), network=network.digest)
        asked: dict[Look, Features] = {}
        images = _keep_queries(_extracted(network, test.photos, config.extract, workers), test, asked)
        for _ in index.add_many(images, batch=BATCH):
            yield (done := done + 1)
        rest = [query.photo for query in test.queries if (query.photo.path, query.photo.box) not in asked]
        for photo, features in _extracted(network, rest, config.extract, workers):
            asked[photo.path, photo.box] = features
            yield (done := done + 1)
        yield _score(index, test, asked, workers)


def _learn_codebook(samples: list[np.ndarray], config: CodebookConfig, work: Path, workers: int | None) -> Codebook:
    words = words_for(sum(len(vectors) for vectors in samples), config.words)
    return train_codebook(samples, config, words=words, work=work, workers=workers)


def _keep_queries(
    images: Iterator[tuple[Photo, Features]], test: RetrievalSet, asked: dict[Look, Features]
) -> Iterator[tuple[str, Features, None]]:
    """Passes database images on to the index, and keeps the features of those that are queries too."""
    wanted = {(query.photo.path, query.photo.box) for query in test.queries}
    for photo, features in images:
        if (look := (photo.path, photo.box)) in wanted:
            asked[look] = features
        yield features.name, features, None


def _extracted(
    network: Network, photos: Sequence[Photo], config: ExtractConfig, workers: int | None
) -> Iterator[tuple[Photo, Features]]:
    """The features of each photo, named by its number: names may stand twice in a benchmark."""
    numbered = [dataclasses.replace(photo, name=str(number)) for number, photo in enumerate(photos)]
    for features in extract(network, numbered, config, workers=workers):
        yield photos[int(features.name)], features


def _score(index: Index, test: RetrievalSet, asked: dict[Look, Features], workers: int | None) -> Score:
    queries = [asked[query.photo.path, query.photo.box] for query in test.queries]
    rankings = index.search_many(queries, None, workers=workers)
    precisions = [
        average_precision(np.asarray([int(name) for name in ranking.names]), query.positives, query.junk)
        for query, ranking in zip(test.queries, rankings, strict=True)
    ]
    words = index.info()["words_per_image"]
    return Score(100 * mean_average_precision(precisions), len(queries), len(index), words)
