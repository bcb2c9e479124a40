"""The main job of measuring: a benchmark, a network and its words by their names, and a protocol run of these."""

import dataclasses
from collections.abc import Callable, Generator, Iterable, Sequence
from pathlib import Path

from superfeat.config import DEFAULT_PROFILE, DEFAULT_WEIGHTS, VECTOR_KERNELS, EvaluateConfig
from superfeat.datasets.benchmarks import read_benchmark
from superfeat.datasets.retrieval_set import RetrievalSet
from superfeat.datasets.revisited import DISTRACTORS, places, read_distractors
from superfeat.errors import DatasetError
from superfeat.evaluation.card import Card
from superfeat.evaluation.judge import Scores
from superfeat.evaluation.run import Evaluated, run_protocol
from superfeat.evaluation.stages import Step
from superfeat.images import Photo
from superfeat.index.codebook import Codebook, Round
from superfeat.methods import profile_for
from superfeat.settings import Changes, as_dict, overlay
from superfeat.sources.listing import list_photos
from superfeat.weights import Network, carried_codebook, load_network
from superfeat.work import Work

PAPER_PROFILE = "paper"  # the profile where the network brings no words


@dataclasses.dataclass(frozen=True)
class Measured:
    """A finished evaluation: its folder, its card and its scores, and what was measured how."""

    run: Path
    card: Card
    scores: Scores
    network: Network
    test: RetrievalSet
    config: EvaluateConfig


def evaluate(
    dataset: str | Path | RetrievalSet,
    output: str | Path,
    *,
    images: str | Path | None = None,
    weights: str | Path | None = None,
    profile: str | None = None,
    settings: Changes | None = None,
    codebook: str | Path | Codebook | None = None,
    codebook_images: str | Path | Iterable[str | Path] = (),
    distractors: str | Path | None = None,
    features: str | Path | None = None,
    local: str | Path | None = None,
    allow_missing: bool = False,
    workers: int | None = None,
    device: str = "cpu",
    on_round: Callable[[Round], None] | None = None,
) -> Work[Step, Measured]:
    """Measures how well a network finds, by the protocol of a benchmark; all of it is kept in the folder `output`.

    `dataset` is a benchmark's name, with `images` where its files are, or a gnd.json, or a folder with one sub-folder
    per thing. The words are those of `codebook`, or learned from `codebook_images`, photos of other things, or brought
    by the network; then the profile is "fast" unless one is named, else "paper". `settings` are of EvaluateConfig.
    `distractors` is R1M's folder, or any folder of photos that are never right; `features` a features folder with the
    set's images, in place of extracting them; `local` one with local features and their regions, by which the first 100
    images are ordered anew (DELG's re-ranking). A run that was stopped goes on. `on_round` is told how far k-means is.
    """
    listed = [codebook_images] if isinstance(codebook_images, (str, Path)) else list(codebook_images)
    source = DEFAULT_WEIGHTS if weights is None else weights

    def steps() -> Generator[Step, None, Measured]:
        test = dataset if isinstance(dataset, RetrievalSet) else _read(dataset, images)
        brought = carried_codebook(source) if codebook is None and not listed else None
        network = load_network(source)
        config = _config(
            profile or (PAPER_PROFILE if brought is None else DEFAULT_PROFILE), settings or {}, test, network
        )
        for step in run_protocol(
            network,
            test,
            output,
            config,
            codebook=_words(brought if codebook is None else codebook, listed, config, network),
            distractors=() if distractors is None else _distractors(Path(distractors)),
            features=None if features is None else Path(features),
            local=None if local is None else Path(local),
            allow_missing=allow_missing,
            workers=workers,
            device=device,
            on_round=on_round,
        ):
            if isinstance(step, Evaluated):
                return Measured(Path(output), step.card, step.scores, network, test, config)
            yield step
        raise AssertionError("a run ends with its scores")

    return Work(steps())


def _read(dataset: str | Path, images: str | Path | None) -> RetrievalSet:
    return read_benchmark(str(dataset), None if images is None else Path(images))


def _config(profile: str, changes: Changes, test: RetrievalSet, network: Network) -> EvaluateConfig:
    """Published images are read as stored, as their boxes are; photos of a folder are turned upright."""
    config = overlay(EvaluateConfig(), {"extract": as_dict(profile_for(network.config.method, profile))})
    if network.one_vector:
        config = overlay(config, {"index.kernel": VECTOR_KERNELS[0]})
    return overlay(overlay(config, {"extract.upright": not test.as_stored}), changes)


def _words(
    codebook: str | Path | Codebook | None, photos: Sequence[str | Path], config: EvaluateConfig, network: Network
) -> Codebook | Sequence[Photo]:
    """The codebook, or the photos to learn it from; nothing for global vectors."""
    if config.method == "pooled":
        return ()
    if network.one_vector:
        return Codebook.of_vectors(network.dim, network.digest)
    if codebook is not None:
        return codebook if isinstance(codebook, Codebook) else Codebook.open(codebook)
    if not photos:
        raise DatasetError(
            "these weights bring no codebook, and words must be learned from photos of other things: give some, or a "
            "codebook that is made",
            arguments=["codebook_images", "codebook"],
        )
    return list_photos(photos).photos


def _distractors(folder: Path) -> Sequence[Photo]:
    if any((place / f"{DISTRACTORS}.txt").is_file() for place in places(folder, DISTRACTORS)):
        return read_distractors(folder)
    return list_photos([folder]).photos
