"""Pictures for reports: curves, bars, matrices, photos with attention; one style, png or svg by the file's ending."""

import contextlib
import hashlib
import html
import io
import math
import re
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image

from superfeat.errors import MissingExtraError, SuperfeatError
from superfeat.figures import Panel, Picture, Series
from superfeat.found.colours import COLOURS, INK, MUTED
from superfeat.storage.store import write_file

__all__ = [
    "Panel",
    "Picture",
    "Series",
    "curve_svg",
    "draw_bars",
    "draw_curves",
    "draw_matrices",
    "draw_photos",
    "warm",
]

DPI = 150
GRID_GREY, PAPER_GREY = "#e4e7eb", "#8a9199"
DASHES: tuple[Any, ...] = ((0, (4, 2)), (0, (1, 1.3)), (0, (6, 1.5, 1, 1.5)))
STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "text.color": INK,
    "text.parse_math": False,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlecolor": INK,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": PAPER_GREY,
    "axes.linewidth": 0.8,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": GRID_GREY,
    "grid.linewidth": 0.7,
    "xtick.color": PAPER_GREY,
    "ytick.color": PAPER_GREY,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "xtick.major.size": 3,
    "ytick.major.size": 0,
    "lines.linewidth": 1.8,
    "lines.markersize": 3.6,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "legend.handlelength": 1.8,
    "legend.columnspacing": 1.4,
    "svg.fonttype": "none",
    "svg.hashsalt": "superfeat",
}
PANEL = (4.6, 3.1)  # inches of a panel
INLINE_PANEL = (4.0, 2.8)  # small, so that its text is large on a phone
MATRIX = (2.9, 3.1)
ROUNDING = 0.005  # a correlation that is lower than 0 by less is 0
CELL = 1.7  # inches of a photo's width
ALONE = 1.5  # width of the bar that stands for the error of a single point
FEW_POINTS = 16  # up to here each gets a mark
FEW_BARS = 16  # up to here each gets its number
END_GAP = 0.075  # of the axes' height between the names at the ends of lines
NOTE_WIDTH, NOTE_LINE = 66, 11  # characters, points
TITLE_WIDTH = 36  # characters
POINTS = 72  # in an inch
LEGEND_LINE = 0.22  # inches
HEAT = 0.7  # how much of the warmest place of a photo its colour covers
COLD = 0.65  # what the light of its coldest places is multiplied by


def draw_curves(panels: Sequence[Panel], path: str | Path, *, columns: int = 2) -> None:
    """Lines, with bands where there are errors."""
    with _styled() as figures:
        _save(_curves(figures, panels, columns), path)


def curve_svg(panels: Sequence[Panel], *, columns: int = 1) -> str:
    """The same as an <svg> to put into HTML: fonts of the page, and colours that it may set by --plot-ink and so on."""
    with _styled() as figures:
        figure, buffer = _curves(figures, panels, columns, INLINE_PANEL), io.BytesIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    return _inlined(buffer.getvalue().decode(), ", ".join(panel.title for panel in panels))


def draw_bars(panels: Sequence[Panel], path: str | Path, *, columns: int = 2) -> None:
    """Bars in groups, one for each x; x may be text."""
    with _styled() as figures:
        figure, places = _panels(figures, panels, columns)
        for axes, panel in zip(places, panels, strict=True):
            _frame(axes, panel)
            axes.grid(visible=False, axis="x")
            _bars(axes, panel.series)
        _legends(figure, places, panels)
        _save(figure, path)


def draw_matrices(
    titles_and_arrays: Sequence[tuple[str, Float[np.ndarray, "_ _"]]],
    path: str | Path,
    *,
    note: str = "",
    columns: int = 3,
) -> None:
    """Matrices of correlations with one scale of colours: from 0 to 1, or from -1 to 1 where some are below 0."""
    arrays = [array if array.size else np.full((1, 1), np.nan) for _, array in titles_and_arrays]
    values = np.concatenate([array[np.isfinite(array)].ravel() for array in arrays] or [np.zeros(0)])
    top = max(1.0, float(np.abs(values).max(initial=0)))
    low, colours = (-top, "RdBu_r") if values.min(initial=0) < -ROUNDING else (0.0, "cividis")
    with _styled() as figures:
        figure, places = _grid(figures, len(arrays), columns, MATRIX)
        _enlarge(figure, wider=0.7)
        for axes, (title, _), array in zip(places, titles_and_arrays, arrays, strict=True):
            shown = axes.imshow(array, cmap=colours, vmin=low, vmax=top, interpolation="nearest")
            axes.set_title(title)
            axes.grid(visible=False)
            axes.spines[:].set_visible(False)
        if arrays:
            bar = figure.colorbar(shown, ax=list(places), shrink=0.8, aspect=30)
            bar.outline.set_visible(False)
        _note(figure, note)
        _save(figure, path)


def draw_photos(
    rows: Sequence[Sequence[Picture | None]],
    path: str | Path,
    *,
    row_titles: Sequence[str] = (),
    column_titles: Sequence[str] = (),
    note: str = "",
    width: float = CELL,
) -> None:
    """A grid of photos, `width` inches each; None leaves a place free."""
    wide = max((len(row) for row in rows), default=0) or 1
    heights = [
        width * max((one.pixels.shape[0] / one.pixels.shape[1] for one in row if one), default=1.0) for row in rows
    ] or [width]
    with _styled() as figures:
        size = (width * wide + 0.3 * bool(row_titles), sum(heights) + 0.3 * bool(column_titles) + 0.1 * len(heights))
        figure = figures(figsize=size, layout="constrained")
        figure.get_layout_engine().set(w_pad=0.02, h_pad=0.02, wspace=0.01, hspace=0.01)
        places = figure.subplots(len(heights), wide, squeeze=False, height_ratios=heights)
        for number, row in enumerate(places):
            cells = rows[number] if number < len(rows) else ()
            for column, axes in enumerate(row):
                _photo(axes, cells[column] if column < len(cells) else None)
        for axes, title in zip(places[0], column_titles, strict=False):
            axes.set_title(title, loc="center", fontsize=9.5)
        for axes, title in zip(places[:, 0], row_titles, strict=False):
            axes.set_ylabel(title, color=INK)
        _note(figure, note)
        _save(figure, path)


def warm(picture: Picture) -> UInt8[np.ndarray, "height width 3"]:
    """The photo with its map over it, from nothing (0) to the warmest colour (the largest value)."""
    if picture.attention is None:
        return picture.pixels
    heat = np.nan_to_num(picture.attention.astype(np.float32), nan=0.0, posinf=0.0, neginf=0.0)
    top = heat.max(initial=0)
    if top <= 0:
        return picture.pixels
    height, width = picture.pixels.shape[:2]
    enlarged = Image.fromarray(heat / top).resize((width, height), Image.Resampling.BICUBIC)
    strength = np.clip(np.asarray(enlarged), 0, 1)
    colour = _matplotlib().colormaps["inferno"](strength)[..., :3] * 255
    cover = HEAT * strength[..., None]
    light = COLD + (1 - COLD) * strength[..., None]
    blended: np.ndarray = np.rint(picture.pixels * light * (1 - cover) + colour * cover)
    return blended.astype(np.uint8)


def _matplotlib() -> Any:
    try:
        import matplotlib.figure
    except ImportError:
        raise MissingExtraError("drawing", "report") from None
    return matplotlib


@contextlib.contextmanager
def _styled() -> Iterator[Any]:
    """matplotlib's Figure, in our style whatever the user's own settings are."""
    matplotlib = _matplotlib()
    defaults = {name: value for name, value in matplotlib.rcParamsDefault.items() if "backend" not in name}
    with matplotlib.rc_context({**defaults, **STYLE}):
        yield matplotlib.figure.Figure


def _save(figure: Any, path: str | Path) -> None:
    ending = Path(path).suffix.lower()
    if ending not in (".png", ".svg"):
        raise SuperfeatError(f"cannot draw {path}: pictures end in .png or .svg")
    buffer = io.BytesIO()
    figure.savefig(buffer, format=ending[1:], dpi=DPI, metadata={"Date": None} if ending == ".svg" else None)
    write_file(Path(path), buffer.getvalue())


def _grid(figures: Any, count: int, columns: int, size: tuple[float, float]) -> tuple[Any, Any]:
    """A figure and its axes, row by row; those that nothing is drawn into are taken out."""
    wide = max(1, min(columns, count))
    high = max(1, math.ceil(count / wide))
    figure = figures(figsize=(size[0] * wide, size[1] * high), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.07, h_pad=0.07)
    places = figure.subplots(high, wide, squeeze=False).ravel()
    for axes in places[count:]:
        axes.remove()
    return figure, places[:count]


def _panels(figures: Any, panels: Sequence[Panel], columns: int, size: tuple[float, float] = PANEL) -> tuple[Any, Any]:
    lines = max((len(_note_lines(panel.note)) for panel in panels), default=0)
    return _grid(figures, len(panels), columns, (size[0], size[1] + lines * NOTE_LINE / POINTS))


def _enlarge(figure: Any, wider: float = 0.0, higher: float = 0.0) -> None:
    width, height = figure.get_size_inches()
    figure.set_size_inches(width + wider, height + higher)


def _note_lines(note: str) -> list[str]:
    return textwrap.wrap(note, NOTE_WIDTH)


def _curves(figures: Any, panels: Sequence[Panel], columns: int, size: tuple[float, float] = PANEL) -> Any:
    figure, places = _panels(figures, panels, columns, size)
    for axes, panel in zip(places, panels, strict=True):
        _frame(axes, panel)
        for number, (one, look) in enumerate(zip(panel.series, _looks(panel.series), strict=True)):
            x, y = np.asarray(one.x, float), np.asarray(one.y, float)
            marker = "os"[number >= len(COLOURS)] if len(x) == 1 or (len(x) <= FEW_POINTS and not one.paper) else None
            axes.plot(x, y, label=one.label, marker=marker, **look)
            if one.error is not None:
                error = np.asarray(one.error, float)
                line = ALONE if len(x) == 1 else 0  # a band of one point would be invisible without
                axes.fill_between(x, y - error, y + error, color=look["color"], alpha=0.16 + 0.3 * line, linewidth=line)
    if all(_end_together(panel.series) for panel in panels):
        for axes, panel in zip(places, panels, strict=True):
            _name_ends(axes, panel.series)
    else:
        _legends(figure, places, panels)
    return figure


def _looks(series: Sequence[Series]) -> list[dict[str, Any]]:
    """Colour and dashes of each: ours in colours and whole, the paper's grey and dashed."""
    papers, ours = iter(range(len(series))), iter(range(len(series)))
    return [
        {"color": PAPER_GREY, "linestyle": DASHES[next(papers) % len(DASHES)], "linewidth": 1.4, "zorder": 2}
        if one.paper
        else {"color": COLOURS[next(ours) % len(COLOURS)], "zorder": 3}
        for one in series
    ]


def _frame(axes: Any, panel: Panel) -> None:
    lines = _note_lines(panel.note)
    axes.set_title(textwrap.fill(panel.title, TITLE_WIDTH), pad=6 + NOTE_LINE * len(lines))
    if lines:
        offset = {"xytext": (0, 5), "textcoords": "offset points"}
        axes.annotate("\n".join(lines), (0, 1), xycoords="axes fraction", **offset, fontsize=8, color=MUTED)
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)
    if panel.y_limits is not None:
        axes.set_ylim(*panel.y_limits)
    if panel.log_x:
        from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _last_point(one: Series) -> tuple[float, float] | None:
    points = [(float(x), y) for x, y in zip(one.x, one.y, strict=True) if math.isfinite(y)]
    return points[-1] if points else None


def _end_together(series: Sequence[Series]) -> bool:
    """Whether the lines can be named where they end: few, and all at the same x."""
    ends = {point[0] for one in series if (point := _last_point(one))}
    return len(ends) <= 1 and len(series) * END_GAP < 0.6 and all(len(one.label) <= 18 for one in series)


def _name_ends(axes: Any, series: Sequence[Series]) -> None:
    """A stroke and the name at the height where each line ends, moved apart where they would touch."""
    if len(series) < 2:
        return
    low, high = axes.get_ylim()
    axes.set_ylim(low, high)
    ends = [
        ((point[1] - low) / (high - low), one, look)
        for one, look in zip(series, _looks(series), strict=True)
        if (point := _last_point(one))
    ]
    free = 1 - END_GAP * (len(ends) - 1)
    height = 0.0
    for number, (end, one, look) in enumerate(sorted(ends, key=lambda entry: entry[0])):
        height = max(height, min(end, free + END_GAP * number))
        stroke = {key: value for key, value in look.items() if key != "zorder"}
        axes.plot([1.02, 1.055], [height, height], transform=axes.transAxes, clip_on=False, **stroke)
        axes.text(1.07, height, one.label, transform=axes.transAxes, va="center", fontsize=9)
        height += END_GAP


def _legends(figure: Any, places: Any, panels: Sequence[Panel]) -> None:
    """One legend below for all panels if it is the same; else one in each that needs it."""
    labels = [[one.label for one in panel.series] for panel in panels]
    if not any(len(names) > 1 for names in labels):
        return
    if all(names == labels[0] for names in labels):
        columns = max(1, min(len(labels[0]), round(100 * len(places) ** 0.5 / (8 + max(map(len, labels[0]))) / 2)))
        _enlarge(figure, higher=LEGEND_LINE * math.ceil(len(labels[0]) / columns))
        figure.legend(*places[0].get_legend_handles_labels(), loc="outside lower center", ncols=columns)
        return
    for axes, names in zip(places, labels, strict=True):
        if names:
            axes.legend(loc="best")


def _bars(axes: Any, series: Sequence[Series]) -> None:
    texts = [[x if isinstance(x, str) else f"{x:g}" for x in one.x] for one in series]
    groups = list(dict.fromkeys(text for row in texts for text in row))
    width = 0.8 / max(1, len(series))
    numbered = sum(len(row) for row in texts) <= FEW_BARS
    for number, (one, row, look) in enumerate(zip(series, texts, _looks(series), strict=True)):
        shift = (number - (len(series) - 1) / 2) * width
        at = [groups.index(text) + shift for text in row]
        fill = (
            {"facecolor": "none", "edgecolor": PAPER_GREY, "linestyle": "--", "linewidth": 1.1}
            if one.paper
            else {"color": look["color"]}
        )
        error = {"yerr": one.error, "error_kw": {"ecolor": MUTED, "elinewidth": 1}} if one.error is not None else {}
        drawn = axes.bar(at, np.asarray(one.y, float), 0.92 * width, label=one.label, **fill, **error)
        if numbered:
            axes.bar_label(drawn, fmt=lambda value: f"{value:.3g}", fontsize=8, color=MUTED, padding=2)
    turned = len(groups) > 1 and sum(map(len, groups)) > 44
    turn = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"} if turned else {}
    axes.set_xticks(range(len(groups)), groups, **turn)


def _photo(axes: Any, picture: Picture | None) -> None:
    axes.grid(visible=False)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    if picture is None:
        axes.patch.set_visible(False)
        return
    axes.imshow(warm(picture), interpolation="antialiased")
    if picture.caption:
        axes.set_xlabel(picture.caption, fontsize=8, labelpad=2)


def _note(figure: Any, note: str) -> None:
    if note:
        width = max(30, int(figure.get_size_inches()[0] * 15))
        figure.supxlabel("\n".join(textwrap.wrap(note, width)), fontsize=8, color=MUTED)


def _inlined(svg: str, label: str) -> str:
    """Without what only files need; ids that no other picture of the page has; fonts and colours of the page."""
    body = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    kept = set(re.findall(r'(?:href="#|url\(#)([\w.-]+)', body))
    prefix = f"plot-{hashlib.sha256(svg.encode()).hexdigest()[:8]}-"
    names = {INK: "ink", MUTED: "muted", GRID_GREY: "grid", PAPER_GREY: "paper"}
    names.update({colour: str(number) for number, colour in enumerate(COLOURS, 1)})

    def adapt(match: re.Match[str]) -> str:
        tag = match[0].replace("xlink:href=", "href=")
        tag = re.sub(r' id="([^"]*)"', lambda found: f' id="{prefix}{found[1]}"' if found[1] in kept else "", tag)
        tag = re.sub(r'(href="#|url\(#)', rf"\g<1>{prefix}", tag)
        tag = re.sub(r"font-family: [^;\"]*", "font-family: inherit", tag)
        return re.sub("|".join(names), lambda found: f"var(--plot-{names[found[0]]}, {found[0]})", tag)

    head, rest = body.split(">", 1)
    box = re.search(r'viewBox="[^"]*"', head)
    assert box, "matplotlib writes the size of its pictures"
    opening = f'<svg class="plot" role="img" aria-label="{html.escape(label)}" {box[0]}>'
    return opening + re.sub(r"<[^>]+>", adapt, rest).strip()
