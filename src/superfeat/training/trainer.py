"""The loop of training, and all that it keeps between two steps."""

import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float32, Int64
from torch import Tensor

from superfeat.config import Recipe, TrainingConfig
from superfeat.datasets.retrieval_set import RetrievalSet
from superfeat.datasets.training_set import TrainingSet
from superfeat.errors import SuperfeatError
from superfeat.evaluation.searching import own_names
from superfeat.nets.fire import Fire
from superfeat.nets.local import pool
from superfeat.nets.training import for_training, freeze_stages
from superfeat.threads import in_order
from superfeat.training.inputs import Inputs, MapInputs, PhotoInputs, Showing, one_thread, store_maps
from superfeat.training.mining import (
    as_tuples,
    draw_pool,
    draw_queries,
    group_alike,
    hardest_negatives,
    needed_images,
)
from superfeat.training.objective import MEASURES, Describe
from superfeat.training.ranks import Ranks
from superfeat.training.records import LogFacts, LogLine
from superfeat.training.run import (
    CHECKPOINT_SECONDS,
    Event,
    Position,
    RunFolder,
    optimiser_state,
    restore_optimiser,
)
from superfeat.training.start import frozen_part, prepare_start
from superfeat.training.steps import Stepper, draw_showings
from superfeat.training.validation import Score, decisive, facts_of, validate
from superfeat.weights import Network, build_module

PAIRS, POOL = 2, 3  # what a random generator is for; 1 is the order of photos at the start, 4 how images are shown
POWER, POWER_RATE = "pooling.p", 10.0  # GeM's: it learns faster, and does not decay


class Trainer:
    """The state of a run between two steps: network, optimiser, position, and the epoch's tuples."""

    def __init__(
        self,
        recipe: Recipe,
        training_set: TrainingSet,
        validation: Sequence[RetrievalSet],
        folder: RunFolder,
        ranks: Ranks,
        workers: int,
        device: str,
    ) -> None:
        self.recipe, self.config = recipe, recipe.training
        self.training_set, self.validation = training_set, validation
        self.folder, self.ranks, self.workers, self.device = folder, ranks, workers, device
        self.stop: Callable[[], bool] = lambda: False
        self.checkpoint_seconds = CHECKPOINT_SECONDS
        self.position = Position()
        self.tuples: Int64[np.ndarray, "queries images"] | None = None
        ids = recipe.network.lit.templates if recipe.network.lit else 0
        self.totals = torch.zeros(len(MEASURES) + ids, dtype=torch.float64)  # measures summed over the epoch's tuples
        self.saved = time.monotonic()

    # -- Begin, or go on

    def begin(self, given: Network | None) -> Iterator[Event]:
        """The network and the optimiser: from the checkpoint, or from the start."""
        before = self.folder.load_checkpoint()
        if self.ranks.first:
            self.folder.cut_log(0 if before is None else before[0].log_bytes)
        if before is None:
            yield Event("start", 0, self.config.whitening_images)
            self._adopt(prepare_start(self.recipe, given, self.training_set.photos, self.workers, self.device))
            self._save()
        else:
            self.position, tensors = before
            module = build_module(self.recipe.network)
            module.load_state_dict(_below(tensors, "network/"))
            self._adopt(Network(module, self.recipe.network, self.position.provenance))
            self._restore(tensors)
        yield from self._prepare_inputs()

    def _adopt(self, network: Network) -> None:
        self.network = network
        self.position.provenance = dict(network.provenance)
        module = network.module.to(self.device).eval()
        frozen = self.config.parts == "lit"
        module.trunk.requires_grad_(not frozen)  # type: ignore[attr-defined]
        freeze_stages(module.trunk, self.config.frozen_stages)  # type: ignore[arg-type]
        self.parameters = {name: value for name, value in module.named_parameters() if value.requires_grad}
        self.describe = for_training(
            module,
            maps=frozen,
            precision=self.config.precision,
            frozen_stages=self.config.frozen_stages,
            stored=bool(self.config.stored_maps),
        )
        trunk = [value for name, value in self.parameters.items() if name.startswith("trunk.")]
        power = [value for name, value in self.parameters.items() if name == POWER]
        rest = [value for name, value in self.parameters.items() if not name.startswith("trunk.") and name != POWER]
        groups: list[dict[str, Any]] = [
            {"params": trunk, "share": self.config.trunk_rate},
            {"params": rest, "share": 1.0},
            {"params": power, "share": POWER_RATE, "weight_decay": 0.0},
        ]
        self.optimiser = torch.optim.Adam(
            [group for group in groups if group["params"]],
            self.config.learning_rate,
            weight_decay=self.config.weight_decay,
            foreach=False,
        )
        self.average = {name: value.detach().clone() for name, value in self.parameters.items()}

    def _restore(self, tensors: Mapping[str, Tensor]) -> None:
        """The optimiser's memory, the epoch's tuples and totals."""
        restore_optimiser(self.optimiser, self.parameters, tensors)
        for name, value in _below(tensors, "average/").items():
            self.average[name] = value.to(self.device)
        self.tuples = tensors["tuples"].numpy() if "tuples" in tensors else None
        self.totals = tensors["totals"]

    def _save(self) -> None:
        """A checkpoint of everything, by the first rank."""
        self.saved = time.monotonic()
        if not self.ranks.first:
            return
        tensors = {f"network/{name}": value for name, value in self.network.module.state_dict().items()}
        tensors |= optimiser_state(self.optimiser, self.parameters)
        if self.config.average:
            tensors |= {f"average/{name}": value for name, value in self.average.items()}
        if self.tuples is not None:
            tensors["tuples"] = torch.from_numpy(self.tuples)
        self.folder.save_checkpoint(self.position, {**tensors, "totals": self.totals})

    def _prepare_inputs(self) -> Iterator[Event]:
        photos = PhotoInputs(self.training_set.photos, self.config.max_side, self.network.normalisation)
        self.inputs: Inputs = photos
        if self.config.parts == "lit" or self.config.stored_maps:
            if self.ranks.first:
                facts = {"images": len(photos.photos), "max_side": self.config.max_side}
                folder = self.folder.path / "maps"
                workers = self.workers if self.device == "cpu" else 1
                maps = frozen_part(self.network, self.config, self.device)
                for done in store_maps(folder, facts, maps, photos, len(photos.photos), workers, self.device):
                    yield Event("maps", done, len(photos.photos))
            self.ranks.wait()
            self.inputs = MapInputs(self.folder.path / "maps")
        self.stepper = Stepper(
            self.describe,
            list(self.parameters.values()),
            self.inputs,
            self.recipe.losses,
            self.config.recompute,
            self.ranks,
            self.workers,
            self.device,
        )

    # -- The loop

    def run(self) -> Iterator[Event]:
        """Epochs from where the run is to its end."""
        while self.position.epoch < self.config.epochs:
            if self.tuples is None:
                for event in itertools.chain(self._validate_if_due(), self._mine()):
                    yield event
                    if self.ranks.count == 1 and self.stop():
                        yield self._stopped()
                        return
                self._save()
            for event in self._epoch_steps():
                yield event
                if self.ranks.any(self.stop()):
                    yield self._stopped()
                    return
            yield self._end_epoch()
        yield from self._validate_if_due(last=True)
        yield Event("end", self.config.epochs, self.config.epochs, {"best": self.position.best})

    def _stopped(self) -> Event:
        self._save()
        return Event("stopped", self.position.epoch, self.config.epochs)

    def _random(self, *purpose: int) -> np.random.Generator:
        return np.random.default_rng((self.config.seed, *purpose, self.position.epoch))

    def _mine(self) -> Iterator[Event]:
        """The tuples of this epoch."""
        began = time.monotonic()
        data, config = self.recipe.data, self.config
        random = self._random(PAIRS)
        pairs = draw_queries(self.training_set, config.queries, data.synthetic_views, data.balance, random)
        shared = config.negatives_from == "step"
        pool_size = 0 if shared else config.pool
        chosen = draw_pool(len(self.training_set.photos), pool_size, self._random(POOL))
        needed = needed_images(pairs, chosen)
        vectors = np.zeros((len(needed), self.network.dim), np.float32)
        mine = list(self.ranks.share(len(needed)))
        stored = self.config.stored_maps
        describe = self.describe if stored else _for_mining(self.network, self.config.parts == "lit", self.device)

        showing = Showing(side=config.least_side)

        def vector(row: int) -> Float32[np.ndarray, " dim"]:
            with torch.inference_mode():
                image = self.inputs(int(needed[row]), showing).unsqueeze(0).to(self.device)
                return pool([describe(image)])[0].cpu().numpy()

        for done, (row, value) in enumerate(zip(mine, in_order(vector, mine, self.workers, one_thread), strict=True)):
            vectors[row] = value
            yield Event("mining", done + 1, len(mine))
        self.ranks.sum([torch.from_numpy(vectors)])
        row_of = {int(image): row for row, image in enumerate(needed)}
        queries = vectors[[row_of[int(image)] for image in pairs[:, 0]]]
        things = self.training_set.things
        if shared:
            self.tuples = pairs[group_alike(queries, things[pairs[:, 0]], config.tuples_per_step)]
        else:
            among = vectors[[row_of[int(image)] for image in chosen]]
            negatives = hardest_negatives(queries, things[pairs[:, 0]], among, things[chosen], config.negatives)
            self.tuples = as_tuples(pairs, chosen, negatives)
        self.totals.zero_()
        self.position.mining_seconds = round(time.monotonic() - began, 3)

    def _epoch_steps(self) -> Iterator[Event]:
        assert self.tuples is not None
        size = self.config.tuples_per_step
        steps = -(-len(self.tuples) // size)
        while self.position.step < steps:
            rate = learning_rate(self.config, self.position.epoch, self.position.step, steps)
            for group in self.optimiser.param_groups:
                group["lr"] = rate * group["share"]
            begin = self.position.step * size
            record = self._step(self.tuples[begin : begin + size])
            self.position.step += 1
            self.position.steps += 1
            self._log(
                {
                    "event": "step",
                    "step": self.position.steps,
                    "epoch": self.position.epoch,
                    "learning_rate": rate,
                    **record,
                }
            )
            if time.monotonic() - self.saved > self.checkpoint_seconds:
                self._save()
            yield Event("step", self.position.step, steps, record)

    def _step(self, tuples: Int64[np.ndarray, "tuples images"]) -> LogFacts:
        """One step of the optimiser: the gradient is the sum over the tuples."""
        began = time.monotonic()
        showings = draw_showings(tuples, self.config, self.position.epoch, self.position.step)
        if self.config.negatives_from == "step":
            things = self.training_set.things[tuples[:, 0]]
            total, measures, reading = self.stepper.shared_negatives(tuples, showings, things, len(self.totals))
        else:
            total, measures, reading = self.stepper.each_alone(tuples, showings, len(self.totals))
        computed = time.monotonic()
        self.ranks.sum([*total, measures])
        exchanged = time.monotonic()
        if not torch.isfinite(measures[:, 0]).all():
            raise SuperfeatError(
                f"the loss is no longer a number in step {self.position.steps + 1}; begin again with a smaller "
                "training.learning_rate"
            )
        for parameter, gradient in zip(self.parameters.values(), total, strict=True):
            parameter.grad = gradient.to(parameter.dtype)
        self.optimiser.step()
        if self.config.average:
            kept = min(self.config.average, (1 + self.position.steps) / (10 + self.position.steps))
            for name, value in self.parameters.items():
                self.average[name].lerp_(value.detach(), 1 - kept)
        self.totals += measures.sum(dim=0)
        seconds = {
            "gradient": computed - began,
            "reading": reading,  # inside the former, summed over the workers
            "exchange": exchanged - computed,
            "update": time.monotonic() - exchanged,
        }
        return {**summary(measures.mean(dim=0)), "seconds": {name: round(value, 4) for name, value in seconds.items()}}

    def _end_epoch(self) -> Event:
        assert self.tuples is not None
        ids = self.totals[len(MEASURES) :]
        record = summary(self.totals / len(self.tuples))
        if len(ids):
            per_id = {"mean": float(ids.mean()), "std": float(ids.std(correction=0)), "min": float(ids.min())}
            record["matches_per_id"] = {name: round(value, 3) for name, value in per_id.items()}
        record["tuples"], record["mining_seconds"] = len(self.tuples), self.position.mining_seconds
        self._log({"event": "epoch", "step": self.position.steps, "epoch": self.position.epoch, **record})
        self.position.epoch += 1
        self.position.step = 0
        self.tuples = None
        self._save()
        return Event("epoch", self.position.epoch, self.config.epochs, record)

    # -- Validation and networks

    def _validate_if_due(self, last: bool = False) -> Iterator[Event]:
        """Before the first epoch, every few epochs, and at the end. The first rank searches, the others wait."""
        epoch, every = self.position.epoch, self.recipe.validation.every
        due = every > 0 and (last or epoch % every == 0) and self.position.validated != epoch
        if self.ranks.first and due and self.validation:
            yield from self._validate()
        if self.ranks.first and (last or due):
            self.folder.save_network(self._snapshot(), "last")
            if not self.validation or every == 0:
                self.folder.save_network(self._snapshot(), "best")
        if due:
            self.position.validated = epoch
            self._save()
        self.ranks.wait()

    def _validate(self) -> Iterator[Event]:
        config = self.recipe.validation
        snapshot = self._snapshot()
        total = sum(len(own_names(test).photos(test)) for test in self.validation)  # queries may be other photos
        total += min(config.codebook_images, len(self.training_set.photos))
        order = np.random.default_rng(self.config.seed).permutation(len(self.training_set.photos))
        photos = [self.training_set.photos[number] for number in order]
        scores: list[Score] = []
        for done in validate(snapshot, self.validation, photos, config, self.folder.path, self.workers, self.device):
            if isinstance(done, Score):
                scores.append(done)
            else:
                yield Event("validating", done, total)
        facts, found = facts_of(self.validation, scores), decisive(scores)
        self._log({"event": "validation", "step": self.position.steps, "epoch": self.position.epoch, **facts})
        if self.position.best is None or found > self.position.best:
            self.position.best, self.position.best_epoch = found, self.position.epoch
            self.folder.save_network(snapshot, "best")
        yield Event("validation", self.position.epoch, self.config.epochs, facts)

    def _snapshot(self) -> Network:
        """The network as it is now: a Network never changes."""
        module = build_module(self.recipe.network)
        averaged = self.average if self.config.average else {}
        module.load_state_dict({**self.network.module.state_dict(), **averaged})
        losses = self.recipe.losses
        provenance = {
            **self.network.provenance,
            "training": f"{self.position.epoch} epochs, {self.position.steps} steps",
            "ratio_test": losses.ratio_test,
            "hinge": losses.hinge,
        }
        return Network(module, self.recipe.network, provenance)

    def _log(self, record: LogLine) -> None:
        if self.ranks.first:
            self.folder.log(record)


def learning_rate(config: TrainingConfig, epoch: int, step: int, steps: int) -> float:
    """Of one step of an epoch of `steps` steps."""
    done = epoch * steps + step
    rising = min(1.0, (done + 1) / config.warm_up) if config.warm_up else 1.0
    if config.schedule == "cosine":
        return rising * config.learning_rate * 0.5 * (1 + math.cos(math.pi * done / (config.epochs * steps)))
    return rising * config.learning_rate * config.decay**epoch


def summary(measures: Tensor) -> LogFacts:
    """Means per tuple, and the share of matches that are with the positive, with and without the ID rule (Figure 3)."""
    values = dict(zip(MEASURES, measures[: len(MEASURES)].tolist(), strict=True))
    for rule in ("", "_any_id"):
        matches, others = values[f"matches{rule}"], values[f"negative_matches{rule}"]
        values[f"match_ratio{rule}"] = matches / (matches + others) if matches + others else 0.0
    return cast(LogFacts, {name: round(value, 6) for name, value in values.items()})


def _below(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _for_mining(network: Network, maps: bool, device: str) -> Describe:
    """The network as it is now, for inference. A new Network, since its fused form is made once."""
    now = Network(network.module, network.config)
    module: Any = now.fast if device == "cpu" else network.module
    if maps:
        assert isinstance(module, Fire)
        return module.describe
    describe: Describe = module
    return describe
