"""Pretraining: trunk + LIT + a head learn to classify images (Appendix), so that LIT has something to start from.

Nobody has released this step. The paper names the head's layers but not what goes into it; here it is the mean of an
image's super-features.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int64
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F

from superfeat.config import Recipe, as_dict
from superfeat.datasets.training_set import TrainingSet
from superfeat.errors import DatasetError, ImageError
from superfeat.extraction import default_workers
from superfeat.images import Photo, normalise, read_image
from superfeat.losses import attention_correlation
from superfeat.nets.fire import Fire
from superfeat.nets.trunk import Normalisation
from superfeat.threads import in_order
from superfeat.training.inputs import MapInputs, store_maps
from superfeat.training.ranks import Ranks
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


class Head(nn.Sequential):
    """Linear, batch-norm, leaky ReLU, dropout, linear (Appendix)."""

    def __init__(self, dim: int, hidden: int, classes: int, dropout: float) -> None:
        super().__init__(
            nn.Linear(dim, hidden), nn.BatchNorm1d(hidden), nn.LeakyReLU(LEAKY_SLOPE),
            nn.Dropout(dropout), nn.Linear(hidden, classes),
        )  # fmt: skip


class Classifier(nn.Module):
    """Trunk, LIT and head. `frozen` trunks are left out: the input is their maps."""

    def __init__(self, network: Fire, head: Head, frozen: bool) -> None:
        super().__init__()
        self.network, self.head, self.frozen = network, head, frozen

    def forward(self, x: Tensor) -> tuple[Float[Tensor, "batch classes"], Float[Tensor, " batch"]]:
        """Class scores, and the mean correlation of each image's attention maps."""
        local = self.network.describe(x) if self.frozen else self.network(x)
        assert local.maps is not None
        return self.head(local.vectors.mean(dim=1)), attention_correlation(local.maps)


class Crops:
    """Square crops of photos: random ones to learn from, the middle to be judged by."""

    def __init__(self, photos: tuple[Photo, ...], side: int, smallest: float, normalisation: Normalisation) -> None:
        self.photos, self.side, self.smallest, self.normalisation = photos, side, smallest, normalisation

    def __call__(self, number: int, random: np.random.Generator | None) -> Float[Tensor, "3 side side"]:
        photo = self.photos[number]
        try:
            pixels = read_image(photo.path, max_side=int(READ_SIDE * self.side), box=photo.box, draft=True)
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
    recipe, given = fit_recipe(recipe)
    if recipe.network.lit is None:
        raise DatasetError("HOW has no LIT to pretrain; choose a recipe of FIRe")
    if len(np.unique(training_set.things)) < 2:
        raise DatasetError("classification needs two classes or more: one sub-folder of photos for each")
    facts = {
        "pretraining": as_dict(recipe.pretraining),
        "network": as_dict(recipe.network),
        "weights": None if given is None else given.digest,
        "images": len(training_set.photos),
        "classes": len(np.unique(training_set.things)),
    }
    folder = RunFolder(Path(run))
    with folder.writing(facts, resume, Ranks()):
        trainer = Pretrainer(recipe, training_set, given, folder, workers or default_workers(), device)
        trainer.stop, trainer.checkpoint_seconds = stop, checkpoint_seconds
        yield from trainer.run()


class Pretrainer:
    """The state of a pretraining run between two steps."""

    def __init__(
        self, recipe: Recipe, training_set: TrainingSet, given: Network | None, folder: RunFolder, workers: int,
        device: str,
    ) -> None:  # fmt: skip
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
        if (before := folder.load_checkpoint()) is not None:
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
            head = Head(
                self.recipe.network.lit.dim, self.config.hidden, int(self.classes.max()) + 1, self.config.dropout
            )
        self.model = Classifier(module, head, self.frozen).to(self.device)
        named = [(name, value) for name, value in self.model.named_parameters() if value.requires_grad]
        self.parameters = dict(named)
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
        trunk = self.start.fast.trunk  # type: ignore[attr-defined]
        for done in store_maps(self.folder.path / "maps", facts, trunk, read, len(tasks), self.workers):
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
            return self.maps(crop * len(self.split.train) + number, bool(random.random() < 0.5))

        return torch.stack(list(in_order(read, numbers.tolist(), self.workers))).to(self.device)

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

    def _step(self, chosen: Int64[np.ndarray, "batch"]) -> dict[str, float]:
        self.model.train()
        if self.frozen:
            self.model.network.trunk.eval()  # type: ignore[attr-defined]
        x = self._inputs(chosen, self.position.epoch)
        wanted = torch.from_numpy(self.classes[self.split.train[chosen]]).to(self.device)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(_seed(self.config.seed, DROPOUT, self.position.steps))
            scores, correlation = self.model(x)
        loss = F.cross_entropy(scores, wanted) + self.config.decorrelation * correlation.mean()
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        right = (scores.argmax(dim=1) == wanted).float().mean()
        return {
            "loss": round(loss.item(), 6),
            "accuracy": round(right.item(), 4),
            "correlation": round(correlation.mean().item(), 6),
        }

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
    def _accuracy(self) -> dict[str, float]:
        """Top-1 and top-5 in percent on the held-out images (of the training images, if none are held out: 0)."""
        self.model.eval()
        top = np.zeros(2)
        for begin in range(0, len(self.split.test), self.config.batch):
            chosen = np.arange(begin, min(begin + self.config.batch, len(self.split.test)))
            scores, _ = self.model(self._inputs(chosen, None))
            wanted = torch.from_numpy(self.classes[self.split.test[chosen]]).to(self.device)
            best = scores.topk(min(5, scores.shape[1]), dim=1).indices == wanted.unsqueeze(1)
            top += [float(best[:, 0].sum()), float(best.any(dim=1).sum())]
        top1, top5 = 100 * top / max(1, len(self.split.test))
        return {"top1": round(float(top1), 2), "top5": round(float(top5), 2), "held_out": len(self.split.test)}

    def _snapshot(self) -> Network:
        provenance: dict[str, Any] = {**self.start.provenance, "pretraining": f"{self.position.epoch} epochs"}
        return Network(self.model.network, dataclasses.replace(self.start.config, whitened_dim=None), provenance)
