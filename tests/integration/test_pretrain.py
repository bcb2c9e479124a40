"""Pretraining by classification: the same weights however often it is stopped, alone and as the start of training."""

import json
import multiprocessing
import random
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from fixtures_recipe import noise, take
from superfeat.config import Recipe
from superfeat.datasets.folders import read_folders
from superfeat.datasets.training_set import TrainingSet
from superfeat.errors import DatasetError, StoreError
from superfeat.settings import overlay
from superfeat.training.pretrain import pretrain, split_images
from superfeat.training.run import Event
from superfeat.training.start import build_start
from superfeat.training.train import train
from superfeat.weights import load_network

CLASSES, VIEWS = 6, 3
EPOCHS, STEPS = 3, 3  # steps of an epoch: of 3 images a class one is held out, 12 are left
RECIPE = overlay(
    Recipe(),
    {
        "network": {
            "whitened_dim": 6,
            "trunk": {"arch": "resnet10", "stages": 1},
            "lit": {"templates": 8, "rounds": 2, "dim": 16},
        },
        "pretraining": {
            "epochs": EPOCHS,
            "batch": 4,
            "optimiser": "adam",
            "learning_rate": 1e-3,
            "step_epochs": 2,
            "hidden": 8,
            "dropout": 0.3,
            "side": 32,
            "smallest_crop": 0.6,
            "hold_out": 0.34,
        },
        "training": {
            "epochs": 1,
            "queries": 6,
            "tuples_per_step": 2,
            "negatives": 2,
            "pool": 12,
            "learning_rate": 1e-3,
            "max_side": 40,
            "whitening_images": 12,
        },
        "losses": {"ratio_test": "off"},
        "validation": {"every": 0},
    },
)
FIRST = overlay(RECIPE, {"pretraining.first": True})
LIT_ALONE = overlay(RECIPE, {"pretraining": {"parts": "lit", "crops": 2}})


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> TrainingSet:
    """Noise, and under it one pattern for each class."""
    folder = tmp_path_factory.mktemp("photos")
    for number in range(CLASSES):
        (folder / f"class{number}").mkdir()
        for view in range(VIEWS):
            mixed = 0.6 * noise(40, 36, number) + 0.4 * noise(40, 36, 100 + 10 * number + view)
            Image.fromarray(mixed.astype(np.uint8)).save(folder / f"class{number}" / f"{view}.png")
    return read_folders(folder)


@pytest.fixture(scope="module")
def once(photos: TrainingSet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing disturbed."""
    run = tmp_path_factory.mktemp("once") / "run"
    finish(RECIPE, photos, run)
    return run


@pytest.fixture(scope="module")
def trained(photos: TrainingSet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training that began with pretraining."""
    run = tmp_path_factory.mktemp("trained") / "run"
    assert list(train(FIRST, photos, run, workers=1))[-1].stage == "end"
    return run


def finish(recipe: Recipe, photos: TrainingSet, run: Path, **options: Any) -> list[Event]:
    events = list(pretrain(recipe, photos, run, **{"workers": 1, **options}))
    assert events[-1].stage == "end"
    return events


def stop_after(recipe: Recipe, photos: TrainingSet, run: Path, step: int, **options: Any) -> None:
    stages: list[str] = []
    for event in pretrain(recipe, photos, run, workers=1, stop=lambda: stages.count("step") >= step, **options):
        stages.append(event.stage)
    assert stages[-1] == "stopped"


def weights(run: Path, name: str = "last") -> bytes:
    return (run / name / "model.safetensors").read_bytes()


def trunk(run: Path, name: str = "last") -> dict[str, torch.Tensor]:
    parameters = safetensors.torch.load_file(run / name / "model.safetensors")
    return {name: value for name, value in parameters.items() if name.startswith("trunk.")}


def log(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]


def of(event: str, run: Path) -> list[dict[str, Any]]:
    return [record for record in log(run) if record["event"] == event]


def assert_same(expected: Path, found: Path) -> None:
    """No times are in this log."""
    assert [record["step"] for record in of("step", found)] == list(range(1, EPOCHS * STEPS + 1))
    assert log(found) == log(expected)
    for name in ("last", "best"):
        assert weights(found, name) == weights(expected, name), name
        assert load_network(found / name).provenance == load_network(expected / name).provenance


# -- Stopped and gone on with


@pytest.mark.parametrize("step", range(1, EPOCHS * STEPS + 1))
def test_stopped_after_any_step(step: int, photos: TrainingSet, once: Path, tmp_path: Path) -> None:
    """In the middle of epochs and at their ends."""
    stop_after(RECIPE, photos, tmp_path / "run", step)
    assert len(of("step", tmp_path / "run")) == step
    finish(RECIPE, photos, tmp_path / "run", resume=True)
    assert_same(once, tmp_path / "run")


def test_stopped_after_every_step_of_one_run(photos: TrainingSet, once: Path, tmp_path: Path) -> None:
    for done in range(EPOCHS * STEPS):
        stop_after(RECIPE, photos, tmp_path / "run", 1, resume=done > 0)
    finish(RECIPE, photos, tmp_path / "run", resume=True)
    assert_same(once, tmp_path / "run")


@pytest.mark.parametrize(
    ("stage", "number", "seconds"), [("step", 1, 300.0), ("step", 5, 0.0), ("step", 8, 300.0), ("epoch", 2, 300.0)]
)
def test_a_generator_that_is_not_run_to_its_end(
    stage: str, number: int, seconds: float, photos: TrainingSet, once: Path, tmp_path: Path
) -> None:
    """With a checkpoint after each step, and with those of the epochs alone."""
    events = pretrain(RECIPE, photos, tmp_path / "run", workers=2, checkpoint_seconds=seconds)
    take(events, stage, number)
    del events
    finish(RECIPE, photos, tmp_path / "run", resume=True)
    assert_same(once, tmp_path / "run")


def test_momentum_survives_a_stop(photos: TrainingSet, tmp_path: Path) -> None:
    sgd = overlay(RECIPE, {"pretraining": {"optimiser": "sgd", "learning_rate": 0.01}})
    finish(sgd, photos, tmp_path / "once")
    stop_after(sgd, photos, tmp_path / "run", 4)
    finish(sgd, photos, tmp_path / "run", resume=True)
    assert_same(tmp_path / "once", tmp_path / "run")


FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["superfeat.training.train", "superfeat.cli", "superfeat.training.validation"])


def pretrain_in_child(recipe: Recipe, photos: TrainingSet, run: Path) -> None:
    torch.set_num_threads(1)
    for _ in pretrain(recipe, photos, run, resume=True, workers=2, checkpoint_seconds=0):
        pass


@pytest.mark.parametrize(
    ("kills", "seed"),
    [
        pytest.param(3, 0, marks=pytest.mark.slow),
        *(pytest.param(30, seed, marks=pytest.mark.long) for seed in range(4)),
    ],
)
@pytest.mark.parametrize("recipe", [RECIPE, LIT_ALONE], ids=["all", "lit"])
def test_killed_again_and_again(recipe: Recipe, kills: int, seed: int, photos: TrainingSet, tmp_path: Path) -> None:
    finish(recipe, photos, tmp_path / "once")
    moments = random.Random(seed)
    for _ in range(kills):
        process = FORKS.Process(target=pretrain_in_child, args=(recipe, photos, tmp_path / "run"))
        process.start()
        process.join(moments.uniform(0, 1.5))
        process.kill()
        process.join()
        assert process.exitcode in (0, -signal.SIGKILL)
    finish(recipe, photos, tmp_path / "run", resume=True)
    assert_same(tmp_path / "once", tmp_path / "run")


def test_any_number_of_workers(photos: TrainingSet, once: Path, tmp_path: Path) -> None:
    finish(RECIPE, photos, tmp_path / "run", workers=3)
    assert_same(once, tmp_path / "run")


@pytest.mark.parametrize("recipe", [RECIPE, LIT_ALONE], ids=["all", "lit"])
def test_any_number_of_torch_s_own_threads(recipe: Recipe, photos: TrainingSet, tmp_path: Path) -> None:
    """As in training, where it is the same on machines with few and many cores."""
    finish(recipe, photos, tmp_path / "once")
    torch.set_num_threads(3)
    try:
        finish(recipe, photos, tmp_path / "run")
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(1)
    assert_same(tmp_path / "once", tmp_path / "run")


def test_a_finished_run_is_gone_on_with_without_change(photos: TrainingSet, once: Path, tmp_path: Path) -> None:
    run = shutil.copytree(once, tmp_path / "run")
    assert [event.stage for event in finish(RECIPE, photos, run, resume=True)] == ["end"]
    assert_same(once, run)


# -- LIT alone, on maps that were computed once


def new_trunk() -> dict[str, torch.Tensor]:
    """The trunk that a run begins with."""
    parts: dict[str, torch.Tensor] = build_start(RECIPE, None).module.state_dict()
    return {name: value for name, value in parts.items() if name.startswith("trunk.")}


def test_lit_alone_leaves_the_trunk(photos: TrainingSet, tmp_path: Path) -> None:
    before = new_trunk()
    finish(LIT_ALONE, photos, tmp_path / "run")
    after = trunk(tmp_path / "run")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert [record["step"] for record in of("step", tmp_path / "run")] == list(range(1, EPOCHS * STEPS + 1))


def test_all_parts_change_the_trunk(once: Path) -> None:
    before, after = new_trunk(), trunk(once)
    assert all(not torch.equal(before[name], after[name]) for name in before)


def test_lit_alone_reads_its_maps_and_no_photos(photos: TrainingSet, tmp_path: Path) -> None:
    """Two crops of each of 12 images and the middle of 6; after them the photos may go."""
    finish(LIT_ALONE, photos, tmp_path / "once")
    manifest = json.loads((tmp_path / "once" / "maps" / "manifest.json").read_text())
    assert manifest["sizes"] == 30 * [[64, 8, 8]]
    folder = photos.photos[0].path.parents[1]
    copied = read_folders(shutil.copytree(folder, tmp_path / "photos"))
    events = pretrain(LIT_ALONE, copied, tmp_path / "run", workers=1)
    take(events, "maps", 30)
    for photo in copied.photos:
        photo.path.unlink()
    assert list(events)[-1].stage == "end"
    assert_same(tmp_path / "once", tmp_path / "run")


@pytest.mark.parametrize(("stage", "number"), [("maps", 7), ("step", 5), ("epoch", 1)])
def test_lit_alone_is_stopped_and_gone_on_with(stage: str, number: int, photos: TrainingSet, tmp_path: Path) -> None:
    finish(LIT_ALONE, photos, tmp_path / "once")
    events = pretrain(LIT_ALONE, photos, tmp_path / "run", workers=2, checkpoint_seconds=0)
    take(events, stage, number)
    del events
    again = finish(LIT_ALONE, photos, tmp_path / "run", resume=True)
    assert ("maps" in {event.stage for event in again}) == (stage == "maps")
    assert_same(tmp_path / "once", tmp_path / "run")


# -- What is learned


@pytest.mark.parametrize("parts", ["all", "lit"])
def test_accuracy_rises_on_classes_that_can_be_told_apart(parts: str, tmp_path: Path) -> None:
    colours = [(200, 60, 60), (60, 200, 60), (60, 60, 200), (200, 200, 60)]
    for number, colour in enumerate(colours):
        (tmp_path / "photos" / f"class{number}").mkdir(parents=True)
        for view in range(6):
            mixed = 0.7 * np.asarray(colour) + 0.3 * noise(36, 36, 10 * number + view)
            Image.fromarray(mixed.astype(np.uint8)).save(tmp_path / "photos" / f"class{number}" / f"{view}.png")
    changes = {"epochs": 8, "step_epochs": 8, "batch": 8, "learning_rate": 5e-3, "dropout": 0.0, "hidden": 16}
    recipe = overlay(RECIPE, {"pretraining": {**changes, "parts": parts, "crops": 2}})
    finish(recipe, read_folders(tmp_path / "photos"), tmp_path / "run")
    epochs = of("epoch", tmp_path / "run")
    assert len(epochs) == 8
    assert max(epoch["top1"] for epoch in epochs) == 100
    assert all(epoch["top5"] == 100 for epoch in epochs)  # of 4 classes
    losses = [record["loss"] for record in of("step", tmp_path / "run")]
    assert np.mean(losses[-2:]) < 0.6 * np.mean(losses[:2])


def test_the_log_and_the_networks(once: Path) -> None:
    steps, epochs = of("step", once), of("epoch", once)
    assert all(step.keys() == {"event", "step", "epoch", "loss", "accuracy", "correlation"} for step in steps)
    assert [epoch["held_out"] for epoch in epochs] == EPOCHS * [CLASSES]
    assert all(0 <= epoch["top1"] <= epoch["top5"] <= 100 for epoch in epochs)
    right = [epoch["top1"] for epoch in epochs]
    best = max(range(EPOCHS), key=lambda epoch: (right[epoch], epoch)) + 1
    for name, epoch in (("best", best), ("last", EPOCHS)):
        network = load_network(once / name)
        assert network.config.whitened_dim is None
        assert network.config.lit == RECIPE.network.lit
        assert network.provenance["pretraining"] == f"{epoch} epochs"


def test_batch_norm_statistics_are_learned(once: Path) -> None:
    assert int(trunk(once)["trunk.bn1.num_batches_tracked"]) == EPOCHS * STEPS


@given(sizes=st.lists(st.integers(1, 12), min_size=1, max_size=8), share=st.floats(0, 0.999), seed=st.integers(0, 1000))
def test_no_class_is_held_out_whole(sizes: list[int], share: float, seed: int) -> None:
    classes = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    split = split_images(classes, share, seed)
    assert sorted([*split.train.tolist(), *split.test.tolist()]) == list(range(len(classes)))
    for number, size in enumerate(sizes):
        held = int((classes[split.test] == number).sum())
        assert held == min(round(share * size), size - 1)
    again = split_images(classes, share, seed)
    assert np.array_equal(split.test, again.test)


def test_nothing_is_held_out(photos: TrainingSet, tmp_path: Path) -> None:
    finish(overlay(RECIPE, {"pretraining": {"hold_out": 0.0, "epochs": 1}}), photos, tmp_path / "run")
    assert [epoch["held_out"] for epoch in of("epoch", tmp_path / "run")] == [0]
    assert weights(tmp_path / "run", "best") == weights(tmp_path / "run", "last")


# -- Training after it


def test_training_begins_with_what_was_pretrained(photos: TrainingSet, once: Path, tmp_path: Path) -> None:
    recipe = overlay(RECIPE, {"weights": str(once / "best"), "training.epochs": 0})
    assert list(train(recipe, photos, tmp_path / "run", workers=1))[-1].stage == "end"
    before = safetensors.torch.load_file(once / "best" / "model.safetensors")
    after = safetensors.torch.load_file(tmp_path / "run" / "last" / "model.safetensors")
    assert after.keys() - before.keys() == {"whitening.weight", "whitening.bias"}
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_pretraining_first(photos: TrainingSet, once: Path, trained: Path, tmp_path: Path) -> None:
    """The same as the two one after the other."""
    assert_same(once, trained / "pretraining")
    recipe = overlay(RECIPE, {"weights": str(once / "best")})
    assert list(train(recipe, photos, tmp_path / "run", workers=1))[-1].stage == "end"
    assert weights(tmp_path / "run") == weights(trained)


def test_pretraining_first_is_told(photos: TrainingSet, tmp_path: Path) -> None:
    stages = [event.stage for event in train(FIRST, photos, tmp_path / "run", workers=1)]
    assert stages.count("pretraining") >= EPOCHS * STEPS
    assert stages.index("mining") > max(place for place, stage in enumerate(stages) if stage == "pretraining")
    assert stages[-1] == "end"
    assert len(of("step", tmp_path / "run")) == 3


def test_a_network_says_that_it_was_pretrained(trained: Path) -> None:
    said = load_network(trained / "last").provenance
    assert said["pretraining"].endswith("epochs")
    assert said["start"] == "a new network"


@pytest.mark.parametrize("number", [1, 5, EPOCHS * STEPS])
def test_stopped_while_pretraining_first(number: int, photos: TrainingSet, trained: Path, tmp_path: Path) -> None:
    events: list[Event] = []
    for event in train(FIRST, photos, tmp_path / "run", workers=1, stop=lambda: losses_in(events) >= number):
        events.append(event)
    assert events[-1].stage == "stopped"
    assert not (tmp_path / "run" / "checkpoint.safetensors").exists()
    assert list(train(FIRST, photos, tmp_path / "run", workers=1, resume=True))[-1].stage == "end"
    assert_trained(trained, tmp_path / "run")


@pytest.mark.parametrize(("stage", "number"), [("pretraining", 4), ("pretraining", 13), ("mining", 1), ("step", 2)])
def test_left_on_either_side_of_the_border(
    stage: str, number: int, photos: TrainingSet, trained: Path, tmp_path: Path
) -> None:
    events = train(FIRST, photos, tmp_path / "run", workers=1)
    take(events, stage, number)
    del events
    again = list(train(FIRST, photos, tmp_path / "run", workers=1, resume=True))
    assert again[-1].stage == "end"
    assert ("pretraining" in {event.stage for event in again}) == (stage == "pretraining")
    assert_trained(trained, tmp_path / "run")


def losses_in(events: list[Event]) -> int:
    """How many steps of pretraining there are."""
    return sum(event.stage == "pretraining" and "loss" in event.facts for event in events)


def assert_trained(expected: Path, found: Path) -> None:
    assert_same(expected / "pretraining", found / "pretraining")
    for name in ("last", "best"):
        assert weights(found, name) == weights(expected, name)
    assert [record["step"] for record in of("step", found)] == [1, 2, 3]


# -- What is refused


def test_one_class_is_refused(photos: TrainingSet, tmp_path: Path) -> None:
    alone = photos.subset([0])
    with pytest.raises(DatasetError, match="two classes or more"):
        finish(RECIPE, alone, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_other_photos_are_refused(photos: TrainingSet, once: Path, tmp_path: Path) -> None:
    """As many of as many classes, but others."""
    run = shutil.copytree(once, tmp_path / "run")
    folder = shutil.copytree(photos.photos[0].path.parents[1], tmp_path / "photos")
    for path in sorted(folder.rglob("*.png")):
        path.rename(path.with_name(f"other{path.name}"))
    with pytest.raises(StoreError, match="other settings"):
        finish(RECIPE, read_folders(folder), run, resume=True)


def test_other_classes_of_the_same_photos_are_refused(photos: TrainingSet, once: Path, tmp_path: Path) -> None:
    run = shutil.copytree(once, tmp_path / "run")
    swapped = TrainingSet(photos.photos, photos.things[::-1].copy(), None)
    with pytest.raises(StoreError, match="other settings"):
        finish(RECIPE, swapped, run, resume=True)


def test_a_damaged_checkpoint_is_refused(photos: TrainingSet, once: Path, tmp_path: Path) -> None:
    run = shutil.copytree(once, tmp_path / "run")
    whole = (run / "checkpoint.safetensors").read_bytes()
    for size in (0, 100, 5000, len(whole) - 1):
        (run / "checkpoint.safetensors").write_bytes(whole[:size])
        with pytest.raises(StoreError, match=r"is damaged .*remove it to begin again"):
            finish(RECIPE, photos, run, resume=True)
    (run / "checkpoint.safetensors").unlink()
    finish(RECIPE, photos, run, resume=True)
    assert_same(once, run)


def test_a_photo_that_breaks(photos: TrainingSet, once: Path, tmp_path: Path) -> None:
    """One line that names it; repaired, the run goes on."""
    copied = read_folders(shutil.copytree(photos.photos[0].path.parents[1], tmp_path / "photos"))
    stop_after(RECIPE, copied, tmp_path / "run", 4)
    for photo in copied.photos:
        photo.path.write_bytes(b"no photo")
    with pytest.raises(DatasetError, match=r"class\d/\d\.png cannot be read"):
        finish(RECIPE, copied, tmp_path / "run", resume=True)
    for broken, whole in zip(copied.photos, photos.photos, strict=True):
        shutil.copy(whole.path, broken.path)
    finish(RECIPE, copied, tmp_path / "run", resume=True)
    assert_same(once, tmp_path / "run")
