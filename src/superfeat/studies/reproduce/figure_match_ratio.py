"""Figure 3: the share of matches that are with the positive, over training, with and without the same-ID rule.

Measured in one training, as the paper does. We suppose that its curves were made with the released ratio test, which
nearly everything passes; with Lowe's the ID rule has little left to do (docs/training.md), so the released is used.
"""

from superfeat.figures import Panel, Series
from superfeat.studies.reproduce.outcome import Outcome, curves, published
from superfeat.studies.reproduce.study import Study

MATCH_MEASURES = {"with same-ID": "match_ratio", "without same-ID": "match_ratio_any_id"}


def run(study: Study) -> Outcome:
    """Reads the two measures from the log of one training."""
    trained = study.train({"losses.ratio_test": "released", **study.size.match_ratio})
    found = {name: trained.epochs(measure) for name, measure in MATCH_MEASURES.items()}
    epochs = list(range(1, len(found["with same-ID"]) + 1))
    rows = [[epoch, *(values[epoch - 1] for values in found.values())] for epoch in epochs]
    paper = published("figure-match-ratio")
    x_label = f"epoch (of {study.size.epochs_shown})"
    panels = [
        Panel("ours", x_label, paper["y_label"], [Series(name, epochs, values) for name, values in found.items()]),
        Panel("the paper's", "epoch (of 2000 tuples)", paper["y_label"], curves("figure-match-ratio")),
    ]
    last = rows[-1]
    finding = f"after {last[0]} epochs {last[1]:.3f} with the same-ID rule, {last[2]:.3f} without"
    return Outcome(["epoch", *MATCH_MEASURES], rows, finding, last[1] > 1.1 * last[2], panels)
