"""Tables and figures that were measured again, on disk: numbers, a picture of each, and a page with all of them."""

import csv
import html
import io
import json
import math
from pathlib import Path
from typing import Any, TypedDict

from superfeat.found.templates import template
from superfeat.pages.plots import draw_bars, draw_curves, draw_matrices, draw_photos
from superfeat.storage.store import explained, read_json, write_file, write_json
from superfeat.studies.reproduce.catalogue import BY_NAME, NAMES, Reproduced
from superfeat.studies.reproduce.outcome import Outcome, Paper


class OurNumbers(TypedDict):
    """A table as it was measured here."""

    columns: list[str]
    rows: list[list[Any]]


class ReproducedFacts(TypedDict):
    """numbers.json of a table or figure."""

    name: str
    title: str
    command: str
    claim: str
    finding: str
    agrees: bool
    seconds: float
    ours: OurNumbers
    paper: Paper


def write_reproduced(found: Reproduced, folder: Path, command: str) -> ReproducedFacts:
    """Writes numbers.json, numbers.csv and picture.png, ours beside the paper's, and returns what the JSON holds.

    `command` is what makes them again.
    """
    with explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
    record = _record(found, command)
    write_json(folder / "numbers.json", record)
    write_file(folder / "numbers.csv", _as_csv(found).encode())
    _draw(found.outcome, folder / "picture.png")
    return record


def write_reproduction_page(folder: Path) -> Path:
    """Writes a page with all pictures that are in the folder, what the paper says and what was found."""
    files = [folder / name / "numbers.json" for name in (*NAMES, *BY_NAME)]
    parts = [_section(read_json(file)) for file in files if file.is_file()]
    page = template("reproduction.html").replace("PARTS", "\n".join(parts))
    write_file(folder / "index.html", page.encode())
    return folder / "index.html"


def _record(found: Reproduced, command: str) -> ReproducedFacts:
    outcome = found.outcome
    record: ReproducedFacts = {
        "name": found.name,
        "title": found.paper["title"],
        "command": command,
        "claim": found.paper["claim"],
        "finding": outcome.finding,
        "agrees": bool(outcome.agrees),
        "seconds": round(found.seconds, 1),
        "ours": {"columns": list(outcome.columns), "rows": [list(row) for row in outcome.rows]},
        "paper": found.paper,
    }
    plain: ReproducedFacts = _without_nan(json.loads(json.dumps(record)))
    return plain


def _without_nan(value: Any) -> Any:
    """Not-a-number as null: JSON has no other way to say it."""
    if isinstance(value, dict):
        return {key: _without_nan(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_without_nan(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _as_csv(found: Reproduced) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["source", *found.outcome.columns])
    writer.writerows(["ours", *row] for row in found.outcome.rows)
    if "columns" in found.paper:
        writer.writerow(["source", *found.paper["columns"]])
        writer.writerows(["paper", *row] for row in found.paper["rows"])
    return text.getvalue()


def _draw(outcome: Outcome, path: Path) -> None:
    if outcome.photos:
        rows, columns = outcome.photo_titles
        draw_photos(outcome.photos, path, row_titles=rows, column_titles=columns, note=outcome.finding)
    elif outcome.matrices:
        draw_matrices(outcome.matrices, path, note=outcome.finding)
    elif outcome.bars:
        draw_bars(outcome.panels, path)
    else:
        draw_curves(outcome.panels, path)


def _section(record: ReproducedFacts) -> str:
    verdict = "As in the paper" if record["agrees"] else "Not as in the paper"
    title, claim, finding, command, name = (
        html.escape(record[key]) for key in ("title", "claim", "finding", "command", "name")
    )
    return (
        f'<section id="{name}"><h2>{name}: {title}</h2><p><b>The paper:</b> {claim}.</p>'
        f'<p><b>Here:</b> {finding}. <span class="{"yes" if record["agrees"] else "no"}">{verdict}.</span></p>'
        f'<img src="{name}/picture.png" alt="{title}: {finding}"><p><code>{command}</code> · <a '
        f'href="{name}/numbers.csv">numbers.csv</a> · <a href="{name}/numbers.json">numbers.json</a></p></section>'
    )
