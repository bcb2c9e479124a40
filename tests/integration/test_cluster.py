"""Shards on a cluster of Ray's: the answers of one index; an actor that dies is missed, said, and comes back.

All tests that start Ray are in this file: it is started once, for one process of the tests.
"""

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks import kills
from benchmarks import shards as bench_shards

import fixtures_shards
from fixtures_cli import assert_refused, run, run_json
from fixtures_recipe import listen_to_ctrl_c
from fixtures_service import make_index, pattern, photo, serving
from fixtures_shards import Here, MortalWorker
from superfeat.cluster.connect import connected, own_cluster
from superfeat.cluster.search import ShardActors, open_actors, open_far_index
from superfeat.cluster.words import ClusterAssign
from superfeat.engine import Engine, Named
from superfeat.errors import SuperfeatError
from superfeat.index.codebook import train_codebook
from superfeat.index.far import far_index
from superfeat.index.index import Index
from superfeat.index.splitting import shard_index

if importlib.util.find_spec("ray") is None:  # not imported here: it must be told of the token before
    pytest.skip("Ray has no wheel here: pip install 'superfeat[cluster]'", allow_module_level=True)
STORE = 80 << 20  # bytes of shared memory that Ray takes
PATIENT = 60.0  # seconds: other tests run beside these
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
    asked = run_json("search", shards, name, "--rerank", "geometry", "--cluster", "auto", "--patience", f"{PATIENT}")
    assert asked["results"] == wanted
    assert (wanted[0]["unsearched"], wanted[0]["missing"]) == (0, [])


def test_an_actor_that_dies_is_missed_and_comes_back(plain: Path, shards: Path) -> None:
    local = Engine.open(plain, workers=1)
    names = list(local.index.names())
    wanted = {name: hits(local, name) for name in names}
    with open_actors(shards, "auto", patience=PATIENT / 3) as actors:
        engine = Engine(far_index(shards, actors), workers=1)
        held = list(Index.open(shards / "000001").names())
        asked_for = next(name for name in names if name not in held)
        assert {name: hits(engine, name) for name in names} == wanted
        kill(actors, 1)
        began, partial = time.monotonic(), 0
        while time.monotonic() < began + BACK:
            asked = time.monotonic()
            answer = engine.search(Named(asked_for), rerank="expand")
            assert time.monotonic() - asked < PATIENT
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
    with open_actors(shards, "auto", replicas=2, patience=PATIENT) as actors:
        engine = Engine(far_index(shards, actors), workers=1)
        for name in names[:2]:
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


# -- Photos that are looked at by workers, and words that are learned there


def contents(index: Index) -> list[Any]:
    """All of an index but where it lies."""
    images = [(image, one.name, one.meta.get("places"), one.meta["size"]) for image, one in index.snapshot().images()]
    words = [index.words_of(one[1]) for one in images]
    return [images, [(one.words.tobytes(), one.codes.tobytes()) for one in words], index.codebook.digest, index.facts]


@pytest.fixture(scope="module")
def photos(plain: Path) -> Path:
    folder = plain.parent / "more"
    shutil.copytree(plain.parent / "photos", folder)
    (folder / "broken.jpg").write_bytes(b"no photo")
    return folder


@pytest.fixture(scope="module")
def indexed(plain: Path, photos: Path) -> Path:
    made = plain.parent / "indexed"
    told = run_json("index", photos, "-o", made, "-w", plain.parent / "network", "--set", "max_side=96")
    assert (told["new"], len(told["skipped"])) == (9, 1)
    return made


def test_indexing_on_a_cluster_is_indexing(plain: Path, photos: Path, indexed: Path, tmp_path: Path) -> None:
    """Words are learned from the photos, and then taken from there: both ways give the index of one machine."""
    network, settings = plain.parent / "network", ("--set", "max_side=96")
    first = run_json("index", photos, "-o", tmp_path / "own", "-w", network, *settings, "--cluster", "auto")
    Index.open(indexed).codebook.save(tmp_path / "words")
    more = ("--codebook", tmp_path / "words", "--shards", "2", "--workers", "1")
    second = run_json("index", photos, "-o", tmp_path / "given", "-w", network, *settings, *more, "--cluster", "auto")
    for told, name, shards in ((first, "own", 8), (second, "given", 2)):
        assert (told["new"], [one["name"] for one in told["skipped"]]) == (9, ["broken.jpg"])
        assert contents(Index.open(tmp_path / name)) == contents(Index.open(indexed))
        assert len(Index.open(tmp_path / name).info().shards or []) == shards
    again = run_json("index", photos, "-o", tmp_path / "given", "--cluster", "auto")
    assert (again["new"], again["same"]) == (0, 9)


@pytest.mark.slow
def test_ctrl_c_keeps_what_is_finished_and_the_same_command_goes_on(plain: Path, indexed: Path, tmp_path: Path) -> None:
    folder, out = tmp_path / "many", tmp_path / "index"
    folder.mkdir()
    for number in range(300):
        pattern(number).save(folder / f"{number:03}.jpg")
    Index.open(indexed).codebook.save(tmp_path / "words")
    given = ["index", folder, "-o", out, "-w", plain.parent / "network", "--set", "max_side=96", "--shards", "2"]
    given += ["--codebook", tmp_path / "words", "--cluster", "auto"]
    command = [sys.executable, "-m", "superfeat", *map(str, given)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=listen_to_ctrl_c)
    deadline = time.monotonic() + PATIENT
    while sum(file.stat().st_size for file in out.rglob("journal-*")) < 5000 and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "run the same command to go on" in errors
    kept = len(Index.open(out))
    assert 0 < kept < 300
    again = run_json(*given)
    assert (again["new"], again["same"], again["images"]) == (300 - kept, kept, 300)


def test_a_photo_that_workers_die_of_is_named_and_nothing_is_lost(
    ray: Any, plain: Path, photos: Path, indexed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray.cloudpickle.register_pickle_by_value(fixtures_shards)  # which workers cannot import
    monkeypatch.setattr("superfeat.cluster.photos.PhotoWorker", MortalWorker)
    folder = shutil.copytree(photos, tmp_path / "photos")
    Index.open(indexed).codebook.save(tmp_path / "words")
    network, names = plain.parent / "network", sorted(path.name for path in folder.glob("?.jpg"))
    (folder / names[1]).rename(folder / f"{names[1][0]}fright.jpg")
    pattern(50).save(folder / f"{names[3][0]}poison.jpg")
    more = ("--set", "max_side=96", "--codebook", tmp_path / "words", "--shards", "2")
    told = run_json("index", folder, "-o", tmp_path / "index", "-w", network, *more, "--cluster", "auto")
    reasons = {one["name"]: one["reason"] for one in told["skipped"]}
    assert reasons[f"{names[3][0]}poison.jpg"] == "3 workers died while they looked at it"
    assert (told["new"], len(reasons)) == (9, 2)
    index = Index.open(tmp_path / "index")
    words = [index.words_of(name).codes.tobytes() for name in index.names()]
    assert words == [one[1] for one in contents(Index.open(indexed))[1]]


def test_words_are_learned_as_on_one_machine(ray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("superfeat.index.lloyd.POINTS_AT_ONCE", 100)
    points = np.random.default_rng(0).standard_normal((512, 16)).astype(np.float32)
    wanted = train_codebook([points], words=24, seed=3)
    found = train_codebook([points], words=24, seed=3, assign=ClusterAssign(ray))
    assert found.centroids.tobytes() == wanted.centroids.tobytes()
    assert found.facts == wanted.facts


def test_what_a_cluster_does_not_do(plain: Path, photos: Path, tmp_path: Path) -> None:
    refused = run("index", photos, "-o", tmp_path / "index", "--cluster", "auto", "--boxes", "attention")
    assert_refused(refused, "boxes", "one machine")
    gone = run("index", photos, "-o", tmp_path / "index", "-w", tmp_path / "none", "--cluster", "auto")
    assert_refused(gone, "none")


def test_the_benchmarks_still_run(tmp_path: Path) -> None:
    """One actor dies and one worker; timings are not looked at."""
    small = ["--words", "256", "--words-per-image", "20", "--query-words", "60", "--queries", "2", "--rounds", "1"]
    out = tmp_path / "out.json"
    bench_shards.main(["-o", str(tmp_path), "--images", "60", "--shards", "2", *small, "--json", str(out)])
    told = json.loads(out.read_text())
    assert (told["images"], told["equal_answers"], len(told["peak_MB_per_actor"])) == (60, 2, 2)
    kills.main(["search", "-o", str(tmp_path), "--kills", "1", "--words", "256", "--json", str(out)])
    told = json.loads(out.read_text())
    assert (told["wrong"], told["unlabelled"]) == (0, 0)
    kills.main(["index", "--kills", "1", "--photos", "12", "--json", str(out)])
    told = json.loads(out.read_text())
    assert (told["indexed"], told["lost"], told["twice"], told["equal_words"], told["blamed"]) == (12, 0, 0, 12, [])
