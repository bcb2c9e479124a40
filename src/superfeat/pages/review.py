"""Groups of duplicates as one HTML file to look at before anything is moved: each photo, its facts, what to keep."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

from superfeat.duplicates.review import PhotoFile, ReviewedGroup, ReviewedPhoto, letter_of
from superfeat.errors import ImageError
from superfeat.found.document import embed, write_document
from superfeat.images import read_image
from superfeat.storage.sizes import as_size

THUMBNAIL = 240  # longest side in pixels
MOST_PHOTOS = 2000  # on one page: some 30 MB
WORDS = {"keep": ("Keep", "yes"), "move": ("A copy, can go", "maybe"), "unsure": ("Cannot be judged", "no")}
FOOTER = "No file was touched: these are suggestions. A click on a path opens the file."


def write_review_page(path: Path, groups: Sequence[ReviewedGroup], *, images: int, most: int = MOST_PHOTOS) -> None:
    """Writes the page: as many groups as have `most` photos together, the first at least."""
    shown: list[ReviewedGroup] = []
    for group in groups:
        if shown and sum(len(one.photos) for one in (*shown, group)) > most:
            break
        shown.append(group)
    parts = "".join(_section(number, group) for number, group in enumerate(shown, 1))
    left = len(groups) - len(shown)
    more = f"<p><b>{left} more groups do not fit on this page.</b></p>" if left else ""
    body = f'<h1>Duplicates</h1><p class="muted">{escape(_summary(groups, images))}</p>{parts}{more}'
    write_document(path, "superfeat: duplicates", body, FOOTER)


def _summary(groups: Sequence[ReviewedGroup], images: int) -> str:
    photos = sum(len(group.photos) for group in groups)
    moved = [photo.file.bytes for group in groups for photo in group.moved if photo.file is not None]
    what = "1 is a copy" if len(moved) == 1 else f"{len(moved)} are copies"
    return f"{photos} of {images} photos in {len(groups)} groups; {what} that can go ({as_size(sum(moved))})"


def _section(number: int, group: ReviewedGroup) -> str:
    cards = "".join(_card(group, photo) for photo in group.photos)
    title = f"{number}. {group.group.kind}: {len(group.photos)} photos, alike {group.group.likeness:.2f}"
    return f'<section><h2>{escape(title)}</h2><ol class="hits review">{cards}</ol></section>\n'


def _card(group: ReviewedGroup, photo: ReviewedPhoto) -> str:
    words, kind = WORDS[photo.advice]
    several = group.group.kind != "copies"
    best = " · the best of the group" if several and photo.member.name == group.best else ""
    letter = f" · copies {letter_of(photo.member.copies)}" if several and photo.member.copies is not None else ""
    lines = [f'<span class="chance {kind}">{words}</span>', escape(photo.reason + best)]
    lines += [f'<span class="muted">{escape(line)}</span>' for line in _facts(photo.file)]
    lines += [_name(photo), f'<span class="muted">alike {photo.member.likeness:.2f}{letter}</span>']
    return f'<li class="hit">{_thumbnail(photo)}<div class="words">{"<br>".join(lines)}</div></li>'


def _facts(file: PhotoFile | None) -> list[str]:
    if file is None:
        return []
    width, height = file.header.size
    taken = file.header.taken
    date = f"changed {file.changed:%Y-%m-%d %H:%M}" if taken is None else f"taken {taken:%Y-%m-%d %H:%M}"
    return [f"{width} x {height}, {as_size(file.bytes)}", date]


def _name(photo: ReviewedPhoto) -> str:
    name = escape(photo.member.name).replace("/", "/<wbr>")
    return name if photo.file is None else f'<a href="{escape(Path(photo.file.path).as_uri())}">{name}</a>'


def _thumbnail(photo: ReviewedPhoto) -> str:
    name = escape(photo.member.name)
    if photo.file is None:
        return f'<div class="photo gone">{escape(photo.reason)}</div>'
    try:
        pixels = read_image(photo.file.path, max_side=THUMBNAIL, draft=True)
    except ImageError as error:
        return f'<div class="photo gone">{escape(str(error))}</div>'
    return f'<div class="photo"><img loading="lazy" alt="{name}" src="{embed(pixels, THUMBNAIL)}"></div>'
