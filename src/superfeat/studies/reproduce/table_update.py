"""Appendix, update function: LIT's residual update against a GRU, at three rounds."""

from superfeat.studies.reproduce.outcome import Outcome, table
from superfeat.studies.reproduce.study import Study

LIT_ROUNDS = 3


def run(study: Study) -> Outcome:
    """Pretrains and trains both."""
    updates = ("residual", "gru")
    trained = [study.train({"network.lit": {"update": update, "rounds": LIT_ROUNDS}}) for update in updates]
    rows = [[update, *study.maps(one)] for update, one in zip(updates, trained, strict=True)]
    gain = study.gain(trained[1], trained[0])
    finding = f"residual against GRU: {gain}"
    return table("table-update", ["update", *study.columns], rows, study.columns, finding, agrees=gain.low > 0)
