"""Training that is stopped, killed, broken: it ends with the same weights, or says in one line why it cannot go on."""

import itertools
import os
import random
import shutil
import signal
import threading
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

from fixtures_recipe import take
from fixtures_train import (
    EPOCHS,
    FORKS,
    STEPS,
    Things,
    assert_same,
    finish,
    kill_at,
    of,
    one_step,
    provenance,
    stop_after,
    unvalidated,
)
from superfeat.config import Recipe
from superfeat.datasets.folders import read_folders
from superfeat.errors import DatasetError, StoreError, SuperfeatError
from superfeat.settings import overlay
from superfeat.training.train import train

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


# -- Killed


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
