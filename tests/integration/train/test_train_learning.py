"""What training learns and logs: settings of the paper's tables, cheaper tuples, validation, mining."""

import dataclasses
import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

import oracles
from fixtures_recipe import recipe_network, relative_error
from fixtures_train import (
    EPOCHS,
    SIDE,
    STEPS,
    Things,
    assert_same,
    finish,
    of,
    one_step,
    parameters_of,
    provenance,
    stop_after,
    unvalidated,
    weights,
)
from superfeat.config import Recipe, TrunkConfig
from superfeat.datasets.training_set import TrainingSet
from superfeat.errors import DatasetError
from superfeat.extraction.extract import extract
from superfeat.index.codebook import train_codebook
from superfeat.nets import training as nets_training
from superfeat.nets.training import for_training, freeze_stages, stage_maps
from superfeat.nets.trunk import ResNet
from superfeat.settings import overlay
from superfeat.training.inputs import PhotoInputs, Showing
from superfeat.training.objective import differentiate
from superfeat.weights import Network, load_network

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


@pytest.fixture(scope="module")
def cheaper(recipe: Recipe, things: Things, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pairs that are each other's negatives, some of them made of one photo, and weights that are averaged."""
    run = tmp_path_factory.mktemp("cheaper") / "run"
    finish(overlay(unvalidated(recipe), CHEAPER), things, run)
    return run


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


def test_stored_maps_of_frozen_stages_change_nothing_but_rounding(
    recipe: Recipe, things: Things, tmp_path: Path
) -> None:
    settings = {"training__frozen_stages": 1, "network__trunk__stages": 2, "training__flip": 0.0}
    changed, _ = changed_parameters(one_step(recipe, **settings, training__stored_maps=True), things, tmp_path)
    assert {".".join(name.split(".")[:2]) for name in changed if name.startswith("trunk.")} == {"trunk.layer2"}
    finish(one_step(recipe, **settings), things, tmp_path / "again")
    found, expected = losses_of(tmp_path / "run"), losses_of(tmp_path / "again")
    assert found["loss"] == pytest.approx(expected["loss"], rel=1e-2)
    stored = np.memmap(tmp_path / "run" / "maps" / "values.bin", np.float16, "r")
    assert len(stored) == len(things.training.photos) * 64 * (SIDE // 4) * ((SIDE - 8) // 4)


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_gradients_behind_stored_maps_are_those_of_the_photos(
    fused: bool, precision: str, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nets_training, "can_fuse", lambda trunk: fused)
    network = recipe_network(dataclasses.replace(recipe.network, trunk=TrunkConfig("resnet10", stages=2))).module
    trunk = network.trunk
    assert isinstance(trunk, ResNet)
    freeze_stages(trunk, 1)
    images = torch.randn(2, 3, 40, 56, generator=torch.Generator().manual_seed(0))
    maps = stage_maps(trunk, 1)(images)
    parameters = [value for value in network.parameters() if value.requires_grad]
    whole = for_training(network, precision=precision, frozen_stages=1)
    behind = for_training(network, precision=precision, frozen_stages=1, stored=True)
    found, expected = (
        torch.autograd.grad(describe(x).vectors.float().square().sum(), parameters)
        for describe, x in ((behind, maps), (whole, images))
    )
    tolerance = 1e-5 if precision == "float32" or fused else 0.2  # bf16 reaches what is not fused, too
    one, other = (torch.cat([part.flatten() for part in parts]) for parts in (found, expected))
    assert relative_error(one, other) < tolerance


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


def test_queries_that_are_no_database_photos_count_too(recipe: Recipe, things: Things, tmp_path: Path) -> None:
    last = dataclasses.replace(things.validation.queries[-1], positives=(0,), junk=(), hard=())
    apart = dataclasses.replace(things.validation, photos=things.validation.photos[:-1], queries=(last,))
    events = finish(one_step(recipe, validation__every=1), things, tmp_path / "run", validation=apart)
    told = [event for event in events if event.stage == "validating"]
    assert told[-1].done == told[-1].total


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
