"""superfeat compare: several methods on the same photos, one table, one picture, and which to take."""

from pathlib import Path

import click

from superfeat.cli.accounts import accounts_for_files
from superfeat.cli.lines import Follow, say
from superfeat.cli.terminal import json_option, print_result, workers_option
from superfeat.config import PROFILES
from superfeat.settings import parse_assignment

PATH = click.Path(path_type=Path)


@click.command()
@click.argument("dataset")
@click.argument("methods", nargs=-1, metavar="[METHOD=TRUNK|NAME=WEIGHTS|WEIGHTS]...")
@click.option("--output", "-o", type=PATH, required=True, help="Folder of the runs; the same command goes on with it.")
@click.option("--images", type=PATH, help="The folder that the benchmark's files are in.")
@click.option("--profile", type=click.Choice(list(PROFILES)), help="Settings for photos, the same for all.")
@click.option("--set", "assignments", multiple=True, metavar="NAME=VALUE", help="E.g. extract.max_side=480.")
@click.option("--codebook-images", multiple=True, help="Photos of other things, for methods that bring no words.")
@workers_option
@json_option
@accounts_for_files
def compare(
    dataset: str,
    methods: tuple[str, ...],
    output: Path,
    images: Path | None,
    profile: str | None,
    assignments: tuple[str, ...],
    codebook_images: tuple[str, ...],
    workers: int | None,
    as_json: bool,
) -> None:
    """Measure METHODS on DATASET (a folder with one sub-folder per thing, a gnd.json, a benchmark); say which to take.

    A method is weights (a folder, a file, a name), or built on a trunk: gem=imagenet-resnet50. Without any: FIRe as it
    comes with superfeat, GeM and R-MAC on the ImageNet trunk (superfeat weights get).
    """
    from superfeat.extraction.extract import keep_memory
    from superfeat.studies.methods import compare_methods, read_contender, table_lines

    keep_memory()
    work = compare_methods(
        dataset,
        output,
        [read_contender(text) for text in methods],
        images=images,
        profile=profile,
        settings=dict(parse_assignment(text) for text in assignments),
        codebook_images=codebook_images,
        workers=workers,
    )
    follow = Follow()
    for step in work:
        follow(f"{step.label}: {step.stage}", step.done, step.total)
    follow.end()
    found = work.result()
    rows = [row._asdict() for row in found.rows]
    result = {"dataset": found.dataset, "methods": rows, "advice": found.advice, "picture": _draw(found, output)}
    print_result(result, as_json, lambda told: [*table_lines(found), *_picture_line(told["picture"])])


def _picture_line(picture: str | None) -> list[str]:
    return [] if picture is None else [f"picture: {picture}"]


def _draw(found: object, output: Path) -> str | None:
    """The picture's path; None, with a note, where the extra that draws it is missing."""
    from superfeat.errors import MissingExtraError
    from superfeat.pages.plots import draw_curves
    from superfeat.studies.methods import Compared

    assert isinstance(found, Compared)
    try:
        draw_curves(found.panels(), output / "methods.png")
    except MissingExtraError as error:
        say(f"note: {error}")
        return None
    return str(output / "methods.png")
