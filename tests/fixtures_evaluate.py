"""Made-up benchmarks in their published layouts, and what a protocol run must come to: slow twins, photos to scores."""

import dataclasses
import itertools
import json
import pickle
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from PIL import Image
from torch import Tensor

import oracles
import oracles_datasets
from fixtures_recipe import noise, recipe_network
from superfeat.config import (
    CodebookConfig,
    EvaluateConfig,
    ExtractConfig,
    IndexConfig,
    LitConfig,
    NetworkConfig,
    SearchConfig,
    TrunkConfig,
)
from superfeat.datasets.retrieval_set import Query, RetrievalSet
from superfeat.evaluation.run import Evaluated, run_protocol
from superfeat.extraction.extract import EVERY_FEATURE, extract
from superfeat.images import Box, Photo
from superfeat.nets.local import Local
from superfeat.weights import Network

CONFIG = EvaluateConfig(
    extract=ExtractConfig(features_per_image=14, max_side=40, scales=(1.0, 0.5), upright=False),
    codebook=CodebookConfig(words=8, rounds=3),
    index=IndexConfig(search=SearchConfig(assignments=3)),
)
SETTINGS = (
    "extract.features_per_image=14",
    "extract.max_side=40",
    "extract.scales=[1.0, 0.5]",
    "codebook.words=8",
    "codebook.rounds=3",
    "index.search.assignments=3",
)
PROVENANCE = {"source": "recipe", "ratio_test": "lowe", "hinge": "released"}
GRADES = {
    "easy": (("easy",), ("junk", "hard")),
    "medium": (("easy", "hard"), ("junk",)),
    "hard": (("hard",), ("junk", "easy")),
}
TRUTH: tuple[dict[str, Any], ...] = (
    {"bbx": [4.0, 3.0, 36.0, 44.0], "easy": [0, 1], "hard": [2], "junk": [3]},
    {"bbx": [0.0, 10.0, 40.0, 48.0], "easy": [4], "hard": [5, 6], "junk": []},
    {"bbx": [8.5, 0.0, 40.0, 30.0], "easy": [], "hard": [8, 9], "junk": [10, 0]},
)
GAP = 1e-9  # scores that are nearer to each other are a tie


def draw(path: Path, thing: int, view: int) -> Path:
    """Noise, and under it the pattern of its thing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    mixed = 0.5 * noise(48, 40, thing) + 0.5 * noise(48, 40, 1000 + 50 * thing + view)
    Image.fromarray(mixed.astype(np.uint8)).save(path)
    return path


def draw_many(folder: Path, count: int, thing: int) -> list[Path]:
    """Photos of other things, in order of name."""
    return [draw(folder / f"{number:02}.png", thing + number, 0) for number in range(count)]


def draw_things(folder: Path, things: int, views: int) -> list[list[Path]]:
    return [
        [draw(folder / f"thing{thing}" / f"{view}.png", thing, view) for view in range(views)]
        for thing in range(things)
    ]


def draw_roxford(root: Path, more: Sequence[Path] = ()) -> Path:
    """ROxford5k as it is published: three things of four views, a query of each; `more` photos belong to none."""
    names = [f"hall_{thing}{view:05}" for thing in range(3) for view in range(4)]
    asked = [f"asked_{thing:06}" for thing in range(3)]
    for number, name in enumerate(names):
        draw(root / "jpg" / f"{name}.jpg", number // 4, number % 4)
    for thing, name in enumerate(asked):
        draw(root / "jpg" / f"{name}.jpg", thing, 9)
    for path in more:
        names.append(f"more_{path.stem}")
        (root / "jpg" / f"more_{path.stem}.jpg").write_bytes(path.read_bytes())
    contents = {"imlist": names, "qimlist": asked, "gnd": [dict(truth) for truth in TRUTH]}
    (root / "gnd_roxford5k.pkl").write_bytes(pickle.dumps(contents))
    return root


def roxford_photos(root: Path) -> list[Path]:
    contents = pickle.loads((root / "gnd_roxford5k.pkl").read_bytes())
    return [root / "jpg" / f"{name}.jpg" for name in contents["imlist"]]


def roxford_queries(root: Path) -> list[tuple[Path, Box | None]]:
    boxes: list[Box] = [tuple(truth["bbx"]) for truth in TRUTH]
    return [(root / "jpg" / f"asked_{thing:06}.jpg", box) for thing, box in enumerate(boxes)]


def tiny_network() -> Network:
    """FIRe with 16 dimensions, so that no two different images have the same score."""
    lit = LitConfig(templates=12, rounds=2, dim=16)
    network = recipe_network(NetworkConfig("fire", TrunkConfig("resnet18", stages=1), lit, whitened_dim=16))
    return dataclasses.replace(network, provenance=PROVENANCE)


# -- What must come out


def extracted(network: Network, path: Path, config: ExtractConfig, box: Box | None = None) -> Any:
    (features,) = extract(network, [Photo(path, path.name, box)], config, workers=1)
    return features


def learn_words(network: Network, photos: Sequence[Path], config: EvaluateConfig) -> npt.NDArray[np.float64]:
    """k-means from random points, on scale 1 alone."""
    single = dataclasses.replace(config.extract, scales=(1.0,))
    points = np.concatenate([extracted(network, path, single).vectors for path in photos])
    chosen = np.random.default_rng(config.codebook.seed + 1).choice(len(points), config.codebook.words, replace=False)
    centroids, _ = oracles.lloyd(points, points[np.sort(chosen)], config.codebook.rounds)
    return centroids


def rank(
    network: Network,
    config: EvaluateConfig,
    photos: Sequence[Path],
    queries: Sequence[tuple[Path, Box | None]],
    words: Sequence[Path] = (),
    lost: Sequence[int] = (),
) -> list[list[int]]:
    """The whole ranking of each query, by slow loops; `lost` photos are in none."""
    score = _pooled_scores if config.method == "pooled" else _asmk_scores
    found = score(network, config, photos, queries, words, lost)
    for scores in found:
        values = sorted(value for value in scores.values() if value)
        assert all(after - before > GAP for before, after in itertools.pairwise(values)), "a tie"
    return [oracles.ranking(scores) for scores in found]


def _asmk_scores(
    network: Network,
    config: EvaluateConfig,
    photos: Sequence[Path],
    queries: Sequence[tuple[Path, Box | None]],
    words: Sequence[Path],
    lost: Sequence[int],
) -> list[dict[int, float]]:
    centroids, search = learn_words(network, words, config), config.index.search
    images = {
        number: oracles.image_words(extracted(network, path, config.extract).vectors, centroids, 1, binary=True)
        for number, path in enumerate(photos)
        if number not in lost
    }
    found = []
    for path, box in queries:
        vectors = extracted(network, path, config.extract, box).vectors
        asked = oracles.image_words(vectors, centroids, search.assignments, binary=True)
        ones = [1.0] * len(centroids)
        found.append(
            {
                number: oracles.score(asked, image, True, search.alpha, search.threshold, ones)
                for number, image in images.items()
            }
        )
    return found


def _pooled_scores(
    network: Network,
    config: EvaluateConfig,
    photos: Sequence[Path],
    queries: Sequence[tuple[Path, Box | None]],
    words: Sequence[Path],
    lost: Sequence[int],
) -> list[dict[int, float]]:
    assert not words
    every = dataclasses.replace(config.extract, features_per_image=EVERY_FEATURE)

    def pooled(path: Path, box: Box | None = None) -> npt.NDArray[np.float64]:
        features = extracted(network, path, every, box)
        total = np.zeros(features.vectors.shape[1])
        for strength, vector in zip(features.strengths, features.vectors, strict=True):
            total += float(strength) * vector.astype(np.float64)
        return np.asarray(total / np.sqrt(np.square(total).sum()))

    images = {number: pooled(path) for number, path in enumerate(photos) if number not in lost}
    return [{number: float(pooled(path, box) @ vector) for number, vector in images.items()} for path, box in queries]


def grade_scores(
    rankings: Sequence[Sequence[int]], truths: Sequence[tuple[Sequence[int], Sequence[int]]]
) -> dict[str, Any]:
    """Of queries with these positives and junk, in percent; one without positives has no average precision."""
    asked = [(ranking, *truth) for ranking, truth in zip(rankings, truths, strict=True)]
    aps = [100 * oracles_datasets.average_precision(*one) if one[1] else None for one in asked]
    known = [value for value in aps if value is not None]
    precisions = {
        str(depth): 100 * float(np.mean([oracles_datasets.precision_at(*one, depth) for one in asked if one[1]]))
        for depth in (1, 5, 10)
    }
    return {"aps": aps, "map": sum(known) / len(known), "mp": precisions, "queries": len(known)}


def revisited_truths(grade: str) -> list[tuple[list[int], list[int]]]:
    return [tuple([n for name in names for n in one[name]] for names in GRADES[grade]) for one in TRUTH]  # type: ignore[misc]


def assert_scores(scores: Mapping[str, Any], grade: str, expected: Mapping[str, Any]) -> None:
    """Those of a run, which are rounded to four digits."""
    found = scores["grades"][grade]
    assert found["map"] == _near(expected["map"])
    assert found["mp"] == {depth: _near(value) for depth, value in expected["mp"].items()}
    assert found["queries"] == expected["queries"]
    each = [query["ap"][grade] for query in scores["queries"]]
    assert each == [value if value is None else _near(value) for value in expected["aps"]]


def _near(value: float) -> Any:
    return pytest.approx(value, abs=1e-4)


def kept_rankings(run: Path) -> list[list[int]]:
    """What the run's folder says that each query found."""
    return [[n for n in row if n >= 0] for row in np.load(run / "rankings" / "numbers.npy").tolist()]


def without_seconds(card: Mapping[str, Any]) -> dict[str, Any]:
    """The card without what differs from run to run: the time, and the last digits of the sizes."""
    sizes = ("bytes_per_image", "bytes_per_posting")
    memory = {key: value for key, value in card["memory"].items() if card["asmk"] is None or key not in sizes}
    return {**{key: value for key, value in card.items() if key != "seconds"}, "memory": memory}


# -- A network of colours, whose features a test can choose


class Palette:
    """Stands in a network's place: one feature for each quarter of the image, its mean colour from -1 to 1."""

    recompute_scale = False
    trunk = SimpleNamespace(channels=3)

    def state_dict(self) -> dict[str, Tensor]:
        return {"none": torch.zeros(1)}

    def __call__(self, images: Tensor) -> Local:
        quarters = torch.nn.functional.adaptive_avg_pool2d(images, 2)[0].flatten(1).T.contiguous()
        return Local(quarters[None], torch.ones(1, 4), (1, 1), torch.ones(1, 4, 1, 1))


def palette_network() -> Network:
    trunk = TrunkConfig(mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
    return Network(Palette(), NetworkConfig("fire", trunk, LitConfig(templates=4, dim=3), None))  # type: ignore[arg-type]


def other_network() -> Network:
    network = palette_network()
    settings = dataclasses.replace(
        network.config, trunk=dataclasses.replace(network.config.trunk, mean=(0.4, 0.5, 0.5))
    )
    return Network(network.module, settings)


PALETTE_CONFIG = EvaluateConfig(
    extract=ExtractConfig(scales=(1.0,)),
    codebook=CodebookConfig(words=2, rounds=2),
    index=IndexConfig(search=SearchConfig(assignments=1)),
)
POOLED = dataclasses.replace(PALETTE_CONFIG, method="pooled")
GREY, WHITE = (100, 100, 100), (255, 255, 255)


def paint(path: Path, *quarters: tuple[int, int, int]) -> Path:
    """A photo of one colour, or of four."""
    path.parent.mkdir(parents=True, exist_ok=True)
    colours = np.asarray(quarters if len(quarters) == 4 else quarters * 4, np.uint8).reshape(2, 2, 3)
    Image.fromarray(colours.repeat(8, axis=0).repeat(8, axis=1)).save(path)
    return path


def paint_random(path: Path, seed: int) -> Path:
    return paint(path, *(tuple(colour) for colour in np.random.default_rng(seed).integers(0, 256, (4, 3)).tolist()))


def truncated(path: Path) -> Path:
    """A photo that ends in the middle."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (32, 32, 3), np.uint8)).save(path)
    path.write_bytes(path.read_bytes()[:-900])
    return path


def write_gnd(folder: Path, database: Sequence[str], queries: Sequence[Mapping[str, Any]]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "gnd.json").write_text(json.dumps({"db": list(database), "queries": list(queries)}))
    return folder / "gnd.json"


def painted_set(folder: Path, photos: int = 5, queries: int = 2) -> tuple[RetrievalSet, list[Photo]]:
    """A set of painted photos (queries are apart from the database), and photos to learn words from."""
    database = tuple(Photo(paint_random(folder / f"db{n}.png", n), f"db{n}.png") for n in range(photos))
    asked = tuple(
        Query(Photo(paint_random(folder / f"q{n}.png", 100 + n), f"q{n}.png"), (n, n + 1)) for n in range(queries)
    )
    others = [Photo(paint_random(folder / "others" / f"{n}.png", 200 + n), f"{n}.png") for n in range(4)]
    return RetrievalSet("painted", database, asked), others


# -- Runs with it


@dataclasses.dataclass(frozen=True)
class Case:
    """A set, photos to learn words from, distractors, and a run that nothing disturbed."""

    test: RetrievalSet
    others: list[Photo]
    distractors: list[Photo]
    once: Evaluated
    path: Path


def steps(test: RetrievalSet, run: Path, config: EvaluateConfig = PALETTE_CONFIG, **more: Any) -> Iterator[Any]:
    return run_protocol(more.pop("network", palette_network()), test, run, config, workers=1, **more)


def finish(test: RetrievalSet, run: Path, config: EvaluateConfig = PALETTE_CONFIG, **more: Any) -> Evaluated:
    *_, last = steps(test, run, config, **more)
    assert isinstance(last, Evaluated)
    return last


def of_disk(value: Any) -> Any:
    """As it is when it has been written and read."""
    return json.loads(json.dumps(value))


def assert_same(found: Evaluated, expected: Evaluated) -> None:
    assert found.scores == expected.scores
    assert without_seconds(found.card) == without_seconds(expected.card)
