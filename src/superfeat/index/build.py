"""Into the index: features folders and photos. What is there and has not changed is left alone, so both can go on."""

import dataclasses
from collections.abc import Container, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from superfeat.config import CALIBRATION, CodebookConfig, ExtractConfig
from superfeat.errors import ImageError, SuperfeatError
from superfeat.extraction.folder import FeatureStore, photo_stamp
from superfeat.features import Features, ImageWords, Meta
from superfeat.images import Photo, Skipped, none_read
from superfeat.index.boxes import PhotoRegions
from superfeat.index.codebook import read_codebook_manifest
from superfeat.index.entries import Added
from superfeat.index.identity import Register
from superfeat.index.index import Index
from superfeat.index.manifest import IndexFacts
from superfeat.index.places import encode_places, word_regions
from superfeat.index.vocabulary import Vocabulary
from superfeat.settings import as_dict
from superfeat.storage.store import as_json, differences, read_json, write_json

if TYPE_CHECKING:
    from superfeat.weights import Network

BATCH = 64  # images that share one wait for the disk
# A codebook learned from the photos themselves wants few words (benchmarks/codebooks.py).
FEWEST_WORDS, FEATURES_PER_WORD, LEAST_ADVISED_FEATURES_PER_WORD = 64, 2000, 8


class LookedAt(NamedTuple):
    """What an index takes in of a photo."""

    name: str
    words: ImageWords
    facts: Meta
    note: str | None


class Crew(Protocol):
    """Looks at photos elsewhere: an outcome for each, in the order in which they come."""

    def features(self, photos: Iterable[Photo]) -> Iterator[Features | Skipped]: ...

    def words(self, photos: Iterable[Photo], vocabulary: Vocabulary) -> Iterator[LookedAt | Skipped]: ...


def describe_photo(features: Features, words: ImageWords) -> LookedAt:
    """What is noted of a photo besides its file: its size, and where its words are, if its features say so."""
    facts = {"size": list(features.image_size or ()), **_places(features, words)}
    return LookedAt(features.name, dataclasses.replace(words, assigned=None), facts, features.note)


def suggest_words(features: int) -> int:
    """How many words to learn from so many features: a power of two, at most the paper's."""
    wanted = min(max(features // FEATURES_PER_WORD, FEWEST_WORDS), CodebookConfig().words)
    possible = max(1, min(wanted, features // LEAST_ADVISED_FEATURES_PER_WORD))
    return 1 << (possible.bit_length() - 1)


def feature_facts(store: FeatureStore) -> IndexFacts:
    """What an index notes of the features it is made from."""
    return {"extract": store.manifest.get("extract", {})}


def add_features(index: Index, store: FeatureStore, only: Container[str] | None = None) -> Iterator[Added]:
    """Adds the images of a features folder (`only` some); one that is there with the same features costs nothing."""
    _require_same(index, feature_facts(store))

    def new() -> Iterator[tuple[str, ImageWords, Meta]]:
        known = index.meta([entry.name for entry in store.entries])
        for entry in store.entries:
            if only is not None and entry.name not in only:
                continue
            meta = as_json({"stamp": entry.stamp, "size": entry.size, "features": entry.crc32})
            if {**known.get(entry.name, {}), "places": None} != {**meta, "places": None}:
                features = store[entry.name]
                words = index.query(features, assignments=1)
                yield entry.name, words, {**meta, **_places(features, words)}

    yield from index.add_many(new(), batch=BATCH)


def add_photos(
    index: Index,
    network: "Network",
    photos: Iterable[Photo],
    config: ExtractConfig,
    *,
    extracted: FeatureStore | None = None,
    regions: PhotoRegions | None = None,
    workers: int | None = None,
    device: str = "cpu",
    crew: Crew | None = None,
) -> Iterator[Added | Skipped]:
    """Brings photos in, each under the name it has or a longer one; one whose bytes are known is not extracted again.

    `extracted` holds features of some of them, made by the same network with the same settings. With `regions` an image
    is the mean of its whole and of its boxes (R-ASMK). A `crew` looks at the photos elsewhere.
    """
    _require_same(index, as_json({"extract": as_dict(config), "boxes": None if regions is None else regions.kind}))
    register = Register(index)
    known = register.sort(list(photos))
    yield from (Added(entry.name, entry.id, "same") for _, entry in known.same)
    looker = _Looker(index, network, config, extracted, regions, workers, device, bool(known.same), crew)
    changed: list[Photo] = []
    for photo in known.changed:  # first: what was moved must be found before a changed photo takes its place
        settled = register.settle(photo, copies=False)
        if settled is None:
            changed.append(photo)
        else:
            looker.some = True
            yield settled
    yield from looker.look_at(register, known.new)
    yield from register.drop_displaced()
    yield from looker.look_at(register, changed)


class _Looker:
    """Extracts photos and adds them."""

    def __init__(
        self,
        index: Index,
        network: "Network",
        config: ExtractConfig,
        extracted: FeatureStore | None,
        regions: PhotoRegions | None,
        workers: int | None,
        device: str,
        some_known: bool,
        crew: Crew | None,
    ) -> None:
        self.index, self.network, self.config, self.extracted, self.crew = index, network, config, extracted, crew
        self.regions, self.workers, self.device = regions, workers, device
        self.some = some_known  # whether any photo could be read so far

    def look_at(self, register: Register, photos: Iterable[Photo]) -> Iterator[Added | Skipped]:
        """One outcome for each photo; of several with the same bytes one is extracted."""
        outcomes: list[Added | Skipped] = []
        later: list[Photo] = []
        metas: dict[str, Meta] = {}
        notes: dict[str, str | None] = {}
        given: dict[str, Photo] = {}  # as they were called
        pending: set[str] = set()

        def unknown() -> Iterator[Photo]:
            for photo in photos:
                if (digest := register.digest(photo.where.resolve())) in pending:
                    later.append(photo)
                elif (settled := register.settle(photo)) is not None:
                    outcomes.append(settled)
                else:
                    named = dataclasses.replace(photo, name=register.name_for(photo))
                    metas[named.name], given[named.name] = register.facts(photo), photo
                    pending.update([digest] if digest is not None else [])
                    yield named

        def new() -> Iterator[tuple[str, ImageWords, Meta]]:
            for seen in self._looked_at(unknown(), given, outcomes):
                notes[seen.name] = seen.note
                yield seen.name, seen.words, {**metas[seen.name], **seen.facts}

        for added in self.index.add_many(new()):
            yield from outcomes
            outcomes.clear()
            yield added._replace(note=notes.pop(added.name))
        yield from outcomes
        if later:
            yield from self.look_at(register, later)

    def _looked_at(
        self, photos: Iterator[Photo], given: dict[str, Photo], outcomes: list[Added | Skipped]
    ) -> Iterator[LookedAt]:
        """What there is to say of each photo; those that cannot be read go to the outcomes."""
        if self.crew is None or self.extracted is not None:
            for features in self._features(photos, outcomes):
                yield describe_photo(features, self._words(features, given.pop(features.name)))
            return
        failed: list[Skipped] = []
        for one in self.crew.words(photos, self.index.vocabulary()):
            if isinstance(one, Skipped):
                failed.append(one)
                outcomes.append(one)
            else:
                self.some = True
                yield one
        if failed and not self.some and not any(isinstance(outcome, Added) for outcome in outcomes):
            raise none_read(failed)

    def _words(self, features: Features, photo: Photo) -> ImageWords:
        if self.regions is None:
            return self.index.query(features, assignments=1)
        return self.regions.words(self.index, self.network, photo, features, self.config, self.workers)

    def _features(self, photos: Iterator[Photo], outcomes: list[Added | Skipped]) -> Iterator[Features]:
        """Of each photo, from `extracted` where it has them; those that cannot be read go to the outcomes."""
        from superfeat.extraction.extract import extract

        ready = {entry.name: entry.stamp for entry in self.extracted.entries} if self.extracted is not None else {}
        rest: list[Photo] = []
        for photo in photos if ready else ():
            if self.extracted is not None and ready.get(photo.name) == photo_stamp(photo.where):
                self.some = True
                yield self.extracted[photo.name]
            else:
                rest.append(photo)
        coming = iter(rest) if ready else photos
        try:
            for features in extract(
                self.network, coming, self.config, workers=self.workers, device=self.device, on_skip=outcomes.append
            ):
                self.some = True
                yield features
        except ImageError:  # none of these could be read
            if not self.some and not any(isinstance(outcome, Added) for outcome in outcomes):
                raise


def add_photo(
    index: Index, network: "Network", photo: Photo, config: ExtractConfig, *, workers: int | None, device: str
) -> Added:
    """Brings one photo in under the very name it has; the image that had it is replaced. ImageError if it cannot."""
    from superfeat.extraction.extract import extract_image

    facts = Register(index).facts(photo)
    alike = index.find("digest", [str(facts["digest"])]).get(str(facts["digest"]), [])
    if alike:
        return index.add(photo.name, index.words_of(alike[0].name), {**alike[0].meta, **facts})
    try:
        features = extract_image(network, photo.where, config, name=photo.name, workers=workers, device=device)
    except ImageError as error:
        raise ImageError(f"{photo.name}: {error}") from error
    words = index.query(features, assignments=1)
    (added,) = index.add_many([(photo.name, words, {**facts, **describe_photo(features, words).facts})])
    return added


def _places(features: Features, image: ImageWords) -> Meta:
    """Where the words of an image are, if its features say so."""
    if features.regions is None or image.assigned is None:
        return {}
    return {"places": encode_places(word_regions(features.regions, image.assigned[:, 0], image.words))}


def take_calibration(index: Index, codebook: Path, source: Path) -> None:
    """Notes a calibration in an index that was made with this codebook and has none of its own.

    A student's index may have the codebook of its teacher, whose scores are others.
    """
    if (index.path / CALIBRATION).exists() or not source.is_file():
        return
    calibration = read_json(source)
    fitted_to = calibration.get("origin", {}).get("network")
    if read_codebook_manifest(codebook)["digest"] == index.codebook.digest and fitted_to in (None, index.network):
        write_json(index.path / CALIBRATION, calibration)


def add_inverted_file(index: Index, path: Path) -> Iterator[Added]:
    """Imports a pickled inverted file of the reference implementation; an image is named by its number there."""
    from superfeat.index.asmk_import import read_inverted_file

    digest = index.codebook.digest
    images = (
        (str(image.id), ImageWords(image.words, image.codes, digest), None)
        for image in read_inverted_file(path, index.codebook.dim)
    )
    yield from index.add_many(images, batch=BATCH)


def _require_same(index: Index, facts: IndexFacts) -> None:
    """SuperfeatError if photos are looked at in another way. int8 and float32 may stand together (docs/onnx.md)."""
    extract = {name: value for name, value in facts.get("extract", {}).items() if name != "precision"}
    different = differences(index.facts, {**facts, "extract": extract}) if index.facts else ""
    if different:
        raise SuperfeatError(
            f"{index.path} was made with other settings ({different}); use the same ones, or make another index"
        )
