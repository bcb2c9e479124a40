"""The loop of training, and all that it keeps between two steps."""

import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32, Int64
from torch import Tensor

from superfeat.config import Recipe
from superfeat.datasets.retrieval_set import RetrievalSet
from superfeat.datasets.training_set import TrainingSet
from superfeat.errors import SuperfeatError
from superfeat.nets.fire import Fire
from superfeat.nets.local import pool
from superfeat.nets.training import for_training
from superfeat.threads import in_order
from superfeat.training.inputs import Inputs, MapInputs, PhotoInputs, one_thread, store_maps
from superfeat.training.mining import as_tuples, draw_pool, hardest_negatives, needed_images
from superfeat.training.objective import MEASURES, Describe, differentiate
from superfeat.training.ranks import Ranks
from superfeat.training.run import (
    CHECKPOINT_SECONDS,
    Event,
    Position,
    RunFolder,
    optimiser_state,
    restore_optimiser,
)
from superfeat.training.start import prepare_start
from superfeat.training.validation import Score, validate
from superfeat.weights import Network, build_module

PAIRS, POOL, FLIPS = range(2, 5)  # what a random generator is for; 1 is the order of photos at the start


class Trainer:
    """The state of a run between two steps: network, optimiser, position, and the epoch's tuples."""

    def __init__(
        self, recipe: Recipe, training_set: TrainingSet, validation: RetrievalSet | None, folder: RunFolder,
        ranks: Ranks, workers: int, device: str,
    ) -> None:  # fmt: skip
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
            self._adopt(prepare_start(self.recipe, given, self.training_set.photos, self.workers))
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
        self.parameters = {name: value for name, value in module.named_parameters() if value.requires_grad}
        self.describe = for_training(module, maps=frozen, precision=self.config.precision)
        self.optimiser = torch.optim.Adam(
            self.parameters.values(), self.config.learning_rate, weight_decay=self.config.weight_decay, foreach=False
        )

    def _restore(self, tensors: Mapping[str, Tensor]) -> None:
        """The optimiser's memory, the epoch's tuples and totals."""
        restore_optimiser(self.optimiser, self.parameters, tensors)
        self.tuples = tensors["tuples"].numpy() if "tuples" in tensors else None
        self.totals = tensors["totals"]

    def _save(self) -> None:
        """A checkpoint of everything, by the first rank."""
        self.saved = time.monotonic()
        if not self.ranks.first:
            return
        tensors = {f"network/{name}": value for name, value in self.network.module.state_dict().items()}
        tensors |= optimiser_state(self.optimiser, self.parameters)
        if self.tuples is not None:
            tensors["tuples"] = torch.from_numpy(self.tuples)
        self.folder.save_checkpoint(self.position, {**tensors, "totals": self.totals})

    def _prepare_inputs(self) -> Iterator[Event]:
        photos = PhotoInputs(self.training_set.photos, self.config.max_side, self.network.normalisation)
        self.inputs: Inputs = photos
        if self.config.parts == "lit":
            if self.ranks.first:
                facts = {"images": len(photos.photos), "max_side": self.config.max_side}
                trunk = self.network.fast.trunk  # type: ignore[attr-defined]
                folder = self.folder.path / "maps"
                for done in store_maps(folder, facts, trunk, photos, len(photos.photos), self.workers):
                    yield Event("maps", done, len(photos.photos))
            self.ranks.wait()
            self.inputs = MapInputs(self.folder.path / "maps")

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
        pairs = self.training_set.draw_pairs(self.config.queries, self._random(PAIRS))
        chosen = draw_pool(len(self.training_set.photos), self.config.pool, self._random(POOL))
        needed = needed_images(pairs, chosen)
        vectors = np.zeros((len(needed), self.recipe.network.whitened_dim or 0), np.float32)
        mine = list(self.ranks.share(len(needed)))
        describe = _for_mining(self.network, self.config.parts == "lit", self.device)

        def vector(row: int) -> Float32[np.ndarray, " dim"]:
            with torch.inference_mode():
                return pool([describe(self.inputs(int(needed[row])).unsqueeze(0).to(self.device))])[0].cpu().numpy()

        for done, (row, value) in enumerate(zip(mine, in_order(vector, mine, self.workers, one_thread), strict=True)):
            vectors[row] = value
            yield Event("mining", done + 1, len(mine))
        self.ranks.sum([torch.from_numpy(vectors)])
        row_of = {int(image): row for row, image in enumerate(needed)}
        queries = vectors[[row_of[int(image)] for image in pairs[:, 0]]]
        among = vectors[[row_of[int(image)] for image in chosen]]
        things = self.training_set.things
        negatives = hardest_negatives(queries, things[pairs[:, 0]], among, things[chosen], self.config.negatives)
        self.tuples = as_tuples(pairs, chosen, negatives)
        self.totals.zero_()
        self.position.mining_seconds = round(time.monotonic() - began, 3)

    def _epoch_steps(self) -> Iterator[Event]:
        assert self.tuples is not None
        size = self.config.tuples_per_step
        steps = -(-len(self.tuples) // size)
        flips = self._random(FLIPS).random(self.tuples.shape) < self.config.flip
        rate = self.config.learning_rate * self.config.decay**self.position.epoch
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        while self.position.step < steps:
            begin = self.position.step * size
            chosen = slice(begin, min(begin + size, len(self.tuples)))
            record = self._step(self.tuples[chosen], flips[chosen])
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

    def _step(self, tuples: Int64[np.ndarray, "tuples images"], flips: np.ndarray) -> dict[str, Any]:
        """One step of the optimiser: the gradient is the sum over the tuples."""
        began = time.monotonic()
        own = self.ranks.share(len(tuples))
        parameters = list(self.parameters.values())
        total = [torch.zeros_like(parameter, dtype=torch.float64) for parameter in parameters]
        measures = torch.zeros(len(tuples), len(self.totals), dtype=torch.float64)
        reading = torch.zeros(len(tuples))

        def work(number: int) -> Any:
            start = time.monotonic()
            images = [
                self.inputs(int(image), bool(flip)) for image, flip in zip(tuples[number], flips[number], strict=True)
            ]
            reading[number] = time.monotonic() - start
            images = [image.to(self.device) for image in images]
            return differentiate(self.describe, images, parameters, self.recipe.losses, self.config.recompute)

        workers = self.workers if self.device == "cpu" else 1
        for number, result in zip(own, in_order(work, own, workers, one_thread), strict=True):
            for sum_, part in zip(total, result.gradient, strict=True):
                sum_ += part
            measures[number] = result.measures
        computed = time.monotonic()
        self.ranks.sum([*total, measures])
        exchanged = time.monotonic()
        if not torch.isfinite(measures[:, 0]).all():
            raise SuperfeatError(
                f"the loss is no longer a number in step {self.position.steps + 1}; begin again with a smaller "
                "training.learning_rate"
            )
        for parameter, gradient in zip(parameters, total, strict=True):
            parameter.grad = gradient.to(parameter.dtype)
        self.optimiser.step()
        self.totals += measures.sum(dim=0)
        seconds = {
            "gradient": computed - began,
            "reading": float(reading.sum()),  # inside the former, summed over the workers
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
        record |= {"tuples": len(self.tuples), "mining_seconds": self.position.mining_seconds}
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
        if self.ranks.first and due and self.validation is not None:
            yield from self._validate(self.validation)
        if self.ranks.first and (last or due):
            self.folder.save_network(self._snapshot(), "last")
            if self.validation is None or every == 0:
                self.folder.save_network(self._snapshot(), "best")
        if due:
            self.position.validated = epoch
            self._save()
        self.ranks.wait()

    def _validate(self, test: RetrievalSet) -> Iterator[Event]:
        config = self.recipe.validation
        snapshot = self._snapshot()
        total = len(test.photos) + min(config.codebook_images, len(self.training_set.photos))
        order = np.random.default_rng(self.config.seed).permutation(len(self.training_set.photos))
        photos = [self.training_set.photos[number] for number in order]
        for done in validate(snapshot, test, photos, config, self.folder.path, self.workers):
            if not isinstance(done, Score):
                yield Event("validating", done, total)
                continue
            facts = {
                "map": round(done.map, 3),
                "queries": done.queries,
                "images": done.images,
                "words_per_image": done.words_per_image,
            }
            self._log({"event": "validation", "step": self.position.steps, "epoch": self.position.epoch, **facts})
            if self.position.best is None or done.map > self.position.best:
                self.position.best, self.position.best_epoch = done.map, self.position.epoch
                self.folder.save_network(snapshot, "best")
            yield Event("validation", self.position.epoch, self.config.epochs, facts)

    def _snapshot(self) -> Network:
        """The network as it is now: a Network never changes."""
        module = build_module(self.recipe.network)
        module.load_state_dict(self.network.module.state_dict())
        losses = self.recipe.losses
        provenance = {
            **self.network.provenance,
            "training": f"{self.position.epoch} epochs, {self.position.steps} steps",
            "ratio_test": losses.ratio_test,
            "hinge": losses.hinge,
        }
        return Network(module, self.recipe.network, provenance)

    def _log(self, record: dict[str, Any]) -> None:
        if self.ranks.first:
            self.folder.log(record)


def summary(measures: Tensor) -> dict[str, Any]:
    """Means per tuple, and the share of matches that are with the positive, with and without the ID rule (Figure 3)."""
    values = dict(zip(MEASURES, measures[: len(MEASURES)].tolist(), strict=True))
    for rule in ("", "_any_id"):
        matches, others = values[f"matches{rule}"], values[f"negative_matches{rule}"]
        values[f"match_ratio{rule}"] = matches / (matches + others) if matches + others else 0.0
    return {name: round(value, 6) for name, value in values.items()}


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
