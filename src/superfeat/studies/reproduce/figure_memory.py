"""Figure: mAP against memory, as the number of features kept per image varies, at all scales."""

from collections.abc import Sequence
from typing import Any

from superfeat.figures import Panel, Series
from superfeat.studies.reproduce.outcome import Outcome, curves, published
from superfeat.studies.reproduce.study import Study, map_of


def run(study: Study) -> Outcome:
    """Scores HOW and FIRe with each number of features."""
    return run_counts(study, "figure-memory", study.size.feature_counts, study.size.evaluation.extract.scales)


def run_counts(study: Study, name: str, counts: Sequence[int], scales: Sequence[float]) -> Outcome:
    """The curve of each method over the memory of an image, in words."""
    methods = {"HOW": study.train(how=True), "FIRe": study.train()}
    rows: list[list[Any]] = []
    series = []
    for method, trained in methods.items():
        points = []
        for count in counts:
            changes = {"extract.features_per_image": count, "extract.scales": tuple(scales)}
            scored = study.evaluate(trained, study.analysed, changes)
            grades = scored.scores["grades"]
            judged = [map_of(grades[grade]) for grade in ("medium", "hard", "all") if grade in grades]
            points.append((scored.card["memory"]["words_per_image"], sum(judged) / len(judged)))
            rows.append([method, count, *points[-1]])
        series.append(Series(method, [x for x, _ in points], [y for _, y in points]))
    paper = next(panel for panel in published(name)["panel"] if panel["plotted"])
    panels = [
        Panel(f"ours, {study.analysed.name}", "words per image", "mAP (%)", series),
        Panel(f"the paper's, {paper['name']}", paper["x_label"], paper["y_label"], curves(name, paper)),
    ]
    best = {method: max((row[3], -row[2]) for row in rows if row[0] == method) for method in methods}
    finding = "; ".join(
        f"{method} at best {value:.1f} with {-words:.0f} words" for method, (value, words) in best.items()
    )
    agrees = best["FIRe"][0] > best["HOW"][0]
    return Outcome(["method", "features", "words per image", "mAP"], rows, finding, agrees, panels)
