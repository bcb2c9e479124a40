"""Pretraining: trunk + LIT + a head learn to classify images (Appendix), so that LIT has something to start from.

Nobody has released this step. The paper names the head's layers but not what goes into it; here it is the mean of an
image's super-features.
"""

import copy
import dataclasses
import math
import queue
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int64
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F

from superfeat.config import Recipe
from superfeat.datasets.training_set import TrainingSet
from superfeat.errors import DatasetError, ImageError
from superfeat.extraction.extract import default_workers, require_device
from superfeat.images import Photo, normalise, read_image
from superfeat.nets.fire import Fire
from superfeat.nets.losses import attention_correlation
from superfeat.nets.trunk import Normalisation
from superfeat.settings import as_dict
from superfeat.threads import in_order
from superfeat.training.inputs import MapInputs, Showing, one_thread, store_maps, torch_threads
from superfeat.training.ranks import Ranks
from superfeat.training.records import LogFacts, PretrainingFacts
from superfeat.training.run import (
    CHECKPOINT_SECONDS,
    Event,
    Position,
    RunFolder,
    optimiser_state,
    restore_optimiser,
)
from superfeat.training.start import build_start, fit_recipe
from superfeat.weights import Network

LEAKY_SLOPE = 0.01
CROP_ASPECT = (3 / 4, 4 / 3)  # width by height
READ_SIDE = 2.0  # photos are decoded at this multiple of the crop's side
ORDER, CROPS, DROPOUT, HELD = range(10, 14)  # what a random generator is for


class Head(nn.Module):
    """Linear, batch-norm, leaky ReLU, dropout, linear (Appendix). Dropout's mask is given: it can be repeated."""

    def __init__(self, dim: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.hidden, self.norm, self.output = nn.Linear(dim, hidden), nn.BatchNorm1d(hidden), nn.Linear(hidden, classes)

    def forward(
        self, x: Float[Tensor, "batch dim"], mask: Float[Tensor, "batch hidden"] | None = None
    ) -> Float[Tensor, "batch classes"]:
        inside = F.leaky_relu(self.norm(self.hidden(x)), LEAKY_SLOPE)
        scores: Tensor = self.output(inside if mask is None else inside * mask)
        return scores


class Classifier(nn.Module):
    """Trunk, LIT and head. `frozen` trunks are left out: the input is their maps."""

    def __init__(self, network: Fire, head: Head, frozen: bool) -> None:
        super().__init__()
        self.network, self.head, self.frozen = network, head, frozen

    def forward(
        self, x: Tensor, mask: Float[Tensor, "batch hidden"] | None = None
    ) -> tuple[Float[Tensor, "batch classes"], Float[Tensor, " batch"]]:
        """Class scores, and the mean correlation of each image's attention maps."""
        local = self.network.describe(x) if self.frozen else self.network(x)
        assert local.maps is not None
        return self.head(local.vectors.mean(dim=1), mask), attention_correlation(local.maps)

    def replica(self) -> "Classifier":
        """The same parameters with statistics of its own, for a thread of its own."""
        twin = copy.deepcopy(self)
        for own, original in zip(twin.modules(), self.modules(), strict=True):
            own._parameters = original._parameters
        twin.train()
        if self.frozen:
            twin.network.trunk.eval()  # type: ignore[attr-defined]
        return twin


class Crops:
    """Square crops of photos: random ones to learn from, the middle to be judged by."""

    def __init__(self, photos: tuple[Photo, ...], side: int, smallest: float, normalisation: Normalisation) -> None:
        self.photos, self.side, self.smallest, self.normalisation = photos, side, smallest, normalisation

    def __call__(self, number: int, random: np.random.Generator | None) -> Float[Tensor, "3 side side"]:
        photo = self.photos[number]
        try:
            pixels = read_image(photo.where, max_side=int(READ_SIDE * self.side), box=photo.box, draft=True)
        except ImageError as error:
            raise DatasetError(
                f"{photo.name} cannot be read ({error}): repair it and go on, or leave it out"
            ) from error
        height, width = pixels.shape[:2]
        box = _middle(width, height) if random is None else _crop(width, height, self.smallest, random)
        image = Image.fromarray(pixels).resize((self.side, self.side), Image.Resampling.BILINEAR, box)
        flip = random is not None and random.random() < 0.5
        cut = np.asarray(image)
        return torch.from_numpy(normalise(cut[:, ::-1] if flip else cut, *self.normalisation))


def _middle(width: int, height: int) -> tuple[float, float, float, float]:
    side = min(width, height)
    left, upper = (width - side) / 2, (height - side) / 2
    return left, upper, left + side, upper + side


def _crop(width: int, height: int, smallest: float, random: np.random.Generator) -> tuple[float, float, float, float]:
    """A random part of the photo, of random area and proportions, inside it."""
    area = random.uniform(smallest, 1) * width * height
    aspect = math.exp(random.uniform(math.log(CROP_ASPECT[0]), math.log(CROP_ASPECT[1])))
    across, down = min(width, math.sqrt(area * aspect)), min(height, math.sqrt(area / aspect))
    left, upper = random.uniform(0, width - across), random.uniform(0, height - down)
    return left, upper, left + across, upper + down


def _seed(*numbers: int) -> int:
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> 1)


class Split(NamedTuple):
    """Numbers of the images that train and of those that are held out to measure accuracy."""

    train: Int64[np.ndarray, "train"]
    test: Int64[np.ndarray, "test"]


def split_images(classes: Int64[np.ndarray, "images"], share: float, seed: int) -> Split:
    """Holds out a share of each class's images, but never all of them."""
    random = np.random.default_rng((seed, HELD))
    test = []
    for number in np.unique(classes):
        members = random.permutation(np.flatnonzero(classes == number))
        test.append(members[: min(round(share * len(members)), len(members) - 1)])
    held = np.sort(np.concatenate(test))
    return Split(np.setdiff1d(np.arange(len(classes)), held), held)


def pretrain(
    recipe: Recipe,
    training_set: TrainingSet,
    run: str | Path,
    *,
    resume: bool = False,
    workers: int | None = None,
    device: str = "cpu",
    stop: Callable[[], bool] = lambda: False,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> Iterator[Event]:
    """Trains into the folder `run`; its `best` and `last` are networks without a whitening, to begin training with."""
    require_device(device)
    recipe, given = fit_recipe(recipe)
    if recipe.network.lit is None:
        raise DatasetError("HOW has no LIT to pretrain; choose a recipe of FIRe")
    if len(np.unique(training_set.things)) < 2:
        raise DatasetError("classification needs two classes or more: one sub-folder of photos for each")
    facts: PretrainingFacts = {
        "pretraining": as_dict(recipe.pretraining),
        "network": as_dict(recipe.network),
        "weights": None if given is None else given.digest,
        "training_set": training_set.digest(),
        "images": len(training_set.photos),
        "classes": len(np.unique(training_set.things)),
    }
    folder = RunFolder(Path(run))
    workers = workers or default_workers()
    with folder.writing(facts, resume, Ranks()), torch_threads(1):
        trainer = Pretrainer(recipe, training_set, given, folder, workers, device)
        trainer.stop, trainer.checkpoint_seconds = stop, checkpoint_seconds
        yield from trainer.run()


class Pretrainer:
    """The state of a pretraining run between two steps."""

    def __init__(
        self,
        recipe: Recipe,
        training_set: TrainingSet,
        given: Network | None,
        folder: RunFolder,
        workers: int,
        device: str,
    ) -> None:
        self.recipe, self.config, self.folder = recipe, recipe.pretraining, folder
        self.workers, self.device = workers, device
        self.stop: Callable[[], bool] = lambda: False
        self.checkpoint_seconds, self.saved = CHECKPOINT_SECONDS, time.monotonic()
        _, self.classes = np.unique(training_set.things, return_inverse=True)
        self.split = split_images(self.classes, self.config.hold_out, self.config.seed)
        self.start = build_start(recipe, given)
        self.frozen = self.config.parts == "lit"
        self.crops = Crops(training_set.photos, self.config.side, self.config.smallest_crop, self.start.normalisation)
        self._build()
        self.position = Position()
        before = folder.load_checkpoint()
        folder.cut_log(0 if before is None else before[0].log_bytes)
        if before is not None:
            self.position, tensors = before
            self._restore(tensors)

    def _build(self) -> None:
        module = self.start.module
        assert isinstance(module, Fire)
        module.whitening = None
        module.trunk.requires_grad_(not self.frozen)  # type: ignore[attr-defined]
        assert self.recipe.network.lit is not None
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.config.seed)
            head = Head(self.recipe.network.lit.dim, self.config.hidden, int(self.classes.max()) + 1)
        self.model = Classifier(module, head, self.frozen).to(self.device)
        self.threads = self.workers if self.device == "cpu" else 1
        self.twins: queue.SimpleQueue[Classifier] = queue.SimpleQueue()
        for _ in range(self.threads):
            self.twins.put(self.model.replica())
        self.parameters = {name: value for name, value in self.model.named_parameters() if value.requires_grad}
        values, config = list(self.parameters.values()), self.config
        self.optimiser: torch.optim.Optimizer = (
            torch.optim.Adam(values, config.learning_rate, weight_decay=config.weight_decay, foreach=False)
            if config.optimiser == "adam"
            else torch.optim.SGD(
                values, config.learning_rate, config.momentum, weight_decay=config.weight_decay, foreach=False
            )
        )

    def _restore(self, tensors: Mapping[str, Tensor]) -> None:
        self.model.load_state_dict(
            {name.removeprefix("model/"): value for name, value in tensors.items() if name.startswith("model/")}
        )
        restore_optimiser(self.optimiser, self.parameters, tensors)

    def _save(self) -> None:
        self.saved = time.monotonic()
        tensors = {f"model/{name}": value for name, value in self.model.state_dict().items()}
        tensors |= optimiser_state(self.optimiser, self.parameters)
        self.folder.save_checkpoint(self.position, tensors)

    # -- The loop

    def run(self) -> Iterator[Event]:
        """Epochs from where the run is to its end."""
        if self.frozen:
            yield from self._store_maps()
        while self.position.epoch < self.config.epochs:
            for event in self._epoch():
                yield event
                if self.stop():
                    self._save()
                    yield Event("stopped", self.position.epoch, self.config.epochs)
                    return
            yield self._end_epoch()
        yield Event("end", self.config.epochs, self.config.epochs, {"best": self.position.best})

    def _store_maps(self) -> Iterator[Event]:
        """The trunk's maps of `crops` random crops of each training image, and of the middle of each held-out one."""
        tasks = [(int(image), crop) for crop in range(self.config.crops) for image in self.split.train]
        tasks += [(int(image), None) for image in self.split.test]  # type: ignore[misc]

        def read(number: int) -> Tensor:
            image, crop = tasks[number]
            random = None if crop is None else np.random.default_rng((self.config.seed, CROPS, crop, image))
            return self.crops(image, random)

        facts = {"side": self.config.side, "crops": self.config.crops, "seed": self.config.seed, "tasks": len(tasks)}
        trunk = self.start.on(self.device).trunk  # type: ignore[attr-defined]
        folder = self.folder.path / "maps"
        for done in store_maps(folder, facts, trunk, read, len(tasks), self.threads, self.device):
            yield Event("maps", done, len(tasks))
        self.maps = MapInputs(self.folder.path / "maps")

    def _inputs(self, numbers: Int64[np.ndarray, "batch"], epoch: int | None) -> Tensor:
        """A batch of training images (numbers into the split) with this epoch's crops, or of held-out ones."""
        images = self.split.test if epoch is None else self.split.train

        def read(number: int) -> Tensor:
            image = int(images[number])
            random = None if epoch is None else np.random.default_rng((self.config.seed, CROPS, epoch, image))
            if not self.frozen:
                return self.crops(image, random)
            if random is None:
                return self.maps(self.config.crops * len(self.split.train) + number)
            crop = int(random.integers(self.config.crops))
            return self.maps(crop * len(self.split.train) + number, Showing(flip=bool(random.random() < 0.5)))

        return torch.stack([read(number) for number in numbers.tolist()]).to(self.device)

    def _epoch(self) -> Iterator[Event]:
        config, epoch = self.config, self.position.epoch
        order = np.random.default_rng((config.seed, ORDER, epoch)).permutation(len(self.split.train))
        steps = max(1, len(order) // config.batch)  # the last images of an epoch wait for the next: no tiny batch
        for group in self.optimiser.param_groups:
            group["lr"] = config.learning_rate / 10 ** (epoch // config.step_epochs)
        while self.position.step < steps:
            chosen = order[self.position.step * config.batch :][: config.batch]
            record = self._step(chosen)
            self.position.step += 1
            self.position.steps += 1
            self.folder.log({"event": "step", "step": self.position.steps, "epoch": epoch, **record})
            if time.monotonic() - self.saved > self.checkpoint_seconds:
                self._save()
            yield Event("step", self.position.step, steps, record)

    def _step(self, chosen: Int64[np.ndarray, "batch"]) -> LogFacts:
        """One step: the batch in chunks, each one task on one thread, so that the result depends on no number of them.

        A chunk is normalised by its own statistics, as on several GPUs; the running ones take the mean over the chunks.
        """
        chunks = np.array_split(chosen, max(1, len(chosen) // self.config.chunk))
        parameters = list(self.parameters.values())
        total = [torch.zeros_like(parameter, dtype=torch.float64) for parameter in parameters]
        statistics: list[list[Tensor]] = []
        measures = torch.zeros(3, dtype=torch.float64)

        def work(number: int) -> tuple[tuple[Tensor, ...], Tensor, list[Tensor]]:
            twin = self.twins.get()
            for own, now in zip(twin.buffers(), self.model.buffers(), strict=True):
                own.copy_(now)
            result = (
                *self._differentiate(twin, chunks[number], number, len(chosen)),
                [own.clone() for own in twin.buffers()],
            )
            self.twins.put(twin)
            return result

        for gradient, found, buffers in in_order(work, range(len(chunks)), self.threads, one_thread):
            for sum_, part in zip(total, gradient, strict=True):
                sum_ += part
            statistics.append(buffers)
            measures += found
        for buffer, *values in zip(self.model.buffers(), *statistics, strict=True):
            buffer.copy_(torch.stack(values).double().mean(dim=0))
        for parameter, gradient_ in zip(parameters, total, strict=True):
            parameter.grad = gradient_.to(parameter.dtype)
        self.optimiser.step()
        loss, accuracy, correlation = (round(value, 6) for value in measures.tolist())
        return {"loss": loss, "accuracy": accuracy, "correlation": correlation}

    def _differentiate(
        self, model: Classifier, chosen: Int64[np.ndarray, "chunk"], number: int, batch: int
    ) -> tuple[tuple[Tensor, ...], Tensor]:
        """The gradient of one chunk's part of the loss, and its part of loss, accuracy and correlation."""
        x = self._inputs(chosen, self.position.epoch)
        wanted = torch.from_numpy(self.classes[self.split.train[chosen]]).to(self.device)
        random = torch.Generator().manual_seed(_seed(self.config.seed, DROPOUT, self.position.steps, number))
        kept = torch.rand(len(chosen), self.config.hidden, generator=random) >= self.config.dropout
        scores, correlation = model(x, (kept / (1 - self.config.dropout)).to(self.device))
        loss = F.cross_entropy(scores, wanted, reduction="sum") / batch
        loss = loss + self.config.decorrelation * correlation.sum() / batch
        right = (scores.argmax(dim=1) == wanted).sum() / batch
        measures = torch.tensor([loss.item(), right.item(), correlation.sum().item() / batch], dtype=torch.float64)
        return torch.autograd.grad(loss, list(self.parameters.values())), measures

    def _end_epoch(self) -> Event:
        facts = self._accuracy()
        self.folder.log({"event": "epoch", "step": self.position.steps, "epoch": self.position.epoch, **facts})
        self.position.epoch += 1
        self.position.step = 0
        top = facts["top1"]
        if self.position.best is None or top >= self.position.best:
            self.position.best, self.position.best_epoch = top, self.position.epoch
            self.folder.save_network(self._snapshot(), "best")
        self.folder.save_network(self._snapshot(), "last")
        self._save()
        return Event("epoch", self.position.epoch, self.config.epochs, facts)

    @torch.no_grad()
    def _accuracy(self) -> LogFacts:
        """Top-1 and top-5 in percent on the held-out images (of the training images, if none are held out: 0)."""
        self.model.eval()
        top = np.zeros(2)
        for begin in range(0, len(self.split.test), self.config.chunk):
            chosen = np.arange(begin, min(begin + self.config.chunk, len(self.split.test)))
            scores, _ = self.model(self._inputs(chosen, None))
            wanted = torch.from_numpy(self.classes[self.split.test[chosen]]).to(self.device)
            best = scores.topk(min(5, scores.shape[1]), dim=1).indices == wanted.unsqueeze(1)
            top += [float(best[:, 0].sum()), float(best.any(dim=1).sum())]
        top1, top5 = 100 * top / max(1, len(self.split.test))
        return {"top1": round(float(top1), 2), "top5": round(float(top5), 2), "held_out": len(self.split.test)}

    def _snapshot(self) -> Network:
        provenance = {**self.start.provenance, "pretraining": f"{self.position.epoch} epochs"}
        return Network(self.model.network, dataclasses.replace(self.start.config, whitened_dim=None), provenance)
