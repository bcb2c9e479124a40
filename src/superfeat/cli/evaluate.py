"""superfeat evaluate: a number, with everything it depends on."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from superfeat.cli.analyze import followed
from superfeat.cli.terminal import Follow, json_option, print_result, weights_option, workers_option
from superfeat.config import DEFAULT_PROFILE, PROFILES, EvaluateConfig, ExtractConfig
from superfeat.errors import SuperfeatError
from superfeat.settings import as_dict, overlay, parse_assignment

if TYPE_CHECKING:
    from superfeat.datasets.retrieval_set import RetrievalSet
    from superfeat.evaluation.run import Evaluated
    from superfeat.images import Photo
    from superfeat.index.codebook import Codebook
    from superfeat.weights import Network

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
@click.option("--distractors", type=PATH, help="R1M's folder, or any folder of photos that are never right.")
@click.option("--allow-missing", is_flag=True, help="Count photos that are not there as not found.")
@click.option(
    "--analyses",
    default=ANALYSED,
    show_default=True,
    type=click.IntRange(min=0),
    help="Look into the network on the photos of so many queries, for the report.",
)
@click.option("--compare", nargs=2, type=PATH, metavar="A B", help="Compare two finished evaluations.")
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda, mps.")
@workers_option
@json_option
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
    distractors: Path | None,
    allow_missing: bool,
    analyses: int,
    compare: tuple[Path, Path] | None,
    device: str,
    workers: int | None,
    as_json: bool,
) -> None:
    """Measure how well a network finds, by the protocol of DATASET.

    DATASET is roxford5k, rparis6k, oxford5k, paris6k, holidays, ukbench or sfm120k-val, with --images where its files
    are; or a gnd.json; or a folder with one sub-folder per thing.
    """
    if compare is not None:
        print_result(_compare(*compare), as_json, _compare_report)
        return
    if dataset is None or output is None:
        raise click.UsageError("give a DATASET and --output; or --compare A B")
    from superfeat.datasets.benchmarks import read_benchmark
    from superfeat.evaluation.run import evaluate as run_evaluation
    from superfeat.extraction.extract import keep_memory
    from superfeat.weights import carried_codebook, load_network

    keep_memory()
    test = read_benchmark(dataset, images)
    if codebook is None and not codebook_images:
        codebook = carried_codebook(weights)
        profile = profile or (None if codebook is None else DEFAULT_PROFILE)
    config = _config(profile or "paper", assignments, test)
    follow, network = Follow(), load_network(weights)
    steps = run_evaluation(
        network,
        test,
        output,
        config,
        codebook=_words(codebook, codebook_images, config),
        distractors=_distractors(distractors),
        features=features,
        allow_missing=allow_missing,
        workers=workers,
        device=device,
        on_round=lambda at: follow(f"codebook: k-means, round {at.number} of {at.rounds}:", at.done, at.points),
    )
    found = _last(steps, follow)
    if analyses:
        photos = [query.photo.path for query in test.queries[:analyses]]
        _analyse(output, network, photos, config, workers=workers, device=device)
    report = _write_report(output)
    result = {"run": str(output), "report": report, **_summary(found), "card": found.card}
    print_result(result, as_json, _report)


def _config(profile: str, assignments: Iterable[str], test: "RetrievalSet") -> EvaluateConfig:
    """Published images are read as stored, as their boxes are; photos of a folder are turned upright."""
    settings = overlay(EvaluateConfig(), {"extract": as_dict(PROFILES[profile])})
    settings = overlay(settings, {"extract.upright": not test.as_stored})
    return overlay(settings, dict(parse_assignment(text) for text in assignments))


def _words(codebook: Path | None, photos: Sequence[str], config: EvaluateConfig) -> "Codebook | Sequence[Photo]":
    if config.method == "pooled":
        return ()
    if codebook is not None:
        from superfeat.index.codebook import Codebook

        return Codebook.open(codebook)
    if not photos:
        raise SuperfeatError(
            "these weights bring no codebook, and words must be learned from photos of other things: give "
            "--codebook-images, or --codebook, one that is made"
        )
    from superfeat.images import list_photos

    return list_photos(photos).photos


def _distractors(folder: Path | None) -> "Sequence[Photo]":
    if folder is None:
        return ()
    from superfeat.datasets.revisited import DISTRACTORS, places, read_distractors
    from superfeat.images import list_photos

    if any((place / f"{DISTRACTORS}.txt").is_file() for place in places(folder, DISTRACTORS)):
        return read_distractors(folder)
    return list_photos([folder]).photos


def _last(steps: "Iterator[Any]", follow: Follow) -> "Evaluated":
    """Shows how far a run is, and returns what came out."""
    from superfeat.evaluation.run import Evaluated

    for step in steps:
        if isinstance(step, Evaluated):
            follow.end()
            return step
        follow(DOING[step.stage], step.done, step.total)
    raise AssertionError("a run ends with its scores")


def _analyse(output: Path, network: "Network", photos: Iterable[Path], config: EvaluateConfig, **how: Any) -> None:
    """What `superfeat analyze` shows of the queries' photos, for the report; what cannot be made is left out.

    `how` is what changes no result: workers, device.
    """
    from superfeat.images import list_photos
    from superfeat.pages.analysis import write_analysis
    from superfeat.studies.analyse import analyse

    folder, run = output / "analyses", config.extract
    extract = ExtractConfig(run.features_per_image, max_side=run.max_side, scales=run.scales, upright=run.upright)
    kinds = ["redundancy", "scales"]
    kinds += ["words"] if config.method == "asmk" else []
    kinds += ["attention", "correlation"] if network.config.lit is not None else []
    for kind in kinds:
        if not (folder / f"{kind}.png").is_file():
            codebook = output / "index" / "codebook" if kind == "words" else None
            try:
                listed = list_photos(list(dict.fromkeys(photos))).photos
                work = analyse(kind, network, listed, config=extract, codebook=codebook, **how)
                write_analysis(followed(work), folder)
            except SuperfeatError as error:
                click.echo(f"note: no analysis of {kind}: {error}", err=True)


def _write_report(output: Path) -> str | None:
    """The report's path; None, with a note, where the extra that draws it is missing: the scores are there anyway."""
    from superfeat.errors import MissingExtraError
    from superfeat.pages.report import write_report

    try:
        return str(write_report(output))
    except MissingExtraError as error:
        click.echo(f"note: {error}", err=True)
        return None


def _summary(found: "Evaluated") -> dict[str, Any]:
    grades = {
        grade: {key: values[key] for key in ("map", "mp", "recall", "queries")}
        for grade, values in found.scores["grades"].items()
    }
    extra = {"ns": found.scores["ns"]} if "ns" in found.scores else {}
    return {"dataset": found.scores["dataset"], "grades": grades, **extra}


def _report(result: Mapping[str, Any]) -> Iterable[str]:
    from superfeat.evaluation.card import in_words

    yield f"{result['dataset']}:"
    for grade, values in result["grades"].items():
        if values["map"] is None:
            yield f"  {grade:8} no query has right answers"
            continue
        precision = ", ".join(f"mP@{depth} {value:.1f}" for depth, value in values["mp"].items())
        yield f"  {grade:8} mAP {values['map']:.2f}   {precision}   ({values['queries']} queries)"
    if "ns" in result:
        yield f"  N-S score {result['ns']:.3f} of 4"
    yield from (f"  {line}" for line in in_words(result["card"]))
    if result["report"]:
        yield f"  report: {result['report']}"


def _compare(first: Path, second: Path) -> dict[str, Any]:
    from superfeat.evaluation.compare import compare
    from superfeat.evaluation.run import open_run

    before, after = open_run(first), open_run(second)
    found = compare(before.scores, after.scores, (before.card, after.card))
    return {"first": str(first), "second": str(second), **found}


def _compare_report(result: Mapping[str, Any]) -> Iterable[str]:
    from superfeat.evaluation.compare import in_words

    yield f"{result['first']} -> {result['second']}:"
    yield from in_words(result)
