"""Appendix, the number of LIT's rounds T."""

from superfeat.studies.reproduce.ablation_n import run_values
from superfeat.studies.reproduce.outcome import Outcome
from superfeat.studies.reproduce.study import Study

ENOUGH = 4  # the paper's best are 6 and 9; one to three rounds are worse


def run(study: Study) -> Outcome:
    """Pretrains and trains with each T."""
    rounds = study.size.rounds
    changes = [{"network.lit.rounds": count} for count in rounds]
    return run_values(study, "ablation-t", rounds, changes, lambda best: best >= ENOUGH)
