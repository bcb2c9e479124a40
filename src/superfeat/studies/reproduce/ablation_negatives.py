"""Appendix, the number of hard negatives per tuple."""

from superfeat.studies.reproduce.ablation_n import run_values
from superfeat.studies.reproduce.outcome import Outcome
from superfeat.studies.reproduce.study import Study


def run(study: Study) -> Outcome:
    """Trains with each number, from the same pretraining."""
    counts = study.size.negatives
    changes = [{"training.negatives": count} for count in counts]
    usual = study.size.recipe.training.negatives
    return run_values(study, "ablation-negatives", counts, changes, lambda best: best > usual)
