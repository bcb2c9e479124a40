"""superfeat extract: photos -> features."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from superfeat.cli.terminal import (
    ENTRIES_SHOWN,
    Progress,
    Told,
    json_option,
    limit_pixels,
    print_result,
    weights_option,
    workers_option,
)
from superfeat.config import PROFILES, ExtractConfig
from superfeat.errors import SuperfeatError
from superfeat.settings import overlay, parse_assignment, read_toml

if TYPE_CHECKING:
    from superfeat.images import Listing


@click.command()
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
    photos: tuple[str, ...],
    output: Path,
    weights: str,
    profile: str,
    features: int | None,
    max_side: int | None,
    as_stored: bool,
    regions: bool,
    config_file: Path | None,
    assignments: tuple[str, ...],
    device: str,
    max_pixels: int | None,
    workers: int | None,
    as_json: bool,
) -> None:
    """Turn PHOTOS (folders, files, glob patterns, .txt lists) into features.

    What is already in the output folder is not done again, so an interrupted run goes on where it stopped.
    """
    config = read_extract_config(profile, config_file, assignments)
    flags: dict[str, Any] = {"features_per_image": features, "max_side": max_side}
    flags |= {"upright": False if as_stored else None, "attention": "regions" if regions else None}
    config = overlay(config, {name: value for name, value in flags.items() if value is not None})

    from superfeat.extraction.extract import extract_to, keep_memory
    from superfeat.extraction.folder import FeatureStore
    from superfeat.images import Skipped, list_photos
    from superfeat.weights import load_network

    keep_memory()
    limit_pixels(max_pixels)
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
    print_result(_extract_result(output, listing, new), as_json, _extract_report)
    if network.config.whitened_dim is None and not as_json:
        note = f"note: these weights have no whitening, so features have {network.dim} raw dimensions; learn one with"
        click.echo(f"{note}: superfeat weights whiten {weights} PHOTOS -o NETWORK", err=True)


def _extract_result(output: Path, listing: "Listing", new: int) -> Told:
    from superfeat.extraction.folder import FeatureStore, photo_stamp

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


def read_extract_config(profile: str, config_file: Path | None, assignments: Iterable[str]) -> ExtractConfig:
    config = ExtractConfig.profile(profile)
    if config_file is not None:
        tables = read_toml(config_file)
        unknown = sorted(set(tables) - {"extract"})
        if unknown:
            raise SuperfeatError(f"{config_file}: unknown table '{unknown[0]}'; extract reads the table [extract]")
        config = overlay(config, tables.get("extract", {}), "extract.")
    return overlay(config, dict(parse_assignment(text) for text in assignments), "extract.")


def _extract_report(result: Told) -> Iterable[str]:
    yield f"{result['features']}: {result['images']} images ({result['new']} new), " + (
        f"{result['features_per_image']} features of {result['dim']} dimensions each"
    )
    for entry in result["skipped"][:ENTRIES_SHOWN]:
        yield f"  skipped {entry['name']}: {entry['reason']}"
    if len(result["skipped"]) > ENTRIES_SHOWN:
        yield f"  … and {len(result['skipped']) - ENTRIES_SHOWN} more (--json lists them)"
    if result["left_out"]:
        names = ", ".join(result["left_out"][:ENTRIES_SHOWN]) + (
            ", …" if len(result["left_out"]) > ENTRIES_SHOWN else ""
        )
        yield f"  left out {len(result['left_out'])} files that are not images by their ending: {names}"
    if result["changed"]:
        yield f"  {len(result['changed'])} photos have changed since; extract into a new folder to see them anew"
