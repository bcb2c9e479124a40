"""DELG's re-ranking and R-ASMK's boxes from the command line, with very small networks."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fixtures_cli import assert_refused, run, run_json
from fixtures_evaluate import draw, draw_roxford, draw_things, kept_rankings
from superfeat import Index, Network, save_network
from superfeat.config import AttentionConfig, NetworkConfig, PoolingConfig, TrunkConfig
from superfeat.datasets.benchmarks import read_benchmark
from superfeat.evaluation.judge import lists_of
from superfeat.evaluation.metrics import average_precision
from superfeat.evaluation.searching import own_names
from superfeat.extraction.folder import FeatureStore
from superfeat.rerank.affine import count_inliers, local_features, rerank
from superfeat.weights import build_module

TRUNK = TrunkConfig("resnet10", stages=1)
CONFIGS = {
    "delg": NetworkConfig("delg", TRUNK, None, None, PoolingConfig("gem", layer=8)),
    "delf": NetworkConfig("delf", TRUNK, None, None, attention=AttentionConfig("reduced", 8)),
}
SMALL = ("--set", "extract.max_side=48", "--set", "extract.scales=[1.0,0.5]", "--workers", "1")
LOCAL = ("--set", "extract.attention=regions", "--set", "extract.features_per_image=40")


@pytest.fixture(scope="module")
def networks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("networks")
    for name, config in CONFIGS.items():
        torch.manual_seed(0)
        save_network(Network(build_module(config), config), folder / name)
    return {name: folder / name for name in CONFIGS}


@pytest.fixture(scope="module")
def things(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("things")
    draw_things(folder, 3, 3)
    return folder


def bare(options: tuple[str, ...]) -> list[str]:
    """The same for verbs whose settings are of extract alone."""
    return [option.removeprefix("extract.") for option in options]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, networks: dict[str, Path], things: Path) -> tuple[Path, Path]:
    """An index of vectors, and a folder of local features of the same photos."""
    folder = tmp_path_factory.mktemp("made")
    run_json("index", things, "-o", folder / "index", "-w", networks["delg"], *bare(SMALL))
    few = ("--set", "extract.features_per_image=40")
    run_json("extract", things, "-o", folder / "local", "-w", networks["delf"], "--regions", *bare(SMALL + few))
    return folder / "index", folder / "local"


def test_results_by_local_features(made: tuple[Path, Path], networks: dict[str, Path], things: Path) -> None:
    index, local = made
    query = things / "thing0" / "0.png"
    plain = run_json("search", index, query)["results"][0]["hits"]
    found = run_json("search", index, query, "--local", local)["results"][0]["hits"]
    assert {hit["name"] for hit in found} == {hit["name"] for hit in plain}
    store = FeatureStore(local)
    asked = local_features(store["thing0/0.png"])
    counts = {hit["name"]: count_inliers(asked, local_features(store[hit["name"]])) for hit in plain}
    assert {hit["name"]: hit["matched"] for hit in found} == counts
    expected = sorted((hit["name"] for hit in plain), key=lambda name: -counts[name])
    assert [hit["name"] for hit in found] == expected
    top = run_json("search", index, query, "--local", local, "--top", 2)["results"][0]["hits"]
    assert [hit["name"] for hit in top] == expected[:2]


def test_a_query_that_the_folder_does_not_have(
    made: tuple[Path, Path], networks: dict[str, Path], things: Path, tmp_path: Path
) -> None:
    index, local = made
    new = draw(tmp_path / "new.png", 7, 0)
    assert_refused(run("search", index, new, "--local", local), "local-weights", "no local features of the query")
    wrong = run("search", index, new, "--local", local, "--local-weights", networks["delg"])
    assert_refused(wrong, "is not the network that made")
    for more in ((), ("--box", "0,0,0.5,0.5")):
        hits = run_json("search", index, new, "--local", local, "--local-weights", networks["delf"], *more)
        counts = [hit["matched"] for hit in hits["results"][0]["hits"]]
        assert counts == sorted(counts, reverse=True)


def precision_by_hand(scores: Any, local: Path, root: Path, base: list[list[int]], grade: str) -> list[float | None]:
    """Average precision of each query, re-ranked without its junk, from the rankings of a run without the stage."""
    test = read_benchmark("roxford5k", root)
    names, store, found = own_names(test), FeatureStore(local), []
    for number, query in enumerate(test.queries):
        right, junk = lists_of(query, grade)
        asked = local_features(store[names.queries[number]])
        counts = {image: count_inliers(asked, local_features(store[name])) for image, name in enumerate(names.database)}
        order = rerank(base[number], scores[number], counts, junk=junk)
        value = average_precision(np.asarray(order), right, junk)
        found.append(None if np.isnan(value) else 100 * value)
    return found


def test_an_evaluation_by_local_features(networks: dict[str, Path], tmp_path: Path) -> None:
    """Queries have boxes, so their local features are those of another evaluation of the same set."""
    root = draw_roxford(tmp_path / "roxford")
    base = ("evaluate", "roxford5k", "--images", root, "--analyses", 0, *SMALL)
    own = ("--codebook-images", root / "jpg", "--set", "codebook.words=8")
    run_json(*base, "-o", tmp_path / "local", "-w", networks["delf"], *own, *LOCAL)
    folder = tmp_path / "local" / "features"
    run_json(*base, "-o", tmp_path / "plain", "-w", networks["delg"])
    second = ("-o", tmp_path / "second", "-w", networks["delg"], "--local", folder)
    result = run_json(*base, *second)
    assert result["card"]["local"]["first"] == 100
    assert "ordered by local features" in (tmp_path / "second" / "card.txt").read_text()
    rankings = kept_rankings(tmp_path / "plain")
    scores = [dict(zip(row, range(len(row), 0, -1), strict=True)) for row in rankings]
    told = json.loads((tmp_path / "second" / "scores.json").read_text())["queries"]
    for grade in ("easy", "medium", "hard"):
        expected = precision_by_hand(scores, folder, root, rankings, grade)
        for query, value in zip(told, expected, strict=True):
            assert query["ap"][grade] == (value if value is None else pytest.approx(value, abs=1e-3))
    assert_refused(run(*base, "-o", tmp_path / "second", "-w", networks["delg"]), "other settings", "local was")
    refused = run(*base, "-o", tmp_path / "third", "-w", networks["delg"], "--local", tmp_path / "plain" / "features")
    assert_refused(refused, "one vector per photo")


def test_an_index_of_photos_with_boxes(networks: dict[str, Path], things: Path, tmp_path: Path) -> None:
    boxes = {"thing0/0.png": [[0, 0, 0.5, 0.5, 0.9], [0.5, 0.5, 1, 1]], "thing1/1.png": [[0.2, 0.2, 0.9, 0.9]]}
    (tmp_path / "boxes.json").write_text(json.dumps(boxes))
    base = ("index", things, "-w", networks["delf"], "--codebook", "own", *bare(SMALL))
    made = {}
    for name, more in {
        "plain": (),
        "file": ("--boxes", tmp_path / "boxes.json"),
        "attention": ("--boxes", "attention"),
    }.items():
        assert run_json(*base, "-o", tmp_path / name, *more)["new"] == 9
        made[name] = Index.open(tmp_path / name)
    codes = {name: {one: index.words_of(one).codes.tobytes() for one in boxes} for name, index in made.items()}
    assert all(codes["file"][one] != codes["plain"][one] for one in boxes)
    assert (made["file"].facts["boxes"], made["file"].config.search.norm) == ("file", "none")
    again = ("index", things, "-o", tmp_path / "file", "-w", networks["delf"], *bare(SMALL))
    assert run_json(*again, "--boxes", tmp_path / "boxes.json")["same"] == 9
    hits = run_json("search", tmp_path / "file", "thing0/0.png")["results"][0]["hits"]
    assert hits[0]["score"] > 0


def test_boxes_that_do_not_fit(networks: dict[str, Path], things: Path, tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text(json.dumps({"elsewhere.jpg": [[0, 0, 1, 1]]}))
    (tmp_path / "outside.json").write_text(json.dumps({"thing0/0.png": [[0, 0, 2, 1]]}))
    base = ("index", things, "-o", tmp_path / "index", *bare(SMALL), "-w")
    assert_refused(run(*base, networks["delf"], "--boxes", tmp_path / "other.json"), "no photo has a box")
    assert_refused(run(*base, networks["delf"], "--boxes", tmp_path / "outside.json"), "outside of the photo")
    assert_refused(run(*base, networks["delg"], "--boxes", "attention"), "take a network of local features")
    assert not (tmp_path / "index").exists()
