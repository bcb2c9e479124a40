"""How honest the probabilities are: fits a calibration to validation sets, judges it by things and sets it never saw.

Each query searches collections of 10 images up to the whole set, with none, some or all of its matches in them, as an
indexed photo (one word per feature) and as a new one (five). Judged are the first 20 results. Intervals are over
things. Features that are not in FOLDER are extracted into it with the profile `fast`; it can be stopped and goes on.

    python -m benchmarks.calibration --weights NETWORK --codebook CODEBOOK --data ../shared/data --features FOLDER \
        --json benchmarks/results/calibration.json --write calibration.json
"""

import argparse
import dataclasses
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from superfeat.config import EvaluateConfig, ExtractConfig
from superfeat.datasets.benchmarks import read_benchmark
from superfeat.datasets.retrieval_set import Query, RetrievalSet, with_positives
from superfeat.drawn import draw_folder
from superfeat.evaluation.stages import extract_set
from superfeat.extraction.folder import FeatureStore
from superfeat.index.codebook import Codebook
from superfeat.pages.plots import draw_curves
from superfeat.probability.comparing import Comparisons, Labelled, compare_sets, index_sets
from superfeat.probability.fit import (
    Fitted,
    Results,
    bootstrap_intervals,
    calibrate,
    choose_results,
    predict,
    reliability_panel,
    whole_results,
)
from superfeat.probability.honesty import Reliability, reliability
from superfeat.probability.model import Calibration, Origin
from superfeat.settings import overlay, parse_assignment

DRAWN = "drawn"
# What a calibration that we ship may be fitted to: photos whose licence says so, and what we drew ourselves.
FIT = ("val_landmarks:photos/gldv2_u33/", DRAWN)
TEST = ("ukbench50_val", "rparis6k_mini", "terrassa12", "museum_qs")
THINGS, VIEWS, SIDE, SEED = 60, 4, 480, 7  # of drawn landmarks; none of them is trained on
PICTURE = Path("docs/pictures/calibration.png")


class Judged(NamedTuple):
    """How honest probabilities were, with the 95 % intervals over things."""

    things: int
    reliability: Reliability
    error_interval: tuple[float, float]
    brier_interval: tuple[float, float]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", help="the network; not needed where there are features of all sets")
    parser.add_argument("--codebook", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True, help="the folder with gnd/SET.json and the photos")
    parser.add_argument("--features", type=Path, required=True, help="a features folder for each set, by its name")
    parser.add_argument("--fit", nargs="+", default=FIT, help="SET, or SET:PREFIX for a part of its photos")
    parser.add_argument("--test", nargs="*", default=TEST, help="sets to judge by, never fitted to")
    parser.add_argument("--set", action="append", default=[], help="of the extraction, e.g. max_side=320")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--write", type=Path, help="where to write the calibration")
    parser.add_argument("--plot", type=Path, default=PICTURE, help="the picture [default: %(default)s]")
    args = parser.parse_args(arguments)
    codebook = Codebook.open(args.codebook)
    labelled = [read_set(source, args) for source in args.fit]
    comparisons = compare(codebook, labelled)
    fitted = calibrate(comparisons, origin_of(codebook, labelled))
    found = judge_fitted(fitted, comparisons, [one.test.name for one in labelled])
    show(found)
    for source in args.test:
        one = read_set(source, args)
        part = judge_test(compare(codebook, [one]), fitted.calibration, one.test.name)
        show(part)
        found |= part
    write(args, fitted.calibration, found)


# -- Sets and their features


def read_set(source: str, args: argparse.Namespace) -> Labelled:
    """A set, or a folder with a folder of photos for each thing, and its features, extracted as far as they are not
    there.
    """
    name, _, prefix = source.partition(":")
    if Path(source).is_dir():
        test = dataclasses.replace(read_benchmark(source), name=Path(source).name)
    elif name == DRAWN:
        test = read_drawn(args)
    else:
        test = read_benchmark(str(args.data / "gnd" / f"{name}.json"), args.data)
        test = take_part(test, prefix) if prefix else test
    folder = args.features / test.name
    if not (folder / "manifest.json").is_file() or not FeatureStore(folder).manifest["complete"]:
        from superfeat.weights import load_network

        if args.weights is None:
            raise SystemExit(f"{folder} does not hold all features: give --weights to extract them")
        given = dict(parse_assignment(text) for text in args.set)
        changes = {"upright": not test.as_stored, "attention": "regions", **given}
        config = EvaluateConfig(extract=overlay(ExtractConfig.profile("fast"), changes))
        for step in extract_set(load_network(args.weights), test, folder, config, None, "cpu"):
            if step.done % 50 == 0:
                print(f"{test.name}: {step.done} of {step.total} photos", flush=True)
    return Labelled(test, FeatureStore(folder))


def read_drawn(args: argparse.Namespace) -> RetrievalSet:
    folder = args.features / "drawn photos"
    for _ in draw_folder(folder, things=THINGS, views=VIEWS, seed=SEED, max_side=SIDE):
        pass
    return dataclasses.replace(read_benchmark(str(folder)), name=DRAWN)


def take_part(test: RetrievalSet, prefix: str) -> RetrievalSet:
    """The photos and queries whose names begin so."""
    kept = [number for number, photo in enumerate(test.photos) if photo.name.startswith(prefix)]
    place = {number: new for new, number in enumerate(kept)}

    def moved(numbers: Sequence[int]) -> tuple[int, ...]:
        return tuple(place[number] for number in numbers if number in place)

    queries = [
        Query(query.photo, moved(query.positives), moved(query.junk), moved(query.hard))
        for query in test.queries
        if query.photo.name.startswith(prefix)
    ]
    name = f"{test.name} {Path(prefix).name}"
    return with_positives(name, [test.photos[number] for number in kept], queries, as_stored=test.as_stored)


def compare(codebook: Codebook, labelled: Sequence[Labelled]) -> Comparisons:
    with tempfile.TemporaryDirectory() as folder:
        return compare_sets(index_sets(Path(folder, "index"), codebook, labelled), labelled)


def origin_of(codebook: Codebook, labelled: Sequence[Labelled]) -> Origin:
    network = labelled[0].store.network
    config = EvaluateConfig().index
    return Origin(network, codebook.digest, config.kernel, config.search.alpha, config.search.threshold)


# -- Judging


def judge(said: Any, results: Results) -> Judged:
    return Judged(
        len(set(results.things.tolist())), reliability(said, results.labels), *bootstrap_intervals(said, results)
    )


def judge_fitted(fitted: Fitted, comparisons: Comparisons, names: Sequence[str]) -> dict[str, Judged]:
    """Each result by a fit without its thing; the sets as they are by the fit to all."""
    found = {"things left out: all fitted sets": judge(fitted.said, fitted.results)}
    whole = whole_results(comparisons, fitted.calibration.background)
    for number, name in enumerate(names):
        own = fitted.results.sets == number
        found[f"things left out: {name}"] = judge(fitted.said[own], choose_results(fitted.results, own))
        part = choose_results(whole, whole.sets == number)
        found[f"fitted, whole: {name}"] = judge(predict(fitted.calibration, part), part)
    return found


def judge_test(comparisons: Comparisons, fitted: Calibration, name: str) -> dict[str, Judged]:
    """A set that nothing was fitted to: in drawn collections, and as it is; then what its owner's labels would do,
    each thing judged by a fit without it.
    """
    own = calibrate(comparisons, fitted.origin, start=fitted, seed=1)
    whole = whole_results(comparisons, fitted.background)
    return {
        f"test, drawn: {name}": judge(predict(fitted, own.results), own.results),
        f"test, whole: {name}": judge(predict(fitted, whole), whole),
        f"own labels, drawn: {name}": judge(own.said, own.results),
    }


def show(found: dict[str, Judged]) -> None:
    """As rows of the table in docs/calibration.md."""
    for name, (things, judged, error, brier) in found.items():
        base = judged.right * (1 - judged.right)  # Brier score of one who always says the share that is right
        cells = (
            name,
            f"{things}",
            f"{judged.results}",
            f"{judged.right:.3f}",
            f"{judged.said:.3f}",
            f"{judged.error:.3f} ({error[0]:.3f} to {error[1]:.3f})",
            f"{judged.brier:.3f} ({brier[0]:.3f} to {brier[1]:.3f})",
            f"{base:.3f}",
            f"{judged.log_loss:.3f}",
        )
        print(f"| {' | '.join(cells)} |", flush=True)


def write(args: argparse.Namespace, fitted: Calibration, found: dict[str, Judged]) -> None:
    if args.write:
        args.write.write_text(json.dumps(fitted.to_dict(), indent=2) + "\n")
    if args.json:
        facts = {
            "fit": list(args.fit),
            "test": list(args.test),
            "calibration": fitted.to_dict(),
            "judged": plain(found),
        }
        args.json.write_text(json.dumps(facts, indent=1) + "\n")
    shown = ("things left out: all", "test, drawn: ")
    chosen = {name: one.reliability for name, one in found.items() if name.startswith(shown)}
    panels = [reliability_panel(name, {"results, 95 % interval": one}) for name, one in chosen.items()]
    draw_curves(panels, args.plot, columns=3)


def plain(found: dict[str, Judged]) -> dict[str, Any]:
    """Numbers with as many digits as mean something."""
    values = {
        name: {
            "things": one.things,
            **one.reliability._asdict(),
            "error_interval": one.error_interval,
            "brier_interval": one.brier_interval,
            "bins": [each._asdict() for each in one.reliability.bins],
        }
        for name, one in found.items()
    }
    rounded: dict[str, Any] = json.loads(json.dumps(values), parse_float=lambda text: round(float(text), 4))
    return rounded


if __name__ == "__main__":
    main()
