"""The main job: photos, a features folder or an inverted file into an index on disk, made if there is none."""

import dataclasses
import shutil
from collections.abc import Callable, Generator, Iterable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from superfeat.config import (
    DEFAULT_PROFILE,
    DEFAULT_WEIGHTS,
    INT8_PROFILES,
    ExtractConfig,
)
from superfeat.errors import ImageError, SuperfeatError
from superfeat.extraction.folder import FeatureStore, stored_names
from superfeat.extraction.kept import keep_export
from superfeat.features import Features
from superfeat.images import Photo, Skipped
from superfeat.index.boxes import PhotoRegions
from superfeat.index.build import (
    Crew,
    add_features,
    add_inverted_file,
    add_photos,
    feature_facts,
    take_calibration,
)
from superfeat.index.codebook import Codebook
from superfeat.index.entries import Added
from superfeat.index.identity import Register, file_digest
from superfeat.index.index import Index
from superfeat.index.lloyd import Assign
from superfeat.index.manifest import IndexFacts
from superfeat.index.sync import is_gone, missing_photos, root_of
from superfeat.index.target import Indexing, OnRound, Target
from superfeat.methods import profile_for
from superfeat.settings import Changes, as_dict, overlay
from superfeat.sources.listing import LeftOut, Listing, holds_photos, list_photos, nothing_there
from superfeat.storage.store import as_json
from superfeat.weights import Network, carried_calibration, carried_codebook, load_network
from superfeat.work import Work, at_once

PhotoSources = str | Path | Iterable[str | Path]
Kernel = Literal["binary", "real", "float32", "float16", "int8"]


@dataclasses.dataclass
class Indexed:
    """What became of the photos, and of every file beside them.

    A photo is `moved` if it was indexed elsewhere and is no longer there, `copied` if it is there still: neither is
    extracted again. `noted` are photos that were taken although something is wrong with them. `dropped` and `gone` are
    names of images whose file is no longer there; of those in `unsure` nobody can tell.
    """

    path: Path
    new: int = 0
    replaced: int = 0
    moved: int = 0
    copied: int = 0
    same: int = 0
    skipped: list[Skipped] = dataclasses.field(default_factory=list)
    noted: list[LeftOut] = dataclasses.field(default_factory=list)
    left_out: list[LeftOut] = dataclasses.field(default_factory=list)
    unlisted: list[LeftOut] = dataclasses.field(default_factory=list)
    dropped: list[str] = dataclasses.field(default_factory=list)
    gone: list[str] = dataclasses.field(default_factory=list)
    unsure: list[LeftOut] = dataclasses.field(default_factory=list)

    @property
    def changed(self) -> bool:
        """Whether the index holds anything else than before."""
        return bool(self.new or self.replaced or self.moved or self.copied or self.dropped)

    def open(self) -> Index:
        """The index."""
        return Index.open(self.path)


Steps = Generator[Indexing, None, Indexed]


def begin_indexing(
    photos: PhotoSources,
    path: str | Path,
    *,
    weights: str | Path | None = None,
    profile: str | None = None,
    settings: Changes | None = None,
    codebook: str | Path | Codebook | None = None,
    kernel: Kernel | None = None,
    shards: int | None = None,
    exclude: Iterable[str] = (),
    boxes: str | Path | None = None,
    sync: bool = False,
    workers: int | None = None,
    device: str = "cpu",
    on_round: OnRound | None = None,
    crew: Callable[[str, ExtractConfig], Crew] | None = None,
    assign: Assign | None = None,
) -> Work[Indexing, Indexed]:
    """Brings photos into the index at `path`: a folder, an archive, a pattern, a list, here or elsewhere, or several.

    What is there and has not changed is left alone, a changed photo replaces the old one, one that was moved is known
    by its bytes and stays the same image, and a run that was stopped goes on. `exclude` are patterns of files and
    folders to leave out.

    `weights`, `profile` and `settings` (of ExtractConfig) are the index's own where there is one, and its codebook too;
    a new one takes the codebook and the calibration that come with the network, or with "own" a codebook
    learned from the photos, and is made of so many `shards`. `boxes` is a file of boxes (`read_boxes`), or "attention":
    each photo becomes the mean of its whole and of these (R-ASMK). `sync` drops photos that have certainly gone from
    the folders. `on_round` is told how far k-means is.

    `crew(weights, settings)` looks at photos elsewhere, and `assign` does what k-means needs there; neither changes a
    bit of the result.
    """
    target = Target(Path(path), codebook, kernel, workers, on_round, shards)
    sources = [photos] if isinstance(photos, (str, Path)) else list(photos)
    regions = None if boxes is None else PhotoRegions.read(boxes)
    if crew is not None and regions is not None:
        raise SuperfeatError("photos with boxes are looked at on one machine; leave the boxes or the cluster out")
    target.assign = assign
    asked = _Wanted(sources, tuple(exclude), weights, profile, settings or {}, regions, sync, device, crew)
    return Work(_photos(asked, target))


index_photos = at_once("index_photos", begin_indexing)
"""Brings photos into an index: `begin_indexing`, done at once."""


class _Wanted(NamedTuple):
    """What `begin_indexing` is asked to bring in, and how."""

    sources: Sequence[str | Path]
    exclude: tuple[str, ...]
    weights: str | Path | None
    profile: str | None
    settings: Changes
    regions: PhotoRegions | None
    sync: bool
    device: str
    crew: Callable[[str, ExtractConfig], Crew] | None


def index_features(
    features: str | Path,
    path: str | Path,
    *,
    codebook: str | Path | Codebook | None = None,
    kernel: Kernel | None = None,
    shards: int | None = None,
    workers: int | None = None,
    on_round: OnRound | None = None,
) -> Work[Indexing, Indexed]:
    """The same from a features folder, or from an inverted file (.pkl) of the reference implementation."""
    return Work(_features(Path(features), Target(Path(path), codebook, kernel, workers, on_round, shards)))


def _photos(asked: _Wanted, target: Target) -> Steps:
    vanished = _vanished_folders(asked, target)
    listing = list_photos([one for one in asked.sources if one not in vanished], exclude=asked.exclude)
    if not listing.photos and not (asked.sync and target.old):
        raise SuperfeatError(nothing_there(asked.sources, listing))
    from superfeat.extraction.extract import require_device

    require_device(asked.device)
    known = target.facts()
    source = str(asked.weights or known.get("weights") or DEFAULT_WEIGHTS)
    network = load_network(source)
    extract = _in_best_precision(known, asked, network, new=not target.old)
    target.suit(network, asked.regions, [photo.name for photo in listing.photos])
    carried = carried_codebook(source)
    if target.needs_features and not target.own:
        target.codebook = carried
    crew = None if asked.crew is None else asked.crew(source, extract)
    noted = yield from _extract_first(target, network, listing.photos, extract, asked.device, crew)
    store = FeatureStore(target.waiting) if target.waiting.exists() else None
    index = yield from target.open(_facts(extract, source, asked.regions), network.digest, store)
    with target.no_empty_index(index):
        if carried is not None:
            take_calibration(index, carried, carried_calibration(source))
        done = Indexed(target.path, noted=noted, left_out=listing.left_out, unlisted=listing.unlisted)
        yield from _upgrade(index, listing.photos)
        outcomes = add_photos(
            index,
            network,
            listing.photos,
            extract,
            extracted=store,
            regions=asked.regions,
            workers=target.workers,
            device=asked.device,
            crew=crew,
        )
        yield from _count(outcomes, done, len(listing.photos))
    _compare(index, asked, listing, done)
    shutil.rmtree(target.waiting, ignore_errors=True)
    keep_export(network)  # torch is here now: the first search by a photo will not need it
    return done


def _facts(extract: ExtractConfig, source: str, regions: PhotoRegions | None) -> IndexFacts:
    """What a new index notes of how its photos are looked at."""
    where = str(Path(source).absolute()) if Path(source).exists() else source
    facts: IndexFacts = as_json({"extract": as_dict(extract), "weights": where})
    if regions is not None:
        facts["boxes"] = regions.kind
    return facts


def _vanished_folders(asked: _Wanted, target: Target) -> list[str | Path]:
    """Folders that are to be compared with the index and are not there, although it has photos of them."""
    gone = [one for one in asked.sources if asked.sync and target.old and is_gone(one)]
    if not gone:
        return []
    paths = [str(image.meta.get("path", "")) for _, image in Index.open(target.path).snapshot().images()]
    return [one for one in gone if any(path.startswith(root_of(one)) for path in paths)]


def _upgrade(index: Index, photos: Sequence[Photo]) -> Generator[Indexing, None, None]:
    """Images of an older superfeat, of which only the path is noted, get the digest of their file."""
    register = Register(index)
    known = register.outdated(register.sort(photos).same)
    for done in register.note_facts(known):
        yield Indexing("reading", done, len(known))


def _compare(index: Index, asked: _Wanted, listing: Listing, done: Indexed) -> None:
    """What the index has and the folders have not; it is dropped where that is asked for."""
    folders = [one for one in asked.sources if holds_photos(str(one)) or is_gone(one)]
    missing = missing_photos(index, folders, [photo.where for photo in listing.photos])
    done.unsure = missing.unsure
    if asked.sync:
        index.delete(missing.gone)
        done.dropped += missing.gone
    else:
        done.gone = missing.gone


def extract_settings(known: IndexFacts, profile: str | None, changes: Changes, method: str = "fire") -> ExtractConfig:
    """The index's own settings, so that they need not be repeated; those of a profile for a new one."""
    before = known.get("extract") or {}
    if before and profile is None:
        return overlay(ExtractConfig(), {**before, **changes}, "extract.")
    config = overlay(profile_for(method, profile or DEFAULT_PROFILE), changes, "extract.")
    return overlay(config, {"attention": before.get("attention", "regions")})


def _in_best_precision(known: IndexFacts, asked: _Wanted, network: Network, *, new: bool) -> ExtractConfig:
    """How photos are looked at: in int8 for a new index where that pays and nobody chose otherwise, and in float32
    where int8 cannot be had any more.
    """
    from superfeat.extraction.precision import int8_pays, possible

    config = extract_settings(known, asked.profile, asked.settings, network.config.method)
    if "precision" in asked.settings:
        return config
    here = asked.device == "cpu" and asked.crew is None  # whether it pays elsewhere nobody has tried
    if new and here and asked.profile in (None, *INT8_PROFILES) and int8_pays(network):
        return dataclasses.replace(config, precision="int8")
    return possible(config, network, asked.device)


def _extract_first(
    target: Target,
    network: Network,
    photos: Sequence[Photo],
    config: ExtractConfig,
    device: str,
    crew: Crew | None,
) -> Generator[Indexing, None, list[LeftOut]]:
    """Words can only be learned when there are features: they wait in a folder beside the index.

    Returns what there is to say of photos that were taken. Nothing is done where there are words already.
    """
    if not target.needs_features:
        return []
    from superfeat.extraction.extract import extract_to

    different = list({file_digest(photo.where) or photo.name: photo for photo in reversed(photos)}.values())[::-1]
    run = None if crew is None else crew.features
    outcomes = extract_to(target.waiting, network, different, config, workers=target.workers, device=device, run=run)
    known = len(stored_names(target.waiting))
    noted: list[LeftOut] = []
    try:
        for done, outcome in enumerate(outcomes, known + 1):
            if isinstance(outcome, Features) and outcome.note is not None:
                noted.append(LeftOut(outcome.name, outcome.note))
            yield Indexing("extracting", done, len(different), outcome.name, known=known)
    except ImageError:  # none could be read
        shutil.rmtree(target.waiting, ignore_errors=True)
        raise
    return noted


def _features(source: Path, target: Target) -> Steps:
    done = Indexed(target.path)
    if source.suffix == ".pkl":
        index = yield from target.open({}, None, None)
        yield from _count(add_inverted_file(index, source), done, None)
        return done
    store = FeatureStore(source)
    target.suit_features(store)
    index = yield from target.open(feature_facts(store), store.network, store)
    yield from _count(add_features(index, store), done, len(store))
    done.same = len(store) - done.new - done.replaced
    done.skipped += [Skipped(entry.name, str(entry.skipped)) for entry in store.skipped]
    return done


def _count(outcomes: Iterable[Added | Skipped], done: Indexed, total: int | None) -> Generator[Indexing, None, None]:
    number = 0
    for outcome in outcomes:
        if isinstance(outcome, Added) and outcome.outcome == "dropped":
            done.dropped.append(outcome.name)
            continue
        if isinstance(outcome, Skipped):
            done.skipped.append(outcome)
        else:
            setattr(done, outcome.outcome, getattr(done, outcome.outcome) + 1)
            done.noted += [] if outcome.note is None else [LeftOut(outcome.name, outcome.note)]
        number += 1
        yield Indexing("indexing", number, total, outcome.name, known=done.same + done.moved + done.copied)
