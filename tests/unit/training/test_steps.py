"""One step: how its images are looked at, and its gradient: against plain loops, and against one big graph."""

import functools
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import oracles
import oracles_losses
from fixtures_recipe import noise, recipe_network, relative_error
from superfeat.config import LossConfig, TrainingConfig
from superfeat.images import normalise
from superfeat.nets.local import Local, pool
from superfeat.nets.losses import attention_correlation, global_loss, superfeature_loss
from superfeat.training.inputs import AS_IT_IS, Showing
from superfeat.training.objective import (
    MEASURES,
    WATCHED,
    Describe,
    Shared,
    describe_one,
    differentiate,
    step_loss,
)
from superfeat.training.ranks import Ranks
from superfeat.training.steps import StepGradient, Stepper, draw_showings
from superfeat.weights import Network

IDS = 8  # of the tiny network
WIDTH = len(MEASURES) + IDS
THINGS = np.array([4, 7, 4, 9])  # of four pairs, two of them of one thing
PAIRS = np.arange(8).reshape(4, 2)
PLAIN = [[AS_IT_IS] * 2] * 4
SIZES = ((32, 40), (24, 40), (40, 24), (28, 28))
EVERY_LOSS = {
    "super": LossConfig(decorrelation=0.0),
    "attn": LossConfig(superfeature=0.0),
    "attn + super": LossConfig(),
    "global": LossConfig(superfeature=0.0, decorrelation=0.0, pooled=1.0),
    "global + attn": LossConfig(superfeature=0.0, pooled=1.0),
    "global + attn + super": LossConfig(pooled=0.5, hinge="paper", ratio_test="off"),
}
POOLED = EVERY_LOSS["global"]


class Photos:
    """Images of noise by their number, in double precision if asked for; flipped if the showing says so."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        self.dtype = dtype

    def __call__(self, number: int, showing: Showing = AS_IT_IS) -> Tensor:
        pixels = noise(*SIZES[number % len(SIZES)], number)
        image = torch.from_numpy(normalise(pixels, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))).to(self.dtype)
        return image.flip(-1) if showing.flip else image


def trained(network: Network) -> list[Tensor]:
    return [parameter for parameter in network.module.parameters() if parameter.requires_grad]


def stepper_of(network: Network, losses: LossConfig, **options: Any) -> Stepper:
    return Stepper(
        **{
            "describe": network.module,
            "parameters": trained(network),
            "inputs": Photos(next(network.module.parameters()).dtype),
            "losses": losses,
            "recompute": False,
            "ranks": Ranks(),
            "workers": 1,
            "device": "cpu",
            **options,
        }
    )


def in_double(network: Network) -> Network:
    """A network of its own with the same weights, in which rounding hides nothing."""
    own = recipe_network(network.config)
    own.module.double()
    return own


def gap(found: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """The largest difference of two gradients, relative to the largest of all."""
    return relative_error(*(torch.cat([part.flatten() for part in parts]) for parts in (found, expected)))


# --- How images are looked at -----------------------------------------------------------------------------------------


TUPLES = np.array([[3, 5, 8, 9], [6, 6, 1, 2], [7, 2, 4, 6], [1, 1, 8, 3]])


def showings_of(epoch: int = 0, step: int = 0, tuples: np.ndarray = TUPLES, **settings: Any) -> list[list[Showing]]:
    return draw_showings(tuples, TrainingConfig(**{"max_side": 64, **settings}), epoch, step)


def flips_of(showings: Sequence[Sequence[Showing]]) -> list[list[bool]]:
    return [[showing.flip for showing in row] for row in showings]


def test_looks_follow_from_the_seed_the_epoch_and_the_step() -> None:
    found = showings_of(2, 3, least_side=16, seed=5)
    assert found == showings_of(2, 3, least_side=16, seed=5)
    for other in (showings_of(3, 2, least_side=16, seed=5), showings_of(2, 3, least_side=16, seed=6)):
        assert flips_of(other) != flips_of(found)
        assert {showing.view for row in other for showing in row} & {
            showing.view for row in found for showing in row
        } == {None}


def test_there_is_a_look_for_each_image() -> None:
    assert [len(row) for row in showings_of()] == [4, 4, 4, 4]
    assert [len(row) for row in showings_of(tuples=TUPLES[:1, :2])] == [2]


def test_each_image_is_flipped_by_itself_or_a_pair_together() -> None:
    alone = [flips for step in range(60) for flips in flips_of(showings_of(step=step))]
    assert {flips[0] == flips[1] for flips in alone} == {True, False}
    assert 0.4 < np.mean(alone) < 0.6
    together = [
        flips
        for step in range(60)
        for flips in flips_of(showings_of(step=step, tuples=TUPLES[:, :2], negatives_from="step"))
    ]
    assert {flips[0] == flips[1] for flips in together} == {True}
    assert {flips[0] for flips in together} == {True, False}


@pytest.mark.parametrize("negatives_from", ["pool", "step"])
def test_never_and_always_flipped(negatives_from: Any) -> None:
    for flip in (0.0, 1.0):
        found = flips_of(showings_of(flip=flip, negatives_from=negatives_from))
        assert found == [[bool(flip)] * 4] * 4


def test_a_step_has_one_longest_side() -> None:
    sides = []
    for step in range(60):
        (side,) = {showing.side for row in showings_of(step=step, least_side=20, max_side=24) for showing in row}
        assert side is not None
        sides.append(side)
    assert set(sides) == {20, 21, 22, 23, 24}
    assert {showing.side for row in showings_of() for showing in row} == {None}


@pytest.mark.parametrize("negatives_from", ["pool", "step"])
def test_the_positive_of_a_photo_with_itself_is_a_view_made_of_it(negatives_from: Any) -> None:
    """Each by a seed of its own; queries, negatives and photographed positives stay as they are."""
    seeds = set()
    for epoch in range(3):
        for step in range(3):
            showings = showings_of(epoch, step, negatives_from=negatives_from)
            for images, row in zip(TUPLES.tolist(), showings, strict=True):
                made = images[0] == images[1]
                assert [showing.view is not None for showing in row] == [False, made, False, False]
                if made:
                    seeds.add(row[1].view)
    assert len(seeds) == 3 * 3 * 2


# --- The losses of a step ---------------------------------------------------------------------------------------------


def random_shared(pairs: int, seed: int, ids: int = 5, dim: int = 4) -> Shared:
    """Images of a pair somewhat alike, so that some features match and some do not."""
    rng = np.random.default_rng(seed)
    vectors = np.repeat(rng.standard_normal((pairs, ids, dim)), 2, axis=0)
    vectors = vectors + 0.7 * rng.standard_normal(vectors.shape)
    pooled = np.repeat(rng.standard_normal((pairs, dim)), 2, axis=0) + rng.standard_normal((2 * pairs, dim))
    pooled /= np.linalg.norm(pooled, axis=1, keepdims=True)
    return Shared(torch.from_numpy(vectors), torch.from_numpy(pooled))


def measures_by_loops(shared: Shared, things: Sequence[int], config: LossConfig) -> tuple[list[dict[str, float]], Any]:
    """What each pair is to be measured by, and how often each of its IDs was matched in its two directions."""
    rows = [dict.fromkeys(MEASURES, 0.0) for _ in range(len(things) // 2)]
    counts = np.zeros((len(rows), 0))
    if shared.vectors is not None:
        images = shared.vectors.detach().numpy()
        rules = (config.ratio_test, config.ratio, config.reciprocal, config.same_id)
        losses = oracles_losses.step_superfeature_losses(images, things, rules, config.margin, config.hinge)
        counts = np.zeros((len(rows), images.shape[1]))
        for row, loss in zip(rows, losses, strict=True):
            row["superfeature"] = config.superfeature * loss
        for query, positive, others in oracles_losses.step_tuples(things):
            for other in (positive, *others[:WATCHED]):
                table = oracles_losses.distances(images[other], images[query])
                name = "matches" if other == positive else "negative_matches"
                for suffix, same_id in (("", True), ("_any_id", False)):
                    found = oracles_losses.match(table, config.ratio_test, config.ratio, True, same_id)
                    rows[query // 2][name + suffix] += len(found) / 2
            table = oracles_losses.distances(images[positive], images[query])
            for here in {here for here, _ in oracles_losses.match(table, *rules)}:
                counts[query // 2, here] += 0.5
    if shared.pooled is not None:
        vectors = shared.pooled.detach().numpy()
        losses = oracles_losses.step_pooled_losses(vectors, things, config.pooled_margin, config.hinge)
        for row, loss in zip(rows, losses, strict=True):
            row["pooled"] = config.pooled * loss
    for row in rows:
        row["loss"] = row["superfeature"] + row["pooled"]
    return rows, counts


def assert_as_by_loops(shared: Shared, things: Sequence[int], config: LossConfig) -> list[dict[str, float]]:
    loss, measures = step_loss(shared, np.asarray(things), config)
    rows, counts = measures_by_loops(shared, things, config)
    assert measures.dtype == torch.float64
    for found, expected in zip(measures[:, : len(MEASURES)].tolist(), rows, strict=True):
        assert dict(zip(MEASURES, found, strict=True)) == pytest.approx(expected, rel=1e-6, abs=1e-9)
    assert measures[:, len(MEASURES) :].numpy() == pytest.approx(counts)
    assert loss.item() == pytest.approx(sum(row["loss"] for row in rows), rel=1e-6)
    return rows


@pytest.mark.parametrize("hinge", ["released", "paper"])
@pytest.mark.parametrize("ratio_test", ["lowe", "released", "off"])
@pytest.mark.parametrize("rules", [(True, True), (True, False), (False, True), (False, False)])
def test_the_loss_of_a_step_equals_the_oracle(ratio_test: Any, rules: tuple[bool, bool], hinge: Any) -> None:
    config = LossConfig(ratio_test=ratio_test, reciprocal=rules[0], same_id=rules[1], hinge=hinge, pooled=0.5)
    things = np.repeat(THINGS, 2).tolist()
    rows = assert_as_by_loops(random_shared(4, seed=1), things, config)
    assert all(row["pooled"] > 0 for row in rows)
    assert any(row["superfeature"] > 0 for row in rows)


def test_the_case_is_not_trivial() -> None:
    """Some features match and some do not, and the two directions of a pair differ."""
    rows, counts = measures_by_loops(random_shared(4, seed=1), np.repeat(THINGS, 2).tolist(), LossConfig())
    assert set(np.unique(counts)) == {0.0, 0.5, 1.0}
    assert any(row["negative_matches"] < row["negative_matches_any_id"] for row in rows)


@pytest.mark.parametrize("part", ["vectors", "pooled"])
def test_what_no_loss_uses_is_left_out(part: str) -> None:
    whole = random_shared(3, seed=2)
    only = Shared(**{name: value if name == part else None for name, value in whole._asdict().items()})
    assert len(only.parts()) == 1
    config = LossConfig(pooled=1.0, ratio_test="off")
    rows = assert_as_by_loops(only, [0, 0, 1, 1, 2, 2], config)
    unused = "pooled" if part == "vectors" else "superfeature"
    assert all(row[unused] == 0 < row["loss"] for row in rows)


@pytest.mark.parametrize("things", [[3, 3], [3, 3, 3, 3]], ids=["one pair", "two pairs of one thing"])
def test_pairs_without_negatives_are_still_drawn_together(things: list[int]) -> None:
    """The last step of an epoch may have nothing but one thing left."""
    config = LossConfig(pooled=1.0, ratio_test="off", reciprocal=False)
    shared = random_shared(len(things) // 2, seed=4)
    rows = assert_as_by_loops(shared, things, config)
    assert all(row["superfeature"] > 0 < row["pooled"] for row in rows)
    leaves = Shared(*(part.requires_grad_() for part in shared.parts()))
    loss, _ = step_loss(leaves, np.asarray(things), config)
    assert all(part.isfinite().all() for part in torch.autograd.grad(loss, leaves.parts()))


def test_the_order_of_a_pair_does_not_matter() -> None:
    shared, config = random_shared(3, seed=5), LossConfig(pooled=1.0)
    turned = Shared(*(part[[1, 0, 3, 2, 5, 4]] for part in shared.parts()))
    things = np.array([0, 0, 1, 1, 2, 2])
    (loss, measures), (again, others) = (step_loss(one, things, config) for one in (shared, turned))
    assert loss.item() == pytest.approx(again.item(), rel=1e-12)
    assert torch.allclose(measures, others)


# --- The gradient of a step with shared negatives ---------------------------------------------------------------------


def one_graph(network: Network, config: LossConfig, things: np.ndarray = THINGS) -> list[Tensor]:
    """The gradient by autograd alone: every image of the step in one graph, each query's losses by themselves."""
    photos, of_images = Photos(torch.float64), np.repeat(things, 2).tolist()
    locals_: list[Local] = [network.module(photos(number).unsqueeze(0)) for number in range(len(of_images))]
    total = torch.zeros((), dtype=torch.float64)
    for query, positive, others in oracles_losses.step_tuples(of_images):
        if locals_[0].maps is not None and config.superfeature:
            asked, wanted = (locals_[number].vectors[0] for number in (query, positive))
            negatives = torch.stack([locals_[number].vectors[0] for number in others])
            names = ("margin", "ratio_test", "hinge", "ratio", "reciprocal", "same_id")
            rules = {name: getattr(config, name) for name in names}
            total = total + superfeature_loss(asked, wanted, negatives, weight=config.superfeature, **rules) / 2
        if config.pooled:
            pooled = [pool([locals_[number]])[0] for number in (query, positive, *others)]
            rules = {"margin": config.pooled_margin, "weight": config.pooled, "hinge": config.hinge}
            total = total + global_loss(pooled[0], pooled[1], torch.stack(pooled[2:]), **rules) / 2
    for local in locals_:
        if local.maps is not None:
            total = total + config.decorrelation * attention_correlation(local.maps).sum()
    return list(torch.autograd.grad(total, trained(network), allow_unused=True, materialize_grads=True))


@pytest.mark.parametrize("row", EVERY_LOSS)
def test_the_gradient_is_that_of_one_big_graph(tiny_network: Network, row: str) -> None:
    network, config = in_double(tiny_network), EVERY_LOSS[row]
    found = stepper_of(network, config).shared_negatives(PAIRS, PLAIN, THINGS, WIDTH)
    expected = one_graph(network, config)
    assert max(float(part.abs().max()) for part in expected) > 0
    assert gap(found.total, expected) <= 1e-9


def test_the_gradient_of_how_is_that_of_one_big_graph(tiny_how: Network) -> None:
    network = in_double(tiny_how)
    found = stepper_of(network, POOLED).shared_negatives(PAIRS, PLAIN, THINGS, len(MEASURES))
    assert gap(found.total, one_graph(network, POOLED)) <= 1e-9
    assert (found.measures[:, MEASURES.index("loss")] > 0).all()


def test_single_precision_is_near(tiny_network: Network) -> None:
    config = EVERY_LOSS["global + attn + super"]
    found = stepper_of(tiny_network, config).shared_negatives(PAIRS, PLAIN, THINGS, WIDTH)
    assert all(part.dtype == torch.float64 for part in found.total), "sums are made in double precision"
    assert gap(found.total, one_graph(in_double(tiny_network), config)) <= 1e-4


@pytest.mark.parametrize("row", EVERY_LOSS)
def test_the_measures_of_pairs_equal_the_oracle(tiny_network: Network, row: str) -> None:
    """The losses of the step, and what each image has alone: its attention maps' correlation."""
    network, config, photos = in_double(tiny_network), EVERY_LOSS[row], Photos(torch.float64)
    found = stepper_of(network, config).shared_negatives(PAIRS, PLAIN, THINGS, WIDTH).measures
    with torch.inference_mode():
        locals_ = [network.module(photos(number).unsqueeze(0)) for number in range(PAIRS.size)]
    vectors = torch.cat([local.vectors for local in locals_])
    pooled = np.stack([oracles.pool([(one.vectors[0].numpy(), one.strengths[0].numpy())]) for one in locals_])
    shared = Shared(vectors if config.superfeature else None, torch.from_numpy(pooled) if config.pooled else None)
    rows, counts = measures_by_loops(shared, np.repeat(THINGS, 2).tolist(), config)
    for number, expected in enumerate(rows):
        own = [oracles_losses.decorrelation(locals_[image].maps[0].numpy()) for image in PAIRS[number]]
        expected |= {"correlation": sum(own) / 2, "decorrelation": config.decorrelation * sum(own)}
        expected["loss"] += expected["decorrelation"]
        assert dict(zip(MEASURES, found[number].tolist(), strict=False)) == pytest.approx(expected, rel=1e-6, abs=1e-9)
    assert found.shape == (len(PAIRS), WIDTH)
    assert found[:, len(MEASURES) :].numpy()[:, : counts.shape[1]] == pytest.approx(counts)
    assert found[:, len(MEASURES) + counts.shape[1] :].count_nonzero() == 0


def test_an_image_is_looked_at_as_the_step_says(tiny_network: Network) -> None:
    """Flipped images give another gradient; that of the flipped photos."""
    showings = [[Showing(flip=True), AS_IT_IS], *PLAIN[1:]]

    def turned(number: int, showing: Showing = AS_IT_IS) -> Tensor:
        return Photos()(number, Showing(flip=number == 0))

    found = stepper_of(tiny_network, LossConfig()).shared_negatives(PAIRS, showings, THINGS, WIDTH)
    expected = stepper_of(tiny_network, LossConfig(), inputs=turned).shared_negatives(PAIRS, PLAIN, THINGS, WIDTH)
    plain = stepper_of(tiny_network, LossConfig()).shared_negatives(PAIRS, PLAIN, THINGS, WIDTH)
    assert gap(found.total, expected.total) == 0
    assert gap(found.total, plain.total) > 1e-3


@pytest.mark.parametrize("row", EVERY_LOSS)
def test_recomputing_gives_the_same_step(tiny_network: Network, row: str) -> None:
    network, config = in_double(tiny_network), EVERY_LOSS[row]
    whole, again = (
        stepper_of(network, config, recompute=recompute).shared_negatives(PAIRS, PLAIN, THINGS, WIDTH)
        for recompute in (False, True)
    )
    assert gap(again.total, whole.total) <= 1e-12
    assert torch.equal(again.measures, whole.measures)


def test_recomputing_keeps_the_graph_of_one_image_at_a_time(tiny_network: Network) -> None:
    """Each image goes through the network twice, and is read once; no graph is left when the next one is made."""
    graphs: list[weakref.ref[Tensor]] = []
    read: list[int] = []

    def describe(x: Tensor) -> Local:
        assert not any(graph() is not None for graph in graphs)
        local: Local = tiny_network.module(x)
        if local.vectors.requires_grad:
            graphs.append(weakref.ref(local.vectors))
        return local

    def inputs(number: int, showing: Showing = AS_IT_IS) -> Tensor:
        read.append(number)
        return Photos()(number, showing)

    stepper = stepper_of(tiny_network, LossConfig(), recompute=True, describe=describe, inputs=inputs)
    stepper.shared_negatives(PAIRS, PLAIN, THINGS, WIDTH)
    assert len(graphs) == PAIRS.size
    assert read == list(range(PAIRS.size))


def test_a_parameter_without_part_in_the_step_has_gradient_zero(tiny_network: Network) -> None:
    spare = torch.ones(3, requires_grad=True)
    stepper = stepper_of(tiny_network, LossConfig(), parameters=[*trained(tiny_network), spare])
    assert stepper.shared_negatives(PAIRS, PLAIN, THINGS, WIDTH).total[-1].tolist() == [0, 0, 0]
    assert all(parameter.grad is None for parameter in tiny_network.module.parameters())


def test_half_precision_ends_with_the_network(tiny_network: Network) -> None:
    def describe(x: Tensor) -> Local:
        local: Local = tiny_network.module(x)
        assert local.maps is not None
        return Local(local.vectors.bfloat16(), local.strengths.bfloat16(), local.grid, local.maps.bfloat16())

    found = describe_one(describe, Photos()(0), LossConfig(pooled=1.0))
    assert [part.dtype for part in found.shared.parts()] == [torch.float32, torch.float32]
    assert [tuple(part.shape) for part in found.shared.parts()] == [(1, IDS, 6), (1, 6)]


# --- Who computes -----------------------------------------------------------------------------------------------------


class Together(Ranks):
    """Ranks that are threads of this process: what they sum up is added in the order of their numbers."""

    def __init__(self, rank: int, count: int, meeting: threading.Barrier, given: dict[int, list[Tensor]]) -> None:
        super().__init__(rank, count)
        self.meeting, self.given = meeting, given

    def sum(self, tensors: Sequence[Tensor]) -> None:
        self.given[self.rank] = [tensor.clone() for tensor in tensors]
        self.meeting.wait(60)
        totals = [
            torch.stack(parts).sum(dim=0) for parts in zip(*(self.given[n] for n in range(self.count)), strict=True)
        ]
        self.meeting.wait(60)
        for tensor, total in zip(tensors, totals, strict=True):
            tensor.copy_(total)


def by_ranks(count: int, step: Callable[[Ranks], StepGradient]) -> StepGradient:
    """The step by so many ranks, summed up as the trainer does it."""
    meeting, given = threading.Barrier(count), dict[int, list[Tensor]]()
    found: dict[int, StepGradient] = {}

    def run(rank: int) -> None:
        ranks = Together(rank, count, meeting, given)
        try:
            result = step(ranks)
            ranks.sum([*result.total, result.measures])
            found[rank] = result
        except BaseException:
            meeting.abort()
            raise

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == count
    for other in found.values():
        assert all(torch.equal(a, b) for a, b in zip(other.total, found[0].total, strict=True))
    return found[0]


def steps(describe: Describe, network: Network) -> Iterator[Callable[[Ranks, int], StepGradient]]:
    """Both kinds of step, and that with shared negatives in less memory."""

    def shared(ranks: Ranks, workers: int, **more: Any) -> StepGradient:
        stepper = stepper_of(network, LossConfig(pooled=1.0), describe=describe, ranks=ranks, workers=workers, **more)
        return stepper.shared_negatives(PAIRS[:2], PLAIN[:2], THINGS[:2], WIDTH)

    def alone(ranks: Ranks, workers: int) -> StepGradient:
        stepper = stepper_of(network, LossConfig(pooled=1.0), describe=describe, ranks=ranks, workers=workers)
        return stepper.each_alone(np.array([[0, 1, 2], [3, 4, 5]]), [[AS_IT_IS] * 3] * 2, WIDTH)

    yield from (shared, alone, functools.partial(shared, recompute=True))


@pytest.mark.parametrize("kind", [0, 1, 2], ids=["shared negatives", "each alone", "shared, recomputed"])
def test_any_number_of_workers_gives_the_same_bits(tiny_network: Network, kind: int) -> None:
    step = list(steps(tiny_network.module, tiny_network))[kind]
    one, three = (step(Ranks(), workers) for workers in (1, 3))
    assert all(torch.equal(a, b) for a, b in zip(one.total, three.total, strict=True))
    assert torch.equal(one.measures, three.measures)


@pytest.mark.parametrize("count", [2, 3, 5])
@pytest.mark.parametrize("kind", [0, 1, 2], ids=["shared negatives", "each alone", "shared, recomputed"])
def test_any_number_of_ranks_gives_the_same_gradient(tiny_network: Network, kind: int, count: int) -> None:
    """Of five ranks some have no image of two pairs, and none of two tuples."""
    step = list(steps(tiny_network.module, tiny_network))[kind]
    one, several = step(Ranks(), 1), by_ranks(count, lambda ranks: step(ranks, 1))
    for found, expected in zip(several.total, one.total, strict=True):
        assert torch.equal(found.float(), expected.float())
    assert torch.allclose(several.measures, one.measures, rtol=1e-12, atol=1e-14)


def test_ranks_go_through_their_own_images_only(tiny_network: Network) -> None:
    """Each image is computed once in all, where every rank has one."""
    described: list[tuple[int, ...]] = []

    def describe(x: Tensor) -> Local:
        described.append(tuple(x.shape))
        local: Local = tiny_network.module(x)
        return local

    step = next(steps(describe, tiny_network))
    by_ranks(3, lambda ranks: step(ranks, 1))
    assert sorted(described) == sorted((1, 3, *SIZES[number]) for number in range(4))


@pytest.mark.parametrize("recompute", [False, True], ids=["whole", "recomputed"])
def test_tuples_by_themselves_are_added_up(tiny_network: Network, recompute: bool) -> None:
    """Query, positive and negatives in their order, each as it is looked at; a row of measures for each tuple."""
    tuples = np.array([[0, 4, 1, 2], [5, 3, 6, 7]])
    showings = [[Showing(flip=(row + slot) % 2 == 0) for slot in range(4)] for row in range(2)]
    config = LossConfig(pooled=1.0)
    found = stepper_of(tiny_network, config, recompute=recompute).each_alone(tuples, showings, WIDTH)
    total = [torch.zeros_like(parameter, dtype=torch.float64) for parameter in trained(tiny_network)]
    for number, (images, row) in enumerate(zip(tuples.tolist(), showings, strict=True)):
        given = [Photos()(image, showing) for image, showing in zip(images, row, strict=True)]
        result = differentiate(tiny_network.module, given, trained(tiny_network), config, recompute)
        total = [sum_ + part for sum_, part in zip(total, result.gradient, strict=True)]
        assert torch.equal(found.measures[number], result.measures)
    assert gap(found.total, total) <= 1e-12
    assert found.reading > 0
