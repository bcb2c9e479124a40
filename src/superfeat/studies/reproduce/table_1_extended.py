"""Extended ablation on matching constraints: all eight combinations of reciprocity, ratio test and same ID."""

import itertools
from collections.abc import Iterable

from superfeat.studies.reproduce.outcome import Outcome, table
from superfeat.studies.reproduce.study import Study

RULES = ("reciprocal", "ratio_test", "same_id")
Combination = tuple[bool, bool, bool]


def run(study: Study) -> Outcome:
    """Trains with each combination."""
    return run_combinations(study, "table-1-extended", itertools.product((False, True), repeat=3))  # type: ignore[arg-type]


def run_combinations(study: Study, name: str, combinations: Iterable[Combination]) -> Outcome:
    """The table of these combinations; the last one has all three rules."""
    chosen = list(combinations)
    trained = [study.train({"losses": _losses(combination)}) for combination in chosen]
    rows = [[*combination, *study.maps(one)] for combination, one in zip(chosen, trained, strict=True)]
    gain = study.gain(trained[0], trained[-1])
    finding = f"all three rules against none: {gain}"
    return table(name, [*RULES, *study.columns], rows, study.columns, finding, agrees=gain.low > 0)


def _losses(combination: Combination) -> dict[str, bool | str]:
    reciprocal, ratio_test, same_id = combination
    return {"reciprocal": reciprocal, "ratio_test": "lowe" if ratio_test else "off", "same_id": same_id}
