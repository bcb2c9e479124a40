"""What was found as one HTML file that needs nothing else: photos, where they match, how likely, and why."""

import base64
import io
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

import superfeat
from superfeat.engine import Answer, Engine, FoundPhoto, PhotoLike
from superfeat.errors import SuperfeatError
from superfeat.features import Features
from superfeat.index.places import Region
from superfeat.pages.explanation import draw_explanation
from superfeat.pages.templates import template
from superfeat.storage.store import write_file

THUMBNAIL, ASKED = 300, 520  # longest sides in pixels
QUALITY = 82  # of JPEG
# From which probability on which words; the web page says the same (service/page/cards.js).
VERDICTS = (
    (0.95, "very likely the same", "yes"),
    (0.75, "likely the same", "yes"),
    (0.4, "perhaps the same", "maybe"),
    (0.1, "unlikely to be the same", "no"),
    (0.0, "very unlikely to be the same", "no"),
)


class AnsweredQuery(NamedTuple):
    """One query and its answer; `photo` may be features, of which there is nothing to show."""

    name: str
    photo: PhotoLike | Features
    box: Region | None
    answer: Answer


def write_results_page(path: Path, engine: Engine, asked: Sequence[AnsweredQuery], *, explained: int = 2) -> None:
    """Writes the page; the best `explained` hits of each query that are not the query itself are explained."""
    parts = [_section(engine, one, explained) for one in asked]
    counts = f"{len(asked)} {'query' if len(asked) == 1 else 'queries'} among {len(engine.index)} photos"
    style = template("results.css")
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    page = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>superfeat: what was found</title>\n<style>{style}</style>\n</head>\n<body><main>"
        f'<h1>Photos of the same thing</h1><p class="muted">{counts}</p>\n{"".join(parts)}'
        f"<footer><p>Made by superfeat {superfeat.__version__}. An outline shows where the match lies; "
        "the query itself is left out.</p></footer>"
        "</main></body>\n</html>\n"
    )
    write_file(path, page.encode(errors="replace"))


def _section(engine: Engine, one: AnsweredQuery, explained: int) -> str:
    others = _others(one)
    best = max((hit.score for hit in others), default=0.0)
    hits = "".join(_hit(engine, hit, best) for hit in others) or "<p>Nothing was found.</p>"
    shown = "" if isinstance(one.photo, Features) else _photo(engine, one.photo, ASKED, one.box, f"query: {one.name}")
    why = "".join(_explain(engine, one, hit) for hit in others[:explained] if hit.score > 0)
    return (
        f'<section><div class="row"><div class="asked">{shown}<h2>{escape(one.name)}</h2></div>'
        f'<div><ol class="hits">{hits}</ol>{why}</div></div></section>\n'
    )


def _others(one: AnsweredQuery) -> list[FoundPhoto]:
    """The hits that are not the query's own file."""
    own = one.photo if isinstance(one.photo, str) else str(one.photo.resolve()) if isinstance(one.photo, Path) else None
    return [hit for hit in one.answer.hits if own not in (hit.name, hit.path)]


def _hit(engine: Engine, hit: FoundPhoto, best: float) -> str:
    photo = _photo(engine, hit.name, THUMBNAIL, hit.region, hit.name)
    width = 100 * (hit.probability if hit.probability is not None else max(0.0, hit.score) / best if best > 0 else 0.0)
    name = escape(hit.name).replace("/", "/<wbr>")
    chance = ""
    if hit.probability is not None:
        words, kind = verdict(hit.probability)
        chance = f'<span class="chance {kind}">{words}</span><br>'
    return (
        f'<li class="hit">{photo}<div class="words">{chance}<div class="meter" aria-hidden="true">'
        f'<i style="width:{width:.0f}%"></i></div>{name}<br>'
        f'<span class="muted">score {hit.score:.4f}</span></div></li>'
    )


def verdict(probability: float) -> tuple[str, str]:
    """A probability for people, and the class of its colour."""
    words, kind = next((words, kind) for least, words, kind in VERDICTS if probability >= least)
    return f"{words}, {probability:.0%}", kind


def _photo(engine: Engine, photo: PhotoLike, side: int, region: Region | None, words: str) -> str:
    try:
        pixels = engine.pixels(photo)
    except SuperfeatError as error:
        return f'<div class="photo gone">{escape(words)}: {escape(str(error))}</div>'
    spot = ""
    if region is not None:
        left, top, width, height = (100 * value for value in region)
        spot = f'<i class="spot" style="left:{left:.1f}%;top:{top:.1f}%;width:{width:.1f}%;height:{height:.1f}%"></i>'
    return f'<div class="photo"><img loading="lazy" alt="{escape(words)}" src="{_encode(pixels, side)}">{spot}</div>'


def _encode(pixels: np.ndarray | Image.Image, side: int) -> str:
    image = Image.fromarray(pixels) if isinstance(pixels, np.ndarray) else pixels.convert("RGB")
    image.thumbnail((side, side), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=QUALITY, optimize=True)
    return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def _explain(engine: Engine, one: AnsweredQuery, hit: FoundPhoto) -> str:
    if isinstance(one.photo, Features):
        return ""
    try:
        explanation = engine.explain(one.photo, hit.name, box=one.box)
        picture = draw_explanation(explanation, engine.pixels(one.photo), engine.pixels(hit.name))
    except SuperfeatError as error:
        shown = f"<p>{escape(str(error))}</p>"
    else:
        words = f"the parts of both photos that match, and their shares of the score {hit.score:.4f}"
        shown = f'<img loading="lazy" alt="{words}" src="{_encode(picture, max(picture.size))}">'
    return f"<details open><summary>Why {escape(hit.name)}</summary>{shown}</details>"
