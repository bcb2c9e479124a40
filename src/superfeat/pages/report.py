"""A finished evaluation as one HTML file: numbers, curves, the card, and what each query found, the worst first."""

import base64
import dataclasses
import hashlib
import io
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, cast

from PIL import Image

import superfeat
from superfeat.errors import ImageError, StoreError
from superfeat.evaluation.card import Card, card_in_words
from superfeat.evaluation.judge import GradeScores, ImageFacts, QueryScores, Scores
from superfeat.evaluation.metrics import GRADES
from superfeat.evaluation.run import Evaluated, open_run
from superfeat.found.templates import template
from superfeat.images import Box, read_image
from superfeat.methods import method_of
from superfeat.pages.plots import Panel, Series, curve_svg
from superfeat.storage.store import read_json, write_file

THUMBNAIL, LEAST_THUMBNAIL, QUALITY = 144, 64, 80  # heights in pixels, of JPEG
BUDGET = 6_500_000  # bytes of all thumbnails together
EACH, PER_SQUARE = 850, 0.36  # bytes of a thumbnail, and over the square of its height; measured on photos of buildings
SYMBOLS = {"right": "✓", "hard": "◆", "wrong": "✕", "junk": "○"}
MEANINGS = {"right": "right", "hard": "right, and hard", "wrong": "wrong", "junk": "not judged, and without a rank"}
SEARCHES = {"asmk": "ASMK", "pooled": "pooled vectors"}
NO_VALUE = "—"
TITLES = {
    "results": "Results",
    "curves": "Curves",
    "protocol": "Protocol",
    "analyses": "Analyses",
    "strips": "Worst queries",
    "queries": "All queries",
}
PERCENT = (0, 102)  # of the axes: a line at 100 is drawn whole
WIDE = 1.55  # width over height of a picture that gets a row of its own
Key = tuple[str, Box | None]  # a file, and the part of it that is meant


def write_report(run: Path, *, strips: int = 60) -> Path:
    """Writes RUN/report.html, which needs nothing else, and returns its path. The `strips` worst queries are shown."""
    found = open_run(run)
    scores = _in_order(found.scores)
    charts = _charts(scores)  # first, since it may lack its extra
    shown = scores.queries[: max(0, strips)]
    thumbnails = _Thumbnails([query for _, query in shown], found.card)
    sections = {
        "results": _results(scores),
        "curves": charts,
        "protocol": _protocol(found.card),
        "analyses": _analyses(run / "analyses"),
        "strips": _strips(scores, shown, thumbnails),
        "queries": _table(scores, len(shown)),
    }
    sections = {part: html for part, html in sections.items() if html}
    page = _page(scores.dataset, _lead(found), sections, _footer(run), thumbnails.rules)
    write_file(run / "report.html", page.encode(errors="replace"))
    return run / "report.html"


@dataclasses.dataclass(frozen=True)
class _Ordered:
    """Scores with the grades from easy to hard, and the queries with their numbers, the worst `by` a grade first."""

    dataset: str
    grades: dict[str, GradeScores]
    by: str
    queries: list[tuple[int, QueryScores]]
    ns: float | None


def _in_order(scores: Scores) -> _Ordered:
    """By the medium grade if there is one; a query without a right answer of that grade is among the last."""
    grades = [grade for grade in (*GRADES, *scores["grades"]) if grade in scores["grades"]]
    by = "medium" if "medium" in grades else grades[0]
    queries: list[tuple[int, QueryScores]] = [
        (number, {**query, "ap": {grade: query["ap"][grade] for grade in dict.fromkeys(grades)}})
        for number, query in enumerate(scores["queries"])
    ]
    queries.sort(key=lambda one: (one[1]["ap"][by] is None, one[1]["ap"][by] or 0.0))
    by_ease = {grade: scores["grades"][grade] for grade in grades}
    return _Ordered(scores["dataset"], by_ease, by, queries, scores.get("ns"))


class _Thumbnails:
    """Small photos as HTML, each file's bytes once: those that are shown often are backgrounds of a class."""

    def __init__(self, queries: Sequence[QueryScores], card: Card) -> None:
        self.uses = Counter(key for query in queries for key in _keys(query))
        self.upright: bool = card["extract"]["upright"]
        room = max(0.0, BUDGET / max(1, len(self.uses)) - EACH)
        self.height = min(THUMBNAIL, max(LEAST_THUMBNAIL, int(math.sqrt(room / PER_SQUARE))))
        self.classes: dict[Key, str] = {}
        self.failures: dict[Key, str] = {}
        self.rules: list[str] = []

    def show(self, key: Key, words: str) -> str:
        """The photo, or a placeholder; `words` for those who cannot see it."""
        if key not in self.classes and key not in self.failures:
            try:
                data = self._encode(key)
            except ImageError as error:
                self.failures[key] = str(error)
            else:
                if self.uses[key] == 1:
                    return f'<img class="photo" loading="lazy" alt="{escape(words)}" src="{data}">'
                self.classes[key] = f"t{len(self.classes)}"
                self.rules.append(f".{self.classes[key]}{{background-image:url({data})}}")
        if key in self.failures:
            label = escape(f"{words}; cannot be read: {self.failures[key]}")
            return f'<span class="photo gone" role="img" aria-label="{label}" title="{label}">cannot be read</span>'
        return f'<span class="photo {self.classes[key]}" role="img" aria-label="{escape(words)}"></span>'

    def _encode(self, key: Key) -> str:
        path, box = key
        # The limit of a crop is in proportion to the whole, so a small box is read whole and made small here.
        pixels = read_image(path, max_side=None if box else 4 * self.height, upright=self.upright, box=box, draft=True)
        image = Image.fromarray(pixels)
        image.thumbnail((2 * self.height, self.height), Image.Resampling.LANCZOS)
        buffer = io.BytesIO()
        image.save(buffer, "JPEG", quality=QUALITY, optimize=True)
        return _data("image/jpeg", buffer.getvalue())


def _data(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def _keys(query: QueryScores) -> Iterator[Key]:
    yield query["path"], _box(query)
    for one in (*query["hits"], *query["lowest"]):
        yield one["path"], None


def _box(query: QueryScores) -> Box | None:
    return cast(Box, tuple(query["box"])) if query["box"] else None


def _number(value: float | None, digits: int = 1) -> str:
    return NO_VALUE if value is None else f"{value:.{digits}f}"


def _page(name: str, lead: str, sections: Mapping[str, str], footer: str, rules: Sequence[str]) -> str:
    """The whole document; its policy lets nothing run but our script, and nothing be fetched."""
    script, style = template("report.js"), template("report.css") + "".join(rules)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    links = "".join(f'<li><a href="#{part}">{TITLES[part]}</a></li>' for part in sections)
    parts = [
        f'<section id="{part}" aria-labelledby="{part}-title"><h2 id="{part}-title">{TITLES[part]}</h2>{html}</section>'
        for part, html in sections.items()
    ]
    lines = [
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width,initial-scale=1">',
        f"<title>{escape(name)}: evaluation</title>\n<style>{style}</style>\n</head>\n<body>",
        '<a class="skip" href="#results">To the results</a>',
        f'<nav aria-label="Parts of this page"><ul class="wide"><li><b>superfeat</b></li>{links}</ul></nav>',
        f'<main class="wide">{lead}',
        *parts,
        f"</main>\n{footer}\n<script>{script}</script>\n</body>\n</html>\n",
    ]
    return "\n".join(lines)


def _lead(found: Evaluated) -> str:
    network, data = found.card["network"], found.card["dataset"]
    method = f"{method_of(network['method']).title} with {SEARCHES[found.card['method']]}"
    images = f"{data['queries']} queries against {data['images'] + data['distractors']} images"
    facts = f"{method} · weights {network['digest'][:12]} · {images}"
    return f'<h1>{escape(found.scores["dataset"])}</h1><p class="lead">{escape(facts)}</p>'


def _results(scores: _Ordered) -> str:
    cards = [_score_card(grade, values) for grade, values in scores.grades.items()]
    if scores.ns is not None:
        big = f'<p class="big">{_number(scores.ns, 2)} <small>of 4</small></p>'
        cards.append(f'<div class="card"><h3>N-S score</h3>{big}<p>right ones among the first four</p></div>')
    return f'<div class="cards">{"".join(cards)}</div>'


def _score_card(grade: str, values: GradeScores) -> str:
    lists = ""
    for name, at in (("mP", values["mp"]), ("recall", values["recall"])):
        depths = sorted(at, key=int)
        rows = "".join(f"<div><dt>{name}@{k}</dt><dd>{_number(at[k])}</dd></div>" for k in depths)
        lists += f"<dl>{rows}</dl>"
    title = f'{escape(grade.capitalize())} <span class="muted">· {values["queries"]} queries</span>'
    big = f'<p class="big">{_number(values["map"], 2)} <small>mAP, %</small></p>'
    return f'<div class="card"><h3>{title}</h3>{big}{lists}</div>'


def _charts(scores: _Ordered) -> str:
    curves, in_order = [], []
    for grade, values in scores.grades.items():
        if values["curve"]["precision"]:
            curves.append(Series(grade, values["curve"]["recall"], values["curve"]["precision"]))
        known = sorted(ap for _, query in scores.queries if (ap := query["ap"][grade]) is not None)
        if known:
            share = [100 * (place + 0.5) / len(known) for place in range(len(known))]
            in_order.append(Series(grade, [0.0, *share, 100.0], [known[0], *known, known[-1]]))
    first = Panel("Precision and recall", "recall, %", "precision, %", curves, y_limits=PERCENT)
    second = Panel("AP of the queries, sorted", "share of the queries, %", "AP, %", in_order, y_limits=PERCENT)
    return (
        f'<div class="plots"><figure>{curve_svg([first])}<figcaption>Interpolated precision at each level of recall, '
        f"mean over the queries.</figcaption></figure><figure>{curve_svg([second])}<figcaption>How many queries fail, "
        "and how badly.</figcaption></figure></div>"
    )


def _protocol(card: Card) -> str:
    words = "".join(f"<li>{escape(line)}</li>" for line in card_in_words(card))
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{escape(text)}</td></tr>' for name, text in _flat(card, "")
    )
    table = f'<div class="scroll" tabindex="0" role="region" aria-label="All settings"><table>{rows}</table></div>'
    summary = "<summary>All that the numbers depend on</summary>"
    return f'<ul class="words">{words}</ul><details>{summary}{table}</details>'


def _flat(value: Any, where: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _flat(inner, f"{where}.{key}" if where else key)
    else:
        yield where, value if isinstance(value, str) else NO_VALUE if value is None else json.dumps(value)


def _strips(scores: _Ordered, shown: Sequence[tuple[int, QueryScores]], thumbnails: _Thumbnails) -> str:
    if not shown:
        return ""
    seen = {hit["judgement"] for _, query in shown for hit in query["hits"]}
    keys = "".join(
        f'<li class="{name}"><span class="badge" aria-hidden="true">{SYMBOLS[name]}</span> {MEANINGS[name]}</li>'
        for name in SYMBOLS
        if name in seen
    )
    which = "" if len(shown) == len(scores.queries) else f"the {len(shown)} worst of "
    words = f"By {_ap_name(scores.by)}, the worst first: {which}{len(scores.queries)} queries."
    tools = (
        f'<div class="tools"><ul>{keys}</ul><label><input type="checkbox" id="large"> larger photos</label>'
        '<label hidden>find <input type="search" id="find" placeholder="part of a name"></label></div>'
    )
    body = "".join(_strip(query, number, thumbnails) for number, query in shown)
    return f'<p class="muted">{words}</p>{tools}{body}'


def _strip(query: QueryScores, number: int, thumbnails: _Thumbnails) -> str:
    name = escape(query["name"])
    aps = " · ".join(f"{_ap_name(grade)} <b>{_number(value)}</b>" for grade, value in query["ap"].items())
    first = f"{_right(query)} of {query['positives']} right answers among the first {len(query['hits'])}"
    facts = f"<span>{aps}</span><span>{first}</span>"
    asked = f'<li class="tile">{thumbnails.show((query["path"], _box(query)), "query: " + query["name"])}</li>'
    hits, rank = [], 0
    for hit in query["hits"]:
        rank += hit["judgement"] != "junk"  # what is not judged has no rank
        place = NO_VALUE if hit["judgement"] == "junk" else str(rank)
        hits.append(_tile(hit, hit["judgement"], f"<b>{place}</b> · {hit['score']:.3g}", thumbnails))
    tiles = "".join(_tile(one, "right", f"<b>rank {one['rank']}</b>", thumbnails) for one in query["lowest"])
    lowest = f'<ul class="tiles">{tiles}</ul>' if tiles else '<p class="label">none was found</p>'
    label = "Query, cropped to its box" if query["box"] else "Query"
    focus = f'tabindex="0" aria-label="What {name} found"'
    return (
        f'<article class="strip" id="q{number}" data-name="{name}"><header><h3>{name}</h3>{facts}</header>'
        f'<div class="row"><div class="asked"><p class="label">{label}</p><ul class="tiles">{asked}</ul></div>'
        f'<div class="hits"><p class="label">Found, best first</p><ol class="tiles" {focus}>{"".join(hits)}</ol></div>'
        f'<div class="low"><p class="label">Right, but lowest</p>{lowest}</div>'
        "</div></article>"
    )


def _ap_name(grade: str) -> str:
    return "AP" if grade == "all" else f"AP {escape(grade)}"


def _tile(image: ImageFacts, judgement: str, caption: str, thumbnails: _Thumbnails) -> str:
    name, end = escape(image["name"]), escape("/".join(image["name"].split("/")[-2:]))
    photo = thumbnails.show((image["path"], None), f"{MEANINGS[judgement]}: {image['name']}")
    badge = f'<span class="badge" aria-hidden="true">{SYMBOLS[judgement]}</span>'
    return f'<li class="tile {judgement}">{photo}{badge}{caption}<span class="name" title="{name}">{end}</span></li>'


def _right(query: QueryScores) -> int:
    return sum(hit["judgement"] in ("right", "hard") for hit in query["hits"])


def _table(scores: _Ordered, shown: int) -> str:
    rows = []
    for place, (number, query) in enumerate(scores.queries):
        name = escape(query["name"])
        link = f'<a href="#q{number}">{name}</a>' if place < shown else name
        aps = "".join(
            f'<td class="n bar" style="--v:{value or 0:.0f}">{_number(value)}</td>' for value in query["ap"].values()
        )
        counts = f'<td class="n">{query["positives"]}</td><td class="n">{_right(query)}</td>'
        rows.append(f'<tr data-name="{name}"><td>{link}</td>{aps}{counts}</tr>')
    names = [*map(_ap_name, scores.grades), "right answers", "in the first 10"]
    heads = "".join(f'<th scope="col" class="n">{name}</th>' for name in names)
    head = f'<thead><tr><th scope="col">query</th>{heads}</tr></thead>'
    table = f'<table id="queries-table">{head}<tbody>{"".join(rows)}</tbody></table>'
    return f'<div class="scroll" tabindex="0" role="region" aria-label="All queries">{table}</div>'


def _analyses(folder: Path) -> str:
    """Pictures that lie in the folder, with the words that lie beside them."""
    figures = []
    for file in sorted(folder.glob("*.png")):
        try:
            words = read_json(file.with_suffix(".json"))
        except StoreError:
            words = None
        told = words if isinstance(words, dict) else {}
        title, caption = escape(str(told.get("title") or file.stem)), escape(str(told.get("caption") or ""))
        try:
            with Image.open(file, formats=["PNG"]) as image:
                width, height = image.size
            picture = _data("image/png", file.read_bytes())
            shown = f'<img loading="lazy" width="{width}" height="{height}" alt="{title}" src="{picture}">'
        except (OSError, ValueError, Image.DecompressionBombError):
            width, height, shown = 1, 1, "<p>This picture cannot be read.</p>"
        full = ' class="full"' if width > WIDE * height else ""
        figures.append(f"<figure{full}>{shown}<figcaption><h3>{title}</h3>{caption}</figcaption></figure>")
    return f'<div class="plots">{"".join(figures)}</div>' if figures else ""


def _footer(run: Path) -> str:
    command = escape(f"superfeat evaluate --compare {run.resolve().name} OTHER")
    words = f"To compare this run with another:<pre>{command}</pre>Made by superfeat {superfeat.__version__}."
    return f'<footer><div class="wide muted">{words}</div></footer>'
