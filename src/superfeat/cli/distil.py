"""superfeat distil: a small network that learns from a large one."""

from collections.abc import Iterable
from pathlib import Path

import click

from superfeat.cli.accounts import accounts_for_files, as_told
from superfeat.cli.terminal import Told, json_option, print_result, workers_option
from superfeat.cli.train import ctrl_c, follow_run, unreadable


@click.command()
@click.argument("recipe", default="distil")
@click.option(
    "--images",
    multiple=True,
    required=True,
    help="Photos to learn from, no labels: a folder, an archive or a .txt list, several times if you like.",
)
@click.option("--teacher", help="The network to learn from. [default: the recipe's, or the default network]")
@click.option("--weights", help="Begin with this trunk, or with a student of before. [default: the recipe's]")
@click.option(
    "--set", "assignments", multiple=True, metavar="NAME=VALUE", help="Any setting, e.g. distillation.epochs=5."
)
@click.option("--output", "-o", required=True, type=click.Path(path_type=Path), help="Folder of the run.")
@click.option("--resume", is_flag=True, help="Go on with the run in the folder.")
@click.option("--skip-unreadable", is_flag=True, help="Leave out photos that cannot be read.")
@workers_option
@json_option
@accounts_for_files
def distil(
    recipe: str,
    images: tuple[str, ...],
    teacher: str | None,
    weights: str | None,
    assignments: tuple[str, ...],
    output: Path,
    resume: bool,
    skip_unreadable: bool,
    workers: int | None,
    as_json: bool,
) -> None:
    """Teach a small network to give what a large one gives, on any photos: RUN/last.

    RECIPE is a name or a TOML file with [distillation]. Ctrl-C saves; the same command with --resume goes on.
    """
    from superfeat.extraction.extract import default_workers, keep_memory
    from superfeat.recipes import read_recipe
    from superfeat.sources.listing import list_photos
    from superfeat.training.data import require_readable
    from superfeat.training.distil import distil as run_distillation

    keep_memory()
    chosen = assignments if teacher is None else (*assignments, f"distillation.teacher={teacher}")
    settings = read_recipe(recipe, chosen, weights)
    photos = list_photos(images).photos
    bad = unreadable(photos, workers or default_workers())
    if not skip_unreadable:
        require_readable(bad)
    left_out = {photo.name for photo in bad}
    photos = [photo for photo in photos if photo.name not in left_out]
    with ctrl_c() as stop:
        last = follow_run(
            run_distillation(settings, photos, output, resume=resume, workers=workers, stop=stop), as_json
        )
    result = {"run": str(output), **last.facts, "epochs": last.done, "skipped": as_told(bad)}
    print_result(result, as_json, _report)


def _report(result: Told) -> Iterable[str]:
    alike = f", cosine with the teacher {result['cosine']:.3f}" if "cosine" in result else ""
    yield f"{result['run']}: {result['epochs']} epochs{alike}"
    yield f"  use it: superfeat index PHOTOS -o INDEX --weights {result['run']}/last --codebook CODEBOOK_OF_THE_TEACHER"
