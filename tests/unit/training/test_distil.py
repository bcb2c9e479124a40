"""Distillation: a student comes nearer to its teacher, with the same weights however often it is stopped."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from PIL import Image

from fixtures_recipe import noise
from superfeat.config import DistilConfig, LitConfig, NetworkConfig, Recipe, TrunkConfig
from superfeat.errors import ConfigError, DatasetError, StoreError, WeightsError
from superfeat.images import Photo
from superfeat.index.codebook import Codebook
from superfeat.nets.distillation import Insight
from superfeat.nets.fire import Fire
from superfeat.recipes import read_recipe
from superfeat.settings import overlay
from superfeat.training.distil import distil
from superfeat.training.distiller import learning_rate
from superfeat.training.lessons import pack, unpack
from superfeat.training.run import Event
from superfeat.weights import Network, build_module, load_network, save_network

PHOTOS, HELD = 14, 2
CONFIG = NetworkConfig("fire", TrunkConfig("resnet10", 2), LitConfig(templates=6, rounds=2, dim=16), 8, points=2.0)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> list[Photo]:
    folder = tmp_path_factory.mktemp("photos")
    found = []
    for number in range(PHOTOS):
        small = Image.fromarray(noise(12, 10, number))
        path = folder / f"{number}.png"
        small.resize((96, 80), Image.Resampling.BICUBIC).save(path)
        found.append(Photo(path, path.name))
    return found


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network of FIRe with a codebook of few words."""
    torch.manual_seed(0)
    module = build_module(CONFIG)
    assert isinstance(module, Fire)
    assert module.points is not None
    with torch.no_grad():
        for whitening, count in ((module.whitening, 16), (module.points.whitening, 128)):
            assert whitening is not None
            whitening.weight.copy_(torch.randn(8, count) / count**0.5)
    folder = tmp_path_factory.mktemp("teacher") / "network"
    save_network(Network(module, CONFIG), folder)
    words = np.random.default_rng(0).standard_normal((5, 8)).astype(np.float32)
    Codebook(words).save(folder / "codebook")
    return folder


@pytest.fixture(scope="module")
def recipe(teacher: Path) -> Recipe:
    return overlay(
        Recipe(),
        {
            "network.trunk": {"arch": "efficientnet-lite0", "stages": 2, "neck": 12},
            "distillation": {
                "teacher": str(teacher),
                "least_side": 64,
                "max_side": 96,
                "epochs": 3,
                "batch": 4,
                "warm_up": 2,
                "learning_rate": 3e-3,
                "average": 0.5,
                "held_out": HELD,
                "lessons": 2,
            },
        },
    )


def finish(recipe: Recipe, photos: list[Photo], run: Path, **options: Any) -> list[Event]:
    return list(distil(recipe, photos, run, workers=options.pop("workers", 1), **options))


def parameters(run: Path) -> dict[str, torch.Tensor]:
    return safetensors.torch.load_file(run / "last" / "model.safetensors")


@pytest.fixture(scope="module")
def once(recipe: Recipe, photos: list[Photo], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Event]]:
    run = tmp_path_factory.mktemp("once") / "run"
    return run, finish(recipe, photos, run)


def test_it_learns(once: tuple[Path, list[Event]], recipe: Recipe, teacher: Path) -> None:
    run, events = once
    assert [event.stage for event in events if event.stage not in ("step", "lessons")] == [
        "start",
        *["epoch"] * 4,
        "end",
    ]
    losses = [event.facts["loss"] for event in events if event.stage == "epoch" and event.done]
    assert losses[-1] < losses[0]
    first, *_, last = (event.facts for event in events if event.stage == "epoch")
    assert first["held_out"] == HELD
    assert {"cosine", "equal_words", "point_cosine", "equal_point_words"} <= set(last)
    student, known = load_network(run / "last"), load_network(teacher)
    assert student.config == dataclasses.replace(known.config, trunk=recipe.network.trunk)
    assert student.provenance["teacher"] == known.digest
    assert student.provenance["distillation"] == "3 epochs of 24 lessons, 18 steps"
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    assert [line["event"] for line in lines].count("step") == 18


def test_the_start_is_better_than_chance(once: tuple[Path, list[Event]]) -> None:
    """What reads the map is solved for: before any step the student explains part of what the teacher sees."""
    first = next(event.facts for event in once[1] if event.stage == "step")
    assert first["places"] < 2  # of two variances, 1 each where nothing is explained


def test_stopped_and_resumed_it_ends_with_the_same_bits(
    once: tuple[Path, list[Event]], recipe: Recipe, photos: list[Photo], tmp_path: Path
) -> None:
    asked = iter([False] * 7 + [True])
    events = finish(recipe, photos, tmp_path / "run", stop=lambda: next(asked))
    assert events[-1].stage == "stopped"
    with pytest.raises(StoreError, match="holds a run already"):
        finish(recipe, photos, tmp_path / "run")
    finish(recipe, photos, tmp_path / "run", resume=True, workers=2)
    ours, theirs = parameters(tmp_path / "run"), parameters(once[0])
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    without_seconds = [
        [{**json.loads(line), "seconds": 0} for line in (run / "log.jsonl").read_text().splitlines()]
        for run in (tmp_path / "run", once[0])
    ]
    assert without_seconds[0] == without_seconds[1]


def test_killed_between_checkpoints(
    once: tuple[Path, list[Event]], recipe: Recipe, photos: list[Photo], tmp_path: Path
) -> None:
    for number, event in enumerate(distil(recipe, photos, tmp_path / "run", workers=1, checkpoint_seconds=0)):
        if event.stage == "step" and number > 30:
            break
    finish(recipe, photos, tmp_path / "run", resume=True)
    ours, theirs = parameters(tmp_path / "run"), parameters(once[0])
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_a_student_goes_on_learning(
    once: tuple[Path, list[Event]], recipe: Recipe, photos: list[Photo], tmp_path: Path
) -> None:
    more = overlay(recipe, {"weights": str(once[0] / "last"), "distillation.epochs": 1})
    events = finish(more, photos, tmp_path / "run")
    stages = [event.stage for event in events]
    assert "start" not in stages, "nothing is solved for again"
    before = [event.facts for event in once[1] if event.stage == "epoch"][-1]
    assert next(event.facts for event in events if event.stage == "epoch")["cosine"] == before["cosine"]


def test_settings_that_do_not_fit(recipe: Recipe, photos: list[Photo], tmp_path: Path, teacher: Path) -> None:
    with pytest.raises(ConfigError, match=r"has no \[distillation\]; begin with the recipe 'distil'"):
        finish(Recipe(), photos, tmp_path / "run")
    with pytest.raises(DatasetError, match="5 photos are too few where 2 are held out and 4 make a step"):
        finish(recipe, photos[:5], tmp_path / "run")
    with pytest.raises(ConfigError, match="student's map has 16 pixels, of the teacher's 8"):
        finish(overlay(recipe, {"network.trunk.stages": 3}), photos, tmp_path / "a")
    with pytest.raises(ConfigError, match=r"set network\.trunk\.arch and network\.trunk\.neck"):
        finish(dataclasses.replace(recipe, network=CONFIG), photos, tmp_path / "b")
    how = NetworkConfig("how", TrunkConfig("resnet10", 1), None, 8)
    save_network(Network(build_module(how), how), tmp_path / "how")
    with pytest.raises(WeightsError, match="cannot be a teacher: give a whitened network of FIRe"):
        finish(overlay(recipe, {"distillation.teacher": str(tmp_path / "how")}), photos, tmp_path / "c")
    with pytest.raises(WeightsError, match=r"with 2 stages, the weights are resnet10 with 1"):
        finish(overlay(recipe, {"weights": str(tmp_path / "how")}), photos, tmp_path / "d")
    for name, value in (("epochs", 0), ("max_side", 10), ("average", 1.0), ("points", -1.0), ("learning_rate", 0.0)):
        with pytest.raises(ConfigError, match=rf"distillation\.{name}"):
            overlay(recipe, {f"distillation.{name}": value})
    with pytest.raises(ConfigError, match=r"trunk\.neck"):
        TrunkConfig("resnet50", neck=3)


def test_a_lesson_is_what_was_packed() -> None:
    network = Network(build_module(CONFIG), CONFIG)
    sizes = ((1, 15, 16), (1, 15, 16), (1, 6, 8), (1, 6), (1, 15, 8), (1, 15))
    seen = Insight(*(torch.randn(size).half().float() for size in sizes))
    x = torch.randn(1, 4, 3, 5).half().float()
    lesson = unpack(pack(x, seen).flatten(), network)
    assert torch.equal(lesson.x, x)
    for ours, theirs in zip(lesson.seen, seen, strict=True):
        assert ours is not None
        assert theirs is not None
        assert torch.equal(ours, theirs)


def test_the_recipe_of_that_name() -> None:
    recipe = read_recipe("distil", ["distillation.epochs=2"])
    assert recipe.weights == "imagenet-efficientnet-lite0"
    assert recipe.network.trunk == TrunkConfig("efficientnet-lite0", 3, neck=256)
    assert recipe.distillation is not None
    assert recipe.distillation.epochs == 2
    assert read_recipe("fire-folder").distillation is None


def test_the_learning_rate_rises_and_falls() -> None:
    config = DistilConfig(learning_rate=1.0, warm_up=4)
    rates = [learning_rate(config, done, 40) for done in range(40)]
    assert rates[0] == 0.25
    assert max(rates) == rates[3]
    assert rates[20] == pytest.approx(0.5)
    assert rates[-1] < 0.01
