"""What super-features look at, how much features repeat each other, which scales they come from: on any photos.

Attention is FIRe's, so the first half refuses HOW. The second half takes any stream of Features. Photos stream: the
maps of a few are in memory at once.
"""

import dataclasses
import functools
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Generic, NamedTuple, ParamSpec, TypeVar

import numpy as np
from jaxtyping import Float, Float32, Float64, Int64

from superfeat.config import ExtractConfig
from superfeat.errors import ImageError, SuperfeatError
from superfeat.extraction.extract import EVERY_FEATURE, Photos, extract
from superfeat.features import Features
from superfeat.images import Photo, Skipped
from superfeat.index.codebook import Codebook
from superfeat.weights import Network
from superfeat.work import Work

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
LENGTH_FLOOR = 1e-12  # a vector of zeros stays one
FEATURES_AT_ONCE = 1024  # features compared with all others at once
PAPER = ExtractConfig()


@dataclasses.dataclass(frozen=True)
class Run:
    """How an analysis is run; nothing here changes its result."""

    workers: int | None = None
    device: str = "cpu"
    on_skip: Callable[[Skipped], None] | None = None


class Stepwise(Generic[Arguments, Result]):
    """A measure over photos: called, it returns its result; `steps` does the same and yields how many are done."""

    def __init__(self, steps: Callable[Arguments, Generator[int, None, Result]]) -> None:
        self.steps = steps
        functools.update_wrapper(self, steps)

    def __call__(self, *arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
        return Work(self.steps(*arguments, **named)).result()


RUN = Run()
WithMaps = tuple[Features, Sequence[Float32[np.ndarray, "height width"]], Float32[np.ndarray, "n 4"]]


# -- Attention: what the super-features of an ID look at


class Attention(NamedTuple):
    """Where some super-features look in one image at scale 1: row by row those of `ids`. As in Features otherwise."""

    name: str
    ids: tuple[int, ...]
    maps: Float32[np.ndarray, "ids height width"]
    strengths: Float32[np.ndarray, "ids"]
    regions: Float32[np.ndarray, "ids 4"]
    vectors: Float32[np.ndarray, "ids dim"]


class ScaleMap(NamedTuple):
    """Where a super-feature looks at one scale; `region` as in Features."""

    scale: float
    map: Float32[np.ndarray, "height width"]
    strength: float
    region: Float32[np.ndarray, "4"]


class ScaleAttention(NamedTuple):
    """Of each of `ids`, in one image, its map at every scale, in the order of the settings."""

    name: str
    ids: tuple[int, ...]
    maps: list[list[ScaleMap]]


def attention_of_ids(
    network: Network, photos: Photos, ids: Sequence[int], config: ExtractConfig = PAPER, *, run: Run = RUN
) -> Iterator[Attention]:
    """Yields, photo by photo, the attention maps of the chosen IDs at scale 1 (Figure 1)."""
    _require_ids(network, ids)
    return _attention(network, photos, tuple(ids), config, run)


def attention_over_scales(
    network: Network, photo: str | Path | Photo, id: int, config: ExtractConfig = PAPER, *, run: Run = RUN
) -> list[ScaleMap]:
    """The attention of one ID at every scale of the settings that the photo is large enough for (fig:attn_scale)."""
    quiet = dataclasses.replace(run, on_skip=lambda skipped: None)  # the error says it
    [found] = attention_of_ids_over_scales(network, [photo], [id], config, run=quiet)
    return found.maps[0]


def attention_of_ids_over_scales(
    network: Network, photos: Photos, ids: Sequence[int], config: ExtractConfig = PAPER, *, run: Run = RUN
) -> Iterator[ScaleAttention]:
    """The same of several IDs, photo by photo."""
    _require_ids(network, ids)
    return _attention_over_scales(network, photos, tuple(ids), config, run)


def _attention_over_scales(
    network: Network, photos: Photos, ids: tuple[int, ...], config: ExtractConfig, run: Run
) -> Iterator[ScaleAttention]:
    for features, maps, regions in _with_maps(network, photos, config, run):
        rows = {
            (int(id), scale): row for row, (id, scale) in enumerate(zip(features.ids, features.scales, strict=True))
        }
        found = [
            [
                ScaleMap(scale, maps[row].copy(), float(features.strengths[row]), regions[row])
                for scale in config.scales
                if (row := rows.get((id, np.float32(scale)))) is not None
            ]
            for id in ids
        ]
        yield ScaleAttention(features.name, ids, found)


@Stepwise
def strongest_ids(
    network: Network, photos: Photos, count: int, config: ExtractConfig = PAPER, *, run: Run = RUN
) -> Generator[int, None, list[int]]:
    """The IDs that are strongest on average over the photos at scale 1, strongest first."""
    if count < 1:
        raise SuperfeatError(f"{count} IDs are none; ask for 1 or more")
    total = np.zeros(templates(network))
    for done, one in enumerate(_attention(network, photos, _every_id(network), config, run), 1):
        total += one.strengths
        yield done
    return [int(id) for id in np.argsort(-total, kind="stable")[:count]]


@Stepwise
def correlation_matrix(
    network: Network, photos: Photos, config: ExtractConfig = PAPER, *, run: Run = RUN
) -> Generator[int, None, Float64[np.ndarray, "n n"]]:
    """The cosine between each two attention maps of an image at scale 1, mean over the images (fig:correlation)."""
    total, images = np.zeros((templates(network), templates(network))), 0
    for one in _attention(network, photos, _every_id(network), config, run):
        unit = _unit(one.maps.reshape(len(one.maps), -1))
        total += unit @ unit.T
        images += 1
        yield images
    return total / images


def off_diagonal_mean(matrix: Float64[np.ndarray, "n n"]) -> float:
    """What the decorrelation loss lowers: the mean over two different maps. With a single map it is zero."""
    n = len(matrix)
    return float((matrix.sum() - np.trace(matrix)) / max(1, n * (n - 1)))


class StrongPhoto(NamedTuple):
    """A photo in which an ID is strong; `region` as in Features."""

    name: str
    strength: float
    map: Float32[np.ndarray, "height width"]
    region: Float32[np.ndarray, "4"]
    vector: Float32[np.ndarray, "dim"]


class Looks(NamedTuple):
    """What an ID looks for: its strongest photos, and the mean cosine between its vectors in two of them.

    `cosine_of_all` is the same over all the photos. Both are NaN where there is but one photo.
    """

    id: int
    strongest: list[StrongPhoto]
    cosine: float
    cosine_of_all: float


def what_an_id_looks_for(
    network: Network, photos: Photos, id: int, top: int, config: ExtractConfig = PAPER, *, run: Run = RUN
) -> Looks:
    """The `top` photos in which the ID is strongest at scale 1, equal ones in the order given."""
    return what_ids_look_for(network, photos, [id], top, config, run=run)[0]


@Stepwise
def what_ids_look_for(
    network: Network, photos: Photos, ids: Sequence[int], top: int, config: ExtractConfig = PAPER, *, run: Run = RUN
) -> Generator[int, None, list[Looks]]:
    """The same for several IDs, in one pass over the photos."""
    _require_ids(network, ids)
    if top < 1:
        raise SuperfeatError(f"the {top} strongest photos are none; ask for 1 or more")
    strongest: list[list[StrongPhoto]] = [[] for _ in ids]
    sums, images = np.zeros((len(ids), network.dim)), 0
    for one in _attention(network, photos, tuple(ids), config, run):
        for row, best in enumerate(strongest):
            seen = (one.maps[row], one.regions[row], one.vectors[row])
            best.append(StrongPhoto(one.name, float(one.strengths[row]), *(np.array(values) for values in seen)))
            best.sort(key=lambda photo: -photo.strength)
            del best[top:]
        sums += _unit(one.vectors)
        images += 1
        yield images
    return [
        Looks(id, best, _pair_mean([photo.vector for photo in best]), _pair_mean_of(total, images))
        for id, best, total in zip(ids, strongest, sums, strict=True)
    ]


def _pair_mean(vectors: Sequence[Float32[np.ndarray, "dim"]]) -> float:
    return _pair_mean_of(_unit(np.stack(vectors)).sum(axis=0), len(vectors))


def _pair_mean_of(total: Float64[np.ndarray, "dim"], count: int) -> float:
    """The mean cosine of two of `count` unit vectors, from their sum: its square holds each pair twice."""
    return float((total @ total - count) / (count * (count - 1))) if count > 1 else float("nan")


def templates(network: Network) -> int:
    """How many super-features the network gives, which is how many IDs there are; HOW has none."""
    if network.config.lit is None:
        raise SuperfeatError(
            f"a network of method '{network.config.method}' has no super-features, so neither IDs nor attention maps; "
            "take the weights of a FIRe network"
        )
    return network.config.lit.templates


def _every_id(network: Network) -> tuple[int, ...]:
    return tuple(range(templates(network)))


def _require_ids(network: Network, ids: Sequence[int]) -> None:
    last = templates(network) - 1
    if not ids:
        raise SuperfeatError(f"no ID is given; this network's are 0 to {last}")
    wrong = [id for id in ids if not 0 <= id <= last]
    if wrong:
        raise SuperfeatError(f"this network has no super-feature with the ID {wrong[0]}; its IDs are 0 to {last}")


def _attention(
    network: Network, photos: Photos, ids: tuple[int, ...], config: ExtractConfig, run: Run
) -> Iterator[Attention]:
    one_scale = dataclasses.replace(config, scales=(1.0,))
    for features, maps, regions in _with_maps(network, photos, one_scale, run):
        rows = np.argsort(features.ids)[list(ids)]  # features come strongest first, each ID once
        chosen = np.stack([maps[row] for row in rows])
        yield Attention(features.name, ids, chosen, features.strengths[rows], regions[rows], features.vectors[rows])


def _with_maps(network: Network, photos: Photos, config: ExtractConfig, run: Run) -> Iterator[WithMaps]:
    """All features of each photo, their maps and their regions."""
    done = 0
    settings = dataclasses.replace(every_feature(config), attention="maps")
    stream = extract(network, photos, settings, workers=run.workers, device=run.device, on_skip=run.on_skip)
    for features in stream:
        assert features.maps is not None
        assert features.regions is not None
        yield features, features.maps, features.regions
        done += 1
    _require_images(done)


# -- Features: how alike they are, where they come from, how many words they need


@Stepwise
def redundancy(
    features: Iterable[Features], counts: Sequence[int]
) -> Generator[int, None, Float64[np.ndarray, "counts"]]:
    """The mean cosine of every feature to its K nearest of the same image, for each K (fig:kmean_similarity).

    Mean over an image's features, then over the images that have K of them; NaN where none has. A feature is not its
    own neighbour, so with K of K features the K - 1 others are meant: the paper draws 256 of 256 so.
    """
    wanted = _require_counts(counts)
    sums, having, images = np.zeros(len(wanted)), np.zeros(len(wanted)), 0
    for one in features:
        enough = (wanted <= len(one)) & (len(one) > 1)
        if enough.any():
            sums[enough] += _nearest_means(_unit(one.vectors), wanted[enough])
        having += enough
        images += 1
        yield images
    _require_images(images)
    return np.where(having > 0, sums / np.maximum(having, 1), np.nan)


def _nearest_means(
    unit: Float64[np.ndarray, "n dim"], counts: Int64[np.ndarray, "counts"]
) -> Float64[np.ndarray, "counts"]:
    """Of one image; a block of rows at a time, because HOW has thousands of features."""
    counts = np.minimum(counts, len(unit) - 1)
    most = int(counts.max())
    total = np.zeros(len(counts))
    for first in range(0, len(unit), FEATURES_AT_ONCE):
        cosines = unit[first : first + FEATURES_AT_ONCE] @ unit.T
        rows = np.arange(len(cosines))
        cosines[rows, first + rows] = -np.inf
        nearest = np.sort(np.partition(-cosines, most - 1, axis=1)[:, :most], axis=1)
        total -= (np.cumsum(nearest, axis=1)[:, counts - 1] / counts).sum(axis=0)
    return total / len(unit)


class ScaleShares(NamedTuple):
    """Scale by scale, means over the images (fig:scales_barplot; its panels from left to right).

    `of_selected` is the share of an image's selected features that come from the scale; `selected` the share of the
    scale's features that were selected, over the images that have the scale (NaN where none has); `features` how many
    features the scale has.
    """

    scales: tuple[float, ...]
    of_selected: Float64[np.ndarray, "scales"]
    selected: Float64[np.ndarray, "scales"]
    features: Float64[np.ndarray, "scales"]


@Stepwise
def scale_shares(
    features: Iterable[Features], scales: Sequence[float], count: int
) -> Generator[int, None, ScaleShares]:
    """Where the `count` strongest come from. `features` must hold *all* features of each image (see every_feature)."""
    _require_counts([count])
    steps = np.asarray(scales, np.float32)
    of_selected, selected, total, having = np.zeros((4, len(steps)))
    images = 0
    for one in features:
        every = (one.scales[:, None] == steps).sum(axis=0)
        chosen = (one.scales[:count, None] == steps).sum(axis=0)
        of_selected += chosen / max(1, min(count, len(one)))
        selected += chosen / np.maximum(every, 1)
        total += every
        having += every > 0
        images += 1
        yield images
    _require_images(images)
    share = np.where(having > 0, selected / np.maximum(having, 1), np.nan)
    return ScaleShares(tuple(scales), of_selected / images, share, total / images)


def every_feature(config: ExtractConfig) -> ExtractConfig:
    """The same settings without a limit on the features of an image."""
    return dataclasses.replace(config, features_per_image=EVERY_FEATURE, features_per_scale=None)


@Stepwise
def words_by_features(
    features: Iterable[Features], codebook: Codebook, counts: Sequence[int], *, workers: int | None = None
) -> Generator[int, None, Float64[np.ndarray, "counts"]]:
    """How many distinct words an image has, on average, when it keeps its `count` strongest features, for each count.

    That is its memory in an index: the x axis of fig:ablation_nfeat.
    """
    wanted = _require_counts(counts)
    total, images = np.zeros(len(wanted)), 0
    for one in features:
        if one.network is not None and codebook.network is not None and one.network != codebook.network:
            raise SuperfeatError(
                f"{one.name} has features of another network ({one.network[:12]}…) than the codebook "
                f"({codebook.network[:12]}…); learn a codebook from features of the same weights"
            )
        words = codebook.assign(one.vectors[: wanted.max()], workers=workers)[:, 0]
        _, first = np.unique(words, return_index=True)
        total += (first[:, None] < wanted).sum(axis=0)  # a word is there once its strongest feature is
        images += 1
        yield images
    _require_images(images)
    return total / images


def _unit(vectors: Float[np.ndarray, "n dim"]) -> Float64[np.ndarray, "n dim"]:
    values = vectors.astype(np.float64)
    return np.asarray(values / np.maximum(np.linalg.norm(values, axis=1, keepdims=True), LENGTH_FLOOR))


def _require_counts(counts: Sequence[int]) -> Int64[np.ndarray, "counts"]:
    if not counts or min(counts) < 1:
        raise SuperfeatError(
            f"{', '.join(map(str, counts)) or 'no number'} of features cannot be looked at; give 1 or more"
        )
    return np.asarray(counts, np.int64)


def _require_images(images: int) -> None:
    if not images:
        raise ImageError("there is no photo to look at; give a folder, a file, a glob pattern or a .txt list of paths")
