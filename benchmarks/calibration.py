"""How honest probabilities are: each collection by a fit to all others, and those of no fit by what is shipped.

    python -m benchmarks.calibration --weights NETWORK --codebook CODEBOOK --data ../shared/data --features FOLDER \
        --alike CARTONS --tests museum_qs ukbench50_val --json benchmarks/results/probability.json --write NEW.json

Features that are not in FOLDER are extracted into it with the profile `fast` and the places of features (it can be
stopped and goes on). Each query searches random collections of 10 images and more, with none, some or all of its
matches in them, and the whole set, as an indexed photo (one word per feature) and as a new one (five); judged are the
first 20 results. A fit counts what the queries of its sets find in random collections, what all their photos find in
those that they themselves fall into, and what queries find among the photos of all sets and of --mixed, a folder of
other photos. The calibration that is written is fitted to the sets of --ship alone, whose licences allow it. With
--calibration nothing is fitted, and the sets are judged by that one: by features of int8, say. A codebook may be that
of the network's teacher. The picture shows what was said against what was right. With --strangers sets are also judged
among these photos of other things: all of them, in random mixtures of 1000, and in collections of 10,000 and 100,000,
for which these stand:

    superfeat extract ../shared/data/distractors -o STRANGERS --regions
"""

import argparse
import dataclasses
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float64

from benchmarks.labelled_sets import ALONE, DRAWN, VALIDATION, add_set_arguments, read_alone, read_set, read_strangers
from superfeat.config import EvaluateConfig
from superfeat.evaluation.searching import names_in
from superfeat.figures import Panel
from superfeat.index.codebook import Codebook
from superfeat.pages.plots import draw_curves
from superfeat.probability.comparing import Comparisons, Labelled, compare_photos, compare_sets, index_sets
from superfeat.probability.fit import (
    ALL,
    DRAWN_SIZES,
    Results,
    calibrate,
    choose_results,
    draw_results,
    fit_results,
    join_results,
    measure_background,
    predict,
    reliability_panel,
    whole_results,
)
from superfeat.probability.honesty import Reliability, reliability
from superfeat.probability.model import Calibration, Origin
from superfeat.rerank.strangers import Null

# What a calibration that we ship may be fitted to: photos whose licence says so, and what we drew ourselves.
FIT = ("val_landmarks:photos/gldv2_u33/", DRAWN)
SIZES = (*DRAWN_SIZES, 1000, ALL)
MIXED, LARGE = 1000, (10_000, 100_000)  # images of collections with photos of other things
# Shares of results that count in a fit, drawn by chance: of queries in random collections, of their own photos there,
# and of queries among everything; of drawn landmarks, whatever is searched; and of things that look alike, of these.
ASKED, OWN, AMONG, OF_DRAWN, OF_ALIKE = 0.6, 1.0, 0.15, 0.07, 0.1
MIDDLE = (0.5, 0.7)  # of results that are said to be so likely right, 40 to 80 of 100 should be
# Collections of a set, and what rows call them; and lines of a picture.
KINDS = {"random": "drawn", "whole": "whole", "among": "among others"}
LINES = {"drawn": "random collections", "among others": "among other photos", "whole": "the whole set"}


class Judged(NamedTuple):
    """Rows of results by their names, and how honest the probabilities are with clues, for a picture."""

    rows: dict[str, dict[str, Any]]
    shown: dict[str, Reliability]

    def __or__(self, other: object) -> "Judged":
        assert isinstance(other, Judged)
        return Judged(self.rows | other.rows, self.shown | other.shown)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_set_arguments(parser, (*VALIDATION[:2], *FIT))
    parser.add_argument("--ship", nargs="+", default=FIT, help="sets that the written calibration is fitted to")
    parser.add_argument("--alike", help="folder with photos of things that look alike: one more set, and fitted to")
    parser.add_argument("--mixed", help="folder with photos of other things, among which queries of a fit search too")
    parser.add_argument("--tests", nargs="*", default=(), help="sets to judge what is shipped by, never fitted to")
    parser.add_argument("--kept", type=Path, help="folder that keeps what was found, for other fits")
    parser.add_argument("--write", type=Path, help="where to write the calibration")
    parser.add_argument("--calibration", type=Path, help="to judge by, in place of a fit")
    parser.add_argument("--own-labels", action="store_true", help="also what labels of a set would do for it")
    parser.add_argument("--strangers", type=Path, help="features of DATA/distractors, to judge sets among them too")
    parser.add_argument("--plot", type=Path, help="the picture of what is shipped")
    args = parser.parse_args(arguments)
    judged = judge_sets(args)
    if args.json:
        args.json.write_text(json.dumps(judged.rows, indent=1) + "\n")
    if args.plot:
        draw_curves(panels_of(judged.shown), args.plot, columns=2)


def read_calibration(path: Path) -> Calibration:
    return Calibration.from_dict(json.loads(path.read_text()))


# -- What is found


class Found(NamedTuple):
    """The results of searches in some sets: in random collections and in whole sets; where they are fitted to, also
    among all photos, and those of all photos of the sets in the collections that these fall into.
    """

    background: Null
    random: Results
    whole: Results
    among: Results | None
    own: Results | None


def find_results(
    args: argparse.Namespace, codebook: Codebook, labelled: Sequence[Labelled], background: Null | None = None
) -> Found:
    """Compares all photos of these sets, or takes what is kept of that. They are fitted to if there is no background
    yet.
    """
    fitted = background is None
    name, fields = " ".join(one.test.name for one in labelled), Found._fields[1 : None if fitted else 3]
    kept = read_kept(args, name)
    if kept is not None and f"{fields[-1]} labels" in kept:
        random, whole, *rest = (read_results(kept, part) for part in fields)
        return Found(Null(*kept["background"].tolist()), random, whole, *(rest or (None, None)))
    others = [read_alone(args.mixed, args)] if fitted and args.mixed else []
    everything = [*labelled, *others]
    with tempfile.TemporaryDirectory() as folder:
        index = index_sets(Path(folder, "index"), codebook, everything)
        comparisons = compare_sets(index, everything)
        photos = compare_photos(index, everything, [folder_things(one) for one in everything]) if fitted else None
    known = background or measure_background(comparisons, range(len(labelled)))
    random, whole = draw_results(comparisons, known, sizes=SIZES), whole_results(comparisons, known)
    among = own = None
    if photos is not None:
        among = whole_results(in_one(comparisons), known)
        among = among._replace(sets=comparisons.search_sets[among.searches])
        own = draw_results(photos, known, sizes=SIZES, absent=None)
    found = Found(known, random, whole, among, own)
    keep_results(args, name, known, {part: one for part, one in found._asdict().items() if part in fields})
    return found


def in_one(comparisons: Comparisons) -> Comparisons:
    """The same as if all sets were one."""
    sets = np.zeros_like(comparisons.image_sets), np.zeros_like(comparisons.search_sets)
    return dataclasses.replace(comparisons, image_sets=sets[0], search_sets=sets[1])


def read_kept(args: argparse.Namespace, name: str) -> Mapping[str, Any] | None:
    file = None if args.kept is None else args.kept / f"{name}.npz"
    return None if file is None or not file.is_file() else np.load(file)


def read_results(kept: Mapping[str, Any], part: str) -> Results:
    return Results(*(kept[f"{part} {field}"] for field in Results._fields))


def keep_results(args: argparse.Namespace, name: str, background: Null, parts: Mapping[str, Results]) -> None:
    if args.kept is not None:
        columns = {f"{part} {field}": values for part, one in parts.items() for field, values in one._asdict().items()}
        np.savez(args.kept / f"{name}.npz", background=np.asarray(background), **columns)


def folder_things(labelled: Labelled) -> dict[str, str]:
    """What each photo shows, by its folder; those of a folder that holds no answer to any query are alone."""
    names = names_in(labelled.store, labelled.test)
    folders = [str(photo.path.parent) for photo in labelled.test.photos]
    known = {folders[number] for query in labelled.test.queries for number in query.positives}
    shown = zip(names.database, folders, strict=True)
    return {name: folder if folder in known else f"{name}{ALONE}" for name, folder in shown}


# -- Fits


def judge_sets(args: argparse.Namespace) -> Judged:
    """Each collection by a fit to all others; and those that are not fitted to by what is shipped."""
    codebook = Codebook(Codebook.open(args.codebook).centroids)  # of any network: a student has its teacher's
    if args.calibration is not None:
        return judge_by(read_calibration(args.calibration), args, codebook, args.sets)
    alike = [args.alike] if args.alike else []
    sources, shipped = [*args.sets, *alike], [*args.ship, *alike]
    labelled = [read_set(source, args) for source in sources]
    found, origin = find_results(args, codebook, labelled), origin_of(codebook, labelled)
    (results, counted), judged = to_fit(found, sources, args.alike), Judged({}, {})
    for number, one in enumerate(labelled):
        rows = results.sets != number
        fitted = fit_results(choose_results(results, rows), found.background, origin, None, counted[rows])
        judged |= judge_set(fitted, found, number, f"{one.test.name} by others")
    written = ship(args, codebook, shipped)
    others = [source for source in sources if source not in shipped]
    return Judged(judged.rows, {}) | judge_by(written, args, codebook, [*others, *args.tests])


def ship(args: argparse.Namespace, codebook: Codebook, sources: Sequence[str]) -> Calibration:
    """The calibration that comes with the network."""
    labelled = [read_set(source, args) for source in sources]
    found = find_results(args, codebook, labelled)
    results, counted = to_fit(found, sources, args.alike)
    fitted = fit_results(results, found.background, origin_of(codebook, labelled), None, counted)
    if args.write:
        args.write.write_text(json.dumps(fitted.to_dict(), indent=2) + "\n")
    return fitted


def to_fit(found: Found, sources: Sequence[str], alike: str | None) -> tuple[Results, Bool[np.ndarray, "n"]]:
    """What a fit is made of, and which of it counts: few of the drawn landmarks and of the things that look alike, as
    what their labels call another thing is there twice.
    """
    assert found.own is not None
    assert found.among is not None
    parts, counted = ((found.random, ASKED), (found.own, OWN), (found.among, AMONG)), []
    generator = np.random.default_rng(0)
    for results, share in parts:
        of_set = [OF_DRAWN if one == DRAWN else share * OF_ALIKE if one == alike else share for one in sources]
        counted.append(generator.random(len(results.sets)) < np.asarray(of_set)[results.sets])
    return join_results([results for results, _ in parts]), np.concatenate(counted)


def origin_of(codebook: Codebook, labelled: Sequence[Labelled]) -> Origin:
    config = EvaluateConfig().index
    network = labelled[0].store.network
    return Origin(network, codebook.digest, config.kernel, config.search.alpha, config.search.threshold)


# -- Judging


def judge_by(calibration: Calibration, args: argparse.Namespace, codebook: Codebook, sources: Sequence[str]) -> Judged:
    """Sets that it was not fitted to, each by itself."""
    judged = Judged({}, {})
    for source in sources:
        one = read_set(source, args)
        found = find_results(args, codebook, [one], calibration.background)
        judged |= judge_set(calibration, found, 0, f"{one.test.name} by shipped")
        if args.strangers is not None:
            strangers = read_strangers(args.strangers, args, one.test)
            judged |= judge_among(calibration, args, codebook, one, strangers)
        if args.own_labels:
            judged |= judge_own(calibration, codebook, one)
    return judged


def judge_among(
    calibration: Calibration, args: argparse.Namespace, codebook: Codebook, one: Labelled, strangers: Labelled
) -> Judged:
    """A set in one collection with photos of other things: all of it, in random mixtures, and in larger collections."""
    name = f"{one.test.name} among {strangers.test.name}"
    kept, parts = read_kept(args, name), dict[str, Results]()
    if kept is None:
        with tempfile.TemporaryDirectory() as folder:
            comparisons = compare_sets(index_sets(Path(folder, "index"), codebook, [one, strangers]), [one, strangers])
        everything, known = in_one(comparisons), calibration.background
        parts["among others"] = whole_results(everything, known)
        parts["mixed"] = draw_results(everything, known, sizes=[MIXED])
        parts["large"] = whole_results(everything, known, LARGE)
        keep_results(args, name, known, parts)
    else:
        parts = {part: read_results(kept, part) for part in ("among others", "mixed", "large")}
    judged = Judged({}, {})
    for part, results in parts.items():
        judged |= judge_rows(calibration, results, f"{part}: {one.test.name} by shipped")
        judged.rows[f"{part}: {one.test.name} by shipped"]["others"] = len(strangers.images())
    return judged


def judge_own(calibration: Calibration, codebook: Codebook, labelled: Labelled) -> Judged:
    """What `superfeat calibrate` makes of the labels of a set's photos: each thing by a fit without it."""
    with tempfile.TemporaryDirectory() as folder:
        index = index_sets(Path(folder, "index"), codebook, [labelled])
        photos = compare_photos(index, [labelled], [folder_things(labelled)])
    if len(np.unique(photos.things)) < 2:
        return Judged({}, {})  # paintings with one photo each: labels of it would say nothing
    fitted = calibrate(photos, calibration.origin, start=calibration)
    both = {"before": predict(calibration, fitted.results), "after": fitted.said}
    row = {kind: honesty_of(said, fitted.results.labels) for kind, said in both.items()}
    cells = [f"{one['log_loss']:.3f} ({one['error']:.3f})" for one in row.values()]
    print(f"| own labels: {labelled.test.name} | {' | '.join(cells)} |", flush=True)
    return Judged({f"own labels: {labelled.test.name}": row}, {})


def judge_set(fitted: Calibration, found: Found, number: int, name: str) -> Judged:
    """One of the sets, in random collections and as a whole."""
    judged = Judged({}, {})
    for field, kind in KINDS.items():
        results = getattr(found, field)
        if results is not None:
            judged |= judge_rows(fitted, choose_results(results, results.sets == number), f"{kind}: {name}")
    return judged


def judge_rows(fitted: Calibration, part: Results, name: str) -> Judged:
    """With clues, with those of each result alone, and with scores alone; with the log loss of one who always says the
    share.
    """
    alone = dataclasses.replace(fitted, together=None)
    forms = {"clues": fitted, "alone": alone, "scores": fitted.without_clues()}
    said = {kind: predict(one, part) for kind, one in forms.items()}
    share = float(np.clip(part.labels.mean(), 1e-9, 1 - 1e-9))
    always = -(share * np.log(share) + (1 - share) * np.log(1 - share))
    facts = {kind: honesty_of(values, part.labels) for kind, values in said.items()}
    cells = [f"{one['log_loss']:.3f} ({one['error']:.3f})" for one in facts.values()]
    middle = f"{facts['clues']['middle']}, {facts['clues']['middle_right']}"
    print(f"| {name} | {always:.3f} | {' | '.join(cells)} | {middle} |", flush=True)
    row = {"always": float(always), "results": len(part.labels), **facts}
    return Judged({name: row}, {name: reliability(said["clues"], part.labels)})


def honesty_of(said: Float64[np.ndarray, "n"], labels: Bool[np.ndarray, "n"]) -> dict[str, Any]:
    one, middle = reliability(said, labels), (said >= MIDDLE[0]) & (said < MIDDLE[1])
    right = float(labels[middle].mean()) if middle.any() else None
    facts = {"error": one.error, "log_loss": one.log_loss, "brier": one.brier}
    return {**facts, "middle": int(middle.sum()), "middle_right": right}


def panels_of(shown: Mapping[str, Reliability]) -> list[Panel]:
    """A panel for each set, with a line for each kind of collection; its note is of the last, the whole set."""
    sets: dict[str, dict[str, Reliability]] = {}
    for name, one in shown.items():
        kind, _, rest = name.partition(": ")
        if kind in LINES:
            sets.setdefault(rest.removesuffix(" by shipped"), {})[LINES[kind]] = one
    return [
        reliability_panel(title, {line: one[line] for line in LINES.values() if line in one})
        for title, one in sets.items()
    ]


if __name__ == "__main__":
    main()
