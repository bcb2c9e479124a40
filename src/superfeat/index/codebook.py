"""The codebook: the words of a collection. k-means by exact Lloyd rounds, and the assignment of features to words."""

import contextlib
import dataclasses
import functools
import hashlib
import io
import json
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from jaxtyping import Int32

from superfeat.config import CodebookConfig
from superfeat.errors import ConfigError, StoreError, SuperfeatError
from superfeat.features import Features, require_vectors
from superfeat.index.lloyd import Assign, Vectors, add_points, assign_here, imbalance, move_words, point_blocks
from superfeat.index.nearest import nearest, prepare
from superfeat.settings import Values, as_dict
from superfeat.storage.records import as_record
from superfeat.storage.store import explained, read_array, read_json, write_file, write_folder, write_json, writer_lock
from superfeat.threads import all_cores

FORMAT = "superfeat-codebook"
VERSION = 1
LEAST_POSSIBLE_FEATURES_PER_WORD = 4

Source = Iterable[Features | np.ndarray]


class RoundFacts(TypedDict):
    """How good the words of one round are."""

    distortion: float  # mean squared distance of a point from its word
    imbalance: float  # 1: all words have equally many points
    empty: int  # words without points


class Quality(TypedDict, total=False):
    """Of all rounds, and the figures of the last one if there is one."""

    rounds: list[RoundFacts]
    distortion: float
    imbalance: float
    empty: int


class CodebookFacts(TypedDict, total=False):
    """How a codebook was learned."""

    settings: Values  # of CodebookConfig
    features: int  # that there were
    points: int  # that were sampled from them
    images: int  # that they come from, where that is known
    quality: Quality


class CodebookManifest(TypedDict):
    """manifest.json of a codebook folder."""

    format: str
    version: int
    words: int
    dim: int
    digest: str
    network: str | None  # digest
    facts: CodebookFacts


class _Sample(TypedDict):
    settings: Values
    source: str
    features: int
    points: int
    dim: int
    network: str | None


class Codebook:
    """Centroids, and which network's features they are for."""

    def __init__(self, centroids: np.ndarray, network: str | None = None, facts: CodebookFacts | None = None) -> None:
        self.centroids: Vectors = require_vectors(centroids, "centroids").copy()
        if not self.centroids.size:
            raise SuperfeatError(f"a codebook needs at least one word; these centroids are {self.centroids.shape}")
        self.centroids.flags.writeable = False
        self.network = network
        self.facts: CodebookFacts = {**facts} if facts else {}

    @classmethod
    def of_vectors(cls, dim: int, network: str | None = None) -> "Codebook":
        """Of an index of photos that are one vector each: a single word, at the origin."""
        return cls(np.zeros((1, dim), np.float32), network)

    @property
    def words(self) -> int:
        return len(self.centroids)

    @property
    def dim(self) -> int:
        return int(self.centroids.shape[1])

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of the centroids: the same words have the same digest wherever they come from."""
        shape = f"{self.words} {self.dim} ".encode()
        return hashlib.sha256(shape + np.asarray(self.centroids, "<f4").tobytes()).hexdigest()

    @functools.cached_property
    def _prepared(self) -> Any:
        return prepare(self.centroids)

    def assign(self, vectors: np.ndarray, count: int = 1, *, workers: int | None = None) -> Int32[np.ndarray, "n k"]:
        """The `count` nearest words of each vector, nearest first; exact, equal distances to the lower word."""
        vectors = require_vectors(vectors, "features", self.dim)
        if count < 1:
            raise SuperfeatError(f"each feature goes to 1 word or more, not to {count}")
        return nearest(vectors, self._prepared, count, workers or all_cores())

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Writes a codebook folder, whole or not at all."""
        manifest: CodebookManifest = {
            "format": FORMAT,
            "version": VERSION,
            "words": self.words,
            "dim": self.dim,
            "digest": self.digest,
            "network": self.network,
            "facts": self.facts,
        }
        centroids = io.BytesIO()
        np.save(centroids, np.asarray(self.centroids, "<f4"))
        text = json.dumps(manifest, indent=2, sort_keys=True) + "\n"
        files = {"centroids.npy": centroids.getvalue(), "manifest.json": text.encode()}
        write_folder(Path(path), files, overwrite=overwrite)

    @classmethod
    def open(cls, path: str | Path) -> "Codebook":
        """Reads a codebook folder and checks it, or imports asmk's pickle or the checkpoint of DELF's codebook."""
        folder = Path(path)
        if folder.suffix == ".index" and folder.is_file():
            return cls(_tensorflow_codebook(folder))
        if folder.is_file():
            from superfeat.index.asmk_import import read_codebook

            return cls(read_codebook(folder))
        manifest = read_codebook_manifest(folder)
        centroids = read_array(folder / "centroids.npy", "<f4")
        try:
            codebook = cls(centroids, manifest["network"], manifest["facts"])
        except SuperfeatError as error:
            raise StoreError(f"{folder} is damaged: {error}") from error
        if codebook.digest != manifest["digest"]:
            raise StoreError(f"{folder} is damaged: its centroids are not those that were written; make it again")
        return codebook


def _tensorflow_codebook(path: Path) -> np.ndarray:
    from superfeat.weights.tensorflow import read_tensorflow

    found = [value for name, value in read_tensorflow(path).items() if name.startswith("codebook") and value.ndim == 2]
    if len(found) != 1:
        raise StoreError(f"{path} is a checkpoint of TensorFlow's without a codebook in it")
    return found[0]


def read_codebook_manifest(folder: Path) -> CodebookManifest:
    """What a codebook folder says of itself."""
    manifest = read_json(folder / "manifest.json") if (folder / "manifest.json").is_file() else None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise StoreError(f"{folder} is not a codebook; make one with: superfeat codebook FEATURES -o {folder}")
    if manifest.get("version") != VERSION:
        raise StoreError(
            f"{folder} has format version {manifest.get('version')}; this superfeat reads {VERSION}: upgrade it"
        )
    return as_record(CodebookManifest, manifest, folder / "manifest.json")


@dataclasses.dataclass(frozen=True)
class Round:
    """How far training is: `done` of `points` in round `number` of `rounds` (0: taking the sample)."""

    number: int
    rounds: int
    done: int
    points: int


def words_for(features: int, wanted: int) -> int:
    """As many words as wanted, or as there are features for."""
    return max(1, min(wanted, features // LEAST_POSSIBLE_FEATURES_PER_WORD))


def train_codebook(
    features: Source,
    config: CodebookConfig = CodebookConfig(),  # noqa: B008 - frozen
    *,
    words: int | None = None,
    seed: int | None = None,
    work: str | Path | None = None,
    workers: int | None = None,
    on_progress: Callable[[Round], None] | None = None,
    assign: Assign | None = None,
) -> Codebook:
    """k-means over a sample of the features: a FeatureStore, or any stream of Features or (n, dim) arrays.

    The result depends on the features, their order and the settings alone, not on the number of threads. With `work`,
    a folder, an interrupted training goes on from its last whole round. `words` and `seed` are short for settings.
    `assign` finds the nearest words elsewhere; the points of each are summed here, in their order, so no bit changes.
    """
    short = {"words": words, "seed": seed}
    config = dataclasses.replace(config, **{name: value for name, value in short.items() if value is not None})
    report = on_progress or (lambda _: None)
    with contextlib.ExitStack() as stack:
        if work is None:
            work = stack.enter_context(tempfile.TemporaryDirectory(prefix="superfeat-"))
        folder = Path(work)
        with explained(folder):
            folder.mkdir(parents=True, exist_ok=True)
        stack.enter_context(writer_lock(folder))
        points, facts = _sample(features, config, folder, report)
        local = functools.partial(assign_here, workers=workers or all_cores())
        return _lloyd(points, config, folder, facts, assign or local, report)


# -- The sample: a reservoir in a file, so that memory stays bounded


def _sample(
    features: Source, config: CodebookConfig, folder: Path, report: Callable[[Round], None]
) -> tuple[Vectors, _Sample]:
    """Up to `points_per_word` points for each word, each feature with the same chance; taken once, then reused."""
    settings = as_dict(config)
    source = str(getattr(features, "path", "stream"))
    if (folder / "sample.json").is_file():
        facts = as_record(_Sample, read_json(folder / "sample.json"), folder / "sample.json")
        if facts["settings"] == settings and facts["source"] == source:
            return _map_points(folder, facts["points"], facts["dim"]), facts
        raise StoreError(f"{folder} holds a training with other settings or features; remove it to start again")
    most = config.words * config.points_per_word
    random = np.random.default_rng(config.seed)
    seen, networks, dim = 0, set(), 0
    with explained(folder), (folder / "points.f4").open("w+b") as file:
        for vectors, network in _stream(features):
            dim = dim or vectors.shape[1]
            networks.add(network)
            require_vectors(vectors, "features", dim)
            room = max(0, most - seen)
            file.seek(min(seen, most) * dim * 4)
            file.write(np.ascontiguousarray(vectors[:room], "<f4").tobytes())
            late = vectors[room:]
            places = random.integers(0, np.arange(seen + len(vectors) - len(late), seen + len(vectors)) + 1)
            for row in np.flatnonzero(places < most):
                file.seek(int(places[row]) * dim * 4)
                file.write(np.ascontiguousarray(late[row], "<f4").tobytes())
            seen += len(vectors)
            report(Round(0, config.rounds, seen, 0))
        file.flush()
    points = min(seen, most)
    _require_enough(seen, config.words)
    if len(networks) > 1:
        raise SuperfeatError("the features come from different networks; train a codebook from those of one")
    facts = {
        "settings": settings,
        "source": source,
        "features": seen,
        "points": points,
        "dim": dim,
        "network": networks.pop(),
    }
    write_json(folder / "sample.json", facts)
    return _map_points(folder, points, dim), facts


def _stream(features: Source) -> Iterator[tuple[Vectors, str | None]]:
    for one in features:
        vectors = one.vectors if isinstance(one, Features) else one
        yield require_vectors(vectors, "features"), one.network if isinstance(one, Features) else None


def _require_enough(seen: int, words: int) -> None:
    if seen < words:
        most = 1 << max(0, (seen // 4).bit_length() - 1)
        raise ConfigError(
            f"a codebook of {words} words needs at least {words} features, and there are {seen}; "
            f"extract more photos, or ask for fewer words, at most {most}",
            arguments=[f"words={most}"],
        )


def _map_points(folder: Path, points: int, dim: int) -> Vectors:
    path = folder / "points.f4"
    with explained(path, "read"):
        if path.stat().st_size < points * dim * 4:
            raise StoreError(f"{path} is shorter than it was; remove {folder} to start again")
        return np.asarray(np.memmap(path, "<f4", "r", 0, (points, dim)))


# -- Lloyd's rounds


def _lloyd(
    points: Vectors,
    config: CodebookConfig,
    folder: Path,
    facts: _Sample,
    assign: Assign,
    report: Callable[[Round], None],
) -> Codebook:
    centroids, done, history = _resume(points, config, folder)
    for number in range(done + 1, config.rounds + 1):
        sums = np.zeros(centroids.shape)
        counts, distortion = np.zeros(len(centroids), np.int64), 0.0
        done = 0
        for block, owners in zip(point_blocks(points), assign(points, centroids), strict=True):
            distortion += add_points(block, owners, centroids, sums, counts)
            done += len(block)
            report(Round(number, config.rounds, done, len(points)))
        empty = int((counts == 0).sum())
        history.append({"distortion": distortion / len(points), "imbalance": imbalance(counts), "empty": empty})
        centroids = move_words(centroids, sums, counts)
        state = io.BytesIO()
        np.save(state, centroids)
        write_file(folder / f"round{number}.npy", state.getvalue())
        write_json(folder / "rounds.json", history)
        (folder / f"round{number - 1}.npy").unlink(missing_ok=True)
    quality: Quality = {"rounds": history, **history[-1]} if history else {"rounds": history}
    learned: CodebookFacts = {
        "settings": facts["settings"],
        "features": facts["features"],
        "points": facts["points"],
        "quality": quality,
    }
    return Codebook(centroids, facts["network"], learned)


def _resume(points: Vectors, config: CodebookConfig, folder: Path) -> tuple[Vectors, int, list[RoundFacts]]:
    """The centroids after the last whole round, or random points to begin with."""
    history: list[RoundFacts] = read_json(folder / "rounds.json") if (folder / "rounds.json").is_file() else []
    if history:
        return read_array(folder / f"round{len(history)}.npy", "<f4"), len(history), history
    chosen = np.random.default_rng(config.seed + 1).choice(len(points), config.words, replace=False)
    return np.ascontiguousarray(points[np.sort(chosen)], np.float32), 0, []


def remove_work(folder: Path) -> None:
    """Takes the files of a finished training away."""
    shutil.rmtree(folder, ignore_errors=True)
