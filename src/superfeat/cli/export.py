"""What `search` and `duplicates` share: what was found, written for other programs."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from superfeat.cli.accounts import name_some
from superfeat.cli.terminal import Command

if TYPE_CHECKING:
    from superfeat.export.photos import PhotoSet


def export_options(command: Command) -> Command:
    """--export, --keyword, --merge-sidecars."""
    command = click.option(
        "--merge-sidecars", is_flag=True, help="Add the keyword to sidecars that other programs have written."
    )(command)
    command = click.option(
        "--keyword", metavar="TEXT", help="Note it in an XMP sidecar beside each photo (dc:subject)."
    )(command)
    return click.option(
        "--export",
        type=click.Path(path_type=Path),
        metavar="TARGET",
        help="Write what was found to a .csv or .json file, or as a new folder of links.",
    )(command)


def export_sets(
    sets: "Sequence[PhotoSet]", target: Path | None, tags: "Mapping[str, Sequence[PhotoSet]]", merge_sidecars: bool
) -> Iterator[str]:
    """Writes what is asked for; yields what has been written, and what could not be."""
    if target is not None:
        yield from _export(sets, target)
    if tags:
        from superfeat.export.sidecars import write_sidecars

        photos = {keyword: [photo for one in some for photo in one.photos] for keyword, some in tags.items()}
        tagged = write_sidecars(photos, merge=merge_sidecars)
        told = f"{len(tagged.new)} new, {len(tagged.merged)} added to, {len(tagged.same)} had it already"
        yield f"sidecars with the keyword {', '.join(tags)}: {told}"
        yield from name_some("no file is there of", tagged.missing, verbose=False)


def _export(sets: "Sequence[PhotoSet]", target: Path) -> Iterator[str]:
    from superfeat.export.links import link_photos
    from superfeat.export.table import ENDINGS, write_table

    if target.suffix.lower() in ENDINGS:
        yield f"{target}: {write_table(target, sets)} photos"
        return
    linked = link_photos(target, sets)
    yield f"{target}: {linked.links} links"
    if linked.hard_links or linked.copies:
        yield f"  no links can be made there: {linked.hard_links} hard links, {linked.copies} copies instead"
    yield from name_some("no file is there of", linked.missing, verbose=False)
