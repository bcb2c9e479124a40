"""All tables and figures of the paper, by name: those that can be measured, and why the others cannot."""

import importlib
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import NamedTuple

from superfeat.errors import SuperfeatError
from superfeat.settings import nearest_name
from superfeat.studies.reproduce.outcome import Outcome, Paper, published
from superfeat.studies.reproduce.sizes import read_size
from superfeat.studies.reproduce.study import OnProgress, Study
from superfeat.work import Work

NAMES = (
    "table-1",
    "table-1-extended",
    "table-2",
    "table-sota",
    "figure-match-ratio",
    "figure-correlation",
    "figure-memory",
    "figure-scales",
    "figure-single-scale",
    "figure-attention",
    "figure-attention-scales",
    "figure-redundancy",
    "figure-ids-trained",
    "ablation-n",
    "ablation-t",
    "ablation-negatives",
    "table-update",
    "table-templates",
    "table-speed",
    "table-pretraining",
)
BY_NAME = ("table-localization",)  # needs scenes with poses, so `all` does not measure it
NOT_MEASURED = {
    "table-local": "the paper gives no numbers, and HOW has no super-features to give the loss to",
    "table-gldv2": "a list of landmarks that GLDv2-clean shares with the tests; there is nothing to measure",
}


class Reproduced(NamedTuple):
    """A table or figure, measured: what came out, what the paper says, and how long it took."""

    name: str
    outcome: Outcome
    paper: Paper
    seconds: float


class Failed(NamedTuple):
    """A table or figure that could not be measured, and why."""

    name: str
    error: SuperfeatError


def reproduce(
    names: str | Sequence[str],
    work: str | Path,
    *,
    size: str = "mini",
    images: str | Path | None = None,
    imagenet: str | Path | None = None,
    weights: str | Path | None = None,
    workers: int | None = None,
    device: str = "cpu",
    on_progress: OnProgress = lambda what, done, total: None,
) -> Work[Reproduced | Failed, list[Reproduced]]:
    """Measures tables and figures of the paper again, by their names (or "all"); passes on each as it is done.

    Photos, networks and scores are kept in the folder `work`, and what is there is used again. `size` "mini" takes
    minutes on drawn landmarks, or on `images`, a folder with one sub-folder per thing; "paper" is the real recipe, with
    `images` the benchmarks' folder and `imagenet` the photos to pretrain variants of LIT on. `weights` is a pretrained
    network to begin with. What fails does not keep the others from being measured; the result are those that did not
    (superfeat.pages.reproduction writes them). `on_progress` is told what is going on, and how much of it is done.
    """
    chosen = choose([names] if isinstance(names, str) else names)
    settings = read_size(size)
    if images is None and set(chosen) & set(BY_NAME):
        raise SuperfeatError(
            f"{BY_NAME[0]} needs aachen-v1.1 or scenes with poses; give their folder", arguments=["images"]
        )

    def steps() -> Generator[Reproduced | Failed, None, list[Reproduced]]:
        study = Study(
            settings,
            Path(work),
            images=None if images is None else Path(images),
            imagenet=None if imagenet is None else Path(imagenet),
            weights=None if weights is None else str(weights),
            workers=workers,
            device=device,
            on_progress=on_progress,
        )
        made = []
        for name in chosen:
            try:
                made.append(measure(name, study))
            except SuperfeatError as error:
                yield Failed(name, error)
            else:
                yield made[-1]
        return made

    return Work(steps())


def choose(names: Sequence[str]) -> list[str]:
    """The names given; `all` is every one that needs nothing more. SuperfeatError for one that is not known."""
    chosen = [known for name in names for known in (NAMES if name == "all" else (name,))]
    for name in chosen:
        if name in NOT_MEASURED:
            raise SuperfeatError(f"{name} cannot be reproduced: {NOT_MEASURED[name]}")
        if name not in (*NAMES, *BY_NAME):
            raise SuperfeatError(f"the paper has no '{name}' here; {nearest_name(name, (*NAMES, *BY_NAME, 'all'))}")
    return list(dict.fromkeys(chosen))


def measure(name: str, study: Study) -> Reproduced:
    """Measures one table or figure."""
    module = importlib.import_module(f"superfeat.studies.reproduce.{name.replace('-', '_')}")
    began = time.monotonic()
    outcome: Outcome = module.run(study)
    return Reproduced(name, outcome, published(name), time.monotonic() - began)
