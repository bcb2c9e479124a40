"""Table 1, ablation on matching constraints: five of the eight combinations."""

from superfeat.studies.reproduce.outcome import Outcome
from superfeat.studies.reproduce.study import Study
from superfeat.studies.reproduce.table_1_extended import run_combinations

COMBINATIONS = (
    (False, False, False),
    (True, False, False),
    (True, True, False),
    (False, False, True),
    (True, True, True),
)


def run(study: Study) -> Outcome:
    """Trains with each combination."""
    return run_combinations(study, "table-1", COMBINATIONS)
