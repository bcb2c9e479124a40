"""Appendix, speed: seconds to extract the features of the same photos, FIRe and HOW taking turns."""

import statistics
import time

from superfeat.figures import Panel, Series
from superfeat.studies.reproduce.outcome import Outcome, published
from superfeat.studies.reproduce.study import Study

TIMED_ROUNDS = 3


def run(study: Study) -> Outcome:
    """Medians of several rounds over the queries, all scales: times depend on the machine, their ratio less."""
    networks = {"HOW": study.train(how=True).network, "FIRe": study.train().network}
    seconds: dict[str, list[float]] = {method: [] for method in networks}
    for turn in range(TIMED_ROUNDS + 1):
        for method, network in networks.items():
            study.on_progress("timing", turn, TIMED_ROUNDS)
            began = time.perf_counter()
            images = sum(1 for _ in study.extract(network, study.size.evaluation.extract))
            seconds[method].append((time.perf_counter() - began) / images)
    medians = {method: statistics.median(values[1:]) for method, values in seconds.items()}  # the first warms up
    paper = published("table-speed")
    theirs = [row[1] / paper["images"] for row in paper["rows"]]
    rows = [[method, value] for method, value in medians.items()]
    ratio = medians["FIRe"] / medians["HOW"]
    series = [
        Series("ours", list(medians), list(medians.values())),
        Series("paper's server", [row[0] for row in paper["rows"]], theirs, paper=True),
    ]
    panel = Panel("Extraction, all scales", "", "seconds per image", series)
    finding = f"FIRe takes {ratio:.2f} times HOW's time (the paper: {theirs[1] / theirs[0]:.2f})"
    return Outcome(["method", "seconds per image"], rows, finding, 0.9 < ratio < 1.5, [panel], bars=True)
