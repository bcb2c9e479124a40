"""superfeat calibrate: probabilities fitted to the photos of an index, by their owner's labels."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from superfeat.cli.accounts import ENTRIES_SHOWN
from superfeat.cli.completion import INDEX_FOLDER
from superfeat.cli.terminal import Told, json_option, print_result
from superfeat.errors import DatasetError

if TYPE_CHECKING:
    from superfeat.index.index import Index
    from superfeat.probability.fit import Fitted
    from superfeat.probability.honesty import Reliability

PATH = click.Path(path_type=Path)


@click.command()
@click.argument("index_folder", metavar="INDEX", type=INDEX_FOLDER)
@click.argument("labels", metavar="[LABELS.csv]", required=False, type=PATH)
@click.option("--dry-run", is_flag=True, help="Report, and leave INDEX as it is.")
@click.option("--reset", is_flag=True, help="Go back to the calibration that INDEX came with.")
@click.option("--plot", type=PATH, metavar="PICTURE", help="Draw what was said against what was right (.png or .svg).")
@json_option
def calibrate(
    index_folder: Path, labels: Path | None, dry_run: bool, reset: bool, plot: Path | None, as_json: bool
) -> None:
    """Fit the probabilities of INDEX to your own labels: a CSV with the columns image and thing, as for training.

    Without LABELS.csv: to what was said of results, on the web page or by `superfeat label`. No photo is looked at
    again. Photos without a label are left out; a thing with one photo is a stranger to all.
    """
    from superfeat.index.index import Index

    if reset and (labels or dry_run or plot):
        raise click.UsageError("give --reset alone")
    index = Index.open(index_folder)
    result = _reset(index) if reset else _fit(index, labels, dry_run, plot)
    print_result({"index": str(index_folder), **result}, as_json, _report)


def _reset(index: "Index") -> Told:
    from superfeat.probability.stored import reset_calibration, shipped_calibration

    changed = reset_calibration(index)
    return {"reset": changed, "calibrated": shipped_calibration(index) is not None}


def _fit(index: "Index", labels: Path | None, dry_run: bool, plot: Path | None) -> Told:
    from superfeat.probability.fit import predict, reliability_panel
    from superfeat.probability.honesty import reliability
    from superfeat.probability.stored import shipped_calibration, store_calibration

    start = shipped_calibration(index)
    fitted, counts = _fit_answers(index) if labels is None else _fit_labels(index, labels)
    judged = {} if start is None else {"before": reliability(predict(start, fitted.results), fitted.results.labels)}
    judged["after"] = reliability(fitted.said, fitted.results.labels)
    if plot is not None:
        from superfeat.pages.plots import draw_curves

        draw_curves([reliability_panel(f"{index.path.name}, things left out", judged)], plot)
    if not dry_run:
        store_calibration(index, fitted.calibration)
    return {
        **counts,
        "pairs": judged["after"].results,
        "right": judged["after"].right,
        **{name: _plain(judged[name]) if name in judged else None for name in ("before", "after")},
        "calibration": fitted.calibration.to_dict(),
        "written": not dry_run,
    }


def _fit_labels(index: "Index", labels: Path) -> tuple["Fitted", Told]:
    """To a table of photos and things."""
    from superfeat.probability.comparing import compare_index, origin_of
    from superfeat.probability.fit import calibrate
    from superfeat.probability.stored import shipped_calibration

    thing_of, missing = _read(index, labels)
    fitted = calibrate(compare_index(index, thing_of), origin_of(index), start=shipped_calibration(index))
    return fitted, {"labelled": len(thing_of), "things": len(set(thing_of.values())), "missing": missing}


def _fit_answers(index: "Index") -> tuple["Fitted", Told]:
    """To what was said of results."""
    from superfeat.probability.answers import calibrate_answers, read_judged

    fitted, judged = calibrate_answers(index), read_judged(index)
    return fitted, {"yes": judged.yes, "no": judged.no, "things": judged.things, "gone": judged.gone}


def _read(index: "Index", labels: Path) -> tuple[dict[str, str], list[str]]:
    """The thing of each photo of the index that has a label, and the names that the index does not have."""
    from superfeat.datasets.labelled import read_labels

    found: dict[str, str] = {}
    missing = []
    for name, thing in read_labels(labels)[0].items():
        known = next((spelt for spelt in (name, f"{name}.jpg") if spelt in index), None)
        if known is None:
            missing.append(name)
        else:
            found[known] = thing
    if not found:
        raise DatasetError(
            f"{index.path} has none of the {len(missing)} photos that {labels} names, such as {missing[0]}: "
            "names are relative to the folder that was indexed"
        )
    return found, missing


def _plain(judged: "Reliability") -> Told:
    return {
        "brier": judged.brier,
        "error": judged.error,
        "log_loss": judged.log_loss,
        "said": judged.said,
        "bins": [one._asdict() for one in judged.bins],
    }


def _report(result: Told) -> Iterable[str]:
    if "reset" in result:
        there = "the calibration that it came with" if result["calibrated"] else "no calibration, as it came"
        yield f"{result['index']} has {there}" + ("" if result["reset"] else "; there was nothing to go back from")
        return
    what = (
        f"{result['yes']} yes and {result['no']} no to results"
        if "yes" in result
        else f"{result['labelled']} labelled photos"
    )
    yield f"{result['index']}: {what} of {result['things']} things"
    if result.get("missing"):
        shown = ", ".join(result["missing"][:ENTRIES_SHOWN]) + (", …" if len(result["missing"]) > ENTRIES_SHOWN else "")
        yield f"  not in the index: {len(result['missing'])} ({shown})"
    yield f"{result['pairs']} pairs of a search and a result, {result['right']:.1%} right; each thing left out in turn:"
    for name in ("before", "after"):
        if (judged := result[name]) is None:
            yield f"  {name:7} no calibration"
        else:
            errors = f"Brier {judged['brier']:.4f}, expected calibration error {judged['error']:.4f}"
            yield f"  {name:7} {errors}, said {judged['said']:.1%} on average"
    yield "written: searches use it from now on" if result["written"] else "nothing was written (--dry-run)"
