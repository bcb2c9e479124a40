"""A protocol run: features -> codebook -> index -> search -> score, with a card that says how each number was made.

A run is a folder. Whatever stage it was stopped in, the same call goes on with it.
"""

import contextlib
import dataclasses
import hashlib
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, TypedDict, TypeVar

from superfeat.config import EvaluateConfig
from superfeat.datasets.retrieval_set import RetrievalSet
from superfeat.datasets.training_set import listed, missing_photos
from superfeat.errors import DatasetError, StoreError
from superfeat.evaluation.card import VERSION as CARD_VERSION
from superfeat.evaluation.card import Card, card_in_words, make_card
from superfeat.evaluation.judge import GradedRanking, Scores, judge, shortened
from superfeat.evaluation.local import LocalStage
from superfeat.evaluation.rankings import RankingsWriter
from superfeat.evaluation.searching import SetNames, distractor_names, names_in, renamed
from superfeat.evaluation.stages import (
    Step,
    build_index,
    extract_set,
    learn_codebook,
    search_index,
    search_pooled,
)
from superfeat.extraction.extract import pool_to
from superfeat.extraction.folder import FeatureFacts, FeatureStore, stored_names
from superfeat.images import Photo
from superfeat.index.codebook import Codebook, Round
from superfeat.index.index import Index
from superfeat.settings import Values, as_dict
from superfeat.storage.records import as_record
from superfeat.storage.store import (
    as_json,
    differences,
    explained,
    read_json,
    require_version,
    write_file,
    write_json,
    writer_lock,
)
from superfeat.weights import Network

FORMAT = "superfeat-evaluation"
VERSION = 1
_RunFacts = TypedDict(
    "_RunFacts",
    {
        "network": str,
        "dataset": str,
        "images": int,
        "queries": int,
        "distractors": int,
        "settings": Values,
        "names of images": str,
        "queries and their answers": str,
        "names of distractors": str,
    },
)


class RunFacts(_RunFacts, total=False):
    """What a run is of."""

    local: str | None  # digest of the network of its second stage


Result = TypeVar("Result")
Steps = Generator[Step, None, Result]


@dataclasses.dataclass(frozen=True)
class Evaluated:
    """What came out: the card, and the scores of all queries and of each."""

    card: Card
    scores: Scores


def run_protocol(
    network: Network,
    test: RetrievalSet,
    output: str | Path,
    config: EvaluateConfig = EvaluateConfig(),  # noqa: B008
    *,
    codebook: Codebook | Sequence[Photo] = (),
    distractors: Sequence[Photo] = (),
    features: Path | None = None,
    local: Path | None = None,
    allow_missing: bool = False,
    workers: int | None = None,
    device: str = "cpu",
    on_round: Callable[[Round], None] | None = None,
) -> Iterator[Step | Evaluated]:
    """Yields how far each stage is, and at the end what came out, which is also in the folder `output`.

    `codebook` is one, or the photos to learn it from. `features` is a features folder with the set's images, used in
    place of extracting them; `local` one with local features, by which the first 100 are ordered anew. Distractors are
    searched among the photos and are never right. `on_round` is told how far k-means is.
    """
    _require_files(test, distractors, allow_missing)
    if config.method == "asmk" and not isinstance(codebook, Codebook) and not codebook:
        raise DatasetError(
            "words must be learned from photos of other things: give some, or a codebook that is made",
            arguments=["codebook_images", "codebook"],
        )
    stage = _local_stage(local, test, distractors, config)
    if config.rerank is not None and (stage is not None or network.one_vector):
        raise DatasetError("diffusion orders what words have found; it takes neither one-vector methods nor `local`")
    run = _EvaluationFolder(Path(output), workers, device, on_round)
    with run.writing(_facts(network, test, distractors, config, stage)):
        if features is None:
            features = run.path / ("pooled" if config.method == "pooled" else "features")
            with run.timed("features"):
                yield from extract_set(network, test, features, config, workers, device)
        store = FeatureStore(features)
        _require_fitting(store, network, config)
        names = names_in(store, test)
        missing = _unread(store, names, test, allow_missing)
        words = index = None
        if config.method == "pooled":
            missing += yield from run.pool_distractors(network, distractors, config)
        else:
            words = yield from run.words(network, codebook, config)
            missing += yield from run.index(network, store, names, distractors, words, config)
            index = Index.open(run.path / "index")
        answers = yield from run.search(store, names, test, distractors, config, stage)
        test, answered = _answered(test, answers)
        card = as_json(make_card(network, test, distractors, missing, config, words, index, run.seconds, stage))
        scores = as_json(judge(test, answered, distractors))
        run.finish(card, scores)
    yield Evaluated(card, scores)


def open_run(path: str | Path) -> Evaluated:
    """The card and the scores of a finished run."""
    folder = Path(path)
    if not (folder / "scores.json").is_file():
        raise StoreError(
            f"{folder} holds no finished evaluation; make one with: superfeat evaluate DATASET -o {folder}"
        )
    if (folder / "run.json").is_file():
        require_version(read_json(folder / "run.json"), VERSION, folder / "run.json")
    card = read_json(folder / "card.json")
    require_version(card, CARD_VERSION, folder / "card.json")
    return Evaluated(
        as_record(Card, card, folder / "card.json"),
        as_record(Scores, read_json(folder / "scores.json"), folder / "scores.json"),
    )


class _EvaluationFolder:
    """The folder of a run: what it is of, its stages, how long each has taken, and what came out."""

    def __init__(self, path: Path, workers: int | None, device: str, on_round: Callable[[Round], None] | None) -> None:
        self.path, self.workers, self.device, self.on_round = path, workers, device, on_round
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def writing(self, run: RunFacts) -> Iterator[None]:
        """Holds the folder, new or of the same run."""
        facts = as_json({"format": FORMAT, "version": VERSION, **run})
        with explained(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        with writer_lock(self.path):
            if (self.path / "run.json").is_file():
                before = read_json(self.path / "run.json")
                if not isinstance(before, dict) or before.get("format") != FORMAT:
                    raise StoreError(f"{self.path} holds something else than an evaluation; choose another folder")
                require_version(before, VERSION, self.path / "run.json")
                if changed := differences(before, facts):
                    raise StoreError(
                        f"{self.path} is an evaluation with other settings ({changed}); choose another folder, or "
                        "remove it to start again"
                    )
                times = self.path / "seconds.json"
                self.seconds = read_json(times) if times.is_file() else {}
            elif any(not file.name.startswith(".") for file in self.path.iterdir()):
                raise StoreError(f"{self.path} holds other files; choose a new folder for the evaluation")
            else:
                write_json(self.path / "run.json", facts)
            yield

    @contextlib.contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Adds to a stage's time, also when it is stopped."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + time.monotonic() - began
            write_json(self.path / "seconds.json", self.seconds)

    def words(self, network: Network, given: Codebook | Sequence[Photo], config: EvaluateConfig) -> Steps[Codebook]:
        """The codebook that was given, or one learned from the photos that were."""
        if isinstance(given, Codebook):
            return given
        with self.timed("codebook"):
            for step in learn_codebook(network, given, config, self.workers, self.device, self.on_round):
                if isinstance(step, Codebook):
                    return step
                yield step
        raise AssertionError("learning ends with a codebook")

    def index(
        self,
        network: Network,
        store: FeatureStore,
        names: SetNames,
        distractors: Sequence[Photo],
        codebook: Codebook,
        config: EvaluateConfig,
    ) -> Steps[list[str]]:
        """Yields how far it is; returns the names of distractors that could not be read."""
        missing = []
        plain = dict(zip(distractor_names(distractors), distractors, strict=True))
        with self.timed("index"):
            for step in build_index(
                network, store, names, distractors, codebook, self.path / "index", config, self.workers, self.device
            ):
                if isinstance(step, Step):
                    yield step
                else:
                    missing.append(plain[step.name].name)
        return missing

    def pool_distractors(self, network: Network, photos: Sequence[Photo], config: EvaluateConfig) -> Steps[list[str]]:
        """The same for global vectors."""
        if not photos:
            return []
        folder = self.path / "pooled-distractors"
        names = distractor_names(photos)
        with self.timed("features"):
            outcomes = pool_to(
                folder, network, renamed(photos, names), config.extract, workers=self.workers, device=self.device
            )
            for done, _ in enumerate(outcomes, len(stored_names(folder)) + 1):
                yield Step("distractors", done, len(photos))
        skipped = {entry.name for entry in FeatureStore(folder).skipped}
        return [photo.name for photo, name in zip(photos, names, strict=True) if name in skipped]

    def search(
        self,
        store: FeatureStore,
        names: SetNames,
        test: RetrievalSet,
        distractors: Sequence[Photo],
        config: EvaluateConfig,
        local: LocalStage | None,
    ) -> Steps[list[GradedRanking | None]]:
        found: list[GradedRanking | None] = []
        images = len(names.database) + len(distractors)
        with self.timed("search"), RankingsWriter(self.path / "rankings", len(test.queries), images) as rankings:
            if config.method == "pooled":
                more = FeatureStore(self.path / "pooled-distractors") if distractors else None
                answers = search_pooled(store, names, more, test, distractors)
            else:
                folder, diffused = self.path / "index", config.rerank == "diffuse"
                answers = search_index(folder, store, names, test, distractors, local, self.workers, diffused)
            for answer in answers:
                if answer is not None:
                    rankings.add(answer)
                found.append(None if answer is None else shortened(answer))
                yield Step("search", len(found), len(test.queries))
        return found

    def finish(self, card: Card, scores: Scores) -> None:
        """Writes what came out; scores.json is the last, so that a run that has it is whole."""
        write_json(self.path / "card.json", card)
        write_file(self.path / "card.txt", ("\n".join(card_in_words(card)) + "\n").encode())
        write_json(self.path / "scores.json", scores)


def _local_stage(
    folder: Path | None, test: RetrievalSet, distractors: Sequence[Photo], config: EvaluateConfig
) -> LocalStage | None:
    if folder is None:
        return None
    if distractors or config.method == "pooled":
        raise DatasetError("a second stage by local features takes neither distractors nor pooled vectors")
    return LocalStage(folder, test)


def _facts(
    network: Network,
    test: RetrievalSet,
    distractors: Sequence[Photo],
    config: EvaluateConfig,
    local: LocalStage | None,
) -> RunFacts:
    """What must be the same for a run to be gone on with."""
    asked = [(query.photo.name, query.photo.box, query.positives, query.junk, query.hard) for query in test.queries]
    return {
        "network": network.digest,
        "dataset": test.name,
        "images": len(test.photos),
        "queries": len(test.queries),
        "distractors": len(distractors),
        "settings": as_dict(config),
        "names of images": _digest([(photo.name, photo.box) for photo in test.photos]),
        "queries and their answers": _digest(asked),
        "names of distractors": _digest([photo.name for photo in distractors]),
        "local": None if local is None else local.network,
    }


def _digest(values: Sequence[Any]) -> str:
    total = hashlib.sha256()
    for value in values:
        total.update(f"{value!r}\n".encode("utf-8", "surrogateescape"))
    return total.hexdigest()[:12]


def _require_files(test: RetrievalSet, distractors: Sequence[Photo], allow_missing: bool) -> None:
    """DatasetError if files are not there, unless that is allowed."""
    photos = [*test.photos, *(query.photo for query in test.queries), *distractors]
    names = [] if allow_missing else list(dict.fromkeys(missing_photos(photos, len(photos))))
    if names:
        example = next(photo.where for photo in photos if photo.name == names[0])
        raise DatasetError(
            f"{len(names)} photos of {test.name} are not there ({listed(names)}; the first belongs at {example}): "
            "bring them, or allow that they are missing, which counts them as not found and says so on the card",
            arguments=["allow_missing"],
        )


def _unread(store: FeatureStore, names: SetNames, test: RetrievalSet, allow_missing: bool) -> list[str]:
    """Names of photos that there are no features of; DatasetError unless that is allowed."""
    known = {entry.name for entry in store.entries}
    lost = {name: photo for name, photo in names.photos(test).items() if name not in known}
    if lost and not allow_missing:
        reasons = {entry.name: entry.skipped for entry in store.skipped}
        first = next(iter(lost))
        raise DatasetError(
            f"{len(lost)} photos of {test.name} could not be used (the first is {lost[first].path}: "
            f"{reasons.get(first) or f'not in {store.path}'}): repair them, or allow that they are missing, which "
            "counts them as not found, leaves out queries among them, and says so on the card",
            arguments=["allow_missing"],
        )
    return list(dict.fromkeys(photo.name for photo in lost.values()))


def _require_fitting(store: FeatureStore, network: Network, config: EvaluateConfig) -> None:
    if store.network != network.digest:
        raise StoreError(
            f"{store.path} was made by another network ({str(store.network)[:12]}); extract its features anew"
        )
    wanted: FeatureFacts = {"extract": as_json(as_dict(config.extract))}
    if config.method == "pooled":
        for name in ("features_per_image", "features_per_scale", "attention"):
            wanted["extract"].pop(name)
        wanted["pooled"] = True
    if different := differences(store.manifest, wanted):
        raise StoreError(f"{store.path} was made with other settings ({different}); extract its features anew")


def _answered(test: RetrievalSet, answers: Sequence[GradedRanking | None]) -> tuple[RetrievalSet, list[GradedRanking]]:
    """The queries that could be asked; DatasetError if none could."""
    kept = [(query, found) for query, found in zip(test.queries, answers, strict=True) if found is not None]
    if not kept:
        raise DatasetError(f"none of the {len(answers)} queries of {test.name} has a photo that can be read")
    asked = dataclasses.replace(test, queries=tuple(query for query, _ in kept))
    return asked, [found for _, found in kept]
