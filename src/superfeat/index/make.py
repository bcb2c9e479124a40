"""The main job: photos, a features folder or an inverted file into an index on disk, made if there is none."""

import dataclasses
import shutil
from collections.abc import Callable, Generator, Iterable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from superfeat.config import DEFAULT_PROFILE, DEFAULT_WEIGHTS, OWN_CODEBOOK, CodebookConfig, ExtractConfig, IndexConfig
from superfeat.errors import SuperfeatError
from superfeat.extraction.folder import FeatureStore
from superfeat.images import Photo, Skipped, list_photos
from superfeat.index.build import (
    add_features,
    add_inverted_file,
    add_photos,
    feature_facts,
    suggest_words,
    take_calibration,
    vanished,
)
from superfeat.index.codebook import Codebook, Round, remove_work, train_codebook
from superfeat.index.index import Added, Index
from superfeat.index.manifest import IndexFacts
from superfeat.settings import Changes, as_dict, overlay
from superfeat.storage.store import as_json
from superfeat.weights import Network, carried_codebook, load_network
from superfeat.work import Work

PhotoSources = str | Path | Iterable[str | Path]
OnRound = Callable[[Round], None]  # told how far k-means is


class Indexing(NamedTuple):
    """How far an indexing is: `done` of `total` photos or features, and the photo just done."""

    stage: Literal["extracting", "words", "indexing"]
    done: int
    total: int | None
    name: str = ""
    detail: str = ""


@dataclasses.dataclass
class Indexed:
    """What became of the photos."""

    path: Path
    new: int = 0
    replaced: int = 0
    same: int = 0
    dropped: int = 0
    skipped: list[Skipped] = dataclasses.field(default_factory=list)

    def open(self) -> Index:
        """The index."""
        return Index.open(self.path)


Steps = Generator[Indexing, None, Indexed]


def index_photos(
    photos: PhotoSources,
    path: str | Path,
    *,
    weights: str | Path | None = None,
    profile: str | None = None,
    settings: Changes | None = None,
    codebook: str | Path | Codebook | None = None,
    kernel: Literal["binary", "real"] | None = None,
    sync: bool = False,
    workers: int | None = None,
    device: str = "cpu",
    on_round: OnRound | None = None,
) -> Work[Indexing, Indexed]:
    """Brings photos into the index at `path`: a folder, a pattern, a list, or several of these.

    What is there and has not changed is left alone, a changed photo replaces the old one, and a run that was stopped
    goes on. `weights`, `profile` and `settings` (of ExtractConfig) are the index's own where there is one, and its
    codebook too; a new one takes the codebook and the calibration that come with the network, or with "own" a codebook
    learned from the photos. `sync` drops photos that have gone from the folders. `on_round` is told how far k-means is.
    """
    target = _Target(Path(path), codebook, kernel, workers, on_round)
    return Work(_photos(photos, target, weights, profile, settings or {}, sync, device))


def index_features(
    features: str | Path,
    path: str | Path,
    *,
    codebook: str | Path | Codebook | None = None,
    kernel: Literal["binary", "real"] | None = None,
    workers: int | None = None,
    on_round: OnRound | None = None,
) -> Work[Indexing, Indexed]:
    """The same from a features folder, or from an inverted file (.pkl) of the reference implementation."""
    return Work(_features(Path(features), _Target(Path(path), codebook, kernel, workers, on_round)))


class _Target:
    """The index that is to be filled, new or not, and what is known of its words."""

    def __init__(
        self,
        path: Path,
        codebook: str | Path | Codebook | None,
        kernel: str | None,
        workers: int | None,
        on_round: OnRound | None,
    ) -> None:
        self.path, self.workers, self.on_round = path, workers, on_round
        self.old = (path / "manifest.json").is_file()
        if self.old and (codebook is not None or kernel is not None):
            raise SuperfeatError(f"{path} has its codebook and kernel already; they cannot be chosen again")
        self.own = str(codebook) == OWN_CODEBOOK and not Path(OWN_CODEBOOK).exists()
        self.codebook = None if self.own else codebook
        self.config = overlay(IndexConfig(), {"kernel": kernel} if kernel else {})
        self.waiting = path.with_name(f"{path.name}.features")  # features, until words are learned from them
        self._learned = path.with_name(f"{path.name}.codebook")

    @property
    def needs_features(self) -> bool:
        """Whether words must be learned from features before there can be an index."""
        return not self.old and self.codebook is None

    def facts(self) -> IndexFacts:
        return Index.open(self.path).facts if self.old else {}

    def open(
        self, facts: IndexFacts, network: str | None, store: FeatureStore | None
    ) -> Generator[Indexing, None, Index]:
        """The index, made if it is not there, with the codebook that is given or one learned from `store`."""
        if self.old:
            return Index.open(self.path)
        words = yield from self._words(store)
        index = Index.create(self.path, words, self.config, network=network, facts=facts)
        shutil.rmtree(self._learned, ignore_errors=True)  # it travels with the index
        return index

    def _words(self, store: FeatureStore | None) -> Generator[Indexing, None, Codebook]:
        if isinstance(self.codebook, Codebook):
            return self.codebook
        if self.codebook is not None:
            return Codebook.open(self.codebook)
        if store is None:
            raise SuperfeatError("a new index needs a codebook here: name one")
        if not self._learned.exists():
            config = CodebookConfig(words=suggest_words(sum(entry.count for entry in store.entries)))
            yield Indexing("words", 0, None, "", f"learning a codebook of {config.words} words from these photos")
            learn_words(store, config, self._learned, workers=self.workers, on_round=self.on_round)
        return Codebook.open(self._learned)


def learn_words(
    store: FeatureStore,
    config: CodebookConfig,
    output: Path,
    *,
    overwrite: bool = False,
    workers: int | None = None,
    on_round: OnRound | None = None,
) -> None:
    """A codebook of these features. Stopped early it leaves its rounds beside the output, and goes on from there."""
    work = output.with_name(f"{output.name}.partial")
    train_codebook(store, config, work=work, workers=workers, on_progress=on_round).save(output, overwrite=overwrite)
    remove_work(work)


def _photos(
    sources: PhotoSources,
    target: _Target,
    weights: str | Path | None,
    profile: str | None,
    settings: Changes,
    sync: bool,
    device: str,
) -> Steps:
    listed: Sequence[str | Path] = [sources] if isinstance(sources, (str, Path)) else list(sources)
    photos = list_photos(listed).photos
    if not photos:
        raise SuperfeatError(f"no photos in {', '.join(map(str, listed))}")
    known = target.facts()
    extract = extract_settings(known, profile, settings)
    source = str(weights or known.get("weights") or DEFAULT_WEIGHTS)
    network = load_network(source)
    carried = carried_codebook(source)
    if target.needs_features and not target.own:
        target.codebook = carried
    if target.needs_features:
        yield from _extract_first(target, network, photos, extract, device)
    store = FeatureStore(target.waiting) if target.waiting.exists() else None
    where = str(Path(source).absolute()) if Path(source).exists() else source
    index = yield from target.open(as_json({"extract": as_dict(extract), "weights": where}), network.digest, store)
    if carried is not None:
        take_calibration(index, carried)
    done = Indexed(target.path)
    if sync and (gone := vanished(index, photos, [Path(one) for one in listed if Path(one).is_dir()])):
        done.dropped = index.delete(gone)
    outcomes = add_photos(index, network, photos, extract, extracted=store, workers=target.workers, device=device)
    yield from _count(outcomes, done, len(photos))
    done.same = len(photos) - done.new - done.replaced - len(done.skipped)
    shutil.rmtree(target.waiting, ignore_errors=True)
    return done


def extract_settings(known: IndexFacts, profile: str | None, changes: Changes) -> ExtractConfig:
    """The index's own settings, so that they need not be repeated; those of a profile for a new one."""
    before = known.get("extract") or {}
    if before and profile is None:
        return overlay(ExtractConfig(), {**before, **changes}, "extract.")
    config = overlay(ExtractConfig.profile(profile or DEFAULT_PROFILE), changes, "extract.")
    return overlay(config, {"attention": before.get("attention", "regions")})


def _extract_first(
    target: _Target, network: Network, photos: Sequence[Photo], config: ExtractConfig, device: str
) -> Generator[Indexing, None, None]:
    """Words can only be learned when there are features: they wait in a folder beside the index."""
    from superfeat.extraction.extract import extract_to

    outcomes = extract_to(target.waiting, network, photos, config, workers=target.workers, device=device)
    for number, outcome in enumerate(outcomes, 1):
        yield Indexing("extracting", number, len(photos), outcome.name)


def _features(source: Path, target: _Target) -> Steps:
    done = Indexed(target.path)
    if source.suffix == ".pkl":
        index = yield from target.open({}, None, None)
        yield from _count(add_inverted_file(index, source), done, None)
        return done
    store = FeatureStore(source)
    index = yield from target.open(feature_facts(store), store.network, store)
    yield from _count(add_features(index, store), done, len(store))
    done.same = len(store) - done.new - done.replaced
    done.skipped += [Skipped(entry.name, str(entry.skipped)) for entry in store.skipped]
    return done


def _count(outcomes: Iterable[Added | Skipped], done: Indexed, total: int | None) -> Generator[Indexing, None, None]:
    for number, outcome in enumerate(outcomes, 1):
        if isinstance(outcome, Skipped):
            done.skipped.append(outcome)
        elif outcome.outcome == "new":
            done.new += 1
        elif outcome.outcome == "replaced":
            done.replaced += 1
        yield Indexing("indexing", number, total, outcome.name)
