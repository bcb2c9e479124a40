"""superfeat evaluate: a number, with everything it depends on."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from superfeat.cli.accounts import accounts_for_files
from superfeat.cli.analyze import followed
from superfeat.cli.lines import Follow, say
from superfeat.cli.localization import AACHEN, LocalizationChoice, evaluate_localization
from superfeat.cli.terminal import Told, device_option, json_option, print_result, weights_option, workers_option
from superfeat.config import DEFAULT_PROFILE, PROFILES
from superfeat.errors import SuperfeatError
from superfeat.settings import parse_assignment

if TYPE_CHECKING:
    from superfeat.evaluation.evaluate import Measured

PATH = click.Path(path_type=Path)
ANALYSED = 8  # photos
DOING = {
    "features": "extracting",
    "codebook features": "codebook: extracting",
    "index": "indexing",
    "distractors": "distractors",
    "search": "searching",
}


@click.command()
@click.argument("dataset", required=False)
@click.option("--images", type=PATH, help="The folder that the benchmark's files are in.")
@weights_option
@click.option("--output", "-o", type=PATH, help="Folder of the evaluation; the same command goes on with it.")
@click.option(
    "--profile",
    type=click.Choice(list(PROFILES)),
    help=f"[default: {DEFAULT_PROFILE} with a codebook that the network brings, else paper]",
)
@click.option("--set", "assignments", multiple=True, metavar="NAME=VALUE", help="E.g. extract.max_side=480.")
@click.option("--codebook", type=PATH, help="A codebook. [default: the one that the network brings]")
@click.option("--codebook-images", multiple=True, help="Photos of other things (folder, list) to learn words from.")
@click.option("--features", type=PATH, help="A features folder with the set's images, in place of extracting them.")
@click.option(
    "--local",
    type=PATH,
    help="Order the first 100 by the local features of this folder (DELG); with --localization, the points that are "
    "matched: sift, xfeat, aliked, disk, r2d2:FILE.",
)
@click.option(
    "--rerank",
    type=click.Choice(["diffuse", "off"]),
    default="off",
    show_default=True,
    help="Order the first 400 by how alike they are to each other, as `search` does; the paper does not.",
)
@click.option("--distractors", type=PATH, help="R1M's folder, or any folder of photos that are never right.")
@click.option("--allow-missing", is_flag=True, help="Count photos that are not there as not found.")
@click.option(
    "--analyses",
    default=ANALYSED,
    show_default=True,
    type=click.IntRange(min=0),
    help="Look into the network on the photos of so many queries, for the report.",
)
@click.option("--localization", is_flag=True, help="DATASET is aachen-v1.1 or a folder of scenes: percent localized.")
@click.option("--exhaustive", is_flag=True, help="With --localization, also match each query with every photo.")
@click.option(
    "--poses", type=PATH, help="The true poses of aachen-v1.1's queries, which are not published, if you have them."
)
@click.option("--compare", nargs=2, type=PATH, metavar="A B", help="Compare two finished evaluations.")
@device_option
@workers_option
@json_option
@accounts_for_files
def evaluate(
    dataset: str | None,
    images: Path | None,
    weights: str,
    output: Path | None,
    profile: str | None,
    assignments: tuple[str, ...],
    codebook: Path | None,
    codebook_images: tuple[str, ...],
    features: Path | None,
    local: Path | None,
    rerank: str,
    distractors: Path | None,
    allow_missing: bool,
    analyses: int,
    localization: bool,
    exhaustive: bool,
    poses: Path | None,
    compare: tuple[Path, Path] | None,
    device: str,
    workers: int | None,
    as_json: bool,
) -> None:
    """Measure how well a network finds, by the protocol of DATASET.

    DATASET is roxford5k, rparis6k, oxford5k, paris6k, holidays, ukbench or sfm120k-val, with --images where its files
    are; or a gnd.json; or a folder with one sub-folder per thing. With --localization it is aachen-v1.1, or a folder
    of scenes with poses.
    """
    if compare is not None:
        _compare(*compare, as_json)
        return
    if dataset is None or output is None:
        raise click.UsageError("give a DATASET and --output; or --compare A B")
    if localization or poses is not None or dataset == AACHEN:
        given = (images, poses, features, codebook, local, exhaustive, workers, device)
        evaluate_localization(LocalizationChoice(dataset, output, weights, *given), as_json)
        return
    from superfeat.evaluation.evaluate import evaluate as run_evaluation
    from superfeat.extraction.extract import keep_memory

    keep_memory()
    follow = Follow()
    work = run_evaluation(
        dataset,
        output,
        images=images,
        weights=weights,
        profile=profile,
        settings=dict(parse_assignment(text) for text in assignments) | ({} if rerank == "off" else {"rerank": rerank}),
        codebook=codebook,
        codebook_images=codebook_images,
        distractors=distractors,
        features=features,
        local=local,
        allow_missing=allow_missing,
        workers=workers,
        device=device,
        on_round=lambda at: follow(f"codebook: k-means, round {at.number} of {at.rounds}:", at.done, at.points),
    )
    for step in work:
        follow(DOING[step.stage], step.done, step.total)
    follow.end()
    found = work.result()
    if analyses:
        _look_inside(found, analyses, workers, device)
    result = {"run": str(output), "report": _write_report(output), **_summary(found), "card": found.card}
    print_result(result, as_json, _report)


def _look_inside(found: "Measured", photos: int, workers: int | None, device: str) -> None:
    """What the report shows of the network and the queries' photos; what cannot be made is left out."""
    from superfeat.pages.analysis import write_analysis
    from superfeat.studies.queries import analyse_queries, query_kinds

    folder = found.run / "analyses"
    for kind in query_kinds(found):
        if not (folder / f"{kind}.png").is_file():
            try:
                work = analyse_queries(kind, found, photos, workers=workers, device=device)
                write_analysis(followed(work), folder)
            except SuperfeatError as error:
                say(f"note: no analysis of {kind}: {error}")


def _write_report(output: Path) -> str | None:
    """The report's path; None, with a note, where the extra that draws it is missing: the scores are there anyway."""
    from superfeat.errors import MissingExtraError
    from superfeat.pages.report import write_report

    try:
        return str(write_report(output))
    except MissingExtraError as error:
        say(f"note: {error}")
        return None


def _summary(found: "Measured") -> Told:
    grades = {
        grade: {key: values[key] for key in ("map", "mp", "recall", "queries")}
        for grade, values in found.scores["grades"].items()
    }
    extra = {"ns": found.scores["ns"]} if "ns" in found.scores else {}
    return {"dataset": found.scores["dataset"], "grades": grades, **extra}


def _report(result: Told) -> Iterable[str]:
    from superfeat.evaluation.card import card_in_words

    yield f"{result['dataset']}:"
    for grade, values in result["grades"].items():
        if values["map"] is None:
            yield f"  {grade:8} no query has right answers"
            continue
        precision = ", ".join(f"mP@{depth} {value:.1f}" for depth, value in values["mp"].items())
        yield f"  {grade:8} mAP {values['map']:.2f}   {precision}   ({values['queries']} queries)"
    if "ns" in result:
        yield f"  N-S score {result['ns']:.3f} of 4"
    yield from (f"  {line}" for line in card_in_words(result["card"]))
    if result["report"]:
        yield f"  report: {result['report']}"


def _compare(first: Path, second: Path, as_json: bool) -> None:
    from superfeat.evaluation.compare import compare, comparison_in_words
    from superfeat.evaluation.run import open_run

    before, after = open_run(first), open_run(second)
    found = compare(before.scores, after.scores, (before.card, after.card))
    lines = [f"{first} -> {second}:", *comparison_in_words(found)]
    print_result({"first": str(first), "second": str(second), **found}, as_json, lambda _: lines)
