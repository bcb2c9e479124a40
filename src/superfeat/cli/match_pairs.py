"""superfeat pairs: which photos a mapping program should match."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import click

from superfeat.cli.accounts import accounts_for_files, as_told, name_some
from superfeat.cli.completion import INDEX_FOLDER
from superfeat.cli.lines import Progress, say
from superfeat.cli.terminal import Told, json_option, print_result, workers_option

if TYPE_CHECKING:
    from superfeat.engine import Engine
    from superfeat.mapping.pairs import PairChoice, PairsWritten

PATH = click.Path(path_type=Path)
Format = Literal["hloc", "kapture", "colmap", "mast3r", "csv"]


@click.command("pairs")
@click.argument("index_folder", metavar="INDEX", type=INDEX_FOLDER)
@click.argument("queries", required=False, type=PATH)
@click.option("--output", "-o", required=True, type=PATH, help="The file of pairs.")
@click.option("--top", default=50, show_default=True, type=click.IntRange(min=1), help="Photos for each photo.")
@click.option("--format", "kind", default="hloc", show_default=True, type=click.Choice(get_args(Format)))
@click.option("--min-probability", default=0.0, type=click.FloatRange(0, 1), help="Leave out pairs below it.")
@click.option("--min-matches", default=0, type=click.IntRange(min=0), help="Words of both photos that must agree.")
@click.option("--connected", is_flag=True, help="Add the best other pairs where photos would not hang together.")
@click.option("--sequence", type=click.Choice(["names", "times"]), help="Also pair photos that follow each other.")
@click.option("--reach", default=2, show_default=True, type=click.IntRange(min=1), help="How many that follow.")
@click.option("--images", "root", type=PATH, help="Where the photos of a list of queries lie. [default: beside it]")
@workers_option
@json_option
@accounts_for_files
def match_pairs(
    index_folder: Path,
    queries: Path | None,
    output: Path,
    top: int,
    kind: Format,
    min_probability: float,
    min_matches: int,
    connected: bool,
    sequence: Literal["names", "times"] | None,
    reach: int,
    root: Path | None,
    workers: int | None,
    as_json: bool,
) -> None:
    """Write the pairs of photos that are worth matching: of INDEX among themselves, or of QUERIES with INDEX.

    QUERIES is a folder, a kapture dataset, or a .txt list as hloc and COLMAP have them. Run again after a stop, it
    goes on.
    """
    from superfeat.engine import Engine
    from superfeat.mapping.pairs import PairChoice

    choice = PairChoice(top, min_probability, min_matches, connected, sequence, reach)
    engine = Engine.open(index_folder, workers=workers)
    written = _write(engine, queries, root, output, kind, choice, workers)
    result = {"output": str(output), "format": kind, **written._asdict(), "skipped": as_told(written.skipped)}
    print_result(result, as_json, _report)
    if written.skipped:
        say(f"superfeat: {len(written.skipped)} of {written.photos} queries could not be read")
        raise click.exceptions.Exit(1)


def _write(
    engine: "Engine",
    queries: Path | None,
    root: Path | None,
    output: Path,
    kind: Format,
    choice: "PairChoice",
    workers: int | None,
) -> "PairsWritten":
    from superfeat.mapping.image_lists import read_photos
    from superfeat.mapping.pairs import pairs_of_index
    from superfeat.mapping.query_pairs import pairs_of_queries

    if queries is None:
        work = pairs_of_index(engine, output, kind, choice, workers=workers)
    else:
        work = pairs_of_queries(engine, read_photos(queries, root).photos, output, kind, choice)
    progress: Progress | None = None
    for step in work:
        progress = progress or Progress("photos", step.photos)
        progress.at(step.done)
    if progress is not None:
        progress.done()
    return work.result()


def _report(result: Told) -> Iterable[str]:
    parts = result["parts"]
    hang = "" if parts is None else ", all hang together" if parts == 1 else f", in {parts} parts"
    yield f"{result['output']}: {result['pairs']} pairs of {result['photos']} photos{hang}"
    yield from name_some(f"without a pair {len(result['alone'])}", result["alone"], False)
    if result["untimed"]:
        yield f"  {result['untimed']} photos do not say when they were taken"
