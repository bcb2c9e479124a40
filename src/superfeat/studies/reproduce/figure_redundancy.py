"""Appendix: how alike the features of one image are, HOW against FIRe."""

import math

from superfeat.figures import Panel, Series
from superfeat.settings import overlay
from superfeat.studies.analyses import every_feature, redundancy
from superfeat.studies.reproduce.outcome import Outcome, curves, published
from superfeat.studies.reproduce.study import Study


def run(study: Study) -> Outcome:
    """The mean cosine of a feature to its K nearest in the same image, at scale 1, over the queries."""
    counts = study.size.neighbours
    config = overlay(every_feature(study.size.evaluation.extract), {"scales": (1.0,)})
    found = {}
    for method, trained in (("HOW", study.train(how=True)), ("FIRe", study.train())):
        study.on_progress(f"redundancy of {method}", 0, 1)
        features = study.extract(trained.network, config)
        found[method] = redundancy(features, counts).tolist()
    rows = [[count, *(values[number] for values in found.values())] for number, count in enumerate(counts)]
    paper = published("figure-redundancy")
    ours = [Series(method, list(counts), values) for method, values in found.items()]
    panels = [
        Panel("ours", "K", paper["y_label"], ours, log_x=True),
        Panel("the paper's", "K", paper["y_label"], curves("figure-redundancy"), log_x=True),
    ]
    both = [row for row in rows if not any(math.isnan(value) for value in row)]
    shown = both if len(both) < 3 else [both[0], both[-1]]
    finding = "; ".join(f"K = {row[0]}: HOW {row[1]:.2f}, FIRe {row[2]:.2f}" for row in shown)
    agrees = bool(both) and all(row[2] < row[1] for row in both)
    return Outcome(["K", *found], rows, finding or "no image has so many features", agrees, panels)
