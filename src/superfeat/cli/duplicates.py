"""superfeat duplicates: which photos of an index show the same thing, which are copies, and what to do with them."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from superfeat.cli.completion import INDEX_FOLDER
from superfeat.cli.export import export_options, export_sets
from superfeat.cli.lines import Progress, say
from superfeat.cli.terminal import Told, json_option, place_of, print_result, workers_option

if TYPE_CHECKING:
    from superfeat.duplicates import Group, Looked
    from superfeat.duplicates.review import ReviewedGroup
    from superfeat.engine import Engine
    from superfeat.export.photos import PhotoSet

file = click.Path(path_type=Path, dir_okay=False)


@click.command()
@click.argument("index_folder", metavar="INDEX", type=INDEX_FOLDER)
@click.option(
    "--least",
    type=click.FloatRange(min=0, max=1, min_open=True),
    metavar="PROBABILITY",
    help="That two photos show the same thing; in an index without a calibration, and of copies, their similarity.",
)
@click.option("--copies", is_flag=True, help="Copies alone: the same bytes, or nearly the same picture.")
@click.option("--html", type=file, help="Write a page to look at: each photo with its size and date, and what to keep.")
@click.option("--script", type=file, help="Write a shell script that moves copies to a trash folder, if you run it.")
@click.option(
    "--trash",
    type=click.Path(path_type=Path, file_okay=False),
    help="The folder that the script moves copies to. [default: superfeat-trash, beside the script]",
)
@click.option("--with", "photo", metavar="PHOTO", help="Only the group of this photo: its name or its file.")
@export_options
@workers_option
@json_option
def duplicates(
    index_folder: Path,
    least: float | None,
    copies: bool,
    html: Path | None,
    script: Path | None,
    trash: Path | None,
    photo: str | None,
    export: Path | None,
    keyword: str | None,
    merge_sidecars: bool,
    workers: int | None,
    as_json: bool,
) -> None:
    """Group the photos of INDEX that show the same thing, and tell copies of one photo from other photos of it.

    Of each set of copies one is suggested to be kept. No photo is changed, moved or deleted.
    """
    from superfeat.duplicates.review import review_groups
    from superfeat.engine import Engine
    from superfeat.export.photos import grouped_photos

    engine = Engine.open(index_folder)
    least = least or _least(engine, copies)
    chosen = None if photo is None else engine.name_of(photo)
    found = [one for one in _find(engine, copies, least, workers) if chosen is None or _holds(one, chosen)]
    groups = list(review_groups(engine.index, found))
    sets = [grouped_photos(number, group) for number, group in enumerate(groups, 1)]
    tags = (
        {} if keyword is None else {_keyword(keyword, number, len(sets)): [one] for number, one in enumerate(sets, 1)}
    )
    written = [
        *_write(groups, len(engine.index), html=html, script=script, trash=trash),
        *export_sets(sets, export, tags, merge_sidecars),
    ]
    result = {
        "index": str(index_folder),
        "images": len(engine.index),
        "likeness": "similarity" if copies or engine.calibration is None else "probability",
        "least": least,
        "groups": [_told(group, one) for group, one in zip(groups, sets, strict=True)],
    }
    print_result(result, as_json, _report)
    for line in written:
        say(line)


def _least(engine: "Engine", copies: bool) -> float:
    from superfeat.duplicates import COPY_SIMILARITY, least_likeness

    if copies:
        return COPY_SIMILARITY[engine.index.config.kernel]
    return least_likeness(engine.index, engine.calibration)


def _find(engine: "Engine", copies: bool, least: float, workers: int | None) -> "list[Group]":
    """The groups; how far it is, is shown."""
    from superfeat.duplicates import Group, find_copies, find_duplicates

    outcomes: Iterable[Looked | Group] = (
        find_copies(engine.index, least=least, workers=workers)
        if copies
        else find_duplicates(engine.index, engine.calibration, least=least, workers=workers)
    )
    groups: list[Group] = []
    progress = Progress("comparing", len(engine.index))
    for outcome in outcomes:
        if isinstance(outcome, Group):
            groups.append(outcome)
        else:
            progress.at(outcome.done)
    progress.done()
    return groups


def _write(
    groups: "Sequence[ReviewedGroup]",
    images: int,
    *,
    html: Path | None,
    script: Path | None,
    trash: Path | None,
) -> Iterator[str]:
    """Writes what is asked for; a sentence for each."""
    from superfeat.sources.reasons import TRASH

    if html is not None:
        from superfeat.pages.review import write_review_page

        write_review_page(html, groups, images=images)
        yield f"look at {html}"
    if script is not None:
        from superfeat.duplicates.script import tidy_script
        from superfeat.storage.store import write_file

        write_file(script, tidy_script(groups, trash or script.absolute().parent / TRASH))
        yield f"read {script}, then: sh {script} says what it would do, sh {script} --move does it"


def _told(group: "ReviewedGroup", exported: "PhotoSet") -> Told:
    images = [
        {"name": one.name, "id": photo.member.id, "path": one.path, **one.facts}
        for one, photo in zip(exported.photos, group.photos, strict=True)
    ]
    return {"kind": group.group.kind, "likeness": group.group.likeness, "images": images}


def _holds(group: "Group", name: str) -> bool:
    return any(member.name == name for member in group.members)


def _keyword(keyword: str, number: int, count: int) -> str:
    """Of several groups each gets a keyword of its own."""
    return keyword if count == 1 else f"{keyword} {number}"


def _report(result: Told) -> Iterable[str]:
    groups = result["groups"]
    images = [image for group in groups for image in group["images"]]
    copies = sum(group["kind"] == "copies" for group in groups)
    found = f"{len(images)} of {result['images']} photos in {len(groups)} groups"
    yield f"{result['index']}: {found}, {copies} of these all copies of one photo"
    yield f"({result['likeness']} at least {result['least']:g}; photos with the same letter are copies)"
    for number, group in enumerate(groups, 1):
        yield ""
        yield f"{number}. {group['kind']}: {len(group['images'])} photos, {result['likeness']} {group['likeness']:.2f}"
        for image in group["images"]:
            yield f"   {image['likeness']:.2f}  {_mark(image['copies'], group['kind'])}  {place_of(image)}"
    moved = [image["bytes"] for image in images if image["advice"] == "move"]
    if moved:
        from superfeat.storage.sizes import as_size

        yield ""
        size = as_size(sum(moved))
        what, them = ("1 copy", "it") if len(moved) == 1 else (f"{len(moved)} copies", "them")
        yield f"{what} can go ({size}): look at {them} with --html, move {them} away with --script"


def _mark(copies: int | None, kind: str) -> str:
    """A letter for each set of copies inside of a larger group."""
    if kind == "copies" or copies is None:
        return " "
    from superfeat.duplicates.review import letter_of

    return letter_of(copies)
