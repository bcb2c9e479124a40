"""superfeat search and explain: which photos of an index show the same thing as a photo, and why."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from superfeat.cli.completion import INDEX_FOLDER, complete_weights
from superfeat.cli.terminal import Told, json_option, print_result, workers_option
from superfeat.errors import ImageError, SuperfeatError
from superfeat.settings import overlay, parse_assignment

if TYPE_CHECKING:
    from superfeat.engine import Engine
    from superfeat.features import Features
    from superfeat.index.places import Region
    from superfeat.pages.results import AnsweredQuery

BAR = 24  # characters of the longest bar: of certainty, or of the best score
BOX_HELP = "Only this part of the photo: x,y,width,height in pixels of the upright photo, or as fractions up to 1."


class BoxType(click.ParamType):  # type: ignore[type-arg]  # generic in newer versions of click only
    """x,y,width,height."""

    name = "x,y,w,h"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            numbers = tuple(float(part) for part in str(value).split(","))
        except ValueError:
            numbers = ()
        if len(numbers) != 4 or not (numbers[2] > 0 and numbers[3] > 0):
            self.fail(f"{value!r} is not four numbers x,y,width,height with a width and a height", param, ctx)
        return numbers


index_argument = click.argument("index_folder", metavar="INDEX", type=INDEX_FOLDER)
box_option = click.option("--box", type=BoxType(), help=BOX_HELP)
engine_weights = click.option(
    "--weights",
    "-w",
    shell_complete=complete_weights,
    help="The network for photos. [default: what the index was made with]",
)


@click.command()
@index_argument
@click.argument("queries", nargs=-1, required=True, metavar="QUERY...")
@click.option("--top", default=20, show_default=True, type=click.IntRange(min=1), help="How many images to show.")
@click.option("--all", "every", is_flag=True, help="All images, best first.")
@box_option
@click.option("--only", type=click.File("r"), help="Search among the names in this file alone, one per line.")
@engine_weights
@click.option("--set", "assignments", multiple=True, metavar="NAME=VALUE", help="A search setting, e.g. alpha=2.")
@click.option("--html", type=click.Path(path_type=Path), help="Also write a page with the photos, to look at.")
@workers_option
@json_option
def search(
    index_folder: Path,
    queries: tuple[str, ...],
    top: int,
    every: bool,
    box: tuple[float, ...] | None,
    only: Any,
    weights: str | None,
    assignments: tuple[str, ...],
    html: Path | None,
    workers: int | None,
    as_json: bool,
) -> None:
    """Find the images of INDEX that show the same thing as QUERY.

    A QUERY is a photo, a features folder (each of its images is one), or the name of an image in the index.
    """
    from superfeat.engine import Engine

    engine = Engine.open(index_folder, weights=weights, workers=workers)
    config = overlay(engine.index.config.search, dict(parse_assignment(text) for text in assignments), "search.")
    names = [line.rstrip("\r\n") for line in only if line.strip()] if only else None
    asked = _ask(engine, queries, box, top=len(engine.index) if every else top, only=names, config=config)
    results = [{"query": one.name, "hits": [hit._asdict() for hit in one.answer.hits]} for one in asked]
    print_result({"index": str(index_folder), "results": results}, as_json, _report)
    if html is not None:
        from superfeat.pages.results import write_results_page

        write_results_page(html, engine, asked)
        click.echo(f"look at {html}", err=True)


def _queries(engine: "Engine", queries: Iterable[str]) -> "Iterator[tuple[str, str | Path | Features]]":
    for query in queries:
        path = Path(query)
        if (path / "manifest.json").is_file():
            from superfeat.extraction.folder import FeatureStore

            yield from ((features.name, features) for features in FeatureStore(path))
        elif query in engine.index and (not path.exists() or not engine.knows_network):
            yield query, query
        elif path.exists():
            from superfeat.images import list_photos

            yield from ((photo.name, photo.path) for photo in list_photos([path]).photos)
        else:
            raise SuperfeatError(f"{query} is neither a photo here nor the name of an image in {engine.index.path}")


def _fractions(engine: "Engine", query: "str | Path | Features", box: tuple[float, ...] | None) -> "Region | None":
    """A box in pixels as fractions of the photo; one whose numbers are all at most 1 is in fractions already."""
    if box is None or max(box) <= 1:
        return box  # type: ignore[return-value]
    from superfeat.features import Features
    from superfeat.images import upright_size

    if isinstance(query, Features):
        raise SuperfeatError("a box in pixels needs the photo itself, not its features")
    width, height = upright_size(engine.path_of(query) if isinstance(query, str) else query)
    return box[0] / width, box[1] / height, box[2] / width, box[3] / height


def _ask(
    engine: "Engine", queries: Iterable[str], box: tuple[float, ...] | None, **options: Any
) -> "list[AnsweredQuery]":
    """Answers to all queries that can be read; of the others the first is the error if none can."""
    from superfeat.pages.results import AnsweredQuery

    asked, failed = [], None
    for name, query in _queries(engine, queries):
        try:
            region = _fractions(engine, query, box)
            asked.append(AnsweredQuery(name, query, region, engine.search(query, box=region, **options)))
        except ImageError as error:
            failed = failed or error
            click.echo(f"skipped {name}: {error}", err=True)
    if failed is not None and not asked:
        raise failed
    return asked


def _report(result: Told) -> Iterable[str]:
    for one in result["results"]:
        yield f"{one['query']}:"
        best = max((hit["score"] for hit in one["hits"]), default=0.0)
        for rank, hit in enumerate(one["hits"], 1):
            chance, part = "", max(0.0, hit["score"]) / best if best > 0 else 0.0
            if hit["probability"] is not None:
                chance, part = f"{hit['probability']:6.1%}  ", hit["probability"]
            yield f"{rank:5}  {chance}{hit['score']:.4f}  {'█' * round(BAR * part):{BAR}}  {_place(hit)}"


def _place(hit: Told) -> str:
    """The file to open, from here if it is below; the name where the index knows no file."""
    if hit["path"] is None:
        return str(hit["name"])
    path = Path(hit["path"])
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


@click.command()
@index_argument
@click.argument("query")
@click.argument("result")
@click.option(
    "--output", "-o", required=True, type=click.Path(path_type=Path), help="The picture, a .png or .jpg file."
)
@box_option
@engine_weights
@workers_option
@json_option
def explain(
    index_folder: Path,
    query: str,
    result: str,
    output: Path,
    box: tuple[float, ...] | None,
    weights: str | None,
    workers: int | None,
    as_json: bool,
) -> None:
    """Draw why RESULT, an image of INDEX, was found for QUERY: which parts of both photos match, and their shares.

    QUERY is a photo or the name of an image in the index; RESULT is such a name, or the file that was indexed.
    """
    from superfeat.engine import Engine
    from superfeat.features import Features
    from superfeat.pages.explanation import draw_explanation, save_picture

    engine = Engine.open(index_folder, weights=weights, workers=workers)
    (_, asked), *more = _queries(engine, [query])
    if more or isinstance(asked, Features):
        raise SuperfeatError(f"{query} is not one photo; name a photo, or an image of the index")
    result = engine.name_of(result)
    explanation = engine.explain(asked, result, box=_fractions(engine, asked, box))
    picture = draw_explanation(explanation, engine.pixels(asked), engine.pixels(result))
    save_picture(picture, output)
    print_result({"picture": str(output), **explanation.as_dict()}, as_json, _explain_report)


def _explain_report(result: Told) -> Iterable[str]:
    yield f"{result['picture']}: score {result['score']:.4f} from {result['shared_words']} shared words"
    for number, region in enumerate(result["regions"], 1):
        yield f"  region {number}: {region['share']:.0%} of the score"
