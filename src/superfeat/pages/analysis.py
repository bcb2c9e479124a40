"""An analysis on disk: KIND.json with its numbers, KIND.png with its figure."""

import dataclasses
from pathlib import Path
from typing import Any

from superfeat.pages.plots import draw_bars, draw_curves, draw_matrices, draw_photos
from superfeat.storage.store import explained, write_json
from superfeat.studies.analysis import Analysis, Bars, Curves, Figure, Matrix


def write_analysis(analysis: Analysis, folder: Path) -> dict[str, Any]:
    """Writes both, and returns what the JSON holds. Numbers first: they are kept where nothing can be drawn."""
    facts = analysis_facts(analysis)
    with explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / f"{analysis.kind}.json", facts)
    draw_figure(analysis.found.figure, folder / facts["picture"])
    return facts


def analysis_facts(analysis: Analysis) -> dict[str, Any]:
    """The numbers, and everything that they depend on, for JSON."""
    found = analysis.found
    return {
        "kind": analysis.kind,
        "title": found.title,
        "caption": found.caption,
        "images": analysis.images,
        **dataclasses.asdict(found.numbers),
        "network": analysis.network,
        "extract": analysis.extract,
        "picture": f"{analysis.kind}.png",
        "skipped": [{"name": one.name, "reason": one.reason} for one in analysis.skipped],
    }


def draw_figure(figure: Figure, path: Path) -> None:
    """Draws it, whatever it is."""
    if isinstance(figure, Curves):
        draw_curves(figure.panels, path, columns=1)
    elif isinstance(figure, Bars):
        draw_bars(figure.panels, path, columns=len(figure.panels))
    elif isinstance(figure, Matrix):
        draw_matrices([(figure.title, figure.values)], path, note=figure.note)
    else:
        draw_photos(figure.rows, path, row_titles=figure.row_titles, column_titles=figure.column_titles)
