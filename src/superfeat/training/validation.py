"""How well a network finds: features, a codebook from training photos, an index, a search with every query, mAP."""

import dataclasses
import math
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from superfeat.config import CodebookConfig, ExtractConfig, IndexConfig, ValidationConfig
from superfeat.datasets.retrieval_set import RetrievalSet
from superfeat.evaluation.judge import grades_of, lists_of
from superfeat.evaluation.metrics import average_precision, mean_average_precision
from superfeat.evaluation.searching import SetNames, add_images, own_names, renamed, search_set
from superfeat.extraction.extract import extract
from superfeat.features import Features
from superfeat.images import Photo
from superfeat.index.codebook import Codebook, train_codebook, words_for
from superfeat.index.index import Index
from superfeat.training.records import LogFacts, SetFigures
from superfeat.weights import Network


@dataclasses.dataclass(frozen=True)
class Score:
    """How a set was searched: mAP in percent over `queries` queries, and how many words an image has on average."""

    map: float
    queries: int
    images: int
    words_per_image: float
    hard: float | None = None  # mAP by the Hard protocol, of a graded set


def validate(
    network: Network,
    tests: Sequence[RetrievalSet],
    codebook_photos: Sequence[Photo],
    config: ValidationConfig,
    scratch: Path,
    workers: int | None = None,
    device: str = "cpu",
) -> Iterator[int | Score]:
    """Yields how many photos have been extracted, and the score of each set as soon as it is known."""
    done = 0
    single = dataclasses.replace(config.extract, scales=(1.0,))
    samples: list[np.ndarray] = []
    learned_from = [] if network.one_vector else codebook_photos[: config.codebook_images]
    for features in extract(network, learned_from, single, workers=workers, device=device):
        samples.append(features.vectors)
        yield (done := done + 1)
    with tempfile.TemporaryDirectory(prefix=".validation.", dir=scratch) as work:
        if network.one_vector:
            codebook, search = Codebook.of_vectors(network.dim), IndexConfig("float32", config.search)
        else:
            codebook = _learn_codebook(samples, config.codebook, Path(work) / "k-means", workers)
            search = IndexConfig(search=config.search)
        del samples
        for number, test in enumerate(tests):
            index = Index.create(Path(work) / f"index{number}", codebook, search, network=network.digest)
            for found in _search(network, index, test, config.extract, workers, device):
                yield found or (done := done + 1)


def decisive(scores: Sequence[Score]) -> float:
    """What decides which network is the best: the mAP of one set; of several their mean, Hard where a set has it."""
    if len(scores) == 1:
        return scores[0].map
    return math.fsum(one.map if one.hard is None else one.hard for one in scores) / len(scores)


def facts_of(tests: Sequence[RetrievalSet], scores: Sequence[Score]) -> LogFacts:
    """What the log keeps: the figures of one set; of several what decides, sums, and the figures of each by name."""
    images = [one.images for one in scores]
    words = scores[0].words_per_image
    if len(scores) > 1:
        words = round(float(np.average([one.words_per_image for one in scores], weights=images)), 1)
    facts: LogFacts = {
        "map": round(decisive(scores), 3),
        "queries": sum(one.queries for one in scores),
        "images": sum(images),
        "words_per_image": words,
    }
    if len(scores) > 1:
        facts["sets"] = {test.name: _figures(one) for test, one in zip(tests, scores, strict=True)}
    return facts


def _figures(score: Score) -> SetFigures:
    """Of one set among several."""
    plain: SetFigures = {
        "map": round(score.map, 3),
        "queries": score.queries,
        "images": score.images,
        "words_per_image": score.words_per_image,
    }
    return plain if score.hard is None else {"map": plain["map"], "map_hard": round(score.hard, 3), **plain}


def _search(
    network: Network, index: Index, test: RetrievalSet, config: ExtractConfig, workers: int | None, device: str
) -> Iterator[Score | None]:
    """None for each photo that has been extracted, and the score at the end."""
    names = own_names(test)
    wanted = names.photos(test)
    photos, database = renamed(list(wanted.values()), list(wanted)), len(test.photos)
    asked: dict[str, Features] = {}
    images = extract(network, photos[:database], config, workers=workers, device=device)
    for _ in add_images(index, _keep_queries(images, names, asked)):
        yield None
    for features in extract(network, photos[database:], config, workers=workers, device=device):
        asked[features.name] = features
        yield None
    yield _score(index, test, names, asked, workers)


def _learn_codebook(samples: list[np.ndarray], config: CodebookConfig, work: Path, workers: int | None) -> Codebook:
    words = words_for(sum(len(vectors) for vectors in samples), config.words)
    return train_codebook(samples, config, words=words, work=work, workers=workers)


def _keep_queries(
    images: Iterable[Features], names: SetNames, asked: dict[str, Features]
) -> Iterator[tuple[str, Features]]:
    """Passes database images on to the index, and keeps the features of those that are queries too."""
    wanted = set(names.queries)
    for features in images:
        if features.name in wanted:
            asked[features.name] = features
        yield features.name, features


def _score(index: Index, test: RetrievalSet, names: SetNames, asked: dict[str, Features], workers: int | None) -> Score:
    answers = search_set(index, names.database, (asked[name] for name in names.queries), workers)
    precisions: dict[str, list[float]] = {grade: [] for grade in ("all", "hard")}
    for query, found in zip(test.queries, answers, strict=True):
        if found is not None:
            for grade, values in precisions.items():
                values.append(average_precision(found.numbers, *lists_of(query, grade)))
    found_all, found_hard = (100 * mean_average_precision(values) for values in precisions.values())
    hard = found_hard if "hard" in grades_of(test) and not math.isnan(found_hard) else None
    return Score(found_all, len(precisions["all"]), len(index), index.info().words_per_image, hard)
