"""Where photos were taken, as one HTML file: the query, the photos it was matched with, and the map from above."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

import numpy as np
from jaxtyping import Float64

from superfeat.errors import ImageError
from superfeat.found.document import embed, write_document
from superfeat.images import read_image, stored_size
from superfeat.mapping.cameras import CameraPose
from superfeat.mapping.localize import Located
from superfeat.mapping.map_folder import OpenMap

SIDE, THUMBNAIL, PLAN = 480, 220, 420  # pixels: the query, a photo of the map, the plan
MOST_QUERIES, MOST_PHOTOS, MOST_POINTS = 50, 6, 4000
COLOURS = {"good": "#1a7f37", "doubtful": "#b35900", "none": "#b42318"}
FOOTER = (
    "Seen from above: grey are points of the map, blue its cameras, red the photo. Dots on it are matches that agree."
)


def write_map_page(path: Path, folder: Path, files: Mapping[str, Path], found: Sequence[Located]) -> None:
    """Writes the page; `files` says where the queries lie."""
    where = OpenMap(folder)
    posed = sum(one.pose is not None for one in found)
    shown = "".join(_section(where, files[one.name], one) for one in found[:MOST_QUERIES])
    more = f"<p><b>{len(found) - MOST_QUERIES} more do not fit here.</b></p>" if len(found) > MOST_QUERIES else ""
    summary = f"{posed} of {len(found)} photos have a place in a map of {len(where.registered)} photos"
    body = f'<h1>Where it was taken</h1><p class="muted">{escape(summary)}</p>{shown}{more}'
    write_document(path, "superfeat: localization", body, FOOTER)


def _section(where: OpenMap, file: Path, one: Located) -> str:
    colour = COLOURS[one.trust]
    title = f'<h2>{escape(one.name)}</h2><p><b style="color:{colour}">{one.trust}</b> {escape(one.reason)}</p>'
    row = "display:flex;flex-wrap:wrap;gap:16px;align-items:flex-start"
    plan = "" if one.pose is None or one.model is None else _plan(where, one.model, one.pose)
    agreeing = [place for _, places in one.lines for place in places]
    counts = {number: len(places) for number, places in one.lines}
    chosen = sorted(one.cluster, key=lambda number: -counts.get(number, 0)) or one.retrieved
    cards = "".join(_card(where, number, counts.get(number, 0)) for number in chosen[:MOST_PHOTOS])
    first = f'<div style="{row}">{_photo(file, agreeing)}{plan}</div>'
    return f'<section>{title}{first}<div style="{row};margin-top:12px">{cards}</div></section>\n'


def _photo(file: Path, places: Sequence[tuple[float, float]]) -> str:
    """A query with its agreeing points."""
    try:
        pixels = read_image(file, max_side=SIDE, upright=False)
        width, height = stored_size(file)
    except ImageError as error:
        return f"<p>{escape(str(error))}</p>"
    tall, wide = pixels.shape[:2]
    dots = "".join(
        f'<circle cx="{x * wide / width:.1f}" cy="{y * tall / height:.1f}" r="2" fill="#ffd400"/>' for x, y in places
    )
    image = f'<image href="{embed(pixels, SIDE)}" width="{wide}" height="{tall}"/>'
    return f'<svg width="{wide}" height="{tall}" viewBox="0 0 {wide} {tall}">{image}{dots}</svg>'


def _card(where: OpenMap, number: int, agreeing: int) -> str:
    name = escape(where.names[number])
    try:
        picture = f'<img alt="{name}" src="{embed(read_image(where.path_of(number), upright=False), THUMBNAIL)}">'
    except ImageError as error:
        picture = escape(str(error))
    return f'<div style="width:{THUMBNAIL}px">{picture}<br><span class="muted">{name}<br>{agreeing} agree</span></div>'


def _plan(where: OpenMap, model: int, pose: CameraPose) -> str:
    """The map from above: the plane in which its cameras lie, as far as they go."""
    numbers = [number for number, place in where.registered.items() if place.model == model]
    poses = [found for number in numbers if (found := where.pose(number)) is not None]
    centres = np.asarray([one.centre() for one in poses])
    points = np.asarray([point.xyz for point in where.models[model].points3D.values()], np.float64).reshape(-1, 3)
    points = points[:: max(1, len(points) // MOST_POINTS)]
    axes = seen_from_above(poses)
    flat, ours, mine = points @ axes.T, centres @ axes.T, axes @ pose.centre()
    ahead = axes @ pose.rotation()[2]
    low, high = _extent(flat, np.concatenate([ours, mine[None]]))
    scale = (PLAN - 40) / max(float((high - low).max()), 1e-9)

    def place(xy: Float64[np.ndarray, "2"]) -> tuple[float, float]:
        shifted = (xy - (low + high) / 2) * scale
        return PLAN / 2 + float(shifted[0]), PLAN / 2 - float(shifted[1])

    grey = "".join('<circle cx="{:.1f}" cy="{:.1f}" r="1" fill="#999"/>'.format(*place(one)) for one in flat)
    blue = "".join('<circle cx="{:.1f}" cy="{:.1f}" r="3.5" fill="#2a6fdb"/>'.format(*place(one)) for one in ours)
    x, y = place(mine)
    length = max(float(np.linalg.norm(ahead)), 1e-9)
    dx, dy = 28 * float(ahead[0]) / length, -28 * float(ahead[1]) / length
    red = f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{x + dx:.1f}" y2="{y + dy:.1f}" stroke="#d1242f" stroke-width="3"/>'
    red += f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6" fill="#d1242f"/>'
    box = f'<rect width="{PLAN}" height="{PLAN}" fill="none" stroke="#ccc"/>'
    return f'<svg width="{PLAN}" height="{PLAN}" viewBox="0 0 {PLAN} {PLAN}">{box}{grey}{blue}{red}</svg>'


def _extent(points: np.ndarray, cameras: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All cameras, and the points but for the farthest twentieth."""
    edges = np.quantile(points, [0.025, 0.975], axis=0) if len(points) else cameras[:2]
    return np.minimum(cameras.min(axis=0), edges[0]), np.maximum(cameras.max(axis=0), edges[1])


def seen_from_above(poses: Sequence[CameraPose]) -> Float64[np.ndarray, "2 3"]:
    """Two axes of the ground: across what is down in the photos, on average. Right is right of the first photo."""
    down = np.mean([pose.rotation()[1] for pose in poses], axis=0)
    down = down / max(float(np.linalg.norm(down)), 1e-12)
    right = poses[0].rotation()[0]
    right = right - down * float(right @ down)
    right = right / max(float(np.linalg.norm(right)), 1e-12)
    return np.stack([right, np.cross(right, down)])
