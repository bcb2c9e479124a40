"""A finished evaluation as one HTML file: numbers, curves, the card, and what each query found, the worst first."""

import base64
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
from superfeat.evaluation.card import METHODS, in_words
from superfeat.evaluation.metrics import GRADES
from superfeat.evaluation.run import Evaluated, open_run
from superfeat.images import Box, read_image
from superfeat.pages.plots import Panel, Series, curve_svg
from superfeat.storage.store import read_json, write_file

THUMBNAIL, LEAST_THUMBNAIL, QUALITY = 144, 64, 80  # heights in pixels, of JPEG
BUDGET = 6_500_000  # bytes of all thumbnails together
EACH, PER_SQUARE = 850, 0.36  # bytes of a thumbnail, and over the square of its height; measured on photos of buildings
SYMBOLS = {"right": "✓", "hard": "◆", "wrong": "✕", "junk": "○"}
MEANINGS = {"right": "right", "hard": "right, and hard", "wrong": "wrong", "junk": "not judged, and without a rank"}
SEARCHES = {"asmk": "ASMK", "pooled": "pooled vectors"}
NOTHING = "—"
TITLES = {
    "results": "Results", "curves": "Curves", "protocol": "Protocol", "analyses": "Analyses",
    "strips": "Worst queries", "queries": "All queries",
}  # fmt: skip
PERCENT = (0, 102)  # of the axes: a line at 100 is drawn whole
WIDE = 1.55  # width over height of a picture that gets a row of its own
Key = tuple[str, Box | None]  # a file, and the part of it that is meant

CSS = """
:root{color-scheme:light dark;--bg:#fff;--soft:#f6f8fa;--line:#d8dee4;--ink:#1f2328;--muted:#57606a;--link:#0a58b5;
--right:#1a7f37;--hard:#0b7285;--wrong:#c9252d;--junk:#6e7781;--badge:#fff;--tint:#dfebfa;
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
@media(prefers-color-scheme:dark){:root{--bg:#0d1117;--soft:#161b22;--line:#30363d;--ink:#e6edf3;--muted:#9da7b3;
--link:#79b8ff;--right:#3fb950;--hard:#39c5cf;--wrong:#ff7b72;--junk:#8b949e;--badge:#0d1117;--tint:#17304d;--plot-ink:#e6edf3;
--plot-muted:#9da7b3;--plot-grid:#262c34;--plot-paper:#7d8590;--plot-1:#4aa8e0;--plot-2:#f0803c;--plot-3:#2fc296}}
*{box-sizing:border-box}html{scroll-padding-top:4rem}body{margin:0;background:var(--bg);color:var(--ink)}
@media(prefers-reduced-motion:no-preference){html{scroll-behavior:smooth}}
a{color:var(--link)}:focus-visible{outline:3px solid var(--link);outline-offset:2px;border-radius:4px}
.skip{position:absolute;left:-99rem}.skip:focus{left:1rem;top:.5rem;z-index:3;background:var(--bg);padding:.5rem}
nav{position:sticky;top:0;z-index:2;background:var(--bg);border-bottom:1px solid var(--line)}
ul,ol{list-style:none;margin:0;padding:0}nav ul{display:flex;gap:1.4rem;overflow-x:auto;white-space:nowrap}
nav li{padding:.7rem 0}nav a{text-decoration:none;color:var(--muted);font-size:.92rem}nav a:hover{color:var(--link)}
.wide{max-width:74rem;margin:0 auto;padding:0 1.1rem}main>section{margin:0 0 3.2rem}
h1{font-size:clamp(1.9rem,6vw,2.7rem);line-height:1.15;letter-spacing:-.02em;margin:2.2rem 0 .3rem}
h1,h3,td,li{overflow-wrap:anywhere}h2{font-size:1.35rem;letter-spacing:-.01em;margin:0 0 .9rem}
h3{font-size:1rem;margin:0}
.lead,.muted,figcaption,.label,dt{color:var(--muted);font-weight:400}.lead{margin:0 0 2rem}p.muted{margin:-.5rem 0 1rem}
.cards{display:grid;gap:1rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,18rem),1fr))}
.card,figure,details,.strip,.scroll{border:1px solid var(--line);border-radius:12px}
.card{padding:1.1rem 1.2rem;background:var(--soft);display:flex;flex-wrap:wrap;gap:.7rem 2.5rem;align-items:end}
.card h3{flex:1 0 100%}.card p{margin:0}p.big{font-size:2.9rem;line-height:1.1;font-weight:650;letter-spacing:-.03em}
.big small{font-size:.9rem;font-weight:400;letter-spacing:0;color:var(--muted)}dd{margin:0;font-weight:600}
dl{display:grid;grid-template-columns:repeat(4,4.7rem);margin:0}dt{font-size:.72rem}dd,.n{font-variant-numeric:tabular-nums}
.plots{display:grid;gap:1rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,22rem),1fr))}
figure{margin:0;padding:.8rem;min-width:0}figure.full{grid-column:1/-1}figcaption{font-size:.88rem;margin-top:.6rem}
figure svg,figure img{display:block;width:100%;height:auto;max-width:31rem;margin:0 auto}figcaption h3{color:var(--ink)}
figure img{max-width:min(100%,60rem);border-radius:6px;background:#fff}
.words{margin:0 0 1rem;max-width:60rem}.words li{padding:.3rem 0 .3rem 1rem;border-left:3px solid var(--line)}
details{padding:.7rem 1.1rem}summary{cursor:pointer;font-weight:600}details .scroll{border:0;margin-top:.6rem}
.scroll{max-height:32rem;overflow:auto}table{border-collapse:collapse;width:100%;font-size:.9rem}
th,td{text-align:left;padding:.45rem .7rem;vertical-align:top;border-bottom:1px solid var(--line)}
td.n,th.n{text-align:right;white-space:nowrap}td:first-child{min-width:11rem}
.scroll thead th{position:sticky;top:0;background:var(--soft)}th button{all:unset;cursor:pointer}
th button:focus-visible{outline:3px solid var(--link)}th button::after{content:" ↕"}
th[aria-sort=ascending] button::after{content:" ↑"}th[aria-sort=descending] button::after{content:" ↓"}
.bar{background:linear-gradient(to right,var(--tint) calc(var(--v)*1%),transparent 0)}
.tools,.tools ul{display:flex;flex-wrap:wrap;gap:.5rem 1.3rem;align-items:center;font-size:.9rem}
.tools{margin:0 0 1.1rem}label{display:flex;gap:.5rem;align-items:center}input{font:inherit;color:inherit}
input[type=search]{background:var(--bg);border:1px solid var(--junk);border-radius:8px;padding:.35rem .6rem;width:13rem}
.strip{padding:1rem;margin:0 0 1rem;content-visibility:auto;contain-intrinsic-size:auto 24rem}
.strip header{display:flex;flex-wrap:wrap;gap:.1rem 1.2rem;align-items:baseline;margin:0 0 .8rem}
.strip header span{font-size:.88rem;color:var(--muted)}b{color:var(--ink)}.label{font-size:.8rem;margin:0 0 .35rem}
.row{display:grid;gap:.8rem}.row>*{min-width:0}.tiles{display:grid;gap:.7rem;padding:4px;overflow-x:auto;
grid-auto-flow:column;grid-auto-columns:8rem;justify-content:start}.asked .tiles{grid-auto-columns:12rem}
.tile{min-width:0;position:relative;font-size:.76rem;line-height:1.3;overflow-wrap:anywhere;color:var(--muted)}
.name{display:-webkit-box;-webkit-line-clamp:3;-webkit-box-orient:vertical;overflow:hidden}
.photo{display:block;aspect-ratio:4/3;width:100%;object-fit:contain;border-radius:8px;border:3px solid var(--line);
background:var(--soft) center/contain no-repeat;margin-bottom:.25rem;print-color-adjust:exact}
.gone{display:grid;place-items:center;text-align:center;font-size:.75rem;color:var(--muted)}
.right .photo{border-color:var(--right)}.hard .photo{border:3px dashed var(--hard)}
.wrong .photo{border-color:var(--wrong)}.junk .photo{border-color:var(--junk);opacity:.6}
.badge{display:inline-grid;place-items:center;width:1.35rem;height:1.35rem;border-radius:50%;font-size:.8rem;
font-weight:700;color:var(--badge);background:var(--junk)}.tile .badge{position:absolute;top:-4px;left:-4px}
.right .badge{background:var(--right)}.hard .badge{background:var(--hard)}.wrong .badge{background:var(--wrong)}
@media(min-width:60rem){.row{grid-template-columns:10.5rem 1fr 7rem;gap:1.4rem}.tiles,.asked .tiles{overflow:visible;
grid-auto-flow:row;grid-template-columns:1fr;padding:0}.hits .tiles{grid-template-columns:repeat(5,1fr)}}
body:has(#large:checked) .row{grid-template-columns:1fr}body:has(#large:checked) .tiles{grid-auto-flow:row;
grid-template-columns:repeat(auto-fill,minmax(min(100%,15rem),1fr))}
pre{overflow:auto;background:var(--soft);border:1px solid var(--line);border-radius:8px;padding:.8rem 1rem;
font:.88rem ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}footer{border-top:1px solid var(--line);
padding:1.5rem 0 3rem}[hidden]{display:none!important}@media print{nav,.tools{display:none}.scroll{max-height:none}}
"""
SCRIPT = """
const find=document.getElementById('find'),all=[...document.querySelectorAll('[data-name]')];
if(find){find.closest('label').hidden=false;find.addEventListener('input',()=>{const text=find.value.toLowerCase();
for(const one of all)one.hidden=!one.dataset.name.toLowerCase().includes(text)})}
for(const head of document.querySelectorAll('#queries-table th')){const button=document.createElement('button');
button.type='button';button.append(...head.childNodes);head.append(button);button.addEventListener('click',()=>{
const up=head.getAttribute('aria-sort')!=='ascending',at=head.cellIndex,body=head.closest('table').tBodies[0];
for(const other of head.parentNode.children)other.removeAttribute('aria-sort');
head.setAttribute('aria-sort',up?'ascending':'descending');const key=row=>row.cells[at].textContent,
order=(a,b)=>head.className==='n'?(parseFloat(a)||0)-(parseFloat(b)||0):a.localeCompare(b,'en',{numeric:true});
body.append(...[...body.rows].sort((a,b)=>(up?1:-1)*order(key(a),key(b))))})}
"""


def write_report(run: Path, *, strips: int = 60) -> Path:
    """Writes RUN/report.html, which needs nothing else, and returns its path. The `strips` worst queries are shown."""
    found = open_run(run)
    scores = _in_order(found.scores)
    charts = _charts(scores)  # first, since it may lack its extra
    shown = scores["queries"][: max(0, strips)]
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
    page = _page(scores["dataset"], _lead(found), sections, _footer(run), thumbnails.rules)
    write_file(run / "report.html", page.encode(errors="replace"))
    return run / "report.html"


def _in_order(scores: Mapping[str, Any]) -> dict[str, Any]:
    """The scores with the grades from easy to hard, and the queries with their numbers, the worst first.

    By the medium grade if there is one; a query without a right answer of that grade is among the last.
    """
    grades = [grade for grade in (*GRADES, *scores["grades"]) if grade in scores["grades"]]
    by = "medium" if "medium" in grades else grades[0]
    queries = [
        (number, {**query, "ap": {grade: query["ap"][grade] for grade in dict.fromkeys(grades)}})
        for number, query in enumerate(scores["queries"])
    ]
    queries.sort(key=lambda one: (one[1]["ap"][by] is None, one[1]["ap"][by] or 0.0))
    return {**scores, "grades": {grade: scores["grades"][grade] for grade in grades}, "by": by, "queries": queries}


class _Thumbnails:
    """Small photos as HTML, each file's bytes once: those that are shown often are backgrounds of a class."""

    def __init__(self, queries: Sequence[Mapping[str, Any]], card: Mapping[str, Any]) -> None:
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


def _keys(query: Mapping[str, Any]) -> Iterator[Key]:
    yield query["path"], _box(query)
    for one in (*query["hits"], *query["lowest"]):
        yield one["path"], None


def _box(query: Mapping[str, Any]) -> Box | None:
    return cast(Box, tuple(query["box"])) if query["box"] else None


def _number(value: float | None, digits: int = 1) -> str:
    return NOTHING if value is None else f"{value:.{digits}f}"


def _page(name: str, lead: str, sections: Mapping[str, str], footer: str, rules: Sequence[str]) -> str:
    """The whole document; its policy lets nothing run but our script, and nothing be fetched."""
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
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
        f"<title>{escape(name)}: evaluation</title>\n<style>{CSS}{''.join(rules)}</style>\n</head>\n<body>",
        '<a class="skip" href="#results">To the results</a>',
        f'<nav aria-label="Parts of this page"><ul class="wide"><li><b>superfeat</b></li>{links}</ul></nav>',
        f'<main class="wide">{lead}',
        *parts,
        f"</main>\n{footer}\n<script>{SCRIPT}</script>\n</body>\n</html>\n",
    ]
    return "\n".join(lines)


def _lead(found: Evaluated) -> str:
    network, data = found.card["network"], found.card["dataset"]
    method = f"{METHODS.get(network['method'], network['method'])} with {SEARCHES[found.card['method']]}"
    images = f"{data['queries']} queries against {data['images'] + data['distractors']} images"
    facts = f"{method} · weights {network['digest'][:12]} · {images}"
    return f'<h1>{escape(found.scores["dataset"])}</h1><p class="lead">{escape(facts)}</p>'


def _results(scores: Mapping[str, Any]) -> str:
    cards = [_score_card(grade, values) for grade, values in scores["grades"].items()]
    if "ns" in scores:
        big = f'<p class="big">{_number(scores["ns"], 2)} <small>of 4</small></p>'
        cards.append(f'<div class="card"><h3>N-S score</h3>{big}<p>right ones among the first four</p></div>')
    return f'<div class="cards">{"".join(cards)}</div>'


def _score_card(grade: str, values: Mapping[str, Any]) -> str:
    lists = ""
    for name, key in (("mP", "mp"), ("recall", "recall")):
        depths = sorted(values[key], key=int)
        rows = "".join(f"<div><dt>{name}@{k}</dt><dd>{_number(values[key][k])}</dd></div>" for k in depths)
        lists += f"<dl>{rows}</dl>"
    title = f'{escape(grade.capitalize())} <span class="muted">· {values["queries"]} queries</span>'
    big = f'<p class="big">{_number(values["map"], 2)} <small>mAP, %</small></p>'
    return f'<div class="card"><h3>{title}</h3>{big}{lists}</div>'


def _charts(scores: Mapping[str, Any]) -> str:
    curves, in_order = [], []
    for grade, values in scores["grades"].items():
        if values["curve"]["precision"]:
            curves.append(Series(grade, values["curve"]["recall"], values["curve"]["precision"]))
        known = sorted(query["ap"][grade] for _, query in scores["queries"] if query["ap"][grade] is not None)
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


def _protocol(card: Mapping[str, Any]) -> str:
    words = "".join(f"<li>{escape(line)}</li>" for line in in_words(card))
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
        yield where, value if isinstance(value, str) else NOTHING if value is None else json.dumps(value)


def _strips(scores: Mapping[str, Any], shown: Sequence[tuple[int, Any]], thumbnails: _Thumbnails) -> str:
    if not shown:
        return ""
    seen = {hit["judgement"] for _, query in shown for hit in query["hits"]}
    keys = "".join(
        f'<li class="{name}"><span class="badge" aria-hidden="true">{SYMBOLS[name]}</span> {MEANINGS[name]}</li>'
        for name in SYMBOLS
        if name in seen
    )
    which = "" if len(shown) == len(scores["queries"]) else f"the {len(shown)} worst of "
    words = f"By {_ap_name(scores['by'])}, the worst first: {which}{len(scores['queries'])} queries."
    tools = (
        f'<div class="tools"><ul>{keys}</ul><label><input type="checkbox" id="large"> larger photos</label>'
        '<label hidden>find <input type="search" id="find" placeholder="part of a name"></label></div>'
    )
    body = "".join(_strip(query, number, thumbnails) for number, query in shown)
    return f'<p class="muted">{words}</p>{tools}{body}'


def _strip(query: Mapping[str, Any], number: int, thumbnails: _Thumbnails) -> str:
    name = escape(query["name"])
    aps = " · ".join(f"{_ap_name(grade)} <b>{_number(value)}</b>" for grade, value in query["ap"].items())
    first = f"{_right(query)} of {query['positives']} right answers among the first {len(query['hits'])}"
    facts = f"<span>{aps}</span><span>{first}</span>"
    asked = f'<li class="tile">{thumbnails.show((query["path"], _box(query)), "query: " + query["name"])}</li>'
    hits, rank = [], 0
    for hit in query["hits"]:
        rank += hit["judgement"] != "junk"  # what is not judged has no rank
        place = NOTHING if hit["judgement"] == "junk" else str(rank)
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


def _tile(image: Mapping[str, Any], judgement: str, caption: str, thumbnails: _Thumbnails) -> str:
    name, end = escape(image["name"]), escape("/".join(image["name"].split("/")[-2:]))
    photo = thumbnails.show((image["path"], None), f"{MEANINGS[judgement]}: {image['name']}")
    badge = f'<span class="badge" aria-hidden="true">{SYMBOLS[judgement]}</span>'
    return f'<li class="tile {judgement}">{photo}{badge}{caption}<span class="name" title="{name}">{end}</span></li>'


def _right(query: Mapping[str, Any]) -> int:
    return sum(hit["judgement"] in ("right", "hard") for hit in query["hits"])


def _table(scores: Mapping[str, Any], shown: int) -> str:
    rows = []
    for place, (number, query) in enumerate(scores["queries"]):
        name = escape(query["name"])
        link = f'<a href="#q{number}">{name}</a>' if place < shown else name
        aps = "".join(
            f'<td class="n bar" style="--v:{value or 0:.0f}">{_number(value)}</td>' for value in query["ap"].values()
        )
        counts = f'<td class="n">{query["positives"]}</td><td class="n">{_right(query)}</td>'
        rows.append(f'<tr data-name="{name}"><td>{link}</td>{aps}{counts}</tr>')
    names = [*map(_ap_name, scores["grades"]), "right answers", "in the first 10"]
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
