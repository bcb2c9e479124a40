"""The protocol card: everything that a number depends on, as JSON and in words."""

import hashlib
import importlib.metadata
import platform
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypedDict

import superfeat
from superfeat.config import VECTOR_KERNELS, EvaluateConfig
from superfeat.datasets.retrieval_set import RetrievalSet
from superfeat.evaluation.local import FIRST, LocalStage
from superfeat.images import Photo
from superfeat.index.codebook import Codebook, CodebookFacts
from superfeat.index.index import Index
from superfeat.methods import method_of
from superfeat.rerank.order import COMPARED
from superfeat.settings import Values, as_dict
from superfeat.storage.store import explained
from superfeat.weights import Network
from superfeat.weights.network import Provenance

FORMAT = "superfeat-card"
VERSION = 1
NOTED_PACKAGES = ("torch", "numpy", "numba", "pillow")
UNRECORDED = "not recorded"
BYTES_PER_FLOAT = 4


class DatasetCard(TypedDict):
    """What was searched for, and among what."""

    name: str
    protocol: str
    files: dict[str, str]  # their SHA-256
    images: int
    listing_sha256: str
    distractors: int
    distractors_listing_sha256: str | None
    queries: int
    queries_without_positives: int
    missing: list[str]
    crop: str
    exif: str


class NetworkCard(TypedDict):
    """What made the features."""

    digest: str
    method: str
    ratio_test: str
    hinge: str
    provenance: Provenance
    settings: Values  # of NetworkConfig


class CodebookCard(CodebookFacts):
    """The words, and how they were learned."""

    digest: str
    words: int
    dim: int


class _ImageMemory(TypedDict):
    images: int
    bytes_per_image: float


class MemoryCard(_ImageMemory, total=False):
    """What an image takes; of an index also what it is made of."""

    words_per_image: float
    bytes_per_posting: int


class LocalCard(TypedDict):
    """The second stage: so many first images were ordered anew by the local features of this network."""

    network: str | None
    first: int


class _Card(TypedDict):
    format: str
    version: int
    dataset: DatasetCard
    network: NetworkCard
    method: str
    extract: Values  # of ExtractConfig
    codebook: CodebookCard | None
    asmk: Values | None  # of IndexConfig
    memory: MemoryCard
    software: dict[str, str]  # versions
    seconds: dict[str, float]


class Card(_Card, total=False):
    """card.json of a run."""

    local: LocalCard
    rerank: str  # how the first results were ordered anew


def make_card(
    network: Network,
    test: RetrievalSet,
    distractors: Sequence[Photo],
    missing: Sequence[str],
    config: EvaluateConfig,
    codebook: Codebook | None,
    index: Index | None,
    seconds: Mapping[str, float],
    local: LocalStage | None = None,
) -> Card:
    """The card of a finished run."""
    images = len(test.photos) + len(distractors)
    card: Card = {
        "format": FORMAT,
        "version": VERSION,
        "dataset": _dataset(test, distractors, missing, config),
        "network": {
            "digest": network.digest,
            "method": network.config.method,
            "ratio_test": network.provenance.get("ratio_test", UNRECORDED),
            "hinge": network.provenance.get("hinge", UNRECORDED),
            "provenance": dict(network.provenance),
            "settings": as_dict(network.config),
        },
        "method": config.method,
        "extract": as_dict(config.extract),
        "codebook": None if codebook is None else _codebook(codebook),
        "asmk": None if index is None else as_dict(index.config),
        "memory": _memory(index, network, images),
        "software": {
            "superfeat": superfeat.__version__,
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in NOTED_PACKAGES},
            "machine": f"{platform.system()} {platform.machine()}",
        },
        "seconds": {stage: round(value, 1) for stage, value in seconds.items()},
    }
    if local is not None:
        card["local"] = {"network": local.network, "first": FIRST}
    if config.rerank is not None:
        card["rerank"] = config.rerank
    return card


def _dataset(
    test: RetrievalSet, distractors: Sequence[Photo], missing: Sequence[str], config: EvaluateConfig
) -> DatasetCard:
    boxes = sum(query.photo.box is not None for query in test.queries)
    upright = "turned upright by the EXIF tag, except queries with boxes"
    return {
        "name": test.name,
        "protocol": test.protocol,
        "files": {file.name: _sha256(file) for file in test.files},
        "images": len(test.photos),
        "listing_sha256": _listing([*test.photos, *(query.photo for query in test.queries)]),
        "distractors": len(distractors),
        "distractors_listing_sha256": _listing(distractors) if distractors else None,
        "queries": len(test.queries),
        "queries_without_positives": test.left_out,
        "missing": list(missing),
        "crop": f"{boxes} of {len(test.queries)} queries are cropped to their boxes before they are limited in size",
        "exif": upright if config.extract.upright else "read as stored",
    }


def _sha256(file: Path) -> str:
    with explained(file, "read"):
        return hashlib.sha256(file.read_bytes()).hexdigest()


def _listing(photos: Sequence[Photo]) -> str:
    """Of the names and sizes of the photos' files; their contents are in it as far as their sizes tell."""
    total = hashlib.sha256()
    for photo in photos:
        size = photo.where.stat().st_size if photo.where.is_file() else -1
        total.update(f"{photo.name} {size} {photo.box}\n".encode())
    return total.hexdigest()


def _codebook(codebook: Codebook) -> CodebookCard:
    return {"digest": codebook.digest, "words": codebook.words, "dim": codebook.dim, **codebook.facts}


def _memory(index: Index | None, network: Network, images: int) -> MemoryCard:
    if index is None:
        return {"bytes_per_image": network.dim * BYTES_PER_FLOAT, "images": images}
    facts = index.info()
    per_posting = index.snapshot().layout.posting_bytes
    return {
        "images": facts.images,
        "words_per_image": facts.words_per_image,
        "bytes_per_image": round(facts.postings * per_posting / max(1, facts.images), 1),
        "bytes_per_posting": per_posting,
    }


def card_in_words(card: Card) -> Iterator[str]:
    """The card as sentences."""
    data, network, extract = card["dataset"], card["network"], card["extract"]
    yield (
        f"{data['queries']} queries of {data['name']} ({data['protocol']} protocol) against {data['images']} images"
        + (f" and {data['distractors']} distractors." if data["distractors"] else ".")
    )
    missing = data["missing"]
    yield f"{data['crop'][0].upper()}{data['crop'][1:]}; images are {data['exif']}; " + (
        f"{len(missing)} could not be read: {', '.join(missing[:5])}{', …' if len(missing) > 5 else ''}."
        if missing
        else "none is missing."
    )
    for file, checksum in data["files"].items():
        yield f"{file} has SHA-256 {checksum}."
    if data["queries_without_positives"]:
        yield f"{data['queries_without_positives']} queries have no right answer and are left out."
    yield f"{method_of(network['method']).title}, weights {network['digest'][:12]}; " + (
        f"trained with ratio test '{network['ratio_test']}' and hinge '{network['hinge']}'."
    )
    kept = f"at most {extract['features_per_image']} features per image"
    if each := extract.get("features_per_scale"):
        kept += f" and {each} per scale"
    one = method_of(network["method"]).one_vector
    kept = "one vector per image" if one else kept if card["method"] == "asmk" else "all pooled"
    scales = ", ".join(f"{scale:g}" for scale in extract["scales"])
    yield f"Longest side {extract['max_side']}, {len(extract['scales'])} scales ({scales}), {kept}."
    yield from _asmk_in_words(card)
    if "local" in card:
        local = card["local"]
        yield f"The first {local['first']} are ordered by local features of {str(local['network'])[:12]} (RANSAC)."
    if "rerank" in card:
        yield f"The first {COMPARED} are ordered by how alike they are to each other ({card['rerank']})."
    software = ", ".join(f"{name} {version}" for name, version in card["software"].items())
    yield f"Made with {software}."
    yield "Seconds: " + ", ".join(f"{stage} {value:.0f}" for stage, value in card["seconds"].items()) + "."


def _asmk_in_words(card: Card) -> Iterator[str]:
    codebook, memory, asmk = card["codebook"], card["memory"], card["asmk"]
    if codebook is None or asmk is None:
        yield f"Global vectors, {memory['bytes_per_image']} bytes per image, compared by cosine."
        return
    if asmk["kernel"] in VECTOR_KERNELS:
        expanded = asmk["search"].get("expansion")
        told = f" after expansion by {expanded['images']} images, alpha {expanded['alpha']:g}" if expanded else ""
        vector = f"One vector per image ({asmk['kernel']}, {codebook['dim']} dimensions"
        yield f"{vector}, {memory['bytes_per_image']} bytes), compared by cosine{told}."
        return
    learned = f"learned from {codebook['images']} images, " if "images" in codebook else ""
    search = asmk["search"]
    yield f"Codebook {codebook['digest'][:12]}: {codebook['words']} words, {learned}" + (
        f"seed {codebook['settings']['seed']}." if "settings" in codebook else "given."
    )
    yield (
        f"ASMK, {asmk['kernel']}: {search['assignments']} words per query feature, alpha {search['alpha']}, "
        f"threshold {search['threshold']}, idf {'on' if search['idf'] else 'off'}; "
        f"{memory['words_per_image']} words and {memory['bytes_per_image']} bytes per image."
    )
