"""Appendix: mAP against memory with a single scale."""

from superfeat.studies.reproduce.figure_memory import run_counts
from superfeat.studies.reproduce.outcome import Outcome
from superfeat.studies.reproduce.study import Study


def run(study: Study) -> Outcome:
    """Scores HOW and FIRe with each number of features at scale 1."""
    return run_counts(study, "figure-single-scale", study.size.single_counts, (1.0,))
