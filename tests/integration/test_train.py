"""Training as a whole: the same weights however often it is stopped or killed, and by however many processes."""

import dataclasses
import itertools
import json
import math
import multiprocessing
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import safetensors.torch
import torch
from PIL import Image
from torch import Tensor

import oracles
from fixtures_recipe import noise, relative_error, take
from superfeat.config import Recipe
from superfeat.datasets.folders import read_folders
from superfeat.datasets.retrieval_set import RetrievalSet, each_photo_in_turn
from superfeat.datasets.training_set import TrainingSet
from superfeat.errors import DatasetError, StoreError, SuperfeatError
from superfeat.extraction.extract import extract
from superfeat.index.codebook import train_codebook
from superfeat.nets.training import for_training
from superfeat.recipes import read_recipe
from superfeat.settings import overlay
from superfeat.training.inputs import PhotoInputs, Showing
from superfeat.training.objective import differentiate
from superfeat.training.ranks import Ranks
from superfeat.training.run import Event, RunFolder
from superfeat.training.train import train
from superfeat.training.trainer import Trainer
from superfeat.weights import Network, load_network

SIDE = 48
EPOCHS, STEPS = 2, 4  # steps of an epoch
RECIPE = """
[network]
whitened_dim = 6
trunk = { arch = "resnet10", stages = 1 }
lit = { templates = 8, rounds = 2, dim = 16 }

[training]
epochs = 2
queries = 8
tuples_per_step = 2
negatives = 2
pool = 12
learning_rate = 1e-3
decay = 0.9
max_side = 48
whitening_images = 12

[losses]
ratio_test = "off" # which so small a network would hardly pass

[validation]
every = 1
codebook = { words = 16, rounds = 2 }
codebook_images = 6
extract = { max_side = 48, scales = [1.0, 0.5], features_per_image = 12 }
"""
HOW = {
    "network": {"method": "how", "lit": None},
    "losses": {"superfeature": 0.0, "decorrelation": 0.0, "pooled": 1.0},
}
# Everything that makes tuples cheaper, at once.
CHEAPER = {
    "training": {
        "negatives_from": "step",
        "average": 0.9,
        "least_side": 32,
        "schedule": "cosine",
        "warm_up": 3,
        "trunk_rate": 0.5,
    },
    "data": {"synthetic_views": 0.3, "balance": 0.5},
    "losses": {"pooled": 0.5},
}
TIMES = ("seconds", "mining_seconds")


class Things(NamedTuple):
    """A folder with train/ and validation/, and what it holds."""

    folder: Path
    training: TrainingSet
    validation: RetrievalSet


def draw_things(folder: Path, things: int, views: int, seed: int) -> None:
    """Noise, and under it one pattern for each thing."""
    for thing in range(things):
        (folder / f"thing{thing}").mkdir(parents=True)
        for view in range(views):
            height, width = (SIDE, SIDE - 8)[:: 1 if view % 2 else -1]
            mixed = 0.6 * noise(height, width, seed + thing) + 0.4 * noise(
                height, width, seed + 100 + 10 * thing + view
            )
            Image.fromarray(mixed.astype(np.uint8)).save(folder / f"thing{thing}" / f"{view}.png")


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    file = tmp_path_factory.mktemp("recipe") / "tiny.toml"
    file.write_text(RECIPE)
    return read_recipe(file)


@pytest.fixture(scope="module")
def things(tmp_path_factory: pytest.TempPathFactory) -> Things:
    folder = tmp_path_factory.mktemp("things")
    draw_things(folder / "train", things=6, views=3, seed=0)
    draw_things(folder / "validation", things=3, views=3, seed=500)
    validation = each_photo_in_turn(read_folders(folder / "validation"), "validation")
    return Things(folder, read_folders(folder / "train"), validation)


@pytest.fixture(scope="module")
def once(recipe: Recipe, things: Things, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing disturbed."""
    run = tmp_path_factory.mktemp("once") / "run"
    finish(recipe, things, run, validation=things.validation)
    return run


@pytest.fixture(scope="module")
def plain(recipe: Recipe, things: Things, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same without validation, which is what takes the time."""
    run = tmp_path_factory.mktemp("plain") / "run"
    finish(unvalidated(recipe), things, run)
    return run


@pytest.fixture(scope="module")
def cheaper(recipe: Recipe, things: Things, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pairs that are each other's negatives, some of them made of one photo, and weights that are averaged."""
    run = tmp_path_factory.mktemp("cheaper") / "run"
    finish(overlay(unvalidated(recipe), CHEAPER), things, run)
    return run


def unvalidated(recipe: Recipe) -> Recipe:
    return overlay(recipe, {"validation.every": 0})


def one_step(recipe: Recipe, **changes: Any) -> Recipe:
    """One epoch of one step."""
    short = overlay(recipe, {"training": {"epochs": 1, "queries": 2}, "validation.every": 0})
    return overlay(short, {name.replace("__", "."): value for name, value in changes.items()})


def finish(recipe: Recipe, things: Things, run: Path, **options: Any) -> list[Event]:
    events = list(train(recipe, things.training, run, **{"workers": 1, **options}))
    assert events[-1].stage == "end"
    return events


def stop_after(recipe: Recipe, things: Things, run: Path, stage: str, number: int, **options: Any) -> None:
    """Asks the run to stop at the `number`th event of this stage."""
    stages: list[str] = []
    for event in train(recipe, things.training, run, workers=1, stop=lambda: stages.count(stage) >= number, **options):
        stages.append(event.stage)
    assert stages[-1] == "stopped"


def parameters_of(run: Path, name: str = "last") -> dict[str, Tensor]:
    return safetensors.torch.load_file(run / name / "model.safetensors")


def weights(run: Path, name: str = "last") -> bytes:
    return (run / name / "model.safetensors").read_bytes()


def log(run: Path) -> list[dict[str, Any]]:
    """Everything but times."""
    lines = (run / "log.jsonl").read_text().splitlines()
    return [{name: value for name, value in json.loads(line).items() if name not in TIMES} for line in lines]


def of(event: str, run: Path) -> list[dict[str, Any]]:
    return [record for record in log(run) if record["event"] == event]


def provenance(run: Path, name: str) -> dict[str, Any]:
    return load_network(run / name).provenance


def assert_same(expected: Path, found: Path) -> None:
    assert [record["step"] for record in of("step", found)] == list(range(1, EPOCHS * STEPS + 1))
    assert log(found) == log(expected)
    for name in ("last", "best"):
        assert weights(found, name) == weights(expected, name), name


# -- Stopped, closed, abandoned


@pytest.mark.slow
@pytest.mark.parametrize("step", range(1, EPOCHS * STEPS + 1))
def test_stopped_after_any_step(step: int, recipe: Recipe, things: Things, plain: Path, tmp_path: Path) -> None:
    stop_after(unvalidated(recipe), things, tmp_path / "run", "step", step)
    assert len(of("step", tmp_path / "run")) == step
    finish(unvalidated(recipe), things, tmp_path / "run", resume=True)
    assert_same(plain, tmp_path / "run")


def test_stopped_after_every_step_of_one_run(recipe: Recipe, things: Things, once: Path, tmp_path: Path) -> None:
    for done in range(EPOCHS * STEPS):
        run = tmp_path / "run"
        stop_after(recipe, things, run, "step", 1, validation=things.validation, resume=done > 0)
        assert len(of("step", run)) == done + 1
    finish(recipe, things, run, validation=things.validation, resume=True)
    assert_same(once, run)


@pytest.mark.parametrize("number", [1, 7, 20])
def test_stopped_while_mining(number: int, recipe: Recipe, things: Things, plain: Path, tmp_path: Path) -> None:
    stop_after(unvalidated(recipe), things, tmp_path / "run", "mining", number)
    finish(unvalidated(recipe), things, tmp_path / "run", resume=True)
    assert_same(plain, tmp_path / "run")


@pytest.mark.parametrize(
    ("how", "stage", "number"),
    [("closed", "validating", 3), ("abandoned", "validation", 2), ("abandoned", "mining", 5), ("closed", "step", 6)],
)
def test_a_generator_that_is_not_run_to_its_end(
    how: str, stage: str, number: int, recipe: Recipe, things: Things, once: Path, tmp_path: Path
) -> None:
    """With a checkpoint after each step, and with those of the epochs alone."""
    seconds = 0.0 if how == "closed" else 300.0
    events = train(
        recipe, things.training, tmp_path / "run", validation=things.validation, workers=2, checkpoint_seconds=seconds
    )
    take(events, stage, number)
    if how == "closed":
        events.close()  # type: ignore[attr-defined]
    del events
    finish(recipe, things, tmp_path / "run", validation=things.validation, resume=True)
    assert_same(once, tmp_path / "run")


def test_torch_s_own_threads_rest_and_come_back(recipe: Recipe, things: Things, plain: Path, tmp_path: Path) -> None:
    torch.set_num_threads(3)
    try:
        finish(unvalidated(recipe), things, tmp_path / "run")
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(1)
    assert_same(plain, tmp_path / "run")


def test_a_finished_run_is_gone_on_with_without_change(
    recipe: Recipe, things: Things, once: Path, tmp_path: Path
) -> None:
    run = shutil.copytree(once, tmp_path / "run")
    events = finish(recipe, things, run, validation=things.validation, resume=True)
    assert [event.stage for event in events] == ["end"]
    assert_same(once, run)


def test_networks_say_the_same_of_themselves_after_a_stop(
    recipe: Recipe, things: Things, once: Path, tmp_path: Path
) -> None:
    stop_after(recipe, things, tmp_path / "run", "step", 2, validation=things.validation)
    finish(recipe, things, tmp_path / "run", validation=things.validation, resume=True)
    for name in ("best", "last"):
        assert provenance(tmp_path / "run", name) == provenance(once, name)


def test_maps_of_a_frozen_trunk_survive_a_stop(recipe: Recipe, things: Things, tmp_path: Path) -> None:
    frozen = overlay(unvalidated(recipe), {"training.parts": "lit"})
    finish(frozen, things, tmp_path / "once")
    events = train(frozen, things.training, tmp_path / "run", workers=1)
    take(events, "maps", 5)
    del events
    stop_after(frozen, things, tmp_path / "run", "step", 3, resume=True)
    again = finish(frozen, things, tmp_path / "run", resume=True)
    assert "maps" not in {event.stage for event in again}
    assert_same(tmp_path / "once", tmp_path / "run")


# -- Processes. The children come from one that has imported everything and has no threads.

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["superfeat.training.train", "superfeat.cli", "superfeat.training.validation"])


def kill_at(calls: int) -> Callable[..., None]:
    """A function whose call number `calls` kills this process."""
    left = itertools.count(calls - 1, -1)

    def called(*_: object) -> None:
        if next(left) == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    return called


def train_in_child(recipe: Recipe, things: Things, run: Path, die: tuple[str, int]) -> None:
    """To be killed: at an event, before one of the waits for the disk, or from outside."""
    where, number = die
    strike = kill_at(number)
    if where == "sync":
        sync = os.fsync

        def deadly(handle: int) -> None:
            strike()
            sync(handle)

        os.fsync = deadly  # type: ignore[assignment]
    for _ in train(
        recipe, things.training, run, validation=things.validation, resume=True, workers=2, checkpoint_seconds=0
    ):
        if where == "event":
            strike()


def child(recipe: Recipe, things: Things, run: Path, die: tuple[str, int] = ("", 0)) -> BaseProcess:
    process = FORKS.Process(target=train_in_child, args=(recipe, things, run, die))
    process.start()
    return process


def kill_and_finish(recipe: Recipe, things: Things, once: Path, run: Path, die: tuple[str, int]) -> bool:
    """Whether there was anything to kill."""
    process = child(recipe, things, run, die)
    process.join()
    killed = process.exitcode == -signal.SIGKILL
    assert killed or process.exitcode == 0
    finish(recipe, things, run, validation=things.validation, resume=True)
    assert_same(once, run)
    return killed


@pytest.mark.slow
@pytest.mark.parametrize("die", [("event", 20), ("sync", 41)])
def test_killed(die: tuple[str, int], recipe: Recipe, things: Things, once: Path, tmp_path: Path) -> None:
    """While mining; while writing."""
    assert kill_and_finish(recipe, things, once, tmp_path / "run", die)


@pytest.mark.long
@pytest.mark.parametrize("where", ["event", "sync"])
def test_killed_everywhere(where: str, recipe: Recipe, things: Things, once: Path, tmp_path: Path) -> None:
    for number in itertools.count(1):
        if not kill_and_finish(recipe, things, once, tmp_path / f"run{number}", (where, number)):
            assert number > 50
            return
        shutil.rmtree(tmp_path / f"run{number}")


@pytest.mark.parametrize(
    ("kills", "seed"),
    [
        pytest.param(3, 0, marks=pytest.mark.slow),
        *(pytest.param(25, seed, marks=pytest.mark.long) for seed in range(8)),
    ],
)
def test_killed_again_and_again(
    kills: int, seed: int, recipe: Recipe, things: Things, once: Path, tmp_path: Path
) -> None:
    """At random moments of one run, which always gets a little further or stays where it is."""
    moments = random.Random(seed)
    for _ in range(kills):
        process = child(recipe, things, tmp_path / "run")
        process.join(moments.uniform(0, 2.5))
        process.kill()
        process.join()
        assert process.exitcode in (0, -signal.SIGKILL)
    finish(recipe, things, tmp_path / "run", validation=things.validation, resume=True)
    assert_same(once, tmp_path / "run")


def test_what_a_kill_leaves_behind_is_cleared_away(recipe: Recipe, things: Things, once: Path, tmp_path: Path) -> None:
    """Half-written files and scratch folders, which would fill a disk on which a run is often killed."""
    run = shutil.copytree(once, tmp_path / "run")
    (run / ".checkpoint.safetensors.4711.partial").write_bytes(b"half")
    for folder in (".validation.k2jq0x1a", ".last.k2jq0x1a.partial", ".best.4711.old"):
        (run / folder).mkdir()
        (run / folder / "model.safetensors").write_bytes(b"half")
    finish(recipe, things, run, validation=things.validation, resume=True)
    assert {path.name for path in run.iterdir()} - {".lock", "tensorboard"} == {
        "run.json",
        "log.jsonl",
        "checkpoint.safetensors",
        "best",
        "last",
    }


# -- Threads and processes that share the work


@pytest.mark.parametrize("workers", [2, 3])
def test_any_number_of_workers(workers: int, recipe: Recipe, things: Things, plain: Path, tmp_path: Path) -> None:
    finish(unvalidated(recipe), things, tmp_path / "run", workers=workers)
    assert_same(plain, tmp_path / "run")


class Rank(NamedTuple):
    """One of several processes: what it ended with, and what it wrote."""

    code: int | None
    stdout: str
    stderr: str


def command_in_child(arguments: Sequence[str], environment: Mapping[str, str], die: tuple[str, int], out: str) -> None:
    """The command line; `die` names a method of Trainer and the call at which the process is killed."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        handle = os.open(f"{out}.{name}", os.O_WRONLY | os.O_CREAT)
        os.dup2(handle, number)
    os.environ.update(environment)
    where, calls = die
    if where:
        method, strike = getattr(Trainer, where), kill_at(calls)

        def deadly(*given: Any) -> Any:
            strike()
            return method(*given)

        setattr(Trainer, where, deadly)
    from superfeat.cli import main

    main([str(argument) for argument in arguments])


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def run_ranks(arguments: Sequence[object], out: Path, die: Mapping[int, tuple[str, int]] = {}) -> list[Rank]:
    """Two processes as torchrun starts them, over the loopback."""
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    processes = []
    for rank in range(2):
        given = (
            [str(argument) for argument in arguments],
            {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            die.get(rank, ("", 0)),
            f"{out}.{rank}",
        )
        process = FORKS.Process(target=command_in_child, args=given)
        process.start()
        processes.append(process)
    try:
        for process in processes:
            process.join(240)  # a test that hangs is to end; nothing is measured
    finally:
        for process in processes:
            process.kill()
            process.join()
    written = [[Path(f"{out}.{rank}.{name}").read_text() for name in ("stdout", "stderr")] for rank in range(2)]
    return [Rank(process.exitcode, *texts) for process, texts in zip(processes, written, strict=True)]


def command(things: Things, recipe_file: Path, run: Path, *more: object) -> list[object]:
    validation = ("--validation", things.folder / "validation")
    images = ("--images", things.folder / "train")
    return ["train", recipe_file, *images, *validation, "--workers", "1", "-o", run, *more]


@pytest.fixture
def recipe_file(tmp_path: Path) -> Path:
    (tmp_path / "tiny.toml").write_text(RECIPE)
    return tmp_path / "tiny.toml"


@pytest.mark.slow
def test_torchrun(things: Things, recipe_file: Path, plain: Path, tmp_path: Path) -> None:
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", free_port()]
    words = [*launch, "-m", "superfeat", *command(things, recipe_file, tmp_path / "run", "--set", "validation.every=0")]
    done = subprocess.run(
        [str(word) for word in words],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert_same(plain, tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fire", "how"])
def test_two_processes_learn_what_one_learns(
    method: str, recipe: Recipe, things: Things, recipe_file: Path, tmp_path: Path
) -> None:
    """Three tuples a step, of which two processes get two and one; the last step has one, so that one gets none."""
    uneven = ["training.tuples_per_step=3", "training.queries=7", "validation.every=0"]
    if method == "how":
        recipe_file.write_text(RECIPE.replace("lit = { templates = 8, rounds = 2, dim = 16 }", 'method = "how"'))
    finish(read_recipe(recipe_file, uneven), things, tmp_path / "one")
    changes = [word for change in uneven for word in ("--set", change)]
    ranks = run_ranks(command(things, recipe_file, tmp_path / "two", *changes, "--json"), tmp_path / "out")
    assert [rank.code for rank in ranks] == [0, 0], ranks
    assert log(tmp_path / "two") == log(tmp_path / "one")
    for name in ("last", "best"):
        assert weights(tmp_path / "two", name) == weights(tmp_path / "one", name)


@pytest.mark.slow
def test_the_result_of_two_processes_is_told_once(things: Things, recipe_file: Path, tmp_path: Path) -> None:
    changes = ["--set", "training.epochs=0", "--set", "validation.every=0"]
    ranks = run_ranks(command(things, recipe_file, tmp_path / "run", *changes, "--json"), tmp_path / "out")
    assert [rank.code for rank in ranks] == [0, 0], ranks
    assert json.loads("".join(rank.stdout for rank in ranks))["run"] == str(tmp_path / "run")


@pytest.mark.slow
def test_from_one_process_to_two_and_back_and_to_two(
    recipe: Recipe, things: Things, recipe_file: Path, once: Path, tmp_path: Path
) -> None:
    run, both = tmp_path / "run", ("_step", 4)
    words = command(things, recipe_file, run, "--resume")
    stop_after(recipe, things, run, "step", 2, validation=things.validation)
    ranks = run_ranks(words, tmp_path / "out", {0: both, 1: both})
    assert [rank.code for rank in ranks] == [-signal.SIGKILL, -signal.SIGKILL]
    assert STEPS <= len(of("step", run)) < EPOCHS * STEPS
    stop_after(recipe, things, run, "step", 1, validation=things.validation, resume=True)
    ranks = run_ranks(words, tmp_path / "again")
    assert [rank.code for rank in ranks] == [0, 0], ranks
    assert_same(once, run)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("killed", "where", "calls"),
    [
        (1, "_step", 6),
        pytest.param(0, "_step", 2, marks=pytest.mark.long),
        pytest.param(1, "_mine", 2, marks=pytest.mark.long),
        pytest.param(0, "_validate", 2, marks=pytest.mark.long),
    ],
)
def test_a_process_that_is_lost_ends_the_run(
    killed: int, where: str, calls: int, recipe: Recipe, things: Things, recipe_file: Path, once: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    ranks = run_ranks(command(things, recipe_file, run, "--json"), tmp_path / "out", {killed: (where, calls)})
    assert ranks[killed].code == -signal.SIGKILL
    other = ranks[1 - killed]
    assert other.code == 1, other
    lines = [line for line in other.stderr.splitlines() if line.startswith("superfeat: ")]
    assert len(lines) == 1, other.stderr
    assert "another process of this training was lost" in lines[0]
    assert "start them all again with --resume" in lines[0]
    assert "Traceback" not in other.stderr
    finish(recipe, things, run, validation=things.validation, resume=True)
    assert_same(once, run)


def test_a_rank_that_is_late_leaves_the_log_alone(recipe: Recipe, things: Things, once: Path, tmp_path: Path) -> None:
    """The first one may have validated, and logged it, while another still reads the checkpoint."""
    run = shutil.copytree(once, tmp_path / "run")
    with (run / "log.jsonl").open("a") as file:
        file.write('{"event": "validation"}\n')
    before = (run / "log.jsonl").read_bytes()
    late = Trainer(recipe, things.training, (things.validation,), RunFolder(run), Ranks(1, 2), 1, "cpu")
    assert list(late.begin(None)) == []
    assert (run / "log.jsonl").read_bytes() == before


# -- Cheaper tuples: shared negatives, views, sides, averaged weights


@pytest.mark.parametrize("step", [1, STEPS, STEPS + 3])
def test_cheaper_tuples_survive_a_stop(
    step: int, recipe: Recipe, things: Things, cheaper: Path, tmp_path: Path
) -> None:
    """Within an epoch and between two: the average goes on from where it was."""
    chosen = overlay(unvalidated(recipe), CHEAPER)
    stop_after(chosen, things, tmp_path / "run", "step", step)
    finish(chosen, things, tmp_path / "run", resume=True)
    assert_same(cheaper, tmp_path / "run")


def test_cheaper_tuples_are_the_same_by_any_number_of_workers(
    recipe: Recipe, things: Things, cheaper: Path, tmp_path: Path
) -> None:
    finish(overlay(unvalidated(recipe), CHEAPER), things, tmp_path / "run", workers=2)
    assert_same(cheaper, tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fire", "how"])
def test_two_processes_share_their_negatives(
    method: str, recipe: Recipe, things: Things, recipe_file: Path, tmp_path: Path
) -> None:
    """Three pairs a step, whose images two processes share out; the last step has one pair, without any negative."""
    if method == "how":
        recipe_file.write_text(RECIPE.replace("lit = { templates = 8, rounds = 2, dim = 16 }", 'method = "how"'))
    settings = {"negatives_from": '"step"', "tuples_per_step": 3, "queries": 7, "average": 0.9, "least_side": 32}
    changes = [f"training.{name}={value}" for name, value in settings.items()]
    changes += ["data.synthetic_views=0.3", "validation.every=0"]
    finish(read_recipe(recipe_file, changes), things, tmp_path / "one")
    words = [word for change in changes for word in ("--set", change)]
    ranks = run_ranks(command(things, recipe_file, tmp_path / "two", *words, "--json"), tmp_path / "out")
    assert [rank.code for rank in ranks] == [0, 0], ranks
    assert log(tmp_path / "two") == log(tmp_path / "one")
    for name in ("last", "best"):
        assert weights(tmp_path / "two", name) == weights(tmp_path / "one", name)


def test_the_log_of_shared_negatives_holds_the_same(recipe: Recipe, cheaper: Path) -> None:
    steps, epochs = of("step", cheaper), of("epoch", cheaper)
    rate, total = recipe.training.learning_rate, EPOCHS * STEPS
    expected = [min(1, (done + 1) / 3) * rate * (1 + math.cos(math.pi * done / total)) / 2 for done in range(total)]
    assert [step["learning_rate"] for step in steps] == pytest.approx(expected)
    for record in (*steps, *epochs):
        total_loss = sum(record[name] for name in ("superfeature", "decorrelation", "pooled"))
        assert record["loss"] == pytest.approx(total_loss, abs=1e-5)
        assert record["pooled"] > 0 < record["superfeature"]
        assert 0 < record["correlation"] < 1
    for epoch in epochs:
        assert epoch["tuples"] == 8
        assert epoch["matches_per_id"]["mean"] == pytest.approx(epoch["matches"], abs=0.01)  # 8 IDs, 8 pairs


def test_pairs_are_of_one_thing_or_of_one_photo_and_no_thing_is_twice_in_a_step(
    recipe: Recipe, things: Things, tmp_path: Path
) -> None:
    stop_after(overlay(unvalidated(recipe), CHEAPER), things, tmp_path / "run", "step", 1)
    pairs = tuples_of(tmp_path / "run")
    assert pairs.shape == (8, 2)
    assert (things.training.things[pairs[:, 0]] == things.training.things[pairs[:, 1]]).all()
    assert sum(query == positive for query, positive in pairs.tolist()) == round(0.3 * 8)
    shown = things.training.things[pairs[:, 0]].reshape(STEPS, 2).tolist()
    while shown and len(set(shown[-1])) == 1:
        shown.pop()  # one thing may be all that is left in the end
    assert shown
    assert all(len(set(step)) == 2 for step in shown)


def test_the_average_is_stored_and_is_the_network_that_is_kept(cheaper: Path) -> None:
    kept = parameters_of(cheaper)
    checkpoint = safetensors.torch.load_file(cheaper / "checkpoint.safetensors")
    averages = {name.removeprefix("average/"): x for name, x in checkpoint.items() if name.startswith("average/")}
    assert averages.keys() == {name for name in kept if not fixed(name)}
    for name, value in kept.items():
        now = checkpoint[f"network/{name}"]
        assert torch.equal(value, averages.get(name, now)), name
    assert any(not torch.equal(kept[name], checkpoint[f"network/{name}"]) for name in averages)


def test_no_average_is_stored_where_none_is_asked_for(plain: Path) -> None:
    checkpoint = safetensors.torch.load_file(plain / "checkpoint.safetensors")
    assert not any(name.startswith("average/") for name in checkpoint)


def test_frozen_stages_stay_to_the_bit(recipe: Recipe, things: Things, tmp_path: Path) -> None:
    chosen = one_step(recipe, training__frozen_stages=1, network__trunk__stages=2, training__average=0.5)
    changed, same = changed_parameters(chosen, things, tmp_path)
    parts = {".".join(name.split(".")[:2]) for name in changed if name.startswith("trunk.")}
    assert parts == {"trunk.layer2"}
    kept = {".".join(name.split(".")[:2]) for name in same if not fixed(name)}
    assert kept == {"trunk.conv1", "trunk.bn1", "trunk.layer1"}


def test_a_lone_pair_in_the_last_step_is_learned_from(recipe: Recipe, things: Things, tmp_path: Path) -> None:
    chosen = one_step(recipe, training__negatives_from="step", training__queries=3)
    finish(chosen, things, tmp_path / "run")
    first, last = of("step", tmp_path / "run")
    assert first["negative_matches_any_id"] > 0 == last["negative_matches_any_id"]
    assert last["superfeature"] > 0


@pytest.mark.parametrize("losses", [{"superfeature": 0.0}, {}], ids=["decorrelation alone", "both"])
def test_shared_negatives_in_less_memory(
    losses: dict[str, float], recipe: Recipe, things: Things, tmp_path: Path
) -> None:
    chosen = overlay(one_step(recipe, training__negatives_from="step"), {"losses": losses})
    finish(chosen, things, tmp_path / "whole")
    finish(overlay(chosen, {"training.recompute": True}), things, tmp_path / "again")
    assert losses_of(tmp_path / "again") == losses_of(tmp_path / "whole")
    assert losses_of(tmp_path / "whole")["decorrelation"] > 0
    found, expected = parameters_of(tmp_path / "again"), parameters_of(tmp_path / "whole")
    assert all(torch.allclose(value, expected[name], atol=1e-5) for name, value in found.items())


# -- Every setting of the paper's tables


def losses_of(run: Path) -> dict[str, float]:
    (step,) = of("step", run)
    return {name: step[name] for name in ("loss", "superfeature", "decorrelation", "pooled")}


@pytest.mark.parametrize(
    "on",
    [
        *({"superfeature"}, {"pooled"}, {"superfeature", "decorrelation"}, {"pooled", "decorrelation"}),
        *({"superfeature", "pooled"}, {"superfeature", "pooled", "decorrelation"}),
    ],
    ids=lambda names: "+".join(sorted(names)),
)
def test_combinations_of_losses(on: set[str], recipe: Recipe, things: Things, tmp_path: Path) -> None:
    """Table 2: what is switched on contributes, what is off is zero, and the loss is the sum."""
    scale = {"superfeature": 0.02, "decorrelation": 0.1, "pooled": 1.0}
    changes = {f"losses__{name}": weight if name in on else 0.0 for name, weight in scale.items()}
    finish(one_step(recipe, **changes), things, tmp_path / "run")
    found = losses_of(tmp_path / "run")
    assert {name for name in scale if found[name] != 0} == on
    assert found["loss"] == pytest.approx(sum(found[name] for name in scale), abs=1e-5)


@pytest.mark.parametrize("same_id", [True, False])
@pytest.mark.parametrize("reciprocal", [True, False])
@pytest.mark.parametrize("ratio_test", ["lowe", "off"])
def test_combinations_of_constraints(
    ratio_test: str, reciprocal: bool, same_id: bool, recipe: Recipe, things: Things, tmp_path: Path
) -> None:
    """Table 1, extended version."""
    rules = {"losses__ratio_test": ratio_test, "losses__reciprocal": reciprocal, "losses__same_id": same_id}
    finish(one_step(recipe, **rules), things, tmp_path / "run")
    (epoch,) = of("epoch", tmp_path / "run")
    assert math.isfinite(epoch["loss"])
    if ratio_test == "off" and not reciprocal:
        assert epoch["superfeature"] > 0  # every feature has a partner
    if ratio_test == "off" and not reciprocal and same_id:
        assert epoch["matches_per_id"] == {"mean": 2.0, "std": 0.0, "min": 2.0}  # in each of two tuples


@pytest.mark.parametrize(
    "changes",
    [
        *({"network__lit__templates": 4}, {"network__lit__templates": 40}),
        *({"network__lit__rounds": 1}, {"network__lit__rounds": 6}),
        *({"training__negatives": 1}, {"training__negatives": 5}),
        *({"losses__ratio_test": "released"}, {"losses__hinge": "paper"}, {"network__lit__update": "gru"}),
        *({"training__flip": 0.0}, {"training__flip": 1.0}, {"training__recompute": True}),
        {"training__precision": "bf16", "training__recompute": True, "training__parts": "lit"},
    ],
    ids=str,
)
def test_other_settings(changes: dict[str, Any], recipe: Recipe, things: Things, tmp_path: Path) -> None:
    changed = one_step(recipe, **{"training.pool": 18, **changes})
    finish(changed, things, tmp_path / "run")
    assert math.isfinite(losses_of(tmp_path / "run")["loss"])
    assert load_network(tmp_path / "run" / "last").config == changed.network


def test_how_is_trained(recipe: Recipe, things: Things, tmp_path: Path) -> None:
    finish(overlay(recipe, HOW), things, tmp_path / "run", validation=things.validation)
    steps = of("step", tmp_path / "run")
    assert len(steps) == EPOCHS * STEPS
    assert all(step["loss"] == step["pooled"] > 0 == step["superfeature"] for step in steps)
    assert [record["epoch"] for record in of("validation", tmp_path / "run")] == [0, 1, 2]
    assert "matches_per_id" not in of("epoch", tmp_path / "run")[0]
    assert load_network(tmp_path / "run" / "best").config.method == "how"


# -- What is learned and what stays


def changed_parameters(recipe: Recipe, things: Things, folder: Path) -> tuple[set[str], set[str]]:
    """Names of the parameters that training changes, and of those that it does not."""
    finish(overlay(recipe, {"training.epochs": 0}), things, folder / "start")
    finish(recipe, things, folder / "run")
    before, after = parameters_of(folder / "start"), parameters_of(folder / "run")
    assert before.keys() == after.keys()
    same = {name for name in before if torch.equal(before[name], after[name])}
    return before.keys() - same, same


def fixed(name: str) -> bool:
    return name.startswith("whitening.") or name.endswith(("running_mean", "running_var", "num_batches_tracked"))


@pytest.mark.parametrize("method", ["fire", "how"])
def test_statistics_and_whitening_stay_and_all_else_is_learned(
    method: str, recipe: Recipe, things: Things, tmp_path: Path
) -> None:
    chosen = overlay(unvalidated(recipe), HOW) if method == "how" else unvalidated(recipe)
    changed, same = changed_parameters(chosen, things, tmp_path)
    assert all(fixed(name) for name in same), same
    assert not any(fixed(name) for name in changed)
    assert any(name.startswith("trunk.") for name in changed)


def test_frozen_templates(recipe: Recipe, things: Things, tmp_path: Path) -> None:
    changed, same = changed_parameters(one_step(recipe, network__lit__frozen_templates=True), things, tmp_path)
    assert "lit.templates" in same
    assert "lit.key.weight" in changed


def test_lit_alone(recipe: Recipe, things: Things, tmp_path: Path) -> None:
    changed, same = changed_parameters(one_step(recipe, training__parts="lit"), things, tmp_path)
    assert {name.split(".")[0] for name in same if not fixed(name)} == {"trunk"}
    assert {name.split(".")[0] for name in changed} == {"lit"}
    stored = np.memmap(tmp_path / "run" / "maps" / "values.bin", np.float16, "r")
    assert len(stored) == len(things.training.photos) * 64 * (SIDE // 4) * ((SIDE - 8) // 4)


def test_half_precision(recipe: Recipe, things: Things, tmp_path: Path) -> None:
    finish(one_step(recipe), things, tmp_path / "whole")
    finish(one_step(recipe, training__precision="bf16"), things, tmp_path / "half")
    found, expected = losses_of(tmp_path / "half"), losses_of(tmp_path / "whole")
    assert found["loss"] == pytest.approx(expected["loss"], rel=0.2)
    assert found != expected
    assert all(value.dtype != torch.bfloat16 for value in parameters_of(tmp_path / "half").values())


@pytest.mark.parametrize("pooled", [0.0, 1.0])
def test_recomputing_changes_nothing_but_rounding(pooled: float, recipe: Recipe, things: Things, once: Path) -> None:
    network = load_network(once / "last")
    losses = dataclasses.replace(recipe.losses, pooled=pooled)
    inputs = PhotoInputs(things.training.photos, SIDE, network.normalisation)
    images = [inputs(number, Showing(flip=number == 1)) for number in (0, 1, 4, 8)]
    parameters = [value for value in network.module.parameters() if value.requires_grad]
    describe = for_training(network.module)
    at_once, in_turn = (differentiate(describe, images, parameters, losses, again) for again in (False, True))
    assert relative_error(in_turn.measures, at_once.measures) < 1e-5
    largest = max(float(part.abs().max()) for part in at_once.gradient)
    for found, expected in zip(in_turn.gradient, at_once.gradient, strict=True):
        assert float((found - expected).abs().max()) < 1e-4 * largest


def test_training_learns(recipe: Recipe, things: Things, tmp_path: Path) -> None:
    """On a handful of things the losses fall."""
    longer = overlay(unvalidated(recipe), {"training": {"epochs": 5, "pool": 18}})
    finish(longer, things, tmp_path / "run")
    epochs = of("epoch", tmp_path / "run")
    assert epochs[-1]["superfeature"] < 0.8 * epochs[0]["superfeature"]
    assert epochs[-1]["correlation"] < epochs[0]["correlation"]


# -- The log and the networks


def test_the_log_holds_what_is_to_be_watched(recipe: Recipe, once: Path) -> None:
    """METHOD 5: the share of matches that are the positive's, with and without the ID rule; how often IDs match."""
    raw = [json.loads(line) for line in (once / "log.jsonl").read_text().splitlines()]
    assert [record["event"] for record in raw] == (EPOCHS * ["validation", *STEPS * ["step"], "epoch"] + ["validation"])
    for record in raw:
        if record["event"] == "validation":
            assert record.keys() >= {"map", "queries", "images", "words_per_image", "epoch", "step"}
            continue
        for rule in ("", "_any_id"):
            matches, others = record[f"matches{rule}"], record[f"negative_matches{rule}"]
            assert record[f"match_ratio{rule}"] == pytest.approx(matches / (matches + others), abs=1e-5)
        assert record["matches_any_id"] >= record["matches"] > 0
        assert 0 < record["correlation"] < 1
        total = sum(record[name] for name in ("superfeature", "decorrelation", "pooled"))
        assert record["loss"] == pytest.approx(total, abs=1e-5)
    steps = [record for record in raw if record["event"] == "step"]
    epochs = [record for record in raw if record["event"] == "epoch"]
    rate = recipe.training.learning_rate
    assert [step["learning_rate"] for step in steps] == STEPS * [rate] + STEPS * [0.9 * rate]
    assert all(step["seconds"].keys() == {"gradient", "reading", "exchange", "update"} for step in steps)
    for number, epoch in enumerate(epochs):
        own = steps[number * STEPS : (number + 1) * STEPS]
        assert epoch["loss"] == pytest.approx(np.mean([step["loss"] for step in own]), abs=1e-5)
        per_id = epoch["matches_per_id"]
        assert 0 <= per_id["min"] <= per_id["mean"] <= epoch["tuples"] == 8
        assert per_id["mean"] * 8 == pytest.approx(epoch["matches"] * 8, abs=0.05)  # 8 IDs, 8 tuples
        assert epoch["mining_seconds"] > 0


def test_best_and_last_load_and_say_where_they_come_from(recipe: Recipe, once: Path) -> None:
    for name in ("best", "last"):
        network = load_network(once / name)
        assert network.config == recipe.network
        assert network.provenance["ratio_test"] == "off"
        assert network.provenance["hinge"] == "released"
        assert network.provenance["start"] == "a new network"
        assert (once / name / "README.md").read_text()
    assert load_network(once / "last").provenance["training"] == "2 epochs, 8 steps"


def test_events_tell_how_far_the_run_is(recipe: Recipe, things: Things, tmp_path: Path) -> None:
    events = finish(one_step(recipe, validation__every=1), things, tmp_path / "run", validation=things.validation)
    stages = [stage for stage, _ in itertools.groupby(event.stage for event in events)]
    assert stages == ["start", "validating", "validation", "mining", "step", "epoch", "validating", "validation", "end"]
    assert all(1 <= event.done <= event.total for event in events if event.stage in ("validating", "mining", "step"))


# -- Validation


def plain_map(network: Network, recipe: Recipe, things: Things, work: Path) -> float:
    """mAP from loops: words, codes and scores by their definitions, precision by the trapezoid rule."""
    config, test = recipe.validation, things.validation
    shuffled = np.random.default_rng(recipe.training.seed).permutation(len(things.training.photos))
    photos = [things.training.photos[number].path for number in shuffled[: config.codebook_images]]
    single = dataclasses.replace(config.extract, scales=(1.0,))
    samples = [features.vectors for features in extract(network, photos, single, workers=1)]
    words = min(config.codebook.words, sum(map(len, samples)) // 4)
    centroids = train_codebook(samples, config.codebook, words=words, work=work, workers=1).centroids
    vectors = [f.vectors for f in extract(network, [photo.path for photo in test.photos], config.extract, workers=1)]
    images = [oracles.image_words(each, centroids, 1, binary=True) for each in vectors]
    precisions = []
    for number, query in enumerate(test.queries):
        asked = oracles.image_words(vectors[number], centroids, config.search.assignments, binary=True)
        rules = (True, config.search.alpha, config.search.threshold, len(centroids) * [1.0])
        scores = {image: round(oracles.score(asked, found, *rules), 9) for image, found in enumerate(images)}
        ranking = [image for image in oracles.ranking(scores) if image not in query.junk]
        precision, right = 0.0, 0
        for rank, image in enumerate(ranking):
            if image in query.positives:
                precision += ((right / rank if rank else 1.0) + (right + 1) / (rank + 1)) / 2
                right += 1
        precisions.append(precision / len(query.positives))
    return 100 * sum(precisions) / len(precisions)


def test_validation_is_the_map_of_the_real_search(recipe: Recipe, things: Things, once: Path, tmp_path: Path) -> None:
    assert [query.photo for query in things.validation.queries] == list(things.validation.photos)
    found = of("validation", once)
    assert [(record["epoch"], record["queries"], record["images"]) for record in found] == [
        (epoch, 9, 9) for epoch in range(EPOCHS + 1)
    ]
    last = plain_map(load_network(once / "last"), recipe, things, tmp_path / "last")
    assert found[-1]["map"] == pytest.approx(last, abs=0.001)
    best = plain_map(load_network(once / "best"), recipe, things, tmp_path / "best")
    assert max(record["map"] for record in found) == pytest.approx(best, abs=0.001)


def test_the_best_epoch_is_kept(recipe: Recipe, things: Things, once: Path, tmp_path: Path) -> None:
    maps = [record["map"] for record in of("validation", once)]
    best = maps.index(max(maps))
    assert provenance(once, "best")["training"] == f"{best} epochs, {best * STEPS} steps"
    finish(overlay(unvalidated(recipe), {"training.epochs": best}), things, tmp_path / "run")
    assert weights(tmp_path / "run", "last") == weights(once, "best")


def test_without_validation_the_best_is_the_last(plain: Path) -> None:
    assert of("validation", plain) == []
    assert weights(plain, "best") == weights(plain, "last")


def test_every_other_epoch_and_at_the_end(recipe: Recipe, things: Things, tmp_path: Path) -> None:
    rarely = overlay(one_step(recipe), {"training.epochs": 3, "validation.every": 2})
    finish(rarely, things, tmp_path / "run", validation=things.validation)
    assert [record["epoch"] for record in of("validation", tmp_path / "run")] == [0, 2, 3]


def test_validation_changes_nothing_that_is_learned(plain: Path, once: Path) -> None:
    assert weights(plain, "last") == weights(once, "last")


# -- Mining


def tuples_of(run: Path) -> np.ndarray:
    found: np.ndarray = safetensors.torch.load_file(run / "checkpoint.safetensors")["tuples"].numpy()
    return found


def assert_tuples(tuples: np.ndarray, training: TrainingSet, negatives: int) -> None:
    assert tuples.shape[1] == 2 + negatives
    for query, positive, *others in tuples.tolist():
        own = training.things[query]
        assert query != positive
        assert training.things[positive] == own
        shown = [training.things[other] for other in others]
        assert own not in shown
        assert len(set(shown)) == negatives


@pytest.mark.parametrize("epoch", [0, 1])
def test_negatives_are_never_the_query_s_own_thing(epoch: int, recipe: Recipe, things: Things, tmp_path: Path) -> None:
    stop_after(unvalidated(recipe), things, tmp_path / "run", "step", 1 + epoch * STEPS)
    tuples = tuples_of(tmp_path / "run")
    assert len(tuples) == len(set(tuples[:, 0].tolist())) == recipe.training.queries
    assert_tuples(tuples, things.training, recipe.training.negatives)


def test_negatives_are_the_nearest_images_of_other_things(recipe: Recipe, things: Things, tmp_path: Path) -> None:
    """By loops over the pooled vectors of all images."""
    everything = overlay(unvalidated(recipe), {"training.pool": 18})
    finish(overlay(everything, {"training.epochs": 0}), things, tmp_path / "start")
    stop_after(everything, things, tmp_path / "run", "step", 1)
    network = load_network(tmp_path / "start" / "last")
    inputs = PhotoInputs(things.training.photos, SIDE, network.normalisation)
    pooled = []
    with torch.inference_mode():
        for number in range(len(things.training.photos)):
            local = network.module(inputs(number).unsqueeze(0))
            pooled.append(oracles.pool([(local.vectors[0].double().numpy(), local.strengths[0].double().numpy())]))
    for query, _, *negatives in tuples_of(tmp_path / "run").tolist():
        nearness = [float(pooled[query] @ other) for other in pooled]
        nearest, seen = [], {int(things.training.things[query])}
        for image in sorted(range(len(pooled)), key=lambda image: -nearness[image]):
            if int(things.training.things[image]) not in seen:
                seen.add(int(things.training.things[image]))
                nearest.append(image)
        assert negatives == nearest[: len(negatives)]


def test_given_pairs_are_the_queries_and_positives(recipe: Recipe, things: Things, tmp_path: Path) -> None:
    pairs = np.array([[0, 1], [1, 0], [4, 5], [9, 11]])
    paired = things._replace(training=dataclasses.replace(things.training, pairs=pairs))
    stop_after(unvalidated(recipe), paired, tmp_path / "run", "step", 1)
    tuples = tuples_of(tmp_path / "run")
    assert sorted(tuples[:, :2].tolist()) == pairs.tolist()
    assert_tuples(tuples, things.training, recipe.training.negatives)


def test_too_small_a_pool_says_what_to_change(recipe: Recipe, things: Things, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"found only 1 of 2 negatives among 2 images.*raise training\.pool"):
        finish(one_step(recipe, training__pool=2), things, tmp_path / "run")


# -- What a run refuses


def test_a_photo_that_breaks_while_training(recipe: Recipe, things: Things, tmp_path: Path) -> None:
    """One line that names it; repaired, the run goes on and ends as if nothing had been."""
    folder = shutil.copytree(things.folder, tmp_path / "things")
    own = things._replace(training=read_folders(folder / "train"))
    finish(unvalidated(recipe), own, tmp_path / "once")
    stop_after(unvalidated(recipe), own, tmp_path / "run", "step", STEPS)
    whole = {photo.path: photo.path.read_bytes() for photo in own.training.photos}
    for path in whole:
        path.write_bytes(b"no photo")
    with pytest.raises(DatasetError, match=r"thing\d/\d\.png cannot be read .*repair it and resume the run"):
        finish(unvalidated(recipe), own, tmp_path / "run", resume=True)
    for path, data in whole.items():
        path.write_bytes(data)
    finish(unvalidated(recipe), own, tmp_path / "run", resume=True)
    assert_same(tmp_path / "once", tmp_path / "run")


def test_a_loss_that_is_no_number_ends_the_run(recipe: Recipe, things: Things, tmp_path: Path) -> None:
    """One line, and the weights from before; not days of nothing and a network of NaN."""
    wild = overlay(unvalidated(recipe), {"training.learning_rate": 1e6})
    with pytest.raises(SuperfeatError):
        finish(wild, things, tmp_path / "run")
    kept = safetensors.torch.load_file(tmp_path / "run" / "checkpoint.safetensors")
    assert all(bool(value.isfinite().all()) for value in kept.values())


@pytest.mark.parametrize("place", [0.02, 0.5, 0.999])
def test_a_checkpoint_with_one_byte_changed_is_refused(
    place: float, recipe: Recipe, things: Things, once: Path, tmp_path: Path
) -> None:
    run = shutil.copytree(once, tmp_path / "run")
    data = bytearray((run / "checkpoint.safetensors").read_bytes())
    data[int(place * len(data))] ^= 0x10
    (run / "checkpoint.safetensors").write_bytes(data)
    with pytest.raises(StoreError, match="damaged"):
        finish(recipe, things, run, validation=things.validation, resume=True)


def test_a_checkpoint_with_a_changed_header_is_refused(
    recipe: Recipe, things: Things, once: Path, tmp_path: Path
) -> None:
    """Names, shapes, the position: whatever is changed, one line says so."""
    run = shutil.copytree(once, tmp_path / "run")
    data = (run / "checkpoint.safetensors").read_bytes()
    length = int.from_bytes(data[:8], "little")
    for place in np.linspace(0, 8 + length, 25, endpoint=False).astype(int):
        changed = bytearray(data)
        changed[place] ^= 0x01
        (run / "checkpoint.safetensors").write_bytes(changed)
        with pytest.raises(StoreError, match="damaged"):
            finish(recipe, things, run, validation=things.validation, resume=True)


def test_a_checkpoint_that_is_cut_short_is_refused(recipe: Recipe, things: Things, plain: Path, tmp_path: Path) -> None:
    run = shutil.copytree(plain, tmp_path / "run")
    whole = (run / "checkpoint.safetensors").read_bytes()
    before = (run / "log.jsonl").read_bytes()
    for size in (0, 7, 4000, len(whole) - 1):
        (run / "checkpoint.safetensors").write_bytes(whole[:size])
        with pytest.raises(StoreError, match=r"checkpoint\.safetensors is damaged .*remove it to begin again"):
            finish(unvalidated(recipe), things, run, resume=True)
        assert (run / "log.jsonl").read_bytes() == before
    (run / "checkpoint.safetensors").unlink()
    finish(unvalidated(recipe), things, run, resume=True)
    assert_same(plain, run)


def test_the_run_is_this_thread_s_until_it_is_closed(recipe: Recipe, things: Things, tmp_path: Path) -> None:
    events = train(one_step(recipe), things.training, tmp_path / "run", workers=1)
    take(events, "mining")
    refused: list[str] = []

    def other() -> None:
        with pytest.raises(StoreError) as caught:
            finish(one_step(recipe), things, tmp_path / "run", resume=True)
        refused.append(str(caught.value))

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert "is being written by another process" in refused[0]
    assert list(events)[-1].stage == "end"
