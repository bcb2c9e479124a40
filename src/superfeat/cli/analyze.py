"""superfeat analyze: pictures and numbers of what a network does with photos."""

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from superfeat.cli.terminal import SHOWN, Progress, json_option, print_result, weights_option, workers_option
from superfeat.config import PROFILES, ExtractConfig
from superfeat.errors import SuperfeatError
from superfeat.settings import as_dict, overlay, parse_assignment

if TYPE_CHECKING:
    import numpy as np

    from superfeat.features import Features
    from superfeat.studies.analyses import Run

PATH = click.Path(path_type=Path)
Command = TypeVar("Command", bound=Callable[..., Any])
Table = Iterable[Sequence[Any]]
FEW_PHOTOS, FEW_IDS = 3, 5  # in a picture of the paper
NEAREST = "1,2,4,8,16,32,64,128,192,256,384,512"  # the paper's K
KEPT = "50,100,200,400,600,800,1000,1200,1400,1600,1800,2000"
PICTURE_SIDE = 480  # of a photo in a picture, in pixels
NAME_LENGTH = 26  # characters that fit below it
ALL_SCALES = {"features_per_image", "attention"}  # what a kind decides itself
SCALE_1 = {"scales", *ALL_SCALES}


def _numbers(context: click.Context, parameter: click.Parameter, text: str | None) -> tuple[int, ...] | None:
    try:
        return None if text is None else tuple(int(part) for part in text.split(","))
    except ValueError:
        raise click.BadParameter(f"'{text}' is not a list of whole numbers like 3,17") from None


def analysis_options(images: int | None) -> Callable[[Command], Command]:
    """What all kinds share; `images` is how many photos are taken unless told otherwise."""
    first = f"Take the first so many photos. [default: {images or 'all'}]"
    options = [
        click.argument("photos", nargs=-1, required=True),
        click.option("--output", "-o", required=True, type=PATH, help="Folder for the numbers and the picture."),
        weights_option,
        click.option("--images", type=click.IntRange(min=1), default=images, help=first),
        click.option("--profile", type=click.Choice(list(PROFILES)), default="paper", show_default=True),
        click.option("--set", "assignments", multiple=True, metavar="NAME=VALUE", help="E.g. max_side=480."),
        click.option("--device", default="cpu", show_default=True, help="cpu, cuda, mps."),
        workers_option,
        json_option,
    ]

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def ids_option(count: int) -> Callable[[Command], Command]:
    help_text = f"Super-feature IDs, like 3,17. [default: the {count} strongest in these photos]"
    return click.option("--ids", "chosen", callback=_numbers, help=help_text)


@click.group()
def analyze() -> None:
    """Look into a network: what it attends to, how alike its features are, where they come from.

    Each kind writes KIND.json and KIND.png into the output folder.
    """


class _Analysis:
    """One call: the network, the photos and the settings; at the end the numbers, the picture and a table."""

    def __init__(
        self, kind: str, own: set[str], *, photos: tuple[str, ...], output: Path, weights: str, images: int | None,
        profile: str, assignments: tuple[str, ...], device: str, workers: int | None, as_json: bool,
    ) -> None:  # fmt: skip
        """`own` are the settings that this kind of analysis decides itself."""
        changes = dict(parse_assignment(text) for text in assignments)
        self.config = overlay(ExtractConfig.profile(profile), changes, "extract.")
        if taken := sorted(changes.keys() & own):
            raise SuperfeatError(f"analyze {kind} decides '{taken[0]}' itself; leave --set {taken[0]}=… out")

        from superfeat.extraction.extract import keep_memory
        from superfeat.images import list_photos
        from superfeat.weights import load_network

        keep_memory()
        self.kind, self.own, self.output, self.as_json = kind, own, output, as_json
        self.device, self.workers = device, workers
        self.photos = list_photos(photos).photos[:images]
        if not self.photos:
            raise SuperfeatError(f"no photos in {', '.join(photos)}")
        self.network = load_network(weights)
        self.method = {"fire": "FIRe", "how": "HOW"}[self.network.config.method]
        self.skipped: dict[str, str] = {}
        self.done = 0

    @contextlib.contextmanager
    def running(self, doing: str) -> "Iterator[Run]":
        """For one pass over the photos."""
        from superfeat.studies.analyses import Run

        progress, self.done = Progress(doing, len(self.photos)), 0

        def step(_: int) -> None:
            self.done += 1
            progress.step()

        yield Run(self.workers, self.device, lambda one: self.skipped.update({one.name: one.reason}), step)
        progress.done()

    def features(self, config: ExtractConfig) -> "Iterator[Features]":
        from superfeat.extraction.extract import extract

        with self.running("extracting") as run:
            how: dict[str, Any] = {"workers": run.workers, "device": run.device, "on_skip": run.on_skip}
            for features in extract(self.network, self.photos, config, **how):
                yield features
                run.on_image(1)

    def ids(self, chosen: tuple[int, ...] | None, count: int) -> list[int]:
        from superfeat.studies.analyses import strongest_ids

        if chosen is not None:
            return list(dict.fromkeys(chosen))  # each once
        with self.running("choosing IDs from") as run:
            return strongest_ids(self.network, self.photos, count, self.config, run=run)

    def pixels(self, name: str) -> "np.ndarray":
        """A small copy of a photo, to draw on."""
        from superfeat.images import read_image

        path = next(photo.path for photo in self.photos if photo.name == name)
        return read_image(path, max_side=PICTURE_SIDE, upright=self.config.upright)

    def draw_curve(self, x_label: str, y_label: str, x: Sequence[int], y: "np.ndarray", path: Path) -> None:
        from superfeat.pages.plots import Panel, Series, draw_curves

        title = f"{self.method}, {self.done} photos"
        draw_curves([Panel(title, x_label, y_label, [Series(self.method, x, y.tolist())])], path, columns=1)

    def finish(
        self, title: str, caption: str, numbers: Mapping[str, Any], table: Table, draw: Callable[[Path], None]
    ) -> None:
        """Numbers first: they are kept where nothing can be drawn."""
        from superfeat.storage.store import explained, write_json

        settings = {name: value for name, value in as_dict(self.config).items() if name not in self.own}
        network = {"digest": self.network.digest, **as_dict(self.network.config)}
        facts = {"kind": self.kind, "title": title, "caption": caption, "images": self.done, **numbers}
        facts |= {"network": network, "extract": settings, "picture": f"{self.kind}.png"}
        facts["skipped"] = [{"name": name, "reason": reason} for name, reason in self.skipped.items()]
        with explained(self.output):
            self.output.mkdir(parents=True, exist_ok=True)
        write_json(self.output / f"{self.kind}.json", facts)
        draw(self.output / f"{self.kind}.png")
        print_result({"output": str(self.output), **facts}, self.as_json, lambda result: _report(result, table))


def _report(result: Mapping[str, Any], table: Table) -> Iterable[str]:
    yield f"{result['title']} ({result['images']} photos)"
    texts = [["-" if x is None else f"{x:.4g}" if isinstance(x, float) else str(x) for x in row] for row in table]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    for row in texts:
        yield "  " + "  ".join(f"{text:>{width}}" for text, width in zip(row, widths, strict=True))
    for entry in result["skipped"][:SHOWN]:
        yield f"  skipped {entry['name']}: {entry['reason']}"
    if len(result["skipped"]) > SHOWN:
        yield f"  … and {len(result['skipped']) - SHOWN} more (--json lists them)"
    yield f"  in {result['output']}: {result['kind']}.json, {result['picture']}"


def _plain(value: float) -> float | None:
    """A number for JSON, which knows no NaN."""
    return None if math.isnan(value) else round(float(value), 6)


def _look(strength: float, region: "np.ndarray") -> dict[str, Any]:
    x, y, spread_x, spread_y = (_plain(value) for value in region)
    return {"strength": _plain(strength), "x": x, "y": y, "spread_x": spread_x, "spread_y": spread_y}


def _centre(look: Mapping[str, Any] | None) -> str:
    """In hundredths of the photo's width and height."""
    return f"{100 * look['x']:.0f}, {100 * look['y']:.0f}" if look else "-"


def _end(name: str) -> str:
    return name if len(name) <= NAME_LENGTH else f"…{name[1 - NAME_LENGTH :]}"


# -- Attention


@analyze.command()
@analysis_options(FEW_PHOTOS)
@ids_option(FEW_IDS)
def attention(chosen: tuple[int, ...] | None, **options: Any) -> None:
    """Where the same super-features look in several photos (the paper's Figure 1)."""
    analysis = _Analysis("attention", SCALE_1, **options)

    from superfeat.pages.plots import Picture, draw_photos
    from superfeat.studies.analyses import attention_of_ids

    ids = analysis.ids(chosen, FEW_IDS)
    rows: list[list[Picture]] = []
    numbers: list[dict[str, Any]] = []
    with analysis.running("looking at") as run:
        for one in attention_of_ids(analysis.network, analysis.photos, ids, analysis.config, run=run):
            photo = analysis.pixels(one.name)
            rows.append([Picture(photo), *(Picture(photo, attention) for attention in one.maps)])
            looks = dict(zip(map(str, ids), map(_look, one.strengths, one.regions), strict=True))
            numbers.append({"name": one.name, "ids": looks})
    names = [f"ID {id}" for id in ids]
    analysis.finish(
        "Where super-features look",
        "Each row is a photo, each column the super-feature of one ID; bright is where it looks. An ID should look for "
        "the same kind of thing in every photo, and different IDs for different things.",
        {"ids": ids, "photos": numbers},
        [["centre, % of the photo", *names], *([one["name"], *map(_centre, one["ids"].values())] for one in numbers)],
        lambda path: draw_photos(rows, path, column_titles=["photo", *names]),
    )


@analyze.command()
@analysis_options(FEW_PHOTOS)
@ids_option(1)
def attention_scales(chosen: tuple[int, ...] | None, **options: Any) -> None:
    """Where a super-feature looks at each scale of a photo."""
    analysis = _Analysis("attention-scales", ALL_SCALES, **options)

    from superfeat.pages.plots import Picture, draw_photos
    from superfeat.studies.analyses import attention_of_ids_over_scales

    ids, scales = analysis.ids(chosen, 1), sorted(analysis.config.scales)
    rows: list[list[Picture | None]] = []
    numbers: list[dict[str, Any]] = []
    with analysis.running("looking at") as run:
        for photo in attention_of_ids_over_scales(analysis.network, analysis.photos, ids, analysis.config, run=run):
            pixels = analysis.pixels(photo.name)
            for id, found in zip(ids, photo.maps, strict=True):
                maps = {one.scale: Picture(pixels, one.map) for one in found}
                rows.append([Picture(pixels, caption=f"ID {id}"), *map(maps.get, scales)])
                looks = {f"{one.scale:g}": _look(one.strength, one.region) for one in found}
                numbers.append({"name": photo.name, "id": id, "scales": looks})
    names = [f"{scale:g}" for scale in scales]
    analysis.finish(
        "Where a super-feature looks at each scale",
        "Each row is one super-feature of a photo, each column a scale of the photo; bright is where it looks. Maps "
        "are enlarged to the photo, so those of small scales are smoother. A steady one looks at the same place.",
        {"ids": ids, "photos": numbers},
        [["centre, % of the photo", "ID", *names]]
        + [[one["name"], one["id"], *(_centre(one["scales"].get(name)) for name in names)] for one in numbers],
        lambda path: draw_photos(rows, path, column_titles=["photo", *names]),
    )


@analyze.command()
@analysis_options(None)
@ids_option(FEW_IDS)
@click.option("--top", default=6, show_default=True, type=click.IntRange(min=1), help="Photos to show of each ID.")
def ids(chosen: tuple[int, ...] | None, top: int, **options: Any) -> None:
    """What super-features look for: the photos in which each is strongest."""
    analysis = _Analysis("ids", SCALE_1, **options)

    from superfeat.pages.plots import Picture, draw_photos
    from superfeat.studies.analyses import what_ids_look_for

    ids = analysis.ids(chosen, FEW_IDS)
    with analysis.running("looking at") as run:
        found = what_ids_look_for(analysis.network, analysis.photos, ids, top, analysis.config, run=run)
    rows = [[Picture(analysis.pixels(seen.name), seen.map, _end(seen.name)) for seen in one.strongest] for one in found]
    numbers: list[dict[str, Any]] = [
        {"id": one.id, "cosine": _plain(one.cosine), "cosine_of_all": _plain(one.cosine_of_all)}
        | {"photos": [{"name": seen.name, **_look(seen.strength, seen.region)} for seen in one.strongest]}
        for one in found
    ]
    analysis.finish(
        "What super-features look for",
        f"Each row is a super-feature ID, in the photos of {analysis.done} where it is strongest; bright is where it "
        "looks. An ID that has learned something looks at like things in a row.",
        {"ids": numbers},
        [["ID", "cosine of its vectors", "over all photos", "strongest in"]]
        + [[one["id"], one["cosine"], one["cosine_of_all"], one["photos"][0]["name"]] for one in numbers],
        lambda path: draw_photos(rows, path, row_titles=[f"ID {id}" for id in ids]),
    )


@analyze.command()
@analysis_options(None)
def correlation(**options: Any) -> None:
    """How much the attention maps of a photo cover each other."""
    analysis = _Analysis("correlation", SCALE_1, **options)

    import numpy as np

    from superfeat.pages.plots import draw_matrices
    from superfeat.studies.analyses import correlation_matrix, off_diagonal_mean

    with analysis.running("comparing the maps of") as run:
        matrix = correlation_matrix(analysis.network, analysis.photos, analysis.config, run=run)
    first, second = np.triu_indices(len(matrix), 1)
    alike = np.argsort(-matrix[first, second], kind="stable")[:FEW_IDS]
    pairs = [(int(first[place]), int(second[place])) for place in alike]
    mean = off_diagonal_mean(matrix)
    analysis.finish(
        "How alike the attention maps are",
        f"The cosine between the attention maps of each two super-features of a photo, mean over {analysis.done} "
        f"photos; dark is unlike. Over all pairs of different ones the mean is {mean:.3f}, which the decorrelation "
        "loss lowers.",
        {"mean": _plain(mean), "most_alike": [{"ids": pair, "cosine": _plain(matrix[pair])} for pair in pairs]},
        [["IDs", "cosine"], ["all pairs", mean], *([f"{a} and {b}", float(matrix[a, b])] for a, b in pairs)],
        lambda path: draw_matrices([(f"mean {mean:.3f}", matrix)], path, note="IDs against IDs; 1 is the same map"),
    )


# -- Features


@analyze.command()
@analysis_options(None)
@click.option("--counts", callback=_numbers, default=NEAREST, show_default=True, help="How many nearest features.")
def redundancy(counts: tuple[int, ...], **options: Any) -> None:
    """How alike the features of a photo are."""
    analysis = _Analysis("redundancy", SCALE_1, **options)

    from superfeat.studies import analyses

    config = overlay(analyses.every_feature(analysis.config), {"scales": [1.0]})
    found = analyses.redundancy(analysis.features(config), counts)
    cosines = [_plain(value) for value in found]
    analysis.finish(
        "How alike the features of a photo are",
        "The cosine of a feature to the K features of the same photo that are most like it: mean over all features of "
        f"{analysis.done} photos at scale 1. Lower is better: features that repeat each other add nothing.",
        {"counts": counts, "cosines": cosines},
        [["K", "mean cosine"], *zip(counts, cosines, strict=True)],
        lambda path: analysis.draw_curve("K", "mean cosine to the K nearest", counts, found, path),
    )


@analyze.command()
@analysis_options(None)
def scales(**options: Any) -> None:
    """From which scales the strongest features come."""
    analysis = _Analysis("scales", {"attention"}, **options)

    from superfeat.pages.plots import Panel, Series, draw_bars
    from superfeat.studies import analyses

    steps, count = sorted(analysis.config.scales), analysis.config.features_per_image
    found = analyses.scale_shares(analysis.features(analyses.every_feature(analysis.config)), steps, count)
    parts = {"share_of_the_selected": found.of_selected, "share_selected": found.selected, "features": found.features}
    numbers = {name: [_plain(value) for value in values] for name, values in parts.items()}
    titles = ("Share of the selected features", "Selected share of the scale's features", "Features of the scale")
    panels = [
        Panel(title, "scale", label, [Series(analysis.method, steps, values.tolist())])
        for title, label, values in zip(titles, ("share", "share", "features"), parts.values(), strict=True)
    ]
    analysis.finish(
        "From which scales the features come",
        f"Of each photo the {count} strongest features are selected. Left: the share of these that come from each "
        "scale; middle: the share of each scale's features that are selected; right: how many features each scale has. "
        f"Means over {analysis.done} photos.",
        {"scales": steps, "selected": count, **numbers},
        [["scale", "share of the selected", "share selected", "features"], *zip(steps, *numbers.values(), strict=True)],
        lambda path: draw_bars(panels, path, columns=3),
    )


@analyze.command()
@analysis_options(None)
@click.option("--codebook", required=True, type=PATH, help="The words: see superfeat codebook.")
@click.option("--counts", callback=_numbers, default=KEPT, show_default=True, help="How many features to keep.")
def words(codebook: Path, counts: tuple[int, ...], **options: Any) -> None:
    """How many words, and so how much memory, a photo needs in an index."""
    analysis = _Analysis("words", ALL_SCALES, **options)

    from superfeat.index.codebook import Codebook
    from superfeat.studies.analyses import words_by_features

    config = overlay(analysis.config, {"features_per_image": max(counts)})
    book = Codebook.open(codebook)
    found = words_by_features(analysis.features(config), book, counts, workers=analysis.workers)
    analysis.finish(
        "How many words a photo needs",
        f"How many words of a codebook of {book.words} the features of a photo go to when only the strongest are kept: "
        f"mean over {analysis.done} photos. An index stores one code for each.",
        {"counts": counts, "words": found.round(3).tolist(), "codebook_words": book.words},
        [["features", "words"], *zip(counts, found.tolist(), strict=True)],
        lambda path: analysis.draw_curve("features kept", "words per photo", counts, found, path),
    )
