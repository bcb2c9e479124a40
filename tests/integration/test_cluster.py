"""Shards on a cluster of Ray's: the answers of one index; an actor that dies is missed, said, and comes back.

All tests that start Ray are in this file: it is started once, for one process of the tests.
"""

import importlib.util
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fixtures_cli import assert_refused, run, run_json
from fixtures_service import make_index, photo, serving
from fixtures_shards import Here
from superfeat.cluster.connect import connected, own_cluster
from superfeat.cluster.search import ShardActors, open_actors, open_far_index
from superfeat.engine import Engine, Named
from superfeat.errors import SuperfeatError
from superfeat.index.far import far_index
from superfeat.index.index import Index
from superfeat.index.splitting import shard_index

if importlib.util.find_spec("ray") is None:  # not imported here: it must be told of the token before
    pytest.skip("Ray has no wheel here: pip install 'superfeat[cluster]'", allow_module_level=True)
STORE = 80 << 20  # bytes of shared memory that Ray takes
BACK = 60.0  # seconds within which an actor must have come back


@pytest.fixture(scope="module", autouse=True)
def ray() -> Iterator[Any]:
    with own_cluster(2, object_store_memory=STORE) as module:
        yield module


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_index(tmp_path_factory.mktemp("plain"), 9, calibrated=True)


@pytest.fixture(scope="module")
def shards(plain: Path) -> Path:
    return shard_index(Index.open(plain), 3, plain.parent / "shards").path


def hits(engine: Engine, name: str) -> list[Any]:
    return [(hit.name, hit.score, hit.probability, hit.verified) for hit in engine.search(Named(name), rerank="expand")]


def kill(actors: ShardActors, shard: int, replica: int = 0) -> None:
    (process,) = [one for one in actors.processes() if (one.shard, one.replica) == (shard, replica)]
    os.kill(process.pid, signal.SIGKILL)


def test_verbs_answer_as_without_a_cluster(plain: Path, shards: Path) -> None:
    name = next(Index.open(plain).names())
    wanted = run_json("search", plain, name, "--rerank", "geometry")["results"]
    assert run_json("search", shards, name, "--rerank", "geometry", "--cluster", "auto")["results"] == wanted
    assert (wanted[0]["unsearched"], wanted[0]["missing"]) == (0, [])


def test_an_actor_that_dies_is_missed_and_comes_back(plain: Path, shards: Path) -> None:
    local = Engine.open(plain, workers=1)
    names = list(local.index.names())
    wanted = {name: hits(local, name) for name in names}
    with open_actors(shards, "auto") as actors:
        engine = Engine(far_index(shards, actors), workers=1)
        held = list(Index.open(shards / "000001").names())
        asked_for = next(name for name in names if name not in held)
        assert {name: hits(engine, name) for name in names} == wanted
        kill(actors, 1)
        began, partial = time.monotonic(), 0
        while time.monotonic() < began + BACK:
            asked = time.monotonic()
            answer = engine.search(Named(asked_for), rerank="expand")
            assert time.monotonic() - asked < 30
            if not answer.missing:
                break
            assert answer.unsearched == len(held) / len(names)
            partial += 1
        assert partial > 0
        assert {name: hits(engine, name) for name in names} == wanted
        assert {one.shard for one in actors.processes()} == {0, 1, 2}


def test_a_lost_replica_changes_nothing(plain: Path, shards: Path) -> None:
    local = Engine.open(plain, workers=1)
    names = list(local.index.names())
    with open_actors(shards, "auto", replicas=2) as actors:
        engine = Engine(far_index(shards, actors), workers=1)
        for name in names[:3]:
            kill(actors, 2, replica=names.index(name) % 2)
            answer = engine.search(Named(name), rerank="expand")
            assert answer.missing == ()
            assert [(hit.name, hit.score, hit.probability, hit.verified) for hit in answer] == hits(local, name)
            deadline = time.monotonic() + BACK
            while len(actors.processes()) < 6 and time.monotonic() < deadline:
                time.sleep(0.1)


def test_refusals(plain: Path, shards: Path, tmp_path: Path) -> None:
    name = next(Index.open(plain).names())
    assert_refused(run("search", plain, name, "--cluster", "auto"), "is not in shards", "superfeat shard")
    assert_refused(run("search", shards, name, "--replicas", "2"), "--cluster")
    with pytest.raises(SuperfeatError, match="1 actor or more"), open_far_index(shards, "auto", replicas=0):
        pass
    broken = shard_index(Index.open(plain), 2, tmp_path / "broken").path
    (broken / "000001" / "manifest.json").write_text("{}")
    with pytest.raises(SuperfeatError, match="shard 000001 cannot be read"), open_far_index(broken, "auto"):
        pass


def test_no_cluster_at_an_address(ray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: Any) -> None:
        raise ConnectionError

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", fail)
    with pytest.raises(SuperfeatError, match="no cluster answers at nowhere:1; is it running"), connected("nowhere:1"):
        pass


def test_the_service_says_what_was_not_searched(shards: Path) -> None:
    here = Here(shards, [f"{number:06}" for number in range(3)])
    engine = Engine(far_index(shards, here), workers=1)
    with serving(engine, read_only=True) as served:
        whole = served.search(photo(1), top=9)
        assert "x-superfeat-unsearched" not in whole.headers
        assert whole.json()["unsearched"] == 0
        here.dead = {0}
        partial = served.search(photo(1), top=9)
        share = round(here.parts[0].facts().images / 9, 4)
        assert (float(partial.headers["x-superfeat-unsearched"]), partial.json()["unsearched"]) == (share, share)
        assert len(partial.json()["hits"]) < len(whole.json()["hits"])
