"""Photos with boxes: what is read, what is refused, what an image becomes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from superfeat import ExtractConfig, Index, Network
from superfeat.config import AttentionConfig, NetworkConfig, SearchConfig, TrunkConfig
from superfeat.errors import DatasetError, SuperfeatError
from superfeat.extraction.extract import as_photos, extract
from superfeat.features import Features, Ranking
from superfeat.images import Skipped
from superfeat.index.boxes import PhotoRegions, attention_box, crop, read_boxes
from superfeat.index.build import add_photos
from superfeat.index.codebook import Codebook
from superfeat.rerank.affine import local_features, rerank_ranking
from superfeat.weights import build_module

CONFIG = ExtractConfig(max_side=64, scales=(1.0, 0.5), attention="regions")


def network() -> Network:
    torch.manual_seed(0)
    config = NetworkConfig(
        "delf", TrunkConfig("resnet10", stages=1), None, None, attention=AttentionConfig("reduced", 8)
    )
    return Network(build_module(config), config)


def written(path: Path, boxes: Any) -> Path:
    path.write_text(json.dumps(boxes))
    return path


def test_boxes_of_a_file(tmp_path: Path) -> None:
    boxes = {"a.png": [[0, 0, 0.5, 1], [0.1, 0.1, 0.2, 0.2, 0.05], [0.1, 0.1, 0.2, 0.2, 0.9]], "b.png": []}
    found = read_boxes(written(tmp_path / "boxes.json", boxes))
    assert found == {"a.png": [(0, 0, 0.5, 1), (0.1, 0.1, 0.2, 0.2)], "b.png": []}


@pytest.mark.parametrize(
    ("boxes", "said"),
    [
        ({"a.png": [[0, 0, 1.5, 1]]}, "lies outside of the photo"),
        ({"a.png": [[-0.1, 0, 0.5, 1]]}, "lies outside of the photo"),
        ({"a.png": [[0.5, 0, 0.5, 1]]}, "or is empty"),
        ({"a.png": [[0, 0, 1]]}, "is no box"),
        ({"a.png": ["whole"]}, "is no box"),
        ({"a.png": 3}, "holds no boxes"),
        ([], "holds no boxes"),
    ],
)
def test_what_is_no_box(tmp_path: Path, boxes: Any, said: str) -> None:
    with pytest.raises(DatasetError, match=said):
        read_boxes(written(tmp_path / "boxes.json", boxes))
    with pytest.raises(DatasetError, match="cannot read the boxes"):
        read_boxes(tmp_path / "none.json")


def test_photos_with_boxes_are_found(tmp_path: Path, photo_folder: Path) -> None:
    net = network()
    photos = as_photos(photo_folder)
    some = np.concatenate([one.vectors for one in extract(net, photos, CONFIG, on_skip=lambda skipped: None)])
    codebook = Codebook(some[:: max(1, len(some) // 16)][:16])
    for name, boxes in (("given", {photos[0].name: [(0.0, 0.0, 0.5, 0.5), (0.5, 0.5, 1.0, 1.0)]}), ("own", None)):
        index, regions = Index.create(tmp_path / name, codebook), PhotoRegions(boxes)
        done = list(add_photos(index, net, photos, CONFIG, regions=regions, workers=1))
        added = [one for one in done if not isinstance(one, Skipped)]
        assert len(index) == len(added) >= 1
        query = next(iter(extract(net, [photos[0]], CONFIG, on_skip=lambda skipped: None)))
        ranking = index.search(query, 3, config=SearchConfig(assignments=1, norm="none"))
        assert ranking[0].score > 0
        again = list(add_photos(index, net, photos, CONFIG, regions=regions, workers=1))
        assert {one.outcome for one in again if not isinstance(one, Skipped)} == {"same"}


def test_a_box_of_attention_and_crops() -> None:
    rows = 40
    regions = np.tile(np.asarray([[0.25, 0.25, 0.02, 0.02]], np.float32), (rows, 1))
    features = Features(
        "x", np.ones((rows, 2), np.float32), *(np.ones(rows, np.float32),) * 2, np.zeros(rows, np.int32), regions
    )
    ((left, top, right, bottom),) = attention_box(features)
    assert left < 0.25 < right < 0.6
    assert top < 0.25 < bottom < 0.6
    pixels = np.zeros((10, 20, 3), np.uint8)
    assert crop(pixels, (0.0, 0.0, 0.5, 1.0)).shape == (10, 10, 3)
    assert crop(pixels, (0.999, 0.999, 1.0, 1.0)).shape == (1, 1, 3)


def placed(name: str, places: np.ndarray, vectors: np.ndarray) -> Features:
    """Features at these places (x, y as fractions) of a photo of 100 by 100."""
    count = len(places)
    regions = np.concatenate([places, np.full((count, 2), 0.01)], axis=1).astype(np.float32)
    ones = np.ones(count, np.float32)
    return Features(name, vectors, ones, ones, np.zeros(count, np.int32), regions, None, (100, 100))


def test_a_ranking_by_inliers() -> None:
    rng = np.random.default_rng(0)
    places, vectors = rng.random((30, 2)), rng.standard_normal((30, 16)).astype(np.float32)
    query = placed("q", places, vectors)
    right = placed("right", 0.5 * places + 0.2, vectors + 0.05 * rng.standard_normal((30, 16)).astype(np.float32))
    wrong = placed("wrong", rng.random((30, 2)), rng.standard_normal((30, 16)).astype(np.float32))
    stored = {"right": right, "wrong": wrong, "late": right}
    ranking = Ranking(("wrong", "right", "late"), np.asarray([0.9, 0.5, 0.4]), np.asarray([4, 7, 9]))
    found, counts = rerank_ranking(ranking, query, stored.__getitem__, first=2)
    assert found.names[0] == "right"
    assert counts[0] == 30
    assert counts[found.names.index("late")] == 0, "it was not among the first"
    with pytest.raises(SuperfeatError, match="do not say where they are"):
        local_features(Features("x", vectors, *(np.ones(30, np.float32),) * 2, np.zeros(30, np.int32)))
