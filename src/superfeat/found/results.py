"""What was found as one HTML file that needs nothing else: photos, where they match, how likely, and why."""

import dataclasses
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, overload

from superfeat.addresses.address import address_of
from superfeat.errors import SuperfeatError
from superfeat.features import Features
from superfeat.found.document import embed, save_shown, write_document
from superfeat.found.explanation import Captions, draw_explanation
from superfeat.found.hits import THUMBNAIL as NOTEBOOK_THUMBNAIL
from superfeat.found.hits import FoundPhoto, IndexedPhoto, figure
from superfeat.found.photos import Looker, Named, PhotoLike
from superfeat.found.templates import template
from superfeat.found.verdicts import Section, headline, short_names, sort_hits, verdict
from superfeat.index.partial import MissingPart
from superfeat.index.places import Region
from superfeat.rerank.look import Reordered

THUMBNAIL, ASKED = 300, 520  # longest sides in pixels
IN_NOTEBOOK = 12  # hits that a notebook shows


@dataclasses.dataclass(frozen=True, repr=False)
class Answer(Sequence[FoundPhoto]):
    """What was found, best first, and how much of the photo that was asked with was looked for.

    A photo that is in the index is `itself`, and no hit.
    """

    hits: list[FoundPhoto]
    features: int  # that were searched with; 0 for an indexed photo, whose words are stored
    size: tuple[int, int] | None  # width and height that the photo was looked at
    itself: IndexedPhoto | None
    images: int  # that were searched
    box: Region | None  # the part of the photo that was asked with
    name: str = dataclasses.field(compare=False)  # of the photo; empty where it has none
    photo: PhotoLike | Features = dataclasses.field(compare=False)
    look: Looker = dataclasses.field(compare=False)
    reordered: Reordered | None = None  # what a second look changed; None if the order is that of the scores
    missing: tuple[MissingPart, ...] = ()  # shards that did not answer: what they hold was not searched

    @property
    def unsearched(self) -> float:
        """The share of the collection that was not searched."""
        return sum(part.images for part in self.missing) / max(1, self.images)

    def __len__(self) -> int:
        return len(self.hits)

    @overload
    def __getitem__(self, place: int) -> FoundPhoto: ...
    @overload
    def __getitem__(self, place: slice) -> list[FoundPhoto]: ...
    def __getitem__(self, place: int | slice) -> FoundPhoto | list[FoundPhoto]:
        return self.hits[place]

    def __repr__(self) -> str:
        asked = f" for {self.name!r}" if self.name else ""
        best = f", the best {self.hits[0]!r}" if self.hits else ""
        return f"<Answer{asked}: {len(self.hits)} of {self.images} photos{best}>"

    def _repr_html_(self) -> str:
        """The photo that was asked with, and the best hits."""
        asked = "" if isinstance(self.photo, Features) else self._figure()
        more = len(self.hits) - IN_NOTEBOOK
        rest = f"<p>and {more} more</p>" if more > 0 else ""
        return f"<div>{asked}{''.join(hit._repr_html_() for hit in self.hits[:IN_NOTEBOOK])}{rest}</div>"

    def _figure(self) -> str:
        assert not isinstance(self.photo, Features)
        lines = [self.name or "the query", "asked with" if self.itself is None else "asked with; in the index"]
        try:
            return figure(self.look.pixels(self.photo), lines, NOTEBOOK_THUMBNAIL, self.box)
        except SuperfeatError as error:
            return figure(None, [*lines, str(error)], NOTEBOOK_THUMBNAIL)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        itself = None if self.itself is None else self.itself._asdict()
        reordered = None if self.reordered is None else self.reordered._asdict()
        hits = [hit._asdict() for hit in self.hits]
        told = {"query": self.name, "itself": itself, "reordered": reordered, "hits": hits}
        return {**told, "unsearched": self.unsearched, "missing": [part._asdict() for part in self.missing]}

    def save(self, path: str | Path) -> None:
        """As the page that `superfeat search --html` writes (.html), or for programs (.json)."""
        if Path(path).suffix.lower() in (".html", ".htm"):
            write_results_page(Path(path), [self])
        else:
            save_shown(path, "", "", self.as_dict())


def write_results_page(path: Path, answers: Sequence[Answer], *, explained: int = 2) -> None:
    """Writes the page; the best `explained` hits of each answer are explained."""
    parts = [_section(one, explained) for one in answers]
    images = max((one.images for one in answers), default=0)
    counts = f"{len(answers)} {'query' if len(answers) == 1 else 'queries'} among {images} photos"
    body = f'<h1>Photos of the same thing</h1><p class="muted">{counts}</p>\n{"".join(parts)}'
    footer = "An outline shows where the match lies; the query itself is left out."
    write_document(path, "superfeat: what was found", body, footer, script=template("copy.js"))


def _section(one: Answer, explained: int) -> str:
    found, look = one.hits, one.look
    names = short_names([one.name, *(hit.name for hit in found)])
    sections = "".join(_part(look, part, names) for part in sort_hits(found))
    shown = "" if isinstance(one.photo, Features) else _photo(look, one.photo, ASKED, one.box, f"query: {one.name}")
    why = "".join(_explain(one, hit) for hit in found[:explained] if hit.score > 0)
    return (
        f'<section><div class="row"><div class="asked">{shown}<p class="name">{_name(one.name, names)}</p></div>'
        f"<div><h2>{headline(found)}</h2>{sections}{why}</div></div></section>\n"
    )


def _part(look: Looker, part: Section, names: Mapping[str, str]) -> str:
    """A section of results; those that hardly anybody wants to see are folded away."""
    best = max(hit.score for hit in part.hits)
    hits = "".join(_hit(look, hit, best, names) for hit in part.hits)
    title = f"{part.title} <span>{len(part.hits)}</span>"
    if part.folded:
        return f'<details class="rest"><summary>{title}</summary><ol class="hits">{hits}</ol></details>'
    return f'<h3>{title}</h3><ol class="hits">{hits}</ol>'


def _hit(look: Looker, hit: FoundPhoto, best: float, names: Mapping[str, str]) -> str:
    photo = _photo(look, Named(hit.name), THUMBNAIL, hit.region, hit.name)
    width = 100 * (hit.probability if hit.probability is not None else hit.score / best)
    chance = ""
    if hit.probability is not None:
        words, kind = verdict(hit.probability)
        chance = f'<span class="chance {kind}">{words}</span><br>'
    return (
        f'<li class="hit">{photo}<div class="words">{chance}<div class="meter" aria-hidden="true">'
        f'<i style="width:{width:.0f}%"></i></div>{_name(hit.name, names)}<br>'
        f'<span class="muted">score {hit.score:.4f}{escape(remark(hit))}</span>{_actions(hit)}</div></li>'
    )


def remark(hit: FoundPhoto) -> str:
    """What else there is to say of the file of a hit."""
    gone = "; its file is no longer there" if hit.gone else ""
    return gone + ("" if hit.copy_of is None else f"; a copy of {hit.copy_of}")


def _name(name: str, names: Mapping[str, str]) -> str:
    """As much of it as tells it from the others; the whole of it where one points."""
    return f'<span title="{escape(name)}">{escape(names[name]).replace("/", "/<wbr>")}</span>'


def _actions(hit: FoundPhoto) -> str:
    """What to do with a photo that was found, where its file is known and there."""
    if hit.path is None or hit.gone:
        return ""
    where, links = address_of(hit.path), ""
    if isinstance(where, Path):
        links = f'<a href="{escape(where.as_uri())}">Open</a><a href="{escape(where.parent.as_uri())}">Folder</a>'
    copy = f'<button type="button" hidden data-path="{escape(hit.path)}">Copy path</button>'
    return f'<div class="actions">{links}{copy}</div>'


def _photo(look: Looker, photo: PhotoLike, side: int, region: Region | None, words: str) -> str:
    try:
        pixels = look.pixels(photo)
    except SuperfeatError as error:
        return f'<div class="photo gone">{escape(words)}: {escape(str(error))}</div>'
    spot = ""
    if region is not None:
        left, top, width, height = (100 * value for value in region)
        spot = f'<i class="spot" style="left:{left:.1f}%;top:{top:.1f}%;width:{width:.1f}%;height:{height:.1f}%"></i>'
    return f'<div class="photo"><img loading="lazy" alt="{escape(words)}" src="{embed(pixels, side)}">{spot}</div>'


def _explain(one: Answer, hit: FoundPhoto) -> str:
    if isinstance(one.photo, Features):
        return ""
    try:
        explanation = one.look.explain(one.photo, hit.name, box=one.box)
        captions = Captions(one.name, hit.name, hit.probability)
        pixels = one.look.pixels(one.photo), one.look.pixels(Named(hit.name))
        picture = draw_explanation(explanation, *pixels, captions=captions)
    except SuperfeatError as error:
        shown = f"<p>{escape(str(error))}</p>"
    else:
        words = f"the parts of both photos that match, and their shares of the score {hit.score:.4f}"
        shown = f'<img loading="lazy" alt="{words}" src="{embed(picture, max(picture.size))}">'
    chance = "" if hit.probability is None else f": {verdict(hit.probability)[0]}"
    return f"<details open><summary>Why {escape(hit.name)}{chance}</summary>{shown}</details>"
