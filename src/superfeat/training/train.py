"""Training: each epoch mines hard negatives, then takes steps over tuples of query, positive and negatives.

Everything random follows from the seed, the epoch and the tuple, and each tuple is one task on one thread. So neither
the number of workers, nor that of processes, nor an interruption changes what is learned (on a CPU).
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from superfeat.config import Recipe
from superfeat.datasets.retrieval_set import RetrievalSet
from superfeat.datasets.training_set import TrainingSet
from superfeat.extraction.extract import default_workers, require_device
from superfeat.settings import as_dict
from superfeat.training.data import one_or_all, require_trainable, validation_sets
from superfeat.training.inputs import torch_threads
from superfeat.training.pretrain import pretrain
from superfeat.training.ranks import join_ranks
from superfeat.training.records import TrainingFacts
from superfeat.training.run import CHECKPOINT_SECONDS, Event, RunFolder
from superfeat.training.start import fit_recipe
from superfeat.training.trainer import Trainer
from superfeat.weights import Network, load_network


def train(
    recipe: Recipe,
    training_set: TrainingSet,
    run: str | Path,
    *,
    validation: RetrievalSet | Sequence[RetrievalSet] | None = None,
    resume: bool = False,
    workers: int | None = None,
    device: str = "cpu",
    stop: Callable[[], bool] = lambda: False,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> Iterator[Event]:
    """Trains into the folder `run`, telling what it does. `stop` is asked after each step: True saves and ends.

    Of several validation sets the mean decides which network is the best: Hard where a set has grades, else mAP.
    Killed at any moment and called again with `resume`, it ends with the same weights, to the bit, on a CPU. Under
    torchrun all processes train one network.
    """
    require_trainable(recipe, training_set)
    require_device(device)
    tests = validation_sets(validation)
    recipe, given = fit_recipe(recipe)
    with join_ranks() as ranks, torch_threads(1):
        folder = RunFolder(Path(run))
        with folder.writing(_facts(recipe, training_set, tests, given), resume, ranks):
            if recipe.pretraining.first and not folder.checkpoint_file.exists():
                if ranks.first:
                    before = folder.path / "pretraining"
                    for event in pretrain(
                        recipe, training_set, before, resume=True, workers=workers, stop=stop, device=device
                    ):
                        yield event if event.stage == "stopped" else event._replace(stage="pretraining")
                        if event.stage == "stopped":
                            return
                ranks.wait()
                given = load_network(folder.path / "pretraining" / "best")
            trainer = Trainer(recipe, training_set, tests, folder, ranks, workers or default_workers(), device)
            trainer.stop, trainer.checkpoint_seconds = stop, checkpoint_seconds
            yield from trainer.begin(given)
            yield from trainer.run()


def _facts(
    recipe: Recipe, training_set: TrainingSet, tests: Sequence[RetrievalSet], given: Network | None
) -> TrainingFacts:
    """What a run must agree on to be resumed."""
    tested = [[test.name, len(test.photos), len(test.queries)] for test in tests]
    return {
        "recipe": as_dict(recipe),
        "weights": None if given is None else given.digest,
        "images": len(training_set.photos),
        "training_set": training_set.digest(),
        "validation": one_or_all(tested),
    }
