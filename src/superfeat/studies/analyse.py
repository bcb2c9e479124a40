"""Looks into a network: photos in, numbers and a figure out, for each kind of analysis."""

import dataclasses
import math
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
from jaxtyping import Float, UInt8

from superfeat.config import ExtractConfig
from superfeat.errors import SuperfeatError
from superfeat.extraction.extract import Photos, as_photos, extract
from superfeat.features import Features
from superfeat.figures import Panel, Picture, Series
from superfeat.images import Photo, Skipped, read_image
from superfeat.index.codebook import Codebook
from superfeat.methods import method_of
from superfeat.settings import as_dict, nearest_name
from superfeat.studies import analyses, analysis
from superfeat.studies.analysis import Analysing, Analysis, Finding, Look
from superfeat.studies.kinds import FEW_IDS, KINDS, Kind
from superfeat.weights import Network
from superfeat.work import Work

PICTURE_SIDE = 480  # of a photo in a picture, in pixels
NAME_LENGTH = 26  # characters that fit below it
Item = TypeVar("Item")
Result = TypeVar("Result")
Stage = Literal["ids", "maps", "correlation", "features"]
Steps = Generator[Analysing, None, Result]


def analyse(
    kind: str,
    network: Network,
    photos: Photos,
    *,
    config: ExtractConfig = analyses.PAPER,
    images: int | None = None,
    ids: Sequence[int] | None = None,
    top: int | None = None,
    counts: Sequence[int] | None = None,
    codebook: str | Path | Codebook | None = None,
    workers: int | None = None,
    device: str = "cpu",
) -> Work[Analysing, Analysis]:
    """What a network does with photos: one of KINDS, in numbers and a figure (superfeat.pages.analysis draws it).

    Of the photos the first so many `images` are looked at; a kind decides some settings of `config` itself. `ids` are
    super-features, `top` is how many photos to show of each, `counts` are numbers of features; KINDS says which kind
    takes which, and what it takes where nothing is given. `words` needs a `codebook`.
    """
    if kind not in KINDS:
        raise SuperfeatError(f"there is no analysis '{kind}'; {nearest_name(kind, KINDS)}")
    defaults = KINDS[kind]
    for name, value in {"ids": ids, "top": top, "counts": counts, "codebook": codebook}.items():
        if value is not None and not getattr(defaults, name):
            raise SuperfeatError(f"an analysis of {kind} takes no {name}")
    asked = _Asked(
        ids=None if ids is None else list(dict.fromkeys(ids)),  # each once
        top=top if top is not None else defaults.top or 0,
        counts=tuple(counts if counts is not None else defaults.counts or ()),
        codebook=codebook if codebook is None or isinstance(codebook, Codebook) else Codebook.open(codebook),
    )
    if defaults.codebook and asked.codebook is None:
        raise SuperfeatError(f"an analysis of {kind} needs a codebook")
    if images is not None and images < 1:
        raise SuperfeatError(f"the first {images} photos are none; ask for 1 or more")
    chosen = as_photos(photos)[: images if images is not None else defaults.photos]
    return Work(_steps(kind, _Job(network.without_points(), chosen, config, asked, defaults, workers, device)))


@dataclasses.dataclass(frozen=True)
class _Asked:
    """What a kind is asked for; `ids` None: the strongest."""

    ids: list[int] | None
    top: int
    counts: tuple[int, ...]
    codebook: Codebook | None


@dataclasses.dataclass
class _Job:
    """One analysis: the network, the photos and the settings; and how many photos its last pass has read."""

    network: Network
    photos: list[Photo]
    config: ExtractConfig
    asked: _Asked
    kind: Kind
    workers: int | None
    device: str
    images: int = 0
    skipped: dict[str, Skipped] = dataclasses.field(default_factory=dict)

    @property
    def run(self) -> analyses.Run:
        return analyses.Run(self.workers, self.device, lambda one: self.skipped.update({one.name: one}))

    @property
    def method(self) -> str:
        return method_of(self.network.config.method).title

    def at(self, stage: Stage, done: int) -> Analysing:
        self.images = done
        return Analysing(stage, done, len(self.photos))

    def measure(self, stage: Stage, steps: Generator[int, None, Result]) -> Steps[Result]:
        """Passes on how far a measure is."""
        work = Work(steps)
        for done in work:
            yield self.at(stage, done)
        return work.result()

    def each(self, stream: Iterable[Item]) -> Iterator[tuple[Analysing, Item]]:
        """What comes photo by photo, with how far it is."""
        for done, one in enumerate(stream, 1):
            yield self.at("maps", done), one

    def features(self, config: ExtractConfig) -> Iterator[Features]:
        run = self.run
        return extract(self.network, self.photos, config, workers=run.workers, device=run.device, on_skip=run.on_skip)

    def ids(self) -> Steps[list[int]]:
        """Those that are asked for, or the strongest."""
        if self.asked.ids is not None:
            return self.asked.ids
        count = self.kind.ids or 0
        steps = analyses.strongest_ids.steps(self.network, self.photos, count, self.config, run=self.run)
        return (yield from self.measure("ids", steps))

    def pixels(self, name: str) -> UInt8[np.ndarray, "height width 3"]:
        """A small copy of a photo, to draw on."""
        photo = next(photo for photo in self.photos if photo.name == name)
        return read_image(photo.where, max_side=PICTURE_SIDE, upright=self.config.upright, box=photo.box)

    def curve(self, labels: tuple[str, str], x: Sequence[int], y: Float[np.ndarray, "n"]) -> analysis.Curves:
        series = Series(self.method, x, y.tolist())
        return analysis.Curves([Panel(f"{self.method}, {self.images} photos", *labels, [series])])


def _steps(kind: str, job: _Job) -> Steps[Analysis]:
    found = yield from FINDERS[kind](job)
    network = {"digest": job.network.digest, **as_dict(job.network.config)}
    settings = {name: value for name, value in as_dict(job.config).items() if name not in job.kind.decides}
    return Analysis(kind, found, job.images, network, settings, tuple(job.skipped.values()))


def _plain(value: float) -> float | None:
    return None if math.isnan(value) else round(float(value), 6)


def _look(strength: float, region: Float[np.ndarray, "4"]) -> Look:
    return Look(_plain(strength), *map(_plain, region))


def _end(name: str) -> str:
    return name if len(name) <= NAME_LENGTH else f"…{name[1 - NAME_LENGTH :]}"


# -- Attention


def _attention(job: _Job) -> Steps[Finding]:
    ids = yield from job.ids()
    rows: list[list[Picture]] = []
    photos: list[analysis.LooksOfIds] = []
    stream = analyses.attention_of_ids(job.network, job.photos, ids, job.config, run=job.run)
    for at, one in job.each(stream):
        pixels = job.pixels(one.name)
        rows.append([Picture(pixels), *(Picture(pixels, attention) for attention in one.maps)])
        looks = dict(zip(map(str, ids), map(_look, one.strengths, one.regions), strict=True))
        photos.append(analysis.LooksOfIds(one.name, looks))
        yield at
    return Finding(
        "Where super-features look",
        "Each row is a photo, each column the super-feature of one ID; bright is where it looks. An ID should look for "
        "the same kind of thing in every photo, and different IDs for different things.",
        analysis.AttentionNumbers(ids, photos),
        analysis.PhotoRows(rows, column_titles=["photo", *(f"ID {id}" for id in ids)]),
    )


def _attention_scales(job: _Job) -> Steps[Finding]:
    ids = yield from job.ids()
    scales = sorted(job.config.scales)
    rows: list[list[Picture | None]] = []
    photos: list[analysis.LooksOverScales] = []
    stream = analyses.attention_of_ids_over_scales(job.network, job.photos, ids, job.config, run=job.run)
    for at, photo in job.each(stream):
        pixels = job.pixels(photo.name)
        for id, found in zip(ids, photo.maps, strict=True):
            maps = {one.scale: Picture(pixels, one.map) for one in found}
            rows.append([Picture(pixels, caption=f"ID {id}"), *map(maps.get, scales)])
            looks = {f"{one.scale:g}": _look(one.strength, one.region) for one in found}
            photos.append(analysis.LooksOverScales(photo.name, id, looks))
        yield at
    return Finding(
        "Where a super-feature looks at each scale",
        "Each row is one super-feature of a photo, each column a scale of the photo; bright is where it looks. Maps "
        "are enlarged to the photo, so those of small scales are smoother. A steady one looks at the same place.",
        analysis.ScaleAttentionNumbers(ids, photos),
        analysis.PhotoRows(rows, column_titles=["photo", *(f"{scale:g}" for scale in scales)]),
    )


def _ids(job: _Job) -> Steps[Finding]:
    ids = yield from job.ids()
    steps = analyses.what_ids_look_for.steps(job.network, job.photos, ids, job.asked.top, job.config, run=job.run)
    found = yield from job.measure("maps", steps)
    rows = [[Picture(job.pixels(seen.name), seen.map, _end(seen.name)) for seen in one.strongest] for one in found]
    numbers = [
        analysis.LooksOfId(
            one.id,
            _plain(one.cosine),
            _plain(one.cosine_of_all),
            [analysis.NamedLook(seen.name, **as_dict(_look(seen.strength, seen.region))) for seen in one.strongest],
        )
        for one in found
    ]
    return Finding(
        "What super-features look for",
        f"Each row is a super-feature ID, in the photos of {job.images} where it is strongest; bright is where it "
        "looks. An ID that has learned something looks at like things in a row.",
        analysis.IdNumbers(numbers),
        analysis.PhotoRows(rows, row_titles=[f"ID {id}" for id in ids]),
    )


def _correlation(job: _Job) -> Steps[Finding]:
    steps = analyses.correlation_matrix.steps(job.network, job.photos, job.config, run=job.run)
    matrix = yield from job.measure("correlation", steps)
    first, second = np.triu_indices(len(matrix), 1)
    alike = np.argsort(-matrix[first, second], kind="stable")[:FEW_IDS]
    pairs = [(int(first[place]), int(second[place])) for place in alike]
    mean = analyses.off_diagonal_mean(matrix)
    return Finding(
        "How alike the attention maps are",
        f"The cosine between the attention maps of each two super-features of a photo, mean over {job.images} "
        f"photos; dark is unlike. Over all pairs of different ones the mean is {mean:.3f}, which the decorrelation "
        "loss lowers.",
        analysis.CorrelationNumbers(_plain(mean), [analysis.Alike(pair, _plain(matrix[pair])) for pair in pairs]),
        analysis.Matrix(f"mean {mean:.3f}", matrix, note="IDs against IDs; 1 is the same map"),
    )


# -- Features


def _redundancy(job: _Job) -> Steps[Finding]:
    counts = job.asked.counts
    config = dataclasses.replace(analyses.every_feature(job.config), scales=(1.0,))
    found = yield from job.measure("features", analyses.redundancy.steps(job.features(config), counts))
    return Finding(
        "How alike the features of a photo are",
        "The cosine of a feature to the K features of the same photo that are most like it: mean over all features of "
        f"{job.images} photos at scale 1. Lower is better: features that repeat each other add nothing.",
        analysis.RedundancyNumbers(counts, [_plain(value) for value in found]),
        job.curve(("K", "mean cosine to the K nearest"), counts, found),
    )


def _scales(job: _Job) -> Steps[Finding]:
    scales, count = sorted(job.config.scales), job.config.features_per_image
    every = job.features(analyses.every_feature(job.config))
    found = yield from job.measure("features", analyses.scale_shares.steps(every, scales, count))
    parts = {
        ("Share of the selected features", "share"): found.of_selected,
        ("Selected share of the scale's features", "share"): found.selected,
        ("Features of the scale", "features"): found.features,
    }
    panels = [
        Panel(title, "scale", label, [Series(job.method, scales, values.tolist())])
        for (title, label), values in parts.items()
    ]
    return Finding(
        "From which scales the features come",
        f"Of each photo the {count} strongest features are selected. Left: the share of these that come from each "
        "scale; middle: the share of each scale's features that are selected; right: how many features each scale has. "
        f"Means over {job.images} photos.",
        analysis.ScaleNumbers(scales, count, *([_plain(value) for value in values] for values in parts.values())),
        analysis.Bars(panels),
    )


def _words(job: _Job) -> Steps[Finding]:
    counts, book = job.asked.counts, job.asked.codebook
    assert book is not None
    config = dataclasses.replace(job.config, features_per_image=max([1, *counts]))
    steps = analyses.words_by_features.steps(job.features(config), book, counts, workers=job.workers)
    found = yield from job.measure("features", steps)
    return Finding(
        "How many words a photo needs",
        f"How many words of a codebook of {book.words} the features of a photo go to when only the strongest are kept: "
        f"mean over {job.images} photos. An index stores one code for each.",
        analysis.WordNumbers(counts, found.round(3).tolist(), book.words),
        job.curve(("features kept", "words per photo"), counts, found),
    )


FINDERS: dict[str, Callable[[_Job], Steps[Finding]]] = {
    "attention": _attention,
    "attention-scales": _attention_scales,
    "ids": _ids,
    "correlation": _correlation,
    "redundancy": _redundancy,
    "scales": _scales,
    "words": _words,
}
