"""superfeat label: yes or no to a result, for probabilities of one's own."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from superfeat.cli.completion import INDEX_FOLDER
from superfeat.cli.terminal import Told, json_option, print_result

if TYPE_CHECKING:
    from superfeat.engine import Engine

ANSWERS = {"yes": True, "no": False, "forget": None}


@click.command()
@click.argument("index_folder", metavar="INDEX", type=INDEX_FOLDER)
@click.argument("query", required=False)
@click.argument("found", required=False)
@click.argument("answer", metavar="[yes|no|forget]", required=False, type=click.Choice(list(ANSWERS)))
@click.option(
    "--csv", "table", type=click.Path(path_type=Path), help="Many: a table with the columns query, found, same."
)
@json_option
def label(
    index_folder: Path, query: str | None, found: str | None, answer: str | None, table: Path | None, as_json: bool
) -> None:
    """Say whether FOUND, a photo of INDEX, shows the same thing as QUERY. `calibrate INDEX` fits probabilities to it.

    QUERY is a photo of INDEX, by its name or its file, or any other photo. Without QUERY: what was said so far.
    """
    if (query is None) != (answer is None) or (table is not None and query is not None):
        raise click.UsageError("give QUERY, FOUND and yes, no or forget; or --csv TABLE; or nothing, to count")
    from superfeat.engine import Engine
    from superfeat.labels import label_from

    engine = Engine.open(index_folder)
    taken = label_from(engine, table) if table is not None else 0
    if query is not None and found is not None and answer is not None:
        _say(engine, query, found, ANSWERS[answer])
        taken = 1
    print_result({"index": str(index_folder), "taken": taken, **_count(engine)}, as_json, _report)


def _say(engine: "Engine", query: str, found: str, same: bool | None) -> None:
    from superfeat.engine import Named
    from superfeat.labels import label

    asked = Path(query) if Path(query).is_file() else Named(engine.name_of(query))
    label(engine, asked, engine.name_of(found), same)


def _count(engine: "Engine") -> Told:
    from superfeat.probability.answers import read_judged

    judged = read_judged(engine.index)
    counts = {"yes": judged.yes, "no": judged.no, "things": judged.things, "gone": judged.gone}
    return {**counts, "needed": judged.needed()}


def _report(result: Told) -> Iterable[str]:
    if result["taken"]:
        yield f"{result['index']}: noted {result['taken']}"
    gone = f"; {result['gone']} more of photos that have gone" if result["gone"] else ""
    yield f"{result['index']}: {result['yes']} yes and {result['no']} no on {result['things']} things{gone}"
    yield (
        f"  for probabilities of your own {result['needed']}"
        if result["needed"]
        else (f"  enough for probabilities of your own: superfeat calibrate {result['index']}")
    )
