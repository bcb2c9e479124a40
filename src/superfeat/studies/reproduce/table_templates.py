"""Appendix, templates: trained on, or kept as they were after pretraining."""

from superfeat.studies.reproduce.outcome import Outcome, table
from superfeat.studies.reproduce.study import Study


def run(study: Study) -> Outcome:
    """Trains both from the same pretraining."""
    kinds = {"frozen": True, "fine-tuned": False}
    trained = [study.train({"network.lit.frozen_templates": frozen}) for frozen in kinds.values()]
    rows = [[kind, *study.maps(one)] for kind, one in zip(kinds, trained, strict=True)]
    gain = study.gain(*trained)
    finding = f"fine-tuned against frozen: {gain}"
    columns = ["templates", *study.columns]
    return table("table-templates", columns, rows, study.columns, finding, agrees=gain.low <= 0 <= gain.high)
