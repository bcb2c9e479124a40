"""Appendix, the number of super-features N."""

from collections.abc import Callable, Sequence

from superfeat.figures import Panel, Series
from superfeat.settings import Changes
from superfeat.studies.reproduce.outcome import Outcome, curves, published
from superfeat.studies.reproduce.study import Study


def run(study: Study) -> Outcome:
    """Pretrains and trains with each N."""
    sizes = study.size.templates
    changes = [{"network.lit.templates": size} for size in sizes]
    return run_values(study, "ablation-n", sizes, changes, lambda best: best not in (sizes[0], sizes[-1]), log=True)


def run_values(
    study: Study,
    name: str,
    values: Sequence[int],
    changes: Sequence[Changes],
    as_paper: Callable[[int], bool],
    log: bool = False,
) -> Outcome:
    """mAP over the values of one setting; `as_paper` tells whether a best value is where the paper's is."""
    paper = published(name)
    rows = [[value, *study.maps(study.train(change))] for value, change in zip(values, changes, strict=True)]
    ours = [
        Series(column, list(values), [row[1 + number] for row in rows]) for number, column in enumerate(study.columns)
    ]
    panels = [
        Panel(f"{paper['title']}: ours", paper["x_label"], paper["y_label"], ours, log_x=log),
        Panel(f"{paper['title']}: the paper's", paper["x_label"], paper["y_label"], curves(name), log_x=log),
    ]
    best = max(rows, key=lambda row: float(row[1]))
    finding = f"best at {best[0]} ({study.columns[0]} {best[1]:.1f}), " + ", ".join(
        f"{row[0]}: {row[1]:.1f}" for row in rows
    )
    return Outcome([paper["x_label"], *study.columns], rows, finding, as_paper(int(best[0])), panels)
