"""All tables and figures of the paper, by name: those that can be measured, and why the others cannot."""

import importlib
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from superfeat.errors import SuperfeatError
from superfeat.settings import nearest_name
from superfeat.studies.reproduce.outcome import Outcome, published
from superfeat.studies.reproduce.study import Study

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
NOT_MEASURED = {
    "table-local": "the paper gives no numbers, and HOW has no super-features to give the loss to",
    "table-gldv2": "a list of landmarks that GLDv2-clean shares with the tests; there is nothing to measure",
    "table-localization": "needs Aachen Day-Night and a localization pipeline",
}


class Reproduced(NamedTuple):
    """A table or figure, measured: what came out, what the paper says, and how long it took."""

    name: str
    outcome: Outcome
    paper: dict[str, Any]
    seconds: float


def choose(names: Sequence[str]) -> list[str]:
    """The names given; `all` is every one that can be measured. SuperfeatError for one that is not known."""
    chosen = [known for name in names for known in (NAMES if name == "all" else (name,))]
    for name in chosen:
        if name in NOT_MEASURED:
            raise SuperfeatError(f"{name} cannot be reproduced: {NOT_MEASURED[name]}")
        if name not in NAMES:
            raise SuperfeatError(f"the paper has no '{name}' here; {nearest_name(name, (*NAMES, 'all'))}")
    return list(dict.fromkeys(chosen))


def reproduce(name: str, study: Study) -> Reproduced:
    """Measures one table or figure."""
    module = importlib.import_module(f"superfeat.studies.reproduce.{name.replace('-', '_')}")
    began = time.monotonic()
    outcome: Outcome = module.run(study)
    return Reproduced(name, outcome, published(name), time.monotonic() - began)
