"""Appendix, "are all super-features trained?": how often each ID is matched in an epoch."""

from superfeat.figures import Panel, Series
from superfeat.studies.reproduce.outcome import Outcome, published
from superfeat.studies.reproduce.study import Study


def run(study: Study) -> Outcome:
    """Reads the counts from the log of the plain training."""
    trained = study.train()
    counts = trained.epochs("matches_per_id")
    tuples = trained.epochs("tuples")
    share = {
        kind: [count[kind] / number for count, number in zip(counts, tuples, strict=True)]
        for kind in ("mean", "std", "min")
    }
    epochs = list(range(1, len(counts) + 1))
    paper = published("figure-ids-trained")
    theirs = paper["series"][0]
    divided = {key: [value / paper["y_divisor"] for value in theirs[key]] for key in ("y", "min")}
    ours = [Series("mean", epochs, share["mean"], error=share["std"]), Series("least matched ID", epochs, share["min"])]
    published_series = [
        Series("mean (paper)", theirs["x"], divided["y"], paper=True),
        Series("least matched ID (paper)", theirs["x"], divided["min"], paper=True),
    ]
    label = "matches per ID and tuple"
    panels = [
        Panel("ours", f"epoch (of {study.size.epochs_shown})", label, ours),
        Panel("the paper's", "epoch (of 2000 tuples)", label, published_series),
    ]
    rows = [[epoch, *(share[kind][epoch - 1] for kind in share)] for epoch in epochs]
    finding = (
        f"in the last epoch an ID is matched in {share['mean'][-1]:.2f} of the tuples on average, the rarest in "
        + (f"{share['min'][-1]:.2f}")
    )
    return Outcome(["epoch", *share], rows, finding, agrees=min(share["min"]) > 0, panels=panels)
