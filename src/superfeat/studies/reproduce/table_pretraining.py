"""Appendix, pretraining: accuracy of trunk, LIT and head on held-out photos of the classes."""

from superfeat.figures import Panel, Series
from superfeat.studies.reproduce.outcome import Outcome, published
from superfeat.studies.reproduce.study import Study


def run(study: Study) -> Outcome:
    """Reads the log of the pretraining that the plain training began with."""
    log = study.pretraining_log()
    epochs = [record for record in log if record.get("event") == "epoch"]
    rows = [[number, record["top1"], record["top5"]] for number, record in enumerate(epochs, 1)]
    best = max(rows, key=lambda row: float(row[1]))
    first = rows[0]
    paper = published("table-pretraining")["rows"][0]
    epochs_done = [row[0] for row in rows]
    series = [Series(name, epochs_done, [row[place] for row in rows]) for place, name in ((1, "top-1"), (2, "top-5"))]
    panel = Panel("Pretraining", "epoch", "accuracy on held-out photos (%)", series)
    ours = f"top-1 from {first[1]:.1f} to {best[1]:.1f} %, top-5 {best[2]:.1f} %"
    finding = f"{ours}; the paper, on ImageNet, {paper[1]} and {paper[2]}"
    return Outcome(["epoch", "top1", "top5"], rows, finding, best[1] > 2 * first[1], [panel])
