"""superfeat analyze: pictures and numbers of what a network does with photos."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from superfeat.cli.accounts import accounts_for_files
from superfeat.cli.lines import Follow
from superfeat.cli.terminal import (
    Told,
    VerbGroup,
    device_option,
    json_option,
    print_result,
    weights_option,
    workers_option,
)
from superfeat.config import PROFILES, ExtractConfig
from superfeat.errors import SuperfeatError
from superfeat.settings import overlay, parse_assignment
from superfeat.studies.kinds import KINDS

if TYPE_CHECKING:
    from superfeat.studies.analysis import Analysing, Analysis, Look
    from superfeat.work import Work

PATH = click.Path(path_type=Path)
Command = TypeVar("Command", bound=Callable[..., Any])
Table = Iterable[Sequence[Any]]
DOING = {
    "ids": "choosing IDs from",
    "maps": "looking at",
    "correlation": "comparing the maps of",
    "features": "extracting",
}


def _numbers(context: click.Context, parameter: click.Parameter, text: str | None) -> tuple[int, ...] | None:
    try:
        return None if text is None else tuple(int(part) for part in text.split(","))
    except ValueError:
        raise click.BadParameter(f"'{text}' is not a list of whole numbers like 3,17") from None


def analysis_options(kind: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """What all kinds share."""
    images = KINDS[kind].photos
    first = f"Take the first so many photos. [default: {images or 'all'}]"
    options = [
        click.argument("photos", nargs=-1, required=True),
        click.option("--output", "-o", required=True, type=PATH, help="Folder for the numbers and the picture."),
        weights_option,
        click.option("--images", type=click.IntRange(min=1), default=images, help=first),
        click.option("--profile", type=click.Choice(list(PROFILES)), default="paper", show_default=True),
        click.option("--set", "assignments", multiple=True, metavar="NAME=VALUE", help="E.g. max_side=480."),
        device_option,
        workers_option,
        json_option,
    ]

    def add(command: Callable[..., None]) -> Callable[..., None]:
        command = accounts_for_files(command)
        for option in reversed(options):
            command = option(command)
        return command

    return add


def ids_option(kind: str) -> Callable[[Command], Command]:
    help_text = f"Super-feature IDs, like 3,17. [default: the {KINDS[kind].ids} strongest in these photos]"
    return click.option("--ids", callback=_numbers, help=help_text)


def counts_option(kind: str, help_text: str) -> Callable[[Command], Command]:
    default = ",".join(map(str, KINDS[kind].counts or ()))
    return click.option("--counts", callback=_numbers, default=default, show_default=True, help=help_text)


@click.group(cls=VerbGroup)
def analyze() -> None:
    """Look into a network: what it attends to, how alike its features are, where they come from.

    Each kind writes KIND.json and KIND.png into the output folder.
    """


@analyze.command()
@analysis_options("attention")
@ids_option("attention")
def attention(**options: Any) -> None:
    """Where the same super-features look in several photos (the paper's Figure 1)."""
    _analyse("attention", **options)


@analyze.command()
@analysis_options("attention-scales")
@ids_option("attention-scales")
def attention_scales(**options: Any) -> None:
    """Where a super-feature looks at each scale of a photo."""
    _analyse("attention-scales", **options)


@analyze.command()
@analysis_options("ids")
@ids_option("ids")
@click.option(
    "--top",
    default=KINDS["ids"].top,
    show_default=True,
    type=click.IntRange(min=1),
    help="Photos to show of each ID.",
)
def ids(**options: Any) -> None:
    """What super-features look for: the photos in which each is strongest."""
    _analyse("ids", **options)


@analyze.command()
@analysis_options("correlation")
def correlation(**options: Any) -> None:
    """How much the attention maps of a photo cover each other."""
    _analyse("correlation", **options)


@analyze.command()
@analysis_options("redundancy")
@counts_option("redundancy", "How many nearest features.")
def redundancy(**options: Any) -> None:
    """How alike the features of a photo are."""
    _analyse("redundancy", **options)


@analyze.command()
@analysis_options("scales")
def scales(**options: Any) -> None:
    """From which scales the strongest features come."""
    _analyse("scales", **options)


@analyze.command()
@analysis_options("words")
@click.option("--codebook", required=True, type=PATH, help="The words: see superfeat codebook.")
@counts_option("words", "How many features to keep.")
def words(**options: Any) -> None:
    """How many words, and so how much memory, a photo needs in an index."""
    _analyse("words", **options)


def _analyse(
    kind: str,
    *,
    photos: tuple[str, ...],
    output: Path,
    weights: str,
    profile: str,
    assignments: tuple[str, ...],
    as_json: bool,
    **asked: Any,
) -> None:
    """`asked` goes to the analysis as it is."""
    config = _config(kind, profile, assignments)

    from superfeat.extraction.extract import keep_memory
    from superfeat.pages.analysis import write_analysis
    from superfeat.sources.listing import list_photos, nothing_there
    from superfeat.studies.analyse import analyse
    from superfeat.weights import load_network

    keep_memory()
    listing = list_photos(photos)
    if not listing.photos:
        raise SuperfeatError(nothing_there(photos, listing))
    found = followed(analyse(kind, load_network(weights), listing.photos, config=config, **asked))
    facts = write_analysis(found, output)
    table = _table(found)
    print_result({"output": str(output), **facts}, as_json, lambda result: _report(result, table))


def _config(kind: str, profile: str, assignments: Iterable[str]) -> ExtractConfig:
    changes = dict(parse_assignment(text) for text in assignments)
    config = overlay(ExtractConfig.profile(profile), changes, "extract.")
    if taken := sorted(changes.keys() & KINDS[kind].decides):
        raise SuperfeatError(f"analyze {kind} decides '{taken[0]}' itself; leave --set {taken[0]}=… out")
    return config


def followed(work: "Work[Analysing, Analysis]") -> "Analysis":
    """Shows how far an analysis is, and returns what came out."""
    follow = Follow()
    try:
        for at in work:
            follow(DOING[at.stage], at.done, at.total)
    finally:
        follow.end()
    return work.result()


def _report(result: Told, table: Table) -> Iterable[str]:
    yield f"{result['title']} ({result['images']} photos)"
    texts = [["-" if x is None else f"{x:.4g}" if isinstance(x, float) else str(x) for x in row] for row in table]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    for row in texts:
        yield "  " + "  ".join(f"{text:>{width}}" for text, width in zip(row, widths, strict=True))
    yield f"  in {result['output']}: {result['kind']}.json, {result['picture']}"


def _table(found: "Analysis") -> Table:
    """The head, and then the rows."""
    from superfeat.studies import analysis as of

    match found.found.numbers:
        case of.AttentionNumbers(ids, photos):
            yield ["centre, % of the photo", *(f"ID {id}" for id in ids)]
            yield from ([one.name, *map(_centre, one.ids.values())] for one in photos)
        case of.ScaleAttentionNumbers(photos=seen):
            names = [f"{scale:g}" for scale in sorted(found.extract["scales"])]
            yield ["centre, % of the photo", "ID", *names]
            yield from ([one.name, one.id, *(_centre(one.scales.get(name)) for name in names)] for one in seen)
        case of.IdNumbers(looks):
            yield ["ID", "cosine of its vectors", "over all photos", "strongest in"]
            yield from ([one.id, one.cosine, one.cosine_of_all, one.photos[0].name] for one in looks)
        case of.CorrelationNumbers(mean, alike):
            yield from (["IDs", "cosine"], ["all pairs", mean])
            yield from ([f"{one.ids[0]} and {one.ids[1]}", one.cosine] for one in alike)
        case of.RedundancyNumbers(counts, cosines):
            yield from (["K", "mean cosine"], *zip(counts, cosines, strict=True))
        case of.ScaleNumbers(steps, _, of_selected, selected, features):
            yield ["scale", "share of the selected", "share selected", "features"]
            yield from zip(steps, of_selected, selected, features, strict=True)
        case of.WordNumbers(counts, kept):
            yield from (["features", "words"], *zip(counts, kept, strict=True))


def _centre(look: "Look | None") -> str:
    """In hundredths of the photo's width and height."""
    return "-" if look is None or look.x is None or look.y is None else f"{100 * look.x:.0f}, {100 * look.y:.0f}"
