"""An explanation as a picture: both photos, their matched regions, how much of the score each is, and who saw it.

Colours mean the same throughout: a region has one colour in both photos, in the bar, and in the strip of the strongest
pairs; what belongs to no region is grey.
"""

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Float32, Float64, Int8, UInt8
from PIL import Image, ImageColor

from superfeat.errors import SuperfeatError
from superfeat.explain.explain import Explanation, Side
from superfeat.features import Features
from superfeat.found.arrangement import describe_agreement, draw_arrangement
from superfeat.found.colours import COLOURS, MUTED
from superfeat.found.region_labels import draw_label, label_width, place_label
from superfeat.found.sheet import PAGE, UNITS, Frame, Sheet, ink_on
from superfeat.found.verdicts import verdict
from superfeat.rerank.geometry import Arrangement
from superfeat.storage.store import write_file

LEAST_WIDTH = 300
PICTURE_FORMATS, QUALITY = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG"}, 90
SOFT, REST = "#f0f2f4", "#3a4149"
MARGIN, GAP, WIDEST_GAP, PHOTOS_TOP = 32, 24, 140, 122
TALLEST, NARROWEST_FRAME, WIDEST_FRAME = (
    560,
    0.4,
    3.0,
)  # the photos' height; least and most width over height of their frames
FADED, GREYED, TINT = 0.42, 0.65, 0.30  # unmatched parts towards white and grey, matched ones towards their colour
LEVEL = 0.4  # the part of a region's attention that its outline holds
SHOWN = 0.25  # the part of its outline that a region has to itself, however much others look there
FINE, BLUR = 96, 2.4  # pixels of the longer side on which attention is added up before it is enlarged; their blur
PAIRS_SHOWN, SPACE, TALL_THUMBNAIL = 6, 16, 190  # pairs below the photos, and between them
LOOK = 0.85  # how much of a thumbnail is covered where its super-feature looks the most
NEARLY = 4  # every so many pixels are looked at for a label's place on its region
PhotoPair = Mapping[Side, Image.Image]


class Captions(NamedTuple):
    """What is written beside an explanation: the names of both photos, and how likely they show the same thing."""

    query: str = ""
    found: str = ""
    probability: float | None = None


def draw_explanation(
    explanation: Explanation,
    query_pixels: UInt8[np.ndarray, "h w 3"],
    found_pixels: UInt8[np.ndarray, "h2 w2 3"],
    *,
    captions: Captions = Captions(),  # noqa: B008 - frozen
    arrangement: Arrangement | None = None,
    width: int = UNITS,
) -> Image.Image:
    """Both photos with their matched regions and the places of shared words, the shares of the score as a bar, the
    strongest pairs below.

    The pixels are those of the two photos, at any size; where `captions` give no names, those of the features stand.
    """
    if width < LEAST_WIDTH:
        raise SuperfeatError(f"a picture of {width} pixels cannot be read; give a width of {LEAST_WIDTH} or more")
    photos: PhotoPair = {"query": Image.fromarray(query_pixels), "found": Image.fromarray(found_pixels)}
    frames = _frames(photos)
    bar = PHOTOS_TOP + frames["query"].height + 22
    chosen = _strongest(explanation)
    rows = [min(TALL_THUMBNAIL, _cell_width() * photo.height / photo.width) for photo in photos.values()]
    sheet = Sheet(width, bar + 58 + (sum(rows) + 90 if chosen else 0) + MARGIN)
    _write_head(sheet, explanation, captions.probability)
    spots = []
    for side, frame in frames.items():
        _write_name(sheet, side, getattr(captions, side) or _features(explanation, side).name, frame)
        spots.append(_draw_photo(sheet, explanation, side, photos[side], frame))
    if arrangement is not None:
        draw_arrangement(sheet, arrangement, {side: _inside(photos[side], frame) for side, frame in frames.items()})
        sheet.write(UNITS / 2, 78, describe_agreement(arrangement), 15, MUTED, "ms")
    _draw_matches(sheet, explanation, spots)
    _draw_bar(sheet, explanation, bar)
    if chosen:
        _draw_strip(sheet, explanation, chosen, photos, bar + 58, rows)
    return sheet.finish()


def save_picture(picture: Image.Image, path: str | Path) -> None:
    """As .png or .jpg, by the file's ending; whole or not at all."""
    kind = PICTURE_FORMATS.get(Path(path).suffix.lower())
    if kind is None:
        raise SuperfeatError(f"cannot draw {path}: this picture ends in .png or .jpg")
    buffer = io.BytesIO()
    # For a PNG, to optimise takes four times as long and saves a thirtieth of the bytes.
    picture.save(buffer, kind, optimize=kind == "JPEG", quality=QUALITY)
    write_file(Path(path), buffer.getvalue())


# -- Words and numbers


def _colour(region: int) -> str:
    return REST if region < 0 else COLOURS[region]


def _write_head(sheet: Sheet, explanation: Explanation, probability: float | None) -> None:
    title = "Why this photo was found" if explanation.score > 0 else "Nothing in common"
    words, pairs = len(explanation.words.words), len(explanation.pairs.scores)
    facts = f"{words:,} shared word{'s' * (words != 1)} · {pairs:,} pair{'s' * (pairs != 1)} of {_noun(explanation)}s"
    sheet.write(MARGIN, 52, title, 29)
    sheet.write(UNITS - MARGIN, 52, f"score {explanation.score:.4g}", 22, anchor="rs")
    if probability is not None:
        sheet.write(UNITS - MARGIN, 78, verdict(probability)[0], 15, MUTED, "rs")
    sheet.write(MARGIN, 78, facts, 15, MUTED)


def _noun(explanation: Explanation) -> str:
    """What has an ID: a super-feature. One that looks at a single place is a feature of HOW."""
    maps = explanation.query.maps or ()
    return "super-feature" if any(np.count_nonzero(one) > 1 for one in maps) else "feature"


def whole_percents(shares: Sequence[float]) -> list[int]:
    """Shares that add up to 1 as whole percents that add up to 100: the largest remainders are rounded up."""
    exact = [100 * share for share in shares]
    rounded = [math.floor(value) for value in exact]
    order = sorted(range(len(exact)), key=lambda place: rounded[place] - exact[place])
    for place in order[: round(sum(exact)) - sum(rounded)]:
        rounded[place] += 1
    return rounded


def _percent(share: float) -> str:
    """Of a pair, which may be little."""
    return f"{100 * share:.0f} %" if abs(share) >= 0.0995 else f"{100 * share:.1f} %"


def _draw_bar(sheet: Sheet, explanation: Explanation, top: float) -> None:
    """The whole score, cut into its regions and the rest."""
    wide, high = UNITS - 2 * MARGIN, 30
    if not explanation.score > 0:
        shared = "They share words, but these do not agree" if len(explanation.words.words) else "They share no words"
        sheet.fill(Frame(MARGIN, top, wide, high + 14), SOFT, 6)
        sheet.write(UNITS / 2, top + high / 2 + 7, f"{shared}: the score is {explanation.score:.4g}.", 17, anchor="mm")
        return
    shares = [*(region.share for region in explanation.regions), explanation.rest]
    percents = whole_percents(shares)
    labels = [*(f"{percent} %" for percent in percents[:-1]), f"rest {percents[-1]} %"]
    colours = [*(_colour(number) for number in range(len(shares) - 1)), REST]
    total, left = sum(max(share, 0.0) for share in shares), float(MARGIN)
    for share, label, colour in zip(shares, labels, colours, strict=True):
        width = wide * max(share, 0.0) / total
        if width > 2:
            sheet.fill(Frame(left, top, width - 2, high), colour, 4)
        if sheet.length(label, 15) + 8 <= width:
            sheet.write(left + width / 2 - 1, top + high / 2, label, 15, ink_on(colour), "mm")
        left += width
    note = "Shares of the score. The rest is of pairs that lie apart from these regions"
    note += f", and speaks against the match: {percents[-1]} %." if explanation.rest < 0 else "."
    sheet.write(MARGIN, top + high + 24, note, 14, MUTED)


# -- The two photos


def _frames(photos: PhotoPair) -> dict[Side, Frame]:
    """Side by side, equally high; very narrow and very wide photos get frames of a sensible shape around them."""
    aspects = [min(max(photo.width / photo.height, NARROWEST_FRAME), WIDEST_FRAME) for photo in photos.values()]
    room = UNITS - 2 * MARGIN - GAP
    height = min(TALLEST, room / sum(aspects))
    gap = min(GAP + room - height * sum(aspects), WIDEST_GAP)
    left = (UNITS - height * sum(aspects) - gap) / 2
    return {
        "query": Frame(left, PHOTOS_TOP, height * aspects[0], height),
        "found": Frame(left + height * aspects[0] + gap, PHOTOS_TOP, height * aspects[1], height),
    }


def _inside(photo: Image.Image, frame: Frame) -> Frame:
    """Where a photo lies in its frame: whole, in the middle."""
    aspect = photo.width / photo.height
    width, height = min(frame.width, frame.height * aspect), min(frame.height, frame.width / aspect)
    return Frame(frame.left + (frame.width - width) / 2, frame.top + (frame.height - height) / 2, width, height)


def _features(explanation: Explanation, side: Side) -> Features:
    return explanation.query if side == "query" else explanation.found


def _write_name(sheet: Sheet, side: Side, name: str, frame: Frame) -> None:
    begin = sheet.length(side, 15) + 10
    sheet.write(frame.left, frame.top - 12, side, 15, MUTED)
    sheet.write(frame.left + begin, frame.top - 12, name, 15, room=frame.width - begin)


def _draw_photo(
    sheet: Sheet, explanation: Explanation, side: Side, photo: Image.Image, frame: Frame
) -> list[tuple[float, float]]:
    """The photo; returns where the label of each region goes, on the sheet."""
    sheet.fill(frame, SOFT)
    inside = _inside(photo, frame)
    left, top, right, bottom = sheet.pixels(inside)
    shown = photo.resize((right - left, bottom - top), Image.Resampling.LANCZOS)
    if not explanation.regions:
        sheet.image.paste(shown, (left, top))
        return []
    width, height = _reduced(shown.size)
    heats = [explanation.heat(side, height, width, region) for region in range(len(explanation.regions))]
    owners = _owners(heats, shown.size)
    sheet.image.paste(_tinted(shown, owners, round(1.6 * sheet.scale)), (left, top))
    cells = owners[::NEARLY, ::NEARLY]
    taken: list[Frame] = []
    for number, (region, words) in enumerate(zip(explanation.regions, _shares(explanation), strict=False)):
        taken.append(place_label(cells == number, getattr(region, side), inside, label_width(sheet, words), taken))
    return [(one.left + one.width / 2, one.top + one.height / 2) for one in taken]


def _tinted(photo: Image.Image, owners: Int8[np.ndarray, "height width"], line: int) -> Image.Image:
    """The photo, pale where nothing matches, each region in its colour with an outline."""
    plain = np.asarray(photo, np.float32)
    colours = np.asarray([ImageColor.getrgb(colour) for colour in COLOURS], np.float32)[owners]
    matched = (owners >= 0)[..., None]
    result = np.where(matched, plain + TINT * (colours - plain), _pale(plain))
    return _as_image(np.where(matched & _edges(owners, line)[..., None], colours, result))


def _pale(plain: Float32[np.ndarray, "height width 3"]) -> Float32[np.ndarray, "height width 3"]:
    grey = plain + GREYED * (plain.mean(axis=2, keepdims=True) - plain)
    return np.asarray(grey + FADED * (255 - grey))


def _owners(
    heats: Sequence[Float[np.ndarray, "rows columns"]], size: tuple[int, int]
) -> Int8[np.ndarray, "height width"]:
    """The region of each pixel, or -1: the smallest part of the photo that holds LEVEL of a region's attention.

    Where regions overlap, the one that looks there the most, for its own level, has the pixel. But no region is hidden
    by others: it has SHOWN of its part at least, where it comes nearest to them.
    """
    relative = np.stack([_relative(heat, size) for heat in heats])
    most = relative.max(axis=0)
    owners = np.where(most >= 1, relative.argmax(axis=0), -1).astype(np.int8)  # of equals the strongest
    for region in reversed(range(len(heats))):
        own = relative[region] >= 1
        least = int(SHOWN * own.sum())
        if least > (owners == region).sum():
            near = np.where(own, relative[region] / np.maximum(most, 1), -1)
            owners[near >= np.partition(near, -least, axis=None)[-least]] = region
    return owners


def _relative(heat: Float[np.ndarray, "rows columns"], size: tuple[int, int]) -> Float32[np.ndarray, "height width"]:
    """A region's attention as multiples of that at its outline."""
    height, width = heat.shape
    soft = _smoothing(height) @ np.maximum(heat, 0) @ _smoothing(width).T
    falling = np.sort(soft, axis=None)[::-1]
    held = np.cumsum(falling)
    level = falling[np.searchsorted(held, LEVEL * held[-1])]
    return _enlarged((soft / level).astype(np.float32), size)


def _reduced(size: tuple[int, int]) -> tuple[int, int]:
    """Width and height on which attention is added up; no network sees finer."""
    reduction = min(1.0, FINE / max(size))
    return max(1, round(size[0] * reduction)), max(1, round(size[1] * reduction))


def _smoothing(length: int) -> Float64[np.ndarray, "length length"]:
    """Takes the corners off the cells of coarse grids: a Gaussian over BLUR pixels."""
    apart = np.subtract.outer(np.arange(length), np.arange(length))
    weights = np.exp(-0.5 * (apart / BLUR) ** 2)
    return np.asarray(weights / weights.sum(axis=0))


def _enlarged(values: Float32[np.ndarray, "h w"], size: tuple[int, int]) -> Float32[np.ndarray, "height width"]:
    return np.asarray(Image.fromarray(values).resize(size, Image.Resampling.BICUBIC))


def _edges(owners: Int8[np.ndarray, "height width"], width: int) -> Bool[np.ndarray, "height width"]:
    """Where another owner is so near, in one of eight directions."""
    height, length = owners.shape
    padded = np.pad(owners, width, "edge")
    shifts = [(down, right) for down in (0, width, 2 * width) for right in (0, width, 2 * width)]
    edges = np.zeros(owners.shape, np.bool_)
    for down, right in shifts:
        edges |= padded[down : down + height, right : right + length] != owners
    return edges


def _as_image(values: np.ndarray) -> Image.Image:
    return Image.fromarray(np.clip(np.rint(values), 0, 255).astype(np.uint8))


# -- Matches: lines between the photos, and their shares


def _shares(explanation: Explanation) -> list[str]:
    """Of the regions, and of the rest."""
    percents = whole_percents([*(region.share for region in explanation.regions), explanation.rest])
    return [f"{percent} %" for percent in percents]


def _draw_matches(sheet: Sheet, explanation: Explanation, spots: Sequence[Sequence[tuple[float, float]]]) -> None:
    """`spots` are those of the labels in the one photo, and in the other: lines go from label to label."""
    ends = list(enumerate(zip(*spots, strict=True)))
    for number, (begin, end) in reversed(ends):  # the strongest on top
        width = 2 + 9 * min(1.0, explanation.regions[number].share)
        for line, colour in ((width + 2.5, PAGE), (width, _colour(number))):
            sheet.draw.polygon(_band(begin, end, line, sheet.scale), colour)
    words = _shares(explanation)
    for number, both in ends:
        for spot in both:
            draw_label(sheet, words[number], _colour(number), spot)


def _band(
    begin: tuple[float, float], end: tuple[float, float], width: float, scale: float
) -> list[tuple[float, float]]:
    """The outline of a curve from one point to another, level at both; Pillow's own lines have steps."""
    steps = np.linspace(0, 1, 97)
    x = begin[0] + (end[0] - begin[0]) * steps
    y = begin[1] + (end[1] - begin[1]) * steps**2 * (3 - 2 * steps)
    along = np.stack((np.gradient(x), np.gradient(y)))
    across = width / 2 * np.stack((-along[1], along[0])) / np.linalg.norm(along, axis=0)
    edges = np.concatenate([np.stack((x, y)) + across, (np.stack((x, y)) - across)[:, ::-1]], axis=1) * scale
    return [(float(one), float(other)) for one, other in edges.T]


# -- The strongest pairs


def _strongest(explanation: Explanation) -> list[int]:
    """The strongest pairs, each super-feature of either photo once: at its other scales it sees much the same."""
    chosen: list[int] = []
    seen: set[tuple[str, int]] = set()
    for number in np.flatnonzero(explanation.pairs.scores > 0).tolist() if explanation.score > 0 else ():
        mine = ("query", int(explanation.query.ids[explanation.pairs.query[number]]))
        theirs = ("found", int(explanation.found.ids[explanation.pairs.found[number]]))
        if not seen & {mine, theirs}:
            chosen.append(number)
            seen |= {mine, theirs}
        if len(chosen) == PAIRS_SHOWN:
            break
    return chosen


def _cell_width() -> float:
    return (UNITS - 2 * MARGIN - (PAIRS_SHOWN - 1) * SPACE) / PAIRS_SHOWN


def _draw_strip(
    sheet: Sheet, explanation: Explanation, chosen: Sequence[int], photos: PhotoPair, top: float, rows: Sequence[float]
) -> None:
    sheet.write(MARGIN, top + 32, f"Strongest pairs of {_noun(explanation)}s", 19)
    note = "where they look in the query, above, and in the photo found, below"
    sheet.write(UNITS - MARGIN, top + 32, note, 14, MUTED, "rs")
    for column, number in enumerate(chosen):
        left, line = MARGIN + column * (_cell_width() + SPACE), top + 46
        colour = _colour(int(explanation.members[number]))
        for (side, photo), height in zip(photos.items(), rows, strict=True):
            look = (_features(explanation, side).maps or ())[int(getattr(explanation.pairs, side)[number])]
            _draw_look(sheet, look, colour, photo, _inside(photo, Frame(left, line, _cell_width(), height)))
            line += height + 4
        _write_pair(sheet, explanation, number, left, line)


def _write_pair(sheet: Sheet, explanation: Explanation, number: int, left: float, top: float) -> None:
    ends = [(explanation.query, explanation.pairs.query[number]), (explanation.found, explanation.pairs.found[number])]
    ids = list(dict.fromkeys(str(features.ids[feature]) for features, feature in ends))
    scales = list(dict.fromkeys(f"{features.scales[feature]:.2g}" for features, feature in ends))
    share = explanation.share(float(explanation.pairs.scores[number]))
    sheet.write(left, top + 16, f"{_noun(explanation)}{'s' * (len(ids) > 1)} {', '.join(ids)}", 14, room=_cell_width())
    sheet.write(left, top + 35, f"scale{'s' * (len(scales) > 1)} {', '.join(scales)}", 14, MUTED)
    sheet.write(left + _cell_width(), top + 35, _percent(share), 14, anchor="rs")


def _draw_look(
    sheet: Sheet, look: Float32[np.ndarray, "rows columns"], colour: str, photo: Image.Image, frame: Frame
) -> None:
    """A pale photo with colour where one feature looks."""
    left, top, right, bottom = sheet.pixels(frame)
    size = (right - left, bottom - top)
    pale = _pale(np.asarray(photo.resize(size, Image.Resampling.LANCZOS), np.float32))
    light = np.sqrt(np.clip(_enlarged(look / max(float(look.max()), 1e-12), size), 0, 1))[..., None]
    paint = np.asarray(ImageColor.getrgb(colour), np.float32)
    sheet.image.paste(_as_image(pale + LOOK * light * (paint - pale)), (left, top))
