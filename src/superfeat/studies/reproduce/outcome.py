"""What a table or figure came to: our numbers, the paper's beside them, and what they show."""

import dataclasses
import sys
from collections.abc import Sequence
from importlib import resources
from typing import Any, TypedDict, cast

import numpy as np
from jaxtyping import Float

from superfeat.figures import Panel, Picture, Series

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SHORT_NAMES = {  # what stands below a bar
    "reciprocal": "recipr.",
    "ratio_test": "ratio",
    "same_id": "ID",
    "global_loss": "global",
    "attention_loss": "attn",
    "super_loss": "super",
}
STAND_IN = "roxford_medium"  # the paper's column that is shown beside sets of our own


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Our numbers as a table, what is drawn of them, and whether they show what the paper claims."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    finding: str  # in a sentence, with our numbers
    agrees: bool
    panels: Sequence[Panel] = ()
    bars: bool = False
    matrices: Sequence[tuple[str, Float[np.ndarray, "_ _"]]] = ()
    photos: Sequence[Sequence[Picture | None]] = ()
    photo_titles: tuple[Sequence[str], Sequence[str]] = ((), ())  # of rows, of columns


class PaperLine(TypedDict, total=False):
    """A line of a figure of the paper."""

    name: str
    x: list[float]
    y: list[float]
    std: list[float]
    min: list[float]
    plotted: bool


class PaperPanel(TypedDict, total=False):
    """A part of a figure."""

    name: str
    x_label: str
    y_label: str
    series: list[PaperLine]
    plotted: bool


class Paper(PaperPanel, total=False):
    """The paper's own values of a table (columns and rows) or a figure (series, or panels with series of their own)."""

    title: str
    claim: str
    columns: list[str]
    rows: list[list[Any]]
    panel: list[PaperPanel]
    images: int  # that were measured
    retrieved: int  # photos for each query
    y_divisor: int


def published(name: str) -> Paper:
    """Of a table or figure, by name."""
    text = (resources.files("superfeat.studies.reproduce") / "paper" / f"{name}.toml").read_text(encoding="utf-8")
    return cast(Paper, tomllib.loads(text))


def table(
    name: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    measured: Sequence[str],
    finding: str,
    agrees: bool,
    beside: Sequence[str] = (),
) -> Outcome:
    """An outcome drawn as bars: for each of the `measured` columns a panel, ours, and the paper's where it has them.

    The other columns name the bars, but for those that stand `beside`.
    """
    paper = published(name)
    settings = [column for column in columns if column not in (*measured, *beside)]
    panels = []
    known = set(paper.get("columns", ()))
    for column in measured:
        ours = _bars("ours", columns, rows, settings, column)
        if column in known:
            theirs = _bars(f"paper, {column}", paper["columns"], paper["rows"], settings, column, paper=True)
            panels.append(Panel(paper["title"], "", f"mAP (%), {column}", [ours, theirs]))
            continue
        panels.append(Panel(f"{paper['title']}: ours", "", f"mAP (%), {column}", [ours]))
        if STAND_IN in known and not known & set(measured):  # drawn landmarks have no column of their own
            theirs = _bars(f"paper, {STAND_IN}", paper["columns"], paper["rows"], settings, STAND_IN, paper=True)
            panels.append(Panel(f"{paper['title']}: the paper's", "", f"mAP (%), {STAND_IN}", [theirs]))
    return Outcome(columns, rows, finding, agrees, panels, bars=True)


def _bars(
    name: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    settings: Sequence[str],
    column: str,
    paper: bool = False,
) -> Series:
    where = [columns.index(setting) for setting in settings if setting in columns]
    labels = [label([settings[n] for n in range(len(where))], [row[n] for n in where]) for row in rows]
    values = [float(row[columns.index(column)]) for row in rows]
    return Series(name, labels, values, paper=paper)


def label(names: Sequence[str], values: Sequence[Any]) -> str:
    """A row's settings in few words: what is on, or the value."""
    if all(isinstance(value, bool) for value in values):
        on = [SHORT_NAMES.get(name, name) for name, value in zip(names, values, strict=True) if value]
        return " + ".join(on) or "none"
    return ", ".join(str(value) for value in values)


def curves(name: str, panel: PaperPanel | None = None) -> list[Series]:
    """The paper's lines of a figure, or of one of its panels."""
    source = published(name) if panel is None else panel
    return [
        Series(f"{one['name']} (paper)", one["x"], one["y"], paper=True)
        for one in source["series"]
        if one.get("plotted", True)
    ]
