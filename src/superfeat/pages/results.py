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
from superfeat.engine import Answer, Engine, Found, Photo
from superfeat.errors import SuperfeatError
from superfeat.features import Features
from superfeat.index.places import Region
from superfeat.pages.explanation import draw_explanation
from superfeat.storage.store import write_file

THUMBNAIL, ASKED = 300, 520  # longest sides in pixels
QUALITY = 82  # of JPEG
# From which probability on which words; the web page says the same (service/page/cards.js).
WORDS = (
    (0.95, "very likely the same", "yes"),
    (0.75, "likely the same", "yes"),
    (0.4, "perhaps the same", "maybe"),
    (0.1, "unlikely to be the same", "no"),
    (0.0, "very unlikely to be the same", "no"),
)

CSS = """
:root{color-scheme:light dark;--bg:#fbfaf8;--card:#fff;--line:#e4e0da;--ink:#23211e;--muted:#6b665f;
--accent:#0a6b58;--yes:#0a7a55;--maybe:#9a6700;--no:#8a8580;
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,Arial,sans-serif}
@media(prefers-color-scheme:dark){:root{--bg:#141312;--card:#1d1c1a;--line:#35322e;--ink:#ece8e1;--muted:#a8a197;
--accent:#4fd1b0;--yes:#4cc38a;--maybe:#e0a940;--no:#8f8a82}}*{box-sizing:border-box}body{margin:0;
background:var(--bg);color:var(--ink)}main{max-width:78rem;margin:0 auto;padding:1.2rem}
h1{font-size:clamp(1.6rem,5vw,2.3rem);letter-spacing:-.02em;margin:1rem 0 .2rem}h2{font-size:1.15rem;margin:0;
overflow-wrap:anywhere}.muted,footer{color:var(--muted)}section{border-top:1px solid var(--line);padding:1.6rem 0}
.row{display:grid;gap:1.6rem}@media(min-width:56rem){.row{grid-template-columns:19rem 1fr}}.hits{display:grid;
gap:1rem;grid-template-columns:repeat(auto-fill,minmax(min(47%,11rem),1fr));list-style:none;margin:0;padding:0}
.hit{background:var(--card);border:1px solid var(--line);border-radius:12px;overflow:hidden;font-size:.86rem}
.hit .words{padding:.5rem .7rem .7rem;overflow-wrap:anywhere}.photo{position:relative;line-height:0;
background:var(--line)}.photo img{width:100%;height:auto}.asked .photo{border-radius:12px;overflow:hidden}
.spot{position:absolute;border:2px solid #fff;outline:2px solid var(--accent);border-radius:4px}
.chance{font-weight:650}.yes{color:var(--yes)}.maybe{color:var(--maybe)}.no{color:var(--no)}.meter{height:4px;
border-radius:2px;background:var(--line);margin:.35rem 0}.meter i{display:block;height:4px;border-radius:2px;
background:var(--accent)}details{margin-top:1rem;border:1px solid var(--line);border-radius:12px;
background:var(--card);padding:.7rem 1rem}summary{cursor:pointer;font-weight:600}details img{width:100%;height:auto;
margin-top:.8rem;border-radius:8px}.gone{display:grid;place-items:center;aspect-ratio:4/3;line-height:1.4;
color:var(--muted);padding:1rem;text-align:center}
"""


class Asked(NamedTuple):
    """One query and its answer; `photo` may be features, of which there is nothing to show."""

    name: str
    photo: Photo | Features
    box: Region | None
    answer: Answer


def write_results_page(path: Path, engine: Engine, asked: Sequence[Asked], *, explained: int = 2) -> None:
    """Writes the page; the best `explained` hits of each query that are not the query itself are explained."""
    parts = [_section(engine, one, explained) for one in asked]
    counts = f"{len(asked)} {'query' if len(asked) == 1 else 'queries'} among {len(engine.index)} photos"
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    page = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>superfeat: what was found</title>\n<style>{CSS}</style>\n</head>\n<body><main>"
        f'<h1>Photos of the same thing</h1><p class="muted">{counts}</p>\n{"".join(parts)}'
        f"<footer><p>Made by superfeat {superfeat.__version__}. An outline shows where the match lies; "
        "the query itself is left out.</p></footer>"
        "</main></body>\n</html>\n"
    )
    write_file(path, page.encode(errors="replace"))


def _section(engine: Engine, one: Asked, explained: int) -> str:
    others = _others(one)
    best = max((hit.score for hit in others), default=0.0)
    hits = "".join(_hit(engine, hit, best) for hit in others) or "<p>Nothing was found.</p>"
    shown = "" if isinstance(one.photo, Features) else _photo(engine, one.photo, ASKED, one.box, f"query: {one.name}")
    why = "".join(_explain(engine, one, hit) for hit in others[:explained] if hit.score > 0)
    return (
        f'<section><div class="row"><div class="asked">{shown}<h2>{escape(one.name)}</h2></div>'
        f'<div><ol class="hits">{hits}</ol>{why}</div></div></section>\n'
    )


def _others(one: Asked) -> list[Found]:
    """The hits that are not the query's own file."""
    own = one.photo if isinstance(one.photo, str) else str(one.photo.resolve()) if isinstance(one.photo, Path) else None
    return [hit for hit in one.answer.hits if own not in (hit.name, hit.path)]


def _hit(engine: Engine, hit: Found, best: float) -> str:
    photo = _photo(engine, hit.name, THUMBNAIL, hit.region, hit.name)
    width = 100 * (hit.probability if hit.probability is not None else max(0.0, hit.score) / best if best > 0 else 0.0)
    name = escape(hit.name).replace("/", "/<wbr>")
    chance = ""
    if hit.probability is not None:
        words, kind = in_words(hit.probability)
        chance = f'<span class="chance {kind}">{words}</span><br>'
    return (
        f'<li class="hit">{photo}<div class="words">{chance}<div class="meter" aria-hidden="true">'
        f'<i style="width:{width:.0f}%"></i></div>{name}<br>'
        f'<span class="muted">score {hit.score:.4f}</span></div></li>'
    )


def in_words(probability: float) -> tuple[str, str]:
    """A probability for people, and the class of its colour."""
    words, kind = next((words, kind) for least, words, kind in WORDS if probability >= least)
    return f"{words}, {probability:.0%}", kind


def _photo(engine: Engine, photo: Photo, side: int, region: Region | None, words: str) -> str:
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


def _explain(engine: Engine, one: Asked, hit: Found) -> str:
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
