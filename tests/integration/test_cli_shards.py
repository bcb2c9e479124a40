"""Shards through the command line, the engine and the service: the answers of one index, word for word."""

import re
from pathlib import Path
from typing import Any

import pytest

from fixtures_cli import assert_refused, run, run_json
from fixtures_service import make_index, photo, serving
from superfeat.duplicates import find_duplicates
from superfeat.engine import Engine, Named
from superfeat.index.index import Index


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_index(tmp_path_factory.mktemp("plain"), calibrated=True)


@pytest.fixture(scope="module")
def shards(plain: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("split") / "shards"
    told = run_json("shard", plain, "-n", "3", "-o", made)
    assert (sum(told["shards"]), len(told["shards"])) == (told["images"], 3)
    return made


def told(index: Path, *arguments: object) -> Any:
    found = run_json("search", index, *arguments)
    found.pop("index", None)
    return [{key: value for key, value in one.items() if key != "seconds"} for one in found["results"]]


@pytest.mark.parametrize("rerank", ["geometry", "expand", "diffuse", "off"])
def test_search_says_the_same(rerank: str, plain: Path, shards: Path) -> None:
    names = list(Index.open(plain).names())
    for name in names[:2]:
        wanted = told(plain, name, "--rerank", rerank, "--all")
        assert told(shards, name, "--rerank", rerank, "--all") == wanted
        assert wanted[0]["hits"][0]["probability"] is not None


def test_engine_explains_and_groups_the_same(plain: Path, shards: Path) -> None:
    engines = Engine.open(plain, workers=1), Engine.open(shards, workers=1)
    first, second = list(engines[0].index.names())[:2]
    parts = [engine.explain(Named(first), second) for engine in engines]
    assert parts[0].score == parts[1].score
    groups = [list(find_duplicates(engine.index, least=0.05)) for engine in engines]
    assert repr(groups[0]) == repr(groups[1])


@pytest.mark.parametrize("kind", ["csv", "hloc"])
def test_pairs_are_the_same(plain: Path, shards: Path, tmp_path: Path, kind: str) -> None:
    files = [tmp_path / "plain", tmp_path / "shards"]
    for index, file in zip((plain, shards), files, strict=True):
        run_json("pairs", index, "-o", file, "--format", kind, "--connected")
    assert files[0].read_text() == files[1].read_text() != ""


def test_service_answers_the_same(plain: Path, shards: Path) -> None:
    answers = []
    for index in (plain, shards):
        with serving(index, read_only=True) as served:
            hits = served.search(photo(1), top=5).json()["hits"]
            answers.append([(hit["name"], hit["score"], hit["probability"]) for hit in hits])
    assert answers[0] == answers[1] != []


def test_there_and_back(plain: Path, tmp_path: Path) -> None:
    run_json("shard", plain, "-n", "4", "-o", tmp_path / "shards")
    names = list(Index.open(plain).names())
    assert run_json("delete", tmp_path / "shards", *names[:2])["images"] == len(names) - 2
    assert len(run_json("rebalance", tmp_path / "shards", "-n", "2")["shards"]) == 2
    assert run_json("verify", tmp_path / "shards")["images"] == len(names) - 2
    assert run_json("compact", tmp_path / "shards")["images"] == len(names) - 2
    assert run_json("info", tmp_path / "shards")["format"] == "superfeat-shards"
    assert "shards" not in run_json("info", plain)
    joined = run_json("merge", tmp_path / "shards", "-o", tmp_path / "joined")
    assert (joined["images"], list(Index.open(tmp_path / "joined").names())) == (len(names) - 2, names[2:])
    both = run_json("merge", tmp_path / "shards", plain, "-o", tmp_path / "both")
    assert both["images"] == len(names)


def test_refusals(plain: Path, shards: Path, tmp_path: Path) -> None:
    assert_refused(run("shard", plain, "-n", "2", "-o", shards), "exists already")
    assert_refused(run("rebalance", plain), "is not in shards", "superfeat shard")
    assert_refused(run("merge", shards), "nothing to merge", "--output")
    assert_refused(run("merge", shards, plain), "in shards", "superfeat merge")
    assert_refused(run("index", tmp_path, "-o", shards, "--shards", "2"), "superfeat rebalance")
    assert re.search(r"-n, --shards", run("shard", "--help").stdout)
