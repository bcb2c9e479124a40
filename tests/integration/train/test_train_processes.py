"""Training by several threads and processes: the same weights by however many."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fixtures_train import (
    EPOCHS,
    FORKS,
    RECIPE,
    STEPS,
    Things,
    assert_same,
    finish,
    kill_at,
    log,
    of,
    stop_after,
    unvalidated,
    weights,
)
from superfeat.config import Recipe
from superfeat.recipes import read_recipe
from superfeat.training.ranks import Ranks
from superfeat.training.run import RunFolder
from superfeat.training.trainer import Trainer

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
    assert "start them all again, to resume the run (--resume)" in lines[0]
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
