"""One tuple's losses, measures and gradient, on tiny networks: against the oracles, and one way against the other."""

import dataclasses
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor

import oracles
import oracles_losses
from fixtures_recipe import noise, recipe_network, relative_error
from superfeat.config import LossConfig, Recipe, TrainingConfig
from superfeat.images import normalise
from superfeat.nets.local import Local
from superfeat.nets.training import for_training
from superfeat.training.inputs import AS_IT_IS, Showing
from superfeat.training.objective import MEASURES, TupleResult, describe_all, differentiate, tuple_loss
from superfeat.training.ranks import Ranks
from superfeat.training.steps import Stepper, draw_showings
from superfeat.training.trainer import Trainer, summary
from superfeat.weights import Network

IDS = 8  # of the tiny network
SEEDS = (0, 30)
SIZES = ((32, 40), (24, 40), (32, 40), (40, 24), (32, 40))  # query, positive, three negatives
ALL_SIZES_DIFFER = ((32, 40), (24, 40), (28, 40), (40, 24), (36, 40))
# Table 2 of the paper, row by row. The weight of the global loss is ours; the others' are the paper's.
TABLE_2 = {
    "global": LossConfig(superfeature=0, decorrelation=0, pooled=1),
    "global + attn": LossConfig(superfeature=0, decorrelation=0.1, pooled=1),
    "global + attn + super": LossConfig(superfeature=0.02, decorrelation=0.1, pooled=1),
    "super": LossConfig(superfeature=0.02, decorrelation=0, pooled=0),
    "attn + super": LossConfig(superfeature=0.02, decorrelation=0.1, pooled=0),
}
POOLED = LossConfig(superfeature=0, decorrelation=0, pooled=1)
ROUNDING = 1e-6  # of the largest
BATCHED = 1e-5  # the same where one way puts images together and the other does not
BOTH = pytest.mark.parametrize("recompute", [False, True], ids=["whole", "recomputed"])


def photos(sizes: Sequence[tuple[int, int]] = SIZES, seed: int = 0) -> list[Tensor]:
    """A query, a positive and negatives, no more alike than noise is: so that some features match and some do not."""
    pixels = [noise(height, width, seed + number) for number, (height, width) in enumerate(sizes)]
    return [torch.from_numpy(normalise(one, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))) for one in pixels]


def trained(network: Network) -> list[Tensor]:
    return [parameter for parameter in network.module.parameters() if parameter.requires_grad]


def gradient_of(network: Network, images: Sequence[Tensor], config: LossConfig, recompute: bool = False) -> TupleResult:
    return differentiate(network.module, images, trained(network), config, recompute)


def measures_of(result: TupleResult) -> dict[str, float]:
    return dict(zip(MEASURES, result.measures[: len(MEASURES)].tolist(), strict=True))


def gap(found: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """The largest difference of two gradients, relative to the largest of all."""
    return relative_error(*(torch.cat([part.flatten() for part in parts]) for parts in (found, expected)))


# --- Many images at once ----------------------------------------------------------------------------------------------


def test_images_of_one_size_go_together(tiny_network: Network) -> None:
    """In their order; all that is computed together is what each alone would give."""
    images, batches = photos(), []

    def describe(x: Tensor) -> Local:
        batches.append(tuple(x.shape))
        local: Local = tiny_network.module(x)
        return local

    with torch.inference_mode():
        together = describe_all(describe, images)
        alone = [tiny_network.module(image.unsqueeze(0)) for image in images]
    assert batches == [(3, 3, 32, 40), (1, 3, 24, 40), (1, 3, 40, 24)]
    for found, expected in zip(together, alone, strict=True):
        assert found.grid == expected.grid
        assert found.maps is not None
        assert relative_error(found.vectors, expected.vectors) <= 1e-5
        assert relative_error(found.strengths, expected.strengths) <= 1e-5
        assert relative_error(found.maps, expected.maps) <= 1e-5


def test_places_are_described_in_order_too(tiny_how: Network) -> None:
    images = photos()
    with torch.inference_mode():
        together = describe_all(tiny_how.module, images)
        alone = [tiny_how.module(image.unsqueeze(0)) for image in images]
    for found, expected in zip(together, alone, strict=True):
        assert found.grid == expected.grid
        assert found.maps is None
        assert relative_error(found.vectors, expected.vectors) <= 1e-5


# --- Measures ---------------------------------------------------------------------------------------------------------


def described(network: Network, images: Sequence[Tensor]) -> list[Local]:
    with torch.inference_mode():
        return describe_all(network.module, images)


def expected_measures(locals_: Sequence[Local], config: LossConfig) -> tuple[dict[str, float], list[int]]:
    """All by plain loops, and the IDs that were matched."""
    query, positive, *negatives = [local.vectors[0].numpy() for local in locals_]
    rules = config.ratio_test, config.ratio
    found = dict.fromkeys(MEASURES, 0.0)
    for other in (positive, *negatives):
        table = oracles_losses.distances(other, query)
        whose = "matches" if other is positive else "negative_matches"
        found[whose] += len(oracles_losses.match(table, *rules, reciprocal=True, same_id=True))
        found[f"{whose}_any_id"] += len(oracles_losses.match(table, *rules, reciprocal=True, same_id=False))
    table = oracles_losses.distances(positive, query)
    pairs = oracles_losses.match(table, *rules, config.reciprocal, config.same_id)
    loss = oracles_losses.superfeature_loss(pairs, query, positive, negatives, config.margin, config.hinge)
    found["superfeature"] = config.superfeature * loss
    correlations = [oracles_losses.decorrelation(local.maps[0].numpy()) for local in locals_ if local.maps is not None]
    found["correlation"] = sum(correlations) / len(locals_)
    found["decorrelation"] = config.decorrelation * sum(correlations)
    found["pooled"] = pooled_by_loops(locals_, config)
    found["loss"] = found["superfeature"] + found["decorrelation"] + found["pooled"]
    return found, sorted({here for here, _ in pairs})


def pooled_by_loops(locals_: Sequence[Local], config: LossConfig) -> float:
    vectors = [oracles.pool([(local.vectors[0].numpy(), local.strengths[0].numpy())]).tolist() for local in locals_]
    return config.pooled * oracles_losses.contrastive(
        vectors[0], vectors[1], vectors[2:], config.pooled_margin, config.hinge
    )


@pytest.mark.parametrize("ratio_test", ["lowe", "released", "off"])
@pytest.mark.parametrize("rules", [(True, True), (True, False), (False, True), (False, False)])
@pytest.mark.parametrize(("seed", "hinge"), [(SEEDS[0], "released"), (SEEDS[1], "paper")])
def test_measures_equal_the_oracle(
    tiny_network: Network, ratio_test: Any, rules: tuple[bool, bool], hinge: Any, seed: int
) -> None:
    """The rules of the loss are one thing, what is counted to watch another: always reciprocal, with and without ID."""
    config = LossConfig(ratio_test=ratio_test, reciprocal=rules[0], same_id=rules[1], hinge=hinge, pooled=0.5)
    locals_ = described(tiny_network, photos(seed=seed))
    loss, measures = tuple_loss(locals_, config)
    expected, matched = expected_measures(locals_, config)
    assert measures.dtype == torch.float64
    found = dict(zip(MEASURES, measures[: len(MEASURES)].tolist(), strict=True))
    assert found == pytest.approx(expected, rel=1e-5, abs=1e-6)
    assert loss.item() == pytest.approx(expected["loss"], rel=1e-5)
    flags = [float(number in matched) for number in range(IDS)]
    assert measures[len(MEASURES) :].tolist() == flags


def test_the_cases_are_not_trivial(tiny_network: Network) -> None:
    """In one the ratio test tells, in the other the rule of IDs; neither matches everything."""
    first, other = (described(tiny_network, photos(seed=seed)) for seed in SEEDS)
    strict, loose = (expected_measures(first, LossConfig(ratio_test=test))[0] for test in ("lowe", "off"))
    assert strict["negative_matches"] < loose["negative_matches"] < loose["negative_matches_any_id"]
    found, matched = expected_measures(other, LossConfig())
    assert len(matched) == found["matches"] < found["matches_any_id"] < IDS


@pytest.mark.parametrize("ratio_test", ["lowe", "released", "off"])
def test_match_ratio_equals_the_oracle(tiny_network: Network, ratio_test: Any) -> None:
    images = photos()
    record: Any = summary(tuple_loss(described(tiny_network, images), LossConfig(ratio_test=ratio_test))[1])
    query, positive, *negatives = [local.vectors[0].numpy() for local in described(tiny_network, images)]
    for name, same_id in (("match_ratio", True), ("match_ratio_any_id", False)):
        expected = oracles_losses.match_ratio(query, positive, negatives, ratio_test, same_id)
        assert record[name] == pytest.approx(expected, abs=1e-6)


def test_no_match_at_all_is_a_ratio_of_zero() -> None:
    record = summary(torch.zeros(len(MEASURES) + IDS, dtype=torch.float64))
    assert record["match_ratio"] == record["match_ratio_any_id"] == 0


# --- Gradients --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", TABLE_2)
@BOTH
def test_the_losses_of_table_2(tiny_network: Network, row: str, recompute: bool) -> None:
    """Each combination is the weighted sum of its losses, and so is its gradient."""
    config, images = TABLE_2[row], photos()
    result = gradient_of(tiny_network, images, config, recompute)
    expected, _ = expected_measures(described(tiny_network, images), config)
    assert measures_of(result)["loss"] == pytest.approx(expected["loss"], rel=1e-5)
    assert all(torch.isfinite(part).all() for part in result.gradient)
    nothing: dict[str, Any] = {"superfeature": 0.0, "decorrelation": 0.0, "pooled": 0.0}
    total = [torch.zeros_like(part) for part in result.gradient]
    for name in nothing:
        if weight := getattr(config, name):
            alone = gradient_of(tiny_network, images, dataclasses.replace(config, **{**nothing, name: 1.0}), recompute)
            total = [sum_ + weight * part for sum_, part in zip(total, alone.gradient, strict=True)]
    assert gap(result.gradient, total) <= 2 * ROUNDING


@pytest.mark.parametrize(
    ("sizes", "tolerance"), [(ALL_SIZES_DIFFER, ROUNDING), (SIZES, BATCHED)], ids=["alone", "batched"]
)
@pytest.mark.parametrize("row", TABLE_2)
def test_recomputing_changes_nothing(
    tiny_network: Network, row: str, sizes: Sequence[tuple[int, int]], tolerance: float
) -> None:
    images = photos(sizes)
    whole = gradient_of(tiny_network, images, TABLE_2[row], recompute=False)
    again = gradient_of(tiny_network, images, TABLE_2[row], recompute=True)
    assert gap(again.gradient, whole.gradient) <= tolerance
    assert torch.allclose(again.measures, whole.measures, rtol=1e-5, atol=1e-6)


def test_recomputing_keeps_one_image_at_a_time(tiny_network: Network) -> None:
    batches = []

    def describe(x: Tensor) -> Local:
        batches.append((len(x), torch.is_grad_enabled()))
        local: Local = tiny_network.module(x)
        return local

    differentiate(describe, photos(), trained(tiny_network), LossConfig(), recompute=True)
    assert batches == [(1, False)] * len(SIZES) + [(1, True)] * len(SIZES)


@BOTH
def test_how_has_the_pooled_loss_alone(tiny_how: Network, recompute: bool) -> None:
    images = photos()
    result = gradient_of(tiny_how, images, POOLED, recompute)
    loss = pooled_by_loops(described(tiny_how, images), POOLED)
    wanted = {**dict.fromkeys(MEASURES, 0.0), "loss": loss, "pooled": loss}
    assert loss > 0
    assert measures_of(result) == pytest.approx(wanted, rel=1e-5)
    assert len(result.measures) == len(MEASURES)
    assert all(part.any() for part in result.gradient)


def test_how_is_the_same_recomputed(tiny_how: Network) -> None:
    images = photos(ALL_SIZES_DIFFER)
    whole, again = (gradient_of(tiny_how, images, POOLED, recompute) for recompute in (False, True))
    assert gap(again.gradient, whole.gradient) <= ROUNDING


@BOTH
def test_only_what_is_asked_for_has_a_gradient(tiny_network: Network, recompute: bool) -> None:
    """On maps of a frozen trunk: as `training.parts = "lit"` has it. The parameters' own `grad` is left alone."""
    with torch.inference_mode():
        maps = [tiny_network.module.trunk(image.unsqueeze(0))[0] for image in photos()]
    maps = [one.clone() for one in maps]
    lit = [value for name, value in tiny_network.module.named_parameters() if name.startswith("lit.")]
    describe = for_training(tiny_network.module, maps=True)
    found = differentiate(describe, maps, lit, LossConfig(), recompute)
    whole = differentiate(tiny_network.module, photos(), lit, LossConfig(), recompute)
    assert gap(found.gradient, whole.gradient) <= 1e-4
    assert all(parameter.grad is None for parameter in tiny_network.module.parameters())


@BOTH
def test_a_parameter_without_part_in_the_loss_has_gradient_zero(tiny_network: Network, recompute: bool) -> None:
    spare = torch.ones(3, requires_grad=True)
    result = differentiate(tiny_network.module, photos(), [*trained(tiny_network), spare], LossConfig(), recompute)
    assert result.gradient[-1].tolist() == [0, 0, 0]


@BOTH
def test_no_eligible_pair_still_has_a_gradient(tiny_network: Network, recompute: bool) -> None:
    """A ratio that nothing can meet: the loss is that of decorrelation."""
    config = LossConfig(ratio=1e-9, decorrelation=0.0)
    result = gradient_of(tiny_network, photos(), config, recompute)
    assert measures_of(result)["loss"] == measures_of(result)["matches"] == 0
    assert all(not part.any() for part in result.gradient)


@BOTH
@pytest.mark.parametrize("row", TABLE_2)
def test_half_precision_is_near(tiny_network: Network, row: str, recompute: bool) -> None:
    """bf16 has 8 bits: the losses are near, and the gradients single precision and finite."""
    describe, images = for_training(tiny_network.module, precision="bf16"), photos()
    config = dataclasses.replace(TABLE_2[row], ratio_test="off", reciprocal=False)  # pairs that no rounding changes
    result = differentiate(describe, images, trained(tiny_network), config, recompute)
    exact = gradient_of(tiny_network, images, config, recompute)
    assert measures_of(result)["loss"] == pytest.approx(measures_of(exact)["loss"], rel=0.2)
    assert all(part.dtype == torch.float32 and part.isfinite().all() for part in result.gradient)


@BOTH
def test_half_precision_of_how(tiny_how: Network, recompute: bool) -> None:
    """The network is rounded to 8 bits, the loss itself is not: its value has more digits than bf16 can hold."""
    describe, images = for_training(tiny_how.module, precision="bf16"), photos()
    result = differentiate(describe, images, trained(tiny_how), POOLED, recompute)
    loss = measures_of(result)["loss"]
    assert loss == pytest.approx(measures_of(gradient_of(tiny_how, images, POOLED))["loss"], rel=0.2)
    assert float(torch.tensor(loss).bfloat16()) != loss


# --- Negatives that the hinge silences --------------------------------------------------------------------------------


def one_graph(network: Network, images: Sequence[Tensor], config: LossConfig) -> list[Tensor]:
    """The gradient through all images, whether the losses say something of them or not."""
    loss, _ = tuple_loss([network.module(image.unsqueeze(0)) for image in images], config)
    return list(torch.autograd.grad(loss, trained(network), allow_unused=True, materialize_grads=True))


def margin_between(network: Network, images: Sequence[Tensor]) -> float:
    """One that the nearest negative is within, and the others are not."""
    vectors = [oracles.pool([(one.vectors[0].numpy(), one.strengths[0].numpy())]) for one in described(network, images)]
    first, second, *_ = sorted(float(np.linalg.norm(vectors[0] - other)) for other in vectors[2:])
    assert first < second
    return (first + second) / 2


@BOTH
@pytest.mark.parametrize("kind", ["how", "fire"])
def test_negatives_that_are_far_enough_are_not_gone_back_through(
    tiny_how: Network, tiny_network: Network, kind: str, recompute: bool
) -> None:
    """The gradient is the same, and who had no part in it has had no graph that was used."""
    network, images = tiny_how if kind == "how" else tiny_network, photos()
    config = LossConfig(superfeature=0, decorrelation=0, pooled=1, pooled_margin=margin_between(network, images))
    used: list[int] = []

    def describe(x: Tensor) -> Local:
        number = next(n for n, image in enumerate(images) if x.shape[1:] == image.shape and torch.equal(x[0], image))
        local: Local = network.module(x)
        if local.vectors.requires_grad:
            local.vectors.register_hook(lambda _: used.append(number))
        return local

    result = differentiate(describe, images, trained(network), config, recompute)
    assert gap(result.gradient, one_graph(network, images, config)) <= BATCHED
    assert len(used) == len({*used}) == 3  # query, positive, and the nearest negative
    assert {0, 1} < {*used}


@BOTH
def test_attention_of_query_and_positive_alone(tiny_network: Network, recompute: bool) -> None:
    """`losses.decorrelated = "pair"`: negatives are heard through the hinge alone."""
    images = photos()
    config = LossConfig(decorrelated="pair", superfeature=0.02, margin=1e-3)  # within which no negative is
    result = gradient_of(tiny_network, images, config, recompute)
    correlations = [
        oracles_losses.decorrelation(local.maps[0].numpy())
        for local in described(tiny_network, images)
        if local.maps is not None
    ]
    found = measures_of(result)
    assert found["decorrelation"] == pytest.approx(0.1 * sum(correlations[:2]), rel=1e-5)
    assert found["correlation"] == pytest.approx(sum(correlations) / len(images), rel=1e-5)
    assert gap(result.gradient, one_graph(tiny_network, images, config)) <= BATCHED
    without = gradient_of(tiny_network, images[:2], config, recompute)
    assert gap(result.gradient, without.gradient) <= BATCHED


# --- A step -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("recompute", [False, True], ids=["whole", "recomputed"])
def test_the_gradient_of_a_step_is_the_sum_over_its_tuples(tiny_network: Network, recompute: bool) -> None:
    config = LossConfig(pooled=1.0)
    groups = [photos(seed=seed) for seed in (0, 10, 20)]
    together = torch.stack([tuple_loss(describe_all(tiny_network.module, group), config)[0] for group in groups]).sum()
    expected = torch.autograd.grad(together, trained(tiny_network))
    results = [gradient_of(tiny_network, group, config, recompute).gradient for group in groups]
    assert gap([sum(parts[1:], parts[0]) for parts in zip(*results, strict=True)], expected) <= BATCHED


def test_the_trainer_adds_up_and_steps(tiny_network: Network) -> None:
    """One step of Adam on the sum; whitening and batch-norm statistics stay as they were."""
    network = recipe_network(tiny_network.config)
    training = TrainingConfig(negatives=3, queries=3)
    recipe = Recipe(network=network.config, training=training)
    trainer = Trainer(recipe, cast(Any, None), (), cast(Any, None), Ranks(), workers=1, device="cpu")
    trainer._adopt(network)
    everything = [image for seed in (0, 10, 20) for image in photos(seed=seed)]

    def read(number: int, showing: Showing = AS_IT_IS) -> Tensor:
        return everything[number].flip(-1) if showing.flip else everything[number]

    parameters = list(trainer.parameters.values())
    trainer.stepper = Stepper(trainer.describe, parameters, read, recipe.losses, False, Ranks(), 1, "cpu")
    before = {name: value.clone() for name, value in network.module.state_dict().items()}
    numbers = np.arange(len(everything)).reshape(3, -1)
    showings = draw_showings(numbers, training, epoch=0, step=0)
    assert len({showing.flip for row in showings for showing in row}) == 2
    record = trainer._step(numbers)
    groups = [
        [read(*each) for each in zip(row, seen, strict=True)] for row, seen in zip(numbers, showings, strict=True)
    ]
    results = [gradient_of(tiny_network, group, recipe.losses) for group in groups]
    sums = [sum(parts[1:], parts[0]) for parts in zip(*(result.gradient for result in results), strict=True)]
    found = [parameter.grad for parameter in trainer.parameters.values()]
    assert gap([part for part in found if part is not None], sums) <= 1e-5
    assert record["loss"] == pytest.approx(sum(measures_of(result)["loss"] for result in results) / 3, rel=1e-4)
    for name, value in network.module.state_dict().items():
        assert torch.equal(value, before[name]) == (name not in trainer.parameters), name
