"""superfeat train, pretrain, draw: networks from photos."""

import contextlib
import dataclasses
import os
import signal
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from superfeat.cli.accounts import accounts_for_files, as_told
from superfeat.cli.lines import Follow, Progress, say
from superfeat.cli.terminal import Told, device_option, json_option, print_result, tree, workers_option
from superfeat.config import DataConfig
from superfeat.errors import STOPPED

if TYPE_CHECKING:
    from superfeat.config import Recipe
    from superfeat.datasets.training_set import TrainingSet
    from superfeat.images import Photo, Skipped
    from superfeat.training.data import Sources
    from superfeat.training.records import LogFacts, SetFigures
    from superfeat.training.run import Event

PATH = click.Path(path_type=Path)
Command = TypeVar("Command", bound=Callable[..., Any])
DOING = {
    "start": "learning the whitening from",
    "lessons": "asking the teacher about",
    "maps": "computing the trunk's maps of",
    "mining": "mining negatives among",
    "validating": "validating with",
    "pretraining": "pretraining, step",
    "step": "step",
}


def run_options(command: Command) -> Command:
    """What `train` and `pretrain` share."""
    options = [
        click.argument("recipe"),
        click.option(
            "--images", type=PATH, help="Folder of photos, one sub-folder per thing (drawn recipes draw their own)."
        ),
        click.option("--labels", type=PATH, help="CSV with the columns image and thing (or id and landmark_id)."),
        click.option("--weights", help="Begin with this network or trunk; 'new' for none. [default: the recipe's]"),
        click.option(
            "--set", "assignments", multiple=True, metavar="NAME=VALUE", help="Any setting, e.g. training.negatives=10."
        ),
        click.option("--output", "-o", required=True, type=PATH, help="Folder of the run."),
        click.option("--resume", is_flag=True, help="Go on with the run in the folder."),
        click.option("--skip-unreadable", is_flag=True, help="Leave out photos that cannot be read."),
        device_option,
        workers_option,
        json_option,
    ]
    for option in reversed(options):
        command = option(command)
    return command


@click.command()
@run_options
@click.option(
    "--pairs", type=PATH, help="CSV with the columns query and positive. [default: pairs.csv beside the photos]"
)
@click.option(
    "--validation",
    type=PATH,
    multiple=True,
    help="Folder of other things, or a .json of queries; several sets: several times. [default: things held out]",
)
@click.option(
    "--validation-images",
    type=PATH,
    multiple=True,
    help="What the paths in the .json are below: one folder for all sets, or one for each.",
)
@click.option("--dry-run", is_flag=True, help="Say what would happen, how long and in how much memory, and stop.")
@accounts_for_files
def train(
    recipe: str,
    images: Path | None,
    labels: Path | None,
    weights: str | None,
    assignments: tuple[str, ...],
    output: Path,
    resume: bool,
    skip_unreadable: bool,
    device: str,
    workers: int | None,
    as_json: bool,
    pairs: Path | None,
    validation: tuple[Path, ...],
    validation_images: tuple[Path, ...],
    dry_run: bool,
) -> None:
    """Train a network by RECIPE: a name (fire-folder, fire-sfm120k, how-sfm120k, drawn-mini) or a TOML file.

    Ctrl-C saves; the same command with --resume goes on, and ends with the same weights as if nothing had happened.
    """
    from superfeat.extraction.extract import default_workers, keep_memory
    from superfeat.training.data import Sources, require_readable, split_validation
    from superfeat.training.plan import plan_training, require_room
    from superfeat.training.train import train as run_training

    keep_memory()
    settings = _read_recipe(recipe, weights, assignments)
    sources = Sources(images, labels, pairs, validation, validation_images)
    threads = workers or default_workers()
    with tempfile.TemporaryDirectory() if dry_run else contextlib.nullcontext(f"{output}-drawn") as drawn:
        whole, sources, skipped = _read_photos(settings, sources, Path(drawn), skip_unreadable, threads)
        training_set, tests = split_validation(settings, whole, sources)
        if sources.validation:
            require_readable([bad for test in tests for bad in unreadable(test.photos, threads)])
        if dry_run:
            print_result(plan_training(settings, training_set, tests, threads), as_json, tree)
            return
    require_room(settings, output)
    _tell(training_set.notes)
    with ctrl_c() as stop:
        events = run_training(
            settings, training_set, output, validation=tests, resume=resume, workers=workers, device=device, stop=stop
        )
        last = follow_run(events, as_json)
    if _first_rank():
        print_result(
            {"run": str(output), **last.facts, "epochs": last.done, "skipped": skipped}, as_json, _train_report
        )


@click.command()
@run_options
@accounts_for_files
def pretrain(
    recipe: str,
    images: Path | None,
    labels: Path | None,
    weights: str | None,
    assignments: tuple[str, ...],
    output: Path,
    resume: bool,
    skip_unreadable: bool,
    device: str,
    workers: int | None,
    as_json: bool,
) -> None:
    """Teach trunk and LIT to classify the photos of a folder, one sub-folder per class, as RECIPE's [pretraining] says.

    RECIPE is fire-imagenet (the paper's), another name, or a TOML file. RUN/best is a network to train with.
    """
    from superfeat.extraction.extract import default_workers, keep_memory
    from superfeat.training.data import Sources
    from superfeat.training.plan import require_room
    from superfeat.training.pretrain import pretrain as run_pretraining

    keep_memory()
    settings = _read_recipe(recipe, weights, assignments)
    drawn = Path(f"{output}-drawn")
    training_set, _, skipped = _read_photos(
        settings, Sources(images, labels), drawn, skip_unreadable, workers or default_workers()
    )
    require_room(settings, output)
    with ctrl_c() as stop:
        events = run_pretraining(
            settings, training_set, output, resume=resume, workers=workers, device=device, stop=stop
        )
        last = follow_run(events, as_json)
    result = {"run": str(output), "top1": last.facts["best"], "epochs": last.done, "skipped": skipped}
    print_result(result, as_json, _pretrain_report)


@click.command()
@click.option("--output", "-o", required=True, type=PATH, help="Folder for the pictures, one sub-folder per landmark.")
@click.option("--things", type=click.IntRange(min=1), default=DataConfig().things, show_default=True, help="Landmarks.")
@click.option(
    "--views", type=click.IntRange(min=1), default=DataConfig().views, show_default=True, help="Views of each."
)
@click.option(
    "--side", type=click.IntRange(min=16), default=DataConfig().side, show_default=True, help="Longest side in pixels."
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@json_option
def draw(output: Path, things: int, views: int, side: int, seed: int, as_json: bool) -> None:
    """Draw landmarks that are nobody's: buildings in changing light, weather and view, to train and test with."""
    from superfeat.drawn import draw_folder

    progress = Progress("drawing", things * views)
    for file in draw_folder(output, things=things, views=views, seed=seed, max_side=side):
        progress.step(file.name)
    progress.done()
    result = {"images": str(output), "things": things, "views": views}
    print_result(result, as_json, lambda made: [f"{made['images']}: {things} landmarks, {views} views of each"])


def _read_recipe(recipe: str, weights: str | None, assignments: Iterable[str]) -> "Recipe":
    from superfeat.recipes import read_recipe

    return read_recipe(recipe, assignments, weights)


def _read_photos(
    recipe: "Recipe", sources: "Sources", drawn: Path, skip_unreadable: bool, workers: int
) -> "tuple[TrainingSet, Sources, list[dict[str, str]]]":
    """The photos, drawn into a folder if the recipe says so, each decoded once to see that it can be; what cannot."""
    from superfeat.training.data import draw_landmarks, read_training_set, require_readable, without_photos

    if recipe.data.kind == "drawn" and sources.images is None:
        sources = dataclasses.replace(sources, images=drawn)
        progress = Progress("drawing landmark views:", recipe.data.things * recipe.data.views)
        for done in draw_landmarks(recipe.data, drawn):
            progress.at(done)
        progress.done()
    whole = read_training_set(recipe, sources)
    bad = unreadable(whole.photos, workers)
    if bad and skip_unreadable:
        return without_photos(whole, {photo.name for photo in bad}), sources, as_told(bad)
    require_readable(bad)
    return whole, sources, []


def unreadable(photos: "Sequence[Photo]", workers: int) -> "list[Skipped]":
    from superfeat.training.data import check_photos

    progress = Progress("checking photos:", len(photos))
    bad = []
    for found in check_photos(photos, workers):
        progress.step()
        bad += [found] if found else []
    progress.done()
    return bad


def _first_rank() -> bool:
    """Whether this process is the one that speaks (under torchrun there are several)."""
    return os.environ.get("RANK", "0") == "0"


@contextlib.contextmanager
def ctrl_c() -> Iterator[Callable[[], bool]]:
    """The first Ctrl-C asks the run to save and stop after its step; the second stops at once."""
    asked = False

    def note(_number: int, _frame: object) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        click.echo("\nstopping after this step; Ctrl-C again stops at once", err=True)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: asked
    except KeyboardInterrupt:
        if _first_rank():
            click.echo("superfeat: stopped; go on with the same command and --resume", err=True)
        raise click.exceptions.Exit(STOPPED) from None
    finally:
        signal.signal(signal.SIGINT, before)


def follow_run(events: "Iterable[Event]", as_json: bool) -> "Event":
    """Shows how far a run is; lines of epochs and validations stay. Returns its last event."""
    follow, last = Follow(), None
    for event in events:
        last = event
        if event.stage in DOING:
            loss = event.facts.get("loss")
            follow(DOING[event.stage], event.done, event.total, "" if loss is None else f"loss {loss:.4f}")
        elif event.stage in ("epoch", "validation") and not as_json and _first_rank():
            follow.end()
            say(_line(event))
    follow.end()
    if last is None or last.stage == "stopped":
        raise KeyboardInterrupt
    return last


def _line(event: "Event") -> str:
    facts = event.facts
    if event.stage == "validation":
        line = f"epoch {event.done}: mAP {facts['map']:.2f} ({facts['queries']} queries, {facts['images']} images)"
        return line + "".join(f"; {name} {_figures(one)}" for name, one in facts.get("sets", {}).items())
    if "cosine" in facts:
        return f"epoch {event.done} of {event.total}: " + ", ".join(_likeness(facts))
    if "top1" in facts:
        return f"epoch {event.done} of {event.total}: top-1 {facts['top1']:.1f} %, top-5 {facts['top5']:.1f} %"
    line = f"epoch {event.done} of {event.total}: loss {facts['loss']:.4f}"
    if facts["matches"]:
        line += f", {facts['matches']:.1f} matches, match ratio {facts['match_ratio']:.2f}"
        line += f" ({facts['match_ratio_any_id']:.2f} without IDs), attention correlation {facts['correlation']:.3f}"
    return line


def _likeness(facts: "LogFacts") -> Iterable[str]:
    """How alike a student and its teacher are."""
    if "loss" in facts:
        yield f"loss {facts['loss']:.4f}"
    yield f"cosine {facts['cosine']:.3f}"
    if "point_cosine" in facts:
        yield f"{facts['point_cosine']:.3f} of points"
    if "equal_words" in facts:
        yield f"{facts['equal_words']:.1%} equal words"


def _figures(one: "SetFigures") -> str:
    """Of one validation set among several."""
    hard = f" (Hard {one['map_hard']:.2f})" if "map_hard" in one else ""
    return f"{one['map']:.2f}{hard}"


def _tell(notes: Iterable[str]) -> None:
    for note in notes:
        say(f"note: {note}")


def _train_report(result: Told) -> Iterable[str]:
    best = "" if result["best"] is None else f", best mAP {result['best']:.2f}"
    yield f"{result['run']}: {result['epochs']} epochs{best}"
    yield f"  use it: superfeat index PHOTOS -o INDEX --weights {result['run']}/best"


def _pretrain_report(result: Told) -> Iterable[str]:
    yield f"{result['run']}: {result['epochs']} epochs, best top-1 {result['top1']:.1f} % on held-out photos"
    yield f"  train with it: superfeat train fire-folder --images PHOTOS --weights {result['run']}/best -o RUN"
