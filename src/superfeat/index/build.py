"""Into the index: features folders and photos. What is there and has not changed is left alone, so both can go on."""

from collections.abc import Container, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from superfeat.config import CodebookConfig, ExtractConfig
from superfeat.errors import ImageError, SuperfeatError
from superfeat.extraction.folder import FeatureStore, photo_stamp
from superfeat.features import Features, ImageWords, Meta
from superfeat.images import Photo, Skipped
from superfeat.index.codebook import read_codebook_manifest
from superfeat.index.index import Added, Index
from superfeat.index.manifest import IndexFacts
from superfeat.index.places import encode_places, word_regions
from superfeat.settings import as_dict
from superfeat.storage.store import as_json, differences, read_json, write_json

if TYPE_CHECKING:
    from superfeat.weights import Network

CALIBRATION = "calibration.json"  # in an index or a network's folder: from scores to probabilities
BATCH = 64  # images that share one wait for the disk
# A codebook learned from the photos themselves wants few words (benchmarks/codebooks.py).
FEWEST_WORDS, FEATURES_PER_WORD, LEAST_ADVISED_FEATURES_PER_WORD = 64, 2000, 8


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

    def new() -> Iterator[tuple[str, Features, Meta]]:
        known = index.meta([entry.name for entry in store.entries])
        for entry in store.entries:
            if only is not None and entry.name not in only:
                continue
            meta = as_json({"stamp": entry.stamp, "size": entry.size, "features": entry.crc32})
            if known.get(entry.name) != meta:
                yield entry.name, store[entry.name], meta

    yield from index.add_many(new(), batch=BATCH)


def add_photos(
    index: Index,
    network: "Network",
    photos: Iterable[Photo],
    config: ExtractConfig,
    *,
    extracted: FeatureStore | None = None,
    workers: int | None = None,
    device: str = "cpu",
) -> Iterator[Added | Skipped]:
    """Extracts and adds photos; one whose file has not changed since is not read again.

    `extracted` holds features of some of them, made by the same network with the same settings.
    """
    from superfeat.extraction.extract import extract

    _require_same(index, as_json({"extract": as_dict(config)}))
    metas: dict[str, Meta] = {}
    todo: list[Photo] = []
    photos = list(photos)
    known = index.meta([photo.name for photo in photos])
    for photo in photos:
        metas[photo.name] = as_json({"stamp": photo_stamp(photo.path), "path": str(photo.path.resolve())})
        before = known.get(photo.name, {})
        if {key: before.get(key) for key in metas[photo.name]} != metas[photo.name]:
            todo.append(photo)
    skipped: list[Skipped] = []

    def features_of() -> Iterator[Features]:
        ready = {entry.name: entry.stamp for entry in extracted.entries} if extracted is not None else {}
        have = [photo for photo in todo if ready.get(photo.name) == photo_stamp(photo.path)]
        if extracted is not None:
            yield from (extracted[photo.name] for photo in have)
        names = {photo.name for photo in have}
        rest = [photo for photo in todo if photo.name not in names]
        try:
            yield from extract(network, rest, config, workers=workers, device=device, on_skip=skipped.append)
        except ImageError:  # none of these could be read
            if not have and not known:
                raise

    def new() -> Iterator[tuple[str, ImageWords, Meta]]:
        for features in features_of():
            words = index.query(features, assignments=1)
            noted = {**metas[features.name], "size": list(features.image_size or ())}
            yield features.name, words, noted | _places(features, words)

    for added in index.add_many(new()):
        yield from skipped
        skipped.clear()
        yield added
    yield from skipped


def _places(features: Features, image: ImageWords) -> dict[str, str]:
    """Where its words are, if its features say where they look."""
    if features.regions is None or image.assigned is None:
        return {}
    return {"places": encode_places(word_regions(features.regions, image.assigned[:, 0], image.words))}


def vanished(index: Index, photos: Iterable[Photo], folders: Sequence[Path]) -> list[str]:
    """Indexed photos that `photos` does not list although they lay in one of these folders, or whose file is gone."""
    listed = {photo.name for photo in photos}
    roots = [folder.resolve() for folder in folders]
    gone = []
    for _, image in index.snapshot().images():
        path = Path(str(image.meta.get("path", "")))
        if image.name in listed or not path.is_absolute():
            continue
        if any(path.is_relative_to(root) for root in roots) or not path.exists():
            gone.append(image.name)
    return gone


def take_calibration(index: Index, codebook: Path) -> None:
    """Notes the calibration beside this codebook in an index that was made with it and has none of its own."""
    source = codebook.parent / CALIBRATION
    if (index.path / CALIBRATION).exists() or not source.is_file():
        return
    if read_codebook_manifest(codebook)["digest"] == index.codebook.digest:
        write_json(index.path / CALIBRATION, read_json(source))


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
    different = differences(index.facts, facts) if index.facts else ""
    if different:
        raise SuperfeatError(
            f"{index.path} was made with other settings ({different}); use the same ones, or make another index"
        )
